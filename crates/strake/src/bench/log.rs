//! `strake bench log`: what the parity log costs.
//!
//! Two runs of one load on one array, without the log and with it, one after the other; several
//! such pairs, so that what else happens on the machine meets both alike. The drives are paced and
//! slowed down until one core can keep all of them busy: then the drives are the limit, as in life,
//! and the cost is a share of what they allow. Whether they were is checked from the core's idle
//! time. The drives' own time a request says the same without a clock.

pub(super) mod compare;
mod table;

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use strake_engine::format::superblock::Consistency;
use strake_engine::layout::GeometryRequest;

use super::load::Load;
use super::rig::{self, Plan, Rig};
use super::{Policy, Workload, level};
use compare::{Comparison, Sample};

/// Parameters of `strake bench log`.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// Whose pace the drives keep
    #[arg(long, default_value = "cm7")]
    model: String,
    /// How many times slower, so that one core keeps all drives busy (latency is measured unslowed)
    #[arg(long, default_value_t = 64)]
    scale: u32,
    /// 4 KiB writes under way
    #[arg(long, default_value_t = 256)]
    depth: usize,
    /// Full-stripe writes under way
    #[arg(long, default_value_t = 32)]
    full_stripe_depth: usize,
    /// Pairs of runs for each figure
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Seconds measured in each run, after half of that warming up
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// What is compared with `none`
    #[arg(long, value_enum, default_value = "log")]
    policy: Policy,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// One of the arrays that are compared.
struct Array {
    title: &'static str,
    level: &'static str,
    members: usize,
    /// What the log may cost of 4 KiB random writes, in per cent.
    bar_percent: f64,
}

const ARRAYS: [Array; 3] = [
    Array {
        title: "RAID 5, 4+1",
        level: "5",
        members: 5,
        bar_percent: 20.0,
    },
    Array {
        title: "RAID 6, 8+2",
        level: "6",
        members: 10,
        bar_percent: 25.0,
    },
    Array {
        title: "RAID 7.3, 8+3",
        level: "7.3",
        members: 11,
        bar_percent: 28.0,
    },
];

/// What the log may cost of full-stripe writes, in per cent.
const FULL_STRIPE_BAR_PERCENT: f64 = 2.0;

/// Large enough for a log of the default size; only what is written takes memory.
const DRIVE_BYTES: &str = "4GiB";
/// Used of each array: beyond all caches.
const SPAN_BYTES: u64 = 1 << 30;
/// Members of the array with the most.
const DRIVES_MAX: usize = 11;

/// All that was measured.
#[derive(Debug, Serialize)]
struct Report {
    model: String,
    scale: u32,
    policy: String,
    pairs: usize,
    seconds: f64,
    kernel: &'static str,
    /// 4 KiB random writes at depth, drives the limit.
    random: Vec<Comparison>,
    /// Full-stripe writes at depth, drives the limit.
    full_stripe: Vec<Comparison>,
    /// 4 KiB random writes one at a time, drives not slowed.
    alone: Vec<Comparison>,
    /// 4 KiB random writes on memory drives, the core the limit.
    memory: Vec<Comparison>,
}

/// Measures all and prints it.
///
/// # Errors
/// Parameters out of range; requests that failed; a log that wrote nothing.
pub fn run(args: &LogArgs, json: bool) -> anyhow::Result<()> {
    if args.pairs == 0 || args.depth == 0 || args.full_stripe_depth == 0 {
        bail!("--pairs, --depth and --full-stripe-depth: give at least 1");
    }
    if args.policy == Policy::None {
        bail!("--policy none: is what the others are compared with; give log, log-all or resync");
    }
    rig::pin(args.core)?;
    let mut report = Report {
        model: args.model.clone(),
        scale: args.scale,
        policy: args.policy.name(),
        pairs: args.pairs,
        seconds: args.seconds,
        kernel: strake_codec::kernel(),
        random: Vec::new(),
        full_stripe: Vec::new(),
        alone: Vec::new(),
        memory: Vec::new(),
    };
    let slowed = format!("paced:{}/{}", args.model, args.scale);
    let paced = format!("paced:{}", args.model);
    let bar = matches!(args.policy, Policy::Log | Policy::LogAll);
    for array in &ARRAYS {
        let random = small(args, args.depth);
        let mut compared = compare(args, array, &slowed, &random)?;
        compared.bar_percent = bar.then_some(array.bar_percent);
        report.random.push(compared);
        let mut compared = compare(args, array, &slowed, &full_stripe(args))?;
        compared.bar_percent = bar.then_some(FULL_STRIPE_BAR_PERCENT);
        report.full_stripe.push(compared);
        let alone = small(args, 1);
        report.alone.push(compare(args, array, &paced, &alone)?);
        report.memory.push(compare(args, array, "memory", &random)?);
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    Ok(())
}

fn small(args: &LogArgs, depth: usize) -> Load {
    Load {
        workload: Workload::Randwrite,
        block_bytes: 4096,
        depth,
        span_bytes: SPAN_BYTES,
        warm_up_seconds: args.seconds / 2.0,
        seconds: args.seconds,
        fill: false,
        rebuild: false,
        part: 0,
        parts: 1,
    }
}

/// `block_bytes` is set where the array is known.
fn full_stripe(args: &LogArgs) -> Load {
    Load {
        workload: Workload::Write,
        block_bytes: 0,
        ..small(args, args.full_stripe_depth)
    }
}

/// Runs the pairs.
fn compare(args: &LogArgs, array: &Array, kind: &str, load: &Load) -> anyhow::Result<Comparison> {
    let mut without = Vec::new();
    let mut with = Vec::new();
    for pair in 0..args.pairs {
        let fill = pair == 0;
        without.push(sample(array, kind, load, Consistency::None, fill)?);
        with.push(sample(array, kind, load, args.policy.consistency(), false)?);
    }
    let compared = Comparison::new(array.title, load.depth, &without, &with);
    if matches!(args.policy, Policy::Log | Policy::LogAll) && compared.wrote_no_more() {
        bail!(
            "{} on {kind}: with the log no more was written than without: it is not at work, so its \
             cost cannot be measured",
            array.title
        );
    }
    Ok(compared)
}

/// One run.
fn sample(
    array: &Array,
    kind: &str,
    load: &Load,
    policy: Consistency,
    fill: bool,
) -> anyhow::Result<Sample> {
    let mut drives = rig::alike(kind, DRIVE_BYTES, DRIVES_MAX);
    drives.truncate(array.members);
    let mut rig = Rig::new(Plan {
        geometry: GeometryRequest {
            level: level(array.level)?,
            members: array.members,
            strip_size_bytes: None,
            block_size_bytes: None,
            group_size: None,
            parity: None,
        },
        drives,
        missing: 0,
        policy: Some(policy),
    })?;
    let block_bytes = match load.block_bytes {
        0 => rig.stripe_bytes,
        bytes => bytes,
    };
    let load = Load {
        block_bytes,
        fill,
        ..*load
    };
    let measured = rig.run(&load)?;
    Ok(Sample::new(&load, &measured))
}
