//! The control plane's handle on the node: blocking calls, cloneable array handles.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

pub use strake_engine::array::LogReport;
use strake_engine::array::{Command, CommandError, CommandErrorKind};
use strake_engine::block::{BlockDevice, BlockError, BlockInfo, BlockRequest, Operation};
pub use strake_engine::format::superblock::Consistency;
use strake_engine::layout::{GeometryRequest, MemberIndex};
use strake_reactor::buffer::{Buffer, Pool};
use strake_reactor::drive::{self, DriveSpec, FaultPlan, OpenError};
use strake_reactor::ring::{RingConfig, RingPort};
use uuid::Uuid;

use crate::core::{AttachResult, Core, Mailbox, Message};
use crate::import::{self, Import};
use crate::torn::{self, TornBlocks};
use crate::{make, probe, status};

/// How to start.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Reactors, one pinned thread each. 0: one per core, at most 4.
    pub cores: usize,
    /// Memory for stripe buffers, all cores together.
    pub memory_bytes: usize,
    /// Identity of this host, written into superblocks as owner.
    pub host_id: Uuid,
}

/// Parameters of a new array.
#[derive(Debug, Clone)]
pub struct CreateArray {
    /// 1 to 48 of letters, digits, `-`, `_`, `.`; starts with a letter or digit.
    pub name: String,
    /// Level and geometry; `members` must equal the number of drives.
    pub geometry: GeometryRequest,
    /// Members in order.
    pub drives: Vec<DriveSpec>,
    /// What keeps parity true over a crash; `None`: the log where the level has redundancy.
    pub policy: Option<Consistency>,
    /// Parity log of each member in bytes; `None`: by the drives' size.
    pub log_bytes: Option<u64>,
    /// Destroy what is on the drives (never a drive in use).
    pub force: bool,
}

/// Parameters of starting an array from its drives.
#[derive(Debug, Clone)]
pub struct ImportArray {
    /// Array.
    pub uuid: Uuid,
    /// Drives to look at (all of them; foreign ones are ignored and named in the report).
    pub drives: Vec<DriveSpec>,
    /// Rename at import.
    pub new_name: Option<String>,
    /// Serve reads only; changes nothing on any drive.
    pub read_only: bool,
    /// Start although members are missing that may hold newer data, or although the array is
    /// dirty and degraded, or another host owns it.
    pub force: bool,
    /// Generation this host last saw, if it has seen the array: proves that no newer one exists.
    pub known_generation: Option<u64>,
    /// Where this host last saw members (place, path), to name those that are missing.
    pub last_seen: Vec<(u16, String)>,
}

/// A management error: what, where and what to do, in one or two sentences.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct NodeError {
    /// For programs.
    pub kind: ErrorKind,
    /// For people.
    pub message: String,
}

impl NodeError {
    pub(crate) fn new(kind: ErrorKind, message: String) -> NodeError {
        NodeError { kind, message }
    }

    pub(crate) fn drive(error: OpenError) -> NodeError {
        let kind = match error {
            OpenError::BadSpec { .. } => ErrorKind::Invalid,
            OpenError::Busy { .. } => ErrorKind::Conflict,
            OpenError::System { .. } => ErrorKind::Drive,
        };
        NodeError::new(kind, error.to_string())
    }

    fn stopped() -> NodeError {
        NodeError::new(ErrorKind::Stopped, "the array is stopped".into())
    }

    fn command(array: &str, error: CommandError) -> NodeError {
        let kind = match error.kind {
            CommandErrorKind::NotFound => ErrorKind::NotFound,
            CommandErrorKind::Conflict => ErrorKind::Conflict,
            CommandErrorKind::Refused => ErrorKind::Refused,
            CommandErrorKind::Drive => ErrorKind::Drive,
            CommandErrorKind::Stopped => ErrorKind::Stopped,
        };
        NodeError::new(kind, format!("array {array}: {}", error.message))
    }
}

/// Classes of management errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request itself makes no sense (geometry, name, too few drives, ...).
    Invalid,
    /// Something of that name, or that state, is already there.
    Conflict,
    /// No such array or member.
    NotFound,
    /// Would destroy data or is not safe now; `--force` overrides where the text says so.
    Refused,
    /// A drive failed underneath.
    Drive,
    /// The array is stopped or the node is shutting down.
    Stopped,
}

