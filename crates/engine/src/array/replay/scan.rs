//! The rings of all members, read side by side after a crash: which entries are in force.
//!
//! ```text
//! every ring walked, a chunk a read → what is retired is known → records in force fetched
//! ```
//!
//! A *walk* goes once through a ring and keeps of each whole record only where it lies and which
//! entries it ends with; its bytes are looked at where they were read to. When all rings have been
//! walked it is known what is retired, which is nearly everything; the records that are left are
//! *fetched*: read once more, and kept. So a start takes memory for what is in force, not for the
//! rings, however many there are.
//!
//! A read begins where the walk has come to: a record that the end of a chunk cuts off is read
//! again from its own start. One read a member is under way: with all members at it no drive waits
//! for long, and nothing has to be put together.
//!
//! Every record says which ones before it must be there: where one of those is not found, not
//! whole, or elsewhere, the drive has lost it, and the member's log counts as unreadable in part.
//!
//! What cannot be read in one piece is read page by page; pages that cannot be read count as zeroes
//! in the walk, and the member's log as unreadable. So does that of a record which was whole
//! in the walk and cannot be fetched.

use super::*;
use crate::format::Extent;
use crate::format::error::FormatError;
use crate::format::log::record::{self, RECORD_ALIGN};
use crate::format::log::ring;

#[cfg(test)]
mod tests;

/// Bytes of one read, as far as there is memory.
const CHUNK_BYTES_MAX: u64 = 512 << 10;
/// And at least.
const CHUNK_BYTES_MIN: u64 = 16 << 10;
/// Reads of single pages of a member in flight.
const PAGES_MAX: u32 = 8;
/// Pages of a ring that cannot be read, and none that can, before its drive counts as lost. (All
/// of a ring that has fewer.)
const BAD_PAGES_MAX: u32 = 32;
const PAGE_BYTES: u64 = RECORD_ALIGN as u64;

/// The rings being read. Extents count from a ring's start.
pub(super) struct Scans {
    rings: Vec<Scan>,
    fetching: bool,
    chunk_bytes: u64,
    /// What all reads together may take; a longer one goes alone.
    bytes_max: u64,
    bytes_under_way: u64,
}

/// Reading one member's ring.
struct Scan {
    member: MemberIndex,
    /// Where the walk has come to.
    at: u64,
    /// Length of the record there that the end of the last read cut off, or 0.
    cut_off: u64,
    /// Numbers of whole records, as runs of consecutive ones.
    runs: Vec<(u64, u64)>,
    /// The newest record, and the first and last that it says must be there.
    newest: (u64, u64, u64),
    /// A record of a version that is not known.
    unknown: bool,
    /// Records with entries that are not known to be retired, in the order of their places.
    records: VecDeque<Place>,
    reading: Option<Extent>,
    /// What is read is read page by page.
    pages: Option<Pages>,
    /// Something could be read.
    answers: bool,
    bad_pages: u32,
    /// No more is read of it.
    given_up: bool,
}

/// Where a whole record lies.
#[derive(Debug, Clone, Copy)]
struct Place {
    extent: Extent,
    number: u64,
    last_sequence: u64,
}

/// An extent read page by page.
struct Pages {
    bytes: Vec<u8>,
    /// First that has not been asked for.
    next: u32,
    under_way: u32,
}

impl Scan {
    /// What is to be read next.
    fn wants(&self, fetching: bool, ring_bytes: u64, chunk_bytes: u64) -> Option<Extent> {
        if self.reading.is_some() || self.given_up {
            return None;
        } else if !fetching {
            let left = ring_bytes - self.at;
            let length = chunk_bytes.max(self.cut_off).min(left);
            return (left > 0).then(|| Extent::new(self.at, length));
        }
        let mut extent = self.records.front()?.extent;
        for place in self.records.iter().skip(1) {
            let joined = extent.length + place.extent.length;
            if place.extent.offset != extent.end() || joined > chunk_bytes {
                break;
            }
            extent.length = joined;
        }
        Some(extent)
    }

