//! The superblock: everything that must be known of an array to start it, on every member twice.
//!
//! A head of 4 KiB and a table of member records of 128 bytes (`superblock/member`). Its place has
//! 64 KiB, room for 480 records; what is written, believed and covered by the checksum is the head
//! and the whole 4 KiB that this array's records need, 8 KiB for up to 32 members. (Version 1 always
//! wrote 64 KiB, unused records zero; it is read, and written as version 2 at the next change.)
//! Both copies of all members are the same but for this member's index, superblock B's place, the
//! own offset and the checksum. Copies are written one after the other, so a torn write leaves the
//! other copy.
//!
//! | offset | size | field | meaning |
//! |---:|---:|---|---|
//! | 0 | 72 | header | see `header`; magic `STRAKESB` |
//! | 72 | 8 | epoch | raised at each start |
//! | 80 | 16 | lineage | random; renewed when the array starts without all members last known good |
//! | 96 | 8 | compatible | feature flags to ignore where unknown |
//! | 104 | 8 | read-only compatible | where unknown: read only |
//! | 112 | 8 | incompatible | where unknown: refuse |
//! | 120 | 8 | created | seconds since 1970 |
//! | 128 | 16 | owner host | UUID of the host that started the array last |
//! | 144 | 8 | owner started | seconds since 1970 |
//! | 152 | 48 | name | UTF-8, zero padded |
//! | 200 | 1 | state | 1 clean, 2 in use |
//! | 201 | 1 | level | [`Level::code`] |
//! | 202 | 1 | consistency | 0 none, 1 resync, 2 log, 3 log-all |
//! | 203 | 1 | checksums | 0 none |
//! | 204 | 1 | rebuild priority | 1 to 100 per cent |
//! | 205 | 3 | reserved | zero |
//! | 208 | 2 | groups | |
//! | 210 | 2 | data | data strips in a group's stripe |
//! | 212 | 2 | parity | parity strips in a group's stripe |
//! | 214 | 2 | members | records in use: groups × (data + parity) |
//! | 216 | 2 | member index | this member's record |
//! | 218 | 6 | reserved | zero |
//! | 224 | 8 | strip size | bytes |
//! | 232 | 4 | block size | bytes |
//! | 236 | 4 | code id | which parity coefficients; 1: P and Q of Linux md, further ones of `codec` |
//! | 240 | 4 | layout id | 1 left-symmetric rotation, 2 no rotation |
//! | 244 | 4 | layout generator | version of a declustered layout's generator; 0 |
//! | 248 | 8 | layout rotation | first row's rotation; 0 |
//! | 256 | 8 | layout seed | of a declustered layout; 0 |
//! | 264 | 8 | member data | bytes that each member contributes |
//! | 272 | 8 | region size | bytes of a region on each member |
//! | 280 | 8 | volume size | bytes served |
//! | 288 | 8 | owner heartbeat | of the host that has it in use; 0: none is kept (always, today) |
//! | 296 | 8 | log epoch | of the log that a start is replaying; 0: none |
//! | 304 | 16 | log lineage | of that log |
//! | 320 | 128 | areas | offset and length of each, see `areas` |
//! | 448 | 192 | restripe | zero: none (always, today); see `superblock/reserved` |
//! | 640 | 3456 | reserved | zero |
//! | 4096 | to 61440 | member table | unused records zero |
//!
//! A feature that gives reserved bytes a meaning is at least read-only compatible, so a Strake
//! that would drop them by writing the superblock again never writes it.

mod check;
mod listing;
mod member;
mod reserved;

pub use check::check_name;
pub use listing::human_bytes;
pub use member::{MEMBER_BYTES, MemberRecord, MemberState, clip_serial};
pub use reserved::{
    INCOMPATIBLE_CHECKSUMS, INCOMPATIBLE_DECLUSTERED, INCOMPATIBLE_RESTRIPE, INCOMPATIBLE_VOLUMES,
    READ_ONLY_COMPATIBLE_HEARTBEAT,
};

use super::areas::{AREAS_BYTES, AreaError, Areas, SUPERBLOCK_BYTES};
use super::bytes::{self, Field, field, tiles};
use super::error::FormatError;
use super::header::{self, HEADER_BYTES, Header, Kind};
use crate::layout::{Level, MEMBERS_MAX};
use uuid::Uuid;

