//! Random runs, and those that failed once. `STRAKE_SIM_SEEDS=a..b` runs many.

use strake_sim::generate::Kind;
use strake_sim::plan::Plan;
use strake_sim::runner::{self, Runs};

/// Random small runs of the everyday test.
const SMALL: u64 = 12_000;
/// Random long runs.
const LONG: u64 = 120;

fn judge(runs: &Runs) {
    let total = runner::many(runs);
    println!("{total}");
    assert!(total.failures.is_empty(), "{total}");
}

#[test]
fn random_runs_lose_nothing() {
    if let Ok(seeds) = std::env::var("STRAKE_SIM_SEEDS") {
        let number = |text: &str| text.parse().expect("STRAKE_SIM_SEEDS is a..b");
        let (from, to) = seeds.split_once("..").expect("STRAKE_SIM_SEEDS is a..b");
        return judge(&Runs::of(number(from)..number(to), Kind::Mixed));
    }
    judge(&Runs::of(0..SMALL, Kind::Small));
    judge(&Runs::of(0..LONG, Kind::Long));
}

#[test]
fn what_failed_once_does_not_fail_again() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kept");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the kept plans are there")
        .map(|entry| entry.expect("a folder can be read").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no plan is kept");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a plan is text");
        let plan: Plan = text
            .parse()
            .unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        if let Err(why) = runner::execute(&plan) {
            panic!("{}: {why}", file.display());
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..150 {
        for kind in [Kind::Small, Kind::Long] {
            if kind == Kind::Long && seed % 25 > 0 {
                continue;
            }
            let (one, other) = (runner::one(seed, kind, None), runner::one(seed, kind, None));
            assert_eq!(one, other, "seed {seed}");
        }
    }
}
