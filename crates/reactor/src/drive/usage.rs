//! Who else uses a block device or file, as far as the kernel tells.

use std::path::{Path, PathBuf};

use super::probe::{Node, partitions, read, sysfs_folder};
use super::{DriveKind, DriveSpec, OpenError};

/// What outside this process uses the drive, with what to do about it: a mount, swap, another
/// driver (md, device mapper), a loop device. `None`: nobody, as far as can be seen; another
/// process's claim shows only when the drive is opened. Fails as [`super::describe`] does.
pub fn in_use(spec: &DriveSpec) -> Result<Option<String>, OpenError> {
    let mut kind = spec.parse()?;
    while let DriveKind::Faulty(inner) | DriveKind::Recorded { inner, .. } = kind {
        kind = *inner;
    }
    match kind {
        DriveKind::Path(path) => Ok(user_of(&Node::find(&path)?)),
        _ => Ok(None),
    }
}

/// The error for a drive that the kernel calls busy.
pub(super) fn busy(node: &Node) -> OpenError {
    let by = user_of(node).unwrap_or_else(|| {
        "another process or a kernel driver has claimed it; find it with lsblk, dmsetup or lsof, \
         or stop the other Strake daemon"
            .into()
    });
    OpenError::Busy {
        path: node.path.display().to_string(),
        by,
    }
}

pub(super) fn user_of(node: &Node) -> Option<String> {
    let mut names = vec![node.path.clone()];
    let mut devices = Vec::from_iter(node.device);
    let mut folders = Vec::from_iter(node.device.map(sysfs_folder));
    if let Some(whole) = folders.first().cloned() {
        for partition in partitions(&whole) {
            names.push(Path::new("/dev").join(&partition));
            let folder = whole.join(&partition);
            devices.extend(read(&folder.join("dev")).and_then(|text| device_number(&text)));
            folders.push(folder);
        }
    }
    let table = |path| std::fs::read_to_string(path).unwrap_or_default();
    mount_in(&table("/proc/self/mountinfo"), &names, &devices)
        .or_else(|| swap_in(&table("/proc/swaps"), &names))
        .or_else(|| folders.iter().find_map(|folder| holder_of(folder)))
        .or_else(|| loop_of(&names))
}

fn device_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// proc_pid_mountinfo(5): field 3 the device number, 5 the mount point, after " - " type and source.
pub(super) fn mount_in(table: &str, names: &[PathBuf], devices: &[(u32, u32)]) -> Option<String> {
    table.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let fields: Vec<_> = left.split(' ').collect();
        let source = unescape(right.split(' ').nth(1)?);
        let same_device = device_number(fields.get(2)?).is_some_and(|d| devices.contains(&d));
        if !same_device && !is_one_of(&source, names) {
            return None;
        }
        let point = unescape(fields.get(4)?);
        Some(format!(
            "mounted at {point}; unmount it with: umount {point}"
        ))
    })
}

pub(super) fn swap_in(table: &str, names: &[PathBuf]) -> Option<String> {
    let mut areas = table
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next());
    let area = areas.find(|area| is_one_of(&unescape(area), names))?;
    Some(format!("swap space; release it with: swapoff {area}"))
}

/// A device mapper volume, md array or bcache that stands on the device.
fn holder_of(folder: &Path) -> Option<String> {
    let mut holders = folder.join("holders").read_dir().ok()?.flatten();
    let holder = holders.next()?.file_name();
    let holder = holder.to_string_lossy();
    let name = read(&Path::new("/sys/block").join(&*holder).join("dm/name"));
    Some(match name {
        Some(name) => format!("part of device mapper volume {name}; remove that first"),
        None => format!("part of /dev/{holder}; stop that first"),
    })
}

fn loop_of(names: &[PathBuf]) -> Option<String> {
    let devices = Path::new("/sys/block").read_dir().ok()?.flatten();
    let found = devices.into_iter().find(|device| {
        let backing = read(&device.path().join("loop/backing_file"));
        backing.is_some_and(|path| is_one_of(&path, names))
    })?;
    let name = found.file_name();
    let name = name.to_string_lossy();
    Some(format!(
        "backs /dev/{name}; detach it with: losetup -d /dev/{name}"
    ))
}

fn is_one_of(path: &str, names: &[PathBuf]) -> bool {
    let path = Path::new(path);
    if !path.is_absolute() {
        return false;
    }
    names.iter().any(|name| name == path)
        || path.canonicalize().is_ok_and(|path| names.contains(&path))
}

/// The tables write blank, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> String {
    let codes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let mut text = text.to_owned();
    for (code, character) in codes {
        text = text.replace(code, character);
    }
    text
}
