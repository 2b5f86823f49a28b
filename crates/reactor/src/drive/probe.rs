//! What the kernel knows of a block device or file.
//!
//! Sources: stat(2), statx(2) (direct I/O alignment), BLKSSZGET, and sysfs as described in the
//! kernel's Documentation/ABI/stable/sysfs-block.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::cache::{self, Found};
use super::pace::PaceModel;
use super::{DriveInfo, DriveKind, DriveSpec, OpenError, usage};
use crate::buffer::Buffer;

/// Looks at a drive without claiming it. Fails with [`OpenError::BadSpec`] for text that names
/// none, and with [`OpenError::System`] when it is absent, not permitted, or no fit drive.
pub fn describe(spec: &DriveSpec) -> Result<DriveInfo, OpenError> {
    let (kind, told) = spec.parts()?;
    let (mut info, found) = describe_kind(spec, &kind)?;
    cache::settle(told, found, &mut info);
    Ok(info)
}

/// The drive, and what is known of its cache without being told.
fn describe_kind(spec: &DriveSpec, kind: &DriveKind) -> Result<(DriveInfo, Found), OpenError> {
    let info = match kind {
        DriveKind::Path(path) => {
            let node = Node::find(path)?;
            let opened = node.open(true, false)?;
            return node.info(spec, &opened);
        }
        DriveKind::Faulty(inner) => {
            let (info, found) = describe_kind(spec, inner)?;
            return Ok((faulty_info(spec, info), found));
        }
        DriveKind::Recorded { log, inner, .. } => {
            let (info, found) = describe_kind(spec, inner)?;
            return Ok((recorded_info(log, info), found));
        }
        DriveKind::Memory { size_bytes, label } => {
            process_info(spec, "memory", *size_bytes, label.as_deref())
        }
        DriveKind::Null { size_bytes, label } => {
            process_info(spec, "null", *size_bytes, label.as_deref())
        }
        DriveKind::Paced {
            model,
            size_bytes,
            label,
        } => paced_info(spec, *model, *size_bytes, label.as_deref()),
    };
    Ok((info, Found::MEMORY))
}

/// A `faulty:` drive is what it wraps, and says so.
pub(super) fn faulty_info(spec: &DriveSpec, inner: DriveInfo) -> DriveInfo {
    let mut info = inner;
    info.spec = spec.clone();
    info.notes.push("fails on request (faulty:)".into());
    info
}

/// A `recorded:` drive is what it wraps, and says so.
pub(super) fn recorded_info(log: &Path, inner: DriveInfo) -> DriveInfo {
    let mut info = inner;
    info.notes
        .push(format!("every change is recorded in {}", log.display()));
    info
}

/// A drive of memory that names its model, and whose pace that is.
pub(super) fn paced_info(
    spec: &DriveSpec,
    model: PaceModel,
    size_bytes: u64,
    label: Option<&str>,
) -> DriveInfo {
    let mut info = process_info(spec, "paced", size_bytes, label);
    info.model = format!("paced {model}");
    info.notes.push(model.describe());
    info
}

/// A memory, null or paced drive. Without a label each opening is a drive of its own, so the identity
/// of each is counted up.
pub(super) fn process_info(
    spec: &DriveSpec,
    model: &str,
    size_bytes: u64,
    label: Option<&str>,
) -> DriveInfo {
    use std::sync::atomic::{AtomicU64, Ordering};
    static UNNAMED: AtomicU64 = AtomicU64::new(1);
    let serial = match label {
        Some(label) => label.to_owned(),
        None => format!("unnamed-{}", UNNAMED.fetch_add(1, Ordering::Relaxed)),
    };
    DriveInfo {
        spec: spec.clone(),
        path: spec.0.clone(),
        size_bytes,
        block_size_bytes: 512,
        identity: format!("{model}:{serial}"),
        serial,
        model: model.to_owned(),
        volatile_cache: false,
        fast_zeroes: true,
        notes: vec!["content is gone when this process ends".into()],
    }
}

/// A block device or regular file in the file system.
pub(super) struct Node {
    /// Canonical.
    pub(super) path: PathBuf,
    /// Device number of a block device.
    pub(super) device: Option<(u32, u32)>,
    pub(super) identity: String,
    file_serial: String,
}

/// A node, opened.
pub(super) struct OpenedNode {
    pub(super) file: File,
    /// Past the page cache.
    direct: bool,
    size_bytes: u64,
    block_size_bytes: u32,
}

