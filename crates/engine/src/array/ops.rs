//! Stripe operations: lock, open the region, plan, read, compute, write, give everything back.
//!
//! ```text
//! Lock (→ Gather) → Region → Flush → Memory → Reading → (compute) → Logging → Writing → Healing → ended
//!                                         ↑         |
//!                                         └─────────┘  a strip could not be read: plan again without it
//! ```

use super::*;
use crate::block::BlockError;
use crate::format::torn::TornExtent;
use crate::plan::{self, Fragment, From, Into, Memory, Way};
use locks::Hold;

/// Fragments of one joined write at most.
const FRAGMENTS_MAX: usize = 192;
/// Writes joined into one plan at most.
const JOINED_MAX: usize = 128;

/// What an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Purpose {
    /// Answer a read for which something must be decoded.
    #[default]
    Read,
    /// Read, decode, write back what could not be read.
    Repair,
    /// A client's write.
    Write,
    /// Refill members.
    Rebuild,
    /// Compare parity.
    Check,
    /// Compute parity anew from data, or make copies agree.
    Resync,
    /// Make copies agree before one of them is read.
    Settle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    #[default]
    Free,
    Lock,
    /// Until the rest of its stripe comes, or does not.
    Gather,
    /// Until a change of policy is over.
    Policy,
    Region,
    /// Until a flush makes durable what the rows hold.
    Flush,
    Memory,
    Reading,
    Computing,
    /// Its entries go to the parity log.
    Logging,
    Writing,
    /// Blocks that were torn are taken off the list.
    Healing,
}

/// One I/O of an operation.
#[derive(Debug, Clone, Copy)]
struct Part {
    strip: u8,
    member: MemberIndex,
    write: bool,
}

/// An operation on one band of one stripe.
#[derive(Default)]
pub(super) struct Op {
    pub(super) purpose: Purpose,
    pub(super) phase: Phase,
    pub(super) band: u64,
    durable: bool,
    /// Requests that this operation is a part of.
    requests: Vec<RequestId>,
    /// The stream of a write that covers a part of its stripe.
    pub(super) stream: Option<StreamId>,
    /// Bytes that its parts would have had to read, each alone.
    pub(super) alone_bytes: u64,
    /// When its reads began.
    read_from_ns: u64,
    pub(super) fragments: Vec<Fragment>,
    pub(super) plan: Plan,
    parts: Vec<Part>,
    outstanding: u32,
    /// Strips that could not be read.
    excluded: u64,
    /// A member was lost that the array cannot do without.
    failed: bool,
    memory: usize,
    in_region: bool,
    /// Counted among the region's visitors.
    visiting: bool,
    /// Check: strips that differ from what the others say.
    differing: u64,
    /// Counted among the writers that a change of policy waits for.
    counted: bool,
    pub(super) log: LogPart,
}

impl Op {
    /// Memory of a written strip's new content in a span's rows; `None`: zeroes.
    pub(super) fn log_content(&self, strip: usize, span: &plan::Span) -> Option<LogSource> {
        let fragment = self
            .fragments
            .iter()
            .find(|f| usize::from(f.strip) == strip && f.start <= span.start && span.end <= f.end)
            .expect("a written strip has a fragment");
        match fragment.memory {
            Memory::Zeroes => None,
            Memory::Request(id, at) => {
                Some(LogSource::Request(id, at + (span.start - fragment.start)))
            }
        }
    }

    /// Something of it is zeroed by the drives' own command.
    fn zeroes(&self) -> bool {
        let mut fragments = self.fragments.iter();
        fragments.any(|fragment| fragment.memory == Memory::Zeroes)
    }

    /// Requests that it is a part of.
    pub(super) fn requests(&self) -> &[RequestId] {
        &self.requests
    }

    fn hold(&self) -> Hold {
        if self.purpose == Purpose::Read {
            Hold::Shared
        } else {
            Hold::Alone
        }
    }
}

/// How an operation of long work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpEnd {
    pub band: BandKey,
    pub purpose: Purpose,
    pub result: Result<(), BlockError>,
    pub differing: u64,
}

