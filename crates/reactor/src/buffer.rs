//! Page-aligned buffers that know which of their parts are lent to a drive.
//!
//! A [`Buffer`] is memory for I/O: from a [`Pool`] (one arena, registered with every ring) or of
//! its own ([`Buffer::heap`]). To read or write a drive its owner lends a range: [`Inbound`] is
//! memory that a drive may write, [`Outbound`] memory that a drive may read. A loan owns its
//! range until it is dropped; meanwhile the buffer refuses whatever would touch it, by assertion:
//!
//! | alive             | `as_slice` | `as_mut_slice` | `lend_inbound`  | `lend_outbound`   |
//! |-------------------|------------|----------------|-----------------|-------------------|
//! | an `Inbound`      | asserts    | asserts        | of other ranges | of other ranges   |
//! | an `Outbound`     | allowed    | asserts        | of other ranges | of any range      |
//!
//! Content of a fresh pool buffer is undefined (what its last user left); a heap buffer is zero.
//!
//! A buffer is one pointer: to a header in a cache line of its own, with where the memory is and
//! what is lent of it. Every request hands its buffer on several times, so copying it is copying a
//! pointer (docs/internals/hot-path.md).
//!
//! # Why this is sound
//!
//! * *Memory outlives loans.* A loan points into its buffer's memory and header. Both are
//!   freed by `Buffer::drop` alone, which aborts the process while a loan lives (and leaks, when
//!   the thread is already panicking). A forgotten buffer leaks its memory, its header and its
//!   share of the pool (which its header holds).
//! * *No two parties disagree over a byte.* Every live loan is recorded with its range in the
//!   buffer's loan table; lending checks the new range against all of them. The buffer is
//!   `Send` but not `Sync`, so only one thread at a time lends or looks. The slices borrow the
//!   buffer: while `&mut [u8]` lives nothing can be lent; while `&[u8]` lives only `Outbound`.
//! * *Writes are seen.* Dropping a loan clears its slot with a release store; every look at the
//!   table loads with acquire. So what another thread (or the kernel, whose completion that
//!   thread reaped) wrote happens before the owner's next access.
//! * *Never uninitialised.* Arenas are mapped and heap buffers allocated zeroed.

#![allow(unsafe_code)]

mod arena;
mod buddy;
mod chunk;
mod loans;
#[cfg(test)]
mod tests;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use arena::Arena;
use buddy::Buddy;
pub(crate) use chunk::Chunk;
use loans::{Kind, LoanTable};

/// Alignment and smallest size of every buffer, bytes.
pub const PAGE_BYTES: usize = 4096;
/// Largest pool buffer, bytes: 4 KiB * 2^10.
pub const POOL_BUFFER_BYTES_MAX: usize = PAGE_BYTES << buddy::ORDER_MAX;

/// One arena cut into buffers of 4 KiB * 2^n up to 4 MiB; clones share it.
///
/// Any thread may allocate and free; the lock inside is held for some tens of nanoseconds. Cores
/// that each have their own pool never meet at it.
///
/// Buffers of one size start at multiples of that size, so strips of a stripe compete for the same
/// cache sets. Displacing them needs memory between them and has to be measured with the parity
/// kernels first; page alignment is what direct I/O asks for.
#[derive(Clone)]
pub struct Pool(Arc<PoolInner>);

struct PoolInner {
    arena: Arena,
    /// One per page; a buffer uses that of its first page.
    headers: Box<[Header]>,
    buddy: Mutex<Buddy>,
}

// SAFETY: a header's cells are touched only through the one `Buffer` that owns its page
// (kept by `Buddy`: no page is handed out twice); from one owner to the next they pass through
// `buddy`'s lock, which orders the accesses. The arena is plain memory owned the same way.
unsafe impl Sync for PoolInner {}
// SAFETY: as above; nothing in it is bound to a thread.
unsafe impl Send for PoolInner {}

