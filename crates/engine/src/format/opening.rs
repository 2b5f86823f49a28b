//! From what the drives say to what the engine starts from: the one place where it is decided
//! what a crash means.
//!
//! [`open`] reads the region maps and array stores of all current members, joins each to the
//! newest, and decides by the array's policy. It writes nothing; whether the array may be started
//! at all (another owner, too few members) is the caller's to judge before.
//!
//! | stopped | policy | dirty regions become | then |
//! |---|---|---|---|
//! | cleanly | any | needs sync | what was still dirty waited for a resync |
//! | by a crash | log, log-all | dirty | the engine replays the log before it serves anything |
//! | by a crash | resync | needs sync | data missing: listed as suspect |
//! | by a crash | none | dirty | nobody asked for more |
//! | read only | any | needs sync | nothing is replayed: missing data there reads as errors |
//!
//! Where parity may not match and data strips are on missing members, what those held is what
//! parity happens to say. Their bytes of such regions are listed as suspect and read as errors until they
//! are written or accepted; with `force` they are accepted here.

use std::collections::BTreeMap;

use super::areas::Extent;
use super::assemble::Assembly;
use super::region_map::{
    self, LoadedMap, MAP_PAGE_BYTES, MapPlace, RegionEntry, RegionMap, RegionState,
};
use super::store::{self, LoadedStore, Store, StoreError, StoreFull, StorePlace};
use super::superblock::{Consistency, MemberState, RunState, Superblock};
use super::torn::{TORN_EXTENT_BYTES, TornExtent, TornKind, TornList};
use crate::array::{Behind, Replay, Start};
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// Reads members' drives for an opening.
pub trait Reading {
    /// Fills `out` from `offset` of the drive (the caller's index in [`super::Found`]). False:
    /// that range cannot be read.
    fn read(&mut self, drive: usize, offset: u64, out: &mut [u8]) -> bool;
}

/// How an array is to be started.
#[derive(Debug, Clone)]
pub struct OpeningRequest {
    /// Write nothing.
    pub read_only: bool,
    /// Accept what may be wrong: suspect blocks are served as they are, and a store that is lost
    /// counts as empty.
    pub force: bool,
    /// The array's new name, already checked.
    pub new_name: Option<String>,
    /// This host.
    pub this_host: Uuid,
    /// Now, seconds since 1970.
    pub now_unix: u64,
    /// A random id: the lineage if the array starts without members that were last known good.
    pub new_lineage: Uuid,
    /// [`Start::memory_bytes`].
    pub memory_bytes: usize,
    /// By place: the member's drive has a volatile cache.
    pub volatile: Vec<bool>,
}

/// What was decided.
pub struct Opening {
    /// For the engine.
    pub start: Start,
    /// What an administrator should hear.
    pub notes: Vec<String>,
    /// Regions in which parity may not match data.
    pub doubtful_regions: u64,
    /// Bytes newly listed as suspect.
    pub suspect_bytes: u64,
}

/// Why an array cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpeningError {
    /// No drive to read from.
    #[error("array {array}: no member is usable")]
    NoMember {
        /// Name.
        array: String,
    },
    /// The array store is of a newer Strake, or not what it can be.
    #[error("array {array}: {why}")]
    Store {
        /// Name.
        array: String,
        /// Why.
        why: StoreError,
    },
    /// Nothing says any more which blocks are torn.
    #[error(
        "array {array}: {}; import with --read-only to save what is there, or add --force to go on: torn blocks would then be served with wrong content",
        StoreError::Lost
    )]
    StoreLost {
        /// Name.
        array: String,
    },
    /// The torn list names what the array does not have.
    #[error(
        "array {array}: the torn list names {length} bytes at {offset} of member {member}, which the array does not have; use the Strake that wrote it"
    )]
    Torn {
        /// Name.
        array: String,
        /// Place.
        member: u16,
        /// First byte in the member's data area.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// More suspect extents than can be recorded.
    #[error(
        "array {array}: was not stopped cleanly and members are missing: too many places are suspect to record them ({full}); bring the missing members back, import with --read-only, or add --force to accept them as they are"
    )]
    TooManySuspect {
        /// Name.
        array: String,
        /// How many.
        full: StoreFull,
    },
}

