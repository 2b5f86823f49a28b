//! The parity log while the array runs: group commit, retirement, room in the rings.
//!
//! A write operation whose parities are computed becomes a *unit*: its entries, one a span, get
//! consecutive sequence numbers under the band's lock. Each live parity member of the stripe
//! carries them; what waits for a member goes out as one *record* a write, a few records in
//! flight. In-place writes begin when every carrier's record is durable (or its absence is).
//!
//! What always holds:
//! * a row that is touched again holds nothing that a power cut could still take back: an
//!   operation waits for a flush where it would (so the partial parity logged is of content that
//!   is durable, and replaying an entry whose writes never began changes nothing);
//! * what counts a member as gone (an entry, a write, a retirement) waits until its absence is
//!   durable on the others;
//! * units retire oldest first; a record is written over only when a newer record, durable on the
//!   same member and not itself being written over, says that its entries are retired.
//!
//! `docs/internals/write-hole.md` has the argument.

use super::*;
use crate::format::Extent;
use crate::format::log::record::{self, EntryHead, RECORD_ALIGN, RecordHead, Writer};
use crate::format::log::{area_bytes_min, ring};
use crate::format::superblock::Consistency;
use crate::plan::Span;
use ops::Phase as OpPhase;

/// Records in flight on one member. What comes meanwhile shares the next one.
const IN_FLIGHT_MAX: usize = 3;
/// A record takes no further operation beyond this.
const RECORD_BYTES: usize = 256 << 10;
/// Kept free for records that only say what is retired.
const RESERVE_BYTES: u64 = 2 * RECORD_ALIGN as u64;
/// Units that wait for a flush before one is asked for on the log's own account.
const UNITS_MAX: usize = 8192;
/// Index of the tokens of the log's flushes; others name records.
const FLUSH: u32 = 0xff_ffff;

/// Index of a record being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordId(pub u32);

/// Where bytes of a record come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSource {
    /// A slot of an operation, from this byte of the slot.
    Slot(OpId, u8, u32),
    /// A request's buffer, from this byte.
    Request(RequestId, u32),
}

/// The log's part of an operation.
#[derive(Default)]
pub(super) struct LogPart {
    /// Its entries have gone to their carriers.
    begun: bool,
    unit: Option<u64>,
    first_sequence: u64,
    /// Parity strips whose members carry it.
    carriers: u64,
    /// Strips whose members take the write.
    live: u64,
    /// Carriers' records that are not durable yet.
    left: u32,
    failed: bool,
    /// Bytes of its entries, and of their payloads.
    entry_bytes: usize,
    payload_bytes: usize,
    checksums: Vec<u32>,
}

impl LogPart {
    pub(super) fn clear(&mut self) {
        let mut checksums = std::mem::take(&mut self.checksums);
        checksums.clear();
        *self = LogPart {
            checksums,
            ..LogPart::default()
        };
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Being logged or written.
    Open,
    /// Its writes have ended, as number this of all; they are durable with the next flush.
    Ended(u64),
    /// Its writes failed in part: kept until the region is recorded as needing a resync.
    Failed(u32),
    /// All its writes are durable on all live members.
    Durable,
}

struct Unit {
    first_sequence: u64,
    state: State,
}

/// A record that takes room in a ring.
#[derive(Debug)]
struct Held {
    number: u64,
    bytes: u64,
    last_sequence: u64,
}

#[derive(Debug, Default)]
struct Ring {
    /// Where the next record goes.
    head: u64,
    used: u64,
    number: u64,
    /// Numbers of the records in flight.
    in_flight: Vec<u64>,
    /// Numbers of records that could not be written, while they take room: the member may stay.
    lost: Vec<u64>,
    pending: VecDeque<OpId>,
    /// Oldest first.
    held: VecDeque<Held>,
    /// Entries below are retired, as durable record number `provider` says.
    retired: u64,
    provider: u64,
    /// What the record written last said.
    said: u64,
}

/// A record being written.
#[derive(Default)]
struct Record {
    member: u16,
    number: u64,
    offset: u64,
    oldest: u64,
    /// As the record's head has them.
    first: u64,
    complete: u64,
    ops: Vec<OpId>,
}

/// Who waits until everything logged so far is retired, durably.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainFor {
    /// A region whose content is to be given up.
    Region(u32),
    /// A drive that is to become a member.
    Joining(MemberIndex),
    /// A change of policy.
    Policy,
}

