//! One story with a crash at each of its steps: what an order of durability is proven with.
//!
//! A [`Story`] keeps the drives, what is under way on them and the model at every event. It is then
//! followed: at each event the program ends, and once more the power goes; subsets of the writes in
//! doubt land; an *order* is asserted on what lies on the drives; then drives are lost and others
//! are back, the array is started, and every block compared. Some of these starts are crashed at
//! each of their events, too.
//!
//! An operation that has ended and was not heard of yet is among those in doubt, all of it landed:
//! so the moments after each turn of the core are all there are.

use std::collections::HashSet;

use strake_engine::block::Operation;
use strake_engine::layout::Geometry;
use strake_reactor::port::DriveError;

use crate::aftermath::Aftermath;
use crate::drive::{Landing, SimDrive};
use crate::explore::lose_one_more;
use crate::image::mix;
use crate::rig::{Moment, Outcome, Rig, Setup};

/// Writes in doubt up to which every subset lands.
const LANDINGS_ALL: usize = 4;
/// Single writes that are left out, or land alone, where there are more.
const SINGLES_MAX: usize = 8;
/// Random subsets beside them.
const RANDOM: u64 = 4;
/// Subsets of which any sectors land.
const TORN: u64 = 2;
/// Steps of one story at most.
const STEPS_MAX: usize = 4000;

/// How far a story is followed.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Of so many outcomes one is started; the order is asserted on all.
    pub start_every: u64,
    /// Of so many starts one is crashed at each of its events (0: none).
    pub again_every: u64,
    /// Members lost at most with the crash.
    pub lose: usize,
}

/// What was followed.
#[derive(Debug, Default, Clone, Copy)]
pub struct Followed {
    /// Events at which a crash was tried.
    pub steps: u64,
    /// Outcomes on which the order was asserted.
    pub outcomes: u64,
    /// Arrays started from them and compared.
    pub starts: u64,
    /// Starts that were crashed at each of their events.
    pub again: u64,
    /// Blocks found torn, where that is allowed.
    pub torn: u64,
}

/// What is asserted on the drives after a crash.
pub type Order<'a> = dyn Fn(&Aftermath<'_>) -> Outcome + 'a;

struct Step {
    moment: Moment,
    answered: u64,
    commands: u64,
}

/// What happened, event by event.
pub struct Story {
    setup: Setup,
    geometry: Geometry,
    base: Vec<SimDrive>,
    steps: Vec<Step>,
    answered_before: u64,
    /// Commands answered since the beginning.
    commands: u64,
}

/// What becomes of the writes in doubt.
#[derive(Debug, Clone, Copy)]
enum Landings {
    /// Those whose bit is set land.
    Whole(u64),
    /// Any sectors.
    Torn(u64),
}

impl Landings {
    fn of(doubtful: usize) -> Vec<Landings> {
        let torn = (0..TORN * u64::from(doubtful > 0)).map(|seed| Landings::Torn(seed << 8));
        let whole: Vec<u64> = if doubtful <= LANDINGS_ALL {
            (0..1 << doubtful).collect()
        } else {
            let every = doubtful.div_ceil(SINGLES_MAX);
            let singles = (0..doubtful.min(64)).step_by(every).map(|bit| 1u64 << bit);
            let random = (2..2 + RANDOM).map(|seed| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let both = singles.flat_map(|single| [single, !single]);
            [0, u64::MAX].into_iter().chain(random).chain(both).collect()
        };
        whole.into_iter().map(Landings::Whole).chain(torn).collect()
    }

    fn at(self, index: usize) -> Landing {
        match self {
            Landings::Whole(bits) if bits.rotate_right(index as u32 % 64) & 1 == 1 => Landing::All,
            Landings::Whole(_) => Landing::Nothing,
            Landings::Torn(seed) => Landing::Sectors(seed | index as u64),
        }
    }
}

impl Story {
    /// Begins with the drives as they are, nothing under way.
    pub fn begin(rig: &Rig) -> Story {
        Story {
            setup: *rig.setup(),
            geometry: rig.geometry().clone(),
            base: rig.world.borrow().drives.clone(),
            steps: Vec::new(),
            answered_before: rig.answered,
            commands: 0,
        }
    }

