//! `strake bench engine`: one array on one pinned core, driven from that core's own thread.
//!
//! Null drives measure our own cost, memory drives the memory's. No export and no other thread is
//! in the way: requests go straight into the core's loop, as an export on the same core would
//! hand them over.

mod load;
mod report;

use std::sync::{Arc, Mutex};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use strake_engine::layout::{GeometryRequest, Level};
use strake_node::core::{Core, Message};
use strake_node::{CreateArray, make};
use strake_reactor::buffer::Pool;
use strake_reactor::drive::{DriveSpec, describe, parse_size};
use strake_reactor::ring::{RingConfig, RingPort};

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// One array, one core: requests a second, bytes a second, latency.
    Engine(EngineArgs),
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

/// Parameters of `strake bench engine`.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    /// `null:N[:SIZE]`, `memory:N[:SIZE]`, or paths of drives whose content is lost
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
    /// What the clients do
    #[arg(long, value_enum, default_value = "randread")]
    workload: Workload,
    /// Bytes of a request
    #[arg(long, default_value = "4KiB")]
    block_size: String,
    /// Requests under way
    #[arg(long, default_value_t = 128)]
    depth: usize,
    /// `healthy`, `degraded` or `degraded:N`
    #[arg(long, default_value = "healthy")]
    state: String,
    /// Seconds measured, after one second of warming up
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// Runs a benchmark and prints its report.
///
/// # Errors
/// Parameters that make no array; drives that cannot be opened; requests that failed.
pub fn run(bench: &Bench, json: bool) -> anyhow::Result<()> {
    let Bench::Engine(args) = bench;
    let report = engine(args)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    Ok(())
}

fn engine(args: &EngineArgs) -> anyhow::Result<report::Report> {
    pin(args.core)?;
    let specs = drives(args)?;
    let infos = specs.iter().map(describe).collect::<Result<Vec<_>, _>>()?;
    let missing: Vec<usize> = (0..missing(&args.state)?).collect();
    let request = CreateArray {
        name: "bench".into(),
        geometry: GeometryRequest {
            level: Level::parse(&args.level)
                .with_context(|| format!("{}: not a RAID level", args.level))?,
            members: specs.len(),
            strip_size_bytes: Some(size(&args.strip_size)?),
            block_size_bytes: None,
            group_size: args.group_size,
            parity: args.parity,
        },
        drives: specs.clone(),
        force: false,
    };
    let pool = Pool::new(256 << 20)?;
    let port = RingPort::new(RingConfig {
        entries: 1024,
        pool: Some(pool.clone()),
    })?;
    let start = make::unrecorded(&request, &infos, &missing, 128 << 20)?;
    let volume_bytes = start.superblock.volume_size_bytes;
    let present = specs
        .iter()
        .enumerate()
        .map(|(at, spec)| (!missing.contains(&at)).then(|| spec.clone()))
        .collect();
    let mut core = Core::new(port, pool.clone());
    let slot = Arc::new(Mutex::new(None));
    let answer = slot.clone();
    let added = Box::new(move |result| *answer.lock().expect("no panic while held") = Some(result));
    core.message(Message::Add(Box::new(start), present, added), 0);
    let slot = slot
        .lock()
        .expect("no panic while held")
        .take()
        .context("the core did not answer")??;
    let plan = load::Load {
        slot,
        workload: args.workload,
        block_bytes: size(&args.block_size)?,
        depth: args.depth.clamp(1, 65536),
        volume_bytes,
        seconds: args.seconds,
        fill: args.drives[0].starts_with("memory:"),
    };
    let measured = load::run(&mut core, &pool, &plan)?;
    Ok(report::Report::new(args, &plan, &measured))
}

fn size(text: &str) -> anyhow::Result<u64> {
    parse_size(text).map_err(|why| anyhow::anyhow!("{text}: {why}"))
}

fn missing(state: &str) -> anyhow::Result<usize> {
    match state.split_once(':') {
        None if state == "healthy" => Ok(0),
        None if state == "degraded" => Ok(1),
        Some(("degraded", count)) => count
            .parse()
            .with_context(|| format!("{state}: not a number of members")),
        _ => bail!("{state}: give healthy, degraded or degraded:N"),
    }
}

/// `null:5`, `memory:5:1GiB`, or paths.
fn drives(args: &EngineArgs) -> anyhow::Result<Vec<DriveSpec>> {
    if let [one] = args.drives.as_slice()
        && let Some((kind @ ("null" | "memory"), rest)) = one.split_once(':')
    {
        let (count, bytes) = rest.split_once(':').unwrap_or((rest, "1GiB"));
        let count: usize = count
            .parse()
            .with_context(|| format!("{one}: give {kind}:COUNT[:SIZE]"))?;
        return Ok((0..count)
            .map(|at| DriveSpec(format!("{kind}:{bytes}:bench-{at}")))
            .collect());
    }
    if !args.force {
        bail!(
            "{}: everything on these drives is overwritten: add --force",
            args.drives.join(" ")
        );
    }
    Ok(args.drives.iter().cloned().map(DriveSpec).collect())
}

fn pin(core: usize) -> anyhow::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
        .with_context(|| format!("cannot run on core {core}"))
}
