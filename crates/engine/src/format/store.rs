//! The array store: place of a small transactional table, the same on all members (volumes,
//! history of events, settings that travel with the drives). Version 1 knows only its header and
//! that the table is empty; a table that something newer left there is never written over.
//!
//! | offset | size | field | meaning |
//! |---:|---:|---|---|
//! | 0 | 72 | header | see `header`; magic `STRAKEST` |
//! | 72 | 4 | table format | 0: none, the table is empty |
//! | 76 | 4 | reserved | zero |
//! | 80 | 8 | table bytes | length of the newest table behind this page; 0 when empty |
//! | 88 | 4008 | reserved | zero |
//!
//! Intended: two halves of the area behind this page are written in turn, each a whole table with
//! its own header and checksum; the majority of members by generation is true.

use super::bytes::{self, Field, field, tiles};
use super::error::FormatError;
use super::header::{HEADER_BYTES, Header, Kind};
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// Bytes of the header page.
pub const STORE_HEADER_BYTES: usize = 4096;

const TABLE_FORMAT: Field = field(72, 4);
const RESERVED_1: Field = field(76, 4);
const TABLE_BYTES: Field = field(80, 8);
const RESERVED_2: Field = field(88, 4008);

const _: () = assert!(tiles(
    &[TABLE_FORMAT, RESERVED_1, TABLE_BYTES, RESERVED_2],
    HEADER_BYTES,
    STORE_HEADER_BYTES
));

const KIND: Kind = Kind {
    magic: *b"STRAKEST",
    name: "array store header",
    version: 1,
    bytes: STORE_HEADER_BYTES,
};

/// What the store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreContent {
    /// Nothing.
    Empty,
    /// A table of a later format: leave the whole area as it is.
    Later {
        /// Its format.
        format: u32,
        /// Its length.
        bytes: u64,
    },
}

/// The header as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreHeader {
    /// Generation of the store.
    pub generation: u64,
    /// What is in it.
    pub content: StoreContent,
}

/// Header page of an empty store at device offset `own_offset`.
pub fn encode_empty(
    array_uuid: Uuid,
    member_uuid: Uuid,
    own_offset: u64,
    generation: u64,
) -> Vec<u8> {
    let mut out = vec![0; STORE_HEADER_BYTES];
    let header = Header {
        own_offset,
        array_uuid,
        member_uuid,
        generation,
    };
    KIND.seal(&mut out, &header);
    out
}

/// Reads the header page of this array's and member's store, found at `own_offset`.
///
/// # Errors
/// Those of [`Kind::open`]; `Foreign`; `Field` for an empty table with a length or reserved bytes
/// that are not zero.
pub fn decode(
    raw: &[u8],
    array_uuid: Uuid,
    member_uuid: Uuid,
    own_offset: u64,
) -> Result<StoreHeader, FormatError> {
    let header = KIND.open(raw, own_offset)?;
    KIND.expect(&header, array_uuid, member_uuid)?;
    let generation = header.generation;
    let (format, bytes) = (
        bytes::get_u32(raw, TABLE_FORMAT),
        bytes::get_u64(raw, TABLE_BYTES),
    );
    if format != 0 {
        let content = StoreContent::Later { format, bytes };
        return Ok(StoreHeader {
            generation,
            content,
        });
    }
    if bytes != 0 {
        return Err(KIND.field(
            own_offset,
            "table bytes",
            bytes,
            "must be 0 without a table",
        ));
    }
    if !bytes::is_zero(bytes::slice(raw, RESERVED_1))
        || !bytes::is_zero(bytes::slice(raw, RESERVED_2))
    {
        return Err(KIND.reserved(own_offset));
    }
    Ok(StoreHeader {
        generation,
        content: StoreContent::Empty,
    })
}
