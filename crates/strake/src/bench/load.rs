//! The load: a fixed number of requests under way, each sent again when it ends.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use strake_engine::block::{BlockError, BlockRequest, Operation};
use strake_node::core::{Core, Message};
use strake_reactor::buffer::{Buffer, Pool};
use strake_reactor::port::Port;

use super::Workload;

/// What is sent.
pub struct Load {
    /// Array on the core.
    pub slot: usize,
    /// Kind.
    pub workload: Workload,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// Requests under way.
    pub depth: usize,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Seconds measured.
    pub seconds: f64,
    /// Write everything once before: fresh memory is not there until it is touched.
    pub fill: bool,
}

/// What came of it.
pub struct Measured {
    /// Requests that ended in the measured time.
    pub requests: u64,
    /// Measured time.
    pub elapsed: Duration,
    /// Nanoseconds from sending to end.
    pub latency_ns: Histogram<u64>,
    /// CPU time of the core's thread.
    pub cpu: Duration,
}

type Ended = (u32, Result<(), BlockError>, Option<Buffer>);

struct Client {
    buffer: Option<Buffer>,
    sent: Instant,
}

/// Time before measuring begins.
const WARM_UP: Duration = Duration::from_secs(1);

/// Runs the load on this thread.
///
/// # Errors
/// A request that failed; a block size that does not fit the volume.
pub fn run<P: Port>(core: &mut Core<P>, pool: &Pool, load: &Load) -> anyhow::Result<Measured> {
    if load.block_bytes == 0 || load.block_bytes > load.volume_bytes {
        bail!(
            "requests of {} bytes do not fit a volume of {}",
            load.block_bytes,
            load.volume_bytes
        );
    }
    if load.fill {
        fill(core, load)?;
    }
    let ended: Arc<Mutex<Vec<Ended>>> = Arc::default();
    let mut clients = Vec::new();
    for _ in 0..load.depth {
        let bytes = load.block_bytes as usize;
        let buffer = pool.alloc(bytes).unwrap_or_else(|| Buffer::heap(bytes));
        clients.push(Client {
            buffer: Some(buffer),
            sent: Instant::now(),
        });
    }
    let mut places = Places {
        next: 0,
        blocks: load.volume_bytes / load.block_bytes,
        random: fastrand::Rng::with_seed(1),
    };
    let mut latency_ns = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
    for at in 0..clients.len() {
        send(core, load, &mut places, &ended, &mut clients, at as u32);
    }
    let begun = Instant::now();
    let mut from = None;
    let mut requests = 0;
    let mut batch = Vec::new();
    loop {
        core.turn();
        std::mem::swap(&mut *ended.lock().expect("no panic while held"), &mut batch);
        let now = Instant::now();
        for (at, result, buffer) in batch.drain(..) {
            result.with_context(|| format!("a request failed after {requests} that did not"))?;
            let client = &mut clients[at as usize];
            client.buffer = buffer;
            if from.is_some() {
                requests += 1;
                latency_ns.saturating_record((now - client.sent).as_nanos() as u64);
            }
            send(core, load, &mut places, &ended, &mut clients, at);
        }
        match from {
            None if now - begun >= WARM_UP => from = Some((now, cpu_time())),
            Some((since, cpu)) if (now - since).as_secs_f64() >= load.seconds => {
                return Ok(Measured {
                    requests,
                    elapsed: now - since,
                    latency_ns,
                    cpu: cpu_time() - cpu,
                });
            }
            _ => {}
        }
    }
}

/// Writes the whole volume, one request at a time.
fn fill<P: Port>(core: &mut Core<P>, load: &Load) -> anyhow::Result<()> {
    const PIECE_BYTES: u64 = 4 << 20;
    let mut spare = Some(Buffer::heap(PIECE_BYTES as usize));
    spare.as_mut().expect("just made").fill(0x5a);
    let mut offset = 0;
    while offset < load.volume_bytes {
        let length = PIECE_BYTES.min(load.volume_bytes - offset);
        let ended: Arc<Mutex<Option<Ended>>> = Arc::default();
        let answer = ended.clone();
        let request = BlockRequest {
            operation: Operation::Write,
            offset,
            length,
            durable: false,
            buffer: spare.take(),
            done: Box::new(move |result, buffer| {
                *answer.lock().expect("no panic while held") = Some((0, result, buffer));
            }),
        };
        core.message(Message::Block(load.slot, request), 0);
        let (_, result, buffer) = loop {
            if let Some(answer) = ended.lock().expect("no panic while held").take() {
                break answer;
            }
            core.turn();
        };
        result.with_context(|| format!("cannot fill the volume at {offset}"))?;
        spare = buffer;
        offset += length;
    }
    Ok(())
}

struct Places {
    next: u64,
    blocks: u64,
    random: fastrand::Rng,
}

fn send<P: Port>(
    core: &mut Core<P>,
    load: &Load,
    places: &mut Places,
    ended: &Arc<Mutex<Vec<Ended>>>,
    clients: &mut [Client],
    at: u32,
) {
    let (read, random) = match load.workload {
        Workload::Randread => (true, true),
        Workload::Randwrite => (false, true),
        Workload::Read => (true, false),
        Workload::Write => (false, false),
        Workload::Rw70 => (places.random.u8(0..10) < 7, true),
    };
    let block = if random {
        places.random.u64(0..places.blocks)
    } else {
        places.next = (places.next + 1) % places.blocks;
        places.next
    };
    let client = &mut clients[at as usize];
    client.sent = Instant::now();
    let ended = ended.clone();
    let request = BlockRequest {
        operation: if read {
            Operation::Read
        } else {
            Operation::Write
        },
        offset: block * load.block_bytes,
        length: load.block_bytes,
        durable: false,
        buffer: client.buffer.take(),
        done: Box::new(move |result, buffer| {
            ended
                .lock()
                .expect("no panic while held")
                .push((at, result, buffer));
        }),
    };
    core.message(Message::Block(load.slot, request), 0);
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
