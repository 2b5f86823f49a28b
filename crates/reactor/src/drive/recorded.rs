//! Drives that keep a record of every change made to them: `recorded:LOGFILE:SPEC`.
//!
//! For tests of power cuts, as Linux's dm-log-writes: from the record, what may be on the drives
//! at any moment can be made again. Every write, zeroing, discard and flush is appended to the
//! log file when it is submitted and again when it has completed; reads are not recorded. A
//! submission is in the file before the drive sees it, a completion before whoever waits for it.
//! All drives recorded in one file share its order, so a length of the file is a moment.
//!
//! The file is made by the process that records; one that exists is another's record and is
//! refused. It is never read here. Little-endian: `STRKREC1`, then events, each a head of 40 bytes
//! and, for `Drive` and `Write`, `length` bytes more:
//!
//! | Offset | Size | Field | Meaning |
//! |---|---|---|---|
//! | 0 | 1 | kind | 1 `Drive`, 2 `Write`, 3 `WriteZeroes`, 4 `Discard`, 5 `Flush`, 6 `Completed` |
//! | 1 | 1 | flag | of a write: durable when completed; of a completion: succeeded |
//! | 2 | 2 | drive | number of the drive; `Drive` gives it its name |
//! | 4 | 4 | – | zero |
//! | 8 | 8 | sequence | counted over all recorded drives of the process, from 1 |
//! | 16 | 8 | operation | of a completion: sequence of the submission; else zero |
//! | 24 | 8 | offset | bytes |
//! | 32 | 8 | length | bytes; of `Drive`: of the name, the text after `LOGFILE:` |
//!
//! After a kill the last event may be cut off: the drive did not see it. Not recorded: what a
//! `faulty:` drive below does wrong and calls right (a lost write).

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use super::OpenError;
use crate::port::{Completion, DriveError, DriveOp};

const MAGIC: &[u8; 8] = b"STRKREC1";
const HEAD_BYTES: usize = 40;

/// What is recorded.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Drive = 1,
    Write = 2,
    WriteZeroes = 3,
    Discard = 4,
    Flush = 5,
    Completed = 6,
}

/// A change, as far as it is recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'a> {
    /// Offset, content, durable when completed.
    Write(u64, &'a [u8], bool),
    /// Nothing completed before may be lost afterwards.
    Flush,
}

/// The record of one drive; cheap to clone.
#[derive(Clone)]
pub(crate) struct Recorder {
    log: Arc<Log>,
    drive: u16,
}

struct Log {
    /// Taken for each event: an event is written whole, and numbered in the file's order.
    file: Mutex<File>,
}

/// Logs stay open until the process ends: the order over closing and opening drives is one.
#[derive(Default)]
struct Logs {
    by_path: HashMap<PathBuf, Arc<Log>>,
    recorders: HashMap<(PathBuf, String), Recorder>,
}

static LOGS: LazyLock<Mutex<Logs>> = LazyLock::new(Mutex::default);
static SEQUENCE: AtomicU64 = AtomicU64::new(1);

/// The record of the drive called `name` in this file, which this process makes.
///
/// # Errors
/// [`OpenError::System`] when the file cannot be made or written, or was there before.
pub(crate) fn open(path: &Path, name: &str) -> Result<Recorder, OpenError> {
    let failed = |error: io::Error| OpenError::System {
        path: path.display().to_string(),
        action: "record to",
        reason: format!("{error}; name a new file in a folder that can be written"),
    };
    let mut logs = LOGS.lock().expect("opening a log does not panic");
    let key = (path.to_owned(), name.to_owned());
    if let Some(recorder) = logs.recorders.get(&key) {
        return Ok(recorder.clone());
    }
    let log = match logs.by_path.get(path) {
        Some(log) => log.clone(),
        None => Arc::new(Log::open(path).map_err(failed)?),
    };
    logs.by_path.insert(path.to_owned(), log.clone());
    let drive = logs.recorders.len() as u16;
    let recorder = Recorder { log, drive };
    let length = name.len() as u64;
    let event = recorder.event(Kind::Drive, false, 0, (0, length));
    recorder.append(event, name.as_bytes()).map_err(failed)?;
    logs.recorders.insert(key, recorder.clone());
    Ok(recorder)
}

