//! The plan of a seed: an array, and what happens to it.
//!
//! Swarm testing (Groce and others, ISSTA 2012): each run draws which operations and faults it has
//! at all, and how often each comes, so that rare combinations are not drowned by the common ones.

use std::ops::Range;

use fastrand::Rng;
use strake_engine::format::Extent;
use strake_engine::format::superblock::Consistency;
use strake_engine::layout::{Geometry, Level};

use crate::drive::Discarded;
use crate::geometries;
use crate::import::Sizes;
use crate::plan::{Plan, Step};
use crate::rig::Setup;

/// Kinds of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 1 to 40 requests, most of them to one or two rows.
    Small,
    /// 40 to 300 requests to larger arrays, and every fault healed at the end.
    Long,
    /// Mostly small, some long.
    Mixed,
}

/// One in so many mixed runs is long.
const LONG_EVERY: u64 = 50;
/// Members of the arrays of small runs at most.
const SMALL_MEMBERS_MAX: usize = 8;

/// The plan of a seed.
pub fn plan(seed: u64, kind: Kind, level: Option<Level>) -> Plan {
    let mut rng = Rng::with_seed(seed);
    let long = match kind {
        Kind::Small => false,
        Kind::Long => true,
        Kind::Mixed => seed % LONG_EVERY == LONG_EVERY - 1,
    };
    let setup = setup(&mut rng, long, level);
    let seed = rng.u64(..);
    let mut writer = Writer::new(&mut rng, setup, long);
    writer.all();
    let steps = writer.steps;
    Plan { seed, setup, steps }
}

fn setup(rng: &mut Rng, long: bool, level: Option<Level>) -> Setup {
    let members_max = if long || level.is_some() {
        usize::MAX
    } else {
        SMALL_MEMBERS_MAX
    };
    let mut shape = geometries::random(rng, level, members_max);
    if !long {
        shape.strip_size_bytes = [4 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10][rng.usize(..5)];
    }
    let region_bytes = (if long { 256 << 10 } else { 64 << 10 }).max(shape.strip_size_bytes);
    let log_bytes = [64 << 10, 128 << 10, 256 << 10, 1 << 20][rng.usize(..4)]
        .max(strake_engine::format::log::area_bytes_min(&shape));
    let sizes = Sizes {
        regions: if long { rng.u64(3..=6) } else { rng.u64(1..=3) },
        region_bytes,
        log_bytes,
    };
    let volatile = match rng.u8(..5) {
        0 | 1 => 0,
        2 | 3 => u64::MAX,
        _ => rng.u64(..),
    };
    Setup {
        shape,
        sizes,
        policy: match rng.u8(..20) {
            _ if shape.parity == 0 => Consistency::None,
            0 => Consistency::None,
            1..5 => Consistency::Resync,
            5..8 => Consistency::LogAll,
            _ => Consistency::Log,
        },
        sector_bytes: if rng.u8(..4) == 0 {
            512
        } else {
            shape.block_size_bytes
        },
        volatile,
        discarded: [Discarded::Old, Discarded::Zeroes, Discarded::Garbage][rng.usize(..3)],
        slowness: if long && rng.u8(..5) == 0 {
            rng.u64(20..300)
        } else {
            1
        },
        orderly: rng.u8(..8) == 0,
        memory_bytes: [512 << 10, 2 << 20][rng.usize(..2)].max(if long { 1 << 20 } else { 0 }),
        cores: [1, 1, 2, 3][rng.usize(..4)],
    }
}

/// What a run can do, beside writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Read,
    Zero,
    Discard,
    DiscardRegion,
    Flush,
    Pause,
    Quiesce,
    Idle,
    Verify,
    Fail,
    Remove,
    Replace,
    Scrub,
    Priority,
    Policy,
    Accept,
    Die,
    DieSoon,
    BadReads,
    BadLog,
    RotLog,
    BadSuperblock,
    BadWrites,
    Rot,
    LoseWrite,
    Misdirect,
    Misread,
    Hang,
    Slow,
    Restart,
    Crash,
    Clone,
    /// A member dies under writes and is back after the crash.
    LostAndBack,
    /// A member is being refilled at the crash.
    RefillAndCrash,
    /// A start that may have to tear blocks is cut off.
    TearAndCrash,
    /// The power goes soon after writes that were durable when they ended.
    DurableAndCrash,
    /// A write misses a parity that is refilled before the crash.
    MissedAndCrash,
    /// A region is given up under reads.
    DiscardUnderReads,
    /// Writes go forward through the volume.
    Stream,
}

