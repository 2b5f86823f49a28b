//! One array as one core has it: direct reads of its own; everything else goes to the array, which
//! runs here or on another core.
//!
//! Every core that serves an array has a front of it. Reads that need no decision
//! ([`DirectReads`]) go from here to the drives, by this core's own ring. What they do not take is
//! *passed on*: by a call where the array runs here, else in batches through the mailbox of the
//! core that runs it, which gives the requests back in batches when they have ended.
//!
//! A drive is attached and detached by the core that runs the array. The other cores are told by
//! message, in order; one that holds a drive is waited for before the drive counts as closed.

use std::sync::Arc;

use strake_engine::array::{Command, CommandError, DirectReads, Published, Step};
use strake_engine::block::{BlockError, Operation};
use strake_engine::layout::MemberIndex;
use strake_reactor::buffer::Buffer;
use strake_reactor::drive::DriveInfo;
use strake_reactor::port::{DriveError, DriveId, DriveOp, Port};

use crate::core::{Ended, Mailbox, Message};
use crate::served::{Answer, Asked, Client, DIRECT, Outbox, Reply, SLOT_SHIFT, Served};

/// Where the array runs.
enum Back {
    Here(Box<Served>),
    There(Away),
}

/// The way to the core that runs the array, from another.
struct Away {
    mailbox: Arc<Mailbox>,
    /// The array's id there.
    array: usize,
    /// What that core calls this one.
    link: u32,
    /// Who waits for requests that were passed on.
    waiting: Vec<Option<Answer>>,
    waiting_free: Vec<u32>,
    /// To be passed on in this round.
    batch: Vec<Passed>,
    /// Drives that the array has given up, until nothing is read from them.
    closing: Vec<MemberIndex>,
    outbox: Outbox,
}

/// The way to another core that has a front, from the core that runs the array.
pub(crate) struct Link {
    mailbox: Arc<Mailbox>,
    /// What that core calls its front; `None`: it has not said so yet.
    front: Option<usize>,
    /// By place: it was given the drive, and has not said that it closed it.
    holds: Vec<bool>,
    /// To be given back in this round.
    batch: Vec<Returned>,
}

impl Link {
    pub(crate) fn give_back(
        &mut self,
        key: u32,
        result: Result<(), BlockError>,
        buffer: Option<Buffer>,
    ) {
        self.batch.push(Returned {
            key,
            result,
            buffer,
        });
    }

    fn drive(&mut self, member: MemberIndex, drive: Option<&DriveInfo>, drives: u64) {
        let Some(front) = self.front else {
            return; // it is told of all drives when it is there
        };
        self.holds[member.at()] |= drive.is_some();
        self.mailbox.send(Message::Drive {
            front,
            member,
            drive: drive.map(|info| (info.spec.clone(), info.identity.clone())),
            drives,
        });
    }
}

/// A request on its way to the core that runs the array.
pub struct Passed {
    asked: Asked,
    buffer: Option<Buffer>,
    key: u32,
}

/// A request on its way back.
pub struct Returned {
    key: u32,
    result: Result<(), BlockError>,
    buffer: Option<Buffer>,
}

/// What a core needs for a front of an array that runs on another.
pub struct Share {
    reads: DirectReads,
    mailbox: Arc<Mailbox>,
    array: usize,
    link: u32,
}

impl Share {
    /// What the core that runs the array calls the other.
    pub fn link(&self) -> u32 {
        self.link
    }
}

/// Called when nothing is under way any more.
type Left = Box<dyn FnOnce() + Send>;

/// An array on a core.
pub(crate) struct Front {
    /// Id on this core; the low eight bits are its place.
    pub(crate) id: usize,
    reads: DirectReads,
    /// By the name of the read.
    clients: Vec<Option<Client>>,
    /// Drives to read from, by place.
    drives: Vec<Option<DriveId>>,
    steps: Vec<Step>,
    back: Back,
    /// Nothing new is taken.
    leaving: bool,
    /// Told when the last of what is under way has ended.
    left: Vec<Left>,
    gone: bool,
    /// A stop, until every direct read of before has ended: one that does not count is asked of the
    /// array, which must not have stopped.
    stop: Option<Reply>,
}

