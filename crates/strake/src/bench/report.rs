//! What a run is reported as: a line for people, fields for programs.

use serde::Serialize;

use super::load::{Load, Measured};
use super::{EngineArgs, Policy};

/// One measured workload.
#[derive(Debug, Serialize)]
pub struct Report {
    drives: String,
    level: String,
    strip_size: String,
    workload: String,
    block_bytes: u64,
    /// Of each core.
    depth: usize,
    cores: usize,
    state: String,
    /// `null`: as a new array.
    policy: Option<String>,
    kernel: &'static str,
    seconds: f64,
    /// Requests a second.
    pub iops: f64,
    /// Client bytes a second, in units of 1e9.
    pub gbps: f64,
    pub lat_us: Latency,
    /// CPU nanoseconds of the core a request, turns that found nothing to do not counted.
    pub cpu_ns_per_io: f64,
    /// Share of the time in which the core had nothing to do.
    idle: f64,
    /// Of the requests a second that paced drives allow, where that is known.
    share_of_theory: Option<f64>,
    /// Bytes a second of each member being rebuilt.
    rebuilt_per_second: Option<f64>,
    /// Paced drives: share of the time in which each was busy.
    drives_busy: Vec<f64>,
}

/// Of one request, in microseconds.
#[derive(Debug, Serialize)]
pub struct Latency {
    mean: f64,
    pub p50: f64,
    p99: f64,
    pub p99_9: f64,
    p99_95: f64,
    p99_99: f64,
}

impl Report {
    /// Joins parameters and figures. `allowed`: requests a second that the drives allow.
    pub fn new(
        args: &EngineArgs,
        load: &Load,
        measured: &Measured,
        allowed: Option<f64>,
    ) -> Report {
        let seconds = measured.elapsed.as_secs_f64();
        let iops = measured.requests as f64 / seconds;
        let busy = measured.drives.iter();
        let busy = busy.map(|used| used.busy_ns as f64 / 1e9 / seconds);
        let us = |quantile: f64| measured.latency_ns.value_at_quantile(quantile) as f64 / 1000.0;
        Report {
            drives: args.drives.join(" "),
            level: args.level.clone(),
            strip_size: args.strip_size.clone(),
            workload: format!("{:?}", load.workload).to_lowercase(),
            block_bytes: load.block_bytes,
            depth: load.depth,
            cores: measured.cores,
            state: args.state.clone(),
            policy: args.policy.map(Policy::name),
            kernel: strake_codec::kernel(),
            seconds,
            iops,
            gbps: iops * load.block_bytes as f64 / 1e9,
            lat_us: Latency {
                mean: measured.latency_ns.mean() / 1000.0,
                p50: us(0.5),
                p99: us(0.99),
                p99_9: us(0.999),
                p99_95: us(0.9995),
                p99_99: us(0.9999),
            },
            cpu_ns_per_io: measured.cpu.as_nanos() as f64 / measured.requests.max(1) as f64,
            idle: measured.idle.as_secs_f64() / seconds / measured.cores as f64,
            share_of_theory: allowed.map(|allowed| iops / allowed),
            rebuilt_per_second: measured.rebuilt_bytes.map(|bytes| bytes as f64 / seconds),
            drives_busy: busy.collect(),
        }
    }

    /// One line and its latencies.
    pub fn print(&self) {
        println!(
            "level {} on {} ({}), {} {} B at depth {} on {} core(s), kernel {}",
            self.level,
            self.drives,
            self.state,
            self.workload,
            self.block_bytes,
            self.depth,
            self.cores,
            self.kernel
        );
        println!(
            "  {:.1} kIOPS  {:.2} GB/s  {:.0} ns CPU a request",
            self.iops / 1000.0,
            self.gbps,
            self.cpu_ns_per_io
        );
        let lat = &self.lat_us;
        println!(
            "  latency µs: mean {:.1}  p50 {:.1}  p99 {:.1}  p99.9 {:.1}  p99.99 {:.1}",
            lat.mean, lat.p50, lat.p99, lat.p99_9, lat.p99_99
        );
        if let Some(rebuilt) = self.rebuilt_per_second {
            println!(
                "  rebuilt meanwhile: {:.1} MB/s of each new member",
                rebuilt / 1e6
            );
        }
        if let Some(share) = self.share_of_theory {
            println!("  {:.1} % of what the drives allow", share * 100.0);
        }
        if !self.drives_busy.is_empty() {
            let busy = self.drives_busy.iter().sum::<f64>() / self.drives_busy.len() as f64;
            println!(
                "  drives busy {:.0} %, core idle {:.0} %",
                busy * 100.0,
                self.idle * 100.0
            );
        }
    }
}