    /// A whole record was found.
    fn found(&mut self, head: &record::RecordHead) {
        match self.runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(head.number) => *last = head.number,
            _ => self.runs.push((head.number, head.number)),
        }
        self.newest = self.newest.max((head.number, head.first, head.complete));
    }

    /// A record that was durable is not there, or not whole, and may hold entries in force: the
    /// drive has lost it, or let it rot. (Of what was in flight at the end nobody can say.)
    fn lacks_records(&mut self) -> bool {
        let (_, mut next, complete) = self.newest;
        self.runs.sort_unstable();
        for &(first, last) in &self.runs {
            if first <= next {
                next = next.max(last.saturating_add(1));
            }
        }
        complete > 0 && next <= complete
    }
}

impl Scans {
    pub(super) fn begin(members: Vec<MemberIndex>, memory_bytes: usize) -> Scans {
        let bytes_max = memory_bytes as u64 / 2;
        let each = bytes_max / members.len().max(1) as u64;
        let chunk_bytes = each.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        let ring = |member| Scan {
            member,
            at: 0,
            cut_off: 0,
            runs: Vec::new(),
            newest: (0, 0, 0),
            unknown: false,
            records: VecDeque::new(),
            reading: None,
            pages: None,
            answers: false,
            bad_pages: 0,
            given_up: false,
        };
        Scans {
            rings: members.into_iter().map(ring).collect(),
            fetching: false,
            // A power of two: what the pool gives.
            chunk_bytes: 1 << chunk_bytes.ilog2(),
            bytes_max,
            bytes_under_way: 0,
        }
    }

    fn of(&mut self, member: MemberIndex) -> &mut Scan {
        self.rings
            .iter_mut()
            .find(|scan| scan.member == member)
            .expect("its ring is read")
    }
}

impl Array {
    fn scan_of(&mut self, member: MemberIndex) -> &mut Scan {
        self.replayer().scans.of(member)
    }

    /// Reads on in every ring as far as memory allows; goes on to the rows when all is read.
    pub(super) fn scan_step(&mut self, out: &mut Vec<Action>) {
        loop {
            self.scan_read(out);
            let scans = &mut self.replayer().scans;
            if scans.rings.iter().any(|scan| scan.reading.is_some()) {
                return;
            }
            if std::mem::replace(&mut scans.fetching, true) {
                return self.replay_rows(out);
            }
            let retired = self.replayer().retired;
            for scan in &mut self.replayer().scans.rings {
                scan.records.retain(|place| place.last_sequence >= retired);
            }
        }
    }

    /// Begins what may be read.
    fn scan_read(&mut self, out: &mut Vec<Action>) {
        let ring_bytes = ring(self.meta.superblock().areas.log).length;
        for index in 0..self.replayer().scans.rings.len() {
            let member = self.replayer().scans.rings[index].member;
            let lives = self.members[member.at()].is_live();
            let scans = &mut self.replayer().scans;
            let scan = &mut scans.rings[index];
            let Some(extent) = scan.wants(scans.fetching, ring_bytes, scans.chunk_bytes) else {
                continue;
            };
            let under_way = scans.bytes_under_way + extent.length;
            if !lives {
                self.scan_give_up(member);
            } else if scans.bytes_under_way == 0 || under_way <= scans.bytes_max {
                scans.bytes_under_way = under_way;
                scan.reading = Some(extent);
                self.scan_io(member, 0, extent, out);
            }
        }
    }

    fn scan_io(&mut self, member: MemberIndex, page: u32, extent: Extent, out: &mut Vec<Action>) {
        let area = ring(self.meta.superblock().areas.log);
        let io = Io {
            token: Token::new(Class::Replay, page, u32::from(member.0)),
            member,
            offset: area.offset + extent.offset,
            length: extent.length as u32,
            kind: IoKind::ReadMeta,
        };
        self.member_io(io, out);
    }

    /// A read of a ring has ended.
    pub(super) fn scan_io_done(
        &mut self,
        token: Token,
        result: Result<(), IoError>,
        bytes: &[u8],
        out: &mut Vec<Action>,
    ) {
        let member = MemberIndex(token.part() as u16);
        self.member_io_ended(member);
        let scan = self.scan_of(member);
        scan.answers |= result.is_ok();
        if scan.pages.is_some() {
            self.scan_page_done(member, token.index(), result, bytes, out);
        } else {
            let extent = scan.reading.expect("a read is under way");
            match result {
                Ok(()) => self.scan_took(member, extent, bytes),
                Err(IoError::Range) => {
                    // Which page is it?
                    scan.pages = Some(Pages {
                        bytes: vec![0; extent.length as usize],
                        next: 0,
                        under_way: 0,
                    });
                    self.scan_pages(member, out);
                }
                Err(IoError::Gone) => {
                    self.scan_failed(member, IoError::Gone, out);
                    self.scan_ended(member);
                }
            }
        }
        self.scan_step(out);
    }

