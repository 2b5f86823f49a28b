//! Requests: cut at strips and bands, sent on as direct reads or stripe operations, joined again.

use super::regions::Reader;
use super::*;
use crate::plan::{Fragment, Memory};

/// Parts of one request that may be under way at once. The rest is cut when parts end, so a
/// request of any size needs bounded memory.
const PARTS_MAX: u32 = 64;

/// A request under way.
#[derive(Default)]
pub(super) struct Request {
    operation: Option<Operation>,
    offset: u64,
    end: u64,
    durable: bool,
    /// First byte that has not been cut yet.
    cursor: u64,
    parts: u32,
    /// A flush: what had ended when it was sent.
    flush_mark: u64,
    error: Option<BlockError>,
    /// A read of copies that may differ: until they agree nothing of it is cut.
    settling: bool,
    /// Of copies that may differ: what is read stays only when members that left are recorded as
    /// gone, as for a write.
    doubtful: bool,
    /// Bands below could not be made to agree (or need not be): what can be read is read as it is.
    unsettled_below: u64,
    /// Of copies, the one on this member is read first: a read of it has failed, and is to fail here,
    /// where it is counted and mended.
    first: Option<MemberIndex>,
    /// Of a write: the stream that it belongs to.
    stream: Option<StreamId>,
    /// It is the foremost of its stream, and parts of stripes are worth a wait.
    foremost: bool,
    /// Being cut further up the call stack: parts that end meanwhile do not cut again.
    cutting: bool,
}

/// A piece that is read straight into the request's memory.
#[derive(Default)]
pub(super) struct Direct {
    request: u32,
    stripe: u64,
    /// Data strip.
    strip: u8,
    /// Strip that was read (another copy, for mirrors).
    from: u8,
    member: u16,
    start: u32,
    end: u32,
    at: u32,
    reader: Reader,
}

impl Array {
    /// Takes a request. Its end comes as [`Action::Complete`], possibly among `out` already.
    ///
    /// The returned id names the request's memory in actions.
    pub fn submit(
        &mut self,
        operation: Operation,
        offset: u64,
        length: u64,
        durable: bool,
        out: &mut Vec<Action>,
    ) -> RequestId {
        self.submit_first(operation, offset, length, durable, None, out)
    }

    /// Takes a read of which a core could not read the part that lies on `failed`.
    pub fn read_again(
        &mut self,
        offset: u64,
        length: u64,
        failed: MemberIndex,
        out: &mut Vec<Action>,
    ) -> RequestId {
        self.submit_first(Operation::Read, offset, length, false, Some(failed), out)
    }

    fn submit_first(
        &mut self,
        operation: Operation,
        offset: u64,
        length: u64,
        durable: bool,
        first: Option<MemberIndex>,
        out: &mut Vec<Action>,
    ) -> RequestId {
        let id = self.requests.take();
        let length = if operation == Operation::Flush {
            0
        } else {
            length
        };
        self.requests[id] = Request {
            operation: Some(operation),
            offset,
            end: offset.saturating_add(length),
            durable,
            first,
            cursor: offset,
            ..Request::default()
        };
        let id = RequestId(id);
        if let Err(error) = self.admit(operation, offset, length) {
            self.requests[id.0].error = Some(error);
            self.requests[id.0].cursor = self.requests[id.0].end;
            self.request_ended(id, out);
            return id;
        }
        self.count(operation, length);
        let stream = (operation == Operation::Write).then(|| {
            let stream = self.streams.note(offset, offset + length);
            let parity = self.geometry.data() > 1 && self.geometry.parity() > 0;
            let foremost = parity && self.streams.is_foremost(stream, offset + length);
            self.requests[id.0].stream = Some(stream);
            self.requests[id.0].foremost = foremost;
            stream
        });
        if self.mode == Mode::Starting {
            self.early.push_back(id);
        } else {
            self.request_begin(id, out);
            if let Some(stream) = stream {
                self.stream_ready(stream, out);
            }
        }
        self.publish();
        id
    }

