//! One simulated drive: an image, a volatile cache that a power cut may lose, and faults.

use std::collections::BTreeMap;
use std::ops::Range;

use fastrand::Rng;
use strake_reactor::port::{DriveError, DriveOp};

const PAGE_BYTES: usize = 4096;
type Page = Box<[u8; PAGE_BYTES]>;
/// Number of a write and the content it gave a block.
type Version = (u64, Box<[u8]>);

/// What the drive does wrong from now on.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Every operation fails.
    pub dead: Option<DriveError>,
    /// It dies so when this many operations more have ended.
    pub dies_after: Option<(u64, DriveError)>,
    /// Reads that touch one of these fail, until the range is written.
    pub bad_reads: Vec<Range<u64>>,
    /// Writes that touch one of these fail, and may land in part.
    pub bad_writes: Vec<Range<u64>>,
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

/// A drive.
pub struct SimDrive {
    size_bytes: u64,
    block_bytes: usize,
    pages: Vec<Option<Page>>,
    /// Contents that a block may have after a power cut, oldest first: what is on the media, then
    /// every later write with its number. Blocks whose newest content is on the media are absent.
    unflushed: BTreeMap<u64, Vec<Version>>,
    volatile: bool,
    discarded: Discarded,
    writes: u64,
    /// Faults.
    pub faults: Faults,
}

impl SimDrive {
    /// A drive of zeroes. `volatile`: it has a cache that a power cut may lose.
    pub fn new(
        size_bytes: u64,
        block_bytes: u32,
        volatile: bool,
        discarded: Discarded,
    ) -> SimDrive {
        SimDrive {
            size_bytes,
            block_bytes: block_bytes as usize,
            pages: vec![None; size_bytes as usize / PAGE_BYTES],
            unflushed: BTreeMap::new(),
            volatile,
            discarded,
            writes: 0,
            faults: Faults::default(),
        }
    }

