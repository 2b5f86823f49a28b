//! The start after a crash: the log is read, and the rows it speaks of are made whole.
//!
//! ```text
//! read every ring ([`scan`]) → judge what logs with gaps hide → newest entry of each row
//!   → read what it wrote → resolve ([`row`]) → torn blocks listed durably → parities (and lost data) written
//!   → flush → epoch raised
//! ```
//!
//! The superblocks are saved before it, naming the log that is replayed: members that are missing
//! must not come back into a row that was made whole without them. They are saved without that name
//! after it, so a crash on the way is another replay, and nothing is served before the end. Which
//! members can be believed is what the superblock says today: a member is refilled only where no
//! entry of before is in force, so today's progress never meets an older entry that matters.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::format::log::record::Entry;
use crate::format::superblock::MemberState;
use crate::format::torn::{TornExtent, TornKind};
use row::{Known, Row};
use scan::Scans;

mod row;
mod scan;
#[cfg(test)]
mod tests;

/// Rows being made whole at a time.
const SEGMENTS_MAX: usize = 64;
/// Index of the tokens of the flush at the end; others name a read or a segment.
const FLUSH: u32 = 0xff_ffff;

/// An entry with what its carriers say.
pub(super) struct Found {
    entry: Entry,
    /// Payloads by member.
    payloads: Vec<(u16, Vec<u8>)>,
}

/// What a segment's I/O is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Read,
    /// Until the torn list is durable.
    List,
    Write,
}

/// Rows of one stripe with the same entries in force.
#[derive(Default)]
struct Segment {
    stripe: u64,
    start: u32,
    end: u32,
    /// Entries that wrote there, newest first.
    entries: Vec<u64>,
    stage: Stage,
    outstanding: u32,
    /// Something could not be read: block by block, perhaps most of it can.
    split: bool,
    strips: Vec<Known>,
    writes: Vec<(usize, Vec<u8>)>,
}

/// The replay under way.
pub(super) struct Replayer {
    from: Replay,
    scans: Scans,
    /// Every ring has been read.
    scanned: bool,
    /// Members whose log cannot be read everywhere are to show that they can be written: by this save.
    proof: Option<u64>,
    /// It is known whether logs hide anything.
    judged: bool,
    /// Entries below are retired, as some record says.
    retired: u64,
    found: BTreeMap<u64, Found>,
    unreadable: Vec<MemberIndex>,
    /// By place: the ring of this member, in sync when it was read, was read everywhere. What it says
    /// stays known when the member leaves.
    vouches: Vec<bool>,
    todo: Vec<Segment>,
    segments: Slots<Segment>,
    listing: Vec<u32>,
    /// Segments that wait until members that left are recorded as gone.
    waiting: Vec<u32>,
    flushing: u32,
    flushed: bool,
    regions_left: bool,
    stepping: bool,
}

impl std::fmt::Debug for Replayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replayer")
            .field("scanned", &self.scanned)
            .field("todo", &self.todo.len())
            .field("segments", &self.segments.used())
            .field("listing", &self.listing)
            .field("flushing", &self.flushing)
            .field("regions_left", &self.regions_left)
            .finish_non_exhaustive()
    }
}

impl Array {
    /// A replay is under way, or about to be.
    pub(super) fn replays(&self) -> bool {
        self.replayer.is_some() || self.replay_next.is_some()
    }

    pub(super) fn replay_begin(&mut self, from: Replay, out: &mut Vec<Action>) {
        let members = self.live_members().collect();
        self.replayer = Some(Box::new(Replayer {
            from,
            scans: Scans::begin(members, self.memory_total as usize),
            scanned: false,
            proof: None,
            judged: false,
            retired: 0,
            found: BTreeMap::new(),
            unreadable: Vec::new(),
            vouches: vec![false; self.members.len()],
            todo: Vec::new(),
            segments: Slots::default(),
            listing: Vec::new(),
            waiting: Vec::new(),
            flushing: 0,
            flushed: false,
            regions_left: false,
            stepping: false,
        }));
        self.scan_step(out);
    }

    /// A save of the start is durable, or may go on as if.
    pub(super) fn replay_recorded(&mut self, out: &mut Vec<Action>) {
        if let Some(from) = self.replay_next.take() {
            return self.replay_begin(from, out);
        }
        let saved = self.meta.saved();
        if let Some(replayer) = &self.replayer
            && !replayer.judged
            && replayer.proof.is_some_and(|proof| proof <= saved)
        {
            return self.replay_judge(out);
        }
        if !self.broken && self.meta_absence_unrecorded() {
            return;
        }
        if let Some(replayer) = &mut self.replayer {
            for id in std::mem::take(&mut replayer.waiting) {
                self.segment_read(id, out);
            }
        }
    }

