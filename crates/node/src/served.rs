//! One array on one core: the engine, the memory of its requests and operations, its drives.
//!
//! Carries out [`Action`]s in order. It decides nothing: where memory lies and which drive a
//! member is are the only things it knows that the engine does not. What it is asked comes
//! through the [`Front`](crate::front::Front) of its core, which also knows the other cores'.

use std::collections::HashMap;

use strake_engine::array::{
    Action, Array, CommandError, CommandId, Event, IoError, IoKind, IoMemory, LogSource, OpId,
    RecordId, Token,
};
use strake_engine::block::{BlockError, Done, Operation};
use strake_engine::layout::MemberIndex;
use strake_engine::plan::{Memory, compute};
use strake_reactor::buffer::{Buffer, Inbound, Outbound, Pool};
use strake_reactor::drive::DriveInfo;
use strake_reactor::port::{DriveError, DriveId, DriveOp, Port};

use crate::core::Ended;
use crate::front::Link;

/// Answers a command, from the core's thread.
pub(crate) type Reply = Box<dyn FnOnce(Result<(), CommandError>) + Send>;

/// Bits of a token below the array's place on its core.
pub(crate) const SLOT_SHIFT: u32 = 56;
/// Marks the tokens of metadata writes, whose buffers are ours: above every class of the engine.
const META: u64 = 0xff << 48;
/// Marks the tokens of direct reads, which are no business of the engine's.
pub(crate) const DIRECT: u64 = 0xfe << 48;

/// A client's request under way.
pub(crate) struct Client {
    pub(crate) buffer: Option<Buffer>,
    pub(crate) answer: Answer,
}

/// Where answers go that no call takes.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Requests of clients on this core that have ended.
    pub(crate) ended: Vec<Ended>,
    /// Other cores that pass requests on, by number.
    pub(crate) links: Vec<Link>,
}

/// How a client hears of its request's end.
pub(crate) enum Answer {
    /// By a call.
    Call(Done<Buffer>),
    /// It asks the core: [`Core::take_ended`](crate::core::Core::take_ended).
    Local(u64),
    /// It is another core's: number of the link, and what that core calls the request.
    Passed(u32, u32),
}

/// A request as the engine wants to know it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub operation: Operation,
    pub offset: u64,
    pub length: u64,
    pub durable: bool,
    /// A read: from this member a direct read has failed.
    pub failed: Option<MemberIndex>,
}

impl Asked {
    #[inline]
    pub(crate) fn new(operation: Operation, offset: u64, length: u64, durable: bool) -> Asked {
        Asked {
            operation,
            offset,
            length,
            durable,
            failed: None,
        }
    }

    /// The client's memory is as large as it says.
    #[inline]
    pub(crate) fn fits(&self, client: &Client) -> bool {
        let needs_buffer = matches!(self.operation, Operation::Read | Operation::Write);
        let have = client.buffer.as_ref().map_or(0, |b| b.len() as u64);
        // Positions in a request's buffer are 32 bits.
        let too_long = self.length > u64::from(u32::MAX);
        !needs_buffer || (have >= self.length && !too_long)
    }
}

impl Client {
    #[inline]
    pub(crate) fn answer(self, result: Result<(), BlockError>, outbox: &mut Outbox) {
        let buffer = self.buffer;
        match self.answer {
            Answer::Call(done) => done(result, buffer),
            Answer::Local(tag) => outbox.ended.push(Ended {
                tag,
                result,
                buffer,
            }),
            Answer::Passed(link, key) => outbox.links[link as usize].give_back(key, result, buffer),
        }
    }
}

/// An array being served.
pub(crate) struct Served {
    /// Id on its core; the low eight bits are its place.
    pub(crate) id: usize,
    pub(crate) engine: Array,
    pool: Pool,
    pub(crate) drives: Vec<Option<(DriveId, DriveInfo)>>,
    detaching: Vec<bool>,
    /// Detached since the front last looked.
    pub(crate) detached: Vec<MemberIndex>,
    clients: Vec<Option<Client>>,
    /// Slots of each operation.
    slots: Vec<Vec<Option<Buffer>>>,
    /// Metadata and records of the log under way: whose, memory, and whether it is read.
    metas: Vec<Option<(Token, Buffer, bool)>>,
    metas_free: Vec<u32>,
    /// Checksums of an operation's plan, from computing to the engine.
    checksums: Vec<u32>,
    replies: HashMap<CommandId, Reply>,
    next_command: u64,
    actions: Vec<Action>,
    /// I/O for members without a drive, to be reported as failed.
    refused: Vec<Token>,
    /// Some member is to be detached.
    pub(crate) any_detaching: bool,
    pub(crate) outbox: Outbox,
}

