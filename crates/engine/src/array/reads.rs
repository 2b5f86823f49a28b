//! Direct reads of one core: what needs no decision is read without asking the core that runs the
//! array.
//!
//! A request comes in, [`Step`]s come out: read these pieces straight from their members, or pass
//! the request on to the array itself. It is passed on whenever anything is unusual: before the
//! reads, after one failed, or because something that they relied on has changed meanwhile (see
//! [`super::published`]). Nothing is decided here, and nothing is written.

use std::sync::Arc;

use super::published::{Published, ReadCounts, Regime, RegionReads, Word};
use super::slots::Slots;
use crate::layout::{Geometry, MemberIndex, StripPiece};

/// Pieces of one request that may be under way at once.
const PARTS_MAX: u32 = 64;

/// A request of one piece is its own part, named by this bit and the request.
const WHOLE: u32 = 1 << 31;

/// A request that is read directly; names its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadId(pub u32);

/// What the caller has to do next, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Read a piece into the request's memory; then [`DirectReads::io_done`] with `part`.
    Read {
        /// Names the piece.
        part: u32,
        /// Request.
        request: ReadId,
        /// Member.
        member: MemberIndex,
        /// First byte on its drive.
        offset: u64,
        /// First byte in the request's memory.
        at: u32,
        /// Bytes.
        length: u32,
    },
    /// Fill this part of the request's memory with zeroes.
    Zero {
        /// Request.
        request: ReadId,
        /// First byte in its memory.
        at: u32,
        /// Bytes.
        length: u32,
    },
    /// All of it has been read.
    Done(ReadId),
    /// The array itself has to read it, from its first byte on.
    PassOn {
        /// Request.
        request: ReadId,
        /// First byte on the volume.
        offset: u64,
        /// Bytes.
        length: u64,
        /// A member from which it could not be read: the array has to know.
        failed: Option<MemberIndex>,
    },
}

#[derive(Debug, Default, Clone, Copy)]
struct Read {
    offset: u64,
    end: u64,
    /// First byte that has not been cut yet.
    cursor: u64,
    parts: u32,
    pass_on: bool,
    failed: Option<MemberIndex>,
    /// Of a request of one piece.
    whole: Part,
}

#[derive(Debug, Default, Clone, Copy)]
struct Part {
    request: u32,
    region: u32,
    regime: Regime,
    word: Word,
    member: u16,
}

/// Where a piece can be read.
#[derive(Debug, Clone, Copy)]
struct Found {
    region: u32,
    word: Word,
    /// `None`: it is zeroes.
    from: Option<(MemberIndex, u64)>,
    length: u32,
}

/// The direct reads of one core.
pub struct DirectReads {
    geometry: Geometry,
    /// First byte of the data area on every member.
    data_offset: u64,
    published: Arc<Published>,
    counts: Arc<ReadCounts>,
    /// By place: its drive is open on this core.
    open: Vec<bool>,
    /// What [`Published::drives`] was when `open` was right.
    drives: u64,
    requests: Slots<Read>,
    parts: Slots<Part>,
    /// Reads under way, by place.
    in_flight: Vec<u32>,
    found: Vec<Found>,
}

impl DirectReads {
    /// None under way, and no drive open.
    pub(super) fn new(
        geometry: Geometry,
        data_offset: u64,
        published: Arc<Published>,
    ) -> DirectReads {
        let members = geometry.shape().members();
        DirectReads {
            counts: published.reader(),
            geometry,
            data_offset,
            published,
            open: vec![false; members],
            drives: 0,
            requests: Slots::default(),
            parts: Slots::default(),
            in_flight: vec![0; members],
            found: Vec::new(),
        }
    }

    /// A drive has been opened, or is about to be closed, on this core. `drives`: what
    /// [`Published::drives`] was when that was decided.
    pub fn set_drive(&mut self, member: MemberIndex, open: bool, drives: u64) {
        self.open[member.at()] = open;
        self.drives = drives;
    }

