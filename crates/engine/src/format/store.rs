//! The array store: a small transactional table, the same on all members, for what must travel
//! with the drives and has no fixed size: the torn list today; volumes, history of events and
//! settings have their kinds.
//!
//! The area begins with a page that says what is behind it:
//!
//! | offset | size | field | meaning |
//! |---:|---:|---|---|
//! | 0 | 72 | header | see `header`; magic `STRAKEST` |
//! | 72 | 4 | table format | 0: halves are there once something was stored; 1: both are there |
//! | 76 | 4 | reserved | zero |
//! | 80 | 8 | table bytes | 0 in formats 0 and 1 |
//! | 88 | 4008 | reserved | zero |
//!
//! Behind it two *halves* of equal length, whole 4 KiB each, are written in turn: generation `g`,
//! whole, to half `g % 2`, so that a torn write leaves the table before it. Only the length that
//! is used is written, and only that is covered by the checksum:
//!
//! | offset | size | field | meaning |
//! |---:|---:|---|---|
//! | 0 | 72 | header | see `header`; magic `STRAKETB`; its length is the half's used one |
//! | 72 | 4 | items | number |
//! | 76 | 4 | reserved | zero |
//! | 80 | 8 | item bytes | of all items with their heads |
//! | 88 | 40 | reserved | zero |
//! | 128 | … | items | one after the other |
//!
//! An item is a kind (4 bytes), a length (4 bytes), so many bytes, and zeroes to a multiple of 8.
//! An item of an unknown kind is kept and written back; one whose kind has the top bit set must be
//! understood, and the array is refused where it is not.
//!
//! Creation and a replacement write both halves ([`Store::initial`]), so a half that is not valid
//! is a torn write or damage, never something left by another life. Among current members the
//! newest generation is true. A half that could have held a newer one makes the table go on far
//! above every generation seen, so that it never wins later.

use super::areas::Extent;
use super::bytes::{self, Field, field, tiles};
use super::error::FormatError;
use super::header::{self, HEADER_BYTES, Header, Kind};
use super::torn::{TORN_EXTENT_BYTES, TornList};
use uuid::Uuid;

mod page;
#[cfg(test)]
mod tests;

pub use page::{STORE_HEADER_BYTES, StoreContent, StoreHeader, decode, encode_empty};

/// Item: the blocks that read as errors ([`TornList::encode`]).
pub const ITEM_TORN: u32 = 1;
/// Item, not written yet: volumes (extents, QoS, later snapshots and thin maps).
pub const ITEM_VOLUMES: u32 = 2 | ITEM_INCOMPATIBLE;
/// Item, not written yet: history of events.
pub const ITEM_HISTORY: u32 = 3;
/// Item, not written yet: settings that travel with the drives.
pub const ITEM_SETTINGS: u32 = 4;
/// An item with this bit must be understood by whoever starts the array.
pub const ITEM_INCOMPATIBLE: u32 = 1 << 31;

/// See `region_map`: a table that may have been newer never wins later.
const DOUBTFUL_JUMP: u64 = 1 << 40;
const GENERATION_MAX: u64 = 1 << 62;

const ITEMS_AT: usize = 128;
const ITEM_COUNT: Field = field(72, 4);
const RESERVED_1: Field = field(76, 4);
const ITEM_BYTES: Field = field(80, 8);
const RESERVED_2: Field = field(88, 40);
const _: () = assert!(tiles(
    &[ITEM_COUNT, RESERVED_1, ITEM_BYTES, RESERVED_2],
    HEADER_BYTES,
    ITEMS_AT
));

const ITEM_KIND: Field = field(0, 4);
const ITEM_LENGTH: Field = field(4, 4);
const ITEM_HEAD_BYTES: usize = 8;
const PAGE: usize = 4096;

const fn kind(bytes: usize) -> Kind {
    Kind {
        magic: *b"STRAKETB",
        name: "array store table",
        version: 1,
        bytes,
    }
}

/// Whose store it is and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorePlace {
    /// Array.
    pub array_uuid: Uuid,
    /// Member.
    pub member_uuid: Uuid,
    /// The whole area ([`super::Areas::store`]).
    pub area: Extent,
}

impl StorePlace {
    /// Bytes of a half.
    pub const fn half_bytes(&self) -> u64 {
        let page = PAGE as u64;
        self.area.length.saturating_sub(page) / 2 / page * page
    }

