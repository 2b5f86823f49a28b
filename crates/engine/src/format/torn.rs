//! Blocks that read as errors: torn by a crash, or suspect after a start that could not vouch for
//! them. Extents of each member's data area; healed by writing.

use std::collections::BTreeMap;
use std::ops::Range;

use super::bytes::{self, Field, field};

#[cfg(test)]
mod tests;

/// Why a block reads as an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TornKind {
    /// Its content was lost in a write that a crash cut off.
    Torn = 1,
    /// It is on a missing member, where writes were in flight without a log: what parity says of
    /// it may be wrong.
    Suspect = 2,
}

/// A run of blocks on one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TornExtent {
    /// Place of the member.
    pub member: u16,
    /// Why.
    pub kind: TornKind,
    /// First byte in the member's data area.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// Extents that do not overlap, joined where they touch and are of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TornList {
    /// (member, first byte) to (byte after the last, kind).
    extents: BTreeMap<(u16, u64), (u64, TornKind)>,
}

/// Bytes of one extent in the array store.
pub const TORN_EXTENT_BYTES: usize = 24;
const MEMBER: Field = field(0, 2);
const KIND: Field = field(2, 2);
const RESERVED: Field = field(4, 4);
const OFFSET: Field = field(8, 8);
const LENGTH: Field = field(16, 8);

impl TornList {
    /// Nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Number of extents.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// All extents, by member and place.
    pub fn iter(&self) -> impl Iterator<Item = TornExtent> + '_ {
        self.extents
            .iter()
            .map(|(&(member, offset), &(end, kind))| TornExtent {
                member,
                kind,
                offset,
                length: end - offset,
            })
    }

    /// Bytes listed as `kind`.
    pub fn bytes(&self, kind: TornKind) -> u64 {
        self.iter()
            .filter(|extent| extent.kind == kind)
            .map(|extent| extent.length)
            .sum()
    }

    /// The first listed extent that overlaps these bytes of a member.
    pub fn overlaps(&self, member: u16, range: Range<u64>) -> Option<TornExtent> {
        let reaching_in = self
            .extents
            .range((member, 0)..(member, range.start))
            .next_back()
            .filter(|&(_, &(end, _))| end > range.start);
        let mut within = self
            .extents
            .range((member, range.start)..(member, range.end));
        let (&(member, offset), &(end, kind)) = reaching_in.or_else(|| within.next())?;
        Some(TornExtent {
            member,
            kind,
            offset,
            length: end - offset,
        })
    }

    /// Lists what is not listed yet as suspect: a torn block stays torn. True: something changed.
    pub fn insert_suspect(&mut self, member: u16, start: u64, end: u64) -> bool {
        let (mut at, mut changed) = (start, false);
        while at < end {
            let listed = self.overlaps(member, at..end);
            let free_end = listed.map_or(end, |extent| extent.offset.max(at));
            if at < free_end {
                changed |= self.insert(TornExtent {
                    member,
                    kind: TornKind::Suspect,
                    offset: at,
                    length: free_end - at,
                });
            }
            at = listed.map_or(end, |extent| extent.offset + extent.length);
        }
        changed
    }

    /// Lists an extent; what was listed there before gets its kind. True: something changed.
    pub fn insert(&mut self, extent: TornExtent) -> bool {
        let (mut start, mut end) = (extent.offset, extent.offset + extent.length);
        // Extents of one kind are joined, so a range that is all listed is within one of them.
        let known = self
            .overlaps(extent.member, start..end)
            .is_some_and(|known| {
                known.kind == extent.kind
                    && known.offset <= start
                    && known.offset + known.length >= end
            });
        if known {
            return false;
        }
        self.remove(extent.member, start..end);
        let touching = |list: &TornList, range: Range<u64>| {
            list.overlaps(extent.member, range)
                .filter(|other| other.kind == extent.kind)
        };
        if start > 0
            && let Some(left) = touching(self, start - 1..start)
        {
            start = left.offset;
            self.extents.remove(&(extent.member, left.offset));
        }
        if let Some(right) = touching(self, end..end + 1) {
            end = right.offset + right.length;
            self.extents.remove(&(extent.member, right.offset));
        }
        self.extents
            .insert((extent.member, start), (end, extent.kind));
        true
    }

    /// Takes these bytes of a member off the list. True: something changed.
    pub fn remove(&mut self, member: u16, range: Range<u64>) -> bool {
        let mut changed = false;
        while let Some(extent) = self.overlaps(member, range.clone()) {
            changed = true;
            let end = extent.offset + extent.length;
            self.extents.remove(&(member, extent.offset));
            if extent.offset < range.start {
                let left = (range.start, extent.kind);
                self.extents.insert((member, extent.offset), left);
            }
            if end > range.end {
                self.extents.insert((member, range.end), (end, extent.kind));
            }
        }
        changed
    }

    /// Takes every extent of a kind off the list. True: there were some.
    pub fn remove_kind(&mut self, kind: TornKind) -> bool {
        let before = self.extents.len();
        self.extents.retain(|_, (_, other)| *other != kind);
        self.extents.len() != before
    }

    /// The bytes of an item of the array store: [`TORN_EXTENT_BYTES`] for each extent.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; self.len() * TORN_EXTENT_BYTES];
        for (extent, out) in self.iter().zip(out.chunks_exact_mut(TORN_EXTENT_BYTES)) {
            bytes::put_u16(out, MEMBER, extent.member);
            bytes::put_u16(out, KIND, extent.kind as u16);
            bytes::put_u64(out, OFFSET, extent.offset);
            bytes::put_u64(out, LENGTH, extent.length);
        }
        out
    }

    /// Reads what [`TornList::encode`] wrote.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn decode(raw: &[u8]) -> Result<TornList, String> {
        if !raw.len().is_multiple_of(TORN_EXTENT_BYTES) {
            return Err(format!(
                "the torn list has {} bytes, not whole extents of {TORN_EXTENT_BYTES}",
                raw.len()
            ));
        }
        let mut list = TornList::default();
        for raw in raw.chunks_exact(TORN_EXTENT_BYTES) {
            let kind = match bytes::get_u16(raw, KIND) {
                1 => TornKind::Torn,
                2 => TornKind::Suspect,
                other => return Err(format!("torn extent of kind {other}: kinds are 1 and 2")),
            };
            let extent = TornExtent {
                member: bytes::get_u16(raw, MEMBER),
                kind,
                offset: bytes::get_u64(raw, OFFSET),
                length: bytes::get_u64(raw, LENGTH),
            };
            let end = extent.offset.checked_add(extent.length);
            if extent.length == 0 || end.is_none() || !bytes::is_zero(bytes::slice(raw, RESERVED)) {
                return Err(format!("torn extent {extent:?} is not one"));
            }
            if list
                .overlaps(extent.member, extent.offset..extent.offset + extent.length)
                .is_some()
            {
                return Err(format!("torn extent {extent:?} overlaps another"));
            }
            list.extents.insert(
                (extent.member, extent.offset),
                (extent.offset + extent.length, kind),
            );
        }
        Ok(list)
    }
}
