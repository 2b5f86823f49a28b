//! Where everything lies on a member, computed once at creation and recorded: never assumed.
//!
//! ```text
//! 0        4 KiB         68 KiB
//! | left    | superblock A | region map 0 | region map 1 | array store | parity log |
//! | [block checksums] | pad to 1 MiB | data ............... | kept back | superblock B |
//! ```
//!
//! Sizes are those of the array's smallest drive, so that every member has the same areas; only
//! superblock B's place follows each drive's own end, so that it can be found on a drive of which
//! nothing is known.
//!
//! What is kept back behind the data lets a replacement of the same nominal size fit: 1/64 of the
//! drive (whole MiB, 1 MiB to 64 MiB), and the data's length is rounded down to 64 MiB on drives
//! of 8 GiB and more, to 1 MiB on smaller ones. Small drives exist for tests and demonstrations.

use super::bytes::{self, Field, field};

#[cfg(test)]
mod tests;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Metadata starts and ends on multiples of this.
pub const PAGE_BYTES: u64 = 4 * KIB;
/// First bytes of the drive that are never touched: boot sectors, other tools.
pub const LEFT_ALONE_BYTES: u64 = 4 * KIB;
/// Length of one superblock copy.
pub const SUPERBLOCK_BYTES: usize = 64 << 10;
/// Place of superblock copy A.
pub const SUPERBLOCK_A_OFFSET: u64 = LEFT_ALONE_BYTES;
/// Length of the array store.
pub const STORE_BYTES: u64 = MIB;
/// Parity log when none is asked for, on drives of 4 GiB and more.
pub const LOG_BYTES_DEFAULT: u64 = 64 * MIB;
/// Smallest parity log that can be asked for: room for the largest record and some more.
pub const LOG_BYTES_MIN: u64 = MIB;
/// Largest one: reading it after a crash should not take longer than a few seconds.
pub const LOG_BYTES_MAX: u64 = 4 * GIB;
/// Data starts on a multiple of this.
pub const DATA_ALIGN_BYTES: u64 = MIB;
/// Smallest drive of an array.
pub const DRIVE_BYTES_MIN: u64 = 8 * MIB;
/// Regions of a member at most: the region map in memory stays at 16 MiB.
pub const REGIONS_MAX: u64 = 2 << 20;
/// Smallest region: initialising one on its first write costs a fast drive less than 1 ms.
pub const REGION_BYTES_MIN: u64 = MIB;

/// A byte range of a drive. Length 0: not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Extent {
    /// `length` bytes from `offset`.
    pub const fn new(offset: u64, length: u64) -> Extent {
        Extent { offset, length }
    }

    /// First byte behind it.
    pub const fn end(self) -> u64 {
        self.offset + self.length
    }
}

/// Every area of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Areas {
    /// First superblock copy.
    pub superblock_a: Extent,
    /// The two alternating copies of the region map.
    pub region_map: [Extent; 2],
    /// Array store.
    pub store: Extent,
    /// Parity log.
    pub log: Extent,
    /// Checksums of data blocks; length 0 when the array has none.
    pub checksums: Extent,
    /// Data; `length` is what each member contributes.
    pub data: Extent,
    /// Second superblock copy; the only area that differs between members.
    pub superblock_b: Extent,
}

/// What decides the areas, beside the drive's size.
#[derive(Debug, Clone, Copy)]
pub struct AreaRequest {
    /// Strip in bytes, a power of two up to 1 MiB.
    pub strip_size_bytes: u64,
    /// Array block size in bytes.
    pub block_size_bytes: u32,
    /// Parity log in bytes, rounded up to 1 MiB; `None`: by the drive's size.
    pub log_bytes: Option<u64>,
    /// Bytes that the array's longest records need ([`super::log::area_bytes_min`]).
    pub log_bytes_min: u64,
    /// Leave space for 4 bytes of checksum for each 4 KiB of data.
    pub checksums: bool,
}

/// Areas and the region size that goes with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AreaPlan {
    /// Areas; `superblock_b` is that of the drive size given.
    pub areas: Areas,
    /// Bytes of a region on each member: a power of two, at least 1 MiB and a strip.
    pub region_size_bytes: u64,
    /// Data of each member (`areas.data.length`), a multiple of the region size.
    pub member_data_bytes: u64,
}

/// A drive on which the areas do not fit. The caller adds the drive's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AreaError {
    /// No room for metadata and at least one region of data.
    #[error("drive has {size_bytes} bytes, at least {needed_bytes} ({} MiB) are needed for the metadata and one region of data; use a larger drive", .needed_bytes.div_ceil(MIB))]
    TooSmall {
        /// Drive.
        size_bytes: u64,
        /// Smallest that would do.
        needed_bytes: u64,
    },
    /// A parity log of this size cannot be had.
    #[error("a parity log of {log_bytes} bytes is not possible on a drive of {size_bytes} bytes: give --log-size from {least_bytes} ({} MiB: two of the longest records of this geometry) to {most_bytes} ({} MiB: a quarter of the smallest drive, and at most {} GiB)", .least_bytes / MIB, .most_bytes / MIB, LOG_BYTES_MAX / GIB)]
    LogSize {
        /// Asked for.
        log_bytes: u64,
        /// Least that this geometry needs.
        least_bytes: u64,
        /// Most that this drive takes.
        most_bytes: u64,
        /// Drive.
        size_bytes: u64,
    },
    /// A replacement that cannot hold what the array's members hold.
    #[error("drive has {size_bytes} bytes, the array's members need {needed_bytes} ({} MiB); use a drive at least as large as the smallest member", .needed_bytes.div_ceil(MIB))]
    DoesNotFit {
        /// Drive.
        size_bytes: u64,
        /// Smallest that would do.
        needed_bytes: u64,
    },
}

