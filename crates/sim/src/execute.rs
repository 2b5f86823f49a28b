//! Carries a plan out, beside the model, and says what it was.

use strake_engine::array::{Array, Command};
use strake_engine::block::Operation;
use strake_engine::format::superblock::MemberState;
use strake_engine::layout::MemberIndex;
use strake_reactor::port::DriveError;

use crate::drive::{Faults, SimDrive, Stray, StrayKind};
use crate::geometries;
use crate::import;
use crate::plan::{Plan, Step, policy};
use crate::rig::{NEVER, Outcome, Rig};

/// What a run was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Hash of everything that happened.
    pub hash: u64,
    /// Requests answered.
    pub requests: u64,
    /// Operations on drives.
    pub operations: u64,
    /// Virtual nanoseconds.
    pub virtual_ns: u64,
    /// Crashes.
    pub crashes: u64,
    /// Blocks found torn.
    pub torn: u64,
}

/// A command that has not been answered.
struct Waiting {
    id: u64,
    text: String,
    /// It may be refused: the state may have changed meanwhile.
    may_fail: bool,
}

struct Run {
    rig: Rig,
    /// Reads have been made to fail: one that is being answered from redundancy counts on every
    /// other member, also when its block has been healed meanwhile.
    reads_hurt: bool,
    waiting: Vec<Waiting>,
    /// A copy of a member's drive made while it was in use, and of which drive.
    copy: Option<(usize, SimDrive)>,
    crashes: u64,
    torn: u64,
}

/// Runs a plan.
///
/// # Errors
/// The first thing that is not as it must be, with the step at which it was seen.
pub fn run(plan: &Plan) -> Outcome<Summary> {
    let array = || {
        let Plan { seed, setup, .. } = plan;
        format!("{}, seed {seed}, {setup:?}", geometries::name(&setup.shape))
    };
    let rig =
        Rig::new(plan.setup, plan.seed).map_err(|why| format!("{why}\n  array: {}", array()))?;
    let mut run = Run {
        rig,
        reads_hurt: false,
        waiting: Vec::new(),
        copy: None,
        crashes: 0,
        torn: 0,
    };
    for (number, step) in plan.steps.iter().enumerate() {
        if run.rig.world.borrow().trace {
            eprintln!("{:>12} -- {step}", run.rig.now_ns());
        }
        run.step(step)
            .map_err(|why| format!("{why}\n  at step {number}: {step}\n  array: {}", array()))?;
    }
    run.end()
        .map_err(|why| format!("{why}\n  at the end\n  array: {}", array()))?;
    let world = run.rig.world.borrow();
    Ok(Summary {
        hash: world.hash(),
        requests: run.rig.answered,
        operations: world.operations,
        virtual_ns: world.now_ns(),
        crashes: run.crashes,
        torn: run.torn,
    })
}

impl Run {
    fn step(&mut self, step: &Step) -> Outcome {
        match self.try_step(step) {
            // A drive hangs: nothing but the end of the program helps.
            Err(why) if self.hangs_in(&why) => self.crash(false, 0, false),
            other => other,
        }?;
        self.take_replies()?;
        self.scrub_found_nothing()
    }

    fn try_step(&mut self, step: &Step) -> Outcome {
        match *step {
            Step::Write {
                start,
                count,
                durable,
            } => return self.request(Operation::Write, start, count, durable),
            Step::Read { start, count } => {
                return self.request(Operation::Read, start, count, false);
            }
            Step::Zero {
                start,
                count,
                durable,
            } => return self.request(Operation::WriteZeroes, start, count, durable),
            Step::Discard { start, count } => {
                return self.request(Operation::Discard, start, count, false);
            }
            Step::Flush {} => self.rig.flush(),
            Step::Run { events } => {
                for _ in 0..events {
                    if !self.rig.step(u64::MAX)? {
                        break;
                    }
                }
            }
            Step::Quiesce {} => self.rig.check_rest_under_work()?,
            Step::Settle {} => self.wait_replies()?,
            Step::Idle { ms } => self.rig.idle(ms * 1_000_000)?,
            Step::Verify {} => self.verify()?,
            Step::Heal {} => self.heal()?,
            Step::Restart { back } => self.restart(back)?,
            Step::Crash { power, lose, back } => self.crash(power, lose, back)?,
            Step::Clone { place } => self.clone_drive(place)?,
            Step::Copy { place } => self.copy_drive(place),
            Step::TooMany { group } => self.lose_too_many(group),
            Step::Fail { .. }
            | Step::Remove { .. }
            | Step::Replace { .. }
            | Step::Scrub { .. }
            | Step::StopScrub {}
            | Step::Priority { .. }
            | Step::Policy { .. }
            | Step::Accept {} => return self.give_command(step),
            _ => return self.hurt(step),
        }
        Ok(())
    }

