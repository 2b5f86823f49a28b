//! The product's port: drives through io_uring, one ring for each core.
//!
//! A [`RingPort`] belongs to the thread that made it. Block devices and files go through the
//! ring, with registered files and, where a pool is given, registered buffers. Memory and null
//! drives are served at once, without a system call, and complete at the next poll; paced ones are
//! served at once too, and complete when their pace says so.
//!
//! Whatever the kernel was given stays owned by the port until it answers: an operation's loans
//! live in its flight, and dropping the port waits for all of them. A drive that never
//! answers therefore holds up the drop; the kernel's own timeouts bound that.

#![allow(unsafe_code)]

mod arena;
mod flight;
#[cfg(test)]
mod tests;
mod timed;
mod uring;
mod waker;

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::buffer::{Buffer, Outbound, Pool};
use crate::drive::claim::{self, Claim, Medium};
use crate::drive::memory::Memory;
use crate::drive::paced::Paced;
use crate::drive::recorded::{InFlight, Recorder};
use crate::drive::{DriveInfo, DriveSpec, FaultPlan, OpenError};
use crate::faulty::{self, Intent, Verdict};
use crate::port::{Completion, DriveError, DriveId, DriveOp, Port, Waker};
use flight::{Durability, Flight, Flights, Job, Step, Target, Zeroing};
use timed::Timed;
use uring::Uring;
use waker::WakeState;

/// How a [`RingPort`] is to be.
#[derive(Debug, Clone)]
pub struct RingConfig {
    /// Entries of the submission queue, 8 to 32768; four times as many operations can be with the
    /// kernel at once, and any number waits for a place.
    pub entries: u32,
    /// Its arena is registered with the ring, which pins it: operations on its buffers cost less.
    pub pool: Option<Pool>,
}

impl Default for RingConfig {
    fn default() -> Self {
        RingConfig {
            entries: 256,
            pool: None,
        }
    }
}

/// Size of the zeroes that are written where a drive cannot zero by itself.
const ZEROES_BYTES: usize = 1 << 20;

/// A paced completion this near is polled for, not slept for: the kernel's timers come up to 50 µs
/// late, and waking up takes its time too.
const POLLED_NS: u64 = 100_000;

/// A core's port on io_uring. It stays on the thread that made it.
pub struct RingPort {
    uring: Uring,
    drives: Vec<Option<Drive>>,
    flights: Flights,
    /// Flights that found no place in the ring.
    backlog: VecDeque<u32>,
    /// Completions to hand out at the next poll.
    ready: Vec<Completion>,
    /// Operations of memory drives, in order.
    copies: VecDeque<Copy>,
    /// Operations of slow (faulty) drives, by the time at which they start.
    delayed: Timed<Delayed>,
    /// Completions of paced drives, by the time at which they are told.
    paced: Timed<Completion>,
    recorded: InFlight,
    wake: Arc<WakeState>,
    notes: Vec<String>,
    zeroes: Outbound,
    /// What `zeroes` is lent from; dropped after it.
    _zeroes_memory: Buffer,
    /// The kernel takes entries from one thread only.
    _not_send: PhantomData<*const ()>,
}

struct Drive {
    medium: RingMedium,
    size_bytes: u64,
    read_only: bool,
    faults: Option<faulty::Shared>,
    recorder: Option<Recorder>,
    /// Operations not completed yet, those served at once not counted.
    in_flight: u32,
    /// Closed by the caller; goes when nothing is in flight.
    closing: bool,
}

enum RingMedium {
    File {
        target: Target,
        /// Keeps the file open and locked.
        _claim: Arc<Claim>,
    },
    Memory(Arc<Memory>),
    Paced(Arc<Paced>),
    Null,
}

/// An operation of a memory drive, carried out with the next poll: while one is, the processor
/// fetches what the next one will touch.
struct Copy {
    drive: u32,
    token: u64,
    op: DriveOp,
    outcome: Result<(), DriveError>,
}

/// An operation of a slow (faulty) drive.
struct Delayed {
    drive: u32,
    token: u64,
    op: DriveOp,
}

impl RingPort {
    /// Makes a port for this thread. Fails with the system's error where io_uring is forbidden,
    /// too old, or over a limit; the text says what to change.
    pub fn new(config: RingConfig) -> io::Result<RingPort> {
        let (uring, notes) = Uring::new(config.entries, config.pool)?;
        let zeroes_memory = Buffer::heap(ZEROES_BYTES);
        for note in &notes {
            tracing::info!("{note}");
        }
        Ok(RingPort {
            uring,
            drives: Vec::new(),
            flights: Flights::with_capacity(config.entries as usize),
            backlog: VecDeque::new(),
            ready: Vec::new(),
            copies: VecDeque::new(),
            delayed: Timed::default(),
            paced: Timed::default(),
            recorded: InFlight::default(),
            wake: Arc::new(WakeState::new()?),
            notes,
            zeroes: zeroes_memory.lend_outbound(0..ZEROES_BYTES),
            _zeroes_memory: zeroes_memory,
            _not_send: PhantomData,
        })
    }