/// The parity log of an array.
pub(super) struct Log {
    pub(super) policy: Consistency,
    ring: Extent,
    epoch: u64,
    lineage: uuid::Uuid,
    block_bytes: u32,
    next_sequence: u64,
    first_unit: u64,
    units: VecDeque<Unit>,
    rings: Vec<Ring>,
    records: Slots<Record>,
    /// Rows with writes that a power cut may take back: band to (first, after last, ended as).
    undurable: FastMap<u64, Vec<(u32, u32, u64)>>,
    ended: u64,
    /// Members that have not ended the running flush, what it makes durable, whether it failed.
    flush: Option<(u32, u64, bool)>,
    flush_again: bool,
    waiting_flush: VecDeque<OpId>,
    waiting_absence: VecDeque<OpId>,
    drains: Vec<(u64, DrainFor)>,
    stepping: bool,
    pub(super) counters: LogCounters,
}

/// Counts of the log since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Records written.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Operations logged.
    pub units: u64,
    /// Flushes on the log's account.
    pub flushes: u64,
}

impl Log {
    pub(super) fn new(superblock: &Superblock, geometry: &Geometry) -> Log {
        let on = matches!(
            superblock.consistency,
            Consistency::Log | Consistency::LogAll
        );
        let needed = area_bytes_min(geometry.shape());
        assert!(
            !on || superblock.areas.log.length >= needed,
            "a log area has at least {needed} bytes"
        );
        Log {
            policy: superblock.consistency,
            ring: ring(superblock.areas.log),
            epoch: superblock.epoch,
            lineage: superblock.lineage,
            block_bytes: superblock.block_size_bytes,
            next_sequence: 1,
            first_unit: 0,
            units: VecDeque::new(),
            rings: superblock.members.iter().map(|_| Ring::default()).collect(),
            records: Slots::default(),
            undurable: FastMap::default(),
            ended: 0,
            flush: None,
            flush_again: false,
            waiting_flush: VecDeque::new(),
            waiting_absence: VecDeque::new(),
            drains: Vec::new(),
            stepping: false,
            counters: LogCounters::default(),
        }
    }

    /// Writes are logged.
    pub(super) fn is_on(&self) -> bool {
        matches!(self.policy, Consistency::Log | Consistency::LogAll)
    }

    /// What plans of writes need to know: bytes that one checksum covers.
    pub(super) fn unit_bytes(&self) -> Option<u32> {
        self.is_on().then_some(self.block_bytes)
    }

    /// Entries below are retired.
    fn oldest(&self) -> u64 {
        self.units
            .front()
            .map_or(self.next_sequence, |unit| unit.first_sequence)
    }

    /// Units that are not retired.
    pub(super) fn in_force(&self) -> usize {
        self.units.len()
    }

    /// Nothing is logged, flushed or waited for.
    pub(super) fn is_quiet(&self) -> bool {
        self.flush.is_none()
            && self.rings.iter().all(|ring| ring.in_flight.is_empty())
            && self.waiting_flush.is_empty()
            && self.waiting_absence.is_empty()
            && self.drains.is_empty()
    }

    fn rows_undurable(&self, band: u64, start: u32, end: u32) -> bool {
        self.undurable
            .get(&band)
            .is_some_and(|rows| rows.iter().any(|&(from, to, _)| from < end && start < to))
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pending: Vec<usize> = self.rings.iter().map(|ring| ring.pending.len()).collect();
        f.debug_struct("Log")
            .field("units", &self.units.len())
            .field("flush", &self.flush)
            .field("waiting_flush", &self.waiting_flush)
            .field("waiting_absence", &self.waiting_absence)
            .field("drains", &self.drains)
            .field("pending", &pending)
            .field("rings", &self.rings)
            .finish_non_exhaustive()
    }
}

impl Array {
    /// True: these rows hold nothing that a power cut could take back. False: `op` waits for a
    /// flush and is planned then.
    pub(super) fn log_rows_durable(
        &mut self,
        op: OpId,
        band: BandKey,
        (start, end): (u32, u32),
        out: &mut Vec<Action>,
    ) -> bool {
        if self.log.undurable.is_empty() || planted::on(Planted::PartialParityOverUndurable) {
            return true;
        }
        if !self.log.rows_undurable(band.0, start, end) {
            return true;
        }
        self.log.waiting_flush.push_back(op);
        self.log_flush(out);
        false
    }

