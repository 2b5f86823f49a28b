//! One record of the parity log: a group of entries committed by one write on one member.
//!
//! | offset | size | field | meaning |
//! |---:|---:|---|---|
//! | 0 | 72 | header | see `header`; magic `STRAKELR`; `bytes` is the whole record, a multiple of 4096; the generation is the record's number on this member, from 1 in each epoch |
//! | 72 | 8 | epoch | records of another epoch are not replayed |
//! | 80 | 16 | lineage | likewise |
//! | 96 | 8 | oldest | entries with a lower sequence are retired: their writes are durable |
//! | 104 | 4 | entries | number of entries |
//! | 108 | 4 | payload | offset of the first entry's payload |
//! | 112 | 8 | first | this member's oldest record that may hold entries which are not retired |
//! | 120 | 8 | complete | this member's records up to here are durable, none of them left out; so those from `first` on must be there, else the drive has lost one. 0 in version 1 |
//! | 128 | … | entries | one behind the other, see below |
//! | payload | … | payload | per entry: the partial parity of this member's strip (if `partial`), then the new content of each strip in `logged`; `end - start` bytes each |
//!
//! An entry:
//!
//! | offset | size | field | meaning |
//! |---:|---:|---|---|
//! | 0 | 8 | sequence | order of all entries of the array |
//! | 8 | 8 | stripe | |
//! | 16 | 4 | start | first row byte within the strips |
//! | 20 | 4 | end | row byte after the last |
//! | 24 | 8 | written | T: data strips written in these rows |
//! | 32 | 8 | live | strips whose members took this write |
//! | 40 | 8 | carriers | parity strips whose members carry this entry |
//! | 48 | 8 | logged | strips of T whose new content is in the payload: their member was missing |
//! | 56 | 8 | old | strips of T with checksums of their content before |
//! | 64 | 4 | unit | bytes that one checksum covers |
//! | 68 | 1 | partial | 1: the payload has a partial parity; 0: T is every data strip |
//! | 69 | 3 | reserved | zero |
//! | 72 | 4 | payload | offset of this entry's payload in the record |
//! | 76 | 4 | checksums | number of the checksums behind: CRC-32C of each unit of the new content of each strip of T, ascending, then of the old content of each strip of `old` |

use std::ops::Range;

use super::super::bytes::{self, Field, field, tiles};
use super::super::error::FormatError;
use super::super::header::{self, HEADER_BYTES, Header, Kind};
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// Records start on, and are multiples of, this.
pub const RECORD_ALIGN: usize = 4096;
/// Bytes before the first entry.
pub const RECORD_HEAD_BYTES: usize = 128;
/// Bytes of an entry without its checksums.
pub const ENTRY_HEAD_BYTES: usize = 80;
/// No record is longer.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

const EPOCH: Field = field(72, 8);
const LINEAGE: Field = field(80, 16);
const OLDEST: Field = field(96, 8);
const ENTRIES: Field = field(104, 4);
const PAYLOAD: Field = field(108, 4);
const FIRST: Field = field(112, 8);
const COMPLETE: Field = field(120, 8);

const _: () = assert!(tiles(
    &[EPOCH, LINEAGE, OLDEST, ENTRIES, PAYLOAD, FIRST, COMPLETE],
    HEADER_BYTES,
    RECORD_HEAD_BYTES
));

const SEQUENCE: Field = field(0, 8);
const STRIPE: Field = field(8, 8);
const START: Field = field(16, 4);
const END: Field = field(20, 4);
const WRITTEN: Field = field(24, 8);
const LIVE: Field = field(32, 8);
const CARRIERS: Field = field(40, 8);
const LOGGED: Field = field(48, 8);
const OLD: Field = field(56, 8);
const UNIT: Field = field(64, 4);
const PARTIAL: Field = field(68, 1);
const ENTRY_RESERVED: Field = field(69, 3);
const ENTRY_PAYLOAD: Field = field(72, 4);
const CHECKSUMS: Field = field(76, 4);

const _: () = assert!(tiles(
    &[
        SEQUENCE,
        STRIPE,
        START,
        END,
        WRITTEN,
        LIVE,
        CARRIERS,
        LOGGED,
        OLD,
        UNIT,
        PARTIAL,
        ENTRY_RESERVED,
        ENTRY_PAYLOAD,
        CHECKSUMS
    ],
    0,
    ENTRY_HEAD_BYTES
));

