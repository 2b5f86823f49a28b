//! `make demo`: real files on twelve drives, through two drive failures, nothing lost.
//!
//! The two arrays of the published NAS recipe (RAID 6 of 10+2 for data, RAID 10 for the
//! journal) on file-backed drives; XFS on both; a drive that dies in the middle of a write
//! load, a second one failed by command; rebuild under load; scrub; import as on another
//! host; every checksum compared. Where it may not mount, the same is proved over NBD.
//!
//! Everything lies in one folder of its own, which is removed at the end and on
//! interruption; an interrupted demo that could not clean up is cleaned by the next.

mod files;
mod interrupt;
mod load;
mod place;
mod report;
mod stages;
mod strake;
mod target;

use crate::workspace;
use anyhow::Result;
use std::path::PathBuf;

/// What can be chosen.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Folder of the demo: must be new or empty; removed at the end
    #[arg(long, env = "STRAKE_DEMO_DIR")]
    dir: Option<PathBuf>,
    /// Prove it over NBD, without mounting anything
    #[arg(long)]
    nbd: bool,
    /// Leave the folder (drives, logs) behind
    #[arg(long)]
    keep: bool,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3)]
    seconds: u32,
}

/// Builds the program and runs the demo; fails when anything was lost.
pub fn run(options: &Options) -> Result<()> {
    let program = workspace::build_release_program()?;
    interrupt::watch()?;
    let dir = match &options.dir {
        Some(dir) => std::path::absolute(dir)?,
        None => workspace::target_dir().join("demo"),
    };
    let place = place::Place::claim(&dir, options.keep)?;
    let outcome = stages::run(&place, &program, options);
    let interrupted = interrupt::check();
    if outcome.is_err() && interrupted.is_ok() {
        place.print_daemon_logs();
    }
    place.clean_up();
    // What an interruption broke is no finding.
    interrupted.and(outcome)
}
