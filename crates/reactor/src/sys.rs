//! System calls that no safe library offers.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What an open file description holds on a whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    /// With other readers.
    Shared,
    /// Alone. The descriptor must be writable.
    Exclusive,
    /// Nothing.
    None,
}

/// Locks the whole file for its open file description (fcntl(2), F_OFD_SETLK): the lock ends with
/// the last descriptor of that opening, not with just any close in the process, and udev's use
/// of flock(2) on block devices does not meet it. Fails with `WouldBlock` when another has it.
pub(crate) fn lock_file(fd: BorrowedFd<'_>, lock: Lock) -> io::Result<()> {
    let kind = match lock {
        Lock::Shared => libc::F_RDLCK,
        Lock::Exclusive => libc::F_WRLCK,
        Lock::None => libc::F_UNLCK,
    };
    let request = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is borrowed, hence open; the kernel only reads `request`.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const request) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EACCES) => Err(io::ErrorKind::WouldBlock.into()),
        _ => Err(error),
    }
}