impl Pool {
    /// Maps an arena of `bytes`, rounded up to whole pages, on huge pages where the system has
    /// them to give. Memory is committed when first touched, or when a ring registers it.
    /// Fails with the system's error when it cannot be mapped, or `InvalidInput` for zero bytes.
    pub fn new(bytes: usize) -> io::Result<Pool> {
        let pages = bytes.div_ceil(PAGE_BYTES);
        if pages == 0 || u32::try_from(pages).is_err() {
            let text = format!("buffer pool of {bytes} bytes: give 4 KiB up to 16 TiB");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Pool(Arc::new(PoolInner {
            arena: Arena::map(pages * PAGE_BYTES, POOL_BUFFER_BYTES_MAX)?,
            headers: (0..pages).map(|_| Header::default()).collect(),
            buddy: Mutex::new(Buddy::new(pages as u32)),
        })))
    }

    /// A buffer of `len` bytes (at most [`POOL_BUFFER_BYTES_MAX`]), page aligned, content
    /// undefined. `None` when no free piece is large enough. Takes the next power of two pages.
    pub fn alloc(&self, len: usize) -> Option<Buffer> {
        let order = buddy::order_of(len)?;
        let page = self.0.buddy().alloc(order)?;
        let header = &self.0.headers[page as usize];
        debug_assert!(!header.table.any_live());
        // SAFETY: `Buddy` hands out pages of the arena only, so the offset is inside it.
        let memory = unsafe { self.0.arena.start().add(page as usize * PAGE_BYTES) };
        header.memory.set(memory);
        header.len.set(len as u32);
        header.page.set(page);
        header.order.set(order);
        header.pool.set(Some(self.0.clone()));
        Some(Buffer(NonNull::from(header)))
    }

    /// Bytes not handed out. Scattered free pieces count too: an allocation of this size may fail.
    pub fn bytes_free(&self) -> usize {
        self.0.buddy().pages_free() as usize * PAGE_BYTES
    }

    /// Bytes of the whole arena.
    pub fn bytes_total(&self) -> usize {
        self.0.arena.len()
    }

    /// Whether two handles share one arena.
    pub fn is_same(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The arena's first byte; it spans `bytes_total` and lives as long as any clone or buffer.
    pub(crate) fn arena_start(&self) -> NonNull<u8> {
        self.0.arena.start()
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("bytes_total", &self.bytes_total())
            .field("bytes_free", &self.bytes_free())
            .finish()
    }
}

impl PoolInner {
    fn buddy(&self) -> MutexGuard<'_, Buddy> {
        // Poisoned means an assertion failed inside the allocator: nothing to trust any more.
        self.buddy
            .lock()
            .expect("buffer pool's allocator is intact")
    }
}

/// What a buffer is, beside its content.
#[repr(align(64))]
struct Header {
    table: LoanTable,
    memory: Cell<NonNull<u8>>,
    /// `None`: its memory and this header are of its own.
    pool: Cell<Option<Arc<PoolInner>>>,
    len: Cell<u32>,
    /// In the pool.
    page: Cell<u32>,
    order: Cell<u8>,
}

// One look at a buffer is one cache line.
const _: () = assert!(size_of::<Header>() == 64);
const _: () = assert!(POOL_BUFFER_BYTES_MAX < loans::RANGE_END_MAX);

impl Default for Header {
    fn default() -> Header {
        Header {
            table: LoanTable::default(),
            memory: Cell::new(NonNull::dangling()),
            pool: Cell::new(None),
            len: Cell::new(0),
            page: Cell::new(0),
            order: Cell::new(0),
        }
    }
}

/// Page-aligned memory whose parts can be lent to drives. See the module's table of rules.
pub struct Buffer(NonNull<Header>);

// SAFETY: the buffer owns its memory and its header's cells exclusively; loans elsewhere touch
// only their own range and their own atomic slot. It is not `Sync`: the cells are unguarded.
unsafe impl Send for Buffer {}

