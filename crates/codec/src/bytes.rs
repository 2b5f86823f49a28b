//! Two questions about bytes that the data path asks often: all zero? the same?

use crate::kernel;

/// Whether every byte is zero; true for an empty slice. Stops within
/// 1 KiB of the first byte that is not.
pub fn is_zero(bytes: &[u8]) -> bool {
    kernel::chosen().is_zero(bytes)
}

/// Whether both slices have the same length and the same bytes.
pub fn equal(left: &[u8], right: &[u8]) -> bool {
    left == right
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;

    #[test]
    fn one_set_byte_anywhere_is_seen() {
        for len in [0, 1, 7, 64, 1023, 1024, 1025, 4096] {
            let mut bytes = vec![0_u8; len];
            assert!(is_zero(&bytes));
            for kernel in arch::usable() {
                assert!(kernel.is_zero(&bytes));
                for at in 0..len {
                    bytes[at] = 0x80;
                    assert!(!kernel.is_zero(&bytes), "{kernel:?}: byte {at} of {len}");
                    bytes[at] = 0;
                }
            }
        }
    }

    #[test]
    fn equal_sees_length_and_content() {
        assert!(equal(&[], &[]));
        assert!(!equal(&[0], &[]));
        assert!(equal(&[1, 2], &[1, 2]));
        assert!(!equal(&[1, 2], &[1, 3]));
    }
}
