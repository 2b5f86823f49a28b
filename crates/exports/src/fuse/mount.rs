//! The mount: made, filled, emptied and taken away again.
//!
//! Nothing here touches a file under the mount from a thread that serves it. A mount that a
//! killed server left behind ("transport endpoint is not connected") is cleared away first.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, INodeNo, MountOption, Notifier, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::FuseError;
use super::filesystem::{Shared, VolumeFilesystem};
use super::table::ROOT_INO;
use crate::Device;
use crate::buffers::BufferCache;
use crate::volume::Volume;

/// `f_type` of a FUSE file system: `FUSE_SUPER_MAGIC` of `linux/magic.h`.
const FUSE_MAGIC: u64 = 0x6573_5546;
/// Free buffers that a mount keeps for its next requests, bytes.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// How long a removal waits for the kernel to say that a closed file is closed.
const RELEASE_PATIENCE: Duration = Duration::from_millis(500);

/// How to mount.
#[derive(Debug, Clone)]
pub struct FuseOptions {
    /// Threads that take requests from the kernel, at least 1. They copy written data; the
    /// device's own threads send the replies.
    pub threads: usize,
    /// Other users than the one who mounts may use the files (their permissions still hold).
    pub allow_other: bool,
}

impl Default for FuseOptions {
    /// Four threads, nobody else.
    fn default() -> FuseOptions {
        FuseOptions {
            threads: 4,
            allow_other: false,
        }
    }
}

/// A mounted directory of volumes. When dropped it is unmounted; if it is still in use then, it
/// is detached and its users get I/O errors.
pub struct FuseMount {
    directory: PathBuf,
    shared: Arc<Shared>,
    buffers: Arc<BufferCache>,
    notifier: Notifier,
    session: Mutex<Option<BackgroundSession>>,
}

impl FuseMount {
    /// Mounts at `directory`, which is made if it is not there.
    ///
    /// Fails with [`FuseError::Taken`] when another living FUSE file system is there, and with
    /// [`FuseError::Mount`] when the system refuses.
    pub fn mount(directory: &Path, options: FuseOptions) -> Result<FuseMount, FuseError> {
        prepare(directory)?;
        let failed = |source| FuseError::Mount {
            directory: directory.into(),
            source,
        };
        let directory = fs::canonicalize(directory).map_err(failed)?;
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("strake".into()),
            MountOption::Subtype("strake".into()),
            MountOption::DefaultPermissions,
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::NoExec,
            MountOption::NoAtime,
        ];
        config.n_threads = Some(options.threads.max(1));
        config.clone_fd = true;
        if options.allow_other {
            config.acl = SessionACL::All;
        }
        let shared = Arc::new(Shared::new());
        let filesystem = VolumeFilesystem(Arc::clone(&shared));
        let session = Session::new(filesystem, &directory, &config)
            .and_then(Session::spawn)
            .map_err(failed)?;
        tracing::info!(directory = %directory.display(), "FUSE mounted");
        Ok(FuseMount {
            shared,
            buffers: BufferCache::new(KEPT_BYTES_MAX),
            notifier: session.notifier(),
            session: Mutex::new(Some(session)),
            directory,
        })
    }

    /// Where the mount is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Serves `device` as the file `name`. Fails with `BadName` or `Exists`.
    pub fn add(&self, name: &str, device: Device) -> Result<PathBuf, FuseError> {
        let volume = Volume::new(device, Arc::clone(&self.buffers));
        self.shared.table_mut().add(name, volume)?;
        Ok(self.directory.join(name))
    }

    /// Serves the file `name` no more. Fails with `Unknown`, or with `Busy` while it is open.
    pub fn remove(&self, name: &str) -> Result<(), FuseError> {
        let deadline = Instant::now() + RELEASE_PATIENCE;
        let file = loop {
            match self.shared.table_mut().remove(name, &self.directory) {
                // The kernel tells of the last close a moment after close(2) has returned.
                Err(FuseError::Busy { .. }) if Instant::now() < deadline => {}
                other => break other?,
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        // Without it the kernel believes in the name for a second more; harmless.
        if let Err(error) = self
            .notifier
            .inval_entry(INodeNo(ROOT_INO), file.name.as_ref())
        {
            tracing::debug!(name, %error, "FUSE entry not invalidated");
        }
        Ok(())
    }

    /// The path of the file `name`, if it is served.
    pub fn file_path(&self, name: &str) -> Option<PathBuf> {
        let served = self.shared.table().find(name).is_some();
        served.then(|| self.directory.join(name))
    }

    /// How often the file `name` is open (a loop device counts one), if it is served.
    pub fn open_count(&self, name: &str) -> Option<usize> {
        self.shared.table().find(name).map(|file| file.open_count())
    }

    /// Unmounts and waits for the threads that serve. Fails with [`FuseError::MountBusy`] while
    /// anything is in use; then all goes on as before. A second call does nothing.
    pub fn unmount(&self) -> Result<(), FuseError> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if session.is_none() {
            return Ok(());
        }
        match detach(&self.directory, UnmountFlags::empty()) {
            Err(Errno::BUSY) => {
                return Err(FuseError::MountBusy {
                    directory: self.directory.clone(),
                    open: self.open_names(),
                });
            }
            // Not mounted (any more): somebody else unmounted it.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => {
                return Err(FuseError::Unmount {
                    directory: self.directory.clone(),
                    source: error.into(),
                });
            }
        }
        if let Some(session) = session.take() {
            self.join(session);
        }
        Ok(())
    }

    fn open_names(&self) -> Vec<String> {
        let table = self.shared.table();
        let open = table.files().filter(|file| file.open_count() > 0);
        open.map(|file| file.name.clone()).collect()
    }

    fn join(&self, session: BackgroundSession) {
        if let Err(error) = session.join() {
            tracing::warn!(directory = %self.directory.display(), %error, "FUSE ended with");
        }
        tracing::info!(directory = %self.directory.display(), "FUSE unmounted");
    }

    /// Takes the mount out of the tree although it is in use, and cuts its users off.
    fn abandon(&self) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(session) = session.take() else {
            return;
        };
        // Forced: the kernel fails what is under way and all that follows. Without it the session
        // would live until the last user lets go, perhaps for ever.
        match unmount(&self.directory, UnmountFlags::FORCE | UnmountFlags::DETACH) {
            Ok(()) => self.join(session),
            Err(error) => {
                let directory = self.directory.display();
                tracing::warn!(%directory, %error, "FUSE is left to its last users");
                if let Err(error) = detach(&self.directory, UnmountFlags::DETACH) {
                    tracing::warn!(%directory, %error, "FUSE mount not detached");
                }
            }
        }
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            tracing::warn!(%error, "FUSE mount in use is cut off");
            self.abandon();
        }
    }
}

