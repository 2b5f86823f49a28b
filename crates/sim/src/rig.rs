//! One array under test: its drives, the core that serves it, its clients and the model.

mod check;
mod cores;
mod crash;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use strake_engine::array::{Array, Command, CommandError};
use strake_engine::block::{BlockError, BlockRequest, Operation};
use strake_engine::format::assemble::Assembly;
use strake_engine::format::superblock::{Consistency, MemberState, RunState, Superblock};
use strake_engine::layout::{Geometry, MemberIndex, Shape};
use strake_node::core::{AttachResult, Core, Message};
use strake_reactor::buffer::{Buffer, Pool};
use strake_reactor::port::DriveError;

use crate::content::{self, TORN};
use crate::drive::{Discarded, SimDrive, Stray, StrayKind};
use crate::import::{self, Imported, Sizes};
use crate::model::Model;
use crate::parity;
use crate::port::SimPort;
use crate::world::World;

use cores::Cores;

pub use crash::Moment;

/// A result with a sentence for people.
pub type Outcome<T = ()> = Result<T, String>;

/// In the error of a wait that has no end.
pub const NEVER: &str = "does not come";

/// Virtual time within which anything that waits must have come.
const PATIENCE_NS: u64 = 600_000_000_000;
/// The same where a drive hangs, so that it may never come.
const HUNG_NS: u64 = 5_000_000_000;
/// Turns of a core at one moment at most.
const TURNS_MAX: u32 = 200_000;

/// What an array is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Shape.
    pub shape: Shape,
    /// Regions and log.
    pub sizes: Sizes,
    /// How writes are kept true over a crash.
    pub policy: Consistency,
    /// Bytes of a drive's sector; a block of the array may be several.
    pub sector_bytes: u32,
    /// Drives (by number, modulo 64) with a cache that a power cut may lose.
    pub volatile: u64,
    /// What drives make of a discard.
    pub discarded: Discarded,
    /// Latencies are multiplied by this: 1 for fast drives.
    pub slowness: u64,
    /// Operations end in the order of their submission.
    pub orderly: bool,
    /// Memory of the operations.
    pub memory_bytes: usize,
    /// Cores that serve the array.
    pub cores: usize,
}

impl Setup {
    /// Fast drives without caches, a few regions of 1 MiB, the policy of parity without a log.
    pub fn plain(shape: Shape) -> Setup {
        Setup {
            shape,
            sizes: Sizes {
                regions: 4,
                region_bytes: shape.strip_size_bytes.max(1 << 20),
                log_bytes: 1 << 20,
            },
            policy: Consistency::Resync,
            sector_bytes: shape.block_size_bytes,
            volatile: 0,
            discarded: Discarded::Garbage,
            slowness: 1,
            orderly: false,
            memory_bytes: 4 << 20,
            cores: 1,
        }
    }

    fn drive(&self, number: usize, more: u64) -> SimDrive {
        SimDrive::new(
            self.sizes.drive_bytes() + more,
            self.sector_bytes,
            self.volatile >> (number % 64) & 1 == 1,
            self.discarded,
        )
    }
}

thread_local! {
    /// Pools outlive runs: mapping their memory costs more than a small run.
    static POOLS: RefCell<BTreeMap<usize, Pool>> = const { RefCell::new(BTreeMap::new()) };
}

fn pool(bytes: usize) -> Outcome<Pool> {
    let kept = POOLS.with(|pools| pools.borrow().get(&bytes).cloned());
    if let Some(pool) = kept.filter(|pool| pool.bytes_free() == pool.bytes_total()) {
        return Ok(pool);
    }
    let pool = Pool::new(bytes).map_err(|error| error.to_string())?;
    POOLS.with(|pools| pools.borrow_mut().insert(bytes, pool.clone()));
    Ok(pool)
}

/// What a client asked.
#[derive(Debug, Clone)]
enum Asked {
    Read {
        read: u64,
        blocks: Range<u64>,
        settle: bool,
    },
    Write {
        write: u64,
        durable: bool,
        /// In a region that waited for its resync when it was submitted.
        unsynced: bool,
        /// A resync was due then, and these members were live.
        due: Option<Vec<bool>>,
    },
    Flush {
        flush: u64,
    },
}

