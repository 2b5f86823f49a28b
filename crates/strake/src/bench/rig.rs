//! One array on a core of this thread's own, or on several threads' cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};

use anyhow::{Context, bail};
use strake_engine::array::{Command, TaskKind};
use strake_engine::format::areas::Extent;
use strake_engine::format::superblock::Consistency;
use strake_engine::layout::{GeometryRequest, MemberIndex};
use strake_node::core::{AttachResult, Core, Mailbox, Message, Share, View};
use strake_node::{CreateArray, make};
use strake_reactor::buffer::Pool;
use strake_reactor::drive::{DriveSpec, blocking, describe};
use strake_reactor::ring::{RingConfig, RingPort};
use uuid::Uuid;

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
    /// Members that are there.
    pub drives: Vec<DriveSpec>,
    /// Drives of the members that are not, from the first on.
    absent: Vec<DriveSpec>,
    /// Where members have their data.
    data: Extent,
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
        if plan.missing > plan.drives.len() {
            bail!(
                "{} of {} drives cannot be missing: give fewer",
                plan.missing,
                plan.drives.len()
            );
        }
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
        let data_area = start.superblock.areas.data;
        let logs = start.superblock.consistency;
        let (mut core, pool) = own_core()?;
        if matches!(logs, Consistency::Log | Consistency::LogAll) {
            touch(&plan.drives[plan.missing..], start.superblock.areas.log)?;
        }
        let present = plan.drives.iter().enumerate();
        let present = present.map(|(at, spec)| (at >= plan.missing).then(|| spec.clone()));
        let present = present.collect();
        let slot =
            answered(|reply| core.message(Message::Add(Box::new(start), present, reply), 0))??;
        Ok(Rig {
            core,
            pool,
            slot,
            volume_bytes,
            stripe_bytes,
            drives: plan.drives[plan.missing..].to_vec(),
            absent: plan.drives[..plan.missing].to_vec(),
            data: data_area,
        })
    }

    /// As filling the volume does for the members that are there.
    ///
    /// # Errors
    /// A drive that cannot be written.
    pub fn touch_absent(&self) -> anyhow::Result<()> {
        touch(&self.absent, self.data)
    }

    /// Puts the missing members' drives back, as new ones: the rebuild begins.
    ///
    /// # Errors
    /// A drive that cannot be opened; the engine refuses.
    pub fn rebuild(&mut self) -> anyhow::Result<()> {
        for (member, spec) in std::mem::take(&mut self.absent).into_iter().enumerate() {
            let info = describe(&spec)?;
            let command = Command::Replace {
                member: MemberIndex(member as u16),
                uuid: Uuid::new_v4(),
                serial: info.serial,
                size_bytes: info.size_bytes,
                volatile: info.volatile_cache,
            };
            let (answer, answered) = mpsc::channel();
            let reply = Box::new(move |result| {
                // Heard below, until it is there.
                let _ = answer.send(result);
            });
            let place = MemberIndex(member as u16);
            let attach = Message::Attach(self.slot, place, spec.clone(), command, reply);
            self.core.message(attach, 0);
            let result = loop {
                match answered.try_recv() {
                    Ok(result) => break result,
                    Err(mpsc::TryRecvError::Empty) => self.core.turn(),
                    Err(gone) => return Err(gone).context("the core did not answer"),
                };
            };
            match result {
                AttachResult::Done => {}
                AttachResult::Open(error) => return Err(error.into()),
                AttachResult::Refused(error) => return Err(error.into()),
                AttachResult::NotYet | AttachResult::Gone => {
                    bail!("{}: the place of member {member} cannot be filled", spec.0)
                }
            }
        }
        Ok(())
    }

    /// Bytes of each member that a rebuild has done; `None`: none is running.
    ///
    /// # Errors
    /// The array is gone.
    pub fn rebuilt_bytes(&mut self) -> anyhow::Result<Option<u64>> {
        answered(|reply| {
            let look = Box::new(move |view: Option<View<'_>>| {
                let tasks = view.map(|view| view.engine.tasks()).unwrap_or_default();
                let mut tasks = tasks.into_iter();
                let rebuild = tasks.find(|task| task.kind == TaskKind::Rebuild);
                reply(rebuild.map(|task| task.done_bytes));
            });
            self.core.message(Message::Look(self.slot, look), 0);
        })
    }

    /// Runs a load on the array.
    ///
    /// # Errors
    /// A request that failed; a request size that does not fit the array.
    pub fn run(&mut self, load: &Load) -> anyhow::Result<Measured> {
        load::run(self, load)
    }

    /// Runs a load on each of several cores at once: on this thread, which runs the array, and on
    /// as many more as there are in `others`, each bound to one of these.
    ///
    /// # Errors
    /// Those of [`Rig::run`] on any of them; a core that cannot be had.
    pub fn run_together(&mut self, load: &Load, others: &[usize]) -> anyhow::Result<Measured> {
        if load.fill {
            load::prepare(self, load)?;
        }
        let parts = others.len() + 1;
        let load = |part| Load {
            fill: false,
            rebuild: load.rebuild && part == 0,
            part,
            parts,
            ..*load
        };
        let begin = Barrier::new(parts);
        let ended = AtomicUsize::new(0);
        let (joining, joiners) = mpsc::channel();
        std::thread::scope(|scope| {
            let threads: Vec<_> = others
                .iter()
                .enumerate()
                .map(|(at, &core)| {
                    let (joining, like) = (joining.clone(), Shape::of(self));
                    let (begin, ended, load) = (&begin, &ended, load(at + 1));
                    scope.spawn(move || {
                        let _last = Counted(ended);
                        let rig = pin(core).and_then(|()| Rig::join(&like, &joining));
                        drop(joining);
                        begin.wait();
                        rig?.run(&load)
                    })
                })
                .collect();
            drop(joining);
            for joiner in joiners {
                self.admit(joiner);
            }
            begin.wait();
            let mut measured = self.run(&load(0));
            // What they pass on is served until they have ended.
            while ended.load(Ordering::Acquire) < others.len() {
                self.core.turn();
            }
            for thread in threads {
                let more = thread.join().expect("a thread of the load panicked");
                if let (Ok(measured), Ok(more)) = (&mut measured, &more) {
                    measured.add(more);
                } else if measured.is_ok() {
                    measured = more;
                }
            }
            measured
        })
    }

    /// A core that serves the reads of an array of another thread.
    fn join(like: &Shape, joining: &mpsc::Sender<Joiner>) -> anyhow::Result<Rig> {
        let (mut core, pool) = own_core()?;
        let (share, shared) = mpsc::channel();
        let mailbox = core.mailbox();
        joining.send(Joiner::Wants(mailbox, share))?;
        let share = Box::new(shared.recv()?);
        let link = share.link();
        let joined = answered(|reply| core.message(Message::Join(share, reply), 0))?;
        let slot = joined.context("the core has no room")?;
        joining.send(Joiner::Has(link, slot))?;
        Ok(Rig {
            core,
            pool,
            slot,
            volume_bytes: like.volume_bytes,
            stripe_bytes: like.stripe_bytes,
            drives: Vec::new(),
            absent: Vec::new(),
            data: like.data,
        })
    }

    fn admit(&mut self, joiner: Joiner) {
        match joiner {
            Joiner::Wants(mailbox, share) => {
                let reply = Box::new(move |shared: Option<Share>| {
                    // A thread that has gone is joined, and says why.
                    let _ = share.send(shared.expect("the array is on this core"));
                });
                self.core
                    .message(Message::Share(self.slot, mailbox, reply), 0);
            }
            Joiner::Has(link, front) => {
                self.core.message(Message::Link(self.slot, link, front), 0);
            }
        }
    }
}

