//! What each block may hold, from nothing but requests and answers. Shares no code with the
//! engine.
//!
//! A read may return a write's content unless another write surely came after it and surely
//! before the read: it was submitted when the first had ended, and acknowledged when the read was
//! submitted. So of overlapping writes any may win, and a write that failed may have happened. A
//! power cut undoes what no flush and no FUA made durable; a block then holds any content since
//! the last that was durable.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::content::Stamp;

/// One write to a block.
#[derive(Debug, Clone)]
struct Version {
    write: u64,
    stamp: Stamp,
    submitted: u64,
    /// When it was answered; `None`: under way.
    ended: Option<u64>,
    acknowledged: bool,
    durable: bool,
}

/// A read or write under way.
#[derive(Debug, Clone)]
struct Flight {
    blocks: Range<u64>,
    submitted: u64,
}

/// A block that holds what it must not.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Block number.
    pub block: u64,
    /// Content found; `None`: nothing that was ever written to this block.
    pub found: Option<Stamp>,
    /// What may be there.
    pub allowed: Vec<Stamp>,
}

/// All blocks of a volume.
pub struct Model {
    blocks: Vec<Vec<Version>>,
    now: u64,
    next: u64,
    reads: BTreeMap<u64, Flight>,
    writes: BTreeMap<u64, Flight>,
    flushes: BTreeMap<u64, u64>,
    /// Submission of the newest flush that has been acknowledged.
    flushed: u64,
    /// Drives may lose what was not flushed.
    volatile: bool,
}

impl Model {
    /// A volume of zeroes. `volatile`: what is not flushed may be lost.
    pub fn new(blocks: u64, volatile: bool) -> Model {
        let zero = Version {
            write: 0,
            stamp: 0,
            submitted: 0,
            ended: Some(0),
            acknowledged: true,
            durable: true,
        };
        Model {
            blocks: vec![vec![zero]; blocks as usize],
            now: 1,
            next: 1,
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            flushes: BTreeMap::new(),
            flushed: 0,
            volatile,
        }
    }

    /// Blocks of the volume.
    pub fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// True for a volume without blocks.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A write of `stamp` to each of `blocks` is about to be submitted (0: zeroing, discarding).
    pub fn write_submitted(&mut self, blocks: Range<u64>, stamp: Stamp) -> u64 {
        let (write, submitted) = (self.number(), self.tick());
        for block in blocks.clone() {
            self.blocks[block as usize].push(Version {
                write,
                stamp,
                submitted,
                ended: None,
                acknowledged: false,
                durable: false,
            });
        }
        self.writes.insert(write, Flight { blocks, submitted });
        write
    }

    /// It was answered.
    pub fn write_ended(&mut self, write: u64, acknowledged: bool, durable: bool) {
        let ended = self.tick();
        let flight = self.writes.remove(&write).expect("a write ends once");
        let oldest_read = self
            .reads
            .values()
            .map(|r| r.submitted)
            .min()
            .unwrap_or(u64::MAX);
        for block in flight.blocks {
            let versions = &mut self.blocks[block as usize];
            let version = versions
                .iter_mut()
                .find(|v| v.write == write)
                .expect("was submitted");
            version.ended = Some(ended);
            version.acknowledged = acknowledged;
            version.durable = acknowledged && durable;
            self.prune(block, oldest_read);
        }
    }

    /// A flush is about to be submitted.
    pub fn flush_submitted(&mut self) -> u64 {
        let (flush, submitted) = (self.number(), self.tick());
        self.flushes.insert(flush, submitted);
        flush
    }

    /// It was answered.
    pub fn flush_ended(&mut self, flush: u64, acknowledged: bool) {
        self.tick();
        let submitted = self.flushes.remove(&flush).expect("a flush ends once");
        if acknowledged {
            self.flushed = self.flushed.max(submitted);
        }
    }

    /// A read is about to be submitted.
    pub fn read_submitted(&mut self, blocks: Range<u64>) -> u64 {
        let (read, submitted) = (self.number(), self.tick());
        self.reads.insert(read, Flight { blocks, submitted });
        read
    }

    /// It failed: nothing is learned.
    pub fn read_failed(&mut self, read: u64) {
        self.reads.remove(&read).expect("a read ends once");
    }

