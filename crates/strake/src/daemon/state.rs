//! The host-local state: which arrays this host runs, their exports, the host's identity.
//!
//! The drives are the database; this file only remembers what is local. It is written whole and
//! atomically (a temporary file, fsync, rename, fsync of the folder), so a crash leaves the old
//! or the new content. A file that cannot be understood is an error and is never overwritten.
//! One daemon at a time: the folder carries a lock that dies with its process.

use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use strake_api::ExportKind;
use uuid::Uuid;

/// Version of the file's format that this program writes and reads.
const FORMAT: u32 = 1;
const FILE: &str = "state.json";
const TEMPORARY: &str = "state.json.new";
const LOCK: &str = "lock";

/// Everything in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Version of the format.
    pub format: u32,
    /// Identity of this host, written into superblocks as owner.
    pub host_id: Uuid,
    /// Number of the next export; never used twice.
    pub next_export: u64,
    /// Arrays that this host knows.
    pub arrays: Vec<KnownArray>,
    /// Exports, also of arrays that are not running.
    pub exports: Vec<KnownExport>,
}

/// An array that this host knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownArray {
    /// Identity.
    pub uuid: Uuid,
    /// Name, unique in the file.
    pub name: String,
    /// Level as text.
    pub level: String,
    /// Where its members were last.
    pub drives: Vec<KnownDrive>,
    /// Start it when the daemon starts; false after `array stop`.
    pub autostart: bool,
    /// Start it read-only.
    pub read_only: bool,
    /// Highest superblock generation seen.
    pub generation: u64,
}

/// Where a member was last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownDrive {
    /// Place in the array.
    pub member: u16,
    /// Drive text last used; `None` when no drive was ever seen in this place.
    pub spec: Option<String>,
    /// Its serial.
    pub serial: String,
}

/// An export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownExport {
    /// Identity.
    pub id: String,
    /// Array.
    pub array_uuid: Uuid,
    /// How it serves.
    pub kind: ExportKind,
    /// Made by `strake attach`.
    pub for_attach: bool,
}

impl State {
    fn new() -> State {
        State {
            format: FORMAT,
            host_id: Uuid::new_v4(),
            next_export: 1,
            arrays: Vec::new(),
            exports: Vec::new(),
        }
    }

    /// The array of that identity.
    pub fn array(&self, uuid: Uuid) -> Option<&KnownArray> {
        self.arrays.iter().find(|array| array.uuid == uuid)
    }

    /// The array of that identity, to change.
    pub fn array_mut(&mut self, uuid: Uuid) -> Option<&mut KnownArray> {
        self.arrays.iter_mut().find(|array| array.uuid == uuid)
    }

    /// Puts an array in, or over the one of the same identity.
    pub fn put_array(&mut self, array: KnownArray) {
        match self.array_mut(array.uuid) {
            Some(known) => *known = array,
            None => self.arrays.push(array),
        }
    }

    /// Takes an array and its exports out.
    pub fn forget(&mut self, uuid: Uuid) {
        self.arrays.retain(|array| array.uuid != uuid);
        self.exports.retain(|export| export.array_uuid != uuid);
    }

    /// The exports of an array.
    pub fn exports_of(&self, uuid: Uuid) -> impl Iterator<Item = &KnownExport> {
        self.exports
            .iter()
            .filter(move |export| export.array_uuid == uuid)
    }
}

/// Why the state cannot be used. Each text says where and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another daemon runs on this folder.
    #[error(
        "another strake daemon uses the state folder {0}: stop it, or give this one its own --state-dir and --socket"
    )]
    Locked(PathBuf),
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}")]
    System {
        /// "write", "lock", ...
        action: &'static str,
        /// File or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is there and is not understood.
    #[error(
        "the state file {path} cannot be understood ({reason}). Nothing was changed. Move it away to start with an empty state: the arrays are on their drives and `strake array import` finds them"
    )]
    Corrupt {
        /// File.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// The folder of the state file, locked.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// Holds the lock as long as it is open.
    _lock: File,
}

impl Store {
    /// Locks the folder (made if it is not there) and reads the state; a new one if there is no
    /// file. Fails when another daemon holds the lock, or when the file is not understood.
    pub fn open(dir: &Path) -> Result<(Store, State), StateError> {
        let system = |action, path: PathBuf| {
            move |source| StateError::System {
                action,
                path,
                source,
            }
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(dir)
            .map_err(system("make the folder", dir.to_owned()))?;
        let store = Store {
            _lock: lock(dir)?,
            dir: dir.to_owned(),
        };
        let path = store.path();
        let state = match fs::read(&path) {
            Ok(bytes) => parse(&bytes).map_err(|reason| StateError::Corrupt { path, reason })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let state = State::new();
                store.save(&state)?;
                state
            }
            Err(error) => return Err(system("read", path)(error)),
        };
        Ok((store, state))
    }

    /// The state file.
    pub fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// Replaces the file. When this returns, the new content is durable; when it fails, the old
    /// one is still there.
    pub fn save(&self, state: &State) -> Result<(), StateError> {
        self.replace(state).map_err(|source| StateError::System {
            action: "write",
            path: self.path(),
            source,
        })
    }

    fn replace(&self, state: &State) -> io::Result<()> {
        let mut bytes = serde_json::to_vec_pretty(state)?;
        bytes.push(b'\n');
        let temporary = self.dir.join(TEMPORARY);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, self.path())?;
        File::open(&self.dir)?.sync_all()
    }
}

fn lock(dir: &Path) -> Result<File, StateError> {
    let path = dir.join(LOCK);
    let system = |source| StateError::System {
        action: "lock",
        path: path.clone(),
        source,
    };
    let file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(system)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StateError::Locked(dir.to_owned())),
        Err(errno) => Err(system(errno.into())),
    }
}

/// Reads the format's version first, so that a newer file is named as such.
fn parse(bytes: &[u8]) -> Result<State, String> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let Version { format } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if format != FORMAT {
        return Err(format!(
            "it has format {format} and this program knows {FORMAT}"
        ));
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
