//! One random run: clients, failures, repairs, stops and crashes from one seed.
//!
//! Losses stay within what the level survives, so no request may fail; some runs go beyond that,
//! and then a request may fail but no block may hold what it must not.

use std::ops::Range;

use fastrand::Rng;
use strake_engine::array::Command;
use strake_engine::block::Operation;
use strake_engine::format::superblock::MemberState;
use strake_engine::layout::{Level, MemberIndex};
use strake_reactor::port::DriveError;

use crate::drive::{Discarded, Faults};
use crate::geometries;
use crate::patterns;
use crate::rig::{Outcome, Rig, Setup};

/// Requests of one run.
const REQUESTS: std::ops::RangeInclusive<u32> = 40..=300;

/// What a run was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Hash of everything that happened.
    pub hash: u64,
    /// Requests answered.
    pub requests: u64,
    /// Operations on drives.
    pub operations: u64,
    /// Virtual nanoseconds.
    pub virtual_ns: u64,
}

/// A command that has not been answered.
struct Waiting {
    id: u64,
    text: String,
    /// It may be refused: the state may have changed meanwhile.
    may_fail: bool,
}

struct Run {
    rng: Rng,
    rig: Rig,
    depth: usize,
    hot: u64,
    beyond: bool,
    /// Reads have been made to fail: one that is being answered from redundancy counts on every
    /// other member, also when its block has been healed meanwhile.
    reads_hurt: bool,
    waiting: Vec<Waiting>,
    log: Vec<String>,
}

/// What seed `seed` makes an array of.
pub fn setup(seed: u64, level: Option<Level>) -> (Setup, String) {
    let mut rng = Rng::with_seed(seed);
    let shape = geometries::random(&mut rng, level);
    let setup = Setup {
        shape,
        drive_bytes: patterns::drive_bytes(&shape) + (rng.u64(0..3) << 20),
        volatile: rng.bool(),
        slowness: if rng.u8(..5) == 0 {
            rng.u64(20..300)
        } else {
            1
        },
        discarded: [Discarded::Old, Discarded::Zeroes, Discarded::Garbage][rng.usize(..3)],
        memory_bytes: [512 << 10, 2 << 20, 16 << 20][rng.usize(..3)],
    };
    let text = format!("{}, {setup:?}", geometries::name(&shape));
    (setup, text)
}

/// Runs one seed.
///
/// # Errors
/// The first thing that is not as it must be, with what was done before.
pub fn run(seed: u64, level: Option<Level>) -> Outcome<Summary> {
    let (setup, text) = setup(seed, level);
    let mut rng = Rng::with_seed(seed ^ 0x5eed_5eed_5eed_5eed);
    let rig = Rig::new(setup, rng.u64(..)).map_err(|why| format!("{text}: {why}"))?;
    let mut run = Run {
        depth: rng.usize(1..=32),
        hot: rng.u64(..rig.blocks()),
        beyond: rng.u8(..12) == 0,
        reads_hurt: false,
        rng,
        rig,
        waiting: Vec::new(),
        log: Vec::new(),
    };
    let result = run.whole();
    if std::env::var_os("STRAKE_SIM_TRACE").is_some() {
        eprintln!("{}", run.log.join("\n"));
    }
    match result {
        Ok(()) => Ok(Summary {
            hash: run.rig.world.borrow().hash(),
            requests: run.rig.answered,
            operations: run.rig.world.borrow().operations,
            virtual_ns: run.rig.now_ns(),
        }),
        Err(why) => {
            let last: Vec<String> = run.log.iter().rev().take(12).rev().cloned().collect();
            Err(format!(
                "{why}\n  array: {text}\n  last: {}",
                last.join("; ")
            ))
        }
    }
}