/// An answer of the array. The guard answers `None` if the callback is dropped without a call.
struct Guard {
    id: u64,
    answers: Answers,
    called: bool,
}

type Answer = (u64, Option<Result<(), BlockError>>, Option<Buffer>);
type Answers = Arc<Mutex<Vec<Answer>>>;

impl Guard {
    fn answer(mut self, result: Result<(), BlockError>, buffer: Option<Buffer>) {
        self.called = true;
        self.answers
            .lock()
            .expect("one thread")
            .push((self.id, Some(result), buffer));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.called {
            self.answers
                .lock()
                .expect("one thread")
                .push((self.id, None, None));
        }
    }
}

/// What was answered to a command.
pub type CommandAnswer = Result<(), CommandError>;

/// The array under test.
pub struct Rig {
    /// Drives and time.
    pub world: Rc<RefCell<World>>,
    cores: Cores,
    pool: Pool,
    setup: Setup,
    geometry: Geometry,
    /// Drive by place; `None`: the place is empty.
    pub places: Vec<Option<usize>>,
    /// Every drive that has been a member and is still plugged in.
    pub plugged: Vec<usize>,
    /// What blocks may hold.
    pub model: Model,
    next_stamp: u64,
    next_request: u64,
    asked: BTreeMap<u64, Asked>,
    answers: Answers,
    replies: Arc<Mutex<BTreeMap<u64, Result<CommandAnswer, String>>>>,
    next_command: u64,
    starts: u64,
    /// Block requests may fail: more is lost than the level survives.
    pub errors_allowed: bool,
    /// Requests that failed.
    pub errors: u64,
    /// Requests answered.
    pub answered: u64,
    /// The next start accepts what may be wrong ([`strake_engine::array::Start::accept_doubtful`]).
    pub accept_doubtful: bool,
    /// The array has been stopped cleanly.
    stopped: bool,
    /// The first request that came when the cores were leaving: it and later ones may be told that
    /// the array has stopped, those of before may not.
    late_from: Option<u64>,
    /// Places that were not live at the last stop.
    stopped_without: Vec<usize>,
    /// A drive that was replaced stays plugged in.
    pub keep_old: bool,
    /// Reads of now settle what blocks hold: nothing else is under way.
    settling: bool,
    /// Ranges whose reads failed while settling.
    failed: Vec<Range<u64>>,
    /// The last start replayed a log: what it left is durable.
    replayed: bool,
    /// Policy and live members when the last crash came.
    before_crash: Option<(Option<Consistency>, Vec<bool>)>,
    /// Blocks read as errors at the last settling.
    pub torn: u64,
    verified: u64,
    returned: Vec<usize>,
    /// A resync has not ended.
    doubtful: bool,
    /// A crash came where nothing keeps parity true.
    pub unprotected: bool,
}

impl Rig {
    /// An array fresh on fresh drives, started.
    ///
    /// # Errors
    /// When it cannot be made or does not start.
    pub fn new(setup: Setup, seed: u64) -> Outcome<Rig> {
        let mut world = World::new(seed);
        let drives: Vec<usize> = (0..setup.shape.members())
            .map(|number| world.add_drive(setup.drive(number, 0)))
            .collect();
        let policy = setup.policy;
        let superblock = import::create(&mut world, &drives, setup.shape, setup.sizes, policy)?;
        let blocks = superblock.volume_size_bytes / u64::from(setup.shape.block_size_bytes);
        let model = Model::new(blocks, setup.volatile != 0);
        let mut rig = Rig::with_world(setup, world, model)?;
        rig.start()?;
        Ok(rig)
    }

