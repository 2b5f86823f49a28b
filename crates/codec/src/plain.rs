//! The reference: one byte at a time through two tables of 16.
//!
//! Also the kernel where no other runs, and the tail of every vector kernel.

use std::ops::Range;

use crate::field::Nibbles;
use crate::tables::{Job, bits};
use crate::transform::Onto;

/// Bytes of each strip handled before the next row starts, so that the sources
/// are still in the first-level cache: 64 strips of 512 bytes are 32 KiB.
const BLOCK_BYTES: usize = 512;

/// Carries out the whole job.
pub(crate) fn run(job: &mut Job<'_, '_>) {
    let mut start = 0;
    while start < job.len {
        let end = job.len.min(start + BLOCK_BYTES);
        run_range(job, start..end);
        start = end;
    }
}

/// Carries out the job on these bytes of every strip.
pub(crate) fn run_range(job: &mut Job<'_, '_>, range: Range<usize>) {
    for (n, (output, row)) in job.outputs.iter_mut().zip(bits(job.rows)).enumerate() {
        let output = &mut output[range.clone()];
        match job.onto {
            Onto::Nothing => output.fill(0),
            Onto::Outputs => {}
            Onto::Strips(strips) => output.copy_from_slice(&strips[n][range.clone()]),
        }
        for inputs in [job.inputs, job.less] {
            for (&column, input) in job.columns.iter().zip(inputs) {
                let (input, column) = (&input[range.clone()], usize::from(column));
                match job.tables.coefficient(row, column) {
                    0 => {}
                    1 => add(output, input),
                    _ => add_product(output, input, job.tables.nibbles_at(row, column)),
                }
            }
        }
    }
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |seen, byte| seen | byte) == 0
}

fn add(output: &mut [u8], input: &[u8]) {
    for (sum, byte) in output.iter_mut().zip(input) {
        *sum ^= byte;
    }
}

fn add_product(output: &mut [u8], input: &[u8], table: &Nibbles) {
    for (sum, byte) in output.iter_mut().zip(input) {
        *sum ^= table[usize::from(byte & 15)] ^ table[16 + usize::from(byte >> 4)];
    }
}