    /// Rules that a request must keep whatever the array's state.
    fn admit(&self, operation: Operation, offset: u64, length: u64) -> Result<(), BlockError> {
        if matches!(self.mode, Mode::Stopping | Mode::Stopped) {
            return Err(BlockError::Stopped);
        }
        if self.read_only && is_write(operation) {
            return Err(BlockError::ReadOnly);
        }
        if self.broken && operation != Operation::Read {
            return Err(BlockError::Unavailable);
        }
        if operation == Operation::Flush {
            return Ok(());
        }
        let block = u64::from(self.geometry.shape().block_size_bytes);
        if (offset | length) & (block - 1) != 0 {
            return Err(BlockError::Unaligned);
        }
        match offset.checked_add(length) {
            Some(end) if end <= self.geometry.volume_bytes() => Ok(()),
            _ => Err(BlockError::OutOfRange),
        }
    }

    fn count(&mut self, operation: Operation, length: u64) {
        match operation {
            Operation::Read => {
                self.counters.reads += 1;
                self.counters.read_bytes += length;
            }
            Operation::Write => {
                self.counters.writes += 1;
                self.counters.write_bytes += length;
            }
            _ => {}
        }
        self.last_request_ns = self.now_ns;
    }

    pub(super) fn begin_early(&mut self, out: &mut Vec<Action>) {
        while let Some(id) = self.early.pop_front() {
            self.request_begin(id, out);
        }
    }

    /// The start has failed: nothing is served.
    pub(super) fn refuse_early(&mut self, out: &mut Vec<Action>) {
        while let Some(id) = self.early.pop_front() {
            self.request_failed(id);
            self.acknowledge(id, out);
        }
    }

    fn request_begin(&mut self, id: RequestId, out: &mut Vec<Action>) {
        if self.requests[id.0].operation == Some(Operation::Flush) {
            self.flush_begin(id, out);
        } else {
            self.request_cut(id, out);
        }
    }

    /// Cuts on while parts may begin; ends the request when nothing is left.
    fn request_cut(&mut self, id: RequestId, out: &mut Vec<Action>) {
        if self.requests[id.0].cutting {
            return;
        }
        self.requests[id.0].cutting = true;
        loop {
            let request = &self.requests[id.0];
            if request.error.is_some() {
                self.requests[id.0].cursor = self.requests[id.0].end;
                break;
            }
            if request.cursor >= request.end || request.parts >= PARTS_MAX || request.settling {
                break;
            }
            match request.operation {
                Some(Operation::Read) => self.cut_read(id, out),
                Some(Operation::Discard) => self.cut_discard(id, out),
                _ => self.cut_write(id, out),
            }
        }
        self.requests[id.0].cutting = false;
        let request = &self.requests[id.0];
        if request.parts == 0 && request.cursor >= request.end {
            self.request_ended(id, out);
        }
    }

    /// A part of the request has ended.
    pub(super) fn part_done(
        &mut self,
        id: RequestId,
        result: Result<(), BlockError>,
        out: &mut Vec<Action>,
    ) {
        let request = &mut self.requests[id.0];
        request.parts -= 1;
        if let Err(error) = result {
            request.error.get_or_insert(error);
        }
        self.request_cut(id, out);
    }

    fn request_ended(&mut self, id: RequestId, out: &mut Vec<Action>) {
        let request = &mut self.requests[id.0];
        let zeroed = matches!(
            request.operation,
            Some(Operation::WriteZeroes | Operation::Discard)
        );
        if zeroed && request.error.is_none() && std::mem::take(&mut request.durable) {
            // Zeroing by the drive's own command is made durable by a flush, not by FUA.
            return self.flush_begin(id, out);
        }
        let request = &self.requests[id.0];
        let changes = request.operation.is_some_and(|op| op != Operation::Read);
        let doubtful = request.doubtful && !self.broken;
        if changes && self.broken {
            self.request_failed(id);
        } else if (changes || doubtful) && self.meta_holds_acknowledgement(id) {
            return;
        }
        self.acknowledge(id, out);
    }