impl Array {
    fn op_new(&mut self, purpose: Purpose, band: BandKey) -> OpId {
        let id = self.ops.take();
        let op = &mut self.ops[id];
        assert_eq!(
            op.phase,
            Phase::Free,
            "operation slots are reused only when free"
        );
        op.purpose = purpose;
        op.phase = Phase::Lock;
        op.band = band.0;
        op.durable = false;
        op.stream = None;
        op.alone_bytes = 0;
        op.requests.clear();
        op.fragments.clear();
        op.plan.clear();
        op.parts.clear();
        op.outstanding = 0;
        op.excluded = 0;
        op.failed = false;
        op.memory = 0;
        op.in_region = false;
        op.visiting = false;
        op.differing = 0;
        op.counted = false;
        op.log.clear();
        OpId(id)
    }

    pub(super) fn begin_read_op(
        &mut self,
        request: RequestId,
        stripe: StripeIndex,
        fragments: &[Fragment],
        excluded: u64,
        repair: bool,
        out: &mut Vec<Action>,
    ) {
        let purpose = if repair {
            Purpose::Repair
        } else {
            Purpose::Read
        };
        let band = self.band_of(stripe, fragments[0].start);
        let id = self.op_new(purpose, band);
        let op = &mut self.ops[id.0];
        op.requests.push(request);
        op.fragments.extend_from_slice(fragments);
        op.excluded = excluded;
        self.op_lock(id, out);
    }

    pub(super) fn begin_write_op(
        &mut self,
        request: RequestId,
        band: BandKey,
        fragments: &[Fragment],
        (durable, stream): (bool, Option<StreamId>),
        out: &mut Vec<Action>,
    ) {
        let id = self.op_new(Purpose::Write, band);
        let op = &mut self.ops[id.0];
        op.requests.push(request);
        op.fragments.extend_from_slice(fragments);
        op.durable = durable;
        op.stream = stream;
        if stream.is_some() {
            self.ops[id.0].alone_bytes = self.read_alone_bytes(fragments);
        }
        self.op_lock(id, out);
    }

    /// What a write of these rows reads for parity if it is alone.
    fn read_alone_bytes(&self, fragments: &[Fragment]) -> u64 {
        let (data, parity) = (self.geometry.data(), self.geometry.parity());
        let strips = fragments.iter().fold(0, |mask, f| mask | 1u64 << f.strip);
        let written = strips.count_ones() as usize;
        let start = fragments.iter().map(|f| f.start).min().unwrap_or(0);
        let end = fragments.iter().map(|f| f.end).max().unwrap_or(0);
        u64::from(end - start) * (written + parity).min(data - written) as u64
    }

    /// An operation of long work on a whole band.
    pub(super) fn begin_work_op(&mut self, purpose: Purpose, band: BandKey, out: &mut Vec<Action>) {
        let id = self.op_new(purpose, band);
        // Copies that agree are read from any of them at once.
        self.ops[id.0].durable = purpose == Purpose::Resync && self.geometry.data() == 1;
        self.op_lock(id, out);
    }

    /// Makes the copies of a band agree, durably, for a read.
    pub(super) fn begin_settle_op(
        &mut self,
        request: RequestId,
        band: BandKey,
        out: &mut Vec<Action>,
    ) {
        let id = self.op_new(Purpose::Settle, band);
        let op = &mut self.ops[id.0];
        op.requests.push(request);
        op.durable = true;
        self.op_lock(id, out);
    }

    fn op_lock(&mut self, id: OpId, out: &mut Vec<Action>) {
        let op = &self.ops[id.0];
        let (band, hold) = (BandKey(op.band), op.hold());
        if self.locks.acquire(band, hold, id) {
            self.op_locked(id, out);
        } else {
            self.gather_met(band, out);
        }
    }

    fn op_locked(&mut self, id: OpId, out: &mut Vec<Action>) {
        if self.ops[id.0].purpose == Purpose::Write {
            self.op_join(id);
            if self.gather_begin(id) {
                return;
            }
        }
        self.op_enter_region(id, out);
    }

