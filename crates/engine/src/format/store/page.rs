//! The first page of the store's area: what lies behind it. Its table is in `store`.

use super::super::bytes::{self, Field, field, tiles};
use super::super::error::FormatError;
use super::super::header::{HEADER_BYTES, Header, Kind};
use super::StorePlace;
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

const FORMAT_HALVES: u32 = 1;

/// What the store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreContent {
    /// Nothing was written behind the page at creation; halves are there once something was.
    Empty,
    /// Two halves, both written at creation.
    Halves,
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
    /// Generation at which the page was written.
    pub generation: u64,
    /// What is behind it.
    pub content: StoreContent,
}

/// Header page without halves behind it, at device offset `own_offset`: as arrays were made before
/// there were any.
pub fn encode_empty(
    array_uuid: Uuid,
    member_uuid: Uuid,
    own_offset: u64,
    generation: u64,
) -> Vec<u8> {
    sealed(array_uuid, member_uuid, own_offset, generation, 0)
}

/// Header page of a store with both halves.
pub(super) fn encode(place: &StorePlace, generation: u64) -> Vec<u8> {
    let (array, member, at) = (place.array_uuid, place.member_uuid, place.area.offset);
    sealed(array, member, at, generation, FORMAT_HALVES)
}

fn sealed(
    array_uuid: Uuid,
    member_uuid: Uuid,
    own_offset: u64,
    generation: u64,
    format: u32,
) -> Vec<u8> {
    let mut out = vec![0; STORE_HEADER_BYTES];
    bytes::put_u32(&mut out, TABLE_FORMAT, format);
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
/// Those of [`Kind::open`]; `Foreign`; `Field` for a known format with a length or reserved bytes
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
    if format > FORMAT_HALVES {
        let content = StoreContent::Later { format, bytes };
        return Ok(StoreHeader {
            generation,
            content,
        });
    }
    if bytes != 0 {
        let why = "must be 0 in formats 0 and 1";
        return Err(KIND.field(own_offset, "table bytes", bytes, why));
    }
    if !bytes::is_zero(bytes::slice(raw, RESERVED_1))
        || !bytes::is_zero(bytes::slice(raw, RESERVED_2))
    {
        return Err(KIND.reserved(own_offset));
    }
    let content = if format == FORMAT_HALVES {
        StoreContent::Halves
    } else {
        StoreContent::Empty
    };
    Ok(StoreHeader {
        generation,
        content,
    })
}
