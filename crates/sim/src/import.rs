//! Making an array on simulated drives, and starting it from what they hold.
//!
//! The steps of node's own `make` and `import`, which work on drives of the system.

use strake_codec::CODE_ID;
use strake_engine::array::Start;
use strake_engine::format::areas::{AreaRequest, Areas, superblock_b_offset};
use strake_engine::format::assemble::{AssembleOptions, Assembly, Found, assemble};
use strake_engine::format::error::FormatError;
use strake_engine::format::log::LogHeader;
use strake_engine::format::region_map::{
    self, LoadedMap, MapPlace, RegionEntry, RegionMap, RegionState,
};
use strake_engine::format::store;
use strake_engine::format::superblock::{
    ChecksumKind, Consistency, Features, LayoutParameters, MemberRecord, MemberState, RunState,
    Superblock,
};
use strake_engine::layout::{Geometry, Shape};
use uuid::Uuid;

use crate::drive::SimDrive;
use crate::port::SimPort;
use crate::world::World;

const SUPERBLOCK_BYTES: usize = strake_engine::format::areas::SUPERBLOCK_BYTES;

/// The array under test has always this UUID.
pub const ARRAY: Uuid = Uuid::from_u128(0xa77a_0000_0000_0000_0000_0000_0000_0001);
/// The host under test.
pub const HOST: Uuid = Uuid::from_u128(0x4057_0000_0000_0000_0000_0000_0000_0001);

/// A UUID that a number decides.
pub fn uuid(kind: u64, number: u64) -> Uuid {
    Uuid::from_u64_pair(kind << 32 | 0x1, number + 1)
}

/// Writes a fresh array's metadata to these drives and returns its superblock.
///
/// # Errors
/// The text of the area planner's refusal.
pub fn create(world: &mut World, drives: &[usize], shape: Shape) -> Result<Superblock, String> {
    let smallest = drives
        .iter()
        .map(|&d| world.drives[d].size_bytes())
        .min()
        .expect("a shape has members");
    let plan = Areas::plan(
        smallest,
        &AreaRequest {
            strip_size_bytes: shape.strip_size_bytes,
            block_size_bytes: shape.block_size_bytes,
            log_bytes: None,
            checksums: false,
        },
    )
    .map_err(|error| error.to_string())?;
    let geometry = Geometry::new(shape, plan.member_data_bytes, plan.region_size_bytes);
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
            Consistency::Resync
        } else {
            Consistency::None
        },
        checksums: ChecksumKind::None,
        rebuild_priority: 50,
        members: members.collect(),
        member_index: 0,
        areas: plan.areas,
        member_data_bytes: plan.member_data_bytes,
        region_size_bytes: plan.region_size_bytes,
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
    let map = MapPlace {
        array_uuid: own.array_uuid,
        member_uuid: own.own().uuid,
        copies: own.areas.region_map,
    };
    for (offset, page) in RegionMap::new(own.regions()).initial_pages(&map) {
        drive.poke(offset, &page);
    }
    let empty = store::encode_empty(
        own.array_uuid,
        own.own().uuid,
        own.areas.store.offset,
        own.generation,
    );
    drive.poke(own.areas.store.offset, &empty);
    let log = LogHeader {
        array_uuid: own.array_uuid,
        member_uuid: own.own().uuid,
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

/// Both superblock copies of a drive, as they are found.
pub fn superblocks(drive: &SimDrive) -> [Result<Superblock, FormatError>; 2] {
    let second = superblock_b_offset(drive.size_bytes()).expect("large enough for an array");
    [strake_engine::format::areas::SUPERBLOCK_A_OFFSET, second].map(|offset| {
        let mut raw = vec![0; SUPERBLOCK_BYTES];
        drive.peek(offset, &mut raw);
        Superblock::decode(&raw, offset)
    })
}

/// What an import found out.
pub struct Imported {
    /// For the core.
    pub start: Start,
    /// Drive by place.
    pub places: Vec<Option<usize>>,
    /// What assembling said.
    pub assembly: Assembly,
}

/// Starts the array from those of `drives` that are not dead. `number`: of this start.
///
/// # Errors
/// Why the array cannot be started.
pub fn import(
    world: &World,
    drives: &[usize],
    number: u64,
    memory_bytes: usize,
) -> Result<Imported, String> {
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
    let assembly = assemble(ARRAY, &found, &options).map_err(|error| error.to_string())?;
    let truth = &assembly.truth;
    let mut joined: Option<LoadedMap> = None;
    for (place, drive) in assembly.members.iter().enumerate() {
        let Some(drive) = drive else { continue };
        let loaded = load_map(truth, place, &world.drives[*drive]);
        match &mut joined {
            Some(map) => map.merge(&loaded),
            None => joined = Some(loaded),
        }
    }
    let mut regions = joined.ok_or("no member is usable")?.into_map();
    if truth.state == RunState::InUse && truth.parity > 0 {
        after_crash(&mut regions);
    }
    let places = assembly.members.clone();
    Ok(Imported {
        start: Start {
            present: places.iter().map(Option::is_some).collect(),
            superblock: started(&assembly, number),
            regions,
            read_only: false,
            accept_doubtful: false,
            memory_bytes,
            now_ns: 0,
        },
        places,
        assembly,
    })
}

fn load_map(truth: &Superblock, place: usize, drive: &SimDrive) -> LoadedMap {
    let map = MapPlace {
        array_uuid: truth.array_uuid,
        member_uuid: truth.members[place].uuid,
        copies: truth.areas.region_map,
    };
    let copies = map.copies.map(|extent| {
        let mut bytes = vec![0; extent.length as usize];
        drive.peek(extent.offset, &mut bytes);
        bytes
    });
    region_map::load(&map, truth.regions(), [&copies[0], &copies[1]])
}

fn after_crash(map: &mut RegionMap) {
    for entry in &mut map.entries {
        if entry.state() == RegionState::Dirty {
            *entry = RegionEntry::new(RegionState::NeedsSync, entry.generation());
        }
    }
}

fn started(assembly: &Assembly, number: u64) -> Superblock {
    let mut superblock = assembly.truth.clone();
    superblock.generation += 1;
    let expected: Vec<u16> = assembly.missing_expected().map(|m| m.place).collect();
    for &place in &expected {
        superblock.mark_left(place, MemberState::Missing);
    }
    if !expected.is_empty() {
        superblock.lineage = uuid(2, number);
    }
    superblock.epoch += 1;
    superblock.state = RunState::InUse;
    superblock.owner_host = HOST;
    superblock.owner_started_unix = number;
    superblock
}
