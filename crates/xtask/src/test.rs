//! `cargo test` over the workspace, with the sum over all test programs as the last line.
//!
//! An end-to-end test that could not run (and was allowed to say so) leaves a line in the
//! skip file. With `STRAKE_TEST_NO_SKIPS=1`, as in CI, such a line fails the run.

use crate::workspace;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// What test programs counted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Sum {
    /// Adds the counts of a closing line; any other line adds nothing.
    ///
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; ...`
    fn add_line(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else {
            return;
        };
        let counts = rest.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let (Some(count), Some(what)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(count) = count.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.skipped += count,
                _ => {}
            }
        }
    }
}

/// Runs all tests; fails when one failed, none ran, or one was skipped that may not be.
pub fn run(cargo_arguments: &[String]) -> Result<()> {
    let program = workspace::build_test_program()?;
    let skip_file = workspace::target_dir().join("skipped-tests.txt");
    std::fs::write(&skip_file, "").with_context(|| format!("writing {}", skip_file.display()))?;

    let mut sum = Sum::default();
    let mut tests = workspace::cargo();
    tests
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(cargo_arguments)
        .env("STRAKE_PROGRAM", &program)
        .env("STRAKE_TEST_SKIP_FILE", &skip_file);
    let mut succeeded = counted(&mut tests, &mut sum)?;
    if cargo_arguments.is_empty() {
        // Bugs planted in the engine must be found: an engine of its own, beside the true one.
        let mut planted = workspace::cargo();
        planted.args(["test", "--package", "strake-sim", "--features", "planted"]);
        planted.args(["--test", "planted", "--test", "durability"]);
        // Of the orders' tests the one that swaps them; the others have run.
        planted.args(["--", "planted"]);
        succeeded &= counted(&mut planted, &mut sum)?;
    }

    let skips = std::fs::read_to_string(&skip_file).unwrap_or_default();
    let skip_count = skips.lines().count() as u64;
    // The harness counted these as passed, because they returned.
    sum.passed = sum.passed.saturating_sub(skip_count);
    sum.skipped += skip_count;
    let verdict = judge(succeeded, &sum, &skips);
    if let Err(error) = &verdict {
        println!("\nerror: {error:#}");
    }
    println!(
        "\n{} passed, {} failed, {} skipped",
        sum.passed, sum.failed, sum.skipped
    );
    if verdict.is_err() {
        // The sum is the last line: the reason stands above it.
        std::process::exit(1);
    }
    Ok(())
}

/// Runs `cargo test`, prints what it prints, and adds up its tests. True: all passed.
fn counted(command: &mut Command, sum: &mut Sum) -> Result<bool> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("starting cargo test")?;
    let stdout = child.stdout.take().expect("stdout is piped");
    for line in BufReader::new(stdout).lines() {
        let line = line.context("reading what cargo test prints")?;
        sum.add_line(&line);
        writeln!(std::io::stdout(), "{line}")?;
    }
    let status = child.wait().context("waiting for cargo test")?;
    Ok(status.success())
}

fn judge(cargo_succeeded: bool, sum: &Sum, skips: &str) -> Result<()> {
    for line in skips.lines() {
        println!("skipped: {line}");
    }
    if sum.failed > 0 || !cargo_succeeded {
        bail!("tests failed: the reasons stand above");
    }
    if sum.passed == 0 {
        bail!("no test ran");
    }
    let strict = std::env::var_os("STRAKE_TEST_NO_SKIPS").is_some_and(|value| value == "1");
    if strict && sum.skipped > 0 {
        bail!("tests were skipped, and STRAKE_TEST_NO_SKIPS=1 forbids it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_summed_and_others_ignored() {
        let mut sum = Sum::default();
        sum.add_line("running 4 tests");
        sum.add_line("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        sum.add_line("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 9 filtered");
        sum.add_line("test parse::result ... ok");
        let expected = Sum {
            passed: 4,
            failed: 2,
            skipped: 1,
        };
        assert_eq!(sum, expected);
    }

    #[test]
    fn nothing_run_is_a_failure() {
        assert!(judge(true, &Sum::default(), "").is_err());
    }
}
