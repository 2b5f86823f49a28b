//! One kernel asked by name.

use strake_codec::{Onto, Sum, Transform};

/// What this kernel makes of these inputs.
pub fn computed(kernel: &str, transform: &Transform, inputs: &[&[u8]]) -> Vec<Vec<u8>> {
    let mask = |count: usize| u64::MAX >> (64 - count);
    let sum = Sum {
        rows: mask(transform.rows()),
        columns: mask(transform.cols()),
        inputs,
        less: &[],
        onto: Onto::Nothing,
    };
    let mut strips = vec![vec![0; inputs[0].len()]; transform.rows()];
    let mut outputs: Vec<&mut [u8]> = strips.iter_mut().map(Vec::as_mut_slice).collect();
    transform
        .sum_on(kernel, &sum, &mut outputs)
        .expect("a usable kernel");
    strips
}
