//! Places of the superblock for what is not built yet, and the feature flags that will say that it
//! is in use. All of it is zero today and checked to be.
//!
//! A **restripe** moves the array from one geometry to another while it serves. Offsets from the
//! superblock's byte 448:
//!
//! | offset | size | field | meaning |
//! |---:|---:|---|---|
//! | 0 | 1 | restripe direction | 0 none, 1 upwards, 2 downwards (when members are taken out) |
//! | 1 | 7 | reserved | zero |
//! | 8 | 8 | restripe position | bytes of the volume on the new geometry's side |
//! | 16 | 8 | saved section offset | on each member: device offset of the copy of what is being moved |
//! | 24 | 8 | saved section length | bytes |
//! | 32 | 64 | old geometry | below |
//! | 96 | 64 | new geometry | below |
//! | 160 | 32 | reserved | zero |
//!
//! A geometry, as the fields of the same names in the superblock:
//!
//! | offset | size | field | | offset | size | field |
//! |---:|---:|---|---|---:|---:|---|
//! | 0 | 1 | level | | 20 | 4 | layout id |
//! | 1 | 1 | reserved | | 24 | 4 | layout generator |
//! | 2 | 2 | groups | | 28 | 4 | reserved |
//! | 4 | 2 | data | | 32 | 8 | layout rotation |
//! | 6 | 2 | parity | | 40 | 8 | layout seed |
//! | 8 | 8 | strip size | | 48 | 8 | member data |
//! | 16 | 4 | code id | | 56 | 8 | volume size |

use super::RESTRIPE;
use super::bytes::{self, Field, field, tiles};

/// Incompatible: a restripe is under way.
pub const INCOMPATIBLE_RESTRIPE: u64 = 1 << 0;
/// Incompatible: blocks have checksums, which every write must renew.
pub const INCOMPATIBLE_CHECKSUMS: u64 = 1 << 1;
/// Incompatible: the array is divided into volumes.
pub const INCOMPATIBLE_VOLUMES: u64 = 1 << 2;
/// Incompatible: a declustered layout.
pub const INCOMPATIBLE_DECLUSTERED: u64 = 1 << 3;
/// Compatible for reading only: the owner keeps a heartbeat, over which nobody may start the array.
pub const READ_ONLY_COMPATIBLE_HEARTBEAT: u64 = 1 << 0;

const DIRECTION: Field = field(0, 1);
const RESERVED_1: Field = field(1, 7);
const POSITION: Field = field(8, 8);
const SAVED_OFFSET: Field = field(16, 8);
const SAVED_LENGTH: Field = field(24, 8);
const OLD_GEOMETRY: Field = field(32, GEOMETRY_BYTES);
const NEW_GEOMETRY: Field = field(96, GEOMETRY_BYTES);
const RESERVED_2: Field = field(160, 32);

const RESTRIPE_FIELDS: [(&str, Field); 8] = [
    ("restripe direction", DIRECTION),
    ("restripe's reserved space", RESERVED_1),
    ("restripe position", POSITION),
    ("restripe's saved section offset", SAVED_OFFSET),
    ("restripe's saved section length", SAVED_LENGTH),
    ("restripe's old geometry", OLD_GEOMETRY),
    ("restripe's new geometry", NEW_GEOMETRY),
    ("restripe's reserved space", RESERVED_2),
];

const _: () = assert!(tiles(
    &[
        DIRECTION,
        RESERVED_1,
        POSITION,
        SAVED_OFFSET,
        SAVED_LENGTH,
        OLD_GEOMETRY,
        NEW_GEOMETRY,
        RESERVED_2
    ],
    0,
    RESTRIPE.bytes
));

/// Bytes of a geometry.
const GEOMETRY_BYTES: usize = 64;
const _: () = assert!(tiles(
    &[
        field(0, 1),  // level
        field(1, 1),  // reserved
        field(2, 2),  // groups
        field(4, 2),  // data
        field(6, 2),  // parity
        field(8, 8),  // strip size
        field(16, 4), // code id
        field(20, 4), // layout id
        field(24, 4), // layout generator
        field(28, 4), // reserved
        field(32, 8), // layout rotation
        field(40, 8), // layout seed
        field(48, 8), // member data
        field(56, 8), // volume size
    ],
    0,
    GEOMETRY_BYTES
));

/// The first field of the restripe's place that is not zero.
pub(super) fn restripe_in_use(restripe: &[u8]) -> Option<&'static str> {
    let mut fields = RESTRIPE_FIELDS.into_iter();
    let used = fields.find(|(_, field)| !bytes::is_zero(bytes::slice(restripe, *field)));
    used.map(|(name, _)| name)
}

#[cfg(test)]
mod tests;
