//! What lies on the drives: bytes to structures and back, and which of many copies is true.
//!
//! Promised: a structure that is read back is exactly one that was written, whole, to that place
//! of that member; anything else is an error that says what is wrong. Refused: I/O, clocks,
//! random numbers (callers bring the bytes, the time and the UUIDs).
//!
//! A member, in order (`areas`): 4 KiB left alone, superblock copy A, two copies of the region
//! map, array store, parity log, block checksums when chosen, data, and at the end of the drive
//! superblock copy B. All integers are little-endian. Every structure starts on 4 KiB, is written
//! whole, and begins with the same header (`header`).

pub mod areas;
pub mod assemble;
pub mod bytes;
pub mod error;
pub mod header;
pub mod log;
pub mod opening;
pub mod region_map;
pub mod store;
pub mod superblock;
pub mod torn;

pub use areas::{AreaError, AreaPlan, AreaRequest, Areas, Extent};
pub use assemble::{AssembleError, AssembleOptions, Assembly, Found};
pub use error::FormatError;
pub use region_map::{RegionEntry, RegionMap, RegionState};
pub use superblock::{MemberRecord, MemberState, Superblock};