    fn with_world(setup: Setup, mut world: World, model: Model) -> Outcome<Rig> {
        let seed = world.seed();
        world.slowness = setup.slowness;
        world.orderly = setup.orderly;
        world.trace = std::env::var_os("STRAKE_SIM_TRACE").is_some();
        let data = setup.sizes.regions * setup.sizes.region_bytes;
        let geometry = crate::geometries::geometry(setup.shape, data, setup.sizes.region_bytes);
        let plugged: Vec<usize> = (0..world.drives.len()).collect();
        let world = Rc::new(RefCell::new(world));
        let pool = pool(setup.memory_bytes)?;
        Ok(Rig {
            cores: Cores::new(&world, &pool, setup.cores, seed),
            pool,
            world,
            setup,
            geometry,
            places: vec![None; setup.shape.members()],
            plugged,
            model,
            next_stamp: 0,
            next_request: 0,
            asked: BTreeMap::new(),
            answers: Answers::default(),
            replies: Arc::default(),
            next_command: 0,
            starts: 0,
            errors_allowed: false,
            errors: 0,
            answered: 0,
            accept_doubtful: false,
            stopped: false,
            late_from: None,
            stopped_without: Vec::new(),
            keep_old: false,
            settling: false,
            failed: Vec::new(),
            replayed: false,
            before_crash: None,
            torn: 0,
            verified: 0,
            returned: Vec::new(),
            doubtful: false,
            unprotected: false,
        })
    }