    /// Members of the array.
    pub fn members(&self) -> usize {
        self.open.len()
    }

    /// Reads under way on a member.
    pub fn in_flight(&self, member: MemberIndex) -> u32 {
        self.in_flight[member.at()]
    }

    /// Requests under way.
    pub fn used(&self) -> usize {
        self.requests.used()
    }

    /// Takes a request to read. Its end comes as [`Step::Done`] or [`Step::PassOn`], possibly
    /// among `out` already. `None`: it has to be passed on as it is.
    #[inline]
    pub fn submit(&mut self, offset: u64, length: u64, out: &mut Vec<Step>) -> Option<ReadId> {
        let block = u64::from(self.geometry.shape().block_size_bytes);
        let end = offset.checked_add(length)?;
        let fits = end <= self.geometry.volume_bytes() && length <= u64::from(u32::MAX);
        if !fits || length == 0 || (offset | length) & (block - 1) != 0 {
            return None; // the array says what is wrong with it
        }
        let regime = self.published.admit(self.drives)?;
        let piece = self.geometry.piece(offset, length);
        if u64::from(piece.length) == length {
            let found = self.find(&piece)?;
            return Some(self.start_whole(offset, end, regime, &found, out));
        }
        let id = self.begin(offset, end, offset);
        if !self.cut(id, out) {
            self.requests.give(id);
            return None;
        }
        self.step(id, out);
        Some(ReadId(id))
    }

    /// A request of one piece: nearly all that are small, so it does without a part of its own.
    #[inline]
    fn start_whole(
        &mut self,
        offset: u64,
        end: u64,
        regime: Regime,
        found: &Found,
        out: &mut Vec<Step>,
    ) -> ReadId {
        let id = self.begin(offset, end, end);
        let (request, length) = (ReadId(id), found.length);
        let Some((member, offset)) = found.from else {
            out.push(Step::Zero {
                request,
                at: 0,
                length,
            });
            self.step(id, out);
            return request;
        };
        self.requests[id].whole = Part {
            request: id,
            region: found.region,
            regime,
            word: found.word,
            member: member.0,
        };
        self.in_flight[member.at()] += 1;
        out.push(Step::Read {
            part: WHOLE | id,
            request,
            member,
            offset,
            at: 0,
            length,
        });
        request
    }

    #[inline]
    fn begin(&mut self, offset: u64, end: u64, cursor: u64) -> u32 {
        let id = self.requests.take();
        self.requests[id] = Read {
            offset,
            end,
            cursor,
            parts: 0,
            pass_on: false,
            failed: None,
            whole: Part::default(),
        };
        id
    }

    /// Begins as many pieces as may be under way; false, and none of them, if one of them cannot
    /// be read directly.
    fn cut(&mut self, id: u32, out: &mut Vec<Step>) -> bool {
        let Some(regime) = self.published.admit(self.drives) else {
            return false;
        };
        let Read {
            offset,
            end,
            cursor,
            parts,
            ..
        } = self.requests[id];
        let mut all = std::mem::take(&mut self.found);
        all.clear();
        let (mut to, mut reads) = (cursor, parts);
        while to < end && reads < PARTS_MAX {
            let piece = self.geometry.piece(to, end - to);
            let Some(found) = self.find(&piece) else {
                self.found = all;
                return false;
            };
            reads += u32::from(found.from.is_some());
            all.push(found);
            to += u64::from(piece.length);
        }
        self.requests[id].cursor = to;
        let mut at = (cursor - offset) as u32;
        for found in &all {
            self.start(id, at, regime, found, out);
            at += found.length;
        }
        self.found = all;
        true
    }

