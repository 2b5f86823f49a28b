//! Which copy is true: from the superblocks of all drives found to the array as it is.
//!
//! The decision, whole, is [`assemble`]; it rests on these facts of how superblocks are written:
//!
//! * Every change raises the generation and is durable on all members in the array before it takes
//!   effect. So the newest generation is true, and a member may be at most one change behind
//!   without having left.
//! * That a member left is durable on the others before the first write that it misses is
//!   acknowledged. So a member that the newest superblock lists as active, or as rebuilding up to
//!   a position, has missed nothing, whatever its own copy says; any other is stale.
//! * A start without all members last known good renews the lineage. So two halves of an array
//!   that ran apart carry lineages that the other does not know, and are never merged.
//! * A newer superblock can only exist on members that could have run without the ones present:
//!   at least `data` of them in every group ([`Assembly::newer_may_exist`]).

use super::error::FormatError;
use super::superblock::{MemberState, RunState, Superblock, lineage_tag};
use std::collections::BTreeMap;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// One drive and the two superblock copies on it.
#[derive(Debug, Clone)]
pub struct Found {
    /// The caller's index of the drive; unique.
    pub drive: usize,
    /// Path, for errors.
    pub path: String,
    /// Serial, for errors.
    pub serial: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Copies A and B as decoded; a copy that could not be read is
    /// [`FormatError::Unreadable`].
    pub copies: [Result<Superblock, FormatError>; 2],
}

/// What is known beside the drives.
#[derive(Debug, Clone, Copy, Default)]
pub struct AssembleOptions {
    /// This host.
    pub this_host: Uuid,
    /// Newest generation that this host has seen of the array, if it has: no newer one exists.
    pub known_generation: Option<u64>,
}

/// A place without a usable drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingMember {
    /// Place.
    pub place: u16,
    /// Member.
    pub uuid: Uuid,
    /// Serial of the drive that is or was there.
    pub serial: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// What the true superblock says of it. `Active` and `Rebuilding` members are expected; the
    /// others had left before.
    pub recorded: MemberState,
}

/// Why a drive of the array is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StaleReason {
    /// It left the array.
    #[error("left the array ({}) at generation {left_generation}; its content is old: replace the member with it to rebuild it", .state.name())]
    Left {
        /// How.
        state: MemberState,
        /// When.
        left_generation: u64,
    },
    /// Its place was given to another member.
    #[error("is no longer a member: its place was given to another drive")]
    NotListed,
    /// The drive lost its end.
    #[error("has {size_bytes} bytes, {needed_bytes} are needed: the drive or file was cut short")]
    Shrunk {
        /// Now.
        size_bytes: u64,
        /// Needed.
        needed_bytes: u64,
    },
}

/// A drive of the array that is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleDrive {
    /// Caller's index.
    pub drive: usize,
    /// Its place in the true superblock, or by its own where it is not listed.
    pub place: u16,
    /// Why.
    pub why: StaleReason,
}

/// A superblock copy that must be written again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadCopy {
    /// Caller's index.
    pub drive: usize,
    /// 0: copy A, 1: copy B.
    pub copy: usize,
    /// Why.
    pub why: BadCopyReason,
}

/// Why a superblock copy is not good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCopyReason {
    /// Torn, damaged, absent or unreadable.
    #[error("{0}")]
    Invalid(FormatError),
    /// Older than the drive's other copy: a crash came between the two writes.
    #[error("generation {says}, the drive's other copy has {newest}")]
    Behind {
        /// Generation of this copy.
        says: u64,
        /// Generation of the other.
        newest: u64,
    },
    /// Of another array, left from before.
    #[error("belongs to array {0}")]
    OtherArray(Uuid),
}

/// Another host runs the array, or did when it crashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherOwner {
    /// Host.
    pub host: Uuid,
    /// When it started the array, seconds since 1970.
    pub started_unix: u64,
}