impl Served {
    pub(crate) fn new(
        id: usize,
        engine: Array,
        pool: Pool,
        drives: Vec<Option<(DriveId, DriveInfo)>>,
        actions: Vec<Action>,
    ) -> Served {
        Served {
            id,
            engine,
            pool,
            detaching: vec![false; drives.len()],
            detached: Vec::new(),
            drives,
            clients: Vec::new(),
            slots: Vec::new(),
            metas: Vec::new(),
            metas_free: Vec::new(),
            checksums: Vec::new(),
            replies: HashMap::new(),
            next_command: 0,
            actions,
            refused: Vec::new(),
            any_detaching: false,
            outbox: Outbox::default(),
        }
    }

    /// Takes a client's request.
    pub(crate) fn ask<P: Port>(&mut self, asked: &Asked, client: Client, port: &mut P) {
        if !asked.fits(&client) {
            return client.answer(Err(BlockError::Unaligned), &mut self.outbox);
        }
        let mut out = std::mem::take(&mut self.actions);
        let Asked { offset, length, .. } = *asked;
        let id = match asked.failed {
            Some(member) => self.engine.read_again(offset, length, member, &mut out),
            None => {
                let (operation, durable) = (asked.operation, asked.durable);
                let engine = &mut self.engine;
                engine.submit(operation, offset, length, durable, &mut out)
            }
        };
        let at = id.0 as usize;
        if self.clients.len() <= at {
            self.clients.resize_with(at + 1, || None);
        }
        debug_assert!(self.clients[at].is_none());
        self.clients[at] = Some(client);
        self.run(out, port);
    }

    /// Takes a command.
    pub(crate) fn command<P: Port>(
        &mut self,
        command: strake_engine::array::Command,
        reply: Reply,
        port: &mut P,
    ) {
        let id = CommandId(self.next_command);
        self.next_command += 1;
        self.replies.insert(id, reply);
        let mut out = std::mem::take(&mut self.actions);
        self.engine.command(id, command, &mut out);
        self.run(out, port);
    }

    /// Moves the engine's time on.
    pub(crate) fn tick<P: Port>(&mut self, now_ns: u64, port: &mut P) {
        let mut out = std::mem::take(&mut self.actions);
        self.engine.tick(now_ns, &mut out);
        self.run(out, port);
    }

    /// An I/O has ended; `token` as given to the port.
    pub(crate) fn io_done<P: Port>(
        &mut self,
        token: u64,
        result: Result<(), DriveError>,
        port: &mut P,
    ) {
        let token = token & !(0xff << SLOT_SHIFT);
        let token = if token & META == META {
            let index = (token & !META) as u32;
            let (token, buffer, read) = self.metas[index as usize]
                .take()
                .expect("metadata is under way");
            self.metas_free.push(index);
            if read {
                let mut out = std::mem::take(&mut self.actions);
                let result = result.map_err(io_error);
                let bytes = buffer.range(0..buffer.len());
                self.engine.read_done(token, result, bytes, &mut out);
                return self.run(out, port);
            }
            token
        } else {
            Token(token)
        };
        self.engine_io_done(token, result.map_err(io_error), port);
    }

    fn engine_io_done<P: Port>(&mut self, token: Token, result: Result<(), IoError>, port: &mut P) {
        let mut out = std::mem::take(&mut self.actions);
        self.engine.io_done(token, result, &mut out);
        self.run(out, port);
    }

