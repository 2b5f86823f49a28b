//! The ring itself: entries in, answers out, sleep in between.
//!
//! Never more entries are with the kernel than the completion queue holds, so it cannot overflow;
//! who has more waits in the caller's backlog.

use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, Parameters, opcode, squeue, types};

use super::arena::FixedArena;
use crate::buffer::{Buffer, Inbound, Pool};

/// Files that the ring's table has room for (it may not exceed RLIMIT_NOFILE, commonly 1024); more
/// are named by descriptor.
const FILES_MAX: u32 = 512;
/// Completion queue entries per submission queue entry.
const CQ_FACTOR: u32 = 4;
/// Marks the read of the wake event among the answers.
const WAKE_MARK: u64 = u64::MAX;

/// An io_uring with its registered files and buffers.
pub(super) struct Uring {
    ring: IoUring,
    /// Entries handed over and not answered yet, the wake read not counted.
    in_kernel: u32,
    in_kernel_max: u32,
    /// Free places in the file table.
    file_places: Vec<u32>,
    pub(super) arena: FixedArena,
    /// While a read of the wake event is with the kernel, the memory that it goes to.
    wake_read: Option<Inbound>,
    wake_memory: Buffer,
    /// Keeps the registered arena mapped.
    _pool: Option<Pool>,
    answers: Vec<(u64, i32)>,
}

/// What a new ring could not have.
pub(super) type Notes = Vec<String>;

impl Uring {
    pub(super) fn new(entries: u32, pool: Option<Pool>) -> io::Result<(Uring, Notes)> {
        let mut notes = Notes::new();
        let ring = build(entries.clamp(8, 32768), &mut notes)?;
        Uring::around(ring, pool, notes)
    }

    /// As `new` on an older kernel.
    #[cfg(test)]
    pub(super) fn new_as(task_run: TaskRun, entries: u32) -> io::Result<(Uring, Notes)> {
        Uring::around(build_as(task_run, entries)?, None, Notes::new())
    }

    fn around(ring: IoUring, pool: Option<Pool>, mut notes: Notes) -> io::Result<(Uring, Notes)> {
        check_features(ring.params())?;
        let file_places = match ring.submitter().register_files_sparse(FILES_MAX) {
            Ok(()) => (0..FILES_MAX).rev().collect(),
            Err(error) => {
                notes.push(format!("files are not registered with io_uring: {error}"));
                Vec::new()
            }
        };
        let arena = pool.as_ref().map(FixedArena::of).unwrap_or_default();
        let arena = match register_arena(&ring, &arena) {
            Ok(()) => arena,
            Err(error) => {
                notes.push(format!(
                    "buffers are not registered with io_uring: {error}; raise LimitMEMLOCK"
                ));
                FixedArena::default()
            }
        };
        let answers = Vec::with_capacity(ring.params().cq_entries() as usize);
        let uring = Uring {
            in_kernel: 0,
            // One entry is the wake read's.
            in_kernel_max: ring.params().cq_entries() - 1,
            ring,
            file_places,
            arena,
            wake_read: None,
            wake_memory: Buffer::heap(8),
            _pool: pool,
            answers,
        };
        Ok((uring, notes))
    }

    /// As if the table were full.
    #[cfg(test)]
    pub(super) fn forget_file_places(&mut self) {
        self.file_places.clear();
    }

    pub(super) fn in_kernel(&self) -> u32 {
        self.in_kernel
    }

    /// Puts a file into the table. `None`: use its descriptor.
    pub(super) fn register_file(&mut self, fd: RawFd) -> Option<u32> {
        let place = self.file_places.pop()?;
        match self.ring.submitter().register_files_update(place, &[fd]) {
            Ok(_) => Some(place),
            Err(error) => {
                tracing::debug!(%error, "file is not registered");
                self.file_places.push(place);
                None
            }
        }
    }

    /// Takes a file out of the table.
    pub(super) fn unregister_file(&mut self, place: u32) {
        match self.ring.submitter().register_files_update(place, &[-1]) {
            Ok(_) => self.file_places.push(place),
            // The place stays taken, and the file open until the ring is gone.
            Err(error) => tracing::warn!(%error, "file is not taken out of the ring's table"),
        }
    }

