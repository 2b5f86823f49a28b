//! Runs seeds and says which failed and how to run them again.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use strake_engine::layout::Level;

use crate::sequence::{self, Summary};

/// Runs one seed; a panic of the program under test is a failure like any other.
///
/// # Errors
/// What went wrong, with what was done before.
pub fn one(seed: u64, level: Option<Level>) -> Result<Summary, String> {
    match std::panic::catch_unwind(AssertUnwindSafe(|| sequence::run(seed, level))) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let (_, array) = sequence::setup(seed, level);
            Err(format!(
                "panicked: {}\n  array: {array}",
                text.unwrap_or_default()
            ))
        }
    }
}

/// What many seeds made.
#[derive(Debug, Default)]
pub struct Total {
    /// Seeds run.
    pub seeds: u64,
    /// Requests answered.
    pub requests: u64,
    /// Operations on drives.
    pub operations: u64,
    /// Virtual time.
    pub virtual_time: Duration,
    /// Real time.
    pub real_time: Duration,
    /// Seeds that failed, with why.
    pub failures: Vec<(u64, String)>,
}

/// Runs seeds in order until they, or the time, or `failures_max` are used up.
pub fn many(
    seeds: Range<u64>,
    level: Option<Level>,
    budget: Option<Duration>,
    failures_max: usize,
) -> Total {
    let began = Instant::now();
    let mut total = Total::default();
    for seed in seeds {
        if budget.is_some_and(|budget| began.elapsed() > budget)
            || total.failures.len() >= failures_max
        {
            break;
        }
        total.seeds += 1;
        match one(seed, level) {
            Ok(summary) => {
                total.requests += summary.requests;
                total.operations += summary.operations;
                total.virtual_time += Duration::from_nanos(summary.virtual_ns);
            }
            Err(why) => total.failures.push((seed, why)),
        }
    }
    total.real_time = began.elapsed();
    total
}

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (seed, why) in &self.failures {
            writeln!(
                f,
                "seed {seed}: {why}\n  again: strake-sim replay {seed}, or STRAKE_SIM_SEED={seed} cargo test -p strake-sim"
            )?;
        }
        write!(
            f,
            "{} seeds, {} requests, {} drive operations, {:.0} s of virtual time in {:.1} s, {} failures",
            self.seeds,
            self.requests,
            self.operations,
            self.virtual_time.as_secs_f64(),
            self.real_time.as_secs_f64(),
            self.failures.len()
        )
    }
}
