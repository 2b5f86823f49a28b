//! One simulated drive: an image, a volatile cache that a power cut may lose, and faults.
//!
//! The cache is the list of writes that no flush has covered. A power cut lets any subset of them
//! land, sector by sector; a write that was durable at its end always lands. The sector is the unit
//! that is never torn; it may be smaller than a block of the array.

use std::ops::Range;
use std::rc::Rc;

use fastrand::Rng;
use strake_reactor::port::{DriveError, DriveOp};

use crate::image::Image;

/// What the drive does wrong from now on.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Every operation fails.
    pub dead: Option<DriveError>,
    /// It dies so when this many operations more have ended.
    pub dies_after: Option<(u64, DriveError)>,
    /// Reads that touch one of these fail, until the range is written.
    pub bad_reads: Vec<Range<u64>>,
    /// The same in the parity log: no data is lost with it.
    pub bad_log: Vec<Range<u64>>,
    /// A record of its log has rotted.
    pub rotten_log: bool,
    /// Writes that touch one of these fail, and may land in part.
    pub bad_writes: Vec<Range<u64>>,
    /// Operations that begin in the range take so many times longer.
    pub slow_range: Option<(Range<u64>, u64)>,
    /// Reads take so many times longer (0 counts as 1).
    pub slow_reads: u64,
    /// When this many operations more were submitted, none ends any more until the program ends.
    pub hangs_after: Option<u64>,
    /// Every latency is multiplied by this (0 counts as 1).
    pub slowness: u64,
    /// The next operations that begin in a range go astray.
    pub strays: Vec<Stray>,
    /// Its metadata may be old or wrong.
    pub damaged: bool,
}

impl Faults {
    /// Whether this drive cannot be counted on.
    pub fn any(&self) -> bool {
        self.dead.is_some()
            || self.dies_after.is_some()
            || self.hangs_after.is_some()
            || !self.bad_reads.is_empty()
            || !self.bad_writes.is_empty()
            || !self.strays.is_empty()
            || self.damaged
    }

    /// Its log may not say everything that was logged.
    pub fn log_is_bad(&self) -> bool {
        self.rotten_log || !self.bad_log.is_empty()
    }

    /// It will be dead soon, or is and nobody may have noticed.
    pub fn is_dying(&self) -> bool {
        self.dead.is_some() || self.dies_after.is_some() || self.hangs_after.is_some()
    }

    fn unreadable(&self, offset: u64, length: u64) -> bool {
        touches(&self.bad_reads, offset, length) || touches(&self.bad_log, offset, length)
    }

    /// It begins where writes take longer.
    pub fn is_slow(&self, op: &DriveOp) -> bool {
        let DriveOp::Write { offset, .. } = op else {
            return false;
        };
        let range = self.slow_range.as_ref();
        range.is_some_and(|(range, _)| range.contains(offset))
    }

    /// Single blocks fail, and nothing else is wrong.
    pub fn only_bad_blocks(&self) -> bool {
        let blocks = !self.bad_reads.is_empty() || !self.bad_writes.is_empty();
        blocks && self.dead.is_none() && self.dies_after.is_none() && !self.damaged
    }

    /// Adds faults to those that are there.
    pub fn join(&mut self, more: Faults) {
        self.dead = more.dead.or(self.dead);
        self.dies_after = more.dies_after.or(self.dies_after);
        self.bad_reads.extend(more.bad_reads);
        self.bad_log.extend(more.bad_log);
        self.rotten_log |= more.rotten_log;
        self.bad_writes.extend(more.bad_writes);
        self.damaged |= more.damaged || !more.strays.is_empty();
        self.strays.extend(more.strays);
    }
}

/// An operation that the drive acknowledges and carries out wrongly, once.
#[derive(Debug, Clone)]
pub struct Stray {
    /// It must begin here.
    pub within: Range<u64>,
    /// What becomes of it.
    pub kind: StrayKind,
}

/// How an operation goes astray.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrayKind {
    /// A write is lost.
    Lost,
    /// A write goes this many bytes behind its place.
    Misdirected(u64),
    /// Until the next start, a read of metadata returns what is this many bytes behind.
    Misread(u64),
}

/// What a discarded range reads as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discarded {
    /// As before.
    Old,
    /// As zeroes.
    Zeroes,
    /// As anything.
    Garbage,
}

