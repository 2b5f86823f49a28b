//! The header that every structure on a drive begins with.
//!
//! | offset | size | field | meaning |
//! |---:|---:|---|---|
//! | 0 | 8 | magic | says which structure |
//! | 8 | 4 | version | of this structure's layout |
//! | 12 | 4 | bytes | length of the whole structure, which the checksum covers |
//! | 16 | 4 | checksum | CRC-32C over `bytes` bytes, itself taken as zero |
//! | 20 | 4 | reserved | zero |
//! | 24 | 8 | own offset | device offset it was written for: shows misdirected writes |
//! | 32 | 16 | array UUID | |
//! | 48 | 16 | member UUID | |
//! | 64 | 8 | generation | newer copies have greater ones |
//!
//! The first 20 bytes keep their meaning in every future version, so that an old Strake can tell
//! "newer" from "damaged".

use super::bytes::{self, Field, field, tiles};
use super::error::FormatError;
use uuid::Uuid;

#[cfg(test)]
mod tests;

const MAGIC: Field = field(0, 8);
const VERSION: Field = field(8, 4);
const BYTES: Field = field(12, 4);
const CHECKSUM: Field = field(16, 4);
const RESERVED: Field = field(20, 4);
const OWN_OFFSET: Field = field(24, 8);
const ARRAY_UUID: Field = field(32, 16);
const MEMBER_UUID: Field = field(48, 16);
const GENERATION: Field = field(64, 8);

/// Bytes of the header; a structure's own fields start here.
pub const HEADER_BYTES: usize = 72;

const _: () = assert!(tiles(
    &[
        MAGIC,
        VERSION,
        BYTES,
        CHECKSUM,
        RESERVED,
        OWN_OFFSET,
        ARRAY_UUID,
        MEMBER_UUID,
        GENERATION
    ],
    0,
    HEADER_BYTES
));

/// What distinguishes one kind of structure.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// First eight bytes.
    pub magic: [u8; 8],
    /// Name in errors.
    pub name: &'static str,
    /// Version written, and the newest that is read.
    pub version: u32,
    /// Length of the whole structure.
    pub bytes: usize,
}

/// The header's variable part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Device offset of the structure.
    pub own_offset: u64,
    /// Array.
    pub array_uuid: Uuid,
    /// Member that it was written to.
    pub member_uuid: Uuid,
    /// Newer copies have greater ones.
    pub generation: u64,
}

/// The length that a structure says it has; `raw` holds at least the header. Not yet checked.
pub(super) fn stated_bytes(raw: &[u8]) -> usize {
    bytes::get_u32(raw, BYTES) as usize
}

/// What a header says; `raw` holds at least that. Not yet checked.
pub(super) fn unchecked(raw: &[u8]) -> Header {
    Header {
        own_offset: bytes::get_u64(raw, OWN_OFFSET),
        array_uuid: bytes::get_uuid(raw, ARRAY_UUID),
        member_uuid: bytes::get_uuid(raw, MEMBER_UUID),
        generation: bytes::get_u64(raw, GENERATION),
    }
}

impl Kind {
    /// Writes the header and, last, the checksum. `out` has the structure's length and its other
    /// fields are already in place.
    pub fn seal(&self, out: &mut [u8], header: &Header) {
        assert_eq!(out.len(), self.bytes, "{} has another length", self.name);
        bytes::put_bytes(out, MAGIC, &self.magic);
        bytes::put_u32(out, VERSION, self.version);
        bytes::put_u32(out, BYTES, self.bytes as u32);
        bytes::put_u32(out, RESERVED, 0);
        bytes::put_u64(out, OWN_OFFSET, header.own_offset);
        bytes::put_uuid(out, ARRAY_UUID, header.array_uuid);
        bytes::put_uuid(out, MEMBER_UUID, header.member_uuid);
        bytes::put_u64(out, GENERATION, header.generation);
        let checksum = bytes::crc32c_without(out, CHECKSUM);
        bytes::put_u32(out, CHECKSUM, checksum);
    }

    /// Checks that `raw`, read at `found_at`, holds a whole structure of this kind written for
    /// that place. Bytes of `raw` beyond the structure are ignored.
    ///
    /// # Errors
    /// [`FormatError::Short`], `NotStrake`, `Version`, `Checksum`, `Misplaced` or `Field`, tried
    /// in this order; damage is never reported as a newer version if the checksum can tell.
    pub fn open(&self, raw: &[u8], found_at: u64) -> Result<Header, FormatError> {
        let (structure, offset) = (self.name, found_at);
        if raw.len() < self.bytes {
            return Err(FormatError::Short {
                structure,
                offset,
                found: raw.len(),
                needed: self.bytes,
            });
        }
        let raw = &raw[..self.bytes];
        if bytes::slice(raw, MAGIC) != self.magic {
            return Err(FormatError::NotStrake { structure, offset });
        }
        self.check_whole(raw, found_at)?;
        let says = bytes::get_u64(raw, OWN_OFFSET);
        if says != found_at {
            return Err(FormatError::Misplaced {
                structure,
                says,
                found_at,
            });
        }
        if !bytes::is_zero(bytes::slice(raw, RESERVED)) {
            return Err(self.reserved(found_at));
        }
        Ok(unchecked(raw))
    }

    fn check_whole(&self, raw: &[u8], offset: u64) -> Result<(), FormatError> {
        let structure = self.name;
        let found = bytes::get_u32(raw, VERSION);
        let length = bytes::get_u32(raw, BYTES) as usize;
        let newer = FormatError::Version {
            structure,
            offset,
            found,
            known: self.version,
        };
        if length != self.bytes && found > self.version {
            return Err(newer); // another length: its checksum is not ours to check
        }
        let stored = bytes::get_u32(raw, CHECKSUM);
        let computed = bytes::crc32c_without(raw, CHECKSUM);
        if stored != computed {
            return Err(FormatError::Checksum {
                structure,
                offset,
                stored,
                computed,
            });
        }
        if found > self.version {
            return Err(newer);
        }
        if found == 0 {
            return Err(self.field(offset, "version", found, "versions start at 1"));
        }
        if length != self.bytes {
            let why = format!("must be {} in this version", self.bytes);
            return Err(self.field(offset, "length", length, why));
        }
        Ok(())
    }

    /// Checks that an opened structure belongs to this array and member.
    ///
    /// # Errors
    /// [`FormatError::Foreign`].
    pub fn expect(&self, header: &Header, array: Uuid, member: Uuid) -> Result<(), FormatError> {
        for (field, expected, found) in [
            ("array", array, header.array_uuid),
            ("member", member, header.member_uuid),
        ] {
            if expected != found {
                return Err(FormatError::Foreign {
                    structure: self.name,
                    offset: header.own_offset,
                    field,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }

    /// A [`FormatError::Field`] of this structure.
    pub fn field(
        &self,
        offset: u64,
        name: &'static str,
        value: impl ToString,
        why: impl Into<String>,
    ) -> FormatError {
        FormatError::Field {
            structure: self.name,
            offset,
            name,
            value: value.to_string(),
            why: why.into(),
        }
    }

    /// The error for reserved bytes that are not zero.
    pub fn reserved(&self, offset: u64) -> FormatError {
        self.field(
            offset,
            "reserved space",
            "not zero",
            "must be zero in this version; use the Strake that wrote it",
        )
    }
}
