//! The load: a fixed number of requests under way, each sent again when it ends.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use strake_engine::block::Operation;
use strake_node::core::{Ended, LocalRequest};
use strake_reactor::buffer::Buffer;
use strake_reactor::drive::pace::PaceUse;
use strake_reactor::drive::pace_use;

use super::Workload;
use super::rig::Rig;

/// What is sent.
pub struct Load {
    /// Kind.
    pub workload: Workload,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// Requests under way.
    pub depth: usize,
    /// Only so many bytes from the volume's beginning are used.
    pub span_bytes: u64,
    /// Seconds before measuring begins.
    pub warm_up_seconds: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// Write everything once before: fresh memory is not there until it is touched.
    pub fill: bool,
    /// Missing members come back before, and are rebuilt meanwhile.
    pub rebuild: bool,
    /// Of several cores that do the same this is the one of this number.
    pub part: usize,
    /// So many.
    pub parts: usize,
}

/// What came of it.
pub struct Measured {
    /// Requests that ended in the measured time.
    pub requests: u64,
    /// Measured time.
    pub elapsed: Duration,
    /// Nanoseconds from sending to end.
    pub latency_ns: Histogram<u64>,
    /// CPU time of the core's thread, without its turns that found nothing to do.
    pub cpu: Duration,
    /// Time of those turns.
    pub idle: Duration,
    /// Time in which other threads had the core.
    pub taken_away: Duration,
    /// What paced drives were asked for in the measured time; empty for others.
    pub drives: Vec<PaceUse>,
    /// Every request, those before and after the measured time too: none was under way at either end.
    pub all_requests: u64,
    /// What paced drives were asked for by all of them, and by a rebuild beside them.
    pub all_drives: Vec<PaceUse>,
    /// Bytes of each member being rebuilt that were rebuilt in the measured time.
    pub rebuilt_bytes: Option<u64>,
    /// Cores that did so.
    pub cores: usize,
}

impl Measured {
    /// Joins what another core measured at the same time.
    pub fn add(&mut self, more: &Measured) {
        // Rates add up: both as if they had taken the same time.
        let elapsed = more.elapsed.as_secs_f64() / self.elapsed.as_secs_f64();
        self.requests += (more.requests as f64 / elapsed).round() as u64;
        self.all_requests += more.all_requests;
        self.cpu += more.cpu;
        self.idle += more.idle;
        self.taken_away += more.taken_away;
        self.latency_ns += &more.latency_ns;
        self.cores += more.cores;
    }
}

struct Client {
    buffer: Option<Buffer>,
    sent: Instant,
}

/// Runs the load on this thread; returns when nothing of it is under way.
///
/// # Errors
/// A request that failed; a block size that does not fit the volume.
pub fn run(rig: &mut Rig, load: &Load) -> anyhow::Result<Measured> {
    let span_bytes = load.span_bytes.min(rig.volume_bytes);
    if load.block_bytes == 0 || load.block_bytes > span_bytes {
        bail!(
            "requests of {} bytes do not fit a volume of {span_bytes}",
            load.block_bytes
        );
    }
    if load.fill {
        prepare(rig, load)?;
    }
    if load.rebuild {
        rig.rebuild()?;
    }
    let blocks = span_bytes / load.block_bytes;
    let places = Places {
        next: blocks / load.parts as u64 * load.part as u64,
        blocks,
        random: fastrand::Rng::with_seed(1 + load.part as u64),
    };
    Run::new(rig, load, places)?.measure()
}

/// A load under way.
struct Run<'a> {
    rig: &'a mut Rig,
    load: &'a Load,
    places: Places,
    clients: Vec<Client>,
    batch: Vec<Ended>,
    latency_ns: Histogram<u64>,
    /// Requests that ended in the measured time.
    requests: u64,
    /// And at any time.
    all_requests: u64,
}

/// Where measuring began.
struct Begin {
    at: Instant,
    cpu: Duration,
    drives: Vec<PaceUse>,
    rebuilt_bytes: Option<u64>,
}

