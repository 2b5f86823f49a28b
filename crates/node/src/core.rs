//! The loop of one core: messages in, completions in, ticks; arrays answer; then sleep.
//!
//! Generic over the [`Port`], so that the simulator runs the same loop on its own drives and time.

use std::sync::{Arc, Mutex};

use strake_engine::array::{Action, Array, Command, CommandError, Start};
use strake_engine::block::{BlockError, BlockRequest, Operation};
use strake_engine::layout::MemberIndex;
use strake_reactor::buffer::{Buffer, Pool};
use strake_reactor::drive::{DriveInfo, DriveSpec, FaultPlan, OpenError};
use strake_reactor::port::{Completion, DriveId, Port, Waker};

use crate::front::Front;
pub use crate::front::{Passed, Returned, Share};
use crate::served::{Answer, Asked, Client, Reply, Served, slot_of};

/// Arrays on one core at most: the place is eight bits of a token.
const ARRAYS_MAX: usize = 255;

/// Arrays on one core beyond which it serves none that runs on another.
const FRONTS_MAX: usize = 128;

/// Bits of an array's id that are its place; the others count the arrays added before it.
const PLACE_BITS: u32 = 8;

/// Looks at an array from its core's thread.
pub type Look = Box<dyn FnOnce(Option<View<'_>>) + Send>;

/// What a look sees.
pub struct View<'a> {
    /// The state machine.
    pub engine: &'a Array,
    /// Drives by place.
    pub drives: Vec<Option<&'a DriveInfo>>,
}

/// Answers the adding of an array with its id on the core: never given twice.
pub type AddReply = Box<dyn FnOnce(Result<usize, OpenError>) + Send>;

/// What can be asked of a core. Arrays are named by the id that [`Message::Add`] answered.
pub enum Message {
    /// A client's request for an array.
    Block(usize, BlockRequest<Buffer>),
    /// Open these drives (by place) and serve the array.
    Add(Box<Start>, Vec<Option<DriveSpec>>, AddReply),
    /// A command for an array.
    Command(usize, Command, Reply),
    /// Open a drive for an empty place of an array; then the command is given.
    Attach(
        usize,
        MemberIndex,
        DriveSpec,
        Command,
        Box<dyn FnOnce(AttachResult) + Send>,
    ),
    /// Look at an array.
    Look(usize, Look),
    /// Inject faults into a member's drive; answers whether it was opened as `faulty:`.
    Faults(
        usize,
        MemberIndex,
        Option<FaultPlan>,
        Box<dyn FnOnce(bool) + Send>,
    ),
    /// Close a stopped array's drives and forget it; on the core that runs it, when it has left all
    /// others. Answered when nothing is under way.
    Forget(usize, Box<dyn FnOnce() + Send>),
    /// The core with this mailbox is to serve an array, too, that runs here.
    Share(usize, Arc<Mailbox>, Box<dyn FnOnce(Option<Share>) + Send>),
    /// Serve an array that runs on another core; answers with its id here. `None`: too many arrays.
    Join(Box<Share>, Box<dyn FnOnce(Option<usize>) + Send>),
    /// The core of this link serves the array, under this id: from now on it is told of drives.
    Link(usize, u32, usize),
    /// From the core that runs an array: a place has got a drive, or lost it.
    Drive {
        /// The array's id on this core.
        front: usize,
        /// Place.
        member: MemberIndex,
        /// What to open, and what must be found there; `None`: it is to be closed.
        drive: Option<(DriveSpec, String)>,
        /// How many drives had been attached and detached when it was.
        drives: u64,
    },
    /// To the core that runs an array: another has closed a drive.
    DriveLeft {
        /// The array's id.
        array: usize,
        /// Number of the other core.
        link: u32,
        /// Place.
        member: MemberIndex,
    },
    /// To the core that runs an array: another serves it no more.
    Left {
        /// The array's id.
        array: usize,
        /// Number of the other core.
        link: u32,
    },
    /// To the core that runs an array: requests of another.
    Passed {
        /// The array's id.
        array: usize,
        /// Number of the other core.
        link: u32,
        /// Requests.
        batch: Vec<Passed>,
    },
    /// From the core that runs an array: requests that were passed on.
    Returned {
        /// The array's id on this core.
        front: usize,
        /// Requests.
        batch: Vec<Returned>,
    },
    /// End the loop.
    End,
}

/// A request of a client that runs on the core's own thread: nothing is allocated or locked for it.
pub struct LocalRequest {
    /// What to do.
    pub operation: Operation,
    /// First byte on the volume.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Force unit access.
    pub durable: bool,
    /// As in [`BlockRequest`].
    pub buffer: Option<Buffer>,
    /// The client's own name for it.
    pub tag: u64,
}