#[cfg(test)]
pub(super) mod tests;

const EPOCH: Field = field(72, 8);
const LINEAGE: Field = field(80, 16);
const COMPATIBLE: Field = field(96, 8);
const READ_ONLY_COMPATIBLE: Field = field(104, 8);
const INCOMPATIBLE: Field = field(112, 8);
const CREATED: Field = field(120, 8);
const OWNER_HOST: Field = field(128, 16);
const OWNER_STARTED: Field = field(144, 8);
const NAME: Field = field(152, NAME_BYTES_MAX);
const STATE: Field = field(200, 1);
const LEVEL: Field = field(201, 1);
const CONSISTENCY: Field = field(202, 1);
const CHECKSUMS: Field = field(203, 1);
const REBUILD_PRIORITY: Field = field(204, 1);
const RESERVED_1: Field = field(205, 3);
const GROUPS: Field = field(208, 2);
const DATA: Field = field(210, 2);
const PARITY: Field = field(212, 2);
const MEMBERS: Field = field(214, 2);
const MEMBER_INDEX: Field = field(216, 2);
const RESERVED_2: Field = field(218, 6);
const STRIP_SIZE: Field = field(224, 8);
const BLOCK_SIZE: Field = field(232, 4);
const CODE_ID_FIELD: Field = field(236, 4);
const LAYOUT_ID: Field = field(240, 4);
const LAYOUT_GENERATOR: Field = field(244, 4);
const LAYOUT_ROTATION: Field = field(248, 8);
const LAYOUT_SEED: Field = field(256, 8);
const MEMBER_DATA: Field = field(264, 8);
const REGION_SIZE: Field = field(272, 8);
const VOLUME_SIZE: Field = field(280, 8);
const HEARTBEAT: Field = field(288, 8);
const LOG_EPOCH: Field = field(296, 8);
const LOG_LINEAGE: Field = field(304, 16);
const AREAS: Field = field(320, AREAS_BYTES);
const RESTRIPE: Field = field(448, 192);
const RESERVED_4: Field = field(640, 3456);
const TABLE: Field = field(HEAD_BYTES, MEMBERS_MAX * MEMBER_BYTES);

const HEAD_BYTES: usize = 4096;

const _: () = assert!(tiles(
    &[
        EPOCH,
        LINEAGE,
        COMPATIBLE,
        READ_ONLY_COMPATIBLE,
        INCOMPATIBLE,
        CREATED,
        OWNER_HOST,
        OWNER_STARTED,
        NAME,
        STATE,
        LEVEL,
        CONSISTENCY,
        CHECKSUMS,
        REBUILD_PRIORITY,
        RESERVED_1,
        GROUPS,
        DATA,
        PARITY,
        MEMBERS,
        MEMBER_INDEX,
        RESERVED_2,
        STRIP_SIZE,
        BLOCK_SIZE,
        CODE_ID_FIELD,
        LAYOUT_ID,
        LAYOUT_GENERATOR,
        LAYOUT_ROTATION,
        LAYOUT_SEED,
        MEMBER_DATA,
        REGION_SIZE,
        VOLUME_SIZE,
        HEARTBEAT,
        LOG_EPOCH,
        LOG_LINEAGE,
        AREAS,
        RESTRIPE,
        RESERVED_4,
        TABLE,
    ],
    HEADER_BYTES,
    SUPERBLOCK_BYTES
));

/// Of so many bytes.
const fn kind(bytes: usize) -> Kind {
    Kind {
        magic: *b"STRAKESB",
        name: "superblock",
        version: FORMAT_VERSION,
        bytes,
    }
}

/// What all superblocks have in common.
const KIND: Kind = kind(SUPERBLOCK_BYTES);