/// Writes everywhere in an area of drives of memory: what is not there until it is touched would cost
/// the first turn round a log more than the log itself does.
fn touch(drives: &[DriveSpec], area: Extent) -> anyhow::Result<()> {
    const PIECE_BYTES: u64 = 4 << 20;
    let piece = vec![0; PIECE_BYTES as usize];
    let of_memory = |spec: &&DriveSpec| {
        ["memory:", "paced:"]
            .iter()
            .any(|kind| spec.0.starts_with(kind))
    };
    for spec in drives.iter().filter(of_memory) {
        let drive = blocking(spec, false)?;
        for offset in (area.offset..area.end()).step_by(PIECE_BYTES as usize) {
            let bytes = PIECE_BYTES.min(area.end() - offset);
            drive.write_at(offset, &piece[..bytes as usize])?;
        }
    }
    Ok(())
}

/// A core of this thread's own, and where its buffers come from.
fn own_core() -> anyhow::Result<(Core<RingPort>, Pool)> {
    let pool = Pool::new(POOL_BYTES)?;
    let port = RingPort::new(RingConfig {
        entries: 1024,
        pool: Some(pool.clone()),
    })?;
    Ok((Core::new(port, pool.clone()), pool))
}

/// What a core that joins says to the one that runs the array.
enum Joiner {
    Wants(Arc<Mailbox>, mpsc::Sender<Share>),
    Has(u32, usize),
}

/// Sizes that a core which joins has to know.
struct Shape {
    volume_bytes: u64,
    stripe_bytes: u64,
    data: Extent,
}

impl Shape {
    fn of(rig: &Rig) -> Shape {
        Shape {
            volume_bytes: rig.volume_bytes,
            stripe_bytes: rig.stripe_bytes,
            data: rig.data,
        }
    }
}

/// Counts up when it goes.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// The answer to a message that is answered at once.
fn answered<T: Send + 'static>(ask: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> anyhow::Result<T> {
    let (answer, answered) = mpsc::channel();
    ask(Box::new(move |result| {
        let _ = answer.send(result);
    }));
    answered.try_recv().context("the core did not answer")
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