    fn replayer(&mut self) -> &mut Replayer {
        self.replayer.as_mut().expect("a replay is under way")
    }

    pub(super) fn replay_io_done(
        &mut self,
        token: Token,
        result: Result<(), IoError>,
        bytes: &[u8],
        out: &mut Vec<Action>,
    ) {
        if token.index() == FLUSH {
            let member = MemberIndex(token.part() as u16);
            self.member_io_ended(member);
            self.broken |= result.is_err() && !self.write_failed(member, out);
            self.replayer().flushing -= 1;
            return self.replay_step(out);
        }
        if !self.replayer().scanned {
            self.scan_io_done(token, result, bytes, out);
        } else {
            self.segment_io_done(token, result, bytes, out);
        }
    }

    /// All rings are read: which rows are concerned, and what of the logs could not be read?
    fn replay_rows(&mut self, out: &mut Vec<Action>) {
        let replayer = self.replayer.as_mut().expect("a replay is under way");
        replayer.scanned = true;
        let retired = replayer.retired;
        replayer
            .found
            .retain(|_, found| found.entry.head.sequence >= retired);
        let strips = self.geometry.strips();
        let stripes = self.geometry.stripes();
        let strip_bytes = self.geometry.strip_bytes();
        // What contradicts the geometry was not written by this array.
        replayer.found.retain(|_, found| {
            let head = &found.entry.head;
            head.stripe < stripes
                && u64::from(head.end) <= strip_bytes
                && (head.written | head.live | head.carriers) & !plan::mask(strips) == 0
        });
        // In a clean region every write is durable on every member, whatever no record has said yet.
        replayer.found.retain(|_, found| {
            let region = self.geometry.region(StripeIndex(found.entry.head.stripe));
            self.regions.may_be_written(region)
        });
        replayer.todo = segments(&replayer.found, strips);
        let (mut replayed, mut voided) = (0, 0);
        for found in replayer.found.values() {
            let stripe = StripeIndex(found.entry.head.stripe);
            let lacks = plan::strips_of(found.entry.head.carriers).any(|strip| {
                let member = self.geometry.member(stripe, strip);
                let it = &self.members[member.at()];
                it.is_live() && !found.payloads.iter().any(|(m, _)| *m == member.0)
            });
            voided += u64::from(lacks);
            replayed += 1;
        }
        self.replayed.replayed_entries = replayed;
        self.replayed.voided_entries = voided;
        self.replay_judge(out);
    }

    /// Is something hidden by logs that cannot be read everywhere?
    fn replay_judge(&mut self, out: &mut Vec<Action>) {
        let mut hidden = self.replay_hidden_groups();
        if planted::on(Planted::UnreadableTakenForTorn) {
            hidden.clear();
        }
        if !hidden.is_empty() && self.replayer().proof.is_none() {
            // Who cannot be written either is lost, with its log; the others say what counts.
            self.replayer().proof = Some(self.meta.wanted() + 1);
            return self.meta_save(out);
        }
        self.replayed.unreadable = !self.replayer().unreadable.is_empty();
        self.replayer().judged = true;
        if !hidden.is_empty() {
            self.replay_doubt_regions(&hidden);
        }
        self.replay_step(out);
    }

    /// Groups in which there may be entries that no log says any more: of stripes of which a live
    /// parity member's log is unreadable in part, and none says everything. (Each of them carries
    /// every entry; one that is being refilled carries those of some bands.)
    fn replay_hidden_groups(&mut self) -> BTreeSet<u16> {
        let replayer = self.replayer.as_mut().expect("a replay is under way");
        // One that has left took with it what its log said: it is lost, not unreadable.
        let members = &self.members;
        replayer
            .unreadable
            .retain(|member| members[member.at()].is_live());
        let unreadable = &self.replayer.as_ref().expect("replays").unreadable;
        if unreadable.is_empty() {
            return BTreeSet::new();
        }
        let period = self.geometry.strips() as u64 * u64::from(self.geometry.shape().groups);
        let hides = |stripe: StripeIndex| {
            let mut parities = self.geometry.data()..self.geometry.strips();
            parities.any(|strip| unreadable.contains(&self.geometry.member(stripe, strip)))
                && !self.replay_vouched(stripe)
        };
        (0..period.min(self.geometry.stripes()))
            .map(StripeIndex)
            .filter(|&stripe| hides(stripe))
            .map(|stripe| self.geometry.group_of(self.geometry.member(stripe, 0)))
            .collect()
    }

