use super::*;
use crate::testing::{noise, refs, refs_mut};

/// By the definition: the reflected polynomial 0x82f63b78, bit by bit.
fn bitwise(bytes: &[u8]) -> u32 {
    let mut rest = u32::MAX;
    for &byte in bytes {
        rest ^= u32::from(byte);
        for _ in 0..8 {
            rest = rest >> 1 ^ if rest & 1 != 0 { 0x82f6_3b78 } else { 0 };
        }
    }
    !rest
}

#[test]
fn known_answers() {
    // RFC 3720, B.4: 32 bytes of zeroes, of ones, ascending, descending; and the check
    // value of the catalogue of CRC algorithms.
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(crc32c(&ascending), 0x46dd_794e);
    assert_eq!(crc32c(&descending), 0x113f_db5c);
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn every_length_and_alignment_follows_the_definition() {
    let mut rng = fastrand::Rng::with_seed(21);
    let bytes = noise(&mut rng, 1, 700).remove(0);
    for len in (0..=600).chain([700]) {
        let from = (len * 7 % 64).min(700 - len);
        let part = &bytes[from..from + len];
        assert_eq!(crc32c(part), bitwise(part), "{len} bytes from {from}");
    }
}

#[test]
fn a_copy_is_summed_unit_by_unit() {
    let mut rng = fastrand::Rng::with_seed(22);
    for (len, unit) in [(0, 512), (1, 512), (4096, 512), (10_000, 4096), (512, 512)] {
        let from = noise(&mut rng, 1, len).remove(0);
        let (mut to, mut sums) = (vec![0; len], vec![0; len.div_ceil(unit)]);
        copy_with_checksums(&from, &mut to, unit, &mut sums);
        assert_eq!(to, from);
        assert!(from.chunks(unit).map(bitwise).eq(sums));
    }
}

#[test]
fn encoding_with_checksums_gives_the_same_parity_and_every_unit_its_sum() {
    let mut rng = fastrand::Rng::with_seed(23);
    for (data, parity, rows) in [
        (8, 1, 1),
        (4, 2, 0b10),
        (8, 3, 0b111),
        (1, 2, 0b11),
        (3, 2, 0),
    ] {
        let code = Code::new(data, parity).expect("a shape that is allowed");
        let strips = noise(&mut rng, data, 2048);
        let count = u64::count_ones(rows) as usize;
        let (mut plain, mut made) = (vec![vec![1; 2048]; count], vec![vec![2; 2048]; count]);
        code.encoder()
            .apply_rows(rows, &refs(&strips), &mut refs_mut(&mut plain));
        let mut sums = vec![0; (data + count) * 4];
        let mut outputs = refs_mut(&mut made);
        code.encode_with_checksums(rows, &refs(&strips), &mut outputs, 512, &mut sums);
        assert_eq!(made, plain);
        let all = strips.iter().chain(&made);
        let expected = all.flat_map(|strip| strip.chunks(512).map(bitwise));
        assert!(expected.eq(sums));
    }
}
