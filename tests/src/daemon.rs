//! A daemon of a test's own, and the command line that speaks to it.

use crate::{drives, mounts, program, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A command that hangs fails its test instead of stopping all of them.
const COMMAND_LIMIT_SECONDS: &str = "300";

/// A daemon that ends drains its arrays first.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Tests run beside each other: each daemon takes one core and little memory.
const DAEMON_ARGUMENTS: [&str; 4] = ["--cores", "1", "--memory", "64MiB"];

/// A running daemon with a folder of its own; all of it is gone when this is dropped.
pub struct Daemon {
    child: Option<Child>,
    /// Raised by [`Daemon::move_to_new_host`].
    host: u32,
    folder: TempDir,
}

/// What a command answered.
#[derive(Debug)]
pub struct Reply {
    /// The command, for messages.
    pub command: String,
    /// Exit code; -1 when it was killed.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Reply {
    /// Standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", self.command, self.stdout))
    }

    /// Everything it printed, in lower case.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr).to_lowercase()
    }

    /// Panics unless all of `words` were printed, in any case.
    #[track_caller]
    pub fn says(&self, words: &[&str]) -> &Reply {
        let text = self.text();
        for word in words {
            assert!(
                text.contains(&word.to_lowercase()),
                "{} should say {word:?}, and says: {text}",
                self.command
            );
        }
        self
    }

    /// Panics unless it exited with `code`.
    #[track_caller]
    pub fn with_code(self, code: i32) -> Reply {
        assert_eq!(
            self.code, code,
            "exit code of: {}\n{}{}",
            self.command, self.stdout, self.stderr
        );
        self
    }
}

impl Daemon {
    /// Starts a daemon in a new folder.
    pub fn start() -> Daemon {
        Daemon::start_prepared(|_| {})
    }

    /// Starts a daemon in a new folder that `prepare` has been shown first: the daemon's state
    /// is in `state0`, its sockets will be in `run0`.
    pub fn start_prepared(prepare: impl FnOnce(&Path)) -> Daemon {
        let folder = tempfile::Builder::new()
            .prefix("strake-test-")
            .tempdir()
            .expect("a folder for the test");
        prepare(folder.path());
        let mut daemon = Daemon {
            child: None,
            host: 0,
            folder,
        };
        daemon.launch();
        daemon
    }

    fn launch(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("a log file");
        std::fs::create_dir_all(self.run_dir()).expect("a run folder");
        std::fs::create_dir_all(self.state_dir()).expect("a state folder");
        let child = Command::new(program::strake())
            .arg("--socket")
            .arg(self.socket())
            .arg("daemon")
            .arg("--state-dir")
            .arg(self.state_dir())
            .arg("--run-dir")
            .arg(self.run_dir())
            .args(DAEMON_ARGUMENTS)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle on the log"))
            .stderr(log)
            .spawn()
            .expect("the daemon starts");
        self.child = Some(child);
        wait_until("the daemon answers", || {
            let child = self.child.as_mut().expect("was just started");
            if let Some(status) = child.try_wait().expect("the daemon is our child") {
                panic!("the daemon ended at once ({status}): {}", self.log());
            }
            self.strake(["array", "list"]).code == 0
        });
    }

    /// Socket of the API.
    pub fn socket(&self) -> PathBuf {
        self.run_dir().join("strake.sock")
    }

    /// Folder of sockets and of the FUSE mount.
    pub fn run_dir(&self) -> PathBuf {
        self.folder.path().join(format!("run{}", self.host))
    }

    /// Folder of what the daemon keeps.
    pub fn state_dir(&self) -> PathBuf {
        self.folder.path().join(format!("state{}", self.host))
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join(format!("daemon{}.log", self.host))
    }

    /// What the daemon said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// A path in the test's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes `count` sparse drives of `bytes`, named `NAME0`, `NAME1`, ...
    pub fn drives(&self, name: &str, count: usize, bytes: u64) -> Vec<String> {
        (0..count)
            .map(|index| self.drive(&format!("{name}{index}"), bytes))
            .collect()
    }

    /// Makes a sparse drive.
    pub fn drive(&self, name: &str, bytes: u64) -> String {
        let path = self.path(name);
        drives::make_file(&path, bytes);
        path.to_str().expect("test folders are text").to_owned()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the daemon runs").id()
    }

    /// Runs a command, whatever comes of it.
    pub fn strake<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Reply {
        self.strake_on(&self.socket(), arguments)
    }

    /// Runs a command with another socket.
    pub fn strake_on<S: AsRef<OsStr>>(
        &self,
        socket: &Path,
        arguments: impl IntoIterator<Item = S>,
    ) -> Reply {
        self.strake_with(&[], socket, arguments)
    }

