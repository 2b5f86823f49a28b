//! The demo's own folder: claimed at the start, emptied of everything at the end.
//!
//! Cleaning works from what is there (mounts, loop devices and processes that belong to
//! the folder), not from memory, so it can be repeated and cleans after a killed demo too.

use crate::shell;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Says that the folder is ours to remove.
const MARKER: &str = ".strake-demo";

/// A stopped daemon writes superblocks; more than this means it hangs.
const DAEMON_STOP_LIMIT: Duration = Duration::from_secs(15);

/// The folder.
pub struct Place {
    dir: PathBuf,
    keep: bool,
}

impl Place {
    /// Takes a new or empty folder, or the remains of an earlier demo, which are cleaned first.
    pub fn claim(dir: &Path, keep: bool) -> Result<Place> {
        if dir.join(MARKER).exists() {
            println!("cleaning up after an earlier demo in {}", dir.display());
            clean(dir, false);
        }
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        let mut entries =
            std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
        if entries.next().is_some() {
            bail!(
                "{} is not empty and not of the demo: give another folder with --dir",
                dir.display()
            );
        }
        std::fs::write(dir.join(MARKER), "removed at the end of the demo\n")?;
        let dir = dir.to_path_buf();
        Ok(Place { dir, keep })
    }

    /// A path in the folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// A new folder in the folder.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }

    /// Bytes that the folder's file system still has for us.
    pub fn free_bytes(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(&self.dir)
            .with_context(|| format!("asking for the free space of {}", self.dir.display()))?;
        Ok(stat.f_bavail * stat.f_frsize)
    }

    /// The last lines of what the daemons said, for a demo that failed.
    pub fn print_daemon_logs(&self) {
        for name in ["host-a.log", "host-b.log"] {
            let Ok(text) = std::fs::read_to_string(self.path(name)) else {
                continue;
            };
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("--- the end of {name}");
            for line in &lines[lines.len().saturating_sub(25)..] {
                eprintln!("{line}");
            }
        }
    }

    /// Removes everything; says what it could not.
    pub fn clean_up(&self) {
        super::interrupt::kill_children();
        clean(&self.dir, self.keep);
    }
}

/// Unmounts, detaches, ends daemons, removes; each step repeated harmlessly.
fn clean(dir: &Path, keep: bool) {
    unmount_all(dir, |kind| !kind.starts_with("fuse"));
    detach_loops(dir);
    end_daemons(dir);
    unmount_all(dir, |_| true);
    if keep {
        println!("left behind: {}", dir.display());
        return;
    }
    if let Err(error) = std::fs::remove_dir_all(dir)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        eprintln!("cannot remove {}: {error}", dir.display());
    }
}

fn unmount_all(dir: &Path, chosen: impl Fn(&str) -> bool) {
    for (point, kind) in mounts_below(dir).into_iter().rev() {
        if !chosen(&kind) {
            continue;
        }
        // Lazily where it must be: a file system on a dead daemon cannot be written back.
        if !shell::succeeds(Command::new("umount").arg(&point))
            && !shell::succeeds(Command::new("umount").arg("-l").arg(&point))
            && !shell::succeeds(Command::new("fusermount3").arg("-uz").arg(&point))
        {
            eprintln!("cannot unmount {}", point.display());
        }
    }
}

/// Mount points below `dir` with the kind of file system, oldest first.
fn mounts_below(dir: &Path) -> Vec<(PathBuf, String)> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table
        .lines()
        .filter_map(|line| {
            let point = PathBuf::from(line.split(' ').nth(4)?);
            let kind = line.split_once(" - ")?.1.split(' ').next()?.to_owned();
            point.starts_with(dir).then_some((point, kind))
        })
        .collect()
}

fn detach_loops(dir: &Path) {
    let arguments = ["-l", "-n", "-O", "NAME,BACK-FILE"];
    let Ok(listing) = shell::read(Command::new("losetup").args(arguments)) else {
        return;
    };
    for line in listing.lines() {
        let mut words = line.split_whitespace();
        let (Some(device), Some(file)) = (words.next(), words.next()) else {
            continue;
        };
        if Path::new(file).starts_with(dir) {
            shell::succeeds(Command::new("losetup").args(["-d", device]));
        }
    }
}

/// Daemons leave their process id beside the socket when the demo starts them.
fn end_daemons(dir: &Path) {
    for name in ["host-a.pid", "host-b.pid"] {
        let Ok(text) = std::fs::read_to_string(dir.join(name)) else {
            continue;
        };
        if let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) {
            end_daemon(dir, pid);
        }
    }
}

fn end_daemon(dir: &Path, pid: Pid) {
    if !runs_in(dir, pid) || kill_process(pid, Signal::TERM).is_err() {
        return;
    }
    let start = Instant::now();
    while runs_in(dir, pid) {
        if start.elapsed() > DAEMON_STOP_LIMIT {
            eprintln!("the daemon does not stop: killing it");
            let _ = kill_process(pid, Signal::KILL);
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Process ids are used again: the command line must name our folder. (A process that ended
/// and was not waited for has none.)
fn runs_in(dir: &Path, pid: Pid) -> bool {
    let file = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
    let command_line = std::fs::read(file).unwrap_or_default();
    String::from_utf8_lossy(&command_line).contains(&*dir.to_string_lossy())
}