const MAGIC: [u8; 8] = *b"STRAKELR";
const RECORD_BYTES: Field = field(12, 4);

fn kind(bytes: usize) -> Kind {
    Kind {
        magic: MAGIC,
        name: "parity log record",
        version: 2,
        bytes,
    }
}

/// Whose record it is and where it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHead {
    /// Array.
    pub array_uuid: Uuid,
    /// Member.
    pub member_uuid: Uuid,
    /// Array epoch.
    pub epoch: u64,
    /// Array lineage.
    pub lineage: Uuid,
    /// Device offset.
    pub own_offset: u64,
    /// Number of the record on its member.
    pub number: u64,
    /// Entries below this sequence are retired.
    pub oldest: u64,
    /// The member's oldest record that may hold others.
    pub first: u64,
    /// The member's records up to this one are durable.
    pub complete: u64,
}

/// What an entry says, without its checksums. Fields as in the table above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs)]
pub struct EntryHead {
    pub sequence: u64,
    pub stripe: u64,
    pub start: u32,
    pub end: u32,
    pub written: u64,
    pub live: u64,
    pub carriers: u64,
    pub logged: u64,
    pub old: u64,
    pub unit_bytes: u32,
    pub partial: bool,
}

impl EntryHead {
    /// Rows in bytes.
    pub fn rows(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Checksums that go with it.
    pub fn checksums(&self) -> usize {
        (self.written.count_ones() + self.old.count_ones()) as usize * self.units()
    }

    /// Units in its rows.
    pub fn units(&self) -> usize {
        self.rows() / self.unit_bytes as usize
    }

    /// Bytes of its payload.
    pub fn payload_bytes(&self) -> usize {
        (usize::from(self.partial) + self.logged.count_ones() as usize) * self.rows()
    }

    /// Bytes of the entry with its checksums.
    pub fn bytes(&self) -> usize {
        (ENTRY_HEAD_BYTES + 4 * self.checksums()).next_multiple_of(8)
    }
}

/// Length of a record whose entries and payloads have these lengths in all.
pub fn record_bytes(entries: usize, payload: usize) -> usize {
    (RECORD_HEAD_BYTES + entries + payload).next_multiple_of(RECORD_ALIGN)
}

/// Writes a record into a buffer of its length.
pub struct Writer<'a> {
    out: &'a mut [u8],
    entries: u32,
    next_entry: usize,
    payload: usize,
    next_payload: usize,
}

impl<'a> Writer<'a> {
    /// A record of `out.len()` bytes whose entries take `entries` bytes.
    pub fn new(out: &'a mut [u8], entries: usize) -> Writer<'a> {
        let payload = RECORD_HEAD_BYTES + entries;
        out[..payload].fill(0);
        Writer {
            out,
            entries: 0,
            next_entry: RECORD_HEAD_BYTES,
            payload,
            next_payload: payload,
        }
    }

    /// Adds an entry and returns the place of its payload, to be filled whole. `checksums`:
    /// as many as the entry says.
    pub fn entry(&mut self, entry: &EntryHead, checksums: impl Iterator<Item = u32>) -> &mut [u8] {
        let at = self.next_entry;
        let payload = self.next_payload;
        let out = &mut self.out[at..at + entry.bytes()];
        bytes::put_u64(out, SEQUENCE, entry.sequence);
        bytes::put_u64(out, STRIPE, entry.stripe);
        bytes::put_u32(out, START, entry.start);
        bytes::put_u32(out, END, entry.end);
        bytes::put_u64(out, WRITTEN, entry.written);
        bytes::put_u64(out, LIVE, entry.live);
        bytes::put_u64(out, CARRIERS, entry.carriers);
        bytes::put_u64(out, LOGGED, entry.logged);
        bytes::put_u64(out, OLD, entry.old);
        bytes::put_u32(out, UNIT, entry.unit_bytes);
        bytes::put_u8(out, PARTIAL, entry.partial.into());
        bytes::put_u32(out, ENTRY_PAYLOAD, payload as u32);
        bytes::put_u32(out, CHECKSUMS, entry.checksums() as u32);
        let mut written = 0;
        for (slot, checksum) in out[ENTRY_HEAD_BYTES..].chunks_exact_mut(4).zip(checksums) {
            slot.copy_from_slice(&checksum.to_le_bytes());
            written += 1;
        }
        assert_eq!(written, entry.checksums(), "every checksum is there");
        self.entries += 1;
        self.next_entry += entry.bytes();
        self.next_payload += entry.payload_bytes();
        assert!(self.next_entry <= self.payload && self.next_payload <= self.out.len());
        &mut self.out[payload..self.next_payload]
    }

    /// Fills what is left with zeroes and writes the header, checksum last.
    pub fn finish(self, head: &RecordHead) {
        assert_eq!(
            self.next_entry, self.payload,
            "entries take what was said they take"
        );
        self.out[self.next_payload..].fill(0);
        bytes::put_u64(self.out, EPOCH, head.epoch);
        bytes::put_uuid(self.out, LINEAGE, head.lineage);
        bytes::put_u64(self.out, OLDEST, head.oldest);
        bytes::put_u64(self.out, FIRST, head.first);
        bytes::put_u64(self.out, COMPLETE, head.complete);
        bytes::put_u32(self.out, ENTRIES, self.entries);
        bytes::put_u32(self.out, PAYLOAD, self.payload as u32);
        let header = Header {
            own_offset: head.own_offset,
            array_uuid: head.array_uuid,
            member_uuid: head.member_uuid,
            generation: head.number,
        };
        kind(self.out.len()).seal(self.out, &header);
    }
}

/// An entry as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it says.
    pub head: EntryHead,
    /// Its checksums: new, then old.
    pub checksums: Vec<u32>,
    /// Its payload within the record.
    pub payload: Range<usize>,
}

