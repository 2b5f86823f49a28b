//! The region map: for each region of the members what may be wrong with its parity.
//!
//! All members hold the same map. A region's entry is 8 bytes: the state in the lowest three bits
//! and above them the generation of its last dirty period, which says what a returning member
//! missed. Entries lie in pages of 4 KiB. Each page has one place in either copy of the map and is
//! written to them in turn, generation `g` to copy `g % 2`, so that a torn write leaves the page
//! before it. A page is valid only at the place that its generation says.
//!
//! | offset | size | field | meaning |
//! |---:|---:|---|---|
//! | 0 | 72 | header | see `header`; its generation is the page's own |
//! | 72 | 4 | page | index in the map |
//! | 76 | 4 | entries | entries in use; all pages but the last are full |
//! | 80 | 48 | reserved | zero |
//! | 128 | 3968 | entries | 496 of 8 bytes; unused ones zero |
//!
//! Creation writes every page to both places, so a page without a valid copy is damage: its
//! regions are taken as *needs sync*, never as unwritten.

use super::areas::Extent;
use super::bytes::{self, Field, field, tiles};
use super::error::FormatError;
use super::header::{HEADER_BYTES, Header, Kind};
use std::collections::BTreeSet;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// Bytes of a page.
pub const MAP_PAGE_BYTES: usize = 4096;
/// Entries of a full page.
pub const PAGE_ENTRIES: usize = (MAP_PAGE_BYTES - ENTRIES_AT) / 8;
/// A page with a bad copy continues this far above every generation seen, so that an unreadable
/// copy that becomes readable again cannot win. 2^40 writes of one page take decades, and there is
/// room for 2^24 such jumps.
const DOUBTFUL_PAGE_JUMP: u64 = 1 << 40;

const ENTRIES_AT: usize = 128;
const PAGE_INDEX: Field = field(72, 4);
const ENTRY_COUNT: Field = field(76, 4);
const RESERVED: Field = field(80, 48);

const _: () = assert!(tiles(
    &[
        PAGE_INDEX,
        ENTRY_COUNT,
        RESERVED,
        field(ENTRIES_AT, PAGE_ENTRIES * 8)
    ],
    HEADER_BYTES,
    MAP_PAGE_BYTES
));
const _: () = assert!(PAGE_ENTRIES == 496);

const KIND: Kind = Kind {
    magic: *b"STRAKERM",
    name: "region map page",
    version: 1,
    bytes: MAP_PAGE_BYTES,
};

/// What is known of a region's content and parity. The codes are those on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RegionState {
    /// Never written, or discarded: reads as zeroes without I/O, skipped by rebuild and scrub.
    Unwritten = 0,
    /// Being zeroed on all members; what is there is undefined.
    Zeroing = 1,
    /// Parity matches data.
    Clean = 2,
    /// Writes may be in flight; after a crash parity may not match.
    Dirty = 3,
    /// Parity may not match: must be made true before it is used.
    NeedsSync = 4,
}

impl RegionState {
    /// Every state, at the place of its code.
    pub const ALL: [RegionState; 5] = [
        RegionState::Unwritten,
        RegionState::Zeroing,
        RegionState::Clean,
        RegionState::Dirty,
        RegionState::NeedsSync,
    ];

    fn from_code(code: u64) -> Option<RegionState> {
        RegionState::ALL.get(code as usize).copied()
    }
}

/// One region: state and generation of its last dirty period.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionEntry(u64);

const STATE_BITS: u32 = 3;
const STATE_MASK: u64 = (1 << STATE_BITS) - 1;

impl RegionEntry {
    /// Unwritten since creation.
    pub const UNWRITTEN: RegionEntry = RegionEntry(RegionState::Unwritten as u64);
    /// Greatest generation that an entry holds.
    pub const GENERATION_MAX: u64 = u64::MAX >> STATE_BITS;

