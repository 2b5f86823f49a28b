//! The daemon's mind: which arrays there are, under which names, and what serves them.
//!
//! The manager owns no I/O of its own: arrays are the [`Backend`]'s, servers the [`Servers`]',
//! memory across restarts is the [`Store`]'s. Every method may block and is called off the
//! asynchronous threads. Commands that change the set of arrays or exports come one at a time
//! (`commands`); looking never waits for them, because `inner` is never held over a node call.
//! A name belongs to one array of this host, running or not.

mod arrays;
mod drives;
mod exports;
mod lifecycle;
mod members;
mod scan;
mod settings;

use crate::daemon::backend::{ArrayHandle, Backend};
use crate::daemon::convert::{self, error};
use crate::daemon::exports::{Servers, Serving};
use crate::daemon::state::{KnownArray, KnownDrive, KnownExport, State, Store};
use crate::drives::{key, unwrapped};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use strake_api::{self as api, ErrorKind};
use strake_engine::format::superblock::Consistency;
use strake_node::{ArrayStatus, MemberState};
use uuid::Uuid;

type Result<T> = std::result::Result<T, api::Error>;

/// What the daemon was started with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Folder of the state file.
    pub state_dir: PathBuf,
    /// Folder of export sockets and of the FUSE mount.
    pub run_dir: PathBuf,
    /// Reactors.
    pub cores: usize,
    /// Memory for stripe buffers, in bytes.
    pub memory_bytes: usize,
    /// Parity kernel chosen for this CPU.
    pub kernel: String,
    /// When the process began.
    pub began: Instant,
}

/// See the module.
pub struct Manager {
    config: Config,
    backend: Arc<dyn Backend>,
    servers: Arc<dyn Servers>,
    commands: Mutex<()>,
    inner: Mutex<Inner>,
}

struct Inner {
    store: Store,
    state: State,
    live: HashMap<Uuid, Live>,
    starts: HashMap<Uuid, LastStart>,
    serving: HashMap<String, Arc<dyn Serving>>,
    failed_exports: HashMap<String, String>,
    shutting_down: bool,
}

/// When a running array was brought up, and how long it took until it was protected.
struct LastStart {
    began: Instant,
    /// From then until the engine had the array.
    up_after: Duration,
    /// It was seen waiting for a resync.
    resyncs: bool,
    protected_after: Option<Duration>,
}

/// What a known array is doing; an array that is not in the map is stopped.
#[derive(Clone)]
enum Live {
    Running(Arc<dyn ArrayHandle>),
    Starting,
    Offline(String),
}

impl Inner {
    /// How long it took, from its beginning, until an array was protected, if it is.
    fn protected_after(&mut self, status: &ArrayStatus) -> Option<Duration> {
        let start = self.starts.get_mut(&status.uuid)?;
        if status.policy == Consistency::None {
            return None;
        } else if start.protected_after.is_some() {
            return start.protected_after;
        }
        let [.., needs_resync] = status.regions;
        start.resyncs |= needs_resync > 0;
        if status.starting || needs_resync > 0 {
            return None;
        }
        let replay = Duration::from_nanos(status.log.replay_ns);
        start.protected_after = Some(match start.resyncs {
            true => start.began.elapsed(), // as far as somebody looks: every few seconds
            false => start.up_after + replay,
        });
        start.protected_after
    }

    /// Changes the state and writes it. The change stays in memory even when the write fails,
    /// because it tells what is so; the next write takes it along.
    fn update<T>(&mut self, change: impl FnOnce(&mut State) -> T) -> Result<T> {
        let before = self.state.clone();
        let value = change(&mut self.state);
        if self.state != before {
            self.store.save(&self.state).map_err(|source| {
                let text = format!("{source}. What was asked for is done, but a restart of the daemon would not remember it: make room or repair the folder, then repeat the command");
                error(ErrorKind::Internal, text)
            })?;
        }
        Ok(value)
    }
}

impl Manager {
    /// Takes over a node and the state of this host; starts nothing yet.
    pub fn new(
        config: Config,
        store: Store,
        state: State,
        backend: Arc<dyn Backend>,
        servers: Arc<dyn Servers>,
    ) -> Manager {
        Manager {
            config,
            backend,
            servers,
            commands: Mutex::new(()),
            inner: Mutex::new(Inner {
                store,
                state,
                live: HashMap::new(),
                starts: HashMap::new(),
                serving: HashMap::new(),
                failed_exports: HashMap::new(),
                shutting_down: false,
            }),
        }
    }

