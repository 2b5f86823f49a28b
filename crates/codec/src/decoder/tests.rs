use proptest::prelude::*;

use super::*;
use crate::testing::{noise, refs, refs_mut};
use crate::transform::{Onto, Sum};
use crate::{Code, kernels};

/// A stripe of noise with its parities.
struct Stripe {
    code: Code,
    strips: Vec<Vec<u8>>,
}

impl Stripe {
    fn new(rng: &mut fastrand::Rng, data: usize, parity: usize, len: usize) -> Stripe {
        let code = Code::new(data, parity).expect("a shape that is allowed");
        let mut strips = noise(rng, data, len);
        let mut parities = vec![vec![0; len]; parity];
        code.encoder()
            .apply(&refs(&strips), &mut refs_mut(&mut parities));
        strips.append(&mut parities);
        Stripe { code, strips }
    }

    fn all(&self) -> u64 {
        low_bits(self.strips.len())
    }

    /// Computes the wanted strips with each of the kernels and compares them.
    fn check(&self, available: u64, wanted: u64, kernels: &[&str]) {
        let decoder = self.code.decoder(available, wanted).expect("enough strips");
        let sources = decoder.sources();
        assert_eq!(sources.len(), self.code.data());
        assert!(sources.is_sorted());
        assert!(sources.iter().all(|&strip| available & (1 << strip) != 0));
        assert!(
            decoder
                .wanted()
                .iter()
                .copied()
                .eq(bits(wanted).map(|strip| strip as u8))
        );
        let inputs: Vec<&[u8]> = sources
            .iter()
            .map(|&strip| &self.strips[usize::from(strip)][..])
            .collect();
        let count = decoder.wanted().len();
        let sum = Sum {
            rows: low_bits(count),
            columns: low_bits(inputs.len()),
            inputs: &inputs,
            less: &[],
            onto: Onto::Nothing,
        };
        for kernel in kernels {
            let mut outputs = vec![vec![0xa5; self.strips[0].len()]; count];
            decoder
                .transform()
                .sum_on(kernel, &sum, &mut refs_mut(&mut outputs))
                .expect("a usable kernel");
            for (output, &strip) in outputs.iter().zip(decoder.wanted()) {
                assert!(
                    *output == self.strips[usize::from(strip)],
                    "{kernel}: strip {strip} of {:?} from {available:b}",
                    (self.code.data(), self.code.parity())
                );
            }
        }
    }
}

/// Lengths with whole steps of every kernel, and a rest.
const LEN: usize = 577;

#[test]
fn every_loss_of_every_code_of_up_to_12_strips_comes_back() {
    let mut rng = fastrand::Rng::with_seed(11);
    for total in 1..=12 {
        for data in 1..=total {
            every_loss(&mut rng, data, total - data);
        }
    }
}

#[test]
fn every_loss_of_every_code_up_to_16_and_4_comes_back() {
    let mut rng = fastrand::Rng::with_seed(13);
    for parity in 1..=4 {
        for data in 13 - parity..=16 {
            every_loss(&mut rng, data, parity);
        }
    }
}

/// With every kernel; the model of one, which is slow, only where strips are few.
fn every_loss(rng: &mut fastrand::Rng, data: usize, parity: usize) {
    let stripe = Stripe::new(rng, data, parity, LEN);
    let mut kernels = kernels();
    kernels.retain(|&kernel| kernel != "model" || data + parity <= 8);
    for lost in 0..1_u64 << (data + parity) {
        if lost.count_ones() as usize <= parity {
            stripe.check(stripe.all() & !lost, lost, &kernels);
        }
    }
}

#[test]
fn losses_of_wide_codes_come_back() {
    let mut rng = fastrand::Rng::with_seed(12);
    let kernels = kernels();
    let shapes = [
        (16, 4),
        (20, 8),
        (32, 32),
        (62, 2),
        (63, 1),
        (48, 16),
        (24, 3),
        (2, 32),
        (1, 63),
    ];
    for (data, parity) in shapes {
        let stripe = Stripe::new(&mut rng, data, parity, 600);
        for _ in 0..30 {
            let lost = some_strips(&mut rng, data + parity, parity);
            stripe.check(stripe.all() & !lost, lost, &kernels);
        }
    }
}