    /// Runs a command with another socket and these environment variables.
    pub fn strake_with<S: AsRef<OsStr>>(
        &self,
        environment: &[(&str, &str)],
        socket: &Path,
        arguments: impl IntoIterator<Item = S>,
    ) -> Reply {
        let mut command = Command::new("timeout");
        command
            .envs(environment.iter().copied())
            .args(["-k", "5", COMMAND_LIMIT_SECONDS])
            .arg(program::strake())
            .arg("--socket")
            .arg(socket)
            .args(arguments)
            .stdin(Stdio::null());
        let words: Vec<_> = command
            .get_args()
            .skip(6)
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let output = command.output().expect("the program starts");
        Reply {
            command: format!("strake {}", words.join(" ")),
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs a command that must succeed; returns its JSON.
    #[track_caller]
    pub fn ok<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Value {
        self.strake_json(arguments).with_code(0).json()
    }

    /// Runs a command that must succeed; returns what it says to people.
    #[track_caller]
    pub fn say<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Reply {
        self.strake(arguments).with_code(0)
    }

    /// Runs a command that must be refused, exit code 1, saying all of `words`.
    #[track_caller]
    pub fn refused<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        words: &[&str],
    ) -> Reply {
        let reply = self.strake(arguments).with_code(1);
        reply.says(words);
        reply
    }

    /// Runs a command that makes no sense, exit code 2.
    #[track_caller]
    pub fn misused<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Reply {
        self.strake(arguments).with_code(2)
    }

    fn strake_json<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Reply {
        let all: Vec<_> = std::iter::once("--json".into())
            .chain(arguments.into_iter().map(|word| word.as_ref().to_owned()))
            .collect();
        self.strake(all)
    }

    /// `array create NAME --level LEVEL MORE --drives DRIVES`, which must succeed.
    #[track_caller]
    pub fn create(&self, name: &str, level: &[&str], drives: &[String]) -> Value {
        self.ok(create_arguments(name, level, drives))
    }

    /// `array show`.
    #[track_caller]
    pub fn show(&self, array: &str) -> Value {
        self.ok(["array", "show", array])
    }

    /// Waits until the array is in this state.
    pub fn wait_for_state(&self, array: &str, state: &str) {
        wait_until(&format!("{array} is {state}"), || {
            let reply = self.strake_json(["array", "show", array]);
            reply.code == 0 && reply.json()["state"] == state
        });
    }

    /// Waits until no rebuild, resync or scrub runs.
    pub fn wait_for_tasks(&self, array: &str) {
        wait_until(&format!("no work runs on {array}"), || {
            self.show(array)["tasks"]
                .as_array()
                .is_some_and(Vec::is_empty)
        });
    }

    /// Scrubs to the end; panics if a stripe does not hold.
    #[track_caller]
    pub fn scrub_finds_nothing(&self, array: &str) {
        self.say(["array", "scrub", array, "--wait"]);
        let last = self.show(array)["last_scrub"].clone();
        assert!(last.is_object(), "the scrub left no result");
        assert_eq!(last["mismatches"], 0, "{last}");
        assert_eq!(last["errors"], 0, "{last}");
    }

    /// Exports an array over NBD on a Unix socket in the run folder.
    #[track_caller]
    pub fn export_nbd(&self, array: &str) -> NbdAddress {
        let socket = self.run_dir().join(format!("{array}.nbd"));
        let path = socket.to_str().expect("test folders are text").to_owned();
        self.ok(["export", "create", array, "--nbd", "--unix", &path]);
        NbdAddress {
            socket,
            name: array.to_owned(),
        }
    }

    /// Waits until every export serves again, after a start.
    pub fn wait_for_exports(&self) {
        wait_until("all exports serve", || {
            let list = self.ok(["export", "list"]);
            let exports = list["exports"].as_array().expect("a list").clone();
            exports.iter().all(|export| export["state"] == "serving")
        });
    }

    /// Ends the daemon as a power cut of the process: nothing is told to anybody.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the daemon runs");
        child.kill().expect("the daemon can be killed");
        child.wait().expect("the daemon is our child");
    }

    /// Ends the daemon as a service manager does; it must end well.
    pub fn stop(&mut self) {
        let mut child = self.child.take().expect("the daemon runs");
        let status = terminate(&mut child).expect("the daemon ends when told");
        assert!(status.success(), "the daemon ended with {status}");
    }

    /// Starts it again after [`Daemon::kill`] or [`Daemon::stop`].
    pub fn start_again(&mut self) {
        self.launch();
    }

    /// Ends this daemon and starts one that has never seen any array.
    pub fn move_to_new_host(&mut self) {
        if self.child.is_some() {
            self.stop();
        }
        self.host += 1;
        self.launch();
    }
}

/// The words of `array create`.
pub fn create_arguments(name: &str, level: &[&str], drives: &[String]) -> Vec<String> {
    let mut words: Vec<String> = ["array", "create", name, "--level"]
        .map(String::from)
        .to_vec();
    words.extend(level.iter().map(|&word| word.to_owned()));
    words.push("--drives".into());
    words.extend(drives.iter().cloned());
    words
}

fn terminate(child: &mut Child) -> Option<std::process::ExitStatus> {
    let pid = Pid::from_raw(i32::try_from(child.id()).ok()?)?;
    kill_process(pid, Signal::TERM).ok()?;
    let start = Instant::now();
    while start.elapsed() < STOP_LIMIT {
        if let Some(status) = child.try_wait().ok()? {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(40)..];
            eprintln!("--- the daemon's last words\n{}", tail.join("\n"));
        }
        mounts::release_below(self.folder.path());
        if let Some(mut child) = self.child.take()
            && terminate(&mut child).is_none()
        {
            // It hangs or is gone already; neither may keep the folder.
            let _ = child.kill();
            let _ = child.wait();
        }
        mounts::unmount_below(self.folder.path());
    }
}

/// Where an array is served.
#[derive(Debug, Clone)]
pub struct NbdAddress {
    /// Unix socket.
    pub socket: PathBuf,
    /// Name of the export.
    pub name: String,
}

impl NbdAddress {
    /// For clients that take URIs.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///{}?socket={}", self.name, self.socket.display())
    }

    /// A connection of the harness's own client.
    #[track_caller]
    pub fn connect(&self) -> crate::nbd::Client {
        crate::nbd::Client::connect(&self.socket, &self.name)
            .unwrap_or_else(|error| panic!("connecting to {}: {error}", self.uri()))
    }
}
