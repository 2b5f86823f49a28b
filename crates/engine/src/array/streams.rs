//! Writers that go forward through the volume: what they write next is prepared, and parts of
//! stripes that their requests leave wait a little for the rest.
//!
//! A request that ends inside a stripe writes a part of it, and so does the next one, from there
//! on: each would read what it needs for parity, though together they write the whole stripe. So
//! the first part *gathers*: it holds its band and waits, for less than the reading would take,
//! until the stripe is whole, somebody else wants the band, or nothing else of the stream is under
//! way. Nobody waits for a lone writer's next request: it comes after the answer.

use super::*;

#[cfg(test)]
mod tests;

/// Streams followed at a time.
const STREAMS: usize = 8;
/// A request continues a stream if it begins this near to where the last one ended: several are
/// under way, and they need not come in order.
const NEAR_BYTES: u64 = 2 << 20;
/// Requests after which a stream is believed.
const BELIEVED: u32 = 3;
/// Requests of others after which a believed stream's place may be taken.
const FORGOTTEN: u64 = 1024;
/// What reading for parity is taken to last before it was measured.
const READ_NS_FIRST: u64 = 100_000;
/// Nothing waits longer.
const HOLD_NS_MAX: u64 = 20_000_000;
/// A stream that has nothing else under way gets so long to send more.
const CLIENT_NS: u64 = 100_000;
/// What a stream is trusted with at first, and at most: each stripe that became whole adds one,
/// each that did not costs two.
const CREDIT: i8 = 4;
const CREDIT_MAX: i8 = 8;
/// Requests after which a stream that has lost its credit gets a new one.
const RETRY: u32 = 64;

/// Which stream a request belongs to: a place in the table, and what was there then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamId {
    at: u8,
    began: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// Its first request, in requests of all streams.
    began: u64,
    /// Its last one.
    used: u64,
    requests: u32,
    /// Of these, under way.
    under_way: u32,
    /// Where the next one is expected.
    next: u64,
    /// Bytes by which it has gone forward.
    bytes: u64,
    credit: i8,
    /// Number of the request at which it lost its credit.
    refused: u32,
    /// Regions below are ready, or about to be.
    ready_below: u32,
}

/// A write that waits for its stripe to become whole.
struct Gather {
    op: OpId,
    band: BandKey,
    stream: StreamId,
    until_ns: u64,
}

/// The writers that are followed, and what is held for them.
#[derive(Default)]
pub(super) struct Streams {
    table: [Stream; STREAMS],
    requests: u64,
    /// Few: a stripe or two of each stream.
    gathers: Vec<Gather>,
    /// How long reading for parity takes, smoothed; 0: not measured.
    read_ns: u64,
}

impl Stream {
    fn is_believed(&self) -> bool {
        self.requests > BELIEVED
    }

    fn is_near(&self, offset: u64) -> bool {
        self.requests > 0 && self.next.abs_diff(offset) <= NEAR_BYTES
    }
}

impl Streams {
    /// A write request begins: the stream that it belongs to.
    pub(super) fn note(&mut self, offset: u64, end: u64) -> StreamId {
        self.requests += 1;
        let near = self.table.iter().position(|stream| stream.is_near(offset));
        let at = near.unwrap_or_else(|| self.begin(end));
        let stream = &mut self.table[at];
        stream.under_way += 1;
        stream.requests = stream.requests.saturating_add(1);
        stream.used = self.requests;
        stream.bytes += end.saturating_sub(stream.next);
        stream.next = stream.next.max(end);
        if stream.credit <= 0 && stream.requests - stream.refused > RETRY {
            stream.credit = CREDIT / 2;
        }
        StreamId {
            at: at as u8,
            began: stream.began,
        }
    }

    /// A place for a stream that may begin. Single requests take each other's places, not those of
    /// streams at work.
    fn begin(&mut self, end: u64) -> usize {
        let now = self.requests;
        let key = |(_, stream): &(usize, &Stream)| {
            let at_work = stream.is_believed() && now - stream.used < FORGOTTEN;
            (at_work, stream.used)
        };
        let streams = self.table.iter().enumerate();
        let (at, _) = streams.min_by_key(key).expect("there are streams");
        self.table[at] = Stream {
            began: now,
            next: end,
            credit: CREDIT,
            ..Stream::default()
        };
        at
    }

    /// `None`: another has its place now.
    fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        let stream = &mut self.table[usize::from(id.at)];
        (stream.began == id.began).then_some(stream)
    }

    /// Whether a request that ends here is the foremost of a stream: what comes next begins there.
    pub(super) fn is_foremost(&mut self, id: StreamId, end: u64) -> bool {
        let stream = self.stream(id);
        stream.is_some_and(|stream| stream.is_believed() && stream.next == end)
    }

    /// It has come to a region that is not ready (any more): nothing from there on is.
    pub(super) fn not_ready(&mut self, id: StreamId, region: u32) {
        if let Some(stream) = self.stream(id) {
            stream.ready_below = stream.ready_below.min(region);
        }
    }

    /// The stripe that was gathered has become whole, or has not.
    fn gathered(&mut self, id: StreamId, whole: bool) {
        let Some(stream) = self.stream(id) else {
            return;
        };
        if whole {
            stream.credit = (stream.credit + 1).min(CREDIT_MAX);
        } else {
            stream.credit = (stream.credit - 2).max(0);
            stream.refused = stream.requests;
        }
    }

    /// Reading for parity has taken so long.
    pub(super) fn read_took(&mut self, ns: u64) {
        let ns = ns.clamp(1, HOLD_NS_MAX);
        self.read_ns = match self.read_ns {
            0 => ns,
            before => (7 * before + ns).div_ceil(8),
        };
    }

    fn hold_ns(&self) -> u64 {
        match self.read_ns {
            0 => READ_NS_FIRST,
            measured => measured,
        }
    }

    /// When the next of what is held is to go on.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.gathers.iter().map(|gather| gather.until_ns).min()
    }
}

