//! The pace of a real drive, as arithmetic: when an operation that begins now would end.
//!
//! A drive is one timeline. An operation takes max(bytes ÷ bandwidth of its kind, 1 ÷ IOPS of its
//! kind) of it, after everything that was asked for before; its latency is that, the wait for its
//! turn, and a base by kind. A write that goes on where an earlier one ended is counted by bytes
//! alone: drives gather sequential writes, and a ring that is written over and over leaves nothing
//! behind to be moved. Zeroing and discarding count as one random write, whatever their length. A
//! flush waits for its turn and its base latency and takes nothing: the drives meant here have
//! power-loss protection. Of 10,000 operations 90 take one and a half times the base latency, 9 three
//! times and one eight times: a tail, always the same.
//!
//! What is left out: garbage collection, reads that wait for a die that is being written, and what
//! a drive's own queues reorder. So shares and ratios can be taken from it, absolute figures not.
//!
//! Pure: the time is given, nothing is done. [`super::paced`] keeps the pace.

#[cfg(test)]
mod tests;

/// A drive's figures.
#[derive(Debug)]
struct Figures {
    /// As specs name it.
    name: &'static str,
    /// As people do.
    title: &'static str,
    read: Rate,
    write: Rate,
}

/// One kind of operation.
#[derive(Debug)]
struct Rate {
    bytes_per_second: u64,
    operations_per_second: u64,
    latency_ns: u64,
}

/// Known drives.
///
/// - `cm7`: 14 / 6.75 GB/s and 2.7 / 0.7 M IOPS, the figures that the parity log's bars were set by;
///   the write latency is that of a write into a protected cache.
/// - `cd8p`: bandwidths as eight of them were measured with raw requests in a published MLPerf Storage
///   set-up (83.4 / 45.3 GB/s together); IOPS of the CD8P-R 7.68 TB by its maker's product page;
///   latencies of its forerunner CD7, for none of its own are published.
/// - `7450`: PRO 7.68 TB, its maker's figures; the random writes as listed by a shop, the maker's
///   400 K being the larger over-provisioned model's.
/// - `p5336`: 61.44 TB, its maker's figures; random writes are of its indirection unit of 16 KiB,
///   and a smaller one costs as much (a larger one, by bytes alone, less than in life); latencies
///   of the 122.88 TB model.
const FIGURES: [Figures; 4] = [
    Figures {
        name: "cm7",
        title: "KIOXIA CM7",
        read: Rate {
            bytes_per_second: 14_000_000_000,
            operations_per_second: 2_700_000,
            latency_ns: 65_000,
        },
        write: Rate {
            bytes_per_second: 6_750_000_000,
            operations_per_second: 700_000,
            latency_ns: 12_000,
        },
    },
    Figures {
        name: "cd8p",
        title: "KIOXIA CD8P",
        read: Rate {
            bytes_per_second: 10_400_000_000,
            operations_per_second: 2_000_000,
            latency_ns: 75_000,
        },
        write: Rate {
            bytes_per_second: 5_660_000_000,
            operations_per_second: 200_000,
            latency_ns: 14_000,
        },
    },
    Figures {
        name: "7450",
        title: "Micron 7450 PRO",
        read: Rate {
            bytes_per_second: 6_800_000_000,
            operations_per_second: 1_000_000,
            latency_ns: 80_000,
        },
        write: Rate {
            bytes_per_second: 5_600_000_000,
            operations_per_second: 180_000,
            latency_ns: 15_000,
        },
    },
    Figures {
        name: "p5336",
        title: "Solidigm D5-P5336",
        read: Rate {
            bytes_per_second: 7_000_000_000,
            operations_per_second: 1_005_000,
            latency_ns: 110_000,
        },
        write: Rate {
            bytes_per_second: 3_300_000_000,
            operations_per_second: 38_000,
            latency_ns: 40_000,
        },
    },
];

/// Slower than that, a drive would be none.
const DIVISOR_MAX: u32 = 10_000;

/// A drive's model, possibly slowed down: `cm7`, or `cm7/16` for a sixteenth of its bandwidth and
/// IOPS. Base latencies are not slowed.
#[derive(Debug, Clone, Copy)]
pub struct PaceModel {
    figures: &'static Figures,
    divisor: u32,
}

impl PaceModel {
    /// Takes the text apart; fails with a sentence about what is accepted.
    pub fn parse(text: &str) -> Result<PaceModel, String> {
        let (name, divisor) = text.split_once('/').unwrap_or((text, "1"));
        let known = || FIGURES.map(|figures| figures.name).join(", ");
        let figures = FIGURES.iter().find(|figures| figures.name == name);
        let figures = figures.ok_or_else(|| {
            format!(
                "{name:?} is not a model whose pace is known; known: {}",
                known()
            )
        })?;
        match divisor.parse() {
            Ok(divisor @ 1..=DIVISOR_MAX) => Ok(PaceModel { figures, divisor }),
            _ => Err(format!(
                "{text:?}: give a whole number from 1 to {DIVISOR_MAX} after the slash, like {name}/16"
            )),
        }
    }

