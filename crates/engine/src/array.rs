//! One array: a state machine over requests, stripe operations, regions, members and long work.
//!
//! Events go in ([`Array::submit`], [`Array::io_done`], [`Array::command`], [`Array::tick`]),
//! [`Action`]s come out. The caller carries the actions out in order and reports each I/O's end
//! once. Nothing here touches a drive, a clock or a thread, so the same engine runs on io_uring
//! and in the simulator.
//!
//! What always holds:
//! * a stripe is written only by the operation that holds its band's lock alone;
//! * a region is dirty on every live member before a write of a dirty period touches it;
//! * a member that was dropped is recorded so on the others before a write that it missed is
//!   acknowledged;
//! * strips that are not known to be true (a member being refilled, parity after an unclean stop)
//!   never enter a computation.

mod background;
mod command;
mod locks;
mod log;
mod members;
mod meta;
mod ops;
mod policy;
mod published;
mod reads;
mod regions;
mod replay;
mod requests;
mod slots;
mod streams;
#[cfg(test)]
mod tests;
mod torn;

use std::collections::{BTreeMap, VecDeque};

use strake_codec::Code;

use crate::block::{BlockError, Operation};
use crate::format::region_map::RegionMap;
use crate::format::store::Store;
pub use crate::format::superblock::Replay;
use crate::format::superblock::{MemberState, Superblock};
use crate::format::torn::TornList;
use crate::layout::{Geometry, MemberIndex, StripeIndex};
use crate::plan::{self, Fragment, Plan, RequestId, Strips};
use crate::planted::{self, Planted};

pub use background::{TaskKind, TaskReport};
pub use command::{Command, CommandError, CommandErrorKind, CommandId};
pub use locks::BandKey;
use locks::FastMap;
pub use log::{LogCounters, LogReport, LogSource, RecordId};
pub use members::Member;
pub use published::Published;
pub use reads::{DirectReads, ReadId, Step};

use background::Background;
use locks::LockTable;
use log::{Log, LogPart};
use meta::Meta;
use ops::Op;
use regions::Regions;
use replay::Replayer;
use requests::{Direct, Request};
use slots::Slots;
use streams::{StreamId, Streams};
use torn::Torn;

/// Index of a stripe operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OpId(pub u32);

/// Names an I/O until its end is reported; opaque to the caller, below 2⁵⁶.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// What a token belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Direct,
    Op,
    Flush,
    Region,
    Meta,
    Background,
    Log,
    Replay,
    Torn,
}

impl Token {
    fn new(class: Class, index: u32, part: u32) -> Token {
        debug_assert!(index < 1 << 24 && part < 1 << 24);
        Token((class as u64) << 48 | u64::from(part) << 24 | u64::from(index))
    }

    fn index(self) -> u32 {
        (self.0 & 0xff_ffff) as u32
    }

    fn part(self) -> u32 {
        (self.0 >> 24 & 0xff_ffff) as u32
    }

    fn class(self) -> Class {
        const CLASSES: [Class; 9] = [
            Class::Direct,
            Class::Op,
            Class::Flush,
            Class::Region,
            Class::Meta,
            Class::Background,
            Class::Log,
            Class::Replay,
            Class::Torn,
        ];
        CLASSES[(self.0 >> 48 & 0xff) as usize]
    }
}

/// Memory of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoMemory {
    /// Request's buffer from this byte on.
    Request(RequestId, u32),
    /// Operation's slot from this byte on.
    Slot(OpId, u8, u32),
}

/// What an I/O does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IoKind {
    /// Read into memory.
    Read(IoMemory),
    /// Write from memory; `true`: durable at completion.
    Write(IoMemory, bool),
    /// Read metadata; its bytes come back with [`Array::read_done`].
    ReadMeta,
    /// Write bytes that the engine made (superblock, map page); durable at completion.
    WriteMeta(Box<[u8]>),
    /// Write a record of the parity log, filled by [`Array::compose_log`]; durable at completion.
    WriteLog(RecordId),
    /// Make the range read as zeroes.
    WriteZeroes,
    /// The range is not needed any more.
    Discard,
    /// Make everything written durable.
    Flush,
}