    /// Device offset of the half that a generation belongs to.
    pub const fn offset(&self, generation: u64) -> u64 {
        self.area.offset + PAGE as u64 + generation % 2 * self.half_bytes()
    }

    /// The part of `area` (the area's bytes, or fewer) that holds a half.
    fn half<'a>(&self, area: &'a [u8], half: u64) -> &'a [u8] {
        let start = (self.offset(half) - self.area.offset) as usize;
        let start = start.min(area.len());
        let end = (start + self.half_bytes() as usize).min(area.len());
        &area[start..end]
    }
}

/// An item of a kind that is not known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Kind.
    pub kind: u32,
    /// Content.
    pub bytes: Vec<u8>,
}

/// The table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Store {
    /// Its generation; the next write is of this plus one.
    pub generation: u64,
    /// Blocks that read as errors.
    pub torn: TornList,
    /// Items of other kinds, kept as they are.
    pub others: Vec<Item>,
}

/// The table does not fit into a half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the array store is full: {needed_bytes} bytes are needed ({extents} torn or suspect extents), {room_bytes} are there; write the listed blocks or accept the suspect ones"
)]
pub struct StoreFull {
    /// Needed, with the header.
    pub needed_bytes: u64,
    /// A half.
    pub room_bytes: u64,
    /// Extents in the torn list.
    pub extents: usize,
}

const fn item_bytes(content: usize) -> usize {
    ITEM_HEAD_BYTES + content.next_multiple_of(8)
}

impl Store {
    /// The store of a fresh array: empty, of generation 1 (generation 0 fills the other half).
    pub fn new() -> Store {
        Store {
            generation: 1,
            ..Store::default()
        }
    }

    /// Bytes of this table in a half: whole 4 KiB.
    fn used_bytes(&self) -> usize {
        let torn = match self.torn.len() {
            0 => 0,
            extents => item_bytes(extents * TORN_EXTENT_BYTES),
        };
        let others = self.others.iter().map(|item| item_bytes(item.bytes.len()));
        (ITEMS_AT + torn + others.sum::<usize>()).next_multiple_of(PAGE)
    }

    /// Whether this table fits.
    ///
    /// # Errors
    /// [`StoreFull`].
    pub fn fits(&self, place: &StorePlace) -> Result<(), StoreFull> {
        let needed_bytes = self.used_bytes() as u64;
        let room_bytes = place.half_bytes();
        if needed_bytes > room_bytes {
            return Err(StoreFull {
                needed_bytes,
                room_bytes,
                extents: self.torn.len(),
            });
        }
        Ok(())
    }

    /// This generation for its half: device offset and bytes, whole 4 KiB.
    ///
    /// # Errors
    /// [`StoreFull`].
    pub fn encode(&self, place: &StorePlace) -> Result<(u64, Vec<u8>), StoreFull> {
        self.fits(place)?;
        let mut out = vec![0; self.used_bytes()];
        let torn = (!self.torn.is_empty()).then(|| self.torn.encode());
        let torn = torn.iter().map(|bytes| (ITEM_TORN, bytes));
        let others = self.others.iter().map(|item| (item.kind, &item.bytes));
        let (mut at, mut count) = (ITEMS_AT, 0);
        for (kind, content) in torn.chain(others) {
            let head = &mut out[at..at + ITEM_HEAD_BYTES];
            bytes::put_u32(head, ITEM_KIND, kind);
            bytes::put_u32(head, ITEM_LENGTH, content.len() as u32);
            out[at + ITEM_HEAD_BYTES..][..content.len()].copy_from_slice(content);
            at += item_bytes(content.len());
            count += 1;
        }
        bytes::put_u32(&mut out, ITEM_COUNT, count);
        bytes::put_u64(&mut out, ITEM_BYTES, (at - ITEMS_AT) as u64);
        let own_offset = place.offset(self.generation);
        let header = Header {
            own_offset,
            array_uuid: place.array_uuid,
            member_uuid: place.member_uuid,
            generation: self.generation,
        };
        kind(out.len()).seal(&mut out, &header);
        Ok((own_offset, out))
    }