impl<'a> Run<'a> {
    fn new(rig: &'a mut Rig, load: &'a Load, places: Places) -> anyhow::Result<Run<'a>> {
        let bytes = load.block_bytes as usize;
        let clients = (0..load.depth).map(|_| Client {
            buffer: Some(rig.pool.alloc(bytes).unwrap_or_else(|| Buffer::heap(bytes))),
            sent: Instant::now(),
        });
        Ok(Run {
            clients: clients.collect(),
            rig,
            load,
            places,
            batch: Vec::new(),
            latency_ns: Histogram::new_with_bounds(1, 60_000_000_000, 3)?,
            requests: 0,
            all_requests: 0,
        })
    }

    fn measure(mut self) -> anyhow::Result<Measured> {
        let before = self.drives();
        for at in 0..self.clients.len() {
            self.send(at, Instant::now());
        }
        let warm = Instant::now() + Duration::from_secs_f64(self.load.warm_up_seconds);
        let mut last = Instant::now();
        while last < warm {
            self.turn(&mut last, false, true)?;
        }
        let begin = Begin {
            at: last,
            cpu: cpu_time(),
            drives: self.drives(),
            rebuilt_bytes: self.rig.rebuilt_bytes()?,
        };
        let end = begin.at + Duration::from_secs_f64(self.load.seconds);
        let mut idle = Duration::ZERO;
        while last < end {
            idle += self.turn(&mut last, true, true)?;
        }
        let elapsed = last - begin.at;
        let cpu = cpu_time() - begin.cpu;
        let taken_away = elapsed.saturating_sub(cpu);
        // Other threads take of idle turns and of others alike.
        let worked = (elapsed - idle).as_secs_f64() / elapsed.as_secs_f64();
        let cpu = cpu.mul_f64(worked);
        let drives = self.drives_since(&begin.drives);
        let rebuilt = (begin.rebuilt_bytes, self.rig.rebuilt_bytes()?);
        let rebuilt_bytes = match rebuilt {
            (Some(before), Some(after)) if after >= before => Some(after - before),
            _ if self.load.rebuild => {
                bail!("no rebuild ran for the whole time: give larger drives, or fewer seconds")
            }
            _ => None,
        };
        while self.clients.iter().any(|client| client.buffer.is_none()) {
            self.turn(&mut last, false, false)?;
        }
        let all_drives = self.drives_since(&before);
        Ok(Measured {
            requests: self.requests,
            elapsed,
            latency_ns: self.latency_ns,
            cpu,
            idle,
            taken_away,
            drives,
            all_requests: self.all_requests,
            all_drives,
            rebuilt_bytes,
            cores: 1,
        })
    }

    /// One round of the core's loop. `last`: when the round before ended, then when this one did.
    /// Returns the time that went by for nothing.
    fn turn(&mut self, last: &mut Instant, count: bool, again: bool) -> anyhow::Result<Duration> {
        let worked = self.rig.core.turn();
        let mut batch = std::mem::take(&mut self.batch);
        self.rig.core.take_ended(self.rig.slot, &mut batch);
        let now = Instant::now();
        let idle = match worked || !batch.is_empty() {
            true => Duration::ZERO,
            false => now - *last,
        };
        *last = now;
        for ended in batch.drain(..) {
            let requests = self.requests;
            let result = ended.result;
            result.with_context(|| format!("a request failed after {requests} that did not"))?;
            let client = &mut self.clients[ended.tag as usize];
            client.buffer = ended.buffer;
            self.all_requests += 1;
            if count {
                self.requests += 1;
                let taken = now - client.sent;
                self.latency_ns.saturating_record(taken.as_nanos() as u64);
            }
            if again {
                self.send(ended.tag as usize, now);
            }
        }
        self.batch = batch;
        Ok(idle)
    }

    /// `now`: of this round. What is sent in a round waits for those sent before it, and that counts.
    fn send(&mut self, at: usize, now: Instant) {
        let (read, block) = self.places.next(self.load.workload);
        let client = &mut self.clients[at];
        client.sent = now;
        let request = LocalRequest {
            operation: match read {
                true => Operation::Read,
                false => Operation::Write,
            },
            offset: block * self.load.block_bytes,
            length: self.load.block_bytes,
            durable: false,
            buffer: client.buffer.take(),
            tag: at as u64,
        };
        let taken = self.rig.core.submit(self.rig.slot, request);
        assert!(taken.is_ok(), "the array is on the core while the rig is");
    }

    fn drives(&self) -> Vec<PaceUse> {
        self.rig.drives.iter().filter_map(pace_use).collect()
    }

    fn drives_since(&self, then: &[PaceUse]) -> Vec<PaceUse> {
        let now = self.drives();
        let pairs = now.iter().zip(then);
        pairs.map(|(now, then)| now.since(then)).collect()
    }
}

/// Has all memory that a load will use touched.
///
/// # Errors
/// A request that failed; a drive that cannot be written.
pub fn prepare(rig: &mut Rig, load: &Load) -> anyhow::Result<()> {
    fill(rig, load.span_bytes.min(rig.volume_bytes))?;
    if load.rebuild {
        rig.touch_absent()?;
    }
    Ok(())
}

/// Writes the volume up to `span_bytes`, one request at a time.
///
/// # Errors
/// A request that failed.
pub fn fill(rig: &mut Rig, span_bytes: u64) -> anyhow::Result<()> {
    const PIECE_BYTES: u64 = 4 << 20;
    let mut spare = Some(Buffer::heap(PIECE_BYTES as usize));
    spare.as_mut().expect("just made").fill(0x5a);
    let (mut offset, mut ended) = (0, Vec::new());
    while offset < span_bytes {
        let length = PIECE_BYTES.min(span_bytes - offset);
        let request = LocalRequest {
            operation: Operation::Write,
            offset,
            length,
            durable: false,
            buffer: spare.take(),
            tag: 0,
        };
        let taken = rig.core.submit(rig.slot, request);
        assert!(taken.is_ok(), "the array is on the core while the rig is");
        let (result, buffer) = loop {
            rig.core.take_ended(rig.slot, &mut ended);
            if let Some(ended) = ended.pop() {
                break (ended.result, ended.buffer);
            }
            rig.core.turn();
        };
        result.with_context(|| format!("cannot fill the volume at {offset}"))?;
        spare = buffer;
        offset += length;
    }
    Ok(())
}

/// Where the next request goes.
struct Places {
    next: u64,
    blocks: u64,
    random: fastrand::Rng,
}

impl Places {
    /// Whether it reads, and its place in blocks.
    fn next(&mut self, workload: Workload) -> (bool, u64) {
        let (read, random) = match workload {
            Workload::Randread => (true, true),
            Workload::Randwrite => (false, true),
            Workload::Read => (true, false),
            Workload::Write => (false, false),
            Workload::Rw70 => (self.random.u8(0..10) < 7, true),
        };
        if random {
            return (read, self.random.u64(0..self.blocks));
        }
        self.next = (self.next + 1) % self.blocks;
        (read, self.next)
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