/// One I/O on one member. `offset` counts from the drive's first byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Io {
    /// To be handed back to [`Array::io_done`].
    pub token: Token,
    /// Member.
    pub member: MemberIndex,
    /// First byte on the drive.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u32,
    /// What.
    pub kind: IoKind,
}

/// What the caller has to do next, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start an I/O.
    Io(Io),
    /// Compute the spans of an operation's plan in its slots ([`Array::op_plan`],
    /// [`plan::compute::run`]), copy what the plan says from slots to the request, then
    /// report with [`Array::computed`]. Slots that do not exist yet are made.
    Compute(OpId),
    /// The operation's slots are not needed any more.
    ReleaseSlots(OpId),
    /// Fill part of a read request's buffer with zeroes: request, first byte, bytes.
    Zero(RequestId, u32, u32),
    /// The request has ended.
    Complete(RequestId, Result<(), BlockError>),
    /// The command has ended.
    CommandDone(CommandId, Result<(), CommandError>),
    /// Nothing is sent to this member's drive any more: close it once its I/O has ended.
    Detach(MemberIndex),
    /// For the log: something an administrator wants to read about.
    Event(Box<Event>),
}

impl Action {
    fn event(event: Event) -> Action {
        Action::Event(Box::new(event))
    }
}

// Every read is one of these: they stay small, what is rare lies in a box.
const _: () = assert!(size_of::<Action>() <= 48);

/// Noteworthy events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A member was dropped.
    MemberFailed(MemberIndex, &'static str),
    /// A read error was answered from redundancy and the blocks were rewritten.
    ReadRepaired(MemberIndex, StripeIndex),
    /// Blocks could not be delivered.
    Unavailable(StripeIndex),
    /// Blocks were asked for that a crash tore (or made suspect): member, first byte in its data
    /// area, bytes.
    Torn(MemberIndex, u64, u64),
    /// The log has been replayed.
    Replayed(LogReport),
    /// Long work has begun.
    TaskStarted(TaskKind),
    /// Long work has ended (or was stopped).
    TaskEnded(TaskReport),
}

/// How an I/O failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoError {
    /// This range could not be read or written.
    Range,
    /// The drive is gone.
    Gone,
}

/// What an array is started from.
pub struct Start {
    /// The superblock all members agreed on, with this start's epoch, lineage and owner in it.
    pub superblock: Superblock,
    /// Members whose drives are open.
    pub present: Vec<bool>,
    /// Pages of the map that some members do not have as they are here: written there before
    /// anything relies on them.
    pub pages_behind: BTreeMap<u32, Vec<Behind>>,
    /// By place: superblock copy B is damaged or behind, and written before copy A, which is then
    /// the only good one.
    pub copy_b_first: Vec<bool>,
    /// Members whose drives have a cache that a power cut may lose; one left out counts as having none.
    pub volatile: Vec<bool>,
    /// The array was not stopped cleanly under a policy with a log: entries of this epoch and
    /// lineage are replayed before anything else.
    pub replay: Option<Replay>,
    /// Array store as the members' newest copy says: the blocks that read as errors among it.
    pub store: Store,
    /// It is on no member as it is here.
    pub store_changed: bool,
    /// Members that do not have the newest that the others have.
    pub store_behind: Vec<Behind>,
    /// The map as the newest pages of all current members say; regions whose parity may not match
    /// are `NeedsSync`.
    pub regions: RegionMap,
    /// Serve reads only and write nothing.
    pub read_only: bool,
    /// The administrator accepts that in regions that need a resync the strips of missing members
    /// are what parity says they are.
    pub accept_doubtful: bool,
    /// Bytes that the slots of all operations may take together.
    pub memory_bytes: usize,
    /// Now.
    pub now_ns: u64,
}

/// A member that has an older copy of something than others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behind {
    /// Place.
    pub place: u16,
    /// Generation of its newest valid copy (0: none).
    pub generation: u64,
}

