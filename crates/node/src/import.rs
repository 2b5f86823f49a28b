//! Starting an array from what its drives say.

use std::collections::HashMap;

use std::time::{Duration, Instant};
use strake_engine::array::Start;
use strake_engine::format::Found;
use strake_engine::format::assemble::{AssembleOptions, Assembly, assemble};
use strake_engine::format::opening::{self, Opening, OpeningRequest, Reading};
use strake_engine::format::superblock::{MemberState, check_name};
use strake_reactor::drive::{self, BlockingDrive, DriveInfo, DriveSpec, OpenError};
use uuid::Uuid;

use crate::handle::{ErrorKind, ImportArray, NodeError};
use crate::make::now_unix;
use crate::probe;

/// Drives that are busy are tried again for this long.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);
const BUSY_PAUSE: Duration = Duration::from_millis(50);

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
    let specs = assembly
        .members
        .iter()
        .map(|drive| drive.map(|drive| spec_of(&drives, drive).clone()))
        .collect();
    let opening = OpeningRequest {
        read_only: request.read_only,
        force: request.force,
        new_name: request.new_name.clone(),
        this_host,
        now_unix: now_unix(),
        new_lineage: Uuid::new_v4(),
        memory_bytes,
        volatile: volatile(&assembly, &drives),
    };
    let mut open = Drives::of(&assembly, &drives)?;
    let opening = opening::open(&assembly, &opening, &mut open)
        .map_err(|error| NodeError::new(ErrorKind::Refused, error.to_string()))?;
    warnings.extend(suspect_text(&opening, &missing_text(&assembly, request)));
    warnings.extend(opening.notes);
    Ok(Import {
        start: opening.start,
        specs,
        warnings,
    })
}

type Looked = Vec<(usize, DriveSpec, DriveInfo)>;

/// A drive that is busy may be released in a moment: the kernel tears a killed process's rings
/// down after its end. One deadline for all drives.
fn find_patiently(
    index: usize,
    spec: &DriveSpec,
    deadline: Instant,
) -> Result<(Found, DriveInfo), OpenError> {
    loop {
        match probe::find(index, spec) {
            Err(OpenError::Busy { .. }) if Instant::now() < deadline => {
                std::thread::sleep(BUSY_PAUSE);
            }
            found => return found,
        }
    }
}

fn look_at(specs: &[DriveSpec]) -> (Vec<Found>, Looked, Vec<String>) {
    let (mut found, mut drives, mut warnings) = (Vec::new(), Looked::new(), Vec::new());
    let deadline = Instant::now() + BUSY_PATIENCE;
    for (index, spec) in specs.iter().enumerate() {
        match find_patiently(index, spec, deadline) {
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

/// Members' drives, open for reading.
struct Drives(HashMap<usize, BlockingDrive>);

impl Drives {
    fn of(assembly: &Assembly, drives: &Looked) -> Result<Drives, NodeError> {
        let members = assembly.members.iter().flatten();
        let open = members.map(|&drive| {
            let open = drive::blocking(spec_of(drives, drive), true).map_err(NodeError::drive)?;
            Ok((drive, open))
        });
        open.collect::<Result<_, _>>().map(Drives)
    }
}

impl Reading for Drives {
    fn read(&mut self, drive: usize, offset: u64, out: &mut [u8]) -> bool {
        self.0[&drive].read_at(offset, out).is_ok()
    }
}

/// By place; of a missing member the worst is assumed.
fn volatile(assembly: &Assembly, drives: &Looked) -> Vec<bool> {
    let cache = |drive: usize| drives.iter().find(|(at, ..)| *at == drive);
    let members = assembly.members.iter();
    members
        .map(|drive| {
            drive
                .and_then(cache)
                .is_none_or(|(_, _, info)| info.volatile_cache)
        })
        .collect()
}

/// What a crash and the absence of members have cost together.
fn suspect_text(opening: &Opening, missing: &str) -> Option<String> {
    let name = &opening.start.superblock.name;
    (opening.suspect_bytes > 0).then(|| {
        format!(
            "array {name}: was not stopped cleanly and was started degraded ({missing}): {} bytes of what the missing members held were listed as suspect; `strake array torn {name}` lists them: write them again, or accept them with `strake array accept {name} --force`",
            opening.suspect_bytes
        )
    })
}
