//! What each block may hold, from nothing but requests and answers. Shares no code with the
//! engine.
//!
//! A read may return a write's content unless another write surely came after it and surely
//! before the read: it was submitted when the first had ended, and acknowledged when the read was
//! submitted. So of overlapping writes any may win, and a write that failed may have happened. A
//! power cut undoes what no flush and no FUA made durable; a block then holds any content since
//! the last that was durable. A block that was in doubt at a crash may be *torn* where the caller
//! says so: an error is then one of its contents ([`TORN`]), and like any other it stays once it
//! was seen, until something is written.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::content::{MIXED, Stamp, TORN};

/// One write to a block.
#[derive(Debug, Clone, Copy)]
struct Version {
    write: u64,
    stamp: Stamp,
    submitted: u64,
    /// When it was answered; `None`: under way.
    ended: Option<u64>,
    acknowledged: bool,
    durable: bool,
}

const ZERO: Version = Version {
    write: 0,
    stamp: 0,
    submitted: 0,
    ended: Some(0),
    acknowledged: true,
    durable: true,
};

/// What a crash may have made of a block.
fn lost(at: u64, stamp: Stamp) -> Version {
    Version {
        write: 0,
        stamp,
        submitted: at,
        ended: Some(at),
        acknowledged: false,
        durable: false,
    }
}

/// `w` was acknowledged and surely came after `v`.
fn covers(w: &Version, v: &Version) -> bool {
    w.acknowledged && v.ended.is_some_and(|ended| ended < w.submitted)
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

/// Whether a block may be torn by a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tear {
    /// Never.
    No,
    /// If it was being written, or was not durable.
    Doubtful,
    /// The same, and it may also hold a part of each content.
    Mixed,
    /// Whatever it held.
    Any,
    /// Both.
    AnyMixed,
}

/// All blocks of a volume.
#[derive(Clone)]
pub struct Model {
    len: u64,
    /// Blocks that were ever written; the others are zeroes.
    blocks: BTreeMap<u64, Vec<Version>>,
    /// Blocks of which nothing is promised any more.
    void: BTreeSet<u64>,
    /// The last crash.
    crashed_at: u64,
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
        Model {
            len: blocks,
            blocks: BTreeMap::new(),
            void: BTreeSet::new(),
            crashed_at: 0,
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
        self.len
    }

