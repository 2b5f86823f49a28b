//! Every bug planted in the engine is found. Built with `--features planted`, which
//! `cargo xtask test` does in a run of its own.
#![cfg(feature = "planted")]

use std::sync::Mutex;

use strake_engine::planted::Planted;
use strake_sim::planted;

/// Random runs within which a bug is found, or else by this many short cases.
const SEEDS: u64 = 1000;
const CASES: usize = 12;

#[test]
fn every_planted_bug_is_found() {
    let left = Mutex::new(Planted::ALL.to_vec());
    let missed = Mutex::new(Vec::new());
    let work = || {
        while let Some(bug) = { left.lock().expect("no panic").pop() } {
            let found = planted::find(bug, 0..SEEDS, CASES);
            println!("{found}");
            if !found.is_found() {
                missed.lock().expect("no panic").push(bug);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let missed = missed.into_inner().expect("no panic");
    assert!(missed.is_empty(), "not found: {missed:?}");
}
