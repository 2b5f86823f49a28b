//! The reference: one byte at a time through two tables of 16.
//!
//! Also the kernel where no other runs, and the tail of every vector kernel.

use std::ops::Range;

use crate::field::Nibbles;
use crate::tables::{Job, bits};

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
    for (output, row) in job.outputs.iter_mut().zip(bits(job.rows)) {
        let output = &mut output[range.clone()];
        if !job.accumulate {
            output.fill(0);
        }
        for (column, input) in job.inputs.iter().enumerate() {
            let input = &input[range.clone()];
            match job.tables.coefficient(row, column) {
                0 => {}
                1 => add(output, input),
                _ => add_product(
                    output,
                    input,
                    &job.tables.nibbles()[column * job.tables.rows() + row],
                ),
            }
        }
    }
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
