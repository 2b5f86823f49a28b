//! The files that must survive: a real tree and a large one, with their checksums.

use super::interrupt;
use anyhow::{Context, Result};
use rustix::fs::Advice;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The tree is cut here: the demo must stay short on a machine with a large /usr/share.
const TREE_BYTES_MAX: u64 = 600 << 20;
const TREE_FILES_MAX: usize = 50_000;

/// Where the tree comes from.
const TREE: &str = "/usr/share";

/// The large generated file.
const LARGE_FILE: &str = "large.bin";

/// Checksums by path below some folder.
pub type Checksums = BTreeMap<PathBuf, String>;

/// What became of files.
#[derive(Debug, PartialEq, Eq)]
pub struct Comparison {
    /// What was compared: "files".
    pub what: &'static str,
    /// Files that were there before and were looked for.
    pub compared: usize,
    /// Those that are gone or differ.
    pub lost: Vec<PathBuf>,
}

/// Copies the tree and writes the large file; returns how many files and bytes.
pub fn fill(folder: &Path, large_bytes: u64) -> Result<(usize, u64)> {
    let mut copied = 0;
    let mut bytes = 0;
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    for (source, size) in choose(Path::new(TREE)) {
        interrupt::check()?;
        let relative = source.strip_prefix("/").expect("below /usr/share");
        let to = folder.join(relative);
        std::fs::create_dir_all(to.parent().expect("has a folder"))?;
        std::fs::copy(&source, &to)
            .with_context(|| format!("copying {} to {}", source.display(), to.display()))?;
        copied += 1;
        bytes += size;
    }
    write_random(&folder.join(LARGE_FILE), large_bytes)?;
    Ok((copied + 1, bytes + large_bytes))
}

/// Regular readable files below `from`, in the order of their names, up to the limits.
fn choose(from: &Path) -> Vec<(PathBuf, u64)> {
    let mut chosen = Vec::new();
    let mut bytes = 0;
    let mut folders = vec![from.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort_unstable();
        for path in paths {
            let Ok(facts) = path.symlink_metadata() else {
                continue;
            };
            if facts.is_dir() {
                folders.push(path);
            } else if facts.is_file() && bytes + facts.len() <= TREE_BYTES_MAX {
                bytes += facts.len();
                chosen.push((path, facts.len()));
            }
            if chosen.len() == TREE_FILES_MAX {
                return chosen;
            }
        }
    }
    chosen
}

/// A file of random bytes, durable when this returns.
pub fn write_random(path: &Path, bytes: u64) -> Result<()> {
    let mut random = fastrand::Rng::new();
    let mut block = vec![0; 1 << 20];
    let mut file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    let mut left = bytes;
    while left > 0 {
        interrupt::check()?;
        let part = usize::try_from(left.min(block.len() as u64))?;
        random.fill(&mut block[..part]);
        file.write_all(&block[..part])
            .with_context(|| format!("writing {}", path.display()))?;
        left -= part as u64;
    }
    file.sync_all()
        .with_context(|| format!("syncing {}", path.display()))
}

/// BLAKE2b of every file below `folder`, read from the drives and not from the page cache.
pub fn checksums(folder: &Path) -> Result<Checksums> {
    let listing = Command::new("find")
        .current_dir(folder)
        .args([".", "-type", "f", "-print0"])
        .output()
        .context("listing files")?;
    let names: Vec<&[u8]> = listing.stdout.split_inclusive(|byte| *byte == 0).collect();
    for name in &names {
        forget(folder, &name[..name.len() - 1]);
    }
    // One b2sum for each half: two writing to one pipe would mix their lines.
    let (left, right) = names.split_at(names.len() / 2);
    let halves = [left.concat(), right.concat()];
    let sums = std::thread::scope(|scope| {
        let threads = halves.map(|half| scope.spawn(move || sums_of(folder, &half)));
        threads.map(|thread| thread.join().expect("reads checksums"))
    });
    interrupt::check()?;
    let mut all = Checksums::new();
    for half in sums {
        all.extend(half?);
    }
    Ok(all)
}

/// Drops what the page cache holds of a file. Where that fails the file is read all the same.
fn forget(folder: &Path, name: &[u8]) {
    if let Ok(file) = File::open(folder.join(OsStr::from_bytes(name))) {
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
    }
}

/// A file that b2sum cannot read is not in the answer, and so counts as lost.
fn sums_of(folder: &Path, names: &[u8]) -> Result<Checksums> {
    let mut child = Command::new("xargs")
        .current_dir(folder)
        .args(["-0", "-r", "-n", "256", "b2sum", "--zero"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting b2sum")?;
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let output = std::thread::scope(|scope| {
        // It fails when xargs ends early; what is missing then shows in the answer.
        scope.spawn(move || stdin.write_all(names));
        child.wait_with_output()
    });
    Ok(parse_checksums(
        &output.context("reading checksums")?.stdout,
    ))
}

/// `SUM  PATH`, each ended by a zero byte.
fn parse_checksums(printed: &[u8]) -> Checksums {
    printed
        .split(|byte| *byte == 0)
        .filter_map(|entry| {
            let text = String::from_utf8_lossy(entry);
            let (sum, path) = text.split_once("  ")?;
            Some((PathBuf::from(path), sum.to_owned()))
        })
        .collect()
}

/// Looks for each file (or what else they are) of `before` in `after`.
pub fn compare(what: &'static str, before: &Checksums, after: &Checksums) -> Comparison {
    let lost = before
        .iter()
        .filter(|(path, sum)| after.get(*path) != Some(*sum))
        .map(|(path, _)| path.clone())
        .collect();
    Comparison {
        what,
        compared: before.len(),
        lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_and_a_missing_file_are_lost() {
        let before = parse_checksums(b"aa  ./x\0bb  ./y\0cc  ./z\0");
        let after = parse_checksums(b"aa  ./x\0b0  ./y\0dd  ./new\0");
        let comparison = compare("files", &before, &after);
        assert_eq!(comparison.compared, 3);
        assert_eq!(comparison.lost, ["./y", "./z"].map(PathBuf::from));
    }
}
