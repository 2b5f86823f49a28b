//! Opening a drive so that nobody else uses it meanwhile.
//!
//! A block device opened for writing is claimed from the kernel (O_EXCL) and locked, a file is
//! locked (an open-file-description lock, which other Strake daemons, QEMU and the like respect).
//! Opened for reading only, both are locked with other readers.
//!
//! One process has one claim on a drive, and every port of it uses that claim's descriptor: each
//! core submits to every drive. The claim ends when the last of them closes.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::cache::{self, Found, WhenDurable};
use super::memory::{self, Memory};
use super::paced::{self, Paced};
use super::probe::{self, Node, OpenedNode};
use super::recorded::{self, Recorder};
use super::{DriveInfo, DriveKind, DriveSpec, OpenError, usage};
use crate::faulty;
use crate::sys::{self, Lock};

/// An open drive as ports and [`super::BlockingDrive`] use it.
pub(crate) struct OpenDrive {
    pub(crate) info: DriveInfo,
    pub(crate) medium: Medium,
    pub(crate) when_durable: WhenDurable,
    /// Only of a `faulty:` drive.
    pub(crate) faults: Option<faulty::Shared>,
    /// Only of a `recorded:` drive opened for writing.
    pub(crate) recorder: Option<Recorder>,
}

/// Where a drive's content is.
pub(crate) enum Medium {
    File(Arc<Claim>),
    Memory(Arc<Memory>),
    Paced(Arc<Paced>),
    Null,
}

/// This process's hold on a block device or file.
pub(crate) struct Claim {
    file: File,
    read_only: bool,
    info: DriveInfo,
    cache: Found,
}

/// Live claims of this process.
static CLAIMS: Mutex<Vec<Weak<Claim>>> = Mutex::new(Vec::new());

/// Closing is not always immediate in the kernel (a ring may hold the file for a moment longer),
/// and udev opens devices to look at them: busy is believed after this many tries.
const TRIES: u32 = 4;
const TRY_PAUSE: Duration = Duration::from_millis(10);

/// Opens a drive, claiming it for this process.
pub(crate) fn open(spec: &DriveSpec, read_only: bool) -> Result<OpenDrive, OpenError> {
    let (kind, told) = spec.parts()?;
    let (mut drive, found) = open_kind(spec, &kind, read_only)?;
    drive.when_durable = cache::settle(told, found, &mut drive.info);
    Ok(drive)
}

/// The drive, and what is known of its cache without being told.
fn open_kind(
    spec: &DriveSpec,
    kind: &DriveKind,
    read_only: bool,
) -> Result<(OpenDrive, Found), OpenError> {
    let (info, medium, found) = match kind {
        DriveKind::Faulty(inner) => {
            let (mut drive, found) = open_kind(spec, inner, read_only)?;
            drive.info = probe::faulty_info(spec, drive.info);
            drive.faults = Some(faulty::of_opened(spec, inner));
            return Ok((drive, found));
        }
        DriveKind::Recorded { log, name, inner } => {
            let (mut drive, found) = open_kind(spec, inner, read_only)?;
            drive.info = probe::recorded_info(log, drive.info);
            if !read_only {
                drive.recorder = Some(recorded::open(log, name)?);
            }
            return Ok((drive, found));
        }
        DriveKind::Path(path) => {
            let claim = Claim::acquire(spec, &Node::find(path)?, read_only)?;
            let mut info = claim.info.clone();
            info.spec = spec.clone();
            let found = claim.cache;
            (info, Medium::File(claim), found)
        }
        DriveKind::Memory { size_bytes, label } => {
            let label = label.as_deref();
            let memory = memory::open(spec, *size_bytes, label)?;
            let info = probe::process_info(spec, "memory", *size_bytes, label);
            (info, Medium::Memory(memory), Found::MEMORY)
        }
        DriveKind::Paced {
            model,
            size_bytes,
            label,
        } => {
            let label = label.as_deref();
            let paced = paced::open(spec, *model, *size_bytes, label)?;
            let info = probe::paced_info(spec, *model, *size_bytes, label);
            (info, Medium::Paced(paced), Found::MEMORY)
        }
        DriveKind::Null { size_bytes, label } => {
            let info = probe::process_info(spec, "null", *size_bytes, label.as_deref());
            (info, Medium::Null, Found::MEMORY)
        }
    };
    let drive = OpenDrive {
        info,
        medium,
        when_durable: WhenDurable::OnRequest,
        faults: None,
        recorder: None,
    };
    Ok((drive, found))
}

impl Claim {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn acquire(spec: &DriveSpec, node: &Node, read_only: bool) -> Result<Arc<Claim>, OpenError> {
        let mut claims = CLAIMS.lock().expect("opening a drive does not panic");
        claims.retain(|claim| claim.strong_count() > 0);
        let shared = claims
            .iter()
            .filter_map(Weak::upgrade)
            .find(|claim| claim.info.identity == node.identity && (read_only || !claim.read_only));
        if let Some(claim) = shared {
            return Ok(claim);
        }
        if !read_only && node.device.is_none() {
            // A file has no kernel claim that would refuse these.
            if let Some(by) = usage::user_of(node) {
                return Err(busy(node, by));
            }
        }
        let opened = open_locked(node, read_only)?;
        let (info, cache) = node.info(spec, &opened)?;
        let claim = Arc::new(Claim {
            file: opened.file,
            read_only,
            info,
            cache,
        });
        claims.push(Arc::downgrade(&claim));
        Ok(claim)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Closing would do, but a ring may keep the file open for a moment after us.
        if let Err(error) = sys::lock_file(self.file.as_fd(), Lock::None) {
            tracing::warn!(path = self.info.path, %error, "cannot unlock");
        }
    }
}

fn open_locked(node: &Node, read_only: bool) -> Result<OpenedNode, OpenError> {
    let mut tries = 1;
    loop {
        match open_locked_once(node, read_only) {
            Err(OpenError::Busy { .. }) if tries < TRIES => std::thread::sleep(TRY_PAUSE),
            result => return result,
        }
        tries += 1;
    }
}

fn open_locked_once(node: &Node, read_only: bool) -> Result<OpenedNode, OpenError> {
    let opened = node.open(read_only, !read_only)?;
    let lock = if read_only {
        Lock::Shared
    } else {
        Lock::Exclusive
    };
    match sys::lock_file(opened.file.as_fd(), lock) {
        Ok(()) => Ok(opened),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(busy(node, locked())),
        Err(error) => Err(probe::system(&node.path, "lock", &error)),
    }
}

fn locked() -> String {
    "another process has locked it; stop the other Strake daemon or virtual machine (lslocks, lsof)"
        .into()
}

fn busy(node: &Node, by: String) -> OpenError {
    OpenError::Busy {
        path: node.path.display().to_string(),
        by,
    }
}
