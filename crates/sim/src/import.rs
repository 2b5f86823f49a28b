//! Making an array on simulated drives, and starting it from what they hold.
//!
//! What a start means is decided by the engine's own [`opening`]; here are only the steps around it
//! that node's `make` and `import` take on drives of the system.

use std::cell::RefCell;
use std::collections::VecDeque;

use strake_codec::CODE_ID;
use strake_engine::array::Start;
use strake_engine::format::areas::{Areas, Extent, SUPERBLOCK_A_OFFSET, superblock_b_offset};
use strake_engine::format::assemble::{AssembleOptions, Assembly, Found, assemble};
use strake_engine::format::error::FormatError;
use strake_engine::format::log::LogHeader;
use strake_engine::format::opening::{self, OpeningRequest, Reading};
use strake_engine::format::region_map::{MapPlace, RegionMap};
use strake_engine::format::store::{Store, StorePlace};
use strake_engine::format::superblock::{
    ChecksumKind, Consistency, Features, LayoutParameters, MemberRecord, MemberState, RunState,
    Superblock,
};
use strake_engine::layout::{Geometry, Shape};
use uuid::Uuid;

use crate::drive::SimDrive;
use crate::image::Pages;
use crate::port::SimPort;
use crate::world::World;

const SUPERBLOCK_BYTES: u64 = strake_engine::format::areas::SUPERBLOCK_BYTES as u64;
/// Small, so that a start reads little; a real array's is 1 MiB.
const STORE_BYTES: u64 = 36 << 10;
const MIB: u64 = 1 << 20;

/// The array under test has always this UUID.
pub const ARRAY: Uuid = Uuid::from_u128(0xa77a_0000_0000_0000_0000_0000_0000_0001);
/// The host under test.
pub const HOST: Uuid = Uuid::from_u128(0x4057_0000_0000_0000_0000_0000_0000_0001);

/// A UUID that a number decides.
pub fn uuid(kind: u64, number: u64) -> Uuid {
    Uuid::from_u64_pair(kind << 32 | 0x1, number + 1)
}

/// Sizes of a small member: real ones start at 1 MiB a region and 1 MiB of log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Regions of each member.
    pub regions: u64,
    /// Bytes of a region on each member: a power of two, at least a strip.
    pub region_bytes: u64,
    /// Bytes of the parity log.
    pub log_bytes: u64,
}

impl Sizes {
    /// Where everything is on the smallest drive for these sizes.
    pub fn areas(&self) -> Areas {
        let mut next = SUPERBLOCK_A_OFFSET;
        let mut take = |length: u64| {
            let extent = Extent::new(next, length);
            next += length;
            extent
        };
        let superblock_a = take(SUPERBLOCK_BYTES);
        let region_map = [take(4096), take(4096)];
        let store = take(STORE_BYTES);
        let log = take(self.log_bytes);
        let checksums = take(0);
        let data = Extent::new(next.div_ceil(MIB) * MIB, self.regions * self.region_bytes);
        let end = data.end().div_ceil(SUPERBLOCK_BYTES) * SUPERBLOCK_BYTES;
        Areas {
            superblock_a,
            region_map,
            store,
            log,
            checksums,
            data,
            superblock_b: Extent::new(end, SUPERBLOCK_BYTES),
        }
    }

    /// Bytes of the smallest drive for these sizes.
    pub fn drive_bytes(&self) -> u64 {
        self.areas().superblock_b.end()
    }
}

/// Writes a fresh array's metadata to these drives and returns its superblock.
///
/// # Errors
/// What the format refuses.
pub fn create(
    world: &mut World,
    drives: &[usize],
    shape: Shape,
    sizes: Sizes,
    policy: Consistency,
) -> Result<Superblock, String> {
    let member_data_bytes = sizes.regions * sizes.region_bytes;
    let geometry = Geometry::new(shape, member_data_bytes, sizes.region_bytes);
    let strips = shape.strips();
    let members = drives.iter().enumerate().map(|(place, &drive)| {
        let (group, index) = ((place / strips) as u16, (place % strips) as u16);
        let size = world.drives[drive].size_bytes();
        MemberRecord::new(
            uuid(1, drive as u64),
            &SimPort::serial(drive),
            size,
            group,
            index,
            MemberState::Active,
        )
    });
    let superblock = Superblock {
        features: Features::default(),
        read_only_only: false,
        array_uuid: ARRAY,
        name: "simulated".into(),
        created_unix: 1,
        generation: 1,
        epoch: 0,
        lineage: uuid(2, 0),
        owner_host: Uuid::nil(),
        replay: None,
        owner_started_unix: 0,
        state: RunState::Clean,
        level: shape.level,
        groups: shape.groups,
        data: shape.data,
        parity: shape.parity,
        strip_size_bytes: shape.strip_size_bytes,
        block_size_bytes: shape.block_size_bytes,
        code_id: CODE_ID,
        layout: LayoutParameters::of(shape.level),
        consistency: if shape.parity > 0 {
            policy
        } else {
            Consistency::None
        },
        checksums: ChecksumKind::None,
        rebuild_priority: 50,
        members: members.collect(),
        member_index: 0,
        areas: sizes.areas(),
        member_data_bytes,
        region_size_bytes: sizes.region_bytes,
        volume_size_bytes: geometry.volume_bytes(),
    };
    for (place, &drive) in drives.iter().enumerate() {
        write_metadata(&superblock, place, &mut world.drives[drive])?;
    }
    Ok(superblock)
}

