//! Exports: how an array is served to clients.
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// How an export serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "protocol", rename_all = "snake_case")]
pub enum ExportKind {
    /// NBD on a Unix socket.
    NbdUnix {
        /// Absolute path of the socket. In a request `null`: in the daemon's run folder.
        #[serde(default)]
        path: Option<String>,
    },
    /// NBD on TCP.
    NbdTcp {
        /// Address and port, like `127.0.0.1:10809`.
        address: String,
    },
    /// A file under the daemon's FUSE mount.
    Fuse,
}

/// Makes an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateExport {
    /// Array, by name or UUID.
    pub array: String,
    /// How to serve it.
    pub kind: ExportKind,
    /// Made by `strake attach`, so that `strake detach` may remove it.
    #[serde(default)]
    pub for_attach: bool,
}

/// State of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExportState {
    /// Clients are served.
    Serving,
    /// Its array is not running; the export returns with it.
    Waiting,
    /// It could not be started: see `reason`.
    Failed,
}

/// One export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Export {
    /// Identity on this host, like `nbd1`.
    pub id: String,
    /// Array.
    pub array_uuid: Uuid,
    /// Its name.
    pub array_name: String,
    /// How it serves.
    pub kind: ExportKind,
    /// Where clients find it: an NBD URI, or the path of the file.
    pub address: String,
    /// State.
    pub state: ExportState,
    /// Why it is not serving.
    pub reason: Option<String>,
    /// Clients that use it now: NBD connections, or how often the file is open (a loop device: once).
    pub clients: u64,
    /// Made by `strake attach`.
    pub for_attach: bool,
}

/// All exports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportList {
    /// The exports, by identity.
    pub exports: Vec<Export>,
}

/// Outcome of a command on an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportOutcome {
    /// False when everything was already as asked.
    pub changed: bool,
    /// One line for people.
    pub message: String,
    /// The export as it is now, or as it was before it was removed.
    pub export: Export,
}