    /// Takes the writes that wait next for the same band into this operation's plan.
    pub(super) fn op_join(&mut self, id: OpId) {
        let band = BandKey(self.ops[id.0].band);
        loop {
            let ops = &self.ops;
            let leader = &ops[id.0];
            let joined = self.locks.join_next(band, |next| {
                let next = &ops[next.0];
                // What is written to one row is durable together, and zeroes are so only by a flush.
                let unlike = (leader.durable || next.durable) && (leader.zeroes() || next.zeroes());
                next.purpose == Purpose::Write
                    && !unlike
                    && leader.requests.len() < JOINED_MAX
                    && leader.fragments.len() + next.fragments.len() <= FRAGMENTS_MAX
                    && !next
                        .fragments
                        .iter()
                        .any(|a| leader.fragments.iter().any(|b| a.overlaps(b)))
            });
            let Some(next) = joined else { return };
            self.counters.joined += 1;
            let mut fragments = std::mem::take(&mut self.ops[next.0].fragments);
            let mut requests = std::mem::take(&mut self.ops[next.0].requests);
            let durable = self.ops[next.0].durable;
            let alone_bytes = self.ops[next.0].alone_bytes;
            let leader = &mut self.ops[id.0];
            leader.fragments.append(&mut fragments);
            leader.requests.append(&mut requests);
            leader.durable |= durable;
            leader.alone_bytes += alone_bytes;
            // The emptied vectors go back, so that a reused slot keeps its memory.
            let next_op = &mut self.ops[next.0];
            next_op.fragments = fragments;
            next_op.requests = requests;
            next_op.phase = Phase::Free;
            self.ops.give(next.0);
        }
    }

    /// What comes first in its band is written.
    pub(super) fn op_has_beginning(&self, id: OpId) -> bool {
        let op = &self.ops[id.0];
        let (start, _) = self.band_rows(BandKey(op.band));
        let mut fragments = op.fragments.iter();
        fragments.any(|f| f.strip == 0 && f.start == start)
    }

    /// Everything in its band is written.
    pub(super) fn op_is_whole(&self, id: OpId) -> bool {
        let op = &self.ops[id.0];
        let fragments = op.fragments.iter();
        let bytes: u64 = fragments.map(|f| u64::from(f.end - f.start)).sum();
        bytes == self.geometry.data() as u64 * self.geometry.band_bytes()
    }

    pub(super) fn op_enter_region(&mut self, id: OpId, out: &mut Vec<Action>) {
        let op = &mut self.ops[id.0];
        let region = self.geometry.region(self.geometry.stripe_of_band(op.band));
        match op.purpose {
            // Nothing is stored in an unwritten region: nothing to decode, refill or compare.
            Purpose::Rebuild | Purpose::Check | Purpose::Resync | Purpose::Settle
                if self.regions.is_unwritten(region) =>
            {
                self.op_end(id, Ok(()), out);
            }
            // It was given up while the read waited for the lock.
            Purpose::Read | Purpose::Repair if self.regions.is_unwritten(region) => {
                for fragment in &self.ops[id.0].fragments {
                    if let Memory::Request(request, at) = fragment.memory {
                        out.push(Action::Zero(request, at, fragment.end - fragment.start));
                    }
                }
                self.op_end(id, Ok(()), out);
            }
            Purpose::Write if self.broken => self.op_end(id, Err(BlockError::Unavailable), out),
            Purpose::Settle if self.regions.is_settled(region, BandKey(op.band)) => {
                self.op_end(id, Ok(()), out);
            }
            Purpose::Write | Purpose::Resync | Purpose::Settle => {
                if !self.policy_admits(id) {
                    return;
                }
                let op = &mut self.ops[id.0];
                op.counted = true;
                op.phase = Phase::Region;
                if self.region_enter(region, id, out) {
                    self.op_region_open(id, out);
                }
            }
            _ => {
                op.phase = Phase::Region;
                if self.region_visit(region, id) {
                    self.ops[id.0].visiting = true;
                    self.op_plan_begin(id, out);
                }
            }
        }
    }

    /// The region is dirty on all live members (or could not be made so).
    pub(super) fn op_region_open(&mut self, id: OpId, out: &mut Vec<Action>) {
        self.ops[id.0].in_region = true;
        self.op_plan_begin(id, out);
    }

    pub(super) fn op_region_failed(&mut self, id: OpId, out: &mut Vec<Action>) {
        self.op_end(id, Err(BlockError::Unavailable), out);
    }

    /// Rows that an operation will write.
    fn op_rows(&self, id: OpId) -> (u32, u32) {
        let op = &self.ops[id.0];
        if op.fragments.is_empty() {
            return self.band_rows(BandKey(op.band));
        }
        let start = op.fragments.iter().map(|f| f.start).min();
        let end = op.fragments.iter().map(|f| f.end).max();
        (start.unwrap_or(0), end.unwrap_or(0))
    }