    /// Some parity member's log says everything that was logged of a stripe.
    fn replay_vouched(&self, stripe: StripeIndex) -> bool {
        let vouches = &self.replayer.as_ref().expect("replays").vouches;
        let mut parities = self.geometry.data()..self.geometry.strips();
        parities.any(|strip| vouches[self.geometry.member(stripe, strip).at()])
    }

    /// Part of a log cannot be read: what it said of the dirty regions is unknown. They are
    /// resynced; where data may be missing in a row that nobody knows of, it is suspect.
    ///
    /// Of a stripe with hidden entries no parity member vouches: each is missing, being refilled or
    /// unreadable. If a group has no more such members than parities, these are all of them, and the
    /// data of its hidden stripes is there. What its missing members hold of other stripes is
    /// replayed: some log says all of those.
    fn replay_doubt_regions(&mut self, hidden: &BTreeSet<u16>) {
        self.replayer().regions_left = !self.regions.doubt_dirty().is_empty();
        // Also those that needed one before: they were written to all the same.
        let doubtful = self.regions.all_needing_sync();
        if doubtful.is_empty() {
            return;
        }
        if self.geometry.data() == 1 {
            return; // a copy is whole by itself
        }
        for &group in hidden {
            let unreadable = &self.replayer.as_ref().expect("replays").unreadable;
            let vouches =
                |member: &MemberIndex| self.holds_data(*member) && !unreadable.contains(member);
            let others = self.group_members(group).filter(|member| !vouches(member));
            if others.count() <= self.geometry.parity() {
                continue;
            }
            let missing: Vec<MemberIndex> = self
                .group_members(group)
                .filter(|&member| !self.holds_data(member))
                .collect();
            for member in missing {
                for &region in &doubtful {
                    self.replayed.torn_blocks += self.torn_list_region(member.0, region);
                }
            }
        }
        self.accept_doubtful();
    }

    /// What it should hold it does, as far as its drive can be read.
    fn holds_data(&self, member: MemberIndex) -> bool {
        let it = &self.members[member.at()];
        it.state == MemberState::Active && it.attached
    }

    /// Goes on with rows as far as may be under way, then ends.
    fn replay_step(&mut self, out: &mut Vec<Action>) {
        let replayer = self.replayer();
        if !replayer.judged || std::mem::replace(&mut replayer.stepping, true) {
            return;
        }
        while self.replayer().segments.used() < SEGMENTS_MAX
            && let Some(segment) = self.replayer().todo.pop()
        {
            let id = self.replayer().segments.take();
            self.replayer().segments[id] = segment;
            self.segment_read(id, out);
        }
        self.replayer().stepping = false;
        let replayer = self.replayer();
        if replayer.segments.used() > 0 || !replayer.todo.is_empty() || replayer.flushing > 0 {
            return;
        }
        if !std::mem::replace(&mut replayer.flushed, true) {
            // Also what no entry speaks of: what is read from now on stays.
            replayer.found.clear();
            let left = self.flush(Class::Replay, FLUSH, |member| member.volatile, out);
            self.replayer().flushing = left;
            if left > 0 {
                return;
            }
        }
        if std::mem::take(&mut self.replayer().regions_left) {
            // Durably in need of a resync before the epoch says that no log speaks of them.
            self.region_job_start(out);
        }
        if self.replayer.is_some() && !self.regions.is_changing() {
            self.replay_end(out);
        }
    }

    /// A job of the region map has ended.
    pub(super) fn replay_job_done(&mut self, out: &mut Vec<Action>) {
        if self.replayer.is_some() && !self.regions.is_changing() {
            self.replay_step(out);
        }
    }

    fn replay_end(&mut self, out: &mut Vec<Action>) {
        self.replayer = None;
        self.meta.set_replay(None);
        self.replayed.replay_ns = self.now_ns.saturating_sub(self.began_ns);
        out.push(Action::event(Event::Replayed(self.log_report())));
        if self.broken {
            // The log must go on saying what it says: this start ends here.
            self.mode = Mode::Stopped;
            self.refuse_early(out);
            self.begin_early_commands(out);
            self.meta_refuse_commands(out);
            return self.stop_given_up(out);
        }
        self.started(out);
    }

