//! How one stripe operation is done: which rows to read, what to compute, what to write.
//!
//! A plan is decided in one function, [`plan_write`], from the bytes to be written and the
//! strips that can be read and written; [`plan_read`] and [`plan_rebuild`] are its small sisters.
//! Rows are byte ranges within a strip. Where the set of written strips changes, a new [`Span`]
//! begins, and each span takes the cheapest way that the readable strips allow:
//!
//! * *full-stripe*: every data strip is written: read nothing;
//! * *read-modify-write*: read old data of the written strips and old parity;
//! * *reconstruct-write*: read the data strips that are not written; those of them that cannot be
//!   read are decoded from any k readable strips first.
//!
//! Memory: every strip of the stripe has one *slot*, a buffer over the plan's rows, filled by
//! reads or by computing. What the client gave or wants stays in the request's own memory.

pub mod compute;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use strake_codec::{Code, Decoder};

/// Slots of an operation at most: one a strip, and one more a strip that a scrub recomputes or
/// whose partial parity is logged (slot `strips + strip`).
pub const SLOTS_MAX: usize = 2 * crate::layout::STRIPS_MAX;

/// Index of a request in its array's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub u32);

/// Memory of a piece of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The request's buffer, from this byte on.
    Request(RequestId, u32),
    /// Zeroes, no memory (writes only).
    Zeroes,
}

/// A range of rows of one data strip that a request reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Data strip, `0..k`.
    pub strip: u8,
    /// First row byte.
    pub start: u32,
    /// Row byte after the last.
    pub end: u32,
    /// Where its content is or goes.
    pub memory: Memory,
}

impl Fragment {
    /// True where both cover a row of the same strip.
    pub fn overlaps(&self, other: &Fragment) -> bool {
        self.strip == other.strip && self.start < other.end && other.start < self.end
    }

    fn covers(&self, strip: usize, start: u32, end: u32) -> bool {
        usize::from(self.strip) == strip && self.start <= start && end <= self.end
    }
}

/// The way of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Nothing to compute: copies, or zeroes everywhere. There only for the log's sake.
    Direct,
    /// All data strips written.
    FullStripe,
    /// Old data and parity read, the difference added.
    ReadModifyWrite,
    /// Untouched data read (or decoded), parity computed anew.
    ReconstructWrite,
    /// Strips decoded (degraded read, rebuild).
    Decode,
    /// Parity (or every strip beyond the k first) computed beside what is stored.
    Check,
}

/// Rows with one set of written strips and one way.
#[derive(Debug, Clone)]
pub struct Span {
    /// First row byte.
    pub start: u32,
    /// Row byte after the last.
    pub end: u32,
    /// Data strips written in these rows (bit i: strip i).
    pub written: u64,
    /// How.
    pub way: Way,
    /// For strips that must be decoded first.
    pub decoder: Option<Arc<Decoder>>,
    /// Bytes that one checksum of the log covers; 0: the span is not logged.
    pub unit_bytes: u32,
}

impl Span {
    /// The parity log gets the partial parity of the strips that are not written.
    pub fn has_partial_parity(&self) -> bool {
        self.unit_bytes > 0 && matches!(self.way, Way::ReadModifyWrite | Way::ReconstructWrite)
    }

    /// Strips whose content before the write is known, so that the log can recognise it.
    pub fn old(&self) -> u64 {
        if self.way == Way::ReadModifyWrite {
            self.written
        } else {
            0
        }
    }
}

/// Memory side of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Into {
    /// The strip's slot.
    Slot,
    /// The memory of fragment number n.
    Fragment(u16),
}

/// One read from the member that holds `strip`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPart {
    /// Strip.
    pub strip: u8,
    /// First row byte.
    pub start: u32,
    /// Row byte after the last.
    pub end: u32,
    /// Memory.
    pub into: Into,
}

/// Memory side of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The strip's slot.
    Slot,
    /// The memory of fragment number n.
    Fragment(u16),
    /// Zeroes.
    Zeroes,
}

/// One write to the member that holds `strip`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePart {
    /// Strip.
    pub strip: u8,
    /// First row byte.
    pub start: u32,
    /// Row byte after the last.
    pub end: u32,
    /// Memory.
    pub from: From,
}

/// Everything an operation does between taking its stripe's lock and giving it back.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// First row byte of the slots.
    pub start: u32,
    /// Row byte after the last of the slots.
    pub end: u32,
    /// Spans in row order.
    pub spans: Vec<Span>,
    /// Reads, all at once.
    pub reads: Vec<ReadPart>,
    /// Writes, all at once, after computing.
    pub writes: Vec<WritePart>,
    /// Fragments (number, slot) whose memory is filled from a slot after computing.
    pub copies: Vec<(u16, u8)>,
    /// Slots that must exist (bit: slot).
    pub slots: u128,
}