impl Front {
    /// An array that runs on this core.
    pub(crate) fn here<P: Port>(mut served: Served, port: &mut P) -> Front {
        let reads = served.engine.direct_reads();
        let drives = served.drives.iter();
        let drives: Vec<_> = drives.map(|drive| drive.as_ref().map(|d| d.0)).collect();
        served.begin(port);
        let mut front = Front::new(served.id, reads, Back::Here(Box::new(served)));
        front.drives = drives;
        for place in 0..front.drives.len() {
            let open = front.drives[place].is_some();
            let member = MemberIndex(place as u16);
            front.reads.set_drive(member, open, 0);
        }
        front.look(port);
        front
    }

    /// A front of an array that runs on another core.
    pub(crate) fn there(id: usize, share: Share) -> Front {
        let away = Away {
            mailbox: share.mailbox,
            array: share.array,
            link: share.link,
            waiting: Vec::new(),
            waiting_free: Vec::new(),
            batch: Vec::new(),
            closing: Vec::new(),
            outbox: Outbox::default(),
        };
        Front::new(id, share.reads, Back::There(away))
    }

    fn new(id: usize, reads: DirectReads, back: Back) -> Front {
        Front {
            id,
            drives: vec![None; reads.members()],
            reads,
            clients: Vec::new(),
            steps: Vec::new(),
            back,
            leaving: false,
            left: Vec::new(),
            gone: false,
            stop: None,
        }
    }

    /// The array, where it runs here.
    pub(crate) fn served(&self) -> Option<&Served> {
        match &self.back {
            Back::Here(served) => Some(served),
            Back::There(_) => None,
        }
    }

    fn published(&self) -> Option<&Published> {
        self.served().map(|served| &**served.engine.published())
    }

    pub(crate) fn next_tick_ns(&self) -> Option<u64> {
        self.served()?.engine.next_tick_ns()
    }

    fn outbox(&mut self) -> &mut Outbox {
        match &mut self.back {
            Back::Here(served) => &mut served.outbox,
            Back::There(away) => &mut away.outbox,
        }
    }

    /// Requests of clients on this core that have ended.
    pub(crate) fn ended(&mut self) -> &mut Vec<Ended> {
        &mut self.outbox().ended
    }

    /// Takes a client's request.
    pub(crate) fn ask<P: Port>(&mut self, asked: &Asked, client: Client, port: &mut P) {
        if self.leaving
            && let Back::There(away) = &mut self.back
        {
            return client.answer(Err(BlockError::Stopped), &mut away.outbox);
        }
        let direct = !self.leaving && self.stop.is_none();
        if asked.operation == Operation::Read && direct && asked.fits(&client) {
            let mut steps = std::mem::take(&mut self.steps);
            if let Some(read) = self.reads.submit(asked.offset, asked.length, &mut steps) {
                let at = read.0 as usize;
                if self.clients.len() <= at {
                    self.clients.resize_with(at + 1, || None);
                }
                debug_assert!(self.clients[at].is_none());
                self.clients[at] = Some(client);
                return self.run(steps, port);
            }
            self.steps = steps;
        }
        self.pass_on(asked, client, port);
    }

    fn pass_on<P: Port>(&mut self, asked: &Asked, client: Client, port: &mut P) {
        match &mut self.back {
            Back::Here(served) => {
                served.ask(asked, client, port);
                self.look(port);
            }
            Back::There(away) => away.pass_on(*asked, client),
        }
    }

    /// Carries out what the direct reads want.
    fn run<P: Port>(&mut self, mut steps: Vec<Step>, port: &mut P) {
        for step in steps.drain(..) {
            self.carry_out(step, port);
        }
        self.steps = steps;
    }

