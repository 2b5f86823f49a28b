//! Blocks that read as errors.
use crate::ByteRange;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Why blocks read as errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TornKind {
    /// Their content was lost in a write that a crash cut off.
    Torn,
    /// They were on a missing member when writes were in flight without a log: their content may
    /// be wrong.
    Suspect,
}

impl TornKind {
    /// The kind's name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            TornKind::Torn => "torn",
            TornKind::Suspect => "suspect",
        }
    }
}

/// A run of bytes on one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TornExtent {
    /// Place of the member.
    pub member: u16,
    /// Why.
    pub kind: TornKind,
    /// First byte in the member's data area.
    pub offset_bytes: u64,
    /// Bytes.
    pub length_bytes: u64,
    /// The volume's bytes that lie there, ascending; none where there is only parity. At most
    /// 1000.
    pub volume: Vec<ByteRange>,
    /// Further ranges of the volume that are not named.
    pub volume_left_out: u64,
}

/// Every block of an array that reads as an error. Writing it heals it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TornList {
    /// Array.
    pub array_uuid: Uuid,
    /// Array's name.
    pub array_name: String,
    /// Bytes of members that are torn.
    pub torn_bytes: u64,
    /// Bytes of members that are suspect.
    pub suspect_bytes: u64,
    /// By member and place.
    pub extents: Vec<TornExtent>,
}

/// Serves suspect blocks as they are from now on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptSuspect {
    /// Yes: their content may be wrong, and nobody will be told any more.
    #[serde(default)]
    pub force: bool,
}
