//! A volume in memory that completes requests on another thread, in random order.
//!
//! It trusts nobody: a request that breaks the device's contract is counted as a violation, and
//! so is a completion that would come twice or never.

#![allow(dead_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use strake_engine::block::{BlockDevice, BlockError, BlockInfo, BlockRequest, Operation};
use strake_reactor::buffer::Buffer;

/// How the mock answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// On another thread, in random order.
    Shuffled,
    /// Within `submit`.
    Inline,
}

/// How often each operation was asked for.
#[derive(Debug, Default)]
pub struct Counts {
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub durable: AtomicU64,
    pub flushes: AtomicU64,
    pub discards: AtomicU64,
    pub zeroings: AtomicU64,
    pub violations: AtomicU64,
    pub longest: AtomicU64,
}

struct Inner {
    info: BlockInfo,
    content: Mutex<Vec<u8>>,
    queue: Mutex<Queue>,
    changed: Condvar,
    counts: Counts,
    /// While set, nothing completes.
    held: AtomicBool,
    /// Every request that touches a block in here fails.
    bad: Mutex<Option<(std::ops::Range<u64>, BlockError)>>,
    mode: Mode,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<BlockRequest<Buffer>>,
    stopped: bool,
}

/// The volume; dropping it completes what waits and joins its thread.
pub struct Mock {
    inner: Arc<Inner>,
    worker: Option<JoinHandle<()>>,
}

/// 4 KiB blocks, 64 KiB strips, 4 + 1 members, requests up to 4 MiB.
pub fn info(size_bytes: u64) -> BlockInfo {
    BlockInfo {
        name: "mock".into(),
        size_bytes,
        block_size_bytes: 4096,
        strip_size_bytes: 65536,
        stripe_data_bytes: 4 * 65536,
        max_request_bytes: 4 << 20,
        read_only: false,
    }
}

impl Mock {
    pub fn new(info: BlockInfo, mode: Mode) -> Arc<Mock> {
        let inner = Arc::new(Inner {
            content: Mutex::new(vec![0; info.size_bytes as usize]),
            queue: Mutex::default(),
            changed: Condvar::new(),
            counts: Counts::default(),
            held: AtomicBool::new(false),
            bad: Mutex::new(None),
            mode,
            info,
        });
        let worker = (mode == Mode::Shuffled).then(|| {
            let inner = Arc::clone(&inner);
            std::thread::spawn(move || inner.work())
        });
        Arc::new(Mock { inner, worker })
    }

    /// A shuffling volume of the usual shape.
    pub fn of(size_bytes: u64) -> Arc<Mock> {
        Mock::new(info(size_bytes), Mode::Shuffled)
    }

    pub fn counts(&self) -> &Counts {
        &self.inner.counts
    }

    pub fn violations(&self) -> u64 {
        self.inner.counts.violations.load(Ordering::SeqCst)
    }

    pub fn content(&self) -> Vec<u8> {
        self.inner.content.lock().unwrap().clone()
    }

    pub fn fill(&self, seed: u64) {
        fastrand::Rng::with_seed(seed).fill(&mut self.inner.content.lock().unwrap());
    }

    /// From now on requests that touch `range` fail.
    pub fn set_bad(&self, range: std::ops::Range<u64>, error: BlockError) {
        *self.inner.bad.lock().unwrap() = Some((range, error));
    }

    pub fn hold(&self) {
        self.inner.held.store(true, Ordering::SeqCst);
    }

    pub fn release(&self) {
        self.inner.held.store(false, Ordering::SeqCst);
        self.inner.changed.notify_all();
    }

    /// Requests submitted and not yet completed.
    pub fn waiting(&self) -> usize {
        self.inner.queue.lock().unwrap().waiting.len()
    }