/// Version of the superblock's layout that is written, and the newest that is read.
pub const FORMAT_VERSION: u32 = 2;
/// Longest array name in bytes.
pub const NAME_BYTES_MAX: usize = 48;
/// Longest drive serial kept, in bytes.
pub const SERIAL_BYTES_MAX: usize = 48;
/// The parity coefficients of `strake-codec`: P and Q as Linux md, and its further parities.
pub const CODE_ID: u32 = 1;
/// Left-symmetric rotation.
pub const LAYOUT_LEFT_SYMMETRIC: u32 = 1;
/// No rotation: mirrors and RAID 0.
pub const LAYOUT_FIXED: u32 = 2;
/// Compatible features known here.
pub const COMPATIBLE_KNOWN: u64 = 0;
/// Read-only compatible features known here.
pub const READ_ONLY_COMPATIBLE_KNOWN: u64 = 0;
/// Incompatible features known here.
pub const INCOMPATIBLE_KNOWN: u64 = 0;

/// Feature flags, in the three classes that file systems have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Ignored where unknown.
    pub compatible: u64,
    /// Where unknown, the array may only be read.
    pub read_only_compatible: u64,
    /// Where unknown, the array is refused.
    pub incompatible: u64,
}

/// Whether the array was stopped properly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// Stopped; everything durable, no region dirty.
    Clean = 1,
    /// Started and not yet stopped: by a running owner, or one that crashed.
    InUse = 2,
}

/// How parity is made true again after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// Not at all.
    None = 0,
    /// Dirty regions are resynced.
    Resync = 1,
    /// Parity log.
    Log = 2,
    /// Parity log that also keeps the missing strips of degraded full-stripe writes.
    LogAll = 3,
}

/// Checksums of data blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumKind {
    /// None are kept.
    None = 0,
}

/// How strips are placed on members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutParameters {
    /// [`LAYOUT_LEFT_SYMMETRIC`] or [`LAYOUT_FIXED`].
    pub id: u32,
    /// Rotation of the first row; 0.
    pub rotation: u64,
    /// Generator's version of a declustered layout; 0.
    pub generator_version: u32,
    /// Seed of a declustered layout; 0.
    pub seed: u64,
}

impl LayoutParameters {
    /// The layout that a level has: mirrors and RAID 0 do not rotate.
    pub fn of(level: Level) -> LayoutParameters {
        let fixed = matches!(level, Level::Raid0 | Level::Raid1 | Level::Raid10);
        LayoutParameters {
            id: if fixed {
                LAYOUT_FIXED
            } else {
                LAYOUT_LEFT_SYMMETRIC
            },
            rotation: 0,
            generator_version: 0,
            seed: 0,
        }
    }
}

/// One superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Feature flags.
    pub features: Features,
    /// Set on read when unknown read-only compatible features are in use: the array may be read
    /// and its superblocks must not be written ([`Superblock::encode`] asserts it). Not stored.
    pub read_only_only: bool,
    /// Array.
    pub array_uuid: Uuid,
    /// Name: 1 to 48 of letters, digits, `-`, `_`, `.`; starts with a letter or digit.
    pub name: String,
    /// Creation, seconds since 1970.
    pub created_unix: u64,
    /// Raised at each change.
    pub generation: u64,
    /// Raised at each start.
    pub epoch: u64,
    /// Renewed whenever the array starts without all members last known good.
    pub lineage: Uuid,
    /// The log that the start which wrote this is replaying: entries of an older epoch and lineage.
    /// `None`: nothing is replayed, or those of `epoch` and `lineage` are in force.
    pub replay: Option<Replay>,
    /// Host that started the array last; nil before the first start.
    pub owner_host: Uuid,
    /// When it did, seconds since 1970.
    pub owner_started_unix: u64,
    /// Clean or in use.
    pub state: RunState,
    /// Level.
    pub level: Level,
    /// Groups.
    pub groups: u16,
    /// Data strips in a group's stripe.
    pub data: u16,
    /// Parity strips in a group's stripe; copies beyond the first for mirrors.
    pub parity: u16,
    /// Strip in bytes.
    pub strip_size_bytes: u64,
    /// Array block size in bytes, 512 or 4096.
    pub block_size_bytes: u32,
    /// Parity coefficients, [`CODE_ID`].
    pub code_id: u32,
    /// Placement of strips.
    pub layout: LayoutParameters,
    /// Policy after a crash.
    pub consistency: Consistency,
    /// Checksums of data blocks.
    pub checksums: ChecksumKind,
    /// 1 to 100 per cent.
    pub rebuild_priority: u8,
    /// Every member by place: place `p` is member `p % (data + parity)` of group
    /// `p / (data + parity)`.
    pub members: Vec<MemberRecord>,
    /// This member's place.
    pub member_index: u16,
    /// Areas of this member.
    pub areas: Areas,
    /// Bytes that each member contributes; at most `areas.data.length`.
    pub member_data_bytes: u64,
    /// Bytes of a region on each member.
    pub region_size_bytes: u64,
    /// Bytes served; at most `groups * data * member_data_bytes`.
    pub volume_size_bytes: u64,
}

