//! Making arrays: every check first, then metadata, superblocks last.

use strake_codec::CODE_ID;
use strake_engine::array::Start;
use strake_engine::format::areas::{AreaRequest, Areas};
use strake_engine::format::log::{self, LogHeader};
use strake_engine::format::region_map::{MapPlace, RegionEntry, RegionMap, RegionState};
use strake_engine::format::store::{Store, StorePlace};
use strake_engine::format::superblock::{
    ChecksumKind, Consistency, Features, LayoutParameters, MemberRecord, MemberState, RunState,
    Superblock, check_name,
};
use strake_engine::layout::{Geometry, Shape};
use strake_reactor::drive::{self, BlockingDrive, DriveInfo, DriveKind, DriveSpec};
use uuid::Uuid;

use crate::handle::{CreateArray, ErrorKind, NodeError};
use crate::probe;

/// Checks everything, writes a new array's metadata and returns its superblock with the specs to
/// open. On error nothing has changed on any drive (a drive that failed while it was written gets
/// its superblocks erased again).
pub(crate) fn make(request: &CreateArray) -> Result<(Superblock, Vec<DriveSpec>), NodeError> {
    check_name(&request.name).map_err(|why| {
        NodeError::new(
            ErrorKind::Invalid,
            format!("array name {:?}: {why}", request.name),
        )
    })?;
    if request.geometry.members != request.drives.len() {
        return Err(NodeError::new(
            ErrorKind::Invalid,
            "the geometry's members are not the drives given".to_owned(),
        ));
    }
    let shape = request
        .geometry
        .shape()
        .map_err(|error| NodeError::new(ErrorKind::Invalid, error.to_string()))?;
    let specs: Vec<DriveSpec> = request.drives.iter().map(labelled).collect();
    let infos = specs
        .iter()
        .map(drive::describe)
        .collect::<Result<Vec<_>, _>>()
        .map_err(NodeError::drive)?;
    refuse_twice(&infos)?;
    for spec in &specs {
        refuse_used(spec, request.force)?;
    }
    let superblock = plan_superblock(request, shape, &infos)?;
    // Claims every drive before the first byte is written.
    let open = specs
        .iter()
        .map(|spec| drive::blocking(spec, false))
        .collect::<Result<Vec<_>, _>>()
        .map_err(NodeError::drive)?;
    for (place, drive) in open.iter().enumerate() {
        if let Err(error) = write_metadata(&superblock, place, drive) {
            for drive in &open[..=place] {
                let _ = probe::erase(drive);
            }
            return Err(NodeError::new(
                ErrorKind::Drive,
                format!(
                    "{}: cannot write metadata: {error}; no array was made",
                    drive.info().path
                ),
            ));
        }
    }
    Ok((superblock, specs))
}

/// Start of an array that is written down nowhere: its regions count as clean, so that nothing is
/// zeroed first and reads reach the drives. For benchmarks on null and memory drives; `missing`
/// members are absent from the start.
///
/// # Errors
/// As for [`crate::Node::create`], as far as geometry and sizes are concerned.
pub fn unrecorded(
    request: &CreateArray,
    infos: &[DriveInfo],
    missing: &[usize],
    memory_bytes: usize,
) -> Result<Start, NodeError> {
    let shape = request
        .geometry
        .shape()
        .map_err(|error| NodeError::new(ErrorKind::Invalid, error.to_string()))?;
    let mut superblock = plan_superblock(request, shape, infos)?;
    superblock.state = RunState::InUse;
    let mut regions = RegionMap::new(superblock.regions());
    for entry in &mut regions.entries {
        *entry = RegionEntry::new(RegionState::Clean, superblock.generation);
    }
    Ok(Start {
        present: (0..infos.len())
            .map(|place| !missing.contains(&place))
            .collect(),
        superblock,
        regions,
        volatile: infos.iter().map(|info| info.volatile_cache).collect(),
        replay: None,
        store: Store::new(),
        store_changed: false,
        store_behind: Vec::new(),
        pages_behind: Default::default(),
        copy_b_first: Vec::new(),
        read_only: false,
        accept_doubtful: false,
        memory_bytes,
        now_ns: 0,
    })
}

