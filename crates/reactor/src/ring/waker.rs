//! Ending a port's sleep from another thread.
//!
//! One word: *sleeping* is set by the port while it blocks in the kernel, *woken* by whoever has
//! something for it. Only a waker that finds the port sleeping pays for a system call; one that
//! finds it woken already only loads.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};

const SLEEPING: u32 = 1;
const WOKEN: u32 = 2;

/// Shared by a port and its wakers.
pub(super) struct WakeState {
    word: AtomicU32,
    /// Readable when a sleeping port was woken; the port keeps a read of it in its ring.
    event: OwnedFd,
}

impl WakeState {
    pub(super) fn new() -> std::io::Result<WakeState> {
        Ok(WakeState {
            word: AtomicU32::new(0),
            event: eventfd(0, EventfdFlags::CLOEXEC)?,
        })
    }

    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Ends the current or the next sleep.
    pub(super) fn wake(&self) {
        // The caller first published what it has for the port, then came here. The port clears
        // the word, then looks. Without the fence both could miss the other's store.
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::Relaxed) & WOKEN != 0 {
            return;
        }
        if self.word.fetch_or(WOKEN, Ordering::SeqCst) == SLEEPING {
            self.signal();
        }
    }

    /// Makes the event readable.
    pub(super) fn signal(&self) {
        // It fails only when the counter is full, and then it is readable.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Whether the port may sleep: it was not woken since it last returned from a sleep.
    pub(super) fn fall_asleep(&self) -> bool {
        let change = self
            .word
            .compare_exchange(0, SLEEPING, Ordering::SeqCst, Ordering::SeqCst);
        if change.is_err() {
            self.rise();
        }
        change.is_ok()
    }

    /// The port is awake and about to look for what it was woken for.
    pub(super) fn rise(&self) {
        self.word.swap(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}