/// The array as its drives tell it.
#[derive(Debug, Clone)]
pub struct Assembly {
    /// The newest superblock, as written to some current or stale member.
    pub truth: Superblock,
    /// By place: the drive to use (caller's index). Its state and rebuild position are those of
    /// `truth.members[place]`.
    pub members: Vec<Option<usize>>,
    /// Drives of the array that must not be used.
    pub stale: Vec<StaleDrive>,
    /// Drives that ran as this array apart from the others; their newest writes are only there.
    /// Not used, and not to be overwritten without the administrator's word.
    pub diverged: Vec<usize>,
    /// Members that left and of which there are several drives (none of them used).
    pub clones: Vec<(u16, Vec<usize>)>,
    /// Every place without a usable drive.
    pub missing: Vec<MissingMember>,
    /// Superblock copies to be written again.
    pub bad_copies: Vec<BadCopy>,
    /// Drives without a superblock of this array.
    pub foreign: Vec<usize>,
    /// Why a newer superblock may exist on members that are absent; `None` when none can. With
    /// `Some`, starting may lose acknowledged writes: only by force.
    pub newer_may_exist: Option<String>,
    /// Groups in which fewer members are in sync than data strips: the array cannot serve all.
    pub short_groups: Vec<u16>,
    /// Some member is not in sync.
    pub degraded: bool,
    /// Not stopped properly: dirty regions need a resync.
    pub dirty: bool,
    /// In use by another host when last written.
    pub owned_by_other_host: Option<OtherOwner>,
}

impl Assembly {
    /// Every group has enough members in sync.
    pub fn enough_members(&self) -> bool {
        self.short_groups.is_empty()
    }

    /// Dirty with less than full redundancy: strips of missing members in dirty regions cannot be
    /// trusted.
    pub fn dirty_and_degraded(&self) -> bool {
        self.dirty && self.degraded
    }

    /// Members that should be there and are not.
    pub fn missing_expected(&self) -> impl Iterator<Item = &MissingMember> {
        self.missing.iter().filter(|m| m.recorded.is_in_array())
    }
}

/// Why no array can be made of the drives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// No drive has a superblock of it.
    #[error(
        "array {array}: none of the drives given holds a superblock of it; check the drives and the UUID"
    )]
    NotFound {
        /// Array.
        array: Uuid,
    },
    /// One member is on several drives.
    #[error("array {array}: member {place} is on several drives ({}): clones; none of them is used. Leave out all but the true one", .drives.join(", "))]
    Clones {
        /// Array.
        array: Uuid,
        /// Place.
        place: u16,
        /// Paths with serials.
        drives: Vec<String>,
    },
    /// Two sets of drives were changed apart and are equally new.
    #[error("array {array}: {} and {} were started apart from each other and both changed (generation {generation}); they cannot be joined. Import again with only the set to keep, then replace the other members", .one.join(", "), .other.join(", "))]
    Diverged {
        /// Array.
        array: Uuid,
        /// Generation of both.
        generation: u64,
        /// Paths with serials of one set.
        one: Vec<String>,
        /// And of the other.
        other: Vec<String>,
    },
    /// A newer Strake was here.
    #[error("array {array}: {drive}: {why}")]
    NeedsNewer {
        /// Array.
        array: Uuid,
        /// Path with serial.
        drive: String,
        /// The copy's error.
        why: Box<FormatError>,
    },
}

/// UUID and name of every array of which a superblock was found, with the newest generation.
/// Drives of a newer format are not listed: their superblocks cannot be read.
pub fn arrays(found: &[Found]) -> Vec<(Uuid, String, u64)> {
    let mut newest: BTreeMap<Uuid, &Superblock> = BTreeMap::new();
    for superblock in found.iter().flat_map(|f| f.copies.iter().flatten()) {
        let entry = newest.entry(superblock.array_uuid).or_insert(superblock);
        if entry.generation < superblock.generation {
            *entry = superblock;
        }
    }
    let list = newest.into_iter();
    list.map(|(uuid, s)| (uuid, s.name.clone(), s.generation))
        .collect()
}

/// A drive of the array with its newest copy.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    found: &'a Found,
    best: &'a Superblock,
}

