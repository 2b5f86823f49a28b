//! SSSE3: 16 bytes a vector, and a product is two look-ups in tables of 16.

use std::arch::x86_64::*;

use crate::field::{self, Nibbles};
use crate::tables::{Job, Tables};
use crate::vector::{self, Vector};

pub(super) fn detected() -> bool {
    is_x86_feature_detected!("ssse3")
}

/// Carries out the job. Safe to call where `detected`.
#[target_feature(enable = "ssse3")]
pub(super) fn run(job: &mut Job<'_, '_>) {
    vector::run::<Xmm>(Isa(()), job);
}

/// Whether all bytes are zero. Safe to call where `detected`.
#[target_feature(enable = "ssse3")]
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    vector::is_zero::<Xmm>(Isa(()), bytes)
}

/// Exists only inside the functions above.
#[derive(Clone, Copy)]
struct Isa(());

/// Comes from an `Isa` only, so where there is one the instructions are there.
#[derive(Clone, Copy)]
struct Xmm(__m128i);

/// The low and the high nibble of each byte.
#[derive(Clone, Copy)]
struct Split {
    low: __m128i,
    high: __m128i,
}

/// The products of low and of high nibbles.
#[derive(Clone, Copy)]
struct Factor {
    low: __m128i,
    high: __m128i,
}

impl Vector for Xmm {
    type Isa = Isa;
    type Stored = Nibbles;
    type Factor = Factor;
    type Split = Split;

    const BYTES: usize = 16;
    const WIDE: bool = false;
    const PAIRS: bool = false;
    const LONG: bool = false;
    const SUMS_AHEAD_FROM: usize = vector::ALWAYS;
    const TOGETHER: usize = vector::NEVER;
    const DOUBLES: bool = true;

    #[inline(always)]
    fn zero(_: Isa) -> Xmm {
        // SAFETY: `Isa` exists only where SSSE3 is.
        Xmm(unsafe { _mm_setzero_si128() })
    }

    #[inline(always)]
    fn prefetch(_: Isa, address: *const u8) {
        // SAFETY: a hint that reads nothing and cannot fault, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    fn load(_: Isa, from: &[u8]) -> Xmm {
        assert!(from.len() >= Self::BYTES);
        // SAFETY: `Isa` exists only where SSSE3 is; 16 bytes are there to read, and the
        // instruction asks for no alignment.
        Xmm(unsafe { _mm_loadu_si128(from.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, to: &mut [u8]) {
        assert!(to.len() >= Self::BYTES);
        // SAFETY: a `Xmm` exists only where SSSE3 is; 16 bytes are there to write, and
        // the instruction asks for no alignment.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Xmm) -> Xmm {
        // SAFETY: a `Xmm` exists only where SSSE3 is.
        Xmm(unsafe { _mm_xor_si128(self.0, other.0) })
    }

    #[inline(always)]
    fn or(self, other: Xmm) -> Xmm {
        // SAFETY: a `Xmm` exists only where SSSE3 is.
        Xmm(unsafe { _mm_or_si128(self.0, other.0) })
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        // SAFETY: a `Xmm` exists only where SSSE3 is.
        unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(self.0, _mm_setzero_si128())) == 0xffff }
    }

    #[inline(always)]
    fn xor3(self, second: Xmm, third: Xmm) -> Xmm {
        self.xor(second).xor(third)
    }

    #[inline(always)]
    fn offset(_: Isa) -> Xmm {
        // SAFETY: `Isa` exists only where SSSE3 is.
        Xmm(unsafe { _mm_set1_epi8(field::OFFSET as i8) })
    }

    #[inline(always)]
    fn double_add(self, other: Xmm) -> Xmm {
        // SAFETY: a `Xmm` exists only where SSSE3 is.
        Xmm(unsafe {
            // As in `avx2`.
            let reduce = _mm_shuffle_epi8(_mm_set1_epi8(field::REDUCE as i8), self.0);
            let doubled = _mm_xor_si128(_mm_add_epi8(self.0, self.0), other.0);
            _mm_xor_si128(doubled, reduce)
        })
    }

    #[inline(always)]
    fn split(self) -> Split {
        // SAFETY: a `Xmm` exists only where SSSE3 is.
        unsafe {
            let mask = _mm_set1_epi8(0x0f);
            Split {
                low: _mm_and_si128(self.0, mask),
                high: _mm_and_si128(_mm_srli_epi64::<4>(self.0), mask),
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
        // SAFETY: `Isa` exists only where SSSE3 is; each half has 16 bytes to read, and
        // the instruction asks for no alignment.
        unsafe {
            Factor {
                low: _mm_loadu_si128(low.as_ptr().cast()),
                high: _mm_loadu_si128(high.as_ptr().cast()),
            }
        }
    }

    #[inline(always)]
    fn product(split: Split, factor: Factor) -> Xmm {
        // SAFETY: a `Split` comes from a `Xmm`, which exists only where SSSE3 is.
        Xmm(unsafe {
            _mm_xor_si128(
                _mm_shuffle_epi8(factor.low, split.low),
                _mm_shuffle_epi8(factor.high, split.high),
            )
        })
    }
}
