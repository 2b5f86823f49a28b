//! Arrays: creating them, looking at them, working on their members.
use crate::{Export, Level, Policy};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Makes a new array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateArray {
    /// 1 to 48 of letters, digits, `-`, `_`, `.`; starts with a letter or digit. Unique on the host.
    pub name: String,
    /// Level.
    pub level: Level,
    /// Drives in the order of their places.
    pub drives: Vec<String>,
    /// Strip in bytes: a power of two from 4096 to 1048576. Default 65536.
    #[serde(default)]
    pub strip_size_bytes: Option<u64>,
    /// Array block size in bytes, 512 or 4096. Default 4096.
    #[serde(default)]
    pub block_size_bytes: Option<u32>,
    /// Members of one group (levels 50, 60, 70).
    #[serde(default)]
    pub group_size: Option<u16>,
    /// Parities (level n+m).
    #[serde(default)]
    pub parity: Option<u16>,
    /// Copies of each block (level 10). Default 2.
    #[serde(default)]
    pub copies: Option<u16>,
    /// What keeps parity true over a crash. Default `log`; `none` for level 0.
    #[serde(default)]
    pub policy: Option<Policy>,
    /// Parity log of each member in bytes, rounded up to 1 MiB: at least 1 MiB, at most a quarter
    /// of the smallest drive and 4 GiB. Default 1/64 of the smallest drive, at most 64 MiB.
    #[serde(default)]
    pub log_size_bytes: Option<u64>,
    /// Destroy what is on the drives (never a drive in use).
    #[serde(default)]
    pub force: bool,
}

/// Starts a stopped or offline array.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartArray {
    /// As in import.
    #[serde(default)]
    pub force: bool,
    /// Serve reads only; changes nothing on any drive.
    #[serde(default)]
    pub read_only: bool,
}

/// Stops an array.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StopArray {
    /// Also when clients use its exports.
    #[serde(default)]
    pub force: bool,
}

/// Names a member for `fail` and `remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberRequest {
    /// Index, or the drive's path.
    pub member: String,
    /// Also when the level does not survive it.
    #[serde(default)]
    pub force: bool,
}

/// Puts a drive into a place and rebuilds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceMember {
    /// Index, or the path of the drive that is or was there.
    pub member: String,
    /// The new drive.
    pub drive: String,
    /// Destroy what is on the new drive.
    #[serde(default)]
    pub force: bool,
}

/// Starts or stops a scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Scrub {
    /// Rewrite parity that does not hold.
    #[serde(default)]
    pub repair: bool,
    /// End the running scrub instead.
    #[serde(default)]
    pub stop: bool,
}

/// Changes settings; what is not given stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetArray {
    /// How much a rebuild may take while clients are busy, 1 to 100.
    #[serde(default)]
    pub rebuild_priority_percent: Option<u8>,
    /// What keeps parity true over a crash. The log can be chosen when no resync is left to do.
    #[serde(default)]
    pub policy: Option<Policy>,
}

/// State of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArrayState {
    /// All members in sync.
    Healthy,
    /// Serving with members missing.
    Degraded,
    /// More members missing than parity replaces: what can be read is read, no writes.
    Failed,
    /// Being started.
    Starting,
    /// Stopped by command.
    Stopped,
    /// Should run and could not be started: see `reason`.
    Offline,
}

impl ArrayState {
    /// The state's name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ArrayState::Healthy => "healthy",
            ArrayState::Degraded => "degraded",
            ArrayState::Failed => "failed",
            ArrayState::Starting => "starting",
            ArrayState::Stopped => "stopped",
            ArrayState::Offline => "offline",
        }
    }

    /// Whether the array serves requests.
    pub fn is_running(self) -> bool {
        matches!(
            self,
            ArrayState::Healthy | ArrayState::Degraded | ArrayState::Failed
        )
    }
}

/// State of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// In sync.
    Active,
    /// Being refilled.
    Rebuilding,
    /// Dropped after errors or by command.
    Failed,
    /// Not found at start.
    Missing,
    /// Place is empty by command.
    Removed,
    /// The array is not running.
    Unknown,
}

impl MemberState {
    /// The state's name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            MemberState::Active => "active",
            MemberState::Rebuilding => "rebuilding",
            MemberState::Failed => "failed",
            MemberState::Missing => "missing",
            MemberState::Removed => "removed",
            MemberState::Unknown => "unknown",
        }
    }
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Place in the array.
    pub index: u16,
    /// Group (levels 10, 50, 60, 70), 0 else.
    pub group: u16,
    /// State.
    pub state: MemberState,
    /// Path of the drive that is, or for an array that is not running was, here.
    pub path: Option<String>,
    /// Serial of the drive that is or was here.
    pub serial: String,
    /// Drive size in bytes; 0 when unknown.
    pub size_bytes: u64,
    /// Read errors answered from parity since the array started.
    pub read_errors: u64,
    /// Write errors since the array started.
    pub write_errors: u64,
    /// A power cut may take back what the drive has completed, until a flush; `null` without a
    /// drive.
    pub volatile_cache: Option<bool>,
    /// What people should know of the drive.
    pub notes: Vec<String>,
}