impl Superblock {
    /// This member's record.
    pub fn own(&self) -> &MemberRecord {
        &self.members[usize::from(self.member_index)]
    }

    /// Members of one group, strips of one stripe.
    pub fn group_size(&self) -> u16 {
        self.data + self.parity
    }

    /// Regions of each member.
    pub fn regions(&self) -> u64 {
        self.member_data_bytes / self.region_size_bytes
    }

    /// The same superblock as written to the member at `place`, on a drive of this size.
    ///
    /// # Errors
    /// [`AreaError::DoesNotFit`] when the drive is too small.
    pub fn for_member(&self, place: u16, drive_size_bytes: u64) -> Result<Superblock, AreaError> {
        Ok(Superblock {
            member_index: place,
            areas: self.areas.on_drive(drive_size_bytes)?,
            ..self.clone()
        })
    }

    /// Whether both say the same of the array, whichever member they were written to.
    pub fn same_array_state(&self, other: &Superblock) -> bool {
        let mut other = other.clone();
        other.member_index = self.member_index;
        other.areas.superblock_b = self.areas.superblock_b;
        *self == other
    }

    /// The same, but for when the array was started.
    pub fn same_but_for_the_time(&self, other: &Superblock) -> bool {
        let mut other = other.clone();
        other.owner_started_unix = self.owner_started_unix;
        self.same_array_state(&other)
    }

    /// Begins a start: the epoch is raised, and the generation by two. A crash may have left the
    /// change before this start on some members that are absent now; skipping its generation
    /// keeps it from contradicting this one when they come back.
    ///
    /// `without`: the new lineage of a start without members that were expected. They may hold a
    /// start from the same state that was cut off before it served anything; a step taken from the
    /// lineage keeps the two from having one generation.
    pub fn raise_for_start(&mut self, without: Option<Uuid>) {
        self.epoch += 1;
        self.generation += 2;
        if let Some(lineage) = without {
            let step = lineage.as_u128() as u16 ^ (lineage.as_u128() >> 64) as u16;
            self.generation += 4 * u64::from(step);
        }
    }

    /// The start is durable on all members: from here on it serves. Goes above all that a start
    /// from the same state can have written which was cut off before this point.
    pub fn raise_for_serving(&mut self) {
        self.generation += 1 << 20;
    }

    /// Records that the member at `place` left (`Failed`, `Missing` or `Removed`), with what tells
    /// a stale member from one that ran apart when it comes back. Call it after the generation was
    /// raised for this change, and before [`Superblock::lineage`] is renewed.
    pub fn mark_left(&mut self, place: u16, state: MemberState) {
        assert!(!state.is_in_array(), "{state:?} is not a way to leave");
        let (generation, lineage) = (self.generation, lineage_tag(self.lineage));
        let record = &mut self.members[usize::from(place)];
        if record.state.is_in_array() {
            record.left_generation = generation;
            record.left_lineage_tag = lineage;
        }
        record.state = state;
    }

    /// Whole 4 KiB for the copy at device offset `own_offset`, which is `areas.superblock_a.offset`
    /// or `areas.superblock_b.offset`. A superblock that [`Superblock::decode`] would refuse is our
    /// own mistake and panics.
    pub fn encode(&self, own_offset: u64) -> Vec<u8> {
        assert!(!self.read_only_only, "array uses features unknown here");
        if let Err(error) = self.check(own_offset) {
            panic!("superblock that could not be read back: {error}");
        }
        let mut out = vec![0; used_bytes(self.members.len())];
        self.encode_identity(&mut out);
        self.encode_geometry(&mut out);
        self.areas
            .encode(&mut out[AREAS.at..AREAS.at + AREAS.bytes]);
        let table = out[TABLE.at..].chunks_exact_mut(MEMBER_BYTES);
        for (slot, member) in table.zip(&self.members) {
            member.encode(slot);
        }
        let header = Header {
            own_offset,
            array_uuid: self.array_uuid,
            member_uuid: self.own().uuid,
            generation: self.generation,
        };
        kind(out.len()).seal(&mut out, &header);
        out
    }