    /// Everything that creation, or a member that joins, writes: the header page and both halves,
    /// each with its device offset. The half that does not belong to this generation `g` gets the
    /// same table as generation `g - 1` (`g` is at least 1).
    ///
    /// # Errors
    /// [`StoreFull`].
    pub fn initial(&self, place: &StorePlace) -> Result<Vec<(u64, Vec<u8>)>, StoreFull> {
        assert!(
            self.generation >= 1,
            "generation 0 has none before it for the other half"
        );
        let older = Store {
            generation: self.generation - 1,
            ..self.clone()
        };
        let page = page::encode(place, self.generation);
        let page = (place.area.offset, page);
        Ok(vec![page, older.encode(place)?, self.encode(place)?])
    }
}

/// A half that was not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadHalf {
    /// 0 or 1.
    pub half: u64,
    /// Why.
    pub why: FormatError,
}

/// Why no table can be gone on with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A newer Strake wrote it.
    #[error("{0}")]
    Refused(FormatError),
    /// No member has a valid half.
    #[error(
        "the array store is damaged on every member: which blocks were torn by a crash is not known any more"
    )]
    Lost,
}

/// The table as found on one member, or joined from several ([`LoadedStore::merge`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedStore {
    /// The newest valid half.
    pub newest: Option<Store>,
    /// Halves of this member that were not valid.
    pub bad: Vec<BadHalf>,
    /// What only a newer Strake can judge.
    refused: Option<FormatError>,
    /// Made before there were halves: their absence is no damage.
    without_halves: bool,
    /// Some half that could have been newer was bad.
    doubtful: bool,
}

/// Reads the store of a member from the bytes of its area. Bytes that could not be read are
/// passed as zeroes, and a short area counts as not valid from there on.
pub fn load(place: &StorePlace, area: &[u8]) -> LoadedStore {
    let page = decode(area, place.array_uuid, place.member_uuid, place.area.offset);
    let mut loaded = LoadedStore {
        newest: None,
        bad: Vec::new(),
        refused: None,
        without_halves: false,
        doubtful: false,
    };
    match page.map(|page| page.content) {
        Ok(StoreContent::Empty) => loaded.without_halves = true,
        Ok(StoreContent::Later { format, .. }) => {
            let why = "a table of a later format; use the Strake that wrote it";
            let error = kind(PAGE).field(place.area.offset, "table format", format, why);
            loaded.refused = Some(error);
        }
        Err(error @ FormatError::Version { .. }) => loaded.refused = Some(error),
        Ok(StoreContent::Halves) | Err(_) => {}
    }
    for half in 0..2 {
        loaded.take_half(half, decode_half(place, half, place.half(area, half)));
    }
    loaded
}

impl LoadedStore {
    fn take_half(&mut self, half: u64, result: Result<Store, FormatError>) {
        match result {
            Ok(store) => {
                let newer = self.newest.as_ref();
                if newer.is_none_or(|newest| newest.generation < store.generation) {
                    self.newest = Some(store);
                }
            }
            // The checksum holds: nobody's damage, and nothing to pass over for an older table.
            Err(why @ (FormatError::Version { .. } | FormatError::Field { .. })) => {
                self.refused.get_or_insert(why);
            }
            Err(why) => {
                self.doubtful |= !(self.without_halves && why.is_absent());
                self.bad.push(BadHalf { half, why });
            }
        }
    }

    /// Generation of the newest valid half; `None` where there is none.
    pub fn generation(&self) -> Option<u64> {
        self.newest.as_ref().map(|store| store.generation)
    }

    /// Joins the store of another current member of the same array: the newer one, as all of them
    /// are written with the same generations. Of two of one generation that differ (which no crash
    /// explains) both torn lists count. `bad` keeps this member's own.
    pub fn merge(&mut self, other: &LoadedStore) {
        self.doubtful |= other.doubtful;
        self.without_halves |= other.without_halves;
        if self.refused.is_none() {
            self.refused.clone_from(&other.refused);
        }
        let Some(theirs) = &other.newest else { return };
        match &mut self.newest {
            Some(mine) if mine.generation > theirs.generation => {}
            Some(mine) if mine.generation == theirs.generation => {
                self.doubtful |= mine != theirs;
                for extent in theirs.torn.iter() {
                    mine.torn.insert(extent);
                }
            }
            _ => self.newest = Some(theirs.clone()),
        }
    }