    /// Bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes of a block, the unit that is never torn.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes as u32
    }

    /// Whether a power cut may lose completed writes.
    pub fn is_volatile(&self) -> bool {
        self.volatile
    }

    /// Number of the last write: what a flush that is submitted now promises.
    pub fn written(&self) -> u64 {
        self.writes
    }

    /// The drive is taken out for good: its image is forgotten, and what is still under way on it
    /// fails.
    pub fn scrap(&mut self) {
        self.faults.dead = Some(DriveError::Gone);
        self.pages.fill(None);
        self.unflushed.clear();
    }

    /// What the image holds, faults aside.
    pub fn peek(&self, offset: u64, out: &mut [u8]) {
        let mut at = offset as usize;
        let mut done = 0;
        while done < out.len() {
            let within = at % PAGE_BYTES;
            let take = (PAGE_BYTES - within).min(out.len() - done);
            match &self.pages[at / PAGE_BYTES] {
                Some(page) => out[done..done + take].copy_from_slice(&page[within..within + take]),
                None => out[done..done + take].fill(0),
            }
            done += take;
            at += take;
        }
    }

    /// Changes the image on the media, faults aside.
    pub fn poke(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset as usize;
        let mut done = 0;
        while done < bytes.len() {
            let within = at % PAGE_BYTES;
            let take = (PAGE_BYTES - within).min(bytes.len() - done);
            let page = self.pages[at / PAGE_BYTES].get_or_insert_with(|| Box::new([0; PAGE_BYTES]));
            page[within..within + take].copy_from_slice(&bytes[done..done + take]);
            done += take;
            at += take;
        }
    }

    /// Carries an operation out. `promised`: for a flush, [`SimDrive::written`] at its submission.
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
                if touches(&self.faults.bad_reads, offset, into.len() as u64) {
                    return Err(DriveError::Io(5));
                }
                into.with_mut(|out| self.peek(offset, out));
            }
            DriveOp::Write {
                offset,
                from,
                durable,
            } => {
                if touches(&self.faults.bad_writes, offset, from.len() as u64) {
                    self.land_in_part(
                        DriveOp::Write {
                            offset,
                            from,
                            durable,
                        },
                        rng,
                    );
                    return Err(DriveError::Io(5));
                }
                from.with(|bytes| self.write(offset, bytes, durable));
            }
            DriveOp::WriteZeroes { offset, length } => {
                if touches(&self.faults.bad_writes, offset, length) {
                    self.land_in_part(DriveOp::WriteZeroes { offset, length }, rng);
                    return Err(DriveError::Io(5));
                }
                self.write(offset, &vec![0; length as usize], false);
            }
            DriveOp::Discard { offset, length } => self.discard(offset, length, rng),
            DriveOp::Flush => self.flushed(promised),
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8], durable: bool) {
        assert!(
            offset.is_multiple_of(self.block_bytes as u64)
                && bytes.len().is_multiple_of(self.block_bytes)
                && offset + bytes.len() as u64 <= self.size_bytes,
            "write of {} bytes at {offset} to a drive of {} bytes in blocks of {}",
            bytes.len(),
            self.size_bytes,
            self.block_bytes
        );
        self.writes += 1;
        let end = offset + bytes.len() as u64;
        self.faults
            .bad_reads
            .retain(|bad| !(offset <= bad.start && bad.end <= end));
        if self.volatile {
            for (index, block) in bytes.chunks(self.block_bytes).enumerate() {
                self.cache(
                    offset / self.block_bytes as u64 + index as u64,
                    block,
                    durable,
                );
            }
        }
        self.poke(offset, bytes);
    }

    fn cache(&mut self, block: u64, content: &[u8], durable: bool) {
        if durable {
            self.unflushed.remove(&block);
            return;
        }
        if !self.unflushed.contains_key(&block) {
            let mut media = vec![0; self.block_bytes];
            self.peek(block * self.block_bytes as u64, &mut media);
            self.unflushed
                .insert(block, vec![(0, media.into_boxed_slice())]);
        }
        let versions = self.unflushed.get_mut(&block).expect("just made sure");
        versions.push((self.writes, content.into()));
    }

    fn flushed(&mut self, promised: u64) {
        self.unflushed.retain(|_, versions| {
            let kept = versions
                .iter()
                .rposition(|&(number, _)| number <= promised)
                .unwrap_or(0);
            versions.drain(..kept);
            versions.len() > 1
        });
    }

    fn discard(&mut self, offset: u64, length: u64, rng: &mut Rng) {
        match self.discarded {
            Discarded::Old => {}
            Discarded::Zeroes => self.write(offset, &vec![0; length as usize], false),
            Discarded::Garbage => {
                let mut garbage = vec![0; length as usize];
                let word = rng.u64(..) | 1;
                for (index, bytes) in garbage.chunks_exact_mut(8).enumerate() {
                    bytes.copy_from_slice(&(word.wrapping_mul(index as u64 | 1)).to_le_bytes());
                }
                self.write(offset, &garbage, false);
            }
        }
    }

    /// Some blocks of an operation land: it failed, or a crash came before its end.
    pub fn land_in_part(&mut self, op: DriveOp, rng: &mut Rng) {
        let block = self.block_bytes;
        let lands = rng.u8(0..3);
        let mut part = |drive: &mut SimDrive, offset: u64, bytes: &[u8]| {
            for (index, bytes) in bytes.chunks(block).enumerate() {
                if lands == 2 || lands == 1 && rng.bool() {
                    drive.write(offset + (index * block) as u64, bytes, false);
                }
            }
        };
        match op {
            DriveOp::Write { offset, from, .. } => from.with(|bytes| part(self, offset, bytes)),
            DriveOp::WriteZeroes { offset, length } => {
                part(self, offset, &vec![0; length as usize])
            }
            _ => {}
        }
    }

    /// The power went: each block that was not flushed holds one of the contents it had since.
    pub fn power_cut(&mut self, rng: &mut Rng) {
        for (block, versions) in std::mem::take(&mut self.unflushed) {
            let (_, content) = &versions[rng.usize(..versions.len())];
            self.poke(block * self.block_bytes as u64, content);
        }
    }
}

fn touches(ranges: &[Range<u64>], offset: u64, length: u64) -> bool {
    ranges
        .iter()
        .any(|range| range.start < offset + length && offset < range.end)
}