/// The end of a [`LocalRequest`].
#[derive(Debug)]
pub struct Ended {
    /// As given.
    pub tag: u64,
    /// Outcome.
    pub result: Result<(), BlockError>,
    /// As given, filled by a read.
    pub buffer: Option<Buffer>,
}

/// Outcome of [`Message::Attach`].
pub enum AttachResult {
    /// The drive is a member and its rebuild has been started.
    Done,
    /// The place still has a drive whose I/O has not ended: try again.
    NotYet,
    /// The drive cannot be opened.
    Open(OpenError),
    /// The engine refused.
    Refused(CommandError),
    /// No such array.
    Gone,
}

/// Messages for one core, from any thread.
pub struct Mailbox {
    queue: Mutex<Vec<Message>>,
    waker: Waker,
}

impl Mailbox {
    /// A mailbox of the port behind `waker`.
    pub fn new(waker: Waker) -> Mailbox {
        Mailbox {
            queue: Mutex::default(),
            waker,
        }
    }

    /// Sends a message.
    pub fn send(&self, message: Message) {
        self.queue
            .lock()
            .expect("no panic while held")
            .push(message);
        self.waker.wake();
    }

    fn take(&self, into: &mut Vec<Message>) {
        std::mem::swap(&mut *self.queue.lock().expect("no panic while held"), into);
    }
}

/// One core: its port and its arrays.
pub struct Core<P: Port> {
    /// The world.
    pub port: P,
    pool: Pool,
    arrays: Vec<Option<Front>>,
    mailbox: Arc<Mailbox>,
    messages: Vec<Message>,
    completions: Vec<Completion>,
    /// Arrays added so far.
    added: usize,
    /// What ended of local requests to arrays that have been forgotten since, by their ids.
    left: Vec<(usize, Ended)>,
    ended: bool,
}

impl<P: Port> Core<P> {
    /// A core without arrays. `pool`: where operations' slots come from.
    pub fn new(port: P, pool: Pool) -> Core<P> {
        let mailbox = Arc::new(Mailbox::new(port.waker()));
        Core {
            port,
            pool,
            arrays: Vec::new(),
            mailbox,
            messages: Vec::new(),
            completions: Vec::new(),
            added: 0,
            left: Vec::new(),
            ended: false,
        }
    }

    /// Where to send messages.
    pub fn mailbox(&self) -> Arc<Mailbox> {
        self.mailbox.clone()
    }

    /// Serves until [`Message::End`].
    pub fn run(&mut self) {
        while !self.ended {
            if !self.turn() {
                let until = self.next_tick_ns();
                self.port.wait(until);
            }
        }
    }

    /// One round; false when there was nothing to do.
    pub fn turn(&mut self) -> bool {
        let now = self.port.now_ns();
        self.send();
        for array in self.arrays.iter_mut().flatten() {
            array.set_now(now);
        }
        let mut worked = self.take_messages(now);
        let mut completions = std::mem::take(&mut self.completions);
        self.port.poll(&mut completions);
        worked |= !completions.is_empty();
        for completion in completions.drain(..) {
            if let Some(Some(array)) = self.arrays.get_mut(slot_of(completion.token)) {
                array.io_done(completion.token, completion.result, &mut self.port);
            }
        }
        self.completions = completions;
        for array in self.arrays.iter_mut().flatten() {
            worked |= array.tick(now, &mut self.port);
            // Who waits for these asks after this round.
            worked |= !array.ended().is_empty();
        }
        worked |= self.send();
        self.drop_gone();
        worked
    }

    /// Sends what has been gathered for other cores.
    fn send(&mut self) -> bool {
        let arrays = self.arrays.iter_mut().flatten();
        arrays.fold(false, |sent, array| array.send() | sent)
    }

    fn drop_gone(&mut self) {
        for place in &mut self.arrays {
            if let Some(array) = place.take_if(|array| array.is_gone()) {
                let mut array = array;
                let id = array.id;
                let ended = array.ended().drain(..).map(|ended| (id, ended));
                self.left.extend(ended);
            }
        }
    }

    /// When the next tick is due.
    pub fn next_tick_ns(&self) -> Option<u64> {
        self.arrays
            .iter()
            .flatten()
            .filter_map(Front::next_tick_ns)
            .min()
    }