    /// What this kernel or its limits do not allow, and what that costs.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Carries a permitted operation out, or on its way. Success is reported as `outcome`.
    fn start(&mut self, drive: u32, token: u64, op: DriveOp, outcome: Result<(), DriveError>) {
        let result = outcome;
        let slot = self.drives[drive as usize].as_mut();
        let slot = slot.expect("checked by the caller");
        match &slot.medium {
            RingMedium::Memory(_) => {
                slot.in_flight += 1;
                let copy = Copy {
                    drive,
                    token,
                    op,
                    outcome,
                };
                return self.copies.push_back(copy);
            }
            RingMedium::Paced(paced) => {
                let due_ns = paced.admit(now_ns(), &op);
                serve_memory(&paced.memory, op);
                return self.paced.push(due_ns, Completion { token, result });
            }
            RingMedium::Null => drop(op),
            RingMedium::File { target, .. } if target.needs_no(&op) => drop(op),
            RingMedium::File { target, .. } => {
                let job = job_of(op, target);
                slot.in_flight += 1;
                let index = self.flights.insert(Flight {
                    drive,
                    token,
                    job,
                    outcome,
                    retries: 0,
                });
                return self.launch(index);
            }
        }
        self.ready.push(Completion { token, result });
    }

    fn launch(&mut self, index: u32) {
        if !self.backlog.is_empty() || !self.push(index) {
            self.backlog.push_back(index);
        }
    }

    /// Puts a flight into the ring if there is room.
    fn push(&mut self, index: u32) -> bool {
        let flight = self.flights.get(index);
        let slot = self.drives[flight.drive as usize].as_ref();
        let Some(RingMedium::File { target, .. }) = slot.map(|slot| &slot.medium) else {
            unreachable!("a drive stays while it has flights, and only files have flights");
        };
        let entry = flight.entry(target, &self.uring.arena, &self.zeroes);
        // SAFETY: the flight owns the loans that the entry points into; it is removed only when
        // its answer was reaped (`answer`, `drop`). The zeroes outlive all flights: `drop` waits.
        unsafe { self.uring.push(entry, index) }
    }

    /// Fills the ring from the backlog and starts what is in it.
    fn pump(&mut self) {
        while let Some(&index) = self.backlog.front() {
            if !self.push(index) {
                break;
            }
            self.backlog.pop_front();
        }
        self.uring.submit();
    }

    /// Takes the kernel's answers; what is over goes to `ready`.
    fn reap(&mut self) {
        let answers = self.uring.reap();
        for &(mark, result) in &answers {
            self.answer(mark as u32, result);
        }
        self.uring.reaped(answers);
    }

    fn answer(&mut self, index: u32, result: i32) {
        let flight = self.flights.get(index);
        let drive = flight.drive;
        let slot = self.drives[drive as usize].as_mut();
        let Some(RingMedium::File { target, .. }) = slot.map(|slot| &mut slot.medium) else {
            unreachable!("a drive stays while it has flights, and only files have flights");
        };
        match flight.answered(result, target) {
            Step::Again => self.launch(index),
            Step::Done(result) => {
                let token = self.flights.remove(index).token;
                self.ready.push(Completion { token, result });
                self.landed(drive);
            }
        }
    }

    /// One operation less in flight.
    fn landed(&mut self, drive: u32) {
        let slot = self.drives[drive as usize].as_mut();
        let slot = slot.expect("a drive stays while it has operations");
        slot.in_flight -= 1;
        if slot.closing && slot.in_flight == 0 {
            self.release(drive);
        }
    }

    fn release(&mut self, drive: u32) {
        let slot = self.drives[drive as usize].take();
        if let Some(RingMedium::File { target, .. }) = slot.as_ref().map(|slot| &slot.medium)
            && target.registered
        {
            self.uring.unregister_file(target.number as u32);
        }
    }

    #[cold]
    fn submit_faulty(&mut self, faults: faulty::Shared, drive: u32, token: u64, op: DriveOp) {
        let latency_ns = faulty::lock(&faults).latency_ns();
        if latency_ns == 0 {
            return self.start_faulty(&faults, drive, token, op);
        }
        if let Some(slot) = self.drives[drive as usize].as_mut() {
            slot.in_flight += 1;
        }
        let due_ns = now_ns().saturating_add(latency_ns);
        self.delayed.push(due_ns, Delayed { drive, token, op });
    }

