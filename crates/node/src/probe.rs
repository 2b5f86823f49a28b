//! Looks at drives without serving them: what lies on them, who uses them.

use std::path::Path;
use std::process::Command;

use strake_engine::format::areas::{SUPERBLOCK_A_OFFSET, SUPERBLOCK_BYTES, superblock_b_offset};
use strake_engine::format::{FormatError, Found, Superblock, superblock::RunState};
use strake_reactor::drive::{self, BlockingDrive, DriveInfo, DriveKind, DriveSpec, OpenError};
use uuid::Uuid;

use crate::handle::{ErrorKind, NodeError};

/// What one drive holds.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The drive.
    pub info: DriveInfo,
    /// The newest valid superblock's summary, if the drive is a member of an array.
    pub member: Option<MemberOf>,
    /// Per superblock copy (A, B): "valid", "absent", or what is wrong with it.
    pub copies: [String; 2],
    /// Somebody else's data: "ext4 file system", "GPT partition table", ... (blkid's words).
    pub foreign: Option<String>,
    /// In use right now: mounted, swap, claimed by the kernel or by another process.
    pub in_use: Option<String>,
}

/// A member's own view of its array.
#[derive(Debug, Clone)]
pub struct MemberOf {
    /// Array.
    pub array_uuid: Uuid,
    /// Array's name.
    pub array_name: String,
    /// This member.
    pub member_uuid: Uuid,
    /// Its place.
    pub member: u16,
    /// Level as text: "raid6", "raid7.3", "n+m".
    pub level: String,
    /// Members of the array.
    pub members: u16,
    /// Generation of the superblock.
    pub generation: u64,
    /// Epoch of the superblock.
    pub epoch: u64,
    /// Stopped cleanly.
    pub clean: bool,
    /// Every field of the superblock for people: (name, value), in on-disk order.
    pub fields: Vec<(String, String)>,
}

impl MemberOf {
    fn of(superblock: &Superblock) -> MemberOf {
        MemberOf {
            array_uuid: superblock.array_uuid,
            array_name: superblock.name.clone(),
            member_uuid: superblock.own().uuid,
            member: superblock.member_index,
            level: superblock.level.name().to_owned(),
            members: superblock.members.len() as u16,
            generation: superblock.generation,
            epoch: superblock.epoch,
            clean: superblock.state == RunState::Clean,
            fields: superblock.fields(),
        }
    }
}

/// Reads a drive's metadata without a daemon; changes nothing.
///
/// A drive that is in use (by a running daemon, say) is read all the same where the operating
/// system lets us: its members' superblocks are written whole and checksummed.
///
/// # Errors
/// Those of opening the drive for reading.
pub fn probe(spec: &DriveSpec) -> Result<Probe, OpenError> {
    let info = drive::describe(spec)?;
    let in_use = drive::in_use(spec)?;
    let (copies, in_use) = match drive::blocking(spec, true) {
        Ok(open) => (read_copies(&open), in_use),
        Err(OpenError::Busy { by, .. }) => (read_copies_shared(spec, &info)?, in_use.or(Some(by))),
        Err(error) => return Err(error),
    };
    let newest = copies
        .iter()
        .flatten()
        .max_by_key(|s| (s.generation, s.epoch));
    let member = newest.map(MemberOf::of);
    let foreign = if member.is_some() {
        None
    } else {
        foreign_signature(spec)
    };
    Ok(Probe {
        member,
        copies: copies.map(|copy| match copy {
            Ok(_) => "valid".to_owned(),
            Err(error) if error.is_absent() => "absent".to_owned(),
            Err(error) => error.to_string(),
        }),
        foreign,
        in_use,
        info,
    })
}

/// Both superblock copies of an open drive, as decoded.
pub(crate) fn read_copies(open: &BlockingDrive) -> [Result<Superblock, FormatError>; 2] {
    let read = |offset: u64, into: &mut [u8]| open.read_at(offset, into).map_err(|e| e.to_string());
    decode_copies(open.info().size_bytes, &read)
}

/// The same past another process's claim: plain reads of the path.
fn read_copies_shared(
    spec: &DriveSpec,
    info: &DriveInfo,
) -> Result<[Result<Superblock, FormatError>; 2], OpenError> {
    use std::os::unix::fs::FileExt;
    let path = spec_path(spec).ok_or_else(|| OpenError::Busy {
        path: spec.0.clone(),
        by: "this process".into(),
    })?;
    let file = std::fs::File::open(&path).map_err(|error| OpenError::System {
        path: path.clone(),
        action: "open",
        reason: error.to_string(),
    })?;
    let read =
        |offset: u64, into: &mut [u8]| file.read_exact_at(into, offset).map_err(|e| e.to_string());
    Ok(decode_copies(info.size_bytes, &read))
}

type ReadAt<'a> = &'a dyn Fn(u64, &mut [u8]) -> Result<(), String>;

fn decode_copies(size_bytes: u64, read: ReadAt) -> [Result<Superblock, FormatError>; 2] {
    let place = |offset: Option<u64>| -> Result<Superblock, FormatError> {
        let offset = offset.ok_or(FormatError::NotStrake {
            structure: "superblock",
            offset: 0,
        })?;
        Superblock::read(offset, read)
    };
    let last = superblock_b_offset(size_bytes);
    [place(last.map(|_| SUPERBLOCK_A_OFFSET)), place(last)]
}