impl<'a> Candidate<'a> {
    fn uuid(&self) -> Uuid {
        self.best.own().uuid
    }

    /// Its valid copies.
    fn copies(&self, array: Uuid) -> impl Iterator<Item = &'a Superblock> {
        let copies = self.found.copies.iter().flatten();
        copies.filter(move |copy| copy.array_uuid == array)
    }
}

impl Found {
    fn label(&self) -> String {
        format!("{} (serial {})", self.path, self.serial)
    }
}

/// Decides which superblock of array `array` is true and which drives may be used.
///
/// Nothing is decided here about starting: the caller looks at [`Assembly::enough_members`],
/// `newer_may_exist`, `dirty_and_degraded`, `owned_by_other_host` and the administrator's wish.
///
/// # Errors
/// [`AssembleError`]: not found; a member that should be used is on several drives; equally new
/// superblocks that contradict each other; a drive that a newer Strake has written.
pub fn assemble(
    array: Uuid,
    found: &[Found],
    options: &AssembleOptions,
) -> Result<Assembly, AssembleError> {
    let mut bad_copies = Vec::new();
    let candidates = candidates(array, found, &mut bad_copies)?;
    let newest = candidates
        .iter()
        .max_by_key(|c| (c.best.generation, c.best.epoch))
        .ok_or(AssembleError::NotFound { array })?;
    let truth = newest.best;
    refuse_diverged(array, truth, &candidates)?;

    let mut assembly = Assembly {
        truth: truth.clone(),
        members: vec![None; truth.members.len()],
        stale: Vec::new(),
        diverged: Vec::new(),
        clones: Vec::new(),
        missing: Vec::new(),
        bad_copies,
        foreign: foreign(found, &candidates),
        newer_may_exist: None,
        short_groups: Vec::new(),
        degraded: false,
        dirty: truth.state == RunState::InUse,
        owned_by_other_host: other_owner(truth, options.this_host),
    };
    seat(&mut assembly, array, &candidates)?;
    judge(&mut assembly);
    assembly.newer_may_exist = newer_may_exist(&assembly, &candidates, options.known_generation);
    Ok(assembly)
}

/// The newest valid copy of each drive of the array; what is wrong with the others.
fn candidates<'a>(
    array: Uuid,
    found: &'a [Found],
    bad: &mut Vec<BadCopy>,
) -> Result<Vec<Candidate<'a>>, AssembleError> {
    let mut out = Vec::new();
    for found in found {
        let ours =
            |copy: &'a Result<Superblock, _>| copy.as_ref().ok().filter(|s| s.array_uuid == array);
        let best = found.copies.iter().filter_map(ours);
        // Of two equal copies the first, so that the result does not depend on the search.
        let Some(best) = best.rev().max_by_key(|s| (s.generation, s.epoch)) else {
            continue;
        };
        for (copy, result) in found.copies.iter().enumerate() {
            if let Err(why) = result
                && why.needs_newer()
            {
                return Err(AssembleError::NeedsNewer {
                    array,
                    drive: found.label(),
                    why: Box::new(why.clone()),
                });
            }
            if let Some(why) = bad_copy(array, result, best) {
                bad.push(BadCopy {
                    drive: found.drive,
                    copy,
                    why,
                });
            }
        }
        out.push(Candidate { found, best });
    }
    Ok(out)
}

fn bad_copy(
    array: Uuid,
    copy: &Result<Superblock, FormatError>,
    best: &Superblock,
) -> Option<BadCopyReason> {
    match copy {
        Err(why) => Some(BadCopyReason::Invalid(why.clone())),
        Ok(s) if s.array_uuid != array => Some(BadCopyReason::OtherArray(s.array_uuid)),
        Ok(s) if s.generation < best.generation => Some(BadCopyReason::Behind {
            says: s.generation,
            newest: best.generation,
        }),
        Ok(_) => None,
    }
}