    /// Carries out what the engine wants; keeps the list's memory.
    pub(crate) fn run<P: Port>(&mut self, mut out: Vec<Action>, port: &mut P) {
        let mut index = 0;
        while index < out.len() {
            let action = std::mem::replace(&mut out[index], Action::ReleaseSlots(OpId(u32::MAX)));
            self.carry_out(action, &mut out, port);
            index += 1;
        }
        out.clear();
        self.actions = out;
        while let Some(token) = self.refused.pop() {
            self.engine_io_done(token, Err(IoError::Gone), port);
        }
    }

    /// Starts what the engine asked for when it was made.
    pub(crate) fn begin<P: Port>(&mut self, port: &mut P) {
        let out = std::mem::take(&mut self.actions);
        self.run(out, port);
    }

    fn carry_out<P: Port>(&mut self, action: Action, out: &mut Vec<Action>, port: &mut P) {
        match action {
            Action::Io(io) => self.io(io, port),
            Action::Compute(op) => {
                let differing = self.compute(op);
                self.engine.computed(op, differing, &self.checksums, out);
            }
            Action::ReleaseSlots(op) => {
                if let Some(slots) = self.slots.get_mut(op.0 as usize) {
                    slots.iter_mut().for_each(|slot| *slot = None);
                }
            }
            Action::Zero(request, at, length) => {
                let at = at as usize;
                let client = self.clients[request.0 as usize]
                    .as_mut()
                    .expect("the request is under way");
                let buffer = client.buffer.as_mut().expect("a read has a buffer");
                buffer.lend_inbound(at..at + length as usize).zero();
            }
            Action::Complete(request, result) => {
                let client = self.clients[request.0 as usize]
                    .take()
                    .expect("the request is under way");
                client.answer(result, &mut self.outbox);
            }
            Action::CommandDone(id, result) => {
                if let Some(reply) = self.replies.remove(&id) {
                    reply(result);
                }
            }
            Action::Detach(member) => {
                self.detaching[member.at()] = true;
                self.any_detaching = true;
                self.detached.push(member);
            }
            Action::Event(event) => self.log(&event),
        }
    }

    fn io<P: Port>(&mut self, io: strake_engine::array::Io, port: &mut P) {
        let Some((drive, _)) = self.drives[io.member.at()] else {
            self.refused.push(io.token);
            return;
        };
        let length = io.length as usize;
        let mut token = io.token.0;
        let op = match io.kind {
            IoKind::Read(memory) => DriveOp::Read {
                offset: io.offset,
                into: self.lend_inbound(memory, length),
            },
            IoKind::Write(memory, durable) => DriveOp::Write {
                offset: io.offset,
                from: self.lend_outbound(memory, length),
                durable,
            },
            IoKind::ReadMeta => {
                let mut buffer = pooled(&self.pool, length);
                let into = buffer.lend_inbound(0..length);
                token = META | u64::from(self.keep_meta(io.token, buffer, true));
                DriveOp::Read {
                    offset: io.offset,
                    into,
                }
            }
            IoKind::WriteLog(record) => {
                let buffer = self.log_buffer(record, length);
                let from = buffer.lend_outbound(0..length);
                token = META | u64::from(self.keep_meta(io.token, buffer, false));
                DriveOp::Write {
                    offset: io.offset,
                    from,
                    durable: true,
                }
            }
            IoKind::WriteMeta(bytes) => {
                let mut buffer = Buffer::heap(length);
                buffer.copy_from_slice(&bytes);
                let from = buffer.lend_outbound(0..length);
                token = META | u64::from(self.keep_meta(io.token, buffer, false));
                DriveOp::Write {
                    offset: io.offset,
                    from,
                    durable: true,
                }
            }
            IoKind::WriteZeroes => DriveOp::WriteZeroes {
                offset: io.offset,
                length: length as u64,
            },
            IoKind::Discard => DriveOp::Discard {
                offset: io.offset,
                length: length as u64,
            },
            IoKind::Flush => DriveOp::Flush,
        };
        port.submit(drive, (self.id as u64) << SLOT_SHIFT | token, op);
    }

    /// Keeps memory that is neither a client's nor an operation's until its I/O has ended.
    fn keep_meta(&mut self, token: Token, buffer: Buffer, read: bool) -> u32 {
        let index = self.metas_free.pop().unwrap_or_else(|| {
            self.metas.push(None);
            (self.metas.len() - 1) as u32
        });
        self.metas[index as usize] = Some((token, buffer, read));
        index
    }