/// A mask of `count` of the first `total` strips.
fn some_strips(rng: &mut fastrand::Rng, total: usize, count: usize) -> u64 {
    rng.choose_multiple(0..total, count)
        .into_iter()
        .fold(0, |mask, strip| mask | 1 << strip)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Any shape, any survivors, any wish: strips that are there may be wanted, too.
    #[test]
    fn anything_wanted_comes_from_any_k_survivors(
        data in 1..=62_usize, parity in 0..=32_usize, len in 0..600_usize, seed: u64,
    ) {
        let parity = parity.min(64 - data);
        let mut rng = fastrand::Rng::with_seed(seed);
        let stripe = Stripe::new(&mut rng, data, parity, len);
        let count = rng.usize(data..=data + parity);
        let available = some_strips(&mut rng, data + parity, count);
        let wanted = rng.u64(..) & stripe.all();
        stripe.check(available, wanted, &[crate::kernel()]);
    }
}

#[test]
fn data_is_read_before_parity_and_p_before_the_rest() {
    let code = Code::new(4, 3).expect("7.3");
    let sources = |available| {
        code.decoder(available, 1)
            .expect("enough")
            .sources()
            .to_vec()
    };
    assert_eq!(sources(0b111_1111), [0, 1, 2, 3]);
    assert_eq!(sources(0b111_1110), [1, 2, 3, 4]);
    assert_eq!(sources(0b110_1110), [1, 2, 3, 5]);
    assert_eq!(sources(0b111_1000), [3, 4, 5, 6]);
}

#[test]
fn one_strip_from_p_is_pure_xor() {
    let code = Code::new(10, 2).expect("RAID 6");
    let decoder = code
        .decoder(low_bits(12) & !(1 << 3), 1 << 3)
        .expect("enough");
    assert!((0..10).all(|source| decoder.transform().coefficient(0, source) == 1));
}

#[test]
fn too_few_strips_are_an_error_with_both_numbers() {
    let code = Code::new(4, 2).expect("RAID 6");
    let error = code.decoder(0b11_0001, 0b1110).expect_err("three are left");
    assert_eq!(error, CodeError::TooFewStrips { have: 3, need: 4 });
    assert!(
        error
            .to_string()
            .starts_with("3 strips of the stripe are available and 4")
    );
}

#[test]
#[should_panic(expected = "no such strip")]
fn a_strip_that_the_code_does_not_have_panics() {
    let code = Code::new(4, 2).expect("RAID 6");
    let _ = code.decoder(0b100_1111, 1 << 4);
}

#[test]
fn a_pattern_is_made_once_and_shared_by_clones() {
    let code = Code::new(4, 2).expect("RAID 6");
    let first = code.decoder(0b01_1110, 1).expect("enough");
    // The same sources: strip 5 is not read where strip 4 is.
    for available in [0b01_1110, 0b11_1110] {
        let again = code.clone().decoder(available, 1).expect("enough");
        assert!(Arc::ptr_eq(&first, &again));
    }
    let other = code.decoder(0b10_1110, 1).expect("enough");
    assert!(!Arc::ptr_eq(&first, &other));
}

#[test]
fn the_cache_is_bounded_and_keeps_what_is_used() {
    let cache = Cache::new();
    let held = |wanted| cache.get(12, 4, low_bits(16), wanted).expect("enough");
    let loved = held(1);
    for wanted in 2..4 * CACHED_MAX as u64 {
        held(wanted);
        assert!(Arc::ptr_eq(&loved, &held(1)), "forgotten at {wanted}");
    }
    let clock = cache.0.read().expect("not poisoned");
    assert_eq!(clock.entries.len(), CACHED_MAX);
    assert_eq!(clock.places.len(), CACHED_MAX);
    for (pattern, &place) in &clock.places {
        assert_eq!(clock.entries[place].pattern, *pattern);
    }
}

#[test]
fn a_full_cache_of_patterns_all_in_use_makes_room_once_each_was_passed() {
    let cache = Cache::new();
    let held = |wanted| cache.get(12, 4, low_bits(16), wanted).expect("enough");
    for _ in 0..2 {
        for wanted in 0..CACHED_MAX as u64 {
            held(wanted);
        }
    }
    for wanted in 0..2 * CACHED_MAX as u64 {
        assert!(Arc::ptr_eq(&held(wanted), &held(wanted)));
    }
}

#[test]
fn threads_may_ask_at_the_same_time() {
    let code = Code::new(8, 4).expect("8+4");
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let code = &code;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..3000 {
                    let lost = some_strips(&mut rng, 12, 4);
                    let decoder = code.decoder(low_bits(12) & !lost, lost).expect("enough");
                    assert!(
                        decoder
                            .wanted()
                            .iter()
                            .copied()
                            .eq(bits(lost).map(|s| s as u8))
                    );
                }
            });
        }
    });
}
