//! Blocks that read as errors, in the volume's words: layout arithmetic from a member's bytes back
//! to the bytes that clients see.

use std::ops::Range;

use strake_engine::format::torn::{TornExtent, TornKind, TornList};
use strake_engine::layout::{Geometry, MemberIndex, StripeIndex};

#[cfg(test)]
mod tests;

/// Ranges of the volume that are named for one extent; further ones are counted.
pub const VOLUME_RANGES_MAX: usize = 1000;

/// One extent of the torn list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornBlocks {
    /// Place of the member.
    pub member: u16,
    /// Suspect, or torn.
    pub suspect: bool,
    /// First byte in the member's data area.
    pub offset_bytes: u64,
    /// Bytes.
    pub length_bytes: u64,
    /// Bytes of the volume that lie there, ascending; none for parity.
    pub volume: Vec<Range<u64>>,
    /// Ranges beyond [`VOLUME_RANGES_MAX`].
    pub volume_left_out: u64,
}

/// The list, each extent with the bytes of a volume of `volume_bytes` that it concerns.
pub(crate) fn blocks(list: &TornList, geometry: &Geometry, volume_bytes: u64) -> Vec<TornBlocks> {
    let blocks = |extent: TornExtent| {
        let (volume, volume_left_out) = volume_ranges(&extent, geometry, volume_bytes);
        TornBlocks {
            member: extent.member,
            suspect: extent.kind == TornKind::Suspect,
            offset_bytes: extent.offset,
            length_bytes: extent.length,
            volume,
            volume_left_out,
        }
    };
    list.iter().map(blocks).collect()
}

/// What the volume keeps in these bytes of a member: the data strip of each row that it crosses.
fn volume_ranges(
    extent: &TornExtent,
    geometry: &Geometry,
    volume_bytes: u64,
) -> (Vec<Range<u64>>, u64) {
    let member = MemberIndex(extent.member);
    let groups = u64::from(geometry.shape().groups);
    let group = u64::from(geometry.group_of(member));
    let strip_bytes = geometry.strip_bytes();
    let (mut ranges, mut left_out): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
    let (mut at, end) = (extent.offset, extent.offset + extent.length);
    while at < end {
        let row = at / strip_bytes;
        let next = ((row + 1) * strip_bytes).min(end);
        let stripe = StripeIndex(row * groups + group);
        let strip = geometry.strip_of(stripe, member);
        if let Some(strip) = data_strip(geometry, strip) {
            let start = geometry.volume_offset(stripe, strip, (at % strip_bytes) as u32);
            let range = start..(start + (next - at)).min(volume_bytes);
            let joined = ranges.last().is_some_and(|last| last.end == range.start);
            if range.is_empty() {
                // Behind the volume's end.
            } else if joined {
                ranges.last_mut().expect("joined to it").end = range.end;
            } else if ranges.len() == VOLUME_RANGES_MAX {
                left_out += 1;
            } else {
                ranges.push(range);
            }
        }
        at = next;
    }
    (ranges, left_out)
}

/// The data strip whose content a strip holds: every copy of a mirror is its one data strip.
fn data_strip(geometry: &Geometry, strip: usize) -> Option<usize> {
    match geometry.data() {
        1 => Some(0),
        data => (strip < data).then_some(strip),
    }
}
