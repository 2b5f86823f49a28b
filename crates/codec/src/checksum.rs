//! CRC-32C, alone and in the same pass as other work.
//!
//! The checksum of everything on disk. Where the bytes are about to be copied or encoded
//! anyway it is taken of each unit right beside that, while the unit is in the caches:
//! memory is read once.

use arrayvec::ArrayVec;
use crc_fast::CrcAlgorithm;

use crate::code::{Code, STRIPS_MAX};

/// CRC-32C (Castagnoli, RFC 3720 section 12.1) of `bytes`, of any length.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Copies `from` to `to`, both of any one length, and puts the CRC-32C of each
/// `unit_bytes` of it (the last may be shorter) into `checksums`, one for each. Panics if
/// lengths or counts do not fit.
pub fn copy_with_checksums(from: &[u8], to: &mut [u8], unit_bytes: usize, checksums: &mut [u32]) {
    assert_eq!(from.len(), to.len(), "lengths");
    assert_eq!(
        checksums.len(),
        from.len().div_ceil(unit_bytes),
        "checksums"
    );
    let units = from.chunks(unit_bytes).zip(to.chunks_mut(unit_bytes));
    for ((from, to), checksum) in units.zip(checksums) {
        to.copy_from_slice(from);
        // Of the copy: what is written is what is summed, whoever changes `from`.
        *checksum = crc32c(to);
    }
}

impl Code {
    /// Encodes, as [`Code::encoder`] with `apply_rows`, and takes the CRC-32C of each
    /// `unit_bytes` of each data strip and of each parity made. Every slice of one
    /// length, a multiple of `unit_bytes`: n units. `checksums` has n for each data strip,
    /// then n for each parity in `rows`. Panics if lengths or counts do not fit.
    pub fn encode_with_checksums(
        &self,
        rows: u64,
        data: &[&[u8]],
        parities: &mut [&mut [u8]],
        unit_bytes: usize,
        checksums: &mut [u32],
    ) {
        let len = data[0].len();
        assert!(len.is_multiple_of(unit_bytes), "whole units");
        let units = len / unit_bytes;
        let strips = data.len() + parities.len();
        assert_eq!(checksums.len(), strips * units, "checksums");
        for unit in 0..units {
            let range = unit * unit_bytes..(unit + 1) * unit_bytes;
            let inputs: ArrayVec<&[u8], STRIPS_MAX> =
                data.iter().map(|strip| &strip[range.clone()]).collect();
            let mut outputs: ArrayVec<&mut [u8], STRIPS_MAX> = parities
                .iter_mut()
                .map(|strip| &mut strip[range.clone()])
                .collect();
            self.encoder().apply_rows(rows, &inputs, &mut outputs);
            let outputs = outputs.iter().map(|output| &**output);
            for (strip, bytes) in inputs.iter().copied().chain(outputs).enumerate() {
                checksums[strip * units + unit] = crc32c(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests;