impl Log {
    fn open(path: &Path) -> io::Result<Log> {
        let mut file = File::options().create_new(true).append(true).open(path)?;
        file.write_all(MAGIC)?;
        Ok(Log {
            file: Mutex::new(file),
        })
    }
}

impl Recorder {
    /// Records that a change is about to be made; returns its number for `completed`. Fails with
    /// the log file's error: the change must not be made then.
    pub(crate) fn submitted(&self, change: Change) -> io::Result<u64> {
        match change {
            Change::Write(offset, content, durable) => {
                let range = (offset, content.len() as u64);
                self.append(self.event(Kind::Write, durable, 0, range), content)
            }
            Change::Flush => self.append(self.event(Kind::Flush, false, 0, (0, 0)), &[]),
        }
    }

    /// As `submitted` for what a port is given; `None` for a read.
    fn submitted_op(&self, op: &DriveOp) -> io::Result<Option<u64>> {
        let ranged = |kind, offset, length| {
            let event = self.event(kind, false, 0, (offset, length));
            self.append(event, &[]).map(Some)
        };
        match op {
            DriveOp::Read { .. } => Ok(None),
            DriveOp::Write {
                offset,
                from,
                durable,
            } => from
                .with(|content| self.submitted(Change::Write(*offset, content, *durable)))
                .map(Some),
            DriveOp::WriteZeroes { offset, length } => ranged(Kind::WriteZeroes, *offset, *length),
            DriveOp::Discard { offset, length } => ranged(Kind::Discard, *offset, *length),
            DriveOp::Flush => self.submitted(Change::Flush).map(Some),
        }
    }

    /// Records the end of a change. Fails with the log file's error.
    pub(crate) fn completed(&self, operation: u64, succeeded: bool) -> io::Result<()> {
        let event = self.event(Kind::Completed, succeeded, operation, (0, 0));
        self.append(event, &[]).map(|_| ())
    }

    fn event(
        &self,
        kind: Kind,
        flag: bool,
        operation: u64,
        (offset, length): (u64, u64),
    ) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[0] = kind as u8;
        head[1] = u8::from(flag);
        head[2..4].copy_from_slice(&self.drive.to_le_bytes());
        head[16..24].copy_from_slice(&operation.to_le_bytes());
        head[24..32].copy_from_slice(&offset.to_le_bytes());
        head[32..40].copy_from_slice(&length.to_le_bytes());
        head
    }

    /// Numbers and appends an event; returns its number.
    fn append(&self, mut head: [u8; HEAD_BYTES], content: &[u8]) -> io::Result<u64> {
        let mut event = Vec::with_capacity(HEAD_BYTES + content.len());
        let mut file = self.log.file.lock().expect("appending does not panic");
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        head[8..16].copy_from_slice(&sequence.to_le_bytes());
        event.extend_from_slice(&head);
        event.extend_from_slice(content);
        file.write_all(&event)?;
        Ok(sequence)
    }
}

/// A port's recorded changes that have not completed yet, by token.
#[derive(Default)]
pub(crate) struct InFlight {
    changes: HashMap<u64, (Recorder, u64)>,
}

impl InFlight {
    /// Records a submission. `Err`: it could not be recorded and must not be made; the answer.
    pub(crate) fn submitted(
        &mut self,
        recorder: &Recorder,
        token: u64,
        op: &DriveOp,
    ) -> Result<(), DriveError> {
        if let Some(number) = recorder.submitted_op(op).map_err(unrecorded)? {
            self.changes.insert(token, (recorder.clone(), number));
        }
        Ok(())
    }

    /// Records completions before anybody hears of them; one that cannot be recorded fails.
    pub(crate) fn completed(&mut self, completions: &mut [Completion]) {
        if self.changes.is_empty() {
            return;
        }
        for completion in completions {
            let Some((recorder, number)) = self.changes.remove(&completion.token) else {
                continue;
            };
            if let Err(error) = recorder.completed(number, completion.result.is_ok()) {
                completion.result = completion.result.and(Err(unrecorded(error)));
            }
        }
    }
}

fn unrecorded(error: io::Error) -> DriveError {
    DriveError::Io(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests;