/// A record as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose, where, which.
    pub head: RecordHead,
    /// Bytes of the record.
    pub bytes: usize,
    /// Entries in the order of their sequences.
    pub entries: Vec<Entry>,
}

/// Who has written a record, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Array.
    pub array_uuid: Uuid,
    /// Member.
    pub member_uuid: Uuid,
    /// Array epoch.
    pub epoch: u64,
    /// Array lineage.
    pub lineage: Uuid,
}

/// A whole record in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Whose, where, which.
    pub head: RecordHead,
    /// Bytes of the record.
    pub bytes: usize,
    /// The greatest sequence of its entries, if it has any.
    pub last_sequence: Option<u64>,
}

/// Length that the record at the start of `raw` claims, if something like a record begins there.
pub fn claimed_bytes(raw: &[u8]) -> Option<usize> {
    if raw.len() < RECORD_HEAD_BYTES || raw[..8] != MAGIC {
        return None;
    }
    let length = bytes::get_u32(raw, RECORD_BYTES) as usize;
    let whole = length.is_multiple_of(RECORD_ALIGN);
    (whole && (RECORD_ALIGN..=RECORD_BYTES_MAX).contains(&length)).then_some(length)
}

/// The same for a record of `owner` at device offset `found_at`: with `None` it can be no other.
/// Looks at the head only; what it says is not yet checked.
pub fn claimed_by(raw: &[u8], found_at: u64, owner: &Owner) -> Option<usize> {
    let length = claimed_bytes(raw)?;
    let says = header::unchecked(raw);
    let is_theirs = says.own_offset == found_at
        && says.array_uuid == owner.array_uuid
        && says.member_uuid == owner.member_uuid
        && bytes::get_u64(raw, EPOCH) == owner.epoch
        && bytes::get_uuid(raw, LINEAGE) == owner.lineage;
    is_theirs.then_some(length)
}

/// Reads the record at the start of `raw`, found at device offset `found_at`. The caller compares
/// array, member, epoch and lineage.
///
/// # Errors
/// Those of [`Kind::open`]; `Field` for entries that contradict each other or the record.
pub fn decode(raw: &[u8], found_at: u64) -> Result<Record, FormatError> {
    let mut entries = Vec::new();
    let (head, bytes) = check(raw, found_at, |entry| {
        entries.push(Entry {
            head: entry.head,
            checksums: entry.checksums().collect(),
            payload: entry.payload,
        });
    })?;
    Ok(Record {
        head,
        bytes,
        entries,
    })
}

