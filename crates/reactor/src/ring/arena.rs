//! A pool's arena as the ring's registered buffers: the kernel pins and maps it once, not at
//! every operation.

use crate::buffer::Pool;

/// The kernel refuses a registered buffer above 1 GiB.
const PIECE_BYTES: usize = 1 << 30;

/// The address range that is registered, cut into pieces of 1 GiB.
///
/// Pieces start at multiples of 1 GiB from the arena's start, and pool buffers at multiples of
/// their own size, at most 4 MiB: no buffer crosses a border.
#[derive(Default)]
pub(super) struct FixedArena {
    start: usize,
    len: usize,
}

impl FixedArena {
    pub(super) fn of(pool: &Pool) -> FixedArena {
        FixedArena {
            start: pool.arena_start().as_ptr() as usize,
            len: pool.bytes_total(),
        }
    }

    /// The registered buffer that `at` lies in.
    pub(super) fn index_of(&self, at: *const u8) -> Option<u16> {
        let distance = (at as usize).wrapping_sub(self.start);
        (distance < self.len).then_some((distance / PIECE_BYTES) as u16)
    }

    /// What to register: addresses and lengths.
    pub(super) fn pieces(&self) -> Vec<libc::iovec> {
        let piece = |from: usize| libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(self.start + from),
            iov_len: PIECE_BYTES.min(self.len - from),
        };
        (0..self.len).step_by(PIECE_BYTES).map(piece).collect()
    }
}
