//! Buffers that are used again.
//!
//! A fresh megabyte costs 256 page faults, which is more than the I/O it carries; so a buffer
//! goes back to its cache when its [`Piece`] is dropped, up to a bound. Nobody waits here.

use std::sync::{Arc, Mutex, PoisonError};

use strake_reactor::buffer::Buffer;

/// Smallest buffer, bytes: one page.
const CLASS_BYTES_MIN: usize = 4096;
/// Classes of 4 KiB * 2^n, n from 0 to 13: up to 32 MiB, the largest NBD request.
const CLASSES: usize = 14;

/// Free buffers of one server or mount, kept for the next request.
pub(crate) struct BufferCache {
    free: Mutex<Free>,
    kept_bytes_max: usize,
}

struct Free {
    classes: [Vec<Buffer>; CLASSES],
    kept_bytes: usize,
}

impl BufferCache {
    /// A cache that keeps at most `kept_bytes_max` bytes of buffers that nobody uses.
    pub(crate) fn new(kept_bytes_max: usize) -> Arc<BufferCache> {
        Arc::new(BufferCache {
            free: Mutex::new(Free {
                classes: std::array::from_fn(|_| Vec::new()),
                kept_bytes: 0,
            }),
            kept_bytes_max,
        })
    }

    /// A buffer of at least `length` bytes; its content is whatever was there before.
    pub(crate) fn take(self: &Arc<BufferCache>, length: usize) -> Piece {
        let class = class_of(length);
        let kept = class.and_then(|class| self.take_kept(class));
        let buffer = kept.unwrap_or_else(|| Buffer::heap(rounded(length)));
        Piece {
            buffer: Some(buffer),
            length,
            cache: Arc::clone(self),
        }
    }

    fn take_kept(&self, class: usize) -> Option<Buffer> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let buffer = free.classes[class].pop()?;
        free.kept_bytes -= buffer.len();
        Some(buffer)
    }

    fn put(&self, buffer: Buffer) {
        let length = buffer.len();
        let Some(class) = class_of(length).filter(|_| length == rounded(length)) else {
            return;
        };
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.kept_bytes + length <= self.kept_bytes_max {
            free.kept_bytes += length;
            free.classes[class].push(buffer);
        }
    }

    #[cfg(test)]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.free.lock().unwrap().kept_bytes
    }
}

/// What a buffer for `length` bytes really takes: the next power of two, at least a page.
fn rounded(length: usize) -> usize {
    length.max(CLASS_BYTES_MIN).next_power_of_two()
}

/// Index into the classes; `None` for what is too large to keep.
fn class_of(length: usize) -> Option<usize> {
    let class = (rounded(length) / CLASS_BYTES_MIN).trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

/// A buffer and how many of its bytes are in use. Dropping it gives the buffer back.
pub(crate) struct Piece {
    /// `None` only after [`Piece::lend`], while the device has it.
    buffer: Option<Buffer>,
    length: usize,
    cache: Arc<BufferCache>,
}

impl Piece {
    /// Bytes in use.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The bytes in use.
    pub(crate) fn as_slice(&self) -> &[u8] {
        let buffer = self.buffer.as_ref().expect("the buffer is here, not lent");
        &buffer.as_slice()[..self.length]
    }

    /// The bytes in use, to be written.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let buffer = self.buffer.as_mut().expect("the buffer is here, not lent");
        &mut buffer.as_mut_slice()[..self.length]
    }

    /// Takes the buffer out for the device and leaves the slip that [`Lent::returned`] redeems.
    pub(crate) fn lend(mut self) -> (Buffer, Lent) {
        let buffer = self.buffer.take().expect("the buffer is here, not lent");
        (buffer, Lent(self))
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.cache.put(buffer);
        }
    }
}

/// The rest of a [`Piece`] whose buffer the device has.
pub(crate) struct Lent(Piece);

impl Lent {
    /// The piece whole again; `None` when the device gave no buffer, or a shorter one, back.
    pub(crate) fn returned(mut self, buffer: Option<Buffer>) -> Option<Piece> {
        let buffer = buffer.filter(|buffer| buffer.len() >= self.0.length)?;
        self.0.buffer = Some(buffer);
        Some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_piece_is_used_again() {
        let cache = BufferCache::new(1 << 20);
        let mut piece = cache.take(5000);
        assert_eq!(piece.len(), 5000);
        piece.as_mut_slice().fill(7);
        let address = piece.as_slice().as_ptr();
        assert_eq!(address as usize % 4096, 0, "page aligned");
        drop(piece);
        assert_eq!(cache.kept_bytes(), 8192);
        assert_eq!(cache.take(8000).as_slice().as_ptr(), address);
    }

    #[test]
    fn no_more_is_kept_than_allowed() {
        let cache = BufferCache::new(10_000);
        let pieces: Vec<Piece> = (0..4).map(|_| cache.take(4096)).collect();
        drop(pieces);
        assert_eq!(cache.kept_bytes(), 8192);
        drop(cache.take(64 << 20));
        assert_eq!(cache.kept_bytes(), 8192, "too large to keep");
    }

    #[test]
    fn a_lent_buffer_comes_back_or_not() {
        let cache = BufferCache::new(1 << 20);
        let (buffer, lent) = cache.take(4096).lend();
        assert_eq!(
            lent.returned(Some(buffer)).map(|piece| piece.len()),
            Some(4096)
        );
        let (_buffer, lent) = cache.take(4096).lend();
        assert!(lent.returned(None).is_none());
        let (_buffer, lent) = cache.take(8192).lend();
        assert!(lent.returned(Some(Buffer::heap(4096))).is_none());
    }
}