fn write_metadata(
    superblock: &Superblock,
    place: usize,
    drive: &mut SimDrive,
) -> Result<(), String> {
    let own = superblock
        .for_member(place as u16, drive.size_bytes())
        .map_err(|error| error.to_string())?;
    let (array_uuid, member_uuid) = (own.array_uuid, own.own().uuid);
    let map = MapPlace {
        array_uuid,
        member_uuid,
        copies: own.areas.region_map,
    };
    for (offset, page) in RegionMap::new(own.regions()).initial_pages(&map) {
        drive.poke(offset, &page);
    }
    let store = StorePlace {
        array_uuid,
        member_uuid,
        area: own.areas.store,
    };
    for (offset, bytes) in Store::new()
        .initial(&store)
        .map_err(|error| error.to_string())?
    {
        drive.poke(offset, &bytes);
    }
    let log = LogHeader {
        array_uuid,
        member_uuid,
        generation: own.generation,
        epoch: own.epoch,
        lineage: own.lineage,
        policy: own.consistency,
    };
    drive.poke(own.areas.log.offset, &log.encode(own.areas.log));
    for offset in [own.areas.superblock_a.offset, own.areas.superblock_b.offset] {
        drive.poke(offset, &own.encode(offset));
    }
    Ok(())
}

thread_local! {
    /// Superblocks decoded before, by the pages that hold them: exploring looks at the same pages
    /// thousands of times.
    static DECODED: RefCell<VecDeque<(u64, Pages, Decoded)>> = const { RefCell::new(VecDeque::new()) };
}

type Decoded = Result<Superblock, FormatError>;
const DECODED_MAX: usize = 64;

/// Both superblock copies of a drive, as they are found.
pub fn superblocks(drive: &SimDrive) -> [Decoded; 2] {
    let second = superblock_b_offset(drive.size_bytes()).expect("large enough for an array");
    [SUPERBLOCK_A_OFFSET, second].map(|offset| {
        if drive.faults.any() || drive.faults.log_is_bad() {
            return decode(drive, offset);
        }
        let known = DECODED.with_borrow(|decoded| {
            let mut known = decoded.iter();
            let here = |(at, pages, _): &&(u64, Pages, Decoded)| {
                *at == offset && drive.image().holds(offset, pages)
            };
            known.find(here).map(|(_, _, result)| result.clone())
        });
        known.unwrap_or_else(|| {
            let result = decode(drive, offset);
            let pages = drive.image().share(offset, SUPERBLOCK_BYTES);
            DECODED.with_borrow_mut(|decoded| {
                decoded.truncate(DECODED_MAX - 1);
                decoded.push_front((offset, pages, result.clone()));
            });
            result
        })
    })
}

fn decode(drive: &SimDrive, offset: u64) -> Decoded {
    Superblock::read(offset, |offset, out| drive.read(offset, out))
}

/// What an import found out.
pub struct Imported {
    /// For the core, once.
    pub start: Option<Start>,
    /// Drive by place.
    pub places: Vec<Option<usize>>,
    /// What assembling said.
    pub assembly: Assembly,
    /// What an administrator would hear.
    pub notes: Vec<String>,
}

struct Drives<'a>(&'a World);

impl Reading for Drives<'_> {
    fn read(&mut self, drive: usize, offset: u64, out: &mut [u8]) -> bool {
        self.0.drives[drive].read(offset, out).is_ok()
    }
}

/// Looks at those of `drives` that answer, and says what array they are.
///
/// # Errors
/// Why they are none.
pub fn look(world: &World, drives: &[usize]) -> Result<Assembly, String> {
    let found: Vec<Found> = drives
        .iter()
        .filter(|&&drive| world.drives[drive].faults.dead.is_none())
        .map(|&drive| Found {
            drive,
            path: format!("sim:{drive}"),
            serial: SimPort::serial(drive),
            size_bytes: world.drives[drive].size_bytes(),
            copies: superblocks(&world.drives[drive]),
        })
        .collect();
    let options = AssembleOptions {
        this_host: HOST,
        known_generation: None,
    };
    assemble(ARRAY, &found, &options).map_err(|error| error.to_string())
}

/// Decides how the array starts from those of `drives` that are not dead. `number`: of this start;
/// `force`: what may be wrong is accepted.
///
/// # Errors
/// Why the array cannot be started.
pub fn import(
    world: &World,
    drives: &[usize],
    number: u64,
    memory_bytes: usize,
    force: bool,
) -> Result<Imported, String> {
    let assembly = look(world, drives)?;
    let places = assembly.members.clone();
    let volatile = places
        .iter()
        .map(|place| place.is_none_or(|drive| world.drives[drive].is_volatile()));
    let request = OpeningRequest {
        read_only: false,
        force,
        new_name: None,
        this_host: HOST,
        now_unix: number,
        new_lineage: uuid(2, number),
        memory_bytes,
        volatile: volatile.collect(),
    };
    let opening = opening::open(&assembly, &request, &mut Drives(world))
        .map_err(|error| error.to_string())?;
    Ok(Imported {
        start: Some(opening.start),
        places,
        notes: opening.notes,
        assembly,
    })
}
