//! Where the workspace is and where its programs are built.

use crate::shell;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/xtask lies two levels below the root")
        .to_path_buf()
}

/// Cargo, as the one that started us.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Folder that cargo builds into.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Builds `strake` with optimisation and says where it is.
pub fn build_release_program() -> Result<PathBuf> {
    shell::show(cargo().args(["build", "--release", "--package", "strake"]))
        .context("building strake")?;
    Ok(target_dir().join("release/strake"))
}

/// Builds `strake` as tests use it, assertions and overflow checks on, and says where it is.
pub fn build_test_program() -> Result<PathBuf> {
    shell::show(cargo().args(["build", "--package", "strake"])).context("building strake")?;
    Ok(target_dir().join("debug/strake"))
}