    /// Whether what the rows hold must be durable before this operation goes on.
    fn op_wants_durable_rows(&self, id: OpId) -> bool {
        match self.ops[id.0].purpose {
            Purpose::Read | Purpose::Check | Purpose::Repair => false,
            // Copies need no partial parity: any of them is the whole content.
            Purpose::Write => self.geometry.data() > 1,
            Purpose::Rebuild => !planted::on(Planted::ProgressOfToday),
            Purpose::Resync | Purpose::Settle => true,
        }
    }

    /// A listed block among what a read wants: it was cut before the block was listed, and what
    /// parity says of it since then is made up.
    fn op_reads_torn(&self, id: OpId) -> Option<TornExtent> {
        let op = &self.ops[id.0];
        if self.torn().is_empty() || !matches!(op.purpose, Purpose::Read | Purpose::Repair) {
            return None;
        }
        let stripe = self.stripe_of(BandKey(op.band));
        let mut fragments = op.fragments.iter();
        fragments.find_map(|f| self.torn_in(stripe, f.strip.into(), f.start, f.end))
    }

    /// Decides what to do with what can be read and written now.
    pub(super) fn op_plan_begin(&mut self, id: OpId, out: &mut Vec<Action>) {
        let band = BandKey(self.ops[id.0].band);
        self.ops[id.0].phase = Phase::Flush;
        if self.op_wants_durable_rows(id) {
            let rows = self.op_rows(id);
            if !self.log_rows_durable(id, band, rows, out) {
                return;
            }
        }
        if let Some(torn) = self.op_reads_torn(id) {
            let (member, offset, length) = (MemberIndex(torn.member), torn.offset, torn.length);
            out.push(Action::event(Event::Torn(member, offset, length)));
            return self.op_end(id, Err(BlockError::Torn), out);
        }
        let log = self.log.unit_bytes();
        let strips = self.strips(band, self.ops[id.0].excluded);
        let rows = self.band_rows(band);
        let targets = self.rebuild_targets(band);
        let stripe = self.stripe_of(band);
        let accepted = self.is_accepted(self.geometry.region(stripe), stripe);
        let Op {
            purpose,
            fragments,
            plan,
            excluded,
            ..
        } = &mut self.ops[id.0];
        let planned = match purpose {
            Purpose::Read => plan::plan_read(&strips, &self.code, fragments, 0, plan),
            Purpose::Repair => {
                let repair = *excluded & strips.writable;
                plan::plan_read(&strips, &self.code, fragments, repair, plan)
            }
            Purpose::Write => plan::plan_write(&strips, &self.code, fragments, log, plan),
            Purpose::Rebuild if targets == 0 => {
                plan.clear();
                Ok(())
            }
            Purpose::Rebuild => plan::plan_rebuild(&strips, &self.code, targets, rows, plan),
            Purpose::Check if *excluded & strips.writable != 0 => {
                // A scrub finds blocks that cannot be read: they get their content back.
                let targets = *excluded & strips.writable;
                plan::plan_rebuild(&strips, &self.code, targets, rows, plan)
            }
            Purpose::Check => plan::plan_check(&strips, &self.code, rows, plan),
            Purpose::Resync | Purpose::Settle => {
                plan::plan_resync(&strips, &self.code, accepted, rows, plan)
            }
        };
        if planned.is_err() {
            out.push(Action::event(Event::Unavailable(self.stripe_of(band))));
            return self.op_end(id, Err(BlockError::Unavailable), out);
        }
        self.op_take_memory(id, out);
    }

    fn op_take_memory(&mut self, id: OpId, out: &mut Vec<Action>) {
        let bytes = self.ops[id.0].plan.memory_bytes();
        // The first operation always gets its memory, so a small pool is slow, not stuck.
        let alone = !self.anyone_has_memory();
        if bytes > 0
            && !alone
            && (self.memory_free < bytes as isize || !self.memory_waiters.is_empty())
        {
            self.ops[id.0].phase = Phase::Memory;
            self.memory_waiters.push_back(id);
            return;
        }
        self.op_has_memory(id, bytes, out);
    }

    fn anyone_has_memory(&self) -> bool {
        self.memory_free != self.memory_total
    }

    fn op_has_memory(&mut self, id: OpId, bytes: usize, out: &mut Vec<Action>) {
        self.memory_free -= bytes as isize;
        let op = &mut self.ops[id.0];
        op.memory = bytes;
        self.op_read(id, out);
    }