    /// Reads what the segment's next decision needs; decides when nothing more is needed.
    fn segment_read(&mut self, id: u32, out: &mut Vec<Action>) {
        let segment = &self.replayer.as_ref().expect("replays").segments[id];
        let stripe = StripeIndex(segment.stripe);
        let (start, end) = (segment.start, segment.end);
        let wanted = self.segment_row(segment).wants();
        if wanted == 0 && self.meta_absence_unrecorded() && !self.broken {
            // Else that member comes back, if this start is cut off, into a row made without it.
            self.replayer().waiting.push(id);
            return;
        }
        if wanted == 0 {
            return self.segment_resolve(id, out);
        }
        let segment = &mut self.replayer().segments[id];
        segment.stage = Stage::Read;
        segment.outstanding = wanted.count_ones();
        for strip in plan::strips_of(wanted) {
            self.segment_io(id, stripe, strip, (start, end), IoKind::ReadMeta, out);
        }
    }

    fn segment_io(
        &mut self,
        id: u32,
        stripe: StripeIndex,
        strip: usize,
        (start, end): (u32, u32),
        kind: IoKind,
        out: &mut Vec<Action>,
    ) {
        let member = self.geometry.member(stripe, strip);
        let io = Io {
            token: Token::new(Class::Replay, id, strip as u32),
            member,
            offset: self.data_offset() + self.geometry.member_offset(stripe, start),
            length: end - start,
            kind,
        };
        self.member_io(io, out);
    }

    /// What is known of a segment's row now.
    fn segment_row<'a>(&'a self, segment: &'a Segment) -> Row<'a> {
        let replayer = self.replayer.as_ref().expect("a replay is under way");
        let stripe = StripeIndex(segment.stripe);
        let band = self.band_of(stripe, segment.start);
        let (mut in_sync, mut attached, mut listed, mut unreadable) = (0, 0, 0, 0);
        for strip in 0..self.geometry.strips() {
            let member = self.geometry.member(stripe, strip);
            in_sync |= u64::from(self.in_sync(member, band)) << strip;
            attached |= u64::from(self.members[member.at()].is_live()) << strip;
            let torn = self.torn_in(stripe, strip, segment.start, segment.end);
            listed |= u64::from(torn.is_some()) << strip;
            unreadable |= u64::from(replayer.unreadable.contains(&member)) << strip;
        }
        let entries = segment
            .entries
            .iter()
            .map(|sequence| &replayer.found[sequence]);
        Row {
            code: &self.code,
            block_bytes: self.geometry.shape().block_size_bytes as usize,
            start: segment.start,
            end: segment.end,
            entries: entries.collect(),
            parity_members: (self.geometry.data()..self.geometry.strips())
                .map(|strip| self.geometry.member(stripe, strip).0)
                .collect(),
            in_sync,
            attached,
            listed,
            unreadable_logs: unreadable,
            vouched: self.replay_vouched(stripe),
            strips: &segment.strips,
        }
    }

    fn segment_io_done(
        &mut self,
        token: Token,
        result: Result<(), IoError>,
        bytes: &[u8],
        out: &mut Vec<Action>,
    ) {
        let (id, strip) = (token.index(), token.part() as usize);
        let segment = &mut self.replayer().segments[id];
        segment.outstanding -= 1;
        let (left, stage) = (segment.outstanding, segment.stage);
        let stripe = StripeIndex(segment.stripe);
        let member = self.geometry.member(stripe, strip);
        self.member_io_ended(member);
        match (stage, result) {
            (Stage::Read, Ok(())) => {
                self.replayer().segments[id].strips[strip] = Known::Content(bytes.to_vec());
            }
            (Stage::Read, Err(error)) => {
                let block = self.geometry.shape().block_size_bytes;
                let segment = &mut self.replayer().segments[id];
                segment.strips[strip] = Known::Unreadable;
                segment.split |= segment.end - segment.start > block;
                if error == IoError::Gone {
                    self.read_failed(member, error, out);
                }
            }
            (_, Ok(())) => {}
            (_, Err(_)) => self.broken |= !self.write_failed(member, out),
        }
        if left > 0 {
            return;
        }
        match stage {
            Stage::Read if self.replayer().segments[id].split => self.segment_split(id, out),
            Stage::Read => self.segment_read(id, out),
            Stage::List => unreachable!("nothing is read or written while the list is saved"),
            Stage::Write => self.segment_done(id, out),
        }
    }