/// A memory drive without a label would be another one at each opening.
pub(crate) fn labelled(spec: &DriveSpec) -> DriveSpec {
    let unlabelled = |kind: &DriveKind| {
        matches!(
            kind,
            DriveKind::Memory { label: None, .. }
                | DriveKind::Null { label: None, .. }
                | DriveKind::Paced { label: None, .. }
        )
    };
    match spec.parse() {
        Ok(DriveKind::Faulty(inner)) if unlabelled(&inner) => {
            DriveSpec(format!("{}:{}", spec.0, Uuid::new_v4()))
        }
        Ok(kind) if unlabelled(&kind) => DriveSpec(format!("{}:{}", spec.0, Uuid::new_v4())),
        _ => spec.clone(),
    }
}

fn refuse_twice(infos: &[DriveInfo]) -> Result<(), NodeError> {
    for (index, info) in infos.iter().enumerate() {
        if let Some(other) = infos[..index]
            .iter()
            .find(|other| other.identity == info.identity)
        {
            return Err(NodeError::new(
                ErrorKind::Invalid,
                format!(
                    "{} and {} are the same drive: give each drive once",
                    other.path, info.path
                ),
            ));
        }
    }
    Ok(())
}

/// Refuses a drive that is in use, and without force one that holds something.
pub(crate) fn refuse_used(spec: &DriveSpec, force: bool) -> Result<(), NodeError> {
    let found = probe::probe(spec).map_err(NodeError::drive)?;
    let path = &found.info.path;
    if let Some(by) = &found.in_use {
        return Err(NodeError::new(
            ErrorKind::Conflict,
            format!("{path}: in use ({by}); release it first (--force does not help here)"),
        ));
    }
    if force {
        return Ok(());
    }
    if let Some(member) = &found.member {
        return Err(NodeError::new(
            ErrorKind::Refused,
            format!(
                "{path}: is member {} of array {} ({}); destroy that array, or add --force to overwrite it",
                member.member, member.array_name, member.array_uuid
            ),
        ));
    }
    if let Some(damage) = found
        .copies
        .iter()
        .find(|copy| *copy != "absent" && *copy != "valid")
    {
        return Err(NodeError::new(
            ErrorKind::Refused,
            format!(
                "{path}: holds damaged or newer Strake metadata ({damage}); add --force to overwrite it"
            ),
        ));
    }
    if let Some(foreign) = &found.foreign {
        return Err(NodeError::new(
            ErrorKind::Refused,
            format!("{path}: holds data ({foreign}); add --force to overwrite it"),
        ));
    }
    Ok(())
}