    /// Nanoseconds of the drive's timeline that a read of so many bytes takes.
    pub fn read_ns(&self, bytes: u64) -> f64 {
        let cost = Cost::of(&self.figures.read, self.divisor);
        cost.bytes_ps(bytes).max(cost.operation_ps) as f64 / 1e3
    }

    /// Nanoseconds of the drive's timeline that a write of so many bytes takes. `contiguous`: it
    /// goes on where another ended.
    pub fn write_ns(&self, bytes: u64, contiguous: bool) -> f64 {
        let cost = Cost::of(&self.figures.write, self.divisor);
        let least_ps = if contiguous { 0 } else { cost.operation_ps };
        cost.bytes_ps(bytes).max(least_ps) as f64 / 1e3
    }

    /// Nanoseconds, on the mean, that a read takes beside its part of the timeline.
    pub fn read_latency_ns(&self) -> f64 {
        self.figures.read.latency_ns as f64 * TAIL_MEAN
    }

    /// Nanoseconds, on the mean, that a write takes beside its part of the timeline.
    pub fn write_latency_ns(&self) -> f64 {
        self.figures.write.latency_ns as f64 * TAIL_MEAN
    }

    /// For people: whose pace, and its figures.
    pub(crate) fn describe(&self) -> String {
        let part = match self.divisor {
            1 => String::new(),
            divisor => format!(", slowed {divisor} times"),
        };
        let Figures {
            title, read, write, ..
        } = self.figures;
        let giga = |rate: &Rate| rate.bytes_per_second as f64 / 1e9;
        let mega = |rate: &Rate| rate.operations_per_second as f64 / 1e6;
        let micro = |rate: &Rate| rate.latency_ns / 1000;
        format!(
            "keeps the pace of {title}{part}: {} / {} GB/s, {} / {} M IOPS, {} / {} µs (read / write)",
            giga(read),
            giga(write),
            mega(read),
            mega(write),
            micro(read),
            micro(write)
        )
    }
}

impl std::fmt::Display for PaceModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.divisor {
            1 => f.write_str(self.figures.name),
            divisor => write!(f, "{}/{divisor}", self.figures.name),
        }
    }
}

impl PartialEq for PaceModel {
    fn eq(&self, other: &PaceModel) -> bool {
        (self.figures.name, self.divisor) == (other.figures.name, other.divisor)
    }
}

impl Eq for PaceModel {}

/// What an operation is, as far as its pace goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaceKind {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Zeroes or discards a range.
    Unmap,
    /// Makes what was written durable.
    Flush,
}

/// What was asked of a paced drive since it came into being.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PaceUse {
    /// Nanoseconds of the drive's timeline that were given out.
    pub busy_ns: u64,
    /// Reads, and their bytes.
    pub reads: u64,
    /// Bytes of `reads`.
    pub read_bytes: u64,
    /// Writes counted as random, zeroing and discards among them.
    pub random_writes: u64,
    /// Writes that continued an earlier one.
    pub contiguous_writes: u64,
    /// Bytes of all writes.
    pub write_bytes: u64,
    /// Flushes.
    pub flushes: u64,
}

impl PaceUse {
    /// What came since `earlier`, which is of the same drive.
    pub fn since(&self, earlier: &PaceUse) -> PaceUse {
        PaceUse {
            busy_ns: self.busy_ns - earlier.busy_ns,
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            random_writes: self.random_writes - earlier.random_writes,
            contiguous_writes: self.contiguous_writes - earlier.contiguous_writes,
            write_bytes: self.write_bytes - earlier.write_bytes,
            flushes: self.flushes - earlier.flushes,
        }
    }
}

/// A drive's timeline.
#[derive(Debug)]
pub struct Pace {
    read: Cost,
    write: Cost,
    free: Instant,
    streams: Streams,
    used: PaceUse,
    used_ps: u64,
    admitted: u64,
}

/// What one kind of operation takes.
#[derive(Debug)]
struct Cost {
    /// Picoseconds for 4096 bytes.
    page_ps: u64,
    /// Picoseconds at least, unless contiguous.
    operation_ps: u64,
    latency_ns: u64,
}

impl Cost {
    fn of(rate: &Rate, divisor: u32) -> Cost {
        let divisor = u64::from(divisor);
        // 4096 bytes × 1e12 ps × 10000 is beyond 64 bits.
        let page_ps = 4096 * 1_000_000_000_000 * u128::from(divisor);
        Cost {
            page_ps: (page_ps / u128::from(rate.bytes_per_second)) as u64,
            operation_ps: 1_000_000_000_000 * divisor / rate.operations_per_second,
            latency_ns: rate.latency_ns,
        }
    }

