//! Whether what a drive has completed would survive a power cut.
//!
//! The kernel knows of a block device's cache (`queue/write_cache` and `queue/fua` in sysfs; what it
//! does not say counts as volatile). A file's writes, and a loop device's, wait in the file system,
//! and below that in a drive that cannot be asked from here. Memory has nothing that lingers.
//!
//! An administrator who knows better says so in the spec: `cache=none:SPEC`, `cache=volatile:SPEC`.
//! What is said is kept: on a file `cache=none` makes every write durable before it completes. On a
//! block device it means power-loss protection, and nobody can check that.

use super::DriveInfo;

/// What a spec says of the drive's write cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCache {
    /// None, or one that power-loss protection keeps: a completed write is durable.
    None,
    /// Completed writes may be lost until a flush.
    Volatile,
}

/// What is known of a drive's cache without being told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    volatile: bool,
    /// The operating system too may hold writes back after they complete.
    held_by_system: bool,
    /// For people. Empty: nothing to be said.
    why: &'static str,
}

/// What a port does so that the drive is what [`DriveInfo::volatile_cache`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenDurable {
    /// By a flush, or with writes that ask for it.
    OnRequest,
    /// Always: every write is made so.
    EachWrite,
    /// Always, by itself: flushes need not be passed on.
    AtCompletion,
}

impl Found {
    /// Memory of this process.
    pub(super) const MEMORY: Found = Found {
        volatile: false,
        held_by_system: false,
        why: "",
    };

    pub(super) const FILE: Found = Found::held("a file: its file system's, and the drive's below");

    pub(super) const BUFFERED: Found = Found::held("buffered I/O: the page cache");

    const fn held(why: &'static str) -> Found {
        Found {
            volatile: true,
            held_by_system: true,
            why,
        }
    }

    /// A block device from its queue's attributes `write_cache` and `fua`, as the kernel's
    /// Documentation/ABI/stable/sysfs-block has them. `backed`: a loop device.
    pub(super) fn of_queue(write_cache: Option<&str>, fua: bool, backed: bool) -> Found {
        if backed {
            return Found::held("a loop device: as its file");
        }
        let (volatile, why) = match write_cache {
            Some("write through") => (false, "kernel: write through"),
            Some("write back") if fua => (true, "kernel: write back"),
            Some("write back") => (
                true,
                "kernel: write back, no FUA: a durable write costs a flush",
            ),
            _ => (true, "the kernel does not say"),
        };
        Found {
            volatile,
            held_by_system: false,
            why,
        }
    }
}

/// Joins what was found with what was told: the drive's `volatile_cache` and a note on it.
pub(super) fn settle(told: Option<WriteCache>, found: Found, info: &mut DriveInfo) -> WhenDurable {
    info.volatile_cache = match told {
        None => found.volatile,
        Some(told) => told == WriteCache::Volatile,
    };
    let word = match info.volatile_cache {
        true => "volatile",
        false => "protected",
    };
    let when = match (info.volatile_cache, found.held_by_system) {
        (true, _) => WhenDurable::OnRequest,
        (false, true) => WhenDurable::EachWrite,
        (false, false) => WhenDurable::AtCompletion,
    };
    let why = match (told, when) {
        (None, _) => found.why.to_owned(),
        (Some(_), WhenDurable::EachWrite) => {
            format!("by option: each write is made durable; {}", found.why)
        }
        (Some(_), _) if found.why.is_empty() => "by option".to_owned(),
        (Some(_), _) => format!("by option; {}", found.why),
    };
    if !why.is_empty() {
        info.notes.push(format!("write cache: {word} ({why})"));
    }
    when
}
