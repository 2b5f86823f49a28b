//! The exhaustive part of the proof: every crash of small cases, every landing, every further loss.
//!
//! A case is run once; at each of its events (the end of a drive's operation) the drives with their
//! caches, what is under way on them, and the model are kept, which costs little because images
//! share their pages. From each of these moments every subset of the writes in doubt lands, every
//! further loss that the level allows comes, the array is started and every block compared. Equal
//! outcomes are tried once. For some of them the start itself is crashed at each of its events.
//!
//! Where a moment has more writes in doubt than [`Limits::landings_all`] the subsets are a sample,
//! always the same, and counted as one; so are further losses after three writes to three parities,
//! and after a start that was crashed ([`Limits::losses_sampled`]).

mod scripts;
mod symmetry;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use strake_engine::array::Command;
use strake_engine::block::Operation;
use strake_engine::format::areas::Areas;
use strake_engine::layout::MemberIndex;

use crate::drive::{Landing, SimDrive};
use crate::image::mix;
use crate::rig::{Moment, Outcome, Rig};
use crate::runner;

pub use scripts::{Case, Extent, Link, Write, cases};
use symmetry::Symmetry;

/// How far a case is followed.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Writes in doubt up to which every subset lands.
    pub landings_all: u32,
    /// Subsets where there are more.
    pub landings_sampled: u64,
    /// Losses after each of those of three writes to a shape with three parities, besides none:
    /// there they are up to 63. (After a crash of a start: one.)
    pub losses_sampled: usize,
    /// Of so many outcomes one has its start crashed as well (0: none).
    pub again_every: u64,
    /// Of so many cases one is tried.
    pub case_every: usize,
    /// Of the groups of cases that begin alike, those whose number has this remainder by this
    /// divisor are tried: the whole set can be done in parts.
    pub part: (usize, usize),
    /// Of these, those from this one on: to go on where it was left off.
    pub first_group: usize,
    /// No case is begun after this.
    pub time: Option<Duration>,
    /// Failures after which no case is begun.
    pub failures_max: usize,
}

impl Limits {
    /// For a set.
    pub fn of(extent: Extent) -> Limits {
        match extent {
            Extent::Small => Limits {
                landings_all: 4,
                landings_sampled: 12,
                losses_sampled: 3,
                again_every: 61,
                case_every: 601,
                part: (0, 1),
                first_group: 0,
                time: None,
                failures_max: 5,
            },
            Extent::Whole => Limits {
                landings_all: 8,
                landings_sampled: 64,
                losses_sampled: 3,
                again_every: 1_499,
                case_every: 1,
                part: (0, 1),
                first_group: 0,
                time: None,
                failures_max: 20,
            },
        }
    }
}

/// What was explored.
#[derive(Debug, Default)]
pub struct Explored {
    /// Cases.
    pub cases: u64,
    /// Cases that were to be tried: fewer are, when time is up or too much has failed.
    pub chosen: u64,
    /// Cases of the set, tried or not.
    pub cases_all: u64,
    /// Events at which a crash was tried.
    pub moments: u64,
    /// Moments of which a sample of the landings was tried.
    pub sampled: u64,
    /// Landings of which a sample of the further losses was tried.
    pub losses_sampled: u64,
    /// Outcomes started and compared, no two equal ones of a case.
    pub states: u64,
    /// Outcomes left out as equal to one before.
    pub equal: u64,
    /// Starts that were crashed.
    pub again: u64,
    /// Blocks found torn, where that is allowed.
    pub torn: u64,
    /// Real time.
    pub time: Duration,
    /// What failed, with the case.
    pub failures: Vec<String>,
}

impl Explored {
    /// Every case that was to be tried was.
    pub fn is_complete(&self) -> bool {
        self.cases == self.chosen
    }

    fn join(&mut self, other: Explored) {
        self.cases += other.cases;
        self.moments += other.moments;
        self.sampled += other.sampled;
        self.losses_sampled += other.losses_sampled;
        self.states += other.states;
        self.equal += other.equal;
        self.again += other.again;
        self.torn += other.torn;
        self.failures.extend(other.failures);
    }
}