/// Decides what the engine starts from. `assembly` has been judged by the caller.
///
/// # Errors
/// [`OpeningError`].
pub fn open(
    assembly: &Assembly,
    request: &OpeningRequest,
    reading: &mut dyn Reading,
) -> Result<Opening, OpeningError> {
    let truth = &assembly.truth;
    let array = truth.name.clone();
    let Some(loaded) = load(assembly, reading) else {
        return Err(OpeningError::NoMember { array });
    };
    let mut notes = loaded.notes(truth);
    let stores = loaded.stores;
    let mut store = take_store(&array, loaded.store, request)?;
    check_torn(truth, &store.torn)?;
    let store_behind = behind(&stores, &store);
    let torn_before = store.torn.clone();
    let mut regions = loaded.map.into_map();
    let before = regions.clone();
    let replay = settle_regions(truth, request, &mut regions);
    let doubtful_regions = count(&regions, RegionState::NeedsSync);
    let doubtful = data_is_doubtful(assembly, doubtful_regions);
    let suspect_before = store.torn.bytes(TornKind::Suspect);
    if doubtful && !request.read_only && !request.force {
        list_suspect(assembly, &before, &regions, &mut store.torn);
        store
            .fits(&store_place(truth, 0))
            .map_err(|full| OpeningError::TooManySuspect {
                array: array.clone(),
                full,
            })?;
    }
    if doubtful && !request.read_only && request.force {
        notes.push(format!(
            "array {array}: in {doubtful_regions} regions of {} bytes a member, what the missing members held is accepted as parity says it",
            truth.region_size_bytes
        ));
    }
    let suspect_bytes = (store.torn.bytes(TornKind::Suspect)).saturating_sub(suspect_before);
    let store_changed = store.torn != torn_before;
    Ok(Opening {
        start: Start {
            present: assembly.members.iter().map(Option::is_some).collect(),
            superblock: started(assembly, request),
            regions,
            pages_behind: loaded.pages_behind,
            copy_b_first: copy_b_first(assembly),
            volatile: request.volatile.clone(),
            replay,
            store_changed,
            store_behind,
            store,
            read_only: request.read_only,
            accept_doubtful: request.force || (doubtful && !request.read_only),
            memory_bytes: request.memory_bytes,
            now_ns: 0,
        },
        notes,
        doubtful_regions,
        suspect_bytes,
    })
}

/// By place: the member's second superblock copy is not as good as its first.
fn copy_b_first(assembly: &Assembly) -> Vec<bool> {
    let bad = |drive: usize| {
        let mut copies = assembly.bad_copies.iter();
        copies.any(|bad| bad.drive == drive && bad.copy == 1)
    };
    let members = assembly.members.iter();
    members.map(|drive| drive.is_some_and(bad)).collect()
}

/// What was read of all current members.
struct Loaded {
    map: LoadedMap,
    store: LoadedStore,
    /// Each member's own, with its place.
    stores: Vec<(u16, LoadedStore)>,
    /// Map pages that some members do not have as they are gone on with.
    pages_behind: BTreeMap<u32, Vec<Behind>>,
}

fn load(assembly: &Assembly, reading: &mut dyn Reading) -> Option<Loaded> {
    let truth = &assembly.truth;
    let mut map: Option<LoadedMap> = None;
    let mut stores: Vec<(u16, LoadedStore)> = Vec::new();
    let mut generations: Vec<(u16, Vec<u64>)> = Vec::new();
    for (place, drive) in assembly.members.iter().enumerate() {
        let Some(drive) = *drive else { continue };
        let loaded = load_map(truth, place, drive, reading);
        generations.push((place as u16, loaded.map.page_generations.clone()));
        match &mut map {
            Some(map) => map.merge(&loaded),
            None => map = Some(loaded),
        }
        let area = read_pages(reading, drive, truth.areas.store);
        let loaded = store::load(&store_place(truth, place), &area);
        stores.push((place as u16, loaded));
    }
    let mut store = stores.first()?.1.clone();
    for (_, other) in &stores[1..] {
        store.merge(other);
    }
    let map = map?;
    let newest = &map.map.page_generations;
    let behind = |page: u32| {
        let at = page as usize;
        let members = generations.iter();
        let behind = members.filter(|(_, own)| own[at] != newest[at]);
        let behind = behind.map(|&(place, ref own)| Behind {
            place,
            generation: own[at],
        });
        let behind: Vec<Behind> = behind.collect();
        (!behind.is_empty()).then_some((page, behind))
    };
    let pages_behind = (0..newest.len() as u32).filter_map(behind).collect();
    Some(Loaded {
        map,
        store,
        stores,
        pages_behind,
    })
}

