//! House rules that a compiler does not check, over every tracked and new file.

use crate::{shell, workspace};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// Crates without unsafe code (design: the table of crates).
const SAFE_CRATES: &[&str] = &[
    "crates/engine",
    "crates/node",
    "crates/exports",
    "crates/api",
    "crates/strake",
    "crates/sim",
    "crates/xtask",
    "tests",
];

/// Words that say that something was left open. Split so that this file passes its own rule.
const LEFT_OPEN: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
    concat!("dbg", "!("),
    concat!("#[ig", "nore"),
];

/// Terms that the house has another word for.
const OTHER_HOUSES_WORDS: &[&str] = &[concat!("re", "silver")];

/// Fails with every place where a rule does not hold.
pub fn run() -> Result<()> {
    let root = workspace::root();
    let mut broken = Vec::new();
    for name in SAFE_CRATES {
        broken.extend(check_forbids_unsafe(&root, name));
    }
    for file in source_files(&root)? {
        // A file may be deleted and not yet committed.
        let Ok(text) = std::fs::read_to_string(root.join(&file)) else {
            continue;
        };
        broken.extend(check_source(&file, &text));
    }
    if broken.is_empty() {
        return Ok(());
    }
    bail!("house rules do not hold:\n{}", broken.join("\n"))
}

fn source_files(root: &Path) -> Result<Vec<String>> {
    let listing = shell::read(Command::new("git").current_dir(root).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "*.rs",
    ]))?;
    Ok(listing.lines().map(str::to_owned).collect())
}

fn check_forbids_unsafe(root: &Path, name: &str) -> Option<String> {
    let source = root.join(name).join("src");
    let text = ["lib.rs", "main.rs"]
        .iter()
        .find_map(|file| std::fs::read_to_string(source.join(file)).ok())?;
    let forbids = text.contains("#![forbid(unsafe_code)]");
    (!forbids).then(|| format!("{name}: its root does not forbid unsafe code"))
}

fn check_source(file: &str, text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for word in LEFT_OPEN {
            if line.contains(word) {
                broken.push(format!("{file}:{number}: left open: {word}"));
            }
        }
        let lower = line.to_lowercase();
        for word in OTHER_HOUSES_WORDS {
            if lower.contains(word) {
                broken.push(format!("{file}:{number}: not a word of this house: {word}"));
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_ends_are_named_with_their_line() {
        let text = format!("fn f() {{}}\n// {}: later\n", concat!("TO", "DO"));
        let broken = check_source("a.rs", &text);
        assert_eq!(broken.len(), 1);
        assert!(broken[0].starts_with("a.rs:2:"), "{}", broken[0]);
    }

    #[test]
    fn ordinary_source_passes() {
        assert!(check_source("a.rs", "/// Rebuilds a member.\nfn f() {}\n").is_empty());
    }
}
