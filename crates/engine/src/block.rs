//! What an export asks of an array: the block request, its completion and its errors.
//!
//! These types are shared by everything that serves blocks (exports) and everything that
//! answers (node, and mocks in tests). `B` is the buffer type; the engine never looks inside.

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Fill the buffer from the volume.
    Read,
    /// Write the buffer to the volume.
    Write,
    /// Make every write that was completed before this request was submitted durable.
    Flush,
    /// The content is no longer needed. Afterwards the range reads as zeroes.
    Discard,
    /// The range reads as zeroes afterwards.
    WriteZeroes,
}

/// One request of an export.
pub struct BlockRequest<B> {
    /// What to do.
    pub operation: Operation,
    /// First byte on the volume; a multiple of the volume's block size.
    pub offset: u64,
    /// Bytes; a multiple of the block size; 0 for `Flush`. For `Read` and `Write` the buffer
    /// holds at least this many bytes and the first `length` of them are used.
    pub length: u64,
    /// Force unit access: completed only when the data, and the parity over it, are durable.
    pub durable: bool,
    /// The data of `Read` (filled at completion) and `Write`; `None` for the others.
    pub buffer: Option<B>,
    /// Called exactly once, on any thread, with the outcome and the buffer back. It must not block.
    pub done: Done<B>,
}

/// Completion callback of a [`BlockRequest`].
pub type Done<B> = Box<dyn FnOnce(Result<(), BlockError>, Option<B>) + Send>;

/// Why a block request failed. Small and `Copy`: the sentence for people is logged where the
/// error arises, with array, member, stripe and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The range does not lie within the volume.
    #[error("request reaches past the end of the volume")]
    OutOfRange,
    /// Offset or length is not a multiple of the block size, or the buffer is too short.
    #[error("request is not aligned to the volume's block size")]
    Unaligned,
    /// The volume is read-only.
    #[error("volume is read-only")]
    ReadOnly,
    /// More members than the level survives could not deliver; nothing was made up.
    #[error("data unavailable: more members failed than the array's parity can replace")]
    Unavailable,
    /// The blocks were lost in a write that a crash cut off, or are suspect: see `strake array torn`.
    #[error("data lost: the blocks were torn by a crash or are suspect; write them anew")]
    Torn,
    /// The array is stopped or stopping.
    #[error("array is stopped")]
    Stopped,
}

impl BlockError {
    /// The errno that a kernel interface (FUSE, NBD) reports for this error.
    pub fn errno(self) -> i32 {
        match self {
            BlockError::OutOfRange => 28, // ENOSPC for writes; NBD maps reads to EINVAL itself
            BlockError::Unaligned => 22,
            BlockError::ReadOnly => 30,
            BlockError::Unavailable | BlockError::Torn => 5,
            BlockError::Stopped => 108,
        }
    }
}

/// Shape of a volume, as clients may be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockInfo {
    /// Name for people, unique on this host.
    pub name: String,
    /// Usable bytes, a multiple of `block_size_bytes`.
    pub size_bytes: u64,
    /// Smallest addressable unit: 512 or 4096.
    pub block_size_bytes: u32,
    /// Preferred smallest transfer (the strip).
    pub strip_size_bytes: u32,
    /// Preferred large transfer (a full stripe of one group's data).
    pub stripe_data_bytes: u64,
    /// Largest single request that may be submitted.
    pub max_request_bytes: u32,
    /// Writes and discards are refused.
    pub read_only: bool,
}

/// A volume that answers block requests. Implementations are cheap to share between threads.
pub trait BlockDevice<B>: Send + Sync {
    /// Shape of the volume; constant while it is served.
    fn info(&self) -> BlockInfo;
    /// Hands a request over. Never blocks for I/O; every request's `done` is called exactly once,
    /// possibly before this returns, also when the device stops.
    fn submit(&self, request: BlockRequest<B>);
}