    /// The table to go on with. Where a half was bad its generation is far above every one seen,
    /// and of the same parity: the next write still goes to the half that is not in use.
    /// `accept_loss`: a table lost on every member counts as empty.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn into_store(self, accept_loss: bool) -> Result<Store, StoreError> {
        if let Some(error) = self.refused {
            return Err(StoreError::Refused(error));
        }
        let mut store = match self.newest {
            Some(store) => store,
            None if self.without_halves || accept_loss => Store::new(),
            None => return Err(StoreError::Lost),
        };
        if self.doubtful {
            store.generation += DOUBTFUL_JUMP;
        }
        Ok(store)
    }
}

/// Reads the half `half` from its bytes.
fn decode_half(place: &StorePlace, half: u64, raw: &[u8]) -> Result<Store, FormatError> {
    let found_at = place.offset(half);
    let stated = if raw.len() < PAGE {
        PAGE
    } else {
        header::stated_bytes(raw)
    };
    let whole = stated.is_multiple_of(PAGE) && (PAGE..=raw.len()).contains(&stated);
    // Of a length that cannot be, the first page says whether it is newer or damaged.
    let kind = kind(if whole { stated } else { PAGE });
    let header = kind.open(raw, found_at)?;
    kind.expect(&header, place.array_uuid, place.member_uuid)?;
    let raw = &raw[..kind.bytes];
    let generation = header.generation;
    if generation % 2 != half || generation > GENERATION_MAX {
        let why = format!("does not belong into half {half}");
        return Err(kind.field(found_at, "generation", generation, why));
    }
    let stated = bytes::get_u64(raw, ITEM_BYTES);
    let room = (raw.len() - ITEMS_AT) as u64;
    if stated > room {
        let why = format!("must be at most {room}");
        return Err(kind.field(found_at, "item bytes", stated, why));
    }
    let (items, unused) = raw[ITEMS_AT..].split_at(stated as usize);
    let reserved = [bytes::slice(raw, RESERVED_1), bytes::slice(raw, RESERVED_2)];
    if !reserved.into_iter().chain([unused]).all(bytes::is_zero) {
        return Err(kind.reserved(found_at));
    }
    let count = bytes::get_u32(raw, ITEM_COUNT);
    let mut store = Store {
        generation,
        ..Store::default()
    };
    decode_items(items, count, &mut store)
        .map_err(|(name, value, why)| kind.field(found_at, name, value, why))?;
    Ok(store)
}

type Broken = (&'static str, String, String);

fn decode_items(mut rest: &[u8], count: u32, store: &mut Store) -> Result<(), Broken> {
    for item in 0..count {
        let whole = rest.len() >= ITEM_HEAD_BYTES
            && item_bytes(bytes::get_u32(rest, ITEM_LENGTH) as usize) <= rest.len();
        if !whole {
            let why = format!("item {item} ends behind the items");
            return Err(("items", count.to_string(), why));
        }
        let (kind, length) = (
            bytes::get_u32(rest, ITEM_KIND),
            bytes::get_u32(rest, ITEM_LENGTH) as usize,
        );
        let (content, behind) = rest.split_at(item_bytes(length));
        let (content, padding) = content[ITEM_HEAD_BYTES..].split_at(length);
        if !bytes::is_zero(padding) {
            return Err(("item's padding", "not zero".into(), "must be zero".into()));
        }
        decode_item(kind, content, store)?;
        rest = behind;
    }
    if rest.is_empty() {
        return Ok(());
    }
    let why = format!("{} bytes are behind the last item", rest.len());
    Err(("items", count.to_string(), why))
}

fn decode_item(kind: u32, content: &[u8], store: &mut Store) -> Result<(), Broken> {
    if kind == ITEM_TORN {
        let list =
            TornList::decode(content).map_err(|why| ("torn list", "not one".to_owned(), why))?;
        if list.is_empty() || !store.torn.is_empty() {
            let why = "must not be empty, and there only once".to_owned();
            return Err(("torn list", format!("{} extents", list.len()), why));
        }
        store.torn = list;
        return Ok(());
    }
    if kind & ITEM_INCOMPATIBLE != 0 {
        let why = "must be understood and is not known to this Strake; use a newer one (nothing was changed)";
        return Err(("item kind", format!("{kind:#x}"), why.to_owned()));
    }
    let bytes = content.to_vec();
    store.others.push(Item { kind, bytes });
    Ok(())
}