/// What the array can do with the strips of a stripe now.
#[derive(Debug, Clone, Copy)]
pub struct Strips {
    /// Data strips, k.
    pub data: usize,
    /// Parity strips, m.
    pub parity: usize,
    /// Strips whose stored content is true and can be read.
    pub readable: u64,
    /// Strips whose member takes writes.
    pub writable: u64,
}

/// More strips are missing than the parities replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable;

impl Strips {
    /// Mask of the data strips.
    pub fn data_mask(&self) -> u64 {
        mask(self.data)
    }

    /// Mask of the parity strips.
    pub fn parity_mask(&self) -> u64 {
        mask(self.data + self.parity) & !self.data_mask()
    }

    fn writable_parities(&self) -> u64 {
        self.writable & self.parity_mask()
    }
}

/// The lowest `bits` bits.
pub fn mask(bits: usize) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

/// Strips of a mask, ascending.
pub fn strips_of(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let strip = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(strip)
    })
}

impl Plan {
    /// Empties the plan, keeping its memory.
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
        self.spans.clear();
        self.reads.clear();
        self.writes.clear();
        self.copies.clear();
        self.slots = 0;
    }

    /// Bytes of one slot.
    pub fn slot_bytes(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Bytes of all slots.
    pub fn memory_bytes(&self) -> usize {
        self.slots.count_ones() as usize * self.slot_bytes()
    }

    /// Reads `strip` into its slot, joined to the read before where they touch.
    fn read_slot(&mut self, strip: usize, start: u32, end: u32) {
        self.slots |= 1 << strip;
        let touching = self
            .reads
            .iter_mut()
            .find(|r| usize::from(r.strip) == strip && r.into == Into::Slot && r.end == start);
        match touching {
            Some(before) => before.end = end,
            None => self.reads.push(ReadPart {
                strip: strip as u8,
                start,
                end,
                into: Into::Slot,
            }),
        }
    }

    /// Writes `strip` from its slot (or zeroes), joined to the write before where they touch.
    fn write_rows(&mut self, strip: usize, start: u32, end: u32, from: From) {
        if from == From::Slot {
            self.slots |= 1 << strip;
        }
        let touching = self
            .writes
            .iter_mut()
            .find(|w| usize::from(w.strip) == strip && w.from == from && w.end == start);
        match touching {
            Some(before) => before.end = end,
            None => self.writes.push(WritePart {
                strip: strip as u8,
                start,
                end,
                from,
            }),
        }
    }

    fn set_rows(&mut self, fragments: &[Fragment]) {
        self.start = fragments.iter().map(|f| f.start).min().unwrap_or(0);
        self.end = fragments.iter().map(|f| f.end).max().unwrap_or(0);
    }
}

/// Plans the writing of `fragments` (no two of which overlap) into one band. With `log`
/// (bytes that one checksum covers: the array's block), every row that is written gets a span, for
/// its entry in the parity log.
///
/// # Errors
/// [`Unavailable`] when the new content could not be read back afterwards, or when content that
/// parity needs cannot be read: nothing may be written then.
pub fn plan_write(
    strips: &Strips,
    code: &Code,
    fragments: &[Fragment],
    log: Option<u32>,
    plan: &mut Plan,
) -> Result<(), Unavailable> {
    plan.clear();
    plan.set_rows(fragments);
    let gone = mask(strips.data + strips.parity) & !strips.writable;
    if gone.count_ones() as usize > strips.parity {
        return Err(Unavailable);
    }
    let mirror = strips.data == 1;
    for (index, fragment) in fragments.iter().enumerate() {
        let from = match fragment.memory {
            Memory::Zeroes => From::Zeroes,
            Memory::Request(..) => From::Fragment(index as u16),
        };
        let copies = if mirror { strips.parity_mask() } else { 0 };
        for strip in strips_of((copies | 1 << fragment.strip) & strips.writable) {
            plan.write_rows(strip, fragment.start, fragment.end, from);
        }
    }
    if strips.writable_parities() == 0 {
        return Ok(());
    }
    if mirror {
        if let Some(unit_bytes) = log {
            plan.spans.extend(fragments.iter().map(|f| Span {
                start: f.start,
                end: f.end,
                written: 1,
                way: Way::Direct,
                decoder: None,
                unit_bytes,
            }));
        }
        return Ok(());
    }
    let mut start = plan.start;
    while start < plan.end {
        let end = next_change(fragments, start, plan.end);
        let written = written_in(fragments, start, end);
        if written != 0 {
            plan_span(strips, code, fragments, log, plan, (start, end), written)?;
        }
        start = end;
    }
    Ok(())
}

/// First row after `start` where a fragment begins or ends.
fn next_change(fragments: &[Fragment], start: u32, end: u32) -> u32 {
    fragments
        .iter()
        .flat_map(|f| [f.start, f.end])
        .filter(|&row| row > start)
        .min()
        .unwrap_or(end)
        .min(end)
}

