//! What every core may know of an array: enough to read what needs no decision.
//!
//! One core runs the array and is the only one that writes here. Any core reads blocks straight
//! from their member ([`super::DirectReads`]) under a rule that needs no lock and no message:
//!
//! * before the read, it looks at the *regime* and at the region's word;
//! * after the read has ended, it looks again: if either has changed, what was read counts for
//!   nothing and the request goes to the core that runs the array.
//!
//! The regime changes whenever a member comes or goes and when blocks begin to read as errors; a
//! region's word whenever its blocks begin or cease to be what its members hold. Both change
//! before anything is done, or answered, that relies on the change. So a read that found both
//! unchanged ended before that: to every client it is as if it had been answered then.
//!
//! What makes a read direct is looked at anew for each; what only keeps new reads away (a stop)
//! closes the array without touching what is under way.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

use crate::format::region_map::RegionState;
use crate::layout::MemberIndex;
use crate::planted::{self, Planted};

/// Bits of a region's word that say how its blocks are read; the others count its changes.
const KIND_BITS: u32 = 2;

/// How the blocks of a region are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegionReads {
    /// They are zeroes.
    Zeroes,
    /// From the members.
    Direct,
    /// The core that runs the array has to look.
    Asked,
}

impl RegionReads {
    pub(super) fn of(state: RegionState) -> RegionReads {
        match state {
            RegionState::Unwritten | RegionState::Zeroing => RegionReads::Zeroes,
            RegionState::Clean | RegionState::Dirty => RegionReads::Direct,
            RegionState::NeedsSync => RegionReads::Asked,
        }
    }

    fn from_word(word: u32) -> RegionReads {
        match word & ((1 << KIND_BITS) - 1) {
            0 => RegionReads::Zeroes,
            1 => RegionReads::Direct,
            _ => RegionReads::Asked,
        }
    }
}

/// A region's word as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Word(u32);

impl Word {
    pub(super) fn reads(self) -> RegionReads {
        RegionReads::from_word(self.0)
    }
}

/// The regime as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Regime(u64);

/// What is published of one array. Shared by all cores; written by the one that runs it.
pub struct Published {
    /// Reads may be direct at all.
    open: AtomicBool,
    /// Counts its changes.
    regime: AtomicU64,
    /// Counts the drives that were attached and detached: a core whose count differs has other
    /// drives open than the array has.
    drives: AtomicU64,
    /// By place: everything that the member holds is true.
    members: Box<[AtomicBool]>,
    regions: Box<[AtomicU32]>,
    readers: Mutex<Vec<Arc<ReadCounts>>>,
}

/// What one core has read directly. A cache line of its own: only that core writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct ReadCounts {
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl ReadCounts {
    pub(super) fn add(&self, bytes: u64) {
        // One writer: no need for an atomic addition.
        let more = |count: &AtomicU64, by| {
            count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
        };
        more(&self.reads, 1);
        more(&self.bytes, bytes);
    }
}

impl Published {
    pub(super) fn new(members: usize, regions: impl Iterator<Item = RegionReads>) -> Published {
        Published {
            open: AtomicBool::new(false),
            regime: AtomicU64::new(0),
            drives: AtomicU64::new(0),
            members: (0..members).map(|_| AtomicBool::new(false)).collect(),
            regions: regions.map(|reads| AtomicU32::new(reads as u32)).collect(),
            readers: Mutex::default(),
        }
    }

    /// A drive was attached or detached; returns how many have been. Before the array uses it, or
    /// after it has ceased to.
    pub fn drives_changed(&self) -> u64 {
        self.drives.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Drives attached and detached so far.
    pub fn drives(&self) -> u64 {
        self.drives.load(Ordering::Acquire)
    }

    /// The regime, where reads may be direct for who has these drives open.
    #[inline]
    pub(super) fn admit(&self, drives: u64) -> Option<Regime> {
        let regime = Regime(self.regime.load(Ordering::Acquire));
        let admitted =
            self.open.load(Ordering::Acquire) && self.drives.load(Ordering::Acquire) == drives;
        admitted.then_some(regime)
    }

    #[inline]
    pub(super) fn is_true(&self, member: MemberIndex) -> bool {
        self.members[member.at()].load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn region(&self, region: u32) -> Word {
        Word(self.regions[region as usize].load(Ordering::Acquire))
    }

    /// Nothing that a read relied on has changed since it looked. Asked after its end.
    #[inline]
    pub(super) fn holds(&self, regime: Regime, region: u32, word: Word) -> bool {
        // What was read was read before this looks.
        fence(Ordering::Acquire);
        if planted::on(Planted::ReadNotLookedAtAgain) {
            return true;
        }
        self.regime.load(Ordering::Acquire) == regime.0 && self.region(region) == word
    }

    pub(super) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
    }

    /// Reads under way count for nothing any more.
    pub(super) fn new_regime(&self) {
        self.regime.fetch_add(1, Ordering::SeqCst);
        // What relies on it comes after it for every core.
        fence(Ordering::SeqCst);
    }

    pub(super) fn set_member(&self, member: usize, is_true: bool) {
        self.members[member].store(is_true, Ordering::SeqCst);
    }

    pub(super) fn set_region(&self, region: u32, reads: RegionReads) {
        let word = &self.regions[region as usize];
        let was = word.load(Ordering::Relaxed);
        if RegionReads::from_word(was) == reads {
            return;
        }
        let changes = (was >> KIND_BITS).wrapping_add(1);
        word.store(changes << KIND_BITS | reads as u32, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Where one more core counts its reads.
    pub(super) fn reader(&self) -> Arc<ReadCounts> {
        let counts = Arc::new(ReadCounts::default());
        let mut readers = self.readers.lock().expect("no panic while held");
        readers.push(counts.clone());
        counts
    }

    /// Direct reads of all cores: requests, bytes.
    pub(super) fn read_counts(&self) -> (u64, u64) {
        let readers = self.readers.lock().expect("no panic while held");
        readers.iter().fold((0, 0), |(reads, bytes), counts| {
            (
                reads + counts.reads.load(Ordering::Relaxed),
                bytes + counts.bytes.load(Ordering::Relaxed),
            )
        })
    }
}

impl std::fmt::Debug for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Published")
            .field("open", &self.open)
            .field("regime", &self.regime)
            .field("drives", &self.drives)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}