    /// Waits until `condition` holds, at most ten seconds.
    pub fn wait_until(&self, what: &str, condition: impl Fn(&Mock) -> bool) {
        for _ in 0..2000 {
            if condition(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("waited ten seconds for: {what}");
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.release();
        self.inner.queue.lock().unwrap().stopped = true;
        self.inner.changed.notify_all();
        if let Some(worker) = self.worker.take()
            && worker.thread().id() != std::thread::current().id()
        {
            worker.join().expect("the mock's thread ends well");
        }
    }
}

impl BlockDevice<Buffer> for Mock {
    fn info(&self) -> BlockInfo {
        self.inner.info.clone()
    }

    fn submit(&self, request: BlockRequest<Buffer>) {
        self.inner.count(&request);
        if self.inner.mode == Mode::Inline {
            return self.inner.complete(request);
        }
        self.inner.queue.lock().unwrap().waiting.push(request);
        self.inner.changed.notify_all();
    }
}

impl Inner {
    fn count(&self, request: &BlockRequest<Buffer>) {
        let counter = match request.operation {
            Operation::Read => &self.counts.reads,
            Operation::Write => &self.counts.writes,
            Operation::Flush => &self.counts.flushes,
            Operation::Discard => &self.counts.discards,
            Operation::WriteZeroes => &self.counts.zeroings,
        };
        counter.fetch_add(1, Ordering::SeqCst);
        self.counts
            .longest
            .fetch_max(request.length, Ordering::SeqCst);
        if request.durable {
            self.counts.durable.fetch_add(1, Ordering::SeqCst);
        }
        if !self.keeps_contract(request) {
            self.counts.violations.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn keeps_contract(&self, request: &BlockRequest<Buffer>) -> bool {
        let block = u64::from(self.info.block_size_bytes);
        let holds = |length| match &request.buffer {
            Some(buffer) => buffer.len() as u64 >= length,
            None => false,
        };
        let shaped = match request.operation {
            Operation::Read => holds(request.length) && request.length > 0,
            Operation::Write => holds(request.length) && request.length > 0,
            Operation::Flush => request.length == 0 && request.buffer.is_none(),
            Operation::Discard | Operation::WriteZeroes => request.buffer.is_none(),
        };
        let changes = !matches!(request.operation, Operation::Read | Operation::Flush);
        shaped
            && request.offset.is_multiple_of(block)
            && request.length.is_multiple_of(block)
            && request.length <= u64::from(self.info.max_request_bytes)
            && request.offset + request.length <= self.info.size_bytes
            && (!changes || !self.info.read_only)
    }

    fn work(&self) {
        let mut random = fastrand::Rng::with_seed(42);
        while let Some(request) = self.pick(&mut random) {
            self.complete(request);
        }
    }

    fn pick(&self, random: &mut fastrand::Rng) -> Option<BlockRequest<Buffer>> {
        let mut queue = self.queue.lock().unwrap();
        loop {
            if !queue.waiting.is_empty() && !self.held.load(Ordering::SeqCst) {
                let index = random.usize(..queue.waiting.len());
                return Some(queue.waiting.swap_remove(index));
            }
            if queue.stopped && queue.waiting.is_empty() {
                return None;
            }
            queue = self.changed.wait(queue).unwrap();
        }
    }

    fn complete(&self, mut request: BlockRequest<Buffer>) {
        let result = self.execute(&mut request);
        (request.done)(result, request.buffer);
    }

    fn execute(&self, request: &mut BlockRequest<Buffer>) -> Result<(), BlockError> {
        let range = request.offset..request.offset + request.length;
        if let Some((bad, error)) = &*self.bad.lock().unwrap()
            && range.start < bad.end
            && bad.start < range.end
        {
            return Err(*error);
        }
        if range.end > self.info.size_bytes {
            return Err(BlockError::OutOfRange);
        }
        let length = request.length as usize;
        let mut content = self.content.lock().unwrap();
        let content = &mut content[range.start as usize..range.end as usize];
        match request.operation {
            Operation::Read => {
                let buffer = request.buffer.as_mut().expect("a read has a buffer");
                buffer.as_mut_slice()[..length].copy_from_slice(content);
            }
            Operation::Write => {
                let buffer = request.buffer.as_ref().expect("a write has a buffer");
                content.copy_from_slice(&buffer.as_slice()[..length]);
            }
            Operation::Flush => {}
            Operation::Discard | Operation::WriteZeroes => content.fill(0),
        }
        Ok(())
    }
}