impl Behind {
    /// Generation under which it gets what is `newest`: not over its only valid copy, which lies
    /// where its own generation says.
    fn catch_up(self, newest: u64) -> u64 {
        newest - u64::from(newest % 2 == self.generation % 2 && newest > self.generation + 1)
    }
}

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Spans written as full stripes.
    pub full_stripe: u64,
    /// Spans written by read-modify-write.
    pub read_modify: u64,
    /// Spans written by reconstruct-write.
    pub reconstruct: u64,
    /// Write operations that were joined to another's plan.
    pub joined: u64,
    /// Stripes that waited for their rest and became whole: nothing was read for them.
    pub gathered: u64,
    /// Bytes that their parts would have had to read, each alone.
    pub gathered_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Starting,
    Running,
    Stopping,
    Stopped,
}

/// What was accepted at the start although it may be wrong: see [`Start::accept_doubtful`].
#[derive(Default)]
struct Accepted {
    regions: std::collections::BTreeSet<u32>,
    missing: Vec<bool>,
}

/// The state machine of one array.
pub struct Array {
    geometry: Geometry,
    code: Code,
    members: Vec<Member>,
    /// Every member is active: the fast path needs no masks.
    all_active: bool,
    requests: Slots<Request>,
    directs: Slots<Direct>,
    ops: Slots<Op>,
    locks: LockTable,
    granted: Vec<OpId>,
    regions: Regions,
    meta: Meta,
    background: Background,
    mode: Mode,
    read_only: bool,
    accepted: Accepted,
    /// Of the request that is being cut; kept for its memory.
    fragments: Vec<Fragment>,
    /// Metadata could not be written where it must be: no more writes.
    broken: bool,
    /// Published: reads may be direct.
    open: bool,
    /// Direct reads of all cores when long work last looked.
    reads_seen: u64,
    now_ns: u64,
    last_request_ns: u64,
    memory_free: isize,
    memory_total: isize,
    memory_waiters: VecDeque<OpId>,
    early: VecDeque<RequestId>,
    pending: command::Pending,
    counters: Counters,
    log: Log,
    /// To be replayed when the start is recorded on all live members.
    replay_next: Option<Replay>,
    /// Members that have not ended the flush with which a start begins.
    start_flushes: u32,
    began_ns: u64,
    replayer: Option<Box<Replayer>>,
    replayed: LogReport,
    torn: Torn,
    policy: policy::Change,
    streams: Streams,
}

impl Array {
    /// Starts an array: raises the epoch on all live members before anything is served.
    pub fn start(start: Start, code: Code, out: &mut Vec<Action>) -> Array {
        let superblock = start.superblock;
        let geometry = meta::geometry(&superblock);
        let members =
            members::from_superblock(&superblock, &geometry, &start.present, &start.volatile);
        let mut array = Array {
            regions: Regions::new(&geometry, start.regions, start.pages_behind, start.now_ns),
            log: Log::new(&superblock, &geometry),
            torn: Torn::new(start.store, start.store_changed, start.store_behind),
            meta: Meta::new(superblock, start.copy_b_first),
            background: Background::default(),
            geometry,
            code,
            members,
            all_active: false,
            requests: Slots::default(),
            directs: Slots::default(),
            ops: Slots::default(),
            locks: LockTable::default(),
            granted: Vec::new(),
            mode: Mode::Starting,
            read_only: start.read_only,
            accepted: Accepted::default(),
            fragments: Vec::new(),
            broken: false,
            open: false,
            reads_seen: 0,
            now_ns: start.now_ns,
            last_request_ns: 0,
            memory_free: start.memory_bytes as isize,
            memory_total: start.memory_bytes as isize,
            memory_waiters: VecDeque::new(),
            early: VecDeque::new(),
            pending: command::Pending::default(),
            counters: Counters::default(),
            replay_next: None,
            start_flushes: 0,
            began_ns: start.now_ns,
            replayer: None,
            replayed: LogReport::default(),
            policy: policy::Change::default(),
            streams: Streams::default(),
        };
        if start.accept_doubtful {
            array.accept_doubtful();
        }
        array.members_changed();
        array.torn_forget_unwritten();
        if array.read_only {
            array.mode = Mode::Running;
        } else {
            array.meta.set_replay(start.replay);
            array.replay_next = start.replay;
            array.start_flush(out);
        }
        array.publish();
        array
    }

