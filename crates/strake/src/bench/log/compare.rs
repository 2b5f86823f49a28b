//! Runs without and with the log, put beside each other.

use serde::Serialize;
use strake_reactor::drive::pace::PaceUse;

use crate::bench::load::{Load, Measured};

/// Busy this share of the time, the drives were the limit. (Not all of it: chance leaves one or the
/// other without work for a moment.)
const DRIVES_BUSY_MIN: f64 = 0.9;
/// Idle less than this share of the time, the core was.
const CORE_IDLE_MIN: f64 = 0.05;
/// More than this share of the core's time given to other threads spoils a run.
const TAKEN_AWAY_MAX: f64 = 0.05;

/// One run.
#[derive(Debug, Clone)]
pub struct Sample {
    block_bytes: u64,
    requests_per_second: f64,
    latency_us: f64,
    cpu_ns: f64,
    /// Share of the core's time.
    idle: f64,
    /// Share of the core's time that other threads had.
    taken_away: f64,
    /// Share of the drives' time, their mean.
    busy: f64,
    asked: Asked,
    rebuilt_per_second: Option<f64>,
}

/// What one request asked of all drives together. Nothing is known of memory drives.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Asked {
    drive_us: f64,
    reads: f64,
    random_writes: f64,
    contiguous_writes: f64,
    written_bytes: f64,
    flushes: f64,
}

/// The middle and the ends of several figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one; of two in the middle their mean.
    pub median: f64,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
}

/// All runs of one side.
#[derive(Debug, Serialize)]
pub struct Side {
    /// Requests a second.
    pub iops: Spread,
    /// Client bytes a second, in units of 1e9.
    pub gbps: Spread,
    /// Each run's median, in microseconds.
    pub latency_us: Spread,
    /// CPU nanoseconds a request.
    pub cpu_ns: Spread,
    /// Share of the core's time in which it had nothing to do.
    pub idle: Spread,
    /// Share of the core's time that other threads had.
    pub taken_away: Spread,
    /// Share of the drives' time in which they were busy.
    pub busy: Spread,
    /// What a request asked of the drives; the middle of all runs, figure by figure.
    pub asked: Asked,
}

/// What kept a run from being faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The drives: costs are shares of what they allow.
    Drives,
    /// Neither drives nor core: too few requests under way.
    Depth,
    /// The engine on its core.
    Core,
    /// Other programs on the core.
    Others,
}

/// Without and with the log.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Array.
    pub array: &'static str,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// Requests under way.
    pub depth: usize,
    /// Policy `none`.
    pub without: Side,
    /// The policy that is measured.
    pub with: Side,
    /// Requests a second that are lost, pair by pair.
    pub cost_percent: Spread,
    /// The same from the drives' time a request; none on memory drives.
    pub cost_of_drive_time_percent: Option<Spread>,
    /// Microseconds more at the median, pair by pair.
    pub latency_more_us: Spread,
    /// CPU nanoseconds more a request, pair by pair.
    pub cpu_more_ns: Spread,
    /// What it may cost.
    pub bar_percent: Option<f64>,
    /// What kept the slower side from being faster.
    pub limit: Limit,
}

impl Sample {
    /// The figures of one run.
    pub fn new(load: &Load, measured: &Measured) -> Sample {
        let seconds = measured.elapsed.as_secs_f64();
        let requests = measured.requests.max(1) as f64;
        let drives = measured.drives.len().max(1) as f64;
        let all_requests = measured.all_requests.max(1) as f64;
        let busy_ns = measured.drives.iter().map(|used| used.busy_ns);
        Sample {
            block_bytes: load.block_bytes,
            requests_per_second: measured.requests as f64 / seconds,
            latency_us: measured.latency_ns.value_at_quantile(0.5) as f64 / 1e3,
            cpu_ns: measured.cpu.as_nanos() as f64 / requests,
            idle: measured.idle.as_secs_f64() / seconds,
            taken_away: measured.taken_away.as_secs_f64() / seconds,
            busy: busy_ns.sum::<u64>() as f64 / 1e9 / seconds / drives,
            asked: Asked::of(&measured.all_drives, all_requests),
            rebuilt_per_second: measured.rebuilt_bytes.map(|bytes| bytes as f64 / seconds),
        }
    }
}

impl Sample {
    /// Requests a second.
    pub fn requests_per_second(&self) -> f64 {
        self.requests_per_second
    }

    /// Bytes a second of each member that was rebuilt meanwhile.
    pub fn rebuilt_per_second(&self) -> Option<f64> {
        self.rebuilt_per_second
    }
}

