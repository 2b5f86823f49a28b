//! Which ranges of one buffer are lent.
//!
//! A slot holds one live loan. The owner's thread fills free slots; whoever drops a loan clears
//! its slot, from any thread. Nothing here is a read-modify-write: the owner alone turns a slot
//! from free to taken, the loan alone turns it back, so a lend and a return are one store each.

use std::cell::{Cell, OnceCell};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A slot without a loan.
pub(super) const FREE: u64 = 0;
/// Ranges end below this: 31 bits each for start and length leave two for the state.
pub(super) const RANGE_END_MAX: usize = 1 << 31;

const LIVE: u64 = 1 << 63;
const INBOUND: u64 = 1 << 62;
/// So many that a buffer's header is one cache line.
const SLOTS_INLINE: usize = 2;
const SLOTS_MORE: usize = 63;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Inbound,
    Outbound,
}

/// The live loans of one buffer. Looked at and added to by the buffer's owner only.
#[derive(Default)]
pub(super) struct LoanTable {
    slots: [AtomicU64; SLOTS_INLINE],
    /// Slots at this index and later are free (inline ones first, then those of `more`).
    used: Cell<usize>,
    /// Further slots, kept once needed: a large buffer may be lent in a hundred pieces.
    more: OnceCell<Box<More>>,
}

struct More {
    slots: [AtomicU64; SLOTS_MORE],
    next: OnceCell<Box<More>>,
}

impl More {
    fn boxed() -> Box<More> {
        Box::new(More {
            slots: [const { AtomicU64::new(FREE) }; SLOTS_MORE],
            next: OnceCell::new(),
        })
    }
}

impl LoanTable {
    pub(super) fn any_live(&self) -> bool {
        self.any(LIVE)
    }

    pub(super) fn any_inbound(&self) -> bool {
        self.any(INBOUND)
    }

    /// Records a loan and returns its slot. Asserts that the range is free for it.
    #[track_caller]
    #[inline]
    pub(super) fn record(&self, range: &Range<usize>, kind: Kind) -> &AtomicU64 {
        assert!(range.end < RANGE_END_MAX, "a loan ends below 2 GiB");
        let entry = encode(range, kind);
        let mut free = None;
        let mut live_end = 0;
        for (index, slot) in self.slots().take(self.used.get()).enumerate() {
            let other = slot.load(Ordering::Acquire);
            if other == FREE {
                free = free.or(Some((index, slot)));
                continue;
            }
            live_end = index + 1;
            assert!(
                !conflicts(entry, other),
                "bytes {range:?} of a buffer are lent while a drive uses {:?}",
                decode(other)
            );
        }
        let (index, slot) = free.unwrap_or_else(|| (self.used.get(), self.slot(self.used.get())));
        self.used.set(live_end.max(index + 1));
        slot.store(entry, Ordering::Relaxed);
        slot
    }

    /// Asserts that no inbound loan overlaps the range.
    #[track_caller]
    pub(super) fn assert_readable(&self, range: &Range<usize>) {
        let entry = encode(range, Kind::Outbound);
        for slot in self.slots().take(self.used.get()) {
            let other = slot.load(Ordering::Acquire);
            assert!(
                other == FREE || !conflicts(entry, other),
                "bytes {range:?} of a buffer are looked at while a drive may write {:?}",
                decode(other)
            );
        }
    }

    fn any(&self, bit: u64) -> bool {
        let mut live_end = 0;
        let mut found = false;
        for (index, slot) in self.slots().take(self.used.get()).enumerate() {
            let entry = slot.load(Ordering::Acquire);
            if entry != FREE {
                live_end = index + 1;
                found |= entry & bit != 0;
            }
        }
        self.used.set(live_end);
        found
    }

    fn slots(&self) -> impl Iterator<Item = &AtomicU64> {
        let more = std::iter::successors(self.more.get(), |more| more.next.get());
        self.slots.iter().chain(more.flat_map(|more| &more.slots))
    }

    /// The slot at `index`, making room for it.
    fn slot(&self, index: usize) -> &AtomicU64 {
        if let Some(slot) = self.slots.get(index) {
            return slot;
        }
        let mut index = index - SLOTS_INLINE;
        let mut more = self.more.get_or_init(More::boxed);
        while index >= SLOTS_MORE {
            index -= SLOTS_MORE;
            more = more.next.get_or_init(More::boxed);
        }
        &more.slots[index]
    }
}

fn encode(range: &Range<usize>, kind: Kind) -> u64 {
    let bits = LIVE | (range.start as u64) << 31 | range.len() as u64;
    match kind {
        Kind::Inbound => bits | INBOUND,
        Kind::Outbound => bits,
    }
}

fn decode(entry: u64) -> Range<u64> {
    let mask = RANGE_END_MAX as u64 - 1;
    let start = entry >> 31 & mask;
    start..start + (entry & mask)
}

fn conflicts(a: u64, b: u64) -> bool {
    if (a | b) & INBOUND == 0 {
        return false;
    }
    let (a, b) = (decode(a), decode(b));
    a.start < b.end && b.start < a.end
}