    /// The operation's parities are computed: its entries go to their carriers.
    pub(super) fn op_log(&mut self, id: OpId, checksums: &[u32], out: &mut Vec<Action>) {
        let op = &mut self.ops[id.0];
        op.log.clear();
        op.log.checksums.extend_from_slice(checksums);
        op.phase = OpPhase::Logging;
        if self.meta_absence_unrecorded() {
            // An entry that counts a member as gone must not be found where it counts as there.
            self.log.waiting_absence.push_back(id);
        } else {
            self.op_log_begin(id, out);
        }
    }

    fn op_log_begin(&mut self, id: OpId, out: &mut Vec<Action>) {
        let band = BandKey(self.ops[id.0].band);
        let live = self.strips(band, 0).writable;
        let carriers =
            live & (plan::mask(self.geometry.strips()) & !plan::mask(self.geometry.data()));
        let first_sequence = self.log.next_sequence;
        let op = &mut self.ops[id.0];
        op.log.begun = true;
        op.log.live = live;
        op.log.carriers = carriers;
        op.log.first_sequence = first_sequence;
        let logged = op.plan.spans.iter().any(|span| span.unit_bytes > 0);
        if carriers == 0 || !logged {
            return self.op_logged(id, out); // no parity left that could go wrong
        }
        let (mut entry_bytes, mut payload_bytes, mut entries) = (0, 0, 0);
        for entry in self.entries_of(id) {
            entry_bytes += entry.bytes();
            payload_bytes += entry.payload_bytes();
            entries += 1;
        }
        let unit = self.log.first_unit + self.log.units.len() as u64;
        self.log.units.push_back(Unit {
            first_sequence,
            state: State::Open,
        });
        self.log.next_sequence += entries;
        self.log.counters.units += 1;
        let op = &mut self.ops[id.0];
        op.log.unit = Some(unit);
        op.log.entry_bytes = entry_bytes;
        op.log.payload_bytes = payload_bytes;
        let stripe = self.stripe_of(band);
        let carriers = if planted::on(Planted::CarriersLeftOut) {
            carriers & carriers.wrapping_neg()
        } else {
            carriers
        };
        self.ops[id.0].log.left = carriers.count_ones();
        for strip in plan::strips_of(carriers) {
            let member = self.geometry.member(stripe, strip);
            self.log.rings[member.at()].pending.push_back(id);
        }
        for strip in plan::strips_of(carriers) {
            let member = self.geometry.member(stripe, strip);
            self.log_cut(member, out);
        }
    }