    fn op_give_memory(&mut self, id: OpId, out: &mut Vec<Action>) {
        let op = &mut self.ops[id.0];
        let bytes = std::mem::take(&mut op.memory);
        if bytes > 0 {
            out.push(Action::ReleaseSlots(id));
            self.memory_free += bytes as isize;
        }
    }

    /// Lets operations on that wait for memory.
    fn serve_memory_waiters(&mut self, out: &mut Vec<Action>) {
        while let Some(&next) = self.memory_waiters.front() {
            let bytes = self.ops[next.0].plan.memory_bytes();
            if self.memory_free < bytes as isize && self.anyone_has_memory() {
                return;
            }
            self.memory_waiters.pop_front();
            // Members may have changed while it waited: decide again, at the head of the queue.
            self.memory_free -= bytes as isize;
            self.ops[next.0].memory = bytes;
            self.op_replan_with_memory(next, out);
        }
    }

    fn op_replan_with_memory(&mut self, id: OpId, out: &mut Vec<Action>) {
        let band = BandKey(self.ops[id.0].band);
        let readable = self.strips(band, self.ops[id.0].excluded).readable;
        let reads_dead = self.ops[id.0]
            .plan
            .reads
            .iter()
            .any(|r| readable & (1 << r.strip) == 0);
        if reads_dead {
            self.op_give_memory(id, out);
            self.op_plan_begin(id, out);
        } else {
            self.op_read(id, out);
        }
    }

    fn op_read(&mut self, id: OpId, out: &mut Vec<Action>) {
        let band = BandKey(self.ops[id.0].band);
        let stripe = self.stripe_of(band);
        self.ops[id.0].phase = Phase::Reading;
        self.ops[id.0].read_from_ns = self.now_ns;
        self.ops[id.0].parts.clear();
        let reads = self.ops[id.0].plan.reads.len();
        self.ops[id.0].outstanding = reads as u32;
        for index in 0..reads {
            let op = &self.ops[id.0];
            let read = op.plan.reads[index];
            let memory = match read.into {
                Into::Slot => IoMemory::Slot(id, read.strip, read.start - op.plan.start),
                Into::Fragment(number) => match op.fragments[usize::from(number)].memory {
                    Memory::Request(request, at) => IoMemory::Request(request, at),
                    Memory::Zeroes => unreachable!("zeroes are written, never read"),
                },
            };
            let io = (read.strip, read.start, read.end, IoKind::Read(memory));
            self.op_io(id, stripe, io, out);
        }
        if reads == 0 {
            self.op_compute(id, out);
        }
    }

    fn op_io(
        &mut self,
        id: OpId,
        stripe: StripeIndex,
        (strip, start, end, kind): (u8, u32, u32, IoKind),
        out: &mut Vec<Action>,
    ) {
        let member = self.geometry.member(stripe, strip.into());
        let part = self.ops[id.0].parts.len() as u32;
        let write = !matches!(kind, IoKind::Read(_));
        self.ops[id.0].parts.push(Part {
            strip,
            member,
            write,
        });
        let io = Io {
            token: Token::new(Class::Op, id.0, part),
            member,
            offset: self.data_offset() + self.geometry.member_offset(stripe, start),
            length: end - start,
            kind,
        };
        self.member_io(io, out);
    }

    pub(super) fn op_io_done(
        &mut self,
        id: OpId,
        part: u32,
        result: Result<(), IoError>,
        out: &mut Vec<Action>,
    ) {
        let Part {
            strip,
            member,
            write,
        } = self.ops[id.0].parts[part as usize];
        self.member_io_ended(member);
        if let Err(error) = result {
            if !write {
                self.read_failed(member, error, out);
                self.ops[id.0].excluded |= 1 << strip;
            } else if !self.write_failed(member, out) {
                self.ops[id.0].failed = true;
            }
        }
        let op = &mut self.ops[id.0];
        op.outstanding -= 1;
        if op.outstanding > 0 {
            return;
        }
        match op.phase {
            Phase::Reading => self.op_reads_done(id, out),
            Phase::Writing => self.op_writes_done(id, out),
            phase => unreachable!("I/O of an operation in phase {phase:?}"),
        }
    }

    fn op_reads_done(&mut self, id: OpId, out: &mut Vec<Action>) {
        let op = &self.ops[id.0];
        if op.purpose == Purpose::Write {
            let took_ns = self.now_ns.saturating_sub(op.read_from_ns);
            self.streams.read_took(took_ns);
        }
        let missed = op
            .plan
            .reads
            .iter()
            .any(|r| op.excluded & (1 << r.strip) != 0);
        if missed {
            self.op_give_memory(id, out);
            self.serve_memory_waiters(out);
            return self.op_exclude(id, out);
        }
        self.op_compute(id, out);
    }