    /// A record of the parity log, from the memory of the operations that it speaks of.
    fn log_buffer(&mut self, record: RecordId, length: usize) -> Buffer {
        let mut buffer = pooled(&self.pool, length);
        let (slots, clients) = (&self.slots, &self.clients);
        let source = |source: LogSource, length: usize| -> &[u8] {
            match source {
                LogSource::Slot(op, slot, at) => slots[op.0 as usize][usize::from(slot)]
                    .as_ref()
                    .expect("it has just been computed")
                    .range(at as usize..at as usize + length),
                LogSource::Request(request, at) => clients[request.0 as usize]
                    .as_ref()
                    .and_then(|client| client.buffer.as_ref())
                    .expect("a write has a buffer")
                    .range(at as usize..at as usize + length),
            }
        };
        self.engine
            .compose_log(record, buffer.as_mut_slice(), &source);
        buffer
    }

    fn lend_inbound(&mut self, memory: IoMemory, length: usize) -> Inbound {
        let (buffer, at) = self.memory(memory);
        buffer.lend_inbound(at..at + length)
    }

    fn lend_outbound(&mut self, memory: IoMemory, length: usize) -> Outbound {
        let (buffer, at) = self.memory(memory);
        buffer.lend_outbound(at..at + length)
    }

    fn memory(&mut self, memory: IoMemory) -> (&mut Buffer, usize) {
        match memory {
            IoMemory::Request(request, at) => {
                let client = self.clients[request.0 as usize]
                    .as_mut()
                    .expect("the request is under way");
                (
                    client
                        .buffer
                        .as_mut()
                        .expect("reads and writes have a buffer"),
                    at as usize,
                )
            }
            IoMemory::Slot(op, slot, at) => {
                self.make_slot(op, slot.into());
                let buffer = self.slots[op.0 as usize][usize::from(slot)]
                    .as_mut()
                    .expect("just made");
                (buffer, at as usize)
            }
        }
    }