    fn start_faulty(&mut self, faults: &faulty::Shared, drive: u32, token: u64, mut op: DriveOp) {
        let verdict = faulty::lock(faults).judge(intent_of(&op));
        let eio = Err(DriveError::Io(libc::EIO));
        let result = match (verdict, &mut op) {
            (Verdict::Proceed, _) => return self.start(drive, token, op, Ok(())),
            (Verdict::Tear(done), DriveOp::Write { from, .. }) if done > 0 => {
                from.truncate(done as usize);
                return self.start(drive, token, op, eio);
            }
            (Verdict::Lose, _) => Ok(()),
            (Verdict::Tear(_) | Verdict::Fail, _) => eio,
        };
        self.ready.push(Completion { token, result });
    }

    /// Starts what was held back until now.
    fn start_delayed(&mut self) {
        let now_ns = now_ns();
        while let Some(next) = self.delayed.pop(now_ns) {
            let slot = self.drives[next.drive as usize].as_ref();
            let faults = slot.and_then(|slot| slot.faults.clone());
            let faults = faults
                .expect("a drive stays while it has operations, and only faulty drives delay");
            self.start_faulty(&faults, next.drive, next.token, next.op);
            self.landed(next.drive);
        }
    }

    /// Carries out what memory drives were asked for, in order.
    fn copy(&mut self) {
        while let Some(copy) = self.copies.pop_front() {
            if let Some(next) = self.copies.front()
                && let DriveOp::Read { offset, .. } | DriveOp::Write { offset, .. } = next.op
            {
                self.memory(next.drive).prefetch(offset);
            }
            serve_memory(self.memory(copy.drive), copy.op);
            let (token, result) = (copy.token, copy.outcome);
            self.ready.push(Completion { token, result });
            self.landed(copy.drive);
        }
    }

    fn memory(&self, drive: u32) -> &Memory {
        let slot = self.drives[drive as usize].as_ref();
        match slot.map(|slot| &slot.medium) {
            Some(RingMedium::Memory(memory)) => memory,
            _ => unreachable!("a drive stays while it has operations, and only memory is copied"),
        }
    }

    /// Hands out the completions of paced drives whose time has come.
    fn finish_paced(&mut self) {
        let now_ns = now_ns();
        while let Some(completion) = self.paced.pop(now_ns) {
            self.ready.push(completion);
        }
    }

