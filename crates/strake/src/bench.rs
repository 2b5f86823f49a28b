//! `strake bench`: arrays on one pinned core, driven from that core's own thread.
//!
//! Null drives measure our own cost, memory drives the memory's, paced drives shares of what real
//! drives allow. No export and no other thread is in the way: requests go straight into the core's
//! loop, as an export on the same core would hand them over.

mod codec;
mod load;
mod log;
mod report;
mod rig;
mod shares;
mod suite;
mod theory;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use strake_engine::format::superblock::Consistency;
use strake_engine::layout::{GeometryRequest, Level};
use strake_reactor::drive::pace::PaceModel;
use strake_reactor::drive::{DriveSpec, parse_size};

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// One array, one core: requests a second, bytes a second, latency
    Engine(EngineArgs),
    /// What the parity log costs: arrays with and without it, in turn, on paced drives
    Log(log::LogArgs),
    /// The engine's own cost on null and memory drives, over all workloads, beside its bars
    Suite(suite::SuiteArgs),
    /// Shares of what the drives allow, for the published set-ups, on paced drives
    Shares(shares::SharesArgs),
    /// The parity kernels on one core, beside the memory's ceilings and ISA-L
    Codec(codec::CodecArgs),
}

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// Random reads.
    Randread,
    /// Random writes.
    Randwrite,
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random, 70 reads to 30 writes.
    Rw70,
}

/// How an array keeps its parity true over a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// Parity log.
    Log,
    /// Parity log that also keeps the missing strips of degraded full-stripe writes.
    LogAll,
    /// Dirty regions are resynced.
    Resync,
    /// Not at all.
    None,
}

impl Policy {
    /// As it is given.
    fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn consistency(self) -> Consistency {
        match self {
            Policy::Log => Consistency::Log,
            Policy::LogAll => Consistency::LogAll,
            Policy::Resync => Consistency::Resync,
            Policy::None => Consistency::None,
        }
    }
}

/// Parameters of `strake bench engine`.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    /// `null:N[:SIZE]`, `memory:N[:SIZE]`, `paced:MODEL:N[:SIZE]` (MODEL like cm7, or cm7/16 for a
    /// sixteenth of it), or paths of drives whose content is lost
    #[arg(long, required = true, num_args = 1.., value_name = "DRIVES")]
    drives: Vec<String>,
    /// Overwrite drives given by path
    #[arg(long)]
    force: bool,
    /// RAID level
    #[arg(long, default_value = "5")]
    level: String,
    /// Strip size
    #[arg(long, default_value = "64KiB")]
    strip_size: String,
    /// Group size (10: copies; 50, 60, 70: members of a group)
    #[arg(long)]
    group_size: Option<usize>,
    /// Parities (n+m)
    #[arg(long)]
    parity: Option<usize>,
    /// How parity is kept true over a crash; default: as a new array
    #[arg(long, value_enum)]
    policy: Option<Policy>,
    /// What the clients do
    #[arg(long, value_enum, default_value = "randread")]
    workload: Workload,
    /// Bytes of a request
    #[arg(long, default_value = "4KiB")]
    block_size: String,
    /// Requests under way
    #[arg(long, default_value_t = 128)]
    depth: usize,
    /// `healthy`, `degraded[:N]` or `rebuilding[:N]`: without N members (1), or with as many new ones
    #[arg(long, default_value = "healthy")]
    state: String,
    /// Seconds measured, after one second of warming up
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Core to run on; of several the first, which runs the array
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// Cores, each with so many requests under way
    #[arg(long, default_value_t = 1)]
    cores: usize,
}

/// Runs a benchmark and prints its report.
///
/// # Errors
/// Parameters that make no array; drives that cannot be opened; requests that failed; a
/// parity kernel asked for that this machine cannot run.
pub fn run(bench: &Bench, json: bool) -> anyhow::Result<()> {
    strake_codec::kernel_choice()?;
    match bench {
        Bench::Engine(args) => {
            let report = engine(args)?;
            if json {
                println!("{}", serde_json::to_string_pretty(&report)?);
            } else {
                report.print();
            }
        }
        Bench::Log(args) => log::run(args, json)?,
        Bench::Suite(args) => suite::run(args, json)?,
        Bench::Shares(args) => shares::run(args, json)?,
        Bench::Codec(args) => codec::run(args, json)?,
    }
    Ok(())
}