impl Loaded {
    fn notes(&self, truth: &Superblock) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.map.lost.is_empty() {
            notes.push(format!(
                "array {}: {} pages of the region map are damaged on every member: their regions count as not in sync",
                truth.name,
                self.map.lost.len()
            ));
        }
        for (place, store) in &self.stores {
            for bad in &store.bad {
                notes.push(format!(
                    "member {place}: half {} of the array store is not used: {}",
                    bad.half, bad.why
                ));
            }
        }
        notes
    }
}

fn load_map(
    truth: &Superblock,
    place: usize,
    drive: usize,
    reading: &mut dyn Reading,
) -> LoadedMap {
    let map = MapPlace {
        array_uuid: truth.array_uuid,
        member_uuid: truth.members[place].uuid,
        copies: truth.areas.region_map,
    };
    let copies = map.copies.map(|extent| read_pages(reading, drive, extent));
    region_map::load(&map, truth.regions(), [&copies[0], &copies[1]])
}

/// The area's bytes; pages that cannot be read are zeroes, which no structure is.
fn read_pages(reading: &mut dyn Reading, drive: usize, area: Extent) -> Vec<u8> {
    let mut bytes = vec![0; area.length as usize];
    if !reading.read(drive, area.offset, &mut bytes) {
        for (index, page) in bytes.chunks_mut(MAP_PAGE_BYTES).enumerate() {
            let at = area.offset + (index * MAP_PAGE_BYTES) as u64;
            if !reading.read(drive, at, page) {
                page.fill(0);
            }
        }
    }
    bytes
}

fn store_place(truth: &Superblock, place: usize) -> StorePlace {
    StorePlace {
        array_uuid: truth.array_uuid,
        member_uuid: truth.members[place].uuid,
        area: truth.areas.store,
    }
}

fn take_store(
    array: &str,
    loaded: LoadedStore,
    request: &OpeningRequest,
) -> Result<Store, OpeningError> {
    let accept_loss = request.force || request.read_only;
    loaded.into_store(accept_loss).map_err(|why| {
        let array = array.to_owned();
        match why {
            StoreError::Lost => OpeningError::StoreLost { array },
            StoreError::Refused(_) => OpeningError::Store { array, why },
        }
    })
}

/// Members that do not hold the table gone on with, whatever generation it goes on with.
fn behind(stores: &[(u16, LoadedStore)], store: &Store) -> Vec<Behind> {
    let newest = stores.iter().filter_map(|(_, own)| own.generation()).max();
    let uneven = |own: &LoadedStore| match &own.newest {
        Some(own) => Some(own.generation) != newest || own.torn != store.torn,
        None => true,
    };
    let behind = stores.iter().filter(|(_, own)| uneven(own));
    behind
        .map(|(place, own)| Behind {
            place: *place,
            generation: own.generation().unwrap_or(0),
        })
        .collect()
}

fn check_torn(truth: &Superblock, torn: &TornList) -> Result<(), OpeningError> {
    let members = truth.members.len();
    let outside = |extent: &TornExtent| {
        usize::from(extent.member) >= members
            || extent.offset + extent.length > truth.member_data_bytes
    };
    match torn.iter().find(outside) {
        None => Ok(()),
        Some(extent) => Err(OpeningError::Torn {
            array: truth.name.clone(),
            member: extent.member,
            offset: extent.offset,
            length: extent.length,
        }),
    }
}

