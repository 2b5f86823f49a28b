//! AVX-512 with GFNI: 64 bytes a vector, and a product is one instruction, an 8×8
//! matrix over GF(2) applied to each byte.

use std::arch::x86_64::*;

use crate::field;
use crate::tables::{Job, Tables};
use crate::vector::{self, Vector};

pub(super) fn detected() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("gfni")
}

/// Carries out the job. Safe to call where `detected`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
pub(super) fn run(job: &mut Job<'_, '_>) {
    vector::run::<Zmm>(Isa(()), job);
}

/// Whether all bytes are zero. Safe to call where `detected`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,gfni")]
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    vector::is_zero::<Zmm>(Isa(()), bytes)
}

/// Exists only inside the functions above.
#[derive(Clone, Copy)]
struct Isa(());

/// Comes from an `Isa` only, so where there is one the instructions are there.
#[derive(Clone, Copy)]
struct Zmm(__m512i);

impl Vector for Zmm {
    type Isa = Isa;
    type Stored = u64;
    type Factor = __m512i;
    type Split = Zmm;

    const BYTES: usize = 64;
    const WIDE: bool = true;
    const PAIRS: bool = true;
    const LONG: bool = false;
    const SUMS_AHEAD_FROM: usize = vector::ALWAYS;
    const TOGETHER: usize = vector::NEVER;
    const DOUBLES: bool = false;

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
        // SAFETY: `Isa` exists only where AVX-512 is; 64 bytes are there to read, and
        // the instruction asks for no alignment.
        Zmm(unsafe { _mm512_loadu_si512(from.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, to: &mut [u8]) {
        assert!(to.len() >= Self::BYTES);
        // SAFETY: a `Zmm` exists only where AVX-512 is; 64 bytes are there to write,
        // and the instruction asks for no alignment.
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
        const BY_TWO: u64 = field::affine(2);
        Zmm::product(self, Zmm::factor(Isa(()), &BY_TWO)).xor(other)
    }

    #[inline(always)]
    fn split(self) -> Zmm {
        self
    }

    #[inline(always)]
    fn stored(tables: &Tables) -> &[u64] {
        tables.affine()
    }

    #[inline(always)]
    fn factor(_: Isa, stored: &u64) -> __m512i {
        // SAFETY: `Isa` exists only where AVX-512 is.
        unsafe { _mm512_set1_epi64(stored.cast_signed()) }
    }

    #[inline(always)]
    fn product(split: Zmm, factor: __m512i) -> Zmm {
        // SAFETY: a `Zmm` exists only where AVX-512 and GFNI are.
        Zmm(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(split.0, factor) })
    }
}