    fn take_messages(&mut self, now: u64) -> bool {
        let mut messages = std::mem::take(&mut self.messages);
        self.mailbox.take(&mut messages);
        let any = !messages.is_empty();
        for message in messages.drain(..) {
            self.message(message, now);
        }
        self.messages = messages;
        any
    }

    /// Takes a request of a client on this thread. Its end is among what [`Core::take_ended`] gives,
    /// possibly at once.
    ///
    /// # Errors
    /// The request, when there is no such array.
    pub fn submit(&mut self, array: usize, request: LocalRequest) -> Result<(), LocalRequest> {
        let Some(front) = find(&mut self.arrays, array) else {
            return Err(request);
        };
        let LocalRequest {
            operation,
            offset,
            length,
            durable,
            buffer,
            tag,
        } = request;
        let asked = Asked::new(operation, offset, length, durable);
        let answer = Answer::Local(tag);
        let client = Client { buffer, answer };
        front.ask(&asked, client, &mut self.port);
        Ok(())
    }

    /// Appends the requests to an array, submitted on this thread, that have ended.
    pub fn take_ended(&mut self, array: usize, into: &mut Vec<Ended>) {
        if let Some(front) = find(&mut self.arrays, array) {
            into.append(front.ended());
        } else {
            let of_it = self.left.extract_if(.., |(id, _)| *id == array);
            into.extend(of_it.map(|(_, ended)| ended));
        }
    }

    /// Handles a message at once, in the core's own thread.
    pub fn message(&mut self, message: Message, now: u64) {
        match message {
            Message::Block(id, request) => self.block(id, request),
            Message::Add(start, drives, reply) => reply(self.add(*start, drives, now)),
            Message::Command(id, command, reply) => match find(&mut self.arrays, id) {
                Some(array) => array.command(command, reply, &mut self.port),
                None => reply(Err(CommandError::stopped())),
            },
            Message::Attach(id, member, spec, command, reply) => {
                self.attach(id, member, &spec, command, reply)
            }
            Message::Look(id, look) => self.look(id, look),
            Message::Faults(id, member, plan, reply) => {
                let drive = find(&mut self.arrays, id)
                    .and_then(|array| array.served()?.drives.get(member.at())?.as_ref())
                    .map(|drive| drive.0);
                reply(drive.is_some_and(|drive| self.port.set_faults(drive, plan)));
            }
            Message::Forget(id, reply) => {
                match find(&mut self.arrays, id) {
                    Some(array) => array.forget(reply, &mut self.port),
                    None => reply(),
                }
                self.drop_gone();
            }
            Message::Share(id, other, reply) => {
                let me = self.mailbox.clone();
                reply(find(&mut self.arrays, id).and_then(|array| array.share(me, other)));
            }
            Message::Join(share, reply) => reply(self.join(*share)),
            Message::Link(id, link, front) => {
                if let Some(array) = find(&mut self.arrays, id) {
                    array.link(link, front);
                }
            }
            Message::Drive {
                front,
                member,
                drive,
                drives,
            } => self.set_drive(front, member, drive, drives),
            Message::DriveLeft {
                array,
                link,
                member,
            } => {
                if let Some(array) = find(&mut self.arrays, array) {
                    array.drive_left(link, member, &mut self.port);
                }
            }
            Message::Left { array, link } => {
                if let Some(array) = find(&mut self.arrays, array) {
                    array.left(link, &mut self.port);
                }
            }
            Message::Passed {
                array,
                link,
                mut batch,
            } => {
                if let Some(array) = find(&mut self.arrays, array) {
                    array.passed(link, &mut batch, &mut self.port);
                }
            }
            Message::Returned { front, mut batch } => {
                if let Some(front) = find(&mut self.arrays, front) {
                    front.returned(&mut batch, &mut self.port);
                }
            }
            Message::End => self.ended = true,
        }
    }

    fn block(&mut self, id: usize, request: BlockRequest<Buffer>) {
        let Some(array) = find(&mut self.arrays, id) else {
            return (request.done)(Err(BlockError::Stopped), request.buffer);
        };
        let (operation, durable) = (request.operation, request.durable);
        let asked = Asked::new(operation, request.offset, request.length, durable);
        let client = Client {
            buffer: request.buffer,
            answer: Answer::Call(request.done),
        };
        array.ask(&asked, client, &mut self.port);
    }

    /// A place for one more array; `None`: there is none.
    fn free_slot(&mut self) -> Option<usize> {
        match self.arrays.iter().position(Option::is_none) {
            Some(free) => Some(free),
            None if self.arrays.len() < ARRAYS_MAX => {
                self.arrays.push(None);
                Some(self.arrays.len() - 1)
            }
            None => None,
        }
    }