    fn encode_identity(&self, out: &mut [u8]) {
        bytes::put_u64(out, EPOCH, self.epoch);
        bytes::put_uuid(out, LINEAGE, self.lineage);
        if let Some(replay) = self.replay {
            bytes::put_u64(out, LOG_EPOCH, replay.epoch);
            bytes::put_uuid(out, LOG_LINEAGE, replay.lineage);
        }
        bytes::put_u64(out, COMPATIBLE, self.features.compatible);
        let read_only = self.features.read_only_compatible;
        bytes::put_u64(out, READ_ONLY_COMPATIBLE, read_only);
        bytes::put_u64(out, INCOMPATIBLE, self.features.incompatible);
        bytes::put_u64(out, CREATED, self.created_unix);
        bytes::put_uuid(out, OWNER_HOST, self.owner_host);
        bytes::put_u64(out, OWNER_STARTED, self.owner_started_unix);
        bytes::put_text(out, NAME, &self.name);
        bytes::put_u8(out, STATE, self.state as u8);
        bytes::put_u8(out, CONSISTENCY, self.consistency as u8);
        bytes::put_u8(out, CHECKSUMS, self.checksums as u8);
        bytes::put_u8(out, REBUILD_PRIORITY, self.rebuild_priority);
        bytes::put_u16(out, MEMBERS, self.members.len() as u16);
        bytes::put_u16(out, MEMBER_INDEX, self.member_index);
    }

    fn encode_geometry(&self, out: &mut [u8]) {
        bytes::put_u8(out, LEVEL, self.level.code());
        bytes::put_u16(out, GROUPS, self.groups);
        bytes::put_u16(out, DATA, self.data);
        bytes::put_u16(out, PARITY, self.parity);
        bytes::put_u64(out, STRIP_SIZE, self.strip_size_bytes);
        bytes::put_u32(out, BLOCK_SIZE, self.block_size_bytes);
        bytes::put_u32(out, CODE_ID_FIELD, self.code_id);
        bytes::put_u32(out, LAYOUT_ID, self.layout.id);
        bytes::put_u32(out, LAYOUT_GENERATOR, self.layout.generator_version);
        bytes::put_u64(out, LAYOUT_ROTATION, self.layout.rotation);
        bytes::put_u64(out, LAYOUT_SEED, self.layout.seed);
        bytes::put_u64(out, MEMBER_DATA, self.member_data_bytes);
        bytes::put_u64(out, REGION_SIZE, self.region_size_bytes);
        bytes::put_u64(out, VOLUME_SIZE, self.volume_size_bytes);
    }

