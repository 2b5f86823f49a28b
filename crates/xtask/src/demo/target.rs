//! Where the demo's data lives: XFS on both arrays, or, where nothing may be mounted, the
//! bare volumes over NBD. Both answer the same questions, so the story is told once.

use super::files::{self, Checksums, Comparison};
use super::interrupt;
use super::load::Ground;
use super::place::Place;
use super::strake::Host;
use crate::shell;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The array of the data.
pub const DATA: &str = "data";
/// The array of the journal.
pub const LOG: &str = "log";

const MIB: u64 = 1 << 20;

/// Bytes that loads are measured on.
pub const MEASURED_BYTES: u64 = 1024 * MIB;

/// Bytes of the load that runs while a drive dies.
const VERIFIED_BYTES: u64 = 256 * MIB;

/// The large generated file.
const LARGE_BYTES: u64 = 512 * MIB;

/// Over NBD a "file" is a piece of an image.
const PIECE_BYTES: usize = 4 << 20;
const IMAGE_BYTES: u64 = 768 * MIB;

/// How the arrays are used.
pub enum Target {
    /// XFS on the data array with its log on the other.
    FileSystem(FileSystem),
    /// The data array as an NBD export.
    Nbd(Nbd),
}

/// Mounted XFS.
pub struct FileSystem {
    mount_point: PathBuf,
}

/// NBD export and the image that was copied in.
pub struct Nbd {
    uri: String,
    image: PathBuf,
    copy_back: PathBuf,
}