    /// Shape and places.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What it is made of.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.setup.shape.block_size_bytes)
    }

    /// Blocks of the volume.
    pub fn blocks(&self) -> u64 {
        self.model.len()
    }

    /// Now.
    pub fn now_ns(&self) -> u64 {
        self.world.borrow().now_ns()
    }

    /// Imports and starts the array from the drives that are plugged in. What the import says of
    /// the array before it runs is returned.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self) -> Outcome<Imported> {
        self.starts += 1;
        let mut imported = self.import()?;
        if !imported.assembly.enough_members() && !self.errors_allowed {
            return Err(format!(
                "too few members are found: {:?}",
                imported.assembly
            ));
        }
        // After a crash in a replacement the new drive may be listed and not know it yet.
        let doubt = imported.assembly.newer_may_exist.as_ref();
        if let Some(why) = doubt.filter(|_| self.stopped && !self.some_dead()) {
            return Err(format!("all drives that work are here, and yet: {why}"));
        }
        self.stopped = false;
        self.late_from = None;
        let start = imported.start.take().expect("just imported");
        self.replayed |= start.replay.is_some();
        for &drive in &self.plugged {
            let faults = &mut self.world.borrow_mut().drives[drive].faults;
            let misread = |stray: &Stray| matches!(stray.kind, StrayKind::Misread(_));
            faults.strays.retain(|stray| !misread(stray));
        }
        self.places.clone_from(&imported.places);
        let specs = self
            .places
            .iter()
            .map(|place| place.map(SimPort::spec))
            .collect();
        let now = self.now_ns();
        self.cores.add(start, specs, now)?;
        Ok(imported)
    }

    /// What a start would go on from now.
    ///
    /// # Errors
    /// Why there is none.
    pub fn import(&self) -> Outcome<Imported> {
        import::import(
            &self.world.borrow(),
            &self.plugged,
            self.starts,
            self.setup.memory_bytes,
            self.accept_doubtful,
        )
    }

    fn some_dead(&self) -> bool {
        let world = self.world.borrow();
        self.plugged
            .iter()
            .any(|&drive| world.drives[drive].faults.dead.is_some())
    }

    /// Looks at the engine.
    pub fn look<T: Send + 'static>(
        &mut self,
        look: impl FnOnce(&Array) -> T + Send + 'static,
    ) -> T {
        let seen = Arc::new(Mutex::new(None));
        let into = seen.clone();
        let now = self.now_ns();
        let look = Box::new(move |view: Option<strake_node::core::View<'_>>| {
            *into.lock().expect("one thread") =
                Some(look(view.expect("the array is served").engine));
        });
        let id = self.cores.id();
        self.cores.message(Message::Look(id, look), now);
        let seen = seen.lock().expect("one thread").take();
        seen.expect("a look is answered at once")
    }

    fn message(&mut self, message: Message) {
        let now = self.now_ns();
        self.cores.message(message, now);
    }

    /// Submits a read, write, zeroing or discard of these blocks.
    pub fn submit(&mut self, operation: Operation, blocks: Range<u64>, durable: bool) {
        let bytes = self.block_bytes();
        let length = (blocks.end - blocks.start) * bytes;
        let id = self.next_request;
        self.next_request += 1;
        let unsynced = operation == Operation::Write && self.wait_for_a_resync(blocks.clone());
        let due = unsynced
            .then(|| self.resync_is_due(blocks.clone()))
            .flatten();
        let (asked, buffer) = match operation {
            Operation::Read => {
                let mut buffer = Buffer::heap(length as usize);
                buffer.as_mut_slice().fill(0xa5);
                let read = self.model.read_submitted(blocks.clone());
                (
                    Asked::Read {
                        read,
                        blocks: blocks.clone(),
                        settle: self.settling,
                    },
                    Some(buffer),
                )
            }
            Operation::Write => {
                self.next_stamp += 1;
                let mut buffer = Buffer::heap(length as usize);
                for (block, out) in blocks
                    .clone()
                    .zip(buffer.as_mut_slice().chunks_mut(bytes as usize))
                {
                    content::fill(self.next_stamp, block, out);
                }
                let write = self.model.write_submitted(blocks.clone(), self.next_stamp);
                let asked = Asked::Write {
                    write,
                    durable,
                    unsynced,
                    due,
                };
                (asked, Some(buffer))
            }
            Operation::WriteZeroes | Operation::Discard => {
                let write = self.model.write_submitted(blocks.clone(), 0);
                let asked = Asked::Write {
                    write,
                    durable,
                    unsynced,
                    due,
                };
                (asked, None)
            }
            Operation::Flush => (
                Asked::Flush {
                    flush: self.model.flush_submitted(),
                },
                None,
            ),
        };
        self.asked.insert(id, asked);
        let guard = Guard {
            id,
            answers: self.answers.clone(),
            called: false,
        };
        let request = BlockRequest {
            operation,
            offset: blocks.start * bytes,
            length,
            durable,
            buffer,
            done: Box::new(move |result, buffer| guard.answer(result, buffer)),
        };
        let now = self.now_ns();
        self.cores.submit(request, now);
    }

    /// Submits a flush.
    pub fn flush(&mut self) {
        self.submit(Operation::Flush, 0..0, false);
    }

    /// Requests that have not been answered.
    pub fn under_way(&self) -> usize {
        self.asked.len()
    }

    /// Gives a command; its answer is asked for with [`Rig::answer_of`].
    pub fn command(&mut self, command: Command) -> u64 {
        let (id, reply) = self.reply_slot();
        let answer = Box::new(move |result| reply(Ok(result)));
        let now = self.now_ns();
        let message = Message::Command(self.cores.id(), command, answer);
        self.cores.tell(message, now);
        id
    }

    fn reply_slot(
        &mut self,
    ) -> (
        u64,
        impl FnOnce(Result<CommandAnswer, String>) + Send + 'static,
    ) {
        let id = self.next_command;
        self.next_command += 1;
        let replies = self.replies.clone();
        let reply = move |answer| {
            let before = replies.lock().expect("one thread").insert(id, answer);
            assert!(before.is_none(), "command {id} is answered twice");
        };
        (id, reply)
    }

    /// Plugs a drive in and puts it in a place that has none.
    pub fn replace(&mut self, place: usize, drive: usize) -> u64 {
        let (id, reply) = self.reply_slot();
        let member = MemberIndex(place as u16);
        let command = Command::Replace {
            member,
            uuid: import::uuid(3, self.world.borrow().operations << 16 | drive as u64),
            serial: SimPort::serial(drive),
            size_bytes: self.world.borrow().drives[drive].size_bytes(),
            volatile: self.world.borrow().drives[drive].is_volatile(),
        };
        let answer = Box::new(move |result| match result {
            AttachResult::Done => reply(Ok(Ok(()))),
            AttachResult::Refused(error) => reply(Ok(Err(error))),
            AttachResult::NotYet => reply(Err("not yet".into())),
            AttachResult::Open(error) => reply(Err(error.to_string())),
            AttachResult::Gone => reply(Err("no such array".into())),
        });
        self.message(Message::Attach(
            self.cores.id(),
            member,
            SimPort::spec(drive),
            command,
            answer,
        ));
        if let Some(old) = self.places[place].replace(drive)
            && !self.keep_old
            && old != drive
        {
            self.plugged.retain(|&d| d != old);
            self.world.borrow_mut().drives[old].scrap();
        }
        if !self.plugged.contains(&drive) {
            self.plugged.push(drive);
        }
        id
    }

    /// A new drive, full of something, as large as the others and `more` bytes.
    pub fn fresh_drive(&mut self, more: u64) -> usize {
        let mut world = self.world.borrow_mut();
        let mut drive = self.setup.drive(world.drives.len(), more);
        drive.fill(0x5a);
        world.add_drive(drive)
    }

    /// The answer to a command, once.
    pub fn answer_of(&mut self, command: u64) -> Option<Result<CommandAnswer, String>> {
        self.replies.lock().expect("one thread").remove(&command)
    }

    /// Lets the core work, then moves time on to the next event. False: none is to come until
    /// `until_ns`, and time stands still.
    ///
    /// # Errors
    /// A block with wrong content, an unexpected error, a core that does not come to rest.
    pub fn step(&mut self, until_ns: u64) -> Outcome<bool> {
        let now = self.now_ns();
        self.cores.work(now)?;
        self.take_answers()?;
        // What has ended while every core was behind waits for one of them.
        let drives = self.world.borrow().next_ns().filter(|&next| next > now);
        let next = [drives, self.cores.next_ns(now)]
            .into_iter()
            .flatten()
            .min();
        let Some(next) = next.filter(|&next| next <= until_ns) else {
            return Ok(false);
        };
        self.world.borrow_mut().advance(next);
        Ok(true)
    }

    fn take_answers(&mut self) -> Outcome {
        let answers = std::mem::take(&mut *self.answers.lock().expect("one thread"));
        for (id, result, buffer) in answers {
            let asked = self
                .asked
                .remove(&id)
                .ok_or(format!("request {id} is answered twice"))?;
            let result = result.ok_or(format!(
                "request {id} ({asked:?}) was dropped without an answer"
            ))?;
            self.answered += 1;
            self.world
                .borrow_mut()
                .note(id << 8 | u64::from(result.is_err()));
            let text = format!("request {id} ({asked:?})");
            let torn = self.answered_one(asked, result.is_ok(), buffer)?;
            if let Err(error) = result {
                self.errors += 1;
                let late = self.late_from.is_some_and(|from| id >= from);
                let late = late && error == BlockError::Stopped;
                if !torn && !late && !self.errors_allowed {
                    return Err(format!("{text} failed: {error}"));
                }
            }
        }
        Ok(())
    }

    /// True: an error may be the answer, because a block may be torn.
    fn answered_one(&mut self, asked: Asked, ok: bool, buffer: Option<Buffer>) -> Outcome<bool> {
        match asked {
            Asked::Write {
                write,
                durable,
                unsynced,
                due,
            } => {
                let doubtful = if ok {
                    self.lost_with_the_resync(write, due)
                } else {
                    Vec::new()
                };
                let cut_off = !ok && unsynced && self.some_drive_dies();
                self.model.write_ended(write, ok, durable);
                doubtful.into_iter().for_each(|b| self.model.may_tear(b));
                return Ok(cut_off);
            }
            Asked::Flush { flush } => self.model.flush_ended(flush, ok),
            Asked::Read {
                read,
                blocks,
                settle,
            } if !ok => {
                let torn = self.model.read_failed(read);
                // Of several blocks each is read alone later.
                let later = settle && blocks.end - blocks.start > 1;
                if settle {
                    self.failed.push(blocks);
                }
                return Ok(torn || later);
            }
            Asked::Read {
                read,
                blocks,
                settle,
            } => {
                let buffer = buffer.ok_or("a read came back without its buffer")?;
                let size = self.block_bytes() as usize;
                let contents = buffer.as_slice().chunks(size).zip(blocks.clone());
                let stamps: Vec<_> = contents
                    .map(|(bytes, block)| content::stamp_of(block, bytes))
                    .collect();
                if let Err(violation) = self.model.read_ended(read, &stamps) {
                    let at = violation.block * size as u64;
                    let piece = self.geometry.piece(at, size as u64);
                    return Err(format!(
                        "wrong content: {violation:x?} (byte {at}, {piece:?})"
                    ));
                }
                if settle && !self.doubtful {
                    for (block, stamp) in blocks.zip(stamps).filter_map(|(b, s)| Some((b, s?))) {
                        self.model.settle(block, stamp, self.replayed);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Steps until `until` says so.
    ///
    /// # Errors
    /// Those of [`Rig::step`]; that it never comes.
    pub fn run_until(&mut self, what: &str, mut until: impl FnMut(&mut Rig) -> bool) -> Outcome {
        let began = self.now_ns();
        while !until(self) {
            let hung = self.world.borrow().hung() > 0;
            let limit = began + if hung { HUNG_NS } else { PATIENCE_NS };
            if !self.step(limit)? && !until(self) {
                return Err(format!("{what} {NEVER}: {}", self.describe()));
            }
        }
        Ok(())
    }

    /// Waits for every request under way.
    ///
    /// # Errors
    /// Those of [`Rig::run_until`].
    pub fn quiesce(&mut self) -> Outcome {
        self.run_until("the end of all requests", |rig| rig.asked.is_empty())
    }

    /// Lets this much time pass.
    ///
    /// # Errors
    /// Those of [`Rig::step`].
    pub fn idle(&mut self, nanoseconds: u64) -> Outcome {
        let end = self.now_ns() + nanoseconds;
        while self.step(end)? {}
        self.world.borrow_mut().advance(end);
        Ok(())
    }

    /// Gives a command and waits for its answer.
    ///
    /// # Errors
    /// That it was refused, or never answered.
    pub fn do_command(&mut self, command: Command) -> Outcome {
        let text = format!("{command:?}");
        let id = self.command(command);
        self.wait_command(id, &text)
    }

    /// Waits for the answer to a command.
    ///
    /// # Errors
    /// That it was refused, or never answered.
    pub fn wait_command(&mut self, id: u64, text: &str) -> Outcome {
        let replies = self.replies.clone();
        self.run_until(text, |_| {
            replies.lock().expect("one thread").contains_key(&id)
        })?;
        match self.answer_of(id).expect("has come") {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("{text}: refused: {error}")),
            Err(error) => Err(format!("{text}: {error}")),
        }
    }

    /// Fails or removes a place, puts a fresh drive in and waits for the rebuild's beginning.
    ///
    /// # Errors
    /// Those of the steps.
    pub fn do_replace(&mut self, place: usize) -> Outcome {
        let fresh = self.fresh_drive(0);
        loop {
            let id = self.replace(place, fresh);
            match self.wait_command(id, "replace") {
                Err(why) if why.ends_with("not yet") => self.idle(1_000_000)?,
                other => return other,
            }
        }
    }

    /// Stops cleanly and closes the drives.
    ///
    /// # Errors
    /// That the stop failed.
    pub fn stop(&mut self) -> Outcome {
        let left = self.cores.leave();
        let all = self.cores.len();
        self.late_from = Some(self.next_request);
        for _ in 1..all {
            // Too late, and answered all the same.
            self.submit(Operation::Read, 0..1, false);
        }
        self.run_until("every core's leaving", |_| {
            *left.lock().expect("one thread") == all
        })?;
        self.do_command(Command::Stop)?;
        self.stopped_without = self.look(|array| {
            let members = array.members().iter().enumerate();
            members
                .filter(|(_, m)| !m.is_live())
                .map(|(place, _)| place)
                .collect()
        });
        self.quiesce()?;
        let (free, total) = (self.pool.bytes_free(), self.pool.bytes_total());
        if free != total {
            return Err(format!(
                "after a stop {} bytes of the pool are in use",
                total - free
            ));
        }
        self.message(Message::Forget(self.cores.id(), Box::new(|| {})));
        self.stopped = true;
        match self.world.borrow().under_way() {
            0 => Ok(()),
            under_way => Err(format!("after a stop {under_way} operations are under way")),
        }
    }

    /// State for a report.
    pub fn describe(&mut self) -> String {
        let array = self.look(|array| {
            let members: Vec<String> = array
                .members()
                .iter()
                .map(|m| format!("{}({})", m.state.name(), m.in_flight))
                .collect();
            format!(
                "members {}, tasks {:?}, regions {:?}, {:?}, busy {}, {}",
                members.join(" "),
                array.tasks(),
                array.region_counts(),
                array.counters(),
                array.busy(),
                array.describe_operations()
            )
        });
        format!(
            "{} requests under way {:?}; {array}; {}",
            self.asked.len(),
            self.asked.values().take(5).collect::<Vec<_>>(),
            self.world.borrow().describe()
        )
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Operations under way hold memory of requests: they go first.
        if let Ok(mut world) = self.world.try_borrow_mut() {
            world.crash(false);
        }
    }
}