    fn bytes_ps(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.page_ps) / 4096) as u64
    }
}

/// The base latency of the operation of this number, some of which take longer.
fn tail_ns(number: u64, latency_ns: u64) -> u64 {
    // Spread evenly, and without a pattern that a load could fall in step with.
    let drawn = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 10_000;
    match drawn {
        0 => latency_ns * 8,
        1..=9 => latency_ns * 3,
        10..=99 => latency_ns * 3 / 2,
        _ => latency_ns,
    }
}

/// Mean of what [`tail_ns`] gives, by the base latency.
const TAIL_MEAN: f64 = 0.99 + 0.009 * 1.5 + 0.0009 * 3.0 + 0.0001 * 8.0;

/// A point of time to the picosecond, so that rounding does not add up over millions of operations.
#[derive(Debug, Clone, Copy, Default)]
struct Instant {
    ns: u64,
    /// Below 1000.
    ps: u64,
}

impl Pace {
    /// A drive that has nothing to do.
    pub fn new(model: PaceModel) -> Pace {
        let PaceModel { figures, divisor } = model;
        Pace {
            read: Cost::of(&figures.read, divisor),
            write: Cost::of(&figures.write, divisor),
            free: Instant::default(),
            streams: Streams::new(),
            used: PaceUse::default(),
            used_ps: 0,
            admitted: 0,
        }
    }

    /// Takes an operation in at `now_ns` (cores that share a drive may differ a little); says when it ends. `offset` and
    /// `bytes` mean nothing for a flush.
    pub fn admit(&mut self, now_ns: u64, kind: PaceKind, offset: u64, bytes: u64) -> u64 {
        let (taken_ps, latency_ns) = match kind {
            PaceKind::Read => {
                self.used.reads += 1;
                self.used.read_bytes += bytes;
                let taken_ps = self.read.bytes_ps(bytes).max(self.read.operation_ps);
                (taken_ps, self.read.latency_ns)
            }
            PaceKind::Write => (self.write_ps(offset, bytes), self.write.latency_ns),
            PaceKind::Unmap => {
                self.used.random_writes += 1;
                (self.write.operation_ps, self.write.latency_ns)
            }
            PaceKind::Flush => {
                self.used.flushes += 1;
                (0, self.write.latency_ns)
            }
        };
        self.used_ps += taken_ps;
        self.admitted += 1;
        self.take(now_ns, taken_ps) + tail_ns(self.admitted, latency_ns)
    }

    /// What was asked of the drive so far.
    pub fn used(&self) -> PaceUse {
        PaceUse {
            busy_ns: self.used_ps / 1000,
            ..self.used
        }
    }

    fn write_ps(&mut self, offset: u64, bytes: u64) -> u64 {
        self.used.write_bytes += bytes;
        let by_bytes = self.write.bytes_ps(bytes);
        if self.streams.continues(offset, offset.saturating_add(bytes)) {
            self.used.contiguous_writes += 1;
            return by_bytes;
        }
        self.used.random_writes += 1;
        by_bytes.max(self.write.operation_ps)
    }

    /// Takes so much of the timeline; returns when that is over.
    fn take(&mut self, now_ns: u64, taken_ps: u64) -> u64 {
        if self.free.ns < now_ns {
            self.free = Instant { ns: now_ns, ps: 0 };
        }
        let ps = self.free.ps + taken_ps;
        self.free.ns += ps / 1000;
        self.free.ps = ps % 1000;
        self.free.ns
    }
}

/// Streams that a drive goes on to gather, however many other writes are between.
const STREAMS: usize = 8;
/// Latest writes of which any may turn out to be the beginning of a stream.
const RECENT: usize = 64;
/// The end of no write: nothing begins there.
const NOWHERE: u64 = u64::MAX;

/// Where earlier writes ended. A write that continued another is a stream and keeps its place among
/// random writes until eight newer streams have come; a write that nothing continued yet keeps it for
/// 64 others.
#[derive(Debug)]
struct Streams {
    /// Latest first.
    ends: [u64; STREAMS],
    recent: [u64; RECENT],
    recent_next: usize,
}

impl Streams {
    fn new() -> Streams {
        Streams {
            ends: [NOWHERE; STREAMS],
            recent: [NOWHERE; RECENT],
            recent_next: 0,
        }
    }

    /// Whether the write of `offset..end` continues another.
    fn continues(&mut self, offset: u64, end: u64) -> bool {
        if let Some(at) = self.ends.iter().position(|&end| end == offset) {
            self.ends[..=at].rotate_right(1);
        } else if let Some(at) = self.recent.iter().position(|&end| end == offset) {
            self.recent[at] = NOWHERE;
            self.ends.rotate_right(1);
        } else {
            self.recent[self.recent_next] = end;
            self.recent_next = (self.recent_next + 1) % RECENT;
            return false;
        }
        self.ends[0] = end;
        true
    }
}
