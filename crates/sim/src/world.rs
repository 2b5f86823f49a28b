//! Virtual time, the drives, and what is under way on them.
//!
//! Several cores may share a world: each has a port of its own, and completions come back on the
//! port that submitted.

use std::collections::BTreeMap;

use fastrand::Rng;
use strake_reactor::port::{Completion, DriveError, DriveOp};

use crate::drive::{Landing, Loose, SimDrive, content_of};
use crate::image::Image;

/// An operation that has been submitted.
struct Pending {
    port: usize,
    drive: usize,
    token: u64,
    op: DriveOp,
    promised: u64,
}

/// Everything that is not the program.
pub struct World {
    seed: u64,
    now_ns: u64,
    number: u64,
    pending: BTreeMap<(u64, u64), Pending>,
    /// Operations that never end.
    hung: Vec<Pending>,
    /// By port: what has ended and was not reaped yet.
    ready: Vec<Vec<Completion>>,
    /// Drives; a place is never reused.
    pub drives: Vec<SimDrive>,
    /// By drive: ports that have it open.
    open: Vec<u32>,
    rng: Rng,
    hash: u64,
    /// Every latency is multiplied by this.
    pub slowness: u64,
    /// Latencies differ as little as possible: operations end in the order of their submission.
    pub orderly: bool,
    /// Operations ended.
    pub operations: u64,
    /// Every operation is printed.
    pub trace: bool,
}

/// The drives at one moment, with what is under way on each: all that a crash leaves to chance.
#[derive(Clone)]
pub struct Snapshot {
    /// Drives.
    pub drives: Vec<SimDrive>,
    /// Writes under way: drive and write, in the order of their submission.
    pub in_flight: Vec<(usize, Loose)>,
}

impl Snapshot {
    /// Writes of which a part may land: under way, and in volatile caches if the power goes.
    pub fn doubtful(&self, power: bool) -> usize {
        let cached = self.drives.iter().flat_map(|drive| drive.loose());
        let cached = cached.filter(|loose| !loose.durable).count();
        self.in_flight.len() + if power { cached } else { 0 }
    }

    /// The drives after a crash in which of each doubtful write (caches first, by drive) so much
    /// landed.
    pub fn crashed(&self, power: bool, landing: impl Fn(usize) -> Landing) -> Vec<SimDrive> {
        let mut drives = self.drives.clone();
        let mut next = 0;
        let mut cached: Vec<Vec<Landing>> = Vec::new();
        for drive in &drives {
            let mut landings = Vec::new();
            for loose in drive.loose() {
                landings.push(if loose.durable || !power {
                    Landing::All
                } else {
                    next += 1;
                    landing(next - 1)
                });
            }
            cached.push(landings);
        }
        for (drive, write) in &self.in_flight {
            let drive = &mut drives[*drive];
            if drive.faults.dead.is_none() {
                drive.land(write.offset, &write.content, landing(next));
            }
            next += 1;
        }
        for (drive, landings) in drives.iter_mut().zip(cached) {
            drive.faults.hangs_after = None;
            if power {
                // What landed from under way was decided above: it is on the media.
                drive.power_cut_as(|index| landings.get(index).copied().unwrap_or(Landing::All));
            }
        }
        drives
    }
}

impl World {
    /// An empty world at time zero.
    pub fn new(seed: u64) -> World {
        World {
            seed,
            now_ns: 0,
            number: 0,
            pending: BTreeMap::new(),
            hung: Vec::new(),
            ready: Vec::new(),
            drives: Vec::new(),
            open: Vec::new(),
            rng: Rng::with_seed(seed),
            hash: 0xcbf2_9ce4_8422_2325,
            slowness: 1,
            orderly: false,
            operations: 0,
            trace: false,
        }
    }

    /// Puts a drive in; its number names it from now on.
    pub fn add_drive(&mut self, drive: SimDrive) -> usize {
        self.drives.push(drive);
        self.open.push(0);
        self.drives.len() - 1
    }

    /// A port for one more core.
    pub(crate) fn add_port(&mut self) -> usize {
        self.ready.push(Vec::new());
        self.ready.len() - 1
    }

    /// Nanoseconds since the beginning.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// A number that differs from run to run and from moment to moment, for choices that are not
    /// the drives'.
    pub(crate) fn seed(&self) -> u64 {
        self.seed ^ self.hash
    }

    /// Hash over everything that has happened, and over what the drives hold.
    pub fn hash(&self) -> u64 {
        let mut hash = self.hash;
        for drive in &self.drives {
            let image = drive.image();
            image.hash_against(&Image::new(drive.size_bytes()), &mut hash);
        }
        hash
    }

    /// Adds a fact to the hash.
    pub fn note(&mut self, fact: u64) {
        self.hash = (self.hash ^ fact)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(29);
    }

    /// Opens a drive for a port; false when that port has it open already, or when none has it
    /// open and it is only to be read: another core's array lends it.
    pub(crate) fn claim(&mut self, port: usize, drive: usize, read_only: bool) -> bool {
        let ours = 1 << port;
        let open = self.open[drive];
        let may = open & ours == 0 && (open == 0 || read_only);
        self.open[drive] |= if may { ours } else { 0 };
        may
    }