    /// Entry of these values; `generation` at most [`RegionEntry::GENERATION_MAX`].
    pub const fn new(state: RegionState, generation: u64) -> RegionEntry {
        assert!(generation <= RegionEntry::GENERATION_MAX);
        RegionEntry((generation << STATE_BITS) | state as u64)
    }

    /// From the eight bytes on disk or in an atomic; `None` for the state codes 5 to 7.
    pub fn from_raw(raw: u64) -> Option<RegionEntry> {
        RegionState::from_code(raw & STATE_MASK).map(|_| RegionEntry(raw))
    }

    /// The eight bytes as a number, for the disk or an atomic.
    pub const fn to_raw(self) -> u64 {
        self.0
    }

    /// State.
    pub fn state(self) -> RegionState {
        RegionState::from_code(self.0 & STATE_MASK).expect("entries are made of valid states")
    }

    /// Generation of the last dirty period; 0: never written.
    pub const fn generation(self) -> u64 {
        self.0 >> STATE_BITS
    }
}

impl std::fmt::Debug for RegionEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}@{}", self.state(), self.generation())
    }
}

/// Whose map it is and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapPlace {
    /// Array.
    pub array_uuid: Uuid,
    /// Member.
    pub member_uuid: Uuid,
    /// Both copies ([`super::Areas::region_map`]).
    pub copies: [Extent; 2],
}

impl MapPlace {
    /// Device offset at which page `page` of generation `generation` belongs.
    pub fn offset(&self, page: u32, generation: u64) -> u64 {
        self.copies[(generation % 2) as usize].offset + u64::from(page) * MAP_PAGE_BYTES as u64
    }
}

/// Pages for a map of `regions`.
pub const fn page_count(regions: u64) -> u64 {
    regions.div_ceil(PAGE_ENTRIES as u64)
}

/// Page that holds a region, and the region's index within it.
pub const fn page_of(region: u64) -> (u32, usize) {
    let per_page = PAGE_ENTRIES as u64;
    ((region / per_page) as u32, (region % per_page) as usize)
}

/// One page as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Index in the map.
    pub index: u32,
    /// Generation.
    pub generation: u64,
    /// Entries in use.
    pub entries: Vec<RegionEntry>,
}

/// Fills `out` (4096 bytes) with page `index` for the place that `generation` belongs to
/// ([`MapPlace::offset`]). At most [`PAGE_ENTRIES`] entries. Does not allocate.
pub fn encode_page(
    out: &mut [u8],
    place: &MapPlace,
    index: u32,
    generation: u64,
    entries: &[RegionEntry],
) {
    assert!(entries.len() <= PAGE_ENTRIES);
    out.fill(0);
    bytes::put_u32(out, PAGE_INDEX, index);
    bytes::put_u32(out, ENTRY_COUNT, entries.len() as u32);
    for (slot, entry) in out[ENTRIES_AT..].chunks_exact_mut(8).zip(entries) {
        slot.copy_from_slice(&entry.to_raw().to_le_bytes());
    }
    let header = Header {
        own_offset: place.offset(index, generation),
        array_uuid: place.array_uuid,
        member_uuid: place.member_uuid,
        generation,
    };
    KIND.seal(out, &header);
}

/// Reads page `index` of a map of `regions` from the 4096 bytes found in copy `copy`.
///
/// # Errors
/// Those of [`Kind::open`]; [`FormatError::Foreign`] for another array's or member's page;
/// [`FormatError::Field`] for the wrong page, entry count or an unknown state.
pub fn decode_page(
    raw: &[u8],
    place: &MapPlace,
    copy: usize,
    index: u32,
    regions: u64,
) -> Result<Page, FormatError> {
    let found_at = place.offset(index, copy as u64);
    let header = KIND.open(raw, found_at)?;
    KIND.expect(&header, place.array_uuid, place.member_uuid)?;
    if header.generation % 2 != copy as u64 {
        let why = format!("does not belong into copy {copy}");
        return Err(KIND.field(found_at, "generation", header.generation, why));
    }
    let says = bytes::get_u32(raw, PAGE_INDEX);
    if says != index {
        return Err(KIND.field(found_at, "page", says, format!("must be {index}")));
    }
    let count = entries_in(index, regions);
    let says = bytes::get_u32(raw, ENTRY_COUNT) as usize;
    if says != count {
        return Err(KIND.field(found_at, "entries", says, format!("must be {count}")));
    }
    let (used, unused) = raw[ENTRIES_AT..MAP_PAGE_BYTES].split_at(count * 8);
    if !bytes::is_zero(bytes::slice(raw, RESERVED)) || !bytes::is_zero(unused) {
        return Err(KIND.reserved(found_at));
    }
    let entries = used.chunks_exact(8).map(|raw| decode_entry(raw, found_at));
    Ok(Page {
        index,
        generation: header.generation,
        entries: entries.collect::<Result<_, _>>()?,
    })
}

