//! One record of the superblock's member table.
//!
//! | offset | size | field | meaning |
//! |---:|---:|---|---|
//! | 0 | 16 | UUID | of the member: a drive that takes a place gets a new one |
//! | 16 | 48 | serial | of the drive that is or was here; UTF-8, zero padded |
//! | 64 | 8 | size | of the drive, bytes |
//! | 72 | 8 | rebuild position | data below it is in sync; bytes of the member's data area |
//! | 80 | 8 | left generation | superblock generation that recorded that it left; 0: it did not |
//! | 88 | 8 | left lineage | first 8 bytes of the lineage it left in; 0: it did not |
//! | 96 | 8 | read errors | since creation |
//! | 104 | 8 | write errors | since creation |
//! | 112 | 8 | checksum errors | since creation |
//! | 120 | 2 | group | |
//! | 122 | 2 | index in group | |
//! | 124 | 1 | state | 1 active, 2 rebuilding, 3 failed, 4 missing, 5 removed |
//! | 125 | 3 | reserved | zero |

use super::super::bytes::{self, Field, field, tiles};
use super::SERIAL_BYTES_MAX;
use uuid::Uuid;

/// Bytes of a record.
pub const MEMBER_BYTES: usize = 128;

const UUID: Field = field(0, 16);
const SERIAL: Field = field(16, SERIAL_BYTES_MAX);
const SIZE: Field = field(64, 8);
const REBUILD_POSITION: Field = field(72, 8);
const LEFT_GENERATION: Field = field(80, 8);
const LEFT_LINEAGE: Field = field(88, 8);
const READ_ERRORS: Field = field(96, 8);
const WRITE_ERRORS: Field = field(104, 8);
const CHECKSUM_ERRORS: Field = field(112, 8);
const GROUP: Field = field(120, 2);
const INDEX_IN_GROUP: Field = field(122, 2);
const STATE: Field = field(124, 1);
const RESERVED: Field = field(125, 3);

const _: () = assert!(tiles(
    &[
        UUID,
        SERIAL,
        SIZE,
        REBUILD_POSITION,
        LEFT_GENERATION,
        LEFT_LINEAGE,
        READ_ERRORS,
        WRITE_ERRORS,
        CHECKSUM_ERRORS,
        GROUP,
        INDEX_IN_GROUP,
        STATE,
        RESERVED
    ],
    0,
    MEMBER_BYTES
));

/// State of a member. The codes are those on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// In sync.
    Active = 1,
    /// Being refilled; in sync below its rebuild position.
    Rebuilding = 2,
    /// Dropped after errors or by command.
    Failed = 3,
    /// Not there when the array started.
    Missing = 4,
    /// Its place is empty by command.
    Removed = 5,
}

impl MemberState {
    /// Every state.
    pub const ALL: [MemberState; 5] = [
        MemberState::Active,
        MemberState::Rebuilding,
        MemberState::Failed,
        MemberState::Missing,
        MemberState::Removed,
    ];

    /// Receives writes: `Active` or `Rebuilding`.
    pub fn is_in_array(self) -> bool {
        matches!(self, MemberState::Active | MemberState::Rebuilding)
    }

    /// Name in listings.
    pub fn name(self) -> &'static str {
        match self {
            MemberState::Active => "active",
            MemberState::Rebuilding => "rebuilding",
            MemberState::Failed => "failed",
            MemberState::Missing => "missing",
            MemberState::Removed => "removed",
        }
    }

    fn from_code(code: u8) -> Option<MemberState> {
        MemberState::ALL
            .into_iter()
            .find(|&state| state as u8 == code)
    }
}

