//! Mounts and loop devices: made in tests, and always taken down again.

use crate::tools;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Why nothing may be mounted here, if so.
pub fn cannot_mount() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".into());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if let Err(error) = std::fs::File::options().read(true).write(true).open(device) {
            return Some(format!("{device}: {error}"));
        }
    }
    None
}

/// Whether a test must do without mounting. Such a test is skipped only where that was said
/// to be right (`STRAKE_TEST_WITHOUT_FUSE=1`), and it is counted as skipped.
///
/// # Panics
/// Where nothing may be mounted and nobody said that this is right.
pub fn skip_without_mounts(test: &str) -> bool {
    let Some(reason) = cannot_mount() else {
        return false;
    };
    let allowed = std::env::var_os("STRAKE_TEST_WITHOUT_FUSE").is_some_and(|value| value == "1");
    assert!(
        allowed,
        "{test} mounts file systems and cannot here: {reason}. STRAKE_TEST_WITHOUT_FUSE=1 skips it"
    );
    eprintln!("skipped: {test}: {reason}");
    if let Some(file) = std::env::var_os("STRAKE_TEST_SKIP_FILE") {
        let mut file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(file)
            .expect("the list of skipped tests can be written");
        writeln!(file, "{test}: {reason}").expect("the list of skipped tests can be written");
    }
    true
}

/// A mounted file system, unmounted when dropped.
pub struct Mount {
    point: PathBuf,
}

impl Mount {
    /// Mounts `device` on a new folder.
    pub fn new(device: &str, point: PathBuf, kind: &str) -> Mount {
        std::fs::create_dir_all(&point).expect("a mount point");
        let folder = point.to_str().expect("test folders are text");
        tools::run("mount", &["-t", kind, device, folder]);
        Mount { point }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Unmounts; panics when that fails.
    pub fn unmount(self) {
        tools::run("umount", &[&self.point]);
        self.forget();
    }

    /// It is unmounted already.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        tools::attempt("umount", &["-l".as_ref(), self.point.as_os_str()]);
    }
}

/// A loop device over a file, detached when dropped.
pub struct Loop {
    device: String,
}

impl Loop {
    /// Makes a block device of a file.
    pub fn new(file: &str, sector_bytes: u32) -> Loop {
        let sector = sector_bytes.to_string();
        let arguments = ["--find", "--show", "--sector-size", &sector, file];
        let device = tools::run("losetup", &arguments).trim().to_owned();
        Loop { device }
    }

    /// Path of the device.
    pub fn device(&self) -> &str {
        &self.device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        tools::attempt("losetup", &["-d", &self.device]);
    }
}

/// Unmounts file systems below a folder (not FUSE, which serves them) and detaches the loop
/// devices whose files lie there.
pub fn release_below(folder: &Path) {
    for (point, kind) in mounts_below(folder).iter().rev() {
        if !kind.starts_with("fuse") {
            tools::attempt("umount", &["-l".as_ref(), point.as_os_str()]);
        }
    }
    for (device, file) in loops() {
        if file.starts_with(folder) {
            tools::attempt("losetup", &["-d", &device]);
        }
    }
}

/// Unmounts whatever is left below a folder.
pub fn unmount_below(folder: &Path) {
    for (point, _) in mounts_below(folder).iter().rev() {
        tools::attempt("umount", &["-l".as_ref(), point.as_os_str()]);
    }
}

/// Mount points below a folder with the kind of file system, oldest first.
pub fn mounts_below(folder: &Path) -> Vec<(PathBuf, String)> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table
        .lines()
        .filter_map(|line| {
            let point = PathBuf::from(line.split(' ').nth(4)?);
            let kind = line.split_once(" - ")?.1.split(' ').next()?.to_owned();
            point.starts_with(folder).then_some((point, kind))
        })
        .collect()
}

/// Loop devices with the files behind them.
pub fn loops() -> Vec<(String, PathBuf)> {
    if cannot_mount().is_some() {
        return Vec::new();
    }
    let listing = tools::attempt("losetup", &["-l", "-n", "-O", "NAME,BACK-FILE"]);
    String::from_utf8_lossy(&listing.stdout)
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), PathBuf::from(words.next()?)))
        })
        .collect()
}