fn decode_entry(raw: &[u8], found_at: u64) -> Result<RegionEntry, FormatError> {
    let value = bytes::get_u64(raw, field(0, 8));
    RegionEntry::from_raw(value).ok_or_else(|| {
        let why = "states are 0 to 4; use the Strake that wrote it";
        KIND.field(found_at, "region state", value & STATE_MASK, why)
    })
}

fn entries_in(index: u32, regions: u64) -> usize {
    let before = u64::from(index) * PAGE_ENTRIES as u64;
    assert!(before < regions, "page {index} is behind the map's end");
    (regions - before).min(PAGE_ENTRIES as u64) as usize
}

/// The whole map in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionMap {
    /// One entry a region.
    pub entries: Vec<RegionEntry>,
    /// Newest generation of each page; the page's next write uses this plus one.
    pub page_generations: Vec<u64>,
}

/// A page copy that was not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPage {
    /// Page.
    pub page: u32,
    /// Copy, 0 or 1.
    pub copy: usize,
    /// Why.
    pub why: FormatError,
}

/// A map as found on one member, or joined from several ([`LoadedMap::merge`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedMap {
    /// The newest valid copy of each page; regions of lost pages are `NeedsSync`.
    pub map: RegionMap,
    /// Pages without a valid copy.
    pub lost: BTreeSet<u32>,
    /// Every copy that was not valid, those of lost pages included. With one valid copy beside
    /// it: a torn write, or damage that hides the newer state; [`LoadedMap::merge`] with another
    /// member's map tells.
    pub bad: Vec<BadPage>,
    /// Pages of which some member's copy was bad.
    doubtful: BTreeSet<u32>,
}

impl RegionMap {
    /// The map of a fresh array: every region unwritten, every page of generation 1 (generation 0
    /// fills the other copy).
    pub fn new(regions: u64) -> RegionMap {
        RegionMap {
            entries: vec![RegionEntry::UNWRITTEN; regions as usize],
            page_generations: vec![1; page_count(regions) as usize],
        }
    }

