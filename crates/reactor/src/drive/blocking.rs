//! A drive for a few plain reads and writes: looking for superblocks, cleaning, inspecting.

use std::io;

use super::claim::{self, Medium, OpenDrive};
use super::recorded::Change;
use super::{DriveInfo, DriveSpec, OpenError};
use crate::buffer::Buffer;
use crate::faulty::{self, Intent, Verdict};

/// An open drive whose calls block. Claimed as a port's drives are, until dropped.
pub struct BlockingDrive {
    drive: OpenDrive,
    read_only: bool,
}

/// Opens a drive for blocking calls. Fails as [`crate::port::Port::open`] does.
pub fn blocking(spec: &DriveSpec, read_only: bool) -> Result<BlockingDrive, OpenError> {
    let drive = claim::open(spec, read_only)?;
    Ok(BlockingDrive { drive, read_only })
}

/// Copied through aligned memory in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

impl BlockingDrive {
    /// What is known of the drive.
    pub fn info(&self) -> &DriveInfo {
        &self.drive.info
    }

    /// Fills `into` from `offset`. Both the offset and the length must be multiples of the
    /// drive's block size and end within it, else `InvalidInput`; the memory need not be aligned.
    /// Fails with the drive's error, or `UnexpectedEof` when it ends early.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.check("read", offset, into.len())?;
        match self.judge(Intent::Read(offset, into.len() as u64)) {
            Verdict::Proceed => {}
            _ => return Err(self.failed("read", offset, eio())),
        }
        match &self.drive.medium {
            Medium::Memory(memory) => memory.read(offset, into),
            Medium::Paced(paced) => paced.memory.read(offset, into),
            Medium::Null => {}
            Medium::File(claim) => {
                let mut bounce = Buffer::heap(into.len().min(PIECE_BYTES));
                for (index, piece) in into.chunks_mut(PIECE_BYTES).enumerate() {
                    let at = offset + (index * PIECE_BYTES) as u64;
                    let bounce = &mut bounce.as_mut_slice()[..piece.len()];
                    read_all(claim.file(), bounce, at)
                        .map_err(|error| self.failed("read", at, error))?;
                    piece.copy_from_slice(bounce);
                }
            }
        }
        Ok(())
    }

    /// Writes `from` at `offset`; not durable before [`BlockingDrive::flush`]. Conditions and
    /// errors as for `read_at`; `PermissionDenied` when opened read-only.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.check("write", offset, from.len())?;
        self.check_writable(offset)?;
        self.recording(Change::Write(offset, from, false), || {
            self.write_judged(offset, from)
        })
    }

    fn write_judged(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        match self.judge(Intent::Write(offset, from.len() as u64)) {
            Verdict::Proceed => self.write_medium(offset, from),
            Verdict::Lose => Ok(()),
            Verdict::Fail => Err(self.failed("write", offset, eio())),
            Verdict::Tear(done) => {
                self.write_medium(offset, &from[..done as usize])?;
                Err(self.failed("write", offset, eio()))
            }
        }
    }

    /// Makes what was written durable. Fails with the drive's error.
    pub fn flush(&self) -> io::Result<()> {
        self.recording(Change::Flush, || self.flush_judged())
    }

    fn flush_judged(&self) -> io::Result<()> {
        match self.judge(Intent::Other) {
            Verdict::Proceed => {}
            _ => return Err(self.failed("flush", 0, eio())),
        }
        match &self.drive.medium {
            Medium::File(claim) if !self.read_only => claim
                .file()
                .sync_data()
                .map_err(|error| self.failed("flush", 0, error)),
            _ => Ok(()),
        }
    }

    /// Makes a change, on record where the drive is a recorded one.
    fn recording(&self, change: Change, make: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let Some(recorder) = &self.drive.recorder else {
            return make();
        };
        let number = recorder.submitted(change)?;
        let result = make();
        recorder.completed(number, result.is_ok())?;
        result
    }

    fn write_medium(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        match &self.drive.medium {
            Medium::Memory(memory) => memory.write(offset, from),
            Medium::Paced(paced) => paced.memory.write(offset, from),
            Medium::Null => {}
            Medium::File(claim) => {
                let mut bounce = Buffer::heap(from.len().min(PIECE_BYTES));
                for (index, piece) in from.chunks(PIECE_BYTES).enumerate() {
                    let at = offset + (index * PIECE_BYTES) as u64;
                    let bounce = &mut bounce.as_mut_slice()[..piece.len()];
                    bounce.copy_from_slice(piece);
                    write_all(claim.file(), bounce, at)
                        .map_err(|error| self.failed("write", at, error))?;
                }
            }
        }
        Ok(())
    }

    fn judge(&self, intent: Intent) -> Verdict {
        let Some(faults) = &self.drive.faults else {
            return Verdict::Proceed;
        };
        let mut faults = faulty::lock(faults);
        let delay = std::time::Duration::from_nanos(faults.latency_ns());
        let verdict = faults.judge(intent);
        drop(faults);
        std::thread::sleep(delay);
        verdict
    }

    fn check(&self, what: &str, offset: u64, len: usize) -> io::Result<()> {
        let info = &self.drive.info;
        let block = u64::from(info.block_size_bytes);
        let end = offset.checked_add(len as u64);
        let within = end.is_some_and(|end| end <= info.size_bytes);
        if within && (offset | len as u64).is_multiple_of(block) {
            return Ok(());
        }
        let text = format!(
            "{}: {what} of {len} bytes at {offset}: use whole blocks of {block} within {} bytes",
            info.path, info.size_bytes
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    fn check_writable(&self, offset: u64) -> io::Result<()> {
        if !self.read_only {
            return Ok(());
        }
        let path = &self.drive.info.path;
        let text =
            format!("{path}: write at {offset}: it was opened read-only; open it for writing");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }

    fn failed(&self, what: &str, offset: u64, error: io::Error) -> io::Error {
        let path = &self.drive.info.path;
        io::Error::new(error.kind(), format!("{path}: {what} at {offset}: {error}"))
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

fn read_all(file: &std::fs::File, into: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, offset)
}

fn write_all(file: &std::fs::File, from: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, from, offset)
}