/// What every member knows of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRecord {
    /// Member; a drive that takes a place gets a new one. Nil only when removed.
    pub uuid: Uuid,
    /// Serial of the drive, at most 48 bytes ([`clip_serial`]).
    pub serial: String,
    /// Size of the drive in bytes.
    pub size_bytes: u64,
    /// Group.
    pub group: u16,
    /// Place within the group.
    pub index_in_group: u16,
    /// State.
    pub state: MemberState,
    /// While rebuilding: data below it (bytes of the member's data area) is in sync.
    pub rebuild_position_bytes: u64,
    /// Superblock generation that recorded that it left; 0: it did not.
    pub left_generation: u64,
    /// [`super::lineage_tag`] of the lineage it left in; 0: it did not.
    pub left_lineage_tag: u64,
    /// Read errors since creation, as last recorded.
    pub read_errors: u64,
    /// Write errors since creation, as last recorded.
    pub write_errors: u64,
    /// Blocks with a wrong checksum since creation, as last recorded.
    pub checksum_errors: u64,
}

impl MemberRecord {
    /// A member that never left, with the serial clipped to what fits.
    pub fn new(
        uuid: Uuid,
        serial: &str,
        size_bytes: u64,
        group: u16,
        index_in_group: u16,
        state: MemberState,
    ) -> MemberRecord {
        MemberRecord {
            uuid,
            serial: clip_serial(serial),
            size_bytes,
            group,
            index_in_group,
            state,
            rebuild_position_bytes: 0,
            left_generation: 0,
            left_lineage_tag: 0,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
        }
    }

    /// Writes the record; `out` has [`MEMBER_BYTES`].
    pub(super) fn encode(&self, out: &mut [u8]) {
        bytes::put_uuid(out, UUID, self.uuid);
        bytes::put_text(out, SERIAL, &self.serial);
        bytes::put_u64(out, SIZE, self.size_bytes);
        bytes::put_u64(out, REBUILD_POSITION, self.rebuild_position_bytes);
        bytes::put_u64(out, LEFT_GENERATION, self.left_generation);
        bytes::put_u64(out, LEFT_LINEAGE, self.left_lineage_tag);
        bytes::put_u64(out, READ_ERRORS, self.read_errors);
        bytes::put_u64(out, WRITE_ERRORS, self.write_errors);
        bytes::put_u64(out, CHECKSUM_ERRORS, self.checksum_errors);
        bytes::put_u16(out, GROUP, self.group);
        bytes::put_u16(out, INDEX_IN_GROUP, self.index_in_group);
        bytes::put_u8(out, STATE, self.state as u8);
    }

    /// Reads a record; the error is the field's name, its value and what it must be.
    pub(super) fn decode(raw: &[u8]) -> Result<MemberRecord, (&'static str, String, &'static str)> {
        if !bytes::is_zero(bytes::slice(raw, RESERVED)) {
            return Err(("member's reserved space", "not zero".into(), "must be zero"));
        }
        let code = bytes::get_u8(raw, STATE);
        let state = MemberState::from_code(code).ok_or((
            "member's state",
            code.to_string(),
            "states are 1 to 5",
        ))?;
        let serial = bytes::get_text(raw, SERIAL)
            .map_err(|why| ("member's serial", "not a text".to_string(), why))?;
        Ok(MemberRecord {
            uuid: bytes::get_uuid(raw, UUID),
            serial,
            size_bytes: bytes::get_u64(raw, SIZE),
            group: bytes::get_u16(raw, GROUP),
            index_in_group: bytes::get_u16(raw, INDEX_IN_GROUP),
            state,
            rebuild_position_bytes: bytes::get_u64(raw, REBUILD_POSITION),
            left_generation: bytes::get_u64(raw, LEFT_GENERATION),
            left_lineage_tag: bytes::get_u64(raw, LEFT_LINEAGE),
            read_errors: bytes::get_u64(raw, READ_ERRORS),
            write_errors: bytes::get_u64(raw, WRITE_ERRORS),
            checksum_errors: bytes::get_u64(raw, CHECKSUM_ERRORS),
        })
    }
}

/// A drive's serial as a superblock can hold it: without control characters and surrounding
/// blanks, cut at a character's end to at most 48 bytes.
pub fn clip_serial(serial: &str) -> String {
    let mut out = String::new();
    for c in serial.trim().chars().filter(|c| !c.is_control()) {
        if out.len() + c.len_utf8() > SERIAL_BYTES_MAX {
            break;
        }
        out.push(c);
    }
    out
}
