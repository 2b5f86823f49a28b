//! `make bench`: the engine's own cost on this machine, over null drives (our cost alone) and
//! memory drives (with the memory's), on one core. No drive is needed.

use crate::{shell, workspace};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Twelve drives, as the demo's data array.
const DRIVES: [&str; 2] = ["null:12", "memory:12:256MiB"];

/// Workload, request size, requests under way.
const LOADS: [[&str; 3]; 4] = [
    ["randread", "4KiB", "128"],
    ["randwrite", "4KiB", "128"],
    ["read", "1MiB", "16"],
    ["write", "1MiB", "16"],
];

/// A table of all drives and loads; with arguments, the one measurement that they ask for.
pub fn run(arguments: &[String]) -> Result<()> {
    let strake = workspace::build_release_program()?;
    if !arguments.is_empty() {
        return shell::show(
            Command::new(strake)
                .args(["bench", "engine"])
                .args(arguments),
        );
    }
    println!("RAID 6 of 12 drives, 64 KiB strips, one core");
    println!(
        "{:<18} {:<10} {:>7} {:>6} {:>10} {:>8} {:>12} {:>12}",
        "drives", "workload", "request", "depth", "kIOPS", "GB/s", "CPU ns each", "p99 µs"
    );
    for drives in DRIVES {
        for load in LOADS {
            println!("{}", row(&measure(&strake, drives, load)?, drives, load));
        }
    }
    Ok(())
}

fn measure(strake: &Path, drives: &str, [workload, block, depth]: [&str; 3]) -> Result<Value> {
    let text = shell::read(
        Command::new(strake)
            .args(["--json", "bench", "engine", "--level", "6"])
            .args(["--drives", drives, "--workload", workload])
            .args(["--block-size", block, "--depth", depth]),
    )?;
    serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
}

fn row(result: &Value, drives: &str, [workload, block, depth]: [&str; 3]) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    format!(
        "{drives:<18} {workload:<10} {block:>7} {depth:>6} {:>10.1} {:>8.2} {:>12.0} {:>12.0}",
        number(&result["iops"]) / 1e3,
        number(&result["gbps"]),
        number(&result["cpu_ns_per_io"]),
        number(&result["lat_us"]["p99"]),
    )
}
