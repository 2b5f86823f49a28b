//! One paced drive, with nothing above it: whether it keeps its figures on this machine.

use std::time::Instant;

use anyhow::{Context, anyhow};
use serde::Serialize;
use strake_reactor::buffer::Buffer;
use strake_reactor::drive::pace::PaceModel;
use strake_reactor::port::{Completion, DriveId, DriveOp, Port};
use strake_reactor::ring::{RingConfig, RingPort};

use super::super::rig;

/// Operations under way.
const DEPTHS: [usize; 2] = [1, 256];
/// Of the drive.
const SPAN_BYTES: u64 = 256 << 20;

/// One kind of operation at one depth.
#[derive(Debug, Serialize)]
pub struct Alone {
    pub operation: &'static str,
    pub depth: usize,
    pub per_second: f64,
    /// By the drive's figures.
    pub theory_per_second: f64,
    pub share_percent: f64,
    /// Within two per cent of them.
    pub kept: bool,
    pub mean_us: f64,
    pub theory_mean_us: f64,
}

struct Kind {
    name: &'static str,
    write: bool,
    random: bool,
    bytes: u64,
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "random read, 4 KiB",
        write: false,
        random: true,
        bytes: 4 << 10,
    },
    Kind {
        name: "random write, 4 KiB",
        write: true,
        random: true,
        bytes: 4 << 10,
    },
    Kind {
        name: "read, 128 KiB",
        write: false,
        random: false,
        bytes: 128 << 10,
    },
    Kind {
        name: "write, 128 KiB",
        write: true,
        random: false,
        bytes: 128 << 10,
    },
];

/// Every kind at both depths.
///
/// # Errors
/// A drive or a port that cannot be had.
pub fn run(kind: &str, model: PaceModel, seconds: f64) -> anyhow::Result<Vec<Alone>> {
    let spec = rig::alike(&format!("paced:{kind}"), super::DRIVE_BYTES, 1).remove(0);
    let mut port = RingPort::new(RingConfig {
        entries: 1024,
        pool: None,
    })?;
    let (drive, _) = port.open(&spec, false).map_err(|why| anyhow!("{why}"))?;
    let mut run = |kind, depth, until| {
        let mut load = Load {
            port: &mut port,
            drive,
            kind,
            buffers: Vec::new(),
            random: fastrand::Rng::with_seed(1),
            next: 0,
        };
        load.run(model, depth, until)
    };
    // Fresh memory is not there until it is touched.
    run(&KINDS[3], 8, Until::Operations(SPAN_BYTES / KINDS[3].bytes))?;
    let mut all = Vec::new();
    for kind in &KINDS {
        for depth in DEPTHS {
            all.push(run(kind, depth, Until::Seconds(seconds))?);
        }
    }
    Ok(all)
}

/// When a load ends.
#[derive(Clone, Copy)]
enum Until {
    Seconds(f64),
    Operations(u64),
}

struct Load<'a> {
    port: &'a mut RingPort,
    drive: DriveId,
    kind: &'a Kind,
    buffers: Vec<Buffer>,
    random: fastrand::Rng,
    next: u64,
}

impl Load<'_> {
    fn run(&mut self, model: PaceModel, depth: usize, until: Until) -> anyhow::Result<Alone> {
        let bytes = self.kind.bytes as usize;
        self.buffers = (0..depth).map(|_| Buffer::heap(bytes)).collect();
        let mut sent = vec![Instant::now(); depth];
        let begun = Instant::now();
        for (at, sent) in sent.iter_mut().enumerate() {
            *sent = Instant::now();
            self.send(at);
        }
        let mut done: Vec<Completion> = Vec::new();
        let (mut ended, mut waited_s, mut under_way) = (0u64, 0.0, depth);
        let mut last = begun;
        while under_way > 0 {
            self.port.poll(&mut done);
            let now = Instant::now();
            for end in done.drain(..) {
                end.result
                    .map_err(|why| anyhow!("{why}"))
                    .context("a paced drive")?;
                let at = end.token as usize;
                (ended, last) = (ended + 1, now);
                waited_s += (now - sent[at]).as_secs_f64();
                let again = match until {
                    Until::Seconds(seconds) => (now - begun).as_secs_f64() < seconds,
                    Until::Operations(count) => ended + (under_way as u64) <= count,
                };
                if again {
                    sent[at] = now;
                    self.send(at);
                } else {
                    under_way -= 1;
                }
            }
        }
        let per_second = ended as f64 / (last - begun).as_secs_f64();
        let (taken_ns, latency_ns) = match self.kind.write {
            true => {
                let contiguous = !self.kind.random;
                let taken_ns = model.write_ns(self.kind.bytes, contiguous);
                (taken_ns, model.write_latency_ns())
            }
            false => (model.read_ns(self.kind.bytes), model.read_latency_ns()),
        };
        // So many are under way that the drive is never without work, or else the latency decides.
        let depth_f = depth as f64;
        let theory_per_second = 1e9 / taken_ns.max((taken_ns + latency_ns) / depth_f);
        let share_percent = per_second / theory_per_second * 100.0;
        Ok(Alone {
            operation: self.kind.name,
            depth,
            per_second,
            theory_per_second,
            share_percent,
            kept: (share_percent - 100.0).abs() <= 2.0,
            mean_us: waited_s / ended as f64 * 1e6,
            theory_mean_us: depth_f / theory_per_second * 1e6,
        })
    }

    fn send(&mut self, at: usize) {
        let blocks = SPAN_BYTES / self.kind.bytes;
        let block = match self.kind.random {
            true => self.random.u64(0..blocks),
            false => {
                self.next = (self.next + 1) % blocks;
                self.next
            }
        };
        let offset = block * self.kind.bytes;
        let range = 0..self.kind.bytes as usize;
        let op = match self.kind.write {
            true => DriveOp::Write {
                offset,
                from: self.buffers[at].lend_outbound(range),
                durable: false,
            },
            false => DriveOp::Read {
                offset,
                into: self.buffers[at].lend_inbound(range),
            },
        };
        self.port.submit(self.drive, at as u64, op);
    }
}