/// What dirty regions become, and whether a log is replayed: the table above.
fn settle_regions(
    truth: &Superblock,
    request: &OpeningRequest,
    map: &mut RegionMap,
) -> Option<Replay> {
    if truth.parity == 0 {
        return None;
    }
    let crashed = truth.state == RunState::InUse;
    let logged = matches!(truth.consistency, Consistency::Log | Consistency::LogAll);
    let resync = request.read_only || !crashed || truth.consistency == Consistency::Resync;
    if resync {
        for entry in &mut map.entries {
            if entry.state() == RegionState::Dirty {
                *entry = RegionEntry::new(RegionState::NeedsSync, entry.generation());
            }
        }
    }
    // A start that was cut off in its replay names the log that it replayed.
    let log = truth.replay.unwrap_or(Replay {
        epoch: truth.epoch,
        lineage: truth.lineage,
    });
    (crashed && logged && !request.read_only).then_some(log)
}

fn count(map: &RegionMap, state: RegionState) -> u64 {
    let entries = map.entries.iter();
    entries.filter(|entry| entry.state() == state).count() as u64
}

/// Whether data strips exist only through parity that may not match. A copy of a mirror is whole
/// by itself.
fn data_is_doubtful(assembly: &Assembly, doubtful_regions: u64) -> bool {
    let truth = &assembly.truth;
    doubtful_regions > 0 && assembly.degraded && truth.data > 1 && truth.parity > 0
}

/// Lists what the members without a true copy held where it is doubtful since the last start:
/// in every region found dirty that needs a resync now, and for members missed for the first time
/// also in those that needed one before. (The others' blocks there were listed then, or healed
/// since.) A region that stays dirty is the log's to make good.
fn list_suspect(assembly: &Assembly, found: &RegionMap, settled: &RegionMap, torn: &mut TornList) {
    let truth = &assembly.truth;
    let region_bytes = truth.region_size_bytes;
    for (place, record) in truth.members.iter().enumerate() {
        // Rows below the rebuild position are there, whole strips of them.
        let known = match record.state {
            MemberState::Active if assembly.members[place].is_some() => continue,
            MemberState::Rebuilding if assembly.members[place].is_some() => {
                record.rebuild_position_bytes / truth.strip_size_bytes * truth.strip_size_bytes
            }
            _ => 0,
        };
        let missed = record.state.is_in_array() && assembly.members[place].is_none();
        // A region that waited for its resync was written to all the same, without a log.
        let unlogged = truth.state == RunState::InUse && truth.consistency == Consistency::Resync;
        let doubtful = |region: usize| {
            let was = found.entries[region];
            // Of a region whose map page is lost nothing is known: it has no generation.
            let new = was.state() == RegionState::Dirty || was.generation() == 0 || unlogged;
            settled.entries[region].state() == RegionState::NeedsSync && (missed || new)
        };
        for region in runs(settled.entries.len(), doubtful) {
            let start = (region.start * region_bytes).max(known);
            let end = region.end * region_bytes;
            if torn.len() as u64 * TORN_EXTENT_BYTES as u64 > truth.areas.store.length {
                return; // more than the store holds: the caller refuses
            }
            if start < end {
                torn.insert_suspect(place as u16, start, end);
            }
        }
    }
}

/// Runs of neighbouring regions that are wanted, of so many.
fn runs(regions: usize, wanted: impl Fn(usize) -> bool) -> Vec<std::ops::Range<u64>> {
    let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
    for region in (0..regions).filter(|&region| wanted(region)) {
        let region = region as u64;
        match runs.last_mut() {
            Some(run) if run.end == region => run.end = region + 1,
            _ => runs.push(region..region + 1),
        }
    }
    runs
}

/// The superblock of this start: epoch raised, owner set, who is missing recorded.
fn started(assembly: &Assembly, request: &OpeningRequest) -> Superblock {
    let mut superblock = assembly.truth.clone();
    if request.read_only {
        return superblock;
    }
    let expected: Vec<u16> = assembly.missing_expected().map(|m| m.place).collect();
    let lineage = (!expected.is_empty()).then_some(request.new_lineage);
    superblock.raise_for_start(lineage);
    for &place in &expected {
        superblock.mark_left(place, MemberState::Missing);
    }
    if !expected.is_empty() {
        superblock.lineage = request.new_lineage;
    }
    superblock.state = RunState::InUse;
    superblock.owner_host = request.this_host;
    superblock.owner_started_unix = request.now_unix;
    if let Some(name) = &request.new_name {
        superblock.name.clone_from(name);
    }
    superblock
}
