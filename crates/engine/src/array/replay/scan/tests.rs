//! Rings as a crash leaves them, read with little memory: the scan finds what is found in a ring
//! that is looked at as a whole.

use super::super::super::tests::superblock;
use super::*;
use crate::format::bytes::crc32c;
use crate::format::log::record::{EntryHead, RecordHead, Writer};
use crate::format::region_map::{RegionEntry, RegionMap, RegionState};
use crate::format::superblock::{Consistency, Superblock};
use crate::layout::Level;
use std::collections::BTreeSet;
use uuid::Uuid;

const MEMBERS: usize = 5;
const STRIP: u64 = 4096;
/// Room for two reads of the smallest size at once, and for every record.
const MEMORY_BYTES: usize = 80 << 10;
const ROUNDS: u64 = 100;
/// Records before one that it says must be there.
const NEEDED: u64 = 6;
/// Of a record's first bytes each counts.
const RECORD_HEADER: usize = record::RECORD_HEAD_BYTES;

/// What a member's drive says of its ring.
struct Drive {
    ring: Vec<u8>,
    /// Pages that cannot be read in the walk, and then when records are fetched.
    bad_pages: [BTreeSet<u64>; 2],
    /// It is gone after so many reads.
    reads_left: u32,
}

struct Rings {
    superblock: Superblock,
    from: Replay,
    drives: Vec<Drive>,
}

/// Checksums of payloads by member, by entry.
type Entries = BTreeMap<u64, Vec<(u16, u32)>>;

impl Rings {
    /// Rings written round in two epochs: what the first has left lies between the second's.
    fn written(rng: &mut fastrand::Rng) -> Rings {
        let mut superblock = superblock(Level::Raid6, MEMBERS, STRIP);
        superblock.consistency = Consistency::Log;
        let from = Replay {
            epoch: 2,
            lineage: Uuid::from_u128(20),
        };
        let ring_bytes = ring(superblock.areas.log).length as usize;
        let drive = |_| Drive {
            ring: vec![0; ring_bytes],
            bad_pages: Default::default(),
            reads_left: u32::MAX,
        };
        let mut rings = Rings {
            superblock,
            from,
            drives: (0..MEMBERS).map(drive).collect(),
        };
        rings.write(1, rng);
        rings.write(2, rng);
        rings
    }

    fn write(&mut self, epoch: u64, rng: &mut fastrand::Rng) {
        let mut written = [(0, 0, 0); MEMBERS];
        let mut sequence = 1;
        for left in (0..rng.u32(0..600)).rev() {
            let place = rng.usize(..MEMBERS);
            let (at, number, complete) = &mut written[place];
            *number += 1;
            let oldest = sequence - sequence.min(rng.u64(1..60)) + 1;
            let entries = entries(&mut sequence, rng);
            let bytes: usize = entries.iter().map(EntryHead::bytes).sum();
            let payload: usize = entries.iter().map(EntryHead::payload_bytes).sum();
            let mut record = vec![0; record::record_bytes(bytes, payload)];
            if *at + record.len() > self.drives[place].ring.len() {
                *at = 0;
            }
            let mut writer = Writer::new(&mut record, bytes);
            for entry in &entries {
                rng.fill(writer.entry(entry, 0..entry.checksums() as u32));
            }
            writer.finish(&RecordHead {
                array_uuid: self.superblock.array_uuid,
                member_uuid: self.superblock.members[place].uuid,
                epoch,
                lineage: self.from.lineage,
                own_offset: ring(self.superblock.areas.log).offset + *at as u64,
                number: *number,
                oldest,
                first: number.saturating_sub(NEEDED).max(1),
                complete: *complete,
            });
            if left >= 6 {
                *complete = *number;
            }
            // Of those written last some are torn.
            let torn = left < 6 && rng.bool();
            let pages = record.chunks(RECORD_ALIGN).enumerate();
            for (page, bytes) in pages.filter(|_| !torn || rng.bool()) {
                let at = *at + page * RECORD_ALIGN;
                self.drives[place].ring[at..at + bytes.len()].copy_from_slice(bytes);
            }
            *at += record.len();
        }
    }

    /// What is found in rings that are looked at as a whole, and what is retired.
    fn expected(&self, places: impl Iterator<Item = usize>) -> (Entries, u64) {
        let (mut found, mut retired) = (Entries::new(), 0);
        for place in places {
            let area = ring(self.superblock.areas.log);
            let mut bytes = self.drives[place].ring.clone();
            for &page in &self.drives[place].bad_pages[0] {
                bytes[page as usize * RECORD_ALIGN..][..RECORD_ALIGN].fill(0);
            }
            let mut at = 0;
            while at < bytes.len() {
                let raw = &bytes[at..];
                let whole = record::decode(raw, area.offset + at as u64).ok();
                let Some(record) = whole.filter(|record| record.head.epoch == self.from.epoch)
                else {
                    at += RECORD_ALIGN;
                    continue;
                };
                at += record.bytes;
                retired = retired.max(record.head.oldest);
                for entry in record.entries {
                    let payload = crc32c(&raw[entry.payload]);
                    let payloads = found.entry(entry.head.sequence).or_default();
                    payloads.push((place as u16, payload));
                }
            }
        }
        found.retain(|&sequence, _| sequence >= retired);
        (found, retired)
    }