/// What can happen, how often where it happens at all, and out of ten runs in how many.
const ACTS: [(Act, u32, u8); 39] = [
    (Act::Read, 20, 7),
    (Act::Zero, 8, 4),
    (Act::Discard, 8, 3),
    (Act::DiscardRegion, 4, 2),
    (Act::Flush, 14, 6),
    (Act::Pause, 60, 9),
    (Act::Quiesce, 12, 7),
    (Act::Idle, 5, 3),
    (Act::Verify, 4, 5),
    (Act::Fail, 5, 4),
    (Act::Remove, 3, 2),
    (Act::Replace, 8, 5),
    (Act::Scrub, 4, 2),
    (Act::Priority, 2, 1),
    (Act::Policy, 5, 2),
    (Act::Accept, 3, 2),
    (Act::Die, 3, 3),
    (Act::DieSoon, 4, 3),
    (Act::BadReads, 5, 3),
    (Act::BadLog, 4, 4),
    (Act::RotLog, 4, 4),
    (Act::BadSuperblock, 2, 1),
    (Act::BadWrites, 3, 2),
    (Act::Rot, 3, 1),
    (Act::LoseWrite, 3, 1),
    (Act::Misdirect, 3, 1),
    (Act::Misread, 3, 1),
    (Act::Hang, 3, 1),
    (Act::Slow, 3, 2),
    (Act::Restart, 5, 3),
    (Act::Crash, 10, 8),
    (Act::Clone, 2, 1),
    (Act::LostAndBack, 7, 5),
    (Act::RefillAndCrash, 6, 4),
    (Act::TearAndCrash, 5, 3),
    (Act::DurableAndCrash, 5, 3),
    (Act::MissedAndCrash, 6, 4),
    (Act::DiscardUnderReads, 4, 3),
    (Act::Stream, 10, 4),
];

struct Writer<'a> {
    rng: &'a mut Rng,
    setup: Setup,
    geometry: Geometry,
    long: bool,
    /// Weights of what this run does at all.
    acts: Vec<(Act, u32)>,
    /// Blocks at the beginning of the hot rows.
    hot: Vec<u64>,
    steps: Vec<Step>,
}