    fn carry_out<P: Port>(&mut self, step: Step, port: &mut P) {
        match step {
            Step::Read {
                part,
                request,
                member,
                offset,
                at,
                length,
            } => {
                let at = at as usize;
                let into = self
                    .memory(request.0)
                    .lend_inbound(at..at + length as usize);
                let drive = self.drives[member.at()].expect("what is read from is open");
                let token = (self.id as u64) << SLOT_SHIFT | DIRECT | u64::from(part);
                port.submit(drive, token, DriveOp::Read { offset, into });
            }
            Step::Zero {
                request,
                at,
                length,
            } => {
                let at = at as usize;
                let memory = self.memory(request.0);
                memory.lend_inbound(at..at + length as usize).zero();
            }
            Step::Done(request) => {
                let client = self.take_client(request.0);
                client.answer(Ok(()), self.outbox());
            }
            Step::PassOn {
                request,
                offset,
                length,
                failed,
            } => {
                let client = self.take_client(request.0);
                let asked = Asked {
                    operation: Operation::Read,
                    offset,
                    length,
                    durable: false,
                    failed,
                };
                self.pass_on(&asked, client, port);
            }
        }
    }

    fn take_client(&mut self, read: u32) -> Client {
        let client = self.clients[read as usize].take();
        client.expect("the read is under way")
    }

    fn memory(&mut self, read: u32) -> &mut Buffer {
        let client = self.clients[read as usize].as_mut();
        let client = client.expect("the read is under way");
        client.buffer.as_mut().expect("a read has a buffer")
    }

    /// An I/O has ended; `token` as given to the port.
    pub(crate) fn io_done<P: Port>(
        &mut self,
        token: u64,
        result: Result<(), DriveError>,
        port: &mut P,
    ) {
        if token & 0xff << 48 == DIRECT {
            let mut steps = std::mem::take(&mut self.steps);
            self.reads.io_done(token as u32, result.is_ok(), &mut steps);
            self.run(steps, port);
            if self.reads.used() == 0
                && let Some(reply) = self.stop.take()
            {
                return self.command(Command::Stop, reply, port);
            }
            return self.look_at_drives(port);
        }
        match &mut self.back {
            Back::Here(served) => served.io_done(token, result, port),
            Back::There(_) => unreachable!("this core reads only directly"),
        }
        self.look(port);
    }

    pub(crate) fn command<P: Port>(&mut self, command: Command, reply: Reply, port: &mut P) {
        if command == Command::Stop {
            if self.stop.is_some() {
                return reply(Err(CommandError::stopped()));
            }
            if self.reads.used() > 0 {
                self.stop = Some(reply);
                return;
            }
        }
        match &mut self.back {
            Back::Here(served) => served.command(command, reply, port),
            Back::There(_) => unreachable!("commands go to the core that runs the array"),
        }
        self.look(port);
    }

    /// Says what time it is.
    pub(crate) fn set_now(&mut self, now_ns: u64) {
        if let Back::Here(served) = &mut self.back {
            served.engine.set_now(now_ns);
        }
    }

    /// Does what is due now; true if there was something.
    pub(crate) fn tick<P: Port>(&mut self, now_ns: u64, port: &mut P) -> bool {
        let Back::Here(served) = &mut self.back else {
            return false;
        };
        if served.engine.next_tick_ns().is_none_or(|due| due > now_ns) {
            return false;
        }
        served.tick(now_ns, port);
        self.look(port);
        true
    }

    /// After the array has worked: drives that it has given up, and whether all is over.
    fn look<P: Port>(&mut self, port: &mut P) {
        if let Back::Here(served) = &mut self.back
            && !served.detached.is_empty()
        {
            for member in std::mem::take(&mut served.detached) {
                self.detach(member);
            }
        }
        self.look_at_drives(port);
    }

    /// No core reads from this member's drive any more, once each has heard of it.
    fn detach(&mut self, member: MemberIndex) {
        let Back::Here(served) = &mut self.back else {
            return;
        };
        let drives = served.engine.published().drives_changed();
        self.reads.set_drive(member, false, drives);
        self.drives[member.at()] = None;
        for link in &mut served.outbox.links {
            link.drive(member, None, drives);
        }
    }

