//! `strake inspect`: a drive's metadata, read without a daemon; changes nothing.

use super::{CliError, CliResult, show, to_json, write_out};
use crate::drives;
use clap::Args;
use strake_api as api;
use strake_node::probe;
use strake_reactor::drive::{DriveSpec, OpenError};

/// Options of inspect.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Path of the drive
    pub drive: String,
}

/// Reads and prints.
pub fn run(args: &InspectArgs, json: bool) -> CliResult {
    let drive = DriveSpec(drives::absolute(&args.drive));
    let probe = probe::probe(&drive).map_err(|error| {
        let kind = match error {
            OpenError::BadSpec { .. } => api::ErrorKind::Invalid,
            OpenError::System { .. } => api::ErrorKind::Drive,
            OpenError::Busy { .. } => api::ErrorKind::Conflict,
        };
        CliError::Api(api::Error {
            kind,
            message: error.to_string(),
        })
    })?;
    let detail = drives::detail(&probe);
    match json {
        true => write_out(&(to_json(&detail) + "\n")),
        false => write_out(&show::drive_detail(&detail)),
    }
}