impl Array {
    /// What the stream writes next is made ready.
    pub(super) fn stream_ready(&mut self, id: StreamId, out: &mut Vec<Action>) {
        let bytes = self.geometry.region_volume_bytes();
        let most = self.regions_ahead_most();
        let Some(stream) = self.streams.stream(id).filter(|s| s.is_believed()) else {
            return;
        };
        // As far ahead as it has come.
        let ahead = (stream.bytes / bytes).min(u64::from(most)) as u32;
        let here = (stream.next.saturating_sub(1) / bytes) as u32;
        let (ready_below, to) = (stream.ready_below, here + ahead + 1);
        // In steps of half of it, so that few changes of the map make all ready.
        if ahead == 0 || here + ahead.div_ceil(2) < ready_below {
            return;
        }
        if self.regions_ahead(ready_below.max(here + 1)..to, out)
            && let Some(stream) = self.streams.stream(id)
        {
            stream.ready_below = to;
        }
    }

    /// True: the operation, which holds its band alone, waits for the rest of its stripe.
    pub(super) fn gather_begin(&mut self, op: OpId) -> bool {
        let Some(stream) = self.ops[op.0].stream else {
            return false;
        };
        let band = BandKey(self.ops[op.0].band);
        let end = (self.stripe_of(band).0 + 1) * self.geometry.stripe_data_bytes();
        let promising = self.streams.stream(stream).is_some_and(|stream| {
            // Of a lone request the next comes after its answer; and only what is ahead of the
            // stream is still to come.
            stream.under_way > 1 && stream.credit > 0 && stream.next < end
        });
        let pointless = self.mode != Mode::Running
            || self.broken
            || !self.op_has_beginning(op)
            || self.locks.is_waited_for(band)
            || self.op_is_whole(op);
        if !promising || pointless {
            return false;
        }
        let until_ns = self.now_ns + self.streams.hold_ns();
        self.ops[op.0].phase = ops::Phase::Gather;
        self.streams.gathers.push(Gather {
            op,
            band,
            stream,
            until_ns,
        });
        true
    }

    /// Somebody waits for this band: a write joins what is gathered there, which goes on if it is
    /// whole now or if anything still waits.
    pub(super) fn gather_met(&mut self, band: BandKey, out: &mut Vec<Action>) {
        let mut gathers = self.streams.gathers.iter();
        let Some(at) = gathers.position(|gather| gather.band == band) else {
            return;
        };
        let op = self.streams.gathers[at].op;
        self.op_join(op);
        if self.op_is_whole(op) || self.locks.is_waited_for(band) {
            self.gather_end(at, out);
        }
    }

    fn gather_end(&mut self, at: usize, out: &mut Vec<Action>) {
        let Gather { op, stream, .. } = self.streams.gathers.swap_remove(at);
        let whole = self.op_is_whole(op);
        if whole {
            self.counters.gathered += 1;
            self.counters.gathered_bytes += self.ops[op.0].alone_bytes;
        }
        self.streams.gathered(stream, whole);
        self.op_enter_region(op, out);
    }

    /// What has waited long enough goes on as it is.
    pub(super) fn gathers_step(&mut self, out: &mut Vec<Action>) {
        let now = self.now_ns;
        let due = |gather: &Gather| gather.until_ns <= now;
        while let Some(at) = self.streams.gathers.iter().position(due) {
            self.gather_end(at, out);
        }
    }

    /// Nothing is held any more.
    pub(super) fn gathers_end(&mut self, out: &mut Vec<Action>) {
        while !self.streams.gathers.is_empty() {
            self.gather_end(0, out);
        }
    }

    /// A request of this stream was answered: if all that is left of it is held, it may have no
    /// more.
    pub(super) fn stream_answered(&mut self, id: StreamId) {
        let Some(stream) = self.streams.stream(id) else {
            return;
        };
        stream.under_way -= 1;
        let under_way = stream.under_way as usize;
        let gathers = self.streams.gathers.iter();
        let ours = gathers.filter(|gather| gather.stream == id);
        let mut held = [None; 4];
        let mut count = 0;
        for &request in ours.flat_map(|gather| self.ops[gather.op.0].requests()) {
            if held.contains(&Some(request)) {
                continue;
            }
            if count == held.len() || count == under_way {
                return;
            }
            held[count] = Some(request);
            count += 1;
        }
        if count < under_way {
            return;
        }
        let soon = self.now_ns + CLIENT_NS;
        for gather in &mut self.streams.gathers {
            if gather.stream == id {
                gather.until_ns = gather.until_ns.min(soon);
            }
        }
    }
}