    /// What had to be recorded before the acknowledgement could not be.
    pub(super) fn request_failed(&mut self, id: RequestId) {
        self.requests[id.0]
            .error
            .get_or_insert(BlockError::Unavailable);
    }

    /// Tells the client. What had to be recorded before is recorded.
    pub(super) fn acknowledge(&mut self, id: RequestId, out: &mut Vec<Action>) {
        let result = self.requests[id.0].error.map_or(Ok(()), Err);
        let stream = self.requests[id.0].stream.take();
        self.requests.give(id.0);
        out.push(Action::Complete(id, result));
        if let Some(stream) = stream {
            self.stream_answered(stream);
        }
        self.stop_step(out);
    }

    /// The part of the request that lies in the stripe at its cursor: stripe, first and last
    /// volume byte.
    fn stripe_at_cursor(&self, id: RequestId) -> (StripeIndex, u64, u64) {
        let request = &self.requests[id.0];
        let stripe = self.geometry.stripe_at(request.cursor);
        let end = (stripe.0 + 1) * self.geometry.stripe_data_bytes();
        (stripe, request.cursor, request.end.min(end))
    }

    fn cut_read(&mut self, id: RequestId, out: &mut Vec<Action>) {
        let (stripe, from, to) = self.stripe_at_cursor(id);
        self.requests[id.0].cursor = to;
        let region = self.geometry.region(stripe);
        if self.regions.is_unwritten(region) {
            let at = (from - self.requests[id.0].offset) as u32;
            out.push(Action::Zero(id, at, (to - from) as u32));
            return;
        }
        if let Some(torn) = self.torn_between(from, to) {
            let member = MemberIndex(torn.member);
            out.push(Action::event(Event::Torn(member, torn.offset, torn.length)));
            self.requests[id.0].error = Some(BlockError::Torn);
            return;
        }
        let doubtful = self.geometry.data() == 1 && self.regions.needs_sync(region);
        self.requests[id.0].doubtful |= doubtful && !self.read_only;
        if doubtful && let Some(band) = self.unsettled_band(id, stripe, from, to) {
            self.requests[id.0].cursor = from;
            self.requests[id.0].parts += 1;
            self.requests[id.0].settling = true;
            return self.begin_settle_op(id, band, out);
        }
        let simple = self.all_active && !self.regions.needs_sync(region);
        let lost = |piece: &crate::layout::StripPiece| self.readable_copy(piece).is_none();
        if !simple && self.pieces(from, to).any(|piece| lost(&piece)) {
            return self.read_by_bands(id, stripe, from, to, out);
        }
        let mut cursor = from;
        while cursor < to {
            let piece = self.geometry.piece(cursor, to - cursor);
            let at = (cursor - self.requests[id.0].offset) as u32;
            let first = self.copy_on(id, stripe);
            let copy = if !simple {
                let first = first.filter(|copy| self.readable_strips(&piece) >> copy & 1 == 1);
                first.or_else(|| self.readable_copy(&piece))
            } else if first.is_some() {
                first
            } else if self.geometry.data() > 1 {
                Some(piece.strip)
            } else {
                self.idlest_copy(stripe, plan::mask(self.geometry.strips()))
            };
            self.direct_read(id, &piece, copy.expect("every piece is readable"), at, out);
            cursor += u64::from(piece.length);
        }
    }

    /// The copy of a mirror that this request reads first, if one of this stripe is.
    fn copy_on(&self, id: RequestId, stripe: StripeIndex) -> Option<u8> {
        let member = self.requests[id.0].first?;
        let ours = self.geometry.data() == 1
            && self.geometry.group_of(member) == self.geometry.group(stripe);
        ours.then(|| self.geometry.strip_of(stripe, member) as u8)
    }

