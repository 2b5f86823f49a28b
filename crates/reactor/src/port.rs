//! The port between decisions and the world: drives, time and wake-ups.
//!
//! A core (node's event loop) sees the world only through [`Port`]. The product implements it
//! with io_uring ([`crate::ring`]); the simulator with simulated drives and virtual time. A
//! submitted operation owns its memory ([`Inbound`], [`Outbound`]) until its completion is reaped.

use crate::buffer::{Inbound, Outbound};
use crate::drive::FaultPlan;

/// A drive opened on a port. Valid until [`Port::close`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DriveId(pub u32);

/// One operation on a drive. Offsets and lengths are bytes and multiples of the drive's logical
/// block size; memory is page aligned at offset 0 of its buffer and a multiple of 512 within.
#[derive(Debug)]
pub enum DriveOp {
    /// Reads `into.len()` bytes. A short read is an error.
    Read {
        /// First byte on the drive.
        offset: u64,
        /// Filled by the drive.
        into: Inbound,
    },
    /// Writes `from.len()` bytes.
    Write {
        /// First byte on the drive.
        offset: u64,
        /// Content.
        from: Outbound,
        /// Completed only once on stable media (FUA).
        durable: bool,
    },
    /// Makes the range read as zeroes, by the drive's fast way where it has one, by writing
    /// zeroes where it has not. Not durable before a flush.
    WriteZeroes {
        /// First byte on the drive.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Tells the drive that the content is not needed. What it reads as afterwards is undefined.
    /// Succeeds without effect on a drive that cannot discard.
    Discard {
        /// First byte on the drive.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Makes everything completed before durable.
    Flush,
}

/// Why a drive operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DriveError {
    /// The drive reported an error for this range (EIO and its kin): other ranges may work.
    #[error("I/O error (errno {0})")]
    Io(i32),
    /// Fewer bytes than asked for were transferred.
    #[error("short transfer")]
    Short,
    /// The drive is gone or closed: nothing will work.
    #[error("drive is gone")]
    Gone,
}

/// The end of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The token given at submission.
    pub token: u64,
    /// Outcome.
    pub result: Result<(), DriveError>,
}

/// What a core needs from the world. One port belongs to one core; it is not shared.
pub trait Port {
    /// Nanoseconds since an arbitrary start; never goes back. Reading it changes nothing.
    fn now_ns(&self) -> u64;
    /// Opens a drive that was probed as fit for use, for reading and writing, exclusively.
    fn open(
        &mut self,
        spec: &crate::drive::DriveSpec,
        read_only: bool,
    ) -> Result<(DriveId, crate::drive::DriveInfo), crate::drive::OpenError>;
    /// Closes a drive. The caller has reaped all its operations.
    fn close(&mut self, drive: DriveId);
    /// Hands an operation over. It may be held until [`Port::poll`] or [`Port::wait`].
    fn submit(&mut self, drive: DriveId, token: u64, op: DriveOp);
    /// Starts what was submitted and appends what has completed. Never blocks.
    fn poll(&mut self, completions: &mut Vec<Completion>);
    /// Sleeps until a completion is there to reap, [`Waker::wake`] was called since the last
    /// return from `wait`, or `until_ns` has come (`None`: no limit). May return early.
    fn wait(&mut self, until_ns: Option<u64>);
    /// Ends a [`Port::wait`] from any thread.
    fn waker(&self) -> Waker;
    /// Tells a `faulty:` drive how to fail from now on; `None` heals it. Holds for everyone who
    /// opened it in this process. `false`: the drive was not opened as `faulty:`.
    fn set_faults(&mut self, drive: DriveId, plan: Option<FaultPlan>) -> bool {
        let _ = (drive, plan);
        false
    }
}

/// Wakes a sleeping port; cheap when it does not sleep.
#[derive(Clone)]
pub struct Waker(pub std::sync::Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// Ends the port's current or next [`Port::wait`].
    pub fn wake(&self) {
        (self.0)()
    }
}