    /// Lets the array work until `until` says so; a step for each event.
    ///
    /// # Errors
    /// Those of [`Rig::step`]; that it never comes.
    pub fn until(
        &mut self,
        rig: &mut Rig,
        what: &str,
        mut until: impl FnMut(&mut Rig) -> bool,
    ) -> Outcome {
        loop {
            let more = rig.step(u64::MAX)?;
            self.steps.push(Step {
                moment: rig.moment(),
                answered: rig.answered - self.answered_before,
                commands: self.commands,
            });
            if until(rig) {
                return Ok(());
            }
            if !more || self.steps.len() > STEPS_MAX {
                return Err(format!("{what} does not come: {}", rig.describe()));
            }
        }
    }

    /// Lets every request under way end.
    ///
    /// # Errors
    /// Those of [`Story::until`].
    pub fn quiesce(&mut self, rig: &mut Rig) -> Outcome {
        self.until(rig, "the end of all requests", |rig| rig.under_way() == 0)
    }

    /// Lets a command end well, and everything under way with it.
    ///
    /// # Errors
    /// Those of [`Story::until`]; a refusal.
    pub fn command(&mut self, rig: &mut Rig, command: u64) -> Outcome {
        let mut answer = None;
        self.until(rig, "the command's end", |rig| {
            answer = answer.take().or_else(|| rig.answer_of(command));
            answer.is_some()
        })?;
        self.commands += 1;
        match answer.expect("has come") {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("the command is refused: {error}")),
            Err(error) => Err(error),
        }
    }

    /// Lets what follows the last answer come to rest.
    ///
    /// # Errors
    /// Those of [`Story::until`].
    pub fn rest(&mut self, rig: &mut Rig) -> Outcome {
        self.until(rig, "rest", |rig| {
            rig.under_way() == 0 && rig.world.borrow().under_way() == 0
        })
    }

    /// Steps so far.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Crashes at each step; asserts `order` on the drives, and that every block holds what it may.
    ///
    /// # Errors
    /// What does not hold, and after which crash.
    pub fn follow(&self, limits: Limits, order: &Order<'_>) -> Outcome<Followed> {
        let mut follower = Follower {
            story: self,
            limits,
            seen: HashSet::new(),
            out: Followed::default(),
            place: String::new(),
        };
        let result = follower.all(&self.steps, order, true);
        result.map_err(|why| format!("{why}\n  after a crash {}", follower.place))?;
        Ok(follower.out)
    }

    /// The arrays that crashes at each step leave, started where `wanted` says so of what the
    /// start found: each is given to `go_on` before its start.
    ///
    /// # Errors
    /// Those of `go_on`.
    pub fn each_crash(&self, power: bool, mut go_on: impl FnMut(&dyn Fn(&[usize]) -> Outcome<Rig>) -> Outcome) -> Outcome {
        for step in &self.steps {
            for landings in Landings::of(step.moment.snapshot.doubtful(power)) {
                let drives = step.moment.snapshot.crashed(power, |index| landings.at(index));
                go_on(&|lose| {
                    let mut rig = Rig::resume(self.setup, drives.clone(), &step.moment, 1)?;
                    rig.after_crash(lose, &step.moment, power);
                    Ok(rig)
                })?;
            }
        }
        Ok(())
    }
}

struct Follower<'a> {
    story: &'a Story,
    limits: Limits,
    seen: HashSet<u64>,
    out: Followed,
    /// What is being tried, for a report.
    place: String,
}

