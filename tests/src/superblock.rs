//! Superblocks as bytes, to damage and to age them. From the on-disk format's description: a
//! copy behind the first 4 KiB and one at the end of the drive; a header of magic (8 bytes),
//! version, length and CRC-32C over that length with itself as zero (4 bytes each).

use crate::drives;

const FIRST_COPY: u64 = 4096;

/// The second copy lies within this of the drive's end.
const TAIL_BYTES: u64 = 1 << 20;

const VERSION: std::ops::Range<usize> = 8..12;
const LENGTH: std::ops::Range<usize> = 12..16;
const CHECKSUM: std::ops::Range<usize> = 16..20;

/// Where both copies of a member are.
pub fn copies(drive: &str) -> [u64; 2] {
    let length = std::fs::metadata(drive).expect("a drive").len();
    let magic = drives::read(drive, FIRST_COPY, 8);
    assert_ne!(magic, [0; 8], "no superblock on {drive}");
    let second = (length - TAIL_BYTES..length)
        .step_by(4096)
        .find(|offset| drives::read(drive, *offset, 8) == magic)
        .expect("a second superblock at the end");
    [FIRST_COPY, second]
}

/// Makes a copy one of a later version, whole and with a right checksum.
pub fn raise_version(drive: &str, copy: u64, version: u32) {
    let length = u32::from_le_bytes(
        drives::read(drive, copy + LENGTH.start as u64, 4)
            .try_into()
            .expect("four bytes"),
    );
    let mut bytes = drives::read(drive, copy, length as usize);
    bytes[VERSION].copy_from_slice(&version.to_le_bytes());
    bytes[CHECKSUM].fill(0);
    let checksum = crc32c(&bytes);
    bytes[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    drives::overwrite(drive, copy, &bytes);
}

/// CRC-32C (Castagnoli), a bit at a time: shares no code with what is tested.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let low = crc & 1;
            crc = (crc >> 1) ^ (0x82f6_3b78 * low);
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc32c_of_the_check_string() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
    }
}
