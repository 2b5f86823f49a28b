//! fio: what it measures and where, and loads that check what they wrote.

use super::interrupt;
use crate::shell;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What fio works on.
#[derive(Debug, Clone)]
pub enum Ground {
    /// Files, the work spread over them in turn.
    Files {
        /// Their paths.
        paths: Vec<PathBuf>,
        /// Of all together.
        bytes: u64,
    },
    /// A range of an NBD export.
    Nbd {
        /// Its address.
        uri: String,
        /// Where the range starts.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
}

impl Ground {
    /// One file.
    pub fn file(path: PathBuf, bytes: u64) -> Ground {
        Ground::Files {
            paths: vec![path],
            bytes,
        }
    }

    fn arguments(&self) -> Vec<String> {
        match self {
            Ground::Files { paths, bytes } => {
                let names: Vec<_> = paths
                    .iter()
                    .map(|path| path.to_string_lossy().replace(':', "\\:"))
                    .collect();
                vec![
                    "--ioengine=io_uring".into(),
                    "--direct=1".into(),
                    format!("--filename={}", names.join(":")),
                    format!("--size={bytes}"),
                ]
            }
            Ground::Nbd { uri, offset, bytes } => vec![
                "--ioengine=nbd".into(),
                format!("--uri={uri}"),
                format!("--offset={offset}"),
                format!("--size={bytes}"),
            ],
        }
    }
}

/// One kind of load.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// As in the table.
    pub title: &'static str,
    pattern: &'static str,
    block: &'static str,
    depth: u32,
}

/// Those of the table, in its order.
pub const JOBS: [Job; 4] = [
    Job {
        title: "1 MiB write",
        pattern: "write",
        block: "1m",
        depth: 16,
    },
    Job {
        title: "1 MiB read",
        pattern: "read",
        block: "1m",
        depth: 16,
    },
    Job {
        title: "4 KiB write",
        pattern: "randwrite",
        block: "4k",
        depth: 32,
    },
    Job {
        title: "4 KiB read",
        pattern: "randread",
        block: "4k",
        depth: 32,
    },
];

/// What a load reached.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rate {
    /// Bytes per second.
    pub bytes: f64,
    /// Requests per second.
    pub requests: f64,
}

/// Writes all of it once, so that what is measured later lies on the drives.
pub fn lay_out(ground: &Ground) -> Result<()> {
    fio(ground, &["--rw=write", "--bs=1m", "--iodepth=16"]).map(drop)
}

/// Runs a job for some seconds.
pub fn measure(ground: &Ground, job: Job, seconds: u32) -> Result<Rate> {
    let report = fio(
        ground,
        &[
            &format!("--rw={}", job.pattern),
            &format!("--bs={}", job.block),
            &format!("--iodepth={}", job.depth),
            &format!("--runtime={seconds}"),
            "--time_based",
        ],
    )?;
    let way = if job.pattern.ends_with("write") {
        "write"
    } else {
        "read"
    };
    let result = &report["jobs"][0][way];
    Ok(Rate {
        bytes: result["bw_bytes"].as_f64().context("fio told no rate")?,
        requests: result["iops"].as_f64().context("fio told no rate")?,
    })
}

/// Random writes over the whole ground, then all of it read back and compared.
/// Returns the running fio: it fails when a request fails or a block differs.
pub fn start_verified_writes(ground: &Ground) -> Result<Child> {
    interrupt::check()?;
    command(ground)
        .args(["--rw=randwrite", "--bsrange=4k-256k", "--iodepth=16"])
        .args(["--verify=crc32c", "--verify_fatal=1", "--do_verify=1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting fio")
}

/// Mixed reads and writes until killed or for `seconds`.
pub fn start_mixed(ground: &Ground, seconds: u32) -> Result<Child> {
    interrupt::check()?;
    command(ground)
        .args(["--rw=randrw", "--bs=16k", "--iodepth=8", "--time_based"])
        .arg(format!("--runtime={seconds}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting fio")
}

/// Waits for a load; fails when it failed.
pub fn finish(child: Child, what: &str) -> Result<()> {
    let output = child.wait_with_output()?;
    interrupt::check()?;
    let printed = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    shell::check(&Command::new("fio"), output.status, &printed).with_context(|| what.to_owned())
}

fn fio(ground: &Ground, arguments: &[&str]) -> Result<Value> {
    interrupt::check()?;
    let text = shell::read(command(ground).args(arguments).arg("--output-format=json"))?;
    // Notes may stand before the JSON.
    let json = text.find('{').map_or("", |start| &text[start..]);
    serde_json::from_str(json).with_context(|| format!("fio printed no JSON: {text}"))
}

fn command(ground: &Ground) -> Command {
    let mut command = Command::new("fio");
    command
        .args(["--name=demo", "--thread", "--group_reporting"])
        .args(ground.arguments())
        // fio leaves state files in its working folder.
        .current_dir(Path::new("/tmp"));
    command
}