/// Array as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrayState {
    /// All members in sync.
    Healthy,
    /// Serving with members missing.
    Degraded,
    /// Members missing beyond what parity replaces: what can be read is read, no writes.
    Failed,
}

/// One member.
#[derive(Debug, Clone)]
pub struct MemberStatus {
    /// Place in the array.
    pub index: u16,
    /// Group (10, 50, 60, 70), 0 else.
    pub group: u16,
    /// Path of the drive, where there is one now.
    pub path: Option<String>,
    /// Serial of the drive that is or was here.
    pub serial: String,
    /// "active", "rebuilding", "failed", "missing", "removed".
    pub state: MemberState,
    /// Drive size in bytes.
    pub size_bytes: u64,
    /// Read errors answered from parity since the array started.
    pub read_errors: u64,
    /// Write errors since the array started.
    pub write_errors: u64,
    /// A power cut may take back what its drive has completed; `None` without a drive.
    pub volatile_cache: Option<bool>,
    /// Notes of the drive (O_DIRECT refused, larger than used, ...).
    pub notes: Vec<String>,
}

/// State of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// In sync.
    Active,
    /// Being refilled.
    Rebuilding,
    /// Dropped after errors or by command.
    Failed,
    /// Not found at start.
    Missing,
    /// Place is empty by command.
    Removed,
}

/// Long work.
#[derive(Debug, Clone)]
pub struct TaskStatus {
    /// "rebuild", "resync", "scrub".
    pub kind: String,
    /// Bytes of each member done.
    pub done_bytes: u64,
    /// Bytes of each member in all.
    pub total_bytes: u64,
    /// Bytes per second of each member, recent.
    pub rate_bytes: u64,
    /// Scrub: stripes that did not hold; of these repaired.
    pub mismatches: u64,
    /// Scrub with repair, resync: stripes whose parity was rewritten.
    pub repaired: u64,
    /// Ranges that could not be worked on (errors), named in the log.
    pub errors: u64,
}

/// Everything `array show` prints.
#[derive(Debug, Clone)]
pub struct ArrayStatus {
    /// Identity.
    pub uuid: Uuid,
    /// Name.
    pub name: String,
    /// "raid6", ...
    pub level: String,
    /// State.
    pub state: ArrayState,
    /// Read-only import.
    pub read_only: bool,
    /// Requests wait until its start has ended: a log may be being replayed.
    pub starting: bool,
    /// Usable bytes.
    pub size_bytes: u64,
    /// Array block size.
    pub block_size_bytes: u32,
    /// Strip.
    pub strip_size_bytes: u64,
    /// Groups.
    pub groups: u16,
    /// Data strips in a group's stripe.
    pub data: u16,
    /// Parity strips in a group's stripe (copies - 1 for mirrors).
    pub parity: u16,
    /// Members.
    pub members: Vec<MemberStatus>,
    /// Running long work.
    pub tasks: Vec<TaskStatus>,
    /// Outcome of the last finished scrub, if any since start.
    pub last_scrub: Option<TaskStatus>,
    /// Superblock generation.
    pub generation: u64,
    /// Starts counted.
    pub epoch: u64,
    /// What keeps parity true over a crash.
    pub policy: Consistency,
    /// Parity log of each member in bytes.
    pub log_bytes: u64,
    /// What the log is doing and did at the start.
    pub log: LogReport,
    /// Bytes of members that a crash tore: they read as errors.
    pub torn_bytes: u64,
    /// Bytes of members that may be wrong: they read as errors.
    pub suspect_bytes: u64,
    /// Bytes of a region on each member.
    pub region_size_bytes: u64,
    /// Regions by state: unwritten, clean, dirty, needs resync.
    pub regions: [u64; 4],
    /// Parity kernel in use.
    pub kernel: String,
    /// Requests and bytes since start.
    pub reads: u64,
    /// See `reads`.
    pub writes: u64,
    /// See `reads`.
    pub read_bytes: u64,
    /// See `reads`.
    pub write_bytes: u64,
    /// Stripe writes by way: full-stripe, read-modify-write, reconstruct-write, joined requests.
    pub write_plans: [u64; 4],
    /// Bytes not read for parity because parts of stripes waited for each other.
    pub gathered_bytes: u64,
    /// Rebuild priority, 1 to 100 per cent.
    pub rebuild_priority: u8,
    /// Bytes of the members that are not used because the smallest counts.
    pub unused_bytes: u64,
    /// What people should know now, a sentence each.
    pub warnings: Vec<String>,
}

