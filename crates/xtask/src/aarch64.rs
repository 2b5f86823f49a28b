//! The parity kernels on aarch64: compiled for it, tested under QEMU's user emulation.
//!
//! What is missing for that (target, cross compiler, emulator) is said and skipped: this check and
//! Miri's are the only ones that may be.

use crate::{shell, workspace};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Runs the codec's tests for aarch64, or says why it can't.
pub fn run() -> Result<()> {
    if let Some(reason) = missing() {
        println!("aarch64: skipped: {reason}");
        return Ok(());
    }
    shell::show(
        workspace::cargo()
            .args(["test", "--package", "strake-codec", "--target", TARGET])
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
                "aarch64-linux-gnu-gcc",
            )
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
                "qemu-aarch64-static -L /usr/aarch64-linux-gnu",
            ),
    )
}

fn missing() -> Option<String> {
    if cfg!(target_arch = "aarch64") {
        return Some("this machine is aarch64: the ordinary tests ran the kernels".into());
    }
    for program in ["aarch64-linux-gnu-gcc", "qemu-aarch64-static"] {
        if shell::find(program).is_none() {
            return Some(format!("{program} is not installed"));
        }
    }
    if !Path::new(crate::setup::AARCH64_C_LIBRARY).is_file() {
        return Some("the C library for aarch64 is not installed".into());
    }
    if !has_target() && !shell::succeeds(Command::new("rustup").args(["target", "add", TARGET])) {
        return Some(format!("the Rust target {TARGET} cannot be installed"));
    }
    None
}

fn has_target() -> bool {
    let lib_dir =
        shell::read(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]));
    lib_dir.is_ok_and(|dir| Path::new(dir.trim()).is_dir())
}
