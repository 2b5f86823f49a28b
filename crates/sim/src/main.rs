//! `strake-sim run --seeds A..B [--level L]` and `strake-sim replay SEED [--level L]`.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::process::ExitCode;

use strake_engine::layout::Level;
use strake_sim::runner;

const USAGE: &str =
    "usage: strake-sim run --seeds A..B [--level L] | strake-sim replay SEED [--level L]
STRAKE_SIM_TRACE=1 prints every operation.";

/// Failures after which a run of many seeds ends.
const FAILURES_MAX: usize = 20;

enum Task {
    Run(Range<u64>),
    Replay(u64),
}

fn parse(arguments: &[String]) -> Option<(Task, Option<Level>)> {
    let (verb, rest) = arguments.split_first()?;
    let (mut seeds, mut level, mut seed) = (None, None, None);
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--seeds" => {
                let (from, to) = rest.next()?.split_once("..")?;
                seeds = Some(from.parse().ok()?..to.parse().ok()?);
            }
            "--level" => level = Some(Level::parse(rest.next()?)?),
            text => seed = Some(text.parse().ok()?),
        }
    }
    match (verb.as_str(), seeds, seed) {
        ("run", Some(seeds), None) => Some((Task::Run(seeds), level)),
        ("replay", None, Some(seed)) => Some((Task::Replay(seed), level)),
        _ => None,
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((task, level)) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let total = match task {
        Task::Run(seeds) => runner::many(seeds, level, None, FAILURES_MAX),
        Task::Replay(seed) => runner::many(seed..seed + 1, level, None, 1),
    };
    println!("{total}");
    if total.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