fn written_in(fragments: &[Fragment], start: u32, end: u32) -> u64 {
    fragments
        .iter()
        .filter(|f| f.start <= start && end <= f.end)
        .fold(0, |mask, f| mask | 1 << f.strip)
}

/// Chooses the way of one span and adds its reads and parity writes.
fn plan_span(
    strips: &Strips,
    code: &Code,
    fragments: &[Fragment],
    log: Option<u32>,
    plan: &mut Plan,
    (start, end): (u32, u32),
    written: u64,
) -> Result<(), Unavailable> {
    let parities = strips.writable_parities();
    let untouched = strips.data_mask() & !written;
    let lost = untouched & !strips.readable;
    let modify = written | parities;
    let can_modify = modify & !strips.readable == 0;
    let mut decoder = None;
    let (way, reads) = if untouched == 0 {
        (Way::FullStripe, 0)
    } else if lost == 0 && (!can_modify || untouched.count_ones() <= modify.count_ones()) {
        (Way::ReconstructWrite, untouched)
    } else if can_modify && (lost == 0 || modify.count_ones() as usize <= strips.data) {
        (Way::ReadModifyWrite, modify)
    } else {
        match code.decoder(strips.readable, lost) {
            Ok(found) => {
                let sources = found.sources().iter().fold(0u64, |m, &s| m | 1 << s);
                decoder = Some(found);
                (Way::ReconstructWrite, sources | (untouched & !lost))
            }
            Err(_) if can_modify => (Way::ReadModifyWrite, modify),
            Err(_) => return Err(Unavailable),
        }
    };
    for strip in strips_of(reads) {
        plan.read_slot(strip, start, end);
    }
    if decoder.is_some() {
        plan.slots |= u128::from(lost);
        // A strip that is live but could not be read here gets its content back on the way.
        for strip in strips_of(lost & strips.writable) {
            plan.write_rows(strip, start, end, From::Slot);
        }
    }
    let zeroes = way == Way::FullStripe && all_zeroes(fragments, start, end);
    for strip in strips_of(parities) {
        plan.write_rows(
            strip,
            start,
            end,
            if zeroes { From::Zeroes } else { From::Slot },
        );
    }
    if zeroes && log.is_none() {
        return Ok(());
    }
    let way = if zeroes { Way::Direct } else { way };
    let span = Span {
        start,
        end,
        written,
        way,
        decoder,
        unit_bytes: log.unwrap_or(0),
    };
    if span.has_partial_parity() {
        plan.slots |= u128::from(parities) << (strips.data + strips.parity);
    }
    plan.spans.push(span);
    Ok(())
}

fn all_zeroes(fragments: &[Fragment], start: u32, end: u32) -> bool {
    fragments
        .iter()
        .filter(|f| f.start <= start && end <= f.end)
        .all(|f| f.memory == Memory::Zeroes)
}

/// Plans the reading of `fragments` (one a strip at most) when some strips cannot be read.
///
/// `repair` (a mask of strips, writable all of them) is decoded too and written back in the rows
/// concerned; the caller then holds the stripe's lock alone.
///
/// # Errors
/// [`Unavailable`] when fewer than k strips can be read and one of them is wanted.
pub fn plan_read(
    strips: &Strips,
    code: &Code,
    fragments: &[Fragment],
    repair: u64,
    plan: &mut Plan,
) -> Result<(), Unavailable> {
    plan.clear();
    let lost = wanted_strips(strips, fragments);
    // What was to be repaired may have become readable (or of no interest) meanwhile.
    let repair = if lost != 0 || strips.data == 1 {
        repair
    } else {
        0
    };
    let wanted = lost | repair;
    let touches = |f: &Fragment| wanted & (1 << f.strip) != 0 || strips.data == 1;
    for (index, fragment) in fragments.iter().enumerate() {
        if wanted == 0 || !touches(fragment) {
            plan.reads.push(ReadPart {
                strip: fragment.strip,
                start: fragment.start,
                end: fragment.end,
                into: Into::Fragment(index as u16),
            });
        } else {
            // Copies are alike: any decoded slot of a mirror holds what its data strip holds.
            let slot = if strips.data == 1 {
                wanted.trailing_zeros() as u8
            } else {
                fragment.strip
            };
            plan.copies.push((index as u16, slot));
        }
    }
    if wanted == 0 {
        return Ok(());
    }
    // A strip to repair may be none that is wanted: it failed as a source, in the same rows.
    let any = fragments.iter().any(touches);
    let rows = fragments.iter().filter(|f| !any || touches(f));
    plan.start = rows.clone().map(|f| f.start).min().unwrap_or(0);
    plan.end = rows.map(|f| f.end).max().unwrap_or(0);
    let (start, end) = (plan.start, plan.end);
    let decoder = code
        .decoder(strips.readable, wanted)
        .map_err(|_| Unavailable)?;
    for &source in decoder.sources() {
        let source = usize::from(source);
        if strips.data == 1 || !fragments.iter().any(|f| f.covers(source, start, end)) {
            plan.read_slot(source, start, end);
        }
    }
    plan.slots |= u128::from(wanted);
    for strip in strips_of(repair) {
        plan.write_rows(strip, start, end, From::Slot);
    }
    plan.spans.push(Span {
        start,
        end,
        written: 0,
        way: Way::Decode,
        decoder: Some(decoder),
        unit_bytes: 0,
    });
    Ok(())
}

