//! The real servers: NBD, and files under one FUSE mount that is made when the first is needed.

use super::{Servers, Serving};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use strake_api::ExportKind;
use strake_engine::block::BlockDevice;
use strake_exports::fuse::{FuseError, FuseMount, FuseOptions};
use strake_exports::nbd::{Listen, NbdConfig, NbdServer};
use strake_reactor::buffer::Buffer;
use tracing::{info, warn};

type Device = Arc<dyn BlockDevice<Buffer>>;

/// Folder of the FUSE mount within the run folder.
const MOUNT: &str = "volumes";

/// All servers of this daemon.
pub struct Served {
    mount_dir: PathBuf,
    mount: Arc<Mutex<Option<FuseMount>>>,
}

impl Served {
    /// Prepares servers whose files live in that folder; starts none.
    pub fn new(run_dir: &Path) -> Served {
        Served {
            mount_dir: run_dir.join(MOUNT),
            mount: Arc::default(),
        }
    }

    fn start_fuse(&self, name: &str, device: Device) -> Result<Arc<dyn Serving>, String> {
        let mut mount = self.mount.lock().expect("a FUSE call panicked");
        if mount.is_none() {
            let made = FuseMount::mount(&self.mount_dir, FuseOptions::default());
            *mount = Some(made.map_err(|error| {
                format!("{error}. NBD needs none of that: `strake export create {name} --nbd`")
            })?);
        }
        let files = mount.as_ref().expect("mounted just now");
        let added = match files.add(name, device.clone()) {
            // Left by an array that was stopped although the file was open.
            Err(FuseError::Exists { .. }) => {
                files.remove(name).and_then(|()| files.add(name, device))
            }
            added => added,
        };
        added.map_err(|error| error.to_string())?;
        Ok(Arc::new(FuseFile {
            name: name.to_owned(),
            mount: self.mount.clone(),
        }))
    }
}

impl Servers for Served {
    fn address(&self, array_name: &str, kind: &ExportKind) -> String {
        match kind {
            ExportKind::NbdUnix { path } => {
                let path = path.as_deref().unwrap_or("");
                format!("nbd+unix:///{array_name}?socket={path}")
            }
            ExportKind::NbdTcp { address } => format!("nbd://{address}/{array_name}"),
            ExportKind::Fuse => self
                .mount_dir
                .join(array_name)
                .to_string_lossy()
                .into_owned(),
        }
    }

    fn start(
        &self,
        array_name: &str,
        kind: &ExportKind,
        device: Device,
    ) -> Result<Arc<dyn Serving>, String> {
        let listen = match kind {
            ExportKind::Fuse => return self.start_fuse(array_name, device),
            ExportKind::NbdUnix { path } => Listen::Unix(path.as_deref().unwrap_or("").into()),
            ExportKind::NbdTcp { address } => {
                let parsed: Result<SocketAddr, _> = address.parse();
                Listen::Tcp(parsed.map_err(|error| format!("{address}: {error}"))?)
            }
        };
        let config = NbdConfig {
            listen,
            export_name: array_name.to_owned(),
            description: format!("Strake array {array_name}"),
        };
        let server = NbdServer::start(config, device).map_err(|error| {
            let address = self.address(array_name, kind);
            format!("cannot serve NBD at {address}: {error}. Free that address or choose another with --unix or --tcp")
        })?;
        Ok(Arc::new(server))
    }

    fn shutdown(&self) {
        let mount = self.mount.lock().expect("a FUSE call panicked").take();
        if let Some(mount) = mount {
            // Taken out of the tree even when it is in use: then its users are cut off.
            drop(mount);
            let _ = std::fs::remove_dir(&self.mount_dir);
        }
    }
}

impl Serving for NbdServer {
    fn clients(&self) -> u64 {
        self.connections() as u64
    }

    fn stop(&self) {
        NbdServer::stop(self);
    }
}

/// A file of the FUSE mount.
struct FuseFile {
    name: String,
    mount: Arc<Mutex<Option<FuseMount>>>,
}

impl Serving for FuseFile {
    fn clients(&self) -> u64 {
        let mount = self.mount.lock().expect("a FUSE call panicked");
        let count = mount
            .as_ref()
            .and_then(|mount| mount.open_count(&self.name));
        count.unwrap_or(0) as u64
    }

    fn stop(&self) {
        let mount = self.mount.lock().expect("a FUSE call panicked");
        let Some(mount) = &*mount else {
            return;
        };
        match mount.remove(&self.name) {
            Ok(()) | Err(FuseError::Unknown { .. }) => {}
            // Its users get I/O errors from the stopped array until they let go.
            Err(error) => warn!("{error}"),
        }
    }
}

/// Takes away the mount that a killed daemon left behind: nobody answers on it, and it would be
/// in the way of the new one. Lazily, because a loop device may still hold it.
pub fn clear_stale_mount(run_dir: &Path) {
    let dir = run_dir.join(MOUNT);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for _ in 0..mounts_at(&mounts, &dir) {
        if !is_dead(&dir) {
            return;
        }
        match detach(&dir) {
            Ok(()) => info!(dir = %dir.display(), "took away the mount of a daemon that is gone"),
            Err(error) => {
                warn!(dir = %dir.display(), "cannot take away the mount of a daemon that is gone ({error}): do it with `fusermount3 -uz {}`", dir.display());
                return;
            }
        }
    }
}

/// A mount whose server is gone answers "transport endpoint is not connected"; one of another
/// daemon that lives is not ours to take. statfs(2) always asks the server, where stat(2) may be
/// answered from what the kernel remembers.
fn is_dead(dir: &Path) -> bool {
    use rustix::io::Errno;
    matches!(
        rustix::fs::statfs(dir),
        Err(Errno::NOTCONN | Errno::CONNABORTED)
    )
}

fn detach(dir: &Path) -> io::Result<()> {
    use rustix::mount::{UnmountFlags, unmount};
    match unmount(dir, UnmountFlags::DETACH) {
        Err(rustix::io::Errno::PERM) => {
            let status = std::process::Command::new("fusermount3")
                .arg("-uz")
                .arg(dir)
                .status()?;
            match status.success() {
                true => Ok(()),
                false => Err(io::Error::other(format!("fusermount3: {status}"))),
            }
        }
        result => Ok(result?),
    }
}

/// How many FUSE mounts lie on the folder, by the text of `/proc/self/mountinfo` (proc(5)).
fn mounts_at(mountinfo: &str, dir: &Path) -> usize {
    mountinfo
        .lines()
        .filter(|line| {
            let point = line.split(' ').nth(4).map(unescape);
            let kind = line.split(" - ").nth(1).unwrap_or("");
            kind.starts_with("fuse") && point.is_some_and(|point| Path::new(&point) == dir)
        })
        .count()
}

/// Mount points write blanks and their kin as `\040`.
fn unescape(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, byte) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                rest = &tail[3..];
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fuse_mounts_on_the_folder_itself_count() {
        let text = "\
36 35 0:33 / /run/strake/volumes rw,nosuid - fuse.strake strake rw,user_id=0
37 35 0:34 / /run/strake/volumes rw - fuse strake rw
38 35 0:35 / /run/strake/other rw - fuse strake rw
39 35 0:36 / /run/strake/volumes rw shared:5 - tmpfs none rw
40 35 0:37 / /run/a\\040b/volumes rw - fuse strake rw
";
        assert_eq!(mounts_at(text, Path::new("/run/strake/volumes")), 2);
        assert_eq!(mounts_at(text, Path::new("/run/a b/volumes")), 1);
        assert_eq!(mounts_at(text, Path::new("/run/strake")), 0);
    }
}