/// A drive for [`strake_engine::format::assemble`], and what it is.
pub(crate) fn find(index: usize, spec: &DriveSpec) -> Result<(Found, DriveInfo), OpenError> {
    let open = drive::blocking(spec, true)?;
    let info = open.info().clone();
    let found = Found {
        drive: index,
        path: info.path.clone(),
        serial: info.serial.clone(),
        size_bytes: info.size_bytes,
        copies: read_copies(&open),
    };
    Ok((found, info))
}

/// Path of a drive that has one, through its wrappers.
pub(crate) fn spec_path(spec: &DriveSpec) -> Option<String> {
    let mut kind = spec.parse().ok()?;
    while let DriveKind::Faulty(inner) | DriveKind::Recorded { inner, .. } = kind {
        kind = *inner;
    }
    match kind {
        DriveKind::Path(path) => Some(path.display().to_string()),
        _ => None,
    }
}

/// What blkid(8) finds: somebody's file system, partition table, RAID or LVM signature.
pub(crate) fn foreign_signature(spec: &DriveSpec) -> Option<String> {
    let path = spec_path(spec)?;
    let output = Command::new("blkid")
        .args(["-p", "-o", "export", &path])
        .output();
    let Ok(output) = output else {
        return Some("unknown content (blkid is not installed: package util-linux)".into());
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
    };
    if let Some(kind) = value("TYPE") {
        return Some(format!("{kind} signature"));
    }
    if let Some(table) = value("PTTYPE") {
        return Some(format!("{table} partition table"));
    }
    // Exit status 8: several signatures that contradict each other.
    (output.status.code() == Some(8)).then(|| "several signatures of other systems".to_owned())
}

/// Block devices of this host that could be members: whole disks and what stands for disks, but
/// not what has no medium.
pub fn candidates() -> Vec<DriveSpec> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    let mut drives: Vec<DriveSpec> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let size: u64 = std::fs::read_to_string(entry.path().join("size"))
                .ok()?
                .trim()
                .parse()
                .ok()?;
            let skip = ["ram", "zram", "sr", "fd", "nbd", "ublkb"]
                .iter()
                .any(|p| name.starts_with(p));
            let device = Path::new("/dev").join(name.replace('!', "/"));
            // A loop device over a file of our own FUSE mount would look into an array.
            let ours = std::fs::read_to_string(entry.path().join("loop/backing_file"))
                .is_ok_and(|file| is_fuse_volume(file.trim()));
            (size > 0 && !skip && !ours && device.exists())
                .then(|| DriveSpec(device.display().to_string()))
        })
        .collect();
    drives.sort_by(|a, b| a.0.cmp(&b.0));
    drives
}

/// Whether a file lies on a FUSE mount: reading it could wait for ourselves.
fn is_fuse_volume(file: &str) -> bool {
    let Ok(mounts) = std::fs::read_to_string("/proc/self/mounts") else {
        return false;
    };
    mounts.lines().any(|line| {
        let mut words = line.split(' ');
        let (_, at, kind) = (
            words.next(),
            words.next().unwrap_or(""),
            words.next().unwrap_or(""),
        );
        kind.starts_with("fuse") && Path::new(file).starts_with(at)
    })
}

/// Erases Strake's metadata on a drive that no array uses.
///
/// # Errors
/// Refused without `force` (the array it belonged to can no longer be imported with it), when the
/// drive is in use, or holds nothing of Strake's; drive errors.
pub fn clean(spec: &DriveSpec, force: bool) -> Result<(), NodeError> {
    let open = drive::blocking(spec, false).map_err(NodeError::drive)?;
    let info = open.info().clone();
    let copies = read_copies(&open);
    let member = copies
        .iter()
        .flatten()
        .max_by_key(|s| s.generation)
        .map(MemberOf::of);
    if copies
        .iter()
        .all(|copy| copy.as_ref().is_err_and(FormatError::is_absent))
    {
        return Err(NodeError::new(
            ErrorKind::Conflict,
            format!("{}: holds no Strake metadata: nothing to clean", info.path),
        ));
    }
    if !force {
        let of = member.map_or("an array (damaged metadata)".to_owned(), |m| {
            format!(
                "array {} (member {}, {})",
                m.array_name, m.member, m.array_uuid
            )
        });
        return Err(NodeError::new(
            ErrorKind::Refused,
            format!(
                "{}: belongs to {of}; cleaning takes it out of that array for good: add --force",
                info.path
            ),
        ));
    }
    erase(&open)
        .map_err(|error| NodeError::new(ErrorKind::Drive, format!("{}: {error}", info.path)))
}

/// Zeroes both superblock copies, durably.
pub(crate) fn erase(open: &BlockingDrive) -> std::io::Result<()> {
    let zeroes = vec![0; SUPERBLOCK_BYTES];
    if let Some(last) = superblock_b_offset(open.info().size_bytes) {
        open.write_at(SUPERBLOCK_A_OFFSET, &zeroes)?;
        open.write_at(last, &zeroes)?;
    }
    open.flush()
}