impl Buffer {
    /// A zeroed buffer of `len` bytes (below 2 GiB) of its own, page aligned: for the control path and exports.
    pub fn heap(len: usize) -> Buffer {
        assert!(
            len < loans::RANGE_END_MAX,
            "buffer of {len} bytes is too large"
        );
        let layout = heap_layout(len);
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else {
            handle_alloc_error(layout)
        };
        let header = Header {
            memory: Cell::new(memory),
            len: Cell::new(len as u32),
            ..Header::default()
        };
        Buffer(NonNull::from(Box::leak(Box::new(header))))
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "is_empty comes with the slice")]
    #[inline]
    pub fn len(&self) -> usize {
        self.header().len.get() as usize
    }

    /// The content. Asserts that no [`Inbound`] lives.
    #[track_caller]
    pub fn as_slice(&self) -> &[u8] {
        assert!(
            !self.table().any_inbound(),
            "buffer is looked at while a drive may write to it"
        );
        // SAFETY: memory is ours, initialised and `len` long; no inbound loan lives, and none can
        // be made while `self` is borrowed, so nobody writes.
        unsafe { std::slice::from_raw_parts(self.memory().as_ptr(), self.len()) }
    }

    /// Bytes `range` of the content. Asserts that no [`Inbound`] of any of them lives; other
    /// ranges may be lent.
    #[track_caller]
    pub fn range(&self, range: Range<usize>) -> &[u8] {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "bytes {range:?} of a buffer of {} are looked at",
            self.len()
        );
        self.table().assert_readable(&range);
        // SAFETY: the range lies within the memory; no inbound loan of it lives, and none can be
        // made while `self` is borrowed (`lend_inbound` takes `&mut self`), so nobody writes it.
        unsafe { std::slice::from_raw_parts(self.memory().as_ptr().add(range.start), range.len()) }
    }

    /// The content, to change. Asserts that no loan lives.
    #[track_caller]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        assert!(
            !self.table().any_live(),
            "buffer is changed while a drive may use it"
        );
        // SAFETY: as in `as_slice`, and no loan of any kind lives or can be made meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.memory().as_ptr(), self.len()) }
    }

    fn is_pooled(&self) -> bool {
        let pool = self.header().pool.take();
        let pooled = pool.is_some();
        self.header().pool.set(pool);
        pooled
    }

    /// Whether any part is lent.
    pub fn is_lent(&self) -> bool {
        self.table().any_live()
    }

    /// Lends bytes `range` to be written by a drive. Asserts that the range lies within the
    /// buffer and that no part of it is lent already.
    #[track_caller]
    #[inline]
    pub fn lend_inbound(&mut self, range: Range<usize>) -> Inbound {
        Inbound(self.lend(range, Kind::Inbound))
    }

    /// Lends bytes `range` to be read by a drive. Asserts that the range lies within the buffer
    /// and that no part of it is lent as [`Inbound`].
    #[track_caller]
    #[inline]
    pub fn lend_outbound(&self, range: Range<usize>) -> Outbound {
        Outbound(self.lend(range, Kind::Outbound))
    }

    #[track_caller]
    #[inline]
    fn lend(&self, range: Range<usize>, kind: Kind) -> Loan {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "bytes {range:?} of a buffer of {} are lent",
            self.len()
        );
        let slot = self.table().record(&range, kind);
        Loan {
            // SAFETY: the range was just checked to lie within the memory.
            memory: unsafe { self.memory().add(range.start) },
            len: range.len(),
            slot: NonNull::from(slot),
        }
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the header lives as long as the buffer (its pool does: the header holds it), and
        // only its buffer uses it.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn table(&self) -> &LoanTable {
        &self.header().table
    }

    #[inline]
    fn memory(&self) -> NonNull<u8> {
        self.header().memory.get()
    }
}

