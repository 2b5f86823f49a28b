//! Clients and tools that we did not write, with a limit on their time.

use std::ffi::OsStr;
use std::process::{Child, Command, Output, Stdio};

/// A client that hangs fails its test instead of stopping all of them.
const LIMIT_SECONDS: &str = "300";

fn command<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", LIMIT_SECONDS, program])
        .args(arguments)
        .stdin(Stdio::null())
        // Administrators' programs are not in everybody's path.
        .env("PATH", path_with_sbin())
        .current_dir(std::env::temp_dir());
    command
}

fn path_with_sbin() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin:/sbin")
}

/// Runs to the end, whatever comes of it.
pub fn attempt<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Output {
    let mut command = command(program, arguments);
    command
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Runs to the end; panics with what it printed unless it exits 0. Returns standard output.
#[track_caller]
pub fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> String {
    let output = attempt(program, arguments);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {:?} ended with {}\n{stdout}{stderr}",
        arguments
            .iter()
            .map(|word| word.as_ref().to_string_lossy())
            .collect::<Vec<_>>(),
        output.status
    );
    stdout
}

/// fio over NBD on a range of an export.
#[derive(Debug, Clone)]
pub struct NbdFio {
    uri: String,
    offset: u64,
    bytes: u64,
}

impl NbdFio {
    /// A range of an export.
    pub fn new(uri: String, offset: u64, bytes: u64) -> NbdFio {
        NbdFio { uri, offset, bytes }
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let mut arguments = vec![
            "--name=test".to_owned(),
            "--thread".to_owned(),
            "--ioengine=nbd".to_owned(),
            format!("--uri={}", self.uri),
            format!("--offset={}", self.offset),
            format!("--size={}", self.bytes),
        ];
        arguments.extend(more.iter().map(|&word| word.to_owned()));
        arguments
    }

    /// Runs to the end; panics when a request fails or a block is not what was written.
    #[track_caller]
    pub fn run(&self, more: &[&str]) {
        run("fio", &self.arguments(more));
    }

    /// Starts it in the background.
    pub fn start(&self, more: &[&str]) -> Child {
        command("fio", &self.arguments(more))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("fio starts")
    }
}

/// Arguments for blocks whose content is their place: verifiable after any crash, because
/// the old and the new content of a block are the same, and nothing else may be there.
pub const VERIFY_PLACE: [&str; 4] = [
    "--bs=4k",
    "--verify=pattern",
    "--verify_pattern=%o",
    "--verify_fatal=1",
];

/// Waits for a child of [`NbdFio::start`]; panics unless it succeeded.
#[track_caller]
pub fn finish(child: Child) {
    let output = child.wait_with_output().expect("fio is our child");
    assert!(
        output.status.success(),
        "fio failed\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Ends a child that may have ended already.
pub fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}
