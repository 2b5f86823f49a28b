//! `strake bench codec`: the parity kernels on one core, beside the memory's ceilings and
//! beside ISA-L where it is installed.
//!
//! Every round measures every case once, and the ceilings; a figure is the median of its
//! rounds. So what else happens on the machine meets all alike, and shares of a ceiling
//! hold whatever its speed was at that minute. Strips are where the engine's own buffer
//! pool places them. GB/s are bytes of data: parity is not counted.

mod cases;
mod memory;
mod peer;
mod table;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use serde::Serialize;

use super::rig;
use cases::{Case, Set};
use memory::Memory;

/// Parameters of `strake bench codec`.
#[derive(Debug, Clone, Args)]
pub struct CodecArgs {
    /// Rounds; each figure is the median of so many (at least 5)
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// MiB of stripes that the figures from memory pass over (more than 1000)
    #[arg(long, default_value_t = 1200)]
    ring_mib: usize,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// Leave peers out that are installed
    #[arg(long)]
    no_peers: bool,
}

/// Time of one sample in cache: long against the clock, short against a time slice.
const HOT_SAMPLE: Duration = Duration::from_millis(2);
/// Data of one sample from memory.
const MEMORY_SAMPLE_BYTES: usize = 128 << 20;

/// One figure.
#[derive(Debug, Clone, Serialize)]
struct Row {
    /// `8+2`; for what has no code, `-`.
    code: String,
    data: usize,
    parity: usize,
    strip_bytes: usize,
    working_set: Set,
    operation: &'static str,
    kernel: String,
    /// Median bytes of data a second, in units of 1e9.
    gbps: f64,
    gbps_min: f64,
    gbps_max: f64,
    /// What this memory can be read with at best, median of the same rounds.
    ceiling_gbps: f64,
    /// The same done by others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    peer: Vec<Row>,
}

/// Measures all and prints it.
///
/// # Errors
/// Parameters out of range; memory that cannot be had; a core that is not there.
pub fn run(args: &CodecArgs, json: bool) -> anyhow::Result<()> {
    if args.rounds < 5 {
        bail!("--rounds {}: give at least 5", args.rounds);
    }
    rig::pin(args.core)?;
    let isal = match args.no_peers {
        true => Err("left out".to_owned()),
        false => strake_isal::Isal::load(),
    };
    let mut memory = Memory::new(args.ring_mib)?;
    let mut cases = cases::ours();
    if let Ok(isal) = &isal {
        cases.extend(peer::isal(isal));
    }
    let samples = measure(&mut memory, &mut cases, args.rounds);
    let rows = rows(&cases, samples);
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    table::print(&rows, args.rounds);
    if let Err(reason) = isal {
        println!("\nNo peer: {reason}");
    }
    Ok(())
}

/// GB/s of each case in each round.
fn measure(memory: &mut Memory, cases: &mut [Case], rounds: usize) -> Vec<Vec<f64>> {
    let calls: Vec<usize> = cases.iter_mut().map(|c| calibrate(memory, c)).collect();
    let mut samples = vec![Vec::with_capacity(rounds); cases.len()];
    for _ in 0..rounds {
        for ((case, calls), samples) in cases.iter_mut().zip(&calls).zip(&mut samples) {
            samples.push(sample(memory, case, *calls));
        }
    }
    samples
}

/// How many calls make a sample; the first ones warm up.
fn calibrate(memory: &mut Memory, case: &mut Case) -> usize {
    if case.set == Set::Memory {
        return MEMORY_SAMPLE_BYTES.div_ceil(case.bytes);
    }
    let mut calls = 1;
    loop {
        let elapsed = memory.run(case, calls);
        if elapsed >= HOT_SAMPLE {
            let each = elapsed.as_secs_f64() / calls as f64;
            return (HOT_SAMPLE.as_secs_f64() / each).ceil() as usize;
        }
        calls *= 2;
    }
}

fn sample(memory: &mut Memory, case: &mut Case, calls: usize) -> f64 {
    if case.set == Set::Hot {
        // What the case before left in the caches is not this one's.
        memory.run(case, calls.div_ceil(8));
    }
    let elapsed = memory.run(case, calls);
    (calls * case.bytes) as f64 / elapsed.as_secs_f64() / 1e9
}

/// Our rows in order, peers' rows within them.
fn rows(cases: &[Case], samples: Vec<Vec<f64>>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let figures = cases.iter().zip(samples.into_iter().map(Spread::new));
    let of = |set: Set| {
        let ceilings = figures.clone().filter(|(case, _)| case.set == set);
        let ceilings = ceilings.filter(|(case, _)| case.operation == cases::CEILING);
        ceilings
            .map(|(_, spread)| spread.median)
            .fold(0.0, f64::max)
    };
    let ceilings = [Set::Hot, Set::Memory].map(of);
    for (case, spread) in figures {
        let row = Row {
            code: match case.data {
                0 => "-".to_owned(),
                data => format!("{data}+{}", case.parity),
            },
            data: case.data,
            parity: case.parity,
            strip_bytes: case.strip_bytes,
            working_set: case.set,
            operation: case.operation,
            kernel: case.kernel.clone(),
            gbps: spread.median,
            gbps_min: spread.least,
            gbps_max: spread.greatest,
            ceiling_gbps: ceilings[case.set as usize],
            peer: Vec::new(),
        };
        match rows
            .iter_mut()
            .find(|ours| case.peer && ours.same_question(&row))
        {
            Some(ours) => ours.peer.push(row),
            None => rows.push(row),
        }
    }
    rows
}

impl Row {
    fn same_question(&self, other: &Row) -> bool {
        let question = |row: &Row| {
            let shape = (row.data, row.parity, row.strip_bytes);
            (shape, row.working_set, row.operation)
        };
        question(self) == question(other)
    }
}

/// Of the rounds of one case.
#[derive(Debug, Clone, Copy)]
struct Spread {
    median: f64,
    least: f64,
    greatest: f64,
}

impl Spread {
    fn new(mut samples: Vec<f64>) -> Spread {
        samples.sort_by(f64::total_cmp);
        Spread {
            median: samples[samples.len() / 2],
            least: samples[0],
            greatest: samples[samples.len() - 1],
        }
    }
}

/// Runs `call` so many times, each with its number.
fn timed(calls: usize, mut call: impl FnMut(usize)) -> Duration {
    let start = Instant::now();
    for number in 0..calls {
        call(number);
    }
    start.elapsed()
}