impl Writer<'_> {
    fn new(rng: &mut Rng, setup: Setup, long: bool) -> Writer<'_> {
        let sizes = setup.sizes;
        let data_bytes = sizes.regions * sizes.region_bytes;
        let geometry = Geometry::new(setup.shape, data_bytes, sizes.region_bytes);
        let mut acts = Vec::new();
        for (act, weight, of_ten) in ACTS {
            if rng.u8(..10) < of_ten {
                acts.push((act, weight << rng.u32(..3)));
            }
        }
        let blocks = geometry.volume_bytes() / u64::from(setup.shape.block_size_bytes);
        let hot = (0..rng.usize(1..=2)).map(|_| rng.u64(..blocks)).collect();
        Writer {
            rng,
            setup,
            geometry,
            long,
            acts,
            hot,
            steps: Vec::new(),
        }
    }

    fn all(&mut self) {
        let requests = if self.long {
            self.rng.u64(40..=300)
        } else {
            1 + self.rng.u64(..40) * self.rng.u64(..40) / 40
        };
        if self.rng.bool() {
            self.fill();
        }
        if self.rng.u8(..3) == 0 {
            self.degrade();
        }
        let beyond = self.rng.u8(..20) == 0;
        for number in 0..requests {
            self.write();
            while !self.acts.is_empty() && self.rng.u8(..5) < 2 {
                self.act();
            }
            if beyond && number == requests / 2 {
                let group = self.rng.u64(..8);
                self.steps.push(Step::TooMany { group });
            }
        }
        if !beyond {
            self.ending();
        }
    }

    /// The hot rows hold something, durably.
    fn fill(&mut self) {
        let block = self.block_bytes();
        let stripe = self.geometry.stripe_data_bytes() / block;
        for row in self.hot.clone() {
            let start = row / stripe * stripe;
            let count = stripe.min((256 << 10) / block);
            self.steps.push(Step::Write {
                start,
                count,
                durable: false,
            });
        }
        // A flush promises nothing of writes that end after it began.
        self.steps.push(Step::Quiesce {});
        self.steps.push(Step::Flush {});
        self.steps.push(Step::Quiesce {});
    }

    fn degrade(&mut self) {
        for _ in 0..self.rng.u16(1..=self.setup.shape.parity.clamp(1, 3)) {
            let place = self.place();
            self.steps.push(match self.rng.u8(..3) {
                0 => Step::Fail { place },
                1 => Step::Remove { place },
                _ => Step::Die {
                    place,
                    after: 0,
                    gone: true,
                },
            });
            self.steps.push(Step::Settle {});
        }
        if self.rng.u8(..3) == 0 {
            self.steps.push(Step::Replace {
                place: 0,
                dies_after: 0,
                keep: self.rng.bool(),
            });
        }
    }

    fn ending(&mut self) {
        if self.long || self.rng.u8(..5) == 0 {
            self.steps.push(Step::Heal {});
        }
        match self.rng.u8(..4) {
            0 => {}
            1 => self.steps.push(Step::Restart {
                back: self.rng.bool(),
            }),
            _ => self.crash(),
        }
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.setup.shape.block_size_bytes)
    }

    fn place(&mut self) -> u64 {
        self.rng.u64(..self.setup.shape.members() as u64)
    }

    fn write(&mut self) {
        let (start, count) = self.blocks();
        let durable = self.rng.u8(..5) == 0;
        self.steps.push(Step::Write {
            start,
            count,
            durable,
        });
    }

    /// Where a request goes: mostly over the hot rows.
    fn blocks(&mut self) -> (u64, u64) {
        let block = self.block_bytes();
        let total = self.geometry.volume_bytes() / block;
        let strip = self.geometry.strip_bytes() / block;
        let stripe = self.geometry.stripe_data_bytes() / block;
        let most = match self.rng.u8(..10) {
            0..4 => 1,
            4..6 => strip.clamp(1, 8),
            6 => strip,
            7 | 8 => stripe,
            _ => 3 * stripe,
        };
        let length = self
            .rng
            .u64(1..=most.clamp(1, (2 << 20) / block))
            .min(total);
        let hot = self.hot[self.rng.usize(..self.hot.len())];
        let start = match self.rng.u8(..8) {
            // A block of the same row, in any strip.
            0..4 => hot / stripe * stripe + hot % strip + self.rng.u64(..stripe / strip) * strip,
            4 => hot / stripe * stripe,
            5 | 6 => {
                (hot + self.rng.u64(..stripe.max(2))).saturating_sub(self.rng.u64(..stripe.max(2)))
            }
            _ => self.rng.u64(..total),
        };
        (start.min(total - length), length)
    }

    fn act(&mut self) {
        let sum: u32 = self.acts.iter().map(|(_, weight)| weight).sum();
        let mut at = self.rng.u32(..sum);
        let act = self.acts.iter().find(|(_, weight)| {
            let here = at < *weight;
            at = at.wrapping_sub(*weight);
            here
        });
        let act = act.expect("below the sum").0;
        self.one(act);
    }

    fn one(&mut self, act: Act) {
        let (start, count) = self.blocks();
        let place = self.place();
        let rng = &mut *self.rng;
        let step = match act {
            Act::Read => Step::Read { start, count },
            Act::Zero => Step::Zero {
                start,
                count,
                durable: rng.u8(..4) == 0,
            },
            Act::Discard => Step::Discard { start, count },
            Act::DiscardRegion => return self.discard_region(),
            Act::Flush => Step::Flush {},
            Act::Pause => Step::Run {
                events: rng.u64(..60) >> rng.u32(..6),
            },
            Act::Quiesce => Step::Quiesce {},
            Act::Idle => Step::Idle {
                ms: rng.u64(..6000) >> rng.u32(..8),
            },
            Act::Verify => Step::Verify {},
            Act::Fail => Step::Fail { place },
            Act::Remove => Step::Remove { place },
            Act::Replace => Step::Replace {
                place,
                dies_after: if rng.u8(..6) == 0 { rng.u64(1..200) } else { 0 },
                keep: rng.bool(),
            },
            Act::Scrub => match rng.u8(..4) {
                0 => Step::StopScrub {},
                _ => Step::Scrub { repair: rng.bool() },
            },
            Act::Priority => Step::Priority {
                percent: rng.u8(1..=100),
            },
            Act::Policy => Step::Policy { code: rng.u8(..4) },
            Act::Accept => Step::Accept {},
            Act::Restart => Step::Restart { back: rng.bool() },
            Act::Crash => return self.crash(),
            Act::Clone if rng.bool() => Step::Copy { place },
            Act::Clone => Step::Clone { place },
            Act::LostAndBack => return self.lost_and_back(),
            Act::RefillAndCrash => return self.refill_and_crash(),
            Act::TearAndCrash => return self.tear_and_crash(),
            Act::DurableAndCrash => return self.durable_and_crash(),
            Act::DiscardUnderReads => return self.discard_under_reads(),
            Act::MissedAndCrash => return self.missed_and_crash(),
            Act::Stream => return self.stream(),
            fault => self.fault(fault, place, start),
        };
        self.steps.push(step);
    }

    fn discard_region(&mut self) {
        let block = self.block_bytes();
        let region = self.geometry.region_volume_bytes() / block;
        let first = self.rng.u64(..self.geometry.regions());
        let ragged = self.rng.u64(..2);
        let (start, count) = (first * region + ragged, region - ragged);
        self.steps.push(if self.rng.u8(..4) == 0 {
            Step::Zero {
                start,
                count,
                durable: false,
            }
        } else {
            Step::Discard { start, count }
        });
    }

    /// A written region is given up while reads of it are under way that take longer than that.
    fn discard_under_reads(&mut self) {
        let region = self.geometry.region_volume_bytes() / self.block_bytes();
        let (start, count) = (self.rng.u64(..self.geometry.regions()) * region, region);
        for _ in 0..self.rng.u8(1..4) {
            let start = start + self.rng.u64(..count);
            self.steps.push(Step::Write {
                start,
                count: 1,
                durable: false,
            });
        }
        self.steps.push(Step::Quiesce {});
        let slow = |factor| {
            let places = 0..self.setup.shape.members() as u64;
            places.map(move |place| Step::SlowReads { place, factor })
        };
        let factor = self.rng.u64(20..200);
        self.steps.extend(slow(factor));
        self.steps.push(Step::Discard { start, count });
        for _ in 0..self.rng.u8(1..16) {
            let start = start + self.rng.u64(..count);
            self.steps.push(Step::Read { start, count: 1 });
            let events = self.rng.u64(..4);
            self.steps.push(Step::Run { events });
        }
        self.steps.extend(slow(1));
    }

    /// Writes follow one another in pieces that do not fit the stripes, several of them under way.
    fn stream(&mut self) {
        let block = self.block_bytes();
        let total = self.geometry.volume_bytes() / block;
        let stripe = self.geometry.stripe_data_bytes() / block;
        let piece = self
            .rng
            .u64(1..=(stripe + stripe / 2).min((1 << 20) / block));
        let mut start = self.rng.u64(..total) / stripe * stripe;
        for _ in 0..self.rng.u8(4..16) {
            let count = piece.min(total - start);
            if count == 0 {
                break;
            }
            let durable = self.rng.u8(..8) == 0;
            self.steps.push(Step::Write {
                start,
                count,
                durable,
            });
            start += count;
            if self.rng.u8(..6) == 0 {
                let events = self.rng.u64(..8);
                self.steps.push(Step::Run { events });
            }
        }
    }

    /// What was logged last cannot be read any more, on some or all members.
    fn bad_logs(&mut self) {
        let log = self.setup.sizes.areas().log;
        let all = self.rng.bool();
        for place in 0..self.setup.shape.members() as u64 {
            if all || self.rng.bool() {
                self.steps.push(Step::BadLog {
                    place,
                    offset: log.offset + 4096,
                    length: 4096 << self.rng.u32(..4),
                });
            }
        }
    }

    fn lost_and_back(&mut self) {
        self.steps.push(Step::Quiesce {});
        let place = self.place();
        let superblock = self.setup.sizes.areas().superblock_a;
        let slow = self.rng.bool() && self.slow_changes(superblock);
        self.steps.push(Step::Die {
            place,
            after: self.rng.u64(..8),
            gone: true,
        });
        for _ in 0..self.rng.u32(1..6) {
            if self.rng.bool() {
                self.write();
            } else {
                self.write_part_of_row(false);
            }
            if self.rng.u8(..3) == 0 {
                self.steps.push(Step::Flush {});
            }
            self.steps.push(if slow && self.rng.bool() {
                // Everything else ends.
                Step::Idle { ms: 1 }
            } else {
                Step::Run {
                    events: self.rng.u64(..24),
                }
            });
        }
        let lose = 1 << self.place();
        self.steps.push(Step::Crash {
            power: self.rng.bool(),
            lose: if self.rng.bool() { lose } else { 0 },
            back: true,
        });
        self.steps.push(Step::Verify {});
    }

    /// Changes of the array itself take long: those written to this area. False: all does anyway.
    fn slow_changes(&mut self, area: Extent) -> bool {
        if self.setup.slowness > 1 {
            return false;
        }
        for place in 0..self.setup.shape.members() as u64 {
            self.steps.push(Step::SlowWrites {
                place,
                offset: area.offset,
                length: area.length,
                factor: 300,
            });
        }
        true
    }

    /// Several strips of a row, not all, are under way when one is lost: what is on the drives is a
    /// mixture that says nothing of it. The start that finds this out does not end either.
    fn tear_and_crash(&mut self) {
        let store = self.setup.sizes.areas().store;
        let slow = self.rng.bool() && self.slow_changes(store);
        self.write_part_of_row(false);
        self.steps.push(Step::Run {
            events: self.rng.u64(1..40),
        });
        let power = self.rng.bool();
        for events in [0, self.rng.u64(1..100)] {
            if events > 60 && slow {
                self.steps.push(Step::Idle { ms: 1 });
            } else if events > 0 {
                self.steps.push(Step::Run { events });
            }
            self.steps.push(Step::Crash {
                power,
                lose: self.rng.u64(..),
                back: false,
            });
        }
        self.steps.push(Step::Verify {});
    }

    /// What was durable when it ended must be so when nothing of the log says it any more.
    fn durable_and_crash(&mut self) {
        for durable in [true, self.rng.bool()] {
            self.write_part_of_row(durable);
            self.steps.push(if durable {
                Step::Quiesce {}
            } else {
                Step::Run {
                    events: self.rng.u64(1..40),
                }
            });
        }
        self.steps.push(Step::Crash {
            power: true,
            lose: self.rng.u64(..),
            back: false,
        });
        self.steps.push(Step::Verify {});
    }

    fn write_part_of_row(&mut self, durable: bool) {
        let hot = self.hot[self.rng.usize(..self.hot.len())];
        self.write_part_of(hot, durable);
    }

    /// To one or several whole strips of a row, to all only where there are no more than two.
    /// Returns which.
    fn write_part_of(&mut self, hot: u64, durable: bool) -> Range<usize> {
        let block = self.block_bytes();
        let strip = self.geometry.strip_bytes() / block;
        let strips = self.geometry.stripe_data_bytes() / block / strip;
        let row = hot / (strips * strip) * strips * strip;
        let count = self.rng.u64(1..strips.max(3)).min(strips);
        let first = self.rng.u64(..=strips - count);
        self.steps.push(Step::Write {
            start: row + first * strip,
            count: count * strip,
            durable,
        });
        first as usize..(first + count) as usize
    }

    /// Places of the strips of a block's row, data first.
    fn places(&self, block: u64) -> Vec<u64> {
        let stripe = self.geometry.piece(block * self.block_bytes(), 1).stripe;
        (0..self.geometry.strips())
            .map(|strip| self.geometry.member(stripe, strip).at() as u64)
            .collect()
    }

    /// A parity joins so slowly that a write comes before it is refilled. Where other parities are
    /// live there is an entry, which says nothing of it; it is true at the crash all the same, that
    /// takes what was written. Else there is none, and what is lost is the rest of the row: a parity
    /// must not say what a power cut takes back.
    fn missed_and_crash(&mut self) {
        self.fill();
        let hot = self.hot[self.rng.usize(..self.hot.len())];
        let places = self.places(hot);
        let (data, parities) = places.split_at(self.geometry.data());
        let logged = parities.len() > 1 && self.rng.bool();
        let missed = if logged {
            let one = self.rng.usize(..parities.len());
            &parities[one..=one]
        } else {
            parities
        };
        for &place in missed {
            self.steps.push(Step::Fail { place });
            self.steps.push(Step::Settle {});
        }
        self.steps.push(Step::Replace {
            place: self.rng.u64(..8),
            dies_after: 0,
            keep: false,
        });
        let map = self.setup.sizes.areas().region_map;
        for &place in missed {
            self.steps.push(Step::SlowWrites {
                place,
                offset: map[0].offset,
                length: map[1].end() - map[0].offset,
                factor: 300,
            });
        }
        let durable = (self.rng.u8(..4) > 0) == logged;
        let written = self.write_part_of(hot, durable);
        self.steps.push(Step::Quiesce {});
        self.steps.push(Step::Settle {});
        self.steps.push(if self.rng.u8(..4) > 0 {
            // All are refilled; the log is as it was.
            Step::Idle { ms: 100 }
        } else {
            Step::Run {
                events: self.rng.u64(..400),
            }
        });
        let lose = if self.rng.u8(..4) > 0 {
            let strips = data.iter().enumerate();
            let lost = strips.filter(|(strip, _)| written.contains(strip) == logged);
            lost.fold(0, |lose, (_, &place)| lose | 1 << place)
        } else {
            self.rng.u64(..)
        };
        self.steps.push(Step::Crash {
            power: self.rng.u8(..4) > 0,
            lose,
            back: false,
        });
        self.steps.push(Step::Verify {});
    }

    fn refill_and_crash(&mut self) {
        let hot = self.hot[self.rng.usize(..self.hot.len())];
        if self.rng.bool() {
            // Without a live parity of the hot row nothing is logged about it.
            for &place in &self.places(hot)[self.geometry.data()..] {
                self.steps.push(Step::Fail { place });
                self.steps.push(Step::Settle {});
            }
        } else {
            let place = self.place();
            self.steps.push(Step::Fail { place });
            self.steps.push(Step::Settle {});
        }
        if self.rng.bool() {
            self.write();
        }
        if self.rng.bool() {
            self.steps.push(Step::Quiesce {});
        }
        self.steps.push(Step::Replace {
            place: 0,
            dies_after: 0,
            keep: false,
        });
        if self.rng.u8(..4) == 0 {
            self.steps.push(Step::Settle {});
        }
        // Also while it joins, when it does not take writes yet.
        for _ in 0..self.rng.u32(..3) {
            self.steps.push(Step::Run {
                events: self.rng.u64(..40),
            });
            if self.rng.bool() {
                self.write();
            } else {
                self.write_part_of_row(false);
            }
        }
        self.steps.push(if self.rng.bool() {
            Step::Settle {}
        } else {
            Step::Run {
                events: self.rng.u64(..400) >> self.rng.u32(..6),
            }
        });
        let lose = self.rng.u64(..);
        self.steps.push(Step::Crash {
            power: self.rng.u8(..4) > 0,
            lose: if self.rng.bool() { lose } else { 0 },
            back: false,
        });
        self.steps.push(Step::Verify {});
    }

    fn crash(&mut self) {
        if self.rng.u8(..4) > 0 {
            self.steps.push(Step::Run {
                events: self.rng.u64(..40) >> self.rng.u32(..6),
            });
        }
        let draws = |which| self.acts.iter().any(|(act, _)| *act == which);
        let (bad_log, rot_log) = (draws(Act::BadLog), draws(Act::RotLog));
        for _ in 0..3 {
            if bad_log && self.rng.bool() {
                self.bad_logs();
            }
            if rot_log && self.rng.bool() {
                let (place, pick) = (self.place(), self.rng.u64(..));
                self.steps.push(Step::RotLog { place, pick });
            }
            let lose = match self.rng.u8(..3) {
                0 => 0,
                1 => 1 << self.place(),
                _ => self.rng.u64(..),
            };
            self.steps.push(Step::Crash {
                power: self.rng.u8(..3) > 0,
                lose,
                back: self.rng.u8(..3) == 0,
            });
            if self.rng.u8(..3) > 0 {
                break;
            }
            // Again, while it starts.
            self.steps.push(Step::Run {
                events: self.rng.u64(..60) >> self.rng.u32(..6),
            });
        }
        if self.rng.bool() {
            self.steps.push(Step::Verify {});
        }
    }

    fn fault(&mut self, fault: Act, place: u64, block: u64) -> Step {
        let areas = self.setup.sizes.areas();
        let size = self.block_bytes();
        let piece = self.geometry.piece(block * size, size);
        let data = areas.data.offset + self.geometry.member_offset(piece.stripe, piece.start);
        let rng = &mut *self.rng;
        let page =
            |rng: &mut Rng, offset: u64, length: u64| offset + rng.u64(..length / 4096) * 4096;
        // A superblock, a copy of the region map, a half of the array store.
        let metadata = [
            areas.superblock_a,
            areas.region_map[0],
            areas.region_map[1],
            areas.superblock_b,
            areas.store,
        ][rng.usize(..5)];
        match fault {
            Act::Die => Step::Die {
                place,
                after: 0,
                gone: rng.bool(),
            },
            Act::DieSoon => Step::Die {
                place,
                after: rng.u64(1..80),
                gone: rng.bool(),
            },
            Act::BadReads => Step::BadReads {
                place,
                offset: data,
                length: size << rng.u32(..4),
            },
            Act::BadWrites => Step::BadWrites {
                place,
                offset: data,
                length: size << rng.u32(..4),
            },
            Act::BadLog => Step::BadLog {
                place,
                offset: page(rng, areas.log.offset, areas.log.length.min(32 << 10)),
                length: 4096 << rng.u32(..4),
            },
            Act::RotLog => Step::RotLog {
                place,
                pick: rng.u64(..),
            },
            Act::BadSuperblock => Step::BadReads {
                place,
                offset: metadata.offset,
                length: 4096,
            },
            Act::Rot => Step::Rot {
                place,
                offset: page(rng, metadata.offset, metadata.length),
                length: 8,
            },
            Act::LoseWrite => Step::LoseWrite {
                place,
                offset: metadata.offset,
                length: metadata.length,
            },
            Act::Misdirect => Step::Misdirect {
                place,
                offset: metadata.offset,
                length: metadata.length,
                by: 4096 * rng.u64(1..3),
            },
            Act::Misread => Step::Misread {
                place,
                offset: metadata.offset,
                length: metadata.length,
                by: 4096,
            },
            Act::Hang => Step::Hang {
                place,
                after: rng.u64(..40),
            },
            _ => Step::Slow {
                place,
                factor: rng.u64(2..=100),
            },
        }
    }
}
