use super::super::bytes::tests::dump;
use super::*;
use proptest::prelude::*;

const REGIONS: u64 = 1000; // two full pages and a part

fn place() -> MapPlace {
    MapPlace {
        array_uuid: Uuid::from_u128(0xa),
        member_uuid: Uuid::from_u128(0xb),
        copies: [Extent::new(69632, 3 * 4096), Extent::new(81920, 3 * 4096)],
    }
}

/// Both copies as a drive holds them.
struct Disk([Vec<u8>; 2]);

impl Disk {
    fn created() -> Disk {
        let mut disk = Disk([vec![0; 3 * 4096], vec![0; 3 * 4096]]);
        for (offset, raw) in RegionMap::new(REGIONS).initial_pages(&place()) {
            disk.put(offset, &raw);
        }
        disk
    }

    fn put(&mut self, offset: u64, raw: &[u8]) {
        let copy = usize::from(offset >= place().copies[1].offset);
        let at = (offset - place().copies[copy].offset) as usize;
        self.0[copy][at..at + raw.len()].copy_from_slice(raw);
    }

    fn write(&mut self, page: u32, generation: u64, entries: &[RegionEntry]) {
        let mut raw = [0; MAP_PAGE_BYTES];
        encode_page(&mut raw, &place(), page, generation, entries);
        self.put(place().offset(page, generation), &raw);
    }

    fn load(&self) -> LoadedMap {
        load(&place(), REGIONS, [&self.0[0], &self.0[1]])
    }
}

fn dirty(count: usize, generation: u64) -> Vec<RegionEntry> {
    vec![RegionEntry::new(RegionState::Dirty, generation); count]
}