    /// Reads the copy at device offset `own_offset` through `read` (an offset, and the bytes to be
    /// filled). A block of its place that cannot be read counts only if the copy reaches so far:
    /// nothing would ever write it again.
    ///
    /// # Errors
    /// [`FormatError::Unreadable`], and those of [`Superblock::decode`].
    pub fn read<E: ToString>(
        own_offset: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Superblock, FormatError> {
        let mut raw = vec![0; SUPERBLOCK_BYTES];
        let mut used = SUPERBLOCK_BYTES;
        if read(own_offset, &mut raw).is_err() {
            let unreadable = |error: E| FormatError::Unreadable {
                structure: KIND.name,
                offset: own_offset,
                reason: error.to_string(),
            };
            read(own_offset, &mut raw[..HEAD_BYTES]).map_err(unreadable)?;
            used = stated_bytes(&raw);
            read(own_offset, &mut raw[..used]).map_err(unreadable)?;
        }
        Superblock::decode(&raw[..used], own_offset)
    }

    /// Reads the copy found at device offset `own_offset` from its bytes. Bytes of `raw` beyond it
    /// are ignored.
    ///
    /// # Errors
    /// [`FormatError::Short`], `NotStrake`, `Version` (newer), `Checksum` (torn or damaged),
    /// `Misplaced`, `Incompatible`, or `Field` for a value that cannot be, tried in this order.
    pub fn decode(raw: &[u8], own_offset: u64) -> Result<Superblock, FormatError> {
        if raw.len() < HEAD_BYTES {
            return Err(FormatError::Short {
                structure: KIND.name,
                offset: own_offset,
                found: raw.len(),
                needed: HEAD_BYTES,
            });
        }
        let kind = kind(stated_bytes(raw));
        let header = kind.open(raw, own_offset)?;
        let raw = &raw[..kind.bytes];
        let features = Features {
            compatible: bytes::get_u64(raw, COMPATIBLE),
            read_only_compatible: bytes::get_u64(raw, READ_ONLY_COMPATIBLE),
            incompatible: bytes::get_u64(raw, INCOMPATIBLE),
        };
        let flags = features.incompatible & !INCOMPATIBLE_KNOWN;
        if flags != 0 {
            return Err(FormatError::Incompatible { flags });
        }
        let read_only_only = features.read_only_compatible & !READ_ONLY_COMPATIBLE_KNOWN != 0;
        if !read_only_only {
            check_reserved(raw, own_offset)?;
        }
        let read = Reader {
            raw,
            at: own_offset,
        };
        let superblock = Superblock {
            features,
            read_only_only,
            array_uuid: header.array_uuid,
            name: read.text(NAME, "name")?,
            created_unix: bytes::get_u64(raw, CREATED),
            generation: header.generation,
            epoch: bytes::get_u64(raw, EPOCH),
            lineage: bytes::get_uuid(raw, LINEAGE),
            replay: Replay::of(
                bytes::get_u64(raw, LOG_EPOCH),
                bytes::get_uuid(raw, LOG_LINEAGE),
            ),
            owner_host: bytes::get_uuid(raw, OWNER_HOST),
            owner_started_unix: bytes::get_u64(raw, OWNER_STARTED),
            state: read.coded(STATE, "state", RunState::from_code)?,
            level: read.coded(LEVEL, "level", Level::from_code)?,
            groups: bytes::get_u16(raw, GROUPS),
            data: bytes::get_u16(raw, DATA),
            parity: bytes::get_u16(raw, PARITY),
            strip_size_bytes: bytes::get_u64(raw, STRIP_SIZE),
            block_size_bytes: bytes::get_u32(raw, BLOCK_SIZE),
            code_id: bytes::get_u32(raw, CODE_ID_FIELD),
            layout: LayoutParameters {
                id: bytes::get_u32(raw, LAYOUT_ID),
                rotation: bytes::get_u64(raw, LAYOUT_ROTATION),
                generator_version: bytes::get_u32(raw, LAYOUT_GENERATOR),
                seed: bytes::get_u64(raw, LAYOUT_SEED),
            },
            consistency: read.coded(CONSISTENCY, "consistency", Consistency::from_code)?,
            checksums: read.coded(CHECKSUMS, "checksums", ChecksumKind::from_code)?,
            rebuild_priority: bytes::get_u8(raw, REBUILD_PRIORITY),
            members: read.members()?,
            member_index: bytes::get_u16(raw, MEMBER_INDEX),
            areas: Areas::decode(bytes::slice(raw, AREAS)),
            member_data_bytes: bytes::get_u64(raw, MEMBER_DATA),
            region_size_bytes: bytes::get_u64(raw, REGION_SIZE),
            volume_size_bytes: bytes::get_u64(raw, VOLUME_SIZE),
        };
        superblock.check(own_offset)?;
        KIND.expect(&header, superblock.array_uuid, superblock.own().uuid)?;
        Ok(superblock)
    }
}

/// Whose log entries are in force at a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// Epoch in which they were written.
    pub epoch: u64,
    /// Lineage in which they were written.
    pub lineage: Uuid,
}

impl Replay {
    fn of(epoch: u64, lineage: Uuid) -> Option<Replay> {
        (epoch > 0 || !lineage.is_nil()).then_some(Replay { epoch, lineage })
    }
}

