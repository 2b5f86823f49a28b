//! Operations on their way through the kernel: what each still has to do, and what comes next.
//!
//! A flight owns the loans of its operation until it is over, so the kernel never has a pointer
//! into memory that somebody else may free or reuse.

#[cfg(test)]
mod tests;

use io_uring::{opcode, squeue, types};

use super::arena::FixedArena;
use crate::buffer::{Inbound, Outbound};
use crate::drive::cache::WhenDurable;
use crate::port::{DriveError, DriveOp};

/// How a file is named to the kernel, and which of its ways were found wanting.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) number: i32,
    /// `number` is an index in the ring's file table.
    pub(super) registered: bool,
    /// The best way of zeroing that it was not found wanting in.
    pub(super) zeroing: Zeroing,
    /// How its writes are made durable.
    pub(super) durability: Durability,
    /// And which.
    pub(super) when: WhenDurable,
}

impl Target {
    /// How to make a write durable. `asked`: its caller wants it so.
    pub(super) fn durability_of(&self, asked: bool) -> Durability {
        match self.when {
            WhenDurable::EachWrite => self.durability,
            WhenDurable::OnRequest if asked => self.durability,
            WhenDurable::OnRequest | WhenDurable::AtCompletion => Durability::None,
        }
    }

    /// Whether the operation is done without the kernel: a flush of what is durable already.
    pub(super) fn needs_no(&self, op: &DriveOp) -> bool {
        matches!(op, DriveOp::Flush) && self.when == WhenDurable::AtCompletion
    }
}

/// Ways of making a write durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// Not at all: the caller will flush.
    None,
    /// With the write (RWF_DSYNC: FUA where the drive has it).
    Dsync,
    /// By a flush after the write.
    Flush,
}

/// Ways of zeroing a range, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Zeroing {
    /// Deallocates; reads as zeroes afterwards, guaranteed (fallocate(2)).
    Punch,
    /// Keeps it allocated.
    ZeroRange,
    /// Writes zeroes.
    Write,
}

/// What a flight is doing.
#[derive(Debug)]
pub(super) enum Job {
    Read {
        offset: u64,
        into: Inbound,
        done: usize,
    },
    Write {
        offset: u64,
        from: Outbound,
        done: usize,
        durability: Durability,
    },
    Zero {
        offset: u64,
        length: u64,
        way: Zeroing,
        /// With [`Zeroing::Write`], bytes written so far.
        done: u64,
    },
    Discard {
        offset: u64,
        length: u64,
    },
    /// Also the second half of a durable write where RWF_DSYNC is refused, and of zeroing where
    /// everything is to be durable.
    Flush,
}

/// One operation in flight.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) drive: u32,
    pub(super) token: u64,
    pub(super) job: Job,
    /// What success is reported as: an error for a torn write.
    pub(super) outcome: Result<(), DriveError>,
    pub(super) retries: u32,
}

/// What to do with a flight after the kernel's answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Hand it to the kernel again.
    Again,
    /// It is over.
    Done(Result<(), DriveError>),
}

/// EAGAIN and EINTR in a row that are believed to pass.
const RETRIES_MAX: u32 = 1000;
/// A resumed transfer must start where direct I/O can; whole transfers are multiples of this.
const RESUME_ALIGN: usize = 512;

const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP_SIZE;
const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE | KEEP_SIZE;

impl Flight {
    /// What to ask of the kernel. The entry points into the flight's loans or into `zeroes`.
    pub(super) fn entry(
        &self,
        target: &Target,
        arena: &FixedArena,
        zeroes: &Outbound,
    ) -> squeue::Entry {
        let fd = types::Fd(target.number);
        let entry = match &self.job {
            Job::Read { offset, into, done } => {
                let at = into.as_ptr().wrapping_add(*done);
                let len = (into.len() - done) as u32;
                let offset = offset + *done as u64;
                match arena.index_of(at) {
                    Some(index) => opcode::ReadFixed::new(fd, at, len, index)
                        .offset(offset)
                        .build(),
                    None => opcode::Read::new(fd, at, len).offset(offset).build(),
                }
            }
            Job::Write {
                offset,
                from,
                done,
                durability,
            } => {
                let at = from.as_ptr().wrapping_add(*done);
                let len = (from.len() - done) as u32;
                let offset = offset + *done as u64;
                let flags = match durability {
                    Durability::Dsync => libc::RWF_DSYNC,
                    Durability::None | Durability::Flush => 0,
                };
                match arena.index_of(at) {
                    Some(index) => opcode::WriteFixed::new(fd, at, len, index)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                    None => opcode::Write::new(fd, at, len)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                }
            }
            Job::Zero {
                offset,
                length,
                way,
                done,
            } => {
                let fallocate = |mode| {
                    opcode::Fallocate::new(fd, *length)
                        .offset(*offset)
                        .mode(mode)
                };
                match way {
                    Zeroing::Punch => fallocate(PUNCH).build(),
                    Zeroing::ZeroRange => fallocate(ZERO_RANGE).build(),
                    Zeroing::Write => {
                        let len = (length - done).min(zeroes.len() as u64) as u32;
                        opcode::Write::new(fd, zeroes.as_ptr(), len)
                            .offset(offset + done)
                            .build()
                    }
                }
            }
            Job::Discard { offset, length } => opcode::Fallocate::new(fd, *length)
                .offset(*offset)
                .mode(PUNCH)
                .build(),
            Job::Flush => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
        };
        match target.registered {
            true => entry.flags(squeue::Flags::FIXED_FILE),
            false => entry,
        }
    }

