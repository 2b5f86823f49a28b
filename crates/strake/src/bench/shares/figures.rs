//! What is measured: the published systems' ratios.

use strake_engine::format::superblock::Consistency;
use strake_engine::layout::GeometryRequest;

use super::super::{Workload, level};

/// Members and strips.
#[derive(Debug, Clone, Copy)]
pub struct Geometry {
    pub level: &'static str,
    pub members: usize,
    pub group_size: Option<usize>,
    /// Of one group.
    pub parity: usize,
    pub strip_kib: u64,
}

impl Geometry {
    fn strips(&self) -> usize {
        self.group_size.unwrap_or(self.members)
    }

    /// As it is asked for.
    pub fn request(&self) -> anyhow::Result<GeometryRequest> {
        Ok(GeometryRequest {
            level: level(self.level)?,
            members: self.members,
            strip_size_bytes: Some(self.strip_kib << 10),
            block_size_bytes: None,
            group_size: self.group_size,
            parity: None,
        })
    }
}

impl std::fmt::Display for Geometry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let groups = match self.members / self.strips() {
            1 => String::new(),
            groups => format!("{groups} × "),
        };
        let (data, parity) = (self.strips() - self.parity, self.parity);
        let (level, strip_kib) = (self.level, self.strip_kib);
        write!(f, "RAID {level}, {groups}{data}+{parity}, {strip_kib} KiB")
    }
}

/// Bytes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    Bytes(u64),
    Stripe,
}

/// What a figure is a share of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// What the drives that are there allow.
    Drives,
    /// The same load with no member missing.
    Healthy,
    /// The same load with the members still missing.
    NoRebuild,
    /// Sequential writes of the drive that is rebuilt; the figure is the rebuild's.
    DriveWrites,
    /// The same array written in whole stripes, with as many bytes under way.
    WholeStripes,
}

impl Against {
    pub fn name(self) -> &'static str {
        match self {
            Against::Drives => "drives",
            Against::Healthy => "healthy",
            Against::NoRebuild => "no rebuild",
            Against::DriveWrites => "drive's writes",
            Against::WholeStripes => "whole stripes",
        }
    }
}

/// One figure.
#[derive(Debug)]
pub struct Figure {
    pub name: &'static str,
    pub array: Geometry,
    pub missing: usize,
    /// The missing ones are rebuilt.
    pub rebuild: bool,
    pub policy: Consistency,
    pub workload: Workload,
    pub block: Block,
    pub depth: usize,
    pub against: Against,
    pub published: &'static str,
    pub bar_percent: Option<f64>,
}

/// The virtual machines' array.
const R5: Geometry = Geometry {
    level: "5",
    members: 5,
    group_size: None,
    parity: 1,
    strip_kib: 64,
};
/// The machine-learning server's.
const R5_WIDE: Geometry = Geometry {
    members: 8,
    strip_kib: 128,
    ..R5
};
/// The NAS's.
const R6: Geometry = Geometry {
    level: "6",
    members: 12,
    group_size: None,
    parity: 2,
    strip_kib: 64,
};
/// The GPU servers'.
const R50: Geometry = Geometry {
    level: "50",
    members: 18,
    group_size: Some(9),
    parity: 1,
    strip_kib: 64,
};
/// The one of them whose stripes no usual request divides.
const R50_UNALIGNED: Geometry = Geometry {
    level: "50",
    members: 24,
    group_size: Some(12),
    parity: 1,
    strip_kib: 32,
};

const MIB: u64 = 1 << 20;
/// Enough that chance seldom leaves a drive without work.
const DEPTH_RANDOM: usize = 512;
const DEPTH_SEQUENTIAL: usize = 64;

