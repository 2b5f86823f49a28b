//! AVX-512 without GFNI (Skylake-SP, Cascade Lake): 64 bytes a vector, and a product is
//! two look-ups in tables of 16, added to the sum by one three-way XOR.
//!
//! Look-ups have one of the two vector ports of these processors, all else both. So Q
//! goes by Horner's rule, which needs none.

use std::arch::x86_64::*;

use crate::field::{self, Nibbles};
use crate::tables::{Job, Tables};
use crate::vector::{self, Vector};

pub(super) fn detected() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// Carries out the job. Safe to call where `detected`.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn run(job: &mut Job<'_, '_>) {
    vector::run::<Zmm>(Isa(()), job);
}

/// Whether all bytes are zero. Safe to call where `detected`.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    vector::is_zero::<Zmm>(Isa(()), bytes)
}

/// Exists only inside the functions above.
#[derive(Clone, Copy)]
struct Isa(());

/// Comes from an `Isa` only, so where there is one the instructions are there.
#[derive(Clone, Copy)]
struct Zmm(__m512i);

/// The low and the high nibble of each byte.
#[derive(Clone, Copy)]
struct Split {
    low: __m512i,
    high: __m512i,
}

/// The products of low and of high nibbles, the same in all quarters of the register.
#[derive(Clone, Copy)]
struct Factor {
    low: __m512i,
    high: __m512i,
}

impl Vector for Zmm {
    type Isa = Isa;
    type Stored = Nibbles;
    type Factor = Factor;
    type Split = Split;

    const BYTES: usize = 64;
    const WIDE: bool = true;
    const PAIRS: bool = false;
    const LONG: bool = true;
    const SUMS_AHEAD_FROM: usize = vector::MANY;
    const TOGETHER: usize = vector::NEVER;
    const DOUBLES: bool = true;

    #[inline(always)]
    fn zero(_: Isa) -> Zmm {
        // SAFETY: `Isa` exists only where AVX-512 is.
        Zmm(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    fn prefetch(_: Isa, address: *const u8) {
        // SAFETY: a hint that reads nothing and cannot fault, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    fn load(_: Isa, from: &[u8]) -> Zmm {
        assert!(from.len() >= Self::BYTES);
        // SAFETY: `Isa` exists only where AVX-512 is; 64 bytes are there to read, and the
        // instruction asks for no alignment.
        Zmm(unsafe { _mm512_loadu_si512(from.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, to: &mut [u8]) {
        assert!(to.len() >= Self::BYTES);
        // SAFETY: a `Zmm` exists only where AVX-512 is; 64 bytes are there to write, and
        // the instruction asks for no alignment.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Zmm) -> Zmm {
        // SAFETY: a `Zmm` exists only where AVX-512 is.
        Zmm(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn or(self, other: Zmm) -> Zmm {
        // SAFETY: a `Zmm` exists only where AVX-512 is.
        Zmm(unsafe { _mm512_or_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        // SAFETY: a `Zmm` exists only where AVX-512 is.
        unsafe { _mm512_test_epi64_mask(self.0, self.0) == 0 }
    }

    #[inline(always)]
    fn xor3(self, second: Zmm, third: Zmm) -> Zmm {
        // The truth table of a three-way XOR is 0x96.
        // SAFETY: a `Zmm` exists only where AVX-512 is.
        Zmm(unsafe { _mm512_ternarylogic_epi64::<0x96>(self.0, second.0, third.0) })
    }

    #[inline(always)]
    fn double_add(self, other: Zmm) -> Zmm {
        // SAFETY: a `Zmm` exists only where AVX-512 is.
        unsafe {
            let carry = _mm512_movepi8_mask(self.0);
            let reduce = _mm512_maskz_mov_epi8(carry, _mm512_set1_epi8(field::REDUCE as i8));
            Zmm(_mm512_add_epi8(self.0, self.0)).xor3(Zmm(reduce), other)
        }
    }

    #[inline(always)]
    fn split(self) -> Split {
        // SAFETY: a `Zmm` exists only where AVX-512 is.
        unsafe {
            let mask = _mm512_set1_epi8(0x0f);
            Split {
                low: _mm512_and_si512(self.0, mask),
                high: _mm512_and_si512(_mm512_srli_epi64::<4>(self.0), mask),
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
        // SAFETY: `Isa` exists only where AVX-512 is; each half has 16 bytes to read, and
        // the instruction asks for no alignment.
        unsafe {
            let low = _mm_loadu_si128(low.as_ptr().cast());
            let high = _mm_loadu_si128(high.as_ptr().cast());
            Factor {
                low: _mm512_broadcast_i32x4(low),
                high: _mm512_broadcast_i32x4(high),
            }
        }
    }

    #[inline(always)]
    fn product(split: Split, factor: Factor) -> Zmm {
        // SAFETY: a `Split` comes from a `Zmm`, which exists only where AVX-512 is.
        Zmm(unsafe {
            _mm512_xor_si512(
                _mm512_shuffle_epi8(factor.low, split.low),
                _mm512_shuffle_epi8(factor.high, split.high),
            )
        })
    }
    #[inline(always)]
    fn add_product(self, split: Split, factor: Factor) -> Zmm {
        // SAFETY: a `Zmm` exists only where AVX-512 is.
        let (low, high) = unsafe {
            (
                _mm512_shuffle_epi8(factor.low, split.low),
                _mm512_shuffle_epi8(factor.high, split.high),
            )
        };
        self.xor3(Zmm(low), Zmm(high))
    }
}