impl Node {
    pub(super) fn find(path: &Path) -> Result<Node, OpenError> {
        let failed = |error| system(path, "find", &error);
        let path = path.canonicalize().map_err(failed)?;
        let meta = path.metadata().map_err(failed)?;
        let numbers = |dev| (rustix::fs::major(dev), rustix::fs::minor(dev));
        let file_serial = format!("file-{:x}-{:x}", meta.dev(), meta.ino());
        let (device, identity) = if meta.file_type().is_block_device() {
            let (major, minor) = numbers(meta.rdev());
            (Some((major, minor)), format!("dev-{major}:{minor}"))
        } else if meta.is_file() {
            (None, file_serial.clone())
        } else {
            return Err(OpenError::System {
                path: path.display().to_string(),
                action: "use",
                reason: "neither a block device nor a regular file: name one of these".into(),
            });
        };
        Ok(Node {
            path,
            device,
            identity,
            file_serial,
        })
    }

    /// Opens for direct I/O, or through the page cache where the file system refuses that.
    /// `exclusive`: a block device is claimed from the kernel (O_EXCL), which fails with EBUSY
    /// when it is mounted, in use by another driver, or claimed by another process.
    pub(super) fn open(&self, read_only: bool, exclusive: bool) -> Result<OpenedNode, OpenError> {
        let failed = |error: io::Error| match error.raw_os_error() {
            Some(libc::EBUSY) => usage::busy(self),
            _ => system(&self.path, "open", &error),
        };
        let claim = match self.device {
            Some(_) if exclusive => OFlags::EXCL,
            _ => OFlags::empty(),
        };
        let mut options = OpenOptions::new();
        options.read(true).write(!read_only);
        let mut open = |flags: OFlags| {
            let flags = flags | claim;
            options.custom_flags(flags.bits() as i32).open(&self.path)
        };
        let opened = match open(OFlags::DIRECT) {
            Ok(file) => match direct_block_size(&file, self.device.is_some()) {
                Ok(Some(size)) => Some((file, size)),
                Ok(None) => None,
                Err(error) => return Err(system(&self.path, "read the block size of", &error)),
            },
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => None,
            Err(error) => return Err(failed(error)),
        };
        let direct = opened.is_some();
        let (file, block_size_bytes) = match opened {
            Some(opened) => opened,
            None => (open(OFlags::empty()).map_err(failed)?, 512),
        };
        self.measure(file, direct, block_size_bytes)
    }

    fn measure(
        &self,
        mut file: File,
        direct: bool,
        block_size_bytes: u32,
    ) -> Result<OpenedNode, OpenError> {
        let size = file.seek(SeekFrom::End(0));
        let size = size.map_err(|error| system(&self.path, "read the size of", &error))?;
        let unfit = |reason| OpenError::System {
            path: self.path.display().to_string(),
            action: "use",
            reason,
        };
        if !matches!(block_size_bytes, 512 | 4096) {
            let reason = format!("its block size is {block_size_bytes}; 512 and 4096 are known");
            return Err(unfit(reason));
        }
        let size_bytes = size / u64::from(block_size_bytes) * u64::from(block_size_bytes);
        if size_bytes < 4096 {
            let reason =
                format!("it has {size} bytes: give it a size, for a file with truncate -s");
            return Err(unfit(reason));
        }
        Ok(OpenedNode {
            file,
            direct,
            size_bytes,
            block_size_bytes,
        })
    }

    pub(super) fn info(
        &self,
        spec: &DriveSpec,
        opened: &OpenedNode,
    ) -> Result<(DriveInfo, Found), OpenError> {
        let mut cache = Found::FILE;
        let mut info = DriveInfo {
            spec: spec.clone(),
            path: self.path.display().to_string(),
            size_bytes: opened.size_bytes,
            block_size_bytes: opened.block_size_bytes,
            serial: self.file_serial.clone(),
            model: "file".into(),
            identity: self.identity.clone(),
            volatile_cache: true,
            fast_zeroes: true,
            notes: Vec::new(),
        };
        if let Some(device) = self.device {
            let sysfs = Sysfs::of(device);
            sysfs.complete(&mut info);
            cache = sysfs.cache();
        }
        if !opened.direct {
            info.notes
                .push("O_DIRECT refused by the file system: buffered I/O".into());
            cache = Found::BUFFERED;
        }
        Ok((info, cache))
    }
}