impl Asked {
    fn of(drives: &[PaceUse], requests: f64) -> Asked {
        let sum = |part: fn(&PaceUse) -> u64| drives.iter().map(part).sum::<u64>() as f64;
        Asked {
            drive_us: sum(|used| used.busy_ns) / 1e3 / requests,
            reads: sum(|used| used.reads) / requests,
            random_writes: sum(|used| used.random_writes) / requests,
            contiguous_writes: sum(|used| used.contiguous_writes) / requests,
            written_bytes: sum(|used| used.write_bytes) / requests,
            flushes: sum(|used| used.flushes) / requests,
        }
    }

    fn middle(samples: &[Sample]) -> Asked {
        let middle = |part: fn(&Asked) -> f64| {
            Spread::of(samples.iter().map(|sample| part(&sample.asked))).median
        };
        Asked {
            drive_us: middle(|asked| asked.drive_us),
            reads: middle(|asked| asked.reads),
            random_writes: middle(|asked| asked.random_writes),
            contiguous_writes: middle(|asked| asked.contiguous_writes),
            written_bytes: middle(|asked| asked.written_bytes),
            flushes: middle(|asked| asked.flushes),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        format!(
            "{:.2} reads, {:.2} random and {:.2} contiguous writes of {:.1} KiB together, {:.1} µs of drive time",
            self.reads,
            self.random_writes,
            self.contiguous_writes,
            self.written_bytes / 1024.0,
            self.drive_us
        )
    }
}

impl Spread {
    /// Of at least one figure.
    pub fn of(figures: impl Iterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        Spread {
            median: (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0,
            min: sorted[0],
            max: sorted[last],
        }
    }
}

impl Side {
    /// Of at least one run.
    pub fn new(samples: &[Sample]) -> Side {
        let spread = |part: fn(&Sample) -> f64| Spread::of(samples.iter().map(part));
        Side {
            iops: spread(|sample| sample.requests_per_second),
            gbps: spread(|sample| sample.requests_per_second * sample.block_bytes as f64 / 1e9),
            latency_us: spread(|sample| sample.latency_us),
            cpu_ns: spread(|sample| sample.cpu_ns),
            idle: spread(|sample| sample.idle),
            taken_away: spread(|sample| sample.taken_away),
            busy: spread(|sample| sample.busy),
            asked: Asked::middle(samples),
        }
    }

    /// What kept the runs from being faster.
    pub fn limit(&self) -> Limit {
        if self.busy.median >= DRIVES_BUSY_MIN {
            return Limit::Drives;
        }
        if self.taken_away.median > TAKEN_AWAY_MAX {
            return Limit::Others;
        }
        match self.idle.median < CORE_IDLE_MIN {
            true => Limit::Core,
            false => Limit::Depth,
        }
    }
}

impl Comparison {
    /// Pairs of runs, at least one; the two of a pair at the same place of both.
    pub fn new(
        array: &'static str,
        depth: usize,
        without: &[Sample],
        with: &[Sample],
    ) -> Comparison {
        let pairs = |part: fn(&Sample, &Sample) -> f64| {
            let both = without.iter().zip(with);
            Spread::of(both.map(|(without, with)| part(without, with)))
        };
        let of_drive_time = without[0].asked.drive_us > 0.0;
        let of_drive_time = of_drive_time.then(|| {
            // The time a request takes is one over the requests a second that the drives allow.
            pairs(|without, with| (1.0 - without.asked.drive_us / with.asked.drive_us) * 100.0)
        });
        let (without_side, with_side) = (Side::new(without), Side::new(with));
        Comparison {
            array,
            block_bytes: without[0].block_bytes,
            depth,
            cost_percent: pairs(|without, with| {
                (1.0 - with.requests_per_second / without.requests_per_second) * 100.0
            }),
            cost_of_drive_time_percent: of_drive_time,
            latency_more_us: pairs(|without, with| with.latency_us - without.latency_us),
            cpu_more_ns: pairs(|without, with| with.cpu_ns - without.cpu_ns),
            bar_percent: None,
            limit: without_side.limit().max(with_side.limit()),
            without: without_side,
            with: with_side,
        }
    }

    /// The drives were asked to write no more with the log than without (paced drives only).
    pub fn wrote_no_more(&self) -> bool {
        let (without, with) = (&self.without.asked, &self.with.asked);
        without.written_bytes > 0.0 && with.written_bytes < without.written_bytes * 1.001
    }

    /// Whether the bar is kept; `None` where there is none, or the drives were not the limit.
    pub fn holds(&self) -> Option<bool> {
        let bar = self.bar_percent.filter(|_| self.limit == Limit::Drives)?;
        Some(self.cost_percent.median <= bar)
    }
}

#[cfg(test)]
mod tests;
