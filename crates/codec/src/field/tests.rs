use super::*;
use crate::testing::multiply_bitwise;

#[test]
fn tables_agree_with_shift_and_add_for_every_pair() {
    for a in 0..=255 {
        for b in 0..=255 {
            assert_eq!(multiply(a, b), multiply_bitwise(a, b), "{a} * {b}");
        }
    }
}

#[test]
fn two_generates_every_nonzero_element() {
    let mut seen = [false; 256];
    for exponent in 0..255 {
        seen[power_of_two(exponent) as usize] = true;
    }
    assert_eq!(seen.iter().filter(|&&hit| hit).count(), 255);
    assert!(!seen[0]);
    assert_eq!(power_of_two(255), 1);
    assert_eq!(power_of_two(8), 0x1d);
}

#[test]
fn an_inverse_undoes_its_element() {
    for a in 1..=255 {
        assert_eq!(multiply(a, invert(a)), 1);
    }
}

#[test]
fn nibble_tables_multiply() {
    for coefficient in 0..=255 {
        let table = nibbles(coefficient);
        for byte in 0..=255_u8 {
            let product = table[usize::from(byte & 15)] ^ table[16 + usize::from(byte >> 4)];
            assert_eq!(product, multiply_bitwise(coefficient, byte));
        }
    }
}

/// The instruction as its manual describes it, one bit at a time.
fn affine_by_the_book(matrix: u64, byte: u8) -> u8 {
    let rows = matrix.to_le_bytes();
    (0..8)
        .map(|bit| (((rows[7 - bit] & byte).count_ones() & 1) as u8) << bit)
        .sum()
}

#[test]
fn affine_matrices_multiply() {
    for coefficient in 0..=255 {
        let matrix = affine(coefficient);
        for byte in 0..=255 {
            assert_eq!(
                affine_by_the_book(matrix, byte),
                multiply_bitwise(coefficient, byte)
            );
        }
    }
}

#[test]
fn doubling_of_offset_elements_reduces_where_the_highest_bit_is_clear() {
    for element in 0..=255_u8 {
        let kept = element ^ OFFSET;
        let reduce = if kept & 0x80 == 0 { REDUCE } else { 0 };
        assert_eq!((kept << 1) ^ reduce, multiply(element, 2) ^ OFFSET);
    }
}
