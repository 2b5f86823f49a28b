//! The daemon and the command line, as an administrator would use them.

use super::{interrupt, place::Place};
use crate::shell;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The daemon answers within this or has failed to start.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A stopping daemon drains and marks its arrays clean.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// How often a progress bar looks.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// One host: a daemon with its own socket and its own memory of the world.
pub struct Host {
    program: PathBuf,
    socket: PathBuf,
    daemon: Child,
}

impl Host {
    /// Starts a daemon that knows nothing yet.
    pub fn start(program: &Path, place: &Place, name: &str) -> Result<Host> {
        let folder = place.folder(name)?;
        let socket = folder.join("strake.sock");
        let log = File::create(place.path(format!("{name}.log")))?;
        let daemon = Command::new(program)
            .arg("daemon")
            .arg("--socket")
            .arg(&socket)
            .arg("--state-dir")
            .arg(place.folder(&format!("{name}-state"))?)
            .arg("--run-dir")
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is for the demo, which needs the daemon to clean up.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        interrupt::spare(daemon.id());
        std::fs::write(
            place.path(format!("{name}.pid")),
            format!("{}\n", daemon.id()),
        )?;
        let mut host = Host {
            program: program.to_path_buf(),
            socket,
            daemon,
        };
        host.wait_until_it_answers()?;
        Ok(host)
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        let start = Instant::now();
        while !shell::succeeds(&mut self.command(["array", "list"])) {
            interrupt::check()?;
            if let Some(status) = self.daemon.try_wait()? {
                bail!("the daemon ended at once ({status})");
            }
            if start.elapsed() > START_LIMIT {
                bail!("the daemon does not answer on {}", self.socket.display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Ends the daemon as a service manager does.
    pub fn stop(mut self) -> Result<()> {
        let id = i32::try_from(self.daemon.id())?;
        let pid = rustix::process::Pid::from_raw(id).context("the daemon has no process id")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let start = Instant::now();
        while self.daemon.try_wait()?.is_none() {
            if start.elapsed() > STOP_LIMIT {
                bail!("the daemon does not stop");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--socket").arg(&self.socket).args(arguments);
        command
    }

    /// Runs a command and shows it; fails when it is refused.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String> {
        interrupt::check()?;
        let mut command = self.command(arguments);
        shell::read(&mut command)
    }

    /// The same with `--json`.
    pub fn json<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<Value> {
        interrupt::check()?;
        let mut command = self.command(["--json"]);
        let text = shell::read(command.args(arguments))?;
        serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
    }

    /// Makes a block device of an array.
    pub fn attach(&self, array: &str) -> Result<PathBuf> {
        let printed = self.run(["attach", array])?;
        printed
            .split(|letter: char| letter.is_whitespace() || "\"',:.".contains(letter))
            .find(|word| word.starts_with("/dev/loop"))
            .map(PathBuf::from)
            .with_context(|| format!("strake attach named no device: {printed}"))
    }

    /// Running long work of an array: kind, bytes done, bytes in all.
    pub fn task(&self, array: &str, kind: &str) -> Result<Option<Progress>> {
        let show = self.json(["array", "show", array])?;
        Ok(Progress::find(&show, kind))
    }

    /// How many members are in sync, and the array's state.
    pub fn health(&self, array: &str) -> Result<(usize, String)> {
        let show = self.json(["array", "show", array])?;
        let members = show["members"].as_array().map_or(0, |members| {
            members
                .iter()
                .filter(|member| member["state"] == "active")
                .count()
        });
        Ok((members, show["state"].as_str().unwrap_or("").to_owned()))
    }

    /// Most memory that the daemon has had, in bytes (VmHWM).
    pub fn peak_memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        Ok(kilobytes.context("the kernel tells no peak memory")? * 1024)
    }

    /// Time of a processor that the daemon has had (user and system, in 1/100 s).
    fn processor_ticks(&self) -> Result<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.daemon.id()))?;
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<u64> = after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse().ok())
            .collect();
        Ok(fields.iter().sum())
    }

    /// Share of one core that the daemon uses while nobody asks anything, in per cent.
    pub fn idle_percent(&self, over: Duration) -> Result<f64> {
        let (start, before) = (Instant::now(), self.processor_ticks()?);
        while start.elapsed() < over {
            interrupt::check()?;
            std::thread::sleep(Duration::from_millis(100));
        }
        let used = self.processor_ticks()? - before;
        // A tick is 1/100 s: so many per cent of a second.
        Ok(used as f64 / start.elapsed().as_secs_f64())
    }

    /// Draws a bar until the work is done: in place on a terminal, else a line each tenth.
    pub fn follow(&self, array: &str, kind: &str) -> Result<()> {
        let mut bar = Bar::new(kind);
        loop {
            interrupt::check()?;
            match self.task(array, kind)? {
                Some(progress) => bar.draw(progress),
                None => break,
            }
            std::thread::sleep(PROGRESS_INTERVAL);
        }
        bar.finish();
        Ok(())
    }
}

/// How far long work is, over all members it works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    done_bytes: u64,
    total_bytes: u64,
}

impl Progress {
    fn find(show: &Value, kind: &str) -> Option<Progress> {
        let tasks = show["tasks"].as_array()?;
        let task = tasks.iter().find(|task| task["kind"] == kind)?;
        Some(Progress {
            done_bytes: task["done_bytes"].as_u64()?,
            total_bytes: task["total_bytes"].as_u64()?,
        })
    }

    fn percent(self) -> u64 {
        (self.done_bytes * 100)
            .checked_div(self.total_bytes)
            .unwrap_or(0)
            .min(100)
    }
}

/// A progress bar.
struct Bar {
    label: String,
    drawn_percent: Option<u64>,
}

impl Bar {
    fn new(label: &str) -> Bar {
        Bar {
            label: label.to_owned(),
            drawn_percent: None,
        }
    }

    fn draw(&mut self, progress: Progress) {
        let percent = progress.percent();
        let terminal = std::io::stdout().is_terminal();
        let step = if terminal { 1 } else { 10 };
        if self.drawn_percent.map(|drawn| drawn / step) == Some(percent / step) {
            return;
        }
        self.drawn_percent = Some(percent);
        self.print(percent, terminal);
    }

    fn print(&self, percent: u64, terminal: bool) {
        let full = usize::try_from(percent / 4).expect("at most 25");
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(25 - full));
        let (before, after) = if terminal { ("\r", "") } else { ("", "\n") };
        print!("{before}      {} [{bar}] {percent:3} %{after}", self.label);
        // A bar that cannot be shown is no reason to stop.
        let _ = std::io::stdout().flush();
    }

    fn finish(self) {
        let terminal = std::io::stdout().is_terminal();
        self.print(100, terminal);
        if terminal {
            println!();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_what_array_show_prints() {
        let show = serde_json::json!({"tasks": [
            {"kind": "scrub", "done_bytes": 1, "total_bytes": 2},
            {"kind": "rebuild", "done_bytes": 256, "total_bytes": 1024},
        ]});
        let progress = Progress::find(&show, "rebuild").unwrap();
        assert_eq!(progress.percent(), 25);
        assert_eq!(Progress::find(&show, "resync"), None);
    }
}
