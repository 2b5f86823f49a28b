//! `strake bench suite`: what a request costs, over all workloads, on one core of this machine.
//!
//! Null drives show our own cost, memory drives the memory's as well. Bars and the peer's figures
//! are of the project's reference machine: on another they say how far it is from that one.

#[cfg(test)]
mod tests;

use anyhow::bail;
use clap::Args;
use serde::Serialize;

use super::log::compare::Spread;
use super::report::Report;
use super::{EngineArgs, Policy, Workload, engine};

/// Parameters of `strake bench suite`.
#[derive(Debug, Clone, Args)]
pub struct SuiteArgs {
    /// Runs of each row
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Seconds measured in each run, after one of warming up
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Only rows whose name has this in it
    #[arg(long)]
    only: Option<String>,
    /// Core to run on; what is measured on two cores has the next one, too
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// What a row's figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Unit {
    #[serde(rename = "kIOPS")]
    KiloIops,
    #[serde(rename = "GB/s")]
    GigaBytes,
    /// Median latency.
    #[serde(rename = "ns p50")]
    Median,
    /// Latency that one in a thousand exceeds.
    #[serde(rename = "ns p99.9")]
    Tail,
    /// Two cores' requests a second by one core's.
    #[serde(rename = "x")]
    TwoCores,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::KiloIops => "kIOPS",
            Unit::GigaBytes => "GB/s",
            Unit::Median => "ns p50",
            Unit::Tail => "ns p99.9",
            Unit::TwoCores => "×",
        }
    }

    /// Whether more is better.
    fn grows(self) -> bool {
        !matches!(self, Unit::Median | Unit::Tail)
    }
}

#[derive(Debug, Clone, Copy)]
struct Row {
    name: &'static str,
    drives: &'static str,
    level: &'static str,
    workload: Workload,
    block: &'static str,
    depth: usize,
    state: &'static str,
    policy: Policy,
    unit: Unit,
    bar: Option<f64>,
    /// SPDK's raid on the reference machine, in the row's unit.
    peer: Option<f64>,
}

/// The common part.
const READ: Row = Row {
    name: "null, RAID 5 4+1, 4 KiB random read",
    drives: "null:5",
    level: "5",
    workload: Workload::Randread,
    block: "4KiB",
    depth: 128,
    state: "healthy",
    policy: Policy::None,
    unit: Unit::KiloIops,
    bar: Some(9000.0),
    peer: Some(8200.0),
};
const WRITE: Row = Row {
    name: "null, RAID 5 4+1, 4 KiB random write",
    workload: Workload::Randwrite,
    bar: Some(1200.0),
    peer: None,
    ..READ
};
const MEMORY: Row = Row {
    name: "memory, RAID 5 4+1, 4 KiB random read",
    drives: "memory:5:1GiB",
    bar: Some(1700.0),
    peer: Some(1600.0),
    ..READ
};
const LARGE: Row = Row {
    name: "memory, RAID 5 4+1, 256 KiB sequential read",
    workload: Workload::Read,
    block: "256KiB",
    depth: 16,
    unit: Unit::GigaBytes,
    bar: Some(21.0),
    peer: Some(20.7),
    ..MEMORY
};

