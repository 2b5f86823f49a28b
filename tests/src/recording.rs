//! What may be on drives after a power cut, from the record that `recorded:` drives keep.
//!
//! A moment is a length of the record. At a moment, a change is *surely there* when it completed
//! and is durable: written so, made durable by a flush that was submitted after its completion
//! and has completed too, or at once where the drive's cache is not volatile. Every other change
//! submitted by then may be there whole, in part or not at all, whatever became of the others.
//! What a discarded range reads as is not defined. Linux's dm-log-writes does the same for file
//! systems.
//!
//! The format is read from its description (`reactor/src/drive/recorded.rs`); no code is shared.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: &[u8] = b"STRKREC1";
const HEAD_BYTES: usize = 40;
const PAGE: u64 = 4096;

/// A record, read whole.
pub struct Recording {
    bytes: Vec<u8>,
    drives: Vec<String>,
    changes: Vec<Change>,
    /// The end of every event, in order.
    moments: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// Where its content is in the record.
    Write(Range<usize>),
    Zero,
    Discard,
    Flush,
}

#[derive(Debug, Clone)]
struct Change {
    drive: u16,
    kind: Kind,
    offset: u64,
    length: u64,
    durable_at_once: bool,
    submitted: u64,
    /// `None`: never, or with an error.
    completed: Option<u64>,
    /// From then on it is surely there.
    durable: Option<u64>,
}

/// How drives treat what is not durable when the power goes.
#[derive(Debug, Clone)]
pub struct PowerCut {
    /// When.
    pub moment: u64,
    /// Pieces of a change that land or do not: 512, or the array's block where drives are
    /// taken to write blocks whole.
    pub piece_bytes: u64,
    /// Decides what lands.
    pub seed: u64,
}

impl Recording {
    /// Reads the record; `volatile` says whether a completed write of a drive, by its name, waits
    /// for a flush. An event cut off at the end is left out.
    pub fn read(path: &Path, volatile: bool) -> Recording {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(&bytes[..MAGIC.len()], MAGIC, "not a record");
        let mut recording = Recording {
            drives: Vec::new(),
            changes: Vec::new(),
            moments: Vec::new(),
            bytes: Vec::new(),
        };
        let mut by_number = BTreeMap::new();
        let mut at = MAGIC.len();
        while let Some(end) = recording.event(&bytes, at, &mut by_number) {
            recording.moments.push(end as u64);
            at = end;
        }
        recording.bytes = bytes;
        recording.find_durable(volatile);
        recording
    }

    /// Takes the event at `at`; its end, or `None` where the record ends.
    fn event(
        &mut self,
        bytes: &[u8],
        at: usize,
        by_number: &mut BTreeMap<u64, usize>,
    ) -> Option<usize> {
        let head = bytes.get(at..at + HEAD_BYTES)?;
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight"));
        let (kind, flag) = (head[0], head[1] == 1);
        let drive = u16::from_le_bytes([head[2], head[3]]);
        let (sequence, operation, offset, length) = (word(8), word(16), word(24), word(32));
        let inline = if kind <= 2 { length as usize } else { 0 };
        let content = at + HEAD_BYTES..at + HEAD_BYTES + inline;
        let name = bytes.get(content.clone())?;
        let end = content.end;
        let kind = match kind {
            1 => {
                assert_eq!(usize::from(drive), self.drives.len(), "drives are counted");
                let name = std::str::from_utf8(name).expect("drive names are text");
                self.drives.push(name.to_owned());
                return Some(end);
            }
            2 => Kind::Write(content),
            3 => Kind::Zero,
            4 => Kind::Discard,
            5 => Kind::Flush,
            6 => {
                let change = by_number.remove(&operation).expect("submitted before");
                self.changes[change].completed = flag.then_some(end as u64);
                return Some(end);
            }
            kind => panic!("event of kind {kind} at {at}"),
        };
        by_number.insert(sequence, self.changes.len());
        self.changes.push(Change {
            drive,
            kind,
            offset,
            length,
            durable_at_once: flag,
            submitted: end as u64,
            completed: None,
            durable: None,
        });
        Some(end)
    }