    /// Makes a slot of the operation's plan, unless it is there.
    fn make_slot(&mut self, op: OpId, slot: usize) {
        let index = op.0 as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, Vec::new);
        }
        let slots = &mut self.slots[index];
        if slots.len() <= slot {
            slots.resize_with(slot + 1, || None);
        }
        if slots[slot].is_none() {
            let bytes = self.engine.op_plan(op).0.slot_bytes();
            slots[slot] = Some(pooled(&self.pool, bytes));
        }
    }

    fn compute(&mut self, op: OpId) -> u64 {
        let mut wanted = self.engine.op_plan(op).0.slots;
        while wanted != 0 {
            self.make_slot(op, wanted.trailing_zeros() as usize);
            wanted &= wanted - 1;
        }
        if self.slots.len() <= op.0 as usize {
            self.slots.resize_with(op.0 as usize + 1, Vec::new);
        }
        let (plan, fragments) = self.engine.op_plan(op);
        let slots = &mut self.slots[op.0 as usize];
        let clients = &mut self.clients;
        let request = |memory: Memory, length: usize| -> &[u8] {
            let Memory::Request(request, at) = memory else {
                unreachable!("zeroes need no memory")
            };
            let client = clients[request.0 as usize]
                .as_ref()
                .expect("the request is under way");
            let buffer = client
                .buffer
                .as_ref()
                .expect("reads and writes have a buffer");
            buffer.range(at as usize..at as usize + length)
        };
        self.checksums.clear();
        let differing = compute::run(
            plan,
            fragments,
            self.engine.code(),
            slots,
            &request,
            &mut self.checksums,
        );
        for &(number, slot) in &plan.copies {
            let fragment = &fragments[usize::from(number)];
            let Memory::Request(request, at) = fragment.memory else {
                unreachable!("zeroes are never read")
            };
            let (at, length) = (at as usize, (fragment.end - fragment.start) as usize);
            let from = (fragment.start - plan.start) as usize;
            let source = slots[usize::from(slot)]
                .as_ref()
                .expect("the plan's slots exist");
            let client = clients[request.0 as usize]
                .as_mut()
                .expect("the request is under way");
            let buffer = client.buffer.as_mut().expect("a read has a buffer");
            buffer
                .lend_inbound(at..at + length)
                .fill(source.range(from..from + length));
        }
        differing
    }

    /// Closes drives that nothing is sent to any more once their I/O has ended. `reading`: direct
    /// reads of it are under way, or another core has it open.
    pub(crate) fn close_detached<P: Port>(
        &mut self,
        reading: impl Fn(&Outbox, MemberIndex) -> bool,
        port: &mut P,
    ) {
        for member in 0..self.detaching.len() {
            let reading = reading(&self.outbox, MemberIndex(member as u16));
            let idle = !reading && self.engine.members()[member].in_flight == 0;
            if self.detaching[member] && idle {
                self.detaching[member] = false;
                if let Some((drive, _)) = self.drives[member].take() {
                    port.close(drive);
                }
            }
        }
        self.any_detaching = self.detaching.contains(&true);
    }

    /// Closes everything; the engine has stopped.
    pub(crate) fn close<P: Port>(&mut self, port: &mut P) {
        for drive in &mut self.drives {
            if let Some((drive, _)) = drive.take() {
                port.close(drive);
            }
        }
    }

    /// Gives a place its new drive, before the engine is told to use it.
    pub(crate) fn attach(&mut self, member: MemberIndex, drive: (DriveId, DriveInfo)) {
        assert!(self.drives[member.at()].is_none(), "the place is empty");
        self.drives[member.at()] = Some(drive);
    }

    /// Takes the drive out of a place that the engine refused to fill.
    pub(crate) fn detach_if_unused(&mut self, member: MemberIndex) {
        let it = &self.engine.members()[member.at()];
        let unused = !it.is_live() && !self.engine.is_joining(member);
        if unused && self.drives[member.at()].is_some() && !self.detaching[member.at()] {
            self.detaching[member.at()] = true;
            self.any_detaching = true;
            self.detached.push(member);
        }
    }

    fn log(&self, event: &Event) {
        let array = &self.engine.superblock().name;
        match event {
            Event::MemberFailed(member, reason) => {
                let drive = self.drives[member.at()]
                    .as_ref()
                    .map_or("-", |(_, info)| info.path.as_str());
                tracing::warn!(%array, member = member.0, drive, reason, "member dropped: replace it with `strake array replace`");
            }
            Event::ReadRepaired(member, stripe) => {
                tracing::warn!(%array, member = member.0, stripe = stripe.0, "read error answered from redundancy and rewritten");
            }
            Event::Unavailable(stripe) => {
                tracing::error!(%array, stripe = stripe.0, "blocks unavailable: more strips are missing than parity replaces");
            }
            Event::Torn(member, offset, length) => {
                tracing::error!(%array, member = member.0, offset, length, "blocks were asked for that a crash tore or made suspect: see `strake array torn`; writing them heals them");
            }
            Event::Replayed(report) => tracing::info!(
                %array,
                entries = report.replayed_entries,
                torn_blocks = report.torn_blocks,
                unreadable = report.unreadable,
                milliseconds = report.replay_ns / 1_000_000,
                "parity log replayed"
            ),
            Event::TaskStarted(kind) => tracing::info!(%array, task = kind.name(), "started"),
            Event::TaskEnded(report) => tracing::info!(
                %array,
                task = report.kind.name(),
                mismatches = report.mismatches,
                repaired = report.repaired,
                errors = report.errors,
                "ended"
            ),
        }
    }
}

fn io_error(error: DriveError) -> IoError {
    match error {
        DriveError::Gone => IoError::Gone,
        DriveError::Io(_) | DriveError::Short => IoError::Range,
    }
}

/// The place on its core of the array that a token belongs to.
pub(crate) fn slot_of(token: u64) -> usize {
    (token >> SLOT_SHIFT) as usize
}

/// Memory of the pool. The engine keeps within its size; what fragmentation denies comes from the
/// heap.
fn pooled(pool: &Pool, bytes: usize) -> Buffer {
    pool.alloc(bytes).unwrap_or_else(|| Buffer::heap(bytes))
}
