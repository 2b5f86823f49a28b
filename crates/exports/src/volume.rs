//! A device as the front ends use it: requests of any length, cut to what the device takes.
//!
//! The one decision here is where to cut: at multiples of a full stripe's data where the device
//! takes that much in one request (so that a large write stays full-stripe writes), else at the
//! largest request. Pieces of data are submitted together. Discards and zeroing may cover the
//! whole volume: they go a few at a time, each completion submitting the next.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use strake_engine::block::{BlockError, BlockInfo, BlockRequest, Operation};
use strake_reactor::buffer::Buffer;

use crate::Device;
use crate::buffers::{BufferCache, Piece};

/// Requests without data that one discard or zeroing has with the device at a time.
const WINDOW: usize = 16;

/// Bytes of one request, in the pieces in which they travel to the device. Rarely more than one.
#[derive(Default)]
pub(crate) struct Data {
    first: Option<Piece>,
    rest: Vec<Piece>,
}

impl Data {
    /// The pieces in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.first.iter().chain(&self.rest)
    }

    /// The pieces in order, to be filled.
    pub(crate) fn pieces_mut(&mut self) -> impl Iterator<Item = &mut Piece> {
        self.first.iter_mut().chain(&mut self.rest)
    }

    /// Bytes in all pieces.
    pub(crate) fn len(&self) -> usize {
        self.pieces().map(Piece::len).sum()
    }

    /// The only piece's bytes, when there is exactly one.
    pub(crate) fn as_single(&self) -> Option<&[u8]> {
        self.rest
            .is_empty()
            .then_some(self.first.as_ref()?.as_slice())
    }

    /// Copies `from` to the bytes that start at `at`; the end must lie within.
    pub(crate) fn copy_in(&mut self, at: usize, from: &[u8]) {
        let mut from = from;
        let mut skip = at;
        for piece in self.pieces_mut() {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            let count = from.len().min(piece.len() - skipped);
            piece.as_mut_slice()[skipped..skipped + count].copy_from_slice(&from[..count]);
            from = &from[count..];
        }
        assert!(from.is_empty(), "copied within the data");
    }

    fn push(&mut self, piece: Piece) {
        match self.first {
            None => self.first = Some(piece),
            Some(_) => self.rest.push(piece),
        }
    }
}

/// Called once with the outcome, and for data requests with the data. Must not block.
pub(crate) type DataDone = Box<dyn FnOnce(Result<(), BlockError>, Data) + Send>;
/// Called once with the outcome of a request without data. Must not block.
pub(crate) type PlainDone = Box<dyn FnOnce(Result<(), BlockError>) + Send>;

/// A device with its shape and the buffers for it; clones share them.
#[derive(Clone)]
pub(crate) struct Volume {
    device: Device,
    info: Arc<BlockInfo>,
    buffers: Arc<BufferCache>,
}

impl Volume {
    /// Takes the device's shape once; it is constant while it is served.
    pub(crate) fn new(device: Device, buffers: Arc<BufferCache>) -> Volume {
        let info = Arc::new(device.info());
        assert!(
            info.block_size_bytes.is_power_of_two()
                && info.max_request_bytes >= info.block_size_bytes,
            "a device takes at least one block, whose size is a power of two: {info:?}"
        );
        Volume {
            device,
            info,
            buffers,
        }
    }

    /// Shape of the device.
    pub(crate) fn info(&self) -> &BlockInfo {
        &self.info
    }

    /// Distance of the places where requests are cut, bytes.
    fn cut_bytes(&self) -> u64 {
        let block = u64::from(self.info.block_size_bytes);
        let max = u64::from(self.info.max_request_bytes);
        let stripe = self.info.stripe_data_bytes;
        if stripe > 0 && stripe.is_multiple_of(block) && stripe <= max {
            max - max % stripe
        } else {
            max - max % block
        }
    }

    /// Length of the first request of `length` bytes at `offset`: up to the next cut, or all of
    /// it when the device takes that.
    fn first_length(&self, offset: u64, length: u64) -> u64 {
        if length <= u64::from(self.info.max_request_bytes) {
            return length;
        }
        let cut = self.cut_bytes();
        length.min(cut - offset % cut)
    }

    /// Buffers for `length` bytes at `offset`, cut as [`Volume::submit_data`] needs them.
    pub(crate) fn data(&self, offset: u64, length: usize) -> Data {
        let mut data = Data::default();
        let mut at = 0;
        while at < length {
            let now = self.first_length(offset + at as u64, (length - at) as u64) as usize;
            data.push(self.buffers.take(now));
            at += now;
        }
        data
    }

    /// Reads into or writes all of `data`, which [`Volume::data`] made for this `offset`.
    pub(crate) fn submit_data(
        &self,
        operation: Operation,
        offset: u64,
        durable: bool,
        data: Data,
        done: DataDone,
    ) {
        if data.rest.is_empty() {
            let Some(piece) = data.first else {
                return done(Ok(()), data);
            };
            return self.submit_piece(operation, offset, durable, piece, move |result, piece| {
                let rest = Vec::new();
                done(result, Data { first: piece, rest });
            });
        }
        self.submit_many(operation, offset, durable, data, done);
    }