fn engine(args: &EngineArgs) -> anyhow::Result<report::Report> {
    if !is_time(args.seconds) {
        bail!(
            "--seconds {}: give more than 0, and at most a day",
            args.seconds
        );
    }
    rig::pin(args.core)?;
    let drives = drives(args)?;
    let (missing, rebuild) = state(&args.state)?;
    let plan = rig::Plan {
        geometry: GeometryRequest {
            level: level(&args.level)?,
            members: drives.len(),
            strip_size_bytes: Some(size(&args.strip_size)?),
            block_size_bytes: None,
            group_size: args.group_size,
            parity: args.parity,
        },
        drives,
        missing,
        policy: args.policy.map(Policy::consistency),
    };
    let load = load::Load {
        workload: args.workload,
        block_bytes: size(&args.block_size)?,
        depth: args.depth.clamp(1, 65536),
        span_bytes: u64::MAX,
        warm_up_seconds: 1.0,
        seconds: args.seconds,
        fill: ["memory:", "paced:"]
            .iter()
            .any(|kind| args.drives[0].starts_with(kind)),
        rebuild,
        part: 0,
        parts: 1,
    };
    // What a rebuild leaves of the drives is not arithmetic.
    let allowed = paced(args).filter(|_| !rebuild).and_then(|model| {
        let shape = plan.geometry.shape().ok()?;
        let block_bytes = load.block_bytes;
        theory::allowed(&shape, plan.missing, model, load.workload, block_bytes)
    });
    let mut rig = rig::Rig::new(plan)?;
    let measured = match args.cores {
        0 => bail!("--cores 0: give at least 1"),
        1 => rig.run(&load)?,
        _ => {
            let others: Vec<usize> = (args.core + 1..args.core + args.cores).collect();
            rig.run_together(&load, &others)?
        }
    };
    Ok(report::Report::new(args, &load, &measured, allowed))
}

fn size(text: &str) -> anyhow::Result<u64> {
    parse_size(text).map_err(|why| anyhow::anyhow!("{text}: {why}"))
}

fn level(text: &str) -> anyhow::Result<Level> {
    Level::parse(text).with_context(|| format!("{text}: not a RAID level"))
}

/// Members that are missing at first, and whether they are rebuilt then.
fn state(text: &str) -> anyhow::Result<(usize, bool)> {
    let (name, count) = text.split_once(':').unwrap_or((text, "1"));
    let rebuild = match name {
        "healthy" if text == name => return Ok((0, false)),
        "degraded" => false,
        "rebuilding" => true,
        _ => bail!("{text}: give healthy, degraded, degraded:N, rebuilding or rebuilding:N"),
    };
    let count: usize = count
        .parse()
        .with_context(|| format!("{text}: not a number of members"))?;
    if rebuild && count == 0 {
        bail!("{text}: give at least 1 member");
    }
    Ok((count, rebuild))
}

/// `null:5`, `memory:5:1GiB`, `paced:cm7/16:5:1GiB`, or paths.
fn drives(args: &EngineArgs) -> anyhow::Result<Vec<DriveSpec>> {
    if let [one] = args.drives.as_slice()
        && let Some((kind, rest)) = several(one)
    {
        let (count, bytes) = rest.split_once(':').unwrap_or((rest, "1GiB"));
        let count: usize = count
            .parse()
            .with_context(|| format!("{one}: give {kind}:COUNT[:SIZE]"))?;
        return Ok(rig::alike(kind, bytes, count));
    }
    if !args.force {
        bail!(
            "{}: everything on these drives is overwritten: add --force",
            args.drives.join(" ")
        );
    }
    Ok(args.drives.iter().cloned().map(DriveSpec).collect())
}

/// Whether so many seconds can be measured.
fn is_time(seconds: f64) -> bool {
    seconds > 0.0 && seconds <= 86_400.0
}

/// The model whose pace all drives keep.
fn paced(args: &EngineArgs) -> Option<PaceModel> {
    let [one] = args.drives.as_slice() else {
        return None;
    };
    let (kind, _) = several(one)?;
    PaceModel::parse(kind.strip_prefix("paced:")?).ok()
}

/// The kind of drives that a text asks for several of (`null`, `paced:cm7`), and the rest.
fn several(text: &str) -> Option<(&str, &str)> {
    let kind_bytes = match text.strip_prefix("paced:") {
        Some(rest) => text.len() - rest.len() + rest.find(':')?,
        None => text.find(':')?,
    };
    let kind = &text[..kind_bytes];
    let known = matches!(kind, "null" | "memory") || kind.starts_with("paced:");
    known.then(|| (kind, &text[kind_bytes + 1..]))
}

#[cfg(test)]
mod tests;
