//! Bugs planted in the engine, each of which breaks one rule of the parity log: the simulator must
//! find every one, or it proves nothing.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use strake_engine::format::superblock::Consistency;
use strake_engine::planted::{Planted, plant};

use crate::explore::{self, Case, Extent, Limits};
use crate::generate::{self, Kind};
use crate::runner;

/// How a planted bug was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// The bug.
    pub bug: Planted,
    /// By a random run, after this many; with the failure.
    pub by_seed: Option<(u64, String)>,
    /// By exploring, after this many cases; with the failure.
    pub by_case: Option<(u64, String)>,
    /// Real time.
    pub time: Duration,
}

impl Found {
    /// By either.
    pub fn is_found(&self) -> bool {
        self.by_seed.is_some() || self.by_case.is_some()
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let first = |text: &str| {
            text.lines()
                .next()
                .unwrap_or("")
                .chars()
                .take(90)
                .collect::<String>()
        };
        write!(f, "{:<28}", format!("{:?}", self.bug))?;
        match (&self.by_seed, &self.by_case) {
            (Some((seeds, why)), _) => write!(f, "random, after {seeds} seeds: {}", first(why))?,
            (None, Some((cases, why))) => write!(f, "explore, case {cases}: {}", first(why))?,
            (None, None) => write!(f, "NOT FOUND")?,
        }
        write!(f, " ({:.1} s)", self.time.as_secs_f64())
    }
}

/// Plants a bug on this thread and looks for it: first these random runs, then exploring.
pub fn find(bug: Planted, seeds: Range<u64>, cases: usize) -> Found {
    let began = Instant::now();
    plant(Some(bug));
    let first = seeds.start;
    let by_seed = seeds.into_iter().find_map(|seed| {
        let plan = generate::plan(seed, Kind::Small, None);
        let why = runner::execute(&plan).err()?;
        plant(None);
        // A failure without the bug would be another bug.
        let ours = runner::execute(&plan).is_ok();
        plant(Some(bug));
        ours.then_some((seed - first, why))
    });
    let by_case = match by_seed {
        Some(_) => None,
        None => {
            let exhausted = exhausted_cases().into_iter().map(|case| (case, 0));
            let short = short_cases().into_iter().take(cases).map(|case| (case, 2));
            let mut all = exhausted.chain(short).enumerate();
            all.find_map(|(number, (case, again_every))| {
                let why = explored(&case, again_every)?;
                Some((number as u64, why))
            })
        }
    };
    plant(None);
    Found {
        bug,
        by_seed,
        by_case,
        time: began.elapsed(),
    }
}

/// Cases of one write under a log: few, so that the starts after their crashes can be crashed too.
/// Those with most parities come first, as their losses are the most.
fn short_cases() -> Vec<Case> {
    let mut short = one_write_cases(Extent::Small);
    short.sort_by_key(|case| {
        let shape = &case.setup.shape;
        // Parts of a row, the larger the first: what is torn mixes contents that are lost.
        let count = case.script[0].count;
        let part = if count < u64::from(shape.data) {
            count
        } else {
            0
        };
        (Reverse(part), Reverse(shape.parity))
    });
    short
}

/// Cases of one write where as much is missing as can be, of every shape: each takes no time.
fn exhausted_cases() -> Vec<Case> {
    let mut cases = one_write_cases(Extent::Whole);
    cases.retain(|case| case.missing.len() == usize::from(case.setup.shape.parity));
    cases
}

fn one_write_cases(extent: Extent) -> Vec<Case> {
    let all = explore::cases(extent).into_iter();
    let logged = |case: &Case| case.setup.policy == Consistency::Log;
    all.filter(|c| c.script.len() == 1 && logged(c)).collect()
}

fn explored(case: &Case, again_every: u64) -> Option<String> {
    let limits = Limits {
        again_every,
        ..Limits::of(Extent::Small)
    };
    let explored = explore::one(case, &limits, &mut HashSet::new());
    explored.failures.into_iter().next()
}