    fn request(&mut self, operation: Operation, start: u64, count: u64, durable: bool) -> Outcome {
        const UNDER_WAY_MAX: usize = 32;
        self.rig
            .run_until("room for a request", |rig| rig.under_way() < UNDER_WAY_MAX)?;
        let total = self.rig.blocks();
        let start = start % total;
        let most = (4 << 20) / self.rig.block_bytes();
        let count = count.clamp(1, most).min(total - start);
        self.rig.submit(operation, start..start + count, durable);
        Ok(())
    }

    fn verify(&mut self) -> Outcome {
        self.rig.verify()?;
        self.torn += self.rig.torn;
        Ok(())
    }

    fn place(&self, place: u64) -> usize {
        (place % self.rig.places.len() as u64) as usize
    }

    fn give_command(&mut self, step: &Step) -> Outcome {
        match *step {
            Step::Fail { place } | Step::Remove { place } => {
                self.let_reads_end()?;
                let place = self.place(place);
                if !self.may_lose(place) {
                    return Ok(());
                }
                let member = MemberIndex(place as u16);
                let force = false;
                self.command(
                    if matches!(step, Step::Remove { .. }) {
                        Command::Remove { member, force }
                    } else {
                        Command::Fail { member, force }
                    },
                    false,
                );
            }
            Step::Replace {
                place,
                dies_after,
                keep,
            } => self.replace(place, dies_after, keep),
            Step::Scrub { repair } => self.command(Command::Scrub { repair }, true),
            Step::StopScrub {} => self.command(Command::StopScrub, true),
            Step::Priority { percent } => self.command(Command::Priority(percent), false),
            Step::Policy { code } => self.command(Command::Policy(policy(code)), true),
            Step::Accept {} => {
                self.rig.model.accept();
                self.command(Command::AcceptSuspect, true);
            }
            _ => unreachable!("only commands come here"),
        }
        Ok(())
    }

    /// Places of a group that are not to be counted on.
    fn impaired(&mut self, group: usize) -> usize {
        let strips = self.rig.geometry().strips();
        let states: Vec<MemberState> = self
            .rig
            .look(|array| array.members().iter().map(|m| m.state).collect());
        let world = self.rig.world.borrow();
        // A rebuild that has ended, and is not recorded yet, has not when a crash comes next.
        let assembly = import::look(&world, &self.rig.plugged);
        let recorded = |place: usize| {
            let assembly = assembly.as_ref().ok();
            assembly.is_none_or(|a| a.truth.members[place].state == MemberState::Active)
        };
        (group * strips..(group + 1) * strips)
            .filter(|&place| {
                let faulty =
                    self.rig.places[place].is_none_or(|drive| world.drives[drive].faults.any());
                faulty || states[place] != MemberState::Active || !recorded(place)
            })
            .count()
    }

    /// Whether a place may be lost without losing data.
    fn may_lose(&mut self, place: usize) -> bool {
        let strips = self.rig.geometry().strips();
        let parity = self.rig.geometry().parity();
        let drive = self.rig.places[place];
        let hurt = drive.is_none_or(|drive| self.rig.world.borrow().drives[drive].faults.any());
        let live = self.rig.look(move |array| array.members()[place].is_live());
        let needs_sync = self.rig.look(|array| array.region_counts()[3]) > 0;
        live && !hurt
            && self.waiting.is_empty()
            && !needs_sync
            && self.impaired(place / strips) < parity
    }

