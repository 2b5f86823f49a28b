//! Drives: what they are, what lies on them, who uses them.
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// What a drive is used for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriveUse {
    /// Nothing is known on it and nobody has it open.
    Free,
    /// Member of an array, running or not.
    Member,
    /// Holds somebody else's data (a file system, a partition table).
    Foreign,
    /// Mounted, swap, or claimed by the kernel or another process.
    Busy,
    /// Could not be read.
    Error,
}

/// One drive in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drive {
    /// Path, or the text that names it (`memory:64MiB`).
    pub path: String,
    /// Size in bytes; 0 when it could not be read.
    pub size_bytes: u64,
    /// Logical block size in bytes; 0 when it could not be read.
    pub block_size_bytes: u32,
    /// Serial number.
    pub serial: String,
    /// Model as the kernel reports it.
    pub model: String,
    /// A power cut may take back what it has completed, until a flush; `null` when it could not be
    /// read.
    pub volatile_cache: Option<bool>,
    /// What it is used for.
    pub usage: DriveUse,
    /// The same in words: "member 3 of data", "ext4 file system", or the error.
    pub usage_text: String,
    /// Array whose member it is or was.
    pub array_uuid: Option<Uuid>,
    /// That array's name.
    pub array_name: Option<String>,
    /// Its place in that array.
    pub member: Option<u16>,
}

/// All drives of the host that could be members, and those that arrays here use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveList {
    /// The drives, by path.
    pub drives: Vec<Drive>,
}

/// A field of an on-disk structure, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Field {
    /// Name.
    pub name: String,
    /// Value as text.
    pub value: String,
}

/// Everything known of a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveDetail {
    /// In short.
    pub drive: Drive,
    /// Who has it in use, if anybody.
    pub in_use: Option<String>,
    /// Somebody else's data on it, if any.
    pub foreign: Option<String>,
    /// State of the two superblock copies, A and B: "valid", "absent", or what is wrong.
    pub superblock_copies: [String; 2],
    /// Fields of the newest valid superblock in on-disk order; empty without one.
    pub superblock: Vec<Field>,
    /// What people should know: for instance that the file system refuses O_DIRECT.
    pub notes: Vec<String>,
}

/// Names a drive in a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DriveQuery {
    /// Path or drive text.
    pub drive: String,
}

/// Erases Strake's metadata on a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CleanDrive {
    /// Path or drive text.
    pub drive: String,
    /// Also when the metadata is that of an array member.
    #[serde(default)]
    pub force: bool,
}

/// A range of bytes on a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ByteRange {
    /// First byte.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub length_bytes: u64,
}

/// Makes a member drive that was opened as `faulty:` misbehave, for tests and demonstrations.
/// Each request replaces the one before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultDrive {
    /// Path or drive text.
    pub drive: String,
    /// End all faults; no other field may be given with it.
    #[serde(default)]
    pub heal: bool,
    /// Every operation fails.
    #[serde(default)]
    pub dead: bool,
    /// The drive dies at the nth operation from now (1: the next).
    #[serde(default)]
    pub die_after: Option<u64>,
    /// Reads of these ranges fail until they are written.
    #[serde(default)]
    pub bad_ranges: Vec<ByteRange>,
    /// One in n reads fails.
    #[serde(default)]
    pub read_error_one_in: Option<u64>,
    /// One in n writes fails.
    #[serde(default)]
    pub write_error_one_in: Option<u64>,
    /// One in n writes is reported as done and not made.
    #[serde(default)]
    pub lost_write_one_in: Option<u64>,
    /// One in n writes stops half way with an error.
    #[serde(default)]
    pub torn_write_one_in: Option<u64>,
    /// Added to every operation, in microseconds.
    #[serde(default)]
    pub latency_us: u64,
}

/// Outcome of a command that has nothing else to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// False when everything was already as asked.
    pub changed: bool,
    /// One line for people.
    pub message: String,
}
