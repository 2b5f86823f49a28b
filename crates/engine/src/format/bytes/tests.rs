use super::*;
use proptest::prelude::*;

/// Non-zero lines of 16 bytes, as a hex dump would show them: golden bytes that can be read.
pub(in super::super) fn dump(raw: &[u8]) -> String {
    let lines = raw
        .chunks(16)
        .enumerate()
        .filter(|(_, line)| !is_zero(line));
    lines
        .map(|(i, line)| {
            let hex: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
            format!("{:05x}: {}\n", i * 16, hex.join(" "))
        })
        .collect()
}

/// Bit by bit, from the polynomial: shares nothing with the library.
fn crc32c_by_definition(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0x82f6_3b78
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

#[test]
fn the_checksum_is_the_published_crc32c() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa); // RFC 3720, B.4
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43); // RFC 3720, B.4
}

#[test]
fn the_checksum_agrees_with_its_definition_at_every_length_and_alignment() {
    let bytes: Vec<u8> = (0..1100u32).map(|i| (i * 167 + i / 251) as u8).collect();
    for length in 0..=1024 {
        let start = length % 67;
        let part = &bytes[start..start + length];
        assert_eq!(crc32c(part), crc32c_by_definition(part), "length {length}");
    }
}

#[test]
fn the_hole_of_the_checksum_counts_as_zero() {
    let mut bytes: Vec<u8> = (0..4096u32).map(|i| (i * 31) as u8).collect();
    let hole = field(16, 4);
    let sum = crc32c_without(&bytes, hole);
    bytes[16..20].fill(0);
    assert_eq!(sum, crc32c_by_definition(&bytes));
}

#[test]
fn tiles_sees_gaps_overlaps_and_a_wrong_end() {
    assert!(tiles(&[field(0, 8), field(8, 4)], 0, 12));
    assert!(!tiles(&[field(0, 8), field(9, 4)], 0, 13));
    assert!(!tiles(&[field(0, 8), field(7, 4)], 0, 11));
    assert!(!tiles(&[field(0, 8)], 0, 9));
}

#[test]
fn text_is_distrusted() {
    let place = field(0, 4);
    assert_eq!(get_text(b"ab\0\0", place), Ok("ab".into()));
    assert_eq!(get_text(b"abcd", place), Ok("abcd".into()));
    assert!(get_text(b"a\0b\0", place).is_err());
    assert!(get_text(b"a\nb\0", place).is_err());
    assert!(get_text(b"\xff\xfe\0\0", place).is_err());
}

proptest! {
    #[test]
    fn integers_come_back(a: u8, b: u16, c: u32, d: u64, e: u128) {
        let mut bytes = [0u8; 31];
        put_u8(&mut bytes, field(0, 1), a);
        put_u16(&mut bytes, field(1, 2), b);
        put_u32(&mut bytes, field(3, 4), c);
        put_u64(&mut bytes, field(7, 8), d);
        put_uuid(&mut bytes, field(15, 16), Uuid::from_u128(e));
        prop_assert_eq!(get_u8(&bytes, field(0, 1)), a);
        prop_assert_eq!(get_u16(&bytes, field(1, 2)), b);
        prop_assert_eq!(get_u32(&bytes, field(3, 4)), c);
        prop_assert_eq!(get_u64(&bytes, field(7, 8)), d);
        prop_assert_eq!(get_uuid(&bytes, field(15, 16)), Uuid::from_u128(e));
    }
}
