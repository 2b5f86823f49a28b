//! One volume as a file: byte ranges of any shape in, whole blocks to the device.
//!
//! Nothing here knows FUSE. Every operation is asynchronous and reports once, with an errno on
//! failure. A file's end is the volume's end: reads stop there, writes are short there and get
//! `ENOSPC` behind it, as on a block device.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use strake_engine::block::{BlockError, BlockInfo, Operation};

use super::ranges::{RangeGuard, RangeLocks};
use crate::volume::{Data, Volume};

/// Outcome of an operation without data: an errno on failure.
type Outcome = Result<(), i32>;
/// Takes what was read, at most what was asked for, or an errno.
pub(super) type ReadDone = Box<dyn FnOnce(Result<&[u8], i32>) + Send>;
/// Takes how many bytes were written, or an errno.
pub(super) type WriteDone = Box<dyn FnOnce(Result<u32, i32>) + Send>;
/// Takes the outcome.
pub(super) type PlainDone = Box<dyn FnOnce(Outcome) + Send>;

/// A volume under the mount.
pub(super) struct VolumeFile {
    /// Inode number, never used again for another file.
    pub(super) ino: u64,
    /// Name in the mount's directory.
    pub(super) name: String,
    volume: Volume,
    ranges: Arc<RangeLocks>,
    open_count: AtomicUsize,
}

impl VolumeFile {
    /// The file `name` of `volume`.
    pub(super) fn new(ino: u64, name: String, volume: Volume) -> VolumeFile {
        VolumeFile {
            ino,
            name,
            volume,
            ranges: Arc::default(),
            open_count: AtomicUsize::new(0),
        }
    }

    /// Shape of the volume.
    pub(super) fn info(&self) -> &BlockInfo {
        self.volume.info()
    }

    /// How often the file is open.
    pub(super) fn open_count(&self) -> usize {
        self.open_count.load(Ordering::Acquire)
    }

    /// One more user.
    pub(super) fn opened(&self) {
        self.open_count.fetch_add(1, Ordering::AcqRel);
    }

    /// One user fewer.
    pub(super) fn released(&self) {
        self.open_count.fetch_sub(1, Ordering::AcqRel);
    }

    fn block(&self) -> u64 {
        self.info().block_size_bytes.into()
    }

    /// The blocks that `start..end` touches, as a byte range.
    fn around(&self, start: u64, end: u64) -> (u64, u64) {
        let block = self.block();
        (start - start % block, end.next_multiple_of(block))
    }

    /// Reads `length` bytes at `offset`, fewer at the end of the file.
    pub(super) fn read(&self, offset: u64, length: u32, done: ReadDone) {
        let end = offset
            .saturating_add(length.into())
            .min(self.info().size_bytes);
        if offset >= end {
            return done(Ok(&[]));
        }
        let (first, last) = self.around(offset, end);
        let data = self.volume.data(first, (last - first) as usize);
        let wanted = (offset - first) as usize..(end - first) as usize;
        let done = move |result: Result<(), BlockError>, data: Data| match result {
            Err(error) => done(Err(error.errno())),
            Ok(()) => match data.as_single() {
                Some(bytes) => done(Ok(&bytes[wanted])),
                None => done(Ok(&whole(&data)[wanted])),
            },
        };
        self.volume
            .submit_data(Operation::Read, first, false, data, Box::new(done));
    }

    /// Writes `bytes` at `offset`, fewer at the end of the file; behind it is `ENOSPC`.
    pub(super) fn write(
        self: &Arc<VolumeFile>,
        offset: u64,
        bytes: &[u8],
        durable: bool,
        done: WriteDone,
    ) {
        if self.info().read_only {
            return done(Err(libc::EROFS));
        }
        let Some(room) = self
            .info()
            .size_bytes
            .checked_sub(offset)
            .filter(|&room| room > 0)
        else {
            return done(Err(libc::ENOSPC));
        };
        let bytes = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        if bytes.is_empty() {
            return done(Ok(0));
        }
        let written = bytes.len() as u32;
        let done = Box::new(move |result: Outcome| done(result.map(|()| written)));
        let end = offset + u64::from(written);
        let (first, last) = self.around(offset, end);
        if (first, last) == (offset, end) {
            let mut data = self.volume.data(first, bytes.len());
            data.copy_in(0, bytes);
            let file = Arc::clone(self);
            self.ranges.lock(first..last, false, move |guard| {
                file.store(first, durable, data, guard, done);
            });
        } else {
            self.write_parts(offset, bytes.to_vec(), durable, done);
        }
    }