    /// Plans again without the strips that could not be read; a shared read that could repair
    /// them must first hold the lock alone.
    fn op_exclude(&mut self, id: OpId, out: &mut Vec<Action>) {
        let op = &mut self.ops[id.0];
        let band = BandKey(op.band);
        let writable = self.strips(band, 0).writable;
        let op = &mut self.ops[id.0];
        let may_repair = op.excluded & writable != 0 && !self.read_only;
        if op.purpose == Purpose::Read && may_repair {
            self.ops[id.0].purpose = Purpose::Repair;
            self.ops[id.0].phase = Phase::Lock;
            self.op_unvisit(id, out);
            self.unlock(band, Hold::Shared, out);
            self.op_lock(id, out);
        } else {
            self.op_plan_begin(id, out);
        }
    }

    fn op_compute(&mut self, id: OpId, out: &mut Vec<Action>) {
        let op = &self.ops[id.0];
        for span in &op.plan.spans {
            match (op.purpose, span.way) {
                (Purpose::Write, Way::FullStripe) => self.counters.full_stripe += 1,
                (Purpose::Write, Way::ReadModifyWrite) => self.counters.read_modify += 1,
                (Purpose::Write, Way::ReconstructWrite) => self.counters.reconstruct += 1,
                _ => {}
            }
        }
        if op.plan.spans.is_empty() && op.plan.copies.is_empty() {
            self.op_may_write(id, &[], out);
        } else {
            // The operation waits, so that its plan is still its own when it is computed.
            self.ops[id.0].phase = Phase::Computing;
            out.push(Action::Compute(id));
        }
    }

    /// The operation's spans have been computed; `differing`: strips that a check found to differ
    /// from what the others say.
    ///
    /// `checksums`: those that computing gave.
    pub fn computed(&mut self, id: OpId, differing: u64, checksums: &[u32], out: &mut Vec<Action>) {
        let op = &mut self.ops[id.0];
        assert_eq!(
            op.phase,
            Phase::Computing,
            "only what was asked for is computed"
        );
        op.differing = differing;
        self.op_may_write(id, checksums, out);
        self.publish();
    }

    /// Everything is computed: by way of the log, or at once.
    fn op_may_write(&mut self, id: OpId, checksums: &[u32], out: &mut Vec<Action>) {
        if self.ops[id.0].purpose == Purpose::Write && self.log.is_on() {
            self.op_log(id, checksums, out);
        } else {
            self.op_write(id, out);
        }
    }

    pub(super) fn op_write(&mut self, id: OpId, out: &mut Vec<Action>) {
        let band = BandKey(self.ops[id.0].band);
        let stripe = self.stripe_of(band);
        let op = &mut self.ops[id.0];
        op.phase = Phase::Writing;
        op.parts.clear();
        let mut started = 0;
        for index in 0..self.ops[id.0].plan.writes.len() {
            let op = &self.ops[id.0];
            let write = op.plan.writes[index];
            // A member dropped since the plan was made misses the write, as every later one.
            let member = self.geometry.member(stripe, write.strip.into());
            if !self.members[member.at()].is_live() {
                continue;
            }
            let kind = match write.from {
                From::Slot => IoKind::Write(
                    IoMemory::Slot(id, write.strip, write.start - op.plan.start),
                    op.durable && !planted::on(Planted::FuaBeforeParity),
                ),
                From::Fragment(number) => match op.fragments[usize::from(number)].memory {
                    Memory::Request(request, at) => IoKind::Write(
                        IoMemory::Request(
                            request,
                            at + (write.start - op.fragments[usize::from(number)].start),
                        ),
                        op.durable,
                    ),
                    Memory::Zeroes => IoKind::WriteZeroes,
                },
                From::Zeroes => IoKind::WriteZeroes,
            };
            self.ops[id.0].outstanding += 1;
            started += 1;
            self.op_io(id, stripe, (write.strip, write.start, write.end, kind), out);
        }
        if started == 0 {
            self.op_writes_done(id, out);
        }
    }