/// The common part of all figures: whole stripes written one after the other.
const STRIPES: Figure = Figure {
    name: "whole-stripe write",
    array: R5,
    missing: 0,
    rebuild: false,
    policy: Consistency::None,
    workload: Workload::Write,
    block: Block::Stripe,
    depth: DEPTH_SEQUENTIAL,
    against: Against::Drives,
    published: "95-100 %",
    bar_percent: Some(97.0),
};
const READS: Figure = Figure {
    name: "sequential read, 1 MiB",
    workload: Workload::Read,
    block: Block::Bytes(MIB),
    published: "86-101 %",
    bar_percent: Some(99.0),
    ..STRIPES
};
const RANDOM_READS: Figure = Figure {
    name: "random read, 4 KiB",
    workload: Workload::Randread,
    block: Block::Bytes(4096),
    depth: DEPTH_RANDOM,
    published: "86 %",
    bar_percent: Some(95.0),
    ..STRIPES
};
const RANDOM_WRITES: Figure = Figure {
    name: "random write, 4 KiB",
    workload: Workload::Randwrite,
    published: "85 %",
    bar_percent: Some(90.0),
    ..RANDOM_READS
};
const LOGGED_WRITES: Figure = Figure {
    name: "random write, 4 KiB, log, of what drives allow without",
    policy: Consistency::Log,
    published: "none has one",
    bar_percent: Some(72.0),
    ..RANDOM_WRITES
};
const MIB_WRITES: Figure = Figure {
    name: "sequential write, 1 MiB",
    block: Block::Bytes(MIB),
    depth: 8,
    against: Against::WholeStripes,
    published: "77 %",
    bar_percent: Some(95.0),
    ..STRIPES
};
const DEGRADED_READS: Figure = Figure {
    name: "degraded sequential read, 1 MiB",
    missing: 1,
    published: "89 %",
    bar_percent: Some(97.0),
    ..READS
};
const DEGRADED_STRIPES: Figure = Figure {
    name: "degraded whole-stripe write",
    missing: 1,
    against: Against::Healthy,
    published: "98-102 %",
    bar_percent: Some(98.0),
    ..STRIPES
};
const DEGRADED_RANDOM_READS: Figure = Figure {
    name: "degraded random read, 4 KiB",
    missing: 1,
    published: "about 80 %",
    ..RANDOM_READS
};

const REBUILDS: Figure = Figure {
    name: "rebuild of one drive, idle",
    missing: 1,
    rebuild: true,
    depth: 0,
    against: Against::DriveWrites,
    published: "3.18 GB/s",
    bar_percent: Some(97.0),
    ..STRIPES
};
const REBUILDS_UNDER_LOAD: Figure = Figure {
    name: "rebuild under random reads, 4 KiB",
    workload: Workload::Randread,
    block: Block::Bytes(4096),
    depth: DEPTH_RANDOM,
    published: "316 MB/s",
    bar_percent: Some(15.0),
    ..REBUILDS
};
const READS_UNDER_REBUILD: Figure = Figure {
    name: "random read, 4 KiB, under a rebuild",
    against: Against::NoRebuild,
    published: "-",
    bar_percent: Some(90.0),
    ..REBUILDS_UNDER_LOAD
};

/// What saving a large file is to the array.
const DEGRADED_SAVES: Figure = Figure {
    name: "sequential write, 1 MiB, degraded",
    array: R6,
    missing: 1,
    against: Against::Healthy,
    published: "97 %",
    bar_percent: Some(98.0),
    ..MIB_WRITES
};

pub const FIGURES: [Figure; 29] = [
    STRIPES,
    Figure {
        array: R6,
        ..STRIPES
    },
    Figure {
        array: R50,
        ..STRIPES
    },
    READS,
    Figure { array: R6, ..READS },
    RANDOM_READS,
    Figure {
        array: R6,
        ..RANDOM_READS
    },
    RANDOM_WRITES,
    Figure {
        array: R6,
        ..RANDOM_WRITES
    },
    LOGGED_WRITES,
    Figure {
        array: R6,
        ..LOGGED_WRITES
    },
    Figure {
        array: R6,
        ..MIB_WRITES
    },
    Figure {
        array: R6,
        depth: 32,
        ..MIB_WRITES
    },
    Figure {
        array: R5_WIDE,
        ..MIB_WRITES
    },
    Figure {
        name: "unaligned sequential write, 1 MiB",
        array: R50_UNALIGNED,
        depth: 32,
        published: "69-86 %",
        bar_percent: Some(90.0),
        ..MIB_WRITES
    },
    DEGRADED_READS,
    DEGRADED_STRIPES,
    DEGRADED_RANDOM_READS,
    Figure {
        array: R6,
        ..DEGRADED_RANDOM_READS
    },
    REBUILDS,
    Figure {
        array: R6,
        ..REBUILDS
    },
    REBUILDS_UNDER_LOAD,
    READS_UNDER_REBUILD,
    Figure {
        array: R6,
        ..REBUILDS_UNDER_LOAD
    },
    Figure {
        array: R6,
        ..READS_UNDER_REBUILD
    },
    Figure {
        name: "whole-stripe read, rebuilding",
        array: R6,
        missing: 1,
        block: Block::Stripe,
        rebuild: true,
        against: Against::Healthy,
        published: "87 %",
        bar_percent: Some(90.0),
        ..READS
    },
    Figure {
        name: "whole-stripe write, rebuilding",
        array: R6,
        missing: 1,
        rebuild: true,
        against: Against::Healthy,
        published: "94 %",
        bar_percent: Some(95.0),
        ..STRIPES
    },
    DEGRADED_SAVES,
    Figure {
        name: "sequential write, 1 MiB, rebuilding",
        rebuild: true,
        published: "93 %",
        bar_percent: Some(95.0),
        ..DEGRADED_SAVES
    },
];