fn heap_layout(len: usize) -> Layout {
    let bytes = len.max(1).next_multiple_of(PAGE_BYTES);
    Layout::from_size_align(bytes, PAGE_BYTES).expect("size is bounded by 2 GiB")
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.table().any_live() {
            if std::thread::panicking() {
                // The first panic tells what happened; leaking (the pool with it, which the header
                // holds) keeps the loans valid.
                return;
            }
            eprintln!(
                "assertion failed: a buffer of {} bytes is dropped while a drive may use it",
                self.len()
            );
            std::process::abort();
        }
        let header = self.header();
        let (page, order) = (header.page.get(), header.order.get());
        match header.pool.take() {
            // From here on the page, and its header, may be another buffer's.
            Some(pool) => pool.buddy().free(page, order),
            // SAFETY: both were allocated in `heap` with these layouts; no loan points at them.
            None => unsafe {
                dealloc(self.memory().as_ptr(), heap_layout(self.len()));
                drop(Box::from_raw(self.0.as_ptr()));
            },
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[track_caller]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for Buffer {
    #[track_caller]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl AsRef<[u8]> for Buffer {
    #[track_caller]
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsMut<[u8]> for Buffer {
    #[track_caller]
    fn as_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len())
            .field("pooled", &self.is_pooled())
            .field("lent", &self.is_lent())
            .finish()
    }
}

struct Loan {
    memory: NonNull<u8>,
    len: usize,
    slot: NonNull<AtomicU64>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        // SAFETY: the slot belongs to the buffer's table, which outlives its loans. Release: what
        // was done with the memory happens before the owner sees the slot free.
        unsafe { self.slot.as_ref() }.store(loans::FREE, Ordering::Release);
    }
}

/// Memory lent to a drive to be written: a read's destination. Dropping it returns the loan.
pub struct Inbound(Loan);

// SAFETY: it has its bytes for itself (the loan table refuses overlaps) and an atomic slot.
unsafe impl Send for Inbound {}
// SAFETY: through a shared reference only the length and the address can be asked.
unsafe impl Sync for Inbound {}

impl Inbound {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Copies `src`, of the same length, into the memory.
    #[track_caller]
    pub fn fill(&mut self, src: &[u8]) {
        self.with_mut(|into| into.copy_from_slice(src));
    }

    /// Writes zeroes into all of the memory.
    pub fn zero(&mut self) {
        self.with_mut(|into| into.fill(0));
    }

    /// Lends the memory to `f`.
    pub fn with_mut<R>(&mut self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        // SAFETY: the loan is alive, so the memory is, and nobody else touches its bytes.
        f(unsafe { std::slice::from_raw_parts_mut(self.0.memory.as_ptr(), self.0.len) })
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.0.memory.as_ptr()
    }
}

impl std::fmt::Debug for Inbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inbound({} bytes)", self.0.len)
    }
}

/// Memory lent to a drive to be read: a write's source. Dropping it returns the loan.
pub struct Outbound(Loan);

// SAFETY: nobody writes its bytes while it lives (kept by the loan table); its slot is atomic.
unsafe impl Send for Outbound {}
// SAFETY: it only ever reads.
unsafe impl Sync for Outbound {}

impl Outbound {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Copies the content into `dst`, of the same length.
    #[track_caller]
    pub fn copy_to(&self, dst: &mut [u8]) {
        self.with(|from| dst.copy_from_slice(from));
    }

    /// Shows the content to `f`.
    pub fn with<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: the loan is alive, so the memory is, and nobody writes its bytes meanwhile.
        f(unsafe { std::slice::from_raw_parts(self.0.memory.as_ptr(), self.0.len) })
    }

    /// Keeps only the first `len` bytes (a torn write); the whole range stays lent.
    pub fn truncate(&mut self, len: usize) {
        self.0.len = self.0.len.min(len);
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.0.memory.as_ptr()
    }
}

impl std::fmt::Debug for Outbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outbound({} bytes)", self.0.len)
    }
}
