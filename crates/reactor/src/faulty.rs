//! Drives that fail on request: what a [`FaultPlan`] does to each operation.
//!
//! Decides only; ports carry the verdicts out. The same plan and the same operations give the
//! same verdicts (a fixed seed). A plan is kept for the drive's name, not for one opening of it:
//! a drive that died stays dead through a stop and a start, on every core, until healed.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use crate::drive::{DriveKind, DriveSpec, FaultPlan, OpenError};

/// What an operation wants, as far as faults care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// To read this range: offset and length in bytes.
    Read(u64, u64),
    /// To write this range.
    Write(u64, u64),
    /// To zero this range.
    Zero(u64, u64),
    /// Discard or flush.
    Other,
}

/// What becomes of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// As it should.
    Proceed,
    /// Fails with EIO, nothing done.
    Fail,
    /// Reported as done, nothing done.
    Lose,
    /// The first so many bytes (a multiple of 512) are written, then EIO.
    Tear(u64),
}

/// A faulty drive's memory of what it is to do.
#[derive(Debug)]
pub struct Faults {
    plan: FaultPlan,
    rng: fastrand::Rng,
}

const SEED: u64 = 0x5742_414b_455f_4641;

impl Faults {
    /// Starts a plan.
    pub fn new(plan: FaultPlan) -> Faults {
        Faults {
            plan,
            rng: fastrand::Rng::with_seed(SEED),
        }
    }

    /// What is still to come: bad ranges shrink as they are written, `die_after` counts down.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// Nanoseconds to add to an operation.
    pub fn latency_ns(&self) -> u64 {
        self.plan.latency_us.saturating_mul(1000)
    }

    /// Decides about the next operation, once for each.
    pub fn judge(&mut self, intent: Intent) -> Verdict {
        if let Some(left) = &mut self.plan.die_after {
            *left = left.saturating_sub(1);
            self.plan.dead |= *left == 0;
        }
        if self.plan.dead {
            return Verdict::Fail;
        }
        match intent {
            Intent::Read(offset, length) => self.judge_read(offset, length),
            Intent::Write(offset, length) => self.judge_write(offset, length),
            Intent::Zero(offset, length) => {
                self.repair(offset, length);
                Verdict::Proceed
            }
            Intent::Other => Verdict::Proceed,
        }
    }

    fn judge_read(&mut self, offset: u64, length: u64) -> Verdict {
        let bad = |&(start, len): &(u64, u64)| start < offset + length && offset < start + len;
        if self.plan.bad_ranges.iter().any(bad) || self.hit(self.plan.read_error_one_in) {
            return Verdict::Fail;
        }
        Verdict::Proceed
    }

    fn judge_write(&mut self, offset: u64, length: u64) -> Verdict {
        if self.hit(self.plan.write_error_one_in) {
            return Verdict::Fail;
        }
        if self.hit(self.plan.lost_write_one_in) {
            return Verdict::Lose;
        }
        if self.hit(self.plan.torn_write_one_in) {
            let done = length / 2 / 512 * 512;
            self.repair(offset, done);
            return Verdict::Tear(done);
        }
        self.repair(offset, length);
        Verdict::Proceed
    }

    fn hit(&mut self, one_in: Option<u64>) -> bool {
        one_in.is_some_and(|n| n > 0 && self.rng.u64(..n) == 0)
    }

    /// What was written can be read again: real drives remap on write.
    fn repair(&mut self, offset: u64, length: u64) {
        if self.plan.bad_ranges.is_empty() || length == 0 {
            return;
        }
        let end = offset + length;
        let rest = |&(start, len): &(u64, u64)| {
            let before = (start, offset.min(start + len).saturating_sub(start));
            let behind = (end.max(start), (start + len).saturating_sub(end.max(start)));
            [before, behind].into_iter().filter(|&(_, len)| len > 0)
        };
        self.plan.bad_ranges = self.plan.bad_ranges.iter().flat_map(rest).collect();
    }
}

/// A drive's faults, shared by all who opened it.
pub(crate) type Shared = Arc<Mutex<Faults>>;

static BY_NAME: LazyLock<Mutex<HashMap<String, Shared>>> = LazyLock::new(Mutex::default);

/// Tells the drive `spec` how to fail from now on, whether or not it is open; `None` heals it.
/// Fails with [`OpenError::BadSpec`] when the spec is not a `faulty:` one, or names memory without
/// a label: each opening of that is a drive of its own, told through its port.
pub fn set(spec: &DriveSpec, plan: Option<FaultPlan>) -> Result<(), OpenError> {
    *lock(&of(spec)?) = Faults::new(plan.unwrap_or_default());
    Ok(())
}

/// The plan of the drive `spec` as it stands now. Fails as [`set`] does.
pub fn get(spec: &DriveSpec) -> Result<FaultPlan, OpenError> {
    Ok(lock(&of(spec)?).plan().clone())
}

/// The faults of the drive that is being opened as `spec`, a `faulty:` one around `inner`.
pub(crate) fn of_opened(spec: &DriveSpec, inner: &DriveKind) -> Shared {
    if is_unnamed(inner) {
        return new_shared();
    }
    let mut by_name = BY_NAME.lock().expect("held for map operations only");
    let faults = by_name.entry(spec.0.clone());
    faults.or_insert_with(new_shared).clone()
}

fn of(spec: &DriveSpec) -> Result<Shared, OpenError> {
    let refuse = |reason: &str| OpenError::BadSpec {
        spec: spec.0.clone(),
        reason: reason.into(),
    };
    let kind = match spec.parse()? {
        DriveKind::Recorded { inner, .. } => *inner,
        kind => kind,
    };
    match kind {
        DriveKind::Faulty(inner) if is_unnamed(&inner) => {
            Err(refuse("cannot be told to fail by name; give it a label"))
        }
        DriveKind::Faulty(inner) => Ok(of_opened(spec, &inner)),
        _ => Err(refuse(
            "cannot be told to fail; name it faulty:SPEC where it is added",
        )),
    }
}

fn is_unnamed(kind: &DriveKind) -> bool {
    match kind {
        DriveKind::Memory { label, .. }
        | DriveKind::Null { label, .. }
        | DriveKind::Paced { label, .. } => label.is_none(),
        DriveKind::Path(_) | DriveKind::Faulty(_) | DriveKind::Recorded { .. } => false,
    }
}

fn new_shared() -> Shared {
    Arc::new(Mutex::new(Faults::new(FaultPlan::default())))
}

pub(crate) fn lock(faults: &Shared) -> MutexGuard<'_, Faults> {
    faults.lock().expect("judging does not panic")
}
