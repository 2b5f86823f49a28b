//! Division by a number that stays the same, without the processor's slow division.
//!
//! A multiplication by a rounded-up reciprocal (Granlund and Montgomery, "Division by invariant
//! integers using multiplication", 1994): for `n < 2^63` and `2^(l-1) < d <= 2^l`, the factor
//! `ceil(2^(63+l) / d)` fits 64 bits, and `n * factor >> (63 + l)` is `n / d` exactly.

/// A number that others are divided by. At least 1, at most 2^62.
#[derive(Debug, Clone, Copy)]
pub(super) struct Divisor {
    divisor: u64,
    factor: u64,
    shift: u32,
}

impl Divisor {
    pub(super) fn new(divisor: u64) -> Divisor {
        assert!((1..=1 << 62).contains(&divisor));
        let shift = 63 + divisor.next_power_of_two().trailing_zeros();
        let factor = (1u128 << shift).div_ceil(u128::from(divisor));
        Divisor {
            divisor,
            factor: u64::try_from(factor).expect("less than 2^64: see the module"),
            shift,
        }
    }

    pub(super) fn get(self) -> u64 {
        self.divisor
    }

    /// `n / divisor`, for `n` below 2^63.
    #[inline]
    pub(super) fn quotient(self, n: u64) -> u64 {
        debug_assert!(n < 1 << 63);
        ((u128::from(n) * u128::from(self.factor)) >> self.shift) as u64
    }

    /// `(n / divisor, n % divisor)`, for `n` below 2^63.
    #[inline]
    pub(super) fn divide(self, n: u64) -> (u64, u64) {
        let quotient = self.quotient(n);
        (quotient, n - quotient * self.divisor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Divisor;

    const GREATEST: u64 = (1 << 63) - 1;

    #[test]
    fn exact_around_every_multiple_of_the_ends() {
        let near = |n: u64| [n.saturating_sub(1), n, n.saturating_add(1).min(GREATEST)];
        let powers = (0..=62).flat_map(|bit| near(1 << bit));
        for divisor in powers.filter(|d| (1..=1 << 62).contains(d)) {
            let by = Divisor::new(divisor);
            let last = GREATEST / divisor * divisor;
            for n in [0, 1, divisor, last].into_iter().flat_map(near) {
                assert_eq!(by.divide(n), (n / divisor, n % divisor), "{n} / {divisor}");
            }
        }
    }

    proptest! {
        #[test]
        fn exact(divisor in 1u64..=1 << 62, small in 1u64..1 << 20, n in 0u64..1 << 63) {
            for d in [divisor, small, small << 12] {
                prop_assert_eq!(Divisor::new(d).divide(n), (n / d, n % d));
            }
        }
    }
}