/// Data strips that fragments touch and that cannot be read themselves.
fn wanted_strips(strips: &Strips, fragments: &[Fragment]) -> u64 {
    fragments
        .iter()
        .map(|f| 1u64 << f.strip)
        .filter(|bit| strips.readable & bit == 0)
        .fold(0, |mask, bit| mask | bit)
}

/// Plans the refilling of the `targets` strips in rows `start..end` from the readable ones.
///
/// # Errors
/// [`Unavailable`] when fewer than k strips can be read.
pub fn plan_rebuild(
    strips: &Strips,
    code: &Code,
    targets: u64,
    (start, end): (u32, u32),
    plan: &mut Plan,
) -> Result<(), Unavailable> {
    plan.clear();
    (plan.start, plan.end) = (start, end);
    let decoder = code
        .decoder(strips.readable, targets)
        .map_err(|_| Unavailable)?;
    for &source in decoder.sources() {
        plan.read_slot(usize::from(source), start, end);
    }
    for strip in strips_of(targets) {
        plan.write_rows(strip, start, end, From::Slot);
    }
    plan.spans.push(Span {
        start,
        end,
        written: 0,
        way: Way::Decode,
        decoder: Some(decoder),
        unit_bytes: 0,
    });
    Ok(())
}

/// Plans the comparison of every readable strip beyond k with what the others say. Computed
/// content goes to slot `strips + strip`. Nothing to check: no spans.
///
/// # Errors
/// [`Unavailable`] when fewer than k strips can be read.
pub fn plan_check(
    strips: &Strips,
    code: &Code,
    (start, end): (u32, u32),
    plan: &mut Plan,
) -> Result<(), Unavailable> {
    plan.clear();
    (plan.start, plan.end) = (start, end);
    if strips.readable.count_ones() as usize <= strips.data {
        return if strips.readable.count_ones() as usize == strips.data {
            Ok(())
        } else {
            Err(Unavailable)
        };
    }
    let first = strips_of(strips.readable)
        .take(strips.data)
        .fold(0u64, |m, s| m | 1 << s);
    let beyond = strips.readable & !first;
    let decoder = code.decoder(first, beyond).map_err(|_| Unavailable)?;
    for strip in strips_of(strips.readable) {
        plan.read_slot(strip, start, end);
    }
    for strip in strips_of(beyond) {
        plan.slots |= 1 << (strips.data + strips.parity + strip);
    }
    plan.spans.push(Span {
        start,
        end,
        written: 0,
        way: Way::Check,
        decoder: Some(decoder),
        unit_bytes: 0,
    });
    Ok(())
}

/// Plans the recomputing of the writable parities from data (resync, scrub with repair).
///
/// With `accept`, what the first k readable strips say is believed where data strips are missing.
///
/// # Errors
/// [`Unavailable`] when a data strip cannot be read: parity is all that is left of it, and
/// must not be overwritten.
pub fn plan_resync(
    strips: &Strips,
    code: &Code,
    accept: bool,
    (start, end): (u32, u32),
    plan: &mut Plan,
) -> Result<(), Unavailable> {
    plan.clear();
    (plan.start, plan.end) = (start, end);
    let missing = strips.data_mask() & !strips.readable != 0;
    if strips.data == 1 || missing && accept {
        // Of copies (or strips) that may contradict each other the first k become the truth.
        let sources = strips_of(strips.readable)
            .take(strips.data)
            .fold(0u64, |m, s| m | 1 << s);
        let first = Strips {
            readable: sources,
            ..*strips
        };
        let targets = strips.writable & !sources;
        if targets == 0 {
            return Ok(());
        }
        return plan_rebuild(&first, code, targets, (start, end), plan);
    }
    if missing {
        return Err(Unavailable);
    }
    for strip in 0..strips.data {
        plan.read_slot(strip, start, end);
    }
    for strip in strips_of(strips.writable_parities()) {
        plan.write_rows(strip, start, end, From::Slot);
    }
    plan.spans.push(Span {
        start,
        end,
        written: 0,
        way: Way::ReconstructWrite,
        decoder: None,
        unit_bytes: 0,
    });
    Ok(())
}
