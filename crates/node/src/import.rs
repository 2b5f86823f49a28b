//! Starting an array from what its drives say.

use strake_engine::array::Start;
use strake_engine::format::assemble::{AssembleOptions, Assembly, assemble};
use strake_engine::format::region_map::{self, LoadedMap, MapPlace, RegionEntry, RegionMap};
use strake_engine::format::superblock::{MemberState, RunState, Superblock, check_name};
use strake_engine::format::{Found, RegionState};
use strake_reactor::drive::{self, DriveInfo, DriveSpec};
use uuid::Uuid;

use crate::handle::{ErrorKind, ImportArray, NodeError};
use crate::make::now_unix;
use crate::probe;

/// Everything a core needs to serve the array, and what an administrator should hear.
pub(crate) struct Import {
    pub start: Start,
    /// Drives by place.
    pub specs: Vec<Option<DriveSpec>>,
    pub warnings: Vec<String>,
}

/// Looks at all drives and decides whether and how the array starts. Changes nothing.
pub(crate) fn import(
    request: &ImportArray,
    this_host: Uuid,
    memory_bytes: usize,
) -> Result<Import, NodeError> {
    if let Some(name) = &request.new_name {
        check_name(name).map_err(|why| {
            NodeError::new(ErrorKind::Invalid, format!("array name {name:?}: {why}"))
        })?;
    }
    let (found, drives, mut warnings) = look_at(&request.drives);
    let options = AssembleOptions {
        this_host,
        known_generation: request.known_generation,
    };
    let assembly = assemble(request.uuid, &found, &options)
        .map_err(|error| NodeError::new(ErrorKind::Refused, error.to_string()))?;
    warn(&assembly, &found, &mut warnings);
    if request.read_only {
        warnings.extend(assembly.newer_may_exist.clone());
    }
    judge(request, &assembly, &found)?;
    let map = load_map(&assembly, &drives, request)?;
    let specs = assembly
        .members
        .iter()
        .map(|drive| drive.map(|drive| spec_of(&drives, drive).clone()))
        .collect();
    let superblock = started(request, &assembly, this_host);
    Ok(Import {
        start: Start {
            present: assembly.members.iter().map(Option::is_some).collect(),
            superblock,
            regions: map,
            read_only: request.read_only,
            accept_doubtful: request.force,
            memory_bytes,
            now_ns: 0,
        },
        specs,
        warnings,
    })
}

type Looked = Vec<(usize, DriveSpec, DriveInfo)>;

fn look_at(specs: &[DriveSpec]) -> (Vec<Found>, Looked, Vec<String>) {
    let (mut found, mut drives, mut warnings) = (Vec::new(), Looked::new(), Vec::new());
    for (index, spec) in specs.iter().enumerate() {
        match probe::find(index, spec) {
            Ok((_, info)) if drives.iter().any(|(_, _, d)| d.identity == info.identity) => {}
            Ok((drive, info)) => {
                found.push(drive);
                drives.push((index, spec.clone(), info));
            }
            Err(error) => warnings.push(format!("not looked at: {error}")),
        }
    }
    (found, drives, warnings)
}

fn spec_of(drives: &Looked, index: usize) -> &DriveSpec {
    let (_, spec, _) = drives
        .iter()
        .find(|(at, _, _)| *at == index)
        .expect("assembled from these drives");
    spec
}

fn label(found: &[Found], drive: usize) -> String {
    found
        .iter()
        .find(|f| f.drive == drive)
        .map_or_else(String::new, |f| format!("{} (serial {})", f.path, f.serial))
}

fn warn(assembly: &Assembly, found: &[Found], warnings: &mut Vec<String>) {
    for stale in &assembly.stale {
        warnings.push(format!("{}: {}", label(found, stale.drive), stale.why));
    }
    for &drive in &assembly.diverged {
        warnings.push(format!(
            "{}: ran as this array apart from the others; it is not used, and its newest writes are only there",
            label(found, drive)
        ));
    }
    for (place, drives) in &assembly.clones {
        let list: Vec<String> = drives.iter().map(|&d| label(found, d)).collect();
        warnings.push(format!(
            "member {place} is on several drives (clones, none used): {}",
            list.join(", ")
        ));
    }
    for bad in &assembly.bad_copies {
        let copy = ["A", "B"][bad.copy];
        warnings.push(format!(
            "{}: superblock copy {copy} is written again: {}",
            label(found, bad.drive),
            bad.why
        ));
    }
}

/// Who is missing or being rebuilt, by serial, and by path where this host has seen them.
fn missing_text(assembly: &Assembly, request: &ImportArray) -> String {
    let missing = assembly.missing.iter().map(|m| {
        let last = request
            .last_seen
            .iter()
            .find(|(place, _)| *place == m.place);
        let path = last.map_or(String::new(), |(_, path)| format!(", last at {path}"));
        format!(
            "member {} (serial {}{path}, {} bytes, {})",
            m.place,
            m.serial,
            m.size_bytes,
            m.recorded.name()
        )
    });
    let members = assembly.truth.members.iter().zip(&assembly.members);
    let rebuilding = members.enumerate().filter_map(|(place, (record, drive))| {
        let here = drive.is_some() && record.state == MemberState::Rebuilding;
        here.then(|| {
            format!(
                "member {place} (serial {}) is not rebuilt yet",
                record.serial
            )
        })
    });
    missing.chain(rebuilding).collect::<Vec<_>>().join("; ")
}