/// As [`decode`], with the same errors, but keeps nothing of the entries.
///
/// # Errors
/// As above.
pub fn summary(raw: &[u8], found_at: u64) -> Result<Summary, FormatError> {
    let mut last_sequence = None;
    let (head, bytes) = check(raw, found_at, |entry| {
        last_sequence = last_sequence.max(Some(entry.head.sequence));
    })?;
    Ok(Summary {
        head,
        bytes,
        last_sequence,
    })
}

/// Checks all of a record, shows its entries one after the other, and returns its head and length.
fn check(
    raw: &[u8],
    found_at: u64,
    mut show: impl FnMut(RawEntry<'_>),
) -> Result<(RecordHead, usize), FormatError> {
    let length = claimed_bytes(raw).unwrap_or(RECORD_ALIGN);
    let kind = kind(length);
    let header = kind.open(raw, found_at)?;
    let raw = &raw[..length];
    let payload = bytes::get_u32(raw, PAYLOAD) as usize;
    if !(RECORD_HEAD_BYTES..=length).contains(&payload) {
        return Err(kind.field(found_at, "payload", payload, "must lie in the record"));
    }
    let (mut at, mut next_payload) = (RECORD_HEAD_BYTES, payload);
    for _ in 0..bytes::get_u32(raw, ENTRIES) {
        let entry = decode_entry(&raw[at..payload]).ok_or_else(|| {
            kind.field(found_at, "entry", at, "is not whole or contradicts itself")
        })?;
        if entry.payload.start != next_payload || entry.payload.end > length {
            let why = "must lie behind the one before, in the record";
            return Err(kind.field(found_at, "entry's payload", entry.payload.start, why));
        }
        at += entry.head.bytes();
        next_payload = entry.payload.end;
        show(entry);
    }
    if at != payload {
        return Err(kind.field(
            found_at,
            "payload",
            payload,
            "must begin behind the last entry",
        ));
    }
    let head = RecordHead {
        array_uuid: header.array_uuid,
        member_uuid: header.member_uuid,
        epoch: bytes::get_u64(raw, EPOCH),
        lineage: bytes::get_uuid(raw, LINEAGE),
        own_offset: found_at,
        number: header.generation,
        oldest: bytes::get_u64(raw, OLDEST),
        first: bytes::get_u64(raw, FIRST),
        complete: bytes::get_u64(raw, COMPLETE),
    };
    Ok((head, length))
}

/// An entry where it was read.
struct RawEntry<'a> {
    head: EntryHead,
    raw_checksums: &'a [u8],
    payload: Range<usize>,
}

impl RawEntry<'_> {
    fn checksums(&self) -> impl Iterator<Item = u32> {
        let each = self.raw_checksums.chunks_exact(4);
        each.map(|raw| bytes::get_u32(raw, field(0, 4)))
    }
}

fn decode_entry(raw: &[u8]) -> Option<RawEntry<'_>> {
    if raw.len() < ENTRY_HEAD_BYTES {
        return None;
    }
    let head = EntryHead {
        sequence: bytes::get_u64(raw, SEQUENCE),
        stripe: bytes::get_u64(raw, STRIPE),
        start: bytes::get_u32(raw, START),
        end: bytes::get_u32(raw, END),
        written: bytes::get_u64(raw, WRITTEN),
        live: bytes::get_u64(raw, LIVE),
        carriers: bytes::get_u64(raw, CARRIERS),
        logged: bytes::get_u64(raw, LOGGED),
        old: bytes::get_u64(raw, OLD),
        unit_bytes: bytes::get_u32(raw, UNIT),
        partial: bytes::get_u8(raw, PARTIAL) == 1,
    };
    let sound = head.start < head.end
        && head.unit_bytes > 0
        && head.rows().is_multiple_of(head.unit_bytes as usize)
        && head.rows() <= RECORD_BYTES_MAX
        && head.written != 0
        && (head.logged | head.old) & !head.written == 0
        && bytes::get_u8(raw, PARTIAL) <= 1
        && bytes::is_zero(bytes::slice(raw, ENTRY_RESERVED))
        && bytes::get_u32(raw, CHECKSUMS) as usize == head.checksums()
        && raw.len() >= head.bytes();
    if !sound {
        return None;
    }
    let payload = bytes::get_u32(raw, ENTRY_PAYLOAD) as usize;
    Some(RawEntry {
        head,
        raw_checksums: &raw[ENTRY_HEAD_BYTES..][..4 * head.checksums()],
        payload: payload..payload.checked_add(head.payload_bytes())?,
    })
}