    /// Closes drives that nobody reads from any more; leaves when nothing is under way.
    #[inline]
    fn look_at_drives<P: Port>(&mut self, port: &mut P) {
        let reads = &self.reads;
        match &mut self.back {
            Back::Here(served) if served.any_detaching => {
                let reading = |outbox: &Outbox, member: MemberIndex| {
                    let held = |link: &Link| link.holds[member.at()];
                    reads.in_flight(member) > 0 || outbox.links.iter().any(held)
                };
                served.close_detached(reading, port);
            }
            Back::There(away) if !away.closing.is_empty() => {
                self.close_given_up(port);
            }
            _ => {}
        }
        if self.leaving {
            self.leave(port);
        }
    }

    fn close_given_up<P: Port>(&mut self, port: &mut P) {
        let Back::There(away) = &mut self.back else {
            return;
        };
        let reads = &self.reads;
        for member in away.closing.extract_if(.., |m| reads.in_flight(*m) == 0) {
            if let Some(drive) = self.drives[member.at()].take() {
                port.close(drive);
            }
            away.mailbox.send(Message::DriveLeft {
                array: away.array,
                link: away.link,
                member,
            });
        }
    }

    /// A place gets a drive: this core has opened it, and runs the array.
    pub(crate) fn attach(&mut self, member: MemberIndex, drive: (DriveId, DriveInfo)) {
        let Back::Here(served) = &mut self.back else {
            unreachable!("drives come to the core that runs the array")
        };
        let id = drive.0;
        served.attach(member, drive);
        let drives = served.engine.published().drives_changed();
        self.reads.set_drive(member, true, drives);
        self.drives[member.at()] = Some(id);
        let info = served.drives[member.at()].as_ref().map(|(_, info)| info);
        for link in &mut served.outbox.links {
            link.drive(member, info, drives);
        }
    }

    /// Whether a place can take a drive; `None`: there is no such place.
    pub(crate) fn is_empty(&self, member: MemberIndex) -> Option<bool> {
        let served = self.served()?;
        let free = served.drives.get(member.at())?.is_none();
        let held = |link: &Link| link.holds[member.at()];
        Some(free && !served.outbox.links.iter().any(held))
    }

    /// Gives the drive up that the engine refused.
    pub(crate) fn detach_if_unused<P: Port>(&mut self, member: MemberIndex, port: &mut P) {
        if let Back::Here(served) = &mut self.back {
            served.detach_if_unused(member);
        }
        self.look(port);
    }

    /// What another core needs for a front of this array.
    pub(crate) fn share(&mut self, me: Arc<Mailbox>, other: Arc<Mailbox>) -> Option<Share> {
        let id = self.id;
        let Back::Here(served) = &mut self.back else {
            return None;
        };
        let links = &mut served.outbox.links;
        links.push(Link {
            mailbox: other,
            front: None,
            holds: vec![false; served.drives.len()],
            batch: Vec::new(),
        });
        Some(Share {
            reads: served.engine.direct_reads(),
            mailbox: me,
            array: id,
            link: (links.len() - 1) as u32,
        })
    }

    /// The other core has its front: it is told of the drives.
    pub(crate) fn link(&mut self, link: u32, front: usize) {
        let drives = self.published().map_or(0, Published::drives);
        let Back::Here(served) = &mut self.back else {
            return;
        };
        let link = &mut served.outbox.links[link as usize];
        link.front = Some(front);
        for (place, drive) in self.drives.iter().enumerate() {
            if drive.is_some()
                && let Some((_, info)) = &served.drives[place]
            {
                link.drive(MemberIndex(place as u16), Some(info), drives);
            }
        }
    }

    /// The other core has closed a drive.
    pub(crate) fn drive_left<P: Port>(&mut self, link: u32, member: MemberIndex, port: &mut P) {
        if let Back::Here(served) = &mut self.back {
            served.outbox.links[link as usize].holds[member.at()] = false;
        }
        self.look_at_drives(port);
    }

    /// The other core serves the array no more, and has closed all its drives.
    pub(crate) fn left<P: Port>(&mut self, link: u32, port: &mut P) {
        if let Back::Here(served) = &mut self.back {
            let link = &mut served.outbox.links[link as usize];
            link.front = None;
            link.holds.fill(false);
        }
        self.look_at_drives(port);
    }