    #[inline]
    fn find(&self, piece: &StripPiece) -> Option<Found> {
        let strip = match self.geometry.data() {
            1 => self.idlest_copy(piece)?,
            _ => piece.strip.into(),
        };
        let place = self.geometry.place(piece, strip);
        let word = self.published.region(place.region);
        let from = match word.reads() {
            RegionReads::Zeroes => None,
            RegionReads::Direct if self.is_usable(place.member) => {
                Some((place.member, self.data_offset + place.offset))
            }
            RegionReads::Direct | RegionReads::Asked => return None,
        };
        Some(Found {
            region: place.region,
            word,
            from,
            length: piece.length,
        })
    }

    #[inline]
    fn is_usable(&self, member: MemberIndex) -> bool {
        self.open[member.at()] && self.published.is_true(member)
    }

    /// The copy with the shortest queue; ties go round by stripe, so that a lone reader uses all.
    fn idlest_copy(&self, piece: &StripPiece) -> Option<usize> {
        let strips = self.geometry.strips();
        if strips == 1 {
            return Some(0);
        }
        let phase = self.geometry.phase(piece.stripe);
        let mut best: Option<(u32, usize, usize)> = None;
        for copy in 0..strips {
            let member = self.geometry.member(piece.stripe, copy);
            if !self.is_usable(member) {
                continue;
            }
            let turn = copy + phase;
            let turn = if turn < strips { turn } else { turn - strips };
            let key = (self.in_flight[member.at()], turn, copy);
            if best.is_none_or(|best| key < best) {
                best = Some(key);
            }
        }
        best.map(|(_, _, copy)| copy)
    }

    #[inline]
    fn start(&mut self, id: u32, at: u32, regime: Regime, found: &Found, out: &mut Vec<Step>) {
        let request = ReadId(id);
        let length = found.length;
        let Some((member, offset)) = found.from else {
            return out.push(Step::Zero {
                request,
                at,
                length,
            });
        };
        let part = self.parts.take();
        self.parts[part] = Part {
            request: id,
            region: found.region,
            regime,
            word: found.word,
            member: member.0,
        };
        self.requests[id].parts += 1;
        self.in_flight[member.at()] += 1;
        out.push(Step::Read {
            part,
            request,
            member,
            offset,
            at,
            length,
        });
    }

    /// A piece has been read, or could not be.
    #[inline]
    pub fn io_done(&mut self, part: u32, ok: bool, out: &mut Vec<Step>) {
        if part & WHOLE != 0 {
            let id = part & !WHOLE;
            let whole = self.requests[id].whole;
            self.in_flight[usize::from(whole.member)] -= 1;
            let counts = ok && self.published.holds(whole.regime, whole.region, whole.word);
            self.requests[id].pass_on = !counts;
            self.requests[id].failed = (!ok).then_some(MemberIndex(whole.member));
            return self.step(id, out);
        }
        let Part {
            request,
            region,
            regime,
            word,
            member,
        } = self.parts[part];
        self.parts.give(part);
        self.in_flight[usize::from(member)] -= 1;
        let counts = ok && self.published.holds(regime, region, word);
        let read = &mut self.requests[request];
        read.parts -= 1;
        read.pass_on |= !counts;
        if !ok {
            read.failed = Some(MemberIndex(member));
        }
        if !read.pass_on && read.cursor < read.end && !self.cut(request, out) {
            self.requests[request].pass_on = true;
        }
        self.step(request, out);
    }

    /// Ends the request if nothing of it is under way.
    #[inline]
    fn step(&mut self, id: u32, out: &mut Vec<Step>) {
        let read = self.requests[id];
        if read.parts > 0 {
            return;
        }
        debug_assert!(read.pass_on || read.cursor == read.end);
        self.requests.give(id);
        let (request, length) = (ReadId(id), read.end - read.offset);
        if read.pass_on {
            let offset = read.offset;
            return out.push(Step::PassOn {
                request,
                offset,
                length,
                failed: read.failed,
            });
        }
        self.counts.add(length);
        out.push(Step::Done(request));
    }
}

#[cfg(test)]
mod tests;
