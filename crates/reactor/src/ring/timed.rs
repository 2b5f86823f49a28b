//! What waits for its time: a queue ordered by when each is due, equal times in order of arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Things by their due time.
pub(super) struct Timed<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    pushed: u64,
}

struct Entry<T> {
    due_ns: u64,
    number: u64,
    thing: T,
}

impl<T> Default for Timed<T> {
    fn default() -> Timed<T> {
        Timed {
            heap: BinaryHeap::new(),
            pushed: 0,
        }
    }
}

impl<T> Timed<T> {
    pub(super) fn push(&mut self, due_ns: u64, thing: T) {
        self.pushed += 1;
        self.heap.push(Reverse(Entry {
            due_ns,
            number: self.pushed,
            thing,
        }));
    }

    /// The next thing that is due by now.
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<T> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry.thing)
    }

    /// When the next thing is due.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.due_ns)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
    }
}

impl<T> Entry<T> {
    fn key(&self) -> (u64, u64) {
        (self.due_ns, self.number)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
