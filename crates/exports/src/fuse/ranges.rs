//! Who may write which bytes of one file right now.
//!
//! Writes of whole blocks share: the device orders them. A write of part of a block is a read
//! and a write of the whole block, and a write of the same block between the two would be
//! undone; so it holds its blocks exclusively. Nobody blocks a thread: who has to wait leaves a
//! continuation. First come, first served among those that overlap, so nobody starves.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Called with the lock once it is held.
type Then = Box<dyn FnOnce(RangeGuard) + Send>;

/// The locks of one file.
#[derive(Default)]
pub(super) struct RangeLocks {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_id: u64,
    held: Vec<Claim>,
    waiting: VecDeque<(Claim, Then)>,
}

#[derive(Debug, Clone)]
struct Claim {
    id: u64,
    range: Range<u64>,
    exclusive: bool,
}

impl Claim {
    fn conflicts(&self, other: &Claim) -> bool {
        (self.exclusive || other.exclusive)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

/// A held range; dropping it lets the next ones in, on this thread.
pub(super) struct RangeGuard {
    locks: Arc<RangeLocks>,
    id: u64,
}

impl RangeLocks {
    /// Calls `then` with the lock on `range`: now, or when those before it have let go.
    pub(super) fn lock(
        self: &Arc<RangeLocks>,
        range: Range<u64>,
        exclusive: bool,
        then: impl FnOnce(RangeGuard) + Send + 'static,
    ) {
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        let claim = Claim {
            id,
            range,
            exclusive,
        };
        let waits = state.held.iter().any(|held| held.conflicts(&claim))
            || state
                .waiting
                .iter()
                .any(|(before, _)| before.conflicts(&claim));
        if waits {
            state.waiting.push_back((claim, Box::new(then)));
            return;
        }
        state.held.push(claim);
        drop(state);
        then(self.guard(id));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guard(self: &Arc<RangeLocks>, id: u64) -> RangeGuard {
        RangeGuard {
            locks: Arc::clone(self),
            id,
        }
    }
}

impl State {
    fn release(&mut self, id: u64) -> Vec<(u64, Then)> {
        let at = self.held.iter().position(|held| held.id == id);
        self.held.swap_remove(at.expect("a guard's range is held"));
        let mut admitted = Vec::new();
        let mut still = VecDeque::new();
        for (claim, then) in self.waiting.drain(..) {
            let waits = self.held.iter().any(|held| held.conflicts(&claim))
                || still
                    .iter()
                    .any(|(before, _): &(Claim, Then)| before.conflicts(&claim));
            if waits {
                still.push_back((claim, then));
            } else {
                admitted.push((claim.id, then));
                self.held.push(claim);
            }
        }
        self.waiting = still;
        admitted
    }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        let admitted = self.locks.state().release(self.id);
        for (id, then) in admitted {
            then(self.locks.guard(id));
        }
    }
}