/// The block size for direct I/O; `None` where the file system has no direct I/O for this file.
fn direct_block_size(file: &File, device: bool) -> io::Result<Option<u32>> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    if device {
        return Ok(Some(rustix::fs::ioctl_blksszget(file)?));
    }
    let found = statx(file.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    if found.stx_mask & StatxFlags::DIOALIGN.bits() != 0 {
        return Ok(match found.stx_dio_offset_align {
            0 => None,
            1..=512 => Some(512),
            larger => Some(larger),
        });
    }
    // Older kernels, and file systems like tmpfs that do not say: try. Whether the file reaches
    // that far does not matter, the alignment is checked first.
    let mut buffer = Buffer::heap(1024);
    let tried = rustix::io::pread(file, &mut buffer.as_mut_slice()[512..], 512);
    Ok(Some(if tried.is_ok() { 512 } else { 4096 }))
}

/// A block device's folder in sysfs.
struct Sysfs {
    /// Of the device or partition itself.
    own: PathBuf,
    /// Of the whole device.
    whole: PathBuf,
    device: (u32, u32),
}

impl Sysfs {
    fn of(device: (u32, u32)) -> Sysfs {
        let own = sysfs_folder(device);
        let whole = match (own.join("partition").exists(), own.parent()) {
            (true, Some(parent)) => parent.to_owned(),
            _ => own.clone(),
        };
        Sysfs { own, whole, device }
    }

    fn complete(&self, info: &mut DriveInfo) {
        info.serial = self.serial();
        info.model = self.model();
        info.fast_zeroes = self.number("queue/write_zeroes_max_bytes") > 0;
        if self.number("queue/rotational") == 1 {
            info.notes.push("rotational: seeks are slow".into());
        }
        if self.number("queue/discard_max_bytes") == 0 {
            info.notes.push("cannot discard".into());
        }
        let partitions = partitions(&self.own);
        if !partitions.is_empty() {
            let names = partitions.join(" ");
            info.notes.push(format!("has partitions: {names}"));
        }
    }

    fn cache(&self) -> Found {
        let write_cache = self.text("queue/write_cache");
        let fua = self.number("queue/fua") > 0;
        Found::of_queue(
            write_cache.as_deref(),
            fua,
            self.whole.join("loop").exists(),
        )
    }

    fn serial(&self) -> String {
        let sources = ["serial", "device/serial", "wwid", "device/wwid"];
        let found = sources.iter().find_map(|name| self.text(name));
        let whole = found.or_else(|| {
            let (major, minor) = self.device;
            let backing = self.text("loop/backing_file");
            let path = backing.map(|path| Node::find(Path::new(&path)));
            match path {
                Some(Ok(node)) => Some(format!("loop-{}", node.file_serial)),
                _ => Some(format!("dev-{major}:{minor}")),
            }
        });
        let whole = whole.unwrap_or_default();
        // The serial is the NVMe controller's; its first namespace goes by that alone.
        let space = self.text("nsid").filter(|nsid| nsid != "1");
        let space = space.map_or(String::new(), |nsid| format!("-ns{nsid}"));
        let part = read(&self.own.join("partition"));
        let part = part.map_or(String::new(), |number| format!("-part{number}"));
        format!("{whole}{space}{part}")
    }

    fn model(&self) -> String {
        let found = self.text("device/model").or_else(|| self.text("dm/name"));
        let name = || {
            self.whole
                .file_name()
                .map(|n| n.to_string_lossy().into_owned())
        };
        let kind = |name: String| {
            name.trim_end_matches(|c: char| c.is_ascii_digit())
                .to_owned()
        };
        found.or_else(|| name().map(kind)).unwrap_or_default()
    }

    fn text(&self, name: &str) -> Option<String> {
        read(&self.whole.join(name))
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }
}

/// `/sys/dev/block/MAJOR:MINOR`, resolved to where the device lives.
pub(super) fn sysfs_folder((major, minor): (u32, u32)) -> PathBuf {
    let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    link.canonicalize().unwrap_or(link)
}

/// Names of a device's partitions, sorted.
pub(super) fn partitions(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .filter(|entry| entry.path().join("partition").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A sysfs value, trimmed; `None` when absent or empty.
pub(super) fn read(path: &Path) -> Option<String> {
    let text = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// An [`OpenError::System`] with a hint for the common causes.
pub(super) fn system(path: &Path, action: &'static str, error: &io::Error) -> OpenError {
    let hint = match error.raw_os_error() {
        Some(libc::ENOENT) => ": check the path, and that the drive is plugged in",
        Some(libc::EACCES | libc::EPERM) => ": run as root, or give this user access to it",
        Some(libc::EROFS) => ": open it read-only, or make it writable",
        Some(libc::ENXIO | libc::ENODEV | libc::ENOMEDIUM) => ": the drive is gone; replace it",
        Some(libc::EIO) => ": the drive does not answer; see the kernel's log",
        _ => "",
    };
    OpenError::System {
        path: path.display().to_string(),
        action,
        reason: format!("{error}{hint}"),
    }
}