    /// Number of regions.
    pub fn regions(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Entries of one page.
    pub fn page_entries(&self, page: u32) -> &[RegionEntry] {
        let start = page as usize * PAGE_ENTRIES;
        &self.entries[start..start + entries_in(page, self.regions())]
    }

    /// Every page for both copies, with its device offset: what creation and a replacement write.
    /// The copy that does not belong to a page's generation `g` gets the same entries as
    /// generation `g - 1` (`g` is at least 1).
    pub fn initial_pages(
        &self,
        place: &MapPlace,
    ) -> impl Iterator<Item = (u64, [u8; MAP_PAGE_BYTES])> {
        let pages = self.page_generations.iter().zip(0u32..);
        pages.flat_map(move |(&newest, page)| {
            assert!(newest >= 1, "page {page} has no generation before its own");
            [newest - 1, newest].map(|generation| {
                let mut raw = [0; MAP_PAGE_BYTES];
                encode_page(&mut raw, place, page, generation, self.page_entries(page));
                (place.offset(page, generation), raw)
            })
        })
    }
}

/// Reads a map of `regions` from the bytes of its two copies. A copy that is too short, or that
/// the caller could not read and passes as empty, counts as not valid.
pub fn load(place: &MapPlace, regions: u64, copies: [&[u8]; 2]) -> LoadedMap {
    let pages = page_count(regions) as u32;
    let mut loaded = LoadedMap {
        map: RegionMap {
            entries: Vec::with_capacity(regions as usize),
            page_generations: Vec::with_capacity(pages as usize),
        },
        lost: BTreeSet::new(),
        bad: Vec::new(),
        doubtful: BTreeSet::new(),
    };
    for index in 0..pages {
        let mut newest: Option<Page> = None;
        for (copy, bytes) in copies.into_iter().enumerate() {
            let start = (index as usize * MAP_PAGE_BYTES).min(bytes.len());
            match decode_page(&bytes[start..], place, copy, index, regions) {
                Ok(page)
                    if newest
                        .as_ref()
                        .is_none_or(|n| n.generation < page.generation) =>
                {
                    newest = Some(page);
                }
                Ok(_) => {}
                Err(why) => {
                    loaded.doubtful.insert(index);
                    loaded.bad.push(BadPage {
                        page: index,
                        copy,
                        why,
                    });
                }
            }
        }
        loaded.push(index, regions, newest);
    }
    loaded
}

impl LoadedMap {
    fn push(&mut self, index: u32, regions: u64, page: Option<Page>) {
        match page {
            Some(page) => {
                self.map.entries.extend(page.entries);
                self.map.page_generations.push(page.generation);
            }
            None => {
                let unknown = RegionEntry::new(RegionState::NeedsSync, 0);
                let count = entries_in(index, regions);
                self.map.entries.extend(std::iter::repeat_n(unknown, count));
                self.map.page_generations.push(0);
                self.lost.insert(index);
            }
        }
    }

    /// Joins the map of another current member of the same array: per page the newer one, as all
    /// of them are written with the same generations. Pages of one generation that differ (which
    /// no crash explains) become `NeedsSync` where they differ. `bad` keeps this member's own.
    pub fn merge(&mut self, other: &LoadedMap) {
        assert_eq!(self.map.regions(), other.map.regions());
        self.doubtful.extend(&other.doubtful);
        for page in 0..self.map.page_generations.len() as u32 {
            let at = page as usize;
            let mine = self.map.page_generations[at];
            let theirs = other.map.page_generations[at];
            if other.lost.contains(&page) {
                continue;
            }
            if self.lost.contains(&page) || theirs > mine {
                self.take_page(other, page);
            } else if theirs == mine {
                self.join_page(other, page);
            }
        }
    }

    /// The map to go on with. Pages of which some copy was bad continue far above every
    /// generation seen, so that what could not be read now never wins later.
    pub fn into_map(mut self) -> RegionMap {
        let newest = self.map.page_generations.iter().copied().max();
        for &page in &self.doubtful {
            let generation = &mut self.map.page_generations[page as usize];
            // An even step: the next write still goes to the copy that is not in use.
            let above = (newest.unwrap_or(0) & !1) + DOUBTFUL_PAGE_JUMP;
            *generation = above + *generation % 2;
        }
        self.map
    }

    fn take_page(&mut self, other: &LoadedMap, page: u32) {
        let start = page as usize * PAGE_ENTRIES;
        let theirs = other.map.page_entries(page);
        self.map.entries[start..start + theirs.len()].copy_from_slice(theirs);
        self.map.page_generations[page as usize] = other.map.page_generations[page as usize];
        self.lost.remove(&page);
    }

    fn join_page(&mut self, other: &LoadedMap, page: u32) {
        let start = page as usize * PAGE_ENTRIES;
        let theirs = other.map.page_entries(page);
        for (mine, theirs) in self.map.entries[start..].iter_mut().zip(theirs) {
            if mine != theirs {
                let generation = mine.generation().max(theirs.generation());
                *mine = RegionEntry::new(RegionState::NeedsSync, generation);
            }
        }
    }
}
