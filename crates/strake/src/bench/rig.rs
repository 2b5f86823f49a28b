//! One array on a core of this thread's own.

use std::sync::{Arc, Mutex};

use anyhow::{Context, bail};
use strake_engine::format::superblock::Consistency;
use strake_engine::layout::GeometryRequest;
use strake_node::core::{Core, Message};
use strake_node::{CreateArray, make};
use strake_reactor::buffer::Pool;
use strake_reactor::drive::{DriveSpec, describe};
use strake_reactor::ring::{RingConfig, RingPort};

use super::load::{self, Load, Measured};

/// Buffers of the core.
const POOL_BYTES: usize = 256 << 20;
/// What the engine may use of them for operations.
const MEMORY_BYTES: usize = 128 << 20;

/// What array to make.
pub struct Plan {
    /// Level and geometry.
    pub geometry: GeometryRequest,
    /// Members.
    pub drives: Vec<DriveSpec>,
    /// The first so many members are absent.
    pub missing: usize,
    /// `None`: as a new array has it.
    pub policy: Option<Consistency>,
}

/// A core with one array.
pub struct Rig {
    /// The loop, its port and its array.
    pub core: Core<RingPort>,
    /// Where requests' buffers come from.
    pub pool: Pool,
    /// The array's id on the core.
    pub slot: usize,
    /// Bytes of the array.
    pub volume_bytes: u64,
    /// Bytes of data of one stripe.
    pub stripe_bytes: u64,
    /// Members, the absent ones too.
    pub drives: Vec<DriveSpec>,
}

impl Rig {
    /// Makes the array. What is on the drives is lost; nothing is recorded on them.
    ///
    /// # Errors
    /// A geometry that cannot be, a policy that the level has no use for, drives that cannot be
    /// opened.
    pub fn new(plan: Plan) -> anyhow::Result<Rig> {
        let drives = plan.drives.iter().map(describe);
        let infos = drives.collect::<Result<Vec<_>, _>>()?;
        let missing: Vec<usize> = (0..plan.missing).collect();
        let request = CreateArray {
            name: "bench".into(),
            geometry: plan.geometry,
            drives: plan.drives.clone(),
            policy: plan.policy,
            log_bytes: None,
            force: false,
        };
        let start = make::unrecorded(&request, &infos, &missing, MEMORY_BYTES)?;
        let volume_bytes = start.superblock.volume_size_bytes;
        let data = u64::from(start.superblock.data);
        let stripe_bytes = start.superblock.strip_size_bytes * data;
        let pool = Pool::new(POOL_BYTES)?;
        let port = RingPort::new(RingConfig {
            entries: 1024,
            pool: Some(pool.clone()),
        })?;
        let mut core = Core::new(port, pool.clone());
        let present = plan.drives.iter().enumerate();
        let present = present.map(|(at, spec)| (at >= plan.missing).then(|| spec.clone()));
        let slot = Arc::new(Mutex::new(None));
        let answer = slot.clone();
        let added =
            Box::new(move |result| *answer.lock().expect("no panic while held") = Some(result));
        core.message(Message::Add(Box::new(start), present.collect(), added), 0);
        let slot = slot.lock().expect("no panic while held").take();
        let slot = slot.context("the core did not answer")??;
        Ok(Rig {
            core,
            pool,
            slot,
            volume_bytes,
            stripe_bytes,
            drives: plan.drives,
        })
    }

    /// Runs a load on the array.
    ///
    /// # Errors
    /// A request that failed; a request size that does not fit the array.
    pub fn run(&mut self, load: &Load) -> anyhow::Result<Measured> {
        load::run(self, load)
    }
}

/// So many labelled drives of a kind: `null`, `memory`, `paced:cm7`. The same again when asked again.
pub fn alike(kind: &str, bytes: &str, count: usize) -> Vec<DriveSpec> {
    (0..count)
        .map(|at| DriveSpec(format!("{kind}:{bytes}:bench-{kind}-{at}")))
        .collect()
}

/// Binds this thread to a core.
///
/// # Errors
/// There is no such core, or this process may not run on it.
pub fn pin(core: usize) -> anyhow::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if core >= rustix::thread::CpuSet::MAX_CPU {
        bail!("core {core}: there is none of that number");
    }
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
        .with_context(|| format!("cannot run on core {core}"))
}