impl Follower<'_> {
    fn all(&mut self, steps: &[Step], order: &Order<'_>, first: bool) -> Outcome {
        let before = std::mem::take(&mut self.place);
        for (number, step) in steps.iter().enumerate() {
            self.out.steps += 1;
            let volatile = self.story.setup.volatile != 0;
            for power in [false, true].into_iter().skip(usize::from(!volatile)) {
                let doubtful = step.moment.snapshot.doubtful(power);
                for landings in Landings::of(doubtful) {
                    self.place = format!(
                        "{before} at step {number} of {} (power {power}, {landings:x?} of {doubtful})",
                        steps.len()
                    );
                    self.landed(step, power, landings, order, first)?;
                }
            }
        }
        self.place = before;
        Ok(())
    }

    fn landed(
        &mut self,
        step: &Step,
        power: bool,
        landings: Landings,
        order: &Order<'_>,
        first: bool,
    ) -> Outcome {
        let moment = &step.moment;
        let drives = moment
            .snapshot
            .crashed(power, |index| landings.at(index));
        let mut hash = u64::from(first) << 1 | u64::from(power);
        for (number, drive) in drives.iter().enumerate() {
            let base = self.story.base.get(number).unwrap_or(&self.story.base[0]);
            drive.image().hash_against(base.image(), &mut hash);
        }
        moment.model.hash_into(&mut hash);
        mix(&mut hash, step.answered << 8 | step.commands);
        if !self.seen.insert(hash) {
            return Ok(());
        }
        self.out.outcomes += 1;
        order(&Aftermath {
            setup: &self.story.setup,
            geometry: &self.story.geometry,
            base: &self.story.base,
            drives: &drives,
            moment,
            answered: step.answered,
            commands: step.commands,
        })?;
        let place = std::mem::take(&mut self.place);
        for lose in moment.may_lose(self.story.setup.shape) {
            for back in [true, false] {
                let left = moment.live.iter().any(|live| !live);
                mix(&mut hash, lose.len() as u64);
                let chosen = hash >> 7;
                if lose.len() > self.limits.lose
                    || !back && !left
                    || !chosen.is_multiple_of(self.limits.start_every)
                {
                    continue;
                }
                self.place = format!("{place}, then lost {lose:?}, the left ones back {back}");
                self.start(step, &drives, power, &lose, back, first, chosen)?;
            }
        }
        self.place = place;
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one outcome, spelled out")]
    fn start(
        &mut self,
        step: &Step,
        drives: &[SimDrive],
        power: bool,
        lose: &[usize],
        back: bool,
        first: bool,
        chosen: u64,
    ) -> Outcome {
        self.out.starts += 1;
        let moment = &step.moment;
        let mut rig = Rig::resume(self.story.setup, drives.to_vec(), moment, chosen)?;
        if back {
            rig.plug_in_again();
            rig.refuse_apart();
        } else {
            self.leave_out(&rig, moment);
        }
        rig.after_crash(lose, moment, power);
        rig.start()?;
        let again = self.limits.again_every;
        if first && again > 0 && (chosen / self.limits.start_every).is_multiple_of(again) {
            return self.again(rig);
        }
        rig.verify()?;
        self.out.torn += rig.torn;
        if chosen % 3 == 0 {
            lose_one_more(&mut rig)?;
        }
        Ok(())
    }

    /// Members that were not in sync are not there.
    fn leave_out(&self, rig: &Rig, moment: &Moment) {
        let mut world = rig.world.borrow_mut();
        for (place, live) in moment.live.iter().enumerate() {
            if let Some(drive) = moment.drive(place).filter(|_| !live) {
                world.drives[drive].faults.dead = Some(DriveError::Gone);
            }
        }
    }

    /// The start is crashed at each of its events.
    fn again(&mut self, mut rig: Rig) -> Outcome {
        self.out.again += 1;
        let mut story = Story::begin(&rig);
        rig.submit(Operation::Read, 0..1, false);
        story.quiesce(&mut rig)?;
        drop(rig);
        self.all(&story.steps, &|_| Ok(()), false)
    }
}
