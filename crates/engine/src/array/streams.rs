//! Writers that go forward through the volume: what they write next is prepared, and parts of
//! stripes that their requests leave wait a little for the rest.
//!
//! A request that ends inside a stripe writes a part of it, and so does the next one, from there
//! on: each would read what it needs for parity, though together they write the whole stripe. So
//! the first part *gathers*: it holds its band and waits, for less than the reading would take,
//! until the stripe is whole, somebody else wants the band, or the client has nothing else under
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
/// What reading for parity is taken to last before it was measured.
const READ_NS_FIRST: u64 = 100_000;
/// Nothing waits longer.
const HOLD_NS_MAX: u64 = 20_000_000;
/// A client that has nothing else under way gets so long to send more.
const CLIENT_NS: u64 = 100_000;
/// What a stream is trusted with at first, and at most: each stripe that became whole adds one,
/// each that did not costs two.
const CREDIT: i8 = 4;
const CREDIT_MAX: i8 = 8;
/// Requests after which a stream that has lost its credit gets a new one.
const RETRY: u32 = 64;
/// Regions made ready ahead of a stream at most, and bytes of each member.
const AHEAD_REGIONS: u64 = 15;
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// Which stream a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamId(u8);

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// Where the next request is expected.
    next: u64,
    requests: u32,
    /// Bytes by which it has gone forward.
    bytes: u64,
    /// Of the last request, in requests of all streams.
    used: u64,
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

impl Streams {
    /// A write request. The stream that it belongs to, once that is believed.
    fn note(&mut self, offset: u64, end: u64) -> Option<StreamId> {
        self.requests += 1;
        let near =
            |stream: &Stream| stream.requests > 0 && stream.next.abs_diff(offset) <= NEAR_BYTES;
        let Some(at) = self.table.iter().position(near) else {
            let streams = self.table.iter_mut();
            let oldest = streams.min_by_key(|stream| stream.used);
            *oldest.expect("there are streams") = Stream {
                next: end,
                requests: 1,
                used: self.requests,
                credit: CREDIT,
                ..Stream::default()
            };
            return None;
        };
        let stream = &mut self.table[at];
        stream.requests = stream.requests.saturating_add(1);
        stream.used = self.requests;
        stream.bytes += end.saturating_sub(stream.next);
        stream.next = stream.next.max(end);
        if stream.credit <= 0 && stream.requests - stream.refused > RETRY {
            stream.credit = CREDIT / 2;
        }
        (stream.requests > BELIEVED).then_some(StreamId(at as u8))
    }

    fn stream(&mut self, id: StreamId) -> &mut Stream {
        &mut self.table[usize::from(id.0)]
    }

    /// The stripe that was gathered has become whole, or has not.
    fn gathered(&mut self, id: StreamId, whole: bool) {
        let stream = self.stream(id);
        if whole {
            stream.credit = (stream.credit + 1).min(CREDIT_MAX);
        } else {
            stream.credit = (stream.credit - 2).max(0);
            stream.refused = stream.requests;
        }
    }

    /// Reading for parity has taken so long.
    pub(super) fn read_took(&mut self, ns: u64) {
        let ns = ns.min(HOLD_NS_MAX);
        self.read_ns = match self.read_ns {
            0 => ns.max(1),
            before => (7 * before + ns) / 8,
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
    /// A write request has come: what its stream writes next is made ready. The stream, if this is
    /// the foremost of it: what comes next begins where it ends.
    pub(super) fn stream_note(
        &mut self,
        offset: u64,
        end: u64,
        out: &mut Vec<Action>,
    ) -> Option<StreamId> {
        let id = self.streams.note(offset, end)?;
        let bytes = self.geometry.region_volume_bytes();
        let most = AHEAD_REGIONS.min(AHEAD_BYTES_MAX / self.geometry.region_bytes());
        let stream = self.streams.stream(id);
        // The further it has gone, the further it will go.
        let ahead = (stream.bytes / bytes).min(most) as u32;
        let here = (stream.next.saturating_sub(1) / bytes) as u32;
        // In steps of half of it, so that few changes of the map make all ready.
        if ahead > 0 && here + ahead.div_ceil(2) >= stream.ready_below {
            let from = stream.ready_below.max(here + 1);
            stream.ready_below = here + ahead + 1;
            self.regions_ahead(from..here + ahead + 1, out);
        }
        (self.streams.stream(id).next == end).then_some(id)
    }

    /// True: the operation, which holds its band alone, waits for the rest of its stripe.
    pub(super) fn gather_begin(&mut self, op: OpId) -> bool {
        let Some(stream) = self.ops[op.0].stream else {
            return false;
        };
        let band = BandKey(self.ops[op.0].band);
        // Of a client's only request the next comes after its answer.
        let lone = self.requests.used() < 2;
        let pointless = lone || self.mode != Mode::Running || self.broken;
        // Only what is ahead of the stream is still to come.
        let stripe = self.stripe_of(band);
        let end = (stripe.0 + 1) * self.geometry.stripe_data_bytes();
        let to_come = self.streams.stream(stream).next < end && self.op_has_beginning(op);
        if pointless
            || !to_come
            || self.streams.stream(stream).credit <= 0
            || self.locks.is_waited_for(band)
            || self.op_is_whole(op)
        {
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

    /// A request was answered: if all that is left under way is held, the client may have no more.
    pub(super) fn gathers_look(&mut self) {
        if self.streams.gathers.is_empty() {
            return;
        }
        let gathers = self.streams.gathers.iter();
        let held: usize = gathers.map(|gather| self.ops[gather.op.0].requests()).sum();
        if self.requests.used() <= held {
            let soon = self.now_ns + CLIENT_NS;
            for gather in &mut self.streams.gathers {
                gather.until_ns = gather.until_ns.min(soon);
            }
        }
    }
}