    /// The first band among volume bytes `from..to` of which one copy may hold what another does
    /// not. Whichever is read, the others must hold the same before it is answered: else the loss
    /// of that drive changes what was read.
    fn unsettled_band(
        &self,
        id: RequestId,
        stripe: StripeIndex,
        from: u64,
        to: u64,
    ) -> Option<BandKey> {
        if self.read_only || self.broken {
            return None;
        }
        let below = self.requests[id.0].unsettled_below;
        self.pieces(from, to).find_map(|piece| {
            let first = self.band_of(stripe, piece.start).0;
            let last = self.band_of(stripe, piece.start + piece.length - 1).0;
            let mut bands = (first.max(below)..=last).map(BandKey);
            bands.find(|&band| !self.regions.is_settled(self.geometry.region(stripe), band))
        })
    }

    /// The copies of a band agree (or cannot be made to): the read goes on.
    pub(super) fn settle_done(
        &mut self,
        id: RequestId,
        band: BandKey,
        result: Result<(), BlockError>,
        out: &mut Vec<Action>,
    ) {
        let request = &mut self.requests[id.0];
        request.settling = false;
        if result.is_err() {
            request.unsettled_below = band.0 + 1;
        }
        self.part_done(id, Ok(()), out);
    }

    /// A listed block among volume bytes `from..to`.
    fn torn_between(&self, from: u64, to: u64) -> Option<crate::format::torn::TornExtent> {
        if self.torn().is_empty() {
            return None;
        }
        self.pieces(from, to).find_map(|piece| {
            let (start, end) = (piece.start, piece.start + piece.length);
            self.torn_in(piece.stripe, piece.strip.into(), start, end)
        })
    }

