//! Random runs. `STRAKE_SIM_SEED=n` replays one, `STRAKE_SIM_SEEDS=a..b` runs many.

use strake_sim::runner;

/// Random runs of the everyday test, shared by the cores.
const SEEDS: u64 = 2000;
/// Seeds that failed once, with what they found. What a seed does changes with the workload, so
/// each bug has a story of its own, too (`scenarios.rs`, the engine's own tests).
const KEPT: [(u64, &str); 11] = [
    (
        1,
        "a stop that came before the start had ended never answered",
    ),
    (
        4,
        "a mirror was read where bands in the middle were not refilled",
    ),
    (
        5,
        "a member stopped at the end of its rebuild was rebuilt for ever",
    ),
    (
        8,
        "a direct read was overtaken by the discard of its region",
    ),
    (
        17,
        "a drive in the place of a failed one was taken for refilled",
    ),
    (300, "regions dirty without parity were never cleaned"),
    (365, "a clean stop forgot what was left of a resync"),
    (389, "the same with other faults"),
    (1424, "a repair without rows left empty memory behind"),
    (2844, "memory was in use after a stop"),
    (
        100_697,
        "a joining member's map pages contradicted the others' of the same generation",
    ),
];

fn range() -> Option<std::ops::Range<u64>> {
    if let Ok(seed) = std::env::var("STRAKE_SIM_SEED") {
        let seed = seed.parse().expect("STRAKE_SIM_SEED is a number");
        return Some(seed..seed + 1);
    }
    let seeds = std::env::var("STRAKE_SIM_SEEDS").ok()?;
    let (from, to) = seeds.split_once("..").expect("STRAKE_SIM_SEEDS is a..b");
    let number = |text: &str| text.parse().expect("STRAKE_SIM_SEEDS is a..b");
    Some(number(from)..number(to))
}

#[test]
fn random_runs_lose_nothing() {
    if let Some(seeds) = range() {
        return judge(&runner::many(seeds, None, None, 20));
    }
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let share = SEEDS * thread / threads..SEEDS * (thread + 1) / threads;
            scope.spawn(move || judge(&runner::many(share, None, None, 3)));
        }
    });
}

fn judge(total: &runner::Total) {
    println!("{total}");
    assert!(total.failures.is_empty(), "{total}");
}

#[test]
fn what_failed_once_does_not_fail_again() {
    for (seed, found) in KEPT {
        if let Err(why) = runner::one(seed, None) {
            panic!("seed {seed} ({found}): {why}");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..12 {
        assert_eq!(
            runner::one(seed, None),
            runner::one(seed, None),
            "seed {seed}"
        );
    }
}
