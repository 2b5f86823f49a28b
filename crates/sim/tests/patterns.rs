//! Every loss pattern of every level at small sizes: read, write, rebuild, scrub with each.

use strake_sim::geometries::{self, CASES, STRIPS};
use strake_sim::patterns;

/// Patterns of one geometry that the everyday test tries; all with `STRAKE_SIM_ALL`.
const PATTERNS_MAX: usize = 160;

fn every_loss(cases: impl Iterator<Item = usize>) {
    let all = std::env::var_os("STRAKE_SIM_ALL").is_some();
    for index in cases {
        let patterns_max = if all { usize::MAX } else { PATTERNS_MAX };
        let shape = geometries::shape(
            CASES[index],
            64 << 10,
            if index % 2 == 0 { 4096 } else { 512 },
        );
        if let Err(why) = patterns::all(shape, index as u64, patterns_max) {
            panic!("{}: {why}", geometries::name(&shape));
        }
    }
}

#[test]
fn no_loss_pattern_of_mirrors_loses_a_block() {
    every_loss(0..7);
}

#[test]
fn no_loss_pattern_of_single_groups_loses_a_block() {
    every_loss(7..16);
}

#[test]
fn no_loss_pattern_of_several_groups_loses_a_block() {
    every_loss(16..21);
}

#[test]
fn no_loss_pattern_of_any_n_plus_m_loses_a_block() {
    every_loss(21..CASES.len());
}

#[test]
fn every_strip_size_survives_its_losses() {
    for (index, strip) in STRIPS.into_iter().enumerate() {
        for case in [CASES[4], CASES[8], CASES[12], CASES[16]] {
            let shape = geometries::shape(case, strip, if index % 2 == 0 { 512 } else { 4096 });
            if let Err(why) = patterns::all(shape, strip, 3) {
                panic!("{}: {why}", geometries::name(&shape));
            }
        }
    }
}