    /// A drive that the array has got (opened here, or not), or has given up.
    pub(crate) fn set_drive<P: Port>(
        &mut self,
        member: MemberIndex,
        drive: Option<Option<DriveId>>,
        drives: u64,
        port: &mut P,
    ) {
        let Back::There(away) = &mut self.back else {
            unreachable!("the core that runs the array opens its drives itself")
        };
        let opened = drive.flatten();
        self.reads.set_drive(member, opened.is_some(), drives);
        match drive {
            Some(opened) => self.drives[member.at()] = opened,
            None => away.closing.push(member),
        }
        self.look_at_drives(port);
    }

    /// Requests of another core.
    pub(crate) fn passed<P: Port>(&mut self, link: u32, batch: &mut Vec<Passed>, port: &mut P) {
        for Passed { asked, buffer, key } in batch.drain(..) {
            let answer = Answer::Passed(link, key);
            self.pass_on(&asked, Client { buffer, answer }, port);
        }
    }

    /// Requests that were passed on, back.
    pub(crate) fn returned<P: Port>(&mut self, batch: &mut Vec<Returned>, port: &mut P) {
        let Back::There(away) = &mut self.back else {
            unreachable!("the core that runs the array passes nothing on")
        };
        for returned in batch.drain(..) {
            let answer = away.waiting[returned.key as usize].take();
            away.waiting_free.push(returned.key);
            let client = Client {
                buffer: returned.buffer,
                answer: answer.expect("the request was passed on"),
            };
            client.answer(returned.result, &mut away.outbox);
        }
        self.look_at_drives(port);
    }

    /// Sends what has been gathered for other cores; true if there was something.
    #[inline]
    pub(crate) fn send(&mut self) -> bool {
        match &mut self.back {
            Back::Here(served) => {
                let mut sent = false;
                for link in &mut served.outbox.links {
                    if !link.batch.is_empty() {
                        let batch = std::mem::take(&mut link.batch);
                        let front = link.front.expect("it waits for what it has passed on");
                        link.mailbox.send(Message::Returned { front, batch });
                        sent = true;
                    }
                }
                sent
            }
            Back::There(away) => {
                let any = !away.batch.is_empty();
                if any {
                    let batch = std::mem::take(&mut away.batch);
                    away.mailbox.send(Message::Passed {
                        array: away.array,
                        link: away.link,
                        batch,
                    });
                }
                any
            }
        }
    }

    /// Closes everything when nothing is under way any more, then calls `left`. The array, where it
    /// runs here, has stopped.
    pub(crate) fn forget<P: Port>(&mut self, left: Left, port: &mut P) {
        self.leaving = true;
        self.left.push(left);
        self.leave(port);
    }

    fn leave<P: Port>(&mut self, port: &mut P) {
        if self.gone || !self.is_idle() {
            return;
        }
        match &mut self.back {
            Back::Here(served) => served.close(port),
            Back::There(away) => {
                for drive in &mut self.drives {
                    if let Some(drive) = drive.take() {
                        port.close(drive);
                    }
                }
                away.mailbox.send(Message::Left {
                    array: away.array,
                    link: away.link,
                });
            }
        }
        self.gone = true;
        self.left.drain(..).for_each(|left| left());
    }

    fn is_idle(&self) -> bool {
        let waiting = match &self.back {
            // One whose start was given up has stopped with I/O under way.
            Back::Here(served) => served.engine.members().iter().any(|m| m.in_flight > 0),
            Back::There(away) => away.waiting.iter().any(Option::is_some),
        };
        self.reads.used() == 0 && !waiting
    }

    /// It was to leave, and nothing is under way any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }
}

impl Away {
    fn pass_on(&mut self, asked: Asked, client: Client) {
        let key = self.waiting_free.pop().unwrap_or_else(|| {
            self.waiting.push(None);
            (self.waiting.len() - 1) as u32
        });
        self.waiting[key as usize] = Some(client.answer);
        self.batch.push(Passed {
            asked,
            buffer: client.buffer,
            key,
        });
    }
}