    /// Until when nothing of this port's own can happen; `None`: for ever.
    fn quiet_until_ns(&self) -> Option<u64> {
        let paced_ns = self
            .paced
            .next_ns()
            .map(|due| due.saturating_sub(POLLED_NS));
        [self.delayed.next_ns(), paced_ns]
            .into_iter()
            .flatten()
            .min()
    }
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Port for RingPort {
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn open(
        &mut self,
        spec: &DriveSpec,
        read_only: bool,
    ) -> Result<(DriveId, DriveInfo), OpenError> {
        let drive = claim::open(spec, read_only)?;
        let medium = match drive.medium {
            Medium::Memory(memory) => RingMedium::Memory(memory),
            Medium::Paced(paced) => RingMedium::Paced(paced),
            Medium::Null => RingMedium::Null,
            Medium::File(claim) => {
                let fd = claim.file().as_raw_fd();
                let place = self.uring.register_file(fd);
                let target = Target {
                    number: place.map_or(fd, |place| place as i32),
                    registered: place.is_some(),
                    zeroing: Zeroing::Punch,
                    durability: Durability::Dsync,
                    when: drive.when_durable,
                };
                RingMedium::File {
                    target,
                    _claim: claim,
                }
            }
        };
        self.drives.push(Some(Drive {
            medium,
            size_bytes: drive.info.size_bytes,
            read_only,
            faults: drive.faults,
            recorder: drive.recorder,
            in_flight: 0,
            closing: false,
        }));
        Ok((DriveId(self.drives.len() as u32 - 1), drive.info))
    }

    fn close(&mut self, drive: DriveId) {
        let Some(Some(slot)) = self.drives.get_mut(drive.0 as usize) else {
            return;
        };
        slot.closing = true;
        if slot.in_flight == 0 {
            self.release(drive.0);
        }
    }

    #[inline]
    fn submit(&mut self, drive: DriveId, token: u64, op: DriveOp) {
        let slot = match self.drives.get(drive.0 as usize) {
            Some(Some(slot)) if !slot.closing => slot,
            _ => {
                let result = Err(DriveError::Gone);
                return self.ready.push(Completion { token, result });
            }
        };
        if let Some(result) = slot.answer_at_once(&op) {
            return self.ready.push(Completion { token, result });
        }
        if let Some(recorder) = &slot.recorder
            && let Err(error) = self.recorded.submitted(recorder, token, &op)
        {
            let result = Err(error);
            return self.ready.push(Completion { token, result });
        }
        match &slot.faults {
            None => self.start(drive.0, token, op, Ok(())),
            Some(faults) => self.submit_faulty(faults.clone(), drive.0, token, op),
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        if !self.delayed.is_empty() {
            self.start_delayed();
        }
        if !self.paced.is_empty() {
            self.finish_paced();
        }
        if !self.copies.is_empty() {
            self.copy();
        }
        if self.uring.in_kernel() > 0 || !self.backlog.is_empty() {
            self.pump();
            self.reap();
            if !self.backlog.is_empty() {
                self.pump();
            }
        }
        self.recorded.completed(&mut self.ready);
        completions.append(&mut self.ready);
    }

    fn wait(&mut self, until_ns: Option<u64>) {
        self.pump();
        self.reap();
        if !self.ready.is_empty() || !self.copies.is_empty() {
            return;
        }
        let until_ns = [until_ns, self.quiet_until_ns()]
            .into_iter()
            .flatten()
            .min();
        let timeout_ns = until_ns.map(|until| until.saturating_sub(now_ns()));
        if timeout_ns == Some(0) {
            return;
        }
        if !self.uring.arm_wake(self.wake.event().as_raw_fd()) {
            return;
        }
        if self.wake.fall_asleep() {
            self.uring.sleep(timeout_ns);
            self.wake.rise();
        }
    }

    fn waker(&self) -> Waker {
        let wake = self.wake.clone();
        Waker(Arc::new(move || wake.wake()))
    }

    fn set_faults(&mut self, drive: DriveId, plan: Option<FaultPlan>) -> bool {
        let slot = self.drives.get(drive.0 as usize).and_then(Option::as_ref);
        let Some(faults) = slot.and_then(|slot| slot.faults.as_ref()) else {
            return false;
        };
        *faulty::lock(faults) = faulty::Faults::new(plan.unwrap_or_default());
        true
    }
}

impl Drop for RingPort {
    fn drop(&mut self) {
        self.delayed.clear();
        self.copies.clear();
        for index in std::mem::take(&mut self.backlog) {
            self.flights.remove(index);
        }
        // A read of the wake event that nobody wakes would never end.
        self.wake.signal();
        while !self.uring.is_drained() {
            self.uring.sleep(None);
            let answers = self.uring.reap();
            for &(mark, _) in &answers {
                self.flights.remove(mark as u32);
            }
            self.uring.reaped(answers);
        }
    }
}

impl Drive {
    /// The result of operations that need no drive: those outside it, writes to one opened
    /// read-only, empty ones.
    #[inline]
    fn answer_at_once(&self, op: &DriveOp) -> Option<Result<(), DriveError>> {
        let (offset, length, changes) = match op {
            DriveOp::Read { offset, into } => (*offset, into.len() as u64, false),
            DriveOp::Write { offset, from, .. } => (*offset, from.len() as u64, true),
            DriveOp::WriteZeroes { offset, length } => (*offset, *length, true),
            DriveOp::Discard { offset, length } => (*offset, *length, true),
            DriveOp::Flush => return self.read_only.then_some(Ok(())),
        };
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > self.size_bytes) {
            return Some(Err(DriveError::Io(libc::EINVAL)));
        }
        if changes && self.read_only {
            return Some(Err(DriveError::Io(libc::EROFS)));
        }
        (length == 0).then_some(Ok(()))
    }
}

fn serve_memory(memory: &Memory, op: DriveOp) {
    match op {
        DriveOp::Read { offset, mut into } => into.with_mut(|into| memory.read(offset, into)),
        DriveOp::Write { offset, from, .. } => from.with(|from| memory.write(offset, from)),
        DriveOp::WriteZeroes { offset, length } | DriveOp::Discard { offset, length } => {
            memory.zero(offset, length);
        }
        DriveOp::Flush => {}
    }
}

fn job_of(op: DriveOp, target: &Target) -> Job {
    match op {
        DriveOp::Read { offset, into } => Job::Read {
            offset,
            into,
            done: 0,
        },
        DriveOp::Write {
            offset,
            from,
            durable,
        } => Job::Write {
            offset,
            from,
            done: 0,
            durability: target.durability_of(durable),
        },
        DriveOp::WriteZeroes { offset, length } => Job::Zero {
            offset,
            length,
            way: target.zeroing,
            done: 0,
        },
        DriveOp::Discard { offset, length } => Job::Discard { offset, length },
        DriveOp::Flush => Job::Flush,
    }
}

fn intent_of(op: &DriveOp) -> Intent {
    match op {
        DriveOp::Read { offset, into } => Intent::Read(*offset, into.len() as u64),
        DriveOp::Write { offset, from, .. } => Intent::Write(*offset, from.len() as u64),
        DriveOp::WriteZeroes { offset, length } => Intent::Zero(*offset, *length),
        DriveOp::Discard { .. } | DriveOp::Flush => Intent::Other,
    }
}
