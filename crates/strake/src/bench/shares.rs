//! `strake bench shares`: which share of what the drives allow reaches the client.
//!
//! The drives are paced and slowed down until one core can keep all of them busy. What they allow
//! is arithmetic: each request of a figure takes so much of the drives' time, and they have so much
//! of it. Figures without such a bound are set beside another load on the same array. First each
//! kind of operation is run on one such drive alone, to show that it keeps its figures here.

mod alone;
mod figures;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use strake_engine::format::superblock::Consistency;
use strake_reactor::drive::pace::PaceModel;

use super::load::{self, Load};
use super::log::compare::{Limit, Sample, Side, Spread};
use super::rig::{self, Plan, Rig};
use super::theory;
use figures::{Against, Block, FIGURES, Figure, Geometry};

/// Parameters of `strake bench shares`.
#[derive(Debug, Clone, Args)]
pub struct SharesArgs {
    /// Whose pace the drives keep
    #[arg(long, default_value = "cm7")]
    model: String,
    /// How many times slower, so that one core keeps all drives busy
    #[arg(long, default_value_t = 64)]
    scale: u32,
    /// Runs of each figure
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Seconds measured in each run, after half of that warming up
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only figures whose name has this in it
    #[arg(long)]
    only: Option<String>,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// Large enough for a log of the default size; only what is written takes memory.
const DRIVE_BYTES: &str = "4GiB";
/// Used of each array: beyond all caches, and so many stripes that requests seldom meet in one.
const SPAN_BYTES: u64 = 4 << 30;

/// A rebuild of that share of its drive's writes is as fast as the drive: the others have time left.
const DRIVE_IS_LIMIT_PERCENT: f64 = 90.0;

/// All that was measured.
#[derive(Debug, Serialize)]
struct Report {
    model: String,
    scale: u32,
    runs: usize,
    seconds: f64,
    kernel: &'static str,
    alone: Vec<alone::Alone>,
    figures: Vec<Share>,
}

/// One figure.
#[derive(Debug, Serialize)]
struct Share {
    figure: &'static str,
    array: String,
    depth: usize,
    block_bytes: u64,
    /// What is compared with.
    against: &'static str,
    /// The published share in per cent, or speed, as it is told.
    published: &'static str,
    measured: Side,
    /// Requests of this size a second that the drives allow, or that the other load reaches; none
    /// where it is the rebuild that is measured.
    theory_iops: Option<f64>,
    /// Measured ÷ theory, in per cent; where drives' writes are compared with, of the rebuild.
    share_percent: Spread,
    /// Bytes a second that were rebuilt meanwhile.
    rebuilt_per_second: Option<Spread>,
    bar_percent: Option<f64>,
    /// Whether the bar is kept; `None` where there is none, or something of this machine was the
    /// limit of what was measured or of what it is compared with.
    holds: Option<bool>,
    limit: Limit,
}

/// Measures all and prints it.
///
/// # Errors
/// Parameters out of range; requests that failed; a name that no figure has.
pub fn run(args: &SharesArgs, json: bool) -> anyhow::Result<()> {
    if args.runs == 0 || !super::is_time(args.seconds) {
        bail!("--runs and --seconds: give more than 0, and at most a day");
    }
    let kind = format!("{}/{}", args.model, args.scale);
    let model = PaceModel::parse(&kind).map_err(anyhow::Error::msg)?;
    let wanted = |figure: &&Figure| {
        let only = args.only.as_ref();
        only.is_none_or(|only| figure.name.contains(only.as_str()))
    };
    let chosen: Vec<&Figure> = FIGURES.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        bail!(
            "--only: no figure is named so; there are: {}",
            names.join(", ")
        );
    }
    rig::pin(args.core)?;
    let mut report = Report {
        model: args.model.clone(),
        scale: args.scale,
        runs: args.runs,
        seconds: args.seconds,
        kernel: strake_codec::kernel(),
        alone: alone::run(&kind, model, args.seconds)?,
        figures: Vec::new(),
    };
    let mut filled = HashSet::new();
    for figure in chosen {
        // Fresh memory is not there until it is touched.
        let array = &figure.array;
        if filled.insert((array.members, array.strip_kib)) {
            load::fill(
                &mut self::array(&kind, array, 0, Consistency::None)?,
                SPAN_BYTES,
            )?;
        }
        report.figures.push(measure(args, &kind, model, figure)?);
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    Ok(())
}

fn measure(
    args: &SharesArgs,
    kind: &str,
    model: PaceModel,
    figure: &Figure,
) -> anyhow::Result<Share> {
    let mut samples = Vec::new();
    let mut others = Vec::new();
    let mut shares = Vec::new();
    let mut theories = Vec::new();
    let mut block_bytes = 0;
    for _ in 0..args.runs {
        let load = Shape::of(figure);
        let (sample, bytes) = sample(args, kind, figure, load)?;
        let other = match figure.against {
            Against::Drives => None,
            Against::DriveWrites => {
                let written = sample.rebuilt_per_second();
                let written = written.context("a rebuild is measured where one is running")?;
                shares.push(written / (1e9 / model.write_ns(1, true)) * 100.0);
                samples.push(sample);
                block_bytes = bytes;
                continue;
            }
            Against::Healthy => Some(Shape {
                missing: 0,
                rebuild: false,
                ..load
            }),
            Against::NoRebuild => Some(Shape {
                rebuild: false,
                ..load
            }),
            Against::WholeStripes => Some(Shape {
                block: Block::Stripe,
                bytes_under_way: Some(figure.depth as u64 * bytes),
                ..load
            }),
        };
        let theory = match other {
            None => allowed(figure, model, bytes)?,
            Some(other) => {
                let (other, other_bytes) = self::sample(args, kind, figure, other)?;
                let theory = other.requests_per_second() * other_bytes as f64 / bytes as f64;
                others.push(other);
                theory
            }
        };
        shares.push(sample.requests_per_second() / theory * 100.0);
        theories.push(theory);
        samples.push(sample);
        block_bytes = bytes;
    }
    let measured = Side::new(&samples);
    let mut limit = measured.limit();
    let rebuilt: Vec<f64> = samples
        .iter()
        .filter_map(Sample::rebuilt_per_second)
        .collect();
    if !others.is_empty() {
        limit = limit.max(Side::new(&others).limit());
    }
    let share_percent = Spread::of(shares.into_iter());
    let drive_is_limit = share_percent.median >= DRIVE_IS_LIMIT_PERCENT;
    if figure.against == Against::DriveWrites && drive_is_limit && limit == Limit::Depth {
        limit = Limit::Drives;
    }
    let spoiled = matches!(limit, Limit::Core | Limit::Others);
    let bar = figure.bar_percent.filter(|_| !spoiled);
    Ok(Share {
        figure: figure.name,
        array: figure.array.to_string(),
        depth: figure.depth,
        block_bytes,
        against: figure.against.name(),
        published: figure.published,
        measured,
        theory_iops: (!theories.is_empty()).then(|| Spread::of(theories.into_iter()).median),
        holds: bar.map(|bar| share_percent.median >= bar),
        share_percent,
        rebuilt_per_second: (!rebuilt.is_empty()).then(|| Spread::of(rebuilt.into_iter())),
        bar_percent: figure.bar_percent,
        limit,
    })
}

/// What is different between a figure's load and the one that it is compared with.
#[derive(Clone, Copy)]
struct Shape {
    missing: usize,
    rebuild: bool,
    block: Block,
    /// Instead of the figure's depth: as many requests as have so many bytes.
    bytes_under_way: Option<u64>,
}

impl Shape {
    fn of(figure: &Figure) -> Shape {
        Shape {
            missing: figure.missing,
            rebuild: figure.rebuild,
            block: figure.block,
            bytes_under_way: None,
        }
    }
}

/// What the drives allow.
fn allowed(figure: &Figure, model: PaceModel, block_bytes: u64) -> anyhow::Result<f64> {
    let shape = figure.array.request()?.shape()?;
    theory::allowed(&shape, figure.missing, model, figure.workload, block_bytes)
        .with_context(|| format!("{}: what the drives allow is not known", figure.name))
}

/// One run; the bytes of a request with it.
fn sample(
    args: &SharesArgs,
    kind: &str,
    figure: &Figure,
    load: Shape,
) -> anyhow::Result<(Sample, u64)> {
    let mut rig = array(kind, &figure.array, load.missing, figure.policy)?;
    let block_bytes = match load.block {
        Block::Bytes(bytes) => bytes,
        Block::Stripe => rig.stripe_bytes,
    };
    let load = Load {
        workload: figure.workload,
        block_bytes,
        depth: match load.bytes_under_way {
            None => figure.depth,
            Some(bytes) => bytes.div_ceil(block_bytes) as usize,
        },
        span_bytes: SPAN_BYTES,
        warm_up_seconds: args.seconds / 2.0,
        seconds: args.seconds,
        fill: false,
        rebuild: load.rebuild,
        part: 0,
        parts: 1,
    };
    let measured = rig.run(&load)?;
    Ok((Sample::new(&load, &measured), block_bytes))
}

fn array(
    kind: &str,
    geometry: &Geometry,
    missing: usize,
    policy: Consistency,
) -> anyhow::Result<Rig> {
    Rig::new(Plan {
        geometry: geometry.request()?,
        drives: rig::alike(&format!("paced:{kind}"), DRIVE_BYTES, geometry.members),
        missing,
        policy: Some(policy),
    })
}
