//! The daemon itself.
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// The daemon itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DaemonStatus {
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Identity of this host, as written into superblocks.
    pub host_id: Uuid,
    /// Folder of the host-local state.
    pub state_dir: String,
    /// Folder of export sockets and of the FUSE mount.
    pub run_dir: String,
    /// Reactors.
    pub cores: usize,
    /// Memory for stripe buffers, in bytes.
    pub memory_bytes: u64,
    /// Parity kernel chosen for this CPU.
    pub kernel: String,
    /// Seconds since the daemon started.
    pub uptime_seconds: u64,
}

/// Overrides refusals, in a query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ForceQuery {
    /// Do it although data is lost or clients are cut off.
    #[serde(default)]
    pub force: bool,
}
