//! Memory rules under Miri: the buffers that are lent to the kernel, and what of the codec is
//! the same on every machine.
//!
//! Miri follows each access and takes a thousand times as long, so of the codec only tests run that
//! are small. It comes with nightly toolchains only; one that cannot be had is said and skipped.

use crate::{shell, workspace};
use anyhow::Result;
use std::process::Command;

/// Packages, and of each the tests to run, by parts of their names.
const TESTS: [(&str, &[&str]); 2] = [
    ("strake-reactor", &["buffer::"]),
    (
        "strake-codec",
        &[
            "transform::tests::a_little_of_everything",
            "panic",
            "bytes::tests::equal_sees",
            "checksum::tests::known_answers",
            "p_and_q_of_a_stripe_worked_out_by_hand",
        ],
    ),
];

/// Runs the tests under Miri, or says why it can't.
pub fn run() -> Result<()> {
    if !has_miri() && !installed() {
        println!(
            "miri: skipped: the nightly toolchain with miri is not there and cannot be installed"
        );
        return Ok(());
    }
    for (package, tests) in TESTS {
        let cargo = ["miri", "test", "--package", package, "--lib", "--"];
        shell::show(nightly().args(cargo).args(tests))?;
    }
    Ok(())
}

/// Cargo of the nightly toolchain, whatever the project is built with.
fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo"])
        .current_dir(workspace::root())
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

fn has_miri() -> bool {
    shell::succeeds(nightly().args(["miri", "--version"]))
}

fn installed() -> bool {
    let mut rustup = Command::new("rustup");
    rustup.args(["toolchain", "install", "nightly", "--profile", "minimal"]);
    rustup.args(["--component", "miri", "--component", "rust-src"]);
    shell::succeeds(&mut rustup) && has_miri()
}