fn plan_superblock(
    request: &CreateArray,
    shape: Shape,
    infos: &[DriveInfo],
) -> Result<Superblock, NodeError> {
    if let Some(drive) = infos
        .iter()
        .find(|info| info.block_size_bytes > shape.block_size_bytes)
    {
        return Err(NodeError::new(
            ErrorKind::Invalid,
            format!(
                "{}: has blocks of {} bytes: an array with blocks of {} bytes cannot be made on it; use --block-size 4096",
                drive.path, drive.block_size_bytes, shape.block_size_bytes
            ),
        ));
    }
    let consistency = policy(request, &shape)?;
    let smallest = infos
        .iter()
        .min_by_key(|info| info.size_bytes)
        .expect("the shape has members");
    let plan = Areas::plan(
        smallest.size_bytes,
        &AreaRequest {
            strip_size_bytes: shape.strip_size_bytes,
            block_size_bytes: shape.block_size_bytes,
            log_bytes: request.log_bytes,
            log_bytes_min: log::area_bytes_min(&shape),
            checksums: false,
        },
    )
    .map_err(|error| NodeError::new(ErrorKind::Invalid, format!("{}: {error}", smallest.path)))?;
    let geometry = Geometry::new(shape, plan.member_data_bytes, plan.region_size_bytes);
    let strips = shape.strips();
    let members = infos.iter().enumerate().map(|(place, info)| {
        let (group, index) = ((place / strips) as u16, (place % strips) as u16);
        MemberRecord::new(
            Uuid::new_v4(),
            &info.serial,
            info.size_bytes,
            group,
            index,
            MemberState::Active,
        )
    });
    Ok(Superblock {
        features: Features::default(),
        read_only_only: false,
        array_uuid: Uuid::new_v4(),
        name: request.name.clone(),
        created_unix: now_unix(),
        generation: 1,
        epoch: 0,
        lineage: Uuid::new_v4(),
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
        consistency,
        checksums: ChecksumKind::None,
        rebuild_priority: 50,
        members: members.collect(),
        member_index: 0,
        areas: plan.areas,
        member_data_bytes: plan.member_data_bytes,
        region_size_bytes: plan.region_size_bytes,
        volume_size_bytes: geometry.volume_bytes(),
    })
}

/// The policy asked for, or the level's own.
fn policy(request: &CreateArray, shape: &Shape) -> Result<Consistency, NodeError> {
    let invalid = |text: &str| {
        let text = format!("{}: {text}", shape.level.name());
        Err(NodeError::new(ErrorKind::Invalid, text))
    };
    match (shape.parity, request.policy) {
        (0, Some(policy)) if policy != Consistency::None => invalid(
            "keeps no redundancy that a crash could make wrong: its --policy can only be none",
        ),
        (0, _) if request.log_bytes.is_some() => {
            invalid("keeps no redundancy and so no log: leave --log-size out")
        }
        (0, _) => Ok(Consistency::None),
        (_, policy) => Ok(policy.unwrap_or(Consistency::Log)),
    }
}

/// Seconds since 1970.
pub(crate) fn now_unix() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Everything of one member; the superblocks last, so that a half-made member is none.
fn write_metadata(
    superblock: &Superblock,
    place: usize,
    drive: &BlockingDrive,
) -> std::io::Result<()> {
    let own = superblock
        .for_member(place as u16, drive.info().size_bytes)
        .map_err(|error| std::io::Error::other(error.to_string()))?;
    probe::erase(drive)?;
    let map = MapPlace {
        array_uuid: own.array_uuid,
        member_uuid: own.own().uuid,
        copies: own.areas.region_map,
    };
    for (offset, page) in RegionMap::new(own.regions()).initial_pages(&map) {
        drive.write_at(offset, &page)?;
    }
    write_store_and_log(&own, own.own().uuid, drive)?;
    drive.flush()?;
    for offset in [own.areas.superblock_a.offset, own.areas.superblock_b.offset] {
        drive.write_at(offset, &own.encode(offset))?;
    }
    drive.flush()
}

/// Empty array store and parity log of one member.
pub(crate) fn write_store_and_log(
    superblock: &Superblock,
    member: Uuid,
    drive: &BlockingDrive,
) -> std::io::Result<()> {
    let areas = &superblock.areas;
    let place = StorePlace {
        array_uuid: superblock.array_uuid,
        member_uuid: member,
        area: areas.store,
    };
    let empty = Store::new()
        .initial(&place)
        .map_err(std::io::Error::other)?;
    for (offset, bytes) in empty {
        drive.write_at(offset, &bytes)?;
    }
    let log = LogHeader {
        array_uuid: superblock.array_uuid,
        member_uuid: member,
        generation: superblock.generation,
        epoch: superblock.epoch,
        lineage: superblock.lineage,
        policy: superblock.consistency,
    };
    drive.write_at(areas.log.offset, &log.encode(areas.log))
}
