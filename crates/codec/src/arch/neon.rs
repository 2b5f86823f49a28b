//! NEON (aarch64): 16 bytes a vector, and a product is two look-ups in tables of 16.

use std::arch::aarch64::*;

use crate::field::{self, Nibbles};
use crate::tables::{Job, Tables};
use crate::vector::{self, Vector};

pub(super) fn detected() -> bool {
    std::arch::is_aarch64_feature_detected!("neon")
}

/// Carries out the job. Safe to call where `detected`.
#[target_feature(enable = "neon")]
pub(super) fn run(job: &mut Job<'_, '_>) {
    vector::run::<Quad>(Isa(()), job);
}

/// Whether all bytes are zero. Safe to call where `detected`.
#[target_feature(enable = "neon")]
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    vector::is_zero::<Quad>(Isa(()), bytes)
}

/// Exists only inside the functions above.
#[derive(Clone, Copy)]
struct Isa(());

/// Comes from an `Isa` only, so where there is one the instructions are there.
#[derive(Clone, Copy)]
struct Quad(uint8x16_t);

/// The low and the high nibble of each byte.
#[derive(Clone, Copy)]
struct Split {
    low: uint8x16_t,
    high: uint8x16_t,
}

/// The products of low and of high nibbles.
#[derive(Clone, Copy)]
struct Factor {
    low: uint8x16_t,
    high: uint8x16_t,
}

impl Vector for Quad {
    type Isa = Isa;
    type Stored = Nibbles;
    type Factor = Factor;
    type Split = Split;

    const BYTES: usize = 16;
    /// There are 32 registers, but nibbles and tables of a step take many of them.
    const WIDE: bool = false;
    const PAIRS: bool = false;
    const LONG: bool = false;
    const SUMS_AHEAD_FROM: usize = vector::ALWAYS;
    const TOGETHER: usize = vector::NEVER;
    const DOUBLES: bool = true;

    #[inline(always)]
    fn zero(_: Isa) -> Quad {
        // SAFETY: `Isa` exists only where NEON is.
        Quad(unsafe { vdupq_n_u8(0) })
    }

    #[inline(always)]
    fn load(_: Isa, from: &[u8]) -> Quad {
        assert!(from.len() >= Self::BYTES);
        // SAFETY: `Isa` exists only where NEON is; 16 bytes are there to read, and the
        // instruction asks for no alignment of bytes.
        Quad(unsafe { vld1q_u8(from.as_ptr()) })
    }

    #[inline(always)]
    fn store(self, to: &mut [u8]) {
        assert!(to.len() >= Self::BYTES);
        // SAFETY: a `Quad` exists only where NEON is; 16 bytes are there to write, and
        // the instruction asks for no alignment of bytes.
        unsafe { vst1q_u8(to.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Quad) -> Quad {
        // SAFETY: a `Quad` exists only where NEON is.
        Quad(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    fn or(self, other: Quad) -> Quad {
        // SAFETY: a `Quad` exists only where NEON is.
        Quad(unsafe { vorrq_u8(self.0, other.0) })
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        // SAFETY: a `Quad` exists only where NEON is.
        unsafe { vmaxvq_u8(self.0) == 0 }
    }

    #[inline(always)]
    fn xor3(self, second: Quad, third: Quad) -> Quad {
        self.xor(second).xor(third)
    }

    #[inline(always)]
    fn double_add(self, other: Quad) -> Quad {
        // SAFETY: a `Quad` exists only where NEON is.
        Quad(unsafe {
            let carry = vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(self.0)));
            let reduce = vandq_u8(carry, vdupq_n_u8(field::REDUCE));
            let doubled = veorq_u8(vshlq_n_u8::<1>(self.0), reduce);
            veorq_u8(doubled, other.0)
        })
    }

    #[inline(always)]
    fn split(self) -> Split {
        // SAFETY: a `Quad` exists only where NEON is.
        unsafe {
            Split {
                low: vandq_u8(self.0, vdupq_n_u8(0x0f)),
                high: vshrq_n_u8::<4>(self.0),
            }
        }
    }

    #[inline(always)]
    fn stored(tables: &Tables) -> &[Nibbles] {
        tables.nibbles()
    }

    #[inline(always)]
    fn factor(_: Isa, stored: &Nibbles) -> Factor {
        let (low, high) = stored.split_at(16);
        // SAFETY: `Isa` exists only where NEON is; each half has 16 bytes to read, and
        // the instruction asks for no alignment of bytes.
        unsafe {
            Factor {
                low: vld1q_u8(low.as_ptr()),
                high: vld1q_u8(high.as_ptr()),
            }
        }
    }

    #[inline(always)]
    fn product(split: Split, factor: Factor) -> Quad {
        // SAFETY: a `Split` comes from a `Quad`, which exists only where NEON is.
        Quad(unsafe {
            veorq_u8(
                vqtbl1q_u8(factor.low, split.low),
                vqtbl1q_u8(factor.high, split.high),
            )
        })
    }
}