const ROWS: [Row; 27] = [
    READ,
    Row {
        name: "null, RAID 0 of 4, 4 KiB random read",
        drives: "null:4",
        level: "0",
        bar: Some(9500.0),
        peer: Some(8500.0),
        ..READ
    },
    Row {
        name: "null, RAID 1 of 2, 4 KiB random read",
        drives: "null:2",
        level: "1",
        bar: Some(9000.0),
        peer: Some(8100.0),
        ..READ
    },
    Row {
        name: "null, RAID 1 of 2, 4 KiB random write",
        drives: "null:2",
        level: "1",
        bar: Some(6500.0),
        peer: Some(5900.0),
        ..WRITE
    },
    Row {
        name: "null, RAID 1 of 2, 4 KiB random write, log",
        drives: "null:2",
        level: "1",
        policy: Policy::Log,
        bar: None,
        ..WRITE
    },
    Row {
        name: "null, RAID 5 4+1 degraded, 4 KiB random read",
        state: "degraded",
        bar: Some(4500.0),
        peer: Some(3660.0),
        ..READ
    },
    Row {
        name: "null, RAID 5 4+1, 256 KiB whole-stripe write",
        workload: Workload::Write,
        block: "256KiB",
        depth: 16,
        unit: Unit::GigaBytes,
        bar: Some(64.0),
        peer: Some(58.0),
        ..READ
    },
    Row {
        name: "null, RAID 5 4+1, 256 KiB whole-stripe write, log",
        workload: Workload::Write,
        block: "256KiB",
        depth: 16,
        unit: Unit::GigaBytes,
        policy: Policy::Log,
        bar: None,
        peer: None,
        ..READ
    },
    WRITE,
    Row {
        name: "null, RAID 5 4+1, 4 KiB random write, log",
        policy: Policy::Log,
        bar: None,
        ..WRITE
    },
    Row {
        name: "null, RAID 6 8+2, 4 KiB random write",
        drives: "null:10",
        level: "6",
        bar: Some(800.0),
        ..WRITE
    },
    Row {
        name: "null, RAID 6 8+2, 4 KiB random write, log",
        drives: "null:10",
        level: "6",
        policy: Policy::Log,
        bar: None,
        ..WRITE
    },
    MEMORY,
    Row {
        name: "memory, RAID 5 4+1 degraded, 4 KiB random read",
        state: "degraded",
        bar: Some(1000.0),
        peer: Some(820.0),
        ..MEMORY
    },
    Row {
        name: "memory, RAID 5 4+1, 4 KiB random write",
        workload: Workload::Randwrite,
        bar: Some(500.0),
        peer: None,
        ..MEMORY
    },
    Row {
        name: "memory, RAID 5 4+1, 4 KiB random write, log",
        workload: Workload::Randwrite,
        policy: Policy::Log,
        bar: None,
        peer: None,
        ..MEMORY
    },
    LARGE,
    Row {
        name: "memory, RAID 5 4+1 degraded, 256 KiB sequential read",
        state: "degraded",
        bar: Some(14.0),
        peer: Some(11.2),
        ..LARGE
    },
    Row {
        name: "memory, RAID 5 4+1, 256 KiB whole-stripe write",
        workload: Workload::Write,
        bar: Some(13.0),
        peer: Some(12.2),
        ..LARGE
    },
    Row {
        name: "memory, RAID 5 4+1, 256 KiB whole-stripe write, log",
        workload: Workload::Write,
        policy: Policy::Log,
        bar: None,
        peer: None,
        ..LARGE
    },
    Row {
        name: "memory, RAID 6 8+2, two gone, 4 KiB random read",
        drives: "memory:10:1GiB",
        level: "6",
        state: "degraded:2",
        bar: Some(600.0),
        peer: None,
        ..MEMORY
    },
    Row {
        name: "null, RAID 5 4+1, one 4 KiB read at a time",
        depth: 1,
        unit: Unit::Median,
        bar: Some(250.0),
        peer: None,
        ..READ
    },
    Row {
        name: "null, RAID 5 4+1, one 4 KiB read at a time, tail",
        depth: 1,
        unit: Unit::Tail,
        bar: Some(1000.0),
        peer: None,
        ..READ
    },
    Row {
        name: "null, RAID 5 4+1, 4 KiB random read, two cores by one",
        unit: Unit::TwoCores,
        bar: Some(1.9),
        peer: None,
        ..READ
    },
    Row {
        name: "memory, RAID 5 4+1, 4 KiB random read, two cores by one",
        unit: Unit::TwoCores,
        bar: Some(1.9),
        peer: None,
        ..MEMORY
    },
    Row {
        name: "null, RAID 5 4+1, 4 KiB random write, two cores by one",
        unit: Unit::TwoCores,
        bar: Some(1.9),
        ..WRITE
    },
    Row {
        name: "null, RAID 5 4+1 degraded, 4 KiB random read, two cores by one",
        state: "degraded",
        unit: Unit::TwoCores,
        bar: Some(1.9),
        peer: None,
        ..READ
    },
];

/// All that was measured.
#[derive(Debug, Serialize)]
struct Suite {
    kernel: &'static str,
    runs: usize,
    seconds: f64,
    rows: Vec<Line>,
    /// Rows that this machine cannot run, with the reason.
    skipped: Vec<String>,
}

