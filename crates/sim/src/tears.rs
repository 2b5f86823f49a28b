//! What a crash may have torn, and what is not promised any more: the permissions that
//! `docs/internals/write-hole.md` gives, from what the drives say after it.

use std::collections::BTreeMap;

use strake_engine::format::region_map::RegionState;
use strake_engine::format::superblock::{Consistency, MemberState};

use crate::model::Tear;
use crate::rig::Rig;

/// What a crash may have torn, from what the drives say after it.
pub(crate) struct Tears {
    by_block: BTreeMap<u64, Tear>,
    /// Of every other block: blocks of several sectors may be torn inside.
    inside: Tear,
    /// Nothing keeps parity true over a crash.
    pub unprotected: bool,
}

impl Tears {
    /// `running`: the policy before the crash; `live`: the members that were written to then. A
    /// block that a write in flight left out, because its member was being dropped, counts as
    /// missing, also when that member is back.
    pub(crate) fn of(rig: &Rig, running: Option<Consistency>, live: &[bool]) -> Tears {
        let mut tears = Tears {
            by_block: BTreeMap::new(),
            inside: Tear::No,
            unprotected: false,
        };
        let Ok(imported) = rig.import() else {
            return tears;
        };
        let recorded = imported.assembly.truth.consistency;
        let policies = [recorded, running.unwrap_or(recorded)];
        tears.unprotected = policies.contains(&Consistency::None) && rig.geometry().parity() > 0;
        if u64::from(rig.setup().sector_bytes) < rig.block_bytes() {
            // Where the log knows what was there before, it would see; else nobody can.
            tears.inside = Tear::Mixed;
        }
        if rig.geometry().data() == 1 {
            return tears;
        }
        let world = rig.world.borrow();
        let areas = imported.assembly.truth.areas;
        let log = areas.log.offset..areas.log.end();
        let bad_log = |drive: usize| {
            let faults = &world.drives[drive].faults;
            let mut bad = faults.bad_log.iter();
            faults.rotten_log || bad.any(|range| range.start < log.end && log.start < range.end)
        };
        // Where more members of a group than it has parities are missing or have logs that cannot be
        // read, whole regions are in doubt; without a log they always are.
        let strips = rig.geometry().strips();
        let vouches = |place: usize| {
            let sound = |drive: usize| !world.drives[drive].faults.any() && !bad_log(drive);
            imported.places[place].is_some_and(sound)
                && imported.assembly.truth.members[place].state == MemberState::Active
                && live.get(place) != Some(&false)
        };
        let resyncs = policies.contains(&Consistency::Resync);
        let doubts = |place: usize| {
            let group = place / strips * strips..(place / strips + 1) * strips;
            let mut drives = group.clone().filter_map(|place| imported.places[place]);
            let others = group.filter(|&place| !vouches(place)).count();
            resyncs || drives.any(bad_log) && others > rig.geometry().parity()
        };
        let start = imported.start.as_ref().expect("just imported");
        let size = rig.block_bytes();
        for block in 0..rig.model.len() {
            let piece = rig.geometry().piece(block * size, size);
            let member = rig
                .geometry()
                .member(piece.stripe, usize::from(piece.strip));
            let record = &imported.assembly.truth.members[member.at()];
            let at = areas.data.offset + rig.geometry().member_offset(piece.stripe, piece.start);
            let there = imported.places[member.at()].is_some_and(|drive| {
                let faults = &world.drives[drive].faults;
                // About to die in the start, or to be dropped by it for a write that it refuses: as good
                // as lost with the crash.
                let mut bad = faults.bad_reads.iter();
                faults.dies_after.is_none()
                    && faults.bad_writes.is_empty()
                    && !bad.any(|range| range.start < at + size && at < range.end)
            });
            let there = there && live.get(member.at()) != Some(&false);
            if there && record.state == MemberState::Active {
                continue;
            }
            let region = start.regions.entries[rig.geometry().region(piece.stripe) as usize];
            let any = match region.state() {
                RegionState::Dirty => doubts(member.at()),
                // A resync after a log that could not be read has not ended.
                RegionState::NeedsSync => true,
                _ => false,
            };
            let tear = match tears.inside {
                Tear::Mixed if any => Tear::AnyMixed,
                _ if any => Tear::Any,
                Tear::Mixed => Tear::Mixed,
                _ => Tear::Doubtful,
            };
            tears.by_block.insert(block, tear);
        }
        tears
    }

    pub(crate) fn of_block(&self, block: u64) -> Tear {
        match self.by_block.get(&block) {
            Some(&tear) => tear,
            None => self.inside,
        }
    }

    /// Without any protection the rows that were being written are lost with any member.
    pub(crate) fn given_up(&self, rig: &Rig) -> Vec<u64> {
        if !self.unprotected {
            return Vec::new();
        }
        let size = rig.block_bytes();
        let rows = rig.model.doubtful().flat_map(|block| {
            let piece = rig.geometry().piece(block * size, size);
            let block = move |strip| {
                let geometry = rig.geometry();
                geometry.volume_offset(piece.stripe, strip, piece.start) / size
            };
            (0..rig.geometry().data()).map(block)
        });
        rows.collect()
    }
}