    /// What cores may know so that they read without asking; none is under way or open at first.
    pub fn published(&self) -> &std::sync::Arc<Published> {
        self.regions.published()
    }

    /// The direct reads of one more core.
    pub fn direct_reads(&self) -> DirectReads {
        let published = self.published().clone();
        DirectReads::new(self.geometry.clone(), self.data_offset(), published)
    }

    /// Lets reads be direct or not. At the end of every call from outside, so that it is known
    /// before the actions of that call are carried out.
    fn publish(&mut self) {
        let listed = !self.torn.list().is_empty();
        let open = self.mode == Mode::Running && !listed;
        if std::mem::replace(&mut self.open, open) == open {
            return;
        }
        let published = self.regions.published();
        published.set_open(open);
        if listed {
            published.new_regime();
        }
    }

    /// What has been read of the drives may lie in their caches, from writes that a crash cut off: a
    /// start relies on it, so it must stay.
    fn start_flush(&mut self, out: &mut Vec<Action>) {
        let volatile = |member: &Member| member.volatile;
        self.start_flushes = self.flush(Class::Meta, meta::START_FLUSH, volatile, out);
        if self.start_flushes == 0 {
            self.started(out);
        }
    }

    fn start_flushed(
        &mut self,
        member: MemberIndex,
        result: Result<(), IoError>,
        out: &mut Vec<Action>,
    ) {
        self.broken |= result.is_err() && !self.write_failed(member, out);
        self.start_flushes -= 1;
        if self.start_flushes == 0 {
            self.started(out);
            self.region_job_start(out);
        }
    }

    /// What must be made good before the start is: then the epoch is raised on all live members,
    /// which ends what the log of before could still say.
    pub(self) fn started(&mut self, out: &mut Vec<Action>) {
        if self.start_flushes > 0 {
            return; // their last end goes on
        }
        if self.regions.has_rewrites() {
            return self.region_job_start(out); // and then again
        }
        let listing = self.torn.is_dirty() || !self.torn.is_quiet();
        if listing && !planted::on(Planted::TornListAfterParity) {
            return self.torn_save(torn::SaveFor::Start, out);
        }
        self.meta.set_ready();
        self.meta_save(out);
    }

    /// Shape and places.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The code, for computing.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Members by place.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The superblock as it is (or is about to be) on the members.
    pub fn superblock(&self) -> &Superblock {
        self.meta.superblock()
    }

    /// Counts since the start.
    pub fn counters(&self) -> Counters {
        let (reads, read_bytes) = self.published().read_counts();
        Counters {
            reads: self.counters.reads + reads,
            read_bytes: self.counters.read_bytes + read_bytes,
            ..self.counters
        }
    }

    /// Regions by state: unwritten, clean, dirty, needs resync.
    pub fn region_counts(&self) -> [u64; 4] {
        self.regions.counts()
    }

    /// Read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The start has not ended: nothing is served yet.
    pub fn is_starting(&self) -> bool {
        self.mode == Mode::Starting
    }

    /// Everything has ended and all is durable; no action will come any more.
    pub fn is_stopped(&self) -> bool {
        self.mode == Mode::Stopped
    }

    /// Whether anything is stored in a region (else it reads as zeroes).
    pub fn region_is_written(&self, region: u32) -> bool {
        !self.regions.is_unwritten(region)
    }

    /// Whether a region's parity, or copies, are not to be believed yet.
    pub fn region_needs_sync(&self, region: u32) -> bool {
        self.regions.needs_sync(region)
    }

