//! Band locks of one array: shared for reads that decode, alone for everything that writes.
//!
//! Waiters are served first come, first served; a shared waiter does not overtake a writer.
//! The table holds only bands that are locked or waited for.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::OpId;

/// A band of a stripe: `stripe × bands + band`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BandKey(pub u64);

/// How a band is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// With other readers.
    Shared,
    /// Alone.
    Alone,
}

/// Multiplicative hash: keys are consecutive numbers and the table is ours alone.
#[derive(Default)]
pub struct BandHasher(u64);

impl Hasher for BandHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("band keys hash as one u64");
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        let mixed = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// Map with a cheap hash for small integer keys.
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<BandHasher>>;

#[derive(Default)]
struct Entry {
    readers: u32,
    alone: bool,
    waiting: std::collections::VecDeque<(OpId, Hold)>,
}

/// The table.
#[derive(Default)]
pub struct LockTable {
    entries: FastMap<BandKey, Entry>,
    /// Emptied queues kept for reuse, so that a warm table does not allocate.
    spare: Vec<std::collections::VecDeque<(OpId, Hold)>>,
}

impl LockTable {
    /// True: `op` holds the band now. False: it waits and is returned by a later release.
    pub fn acquire(&mut self, band: BandKey, hold: Hold, op: OpId) -> bool {
        let spare = &mut self.spare;
        let entry = self.entries.entry(band).or_insert_with(|| Entry {
            waiting: spare.pop().unwrap_or_default(),
            ..Entry::default()
        });
        let free = match hold {
            Hold::Shared => !entry.alone && entry.waiting.is_empty(),
            Hold::Alone => !entry.alone && entry.readers == 0,
        };
        if !free {
            entry.waiting.push_back((op, hold));
            return false;
        }
        entry.take(hold);
        true
    }

    /// Gives the band back and appends the operations that hold it now.
    pub fn release(&mut self, band: BandKey, hold: Hold, granted: &mut Vec<OpId>) {
        let entry = self.entries.get_mut(&band).expect("band is held");
        match hold {
            Hold::Shared => entry.readers -= 1,
            Hold::Alone => {
                assert!(entry.alone, "band {band:?} is held alone");
                entry.alone = false;
            }
        }
        while let Some(&(op, next)) = entry.waiting.front() {
            let free = !entry.alone && (next == Hold::Shared || entry.readers == 0);
            if !free {
                break;
            }
            entry.waiting.pop_front();
            entry.take(next);
            granted.push(op);
        }
        if entry.readers == 0 && !entry.alone {
            let entry = self.entries.remove(&band).expect("present");
            debug_assert!(entry.waiting.is_empty());
            if self.spare.len() < 64 {
                self.spare.push(entry.waiting);
            }
        }
    }

    /// The next waiter of a band that is held alone, taken out of the queue if `join` agrees.
    pub fn join_next(&mut self, band: BandKey, join: impl FnOnce(OpId) -> bool) -> Option<OpId> {
        let entry = self.entries.get_mut(&band)?;
        let &(op, hold) = entry.waiting.front()?;
        if hold == Hold::Alone && join(op) {
            entry.waiting.pop_front();
            return Some(op);
        }
        None
    }

    /// Somebody waits for a band that is held.
    pub fn is_waited_for(&self, band: BandKey) -> bool {
        let entry = self.entries.get(&band);
        entry.is_some_and(|entry| !entry.waiting.is_empty())
    }

    /// No band is locked.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bands locked now.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Entry {
    fn take(&mut self, hold: Hold) {
        match hold {
            Hold::Shared => self.readers += 1,
            Hold::Alone => self.alone = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAND: BandKey = BandKey(7);

    #[test]
    fn writers_wait_for_readers_and_readers_do_not_overtake_writers() {
        let mut table = LockTable::default();
        let mut granted = Vec::new();
        assert!(table.acquire(BAND, Hold::Shared, OpId(1)));
        assert!(table.acquire(BAND, Hold::Shared, OpId(2)));
        assert!(!table.acquire(BAND, Hold::Alone, OpId(3)));
        assert!(!table.acquire(BAND, Hold::Shared, OpId(4)));
        table.release(BAND, Hold::Shared, &mut granted);
        assert!(granted.is_empty());
        table.release(BAND, Hold::Shared, &mut granted);
        assert_eq!(granted, [OpId(3)]);
        granted.clear();
        table.release(BAND, Hold::Alone, &mut granted);
        assert_eq!(granted, [OpId(4)]);
        granted.clear();
        table.release(BAND, Hold::Shared, &mut granted);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_waiting_writer_can_be_joined_only_in_turn() {
        let mut table = LockTable::default();
        assert!(table.acquire(BAND, Hold::Alone, OpId(1)));
        table.acquire(BAND, Hold::Alone, OpId(2));
        table.acquire(BAND, Hold::Shared, OpId(3));
        assert_eq!(table.join_next(BAND, |_| false), None);
        assert_eq!(table.join_next(BAND, |_| true), Some(OpId(2)));
        assert_eq!(
            table.join_next(BAND, |_| true),
            None,
            "a reader is never joined"
        );
    }
}