const fn round_down(value: u64, unit: u64) -> u64 {
    value / unit * unit
}

const fn round_up(value: u64, unit: u64) -> u64 {
    value.div_ceil(unit) * unit
}

/// Place of superblock copy B on a drive of this size: its last whole 64 KiB. `None` on drives
/// without room for both copies (less than 192 KiB).
pub const fn superblock_b_offset(drive_size_bytes: u64) -> Option<u64> {
    let unit = SUPERBLOCK_BYTES as u64;
    if drive_size_bytes < 3 * unit {
        return None;
    }
    Some(round_down(drive_size_bytes, unit) - unit)
}

/// Bytes of a region on a drive of this size: 1 MiB or the strip if that is larger, doubled until
/// there are at most [`REGIONS_MAX`].
pub fn region_size_bytes(drive_size_bytes: u64, strip_size_bytes: u64) -> u64 {
    let mut region = REGION_BYTES_MIN.max(strip_size_bytes);
    while drive_size_bytes.div_ceil(region) > REGIONS_MAX {
        region *= 2;
    }
    region
}

/// Kept back behind the data of a drive of this size.
fn kept_back_bytes(drive_size_bytes: u64) -> u64 {
    round_up(drive_size_bytes / 64, MIB).clamp(MIB, 64 * MIB)
}

fn log_bytes(drive_size_bytes: u64, request: &AreaRequest) -> u64 {
    let by_size = (drive_size_bytes / 64).min(LOG_BYTES_DEFAULT);
    let asked = request.log_bytes.unwrap_or(by_size);
    round_up(asked.max(request.log_bytes_min).max(1), MIB)
}

fn check_log_bytes(drive_size_bytes: u64, request: &AreaRequest) -> Result<(), AreaError> {
    let most_bytes = round_down(drive_size_bytes / 4, MIB).min(LOG_BYTES_MAX);
    let least_bytes = round_up(request.log_bytes_min.max(LOG_BYTES_MIN), MIB);
    match request.log_bytes {
        _ if drive_size_bytes < DRIVE_BYTES_MIN => Ok(()), // too small for anything
        Some(log_bytes) if !(least_bytes..=most_bytes).contains(&log_bytes) => {
            Err(AreaError::LogSize {
                log_bytes,
                least_bytes,
                most_bytes,
                size_bytes: drive_size_bytes,
            })
        }
        _ => Ok(()),
    }
}

impl Areas {
    /// Areas for an array whose smallest drive has `drive_size_bytes`.
    ///
    /// # Errors
    /// [`AreaError::TooSmall`] with the smallest size that would do; [`AreaError::LogSize`].
    pub fn plan(drive_size_bytes: u64, request: &AreaRequest) -> Result<AreaPlan, AreaError> {
        assert!(
            request.strip_size_bytes.is_power_of_two() && request.strip_size_bytes <= MIB,
            "strip size is checked by the geometry"
        );
        check_log_bytes(drive_size_bytes, request)?;
        if drive_size_bytes >= DRIVE_BYTES_MIN
            && let Some(plan) = Areas::try_plan(drive_size_bytes, request)
        {
            return Ok(plan);
        }
        let mut needed_bytes = DRIVE_BYTES_MIN;
        while Areas::try_plan(needed_bytes, request).is_none() {
            needed_bytes += MIB;
        }
        Err(AreaError::TooSmall {
            size_bytes: drive_size_bytes,
            needed_bytes,
        })
    }

    fn try_plan(size: u64, request: &AreaRequest) -> Option<AreaPlan> {
        let region_size_bytes = region_size_bytes(size, request.strip_size_bytes);
        // Sized for a drive that were all data: a few pages more than needed, and no circle.
        let regions = size.div_ceil(region_size_bytes);
        let map = super::region_map::page_count(regions) * PAGE_BYTES;
        let checksums = if request.checksums {
            round_up(size / PAGE_BYTES * 4, PAGE_BYTES)
        } else {
            0
        };
        let mut next = SUPERBLOCK_A_OFFSET;
        let mut take = |length: u64| {
            let extent = Extent::new(next, length);
            next += length;
            extent
        };
        let superblock_a = take(SUPERBLOCK_BYTES as u64);
        let region_map = [take(map), take(map)];
        let store = take(STORE_BYTES);
        let log = take(log_bytes(size, request));
        let checksums = take(checksums);
        let data_offset = round_up(next, DATA_ALIGN_BYTES);
        let unit = if size >= 8 * GIB { 64 * MIB } else { MIB };
        let room = size.checked_sub(data_offset + kept_back_bytes(size))?;
        let length = round_down(round_down(room, unit), region_size_bytes);
        if length == 0 {
            return None;
        }
        let superblock_b = Extent::new(superblock_b_offset(size)?, SUPERBLOCK_BYTES as u64);
        Some(AreaPlan {
            areas: Areas {
                superblock_a,
                region_map,
                store,
                log,
                checksums,
                data: Extent::new(data_offset, length),
                superblock_b,
            },
            region_size_bytes,
            member_data_bytes: length,
        })
    }