/// Largest request that an array takes at once. Anything larger is cut by the exports.
const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// How long a replacement waits for the old drive's last I/O.
const DETACH_TRIES: u32 = 600;
const DETACH_PAUSE: Duration = Duration::from_millis(50);

struct CoreHandle {
    mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<()>>,
}

/// Running reactors and the arrays on them.
pub struct Node {
    cores: Vec<CoreHandle>,
    next_core: AtomicUsize,
    memory_per_array: usize,
    host_id: Uuid,
    arrays: Arc<Mutex<Vec<Array>>>,
}

/// A started array. Clones are the same array.
#[derive(Clone)]
pub struct Array(Arc<ArrayInner>);

struct ArrayInner {
    mailbox: Arc<Mailbox>,
    slot: usize,
    /// By core: where its reads may go, and what that core calls it.
    cores: Vec<(Arc<Mailbox>, usize)>,
    uuid: Uuid,
    info: BlockInfo,
    warnings: Vec<String>,
    stopped: AtomicBool,
    /// The arrays of this node.
    siblings: Weak<Mutex<Vec<Array>>>,
}

impl Node {
    /// Starts the reactors.
    ///
    /// # Errors
    /// When the kernel refuses an io_uring or the memory.
    pub fn start(config: NodeConfig) -> Result<Node, NodeError> {
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        let count = if config.cores == 0 {
            available.min(4)
        } else {
            config.cores
        };
        let memory = (config.memory_bytes / count).max(8 << 20);
        let mut cores = Vec::new();
        for index in 0..count {
            cores.push(start_core(index, memory)?);
        }
        Ok(Node {
            cores,
            next_core: AtomicUsize::new(0),
            memory_per_array: memory / 2,
            host_id: config.host_id,
            arrays: Arc::default(),
        })
    }

    /// Makes a new array and starts it.
    ///
    /// # Errors
    /// Everything that is wrong with the request or the drives; nothing has changed on any drive
    /// then.
    pub fn create(&self, request: CreateArray) -> Result<Array, NodeError> {
        for spec in &request.drives {
            refuse_served(&self.arrays, spec)?;
        }
        let (superblock, drives) = make::make(&request)?;
        self.import(ImportArray {
            uuid: superblock.array_uuid,
            drives,
            new_name: None,
            read_only: false,
            force: false,
            known_generation: Some(superblock.generation),
            last_seen: Vec::new(),
        })
    }

    /// Starts an array from what its drives say.
    ///
    /// # Errors
    /// When it cannot be started safely: what is missing, and which option would allow it.
    pub fn import(&self, request: ImportArray) -> Result<Array, NodeError> {
        let running = running(&self.arrays);
        if let Some(array) = running.iter().find(|array| array.uuid() == request.uuid) {
            return Err(NodeError::new(
                ErrorKind::Conflict,
                format!(
                    "array {} ({}) is started already",
                    array.0.info.name, request.uuid
                ),
            ));
        }
        let import = import::import(&request, self.host_id, self.memory_per_array)?;
        for spec in import.specs.iter().flatten() {
            refuse_served(&self.arrays, spec)?;
        }
        let array = self.serve(import)?;
        let mut arrays = self.arrays.lock().expect("no panic while held");
        arrays.retain(|array| !array.0.stopped.load(Ordering::Acquire));
        arrays.push(array.clone());
        Ok(array)
    }

    fn serve(&self, import: Import) -> Result<Array, NodeError> {
        let Import {
            start,
            specs,
            warnings,
        } = import;
        let superblock = &start.superblock;
        let info = BlockInfo {
            name: superblock.name.clone(),
            size_bytes: superblock.volume_size_bytes,
            block_size_bytes: superblock.block_size_bytes,
            strip_size_bytes: superblock.strip_size_bytes as u32,
            stripe_data_bytes: superblock.strip_size_bytes * u64::from(superblock.data),
            max_request_bytes: REQUEST_BYTES_MAX,
            read_only: start.read_only,
        };
        let uuid = superblock.array_uuid;
        let core = self.next_core.fetch_add(1, Ordering::Relaxed) % self.cores.len();
        let mailbox = self.cores[core].mailbox.clone();
        let added = ask(&mailbox, |reply| {
            Message::Add(Box::new(start), specs, reply)
        })?;
        let slot = added.map_err(NodeError::drive)?;
        let mut cores = Vec::new();
        for (other, handle) in self.cores.iter().enumerate() {
            // A core that cannot serve one more array passes nothing on: its reads come here.
            let front = match other == core {
                true => None,
                // One that has ended is not joined; the array is served all the same.
                false => join(&mailbox, slot, &handle.mailbox).unwrap_or(None),
            };
            cores.push(match front {
                Some(front) => (handle.mailbox.clone(), front),
                None => (mailbox.clone(), slot),
            });
        }
        Ok(Array(Arc::new(ArrayInner {
            mailbox,
            slot,
            cores,
            uuid,
            info,
            warnings,
            stopped: AtomicBool::new(false),
            siblings: Arc::downgrade(&self.arrays),
        })))
    }