/// Refuses what is not safe, saying which word would allow it.
fn judge(request: &ImportArray, assembly: &Assembly, found: &[Found]) -> Result<(), NodeError> {
    let name = &assembly.truth.name;
    let refuse = |text: String| Err(NodeError::new(ErrorKind::Refused, text));
    if !assembly.enough_members() && !request.read_only {
        let unused: Vec<String> = assembly
            .stale
            .iter()
            .map(|s| format!("{}: {}", label(found, s.drive), s.why))
            .chain(
                assembly
                    .diverged
                    .iter()
                    .map(|&d| format!("{}: ran apart", label(found, d))),
            )
            .collect();
        let unused = if unused.is_empty() {
            String::new()
        } else {
            format!("; not usable: {}", unused.join("; "))
        };
        return refuse(format!(
            "array {name}: too few members: missing {}{unused}; find these drives, or import with --read-only to read what is left",
            missing_text(assembly, request)
        ));
    }
    if let Some(owner) = assembly.owned_by_other_host
        && !request.force
        && !request.read_only
    {
        return refuse(format!(
            "array {name}: is in use by host {} (started {} s after 1970) or was when that host crashed; make sure it is stopped there, then add --force",
            owner.host, owner.started_unix
        ));
    }
    if !assembly.diverged.is_empty() && !request.force && !request.read_only {
        let drives: Vec<String> = assembly.diverged.iter().map(|&d| label(found, d)).collect();
        return refuse(format!(
            "array {name}: {} ran as this array apart from the others: its newest writes are only there; leave it out, or add --force to go on without what it holds",
            drives.join(", ")
        ));
    }
    if let Some(why) = &assembly.newer_may_exist
        && !request.force
        && !request.read_only
    {
        return refuse(format!(
            "array {name}: {why}; find those drives, or add --force to go on without them"
        ));
    }
    if assembly.truth.read_only_only && !request.read_only {
        return refuse(format!(
            "array {name}: uses features this Strake can only read; add --read-only, or use a newer Strake"
        ));
    }
    Ok(())
}

/// The region map of all current members, and what a crash made of it.
fn load_map(
    assembly: &Assembly,
    drives: &Looked,
    request: &ImportArray,
) -> Result<RegionMap, NodeError> {
    let truth = &assembly.truth;
    let mut joined: Option<LoadedMap> = None;
    for (place, drive) in assembly.members.iter().enumerate() {
        let Some(drive) = drive else { continue };
        let loaded = load_member_map(truth, place, spec_of(drives, *drive))?;
        match &mut joined {
            Some(map) => map.merge(&loaded),
            None => joined = Some(loaded),
        }
    }
    let Some(joined) = joined else {
        return Err(NodeError::new(
            ErrorKind::Refused,
            format!("array {}: no member is usable", truth.name),
        ));
    };
    let mut map = joined.into_map();
    // After a clean stop what is still dirty was waiting for its resync.
    if truth.parity > 0 {
        after_crash(&mut map, assembly, request)?;
    }
    Ok(map)
}

/// Dirty regions of an array that was not stopped need a resync, which needs every data strip.
fn after_crash(
    map: &mut RegionMap,
    assembly: &Assembly,
    request: &ImportArray,
) -> Result<(), NodeError> {
    let doubtful =
        |entry: &RegionEntry| matches!(entry.state(), RegionState::Dirty | RegionState::NeedsSync);
    let dirty = map.entries.iter().filter(|entry| doubtful(entry)).count();
    if dirty > 0 && assembly.degraded && !request.read_only && !request.force {
        return Err(NodeError::new(
            ErrorKind::Refused,
            format!(
                "array {}: was not stopped cleanly and is degraded ({}): in {dirty} regions of {} bytes a member, what the missing members held may be wrong where writes were in flight; import with --read-only (such blocks read as errors), or add --force to accept them as they are",
                assembly.truth.name,
                missing_text(assembly, request),
                assembly.truth.region_size_bytes
            ),
        ));
    }
    for entry in &mut map.entries {
        if entry.state() == RegionState::Dirty {
            *entry = RegionEntry::new(RegionState::NeedsSync, entry.generation());
        }
    }
    Ok(())
}

fn load_member_map(
    truth: &Superblock,
    place: usize,
    spec: &DriveSpec,
) -> Result<LoadedMap, NodeError> {
    let open = drive::blocking(spec, true).map_err(NodeError::drive)?;
    let map = MapPlace {
        array_uuid: truth.array_uuid,
        member_uuid: truth.members[place].uuid,
        copies: truth.areas.region_map,
    };
    let copies = map.copies.map(|extent| {
        let mut bytes = vec![0; extent.length as usize];
        // What cannot be read counts as not valid, page by page.
        if open.read_at(extent.offset, &mut bytes).is_err() {
            for (index, page) in bytes.chunks_mut(region_map::MAP_PAGE_BYTES).enumerate() {
                let at = extent.offset + (index * region_map::MAP_PAGE_BYTES) as u64;
                if open.read_at(at, page).is_err() {
                    page.fill(0);
                }
            }
        }
        bytes
    });
    Ok(region_map::load(
        &map,
        truth.regions(),
        [&copies[0], &copies[1]],
    ))
}

/// The superblock of this start: epoch raised, owner set, who is missing recorded.
fn started(request: &ImportArray, assembly: &Assembly, this_host: Uuid) -> Superblock {
    let mut superblock = assembly.truth.clone();
    if request.read_only {
        return superblock;
    }
    superblock.raise_for_start();
    let expected: Vec<u16> = assembly.missing_expected().map(|m| m.place).collect();
    for &place in &expected {
        superblock.mark_left(place, MemberState::Missing);
    }
    if !expected.is_empty() {
        superblock.lineage = Uuid::new_v4();
    }
    superblock.state = RunState::InUse;
    superblock.owner_host = this_host;
    superblock.owner_started_unix = now_unix();
    if let Some(name) = &request.new_name {
        superblock.name.clone_from(name);
    }
    superblock
}