    /// The same areas on a drive of another size: superblock B moves to that drive's end.
    ///
    /// # Errors
    /// [`AreaError::DoesNotFit`] when the drive cannot hold the data.
    pub fn on_drive(&self, drive_size_bytes: u64) -> Result<Areas, AreaError> {
        match superblock_b_offset(drive_size_bytes) {
            Some(offset) if offset >= self.data.end() => Ok(Areas {
                superblock_b: Extent::new(offset, SUPERBLOCK_BYTES as u64),
                ..*self
            }),
            _ => Err(AreaError::DoesNotFit {
                size_bytes: drive_size_bytes,
                needed_bytes: self.drive_bytes_needed(),
            }),
        }
    }

    /// Smallest drive that can hold these areas.
    pub fn drive_bytes_needed(&self) -> u64 {
        round_up(self.data.end(), SUPERBLOCK_BYTES as u64) + SUPERBLOCK_BYTES as u64
    }

    /// In order of their places, with names for errors and listings.
    pub fn named(&self) -> [(&'static str, Extent); AREA_COUNT] {
        [
            ("superblock A", self.superblock_a),
            ("region map, copy 0", self.region_map[0]),
            ("region map, copy 1", self.region_map[1]),
            ("array store", self.store),
            ("parity log", self.log),
            ("block checksums", self.checksums),
            ("data", self.data),
            ("superblock B", self.superblock_b),
        ]
    }

    /// What is wrong with areas read from a drive: the area's name and the rule it breaks.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        self.check_fixed()?;
        let mut end = LEFT_ALONE_BYTES;
        for (name, extent) in self.named() {
            let align = if name == "data" {
                DATA_ALIGN_BYTES
            } else {
                PAGE_BYTES
            };
            if !extent.offset.is_multiple_of(align) || !extent.length.is_multiple_of(PAGE_BYTES) {
                return Err((
                    name,
                    format!("must start on a multiple of {align} and be whole 4 KiB"),
                ));
            }
            if extent.length == 0 && name != "block checksums" {
                return Err((name, "must not be empty".into()));
            }
            let Some(behind) = extent.offset.checked_add(extent.length) else {
                return Err((name, "must end within 2^64 bytes".into()));
            };
            if extent.offset < end {
                return Err((
                    name,
                    format!("must not start before byte {end}, where the area before it ends"),
                ));
            }
            end = behind;
        }
        Ok(())
    }

    fn check_fixed(&self) -> Result<(), (&'static str, String)> {
        let length = SUPERBLOCK_BYTES as u64;
        if self.superblock_a != Extent::new(SUPERBLOCK_A_OFFSET, length) {
            return Err(("superblock A", "must be 64 KiB at byte 4096".into()));
        }
        if self.superblock_b.length != length || !self.superblock_b.offset.is_multiple_of(length) {
            return Err((
                "superblock B",
                "must be 64 KiB on a multiple of 64 KiB".into(),
            ));
        }
        if self.region_map[0].length != self.region_map[1].length {
            return Err(("region map, copy 1", "must be as long as copy 0".into()));
        }
        Ok(())
    }
}

/// Areas of a member.
pub const AREA_COUNT: usize = 8;
/// Bytes of [`Areas`] in the superblock: offset and length of each area in the order of
/// [`Areas::named`], 8 bytes each.
pub const AREAS_BYTES: usize = AREA_COUNT * 16;

const fn place(index: usize) -> (Field, Field) {
    (field(index * 16, 8), field(index * 16 + 8, 8))
}

impl Areas {
    /// Writes the table; `out` has [`AREAS_BYTES`].
    pub(super) fn encode(&self, out: &mut [u8]) {
        for (index, (_, extent)) in self.named().into_iter().enumerate() {
            let (offset, length) = place(index);
            bytes::put_u64(out, offset, extent.offset);
            bytes::put_u64(out, length, extent.length);
        }
    }

    /// Reads the table; the caller checks it.
    pub(super) fn decode(raw: &[u8]) -> Areas {
        let extent = |index| {
            let (offset, length) = place(index);
            Extent::new(bytes::get_u64(raw, offset), bytes::get_u64(raw, length))
        };
        Areas {
            superblock_a: extent(0),
            region_map: [extent(1), extent(2)],
            store: extent(3),
            log: extent(4),
            checksums: extent(5),
            data: extent(6),
            superblock_b: extent(7),
        }
    }
}