    /// The id of an array in this place, never given before.
    fn new_id(&mut self, slot: usize) -> usize {
        let id = self.added << PLACE_BITS | slot;
        self.added += 1;
        id
    }

    fn join(&mut self, share: Share) -> Option<usize> {
        // Arrays of other cores leave room for those of this one.
        if self.arrays.iter().flatten().count() >= FRONTS_MAX {
            return None;
        }
        let slot = self.free_slot()?;
        let id = self.new_id(slot);
        self.arrays[slot] = Some(Front::there(id, share));
        Some(id)
    }

    fn set_drive(
        &mut self,
        front: usize,
        member: MemberIndex,
        drive: Option<(DriveSpec, String)>,
        drives: u64,
    ) {
        let Some(front) = find(&mut self.arrays, front) else {
            return;
        };
        let drive = drive.map(|(spec, identity)| match self.port.open(&spec, true) {
            Ok((drive, info)) if info.identity == identity => Some(drive),
            Ok((drive, _)) => {
                tracing::warn!(%spec, "names another drive by now: one core cannot open the member, which costs speed");
                self.port.close(drive);
                None
            }
            Err(error) => {
                tracing::warn!(%spec, "one core cannot open a member, which costs speed: {error}");
                None
            }
        });
        front.set_drive(member, drive, drives, &mut self.port);
    }

    fn add(
        &mut self,
        mut start: Start,
        specs: Vec<Option<DriveSpec>>,
        now: u64,
    ) -> Result<usize, OpenError> {
        let slot = self.free_slot().ok_or_else(|| OpenError::Busy {
            path: start.superblock.name.clone(),
            by: format!("the core already serves {ARRAYS_MAX} arrays"),
        })?;
        let drives = self.open_all(&specs, start.read_only)?;
        start.now_ns = now;
        let mut actions: Vec<Action> = Vec::new();
        let code = strake_engine::array::code_of(&start.superblock)
            .expect("the superblock's shape was checked");
        let engine = Array::start(start, code, &mut actions);
        let id = self.new_id(slot);
        let served = Served::new(id, engine, self.pool.clone(), drives, actions);
        self.arrays[slot] = Some(Front::here(served, &mut self.port));
        Ok(id)
    }

    fn open_all(
        &mut self,
        specs: &[Option<DriveSpec>],
        read_only: bool,
    ) -> Result<Vec<Option<(DriveId, DriveInfo)>>, OpenError> {
        let mut drives: Vec<Option<(DriveId, DriveInfo)>> = Vec::new();
        for spec in specs {
            let opened = spec
                .as_ref()
                .map(|spec| self.port.open(spec, read_only))
                .transpose();
            match opened {
                Ok(drive) => drives.push(drive),
                Err(error) => {
                    for (drive, _) in drives.into_iter().flatten() {
                        self.port.close(drive);
                    }
                    return Err(error);
                }
            }
        }
        Ok(drives)
    }

    fn attach(
        &mut self,
        id: usize,
        member: MemberIndex,
        spec: &DriveSpec,
        command: Command,
        reply: Box<dyn FnOnce(AttachResult) + Send>,
    ) {
        let Some(array) = find(&mut self.arrays, id) else {
            return reply(AttachResult::Gone);
        };
        match array.is_empty(member) {
            Some(true) => {}
            Some(false) => return reply(AttachResult::NotYet),
            None => return reply(AttachResult::Gone),
        }
        match self.port.open(spec, false) {
            Err(error) => reply(AttachResult::Open(error)),
            Ok(drive) => {
                array.attach(member, drive);
                let answer: Reply = Box::new(move |result| {
                    reply(match result {
                        Ok(()) => AttachResult::Done,
                        Err(error) => AttachResult::Refused(error),
                    });
                });
                array.command(command, answer, &mut self.port);
                array.detach_if_unused(member, &mut self.port);
            }
        }
    }

    fn look(&mut self, id: usize, look: Look) {
        let array = find(&mut self.arrays, id).and_then(|array| array.served());
        look(array.map(|array| {
            View {
                engine: &array.engine,
                drives: array
                    .drives
                    .iter()
                    .map(|d| d.as_ref().map(|(_, info)| info))
                    .collect(),
            }
        }));
    }
}

/// The array of this id; `None` also when its place serves another array by now, or it has left.
fn find(arrays: &mut [Option<Front>], id: usize) -> Option<&mut Front> {
    let place = id & ((1 << PLACE_BITS) - 1);
    let array = arrays.get_mut(place)?.as_mut()?;
    (array.id == id && !array.is_gone()).then_some(array)
}
