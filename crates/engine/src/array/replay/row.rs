//! One row range of a stripe after a crash: what must be read, and what becomes of it.
//!
//! Pure arithmetic over what the log says and what the drives hold. In the notation of
//! `docs/internals/write-hole.md`: T is what the newest entry wrote, PP_r the partial parity that
//! carrier r logged, and S_r = P_r(disk) − PP_r is what the parity on disk says of T alone.
//!
//! * Every strip of T that can be read is as it is on its drive: P_r := PP_r + Σ over T.
//! * A strip of T that cannot be read is solved for from as many S_r as strips are unknown, for
//!   every choice of parities, and believed only when a checksum of the log vouches for it.
//! * What nothing vouches for is torn, and counts as zeroes in the parities.

use arrayvec::ArrayVec;
use strake_codec::{Code, Onto, Sum};

use super::Found;
use crate::format::bytes::crc32c;
use crate::format::log::record::Entry;
use crate::layout::STRIPS_MAX;
use crate::plan::{mask, strips_of};
use crate::planted::{self, Planted};

/// What a drive holds of a strip in these rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    /// Not read yet.
    Unread,
    /// These bytes.
    Content(Vec<u8>),
    /// An error.
    Unreadable,
}

/// Everything that a decision needs.
pub(super) struct Row<'a> {
    pub code: &'a Code,
    pub block_bytes: usize,
    pub start: u32,
    pub end: u32,
    /// Entries that wrote here, newest first.
    pub entries: Vec<&'a Found>,
    /// Members of the parity strips.
    pub parity_members: Vec<u16>,
    /// Strips whose members hold what they should.
    pub in_sync: u64,
    /// Strips whose members can be asked.
    pub attached: u64,
    /// Strips with blocks listed as torn here (by a replay that was cut off).
    pub listed: u64,
    /// Strips whose members' logs cannot be read everywhere: what they lack may have been there.
    pub unreadable_logs: u64,
    /// Some parity member's log was read everywhere: it has the newest entry.
    pub vouched: bool,
    pub strips: &'a [Known],
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    /// Strips and their new content in these rows.
    pub writes: Vec<(usize, Vec<u8>)>,
    /// Blocks to be listed: strip, first and last byte after `start`.
    pub torn: Vec<(usize, u32, u32)>,
}