    /// Writes bytes that are not whole blocks: reads their blocks, and writes them back changed.
    fn write_parts(
        self: &Arc<VolumeFile>,
        offset: u64,
        bytes: Vec<u8>,
        durable: bool,
        done: PlainDone,
    ) {
        let (first, last) = self.around(offset, offset + bytes.len() as u64);
        let file = Arc::clone(self);
        self.ranges.lock(first..last, true, move |guard| {
            let data = file.volume.data(first, (last - first) as usize);
            let volume = file.volume.clone();
            let change = move |result: Result<(), BlockError>, mut data: Data| match result {
                Err(error) => {
                    drop((file, guard));
                    done(Err(error.errno()));
                }
                Ok(()) => {
                    data.copy_in((offset - first) as usize, &bytes);
                    file.store(first, durable, data, guard, done);
                }
            };
            volume.submit_data(Operation::Read, first, false, data, Box::new(change));
        });
    }

    fn store(&self, first: u64, durable: bool, data: Data, guard: RangeGuard, done: PlainDone) {
        let done = move |result: Result<(), BlockError>, _| {
            // Before the answer: whoever gets it may write the same bytes again at once.
            drop(guard);
            done(result.map_err(BlockError::errno));
        };
        self.volume
            .submit_data(Operation::Write, first, durable, data, Box::new(done));
    }

    /// Makes every write that was answered before durable.
    pub(super) fn flush(&self, done: PlainDone) {
        let done = Box::new(move |result: Result<(), BlockError>| {
            done(result.map_err(BlockError::errno));
        });
        self.volume
            .submit_plain(Operation::Flush, 0, 0, false, done);
    }

    /// Zeroes `length` bytes at `offset`, up to the end of the file: whole blocks by
    /// `operation`, which is `Discard` or `WriteZeroes`, parts of blocks by writing.
    pub(super) fn clear(
        self: &Arc<VolumeFile>,
        operation: Operation,
        offset: u64,
        length: u64,
        done: PlainDone,
    ) {
        if self.info().read_only {
            return done(Err(libc::EROFS));
        }
        let end = offset.saturating_add(length).min(self.info().size_bytes);
        if offset >= end {
            return done(Ok(()));
        }
        let block = self.block();
        let (first, last) = (offset.next_multiple_of(block), end - end % block);
        if first >= last {
            let zeroes = vec![0; (end - offset) as usize];
            return self.write_parts(offset, zeroes, false, done);
        }
        let parts = 1 + usize::from(offset < first) + usize::from(last < end);
        let join = Join::new(parts, done);
        if offset < first {
            let zeroes = vec![0; (first - offset) as usize];
            self.write_parts(offset, zeroes, false, join.part());
        }
        if last < end {
            let zeroes = vec![0; (end - last) as usize];
            self.write_parts(last, zeroes, false, join.part());
        }
        let (volume, done) = (self.volume.clone(), join.part());
        self.ranges.lock(first..last, false, move |guard| {
            let done = Box::new(move |result: Result<(), BlockError>| {
                drop(guard);
                done(result.map_err(BlockError::errno));
            });
            volume.submit_plain(operation, first, last - first, false, done);
        });
    }
}

/// The bytes of all pieces behind each other; only for what the device takes in pieces.
fn whole(data: &Data) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(data.len());
    for piece in data.pieces() {
        bytes.extend_from_slice(piece.as_slice());
    }
    bytes
}

/// Several operations that are answered as one: with the first failure, when all are over.
struct Join {
    state: Mutex<(usize, Outcome, Option<PlainDone>)>,
}

impl Join {
    fn new(parts: usize, done: PlainDone) -> Arc<Join> {
        Arc::new(Join {
            state: Mutex::new((parts, Ok(()), Some(done))),
        })
    }

    fn part(self: &Arc<Join>) -> PlainDone {
        let join = Arc::clone(self);
        Box::new(move |result| {
            let mut state = join.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.0 -= 1;
            state.1 = state.1.and(result);
            let (left, result) = (state.0, state.1);
            let done = if left == 0 { state.2.take() } else { None };
            drop(state);
            if let Some(done) = done {
                done(result);
            }
        })
    }
}