    /// Begins anew with each block by itself.
    fn segment_split(&mut self, id: u32, out: &mut Vec<Action>) {
        let block = self.geometry.shape().block_size_bytes;
        let replayer = self.replayer();
        let whole = std::mem::take(&mut replayer.segments[id]);
        let blocks = (whole.start..whole.end).step_by(block as usize);
        replayer.todo.extend(blocks.map(|start| Segment {
            stripe: whole.stripe,
            start,
            end: start + block,
            entries: whole.entries.clone(),
            strips: whole.strips.iter().map(|_| Known::Unread).collect(),
            ..Segment::default()
        }));
        self.segment_done(id, out);
    }

    fn segment_resolve(&mut self, id: u32, out: &mut Vec<Action>) {
        let segment = &self.replayer.as_ref().expect("replays").segments[id];
        let stripe = StripeIndex(segment.stripe);
        let start = segment.start;
        let resolved = self.segment_row(segment).resolve();
        let mut changed = false;
        for (strip, from, to) in resolved.torn {
            let extent = TornExtent {
                member: self.geometry.member(stripe, strip).0,
                kind: TornKind::Torn,
                offset: self.geometry.member_offset(stripe, start + from),
                length: u64::from(to - from),
            };
            self.replayed.torn_blocks += 1;
            changed |= self.torn.insert(extent);
        }
        self.replayer().segments[id].writes = resolved.writes;
        let wait = (changed || !self.torn.is_quiet()) && !planted::on(Planted::TornListAfterParity);
        if wait && (self.torn.is_dirty() || !self.torn.is_quiet()) {
            self.replayer().segments[id].stage = Stage::List;
            self.replayer().listing.push(id);
            if changed {
                self.torn_save(torn::SaveFor::Replay, out);
            }
        } else {
            self.segment_write(id, out);
        }
    }

    /// The torn list is durable.
    pub(super) fn replay_torn_saved(&mut self, out: &mut Vec<Action>) {
        if self.torn.is_dirty() || !self.torn.is_quiet() {
            return; // one more save is to come, and those listed since wait for it
        }
        let Some(replayer) = &mut self.replayer else {
            return; // several asked for this save
        };
        for id in std::mem::take(&mut replayer.listing) {
            self.segment_write(id, out);
        }
    }

    fn segment_write(&mut self, id: u32, out: &mut Vec<Action>) {
        let segment = &mut self.replayer().segments[id];
        segment.stage = Stage::Write;
        let mut writes = std::mem::take(&mut segment.writes);
        let (stripe, rows) = (StripeIndex(segment.stripe), (segment.start, segment.end));
        // Decided before the list was saved: a member may have left since.
        writes.retain(|(strip, _)| {
            let member = self.geometry.member(stripe, *strip);
            self.members[member.at()].is_live()
        });
        let segment = &mut self.replayer().segments[id];
        segment.outstanding = writes.len() as u32;
        let none = writes.is_empty() || self.broken;
        if none {
            return self.segment_done(id, out);
        }
        for (strip, bytes) in writes {
            self.segment_io(
                id,
                stripe,
                strip,
                rows,
                IoKind::WriteMeta(bytes.into()),
                out,
            );
        }
    }

    fn segment_done(&mut self, id: u32, out: &mut Vec<Action>) {
        self.replayer().segments[id] = Segment::default();
        self.replayer().segments.give(id);
        self.replay_step(out);
    }
}

/// Rows of each stripe cut where the set of entries changes, those with the fewest last.
fn segments(found: &BTreeMap<u64, Found>, strips: usize) -> Vec<Segment> {
    let mut stripes: BTreeMap<u64, Vec<(u64, &Entry)>> = BTreeMap::new();
    for (&order, found) in found.iter().rev() {
        let entries = stripes.entry(found.entry.head.stripe).or_default();
        entries.push((order, &found.entry));
    }
    let mut segments = Vec::new();
    for (stripe, entries) in stripes {
        let mut cuts: Vec<u32> = entries
            .iter()
            .flat_map(|(_, entry)| [entry.head.start, entry.head.end])
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        for rows in cuts.windows(2) {
            let (start, end) = (rows[0], rows[1]);
            let mut covering: Vec<u64> = entries
                .iter()
                .filter(|(_, entry)| entry.head.start <= start && end <= entry.head.end)
                .map(|(order, _)| *order)
                .collect();
            if planted::on(Planted::SupersededReplayed) {
                covering.reverse();
            }
            if !covering.is_empty() {
                segments.push(Segment {
                    stripe,
                    start,
                    end,
                    entries: covering,
                    strips: (0..strips).map(|_| Known::Unread).collect(),
                    ..Segment::default()
                });
            }
        }
    }
    segments
}