    fn command(&mut self, command: Command, may_fail: bool) {
        let text = format!("{command:?}");
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
                    let may_fail = waiting.may_fail || may_be_too_early(&format!("{answer:?}"));
                    if !may_fail && !any_may_fail {
                        error = Some(format!("{}: {answer:?}", waiting.text));
                    }
                    false
                }
            });
        error.map_or(Ok(()), Err)
    }

    fn wait_replies(&mut self) -> Outcome {
        while !self.waiting.is_empty() {
            let Waiting { id, text, may_fail } = self.waiting.remove(0);
            let may_fail = may_fail || self.rig.errors_allowed;
            match self.rig.wait_command(id, &text) {
                Err(why) if may_be_too_early(&why) => {}
                Err(why) if !may_fail || why.contains(NEVER) => return Err(why),
                _ => {}
            }
        }
        Ok(())
    }

    fn scrub_found_nothing(&mut self) -> Outcome {
        match self.rig.look(|array| array.last_scrub()) {
            Some(report) if report.mismatches > 0 && !self.may_mismatch() => Err(format!(
                "a scrub found parity that does not hold: {report:?}"
            )),
            _ => Ok(()),
        }
    }

    fn may_mismatch(&self) -> bool {
        self.rig.errors_allowed || self.rig.unprotected
    }

    fn let_reads_end(&mut self) -> Outcome {
        if self.reads_hurt {
            self.rig.quiesce()
        } else {
            Ok(())
        }
    }

    /// Gives a drive a fault, if all data stays on the others.
    fn hurt(&mut self, step: &Step) -> Outcome {
        self.let_reads_end()?;
        let mut faults = Faults::default();
        let place = match *step {
            Step::Slow { place, factor } => {
                let place = self.place(place);
                if let Some(drive) = self.rig.places[place] {
                    self.rig.world.borrow_mut().drives[drive].faults.slowness = factor;
                }
                return Ok(());
            }
            Step::SlowReads { place, factor } => {
                let place = self.place(place);
                if let Some(drive) = self.rig.places[place] {
                    self.rig.world.borrow_mut().drives[drive].faults.slow_reads = factor;
                }
                return Ok(());
            }
            Step::SlowWrites {
                place,
                offset,
                length,
                factor,
            } => {
                let place = self.place(place);
                if let Some(drive) = self.rig.places[place] {
                    let faults = &mut self.rig.world.borrow_mut().drives[drive].faults;
                    faults.slow_range = Some((offset..offset + length, factor));
                }
                return Ok(());
            }
            Step::BadLog {
                place,
                offset,
                length,
            } => {
                let place = self.place(place);
                if let Some(drive) = self.rig.places[place] {
                    let faults = &mut self.rig.world.borrow_mut().drives[drive].faults;
                    faults.bad_log.push(offset..offset + length);
                }
                if self.rig.look(Array::is_starting) {
                    self.rig.lost_in_start();
                }
                return Ok(());
            }
            Step::RotLog { place, pick } => {
                let place = self.place(place);
                if self.rig.rot_log(place, pick) && self.rig.look(Array::is_starting) {
                    self.rig.lost_in_start();
                }
                return Ok(());
            }
            Step::Hang { place, after } => {
                let place = self.place(place);
                if let Some(drive) = self.rig.places[place] {
                    self.rig.world.borrow_mut().drives[drive].faults.hangs_after = Some(after);
                }
                return Ok(());
            }
            Step::Die { place, after, gone } => {
                let error = if gone {
                    DriveError::Gone
                } else {
                    DriveError::Io(5)
                };
                match after {
                    0 => faults.dead = Some(error),
                    after => faults.dies_after = Some((after, error)),
                }
                place
            }
            Step::BadReads {
                place,
                offset,
                length,
            } => {
                faults.bad_reads.push(offset..offset + length);
                place
            }
            Step::BadWrites {
                place,
                offset,
                length,
            } => {
                faults.bad_writes.push(offset..offset + length);
                place
            }
            Step::Rot { place, .. } => {
                faults.damaged = true;
                place
            }
            Step::LoseWrite {
                place,
                offset,
                length,
            } => {
                faults.strays.push(stray(offset, length, StrayKind::Lost));
                place
            }
            Step::Misdirect {
                place,
                offset,
                length,
                by,
            } => {
                let kind = StrayKind::Misdirected(by);
                faults.strays.push(stray(offset, length, kind));
                place
            }
            Step::Misread {
                place,
                offset,
                length,
                by,
            } => {
                faults
                    .strays
                    .push(stray(offset, length, StrayKind::Misread(by)));
                place
            }
            _ => unreachable!("only faults come here"),
        };
        let place = self.place(place);
        let again = self.rig.places[place].is_some_and(|drive| {
            self.rig.world.borrow().drives[drive]
                .faults
                .only_bad_blocks()
        });
        if !again && !self.may_lose(place) {
            return Ok(());
        }
        // A block that cannot be read is one loss too many where the start leaves a resync.
        let blocks = !(faults.bad_reads.is_empty() && faults.bad_writes.is_empty());
        if blocks && self.rig.look(Array::is_starting) && !self.rig.log_can_be_read() {
            return Ok(());
        }
        self.reads_hurt |= !faults.bad_reads.is_empty();
        let drive = self.rig.places[place].expect("a live member has a drive");
        {
            let drive = &mut self.rig.world.borrow_mut().drives[drive];
            drive.faults.join(faults);
            if let Step::Rot { offset, length, .. } = *step {
                drive.rot(offset..offset + length);
            }
        }
        if self.rig.look(Array::is_starting) {
            self.rig.lost_in_start();
        }
        Ok(())
    }

    fn replace(&mut self, place: u64, dies_after: u64, keep: bool) {
        let beyond = self.rig.errors_allowed;
        if self.rig.geometry().parity() == 0 || !self.waiting.is_empty() || beyond {
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
        let place = gone[(place % gone.len() as u64) as usize];
        self.rig.keep_old = keep;
        let fresh = self.rig.fresh_drive(0);
        if dies_after > 0 {
            let faults = &mut self.rig.world.borrow_mut().drives[fresh].faults;
            faults.dies_after = Some((dies_after, DriveError::Gone));
        }
        let id = self.rig.replace(place, fresh);
        self.waiting.push(Waiting {
            id,
            text: format!("replace {place}"),
            may_fail: true,
        });
    }

    fn restart(&mut self, back: bool) -> Outcome {
        if self.rig.errors_allowed {
            return Ok(());
        }
        self.stop()?;
        if back {
            self.rig.plug_in_again();
            self.rig.refuse_apart();
        }
        self.rig.start()?;
        Ok(())
    }

    fn stop(&mut self) -> Outcome {
        self.wait_replies()?;
        self.rig.stop()?;
        self.rig.check_stopped()
    }

    /// Two drives with one member on them are refused, and change nothing.
    fn clone_drive(&mut self, place: u64) -> Outcome {
        let place = self.place(place);
        let Some(drive) = self.rig.places[place] else {
            return Ok(());
        };
        let live = self.rig.look(move |array| array.members()[place].is_live());
        let dead = self.rig.world.borrow().drives[drive].faults.any();
        if self.rig.errors_allowed || !live || dead {
            return Ok(());
        }
        self.stop()?;
        let copy = self.rig.world.borrow().drives[drive].clone();
        self.refuses_copy(drive, copy)?;
        self.rig.start()?;
        Ok(())
    }

    /// Copies a live member's drive, to be plugged in at the next crash.
    fn copy_drive(&mut self, place: u64) {
        let place = self.place(place);
        if let Some(drive) = self.rig.places[place] {
            let copy = self.rig.world.borrow().drives[drive].clone();
            if !copy.faults.any() {
                self.copy = Some((drive, copy));
            }
        }
    }

    /// With a copy of this drive plugged in the array is refused, if the drive is a member's.
    fn refuses_copy(&mut self, drive: usize, copy: SimDrive) -> Outcome {
        // A fault of the drive may have come meanwhile; and it may have become a member since.
        let member = |drive: &SimDrive| {
            let mut copies = import::superblocks(drive).into_iter().flatten();
            let own = copies.next()?;
            Some(own.members[usize::from(own.member_index)].uuid)
        };
        let known = member(&copy);
        let is_member = self.rig.import()?.places.contains(&Some(drive))
            && known.is_some()
            && known == member(&self.rig.world.borrow().drives[drive]);
        let copy = self.rig.world.borrow_mut().add_drive(copy);
        self.rig.plugged.push(copy);
        let refused = match self.rig.import() {
            Ok(_) if is_member => Err("a member is on two drives, and the array starts".to_owned()),
            Err(why) if !why.contains("clones") => {
                Err(format!("refused, but not as clones: {why}"))
            }
            _ => Ok(()),
        };
        self.rig.plugged.pop();
        refused
    }

    fn crash(&mut self, power: bool, lose: u64, back: bool) -> Outcome {
        if self.rig.errors_allowed {
            return Ok(());
        }
        self.crashes += 1;
        let places: Vec<usize> = (0..self.rig.places.len())
            .filter(|place| lose >> (place % 64) & 1 == 1)
            .collect();
        self.rig.crash(power, &places, back);
        self.waiting.clear();
        if let Some((drive, copy)) = self.copy.take() {
            // Older than the drive by what was written since.
            self.refuses_copy(drive, copy)?;
        }
        self.rig.start()?;
        Ok(())
    }

    fn lose_too_many(&mut self, group: u64) {
        let (strips, parity) = (self.rig.geometry().strips(), self.rig.geometry().parity());
        let groups = u64::from(self.rig.setup().shape.groups);
        let group = (group % groups) as usize;
        self.rig.errors_allowed = true;
        for place in group * strips..group * strips + parity + 1 {
            if place % 2 == 0 {
                let member = MemberIndex(place as u16);
                self.command(
                    Command::Fail {
                        member,
                        force: true,
                    },
                    true,
                );
            } else if let Some(drive) = self.rig.places[place] {
                self.rig.world.borrow_mut().drives[drive].faults.dead = Some(DriveError::Gone);
            }
        }
    }

    fn end(&mut self) -> Outcome {
        match self.try_end() {
            Err(why) if self.hangs_in(&why) && self.rig.errors_allowed => Ok(()),
            Err(why) if self.hangs_in(&why) => {
                self.crash(false, 0, false)?;
                self.try_end()
            }
            other => other,
        }
    }

    /// What was waited for does not come because a drive hangs. (Any other error is one all the same.)
    fn hangs_in(&self, why: &str) -> bool {
        self.rig.world.borrow().hung() > 0 && why.contains(NEVER)
    }

    fn try_end(&mut self) -> Outcome {
        self.wait_replies()?;
        self.verify()?;
        if !self.rig.errors_allowed {
            return self.scrub_found_nothing();
        }
        // It may be unable to record anything: a stop must end all the same.
        let id = self.rig.command(Command::Stop);
        match self.rig.wait_command(id, "stop") {
            Err(why) if why.contains(NEVER) => Err(why),
            _ => Ok(()),
        }
    }

    fn heal(&mut self) -> Outcome {
        if self.rig.errors_allowed {
            return Ok(());
        }
        self.wait_replies()?;
        self.rig.quiesce()?;
        self.end_faults()?;
        self.fill_places()?;
        self.rig.wait_healthy()?;
        self.verify()?;
        self.rig.check_rest()?;
        if self.rig.geometry().parity() > 0 && !self.rig.unprotected {
            self.rig.check_parity()?;
            self.rig.scrub_clean()?;
        }
        self.rig.idle(6_000_000_000)?;
        let counts = self.rig.look(|array| array.region_counts());
        if counts[2] + counts[3] > 0 {
            return Err(format!("that all regions are clean {NEVER}: {counts:?}"));
        }
        Ok(())
    }

    fn end_faults(&mut self) -> Outcome {
        for place in 0..self.rig.places.len() {
            let mut dead = false;
            if let Some(drive) = self.rig.places[place] {
                let faults = &mut self.rig.world.borrow_mut().drives[drive].faults;
                dead = faults.dead.is_some();
                *faults = Faults {
                    dead: faults.dead,
                    damaged: faults.damaged,
                    ..Faults::default()
                };
            }
            let live = self.rig.look(move |array| array.members()[place].is_live());
            if dead && live {
                let member = MemberIndex(place as u16);
                let answer = self.rig.do_command(Command::Fail {
                    member,
                    force: true,
                });
                // It may have left by itself while the command was on its way.
                if self.rig.look(move |array| array.members()[place].is_live()) {
                    answer?;
                }
            }
        }
        Ok(())
    }

    fn fill_places(&mut self) -> Outcome {
        for place in 0..self.rig.places.len() {
            if !self.rig.look(move |array| array.members()[place].is_live()) {
                self.rig.do_replace(place)?;
            }
        }
        Ok(())
    }
}

fn stray(offset: u64, length: u64, kind: StrayKind) -> Stray {
    Stray {
        within: offset..offset + length,
        kind,
    }
}

/// A command given during a start is done after the replay, which may have found that a resync is
/// needed first.
fn may_be_too_early(answer: &str) -> bool {
    answer.contains("the resync after an unclean stop is not finished")
}
