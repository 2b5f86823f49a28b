//! The memory of a pool: one anonymous mapping, aligned, on huge pages when the system has them.

use std::io;
use std::ptr::NonNull;

/// A zeroed private mapping, unmapped on drop.
pub(super) struct Arena {
    start: NonNull<u8>,
    len: usize,
    map: Mapping,
}

/// What was had of the system, to be given back.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Arena {
    /// Maps `len` bytes whose start is a multiple of `align` (a power of two).
    pub(super) fn map(len: usize, align: usize) -> io::Result<Arena> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let mut map = Mapping::new(len.checked_add(align).ok_or_else(too_large)?)?;
        let skip = map.start.as_ptr().align_offset(align);
        assert!(skip < align);
        // SAFETY: the mapping is `align` longer than the arena, so start and end stay inside.
        let start = unsafe { map.start.add(skip) };
        map.keep(skip, len);
        advise(start, len);
        Ok(Arena { start, len, map })
    }

    /// Makes a range read as zeroes, giving its pages back to the system. Whole pages only.
    #[cfg(not(miri))]
    pub(super) fn forget(&mut self, range: std::ops::Range<usize>) -> io::Result<()> {
        use rustix::mm::{Advice, madvise};
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: the range lies within the arena, which is borrowed exclusively; a private
        // anonymous mapping reads as zeroes there afterwards.
        let start = unsafe { self.start.add(range.start) };
        // SAFETY: as above.
        unsafe { madvise(start.as_ptr().cast(), range.len(), Advice::LinuxDontNeed) }?;
        Ok(())
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn len(&self) -> usize {
        debug_assert!(self.len <= self.map.len);
        self.len
    }
}

#[cfg(not(miri))]
impl Mapping {
    fn new(len: usize) -> io::Result<Mapping> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, flags) }?;
        let start = NonNull::new(start.cast()).expect("mmap never maps page zero unasked");
        Ok(Mapping { start, len })
    }

    /// Gives back what lies before `skip` and what lies behind `skip + len`: neighbours are one
    /// mapping to the kernel then, which allows only so many.
    fn keep(&mut self, skip: usize, len: usize) {
        use rustix::mm::munmap;
        let page = rustix::param::page_size();
        if !skip.is_multiple_of(page) || !len.is_multiple_of(page) {
            return; // an odd one is kept whole
        }
        let behind = skip + len;
        for range in [behind..self.len, 0..skip] {
            if range.is_empty() {
                continue;
            }
            // SAFETY: whole pages of this mapping outside of what is kept: nobody points there.
            let start = unsafe { self.start.add(range.start) };
            // SAFETY: as above.
            if unsafe { munmap(start.as_ptr().cast(), range.len()) }.is_err() {
                return; // kept, and unmapped with the rest
            }
            self.len -= range.len();
            if range.start == 0 {
                // SAFETY: the mapping begins there now.
                self.start = unsafe { self.start.add(skip) };
            }
        }
    }
}

#[cfg(not(miri))]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped; every buffer holds the pool, so none points here.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Huge pages spare the TLB; pages that a drive writes to must not be copied on a fork. Both are
/// wishes: a kernel that knows neither still serves.
#[cfg(not(miri))]
fn advise(start: NonNull<u8>, len: usize) {
    use rustix::mm::{Advice, madvise};
    for advice in [Advice::LinuxHugepage, Advice::LinuxDontFork] {
        // SAFETY: the range is mapped and ours; neither advice changes content here.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, advice) };
    }
}

// Miri has no madvise: there the arena comes from the allocator, to check everything above it.

#[cfg(miri)]
impl Mapping {
    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, super::PAGE_BYTES).expect("small in tests")
    }

    fn new(len: usize) -> io::Result<Mapping> {
        // SAFETY: the layout's size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(Mapping::layout(len)) };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, len })
    }

    fn keep(&mut self, _: usize, _: usize) {}
}

#[cfg(miri)]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), Mapping::layout(self.len)) };
    }
}

#[cfg(miri)]
fn advise(_: NonNull<u8>, _: usize) {}
