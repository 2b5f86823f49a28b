use super::super::assemble::{AssembleOptions, Found, assemble};
use super::super::superblock::tests::sample;
use super::*;
use crate::layout::Level;
use std::collections::{BTreeMap, BTreeSet};

const EPOCH: u64 = 3;
const REGIONS: [RegionState; 4] = [
    RegionState::Clean,
    RegionState::Dirty,
    RegionState::NeedsSync,
    RegionState::Unwritten,
];

/// Members' areas as bytes; one drive a place.
struct Rig {
    superblock: Superblock,
    pages: BTreeMap<(usize, u64), Vec<u8>>,
    unreadable: BTreeSet<(usize, u64)>,
    gone: BTreeSet<usize>,
}

impl Reading for Rig {
    fn read(&mut self, drive: usize, offset: u64, out: &mut [u8]) -> bool {
        let page = MAP_PAGE_BYTES as u64;
        for (at, out) in (offset..)
            .step_by(MAP_PAGE_BYTES)
            .zip(out.chunks_mut(MAP_PAGE_BYTES))
        {
            assert!(at.is_multiple_of(page));
            if self.unreadable.contains(&(drive, at)) {
                return false;
            }
            match self.pages.get(&(drive, at)) {
                Some(bytes) => out.copy_from_slice(bytes),
                None => out.fill(0),
            }
        }
        true
    }
}

impl Rig {
    /// An array whose first regions have the states of [`REGIONS`].
    fn new(level: Level, data: u16, parity: u16) -> Rig {
        let superblock = Superblock {
            state: RunState::InUse,
            epoch: EPOCH,
            ..sample(level, 1, data, parity)
        };
        let mut rig = Rig {
            superblock,
            pages: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            gone: BTreeSet::new(),
        };
        let mut map = RegionMap::new(rig.superblock.regions());
        for (entry, state) in map.entries.iter_mut().zip(REGIONS) {
            *entry = RegionEntry::new(state, 5);
        }
        for place in 0..rig.members() {
            let own = MapPlace {
                array_uuid: rig.superblock.array_uuid,
                member_uuid: rig.superblock.members[place].uuid,
                copies: rig.superblock.areas.region_map,
            };
            for (offset, page) in map.initial_pages(&own) {
                rig.pages.insert((place, offset), page.to_vec());
            }
            for (offset, bytes) in Store::new().initial(&rig.place(place)).unwrap() {
                rig.put(place, offset, &bytes);
            }
        }
        rig
    }

    fn members(&self) -> usize {
        self.superblock.members.len()
    }

    fn place(&self, place: usize) -> StorePlace {
        store_place(&self.superblock, place)
    }

    fn put(&mut self, drive: usize, offset: u64, bytes: &[u8]) {
        for (at, page) in (offset..)
            .step_by(MAP_PAGE_BYTES)
            .zip(bytes.chunks(MAP_PAGE_BYTES))
        {
            self.pages.insert((drive, at), page.to_vec());
        }
    }

    fn store(&mut self, drive: usize, store: &Store) {
        let (offset, bytes) = store.encode(&self.place(drive)).unwrap();
        self.put(drive, offset, &bytes);
    }

    fn assembly(&self) -> Assembly {
        let there = (0..self.members()).filter(|place| !self.gone.contains(place));
        let found: Vec<Found> = there
            .map(|place| {
                let size = self.superblock.members[place].size_bytes;
                let own = self.superblock.for_member(place as u16, size).unwrap();
                Found {
                    drive: place,
                    path: format!("drive{place}"),
                    serial: own.own().serial.clone(),
                    size_bytes: size,
                    copies: [Ok(own.clone()), Ok(own)],
                }
            })
            .collect();
        assemble(
            self.superblock.array_uuid,
            &found,
            &AssembleOptions::default(),
        )
        .unwrap()
    }

    fn open(&mut self, request: &OpeningRequest) -> Result<Opening, OpeningError> {
        let assembly = self.assembly();
        open(&assembly, request, self)
    }
}

fn request() -> OpeningRequest {
    OpeningRequest {
        read_only: false,
        force: false,
        new_name: None,
        this_host: Uuid::from_u128(0x4057),
        now_unix: 77,
        new_lineage: Uuid::from_u128(0x2222),
        memory_bytes: 1 << 20,
        volatile: vec![true, false],
    }
}

fn torn(member: u16, offset: u64, length: u64, kind: TornKind) -> TornExtent {
    TornExtent {
        member,
        kind,
        offset,
        length,
    }
}