    fn find_durable(&mut self, volatile: bool) {
        let flushes: Vec<(u16, u64, u64)> = self
            .changes
            .iter()
            .filter(|change| change.kind == Kind::Flush)
            .filter_map(|flush| Some((flush.drive, flush.submitted, flush.completed?)))
            .collect();
        for change in &mut self.changes {
            let Some(completed) = change.completed else {
                continue;
            };
            let drive = change.drive;
            let flushed = flushes
                .iter()
                .filter(|(of, submitted, _)| *of == drive && *submitted > completed)
                .map(|(_, _, completed)| *completed)
                .min();
            let at_once = change.durable_at_once || !volatile;
            change.durable = if at_once { Some(completed) } else { flushed };
        }
    }

    /// Names of the drives: their texts behind the record's name.
    pub fn drives(&self) -> &[String] {
        &self.drives
    }

    /// Recorded changes.
    pub fn change_count(&self) -> usize {
        self.changes.len()
    }

    /// All moments between two, in order.
    pub fn moments(&self, within: Range<u64>) -> &[u64] {
        let start = self.moments.partition_point(|at| *at < within.start);
        let end = self.moments.partition_point(|at| *at < within.end);
        &self.moments[start..end]
    }

    /// What `drive` (an index of [`Recording::drives`]) holds after a power cut; `base` is what it
    /// held when the record began.
    pub fn image(&self, drive: usize, base: &Pages, cut: &PowerCut) -> Pages {
        let seed = cut.seed ^ (drive as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = fastrand::Rng::with_seed(seed);
        // A drive may have lost all of its cache, nothing of it, or anything between.
        let chance = *random
            .choice(&[0.0, 0.1, 0.5, 0.9, 1.0])
            .expect("not empty");
        let mut pages = base.clone();
        let changes = self.changes.iter();
        for change in changes.filter(|change| usize::from(change.drive) == drive) {
            if change.submitted > cut.moment || change.kind == Kind::Flush {
                continue;
            }
            let surely = change.durable.is_some_and(|durable| durable <= cut.moment);
            let lands = random.f64() < chance;
            if surely || (lands && random.bool()) {
                self.land(change, 0..change.length, &mut random, &mut pages);
            } else if lands {
                self.land_in_part(change, cut.piece_bytes, &mut random, &mut pages);
            }
        }
        pages
    }

    fn land_in_part(
        &self,
        change: &Change,
        piece_bytes: u64,
        random: &mut fastrand::Rng,
        pages: &mut Pages,
    ) {
        // The kinds of halves that drives make: a beginning, an end, anything.
        let pieces = change.length.div_ceil(piece_bytes);
        let (shape, border) = (random.u32(..3), random.u64(..=pieces));
        for piece in 0..pieces {
            let lands = match shape {
                0 => piece < border,
                1 => piece >= border,
                _ => random.bool(),
            };
            if lands {
                let start = piece * piece_bytes;
                let end = (start + piece_bytes).min(change.length);
                self.land(change, start..end, random, pages);
            }
        }
    }

    /// Makes a part of a change.
    fn land(
        &self,
        change: &Change,
        part: Range<u64>,
        random: &mut fastrand::Rng,
        pages: &mut Pages,
    ) {
        let offset = change.offset + part.start;
        let length = part.end - part.start;
        match &change.kind {
            Kind::Write(content) => {
                let start = content.start + part.start as usize;
                pages.write(offset, &self.bytes[start..start + length as usize]);
            }
            Kind::Zero => pages.zero(offset, length),
            Kind::Discard => match random.u32(..3) {
                0 => pages.zero(offset, length),
                1 => pages.garble(offset, length),
                _ => {}
            },
            Kind::Flush => {}
        }
    }
}

/// What a drive holds: pages of 4 KiB by number; absent ones are zeroes.
#[derive(Debug, Clone, Default)]
pub struct Pages(BTreeMap<u64, Vec<u8>>);

impl Pages {
    /// Makes a sparse file of `size_bytes` that holds this.
    pub fn write_to(&self, path: &Path, size_bytes: u64) {
        let file = File::create(path).expect("an image can be made");
        file.set_len(size_bytes).expect("a sparse file can be made");
        for (page, content) in &self.0 {
            let written = file.write_all_at(content, page * PAGE);
            written.expect("an image can be written");
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let count = (PAGE as usize - within).min(bytes.len() - done);
            let page = self.0.entry(at / PAGE);
            let page = page.or_insert_with(|| vec![0; PAGE as usize]);
            page[within..within + count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
    }

    fn zero(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        let whole = offset.div_ceil(PAGE)..(end / PAGE).max(offset.div_ceil(PAGE));
        let inside: Vec<u64> = self.0.range(whole.clone()).map(|(page, _)| *page).collect();
        for page in inside {
            self.0.remove(&page);
        }
        let head = (whole.start * PAGE).min(end);
        self.write(offset, &vec![0; (head - offset) as usize]);
        let tail = (whole.end * PAGE).max(head).min(end);
        self.write(tail, &vec![0; (end - tail) as usize]);
    }

    /// What nobody wrote; only where something was, so that the image stays sparse.
    fn garble(&mut self, offset: u64, length: u64) {
        for (page, content) in self.0.range_mut(offset.div_ceil(PAGE)..) {
            if (page + 1) * PAGE > offset + length {
                break;
            }
            content.fill(0xd5);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One drive with one write of two sectors over older durable ones, as a record.
    fn record(flushed: bool) -> (tempfile::TempDir, Recording) {
        let mut bytes = MAGIC.to_vec();
        let mut sequence = 0;
        let mut event = |kind: u8, flag: u8, operation: u64, offset: u64, content: &[u8]| {
            sequence += 1;
            bytes.extend([kind, flag, 0, 0, 0, 0, 0, 0]);
            for word in [sequence, operation, offset, content.len() as u64] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(content);
        };
        event(1, 0, 0, 0, b"/drive");
        event(2, 1, 0, 0, &[1; 1024]);
        event(6, 1, 2, 0, &[]);
        event(2, 0, 0, 0, &[2; 1024]);
        event(6, 1, 4, 0, &[]);
        if flushed {
            event(5, 0, 0, 0, &[]);
            event(6, 1, 6, 0, &[]);
        }
        bytes.extend([2, 0, 0]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, bytes).unwrap();
        let recording = Recording::read(&path, true);
        (folder, recording)
    }

    /// The two sectors after cuts at this moment.
    fn outcomes(recording: &Recording, moment: u64, piece_bytes: u64) -> Vec<(u8, u8)> {
        let mut seen: Vec<(u8, u8)> = (0..200)
            .map(|seed| {
                let cut = PowerCut {
                    moment,
                    piece_bytes,
                    seed,
                };
                let image = recording.image(0, &Pages::default(), &cut);
                image.0.get(&0).map_or((0, 0), |page| (page[0], page[1023]))
            })
            .collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    #[test]
    fn what_is_durable_is_there_and_what_is_not_may_be_in_any_part() {
        let (_folder, recording) = record(false);
        assert_eq!(recording.drives(), ["/drive"]);
        let end = *recording.moments.last().unwrap();
        let any = [(1, 1), (1, 2), (2, 1), (2, 2)];
        assert_eq!(outcomes(&recording, end, 512), any);
        assert_eq!(outcomes(&recording, end, 1024), [(1, 1), (2, 2)]);
        // Before the second write was submitted the first, durable, stands.
        assert_eq!(outcomes(&recording, recording.moments[2], 512), [(1, 1)]);
        let before = outcomes(&recording, recording.moments[1], 512);
        assert_eq!(before, [(0, 0), (0, 1), (1, 0), (1, 1)]);
    }

    #[test]
    fn a_flush_makes_durable_what_completed_before_it_once_it_has_completed() {
        let (_folder, recording) = record(true);
        let moments = &recording.moments;
        assert_eq!(outcomes(&recording, moments[6], 512), [(2, 2)]);
        assert_eq!(outcomes(&recording, moments[5], 512).len(), 4);
    }

    #[test]
    fn zeroing_takes_whole_pages_out_and_spares_what_lies_beside() {
        let mut pages = Pages::default();
        pages.write(0, &[3; 4 * 4096]);
        pages.zero(1000, 10_000);
        pages.zero(11_500, 100);
        let byte = |at: u64| {
            pages
                .0
                .get(&(at / PAGE))
                .map_or(0, |p| p[(at % PAGE) as usize])
        };
        assert!(!pages.0.contains_key(&1));
        let expected = [
            (999, 3),
            (1000, 0),
            (10_999, 0),
            (11_000, 3),
            (11_550, 0),
            (16_383, 3),
        ];
        for (at, value) in expected {
            assert_eq!(byte(at), value, "at {at}");
        }
    }
}
