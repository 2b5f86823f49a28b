//! What one operation costs in the port itself: null, memory and file drives, one core.
//!
//! `cargo run --release -p strake-reactor --example port_cost [PATH...]`; each PATH is read only.
//! Shows nanoseconds per 4 KiB operation at queue depth 32; compare runs on one machine, not
//! machines.

use strake_reactor::buffer::{Buffer, Pool};
use strake_reactor::drive::DriveSpec;
use strake_reactor::port::{DriveOp, Port};
use strake_reactor::ring::{RingConfig, RingPort};

const DEPTH: usize = 32;
const BLOCK: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::new(16 << 20)?;
    let config = RingConfig {
        pool: Some(pool.clone()),
        ..RingConfig::default()
    };
    let mut port = RingPort::new(config)?;
    for note in port.notes() {
        println!("note: {note}");
    }
    let mut specs = vec!["null:1GiB".to_owned(), "memory:64MiB".to_owned()];
    specs.extend(std::env::args().skip(1));
    for spec in specs {
        let operations = if spec.starts_with('/') {
            400_000
        } else {
            4_000_000
        };
        for (name, pooled) in [("pool buffer", true), ("heap buffer", false)] {
            let mut buffers = Vec::new();
            for _ in 0..DEPTH {
                let buffer = match pooled {
                    true => pool.alloc(BLOCK).ok_or("the pool is too small")?,
                    false => Buffer::heap(BLOCK),
                };
                buffers.push(buffer);
            }
            let ns = measure(
                &mut port,
                &DriveSpec(spec.clone()),
                &mut buffers,
                operations,
            )?;
            println!("{spec}: {name}: {ns} ns per operation");
        }
    }
    Ok(())
}

fn measure(
    port: &mut RingPort,
    spec: &DriveSpec,
    buffers: &mut [Buffer],
    operations: u64,
) -> Result<u64, Box<dyn std::error::Error>> {
    let (drive, info) = port.open(spec, true)?;
    let blocks = info.size_bytes / BLOCK as u64;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut idle: Vec<u64> = (0..buffers.len() as u64).collect();
    let mut done = Vec::new();
    let start_ns = port.now_ns();
    let (mut started, mut finished) = (0, 0);
    while finished < operations {
        while started < operations
            && let Some(token) = idle.pop()
        {
            let into = buffers[token as usize].lend_inbound(0..BLOCK);
            let offset = rng.u64(..blocks) * BLOCK as u64;
            port.submit(drive, token, DriveOp::Read { offset, into });
            started += 1;
        }
        port.poll(&mut done);
        if done.is_empty() {
            port.wait(None);
        }
        for completion in done.drain(..) {
            completion.result?;
            idle.push(completion.token);
            finished += 1;
        }
    }
    let spent_ns = port.now_ns() - start_ns;
    port.close(drive);
    Ok(spent_ns / operations)
}
