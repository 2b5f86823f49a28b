//! Memory drives that keep a real drive's pace, so that shares of what drives allow can be measured
//! where none is.
//!
//! Content changes when an operation is handed over; the drive's [`Pace`] says when its end may be
//! told. Every core that opened the drive shares the one timeline.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use super::memory::Memory;
use super::pace::{Pace, PaceKind, PaceModel, PaceUse};
use super::{DriveKind, DriveSpec, OpenError};
use crate::port::DriveOp;

/// One paced drive.
pub(crate) struct Paced {
    pub(crate) memory: Memory,
    size_bytes: u64,
    model: PaceModel,
    pace: Mutex<Pace>,
}

/// As memory drives: labelled ones live until the process ends.
static LABELLED: LazyLock<Mutex<HashMap<String, Arc<Paced>>>> = LazyLock::new(Mutex::default);

/// The drive of this label, made on first use; without a label a new one.
/// Fails when the label exists with another size or model.
pub(crate) fn open(
    spec: &DriveSpec,
    model: PaceModel,
    size_bytes: u64,
    label: Option<&str>,
) -> Result<Arc<Paced>, OpenError> {
    let new = || {
        Arc::new(Paced {
            memory: Memory::new(size_bytes),
            size_bytes,
            model,
            pace: Mutex::new(Pace::new(model)),
        })
    };
    let Some(label) = label else {
        return Ok(new());
    };
    let mut labelled = LABELLED.lock().expect("held for map operations only");
    let paced = labelled.entry(label.to_owned()).or_insert_with(new);
    if (paced.size_bytes, paced.model) != (size_bytes, model) {
        return Err(OpenError::BadSpec {
            spec: spec.0.clone(),
            reason: format!(
                "paced drive {label:?} exists as {} with {} bytes; give that model and size, or \
                 another label",
                paced.model, paced.size_bytes
            ),
        });
    }
    Ok(paced.clone())
}

/// What was asked so far of the labelled paced drive `spec`, by every core that opened it; `None`
/// for any other drive and for one that was never opened.
pub fn pace_use(spec: &DriveSpec) -> Option<PaceUse> {
    let mut kind = spec.parse().ok()?;
    while let DriveKind::Faulty(inner) | DriveKind::Recorded { inner, .. } = kind {
        kind = *inner;
    }
    let DriveKind::Paced {
        label: Some(label), ..
    } = kind
    else {
        return None;
    };
    let labelled = LABELLED.lock().expect("held for map operations only");
    let paced = labelled.get(&label)?.clone();
    drop(labelled);
    let pace = paced.pace.lock().expect("arithmetic does not panic");
    Some(pace.used())
}

impl Paced {
    /// Takes the operation into the timeline; says when its end is due.
    pub(crate) fn admit(&self, now_ns: u64, op: &DriveOp) -> u64 {
        let (kind, offset, bytes) = match op {
            DriveOp::Read { offset, into } => (PaceKind::Read, *offset, into.len() as u64),
            DriveOp::Write { offset, from, .. } => (PaceKind::Write, *offset, from.len() as u64),
            DriveOp::WriteZeroes { offset, length } | DriveOp::Discard { offset, length } => {
                (PaceKind::Unmap, *offset, *length)
            }
            DriveOp::Flush => (PaceKind::Flush, 0, 0),
        };
        let mut pace = self.pace.lock().expect("arithmetic does not panic");
        pace.admit(now_ns, kind, offset, bytes)
    }
}
