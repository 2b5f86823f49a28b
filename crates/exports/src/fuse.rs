//! FUSE: every volume one file under one mount.
//!
//! From such a file `losetup --direct-io=on` makes a block device, so a real file system runs on
//! a volume on any Linux machine, without a module of ours. What the file does:
//!
//! | a program's or the loop device's wish | the volume's request |
//! | --- | --- |
//! | read, write with `O_DIRECT` | read, write; no page cache between |
//! | read, write without | through the page cache, written through at once |
//! | write that is not whole blocks | read, then write, nothing else in between (ranges) |
//! | `O_SYNC`, `O_DSYNC` write | durable write |
//! | `fsync`, `fdatasync`, a loop device's flush | flush |
//! | `fallocate` punch hole, a loop device's discard | discard |
//! | `fallocate` zero range, a loop device's write-zeroes | write zeroes |
//! | plain `fallocate` within the file | nothing: all space is there |
//! | truncate | refused unless the size stays |
//!
//! Requests are submitted asynchronously; the device's completion sends the reply.

mod file;
mod filesystem;
mod mount;
mod ranges;
mod table;

use std::io;
use std::path::PathBuf;

pub use mount::{FuseMount, FuseOptions};

/// Why a FUSE mount can not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// Mounting failed.
    #[error(
        "cannot mount FUSE at {}: {source}; it needs root (or fusermount3), /dev/fuse and an \
         empty directory", directory.display()
    )]
    Mount {
        /// Where.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another living FUSE file system is mounted there.
    #[error(
        "{} is served by another FUSE file system; unmount it or choose another directory",
        directory.display()
    )]
    Taken {
        /// Where.
        directory: PathBuf,
    },
    /// The name can not be a file's.
    #[error("\"{name}\" is no file name; use 1 to 255 bytes without \"/\", not \".\" or \"..\"")]
    BadName {
        /// The name.
        name: String,
    },
    /// There is a file of this name already.
    #[error("\"{name}\" is already served by FUSE; remove it first or choose another name")]
    Exists {
        /// The name.
        name: String,
    },
    /// There is no file of this name.
    #[error("\"{name}\" is not served by FUSE")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The file is open.
    #[error(
        "{} is open {open_count} times; detach the loop device or close the programs that use it \
         (see `losetup -l` and `fuser`)", path.display()
    )]
    Busy {
        /// The file.
        path: PathBuf,
        /// How often it is open.
        open_count: usize,
    },
    /// The mount is in use.
    #[error(
        "the FUSE mount {} is in use{}; detach loop devices and close programs that use it",
        directory.display(), open_files(open)
    )]
    MountBusy {
        /// Where.
        directory: PathBuf,
        /// Files that are open; none when a program only has its current directory there.
        open: Vec<String>,
    },
    /// Unmounting failed for another reason.
    #[error("cannot unmount {}: {source}", directory.display())]
    Unmount {
        /// Where.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn open_files(open: &[String]) -> String {
    match open {
        [] => String::new(),
        names => format!(" (open: {})", names.join(", ")),
    }
}