/// What a write brings.
#[derive(Debug, Clone)]
pub enum Content {
    /// These bytes.
    Bytes(Rc<[u8]>),
    /// So many zeroes.
    Zeroes(u64),
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Zeroes(length) => *length,
        }
    }

    fn apply(&self, image: &mut Image, offset: u64) {
        match self {
            Content::Bytes(bytes) => image.poke(offset, bytes),
            Content::Zeroes(length) => image.zero(offset, *length),
        }
    }

    fn apply_part(&self, image: &mut Image, offset: u64, part: Range<u64>) {
        match self {
            Content::Bytes(bytes) => image.poke(
                offset + part.start,
                &bytes[part.start as usize..part.end as usize],
            ),
            Content::Zeroes(_) => image.zero(offset + part.start, part.end - part.start),
        }
    }
}

/// A write that has not landed for good.
#[derive(Debug, Clone)]
pub struct Loose {
    /// Number of the write.
    pub number: u64,
    /// First byte.
    pub offset: u64,
    /// Content.
    pub content: Content,
    /// Lands in any case: it was durable when it ended.
    pub durable: bool,
}

/// How much of a loose write lands at a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landing {
    /// Nothing.
    Nothing,
    /// All.
    All,
    /// A part: the first half of the sectors.
    FirstHalf,
    /// A part: the second half of the sectors.
    SecondHalf,
    /// Each sector by a bit of this seed.
    Sectors(u64),
}

/// A drive.
#[derive(Clone)]
pub struct SimDrive {
    size_bytes: u64,
    sector_bytes: u32,
    /// What a read returns.
    now: Image,
    /// What is on the media for good; `None`: the drive has no volatile cache.
    media: Option<Image>,
    loose: Vec<Loose>,
    discarded: Discarded,
    writes: u64,
    /// Faults.
    pub faults: Faults,
}

/// Writes in a cache at most: the drive writes the oldest to its media by itself.
const LOOSE_MAX: usize = 4096;

impl SimDrive {
    /// A drive of zeroes. `volatile`: it has a cache that a power cut may lose.
    pub fn new(
        size_bytes: u64,
        sector_bytes: u32,
        volatile: bool,
        discarded: Discarded,
    ) -> SimDrive {
        let now = Image::new(size_bytes);
        SimDrive {
            size_bytes,
            sector_bytes,
            media: volatile.then(|| now.clone()),
            now,
            loose: Vec::new(),
            discarded,
            writes: 0,
            faults: Faults::default(),
        }
    }

    /// Bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes of a sector, the unit that is never torn.
    pub fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    /// Whether a power cut may lose completed writes.
    pub fn is_volatile(&self) -> bool {
        self.media.is_some()
    }

    /// Number of the last write: what a flush that is submitted now promises.
    pub fn written(&self) -> u64 {
        self.writes
    }

    /// Writes that a power cut may lose, oldest first.
    pub fn loose(&self) -> &[Loose] {
        &self.loose
    }

    /// The image as reads see it.
    pub fn image(&self) -> &Image {
        &self.now
    }

    /// Every byte holds this, for good.
    pub fn fill(&mut self, byte: u8) {
        self.now.fill(byte);
        if let Some(media) = &mut self.media {
            media.clone_from(&self.now);
        }
        self.loose.clear();
    }

    /// The drive is taken out for good: its image is forgotten, and what is still under way on it
    /// fails.
    pub fn scrap(&mut self) {
        self.faults.dead = Some(DriveError::Gone);
        self.fill(0);
    }

    /// What the image holds, faults aside.
    pub fn peek(&self, offset: u64, out: &mut [u8]) {
        self.now.peek(offset, out);
    }

