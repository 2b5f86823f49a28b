//! Running other programs, with errors that name the command and carry its last words.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

/// Runs to the end with our own terminal; fails unless it exits 0.
pub fn show(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", words(command)))?;
    check(command, status, "")
}

/// Runs to the end and returns standard output; fails unless it exits 0.
pub fn read(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", words(command)))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let both = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
    check(command, output.status, &both)?;
    Ok(stdout)
}

/// Whether it ran and exited 0; what it printed is dropped.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Fails unless `status` is 0, with the command and the end of what it printed.
pub fn check(command: &Command, status: ExitStatus, printed: &str) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let lines: Vec<&str> = printed.trim_end().lines().collect();
    let tail = lines[lines.len().saturating_sub(20)..].join("\n");
    bail!("{} ended with {status}\n{tail}", words(command))
}

/// Where a program is: in PATH or where administrators' programs are.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

fn words(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
