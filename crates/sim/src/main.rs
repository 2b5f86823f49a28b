//! The simulator's command line.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use strake_engine::layout::Level;
use strake_sim::explore::{self, Extent, Limits};
use strake_sim::generate::{self, Kind};
use strake_sim::plan::Plan;
use strake_sim::runner::{self, Runs, Total};
use strake_sim::shrink;

const USAGE: &str = "usage:
  strake-sim run --seeds A..B [--small|--long] [--level L] [--threads N] [--failures N]
    [--no-shrink]
  strake-sim replay SEED [--small|--long] [--level L] [--no-shrink]
  strake-sim replay --plan FILE [--no-shrink]
  strake-sim explore [--whole] [--part I/N] [--first-group N] [--every N] [--minutes N] [--threads N]
  strake-sim planted [--bug NAME] [--seeds A..B] [--every CASES]
  strake-sim show SEED [--small|--long] [--level L]
STRAKE_SIM_TRACE=1 prints every operation. Built with --features planted: planted, and
replay [--bug NAME].";

/// What the arguments ask for.
struct Arguments {
    verb: String,
    runs: Runs,
    seed: Option<u64>,
    plan: Option<String>,
    shrink: bool,
    extent: Extent,
    every: Option<usize>,
    part: (usize, usize),
    first_group: usize,
    minutes: Option<u64>,
    bug: Option<String>,
}

fn parse(mut rest: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        verb: rest.next().ok_or("a verb is missing")?,
        runs: Runs::of(0..0, Kind::Mixed),
        seed: None,
        plan: None,
        shrink: true,
        extent: Extent::Small,
        every: None,
        part: (0, 1),
        first_group: 0,
        minutes: None,
        bug: None,
    };
    let runs = &mut arguments.runs;
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--seeds" => {
                let value = value()?;
                let (from, to) = value.split_once("..").ok_or("--seeds is A..B")?;
                runs.seeds = number(from)?..number(to)?;
            }
            "--level" => {
                let value = value()?;
                runs.level = Some(Level::parse(&value).ok_or(format!("no level {value}"))?);
            }
            "--threads" => runs.threads = number(&value()?)? as usize,
            "--failures" => runs.failures_max = number(&value()?)? as usize,
            "--small" => runs.kind = Kind::Small,
            "--long" => runs.kind = Kind::Long,
            "--whole" => arguments.extent = Extent::Whole,
            "--every" => arguments.every = Some(number(&value()?)? as usize),
            "--part" => {
                let value = value()?;
                let (part, parts) = value.split_once('/').ok_or("--part is I/N")?;
                arguments.part = (number(part)? as usize, number(parts)? as usize);
            }
            "--first-group" => arguments.first_group = number(&value()?)? as usize,
            "--minutes" => arguments.minutes = Some(number(&value()?)?),
            "--bug" => arguments.bug = Some(value()?),
            "--no-shrink" => arguments.shrink = false,
            "--plan" => arguments.plan = Some(value()?),
            text => arguments.seed = Some(number(text)?),
        }
    }
    Ok(arguments)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a number"))
}

fn plan(arguments: &Arguments) -> Result<Plan, String> {
    let Runs { kind, level, .. } = arguments.runs;
    match (&arguments.plan, arguments.seed) {
        (Some(file), None) => std::fs::read_to_string(file)
            .map_err(|error| format!("{file}: {error}"))?
            .parse(),
        (None, Some(seed)) => Ok(generate::plan(seed, kind, level)),
        _ => Err("give a seed or --plan FILE".into()),
    }
}

fn replay(arguments: &Arguments) -> Result<ExitCode, String> {
    let plan = plan(arguments)?;
    #[cfg(feature = "planted")]
    strake_engine::planted::plant(arguments.bug.as_deref().and_then(planted_bug));
    let why = match runner::execute(&plan) {
        Ok(summary) => {
            println!("no failure: {summary:?}");
            return Ok(ExitCode::SUCCESS);
        }
        Err(why) => why,
    };
    println!("{why}");
    if arguments.shrink {
        let (short, why) = shrink::shrink(&plan, why);
        println!("\nshrunk to {} steps:\n{short}\n{why}", short.steps.len());
    }
    Ok(ExitCode::FAILURE)
}

/// Writes a file with a short plan for each of the first seeds that failed.
fn keep_shrunk(runs: &Runs, total: &Total) -> Result<(), String> {
    const KEPT_MAX: usize = 3;
    for (seed, why) in total.failures.iter().take(KEPT_MAX) {
        let plan = generate::plan(*seed, runs.kind, runs.level);
        let (short, _) = shrink::shrink(&plan, why.clone());
        let file = format!("seed-{seed}.plan");
        std::fs::write(&file, short.to_string()).map_err(|error| format!("{file}: {error}"))?;
        println!("seed {seed} shrunk to {} steps: {file}", short.steps.len());
    }
    Ok(())
}

fn explore(arguments: &Arguments) -> ExitCode {
    let mut limits = Limits::of(arguments.extent);
    limits.case_every = arguments.every.unwrap_or(limits.case_every);
    limits.part = arguments.part;
    limits.first_group = arguments.first_group;
    limits.time = arguments
        .minutes
        .map(|minutes| Duration::from_secs(60 * minutes));
    let explored = explore::explore(arguments.extent, limits, arguments.runs.threads, || {});
    println!("{explored}");
    // What was cut short by the time that was given for it is not a failure, and says so.
    if explored.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The planted bug of this name.
#[cfg(feature = "planted")]
fn planted_bug(name: &str) -> Option<strake_engine::planted::Planted> {
    let mut all = strake_engine::planted::Planted::ALL.into_iter();
    all.find(|bug| format!("{bug:?}") == name)
}

#[cfg(feature = "planted")]
fn planted(arguments: &Arguments) -> ExitCode {
    use strake_sim::planted;
    let mut all_found = true;
    let mut seeds = arguments.runs.seeds.clone();
    if seeds.is_empty() {
        seeds = 0..1000;
    }
    let wanted = |name: &str| arguments.bug.as_ref().is_none_or(|bug| bug == name);
    for bug in strake_engine::planted::Planted::ALL {
        if !wanted(&format!("{bug:?}")) {
            continue;
        }
        let found = planted::find(bug, seeds.clone(), arguments.every.unwrap_or(200));
        println!("{found}");
        all_found &= found.is_found();
    }
    if all_found {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn main() -> ExitCode {
    if let Err(why) = strake_codec::kernel_choice() {
        eprintln!("{why}");
        return ExitCode::from(2);
    }
    let result =
        parse(std::env::args().skip(1)).and_then(|arguments| match arguments.verb.as_str() {
            "run" if !arguments.runs.seeds.is_empty() => {
                let total = runner::many(&arguments.runs);
                println!("{total}");
                if arguments.shrink {
                    keep_shrunk(&arguments.runs, &total)?;
                }
                Ok(if total.failures.is_empty() {
                    ExitCode::SUCCESS
                } else {
                    ExitCode::FAILURE
                })
            }
            "explore" => Ok(explore(&arguments)),
            #[cfg(feature = "planted")]
            "planted" => Ok(planted(&arguments)),
            "replay" => replay(&arguments),
            "show" => {
                println!("{}", plan(&arguments)?);
                Ok(ExitCode::SUCCESS)
            }
            "run" => Err("--seeds A..B is missing".into()),
            other => Err(format!("no verb {other:?}")),
        });
    result.unwrap_or_else(|why| {
        eprintln!("{why}\n{USAGE}");
        ExitCode::from(2)
    })
}