impl<'a> Row<'a> {
    fn newest(&self) -> &'a Entry {
        &self.entries[0].entry
    }

    fn data(&self) -> usize {
        self.code.data()
    }

    fn rows(&self) -> usize {
        (self.end - self.start) as usize
    }

    fn written(&self) -> u64 {
        self.newest().head.written
    }

    fn content(&self, strip: usize) -> Option<&'a [u8]> {
        match &self.strips[strip] {
            Known::Content(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn unread(&self, strips: u64) -> u64 {
        strips_of(strips)
            .filter(|&strip| self.strips[strip] == Known::Unread)
            .fold(0, |mask, strip| mask | 1 << strip)
    }

    fn readable(&self, strips: u64) -> u64 {
        strips_of(strips & self.in_sync)
            .filter(|&strip| self.strips[strip] != Known::Unreadable)
            .fold(0, |mask, strip| mask | 1 << strip)
    }

    /// Parities whose members hold what they should (or did before the crash).
    fn parities(&self) -> u64 {
        self.in_sync & mask(self.code.data() + self.code.parity()) & !mask(self.data())
    }

    /// Parities of which PP is known: logged, or nothing when T is every data strip.
    fn whole(&self) -> u64 {
        strips_of(self.parities())
            .filter(|&strip| self.partial_parity(strip).is_some())
            .fold(0, |mask, strip| mask | 1 << strip)
    }

    /// PP of a parity strip in these rows; empty: zeroes.
    fn partial_parity(&self, strip: usize) -> Option<&'a [u8]> {
        let newest = self.newest();
        if !newest.head.partial {
            return Some(&[]);
        }
        let member = self.parity_members[strip - self.data()];
        let found = self.entries[0]
            .payloads
            .iter()
            .find(|(m, _)| *m == member)?;
        let from = (self.start - newest.head.start) as usize;
        Some(&found.1[from..from + self.rows()])
    }

    /// New content of a strip of T that the log keeps.
    fn logged(&self, strip: usize) -> Option<&'a [u8]> {
        let head = &self.newest().head;
        if head.logged & (1 << strip) == 0 {
            return None;
        }
        let before = (head.logged & mask(strip)).count_ones() as usize + usize::from(head.partial);
        let from = before * head.rows() + (self.start - head.start) as usize;
        let (_, payload) = self.entries[0].payloads.first()?;
        Some(&payload[from..from + self.rows()])
    }

    /// Strips of T that neither a drive nor the log gives.
    fn lost(&self) -> u64 {
        let given = self.readable(self.written());
        strips_of(self.written() & !given)
            .filter(|&strip| self.logged(strip).is_none())
            .fold(0, |mask, strip| mask | 1 << strip)
    }

    /// No in-place write of the newest entry had begun: a carrier that can be read does not have it.
    fn is_void(&self) -> bool {
        let carriers = self.newest().head.carriers & self.in_sync & self.attached;
        strips_of(carriers & !self.unreadable_logs).any(|strip| {
            let member = self.parity_members[strip - self.data()];
            !self.entries[0].payloads.iter().any(|(m, _)| *m == member)
        })
    }

    /// No log that can be read everywhere would have the newest entry: what is found may be an older
    /// one. (The region is resynced, or no parity is there that could be wrong.) Where every log was
    /// read nothing is hidden, also when all of them are of members being refilled.
    fn is_hidden(&self) -> bool {
        let unreadable = self.unreadable_logs & !mask(self.data());
        !self.vouched && (unreadable != 0 || self.parities() & self.attached == 0)
    }

    /// Whether the row is as it should be.
    ///
    /// * Where the newest entry may be one that cannot be read, nothing is said by an older one.
    /// * A strip that holds what it should today and did not take this write was refilled since:
    ///   which waited until the write was durable everywhere.
    /// * Of a void entry with strips of T that are on no drive the parities on disk say what the
    ///   row held before, of those strips as well. With all of T on drives a void entry is
    ///   replayed all the same: that changes nothing, and makes good a record that was whole once
    ///   and rotted.
    /// * Copies are made to agree whatever the newest entry is worth: older writes to them may have
    ///   landed on some only, as a copy is written anew without waiting for a flush.
    fn is_left_alone(&self) -> bool {
        if self.is_hidden() && !planted::on(Planted::UnreadableTakenForTorn) {
            return true;
        }
        let refilled = self.in_sync & !self.newest().head.live;
        let incomplete = self.written() & !self.readable(self.written());
        let void = self.data() > 1
            && incomplete != 0
            && self.is_void()
            && !planted::on(Planted::VoidEntryReplayed);
        refilled != 0 && !planted::on(Planted::ProgressOfToday) || void
    }

    /// Parities that get their content from all data, as their PP is not known.
    fn lacking(&self) -> u64 {
        self.parities() & !self.whole()
    }

    /// Strips to be read before [`Row::resolve`] can decide; 0: none.
    pub fn wants(&self) -> u64 {
        let first = self.unread(self.written() & self.in_sync);
        if self.is_left_alone() {
            return 0;
        } else if first != 0 {
            return first;
        }
        let mut wanted = 0;
        if self.lost() != 0 {
            wanted |= self.whole();
            // What a member being refilled holds may be vouched for as well.
            wanted |= self.lost() & self.attached & !self.in_sync;
        }
        if self.lacking() != 0 {
            wanted |= mask(self.data()) & !self.written() & self.in_sync;
        }
        self.unread(wanted)
    }

    /// Decides, when nothing more is wanted.
    pub fn resolve(&self) -> Resolved {
        let mut resolved = Resolved::default();
        if self.is_left_alone() {
            return resolved;
        }
        let mut data: Vec<Option<Vec<u8>>> = vec![None; self.data()];
        for strip in strips_of(self.written()) {
            let disk = self
                .content(strip)
                .filter(|_| self.in_sync >> strip & 1 == 1);
            data[strip] = disk.or_else(|| self.logged(strip)).map(<[u8]>::to_vec);
        }
        self.find_torn_inside(&data, &mut resolved);
        self.solve_lost(&mut data, &mut resolved);
        if self.data() == 1 && !resolved.torn.is_empty() {
            // No copy can be read: reading says so, and what the drives hold stays.
            return Resolved::default();
        }
        self.write_parities(&data, &mut resolved);
        let back = self.written() & self.in_sync & !self.readable(self.written());
        for strip in strips_of(back & self.attached) {
            // It could not be read: it gets its content back (or zeroes, if torn).
            let content = data[strip].clone().expect("all of T is known now");
            resolved.writes.push((strip, content));
        }
        resolved
    }

    /// Blocks on drives that are neither what they were nor what they were to be.
    fn find_torn_inside(&self, data: &[Option<Vec<u8>>], resolved: &mut Resolved) {
        let old = self.newest().head.old;
        for strip in strips_of(old & self.in_sync) {
            let (Some(content), Some(_)) = (&data[strip], self.content(strip)) else {
                continue;
            };
            for at in (0..self.rows()).step_by(self.block_bytes) {
                if !self.vouched(strip, at, &content[at..at + self.block_bytes]) {
                    self.tear(strip, at, resolved);
                }
            }
        }
    }

    fn tear(&self, strip: usize, at: usize, resolved: &mut Resolved) {
        let (from, to) = (at as u32, (at + self.block_bytes) as u32);
        match resolved.torn.last_mut() {
            Some(last) if last.0 == strip && last.2 == from => last.2 = to,
            _ => resolved.torn.push((strip, from, to)),
        }
    }

    /// Whether a checksum of an entry in force says that this is a content of the block.
    fn vouched(&self, strip: usize, at: usize, content: &[u8]) -> bool {
        if planted::on(Planted::HypothesisWithoutChecksum) {
            return true;
        }
        let checksum = crc32c(content);
        let row = self.start + at as u32;
        self.entries
            .iter()
            .any(|found| checksums_of(&found.entry, strip, row).any(|known| known == checksum))
    }

    fn solve_lost(&self, data: &mut [Option<Vec<u8>>], resolved: &mut Resolved) {
        let lost = self.lost();
        for strip in strips_of(lost) {
            data[strip] = Some(vec![0; self.rows()]);
        }
        if lost == 0 {
            return;
        }
        for at in (0..self.rows()).step_by(self.block_bytes) {
            let mut unknown = lost;
            for strip in strips_of(lost & self.attached & !self.in_sync) {
                let Some(content) = self.content(strip) else {
                    continue;
                };
                let block = &content[at..at + self.block_bytes];
                if self.data() > 1 && self.vouched(strip, at, block) {
                    put(data, strip, at, block);
                    unknown &= !(1 << strip);
                }
            }
            self.solve_block(at, data, &mut unknown);
            for strip in strips_of(unknown) {
                self.tear(strip, at, resolved);
            }
        }
    }

    /// Tries every hypothesis for the unknown strips of one block.
    fn solve_block(&self, at: usize, data: &mut [Option<Vec<u8>>], unknown: &mut u64) {
        if self.data() == 1 {
            return self.choose_copy(at, data, unknown);
        }
        let logged = strips_of(self.written() & !self.readable(self.written()))
            .filter(|&strip| self.logged(strip).is_some())
            .fold(0u64, |mask, strip| mask | 1 << strip);
        // Parities may say what was before the write: then what the log keeps was not yet there.
        // Strips torn in a replay before this one are zeroes, if it came as far as the parities.
        let zero = *unknown & self.listed;
        let hypotheses = [(0, 0), (logged, 0), (0, zero), (logged, zero)];
        for (also, zeroes) in hypotheses {
            let solve_for = (*unknown | also) & !zeroes;
            if solve_for == 0 {
                continue;
            }
            let solved = self.try_parities(at, data, solve_for, also | *unknown, *unknown);
            for (strip, block) in solved {
                put(data, strip, at, &block);
                *unknown &= !(1 << strip);
            }
            if *unknown == 0 {
                return;
            }
        }
    }

    /// Copies hold whole contents, old or new: one that the log knows, else the first.
    fn choose_copy(&self, at: usize, data: &mut [Option<Vec<u8>>], unknown: &mut u64) {
        let copies: Vec<&[u8]> = strips_of(self.whole())
            .filter_map(|strip| self.content(strip))
            .map(|content| &content[at..at + self.block_bytes])
            .collect();
        let known = copies.iter().find(|block| self.vouched(0, at, block));
        if let Some(block) = known.or(copies.first()) {
            put(data, 0, at, block);
            *unknown = 0;
        }
    }

    /// Solves one block for the strips `solve_for`, with every choice of parities; strips of
    /// `unset` count as nothing on the known side. Returns what is vouched for of `wanted`.
    fn try_parities(
        &self,
        at: usize,
        data: &[Option<Vec<u8>>],
        solve_for: u64,
        unset: u64,
        wanted: u64,
    ) -> Vec<(usize, Vec<u8>)> {
        let readable = strips_of(self.whole())
            .filter(|&strip| self.content(strip).is_some())
            .fold(0u64, |mask, strip| mask | 1 << strip);
        let count = solve_for.count_ones();
        let mut found: Vec<(usize, Vec<u8>)> = Vec::new();
        for parities in subsets(readable, count) {
            let known: Vec<(usize, Vec<u8>)> = strips_of(parities)
                .map(|parity| (parity, self.residue(parity, at, data, unset)))
                .collect();
            for (strip, block) in self.solve(solve_for, parities, &known, self.block_bytes) {
                let new = found.iter().all(|(other, _)| *other != strip);
                if wanted >> strip & 1 == 1 && new && self.vouched(strip, at, &block) {
                    found.push((strip, block));
                }
            }
        }
        found
    }

    /// S_r without the strips of T that are known.
    fn residue(&self, parity: usize, at: usize, data: &[Option<Vec<u8>>], unset: u64) -> Vec<u8> {
        let range = at..at + self.block_bytes;
        let mut out = self.content(parity).expect("it was read")[range.clone()].to_vec();
        let pp = self.partial_parity(parity).expect("its PP is known");
        if !pp.is_empty() {
            xor(&mut out, &pp[range.clone()]);
        }
        for strip in strips_of(self.written() & !unset) {
            let content = data[strip].as_ref().expect("known");
            self.add(parity, strip, &content[range.clone()], &mut out);
        }
        out
    }

    /// out += c(parity, strip) × content.
    fn add(&self, parity: usize, strip: usize, content: &[u8], out: &mut [u8]) {
        let sum = Sum {
            rows: 1 << (parity - self.data()),
            columns: 1 << strip,
            inputs: &[content],
            less: &[],
            onto: Onto::Outputs,
        };
        self.code.encoder().sum(&sum, &mut [out]);
    }

    /// Solves for data strips from as many parities, all other data strips taken as zeroes.
    fn solve(
        &self,
        solve_for: u64,
        parities: u64,
        known: &[(usize, Vec<u8>)],
        bytes: usize,
    ) -> Vec<(usize, Vec<u8>)> {
        let available = mask(self.data()) & !solve_for | parities;
        let Ok(decoder) = self.code.decoder(available, solve_for) else {
            return Vec::new();
        };
        let zeroes = vec![0; bytes];
        let inputs: ArrayVec<&[u8], STRIPS_MAX> = decoder
            .sources()
            .iter()
            .map(|&source| {
                let source = usize::from(source);
                let parity = known.iter().find(|(strip, _)| *strip == source);
                parity.map_or(&zeroes[..], |(_, bytes)| &bytes[..])
            })
            .collect();
        let mut solved: Vec<(usize, Vec<u8>)> = decoder
            .wanted()
            .iter()
            .map(|&strip| (usize::from(strip), vec![0; bytes]))
            .collect();
        let mut out: ArrayVec<&mut [u8], STRIPS_MAX> =
            solved.iter_mut().map(|(_, bytes)| &mut bytes[..]).collect();
        decoder.transform().apply(&inputs, &mut out);
        drop(out);
        solved
    }

    fn write_parities(&self, data: &[Option<Vec<u8>>], resolved: &mut Resolved) {
        for parity in strips_of(self.whole() & self.attached) {
            let pp = self.partial_parity(parity).expect("its PP is known");
            let mut out = vec![0; self.rows()];
            if !pp.is_empty() {
                out.copy_from_slice(pp);
            }
            for strip in strips_of(self.written()) {
                let content = data[strip].as_ref().expect("all of T is known now");
                self.add(parity, strip, content, &mut out);
            }
            resolved.writes.push((parity, out));
        }
        if self.lacking() & self.attached == 0 {
            return;
        }
        if let Some(all) = self.all_data(data) {
            for parity in strips_of(self.lacking() & self.attached) {
                let mut out = vec![0; self.rows()];
                for (strip, content) in all.iter().enumerate() {
                    self.add(parity, strip, content, &mut out);
                }
                resolved.writes.push((parity, out));
            }
        } else if self.lacking() & self.unreadable_logs != 0 && !self.is_void() {
            self.give_up(data, resolved);
        }
    }

    /// What is left of the parities does not determine the strips that were not written and
    /// cannot be read: they are torn, and every parity is made anew around them.
    fn give_up(&self, data: &[Option<Vec<u8>>], resolved: &mut Resolved) {
        let untouched = mask(self.data()) & !self.written();
        let given = self.given(untouched);
        for strip in strips_of(untouched & !given) {
            resolved.torn.push((strip, 0, self.rows() as u32));
        }
        resolved.writes.retain(|(strip, _)| *strip < self.data());
        for parity in strips_of(self.parities() & self.attached) {
            let mut out = vec![0; self.rows()];
            for strip in strips_of(self.written() | given) {
                let written = data[strip].as_deref();
                let content = written.or_else(|| self.content(strip)).expect("known");
                self.add(parity, strip, content, &mut out);
            }
            resolved.writes.push((parity, out));
        }
    }

    fn given(&self, strips: u64) -> u64 {
        strips_of(strips & self.in_sync)
            .filter(|&strip| self.content(strip).is_some())
            .fold(0u64, |mask, strip| mask | 1 << strip)
    }

    /// Every data strip, those that are not written and cannot be read solved for from PP.
    /// `None`: too few PP are known. (Then no in-place write had begun, or a log is unreadable and
    /// its regions are resynced.)
    fn all_data(&self, data: &[Option<Vec<u8>>]) -> Option<Vec<Vec<u8>>> {
        let untouched = mask(self.data()) & !self.written();
        let given = self.given(untouched);
        let lost = untouched & !given;
        let mut all: Vec<Vec<u8>> = (0..self.data())
            .map(|strip| {
                let written = data[strip].clone();
                let read = || self.content(strip).filter(|_| given >> strip & 1 == 1);
                written
                    .or_else(|| read().map(<[u8]>::to_vec))
                    .unwrap_or_else(|| vec![0; self.rows()])
            })
            .collect();
        if lost == 0 {
            return Some(all);
        }
        let parities = subsets(self.whole(), lost.count_ones()).next()?;
        let known: Vec<(usize, Vec<u8>)> = strips_of(parities)
            .map(|parity| {
                let mut out = self.partial_parity(parity).expect("known").to_vec();
                for strip in strips_of(given) {
                    self.add(parity, strip, &all[strip], &mut out);
                }
                (parity, out)
            })
            .collect();
        for (strip, content) in self.solve(lost, parities, &known, self.rows()) {
            all[strip] = content;
        }
        Some(all)
    }
}