#[test]
fn what_a_crash_means() {
    use Consistency::{Log, LogAll, None as Never, Resync};
    use RegionState::{Dirty, NeedsSync};
    // crashed, policy, degraded, read only, forced | dirty becomes, replay, accepted, suspect regions
    let rows = [
        (false, Log, false, false, false, NeedsSync, false, false, 0),
        (false, Log, true, false, false, NeedsSync, false, true, 2),
        (true, Log, false, false, false, Dirty, true, false, 0),
        (true, Log, true, false, false, Dirty, true, true, 1),
        (true, Log, true, false, true, Dirty, true, true, 0),
        (true, Log, true, true, false, NeedsSync, false, false, 0),
        (true, LogAll, false, false, false, Dirty, true, false, 0),
        (true, LogAll, true, false, false, Dirty, true, true, 1),
        (true, LogAll, false, true, false, NeedsSync, false, false, 0),
        (
            true, Resync, false, false, false, NeedsSync, false, false, 0,
        ),
        (true, Resync, true, false, false, NeedsSync, false, true, 2),
        (true, Resync, true, false, true, NeedsSync, false, true, 0),
        (true, Resync, true, true, false, NeedsSync, false, false, 0),
        (true, Resync, true, true, true, NeedsSync, false, true, 0),
        (true, Never, false, false, false, Dirty, false, false, 0),
        (true, Never, true, false, false, Dirty, false, true, 1),
        (true, Never, true, true, false, NeedsSync, false, false, 0),
    ];
    for row in rows {
        let (crashed, policy, degraded, read_only, force, dirty, replay, accepted, suspect) = row;
        let mut rig = Rig::new(Level::Raid6, 4, 2);
        rig.superblock.consistency = policy;
        if !crashed {
            rig.superblock.state = RunState::Clean;
        }
        if degraded {
            rig.gone.insert(2);
        }
        let lineage = rig.superblock.lineage;
        let opening = rig
            .open(&OpeningRequest {
                read_only,
                force,
                ..request()
            })
            .unwrap();
        let start = opening.start;
        let states: Vec<_> = start.regions.entries[..4]
            .iter()
            .map(|e| e.state())
            .collect();
        assert_eq!(
            states,
            [REGIONS[0], dirty, REGIONS[2], REGIONS[3]],
            "{row:?}"
        );
        let expected = Replay {
            epoch: EPOCH,
            lineage,
        };
        assert_eq!(start.replay, replay.then_some(expected), "{row:?}");
        assert_eq!(start.accept_doubtful, accepted, "{row:?}");
        let region = rig.superblock.region_size_bytes;
        let first = 3 - suspect;
        let extents: Vec<_> = (suspect > 0)
            .then(|| torn(2, first * region, suspect * region, TornKind::Suspect))
            .into_iter()
            .collect();
        assert_eq!(
            start.store.torn.iter().collect::<Vec<_>>(),
            extents,
            "{row:?}"
        );
        assert_eq!(opening.suspect_bytes, suspect * region, "{row:?}");
        let doubtful = if dirty == NeedsSync { 2 } else { 1 };
        assert_eq!(opening.doubtful_regions, doubtful, "{row:?}");
        assert_eq!(start.read_only, read_only);
        assert_eq!(start.store_changed, suspect > 0, "{row:?}");
    }
}

#[test]
fn the_superblock_of_a_start_is_raised_and_says_who_is_missing() {
    let mut rig = Rig::new(Level::Raid6, 4, 2);
    let before = rig.superblock.clone();
    let start = rig.open(&request()).unwrap().start;
    assert_eq!(start.superblock.epoch, EPOCH + 1);
    assert_eq!(start.superblock.generation, before.generation + 2);
    assert_eq!(start.superblock.lineage, before.lineage);
    assert_eq!(start.superblock.owner_started_unix, 77);
    assert_eq!(start.volatile, [true, false]);
    rig.gone.insert(5);
    let renamed = OpeningRequest {
        new_name: Some("pool".into()),
        ..request()
    };
    let start = rig.open(&renamed).unwrap().start;
    assert_eq!(start.superblock.name, "pool");
    assert_eq!(start.superblock.lineage, Uuid::from_u128(0x2222));
    assert_eq!(start.superblock.members[5].state, MemberState::Missing);
    assert!(!start.present[5] && start.present[4]);
    let read_only = OpeningRequest {
        read_only: true,
        ..request()
    };
    let start = rig.open(&read_only).unwrap().start;
    assert_eq!(start.superblock, rig.assembly().truth);
}

#[test]
fn mirrors_and_stripes_have_nothing_suspect() {
    for (level, data, parity) in [(Level::Raid1, 1, 2), (Level::Raid5, 2, 1)] {
        let mut rig = Rig::new(level, data, parity);
        rig.superblock.consistency = Consistency::Resync;
        rig.gone.insert(0);
        let opening = rig.open(&request()).unwrap();
        assert_eq!(opening.start.store.torn.is_empty(), data == 1, "{level:?}");
        assert_eq!(opening.start.accept_doubtful, data > 1, "{level:?}");
    }
    let mut rig = Rig::new(Level::Raid0, 1, 0);
    let start = rig.open(&request()).unwrap().start;
    assert_eq!(start.regions.entries[1].state(), RegionState::Dirty);
}

