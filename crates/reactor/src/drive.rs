//! Drives: how they are named, what is known about them, why one cannot be opened.
//!
//! [`describe`] looks without claiming, [`in_use`] says who else has a drive, [`blocking`] opens
//! one for a few plain reads and writes. The data path opens drives through
//! [`crate::port::Port::open`].
//!
//! A drive opened here is claimed for this process: a second Strake daemon, a mount or the
//! kernel's own RAID finds it busy. Within the process every port and [`BlockingDrive`] shares
//! the one claim: who may use a drive for what is the node's decision.

mod blocking;
pub(crate) mod cache;
pub(crate) mod claim;
pub(crate) mod memory;
pub mod pace;
pub(crate) mod paced;
mod probe;
pub(crate) mod recorded;
mod spec;
#[cfg(test)]
pub(crate) mod tests;
mod usage;

pub use blocking::{BlockingDrive, blocking};
pub use cache::WriteCache;
pub use paced::pace_use;
pub use probe::describe;
pub use spec::{DriveKind, parse_size};
pub use usage::in_use;

/// How an administrator names a drive.
///
/// * `/dev/nvme0n1`, `/srv/d0.img`: a block device or file.
/// * `memory:SIZE[:LABEL]`: memory of this process, gone with it. SIZE like `64MiB`.
/// * `null:SIZE[:LABEL]`: discards writes, reads give undefined content; for measuring.
/// * `paced:MODEL:SIZE[:LABEL]`: memory at the pace of a drive ([`pace`]); MODEL `cm7`, or `cm7/16` for
///   a sixteenth of it.
/// * `cache=none:SPEC`, `cache=volatile:SPEC`: another spec, whose write cache is as said here, not as
///   the kernel says ([`WriteCache`]).
/// * `faulty:SPEC`: wraps another spec; behaves until told to fail ([`mod@crate::faulty`]).
/// * `recorded:LOGFILE:SPEC`: wraps another spec; keeps a record of all changes, for tests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DriveSpec(pub String);

impl std::fmt::Display for DriveSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is known of an opened drive.
#[derive(Debug, Clone)]
pub struct DriveInfo {
    /// The spec's text.
    pub spec: DriveSpec,
    /// Canonical path, or the spec's text where there is none.
    pub path: String,
    /// Usable bytes.
    pub size_bytes: u64,
    /// Logical block size in bytes: 512 or 4096.
    pub block_size_bytes: u32,
    /// Serial number; for files `file-<dev>-<inode>` in hex; for memory the label.
    pub serial: String,
    /// Model as the kernel reports it; `file`, `memory`, `null` else.
    pub model: String,
    /// Two specs with equal identity are the same drive (device number, or device and inode).
    pub identity: String,
    /// Writes may linger in a volatile cache until a flush.
    pub volatile_cache: bool,
    /// Zeroing is faster than writing zeroes.
    pub fast_zeroes: bool,
    /// What people should know: e.g. "O_DIRECT refused by the file system: buffered I/O".
    pub notes: Vec<String>,
}

/// Why a drive cannot be opened. The text names the drive and what to do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// Text does not name a drive.
    #[error("{spec}: {reason}")]
    BadSpec {
        /// The text.
        spec: String,
        /// What is wrong with it and what is accepted.
        reason: String,
    },
    /// The operating system refused.
    #[error("{path}: cannot {action}: {reason}")]
    System {
        /// Drive.
        path: String,
        /// "open", "read the size of", ...
        action: &'static str,
        /// strerror and a hint.
        reason: String,
    },
    /// Somebody else has it.
    #[error("{path}: in use: {by}")]
    Busy {
        /// Drive.
        path: String,
        /// Mounted at ..., claimed by the kernel (swap, md, LVM, another Strake daemon).
        by: String,
    },
}

/// What a `faulty:` drive does wrong. All zero / false: nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Every operation fails with EIO.
    pub dead: bool,
    /// The drive dies at the nth operation from now (1: the next).
    pub die_after: Option<u64>,
    /// Reads of these byte ranges fail with EIO until the range is written.
    pub bad_ranges: Vec<(u64, u64)>,
    /// One in n reads fails with EIO (by a fixed seed).
    pub read_error_one_in: Option<u64>,
    /// One in n writes fails with EIO.
    pub write_error_one_in: Option<u64>,
    /// One in n writes is reported as done and not made.
    pub lost_write_one_in: Option<u64>,
    /// One in n writes stops half way (at a 512-byte boundary) with EIO.
    pub torn_write_one_in: Option<u64>,
    /// Added to every operation, microseconds.
    pub latency_us: u64,
}