impl fmt::Debug for FuseMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FuseMount")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

/// Makes the directory, clears a dead mount away, and refuses a living one.
fn prepare(directory: &Path) -> Result<(), FuseError> {
    let failed = |source| FuseError::Mount {
        directory: directory.into(),
        source,
    };
    // Several may be stacked; each round takes one away.
    for _ in 0..8 {
        match fs::metadata(directory) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
                tracing::warn!(directory = %directory.display(), "dead FUSE mount cleared away");
                detach(directory, UnmountFlags::DETACH).map_err(|error| failed(error.into()))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return fs::create_dir_all(directory).map_err(failed);
            }
            Err(error) => return Err(failed(error)),
            Ok(found) if !found.is_dir() => {
                return Err(failed(io::ErrorKind::NotADirectory.into()));
            }
            Ok(_) => break,
        }
    }
    let found = rustix::fs::statfs(directory).map_err(|error| failed(error.into()))?;
    if found.f_type as u64 == FUSE_MAGIC {
        return Err(FuseError::Taken {
            directory: directory.into(),
        });
    }
    Ok(())
}

/// Unmounts; without the right to do so by the helper that has it.
fn detach(directory: &Path, flags: UnmountFlags) -> Result<(), Errno> {
    match unmount(directory, flags) {
        Err(Errno::PERM) => {
            let mut helper = Command::new("fusermount3");
            helper.args(["-u", "-q"]);
            if flags.contains(UnmountFlags::DETACH) {
                helper.arg("-z");
            }
            helper.arg("--").arg(directory);
            match helper.stdin(Stdio::null()).status() {
                Ok(status) if status.success() => Ok(()),
                Ok(_) => Err(Errno::BUSY),
                Err(_) => Err(Errno::PERM),
            }
        }
        other => other,
    }
}