    /// A start, up to where the rings have been read.
    fn scan(&mut self, rng: &mut fastrand::Rng) -> Array {
        let mut regions = RegionMap::new(self.superblock.regions());
        regions
            .entries
            .fill(RegionEntry::new(RegionState::Dirty, 1));
        let start = Start {
            present: vec![true; MEMBERS],
            regions,
            superblock: self.superblock.clone(),
            volatile: Vec::new(),
            replay: Some(self.from),
            store: crate::format::store::Store::new(),
            store_changed: false,
            store_behind: Vec::new(),
            pages_behind: BTreeMap::new(),
            copy_b_first: Vec::new(),
            read_only: false,
            accept_doubtful: false,
            memory_bytes: MEMORY_BYTES,
            now_ns: 1,
        };
        let code = code_of(&self.superblock).expect("the shape has a code");
        let (mut out, mut pending) = (Vec::new(), Vec::new());
        let mut array = Array::start(start, code, &mut out);
        loop {
            pending.extend(out.drain(..).filter_map(|action| match action {
                Action::Io(io) => Some(io),
                _ => None,
            }));
            if array.replayer.as_ref().is_some_and(|it| it.scanned) || pending.is_empty() {
                return array;
            }
            let io = pending.swap_remove(rng.usize(..pending.len()));
            if io.kind == IoKind::ReadMeta {
                let fetching = array.replayer().scans.fetching;
                let reads = pending.iter().filter(|io| io.kind == IoKind::ReadMeta);
                let read: u32 = reads.map(|io| io.length).sum();
                assert!(read as usize <= MEMORY_BYTES, "{read} bytes under way");
                let (result, bytes) = self.read(&io, fetching);
                array.read_done(io.token, result, &bytes, &mut out);
            } else {
                array.io_done(io.token, Ok(()), &mut out);
            }
        }
    }

    fn read(&mut self, io: &Io, fetching: bool) -> (Result<(), IoError>, Vec<u8>) {
        let drive = &mut self.drives[io.member.at()];
        if drive.reads_left == 0 {
            return (Err(IoError::Gone), Vec::new());
        }
        drive.reads_left -= 1;
        let at = io.offset - ring(self.superblock.areas.log).offset;
        let end = at + u64::from(io.length);
        let bad = &drive.bad_pages[usize::from(fetching)];
        let result = match bad.range(at / PAGE_BYTES..end / PAGE_BYTES).next() {
            Some(_) => Err(IoError::Range),
            None => Ok(()),
        };
        (result, drive.ring[at as usize..end as usize].to_vec())
    }
}

/// Entries of one record, of rows that the array has.
fn entries(sequence: &mut u64, rng: &mut fastrand::Rng) -> Vec<EntryHead> {
    let most = if rng.u8(..8) == 0 { 8 } else { 3 };
    let count = rng.usize(..most);
    let entry = |_| {
        *sequence += 1;
        EntryHead {
            sequence: *sequence - 1,
            stripe: rng.u64(..4),
            start: 0,
            end: STRIP as u32,
            written: 0b1,
            live: 0b11111,
            carriers: 0, // void is none of them: something is read of every row
            logged: rng.u64(..2),
            old: 0b1,
            unit_bytes: STRIP as u32,
            partial: rng.bool(),
        }
    };
    (0..count).map(entry).collect()
}

fn found(array: &Array) -> Entries {
    let found = array.replayer.iter().flat_map(|it| &it.found);
    found
        .map(|(&order, found)| {
            let payloads = found.payloads.iter();
            let mut payloads: Vec<_> = payloads.map(|(m, bytes)| (*m, crc32c(bytes))).collect();
            payloads.sort_unstable();
            (order, payloads)
        })
        .collect()
}