/// One row's result.
#[derive(Debug, Serialize)]
struct Line {
    row: &'static str,
    unit: Unit,
    measured: Spread,
    /// CPU nanoseconds a request.
    cpu_ns_per_io: f64,
    bar: Option<f64>,
    /// Whether the bar is kept.
    holds: Option<bool>,
    peer: Option<f64>,
}

impl Line {
    fn new(row: &Row, measured: Spread, cpu_ns_per_io: f64) -> Line {
        Line {
            row: row.name,
            unit: row.unit,
            measured,
            cpu_ns_per_io,
            bar: row.bar,
            holds: row.bar.map(|bar| match row.unit.grows() {
                true => measured.median >= bar,
                false => measured.median <= bar,
            }),
            peer: row.peer,
        }
    }

    fn print(&self) {
        let digits = match self.measured.median {
            large if large >= 100.0 => 0,
            _ => 2,
        };
        let Spread { median, min, max } = self.measured;
        let peer = self
            .peer
            .map_or(String::new(), |peer| format!("  SPDK {peer}"));
        let bar = match (self.bar, self.holds) {
            (Some(bar), Some(true)) => format!("  bar {bar}: holds"),
            (Some(bar), _) => format!("  bar {bar}: MISSED"),
            _ => String::new(),
        };
        println!(
            "{:<64} {median:>8.digits$} ({min:.digits$} to {max:.digits$}) {:<8} {:>6.0} ns CPU{bar}{peer}",
            self.row,
            self.unit.name(),
            self.cpu_ns_per_io
        );
    }
}

/// Measures all rows and prints them.
///
/// # Errors
/// Parameters out of range; requests that failed; a name that no row has.
pub fn run(args: &SuiteArgs, json: bool) -> anyhow::Result<()> {
    if args.runs == 0 || !super::is_time(args.seconds) {
        bail!("--runs and --seconds: give more than 0, and at most a day");
    }
    let wanted = |row: &&Row| {
        args.only
            .as_ref()
            .is_none_or(|only| row.name.contains(only.as_str()))
    };
    let chosen: Vec<&Row> = ROWS.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        bail!(
            "--only: no row is named so; there are: {}",
            names.join("; ")
        );
    }
    let mut suite = Suite {
        kernel: strake_codec::kernel(),
        runs: args.runs,
        seconds: args.seconds,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for row in chosen {
        let next = args.core + 1;
        if row.unit == Unit::TwoCores && next >= cores {
            let skipped = format!("{}: there is no core {next}", row.name);
            suite.skipped.push(skipped);
            continue;
        }
        let line = measure(args, row)?;
        if !json {
            line.print();
        }
        suite.rows.push(line);
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&suite)?);
    }
    for skipped in suite.skipped.iter().filter(|_| !json) {
        println!("not run: {skipped}");
    }
    Ok(())
}

fn measure(args: &SuiteArgs, row: &Row) -> anyhow::Result<Line> {
    let (mut figures, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..args.runs {
        let report = one(args, row, 1)?;
        cpu.push(report.cpu_ns_per_io);
        figures.push(match row.unit {
            Unit::KiloIops => report.iops / 1e3,
            Unit::GigaBytes => report.gbps,
            Unit::Median => report.lat_us.p50 * 1e3,
            Unit::Tail => report.lat_us.p99_9 * 1e3,
            Unit::TwoCores => one(args, row, 2)?.iops / report.iops,
        });
    }
    let cpu = Spread::of(cpu.into_iter()).median;
    Ok(Line::new(row, Spread::of(figures.into_iter()), cpu))
}

fn one(args: &SuiteArgs, row: &Row, cores: usize) -> anyhow::Result<Report> {
    engine(&EngineArgs {
        drives: vec![row.drives.to_owned()],
        force: false,
        level: row.level.to_owned(),
        strip_size: "64KiB".to_owned(),
        group_size: None,
        parity: None,
        policy: (row.level != "0").then_some(row.policy),
        workload: row.workload,
        block_size: row.block.to_owned(),
        depth: row.depth,
        state: row.state.to_owned(),
        seconds: args.seconds,
        core: args.core,
        cores,
    })
}
