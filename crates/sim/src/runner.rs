//! Runs plans and seeds, on several threads, and says which failed and how to run them again.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use strake_engine::layout::Level;

use crate::execute::{self, Summary};
use crate::generate::{self, Kind};
use crate::plan::Plan;

thread_local! {
    /// What the last panic of this thread said, and where.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Panics are kept for the report instead of printed: a shrinking run panics a thousand times.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !RUNNING.get() {
                return loud(panic);
            }
            let place = panic.location().map(ToString::to_string);
            let text = panic.payload_as_str().unwrap_or("panic");
            let text = format!("panicked: {text} ({})", place.unwrap_or_default());
            PANIC.with(|kept| *kept.borrow_mut() = text);
        }));
    });
}

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Carries something out; a panic of the program under test is a failure like any other.
///
/// # Errors
/// What went wrong.
pub fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    quiet_panics();
    RUNNING.set(true);
    let result = std::panic::catch_unwind(AssertUnwindSafe(run));
    RUNNING.set(false);
    result.unwrap_or_else(|_| Err(PANIC.with(|kept| std::mem::take(&mut *kept.borrow_mut()))))
}

/// Carries a plan out.
///
/// # Errors
/// What went wrong.
pub fn execute(plan: &Plan) -> Result<Summary, String> {
    guarded(|| execute::run(plan))
}

/// Runs one seed.
///
/// # Errors
/// What went wrong.
pub fn one(seed: u64, kind: Kind, level: Option<Level>) -> Result<Summary, String> {
    execute(&generate::plan(seed, kind, level))
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Runs {
    /// Seeds.
    pub seeds: Range<u64>,
    /// Of which kind.
    pub kind: Kind,
    /// Of this level only.
    pub level: Option<Level>,
    /// Threads.
    pub threads: usize,
    /// Failures after which no further seed is begun.
    pub failures_max: usize,
}

impl Runs {
    /// These seeds on every core.
    pub fn of(seeds: Range<u64>, kind: Kind) -> Runs {
        Runs {
            seeds,
            kind,
            level: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            failures_max: 10,
        }
    }

    /// What `replay` must be told besides a seed, to make the same plan of it.
    fn words(&self) -> String {
        let kind = match self.kind {
            Kind::Mixed => "",
            Kind::Small => " --small",
            Kind::Long => " --long",
        };
        let level = self.level.map(|level| format!(" --level {}", level.name()));
        kind.to_owned() + &level.unwrap_or_default()
    }
}

/// What many seeds made.
#[derive(Debug, Default)]
pub struct Total {
    /// Seeds run.
    pub seeds: u64,
    /// Requests answered.
    pub requests: u64,
    /// Operations on drives.
    pub operations: u64,
    /// Crashes.
    pub crashes: u64,
    /// Blocks found torn, where that is allowed.
    pub torn: u64,
    /// Virtual time.
    pub virtual_time: Duration,
    /// Real time.
    pub real_time: Duration,
    /// Seeds that failed, with why.
    pub failures: Vec<(u64, String)>,
    /// What `replay` must be told besides a seed.
    pub again: String,
}

/// Runs seeds, each on one of the threads.
pub fn many(runs: &Runs) -> Total {
    let began = Instant::now();
    let next = AtomicU64::new(runs.seeds.start);
    let failed = AtomicUsize::new(0);
    let total = Mutex::new(Total::default());
    let work = || {
        let mut own = Total::default();
        while failed.load(Ordering::Relaxed) < runs.failures_max {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= runs.seeds.end {
                break;
            }
            own.add(seed, one(seed, runs.kind, runs.level));
            failed.fetch_add(own.failures.len(), Ordering::Relaxed);
            total.lock().expect("adding does not panic").join(&mut own);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..runs.threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut total = total.into_inner().expect("all threads have ended");
    total.failures.sort();
    total.real_time = began.elapsed();
    total.again = runs.words();
    total
}

impl Total {
    fn add(&mut self, seed: u64, result: Result<Summary, String>) {
        self.seeds += 1;
        match result {
            Ok(summary) => {
                self.requests += summary.requests;
                self.operations += summary.operations;
                self.crashes += summary.crashes;
                self.torn += summary.torn;
                self.virtual_time += Duration::from_nanos(summary.virtual_ns);
            }
            Err(why) => self.failures.push((seed, why)),
        }
    }

    fn join(&mut self, other: &mut Total) {
        let other = std::mem::take(other);
        self.seeds += other.seeds;
        self.requests += other.requests;
        self.operations += other.operations;
        self.crashes += other.crashes;
        self.torn += other.torn;
        self.virtual_time += other.virtual_time;
        self.failures.extend(other.failures);
    }
}

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (seed, why) in &self.failures {
            writeln!(
                f,
                "seed {seed}: {why}\n  again: strake-sim replay {seed}{}",
                self.again
            )?;
        }
        let real = self.real_time.as_secs_f64();
        write!(
            f,
            "{} seeds, {} requests, {} drive operations, {} crashes, {} torn blocks, {:.0} s of virtual time in {real:.1} s ({:.0} seeds/min), {} failures",
            self.seeds,
            self.requests,
            self.operations,
            self.crashes,
            self.torn,
            self.virtual_time.as_secs_f64(),
            self.seeds as f64 * 60.0 / real.max(1e-9),
            self.failures.len()
        )
    }
}
