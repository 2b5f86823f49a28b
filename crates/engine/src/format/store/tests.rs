use super::super::bytes::tests::dump;
use super::super::torn::{TornExtent, TornKind};
use super::*;

fn place(member: u128) -> StorePlace {
    StorePlace {
        array_uuid: Uuid::from_u128(0xa),
        member_uuid: Uuid::from_u128(member),
        area: Extent::new(1 << 20, 1 << 20),
    }
}

const MEMBER: u128 = 0xb;

fn extent(offset: u64, kind: TornKind) -> TornExtent {
    TornExtent {
        member: 2,
        kind,
        offset,
        length: 4096,
    }
}

fn store(generation: u64, extents: u64) -> Store {
    let mut store = Store {
        generation,
        ..Store::default()
    };
    for at in 0..extents {
        store.torn.insert(extent(at * 8192, TornKind::Torn));
    }
    store
}

/// The area's bytes with these writes in them.
fn area(place: &StorePlace, writes: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut area = vec![0; place.area.length as usize];
    put(place, &mut area, writes);
    area
}

fn put(place: &StorePlace, area: &mut [u8], writes: &[(u64, Vec<u8>)]) {
    for (offset, bytes) in writes {
        let at = (offset - place.area.offset) as usize;
        area[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// What a member holds after creation and these tables, one after the other.
fn written(place: &StorePlace, stores: &[Store]) -> Vec<u8> {
    let mut area = area(place, &Store::new().initial(place).unwrap());
    for store in stores {
        put(place, &mut area, &[store.encode(place).unwrap()]);
    }
    area
}

fn resealed(raw: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut raw = raw.to_vec();
    change(&mut raw);
    let checksum = bytes::crc32c_without(&raw, field(16, 4));
    bytes::put_u32(&mut raw, field(16, 4), checksum);
    raw
}

#[test]
fn golden_bytes() {
    let mut store = store(5, 0);
    store.torn.insert(extent(8192, TornKind::Suspect));
    store.others.push(Item {
        kind: 9,
        bytes: b"hello".to_vec(),
    });
    let (at, raw) = store.encode(&place(MEMBER)).unwrap();
    let mut expected = vec![0u8; 4096];
    expected[..8].copy_from_slice(b"STRAKETB");
    expected[8] = 1; // version
    expected[13] = 0x10; // 4096 bytes
    expected[16..20].copy_from_slice(&GOLDEN_CHECKSUM.to_le_bytes());
    // Generation 5 lies in half 1: behind 1 MiB, the page and half 0 of 127 pages.
    assert_eq!(at, (1 << 20) + 4096 + 127 * 4096);
    expected[24..32].copy_from_slice(&at.to_le_bytes());
    expected[47] = 0xa;
    expected[63] = 0xb;
    expected[64] = 5; // generation
    expected[72] = 2; // items
    expected[80] = 32 + 16; // their bytes
    expected[128] = 1; // torn list
    expected[132] = 24;
    expected[136] = 2; // member
    expected[138] = 2; // suspect
    expected[145] = 0x20; // at 8192
    expected[153] = 0x10; // 4096 bytes
    expected[160] = 9; // an item unknown here
    expected[164] = 5;
    expected[168..173].copy_from_slice(b"hello");
    assert_eq!(dump(&raw), dump(&expected));
}

/// Computed by another program.
const GOLDEN_CHECKSUM: u32 = 0xb4ea_f195;

#[test]
fn a_fresh_store_is_empty_and_each_table_comes_back_from_its_half() {
    let place = place(MEMBER);
    let fresh = load(&place, &written(&place, &[]));
    assert_eq!(fresh.bad, []);
    assert_eq!(fresh.into_store(false), Ok(Store::new()));
    let mut area = written(&place, &[]);
    for generation in 2..9 {
        let mut store = store(generation, generation * 300);
        store.others = vec![Item {
            kind: 77,
            bytes: vec![generation as u8; generation as usize],
        }];
        put(&place, &mut area, &[store.encode(&place).unwrap()]);
        let loaded = load(&place, &area);
        assert_eq!(loaded.bad, []);
        assert_eq!(loaded.into_store(false), Ok(store));
    }
}

#[test]
fn a_store_made_before_there_were_halves_is_empty() {
    let place = place(MEMBER);
    let page = encode_empty(place.array_uuid, place.member_uuid, place.area.offset, 7);
    let mut area = area(&place, &[(place.area.offset, page)]);
    let loaded = load(&place, &area);
    assert_eq!(loaded.into_store(false), Ok(Store::new()));
    let next = store(2, 3);
    put(&place, &mut area, &[next.encode(&place).unwrap()]);
    assert_eq!(load(&place, &area).into_store(false), Ok(next));
}

#[test]
fn a_write_cut_off_anywhere_leaves_the_table_before_it() {
    let place = place(MEMBER);
    let old = [store(2, 400), store(3, 500)];
    let before = written(&place, &old);
    let new = store(4, 450);
    let (offset, bytes) = new.encode(&place).unwrap();
    let mut after = before.clone();
    put(&place, &mut after, &[(offset, bytes.clone())]);
    for cut in (0..=bytes.len()).step_by(512) {
        for suffix in [false, true] {
            let mut area = before.clone();
            let (at, part) = if suffix {
                (offset + cut as u64, &bytes[cut..])
            } else {
                (offset, &bytes[..cut])
            };
            put(&place, &mut area, &[(at, part.to_vec())]);
            let loaded = load(&place, &area);
            let newest = loaded.newest.clone().unwrap();
            let whole = area == after;
            assert_eq!(newest, if whole { new.clone() } else { old[1].clone() });
            let next = loaded.into_store(false).unwrap().generation;
            // The next write spares the half in use, and wins over all that is there.
            assert_eq!(next % 2, newest.generation % 2);
            assert!(next == newest.generation || next > new.generation);
        }
    }
}

#[test]
fn a_flip_of_any_bit_leaves_the_other_half() {
    let place = place(MEMBER);
    let (older, newer) = (store(2, 3), store(3, 3));
    let mut area = written(&place, &[older.clone(), newer.clone()]);
    let used = newer.encode(&place).unwrap().1.len();
    let start = (place.offset(3) - place.area.offset) as usize;
    for at in start..start + used {
        for bit in 0..8 {
            area[at] ^= 1 << bit;
            let loaded = load(&place, &area);
            assert_eq!(loaded.newest.as_ref(), Some(&older), "byte {at} bit {bit}");
            assert_eq!(loaded.bad.len(), 1);
            assert!(loaded.into_store(false).unwrap().generation > 3);
            area[at] ^= 1 << bit;
        }
    }
    assert_eq!(load(&place, &area).into_store(false), Ok(newer));
}

#[test]
fn a_table_in_the_wrong_half_or_of_another_member_is_not_taken() {
    let (ours, other) = (place(MEMBER), place(0xc));
    let mut area = written(&ours, &[]);
    put(&ours, &mut area, &[store(2, 1).encode(&other).unwrap()]);
    let loaded = load(&ours, &area);
    assert!(matches!(loaded.bad[0].why, FormatError::Foreign { .. }));
    let (_, bytes) = store(2, 1).encode(&ours).unwrap();
    put(&ours, &mut area, &[(ours.offset(1), bytes)]);
    let loaded = load(&ours, &area);
    assert!(matches!(loaded.bad[1].why, FormatError::Misplaced { .. }));
    assert_eq!(loaded.into_store(false), Err(StoreError::Lost));
}

#[test]
fn members_join_to_the_newest_table() {
    let (one, two) = (place(MEMBER), place(0xc));
    let tables = [store(2, 5), store(3, 6)];
    let behind = load(&one, &written(&one, &tables[..1]));
    let newest = load(&two, &written(&two, &tables));
    for (mut first, second) in [(behind.clone(), &newest), (newest.clone(), &behind)] {
        first.merge(second);
        assert_eq!(first.into_store(false), Ok(tables[1].clone()));
    }
    // A member without a valid half takes the others' and may have held a newer one.
    let mut lost = load(&one, &[]);
    assert_eq!(lost.bad.len(), 2);
    assert_eq!(lost.clone().into_store(false), Err(StoreError::Lost));
    let accepted = lost.clone().into_store(true).unwrap();
    assert!(accepted.torn.is_empty() && accepted.generation > DOUBTFUL_JUMP);
    lost.merge(&newest);
    let store = lost.into_store(false).unwrap();
    assert_eq!(store.torn, tables[1].torn);
    assert_eq!(store.generation, 3 + DOUBTFUL_JUMP);
    // One generation, two contents: no crash explains it, so both lists count.
    let mut twice = newest.clone();
    let mut other = store_at(&two, 3, 9);
    other.merge(&twice);
    twice.merge(&store_at(&two, 3, 9));
    assert_eq!(twice.into_store(false).unwrap().torn.len(), 9);
    assert_eq!(other.into_store(false).unwrap().torn.len(), 9);
}

fn store_at(place: &StorePlace, generation: u64, extents: u64) -> LoadedStore {
    load(place, &written(place, &[store(generation, extents)]))
}

#[test]
fn what_only_a_newer_strake_understands_is_refused() {
    let place = place(MEMBER);
    let sealed = |raw: &[u8], change: fn(&mut [u8])| {
        let mut area = written(&place, &[]);
        put(
            &place,
            &mut area,
            &[(place.offset(2), resealed(raw, change))],
        );
        load(&place, &area).into_store(false)
    };
    let mut table = store(2, 1);
    let (_, known) = table.encode(&place).unwrap();
    table.others.push(Item {
        kind: ITEM_VOLUMES,
        bytes: vec![1; 3],
    });
    let (_, raw) = table.encode(&place).unwrap();
    match sealed(&raw, |_| {}) {
        Err(StoreError::Refused(FormatError::Field { name, .. })) => assert_eq!(name, "item kind"),
        other => panic!("{other:?}"),
    }
    type Fault = (&'static str, fn(&mut [u8]));
    let faults: [Fault; 8] = [
        ("version", |raw| raw[8] = 2),
        ("generation", |raw| raw[64] = 3),
        ("generation", |raw| raw[71] = 0x80),
        ("item bytes", |raw| raw[87] = 1),
        ("items", |raw| raw[72] = 3),
        ("items", |raw| raw[72] = 0),
        ("torn list", |raw| raw[138] = 9),
        ("reserved space", |raw| raw[4095] = 1),
    ];
    for (name, change) in faults {
        let error = match sealed(&known, change) {
            Err(StoreError::Refused(error)) => error,
            other => panic!("{name}: {other:?}"),
        };
        let says = match &error {
            FormatError::Version { .. } => "version",
            FormatError::Field { name, .. } => name,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(says, name, "{error}");
    }
    let mut area = written(&place, &[]);
    area[72] = 2;
    let page = resealed(&area[..4096], |_| {});
    put(&place, &mut area, &[(place.area.offset, page)]);
    let refused = load(&place, &area).into_store(true);
    assert!(
        matches!(refused, Err(StoreError::Refused(_))),
        "{refused:?}"
    );
}

#[test]
fn some_twenty_thousand_extents_fit_and_one_more_is_refused() {
    let place = place(MEMBER);
    let mut store = store(2, 21_669);
    let (_, bytes) = store.encode(&place).unwrap();
    assert_eq!(bytes.len() as u64, place.half_bytes());
    let loaded = load(&place, &written(&place, &[store.clone()]));
    assert_eq!(loaded.into_store(false), Ok(store.clone()));
    store.torn.insert(extent(1 << 40, TornKind::Torn));
    let full = store.fits(&place).unwrap_err();
    assert_eq!(store.encode(&place).err(), Some(full));
    assert_eq!((full.extents, full.room_bytes), (21_670, 127 * 4096));
    assert!(full.needed_bytes > full.room_bytes);
}