    /// Reads as an import does.
    ///
    /// # Errors
    /// A latent read error, or a drive that is gone.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), DriveError> {
        if let Some(error) = self.faults.dead {
            return Err(error);
        }
        if self.faults.unreadable(offset, out.len() as u64) {
            return Err(DriveError::Io(5));
        }
        self.now.peek(self.misread(offset, out.len() as u64), out);
        Ok(())
    }

    /// Where a read of metadata really reads.
    fn misread(&self, offset: u64, length: u64) -> u64 {
        let strays = self.faults.strays.iter();
        let by = strays.filter(|stray| stray.within.contains(&offset));
        let mut by = by.filter_map(|stray| match stray.kind {
            StrayKind::Misread(by) if offset + by + length <= self.size_bytes => Some(by),
            _ => None,
        });
        offset + by.next().unwrap_or(0)
    }

    /// Changes the image on the media, faults aside.
    pub fn poke(&mut self, offset: u64, bytes: &[u8]) {
        self.now.poke(offset, bytes);
        if let Some(media) = &mut self.media {
            media.poke(offset, bytes);
        }
    }

    /// Bits of the image rot: every byte of the range is changed.
    pub fn rot(&mut self, range: Range<u64>) {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.now.peek(range.start, &mut bytes);
        bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
        self.poke(range.start, &bytes);
    }

    /// Counts an operation that is submitted. True: it never ends.
    pub fn hangs(&mut self) -> bool {
        match &mut self.faults.hangs_after {
            None => false,
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// Carries an operation out. `promised`: for a flush, [`SimDrive::written`] at its submission.
    ///
    /// # Errors
    /// Those of the drive's faults.
    pub fn execute(&mut self, op: DriveOp, promised: u64, rng: &mut Rng) -> Result<(), DriveError> {
        if let Some((left, error)) = &mut self.faults.dies_after {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.faults.dead = Some(*error);
                self.faults.dies_after = None;
                self.land_in_part(op, rng);
                return Err(self.faults.dead.expect("it has just died"));
            }
        }
        if let Some(error) = self.faults.dead {
            return Err(error);
        }
        match op {
            DriveOp::Read { offset, mut into } => {
                if self.faults.unreadable(offset, into.len() as u64) {
                    return Err(DriveError::Io(5));
                }
                into.with_mut(|out| self.now.peek(offset, out));
            }
            DriveOp::Flush => self.flushed(promised),
            DriveOp::Discard { offset, length } => self.discard(offset, length, rng),
            write => return self.execute_write(write, rng),
        }
        Ok(())
    }

    fn execute_write(&mut self, op: DriveOp, rng: &mut Rng) -> Result<(), DriveError> {
        let Some((offset, content, durable)) = content_of(&op) else {
            return Ok(());
        };
        if touches(&self.faults.bad_writes, offset, content.len()) {
            self.land_in_part(op, rng);
            return Err(DriveError::Io(5));
        }
        match self.stray(offset) {
            Some(StrayKind::Lost) => {}
            Some(StrayKind::Misdirected(by)) => {
                if offset + by + content.len() <= self.size_bytes {
                    self.write(offset + by, content, durable);
                }
            }
            _ => self.write(offset, content, durable),
        }
        Ok(())
    }

    /// What becomes of a write here; once.
    fn stray(&mut self, offset: u64) -> Option<StrayKind> {
        let fits = |stray: &Stray| {
            stray.within.contains(&offset) && !matches!(stray.kind, StrayKind::Misread(_))
        };
        let at = self.faults.strays.iter().position(fits)?;
        Some(self.faults.strays.remove(at).kind)
    }

    fn write(&mut self, offset: u64, content: Content, durable: bool) {
        let (sector, length) = (u64::from(self.sector_bytes), content.len());
        assert!(
            offset.is_multiple_of(sector)
                && length.is_multiple_of(sector)
                && offset + length <= self.size_bytes,
            "write of {length} bytes at {offset} to a drive of {} bytes in sectors of {sector}",
            self.size_bytes,
        );
        self.writes += 1;
        for bad in [&mut self.faults.bad_reads, &mut self.faults.bad_log] {
            if !bad.is_empty() {
                heal(bad, offset..offset + length);
            }
        }
        content.apply(&mut self.now, offset);
        let Some(media) = &mut self.media else { return };
        if durable && self.loose.is_empty() {
            content.apply(media, offset);
            return;
        }
        self.loose.push(Loose {
            number: self.writes,
            offset,
            content,
            durable,
        });
        if self.loose.len() > LOOSE_MAX {
            let oldest = self.loose.remove(0);
            oldest.content.apply(media, oldest.offset);
        }
    }

    fn flushed(&mut self, promised: u64) {
        let Some(media) = &mut self.media else { return };
        let covered = self.loose.partition_point(|loose| loose.number <= promised);
        for loose in self.loose.drain(..covered) {
            loose.content.apply(media, loose.offset);
        }
    }

    fn discard(&mut self, offset: u64, length: u64, rng: &mut Rng) {
        match self.discarded {
            Discarded::Old => {}
            Discarded::Zeroes => self.write(offset, Content::Zeroes(length), false),
            Discarded::Garbage => {
                let mut garbage = vec![0; length as usize];
                let word = rng.u64(..) | 1;
                for (index, bytes) in garbage.chunks_exact_mut(8).enumerate() {
                    bytes.copy_from_slice(&(word.wrapping_mul(index as u64 | 1)).to_le_bytes());
                }
                self.write(offset, Content::Bytes(garbage.into()), false);
            }
        }
    }

    /// Some sectors of an operation land: it failed, or a crash came before its end.
    pub fn land_in_part(&mut self, op: DriveOp, rng: &mut Rng) {
        if let Some((offset, content, _)) = content_of(&op) {
            let landing = any_landing(rng);
            self.land(offset, &content, landing);
        }
    }

    /// So much of a write lands (in the cache, where there is one).
    pub fn land(&mut self, offset: u64, content: &Content, landing: Landing) {
        for part in parts(content.len(), u64::from(self.sector_bytes), landing) {
            let piece = match content {
                Content::Bytes(bytes) => {
                    Content::Bytes(bytes[part.start as usize..part.end as usize].into())
                }
                Content::Zeroes(_) => Content::Zeroes(part.end - part.start),
            };
            self.write(offset + part.start, piece, false);
        }
    }

    /// The power went: any subset of what was not flushed has landed.
    pub fn power_cut(&mut self, rng: &mut Rng) {
        let mood = rng.u8(0..4);
        self.power_cut_as(|_| match mood {
            0 => Landing::Nothing,
            1 => Landing::All,
            _ => any_landing(rng),
        });
    }

    /// The power went, and of each loose write (by its index) so much has landed.
    pub fn power_cut_as(&mut self, mut landing: impl FnMut(usize) -> Landing) {
        let Some(media) = &mut self.media else { return };
        let sector = u64::from(self.sector_bytes);
        for (index, loose) in self.loose.drain(..).enumerate() {
            if loose.durable {
                loose.content.apply(media, loose.offset);
                continue;
            }
            for part in parts(loose.content.len(), sector, landing(index)) {
                loose.content.apply_part(media, loose.offset, part);
            }
        }
        self.now.clone_from(media);
    }
}