/// What the error names, and the change that must raise it.
type Fault = (&'static str, fn(&mut [u8]));

#[test]
fn golden_bytes() {
    let entries = [
        RegionEntry::new(RegionState::Dirty, 0x0102),
        RegionEntry::new(RegionState::NeedsSync, RegionEntry::GENERATION_MAX),
    ];
    let mut raw = [0; MAP_PAGE_BYTES];
    encode_page(&mut raw, &place(), 0, 5, &entries);
    let mut expected = [0u8; MAP_PAGE_BYTES];
    expected[..8].copy_from_slice(b"STRAKERM");
    expected[8] = 1; // version
    expected[13] = 0x10; // 4096 bytes
    expected[25..27].copy_from_slice(&[0x40, 0x01]); // copy 1 at 81920 = 0x14000
    expected[47] = 0xa;
    expected[63] = 0xb;
    expected[64] = 5; // generation
    expected[76] = 2; // entries
    expected[128..130].copy_from_slice(&[0x13, 0x08]); // 0x102 << 3 | 3
    expected[136..144].copy_from_slice(&[0xfc, 255, 255, 255, 255, 255, 255, 255]);
    expected[16..20].copy_from_slice(&GOLDEN_CHECKSUM.to_le_bytes());
    assert_eq!(dump(&raw), dump(&expected));
}

/// Computed by another program.
const GOLDEN_CHECKSUM: u32 = 0x936c_054e;

#[test]
fn a_fresh_map_is_unwritten_everywhere() {
    let loaded = Disk::created().load();
    assert!(loaded.lost.is_empty() && loaded.bad.is_empty());
    assert_eq!(loaded.into_map(), RegionMap::new(REGIONS));
}

#[test]
fn the_newest_page_wins_whichever_copy_it_is_in() {
    let mut disk = Disk::created();
    for generation in 2..6 {
        disk.write(1, generation, &dirty(PAGE_ENTRIES, generation));
        let loaded = disk.load();
        assert_eq!(loaded.map.page_generations, [1, generation, 1]);
        assert_eq!(loaded.map.page_entries(1), dirty(PAGE_ENTRIES, generation));
        assert_eq!(loaded.map.entries[0], RegionEntry::UNWRITTEN);
    }
}

#[test]
fn a_torn_page_leaves_the_one_before_it() {
    let entries = dirty(PAGE_ENTRIES, 9);
    let mut new = [0; MAP_PAGE_BYTES];
    encode_page(&mut new, &place(), 0, 2, &entries);
    for written in 1..8 {
        let mut disk = Disk::created();
        disk.put(place().offset(0, 2), &new[..written * 512]);
        let loaded = disk.load();
        assert!(loaded.lost.is_empty());
        assert_eq!(loaded.map.entries[0], RegionEntry::UNWRITTEN);
        let bad = &loaded.bad[..];
        assert!(
            matches!(
                bad,
                [BadPage {
                    page: 0,
                    copy: 0,
                    why: FormatError::Checksum { .. }
                }]
            ),
            "{written} sectors: {bad:?}"
        );
        // The next write goes over the torn copy, far above what could still turn up.
        let next = loaded.into_map().page_generations[0] + 1;
        assert!(next.is_multiple_of(2) && next > 1 << 40);
    }
}

#[test]
fn a_page_without_a_valid_copy_needs_sync_and_is_never_unwritten() {
    let mut disk = Disk::created();
    disk.0[0][4096..8192].fill(0);
    disk.0[1][4096 + 130] ^= 1;
    let loaded = disk.load();
    assert_eq!(loaded.lost.iter().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(loaded.bad.len(), 2);
    let unknown = RegionEntry::new(RegionState::NeedsSync, 0);
    assert!(loaded.map.page_entries(1).iter().all(|&e| e == unknown));
    assert_eq!(loaded.map.entries[0], RegionEntry::UNWRITTEN);
    assert_eq!(loaded.map.entries[2 * PAGE_ENTRIES], RegionEntry::UNWRITTEN);
    let blank = load(&place(), REGIONS, [&[], &[]]);
    assert_eq!(blank.lost.len(), 3);
    assert!(blank.map.entries.iter().all(|&e| e == unknown));
}

#[test]
fn a_flip_of_any_bit_is_seen() {
    let mut raw = [0; MAP_PAGE_BYTES];
    encode_page(&mut raw, &place(), 2, 1, &dirty(8, 3));
    assert!(decode_page(&raw, &place(), 1, 2, REGIONS).is_ok());
    for at in 0..MAP_PAGE_BYTES {
        for bit in 0..8 {
            raw[at] ^= 1 << bit;
            assert!(
                decode_page(&raw, &place(), 1, 2, REGIONS).is_err(),
                "byte {at} bit {bit}"
            );
            raw[at] ^= 1 << bit;
        }
    }
}

#[test]
fn every_field_is_distrusted() {
    let at = |page: u32, generation: u64, entries: usize| {
        let mut raw = [0; MAP_PAGE_BYTES];
        encode_page(&mut raw, &place(), page, generation, &dirty(entries, 3));
        raw
    };
    let name = |raw: &[u8], copy: usize, page: u32, regions: u64| match decode_page(
        raw,
        &place(),
        copy,
        page,
        regions,
    ) {
        Err(FormatError::Field { name, .. }) => name,
        Err(FormatError::Misplaced { .. }) => "misplaced",
        Err(FormatError::Foreign { .. }) => "foreign",
        other => panic!("{other:?}"),
    };
    assert_eq!(name(&at(2, 1, 8), 0, 2, REGIONS), "misplaced");
    assert_eq!(name(&at(1, 1, PAGE_ENTRIES), 1, 0, REGIONS), "misplaced");
    assert_eq!(name(&at(2, 1, 7), 1, 2, REGIONS), "entries");
    let mut stranger = [0; MAP_PAGE_BYTES];
    let other = MapPlace {
        member_uuid: Uuid::from_u128(0xc),
        ..place()
    };
    encode_page(&mut stranger, &other, 2, 1, &dirty(8, 3));
    assert_eq!(name(&stranger, 1, 2, REGIONS), "foreign");
    let resealed = |change: fn(&mut [u8])| {
        let mut raw = at(2, 1, 8);
        change(&mut raw);
        let checksum = bytes::crc32c_without(&raw, field(16, 4));
        bytes::put_u32(&mut raw, field(16, 4), checksum);
        raw
    };
    let cases: [Fault; 6] = [
        ("generation", |raw| raw[64] = 2),
        ("page", |raw| raw[72] = 1),
        ("entries", |raw| raw[76] = 9),
        ("reserved space", |raw| raw[100] = 1),
        ("reserved space", |raw| raw[4095] = 1),
        ("region state", |raw| raw[128] = 5),
    ];
    for (field, change) in cases {
        assert_eq!(name(&resealed(change), 1, 2, REGIONS), field);
    }
}

#[test]
fn maps_of_several_members_join_to_the_newest() {
    let (mut one, mut two) = (Disk::created(), Disk::created());
    one.write(0, 2, &dirty(PAGE_ENTRIES, 2));
    two.write(0, 2, &dirty(PAGE_ENTRIES, 2));
    two.write(0, 3, &dirty(PAGE_ENTRIES, 3)); // the crash came before this reached the first
    one.0[0][8192..].fill(0); // the first lost its page 2
    one.0[1][8192..].fill(0);
    for (mut a, b) in [(one.load(), two.load()), (two.load(), one.load())] {
        a.merge(&b);
        assert!(a.lost.is_empty());
        assert_eq!(a.map.page_entries(0), dirty(PAGE_ENTRIES, 3));
        assert_eq!(a.map.page_entries(2), [RegionEntry::UNWRITTEN; 8]);
        let map = a.into_map();
        assert_eq!(map.page_generations[..2], [3, 1]);
        assert!(map.page_generations[2] > 1 << 40);
    }
}

#[test]
fn pages_of_one_generation_that_differ_need_sync_where_they_differ() {
    let (mut one, mut two) = (Disk::created(), Disk::created());
    let mut entries = dirty(PAGE_ENTRIES, 2);
    one.write(0, 2, &entries);
    entries[7] = RegionEntry::new(RegionState::Clean, 4);
    two.write(0, 2, &entries);
    let mut joined = one.load();
    joined.merge(&two.load());
    assert_eq!(
        joined.map.entries[7],
        RegionEntry::new(RegionState::NeedsSync, 4)
    );
    assert_eq!(
        joined.map.entries[6],
        RegionEntry::new(RegionState::Dirty, 2)
    );
}

#[test]
fn a_page_lost_by_both_stays_lost() {
    let mut disk = Disk::created();
    disk.0[0][..4096].fill(0);
    disk.0[1][..4096].fill(0);
    let mut joined = disk.load();
    joined.merge(&disk.load());
    assert!(joined.lost.contains(&0));
    assert_eq!(joined.map.entries[0].state(), RegionState::NeedsSync);
}

#[test]
fn entries_of_unknown_states_do_not_exist() {
    for code in 0..8 {
        assert_eq!(RegionEntry::from_raw(code | 80).is_some(), code < 5);
    }
}

#[test]
fn regions_find_their_page() {
    assert_eq!(page_of(0), (0, 0));
    assert_eq!(page_of(495), (0, 495));
    assert_eq!(page_of(496), (1, 0));
    assert_eq!(page_count(496), 1);
    assert_eq!(page_count(497), 2);
}

proptest! {
    #[test]
    fn any_page_comes_back(
        values in prop::collection::vec((0usize..5, 0..=RegionEntry::GENERATION_MAX), 1..=PAGE_ENTRIES),
        generation: u64,
    ) {
        let entries: Vec<_> = values.iter().map(|&(s, g)| RegionEntry::new(RegionState::ALL[s], g)).collect();
        for (entry, value) in entries.iter().zip(&values) {
            prop_assert_eq!((entry.state(), entry.generation()), (RegionState::ALL[value.0], value.1));
            prop_assert_eq!(RegionEntry::from_raw(entry.to_raw()), Some(*entry));
        }
        let mut raw = [0xee; MAP_PAGE_BYTES];
        encode_page(&mut raw, &place(), 1, generation, &entries);
        let regions = (PAGE_ENTRIES + entries.len()) as u64;
        let page = decode_page(&raw, &place(), (generation % 2) as usize, 1, regions);
        prop_assert_eq!(page, Ok(Page { index: 1, generation, entries }));
    }
}