    /// It returned these contents, one a block.
    ///
    /// # Errors
    /// The first block that holds what it must not.
    pub fn read_ended(&mut self, read: u64, contents: &[Option<Stamp>]) -> Result<(), Violation> {
        self.tick();
        let flight = self.reads.remove(&read).expect("a read ends once");
        assert_eq!(
            contents.len() as u64,
            flight.blocks.end - flight.blocks.start
        );
        for (block, &found) in flight.blocks.zip(contents) {
            let allowed = self.allowed(block, flight.submitted);
            if !found.is_some_and(|found| allowed.contains(&found)) {
                return Err(Violation {
                    block,
                    found,
                    allowed,
                });
            }
        }
        Ok(())
    }

    /// Contents that a read submitted at `at` and ending now may return.
    fn allowed(&self, block: u64, at: u64) -> Vec<Stamp> {
        let versions = &self.blocks[block as usize];
        versions
            .iter()
            .filter(|v| {
                !versions
                    .iter()
                    .any(|w| self.covers(w, v) && w.ended < Some(at))
            })
            .map(|v| v.stamp)
            .collect()
    }

    /// `w` was acknowledged and surely came after `v`.
    fn covers(&self, w: &Version, v: &Version) -> bool {
        w.acknowledged && v.ended.is_some_and(|ended| ended < w.submitted)
    }

    fn is_durable(&self, v: &Version) -> bool {
        !self.volatile
            || v.durable
            || v.acknowledged && v.ended.is_some_and(|ended| ended < self.flushed)
    }

    /// Forgets versions that no read under way and no power cut can bring back.
    fn prune(&mut self, block: u64, oldest_read: u64) {
        let versions = &self.blocks[block as usize];
        if versions.len() < 2 {
            return;
        }
        let kept: Vec<bool> = versions
            .iter()
            .map(|v| {
                !versions
                    .iter()
                    .any(|w| self.covers(w, v) && w.ended < Some(oldest_read) && self.is_durable(w))
            })
            .collect();
        let mut kept = kept.into_iter();
        self.blocks[block as usize].retain(|_| kept.next().expect("one each"));
    }

    /// The program is gone: nothing under way is answered any more. After a power cut only what
    /// is durable is sure.
    pub fn crashed(&mut self, power: bool) {
        let at = self.tick();
        self.reads.clear();
        self.writes.clear();
        self.flushes.clear();
        for block in 0..self.blocks.len() {
            for version in &mut self.blocks[block] {
                version.ended.get_or_insert(at);
            }
            let versions = &self.blocks[block];
            if versions.len() == 1 {
                continue;
            }
            let lost = power && self.volatile;
            let kept: Vec<bool> = versions
                .iter()
                .map(|v| {
                    !versions
                        .iter()
                        .any(|w| self.covers(w, v) && self.is_durable(w))
                })
                .collect();
            let mut kept = kept.into_iter();
            let versions = &mut self.blocks[block];
            versions.retain(|_| kept.next().expect("one each"));
            if versions.len() > 1 && lost {
                // Any of them, and none of them the surely last.
                for version in versions {
                    version.acknowledged = false;
                    version.ended = Some(at);
                }
            }
        }
        if power {
            self.flushed = at;
        }
    }

    /// What a block was found to hold is from now on what it holds (nothing is under way).
    pub fn settle(&mut self, block: u64, stamp: Stamp) {
        let at = self.tick();
        let (volatile, flushed) = (self.volatile, self.flushed);
        let versions = &mut self.blocks[block as usize];
        if versions.len() == 1 {
            return;
        }
        let mut found = versions
            .iter()
            .rfind(|v| v.stamp == stamp)
            .expect("was allowed")
            .clone();
        // Written before the newest flush, acknowledged or not: it is on the media.
        found.durable |= found.ended.is_some_and(|ended| ended < flushed);
        found.acknowledged = true;
        found.submitted = at;
        found.ended = Some(at);
        if !volatile || found.durable {
            versions.clear();
        }
        versions.push(found);
    }

    /// Requests under way.
    pub fn under_way(&self) -> usize {
        self.reads.len() + self.writes.len() + self.flushes.len()
    }
}

#[cfg(test)]
mod tests;