#[test]
fn a_member_being_rebuilt_is_suspect_above_its_position_and_torn_stays_torn() {
    let mut rig = Rig::new(Level::Raid5, 3, 1);
    let region = rig.superblock.region_size_bytes;
    let strip = rig.superblock.strip_size_bytes;
    rig.superblock.consistency = Consistency::Resync;
    let record = &mut rig.superblock.members[1];
    record.state = MemberState::Rebuilding;
    record.rebuild_position_bytes = region + 2 * strip + 1;
    let mut table = Store::new();
    table.generation = 2;
    table
        .torn
        .insert(torn(1, 2 * region, strip, TornKind::Torn));
    table.torn.insert(torn(0, 0, strip, TornKind::Suspect));
    for drive in 0..4 {
        rig.store(drive, &table);
    }
    let opening = rig.open(&request()).unwrap();
    assert_eq!(opening.start.store.generation, 2);
    assert_eq!(
        opening.start.store.torn.iter().collect::<Vec<_>>(),
        [
            torn(0, 0, strip, TornKind::Suspect),
            torn(1, region + 2 * strip, region - 2 * strip, TornKind::Suspect),
            torn(1, 2 * region, strip, TornKind::Torn),
            torn(1, 2 * region + strip, region - strip, TornKind::Suspect),
        ]
    );
    assert_eq!(opening.suspect_bytes, 2 * region - 3 * strip);
    // Missed now, it is all suspect but for what is torn.
    rig.gone.insert(1);
    let opening = rig.open(&request()).unwrap();
    assert_eq!(opening.suspect_bytes, 2 * region - strip);
}

/// What needed a resync when a member had left already was listed then, and may be healed since.
#[test]
fn what_a_member_had_left_before_is_not_suspect_again() {
    let mut rig = Rig::new(Level::Raid6, 4, 2);
    let region = rig.superblock.region_size_bytes;
    rig.superblock.mark_left(3, MemberState::Failed);
    let mut listed = |policy, state| {
        rig.superblock.consistency = policy;
        rig.superblock.state = state;
        let opening = rig.open(&request()).unwrap();
        let torn = opening.start.store.torn;
        torn.iter()
            .map(|it| (it.offset / region, it.length / region))
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(Consistency::Log, RunState::InUse), []);
    assert_eq!(listed(Consistency::Log, RunState::Clean), [(1, 1)]);
    // Without a log a crash says nothing of the writes to it since.
    assert_eq!(listed(Consistency::Resync, RunState::InUse), [(1, 2)]);
}

#[test]
fn the_newest_table_counts_and_those_behind_are_named() {
    let mut rig = Rig::new(Level::Raid5, 3, 1);
    let mut table = Store::new();
    table.generation = 2;
    table.torn.insert(torn(3, 0, 4096, TornKind::Torn));
    for drive in 0..2 {
        rig.store(drive, &table);
    }
    let opening = rig.open(&request()).unwrap();
    let behind = [2, 3].map(|place| Behind {
        place,
        generation: 1,
    });
    assert_eq!(opening.start.store_behind, behind);
    assert!(!opening.start.store_changed);
    assert_eq!(opening.start.store.torn, table.torn);
    assert_eq!(opening.start.store.generation, 2);
    // A half that cannot be read might have been newer.
    let half = rig.place(3).offset(3);
    rig.unreadable.insert((3, half));
    let opening = rig.open(&request()).unwrap();
    assert!(opening.start.store.generation > 1 << 40);
    assert!(opening.start.store.generation.is_multiple_of(2));
    assert_eq!(opening.notes.len(), 1);
}

#[test]
fn a_lost_or_impossible_table_is_refused() {
    let mut rig = Rig::new(Level::Raid5, 3, 1);
    for drive in 0..4 {
        for half in 0..2 {
            rig.unreadable
                .insert((drive, rig.place(drive).offset(half)));
        }
    }
    assert!(matches!(
        rig.open(&request()),
        Err(OpeningError::StoreLost { .. })
    ));
    for (read_only, force) in [(true, false), (false, true)] {
        let request = OpeningRequest {
            read_only,
            force,
            ..request()
        };
        assert!(rig.open(&request).is_ok());
    }
    for extent in [
        torn(4, 0, 4096, TornKind::Torn),
        torn(3, rig.superblock.member_data_bytes - 1, 2, TornKind::Torn),
    ] {
        let mut rig = Rig::new(Level::Raid5, 3, 1);
        let mut table = Store::new();
        table.torn.insert(extent);
        rig.store(0, &table);
        assert!(matches!(
            rig.open(&request()),
            Err(OpeningError::Torn { .. })
        ));
    }
}

#[test]
fn a_damaged_map_page_needs_a_resync_under_any_policy() {
    let mut rig = Rig::new(Level::Raid5, 3, 1);
    rig.superblock.consistency = Consistency::Log;
    for drive in 0..4 {
        for copy in rig.superblock.areas.region_map {
            rig.unreadable.insert((drive, copy.offset));
        }
    }
    let opening = rig.open(&request()).unwrap();
    assert!(
        opening.notes[0].contains("region map"),
        "{:?}",
        opening.notes
    );
    assert!(opening.doubtful_regions > 4 && opening.suspect_bytes == 0);
    rig.gone.insert(0);
    assert!(rig.open(&request()).unwrap().suspect_bytes > 0);
    rig.superblock.mark_left(0, MemberState::Failed);
    assert!(rig.open(&request()).unwrap().suspect_bytes > 0);
}