impl Run {
    fn whole(&mut self) -> Outcome {
        let requests = self.rng.u32(REQUESTS);
        for number in 0..requests {
            if self.rng.u8(..100) < 12 {
                self.act()?;
            }
            let depth = self.depth;
            self.rig
                .run_until("room for a request", |rig| rig.under_way() < depth)?;
            if self.rng.u8(..4) > 0 {
                let until = self.rig.now_ns() + self.rng.u64(..300_000);
                self.rig.step(until)?;
            }
            self.request();
            self.take_replies()?;
            if number == requests / 2 && self.beyond {
                self.lose_too_many();
            }
        }
        self.end()
    }

    fn say(&mut self, text: impl Into<String>) {
        let text = format!("{} {}", self.rig.now_ns(), text.into());
        if std::env::var_os("STRAKE_SIM_TRACE").is_some() {
            eprintln!("-- {text}");
        }
        self.log.push(text);
    }

    fn request(&mut self) {
        let operation = match self.rng.u8(..100) {
            0..45 => Operation::Write,
            45..75 => Operation::Read,
            75..84 => Operation::WriteZeroes,
            84..94 => Operation::Discard,
            _ => return self.rig.flush(),
        };
        let blocks = self.blocks(operation);
        let durable = self.rng.u8(..8) == 0;
        self.rig
            .submit(operation, blocks, durable && operation != Operation::Read);
    }

    fn blocks(&mut self, operation: Operation) -> Range<u64> {
        let total = self.rig.blocks();
        let size = self.rig.block_bytes();
        let strip = self.rig.geometry().strip_bytes() / size;
        let stripe = self.rig.geometry().stripe_data_bytes() / size;
        let region = self.rig.geometry().region_volume_bytes() / size;
        let whole_regions = matches!(operation, Operation::Discard | Operation::WriteZeroes)
            && self.rng.u8(..3) == 0;
        if whole_regions {
            let regions = total / region;
            let first = self.rng.u64(..regions);
            let count = self.rng.u64(1..=(regions - first).min(2));
            let (start, end) = (first * region, (first + count) * region);
            let ragged = self.rng.u64(..4);
            return start + ragged.min(1)..(end + ragged / 2).min(total);
        }
        let most = match self.rng.u8(..10) {
            0..3 => 1,
            3..6 => strip.clamp(1, 8),
            6..8 => strip,
            8 => stripe,
            _ => 3 * stripe,
        };
        let length = self.rng.u64(1..=most.clamp(1, (2 << 20) / size)).min(total);
        let start = match self.rng.u8(..4) {
            0 | 1 => (self.hot + self.rng.u64(..stripe.max(2)))
                .saturating_sub(self.rng.u64(..stripe.max(2))),
            2 => self.rng.u64(..total) / stripe * stripe,
            _ => self.rng.u64(..total),
        };
        let start = start.min(total - length);
        start..start + length
    }

    /// Places of a group that are not to be counted on.
    fn impaired(&mut self, group: usize) -> usize {
        let strips = self.rig.geometry().strips();
        let states: Vec<MemberState> = self
            .rig
            .look(|array| array.members().iter().map(|m| m.state).collect());
        let world = self.rig.world.borrow();
        (group * strips..(group + 1) * strips)
            .filter(|&place| {
                let faulty = self.rig.places[place].is_none_or(|drive| {
                    let faults = &world.drives[drive].faults;
                    faults.dead.is_some()
                        || faults.dies_after.is_some()
                        || !faults.bad_reads.is_empty()
                        || !faults.bad_writes.is_empty()
                });
                faulty || states[place] != MemberState::Active
            })
            .count()
    }

    fn needs_sync(&mut self) -> bool {
        self.rig.look(|array| array.region_counts()[3]) > 0
    }

    /// A place that may be lost without losing data.
    fn may_lose(&mut self) -> Option<usize> {
        let strips = self.rig.geometry().strips();
        let place = self.rng.usize(..self.rig.places.len());
        let impaired = self.impaired(place / strips);
        let free = impaired < self.rig.geometry().parity()
            && !self.needs_sync()
            && !self.commands_under_way();
        let live = self.rig.look(move |array| array.members()[place].is_live());
        (free && live).then_some(place)
    }

