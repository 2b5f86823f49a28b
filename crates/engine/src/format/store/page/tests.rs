use super::super::super::bytes::tests::dump;
use super::*;

const AT: u64 = 1 << 20;

fn ids() -> (Uuid, Uuid) {
    (Uuid::from_u128(0xa), Uuid::from_u128(0xb))
}

fn empty() -> Vec<u8> {
    encode_empty(ids().0, ids().1, AT, 4)
}

fn read(raw: &[u8]) -> Result<StoreHeader, FormatError> {
    decode(raw, ids().0, ids().1, AT)
}

fn resealed(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut raw = empty();
    change(&mut raw);
    let checksum = bytes::crc32c_without(&raw, field(16, 4));
    bytes::put_u32(&mut raw, field(16, 4), checksum);
    raw
}

#[test]
fn golden_bytes() {
    let mut expected = vec![0u8; STORE_HEADER_BYTES];
    expected[..8].copy_from_slice(b"STRAKEST");
    expected[8] = 1; // version
    expected[13] = 0x10; // 4096 bytes
    expected[26] = 0x10; // at 1 MiB
    expected[47] = 0xa;
    expected[63] = 0xb;
    expected[64] = 4; // generation
    expected[16..20].copy_from_slice(&GOLDEN_CHECKSUM.to_le_bytes());
    assert_eq!(dump(&empty()), dump(&expected));
}

/// Computed by another program.
const GOLDEN_CHECKSUM: u32 = 0x71b2_285d;

#[test]
fn an_empty_store_comes_back() {
    let expected = StoreHeader {
        generation: 4,
        content: StoreContent::Empty,
    };
    assert_eq!(read(&empty()), Ok(expected));
}

#[test]
fn a_store_with_halves_says_so() {
    let place = StorePlace {
        array_uuid: ids().0,
        member_uuid: ids().1,
        area: crate::format::areas::Extent::new(AT, 1 << 20),
    };
    let header = read(&encode(&place, 4)).unwrap();
    assert_eq!(header.content, StoreContent::Halves);
}

#[test]
fn a_later_table_is_seen_and_not_judged() {
    let raw = resealed(|raw| {
        bytes::put_u32(raw, TABLE_FORMAT, 2);
        bytes::put_u64(raw, TABLE_BYTES, 12345);
        raw[4000] = 7;
    });
    let content = StoreContent::Later {
        format: 2,
        bytes: 12345,
    };
    assert_eq!(
        read(&raw),
        Ok(StoreHeader {
            generation: 4,
            content
        })
    );
}

#[test]
fn a_flip_of_any_bit_and_every_torn_write_is_seen() {
    let mut raw = empty();
    for at in 0..raw.len() {
        for bit in 0..8 {
            raw[at] ^= 1 << bit;
            assert!(read(&raw).is_err(), "byte {at} bit {bit}");
            raw[at] ^= 1 << bit;
        }
    }
    let older = encode_empty(ids().0, ids().1, AT, 3);
    for sectors in 1..8 {
        let torn = [&raw[..sectors * 512], &older[sectors * 512..]].concat();
        assert_eq!(read(&torn).is_ok(), torn == raw); // all that differs is in the first sector
    }
}

#[test]
fn every_field_is_distrusted() {
    let field_of = |raw: &[u8]| match read(raw) {
        Err(FormatError::Field { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(field_of(&resealed(|raw| raw[80] = 1)), "table bytes");
    assert_eq!(field_of(&resealed(|raw| raw[76] = 1)), "reserved space");
    assert_eq!(field_of(&resealed(|raw| raw[4095] = 1)), "reserved space");
    let other = decode(&empty(), ids().1, ids().1, AT);
    assert!(matches!(
        other,
        Err(FormatError::Foreign { field: "array", .. })
    ));
    let moved = decode(&empty(), ids().0, ids().1, 0);
    assert!(matches!(moved, Err(FormatError::Misplaced { .. })));
}