/// First eight bytes of a lineage: enough to recognise it, as it is random.
pub fn lineage_tag(lineage: Uuid) -> u64 {
    bytes::get_u64(lineage.as_bytes(), field(0, 8))
}

fn check_reserved(raw: &[u8], at: u64) -> Result<(), FormatError> {
    if let Some(name) = reserved::restripe_in_use(bytes::slice(raw, RESTRIPE)) {
        let why = "a restripe was begun by a newer Strake; use that one";
        return Err(KIND.field(at, name, "not zero", why));
    }
    let reserved = [RESERVED_1, RESERVED_2, HEARTBEAT, RESERVED_4];
    if reserved
        .iter()
        .all(|&field| bytes::is_zero(bytes::slice(raw, field)))
    {
        Ok(())
    } else {
        Err(KIND.reserved(at))
    }
}

/// Bytes of a superblock with so many members: whole 4 KiB.
const fn used_bytes(members: usize) -> usize {
    (HEAD_BYTES + members * MEMBER_BYTES).next_multiple_of(HEAD_BYTES)
}

/// The length that a copy says it has; `raw` holds at least the head. Of a length that cannot be,
/// the head alone says whether the copy is newer or damaged.
fn stated_bytes(raw: &[u8]) -> usize {
    let stated = header::stated_bytes(raw);
    let can_be = stated.is_multiple_of(HEAD_BYTES)
        && (HEAD_BYTES + MEMBER_BYTES..=SUPERBLOCK_BYTES).contains(&stated);
    if can_be { stated } else { HEAD_BYTES }
}

/// Fields whose bytes may not be a value at all.
struct Reader<'a> {
    raw: &'a [u8],
    at: u64,
}

impl Reader<'_> {
    fn text(&self, field: Field, name: &'static str) -> Result<String, FormatError> {
        bytes::get_text(self.raw, field).map_err(|why| KIND.field(self.at, name, "not a text", why))
    }

    fn coded<T>(
        &self,
        field: Field,
        name: &'static str,
        from_code: impl Fn(u8) -> Option<T>,
    ) -> Result<T, FormatError> {
        let code = bytes::get_u8(self.raw, field);
        let why = "not a value that this Strake knows; use the one that wrote it";
        from_code(code).ok_or_else(|| KIND.field(self.at, name, code, why))
    }

    fn members(&self) -> Result<Vec<MemberRecord>, FormatError> {
        let count = usize::from(bytes::get_u16(self.raw, MEMBERS));
        if count > MEMBERS_MAX {
            let why = format!("must be at most {MEMBERS_MAX}");
            return Err(KIND.field(self.at, "members", count, why));
        }
        let table = &self.raw[TABLE.at..];
        let Some((used, unused)) = table.split_at_checked(count * MEMBER_BYTES) else {
            let why = format!("must be at least {} for so many", used_bytes(count));
            return Err(KIND.field(self.at, "length", self.raw.len(), why));
        };
        if !bytes::is_zero(unused) {
            let why = "records behind the last member must be zero";
            return Err(KIND.field(self.at, "member table", "not zero", why));
        }
        let records = used.chunks_exact(MEMBER_BYTES);
        records
            .map(|raw| {
                MemberRecord::decode(raw)
                    .map_err(|(name, value, why)| KIND.field(self.at, name, value, why))
            })
            .collect()
    }
}

impl RunState {
    fn from_code(code: u8) -> Option<RunState> {
        [RunState::Clean, RunState::InUse]
            .into_iter()
            .find(|&s| s as u8 == code)
    }
}

impl Consistency {
    /// Name in commands and listings.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::None => "none",
            Consistency::Resync => "resync",
            Consistency::Log => "log",
            Consistency::LogAll => "log-all",
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Consistency> {
        use Consistency::{Log, LogAll, None, Resync};
        [None, Resync, Log, LogAll]
            .into_iter()
            .find(|&c| c as u8 == code)
    }
}

impl ChecksumKind {
    fn from_code(code: u8) -> Option<ChecksumKind> {
        (code == ChecksumKind::None as u8).then_some(ChecksumKind::None)
    }
}