    /// Pieces of volume bytes `from..to`.
    fn pieces(&self, from: u64, to: u64) -> impl Iterator<Item = crate::layout::StripPiece> + '_ {
        let mut cursor = from;
        std::iter::from_fn(move || {
            if cursor >= to {
                return None;
            }
            let piece = self.geometry.piece(cursor, to - cursor);
            cursor += u64::from(piece.length);
            Some(piece)
        })
    }

    /// The strip to read a piece from directly: itself, or for mirrors the copy with the
    /// shortest queue. `None`: it must be decoded.
    fn readable_copy(&self, piece: &crate::layout::StripPiece) -> Option<u8> {
        let readable = self.readable_strips(piece);
        if self.geometry.data() > 1 {
            return (readable >> piece.strip & 1 == 1).then_some(piece.strip);
        }
        self.idlest_copy(piece.stripe, readable)
    }

    /// Strips of a piece's rows that hold what is true.
    fn readable_strips(&self, piece: &crate::layout::StripPiece) -> u64 {
        let first = self.band_of(piece.stripe, piece.start).0;
        let last = self.band_of(piece.stripe, piece.start + piece.length - 1).0;
        // A rebuild refills bands in any order: every one of them counts.
        (first..=last).fold(u64::MAX, |readable, band| {
            readable & self.strips(BandKey(band), 0).readable
        })
    }

    /// Of these copies the one with the shortest queue.
    fn idlest_copy(&self, stripe: StripeIndex, copies: u64) -> Option<u8> {
        if copies == 1 {
            return Some(0);
        }
        let (strips, phase) = (self.geometry.strips(), self.geometry.phase(stripe));
        let key = |&copy: &usize| {
            let member = self.geometry.member(stripe, copy);
            // Ties go round by stripe, so that a lone reader uses all copies.
            let turn = copy + phase;
            let turn = if turn < strips { turn } else { turn - strips };
            (self.members[member.at()].in_flight, turn)
        };
        let idlest = plan::strips_of(copies).min_by_key(key);
        idlest.map(|copy| copy as u8)
    }

    fn direct_read(
        &mut self,
        id: RequestId,
        piece: &crate::layout::StripPiece,
        from: u8,
        at: u32,
        out: &mut Vec<Action>,
    ) {
        let stripe = piece.stripe;
        let (start, end) = (piece.start, piece.start + piece.length);
        let member = self.geometry.member(stripe, from.into());
        let reader = self.reader_enter();
        let direct = self.directs.take();
        self.directs[direct] = Direct {
            request: id.0,
            stripe: stripe.0,
            strip: piece.strip,
            from,
            member: member.0,
            start,
            end,
            at,
            reader,
        };
        self.requests[id.0].parts += 1;
        let io = Io {
            token: Token::new(Class::Direct, direct, 0),
            member,
            offset: self.data_offset() + self.geometry.member_offset(stripe, start),
            length: end - start,
            kind: IoKind::Read(IoMemory::Request(id, at)),
        };
        self.member_io(io, out);
    }

    /// Writes to these rows can be acknowledged without the members that are missing now.
    fn is_replaced(&self, direct: &Direct) -> bool {
        let band = self.band_of(StripeIndex(direct.stripe), direct.start);
        let lost = !self.strips(band, 0).writable & plan::mask(self.geometry.strips());
        lost.count_ones() as usize <= self.geometry.parity()
    }

    pub(super) fn direct_done(
        &mut self,
        index: u32,
        result: Result<(), IoError>,
        out: &mut Vec<Action>,
    ) {
        let direct = std::mem::take(&mut self.directs[index]);
        self.directs.give(index);
        let member = MemberIndex(direct.member);
        self.member_io_ended(member);
        self.reader_leave(direct.reader, out);
        let id = RequestId(direct.request);
        let repair = match result {
            Ok(()) if self.members[member.at()].is_live() || !self.is_replaced(&direct) => {
                return self.part_done(id, Ok(()), out);
            }
            // The member has left since: a write that it failed in part may be acknowledged
            // without it, and what was read may be a mixture.
            Ok(()) => false,
            Err(error) => self.read_failed(member, error, out),
        };
        let stripe = StripeIndex(direct.stripe);
        // Answer from redundancy, band by band, with the strip that failed left out.
        let bytes = self.geometry.band_bytes() as u32;
        let mut start = direct.start;
        while start < direct.end {
            let end = direct.end.min((start / bytes + 1) * bytes);
            let fragment = Fragment {
                strip: direct.strip,
                start,
                end,
                memory: Memory::Request(id, direct.at + (start - direct.start)),
            };
            self.requests[id.0].parts += 1;
            self.begin_read_op(id, stripe, &[fragment], 1 << direct.from, repair, out);
            start = end;
        }
        self.part_done(id, Ok(()), out);
    }

    /// Reads the part of a stripe in which a strip is missing: bands that touch a missing strip
    /// become operations, the others are read directly.
    fn read_by_bands(
        &mut self,
        id: RequestId,
        stripe: StripeIndex,
        from: u64,
        to: u64,
        out: &mut Vec<Action>,
    ) {
        let mut fragments = std::mem::take(&mut self.fragments);
        for band in self.bands_between(stripe, from, to) {
            let key = BandKey(stripe.0 * self.geometry.bands() + band);
            self.fragments_in_band(id, key, from, to, &mut fragments);
            if !fragments.is_empty() {
                self.requests[id.0].parts += 1;
                self.begin_read_op(id, stripe, &fragments, 0, false, out);
            }
        }
        self.fragments = fragments;
    }

    /// Fragments of volume bytes `from..to` (within one stripe) in one band, into an empty list.
    fn fragments_in_band(
        &self,
        id: RequestId,
        band: BandKey,
        from: u64,
        to: u64,
        fragments: &mut Vec<Fragment>,
    ) {
        let request = &self.requests[id.0];
        let (low, high) = self.band_rows(band);
        fragments.clear();
        let mut cursor = from;
        while cursor < to {
            let piece = self.geometry.piece(cursor, to - cursor);
            let (start, end) = (piece.start.max(low), (piece.start + piece.length).min(high));
            if start < end {
                let at = cursor - request.offset + u64::from(start - piece.start);
                fragments.push(Fragment {
                    strip: piece.strip,
                    start,
                    end,
                    memory: match request.operation {
                        Some(Operation::Read | Operation::Write) => Memory::Request(id, at as u32),
                        _ => Memory::Zeroes,
                    },
                });
            }
            cursor += u64::from(piece.length);
        }
    }

    /// Bands that volume bytes `from..to` of a stripe may touch.
    fn bands_between(&self, stripe: StripeIndex, from: u64, to: u64) -> std::ops::Range<u64> {
        let first = self.geometry.piece(from, to - from);
        if u64::from(first.length) < to - from {
            return 0..self.geometry.bands();
        }
        let low = self.geometry.band(stripe, first.start);
        let high = self.geometry.band(stripe, first.start + first.length - 1);
        let before = self.geometry.band(stripe, 0);
        low - before..high - before + 1
    }

    fn cut_write(&mut self, id: RequestId, out: &mut Vec<Action>) {
        let (stripe, from, to) = self.stripe_at_cursor(id);
        self.requests[id.0].cursor = to;
        let zeroes = self.requests[id.0].operation != Some(Operation::Write);
        let region = self.geometry.region(stripe);
        if zeroes && self.regions.is_unwritten(region) {
            let region_end = (u64::from(region) + 1) * self.geometry.region_volume_bytes();
            let request = &mut self.requests[id.0];
            request.cursor = region_end.min(request.end);
            return;
        }
        let request = &self.requests[id.0];
        let (foremost, stream) = (request.foremost, request.stream);
        let how = (request.durable, stream.filter(|_| foremost));
        if let Some(stream) = stream
            && !self.regions.is_ready(region)
        {
            self.streams.not_ready(stream, region);
        }
        let mut fragments = std::mem::take(&mut self.fragments);
        for band in self.bands_between(stripe, from, to) {
            let key = BandKey(stripe.0 * self.geometry.bands() + band);
            self.fragments_in_band(id, key, from, to, &mut fragments);
            if !fragments.is_empty() {
                self.requests[id.0].parts += 1;
                self.begin_write_op(id, key, &fragments, how, out);
            }
        }
        self.fragments = fragments;
    }

    /// Whole regions become unwritten; the rest is zeroed stripe by stripe.
    fn cut_discard(&mut self, id: RequestId, out: &mut Vec<Action>) {
        let bytes = self.geometry.region_volume_bytes();
        let (cursor, end) = (self.requests[id.0].cursor, self.requests[id.0].end);
        if cursor.is_multiple_of(bytes) && cursor + bytes <= end {
            self.requests[id.0].cursor = cursor + bytes;
            let region = (cursor / bytes) as u32;
            if !self.regions.is_unwritten(region) || self.regions.is_active(region) {
                self.requests[id.0].parts += 1;
                self.region_discard(region, id, out);
            }
        } else {
            self.cut_write(id, out);
        }
    }

    fn flush_begin(&mut self, id: RequestId, out: &mut Vec<Action>) {
        if self.read_only {
            return self.request_ended(id, out);
        }
        self.requests[id.0].flush_mark = self.log_flush_mark();
        self.requests[id.0].parts = self.flush(Class::Flush, id.0, |_| true, out);
        if self.requests[id.0].parts == 0 {
            self.requests[id.0].error = Some(BlockError::Unavailable);
            self.request_ended(id, out);
        }
    }

    pub(super) fn flush_done(
        &mut self,
        token: Token,
        result: Result<(), IoError>,
        out: &mut Vec<Action>,
    ) {
        let member = MemberIndex(token.part() as u16);
        self.member_io_ended(member);
        let ok = result.is_ok() || self.write_failed(member, out);
        let request = &self.requests[token.index()];
        if ok && request.parts == 1 && request.error.is_none() {
            let mark = request.flush_mark;
            self.log_flushed(mark, out);
        }
        self.part_done(
            RequestId(token.index()),
            if ok {
                Ok(())
            } else {
                Err(BlockError::Unavailable)
            },
            out,
        );
    }
}