    /// Entries of an operation that is being logged.
    fn entries_of(&self, id: OpId) -> impl Iterator<Item = EntryHead> + '_ {
        let op = &self.ops[id.0];
        let stripe = self.stripe_of(BandKey(op.band)).0;
        let spans = op.plan.spans.iter().filter(|span| span.unit_bytes > 0);
        spans
            .zip(op.log.first_sequence..)
            .map(move |(span, sequence)| EntryHead {
                sequence,
                stripe,
                start: span.start,
                end: span.end,
                written: span.written,
                live: op.log.live,
                carriers: op.log.carriers,
                logged: self.logged_strips(span, op.log.live),
                old: span.old(),
                unit_bytes: span.unit_bytes,
                partial: span.has_partial_parity(),
            })
    }

    /// Strips whose new content must be in the log, as it is on no drive.
    fn logged_strips(&self, span: &Span, live: u64) -> u64 {
        let all = self.log.policy == Consistency::LogAll;
        if self.geometry.data() > 1 && (span.has_partial_parity() || all) {
            span.written & !live
        } else {
            0
        }
    }

    /// Writes what waits for a member, as far as records may be in flight and have room.
    fn log_cut(&mut self, member: MemberIndex, out: &mut Vec<Action>) {
        if self.broken {
            // Nothing is retired any more: who waits for room would wait for ever.
            for op in std::mem::take(&mut self.log.rings[member.at()].pending) {
                self.log_carried(op, true, out);
            }
            return;
        }
        loop {
            let ring = &self.log.rings[member.at()];
            if ring.in_flight.len() >= IN_FLIGHT_MAX || ring.pending.is_empty() {
                return;
            }
            let (mut entries, mut payload, mut count) = (0, 0, 0);
            for op in &ring.pending {
                let log = &self.ops[op.0].log;
                let more = log.entry_bytes + log.payload_bytes;
                if count > 0 && entries + payload + more > RECORD_BYTES {
                    break;
                }
                entries += log.entry_bytes;
                payload += log.payload_bytes;
                count += 1;
            }
            let mut bytes = record::record_bytes(entries, payload);
            if !self.ring_has_room(member, bytes) && count > 1 {
                let log = &self.ops[ring.pending[0].0].log;
                bytes = record::record_bytes(log.entry_bytes, log.payload_bytes);
                count = 1;
            }
            if !self.ring_has_room(member, bytes) {
                return self.log_make_room(member, out);
            }
            self.log_write(member, count, bytes, out);
        }
    }

    /// Bytes that a record takes with what it leaves unused at the ring's end.
    fn ring_takes(&self, member: MemberIndex, bytes: usize) -> u64 {
        let behind = self.log.ring.length - self.log.rings[member.at()].head;
        let bytes = bytes as u64;
        if bytes > behind {
            behind + bytes
        } else {
            bytes
        }
    }

    fn ring_has_room(&self, member: MemberIndex, bytes: usize) -> bool {
        let used = self.log.rings[member.at()].used;
        used + self.ring_takes(member, bytes) + RESERVE_BYTES <= self.log.ring.length
    }

    /// Room for a record without entries, the reserve included.
    fn ring_has_reserve(&self, member: MemberIndex) -> bool {
        let used = self.log.rings[member.at()].used;
        used + self.ring_takes(member, RECORD_ALIGN) <= self.log.ring.length
    }

    /// Writes a record with the first `count` of the operations that wait (0: only to say what is
    /// retired).
    fn log_write(
        &mut self,
        member: MemberIndex,
        count: usize,
        bytes: usize,
        out: &mut Vec<Action>,
    ) {
        let takes = self.ring_takes(member, bytes);
        let oldest = self.log.oldest();
        let id = self.log.records.take();
        let area = self.log.ring;
        let ring = &mut self.log.rings[member.at()];
        let start = if ring.head + bytes as u64 > area.length {
            0
        } else {
            ring.head
        };
        ring.head = start + bytes as u64;
        ring.used += takes;
        ring.number += 1;
        let number = ring.number;
        let undurable = ring.in_flight.iter().chain(&ring.lost);
        let complete = undurable.min().map_or(number, |&first| first) - 1;
        ring.in_flight.push(number);
        ring.said = oldest;
        let in_force = ring.held.iter().find(|held| held.last_sequence > oldest);
        let first = in_force.map_or(number, |held| held.number);
        let record = &mut self.log.records[id];
        record.ops.clear();
        record.ops.extend(ring.pending.drain(..count));
        record.member = member.0;
        record.number = number;
        record.offset = area.offset + start;
        record.oldest = oldest;
        record.first = first;
        record.complete = complete;
        let last = record.ops.last().map_or(0, |op| {
            let op = &self.ops[op.0];
            op.log.first_sequence + op.plan.spans.len() as u64
        });
        let ring = &mut self.log.rings[member.at()];
        ring.held.push_back(Held {
            number,
            bytes: takes,
            last_sequence: last,
        });
        self.log.counters.records += 1;
        self.log.counters.bytes += bytes as u64;
        let io = Io {
            token: Token::new(Class::Log, id, u32::from(member.0)),
            member,
            offset: area.offset + start,
            length: bytes as u32,
            kind: IoKind::WriteLog(RecordId(id)),
        };
        self.member_io(io, out);
    }

    /// Fills a record's buffer (as long as its I/O) with what it says now. `bytes` gives the
    /// memory of operations and requests: from where, how many.
    pub fn compose_log<'a>(
        &self,
        id: RecordId,
        out: &mut [u8],
        bytes: &dyn Fn(LogSource, usize) -> &'a [u8],
    ) {
        let record = &self.log.records[id.0];
        let entries = record
            .ops
            .iter()
            .map(|op| self.ops[op.0].log.entry_bytes)
            .sum();
        let mut writer = Writer::new(out, entries);
        for &op in &record.ops {
            self.compose_op(op, record.member, &mut writer, bytes);
        }
        writer.finish(&RecordHead {
            array_uuid: self.meta.superblock().array_uuid,
            member_uuid: self.members[usize::from(record.member)].uuid,
            epoch: self.log.epoch,
            lineage: self.log.lineage,
            own_offset: record.offset,
            number: record.number,
            oldest: record.oldest,
            first: record.first,
            complete: record.complete,
        });
    }

    fn compose_op<'a>(
        &self,
        id: OpId,
        member: u16,
        writer: &mut Writer<'_>,
        bytes: &dyn Fn(LogSource, usize) -> &'a [u8],
    ) {
        let op = &self.ops[id.0];
        let stripe = self.stripe_of(BandKey(op.band));
        let parity = self.geometry.strip_of(stripe, MemberIndex(member));
        let spans = op.plan.spans.iter().filter(|span| span.unit_bytes > 0);
        let mut checksums = &op.log.checksums[..];
        for (span, entry) in spans.zip(self.entries_of(id)) {
            let (own, others) = checksums.split_at(entry.checksums());
            checksums = others;
            let mut payload = writer.entry(&entry, own.iter().copied());
            let rows = entry.rows();
            if entry.partial {
                let slot = (self.geometry.strips() + parity) as u8;
                let source = LogSource::Slot(id, slot, span.start - op.plan.start);
                payload[..rows].copy_from_slice(bytes(source, rows));
                payload = &mut payload[rows..];
            }
            for (strip, content) in
                plan::strips_of(entry.logged).zip(payload.chunks_exact_mut(rows))
            {
                match op.log_content(strip, span) {
                    Some(source) => content.copy_from_slice(bytes(source, rows)),
                    None => content.fill(0),
                }
            }
        }
    }

    /// Everything that is logged on a member is logged, as far as it is concerned: it left.
    pub(super) fn log_member_left(&mut self, member: MemberIndex, out: &mut Vec<Action>) {
        let pending = std::mem::take(&mut self.log.rings[member.at()].pending);
        for op in pending {
            self.log_carried(op, false, out);
        }
    }

    /// A place gets another drive: its ring begins anew. Nothing is under way there.
    pub(super) fn log_forget_ring(&mut self, member: MemberIndex) {
        let ring = &mut self.log.rings[member.at()];
        assert!(
            ring.in_flight.is_empty(),
            "a place is filled when its I/O has ended"
        );
        *ring = Ring::default();
    }

    fn log_carried(&mut self, id: OpId, failed: bool, out: &mut Vec<Action>) {
        let log = &mut self.ops[id.0].log;
        log.failed |= failed;
        log.left -= 1;
        if log.left == 0 {
            self.op_logged(id, out);
        }
    }

    /// A record has been written, or a flush of the log has ended.
    pub(super) fn log_io_done(
        &mut self,
        token: Token,
        result: Result<(), IoError>,
        out: &mut Vec<Action>,
    ) {
        let member = MemberIndex(token.part() as u16);
        self.member_io_ended(member);
        let lost = result.is_err() && !self.write_failed(member, out);
        if token.index() == FLUSH {
            return self.log_flush_ended(lost, out);
        }
        let id = token.index();
        let record = &mut self.log.records[id];
        let (number, oldest) = (record.number, record.oldest);
        let ops = std::mem::take(&mut record.ops);
        let ring = &mut self.log.rings[member.at()];
        ring.in_flight.retain(|&other| other != number);
        if result.is_err() {
            ring.lost.push(number);
        }
        if result.is_ok() && oldest >= ring.retired && number > ring.provider {
            ring.retired = oldest;
            ring.provider = number;
        }
        // Who waits for what a record without entries says would wait for ever.
        self.broken |= lost && ops.is_empty();
        for &op in &ops {
            self.log_carried(op, lost, out);
        }
        self.log.records[id].ops = ops;
        self.log.records.give(id);
        self.log_step(out);
    }

    /// The entries of an operation are durable on all carriers: its writes may begin, once every
    /// member that left is recorded as gone.
    fn op_logged(&mut self, id: OpId, out: &mut Vec<Action>) {
        if self.ops[id.0].log.failed {
            // No write has begun: what is in the log describes the row as it is.
            return self.op_unlogged(id, out);
        }
        if self.meta_absence_unrecorded() {
            self.log.waiting_absence.push_back(id);
            return;
        }
        self.op_write(id, out);
    }

    /// What had to be recorded before writes may begin is recorded (or cannot be).
    pub(super) fn log_absence_recorded(&mut self, out: &mut Vec<Action>) {
        for op in std::mem::take(&mut self.log.waiting_absence) {
            if self.broken {
                self.op_unlogged(op, out);
            } else if self.ops[op.0].log.begun {
                self.op_logged(op, out);
            } else {
                self.op_log_begin(op, out);
            }
        }
        self.job_absence_recorded(out);
        self.torn_absence_recorded(out);
        self.log_step(out);
    }

    fn op_unlogged(&mut self, id: OpId, out: &mut Vec<Action>) {
        if let Some(unit) = self.ops[id.0].log.unit.take() {
            self.log_unit(unit).state = State::Durable;
        }
        self.op_end(id, Err(BlockError::Unavailable), out);
        self.log_step(out);
    }

    fn log_unit(&mut self, unit: u64) -> &mut Unit {
        &mut self.log.units[(unit - self.log.first_unit) as usize]
    }

    /// The in-place writes of an operation have ended. `durable`: and are durable already.
    pub(super) fn log_op_ended(&mut self, id: OpId, durable: bool, failed: bool) {
        if !self.log.is_on() {
            return;
        }
        let op = &mut self.ops[id.0];
        let unit = op.log.unit.take();
        let band = op.band;
        let (start, end) = (op.plan.start, op.plan.end);
        let state = if failed {
            State::Failed(self.geometry.region(self.stripe_of(BandKey(band))))
        } else if durable {
            State::Durable
        } else {
            // Also without an entry, where no parity was live: what refills it must read what stays.
            self.log.ended += 1;
            let ended = self.log.ended;
            let rows = self.log.undurable.entry(band).or_default();
            rows.push((start, end, ended));
            State::Ended(ended)
        };
        let Some(unit) = unit else { return };
        self.log_unit(unit).state = state;
        if planted::on(Planted::RetireOutOfOrder) && state == State::Durable {
            let units = self.log.units.iter_mut();
            units.for_each(|unit| unit.first_sequence = u64::MAX >> 1);
        }
    }

    /// A region that needs a resync is recorded as such: units that failed there may retire.
    pub(super) fn log_region_recorded(&mut self, region: u32) {
        for unit in &mut self.log.units {
            if unit.state == State::Failed(region) {
                unit.state = State::Durable;
            }
        }
    }

    /// Mark of what a flush that is submitted now makes durable.
    pub(super) fn log_flush_mark(&self) -> u64 {
        self.log.ended
    }

    /// A flush of all live members has ended well: what had ended before `mark` is durable.
    pub(super) fn log_flushed(&mut self, mark: u64, out: &mut Vec<Action>) {
        for unit in &mut self.log.units {
            if matches!(unit.state, State::Ended(ended) if ended <= mark) {
                unit.state = State::Durable;
            }
        }
        self.log.undurable.retain(|_, rows| {
            rows.retain(|&(_, _, ended)| ended > mark);
            !rows.is_empty()
        });
        self.log_step(out);
    }

    /// Asks for a flush on the log's account.
    pub(super) fn log_flush(&mut self, out: &mut Vec<Action>) {
        if self.log.flush.is_some() {
            self.log.flush_again = true;
            return;
        }
        let mark = self.log_flush_mark();
        self.log.counters.flushes += 1;
        let left = self.flush(Class::Log, FLUSH, |member| member.volatile, out);
        self.log.flush = Some((left, mark, false));
        if left == 0 {
            self.log.flush = Some((1, mark, false));
            self.log_flush_ended(false, out);
        }
    }

    fn log_flush_ended(&mut self, lost: bool, out: &mut Vec<Action>) {
        let Some((left, mark, failed)) = self.log.flush else {
            unreachable!("a flush of the log is under way")
        };
        let failed = failed || lost;
        if left > 1 {
            self.log.flush = Some((left - 1, mark, failed));
            return;
        }
        self.log.flush = None;
        self.broken |= failed;
        if !failed {
            self.log_flushed(mark, out);
        }
        let again = std::mem::take(&mut self.log.flush_again);
        let waiting = std::mem::take(&mut self.log.waiting_flush);
        for op in waiting {
            if failed {
                self.op_end(op, Err(BlockError::Unavailable), out);
            } else {
                self.op_plan_begin(op, out);
            }
        }
        if again && !self.log.undurable.is_empty() && self.log.flush.is_none() {
            self.log_flush(out);
        }
        self.log_step(out);
    }

    /// Retires what can be, makes room, and lets those on who wait for it.
    pub(super) fn log_step(&mut self, out: &mut Vec<Action>) {
        if std::mem::replace(&mut self.log.stepping, true) {
            return;
        }
        // Durable on all live members: those that left must not come back as if nothing were.
        while !self.meta_absence_unrecorded()
            && self
                .log
                .units
                .front()
                .is_some_and(|unit| unit.state == State::Durable)
        {
            self.log.units.pop_front();
            self.log.first_unit += 1;
        }
        for index in 0..self.log.rings.len() {
            let ring = &mut self.log.rings[index];
            while let Some(held) = ring.held.front()
                && held.number < ring.provider
                && held.last_sequence <= ring.retired
            {
                ring.used -= held.bytes;
                let number = held.number;
                ring.lost.retain(|&lost| lost != number);
                ring.held.pop_front();
            }
            if !self.log.rings[index].pending.is_empty() {
                self.log_cut(MemberIndex(index as u16), out);
            }
        }
        self.log.stepping = false;
        let many = self.log.units.len().max(self.log.undurable.len()) > UNITS_MAX;
        let wanted = many || !self.log.drains.is_empty();
        if wanted && !self.log.undurable.is_empty() && self.log.flush.is_none() {
            self.log_flush(out);
        }
        self.log_drains(out);
        self.stop_step(out);
    }

    /// Something waits for room in a member's ring.
    fn log_make_room(&mut self, member: MemberIndex, out: &mut Vec<Action>) {
        if !self.log.undurable.is_empty() {
            self.log_flush(out);
        }
        let oldest = self.log.oldest();
        let ring = &self.log.rings[member.at()];
        // Only when nothing in flight says it, and it would free something.
        let frees = ring
            .held
            .front()
            .is_some_and(|held| held.last_sequence <= oldest);
        let news =
            oldest > ring.said || ring.held.front().is_some_and(|h| h.number == ring.provider);
        let room = self.ring_has_reserve(member);
        if ring.in_flight.is_empty() && frees && news && room {
            self.log_write(member, 0, RECORD_ALIGN, out);
        }
    }

    /// `who` waits until no entry logged so far can be replayed any more.
    pub(super) fn log_drain(&mut self, who: DrainFor, out: &mut Vec<Action>) {
        self.log.drains.push((self.log.next_sequence, who));
        if !self.log.undurable.is_empty() {
            self.log_flush(out);
        }
        self.log_drains(out);
    }

    fn log_drains(&mut self, out: &mut Vec<Action>) {
        if self.log.drains.is_empty() || self.log.stepping {
            return;
        }
        let mut ended = Vec::new();
        for (target, who) in std::mem::take(&mut self.log.drains) {
            let flushing = who == DrainFor::Policy && self.log.flush.is_some();
            // What cannot write any more has nothing to wait for either.
            if self.broken || !flushing && self.log_drained_to(target, out) {
                ended.push(who);
            } else {
                self.log.drains.push((target, who));
            }
        }
        for who in ended {
            match who {
                DrainFor::Region(region) => self.region_drained(region, out),
                DrainFor::Joining(member) => self.joining_drained(member, out),
                DrainFor::Policy => self.policy_drained(out),
            }
        }
    }

    fn log_drained_to(&mut self, target: u64, out: &mut Vec<Action>) -> bool {
        if self.log.oldest() < target {
            return false;
        }
        let mut all = true;
        for member in self.live_members().collect::<Vec<_>>() {
            let ring = &self.log.rings[member.at()];
            let nothing_newer = ring
                .held
                .iter()
                .all(|held| held.last_sequence <= ring.retired);
            if ring.retired >= target || nothing_newer {
                continue;
            }
            all = false;
            let room = self.ring_has_reserve(member);
            if ring.in_flight.is_empty() && ring.said < target && room {
                self.log_write(member, 0, RECORD_ALIGN, out);
            }
        }
        all
    }

    /// What the log has done.
    pub fn log_report(&self) -> LogReport {
        LogReport {
            entries: self.log.in_force() as u64,
            counters: self.log.counters,
            ..self.replayed
        }
    }
}

/// What the log is doing and what it did at the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogReport {
    /// Operations logged and not retired now.
    pub entries: u64,
    /// Since the start.
    pub counters: LogCounters,
    /// Entries replayed at the start.
    pub replayed_entries: u64,
    /// Entries that were not whole on every carrier, and so changed nothing.
    pub voided_entries: u64,
    /// Blocks listed as torn at the start.
    pub torn_blocks: u64,
    /// From the start until everything was protected.
    pub replay_ns: u64,
    /// A log could not be read everywhere: where no other says the same, dirty regions are resynced.
    pub unreadable: bool,
}

#[cfg(test)]
mod tests;
