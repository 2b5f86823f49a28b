//! The parity log's area: a header page and a ring of records ([`record`]).
//!
//! The header page is written when a drive becomes a member and says where the ring lies; what is
//! in force, the records say themselves.
//!
//! | offset | size | field | meaning |
//! |---:|---:|---|---|
//! | 0 | 72 | header | see `header`; magic `STRAKELG` |
//! | 72 | 8 | epoch | array epoch in which this header was written: logs of another are not replayed |
//! | 80 | 16 | lineage | array lineage, likewise |
//! | 96 | 8 | ring offset | device offset of the ring: behind this page |
//! | 104 | 8 | ring length | bytes: the rest of the area |
//! | 112 | 8 | reserved | zero |
//! | 120 | 1 | policy | as in the superblock when this page was written |
//! | 121 | 1 | state | 1: entries are in the records of the ring and nowhere else |
//! | 122 | 3974 | reserved | zero |
//!
//! Records lie in the ring in the order of one sequence of the whole array, each starting on
//! 4 KiB; they are written over, and entries retired, strictly oldest first.

pub mod record;

use super::areas::Extent;
use super::bytes::{self, Field, field, tiles};
use super::error::FormatError;
use super::header::{HEADER_BYTES, Header, Kind};
use super::superblock::Consistency;
use crate::layout::{BAND_BYTES_MAX, Shape};
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// Bytes of the header page.
pub const LOG_HEADER_BYTES: usize = 4096;

const EPOCH: Field = field(72, 8);
const LINEAGE: Field = field(80, 16);
const RING_OFFSET: Field = field(96, 8);
const RING_LENGTH: Field = field(104, 8);
const RESERVED_1: Field = field(112, 8);
const POLICY: Field = field(120, 1);
const STATE: Field = field(121, 1);
const RESERVED: Field = field(122, 3974);

const _: () = assert!(tiles(
    &[
        EPOCH,
        LINEAGE,
        RING_OFFSET,
        RING_LENGTH,
        RESERVED_1,
        POLICY,
        STATE,
        RESERVED
    ],
    HEADER_BYTES,
    LOG_HEADER_BYTES
));

const STATE_RECORDS: u8 = 1;

const KIND: Kind = Kind {
    magic: *b"STRAKELG",
    name: "parity log header",
    version: 1,
    bytes: LOG_HEADER_BYTES,
};

/// Header of a member's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHeader {
    /// Array.
    pub array_uuid: Uuid,
    /// Member.
    pub member_uuid: Uuid,
    /// Generation of the superblock at which it was written.
    pub generation: u64,
    /// Array epoch at which it was written.
    pub epoch: u64,
    /// Array lineage at which it was written.
    pub lineage: Uuid,
    /// Policy when it was written.
    pub policy: Consistency,
}

/// Where the ring lies in a log area.
pub fn ring(area: Extent) -> Extent {
    let header = LOG_HEADER_BYTES as u64;
    assert!(
        area.length > header,
        "the log's area is checked with the superblock"
    );
    Extent::new(area.offset + header, area.length - header)
}

/// Smallest log area of an array of this shape: two of the longest records that one operation can
/// make, and a few that only say what is retired.
pub fn area_bytes_min(shape: &Shape) -> u64 {
    let band = shape.strip_size_bytes.min(BAND_BYTES_MAX);
    let blocks = band / u64::from(shape.block_size_bytes);
    let (data, parity) = (u64::from(shape.data), u64::from(shape.parity));
    let heads = blocks.min(SPANS_MAX) * (record::ENTRY_HEAD_BYTES as u64 + 8);
    let checksums = 2 * 4 * data * blocks;
    // Partial parity, and the content of as many strips as may be missing.
    let payload = (1 + parity) * band;
    let page = record::RECORD_ALIGN as u64;
    let record =
        (record::RECORD_HEAD_BYTES as u64 + heads + checksums + payload).next_multiple_of(page);
    LOG_HEADER_BYTES as u64 + 2 * record + 4 * page
}

/// Spans of one operation at most: its fragments (see `array::ops`) begin and end.
const SPANS_MAX: u64 = 2 * 192 + 1;

impl LogHeader {
    /// Header page for the log area `area`.
    pub fn encode(&self, area: Extent) -> Vec<u8> {
        let mut out = vec![0; LOG_HEADER_BYTES];
        bytes::put_u64(&mut out, EPOCH, self.epoch);
        bytes::put_uuid(&mut out, LINEAGE, self.lineage);
        bytes::put_u64(&mut out, RING_OFFSET, ring(area).offset);
        bytes::put_u64(&mut out, RING_LENGTH, ring(area).length);
        bytes::put_u8(&mut out, POLICY, self.policy as u8);
        bytes::put_u8(&mut out, STATE, STATE_RECORDS);
        let header = Header {
            own_offset: area.offset,
            array_uuid: self.array_uuid,
            member_uuid: self.member_uuid,
            generation: self.generation,
        };
        KIND.seal(&mut out, &header);
        out
    }

    /// Reads the header page found at the start of `area`. The caller compares array, member,
    /// epoch and lineage.
    ///
    /// # Errors
    /// Those of [`Kind::open`]; `Field` for a log that may hold entries or has another ring.
    pub fn decode(raw: &[u8], area: Extent) -> Result<LogHeader, FormatError> {
        let at = area.offset;
        let header = KIND.open(raw, at)?;
        let state = bytes::get_u8(raw, STATE);
        if state != STATE_RECORDS {
            let why =
                "must be 1 in this version; start the array once with the Strake that wrote it";
            return Err(KIND.field(at, "state", state, why));
        }
        let code = bytes::get_u8(raw, POLICY);
        let policy = match Consistency::from_code(code) {
            Some(policy) => policy,
            None => return Err(KIND.field(at, "policy", code, "must be 0 to 3")),
        };
        let says = Extent::new(
            bytes::get_u64(raw, RING_OFFSET),
            bytes::get_u64(raw, RING_LENGTH),
        );
        if says != ring(area) {
            let why = format!("must be {:?}", ring(area));
            return Err(KIND.field(at, "ring", format!("{says:?}"), why));
        }
        if !bytes::is_zero(bytes::slice(raw, RESERVED_1))
            || !bytes::is_zero(bytes::slice(raw, RESERVED))
        {
            return Err(KIND.reserved(at));
        }
        Ok(LogHeader {
            array_uuid: header.array_uuid,
            member_uuid: header.member_uuid,
            generation: header.generation,
            epoch: bytes::get_u64(raw, EPOCH),
            lineage: bytes::get_uuid(raw, LINEAGE),
            policy,
        })
    }
}