/// Nothing, all, or any sectors.
fn any_landing(rng: &mut Rng) -> Landing {
    match rng.u8(0..3) {
        0 => Landing::Nothing,
        1 => Landing::All,
        _ => Landing::Sectors(rng.u64(..)),
    }
}

/// The byte ranges of a write that land.
fn parts(length: u64, sector: u64, landing: Landing) -> Vec<Range<u64>> {
    let middle = length / sector / 2 * sector;
    let whole = 0..length;
    match landing {
        Landing::Nothing => Vec::new(),
        Landing::All => vec![whole],
        Landing::FirstHalf => std::iter::once(0..middle).collect(),
        Landing::SecondHalf => std::iter::once(middle..length).collect(),
        Landing::Sectors(seed) => {
            let mut rng = Rng::with_seed(seed);
            let mut parts = Vec::new();
            let mut at = 0;
            while at < length {
                // Runs of sectors, short ones mostly.
                let run = (1 + rng.u64(..8)) * sector;
                let end = (at + run).min(length);
                if rng.bool() {
                    parts.push(at..end);
                }
                at = end;
            }
            parts
        }
    }
    .into_iter()
    .filter(|part| !part.is_empty())
    .collect()
}

/// What an operation writes, where, and whether durably; `None` for one that writes nothing.
pub fn content_of(op: &DriveOp) -> Option<(u64, Content, bool)> {
    match op {
        DriveOp::Write {
            offset,
            from,
            durable,
        } => Some((
            *offset,
            Content::Bytes(from.with(|bytes| bytes.into())),
            *durable,
        )),
        DriveOp::WriteZeroes { offset, length } => Some((*offset, Content::Zeroes(*length), false)),
        _ => None,
    }
}

fn touches(ranges: &[Range<u64>], offset: u64, length: u64) -> bool {
    ranges
        .iter()
        .any(|range| range.start < offset + length && offset < range.end)
}

/// What was written can be read again.
fn heal(bad: &mut Vec<Range<u64>>, written: Range<u64>) {
    let mut left = Vec::new();
    for range in bad.drain(..) {
        if range.end <= written.start || written.end <= range.start {
            left.push(range);
            continue;
        }
        for rest in [range.start..written.start, written.end..range.end] {
            if rest.start < rest.end {
                left.push(rest);
            }
        }
    }
    *bad = left;
}