    /// Queues an entry for the kernel, marked with `mark`. `false`: there is no room now.
    ///
    /// # Safety
    /// What the entry points to must stay valid, and untouched as its loans say, until an answer
    /// with this mark was reaped.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry, mark: u32) -> bool {
        if self.in_kernel == self.in_kernel_max {
            return false;
        }
        let entry = entry.user_data(u64::from(mark));
        // SAFETY: handed on to our caller.
        if !unsafe { self.push_entry(&entry) } {
            return false;
        }
        self.in_kernel += 1;
        true
    }

    /// # Safety
    /// As for [`Uring::push`].
    unsafe fn push_entry(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: handed on to our caller.
        if unsafe { self.ring.submission().push(entry) }.is_ok() {
            return true;
        }
        self.enter(None);
        // SAFETY: as above; the first push refused the entry, so it is in the queue once.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Gives queued entries to the kernel and lets it finish what it has; no system call when
    /// there is neither.
    pub(super) fn submit(&mut self) {
        let queue = self.ring.submission();
        debug_assert!(
            !queue.cq_overflow(),
            "`in_kernel_max` leaves room for every answer"
        );
        if queue.is_empty() && !queue.taskrun() {
            return;
        }
        drop(queue);
        self.enter(None);
    }

    /// As `submit`, then sleeps until there is an answer or `timeout_ns` is over (`None`: no
    /// limit). May return early.
    pub(super) fn sleep(&mut self, timeout_ns: Option<u64>) {
        self.enter(Some(timeout_ns));
    }

    /// Keeps a read of the wake event with the kernel. `false`: no room now, do not sleep.
    pub(super) fn arm_wake(&mut self, event: RawFd) -> bool {
        if self.wake_read.is_some() {
            return true;
        }
        let loan = self.wake_memory.lend_inbound(0..8);
        let read = opcode::Read::new(types::Fd(event), loan.as_ptr(), 8).build();
        // SAFETY: the loan is kept until the answer is reaped (`reap`), and the port's
        // drop waits for that.
        let pushed = unsafe { self.push_entry(&read.user_data(WAKE_MARK)) };
        if pushed {
            self.wake_read = Some(loan);
        }
        pushed
    }

    /// Takes what the kernel has answered, as marks and results.
    pub(super) fn reap(&mut self) -> Vec<(u64, i32)> {
        let mut answers = std::mem::take(&mut self.answers);
        let seen = self
            .ring
            .completion()
            .map(|cqe| (cqe.user_data(), cqe.result()));
        answers.extend(seen);
        if self.wake_read.is_some()
            && let Some(at) = answers.iter().position(|answer| answer.0 == WAKE_MARK)
        {
            answers.swap_remove(at);
            self.wake_read = None;
        }
        self.in_kernel -= answers.len() as u32;
        answers
    }

    /// Gives back the memory of `reap`'s answer.
    pub(super) fn reaped(&mut self, mut answers: Vec<(u64, i32)>) {
        answers.clear();
        self.answers = answers;
    }

    /// Whether the kernel has nothing of ours any more.
    pub(super) fn is_drained(&self) -> bool {
        self.in_kernel == 0 && self.wake_read.is_none()
    }

    /// `wait`: `None` not at all, `Some(limit)` for an answer.
    fn enter(&mut self, wait: Option<Option<u64>>) {
        let submitter = self.ring.submitter();
        let result = match wait {
            None => submitter.submit(),
            Some(None) => submitter.submit_and_wait(1),
            Some(Some(limit_ns)) => {
                let limit = types::Timespec::new()
                    .sec(limit_ns / 1_000_000_000)
                    .nsec((limit_ns % 1_000_000_000) as u32);
                submitter.submit_with_args(1, &types::SubmitArgs::new().timespec(&limit))
            }
        };
        let Err(error) = result else { return };
        match error.raw_os_error() {
            // Timeout, signal, or the kernel wants us to reap first: the caller comes again.
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => {}
            Some(libc::ENOMEM) => tracing::warn!("io_uring_enter: out of memory, trying again"),
            _ => panic!("io_uring_enter: {error}: the ring is used as no ring may be"),
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        assert!(
            self.is_drained() || std::thread::panicking(),
            "a ring is dropped while the kernel uses its memory"
        );
        // The kernel tears a closed ring down later; these take effect now, so that whoever
        // opens the drives next does not find them busy.
        let _ = self.ring.submitter().unregister_files();
        let _ = self.ring.submitter().unregister_buffers();
    }
}

/// When the kernel finishes an operation's work, best first.
#[derive(Debug, Clone, Copy)]
pub(super) enum TaskRun {
    /// When we ask for it (DEFER_TASKRUN, Linux 6.1).
    Deferred,
    /// At our next system call (COOP_TASKRUN, Linux 5.19).
    Cooperative,
    /// At once, by interrupting us.
    Interrupting,
}

/// Makes the ring in the best way that the kernel has.
fn build(entries: u32, notes: &mut Notes) -> io::Result<IoUring> {
    if let Ok(ring) = build_as(TaskRun::Deferred, entries) {
        return Ok(ring);
    }
    notes.push("io_uring without DEFER_TASKRUN (Linux 6.1): more CPU per operation".into());
    if let Ok(ring) = build_as(TaskRun::Cooperative, entries) {
        return Ok(ring);
    }
    build_as(TaskRun::Interrupting, entries).map_err(|error| {
        let hint = match error.raw_os_error() {
            Some(libc::EPERM) => "; allow it: sysctl kernel.io_uring_disabled=0",
            Some(libc::ENOSYS) => "; Strake needs Linux 5.15 or newer with io_uring",
            Some(libc::ENOMEM) => "; raise LimitMEMLOCK",
            _ => "",
        };
        io::Error::new(error.kind(), format!("io_uring_setup: {error}{hint}"))
    })
}

fn build_as(task_run: TaskRun, entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_clamp()
        .setup_cqsize(entries * CQ_FACTOR);
    match task_run {
        TaskRun::Deferred => builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag(),
        TaskRun::Cooperative => builder.setup_coop_taskrun().setup_taskrun_flag(),
        TaskRun::Interrupting => &mut builder,
    };
    builder.build(entries)
}

fn check_features(params: &Parameters) -> io::Result<()> {
    if params.is_feature_ext_arg() && params.is_feature_nodrop() {
        return Ok(());
    }
    let text = "io_uring is too old (no EXT_ARG): Strake needs Linux 5.15 or newer";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

fn register_arena(ring: &IoUring, arena: &FixedArena) -> io::Result<()> {
    let pieces = arena.pieces();
    if pieces.is_empty() {
        return Ok(());
    }
    // SAFETY: the pieces lie in the pool's arena, which is mapped as long as the `Uring`'s
    // handle on the pool lives, and that is dropped after the buffers are unregistered.
    unsafe { ring.submitter().register_buffers(&pieces) }
}