/// Why nothing may be mounted here, if so.
pub fn no_mount_reason() -> Option<String> {
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

impl Target {
    /// Puts the arrays of a first host to use.
    pub fn make(host: &Host, place: &Place, over_nbd: bool) -> Result<Target> {
        if over_nbd {
            let image = place.path("image.bin");
            files::write_random(&image, IMAGE_BYTES)?;
            let uri = export(host, place, "host-a-nbd.sock")?;
            let copy_back = place.path("copy-back.bin");
            return Ok(Target::Nbd(Nbd {
                uri,
                image,
                copy_back,
            }));
        }
        let (data, log) = (host.attach(DATA)?, host.attach(LOG)?);
        make_xfs(&data, &log)?;
        mount(place, &data, &log).map(Target::FileSystem)
    }

    /// Uses the arrays again that another host imported.
    pub fn use_again(self, host: &Host, place: &Place) -> Result<Target> {
        match self {
            Target::FileSystem(_) => {
                let (data, log) = (host.attach(DATA)?, host.attach(LOG)?);
                mount(place, &data, &log).map(Target::FileSystem)
            }
            Target::Nbd(nbd) => {
                let uri = export(host, place, "host-b-nbd.sock")?;
                Ok(Target::Nbd(Nbd { uri, ..nbd }))
            }
        }
    }

    /// Lets go of the arrays, so that they can be stopped.
    pub fn release(&self, host: &Host) -> Result<()> {
        if let Target::FileSystem(fs) = self {
            shell::read(Command::new("umount").arg(&fs.mount_point))?;
            host.run(["detach", DATA])?;
            host.run(["detach", LOG])?;
        }
        Ok(())
    }

    /// Copies the files in; says what came in.
    pub fn fill(&self) -> Result<String> {
        match self {
            Target::FileSystem(fs) => {
                let (count, bytes) = files::fill(&fs.mount_point.join("files"), LARGE_BYTES)?;
                Ok(format!(
                    "{count} files, {} MiB (of them one generated, {} MiB)",
                    bytes / MIB,
                    LARGE_BYTES / MIB
                ))
            }
            Target::Nbd(nbd) => {
                let copy = ["--flush", &nbd.image.to_string_lossy(), &nbd.uri].map(String::from);
                shell::read(Command::new("nbdcopy").args(copy))?;
                Ok(format!("an image of {} MiB by nbdcopy", IMAGE_BYTES / MIB))
            }
        }
    }

    /// Checksums of what is on the array now, read from its drives.
    pub fn checksums(&self) -> Result<Checksums> {
        match self {
            Target::FileSystem(fs) => files::checksums(&fs.mount_point.join("files")),
            Target::Nbd(nbd) => nbd.checksums(),
        }
    }

    /// Files that were there before and are not there now.
    pub fn compare(&self, before: &Checksums) -> Result<Comparison> {
        let what = match self {
            Target::FileSystem(_) => "files",
            Target::Nbd(_) => "pieces of the image",
        };
        Ok(files::compare(what, before, &self.checksums()?))
    }

    /// What is measured.
    pub fn measured(&self) -> Ground {
        match self {
            Target::FileSystem(fs) => {
                Ground::file(fs.mount_point.join("measured.bin"), MEASURED_BYTES)
            }
            Target::Nbd(nbd) => nbd.ground(IMAGE_BYTES, MEASURED_BYTES),
        }
    }

    /// What is written and compared while a drive dies.
    pub fn verified(&self) -> Ground {
        match self {
            Target::FileSystem(fs) => {
                Ground::file(fs.mount_point.join("verified.bin"), VERIFIED_BYTES)
            }
            Target::Nbd(nbd) => nbd.ground(IMAGE_BYTES + MEASURED_BYTES, VERIFIED_BYTES),
        }
    }
}

impl Nbd {
    fn ground(&self, offset: u64, bytes: u64) -> Ground {
        Ground::Nbd {
            uri: self.uri.clone(),
            offset,
            bytes,
        }
    }

    /// Copies the image back and sums its pieces. The first time that proves the copy in, too:
    /// a piece that does not equal the original's is left out, and so counts as lost.
    fn checksums(&self) -> Result<Checksums> {
        interrupt::check()?;
        shell::read(Command::new("qemu-img").args([
            "dd",
            "-f",
            "raw",
            "-O",
            "raw",
            "bs=1M",
            &format!("count={}", IMAGE_BYTES / MIB),
            &format!("if={}", self.uri),
            &format!("of={}", self.copy_back.to_string_lossy()),
        ]))?;
        let original = std::fs::read(&self.image).context("reading the image")?;
        let copy = std::fs::read(&self.copy_back).context("reading the image back")?;
        Ok(original
            .chunks(PIECE_BYTES)
            .zip(copy.chunks(PIECE_BYTES))
            .enumerate()
            .filter(|(_, (original, copy))| original == copy)
            .map(|(index, _)| (PathBuf::from(format!("piece {index}")), String::new()))
            .collect())
    }
}

fn export(host: &Host, place: &Place, socket: &str) -> Result<String> {
    let socket = place.path(socket);
    let path = socket.to_string_lossy();
    host.run(["export", "create", DATA, "--nbd", "--unix", &*path])?;
    Ok(format!("nbd+unix:///{DATA}?socket={path}"))
}

/// The published recipe's geometry. Loop devices have 4096-byte sectors: the external log
/// must be told, or the mount fails.
fn make_xfs(data: &Path, log: &Path) -> Result<()> {
    let log_bytes = shell::read(Command::new("blockdev").arg("--getsize64").arg(log))?;
    // mkfs.xfs takes logs of up to 2 GiB less a block.
    let log_mib = (log_bytes.trim().parse::<u64>()? / MIB).min(2000);
    shell::read(
        Command::new("mkfs.xfs")
            .args(["-f", "-q", "-K", "-d", "su=64k,sw=10", "-s", "size=4096"])
            .arg("-l")
            .arg(format!(
                "logdev={},size={log_mib}m,sectsize=4096",
                log.display()
            ))
            .arg(data),
    )
    .map(drop)
}

fn mount(place: &Place, data: &Path, log: &Path) -> Result<FileSystem> {
    let mount_point = place.folder("mnt")?;
    shell::read(
        Command::new("mount")
            .args(["-t", "xfs", "-o"])
            .arg(format!("logdev={}", log.display()))
            .arg(data)
            .arg(&mount_point),
    )?;
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    let point = mount_point.to_string_lossy();
    if !table
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(&*point))
    {
        bail!("{point} is not mounted: nothing may be written below it");
    }
    Ok(FileSystem { mount_point })
}