impl std::fmt::Display for Explored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for failure in &self.failures {
            writeln!(f, "{failure}\n")?;
        }
        write!(
            f,
            "{} of {} cases, {} crash moments ({} of them with a sample of the landings; {} landings with a sample of the losses), {} states explored ({} more were equal), {} starts crashed again, {} torn blocks, {:.0} s, {} failures",
            self.cases,
            self.cases_all,
            self.moments,
            self.sampled,
            self.losses_sampled,
            self.states,
            self.equal,
            self.again,
            self.torn,
            self.time.as_secs_f64(),
            self.failures.len()
        )?;
        if !self.is_complete() {
            write!(f, ", INCOMPLETE: {} cases were to be tried", self.chosen)?;
        }
        Ok(())
    }
}

/// Explores every `limits.case_every`-th case on so many threads. `prepare` is called on each.
pub fn explore(
    extent: Extent,
    limits: Limits,
    threads: usize,
    prepare: impl Fn() + Sync,
) -> Explored {
    let began = Instant::now();
    let all = cases(extent);
    let chosen: Vec<&Case> = all.iter().step_by(limits.case_every.max(1)).collect();
    // Cases that begin alike share what has been seen: their outcomes are often the same.
    let groups = chosen.chunk_by(|one, other| one.seed == other.seed);
    let (part, parts) = limits.part;
    let groups = groups.skip(part).step_by(parts.max(1));
    let groups: Vec<&[&Case]> = groups.skip(limits.first_group).collect();
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Explored::default());
    let failed = AtomicUsize::new(0);
    let work = || {
        prepare();
        let on = || {
            failed.load(Ordering::Relaxed) < limits.failures_max
                && limits.time.is_none_or(|time| began.elapsed() < time)
        };
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(group) = groups.get(number) else {
                break;
            };
            let (began, mut seen, mut of_group) =
                (Instant::now(), HashSet::new(), Explored::default());
            for case in group.iter().take_while(|_| on()) {
                let explored = one(case, &limits, &mut seen);
                failed.fetch_add(explored.failures.len(), Ordering::Relaxed);
                of_group.join(explored);
            }
            of_group.time = began.elapsed();
            of_group.cases_all = group.len() as u64;
            of_group.chosen = of_group.cases_all;
            if extent != Extent::Small {
                let (number, all) = (number + 1, groups.len());
                println!("group {number} of {all}: {}: {of_group}", group[0].begins());
            }
            total.lock().expect("joining does not panic").join(of_group);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut total = total.into_inner().expect("all threads have ended");
    total.chosen = groups.iter().map(|group| group.len() as u64).sum();
    total.cases_all = all.len() as u64;
    total.time = began.elapsed();
    total
}

/// Explores one case. `seen`: outcomes of cases that begin alike (same setup, losses and seed).
pub fn one(case: &Case, limits: &Limits, seen: &mut HashSet<u64>) -> Explored {
    let mut explorer = Explorer {
        case,
        limits,
        seen,
        symmetry: Symmetry::of(case),
        out: Explored {
            cases: 1,
            ..Explored::default()
        },
        outcome: String::new(),
    };
    if let Err(why) = runner::guarded(|| explorer.all()) {
        explorer.out.failures.push(format!(
            "{why}\n  {}\n  {}\n  script {:?}",
            explorer.outcome,
            case.begins(),
            case.script
        ));
    }
    explorer.out
}

struct Explorer<'a> {
    case: &'a Case,
    limits: &'a Limits,
    seen: &'a mut HashSet<u64>,
    symmetry: Symmetry,
    out: Explored,
    /// What is being tried, for a report.
    outcome: String,
}

