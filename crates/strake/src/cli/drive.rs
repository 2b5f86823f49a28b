//! `strake drive`.

use super::show;
use super::{CliResult, Context};
use crate::drives::absolute;
use crate::size;
use clap::{Args, Subcommand};
use strake_api as api;

/// Verbs on drives.
#[derive(Debug, Subcommand)]
pub enum DriveCommand {
    /// List drives that could be members, and those that arrays use
    List,
    /// Show what a drive is and what lies on it
    Show {
        /// Path of the drive
        drive: String,
    },
    /// Erase Strake's metadata on a drive that no running array uses
    Clean {
        /// Path of the drive
        drive: String,
        /// Also when it is a member of an array
        #[arg(long)]
        force: bool,
    },
    /// Make a member that was given as faulty:DRIVE fail on purpose, for tests
    Fault(FaultArgs),
}

/// Faults of a drive; each command replaces those set before.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("faults").multiple(true).required(true))]
pub struct FaultArgs {
    /// Path of the drive
    pub drive: String,
    /// Every operation fails
    #[arg(long, group = "faults")]
    pub dead: bool,
    /// The drive dies at the nth operation from now
    #[arg(long, value_name = "N", group = "faults")]
    pub die_after: Option<u64>,
    /// Reads of this range fail until it is written (can be given several times)
    #[arg(long, value_name = "OFF:LEN", value_parser = size::parse_range, group = "faults")]
    pub bad_range: Vec<(u64, u64)>,
    /// One in N reads fails
    #[arg(long, value_name = "N", group = "faults")]
    pub read_error_one_in: Option<u64>,
    /// One in N writes fails
    #[arg(long, value_name = "N", group = "faults")]
    pub write_error_one_in: Option<u64>,
    /// One in N writes is reported as done and not made
    #[arg(long, value_name = "N", group = "faults")]
    pub lost_write_one_in: Option<u64>,
    /// One in N writes stops half way
    #[arg(long, value_name = "N", group = "faults")]
    pub torn_write_one_in: Option<u64>,
    /// Delay of every operation in microseconds
    #[arg(long, value_name = "N", group = "faults")]
    pub latency_us: Option<u64>,
    /// End all faults
    #[arg(long, group = "faults", conflicts_with_all = ["dead", "die_after", "bad_range", "read_error_one_in", "write_error_one_in", "lost_write_one_in", "torn_write_one_in", "latency_us"])]
    pub heal: bool,
}

/// Runs a verb.
pub fn run(command: &DriveCommand, context: &Context) -> CliResult {
    let client = &context.client;
    match command {
        DriveCommand::List => {
            let list: api::DriveList = client.get(&["v1", "drives"])?;
            context.print(&list, show::drive_list)
        }
        DriveCommand::Show { drive } => {
            let drive = absolute(drive);
            let detail: api::DriveDetail =
                client.query(&["v1", "drives", "show"], &[("drive", &drive)])?;
            context.print(&detail, show::drive_detail)
        }
        DriveCommand::Clean { drive, force } => {
            let request = api::CleanDrive {
                drive: absolute(drive),
                force: *force,
            };
            let outcome: api::Outcome = client.post(&["v1", "drives", "clean"], &request)?;
            context.print(&outcome, |outcome| outcome.message.clone())
        }
        DriveCommand::Fault(args) => {
            let request = fault_request(args);
            let outcome: api::Outcome = client.post(&["v1", "drives", "fault"], &request)?;
            context.print(&outcome, |outcome| outcome.message.clone())
        }
    }
}

fn fault_request(args: &FaultArgs) -> api::FaultDrive {
    let ranges = args.bad_range.iter();
    api::FaultDrive {
        drive: absolute(&args.drive),
        heal: args.heal,
        dead: args.dead,
        die_after: args.die_after,
        bad_ranges: ranges
            .map(|(offset_bytes, length_bytes)| api::ByteRange {
                offset_bytes: *offset_bytes,
                length_bytes: *length_bytes,
            })
            .collect(),
        read_error_one_in: args.read_error_one_in,
        write_error_one_in: args.write_error_one_in,
        lost_write_one_in: args.lost_write_one_in,
        torn_write_one_in: args.torn_write_one_in,
        latency_us: args.latency_us.unwrap_or(0),
    }
}