    fn submit_piece(
        &self,
        operation: Operation,
        offset: u64,
        durable: bool,
        piece: Piece,
        done: impl FnOnce(Result<(), BlockError>, Option<Piece>) + Send + 'static,
    ) {
        let length = piece.len() as u64;
        let (buffer, lent) = piece.lend();
        self.device.submit(BlockRequest {
            operation,
            offset,
            length,
            durable,
            buffer: Some(buffer),
            done: Box::new(move |result, buffer: Option<Buffer>| {
                let piece = lent.returned(buffer);
                // A read without its buffer has nothing to show for its success.
                let lost = piece.is_none() && operation == Operation::Read;
                done(
                    if lost {
                        result.and(Err(BlockError::Unavailable))
                    } else {
                        result
                    },
                    piece,
                );
            }),
        });
    }

    fn submit_many(
        &self,
        operation: Operation,
        mut offset: u64,
        durable: bool,
        data: Data,
        done: DataDone,
    ) {
        let pieces: Vec<Piece> = data.first.into_iter().chain(data.rest).collect();
        let gather = Arc::new(Mutex::new(Gather {
            waiting: pieces.len(),
            pieces: pieces.iter().map(|_| None).collect(),
            result: Ok(()),
            done: Some(done),
        }));
        for (index, piece) in pieces.into_iter().enumerate() {
            let length = piece.len() as u64;
            let gather = Arc::clone(&gather);
            self.submit_piece(operation, offset, durable, piece, move |result, piece| {
                if let Some((done, result, data)) = Gather::arrived(&gather, index, result, piece) {
                    done(result, data);
                }
            });
            offset += length;
        }
    }

    /// Submits a request without data: flush (`offset` and `length` 0), discard or zeroing.
    pub(crate) fn submit_plain(
        &self,
        operation: Operation,
        offset: u64,
        length: u64,
        durable: bool,
        done: PlainDone,
    ) {
        if operation == Operation::Flush || length <= u64::from(self.info.max_request_bytes) {
            return self.submit_one_plain(operation, offset, length, durable, done);
        }
        let walk = Arc::new(Walk {
            operation,
            durable,
            kicks: AtomicUsize::new(0),
            state: Mutex::new(WalkState {
                volume: Some(self.clone()),
                offset,
                end: offset + length,
                in_flight: 0,
                result: Ok(()),
                done: Some(done),
            }),
        });
        walk.advance();
    }

    fn submit_one_plain(
        &self,
        operation: Operation,
        offset: u64,
        length: u64,
        durable: bool,
        done: PlainDone,
    ) {
        self.device.submit(BlockRequest {
            operation,
            offset,
            length,
            durable,
            buffer: None,
            done: Box::new(move |result, _| done(result)),
        });
    }
}

/// The pieces of one data request on their way back.
struct Gather {
    waiting: usize,
    pieces: Vec<Option<Piece>>,
    result: Result<(), BlockError>,
    done: Option<DataDone>,
}

impl Gather {
    /// Takes one piece's outcome; with the last one, all that is needed to call done.
    fn arrived(
        gather: &Mutex<Gather>,
        index: usize,
        result: Result<(), BlockError>,
        piece: Option<Piece>,
    ) -> Option<(DataDone, Result<(), BlockError>, Data)> {
        let mut gather = gather.lock().unwrap_or_else(PoisonError::into_inner);
        gather.pieces[index] = piece;
        gather.result = gather.result.and(result);
        gather.waiting -= 1;
        if gather.waiting > 0 {
            return None;
        }
        let mut data = Data::default();
        for piece in std::mem::take(&mut gather.pieces).into_iter().flatten() {
            data.push(piece);
        }
        let done = gather.done.take().expect("each piece arrives once");
        Some((done, gather.result, data))
    }
}

/// One long discard or zeroing on its way through the device, a window at a time.
struct Walk {
    operation: Operation,
    durable: bool,
    /// How often `advance` was asked for and not yet honoured: a device may complete inside
    /// `submit`, and a call per completion would then nest as deep as the request is long.
    kicks: AtomicUsize,
    state: Mutex<WalkState>,
}

struct WalkState {
    /// Let go before `done` is called: whoever waits for that may drop the device next, and the
    /// device's own thread, which is here, must not be the one to drop it last.
    volume: Option<Volume>,
    offset: u64,
    end: u64,
    in_flight: usize,
    result: Result<(), BlockError>,
    done: Option<PlainDone>,
}

impl Walk {
    fn advance(self: &Arc<Walk>) {
        if self.kicks.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        loop {
            let seen = self.kicks.load(Ordering::Acquire);
            while let Some((volume, offset, length)) = self.next() {
                let walk = Arc::clone(self);
                let done = Box::new(move |result| walk.arrived(result));
                volume.submit_one_plain(self.operation, offset, length, self.durable, done);
            }
            if let Some((done, result)) = self.finished() {
                done(result);
            }
            if self.kicks.fetch_sub(seen, Ordering::AcqRel) == seen {
                return;
            }
        }
    }

    fn next(&self) -> Option<(Volume, u64, u64)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.in_flight == WINDOW || state.offset == state.end || state.result.is_err() {
            return None;
        }
        let volume = state.volume.clone()?;
        let offset = state.offset;
        let length = volume.first_length(offset, state.end - offset);
        state.offset += length;
        state.in_flight += 1;
        Some((volume, offset, length))
    }

    fn arrived(self: &Arc<Walk>, result: Result<(), BlockError>) {
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.in_flight -= 1;
            state.result = state.result.and(result);
        }
        self.advance();
    }

    fn finished(&self) -> Option<(PlainDone, Result<(), BlockError>)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let over = state.offset == state.end || state.result.is_err();
        if state.in_flight > 0 || !over {
            return None;
        }
        let result = state.result;
        state.volume = None;
        state.done.take().map(|done| (done, result))
    }
}