fn xor(out: &mut [u8], other: &[u8]) {
    for (out, other) in out.iter_mut().zip(other) {
        *out ^= other;
    }
}

fn put(data: &mut [Option<Vec<u8>>], strip: usize, at: usize, block: &[u8]) {
    let content = data[strip].as_mut().expect("made before");
    content[at..at + block.len()].copy_from_slice(block);
}

/// Checksums that an entry knows of one block of a strip.
fn checksums_of(entry: &Entry, strip: usize, row: u32) -> impl Iterator<Item = u32> + '_ {
    let head = &entry.head;
    let covers = head.start <= row && row < head.end;
    let unit = (row.saturating_sub(head.start) / head.unit_bytes) as usize;
    let place = |strips: u64, before: usize| {
        let there = covers && strips >> strip & 1 == 1;
        let number = (strips & mask(strip)).count_ones() as usize;
        there.then(|| entry.checksums[(before + number) * head.units() + unit])
    };
    let new = place(head.written, 0);
    let old = place(head.old, head.written.count_ones() as usize);
    new.into_iter().chain(old)
}

/// Subsets of `of` with `count` members.
fn subsets(of: u64, count: u32) -> impl Iterator<Item = u64> {
    let bits: Vec<u64> = strips_of(of).map(|strip| 1 << strip).collect();
    let all = 1u64 << bits.len().min(20);
    (0..all)
        .filter(move |choice| choice.count_ones() == count)
        .map(move |choice| strips_of(choice).map(|bit| bits[bit]).sum())
}
