//! For tests: the arithmetic of `avx512_gfni`, said byte by byte, on the ways through `vector` that
//! kernels of other machines take (its pairs and width, and doubling in groups), so that they are
//! tested on every machine, and under Miri.

use crate::tables::{Job, Tables};
use crate::vector::{self, Vector};

pub(super) fn run(job: &mut Job<'_, '_>) {
    vector::run::<Bytes>((), job);
}

pub(super) fn is_zero(bytes: &[u8]) -> bool {
    vector::is_zero::<Bytes>((), bytes)
}

#[derive(Clone, Copy)]
struct Bytes([u8; 64]);

impl Bytes {
    fn zip(self, other: Bytes, each: impl Fn(u8, u8) -> u8) -> Bytes {
        Bytes(std::array::from_fn(|at| each(self.0[at], other.0[at])))
    }
}

impl Vector for Bytes {
    type Isa = ();
    type Stored = u64;
    type Factor = u64;
    type Split = Bytes;

    const BYTES: usize = 64;
    const WIDE: bool = true;
    const PAIRS: bool = true;
    const LONG: bool = false;
    const SUMS_AHEAD_FROM: usize = vector::ALWAYS;
    const TOGETHER: usize = 3;
    const DOUBLES: bool = true;

    fn zero(_: ()) -> Bytes {
        Bytes([0; 64])
    }

    fn load(_: (), from: &[u8]) -> Bytes {
        Bytes(*from.first_chunk().expect("64 bytes"))
    }

    fn store(self, to: &mut [u8]) {
        to[..64].copy_from_slice(&self.0);
    }

    fn xor(self, other: Bytes) -> Bytes {
        self.zip(other, |a, b| a ^ b)
    }

    fn or(self, other: Bytes) -> Bytes {
        self.zip(other, |a, b| a | b)
    }

    fn is_zero(self) -> bool {
        self.0 == [0; 64]
    }

    fn xor3(self, second: Bytes, third: Bytes) -> Bytes {
        self.xor(second).xor(third)
    }

    fn double_add(self, other: Bytes) -> Bytes {
        Bytes::product(self, crate::field::affine(2)).xor(other)
    }

    fn split(self) -> Bytes {
        self
    }

    fn stored(tables: &Tables) -> &[u64] {
        tables.affine()
    }

    fn factor(_: (), stored: &u64) -> u64 {
        *stored
    }

    /// GF2P8AFFINEQB without its constant (Intel SDM, volume 2).
    fn product(split: Bytes, factor: u64) -> Bytes {
        let rows = factor.to_le_bytes();
        Bytes(split.0.map(|byte| {
            (0..8).fold(0, |out, bit| {
                out | ((rows[7 - bit] & byte).count_ones() as u8 & 1) << bit
            })
        }))
    }
}
