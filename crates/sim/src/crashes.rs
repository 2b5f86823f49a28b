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
use crate::rig::{Moment, NEVER, Outcome, Rig, Setup};

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

/// How far a story is followed. The order is asserted on every outcome; of the outcomes with every
/// further loss so many are started, evenly chosen.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Outcomes that are started and compared.
    pub starts: usize,
    /// Of them, those whose start is crashed at each of its events.
    pub again: usize,
    /// For each of these, outcomes started and compared.
    pub starts_again: usize,
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
            [0, u64::MAX]
                .into_iter()
                .chain(random)
                .chain(both)
                .collect()
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
                return Err(format!("{what} {NEVER}: {}", rig.describe()));
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
}

impl Story {
    /// What each crash leaves, the drives in the places of `lose` gone with it (as far as all data
    /// stays), not started yet: for a story that begins there.
    ///
    /// # Errors
    /// Those of `go_on`.
    pub fn after_each(
        &self,
        power: bool,
        lose: &[usize],
        mut go_on: impl FnMut(Rig) -> Outcome,
    ) -> Outcome {
        for (number, step) in self.steps.iter().enumerate() {
            for landings in Landings::of(step.moment.snapshot.doubtful(power)) {
                let drives = step
                    .moment
                    .snapshot
                    .crashed(power, |index| landings.at(index));
                let mut rig = Rig::resume(self.setup, drives, &step.moment, number as u64)?;
                rig.after_crash(lose, &step.moment, power);
                go_on(rig)?;
            }
        }
        Ok(())
    }
}

/// A crash, and what is lost and back after it.
struct Outset<'a> {
    step: &'a Step,
    power: bool,
    landings: Landings,
    lose: Vec<usize>,
    /// Members that had left are there again.
    back: bool,
    place: String,
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
    /// Asserts the order on every outcome, then starts some.
    fn all(&mut self, steps: &[Step], order: &Order<'_>, first: bool) -> Outcome {
        let before = std::mem::take(&mut self.place);
        let mut outsets = Vec::new();
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
                    if self.landed(step, power, landings, order)? {
                        self.outsets(step, power, landings, &mut outsets);
                    }
                }
            }
        }
        let (starts, again) = match first {
            true => (self.limits.starts, self.limits.again),
            false => (self.limits.starts_again, 0),
        };
        let every = outsets.len().div_ceil(starts.max(1)).max(1);
        let chosen: Vec<&Outset<'_>> = outsets.iter().step_by(every).collect();
        let again_every = chosen
            .len()
            .checked_div(again)
            .map_or(usize::MAX, |every| every.max(1));
        for (number, outset) in chosen.into_iter().enumerate() {
            self.place.clone_from(&outset.place);
            self.start(outset, (number + 1).is_multiple_of(again_every), number)?;
        }
        self.place = before;
        Ok(())
    }

    /// False: an outcome equal to one before.
    fn landed(
        &mut self,
        step: &Step,
        power: bool,
        landings: Landings,
        order: &Order<'_>,
    ) -> Outcome<bool> {
        let moment = &step.moment;
        let drives = moment.snapshot.crashed(power, |index| landings.at(index));
        let mut hash = u64::from(power);
        for (number, drive) in drives.iter().enumerate() {
            let base = self.story.base.get(number).unwrap_or(&self.story.base[0]);
            drive.image().hash_against(base.image(), &mut hash);
        }
        moment.model.hash_into(&mut hash);
        mix(&mut hash, step.answered << 8 | step.commands);
        if !self.seen.insert(hash) {
            return Ok(false);
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
        Ok(true)
    }

    fn outsets<'s>(
        &self,
        step: &'s Step,
        power: bool,
        landings: Landings,
        outsets: &mut Vec<Outset<'s>>,
    ) {
        let left = step.moment.live.iter().any(|live| !live);
        for lose in step.moment.may_lose(self.story.setup.shape) {
            if lose.len() > self.limits.lose {
                continue;
            }
            for back in [true, false].into_iter().take(1 + usize::from(left)) {
                let place = format!(
                    "{}, then lost {lose:?}, who had left is back: {back}",
                    self.place
                );
                outsets.push(Outset {
                    step,
                    power,
                    landings,
                    lose: lose.clone(),
                    back,
                    place,
                });
            }
        }
    }

    fn start(&mut self, outset: &Outset<'_>, again: bool, number: usize) -> Outcome {
        self.out.starts += 1;
        let moment = &outset.step.moment;
        let drives = moment
            .snapshot
            .crashed(outset.power, |index| outset.landings.at(index));
        let mut rig = Rig::resume(self.story.setup, drives, moment, number as u64)?;
        if outset.back {
            rig.plug_in_again();
            rig.refuse_apart();
        } else {
            leave_out(&rig, moment);
        }
        rig.after_crash(&outset.lose, moment, outset.power);
        rig.start()?;
        if again {
            return self.again(rig);
        }
        rig.verify()?;
        self.out.torn += rig.torn;
        if number.is_multiple_of(2) {
            lose_one_more(&mut rig)?;
        }
        Ok(())
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

/// Members that were not in sync are not there.
fn leave_out(rig: &Rig, moment: &Moment) {
    let mut world = rig.world.borrow_mut();
    for (place, live) in moment.live.iter().enumerate() {
        if let Some(drive) = moment.drive(place).filter(|_| !live) {
            world.drives[drive].faults.dead = Some(DriveError::Gone);
        }
    }
}
