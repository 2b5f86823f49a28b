//! Finding and importing arrays from their drives.
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Starts an array from what its drives say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportArray {
    /// Array, by name or UUID.
    pub array: String,
    /// Drives to look at besides those of this host and those that arrays here used before.
    #[serde(default)]
    pub drives: Vec<String>,
    /// Rename at import.
    #[serde(default)]
    pub new_name: Option<String>,
    /// Serve reads only; changes nothing on any drive.
    #[serde(default)]
    pub read_only: bool,
    /// Start although members are missing that may hold newer data, although the array is dirty
    /// and degraded, or although another host owns it.
    #[serde(default)]
    pub force: bool,
}

/// Looks for arrays on drives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScanRequest {
    /// Drives to look at besides those of this host and those that arrays here used before.
    #[serde(default)]
    pub drives: Vec<String>,
}

/// A drive that says it is a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundMember {
    /// Its place.
    pub index: u16,
    /// Drive.
    pub path: String,
    /// Serial number.
    pub serial: String,
    /// Generation of its superblock; lower than the others': stale.
    pub generation: u64,
    /// What is wrong with it: stale, a clone, in use.
    pub note: Option<String>,
}

/// A member that was not found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingMember {
    /// Its place.
    pub index: u16,
    /// Where it was last seen by this host, if it was.
    pub path: Option<String>,
    /// Serial number, if known.
    pub serial: Option<String>,
}

/// An array that drives speak of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportCandidate {
    /// Identity.
    pub uuid: Uuid,
    /// Name.
    pub name: String,
    /// Level.
    pub level: String,
    /// Members in all.
    pub members: u16,
    /// Members found, by place.
    pub found: Vec<FoundMember>,
    /// Members not found, by place.
    pub missing: Vec<MissingMember>,
    /// Stopped cleanly, as the newest superblock says.
    pub clean: bool,
    /// Running here already.
    pub running: bool,
    /// Nothing stands against importing it.
    pub importable: bool,
    /// Why not, or what to know before.
    pub reason: Option<String>,
}

/// What a scan found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScanResult {
    /// Arrays, by name.
    pub arrays: Vec<ImportCandidate>,
    /// Drives that could not be read, each with the reason.
    pub unreadable: Vec<String>,
}