fn foreign(found: &[Found], candidates: &[Candidate]) -> Vec<usize> {
    let ours = |drive| candidates.iter().any(|c| c.found.drive == drive);
    let drives = found.iter().map(|f| f.drive);
    drives.filter(|&drive| !ours(drive)).collect()
}

fn other_owner(truth: &Superblock, this_host: Uuid) -> Option<OtherOwner> {
    let other = !truth.owner_host.is_nil() && truth.owner_host != this_host;
    (truth.state == RunState::InUse && other).then_some(OtherOwner {
        host: truth.owner_host,
        started_unix: truth.owner_started_unix,
    })
}

/// One generation is one content: superblocks that are as new as the truth and say something else
/// come from sets that ran apart. Both copies of a drive count.
fn refuse_diverged(
    array: Uuid,
    truth: &Superblock,
    candidates: &[Candidate],
) -> Result<(), AssembleError> {
    let cut_off = starts_were_cut_off(array, truth, candidates);
    let same = |copy: &Superblock| match cut_off {
        true => copy.same_but_for_the_time(truth),
        false => copy.same_array_state(truth),
    };
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for candidate in candidates {
        let mut as_new = candidate
            .copies(array)
            .filter(|copy| copy.generation == truth.generation);
        if candidate.best.generation < truth.generation {
            continue;
        }
        if as_new.all(same) {
            one.push(candidate.found.label());
        } else {
            other.push(candidate.found.label());
        }
    }
    if other.is_empty() {
        return Ok(());
    }
    Err(AssembleError::Diverged {
        array,
        generation: truth.generation,
        one,
        other,
    })
}

/// Whether the newest superblocks are of starts that were cut off while they wrote their first
/// copies, and nothing else tells their drives apart. A start that is cut off before any copy of its
/// is whole leaves torn ones. The next begins from the same state with the same generation, and cut
/// off in its turn may make one of them whole: it differs in the time of the start alone.
///
/// Second copies are written when the first is on every member. So a drive whose other copy is not
/// an older one has been through a change that ended, or cannot say; and times tell copies of a set of
/// drives (snapshots) from each other that were started apart.
fn starts_were_cut_off(array: Uuid, truth: &Superblock, candidates: &[Candidate]) -> bool {
    let newest = |copy: &&Superblock| copy.generation == truth.generation;
    let begun = |candidate: &Candidate| {
        let (new, old): (Vec<_>, Vec<_>) = candidate.copies(array).partition(newest);
        new.is_empty() || (new.len(), old.len()) == (1, 1)
    };
    if truth.state != RunState::InUse || !candidates.iter().all(begun) {
        return false;
    }
    let mut before: BTreeMap<u64, &Superblock> = BTreeMap::new();
    let copies = candidates
        .iter()
        .flat_map(|candidate| candidate.copies(array));
    copies.filter(|copy| !newest(copy)).all(|copy| {
        let first = *before.entry(copy.generation).or_insert(copy);
        first.same_array_state(copy)
    })
}

/// Gives each drive its place, or the reason why it has none.
fn seat(
    assembly: &mut Assembly,
    array: Uuid,
    candidates: &[Candidate],
) -> Result<(), AssembleError> {
    let mut by_member: BTreeMap<Uuid, Vec<&Candidate>> = BTreeMap::new();
    for candidate in candidates {
        by_member
            .entry(candidate.uuid())
            .or_default()
            .push(candidate);
    }
    for (uuid, drives) in by_member {
        let place = assembly.truth.members.iter().position(|m| m.uuid == uuid);
        let state = place.map(|place| assembly.truth.members[place].state);
        let wanted = state.is_some_and(MemberState::is_in_array);
        if drives.len() > 1 {
            let at = place.map_or(drives[0].best.member_index, |place| place as u16);
            if wanted {
                let drives = drives.iter().map(|c| c.found.label()).collect();
                return Err(AssembleError::Clones {
                    array,
                    place: at,
                    drives,
                });
            }
            let list = drives.iter().map(|c| c.found.drive).collect();
            assembly.clones.push((at, list));
        }
        for candidate in drives {
            seat_one(assembly, candidate, place);
        }
    }
    Ok(())
}