    /// The daemon itself.
    pub fn status(&self) -> api::DaemonStatus {
        api::DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            host_id: self.inner().state.host_id,
            state_dir: self.config.state_dir.to_string_lossy().into_owned(),
            run_dir: self.config.run_dir.to_string_lossy().into_owned(),
            cores: self.config.cores,
            memory_bytes: self.config.memory_bytes as u64,
            kernel: self.config.kernel.clone(),
            uptime_seconds: self.config.began.elapsed().as_secs(),
        }
    }

    /// Every known array, by name.
    pub fn list_arrays(&self) -> api::ArrayList {
        let mut known = self.inner().state.arrays.clone();
        known.sort_by(|a, b| a.name.cmp(&b.name));
        let arrays = known
            .iter()
            .map(|array| convert::summary(&self.detail_of(array)))
            .collect();
        api::ArrayList { arrays }
    }

    /// Everything about one array, by name or UUID.
    pub fn show_array(&self, array: &str) -> Result<api::ArrayDetail> {
        Ok(self.detail_of(&self.resolve(array)?))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("a command panicked")
    }

    /// Waits for the turn of a command that changes the set of arrays or exports.
    fn command(&self) -> Result<MutexGuard<'_, ()>> {
        let turn = self.commands.lock().expect("a command panicked");
        if self.inner().shutting_down {
            return Err(error(
                ErrorKind::Stopped,
                "the daemon is shutting down: start it again and repeat",
            ));
        }
        Ok(turn)
    }

    /// The known array of that name or UUID.
    fn resolve(&self, array: &str) -> Result<KnownArray> {
        let inner = self.inner();
        let by_name = |known: &&KnownArray| known.name == array;
        if let Some(known) = inner.state.arrays.iter().find(by_name) {
            return Ok(known.clone());
        }
        let uuid = Uuid::parse_str(array).ok();
        uuid.and_then(|uuid| inner.state.array(uuid))
            .cloned()
            .ok_or_else(|| {
                let text = format!("no array \"{array}\" on this host: `strake array list` shows those there are, `strake array import` those on drives");
                error(ErrorKind::NotFound, text)
            })
    }

    fn live(&self, uuid: Uuid) -> Option<Live> {
        self.inner().live.get(&uuid).cloned()
    }

    /// The handle of an array that must be running.
    fn running(&self, known: &KnownArray) -> Result<Arc<dyn ArrayHandle>> {
        let name = &known.name;
        let text = match self.live(known.uuid) {
            Some(Live::Running(handle)) => return Ok(handle),
            Some(Live::Starting) => format!("array {name} is being started: try again shortly"),
            Some(Live::Offline(reason)) => format!(
                "array {name} is offline ({reason}): bring it up with `strake array start {name}`"
            ),
            None => {
                format!("array {name} is stopped: start it with `strake array start {name}`")
            }
        };
        Err(error(ErrorKind::Stopped, text))
    }

    fn detail_of(&self, known: &KnownArray) -> api::ArrayDetail {
        let exports = self.exports_of(known);
        match self.live(known.uuid) {
            Some(Live::Running(handle)) => match handle.status() {
                Ok(status) => {
                    let after = self.inner().protected_after(&status);
                    convert::running(known, &status, after, exports)
                }
                Err(cause) => {
                    let reason = Some(cause.to_string());
                    convert::resting(known, api::ArrayState::Offline, reason, exports)
                }
            },
            Some(Live::Starting) => {
                convert::resting(known, api::ArrayState::Starting, None, exports)
            }
            Some(Live::Offline(reason)) => {
                convert::resting(known, api::ArrayState::Offline, Some(reason), exports)
            }
            None => convert::resting(known, api::ArrayState::Stopped, None, exports),
        }
    }

    /// The detail of an array as a command's answer.
    fn outcome(&self, uuid: Uuid, changed: bool, message: String) -> Result<api::ArrayOutcome> {
        let array = self.show_array(&uuid.to_string())?;
        Ok(api::ArrayOutcome {
            changed,
            message,
            array,
        })
    }

    /// Takes over into the state file what may have changed in a running array: generation, name,
    /// drives. `specs`: drive texts that a command has just used. Cheap when nothing changed.
    fn refresh(&self, uuid: Uuid, specs: &[String]) -> Result<()> {
        let Some(Live::Running(handle)) = self.live(uuid) else {
            return Ok(());
        };
        // An array that is just being stopped has nothing to tell; its command records it.
        let Ok(status) = handle.status() else {
            return Ok(());
        };
        let mut inner = self.inner();
        inner.protected_after(&status);
        inner.update(|state| {
            if let Some(known) = state.array_mut(uuid) {
                record(known, &status, specs);
            }
        })
    }
}

/// Takes over a status into what is known.
fn record(known: &mut KnownArray, status: &ArrayStatus, specs: &[String]) {
    let before: Vec<KnownDrive> = std::mem::take(&mut known.drives);
    known.name = status.name.clone();
    known.level = status.level.clone();
    known.generation = known.generation.max(status.generation);
    known.drives = status
        .members
        .iter()
        .map(|member| {
            let old = before.iter().find(|drive| drive.member == member.index);
            let old_spec = old.and_then(|drive| drive.spec.clone());
            let spec = match &member.path {
                Some(path) => {
                    let known_texts = before.iter().filter_map(|drive| drive.spec.clone());
                    Some(text_of(path, specs.iter().cloned().chain(known_texts)))
                }
                None if member.state == MemberState::Removed => None,
                None => old_spec,
            };
            let old_serial = old.map(|drive| drive.serial.clone()).unwrap_or_default();
            KnownDrive {
                member: member.index,
                spec,
                serial: match member.serial.is_empty() {
                    true => old_serial,
                    false => member.serial.clone(),
                },
            }
        })
        .collect();
}

/// The text by which a drive was named (which may carry a wrapper), given its path.
fn text_of(path: &str, texts: impl Iterator<Item = String>) -> String {
    if unwrapped(path) != path {
        return path.to_owned();
    }
    let wanted = key(path);
    let mut texts = texts;
    texts
        .find(|text| key(text) == wanted)
        .unwrap_or_else(|| path.to_owned())
}

/// What of an export is needed to describe it, taken under the lock.
struct ExportView {
    known: KnownExport,
    serving: Option<Arc<dyn Serving>>,
    failure: Option<String>,
}

#[cfg(test)]
pub mod tests;