    fn commands_under_way(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn all_well(&mut self) -> bool {
        let groups = usize::from(self.rig.setup().shape.groups);
        (0..groups).all(|group| self.impaired(group) == 0) && !self.commands_under_way()
    }

    fn command(&mut self, command: Command, may_fail: bool) {
        let text = format!("{command:?}");
        self.say(text.clone());
        let id = self.rig.command(command);
        self.waiting.push(Waiting { id, text, may_fail });
    }

    fn take_replies(&mut self) -> Outcome {
        let mut error = None;
        let rig = &mut self.rig;
        let any_may_fail = rig.errors_allowed;
        self.waiting
            .retain(|waiting| match rig.answer_of(waiting.id) {
                None => true,
                Some(Ok(Ok(()))) => false,
                Some(answer) => {
                    if !waiting.may_fail && !any_may_fail {
                        error = Some(format!("{}: {answer:?}", waiting.text));
                    }
                    false
                }
            });
        error.map_or(Ok(()), Err)
    }

    fn wait_replies(&mut self) -> Outcome {
        while self.commands_under_way() {
            let Waiting { id, text, may_fail } = self.waiting.remove(0);
            let may_fail = may_fail || self.rig.errors_allowed;
            match self.rig.wait_command(id, &text) {
                Err(why) if !may_fail || why.contains("does not come") => return Err(why),
                _ => {}
            }
        }
        Ok(())
    }

    fn act(&mut self) -> Outcome {
        match self.rng.u8(..20) {
            0..2 => {
                self.let_reads_end()?;
                if let Some(place) = self.may_lose() {
                    let member = MemberIndex(place as u16);
                    let remove = self.rng.bool();
                    let command = if remove {
                        Command::Remove {
                            member,
                            force: false,
                        }
                    } else {
                        Command::Fail {
                            member,
                            force: false,
                        }
                    };
                    self.command(command, false);
                }
            }
            2..4 => {
                self.let_reads_end()?;
                self.hurt();
            }
            4..8 => self.replace(),
            8 => {
                let repair = self.rng.bool();
                let command = if self.rng.u8(..4) == 0 {
                    Command::StopScrub
                } else {
                    Command::Scrub { repair }
                };
                self.command(command, true);
            }
            9 => {
                let percent = self.rng.u8(1..=100);
                self.command(Command::Priority(percent), false);
            }
            10..13 => {
                let nanoseconds = self.rng.u64(..6_000_000_000) >> self.rng.u32(..8);
                self.say(format!("idle {nanoseconds}"));
                self.rig.idle(nanoseconds)?;
            }
            13 => {
                self.say("verify");
                self.rig.verify()?;
            }
            14 => {
                self.say("quiesce");
                self.rig.check_rest_under_work()?;
            }
            15 | 16 => self.restart()?,
            17 => self.crash()?,
            18 => self.crash_at_rest()?,
            _ => {
                self.say("wait");
                self.wait_replies()?;
            }
        }
        self.scrub_found_nothing()
    }

    fn scrub_found_nothing(&mut self) -> Outcome {
        match self.rig.look(|array| array.last_scrub()) {
            Some(report) if report.mismatches > 0 && !self.rig.errors_allowed => Err(format!(
                "a scrub found parity that does not hold: {report:?}"
            )),
            _ => Ok(()),
        }
    }

    fn let_reads_end(&mut self) -> Outcome {
        if self.reads_hurt {
            self.rig.quiesce()
        } else {
            Ok(())
        }
    }

    /// Gives a drive a fault.
    fn hurt(&mut self) {
        let Some(place) = self.may_lose() else { return };
        let drive = self.rig.places[place].expect("a live member has a drive");
        let size = self.rig.block_bytes();
        let data = self.rig.look(|array| array.superblock().areas.data);
        let error = if self.rng.bool() {
            DriveError::Gone
        } else {
            DriveError::Io(5)
        };
        let mut faults = Faults::default();
        match self.rng.u8(..6) {
            0 => faults.dead = Some(error),
            1 | 2 => faults.dies_after = Some((self.rng.u64(1..60), error)),
            kind => {
                // Near the hot spot, and enough of them now and then to be dropped for.
                let count = [1, 3, 10, 40][self.rng.usize(..4)];
                let piece = self.rig.geometry().piece(self.hot * size, size);
                let around = self.rig.geometry().member_offset(piece.stripe, 0);
                for _ in 0..count {
                    let at = if self.rng.bool() {
                        (around + self.rng.u64(..256 << 10)).min(data.length - size) / size * size
                    } else {
                        self.rng.u64(..data.length / size) * size
                    };
                    let range = data.offset + at..data.offset + at + size;
                    if kind == 3 {
                        &mut faults.bad_writes
                    } else {
                        &mut faults.bad_reads
                    }
                    .push(range);
                }
            }
        }
        let few: Vec<_> = faults
            .bad_reads
            .iter()
            .chain(&faults.bad_writes)
            .take(3)
            .collect();
        let text = format!(
            "hurt member {place} (drive {drive}): dead {:?} dies {:?} bad {few:?}",
            faults.dead, faults.dies_after
        );
        self.say(text);
        self.reads_hurt |= !faults.bad_reads.is_empty();
        self.rig.world.borrow_mut().drives[drive].faults = faults;
    }

    fn replace(&mut self) {
        if self.rig.geometry().parity() == 0
            || self.commands_under_way()
            || self.beyond && self.rig.errors_allowed
        {
            return;
        }
        let gone: Vec<usize> = self.rig.look(|array| {
            let members = array.members().iter().enumerate();
            members
                .filter(|(_, m)| !m.is_live())
                .map(|(place, _)| place)
                .collect()
        });
        if gone.is_empty() {
            return;
        }
        let place = gone[self.rng.usize(..gone.len())];
        self.rig.keep_old = self.rng.bool();
        let fresh = self.rig.fresh_drive(self.rng.u64(..3) << 20);
        self.say(format!("replace {place} with drive {fresh}"));
        if self.rng.u8(..6) == 0 {
            let deadline = self.rng.u64(1..200);
            self.say(format!("which dies after {deadline}"));
            let error = if self.rng.bool() {
                DriveError::Gone
            } else {
                DriveError::Io(5)
            };
            self.rig.world.borrow_mut().drives[fresh].faults.dies_after = Some((deadline, error));
        }
        let id = self.rig.replace(place, fresh);
        self.waiting.push(Waiting {
            id,
            text: format!("replace {place}"),
            may_fail: true,
        });
    }

    fn restart(&mut self) -> Outcome {
        if self.beyond && self.rig.errors_allowed {
            return Ok(());
        }
        self.wait_replies()?;
        self.say("stop and start");
        self.rig.stop()?;
        self.rig.check_stopped()?;
        self.rig.start()?;
        Ok(())
    }

    /// Without a warning. Only while nothing is lost: the write hole of a degraded array is closed
    /// by the parity log, which is not there yet.
    fn crash(&mut self) -> Outcome {
        if !self.all_well() || self.rig.errors_allowed {
            return Ok(());
        }
        if !self.rig.all_recorded_active() {
            return Ok(()); // the end of a rebuild is not durable yet: the drives call it degraded
        }
        let power = self.rng.bool();
        self.say(if power { "power cut" } else { "crash" });
        self.rig.crash(power);
        self.waiting.clear();
        self.rig.start()?;
        if self.rng.bool() {
            self.rig.wait_healthy()?;
            self.rig.verify()?;
        }
        Ok(())
    }

    /// Without a warning, with members missing or being refilled, but without writes: no region is
    /// dirty, so nothing may be in doubt.
    fn crash_at_rest(&mut self) -> Outcome {
        if self.rig.errors_allowed || self.rig.geometry().parity() == 0 {
            return Ok(());
        }
        self.say("rest");
        self.wait_replies()?;
        self.rig.quiesce()?;
        self.rig.run_until("clean regions", |rig| {
            let [_, _, dirty, needs_sync] = rig.look(|array| array.region_counts());
            dirty + needs_sync == 0
        })?;
        match self.rng.u8(..4) {
            0 => self.hurt(),
            1 => self.replace(),
            2 => self.command(Command::Scrub { repair: true }, true),
            _ => {}
        }
        let steps = self.rng.u32(..4000) >> self.rng.u32(..5);
        for _ in 0..steps {
            self.rig.step(u64::MAX)?;
        }
        let [_, _, dirty, needs_sync] = self.rig.look(|array| array.region_counts());
        if dirty + needs_sync > 0 {
            return Err(format!(
                "without writes {dirty} regions are dirty, {needs_sync} wait for a resync"
            ));
        }
        let power = self.rng.bool();
        self.say(if power {
            "power cut at rest"
        } else {
            "crash at rest"
        });
        self.rig.crash(power);
        self.waiting.clear();
        self.rig.start()?;
        if self.rng.bool() {
            self.say("verify");
            self.rig.verify()?;
        }
        Ok(())
    }

    fn lose_too_many(&mut self) {
        let (strips, parity) = (self.rig.geometry().strips(), self.rig.geometry().parity());
        let group = self.rng.usize(..usize::from(self.rig.setup().shape.groups));
        self.rig.errors_allowed = true;
        let mut places: Vec<usize> = (group * strips..(group + 1) * strips).collect();
        self.rng.shuffle(&mut places);
        for &place in places.iter().take(parity + 1) {
            if self.rng.bool() {
                self.command(
                    Command::Fail {
                        member: MemberIndex(place as u16),
                        force: true,
                    },
                    true,
                );
            } else if let Some(drive) = self.rig.places[place] {
                self.say(format!("member {place} dies"));
                self.rig.world.borrow_mut().drives[drive].faults.dead = Some(DriveError::Gone);
            }
        }
    }

    fn end(&mut self) -> Outcome {
        self.say("end");
        self.wait_replies()?;
        self.rig.quiesce()?;
        if self.rig.errors_allowed {
            self.rig.verify()?;
            // It may be unable to record anything: a stop must end all the same.
            let id = self.rig.command(Command::Stop);
            return match self.rig.wait_command(id, "stop") {
                Err(why) if why.contains("does not come") => Err(why),
                _ => Ok(()),
            };
        }
        self.heal()?;
        self.rig.wait_healthy()?;
        self.rig.verify()?;
        self.rig.check_rest()?;
        self.rig.check_parity()?;
        if self.rig.geometry().parity() > 0 {
            self.rig.scrub_clean()?;
        }
        self.rig.idle(6_000_000_000)?;
        let counts = self.rig.look(|array| array.region_counts());
        if counts[2] + counts[3] > 0 {
            return Err(format!("regions are not clean after a rest: {counts:?}"));
        }
        self.rig.stop()?;
        self.rig.check_stopped()?;
        self.rig.start()?;
        self.rig.verify()?;
        self.rig.check_rest()
    }

    /// Faults end, and every place gets a drive that works.
    fn heal(&mut self) -> Outcome {
        for place in 0..self.rig.places.len() {
            if let Some(drive) = self.rig.places[place] {
                let mut world = self.rig.world.borrow_mut();
                let faults = &mut world.drives[drive].faults;
                *faults = Faults {
                    dead: faults.dead,
                    ..Faults::default()
                };
                if faults.dead.is_none() {
                    continue;
                }
            }
            let live = self.rig.look(move |array| array.members()[place].is_live());
            if live {
                self.rig.do_command(Command::Fail {
                    member: MemberIndex(place as u16),
                    force: true,
                })?;
            }
        }
        for place in 0..self.rig.places.len() {
            if !self.rig.look(move |array| array.members()[place].is_live()) {
                self.say(format!("replace {place} at the end"));
                self.rig.do_replace(place)?;
            }
        }
        Ok(())
    }
}
