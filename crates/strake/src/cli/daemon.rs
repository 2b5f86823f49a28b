//! `strake daemon` and `strake status`.

use super::table::pairs;
use super::{CliResult, Context};
use crate::size;
use clap::Args;
use std::path::PathBuf;
use strake_api as api;

/// Options of the daemon.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// Folder of the host-local state
    #[arg(long, env = "STRAKE_STATE_DIR", value_name = "DIR", default_value = api::DEFAULT_STATE_DIR)]
    pub state_dir: PathBuf,
    /// Folder of export sockets and of the FUSE mount [default: the socket's folder]
    #[arg(long, env = "STRAKE_RUN_DIR", value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Reactors, one pinned thread each; 0: one per core, at most 4
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub cores: usize,
    /// Memory for stripe buffers, all cores together
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = size::parse)]
    pub memory: u64,
    /// Log level: error, warn, info, debug, trace [default: $RUST_LOG, or info]
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
}

/// Shows the daemon.
pub fn status(context: &Context) -> CliResult {
    let status: api::DaemonStatus = context.client.get(&["v1", "status"])?;
    context.print(&status, |status| {
        pairs(&[
            ("version", status.version.clone()),
            ("pid", status.pid.to_string()),
            ("up for", size::human_seconds(status.uptime_seconds)),
            ("host id", status.host_id.to_string()),
            ("state folder", status.state_dir.clone()),
            ("run folder", status.run_dir.clone()),
            ("reactors", status.cores.to_string()),
            ("buffer memory", size::human(status.memory_bytes)),
            ("parity kernel", status.kernel.clone()),
        ])
    })
}