impl Explorer<'_> {
    fn all(&mut self) -> Outcome {
        let mut rig = Rig::new(self.case.setup, self.case.seed)?;
        self.prepare(&mut rig)?;
        let base: Vec<SimDrive> = rig.world.borrow().drives.clone();
        let (moments, from) = self.run_script(&mut rig)?;
        drop(rig);
        for (number, moment) in moments.iter().enumerate() {
            self.symmetry.count(moment, &base);
            if number < from {
                continue;
            }
            self.moment(moment, &base, &format!("crash at event {number}"), true)?;
        }
        Ok(())
    }

    /// Both rows hold something durable, and members are missing.
    fn prepare(&self, rig: &mut Rig) -> Outcome {
        let data = u64::from(self.case.setup.shape.data);
        rig.submit(Operation::Write, 0..2 * data, true);
        rig.flush();
        rig.quiesce()?;
        for &place in &self.case.missing {
            rig.do_command(Command::Fail {
                member: MemberIndex(place as u16),
                force: false,
            })?;
        }
        rig.verify()
    }

    /// Runs the writes; a moment for each event, and which of them are new: those before the last
    /// write are what a shorter script has had.
    fn run_script(&self, rig: &mut Rig) -> Outcome<(Vec<Moment>, usize)> {
        let data = u64::from(self.case.setup.shape.data);
        let mut moments = Vec::new();
        let mut from = 0;
        for write in &self.case.script {
            if write.link != Link::Beside {
                record_until_idle(rig, &mut moments)?;
            }
            from = moments.len();
            if write.link == Link::Flushed {
                rig.flush();
                record_until_idle(rig, &mut moments)?;
            }
            let start = write.row * data + write.strip;
            rig.submit(Operation::Write, start..start + write.count, write.durable);
        }
        record_until_idle(rig, &mut moments)?;
        // Whatever follows a write: retirement, and then rest.
        for _ in 0..4 {
            if !rig.step(u64::MAX)? {
                break;
            }
            moments.push(rig.moment());
        }
        Ok((moments, from))
    }

    fn moment(&mut self, moment: &Moment, base: &[SimDrive], text: &str, first: bool) -> Outcome {
        self.out.moments += 1;
        let doubtful = moment.snapshot.doubtful(true) as u32;
        let all = doubtful <= self.limits.landings_all;
        self.out.sampled += u64::from(!all);
        let landings = if all {
            1 << doubtful
        } else {
            self.limits.landings_sampled
        };
        let may_lose = moment.may_lose(self.case.setup.shape);
        for landing in 0..landings {
            // The sample has all, nothing, and then any.
            let bits = match landing {
                _ if all => landing,
                0 => 0,
                1 => u64::MAX,
                other => other.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.case.seed,
            };
            let inside = self.case.setup.sector_bytes < self.case.setup.shape.block_size_bytes;
            let drives = moment.snapshot.crashed(true, |index| {
                let half = inside && (index as u64 + landing).is_multiple_of(3);
                match bits.rotate_right(index as u32 % 64) & 1 {
                    1 if half && landing % 2 == 0 => Landing::FirstHalf,
                    1 if half => Landing::SecondHalf,
                    1 => Landing::All,
                    _ => Landing::Nothing,
                }
            });
            let hashes = Hashes::of(&drives, base, self.case.setup.sizes.areas());
            let described = self.symmetry.describe_all(&drives, base);
            // Equal before any loss, equal after it.
            let hash = self.hash(moment, &hashes, &[], first);
            let known = !self.seen.insert(hash ^ moment.live_bits())
                || first && !self.symmetry.insert(moment, &described, &[]);
            if known {
                self.out.equal += 1;
                continue;
            }
            for (number, lose) in self.tried(&may_lose, hash, first) {
                let hash = self.hash(moment, &hashes, lose, first);
                let new = self.seen.insert(hash)
                    && (!first || number == 0 || self.symmetry.insert(moment, &described, lose));
                if !new {
                    self.out.equal += 1;
                    continue;
                }
                self.outcome =
                    format!("{text}, landing {bits:#x} of {doubtful}, then lost {lose:?}");
                self.one_outcome(moment, (&drives, hash), base, lose, first)?;
            }
        }
        Ok(())
    }

    /// The losses that are tried, with their numbers: none is the first. All of them, or so many
    /// that the outcome chooses: see [`Limits::losses_sampled`].
    fn tried<'l>(
        &mut self,
        all: &'l [Vec<usize>],
        outcome: u64,
        first: bool,
    ) -> impl Iterator<Item = (usize, &'l Vec<usize>)> + use<'l> {
        let wide = self.case.setup.shape.parity > 2 && self.case.script.len() > 2;
        let most = match first {
            true if wide => self.limits.losses_sampled,
            true => all.len(),
            false => 1,
        };
        let sampled = most + 1 < all.len();
        self.out.losses_sampled += u64::from(sampled);
        let mut chosen = vec![0];
        for number in (0..).take_while(|_| sampled) {
            let mut hash = outcome;
            mix(&mut hash, number);
            let at = 1 + (hash % (all.len() as u64 - 1)) as usize;
            if !chosen.contains(&at) {
                chosen.push(at);
            }
            if chosen.len() > most {
                break;
            }
        }
        let all = all.iter().enumerate();
        all.filter(move |(at, _)| !sampled || chosen.contains(at))
    }

    /// What an outcome is told apart by. Of a drive that is lost only the superblocks count: who
    /// may be lost depends on them, and nothing else of it is ever read again.
    fn hash(&self, moment: &Moment, hashes: &[Hashes], lose: &[usize], first: bool) -> u64 {
        let mut hash = u64::from(first);
        let lost: Vec<usize> = lose
            .iter()
            .filter_map(|&place| moment.drive(place))
            .collect();
        for (drive, hashes) in hashes.iter().enumerate() {
            if lost.contains(&drive) {
                mix(&mut hash, !(drive as u64));
                mix(&mut hash, hashes.superblocks);
            } else {
                mix(&mut hash, hashes.all);
            }
        }
        moment.model.hash_into(&mut hash);
        hash
    }

    fn one_outcome(
        &mut self,
        moment: &Moment,
        (drives, hash): (&[SimDrive], u64),
        base: &[SimDrive],
        lose: &[usize],
        first: bool,
    ) -> Outcome {
        self.out.states += 1;
        let mut rig = Rig::resume(self.case.setup, drives.to_vec(), moment, hash)?;
        rig.after_crash(lose, moment, true);
        rig.start()?;
        if first && self.limits.again_every > 0 && hash % self.limits.again_every == 0 {
            return self.crash_again(rig, base);
        }
        rig.verify()?;
        self.out.torn += rig.torn;
        if hash.is_multiple_of(4) {
            lose_one_more(&mut rig)?;
        }
        Ok(())
    }

    /// The start is crashed at each of its events.
    fn crash_again(&mut self, mut rig: Rig, base: &[SimDrive]) -> Outcome {
        self.out.again += 1;
        let text = self.outcome.clone();
        let mut moments = Vec::new();
        rig.submit(Operation::Read, 0..1, false);
        record_until_idle(&mut rig, &mut moments)?;
        drop(rig);
        for (number, moment) in moments.iter().enumerate() {
            let text = format!("{text}; again at event {number} of the start");
            self.moment(moment, base, &text, false)?;
        }
        Ok(())
    }
}

