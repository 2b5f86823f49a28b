//! Virtual time, the drives, and what is under way on them.

use std::collections::BTreeMap;

use fastrand::Rng;
use strake_reactor::port::{Completion, DriveError, DriveOp};

use crate::drive::SimDrive;

/// An operation that has been submitted.
struct Pending {
    drive: usize,
    token: u64,
    op: DriveOp,
    promised: u64,
}

/// Everything that is not the program.
pub struct World {
    now_ns: u64,
    number: u64,
    pending: BTreeMap<(u64, u64), Pending>,
    /// Drives; a place is never reused.
    pub drives: Vec<SimDrive>,
    open: Vec<bool>,
    rng: Rng,
    hash: u64,
    /// Every latency is multiplied by this.
    pub slowness: u64,
    /// Operations ended.
    pub operations: u64,
    /// Every operation is printed.
    pub trace: bool,
}

impl World {
    /// An empty world at time zero.
    pub fn new(seed: u64) -> World {
        World {
            now_ns: 0,
            number: 0,
            pending: BTreeMap::new(),
            drives: Vec::new(),
            open: Vec::new(),
            rng: Rng::with_seed(seed),
            hash: 0xcbf2_9ce4_8422_2325,
            slowness: 1,
            operations: 0,
            trace: false,
        }
    }

    /// Puts a drive in; its number names it from now on.
    pub fn add_drive(&mut self, drive: SimDrive) -> usize {
        self.drives.push(drive);
        self.open.push(false);
        self.drives.len() - 1
    }

    /// Nanoseconds since the beginning.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Hash over everything that has happened.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Adds a fact to the hash.
    pub fn note(&mut self, fact: u64) {
        self.hash = (self.hash ^ fact)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(29);
    }

    /// Marks a drive as open; false when it is already.
    pub(crate) fn claim(&mut self, drive: usize) -> bool {
        !std::mem::replace(&mut self.open[drive], true)
    }

    /// Ends a claim. Nothing may be under way on the drive.
    pub(crate) fn release(&mut self, drive: usize) {
        assert!(
            self.pending.values().all(|p| p.drive != drive),
            "drive {drive} is closed while operations are under way on it"
        );
        assert!(
            std::mem::replace(&mut self.open[drive], false),
            "drive {drive} is closed twice"
        );
    }

    pub(crate) fn submit(&mut self, drive: usize, token: u64, op: DriveOp) {
        assert!(
            self.open[drive],
            "an operation for drive {drive}, which is not open"
        );
        let latency = self.latency_ns(&op);
        let promised = self.drives[drive].written();
        self.number += 1;
        let at = (self.now_ns + latency, self.number);
        if self.trace {
            eprintln!(
                "{:>12} submit drive {drive} {token:#x} {}",
                self.now_ns,
                describe(&op)
            );
        }
        self.pending.insert(
            at,
            Pending {
                drive,
                token,
                op,
                promised,
            },
        );
    }

    fn latency_ns(&mut self, op: &DriveOp) -> u64 {
        let slow = match self.rng.u8(..) {
            0 => 5_000_000,
            1..=15 => 300_000,
            _ => 10_000,
        };
        let bytes = match op {
            DriveOp::Read { into, .. } => into.len() as u64,
            DriveOp::Write { from, .. } => from.len() as u64,
            DriveOp::WriteZeroes { .. } | DriveOp::Discard { .. } => 100_000,
            DriveOp::Flush => 200_000,
        };
        (slow + self.rng.u64(..slow * 4) + bytes) * self.slowness
    }

    /// Ends what is due and reports it.
    pub(crate) fn poll(&mut self, completions: &mut Vec<Completion>) {
        while let Some(entry) = self.pending.first_entry() {
            if entry.key().0 > self.now_ns {
                return;
            }
            let Pending {
                drive,
                token,
                op,
                promised,
            } = entry.remove();
            let text = if self.trace {
                describe(&op)
            } else {
                String::new()
            };
            let result = self.drives[drive].execute(op, promised, &mut self.rng);
            self.operations += 1;
            self.note(self.now_ns);
            self.note(token);
            self.note((drive as u64) << 8 | error_code(result));
            if self.trace {
                eprintln!(
                    "{:>12} ended drive {drive} {token:#x} {text} {result:?}",
                    self.now_ns
                );
            }
            completions.push(Completion { token, result });
        }
    }

    /// When the next operation ends.
    pub fn next_ns(&self) -> Option<u64> {
        self.pending.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Operations under way.
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Moves time on to `at_ns`, if that is later.
    pub fn advance(&mut self, at_ns: u64) {
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// The program is gone: what was under way lands or not, all claims end. With `power`, caches
    /// are lost too. Operations give their memory back here.
    pub fn crash(&mut self, power: bool) {
        for (_, pending) in std::mem::take(&mut self.pending) {
            if self.drives[pending.drive].faults.dead.is_none() {
                self.drives[pending.drive].land_in_part(pending.op, &mut self.rng);
            }
        }
        self.open.fill(false);
        if power {
            for drive in &mut self.drives {
                drive.power_cut(&mut self.rng);
            }
        }
        self.note(u64::from(power) + 1);
    }

    /// What is under way, for a report.
    pub fn describe(&self) -> String {
        let mut out = format!(
            "time {} ns, {} operations under way",
            self.now_ns,
            self.pending.len()
        );
        for ((at, _), pending) in self.pending.iter().take(20) {
            out += &format!(
                "\n  drive {} token {:#x} until {at}: {}",
                pending.drive,
                pending.token,
                describe(&pending.op)
            );
        }
        out
    }
}

fn error_code(result: Result<(), DriveError>) -> u64 {
    match result {
        Ok(()) => 0,
        Err(DriveError::Io(_)) => 1,
        Err(DriveError::Short) => 2,
        Err(DriveError::Gone) => 3,
    }
}

fn describe(op: &DriveOp) -> String {
    match op {
        DriveOp::Read { offset, into } => format!("read {}+{}", offset, into.len()),
        DriveOp::Write {
            offset,
            from,
            durable,
        } => format!("write {}+{} durable {durable}", offset, from.len()),
        DriveOp::WriteZeroes { offset, length } => format!("zero {offset}+{length}"),
        DriveOp::Discard { offset, length } => format!("discard {offset}+{length}"),
        DriveOp::Flush => "flush".into(),
    }
}