/// Long work on an array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Task {
    /// "rebuild", "resync" or "scrub".
    pub kind: String,
    /// Bytes of each member done.
    pub done_bytes: u64,
    /// Bytes of each member in all.
    pub total_bytes: u64,
    /// Share done, 0 to 100.
    pub percent: f64,
    /// Bytes of each member per second, recently.
    pub rate_bytes_per_second: u64,
    /// Seconds left at that rate; `null` when unknown.
    pub seconds_left: Option<u64>,
    /// Scrub: stripes that did not hold.
    pub mismatches: u64,
    /// Scrub with repair, resync: stripes whose parity was rewritten.
    pub repaired: u64,
    /// Ranges that could not be worked on because of errors.
    pub errors: u64,
}

/// Shape of an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Geometry {
    /// Array block size in bytes.
    pub block_size_bytes: u32,
    /// Strip in bytes.
    pub strip_size_bytes: u64,
    /// Groups.
    pub groups: u16,
    /// Data strips in a group's stripe.
    pub data: u16,
    /// Parity strips in a group's stripe; copies less one for mirrors.
    pub parity: u16,
    /// Bytes of a region on each member.
    pub region_size_bytes: u64,
    /// Bytes of the members that are not used because the smallest counts.
    pub unused_bytes: u64,
}

/// Regions by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Regions {
    /// Never written: read as zeroes without I/O.
    pub unwritten: u64,
    /// Parity holds.
    pub clean: u64,
    /// Being written.
    pub dirty: u64,
    /// Parity must be made true again.
    pub needs_resync: u64,
}

/// What keeps parity true over a crash, and what it did at the last start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Consistency {
    /// Policy.
    pub policy: Policy,
    /// Parity log of each member in bytes; used by the policies `log` and `log-all`.
    pub log_size_bytes: u64,
    /// Entries of the log that are in force now.
    pub log_entries: u64,
    /// Entries replayed at the start.
    pub replayed_entries: u64,
    /// Entries found at the start that no write had followed: void.
    pub voided_entries: u64,
    /// Blocks that were listed as torn at the start.
    pub torn_blocks: u64,
    /// From the start of the daemon, or of the command that brought the array up, until as many losses
    /// as there is redundancy cost nothing, in microseconds. Absent until then (a resync is due), and
    /// where the policy promises no such thing.
    pub protected_after_us: Option<u64>,
    /// Bytes of members that are torn: they read as errors.
    pub torn_bytes: u64,
    /// Bytes of members that are suspect: they read as errors.
    pub suspect_bytes: u64,
}

/// Counters since the array started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Stripes written whole.
    pub full_stripe_writes: u64,
    /// Stripes written by read-modify-write.
    pub read_modify_writes: u64,
    /// Stripes written by reconstruct-write.
    pub reconstruct_writes: u64,
    /// Requests that joined another's stripe write.
    pub joined_writes: u64,
    /// Bytes that were not read for parity because parts of stripes waited for each other.
    pub gathered_bytes: u64,
}

/// One array in short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArraySummary {
    /// Identity.
    pub uuid: Uuid,
    /// Name, unique on this host.
    pub name: String,
    /// State.
    pub state: ArrayState,
    /// Why it is offline.
    pub reason: Option<String>,
    /// Level: "raid6", "n+m", ...
    pub level: String,
    /// Usable bytes; 0 when not running.
    pub size_bytes: u64,
    /// Members in all.
    pub members: u16,
    /// Members in sync; 0 when not running.
    pub members_active: u16,
    /// Reads only.
    pub read_only: bool,
    /// Running long work.
    pub tasks: Vec<Task>,
    /// Exports configured.
    pub exports: u16,
}

/// All arrays that this host knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArrayList {
    /// The arrays, by name.
    pub arrays: Vec<ArraySummary>,
}

/// Everything known of an array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArrayDetail {
    /// Identity.
    pub uuid: Uuid,
    /// Name, unique on this host.
    pub name: String,
    /// State.
    pub state: ArrayState,
    /// Why it is offline.
    pub reason: Option<String>,
    /// Level: "raid6", "n+m", ...
    pub level: String,
    /// Usable bytes; 0 when not running.
    pub size_bytes: u64,
    /// Reads only.
    pub read_only: bool,
    /// Comes back by itself when the daemon starts (false after `array stop`).
    pub autostart: bool,
    /// Further members that may be lost, in the worst case, without losing data; `null` when not
    /// running.
    pub survives: Option<u16>,
    /// Shape; `null` when not running.
    pub geometry: Option<Geometry>,
    /// Members by place.
    pub members: Vec<Member>,
    /// Running long work.
    pub tasks: Vec<Task>,
    /// The last scrub that ended since the array started.
    pub last_scrub: Option<Task>,
    /// Generation of the superblocks (last seen, when not running).
    pub generation: u64,
    /// Starts counted; 0 when not running.
    pub epoch: u64,
    /// Regions by state; `null` when not running.
    pub regions: Option<Regions>,
    /// What keeps parity true over a crash; `null` when not running.
    pub consistency: Option<Consistency>,
    /// Counters; `null` when not running.
    pub counters: Option<Counters>,
    /// Parity kernel in use; empty when not running.
    pub kernel: String,
    /// How much a rebuild may take while clients are busy, 1 to 100; 0 when not running.
    pub rebuild_priority_percent: u8,
    /// Exports configured.
    pub exports: Vec<Export>,
    /// What people should know now, a sentence each.
    pub warnings: Vec<String>,
}

/// Outcome of a command on an array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArrayOutcome {
    /// False when everything was already as asked.
    pub changed: bool,
    /// One line for people.
    pub message: String,
    /// The array as it is now.
    pub array: ArrayDetail,
}