    /// Stops every array cleanly and ends the reactors.
    pub fn shutdown(self) {
        let arrays = std::mem::take(&mut *self.arrays.lock().expect("no panic while held"));
        for array in arrays {
            if let Err(error) = array.stop()
                && error.kind != ErrorKind::Stopped
            {
                tracing::error!(array = array.0.info.name, "{error}");
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for core in &mut self.cores {
            core.mailbox.send(Message::End);
            if let Some(thread) = core.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

fn start_core(index: usize, memory: usize) -> Result<CoreHandle, NodeError> {
    let failed = |error: &dyn std::fmt::Display| {
        NodeError::new(
            ErrorKind::Drive,
            format!("cannot start reactor {index}: {error}"),
        )
    };
    let (ready, started) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(format!("reactor-{index}"))
        .spawn(move || {
            let port = Pool::new(memory).and_then(|pool| {
                let port = RingPort::new(RingConfig {
                    entries: 1024,
                    pool: Some(pool.clone()),
                })?;
                Ok((port, pool))
            });
            match port {
                Ok((port, pool)) => {
                    for note in port.notes() {
                        tracing::info!(reactor = index, "{note}");
                    }
                    let mut core = Core::new(port, pool);
                    let _ = ready.send(Ok(core.mailbox()));
                    core.run();
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        })
        .map_err(|error| failed(&error))?;
    match started.recv() {
        Ok(Ok(mailbox)) => Ok(CoreHandle {
            mailbox,
            thread: Some(thread),
        }),
        Ok(Err(error)) => Err(failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}

/// Has another core serve an array's reads, too. `None`: it has no room for one more array.
fn join(owner: &Mailbox, array: usize, other: &Arc<Mailbox>) -> Result<Option<usize>, NodeError> {
    let share = ask(owner, |reply| Message::Share(array, other.clone(), reply))?;
    let Some(share) = share else {
        return Err(NodeError::stopped());
    };
    let link = share.link();
    let front = ask(other, |reply| Message::Join(Box::new(share), reply))?;
    if let Some(front) = front {
        owner.send(Message::Link(array, link, front));
    }
    Ok(front)
}

thread_local! {
    /// Which core this thread's reads go to: threads take turns.
    static HOME: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
}

/// Arrays that have not been stopped.
fn running(arrays: &Mutex<Vec<Array>>) -> Vec<Array> {
    let arrays = arrays.lock().expect("no panic while held");
    let running = arrays
        .iter()
        .filter(|array| !array.0.stopped.load(Ordering::Acquire));
    running.cloned().collect()
}

/// Refuses a drive that an array of this process uses, whatever `--force` says: the kernel would
/// not, as the claim is our own.
fn refuse_served(arrays: &Mutex<Vec<Array>>, spec: &DriveSpec) -> Result<(), NodeError> {
    let identity = drive::describe(spec).map_err(NodeError::drive)?.identity;
    for array in running(arrays) {
        let wanted = identity.clone();
        let place = array.ask(|reply| {
            let look = move |view: Option<crate::core::View<'_>>| {
                let drives = view.map(|view| view.drives).unwrap_or_default();
                reply(
                    drives
                        .iter()
                        .position(|drive| drive.is_some_and(|info| info.identity == wanted)),
                );
            };
            Message::Look(array.0.slot, Box::new(look))
        });
        if let Ok(Some(place)) = place {
            return Err(NodeError::new(
                ErrorKind::Conflict,
                format!(
                    "{spec}: is in use as member {place} of array {}; fail or remove that member first (--force does not help here)",
                    array.0.info.name
                ),
            ));
        }
    }
    Ok(())
}

/// Sends a message and waits for its answer.
fn ask<T: Send + 'static>(
    mailbox: &Mailbox,
    message: impl FnOnce(Box<dyn FnOnce(T) + Send>) -> Message,
) -> Result<T, NodeError> {
    let (sender, receiver) = mpsc::channel();
    mailbox.send(message(Box::new(move |answer| {
        let _ = sender.send(answer);
    })));
    receiver.recv().map_err(|_| NodeError::stopped())
}

impl Array {
    /// Identity.
    pub fn uuid(&self) -> Uuid {
        self.0.uuid
    }

    fn ask<T: Send + 'static>(
        &self,
        message: impl FnOnce(Box<dyn FnOnce(T) + Send>) -> Message,
    ) -> Result<T, NodeError> {
        if self.0.stopped.load(Ordering::Acquire) {
            return Err(NodeError::stopped());
        }
        ask(&self.0.mailbox, message)
    }

    /// Snapshot for people and programs.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`].
    pub fn status(&self) -> Result<ArrayStatus, NodeError> {
        let status = self.ask(|reply| {
            Message::Look(
                self.0.slot,
                Box::new(move |view| reply(view.map(|view| status::status(&view)))),
            )
        })?;
        let mut status = status.ok_or_else(NodeError::stopped)?;
        status.warnings.extend(self.0.warnings.iter().cloned());
        Ok(status)
    }

    fn command(&self, command: Command) -> Result<(), NodeError> {
        self.ask(|reply| Message::Command(self.0.slot, command, reply))?
            .map_err(|error| NodeError::command(&self.0.info.name, error))
    }

    /// Drops a member.
    ///
    /// # Errors
    /// Refused when the level would not survive it, unless forced.
    pub fn fail_member(&self, member: u16, force: bool) -> Result<(), NodeError> {
        self.command(Command::Fail {
            member: MemberIndex(member),
            force,
        })
    }

    /// Takes a failed, missing (or, where survivable, active) member out of its place.
    ///
    /// # Errors
    /// As [`Array::fail_member`].
    pub fn remove_member(&self, member: u16, force: bool) -> Result<(), NodeError> {
        self.command(Command::Remove {
            member: MemberIndex(member),
            force,
        })
    }

    /// Puts a drive into a place and starts to rebuild it. A member that is still live is dropped
    /// first, where the array survives that. Returns when the drive is a member.
    ///
    /// # Errors
    /// A drive that is in use, too small, holds data (unless forced) or is the same as another
    /// member; a place that does not exist or cannot be given up.
    pub fn replace_member(
        &self,
        member: u16,
        spec: DriveSpec,
        force: bool,
    ) -> Result<(), NodeError> {
        let spec = make::labelled(&spec);
        let status = self.status()?;
        let place = status.members.get(usize::from(member)).ok_or_else(|| {
            let last = status.members.len() - 1;
            NodeError::new(
                ErrorKind::NotFound,
                format!("no member {member}: the array has members 0 to {last}"),
            )
        })?;
        if status.read_only {
            return Err(NodeError::new(
                ErrorKind::Conflict,
                format!(
                    "array {}: was imported read-only; stop it and import it without --read-only first",
                    status.name
                ),
            ));
        }
        if status.parity == 0 {
            return Err(NodeError::new(
                ErrorKind::Refused,
                format!(
                    "array {}: {} keeps no redundancy: a lost member cannot be rebuilt",
                    status.name, status.level
                ),
            ));
        }
        let info = drive::describe(&spec).map_err(NodeError::drive)?;
        let superblock = self.superblock()?;
        superblock
            .areas
            .on_drive(info.size_bytes)
            .map_err(|error| {
                NodeError::new(ErrorKind::Invalid, format!("{}: {error}", info.path))
            })?;
        if info.block_size_bytes > status.block_size_bytes {
            return Err(NodeError::new(
                ErrorKind::Invalid,
                format!(
                    "{}: has blocks of {} bytes, the array has {}: use a drive with blocks of at most that",
                    info.path, info.block_size_bytes, status.block_size_bytes
                ),
            ));
        }
        if let Some(siblings) = self.0.siblings.upgrade() {
            refuse_served(&siblings, &spec)?;
        }
        make::refuse_used(&spec, force)?;
        let live = matches!(place.state, MemberState::Active | MemberState::Rebuilding);
        if live {
            self.look(move |view| view.engine.may_fail(MemberIndex(member)))?
                .map_err(|error| NodeError::command(&self.0.info.name, error))?;
        }
        // The new drive first: one that refuses its metadata must not cost a member.
        let uuid = Uuid::new_v4();
        self.prepare_drive(&spec, &superblock, uuid)?;
        if live {
            self.fail_member(member, false)?;
        }
        self.attach(member, &spec, uuid, &info)
    }

    fn superblock(&self) -> Result<strake_engine::format::Superblock, NodeError> {
        self.look(|view| view.engine.superblock().clone())
    }

    /// Looks at the array from its core's thread.
    fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&crate::core::View<'_>) -> T + Send + 'static,
    ) -> Result<T, NodeError> {
        let seen = self.ask(|reply| {
            let answer = move |view: Option<crate::core::View<'_>>| reply(view.map(|v| look(&v)));
            Message::Look(self.0.slot, Box::new(answer))
        })?;
        seen.ok_or_else(NodeError::stopped)
    }

    /// Writes what the engine does not: erased superblocks, an empty store and log.
    fn prepare_drive(
        &self,
        spec: &DriveSpec,
        superblock: &strake_engine::format::Superblock,
        uuid: Uuid,
    ) -> Result<(), NodeError> {
        let open = drive::blocking(spec, false).map_err(NodeError::drive)?;
        let written = probe::erase(&open)
            .and_then(|()| make::write_store_and_log(superblock, uuid, &open))
            .and_then(|()| open.flush());
        written.map_err(|error| {
            NodeError::new(
                ErrorKind::Drive,
                format!(
                    "{}: cannot write metadata: {error}; use another drive",
                    open.info().path
                ),
            )
        })
    }

    fn attach(
        &self,
        member: u16,
        spec: &DriveSpec,
        uuid: Uuid,
        info: &drive::DriveInfo,
    ) -> Result<(), NodeError> {
        for _ in 0..DETACH_TRIES {
            let command = Command::Replace {
                member: MemberIndex(member),
                uuid,
                serial: info.serial.clone(),
                size_bytes: info.size_bytes,
                volatile: info.volatile_cache,
            };
            let result = self.ask(|reply| {
                Message::Attach(
                    self.0.slot,
                    MemberIndex(member),
                    spec.clone(),
                    command,
                    reply,
                )
            })?;
            match result {
                AttachResult::Done => return Ok(()),
                AttachResult::NotYet => std::thread::sleep(DETACH_PAUSE),
                AttachResult::Open(error) => return Err(NodeError::drive(error)),
                AttachResult::Refused(error) => {
                    return Err(NodeError::command(&self.0.info.name, error));
                }
                AttachResult::Gone => return Err(NodeError::stopped()),
            }
        }
        Err(NodeError::new(
            ErrorKind::Drive,
            format!(
                "array {}: the old drive of member {member} still has I/O that does not end; try again",
                self.0.info.name
            ),
        ))
    }

    /// Starts a scrub; with `repair`, parity that does not hold is rewritten.
    ///
    /// # Errors
    /// One is running already, or the level keeps no redundancy.
    pub fn start_scrub(&self, repair: bool) -> Result<(), NodeError> {
        self.command(Command::Scrub { repair })
    }

    /// Ends a running scrub.
    ///
    /// # Errors
    /// None is running.
    pub fn stop_scrub(&self) -> Result<(), NodeError> {
        self.command(Command::StopScrub)
    }

    /// Share of long work while clients are busy, 1 to 100 per cent.
    ///
    /// # Errors
    /// Out of range.
    pub fn set_rebuild_priority(&self, percent: u8) -> Result<(), NodeError> {
        if !(1..=100).contains(&percent) {
            return Err(NodeError::new(
                ErrorKind::Invalid,
                format!("rebuild priority {percent}: must be 1 to 100 per cent"),
            ));
        }
        self.command(Command::Priority(percent))
    }

    /// Changes what keeps parity true over a crash. Returns when it holds.
    ///
    /// # Errors
    /// A level without redundancy; the log while a resync has not ended.
    pub fn set_policy(&self, policy: Consistency) -> Result<(), NodeError> {
        self.command(Command::Policy(policy))
    }

    /// Blocks that read as errors, and the volume's bytes that lie there.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`].
    pub fn torn(&self) -> Result<Vec<TornBlocks>, NodeError> {
        let (list, geometry, volume_bytes) = self.look(|view| {
            let engine = view.engine;
            let volume_bytes = engine.superblock().volume_size_bytes;
            (
                engine.torn().clone(),
                engine.geometry().clone(),
                volume_bytes,
            )
        })?;
        Ok(torn::blocks(&list, &geometry, volume_bytes))
    }

    /// Serves suspect blocks as they are from now on: what parity says of them counts.
    ///
    /// # Errors
    /// The array is read-only or stopped, or the list cannot be written.
    pub fn accept_suspect(&self) -> Result<(), NodeError> {
        self.command(Command::AcceptSuspect)
    }

    /// Injects faults into a member drive opened as `faulty:`; `None` heals it.
    ///
    /// # Errors
    /// The drive was not opened as `faulty:`.
    pub fn inject(&self, member: u16, fault: Option<FaultPlan>) -> Result<(), NodeError> {
        let done =
            self.ask(|reply| Message::Faults(self.0.slot, MemberIndex(member), fault, reply))?;
        if done {
            return Ok(());
        }
        Err(NodeError::new(
            ErrorKind::Refused,
            format!(
                "member {member}: faults can only be injected into a live drive that was given as faulty:PATH"
            ),
        ))
    }

    /// Stops cleanly: drains, makes everything durable, marks clean. Later requests get `Stopped`.
    ///
    /// # Errors
    /// Stopped already; or metadata could not be written (it is stopped all the same).
    pub fn stop(&self) -> Result<(), NodeError> {
        // The other cores first: what is under way there may still have to ask the array.
        for (mailbox, front) in &self.0.cores {
            if *front != self.0.slot || !Arc::ptr_eq(mailbox, &self.0.mailbox) {
                let left = ask(mailbox, |reply: Box<dyn FnOnce(()) + Send>| {
                    Message::Forget(*front, Box::new(move || reply(())))
                });
                if let Err(error) = left {
                    tracing::warn!(array = self.0.info.name, "a core does not leave: {error}");
                }
            }
        }
        let result = self.command(Command::Stop);
        if result
            .as_ref()
            .is_err_and(|error| error.kind == ErrorKind::Stopped)
        {
            return result;
        }
        self.ask(|reply: Box<dyn FnOnce(()) + Send>| {
            Message::Forget(self.0.slot, Box::new(move || reply(())))
        })?;
        self.0.stopped.store(true, Ordering::Release);
        result
    }

    /// Stops and erases the metadata on every member: data is gone.
    ///
    /// # Errors
    /// As [`Array::stop`]; drives that cannot be written, by path.
    pub fn destroy(&self) -> Result<(), NodeError> {
        let drives = self.ask(|reply| {
            let look = move |view: Option<crate::core::View<'_>>| {
                reply(view.map(|view| {
                    view.drives
                        .iter()
                        .flatten()
                        .map(|info| info.spec.clone())
                        .collect::<Vec<_>>()
                }));
            };
            Message::Look(self.0.slot, Box::new(look))
        })?;
        let drives = drives.ok_or_else(NodeError::stopped)?;
        self.stop()?;
        let mut failed = Vec::new();
        for spec in drives {
            let erased = drive::blocking(&spec, false)
                .map_err(|error| error.to_string())
                .and_then(|open| {
                    probe::erase(&open).map_err(|error| format!("{}: {error}", spec.0))
                });
            failed.extend(erased.err());
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(NodeError::new(
            ErrorKind::Drive,
            format!("destroyed, but metadata is still on: {}", failed.join("; ")),
        ))
    }
}

impl BlockDevice<Buffer> for Array {
    fn info(&self) -> BlockInfo {
        self.0.info.clone()
    }

    fn submit(&self, request: BlockRequest<Buffer>) {
        if self.0.stopped.load(Ordering::Acquire) {
            return (request.done)(Err(BlockError::Stopped), request.buffer);
        }
        let (mailbox, slot) = match request.operation {
            Operation::Read => {
                let home = HOME.with(|home| home % self.0.cores.len());
                let (mailbox, slot) = &self.0.cores[home];
                (mailbox, *slot)
            }
            _ => (&self.0.mailbox, self.0.slot),
        };
        mailbox.send(Message::Block(slot, request));
    }
}
