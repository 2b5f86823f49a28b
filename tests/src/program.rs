//! Where the built program is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program of the profile that the tests were built in; built now if `cargo xtask test`
/// did not name one, so that a lone `cargo test` never runs an old one.
pub fn strake() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os("STRAKE_PROGRAM") {
        Some(path) => path.into(),
        None => build(),
    })
}

fn build() -> PathBuf {
    // target/PROFILE/deps/TEST: the program lies beside deps.
    let test = std::env::current_exe().expect("a test knows where it is");
    let folder = test
        .ancestors()
        .nth(2)
        .expect("tests lie in target/PROFILE/deps");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--package", "strake", "--profile", profile])
        .arg("--target-dir")
        .arg(folder.parent().expect("PROFILE lies in target"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(status.success(), "building strake failed");
    folder.join("strake")
}