    /// Ends a claim. Nothing of this port may be under way on the drive.
    pub(crate) fn release(&mut self, port: usize, drive: usize) {
        let mut under_way = self.pending.values();
        assert!(
            under_way.all(|p| p.drive != drive || p.port != port),
            "drive {drive} is closed while operations are under way on it"
        );
        let ours = 1 << port;
        assert!(
            self.open[drive] & ours != 0,
            "drive {drive} is closed twice"
        );
        self.open[drive] &= !ours;
    }

    pub(crate) fn submit(&mut self, port: usize, drive: usize, token: u64, op: DriveOp) {
        assert!(
            self.open[drive] >> port & 1 == 1,
            "an operation for drive {drive}, which is not open"
        );
        let faults = &self.drives[drive].faults;
        // The worst of what slows it: together they would keep a superblock for minutes.
        let mut slowness = faults.slowness.max(self.slowness);
        if matches!(op, DriveOp::Read { .. }) {
            slowness = slowness.max(faults.slow_reads);
        }
        if faults.is_slow(&op) {
            slowness = slowness.max(faults.slow_range.as_ref().map_or(1, |(_, factor)| *factor));
        }
        let latency = self.latency_ns(&op) * slowness;
        self.number += 1;
        let at = (self.now_ns + latency, self.number);
        if self.trace {
            eprintln!(
                "{:>12} submit drive {drive} {token:#x} {}",
                self.now_ns,
                describe(&op)
            );
        }
        let pending = Pending {
            port,
            drive,
            token,
            op,
            promised: self.drives[drive].written(),
        };
        if self.drives[drive].hangs() {
            self.hung.push(pending);
        } else {
            self.pending.insert(at, pending);
        }
    }

    fn latency_ns(&mut self, op: &DriveOp) -> u64 {
        if self.orderly {
            return 1000;
        }
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
        slow + self.rng.u64(..slow * 4) + bytes
    }

    /// Ends what is due and reports what is this port's.
    pub(crate) fn poll(&mut self, port: usize, completions: &mut Vec<Completion>) {
        while let Some(entry) = self.pending.first_entry() {
            if entry.key().0 > self.now_ns {
                break;
            }
            let pending = entry.remove();
            self.end(pending);
        }
        completions.append(&mut self.ready[port]);
    }

    fn end(&mut self, pending: Pending) {
        let Pending {
            port,
            drive,
            token,
            op,
            promised,
        } = pending;
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
        self.ready[port].push(Completion { token, result });
    }

    /// When the next operation ends.
    pub fn next_ns(&self) -> Option<u64> {
        self.pending.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Operations under way.
    pub fn under_way(&self) -> usize {
        self.pending.len() + self.hung.len()
    }

    /// Operations that will never end.
    pub fn hung(&self) -> usize {
        self.hung.len()
    }

    /// Moves time on to `at_ns`, if that is later.
    pub fn advance(&mut self, at_ns: u64) {
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// What a crash at this moment would leave to chance.
    pub fn snapshot(&self) -> Snapshot {
        let pending = self.pending.values().chain(&self.hung);
        let mut writes: Vec<_> = pending
            .filter_map(|pending| {
                let (offset, content, _) = content_of(&pending.op)?;
                let loose = Loose {
                    number: pending.promised,
                    offset,
                    content,
                    durable: false,
                };
                Some((pending.drive, loose))
            })
            .collect();
        writes.sort_by_key(|(drive, loose)| (*drive, loose.number));
        Snapshot {
            drives: self.drives.clone(),
            in_flight: writes,
        }
    }

    /// The program is gone: what was under way lands or not, all claims end. With `power`, caches
    /// are lost too. Operations give their memory back here.
    pub fn crash(&mut self, power: bool) {
        let mut pending = std::mem::take(&mut self.pending);
        let hung = std::mem::take(&mut self.hung);
        // Writes that are slow by their place may all have waited. (Not drawn: what lands of others
        // in plans that are kept stays what it was.)
        let waited = self.number.is_multiple_of(2);
        for pending in hung.into_iter().chain(std::iter::from_fn(|| {
            pending.pop_first().map(|(_, pending)| pending)
        })) {
            let faults = &self.drives[pending.drive].faults;
            if faults.dead.is_none() && !(waited && faults.is_slow(&pending.op)) {
                self.drives[pending.drive].land_in_part(pending.op, &mut self.rng);
            }
        }
        self.open.fill(0);
        self.forget_ports();
        for drive in &mut self.drives {
            drive.faults.hangs_after = None;
            if power {
                drive.power_cut(&mut self.rng);
            }
        }
        self.note(u64::from(power) + 1);
    }

    /// The ports went with the program; those of the next one are numbered anew.
    fn forget_ports(&mut self) {
        self.ready.clear();
    }

    /// What is under way, for a report.
    pub fn describe(&self) -> String {
        let mut out = format!(
            "time {} ns, {} operations under way",
            self.now_ns,
            self.under_way()
        );
        for ((at, _), pending) in self.pending.iter().take(20) {
            out += &format!(
                "\n  drive {} token {:#x} until {at}: {}",
                pending.drive,
                pending.token,
                describe(&pending.op)
            );
        }
        for pending in self.hung.iter().take(5) {
            out += &format!(
                "\n  drive {} hangs: {}",
                pending.drive,
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