    /// Reads pages of what could not be read as a whole, as far as they may be under way.
    fn scan_pages(&mut self, member: MemberIndex, out: &mut Vec<Action>) {
        loop {
            let scan = self.scan_of(member);
            let extent = scan.reading.expect("a read is under way");
            let pages = scan.pages.as_mut().expect("page by page");
            let page = pages.next;
            let at = u64::from(page) * PAGE_BYTES;
            if at == extent.length || pages.under_way == PAGES_MAX || scan.given_up {
                return;
            }
            pages.next += 1;
            pages.under_way += 1;
            let extent = Extent::new(extent.offset + at, PAGE_BYTES);
            self.scan_io(member, page, extent, out);
        }
    }

    fn scan_page_done(
        &mut self,
        member: MemberIndex,
        page: u32,
        result: Result<(), IoError>,
        bytes: &[u8],
        out: &mut Vec<Action>,
    ) {
        let scan = self.scan_of(member);
        let pages = scan.pages.as_mut().expect("page by page");
        pages.under_way -= 1;
        match result {
            Ok(()) => {
                let at = page as usize * RECORD_ALIGN;
                pages.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Err(error) => {
                scan.bad_pages += 1;
                self.scan_failed(member, error, out);
            }
        }
        self.scan_pages(member, out);
        let scan = self.scan_of(member);
        let pages = scan.pages.as_mut().expect("page by page");
        if pages.under_way > 0 {
            return;
        }
        let extent = scan.reading.expect("a read is under way");
        let bytes = std::mem::take(&mut pages.bytes);
        scan.pages = None;
        if scan.given_up {
            self.scan_ended(member);
        } else {
            self.scan_took(member, extent, &bytes);
        }
    }

    /// Something of a member's ring cannot be read.
    fn scan_failed(&mut self, member: MemberIndex, error: IoError, out: &mut Vec<Action>) {
        let ring_bytes = ring(self.meta.superblock().areas.log).length;
        let scan = self.scan_of(member);
        let pages = (ring_bytes / PAGE_BYTES).min(u64::from(BAD_PAGES_MAX));
        let silent = !scan.answers && u64::from(scan.bad_pages) >= pages;
        if error == IoError::Gone {
            self.read_failed(member, error, out);
        } else if silent && self.members[member.at()].is_live() && self.survives_without(member) {
            // Not a bad block here and there: waiting for each page helps nobody.
            let why = "nothing can be read of its log";
            self.drop_member(member, MemberState::Failed, why, out);
        }
        self.scan_unreadable(member);
        if error == IoError::Gone || !self.members[member.at()].is_live() {
            self.scan_give_up(member);
        }
    }

    /// Its log does not say everything that was logged.
    fn scan_unreadable(&mut self, member: MemberIndex) {
        // A member that is lost takes its log with it.
        let lives = self.members[member.at()].is_live();
        let replayer = self.replayer();
        replayer.vouches[member.at()] = false;
        if lives && !replayer.unreadable.contains(&member) {
            replayer.unreadable.push(member);
        }
    }

    /// Reads no more of a member's ring, of which something is left to be read.
    fn scan_give_up(&mut self, member: MemberIndex) {
        self.scan_of(member).given_up = true;
        self.replayer().vouches[member.at()] = false;
    }

    fn scan_ended(&mut self, member: MemberIndex) {
        let scans = &mut self.replayer().scans;
        let extent = scans.of(member).reading.take();
        scans.bytes_under_way -= extent.expect("a read is under way").length;
    }

    /// A part of a ring has been read (zeroes where it could not be).
    fn scan_took(&mut self, member: MemberIndex, extent: Extent, bytes: &[u8]) {
        self.scan_ended(member);
        if self.replayer().scans.fetching {
            return self.scan_fetch(member, extent, bytes);
        }
        self.scan_walk(member, extent, bytes);
        let area = ring(self.meta.superblock().areas.log);
        if self.scan_of(member).at == area.length {
            let scan = self.scan_of(member);
            if scan.unknown || scan.lacks_records() {
                self.scan_unreadable(member);
            }
            let it = &self.members[member.at()];
            let whole = it.is_live() && it.state == MemberState::Active;
            let replayer = self.replayer();
            replayer.vouches[member.at()] = whole && !replayer.unreadable.contains(&member);
        }
    }

    /// Who has written the records that are replayed on a member.
    fn scan_owner(&self, member: MemberIndex) -> record::Owner {
        let superblock = self.meta.superblock();
        let from = self.replayer.as_ref().expect("a replay is under way").from;
        record::Owner {
            array_uuid: superblock.array_uuid,
            member_uuid: self.members[member.at()].uuid,
            epoch: from.epoch,
            lineage: from.lineage,
        }
    }

    /// Notes every whole record of the epoch before.
    fn scan_walk(&mut self, member: MemberIndex, extent: Extent, bytes: &[u8]) {
        let area = ring(self.meta.superblock().areas.log);
        let owner = self.scan_owner(member);
        let replayer = self.replayer.as_mut().expect("a replay is under way");
        let scan = replayer.scans.of(member);
        scan.cut_off = 0;
        let mut at = 0;
        while at < bytes.len() {
            let raw = &bytes[at..];
            let here = extent.offset + at as u64;
            let found_at = area.offset + here;
            let claimed = record::claimed_by(raw, found_at, &owner)
                .filter(|&claimed| claimed as u64 <= area.length - here);
            if let Some(claimed) = claimed.filter(|&claimed| claimed > raw.len()) {
                scan.cut_off = claimed as u64;
                break;
            }
            let found = claimed.map(|_| record::summary(raw, found_at));
            // One that a later Strake wrote says something, and nobody here knows what.
            scan.unknown |= matches!(found, Some(Err(FormatError::Version { .. })));
            let Some(Ok(summary)) = found else {
                at += RECORD_ALIGN;
                continue;
            };
            let head = summary.head;
            scan.found(&head);
            replayer.retired = replayer.retired.max(head.oldest);
            while let Some(oldest) = scan.records.front()
                && oldest.last_sequence < replayer.retired
            {
                scan.records.pop_front();
            }
            if let Some(last_sequence) = summary.last_sequence {
                scan.records.push_back(Place {
                    extent: Extent::new(here, summary.bytes as u64),
                    number: head.number,
                    last_sequence,
                });
            }
            at += summary.bytes;
        }
        scan.at = extent.offset + at as u64;
    }

    /// Keeps the entries in force of records that were whole in the walk.
    fn scan_fetch(&mut self, member: MemberIndex, extent: Extent, bytes: &[u8]) {
        let area = ring(self.meta.superblock().areas.log);
        let owner = self.scan_owner(member);
        let mut lost = false;
        while let scan = self.scan_of(member)
            && let Some(&place) = scan.records.front()
            && place.extent.offset < extent.end()
        {
            scan.records.pop_front();
            let raw = &bytes[(place.extent.offset - extent.offset) as usize..];
            let found_at = area.offset + place.extent.offset;
            let record = record::claimed_by(raw, found_at, &owner)
                .and_then(|_| record::decode(raw, found_at).ok())
                .filter(|record| record.head.number == place.number);
            match record {
                Some(record) => self.replayer().keep(member, raw, record),
                None => lost = true,
            }
        }
        if lost {
            self.scan_unreadable(member);
        }
    }
}

impl Replayer {
    fn keep(&mut self, member: MemberIndex, raw: &[u8], record: record::Record) {
        for (number, entry) in (record.head.number << 16..).zip(record.entries) {
            if entry.head.sequence < self.retired {
                continue;
            }
            let order = if planted::on(Planted::SeparateRings) {
                number
            } else {
                entry.head.sequence
            };
            let payload = raw[entry.payload.clone()].to_vec();
            let found = self.found.entry(order).or_insert_with(|| Found {
                entry,
                payloads: Vec::new(),
            });
            found.payloads.push((member.0, payload));
        }
    }
}
