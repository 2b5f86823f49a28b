//! Drives of this process's memory.
//!
//! Content is kept in pieces that come into being when first written, so a large drive costs
//! only what is used. Every core may read and write one drive at the same time; each piece has
//! its lock, so a block is read as it was before or after a write, never half.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, RwLock};

use super::{DriveSpec, OpenError};
use crate::buffer::Chunk;

/// A huge page: small enough that two cores rarely meet at one lock, and scattered blocks do not
/// each need a page table of their own.
const PIECE_BYTES: usize = 2 << 20;

/// A piece that was never written, or zeroed as a whole, is not there and reads as zeroes.
type Piece = RwLock<Option<Chunk>>;

/// The content of one memory drive.
pub(crate) struct Memory {
    pieces: Box<[Piece]>,
    size_bytes: u64,
}

/// Labelled drives live until the process ends: closing one and opening it again finds its content.
static LABELLED: LazyLock<Mutex<HashMap<String, Arc<Memory>>>> = LazyLock::new(Mutex::default);

/// The drive of this label, made on first use; without a label a new one.
/// Fails when the label exists with another size.
pub(crate) fn open(
    spec: &DriveSpec,
    size_bytes: u64,
    label: Option<&str>,
) -> Result<Arc<Memory>, OpenError> {
    let Some(label) = label else {
        return Ok(Arc::new(Memory::new(size_bytes)));
    };
    let mut labelled = LABELLED.lock().expect("held for map operations only");
    let memory = labelled
        .entry(label.to_owned())
        .or_insert_with(|| Arc::new(Memory::new(size_bytes)));
    if memory.size_bytes != size_bytes {
        return Err(OpenError::BadSpec {
            spec: spec.0.clone(),
            reason: format!(
                "memory drive {label:?} exists with {} bytes; give that size or another label",
                memory.size_bytes
            ),
        });
    }
    Ok(memory.clone())
}

impl Memory {
    pub(crate) fn new(size_bytes: u64) -> Memory {
        let pieces = size_bytes.div_ceil(PIECE_BYTES as u64);
        Memory {
            pieces: (0..pieces).map(|_| Piece::default()).collect(),
            size_bytes,
        }
    }

    /// Reads `into.len()` bytes at `offset`. The range must lie within the drive.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        let mut at = 0;
        for (index, start, len) in parts(offset, into.len() as u64) {
            let into = &mut into[at..at + len];
            match &*self.pieces[index].read().expect("copying does not panic") {
                Some(piece) => into.copy_from_slice(&piece[start..start + len]),
                None => into.fill(0),
            }
            at += len;
        }
    }

    /// Says that `offset` will be read or written soon.
    pub(crate) fn prefetch(&self, offset: u64) {
        let index = (offset / PIECE_BYTES as u64) as usize;
        let piece = self
            .pieces
            .get(index)
            .and_then(|piece| piece.try_read().ok());
        if let Some(Some(piece)) = piece.as_deref() {
            piece.prefetch((offset % PIECE_BYTES as u64) as usize);
        }
    }

    /// Writes `from` at `offset`. The range must lie within the drive.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) {
        let mut at = 0;
        for (index, start, len) in parts(offset, from.len() as u64) {
            let mut piece = self.pieces[index].write().expect("copying does not panic");
            let piece = piece.get_or_insert_with(|| {
                Chunk::new(PIECE_BYTES).expect("no memory is left for a memory drive")
            });
            piece[start..start + len].copy_from_slice(&from[at..at + len]);
            at += len;
        }
    }

    /// Makes the range read as zeroes and gives what is large of it back to the system.
    pub(crate) fn zero(&self, offset: u64, length: u64) {
        for (index, start, len) in parts(offset, length) {
            let mut piece = self.pieces[index].write().expect("copying does not panic");
            if len == PIECE_BYTES {
                *piece = None;
            } else if let Some(piece) = piece.as_mut() {
                piece.zero(start..start + len);
            }
        }
    }
}

/// Cuts a range at piece borders: index of the piece, first byte in it, bytes.
fn parts(offset: u64, length: u64) -> impl Iterator<Item = (usize, usize, usize)> {
    let piece_bytes = PIECE_BYTES as u64;
    let end = offset + length;
    let mut at = offset;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let start = at % piece_bytes;
            let len = (piece_bytes - start).min(end - at);
            let part = ((at / piece_bytes) as usize, start as usize, len as usize);
            at += len;
            part
        })
    })
}