    /// True for a volume without blocks.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn versions(&mut self, block: u64) -> &mut Vec<Version> {
        self.blocks.entry(block).or_insert_with(|| vec![ZERO])
    }

    /// Blocks that hold, or may hold, something else than at the beginning.
    pub fn touched(&self) -> impl Iterator<Item = u64> + '_ {
        self.blocks.keys().copied()
    }

    /// Blocks of which more than one content is possible: under way, or not durable.
    pub fn doubtful(&self) -> impl Iterator<Item = u64> + '_ {
        let doubtful = self.blocks.iter().filter(|(_, v)| v.len() > 1);
        doubtful.map(|(&block, _)| block)
    }

    /// Nothing is promised of a block any more.
    pub fn give_up(&mut self, block: u64) {
        self.void.insert(block);
    }

    /// The administrator takes what may be torn as it is.
    pub fn accept(&mut self) {
        let torn = self.blocks.keys().filter(|&&block| self.may_be_torn(block));
        let torn: Vec<u64> = torn.copied().collect();
        self.void.extend(torn);
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
            self.versions(block).push(Version {
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
            let version = self
                .versions(block)
                .iter_mut()
                .find(|v| v.write == write)
                .expect("was submitted");
            version.ended = Some(ended);
            version.acknowledged = acknowledged;
            version.durable = acknowledged && durable;
            self.prune(block, oldest_read);
        }
    }

    /// Blocks of a write under way.
    pub fn blocks_of(&self, write: u64) -> Range<u64> {
        self.writes[&write].blocks.clone()
    }

    /// What a block holds now may be lost with the next drive.
    pub fn may_tear(&mut self, block: u64) {
        let at = self.tick();
        self.versions(block).push(lost(at, TORN));
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

    /// It failed. False: none of its blocks may be torn.
    pub fn read_failed(&mut self, read: u64) -> bool {
        let flight = self.reads.remove(&read).expect("a read ends once");
        let mut blocks = flight.blocks;
        blocks.any(|block| self.allowed(block, flight.submitted).contains(&TORN))
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
            let fits = found.is_some_and(|found| found != TORN && allowed.contains(&found));
            if !fits && !self.void.contains(&block) && !allowed.contains(&MIXED) {
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
        if self.void.contains(&block) {
            return vec![TORN];
        }
        let Some(versions) = self.blocks.get(&block) else {
            return vec![ZERO.stamp];
        };
        versions
            .iter()
            .filter(|v| !versions.iter().any(|w| covers(w, v) && w.ended < Some(at)))
            .map(|v| v.stamp)
            .collect()
    }

    fn is_durable(&self, v: &Version) -> bool {
        !self.volatile
            || v.durable
            || v.acknowledged && v.ended.is_some_and(|ended| ended < self.flushed)
    }

    /// Forgets versions that no read under way and no power cut can bring back.
    fn prune(&mut self, block: u64, oldest_read: u64) {
        let Some(mut versions) = self.blocks.remove(&block) else {
            return;
        };
        if versions.len() > 1 {
            let all = versions.clone();
            versions.retain(|v| {
                let mut others = all.iter();
                !others.any(|w| covers(w, v) && w.ended < Some(oldest_read) && self.is_durable(w))
            });
        }
        self.blocks.insert(block, versions);
    }

    /// The program is gone: nothing under way is answered any more. After a power cut only what
    /// is durable is sure. `tear` says which blocks may be torn by it.
    pub fn crashed(&mut self, power: bool, tear: impl Fn(u64) -> Tear) {
        let at = self.tick();
        self.reads.clear();
        self.writes.clear();
        self.flushes.clear();
        let touched: Vec<u64> = self.blocks.keys().copied().collect();
        for block in touched {
            for version in self.versions(block) {
                version.ended.get_or_insert(at);
            }
            self.prune(block, at);
            let cut = power && self.volatile;
            let versions = self.versions(block);
            if versions.len() > 1 && cut {
                // Any of them, and none of them the surely last.
                for version in versions.iter_mut() {
                    version.acknowledged = false;
                    version.ended = Some(at);
                }
            }
            if versions.len() > 1 {
                match tear(block) {
                    Tear::Doubtful => versions.push(lost(at, TORN)),
                    Tear::Mixed => versions.extend([lost(at, TORN), lost(at, MIXED)]),
                    Tear::AnyMixed => versions.push(lost(at, MIXED)),
                    Tear::No | Tear::Any => {}
                }
            }
        }
        for block in 0..self.len {
            if matches!(tear(block), Tear::Any | Tear::AnyMixed) {
                self.versions(block).push(lost(at, TORN));
            }
        }
        self.crashed_at = at;
        if power {
            self.flushed = at;
        }
    }

    /// More was lost before the start after the last crash had ended: as good as lost with it.
    pub fn torn_too(&mut self, tear: impl Fn(u64) -> Tear) {
        let at = self.crashed_at;
        for block in 0..self.len {
            let before = |versions: &[Version]| {
                let before = versions.iter().filter(|v| v.submitted <= at);
                before.count() > 1
            };
            let doubtful = self.blocks.get(&block).is_some_and(|v| before(v));
            match tear(block) {
                Tear::Any | Tear::AnyMixed => self.versions(block).push(lost(at, TORN)),
                Tear::Doubtful | Tear::Mixed if doubtful => {
                    self.versions(block).push(lost(at, TORN));
                }
                _ => {}
            }
        }
    }

    /// What a block was found to hold is from now on what it holds (nothing is under way). With
    /// `replayed`, the start after the last crash made durable whatever the crash left.
    pub fn settle(&mut self, block: u64, stamp: Stamp, replayed: bool) {
        if self.void.contains(&block) {
            return;
        }
        let at = self.tick();
        let (volatile, flushed, crashed_at) = (self.volatile, self.flushed, self.crashed_at);
        let Some(versions) = self.blocks.get_mut(&block) else {
            return;
        };
        if versions.len() == 1 {
            return;
        }
        let found = versions.iter().rfind(|v| v.stamp == stamp);
        let Some(&(mut found)) = found else {
            return; // a mixture that was allowed
        };
        // Written before the newest flush, acknowledged or not: it is on the media.
        found.durable |= found.ended.is_some_and(|ended| ended < flushed);
        found.durable |= (replayed || stamp == TORN) && found.ended <= Some(crashed_at);
        found.acknowledged = true;
        found.submitted = at;
        found.ended = Some(at);
        if !volatile || found.durable {
            versions.clear();
        }
        versions.push(found);
    }

    /// Whether a block may read as an error now.
    pub fn may_be_torn(&self, block: u64) -> bool {
        self.allowed(block, u64::MAX).contains(&TORN)
    }

    /// Adds what the model knows to a hash: models that promise the same hash the same.
    pub fn hash_into(&self, hash: &mut u64) {
        use crate::image::mix;
        for (&block, versions) in &self.blocks {
            mix(hash, block);
            for v in versions {
                let flags = u64::from(v.acknowledged) << 1 | u64::from(self.is_durable(v));
                mix(hash, v.stamp);
                mix(hash, flags);
                // Which of them surely came after which others.
                let covered = versions.iter().filter(|w| covers(v, w)).count();
                mix(hash, covered as u64);
            }
        }
        for &block in &self.void {
            mix(hash, !block);
        }
    }

    /// Requests under way.
    pub fn under_way(&self) -> usize {
        self.reads.len() + self.writes.len() + self.flushes.len()
    }
}

#[cfg(test)]
mod tests;
