//! AVX2: 32 bytes a vector, and a product is two look-ups in tables of 16.

use std::arch::x86_64::*;

use crate::field::{self, Nibbles};
use crate::tables::{Job, Tables};
use crate::vector::{self, Vector};

pub(super) fn detected() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Carries out the job. Safe to call where `detected`.
#[target_feature(enable = "avx2")]
pub(super) fn run(job: &mut Job<'_, '_>) {
    vector::run::<Ymm>(Isa(()), job);
}

/// Whether all bytes are zero. Safe to call where `detected`.
#[target_feature(enable = "avx2")]
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    vector::is_zero::<Ymm>(Isa(()), bytes)
}

/// Exists only inside the functions above.
#[derive(Clone, Copy)]
struct Isa(());

/// Comes from an `Isa` only, so where there is one the instructions are there.
#[derive(Clone, Copy)]
struct Ymm(__m256i);

/// The low and the high nibble of each byte.
#[derive(Clone, Copy)]
struct Split {
    low: __m256i,
    high: __m256i,
}

/// The products of low and of high nibbles, the same in both halves of the register.
#[derive(Clone, Copy)]
struct Factor {
    low: __m256i,
    high: __m256i,
}

impl Vector for Ymm {
    type Isa = Isa;
    type Stored = Nibbles;
    type Factor = Factor;
    type Split = Split;

    const BYTES: usize = 32;
    const WIDE: bool = false;
    const PAIRS: bool = false;
    const LONG: bool = false;
    const SUMS_AHEAD_FROM: usize = vector::NEVER;
    const TOGETHER: usize = 6;
    const DOUBLES: bool = true;

    #[inline(always)]
    fn zero(_: Isa) -> Ymm {
        // SAFETY: `Isa` exists only where AVX2 is.
        Ymm(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    fn prefetch(_: Isa, address: *const u8) {
        // SAFETY: a hint that reads nothing and cannot fault, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    fn load(_: Isa, from: &[u8]) -> Ymm {
        assert!(from.len() >= Self::BYTES);
        // SAFETY: `Isa` exists only where AVX2 is; 32 bytes are there to read, and the
        // instruction asks for no alignment.
        Ymm(unsafe { _mm256_loadu_si256(from.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, to: &mut [u8]) {
        assert!(to.len() >= Self::BYTES);
        // SAFETY: a `Ymm` exists only where AVX2 is; 32 bytes are there to write, and
        // the instruction asks for no alignment.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Ymm) -> Ymm {
        // SAFETY: a `Ymm` exists only where AVX2 is.
        Ymm(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn or(self, other: Ymm) -> Ymm {
        // SAFETY: a `Ymm` exists only where AVX2 is.
        Ymm(unsafe { _mm256_or_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        // SAFETY: a `Ymm` exists only where AVX2 is.
        unsafe { _mm256_testz_si256(self.0, self.0) == 1 }
    }

    #[inline(always)]
    fn xor3(self, second: Ymm, third: Ymm) -> Ymm {
        self.xor(second).xor(third)
    }

    #[inline(always)]
    fn offset(_: Isa) -> Ymm {
        // SAFETY: `Isa` exists only where AVX2 is.
        Ymm(unsafe { _mm256_set1_epi8(field::OFFSET as i8) })
    }

    #[inline(always)]
    fn double_add(self, other: Ymm) -> Ymm {
        // SAFETY: a `Ymm` exists only where AVX2 is.
        Ymm(unsafe {
            // 0 where a byte's highest bit is set: what has to be added less the polynomial, in
            // one instruction where a comparison and a mask are two.
            let reduce = _mm256_shuffle_epi8(_mm256_set1_epi8(field::REDUCE as i8), self.0);
            let doubled = _mm256_xor_si256(_mm256_add_epi8(self.0, self.0), other.0);
            _mm256_xor_si256(doubled, reduce)
        })
    }

    #[inline(always)]
    fn split(self) -> Split {
        // SAFETY: a `Ymm` exists only where AVX2 is.
        unsafe {
            let mask = _mm256_set1_epi8(0x0f);
            Split {
                low: _mm256_and_si256(self.0, mask),
                high: _mm256_and_si256(_mm256_srli_epi64::<4>(self.0), mask),
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
        // SAFETY: `Isa` exists only where AVX2 is; each half has 16 bytes to read, and
        // the instruction asks for no alignment.
        unsafe {
            let low = _mm_loadu_si128(low.as_ptr().cast());
            let high = _mm_loadu_si128(high.as_ptr().cast());
            Factor {
                low: _mm256_broadcastsi128_si256(low),
                high: _mm256_broadcastsi128_si256(high),
            }
        }
    }

    #[inline(always)]
    fn product(split: Split, factor: Factor) -> Ymm {
        // SAFETY: a `Split` comes from a `Ymm`, which exists only where AVX2 is.
        Ymm(unsafe {
            _mm256_xor_si256(
                _mm256_shuffle_epi8(factor.low, split.low),
                _mm256_shuffle_epi8(factor.high, split.high),
            )
        })
    }
}