fn seat_one(assembly: &mut Assembly, candidate: &Candidate, place: Option<usize>) {
    let drive = candidate.found.drive;
    let truth = &assembly.truth;
    let record = place.map(|place| &truth.members[place]);
    let why = match record {
        None => StaleReason::NotListed,
        Some(record) if !record.state.is_in_array() => StaleReason::Left {
            state: record.state,
            left_generation: record.left_generation,
        },
        Some(_) if truth.areas.on_drive(candidate.found.size_bytes).is_err() => {
            StaleReason::Shrunk {
                size_bytes: candidate.found.size_bytes,
                needed_bytes: truth.areas.drive_bytes_needed(),
            }
        }
        Some(_) => {
            let place = place.expect("a record has a place");
            assembly.members[place] = Some(drive);
            return;
        }
    };
    if ran_apart(candidate.best, truth, place) {
        assembly.diverged.push(drive);
    } else {
        let place = place.map_or(candidate.best.member_index, |place| place as u16);
        assembly.stale.push(StaleDrive { drive, place, why });
    }
}

/// Whether a drive that is not in the true array went on without it: its lineage is neither the
/// truth's nor the one in which it left, and it is not older than its leaving.
fn ran_apart(own: &Superblock, truth: &Superblock, place: Option<usize>) -> bool {
    if own.lineage == truth.lineage {
        return false;
    }
    match place.map(|place| &truth.members[place]) {
        Some(record) if record.left_generation > 0 => {
            lineage_tag(own.lineage) != record.left_lineage_tag
                && own.generation >= record.left_generation
        }
        _ => false, // replaced by another member, on the administrator's word
    }
}

/// What the places filled make of the array.
fn judge(assembly: &mut Assembly) {
    let truth = &assembly.truth;
    let group_size = usize::from(truth.group_size());
    for (place, record) in truth.members.iter().enumerate() {
        if assembly.members[place].is_none() {
            assembly.missing.push(MissingMember {
                place: place as u16,
                uuid: record.uuid,
                serial: record.serial.clone(),
                size_bytes: record.size_bytes,
                recorded: record.state,
            });
        }
    }
    for (group, drives) in assembly.members.chunks(group_size).enumerate() {
        let places = &truth.members[group * group_size..];
        let in_sync = drives
            .iter()
            .zip(places)
            .filter(|(drive, record)| drive.is_some() && record.state == MemberState::Active)
            .count();
        assembly.degraded |= in_sync < group_size;
        if in_sync < usize::from(truth.data) {
            assembly.short_groups.push(group as u16);
        }
    }
}

/// Whether the members without any superblock here could have run the array without those that
/// are here. Rebuilding ones count: their rebuild may have ended in a change that none of the
/// present members saw.
fn newer_may_exist(
    assembly: &Assembly,
    candidates: &[Candidate],
    known_generation: Option<u64>,
) -> Option<String> {
    let truth = &assembly.truth;
    match known_generation {
        Some(known) if known <= truth.generation => return None,
        Some(known) => {
            return Some(format!(
                "this host has seen generation {known} of the array, the drives found have only {}: newer data is on drives that are not here",
                truth.generation
            ));
        }
        None => {}
    }
    let unseen = |uuid: Uuid| !candidates.iter().any(|c| c.uuid() == uuid);
    let could_run = truth
        .members
        .chunks(usize::from(truth.group_size()))
        .all(|group| {
            let absent = group
                .iter()
                .filter(|m| m.state.is_in_array() && unseen(m.uuid));
            absent.count() >= usize::from(truth.data)
        });
    could_run.then(|| {
        let absent = truth.members.iter().enumerate();
        let absent: Vec<String> = absent
            .filter(|(_, m)| m.state.is_in_array() && unseen(m.uuid))
            .map(|(place, m)| format!("{place} (serial {})", m.serial))
            .collect();
        format!(
            "the absent members {} could have run the array without those found and hold newer data: bring them back",
            absent.join(", ")
        )
    })
}