/// What a drive holds, where it differs from what it held before the script.
struct Hashes {
    all: u64,
    superblocks: u64,
}

impl Hashes {
    fn of(drives: &[SimDrive], base: &[SimDrive], areas: Areas) -> Vec<Hashes> {
        let copies = [areas.superblock_a, areas.superblock_b];
        let pairs = drives.iter().zip(base);
        pairs
            .map(|(drive, base)| {
                let mut hashes = Hashes {
                    all: 0,
                    superblocks: 0,
                };
                let (image, base) = (drive.image(), base.image());
                image.hash_against(base, &mut hashes.all);
                for copy in copies {
                    let range = copy.offset..copy.end();
                    image.hash_range_against(base, range, &mut hashes.superblocks);
                }
                hashes
            })
            .collect()
    }
}

/// Parity must be true for every member that is still there.
pub(crate) fn lose_one_more(rig: &mut Rig) -> Outcome {
    let left = rig.look(|array| array.redundancy_left());
    let resync = rig.look(|array| array.region_counts()[3]) > 0;
    if resync || left.is_none_or(|left| left == 0) {
        return Ok(());
    }
    let live: Vec<usize> = rig.look(|array| {
        let members = array.members().iter().enumerate();
        members
            .filter(|(_, m)| m.is_live())
            .map(|(place, _)| place)
            .collect()
    });
    let place = live[(rig.now_ns() % live.len() as u64) as usize];
    rig.do_command(Command::Fail {
        member: MemberIndex(place as u16),
        force: false,
    })?;
    rig.verify()
        .map_err(|why| format!("without member {place}, dropped after the start: {why}"))
}

/// Lets every request end; a moment for each event.
fn record_until_idle(rig: &mut Rig, moments: &mut Vec<Moment>) -> Outcome {
    const EVENTS_MAX: usize = 3000;
    while rig.under_way() > 0 {
        let more = rig.step(u64::MAX)?;
        // The last answer may come when nothing else is to come.
        if moments.len() > EVENTS_MAX || !more && rig.under_way() > 0 {
            return Err(format!("requests do not end: {}", rig.describe()));
        }
        moments.push(rig.moment());
    }
    Ok(())
}