#[test]
fn rings_read_with_little_memory_say_what_they_say_as_a_whole() {
    let mut in_force = 0;
    for seed in 0..ROUNDS {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut rings = Rings::written(rng);
        // Of one only: with both logs of a row in doubt it is left alone.
        for drive in rings.drives.iter_mut().skip(rng.usize(..MEMBERS)).take(1) {
            let pages = (drive.ring.len() / RECORD_ALIGN) as u64;
            let bad = [0, 0, 1, 5][rng.usize(..4)];
            drive.bad_pages[0] = (0..bad).map(|_| rng.u64(..pages)).collect();
            drive.bad_pages[1] = drive.bad_pages[0].clone();
        }
        let (expected, _) = rings.expected(0..MEMBERS);
        let array = rings.scan(rng);
        assert_eq!(found(&array), expected, "seed {seed}");
        in_force += expected.len();
        for (place, drive) in rings.drives.iter().enumerate() {
            let member = MemberIndex(place as u16);
            let Some(replayer) = &array.replayer else {
                continue; // nothing to be done, and done
            };
            let whole = drive.bad_pages[0].is_empty();
            assert_eq!(replayer.vouches[place], whole, "seed {seed}");
            assert_eq!(!replayer.unreadable.contains(&member), whole);
        }
    }
    assert!(in_force > 500, "{in_force} entries");
}

#[test]
fn a_record_that_cannot_be_fetched_makes_its_log_unreadable() {
    let mut lost = 0;
    for seed in 0..ROUNDS {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut rings = Rings::written(rng);
        let (whole, _) = rings.expected(0..MEMBERS);
        let bad = &mut rings.drives[2].bad_pages[1];
        bad.extend((0..255).filter(|_| rng.u8(..4) == 0));
        let array = rings.scan(rng);
        let found = found(&array);
        let has = |found: &Entries| -> usize {
            let payloads = found.values().flatten();
            payloads.filter(|(place, _)| *place == 2).count()
        };
        let missing = has(&whole) - has(&found);
        if let Some(replayer) = &array.replayer {
            assert_eq!(replayer.vouches[2], missing == 0, "seed {seed}");
            assert_eq!(replayer.unreadable.is_empty(), missing == 0, "seed {seed}");
        }
        lost += missing;
    }
    assert!(lost > 50, "{lost} entries");
}

#[test]
fn a_record_that_the_drive_has_lost_makes_its_log_unreadable() {
    let mut rounds = 0;
    for seed in 0..ROUNDS {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut rings = Rings::written(rng);
        let area = ring(rings.superblock.areas.log);
        let bytes = &rings.drives[3].ring;
        let at = (0..bytes.len()).step_by(RECORD_ALIGN);
        let heads = at.filter_map(|at| {
            let record = record::decode(&bytes[at..], area.offset + at as u64).ok()?;
            (record.head.epoch == 2).then_some((record.head.number, at, record.head))
        });
        let heads: BTreeMap<u64, _> = heads.map(|(n, at, head)| (n, (at, head))).collect();
        let Some((_, (_, newest))) = heads.last_key_value() else {
            continue;
        };
        let needed: Vec<usize> = heads
            .iter()
            .filter(|(number, _)| (newest.first..=newest.complete).contains(number))
            .map(|(_, (at, _))| *at)
            .collect();
        if needed.is_empty() {
            continue;
        }
        // Rotted, or never written: what lay there before is left.
        let at = needed[rng.usize(..needed.len())];
        let page = &mut rings.drives[3].ring[at..at + RECORD_ALIGN];
        if rng.bool() {
            page[rng.usize(..RECORD_HEADER)] ^= 1 << rng.u32(..8);
        } else {
            page.fill(0);
        }
        let array = rings.scan(rng);
        if let Some(replayer) = &array.replayer {
            rounds += 1;
            assert_eq!(replayer.unreadable, [MemberIndex(3)], "seed {seed}");
            assert!(!replayer.vouches[3]);
        }
    }
    assert!(rounds > 50, "{rounds} rounds");
}

#[test]
fn a_drive_that_leaves_while_rings_are_read_takes_its_own_with_it_at_most() {
    for seed in 0..ROUNDS {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut rings = Rings::written(rng);
        rings.drives[1].reads_left = rng.u32(..80);
        let others = || (0..MEMBERS).filter(|&place| place != 1);
        let (most, _) = rings.expected(others());
        let (_, retired) = rings.expected(0..MEMBERS);
        let array = rings.scan(rng);
        let mut found = found(&array);
        if rings.drives[1].reads_left == 0
            && let Some(replayer) = &array.replayer
            && !array.members()[1].is_live()
        {
            assert!(!replayer.vouches[1] && replayer.unreadable.is_empty());
        }
        let of_others = |(place, _): &(u16, u32)| *place != 1;
        found.values_mut().for_each(|it| it.retain(of_others));
        found.retain(|_, payloads| !payloads.is_empty());
        for (order, payloads) in &most {
            match found.remove(order) {
                Some(found) => assert_eq!(&found, payloads, "seed {seed}"),
                None => assert!(*order < retired, "seed {seed}, entry {order}"),
            }
        }
        assert!(found.is_empty(), "seed {seed}");
    }
}