    /// Takes the kernel's answer (bytes, or a negative errno) to the last entry.
    pub(super) fn answered(&mut self, answer: i32, target: &mut Target) -> Step {
        if answer >= 0 {
            self.retries = 0;
            return self.advanced(answer as usize, target.when);
        }
        let errno = -answer;
        if matches!(errno, libc::EINTR | libc::EAGAIN) && self.retries < RETRIES_MAX {
            self.retries += 1;
            return Step::Again;
        }
        let unsupported = matches!(errno, libc::EOPNOTSUPP | libc::ENOSYS);
        match &mut self.job {
            Job::Discard { .. } if unsupported => Step::Done(self.outcome),
            Job::Zero { way, .. } if unsupported && *way != Zeroing::Write => {
                *way = match way {
                    Zeroing::Punch => Zeroing::ZeroRange,
                    Zeroing::ZeroRange | Zeroing::Write => Zeroing::Write,
                };
                target.zeroing = target.zeroing.max(*way);
                Step::Again
            }
            Job::Write { durability, .. } if unsupported && *durability == Durability::Dsync => {
                *durability = Durability::Flush;
                target.durability = Durability::Flush;
                Step::Again
            }
            _ => Step::Done(Err(drive_error(errno))),
        }
    }

    fn advanced(&mut self, bytes: usize, when: WhenDurable) -> Step {
        let left = match &mut self.job {
            Job::Read { into, done, .. } => {
                *done += bytes;
                into.len() - *done
            }
            Job::Write { from, done, .. } => {
                *done += bytes;
                from.len() - *done
            }
            Job::Zero {
                length,
                way: Zeroing::Write,
                done,
                ..
            } => {
                *done += bytes as u64;
                (*length - *done) as usize
            }
            Job::Zero { .. } | Job::Discard { .. } | Job::Flush => 0,
        };
        if left > 0 {
            return match bytes > 0 && left.is_multiple_of(RESUME_ALIGN) {
                true => Step::Again,
                false => Step::Done(Err(DriveError::Short)),
            };
        }
        let flush = match self.job {
            Job::Write { durability, .. } => durability == Durability::Flush,
            Job::Zero { .. } => when == WhenDurable::EachWrite,
            Job::Read { .. } | Job::Discard { .. } | Job::Flush => false,
        };
        if flush {
            self.job = Job::Flush;
            return Step::Again;
        }
        Step::Done(self.outcome)
    }
}

/// What a negative answer means for the drive.
pub(super) fn drive_error(errno: i32) -> DriveError {
    match errno {
        libc::ENODEV | libc::ENXIO | libc::EBADF | libc::ENOMEDIUM | libc::ESHUTDOWN => {
            DriveError::Gone
        }
        errno => DriveError::Io(errno),
    }
}

/// The flights of a port, by index.
#[derive(Default)]
pub(super) struct Flights {
    table: Vec<Option<Flight>>,
    free: Vec<u32>,
}

impl Flights {
    /// Room for so many before the table grows.
    pub(super) fn with_capacity(capacity: usize) -> Flights {
        Flights {
            table: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
        }
    }

    pub(super) fn insert(&mut self, flight: Flight) -> u32 {
        if let Some(index) = self.free.pop() {
            self.table[index as usize] = Some(flight);
            return index;
        }
        self.table.push(Some(flight));
        self.table.len() as u32 - 1
    }

    pub(super) fn get(&mut self, index: u32) -> &mut Flight {
        let flight = self.table[index as usize].as_mut();
        flight.expect("an index is used between insert and remove")
    }

    pub(super) fn remove(&mut self, index: u32) -> Flight {
        let flight = self.table[index as usize].take();
        self.free.push(index);
        flight.expect("an index is used between insert and remove")
    }
}
