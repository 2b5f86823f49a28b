//! What several test rooms need: arithmetic that shares nothing with the tables,
//! and strips full of seeded noise.

/// The product by shift and add, bit by bit.
pub(crate) fn multiply_bitwise(a: u8, b: u8) -> u8 {
    let mut shifted = u16::from(a);
    let mut product = 0_u16;
    for bit in 0..8 {
        if b & (1 << bit) != 0 {
            product ^= shifted;
        }
        shifted <<= 1;
        if shifted & 0x100 != 0 {
            shifted ^= 0x11d;
        }
    }
    product as u8
}

/// `count` strips of `len` bytes of noise.
pub(crate) fn noise(rng: &mut fastrand::Rng, count: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|_| {
            let mut strip = vec![0; len];
            rng.fill(&mut strip);
            strip
        })
        .collect()
}

/// The strips as a call takes them to read.
pub(crate) fn refs(strips: &[Vec<u8>]) -> Vec<&[u8]> {
    strips.iter().map(Vec::as_slice).collect()
}

/// The strips as a call takes them to write.
pub(crate) fn refs_mut(strips: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    strips.iter_mut().map(Vec::as_mut_slice).collect()
}