    fn op_writes_done(&mut self, id: OpId, out: &mut Vec<Action>) {
        let op = &self.ops[id.0];
        let band = BandKey(op.band);
        if matches!(op.purpose, Purpose::Repair | Purpose::Check) && op.excluded != 0 {
            let stripe = self.stripe_of(band);
            for strip in plan::strips_of(op.excluded & self.strips(band, 0).writable) {
                let member = self.geometry.member(stripe, strip);
                out.push(Action::event(Event::ReadRepaired(member, stripe)));
            }
        }
        // What the survivors hold is enough only if no more are missing than parities replace.
        let lost = !self.strips(band, 0).writable & plan::mask(self.geometry.strips());
        let too_many =
            op.purpose == Purpose::Write && lost.count_ones() as usize > self.geometry.parity();
        // A repair has delivered what it read even if the member refused it back.
        let failed = op.failed && op.purpose != Purpose::Repair;
        let result = if failed || too_many {
            Err(BlockError::Unavailable)
        } else {
            Ok(())
        };
        self.op_written(id, result, out);
    }

    /// All writes have ended: the log and the torn list hear of it.
    fn op_written(&mut self, id: OpId, result: Result<(), BlockError>, out: &mut Vec<Action>) {
        let op = &self.ops[id.0];
        let writes = op.purpose == Purpose::Write;
        let durable = !self.any_volatile() || op.durable && !op.zeroes();
        if writes {
            self.log_op_ended(id, durable, result.is_err());
        }
        if writes && result.is_ok() && self.op_heals(id, out) {
            return;
        }
        self.op_end(id, result, out);
        self.log_step(out);
    }

    pub(super) fn op_end(
        &mut self,
        id: OpId,
        result: Result<(), BlockError>,
        out: &mut Vec<Action>,
    ) {
        self.op_give_memory(id, out);
        let op = &mut self.ops[id.0];
        let end = OpEnd {
            band: BandKey(op.band),
            purpose: op.purpose,
            result,
            differing: op.differing,
        };
        let hold = op.hold();
        let requests = std::mem::take(&mut op.requests);
        let writing = op.phase == Phase::Writing;
        op.phase = Phase::Free;
        let counted = std::mem::take(&mut op.counted);
        let failed_write = result.is_err() && op.purpose == Purpose::Write && writing;
        if std::mem::take(&mut op.in_region) {
            let region = self.geometry.region(self.stripe_of(end.band));
            if failed_write {
                self.background.band_failed(end.band);
            }
            self.region_leave(region, failed_write, out);
        }
        if matches!(end.purpose, Purpose::Resync | Purpose::Settle) && result.is_ok() {
            let region = self.geometry.region(self.stripe_of(end.band));
            self.regions.settle(region, end.band);
        }
        self.op_unvisit(id, out);
        if matches!(
            end.purpose,
            Purpose::Rebuild | Purpose::Check | Purpose::Resync
        ) {
            self.background_op_ended(end, out);
        }
        self.ops.give(id.0);
        for &request in &requests {
            if end.purpose == Purpose::Settle {
                self.settle_done(request, end.band, result, out);
            } else {
                self.part_done(request, result, out);
            }
        }
        self.give_requests_back(id, requests);
        self.unlock(end.band, hold, out);
        self.serve_memory_waiters(out);
        if counted {
            self.policy_step(out);
        }
        self.stop_step(out);
    }

    /// Operations that write and that a change of policy waits for.
    pub(super) fn writers(&self) -> usize {
        self.ops.iter().filter(|op| op.counted).count()
    }

    fn op_unvisit(&mut self, id: OpId, out: &mut Vec<Action>) {
        let op = &mut self.ops[id.0];
        let band = BandKey(op.band);
        if std::mem::take(&mut op.visiting) {
            let region = self.geometry.region(self.stripe_of(band));
            self.region_unvisit(region, out);
        }
    }

    /// Keeps the vector's memory for the slot's next use, unless it was taken again meanwhile.
    fn give_requests_back(&mut self, id: OpId, mut requests: Vec<RequestId>) {
        let op = &mut self.ops[id.0];
        if op.phase == Phase::Free && op.requests.capacity() == 0 {
            requests.clear();
            op.requests = requests;
        }
    }

    fn unlock(&mut self, band: BandKey, hold: Hold, out: &mut Vec<Action>) {
        let mut granted = std::mem::take(&mut self.granted);
        self.locks.release(band, hold, &mut granted);
        for op in granted.drain(..) {
            self.op_locked(op, out);
        }
        self.granted = granted;
    }
}