    /// What is still held while nothing is under way, for checks: there must be nothing.
    pub fn held_at_rest(&self) -> Option<&'static str> {
        if self.memory_free != self.memory_total {
            Some("memory of operations")
        } else if !self.locks.is_empty() {
            Some("a band's lock")
        } else if self.directs.used() > 0 {
            Some("a direct read")
        } else if !self.memory_waiters.is_empty() || !self.early.is_empty() {
            Some("something that waits")
        } else {
            None
        }
    }

    /// Operations under way and what they wait for, for a report.
    pub fn describe_operations(&self) -> String {
        let mut text = String::new();
        for op in self.ops.iter().filter(|op| op.phase != ops::Phase::Free) {
            text += &format!("{:?} band {} {:?}; ", op.purpose, op.band, op.phase);
        }
        text += &format!("{:?} {:?} ", self.mode, self.regions);
        text += &format!("{:?} {:?} ", self.torn, self.replayer);
        text + &format!("broken {} {:?}", self.broken, self.log)
    }

    /// Requests and operations under way.
    pub fn busy(&self) -> bool {
        self.requests.used() > 0 || self.ops.used() > 0
    }

    /// The plan and its fragments' memory, for [`Action::Compute`].
    pub fn op_plan(&self, op: OpId) -> (&Plan, &[plan::Fragment]) {
        let op = &self.ops[op.0];
        (&op.plan, &op.fragments)
    }

    /// Reports the end of an I/O.
    pub fn io_done(&mut self, token: Token, result: Result<(), IoError>, out: &mut Vec<Action>) {
        match token.class() {
            Class::Direct => self.direct_done(token.index(), result, out),
            Class::Op => self.op_io_done(OpId(token.index()), token.part(), result, out),
            Class::Flush => self.flush_done(token, result, out),
            Class::Region => self.region_io_done(token, result, out),
            Class::Meta => self.meta_io_done(token, result, out),
            Class::Background => self.background_io_done(token, result, out),
            Class::Log => self.log_io_done(token, result, out),
            Class::Replay => self.replay_io_done(token, result, &[], out),
            Class::Torn => self.torn_io_done(token, result, out),
        }
        if self.broken {
            // What waits for a record that will not be, or for the log, need not any more.
            self.torn_absence_recorded(out);
            self.log_step(out);
        }
        self.stop_step(out);
        self.publish();
    }

    /// Reports the end of an [`IoKind::ReadMeta`], with what was read.
    pub fn read_done(
        &mut self,
        token: Token,
        result: Result<(), IoError>,
        bytes: &[u8],
        out: &mut Vec<Action>,
    ) {
        assert_eq!(
            token.class(),
            Class::Replay,
            "only the replay reads metadata"
        );
        self.replay_io_done(token, result, bytes, out);
        self.stop_step(out);
        self.publish();
    }

    /// Blocks that read as errors.
    pub fn torn(&self) -> &TornList {
        self.torn.list()
    }

    /// Some live member's drive has a cache that a power cut may lose.
    fn any_volatile(&self) -> bool {
        self.members.iter().any(|m| m.volatile && m.is_live())
    }

    /// Says what time it is, without work.
    pub fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Moves time on: idle regions are cleaned, long work goes on, progress is saved.
    pub fn tick(&mut self, now_ns: u64, out: &mut Vec<Action>) {
        self.now_ns = now_ns;
        if self.mode == Mode::Running {
            self.gathers_step(out);
            self.look_at_reads();
            self.clean_idle_regions(out);
            self.background_step(out);
        }
        self.stop_step(out);
        self.publish();
    }

    /// Reads that no request told of are clients at work, too.
    fn look_at_reads(&mut self) {
        let (reads, _) = self.published().read_counts();
        if std::mem::replace(&mut self.reads_seen, reads) != reads {
            self.last_request_ns = self.now_ns;
        }
    }

    /// When [`Array::tick`] wants to be called next, in the clock of `now_ns`; `None`: no need.
    pub fn next_tick_ns(&self) -> Option<u64> {
        if self.mode != Mode::Running {
            return None;
        }
        if self.read_only {
            return None;
        }
        let next = [
            self.regions.next_clean_ns(),
            self.background.next_step_ns(),
            self.streams.next_ns(),
        ];
        next.into_iter().flatten().min()
    }

    /// First byte of the data area on every member.
    fn data_offset(&self) -> u64 {
        self.meta.superblock().areas.data.offset
    }

    fn band_of(&self, stripe: StripeIndex, row_byte: u32) -> BandKey {
        BandKey(self.geometry.band(stripe, row_byte))
    }

    fn stripe_of(&self, band: BandKey) -> StripeIndex {
        self.geometry.stripe_of_band(band.0)
    }

    /// Rows of a band within its strips.
    fn band_rows(&self, band: BandKey) -> (u32, u32) {
        let bytes = self.geometry.band_bytes();
        let start = (band.0 & (self.geometry.bands() - 1)) * bytes;
        (start as u32, (start + bytes) as u32)
    }

    /// What can be read and written of a stripe's band now. `excluded`: strips that were found
    /// unreadable.
    fn strips(&self, band: BandKey, excluded: u64) -> Strips {
        let stripe = self.stripe_of(band);
        let (data, parity) = (self.geometry.data(), self.geometry.parity());
        let all = plan::mask(data + parity);
        let mut strips = Strips {
            data,
            parity,
            readable: all,
            writable: all,
        };
        if !self.all_active {
            for strip in 0..data + parity {
                let member = self.geometry.member(stripe, strip);
                if !self.in_sync(member, band) {
                    strips.readable &= !(1 << strip);
                    strips.writable &= !(1 << strip);
                }
            }
        }
        let region = self.geometry.region(stripe);
        if data > 1 && self.regions.needs_sync(region) && self.is_accepted(region, stripe) {
            // Strips that may contradict each other: always the same k are believed.
            strips.readable = plan::strips_of(strips.readable)
                .take(data)
                .fold(0, |mask, strip| mask | 1 << strip);
        } else if self.regions.needs_sync(region) {
            // Parity may not match data here. Of mirrors one copy, always the same, is the truth.
            strips.readable &= if data == 1 {
                let readable = strips.readable & !excluded;
                readable & readable.wrapping_neg()
            } else {
                strips.data_mask()
            };
        }
        strips.readable &= !excluded;
        strips
    }

    /// The administrator accepts what parity says of the members missing now, in the regions that
    /// need a resync now.
    fn accept_doubtful(&mut self) {
        self.accepted = Accepted {
            regions: self.regions.all_needing_sync(),
            missing: self
                .members
                .iter()
                .map(|member| !(member.attached && member.state == MemberState::Active))
                .collect(),
        };
    }

    /// Whether missing data strips of this stripe, which needs a resync, are what parity says.
    fn is_accepted(&self, region: u32, stripe: StripeIndex) -> bool {
        if !self.accepted.regions.contains(&region) {
            return false;
        }
        let mut missing = (0..self.geometry.data())
            .map(|strip| self.geometry.member(stripe, strip))
            .filter(|member| self.members[member.at()].state != MemberState::Active)
            .peekable();
        missing.peek().is_some() && missing.all(|member| self.accepted.missing[member.at()])
    }

    fn live_members(&self) -> impl Iterator<Item = MemberIndex> + '_ {
        self.members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.is_live())
            .map(|(index, _)| MemberIndex(index as u16))
    }

    fn member_io(&mut self, io: Io, out: &mut Vec<Action>) {
        self.members[io.member.at()].in_flight += 1;
        out.push(Action::Io(io));
    }

    /// Flushes the live members of which `which` says so, and returns how many they are. The parts
    /// of the tokens name them.
    fn flush(
        &mut self,
        class: Class,
        index: u32,
        which: impl Fn(&Member) -> bool,
        out: &mut Vec<Action>,
    ) -> u32 {
        let mut flushed = 0;
        for place in 0..self.members.len() {
            if !self.members[place].is_live() || !which(&self.members[place]) {
                continue;
            }
            let io = Io {
                token: Token::new(class, index, place as u32),
                member: MemberIndex(place as u16),
                offset: 0,
                length: 0,
                kind: IoKind::Flush,
            };
            self.member_io(io, out);
            flushed += 1;
        }
        flushed
    }

    fn member_io_ended(&mut self, member: MemberIndex) {
        self.members[member.at()].in_flight -= 1;
    }
}

/// The code of a superblock's shape, for [`Array::start`].
///
/// # Errors
/// The text of the codec's refusal.
pub fn code_of(superblock: &Superblock) -> Result<Code, String> {
    Code::new(superblock.data.into(), superblock.parity.into()).map_err(|e| e.to_string())
}

fn is_write(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Write | Operation::WriteZeroes | Operation::Discard
    )
}
