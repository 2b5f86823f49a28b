//! Ctrl-C and SIGTERM: remembered, so that the demo ends at its next step and cleans up.
//!
//! Programs that are running for the demo are killed at once (the daemon is not: it is
//! needed until what is mounted on it is unmounted). A second signal ends without cleaning.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Children that outlive an interruption: daemons, ended by the cleaning.
static SPARED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Exit status of a shell command ended by SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

/// Starts to listen for signals.
pub fn watch() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the signal listener")?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    std::thread::spawn(move || {
        runtime.block_on(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if INTERRUPTED.swap(true, Ordering::SeqCst) {
                    std::process::exit(EXIT_INTERRUPTED);
                }
                eprintln!("\ninterrupted: cleaning up");
                kill_children();
            }
        });
    });
    Ok(())
}

/// Fails once a signal has come.
pub fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::SeqCst) {
        bail!("interrupted");
    }
    Ok(())
}

/// Keeps a child alive through an interruption.
pub fn spare(process_id: u32) {
    SPARED.lock().expect("no holder panics").push(process_id);
}

/// Kills the children of this process, except those spared.
pub fn kill_children() {
    let spared = SPARED.lock().expect("no holder panics").clone();
    for child in children() {
        let id = child.as_raw_nonzero().get().unsigned_abs();
        if !spared.contains(&id) {
            // Already gone: nothing to do.
            let _ = kill_process(child, Signal::KILL);
        }
    }
}

fn children() -> Vec<Pid> {
    let me = getpid().as_raw_nonzero().get();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|process| parent_of(*process) == Some(me))
        .filter_map(Pid::from_raw)
        .collect()
}

/// Field 4 of /proc/PID/stat; the name before it is in parentheses and may hold anything.
fn parent_of(process: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_whitespace().nth(1)?.parse().ok()
}
