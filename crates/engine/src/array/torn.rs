//! Blocks that read as errors, and the array store that keeps the list on the drives.
//!
//! A block is listed durably before anything is written around it as if it held zeroes, and taken
//! off durably after new content is durable in its place and before that write is acknowledged.

use super::*;
use crate::format::store::StorePlace;
use crate::format::superblock::MemberState;
use crate::format::torn::{TornExtent, TornKind};

/// Index of the tokens of the flush before a save.
const FLUSH: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    /// What heals becomes durable.
    Flush,
    /// Members that have an older table get the present one, beside it, before the next one takes
    /// the half in which theirs lies.
    CatchUp,
    Write,
}

/// Who waits for a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SaveFor {
    /// The superblocks are saved after it: a start, or a member that left.
    Start,
    /// The replay of the log.
    Replay,
    /// A command.
    Command(CommandId),
    /// A write over listed blocks, which are taken off the list in this save.
    Op(OpId),
    /// Nobody.
    Nobody,
}

/// The array store in memory.
pub(super) struct Torn {
    store: Store,
    dirty: bool,
    behind: Vec<Behind>,
    stage: Stage,
    outstanding: u32,
    failed: bool,
    running: Vec<SaveFor>,
    waiting: Vec<SaveFor>,
    /// Writes over listed blocks that wait until members that left are recorded as gone: one of them
    /// may hold such a block as it was, and must not come back when the block is off the list.
    deferred: Vec<OpId>,
}

impl std::fmt::Debug for Torn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Torn")
            .field("dirty", &self.dirty)
            .field("stage", &self.stage)
            .field("outstanding", &self.outstanding)
            .field("running", &self.running)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl Torn {
    pub(super) fn new(store: Store, changed: bool, behind: Vec<Behind>) -> Torn {
        Torn {
            store,
            dirty: changed || !behind.is_empty(),
            behind,
            stage: Stage::Idle,
            outstanding: 0,
            failed: false,
            running: Vec::new(),
            waiting: Vec::new(),
            deferred: Vec::new(),
        }
    }

    pub(super) fn list(&self) -> &TornList {
        &self.store.torn
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.stage == Stage::Idle && self.waiting.is_empty()
    }

    /// A save goes on, or waits, after which the superblocks are saved.
    pub(super) fn is_listing(&self) -> bool {
        let mut all = self.running.iter().chain(&self.waiting);
        all.any(|who| *who == SaveFor::Start)
    }

    /// Lists what is not listed yet as suspect; true if there was something.
    fn insert_suspect(&mut self, member: u16, from: u64, to: u64) -> bool {
        let changed = self.store.torn.insert_suspect(member, from, to);
        self.dirty |= changed;
        changed
    }

    /// Lists an extent; true if it was not listed so before.
    pub(super) fn insert(&mut self, extent: TornExtent) -> bool {
        let changed = self.store.torn.insert(extent);
        self.dirty |= changed;
        changed
    }
}

impl Array {
    /// Where a listed block lies among these rows of a strip; the mirrors' list is that of their
    /// first copy.
    pub(super) fn torn_in(
        &self,
        stripe: StripeIndex,
        strip: usize,
        start: u32,
        end: u32,
    ) -> Option<TornExtent> {
        if self.torn.store.torn.is_empty() {
            return None;
        }
        let member = self.geometry.member(stripe, strip);
        let from = self.geometry.member_offset(stripe, start);
        let to = from + u64::from(end - start);
        self.torn.store.torn.overlaps(member.0, from..to)
    }

    /// True: the write covers listed blocks; it ends when they are off the list.
    pub(super) fn op_heals(&mut self, id: OpId, out: &mut Vec<Action>) -> bool {
        if self.torn.store.torn.is_empty() {
            return false;
        }
        let op = &self.ops[id.0];
        let stripe = self.stripe_of(BandKey(op.band));
        let heals = op.fragments.iter().any(|f| {
            self.torn_in(stripe, f.strip.into(), f.start, f.end)
                .is_some()
        });
        if heals {
            self.ops[id.0].phase = ops::Phase::Healing;
            self.torn_save(SaveFor::Op(id), out);
        }
        heals
    }

    /// Blocks of a region that is unwritten now are as good as any.
    pub(super) fn torn_region_unwritten(&mut self, region: u32, out: &mut Vec<Action>) {
        if self.torn_forget_region(region) {
            self.torn_save(SaveFor::Nobody, out);
        }
    }

    fn torn_forget_region(&mut self, region: u32) -> bool {
        if self.torn.store.torn.is_empty() {
            return false;
        }
        let bytes = self.geometry.region_bytes();
        let range = u64::from(region) * bytes..(u64::from(region) + 1) * bytes;
        let mut changed = false;
        for member in 0..self.members.len() {
            changed |= self.torn.store.torn.remove(member as u16, range.clone());
        }
        self.torn.dirty |= changed;
        changed
    }

    /// A crash may have kept on the list what lies in regions given up.
    pub(super) fn torn_forget_unwritten(&mut self) {
        if self.torn.store.torn.is_empty() {
            return;
        }
        for region in 0..self.regions.len() {
            if self.regions.is_unwritten(region) {
                self.torn_forget_region(region);
            }
        }
    }

    /// The administrator takes suspect blocks as they are.
    pub(super) fn accept_suspect(&mut self, id: CommandId, out: &mut Vec<Action>) {
        if self.torn.store.torn.remove_kind(TornKind::Suspect) {
            self.torn.dirty = true;
            self.torn_save(SaveFor::Command(id), out);
        } else {
            out.push(Action::CommandDone(id, Ok(())));
        }
    }

    /// Has the list as it is then written to all live members.
    pub(super) fn torn_save(&mut self, who: SaveFor, out: &mut Vec<Action>) {
        self.torn.waiting.push(who);
        self.torn_start(out);
    }

    fn torn_start(&mut self, out: &mut Vec<Action>) {
        if self.torn.stage != Stage::Idle || self.torn.waiting.is_empty() {
            return;
        }
        self.torn.running = std::mem::take(&mut self.torn.waiting);
        self.torn.failed = false;
        let heals = self
            .torn
            .running
            .iter()
            .any(|who| matches!(who, SaveFor::Op(_)));
        self.torn.stage = Stage::Flush;
        let which = |member: &Member| heals && member.volatile;
        self.torn.outstanding = self.flush(Class::Torn, FLUSH, which, out);
        if self.torn.outstanding == 0 {
            self.torn_catch_up(out);
        }
    }

    /// Members that left are recorded as gone, or never will be: who waited for it goes on.
    pub(super) fn torn_absence_recorded(&mut self, out: &mut Vec<Action>) {
        let deferred = std::mem::take(&mut self.torn.deferred);
        if self.broken {
            for id in deferred {
                self.op_end(id, Err(BlockError::Unavailable), out);
            }
            return;
        }
        if !deferred.is_empty() {
            let ops = deferred.into_iter().map(SaveFor::Op);
            self.torn.waiting.extend(ops);
            self.torn_start(out);
        }
    }

    fn torn_catch_up(&mut self, out: &mut Vec<Action>) {
        if self.meta_absence_unrecorded() && self.meta.is_recorded() && !self.broken {
            // The others go on: the record of the absence may wait for one of them.
            let heals = |who: &mut SaveFor| matches!(who, SaveFor::Op(_));
            for who in self.torn.running.extract_if(.., heals) {
                if let SaveFor::Op(id) = who {
                    self.torn.deferred.push(id);
                }
            }
            if self.torn.running.is_empty() {
                self.torn.stage = Stage::Idle;
                return self.torn_next(out);
            }
        }
        self.torn.stage = Stage::CatchUp;
        self.torn.outstanding = 0;
        for behind in std::mem::take(&mut self.torn.behind) {
            let generation = behind.catch_up(self.torn.store.generation);
            self.torn_write_to(MemberIndex(behind.place), generation, out);
        }
        if self.torn.outstanding == 0 {
            self.torn_write(out);
        }
    }

    /// Writes the table to a member (if it is still one).
    fn torn_write_to(&mut self, member: MemberIndex, generation: u64, out: &mut Vec<Action>) {
        if !self.members[member.at()].is_live() {
            return;
        }
        let store = Store {
            generation,
            ..self.torn.store.clone()
        };
        match store.encode(&self.store_place(member)) {
            Ok((offset, bytes)) => {
                self.torn.outstanding += 1;
                let io = Io {
                    token: Token::new(Class::Torn, 0, u32::from(member.0)),
                    member,
                    offset,
                    length: bytes.len() as u32,
                    kind: IoKind::WriteMeta(bytes.into()),
                };
                self.member_io(io, out);
            }
            Err(_) => self.torn.failed = true,
        }
    }

    pub(super) fn store_place(&self, member: MemberIndex) -> StorePlace {
        let superblock = self.meta.superblock();
        StorePlace {
            array_uuid: superblock.array_uuid,
            member_uuid: self.members[member.at()].uuid,
            area: superblock.areas.store,
        }
    }

    /// The array store for a drive that becomes a member: both halves.
    pub(super) fn store_pages(&self, member: MemberIndex) -> Vec<(u64, Vec<u8>)> {
        let mut store = self.torn.store.clone();
        store.generation = store.generation.max(1);
        store
            .initial(&self.store_place(member))
            .expect("what is on the other members fits")
    }

    fn torn_write(&mut self, out: &mut Vec<Action>) {
        for index in 0..self.torn.running.len() {
            if let SaveFor::Op(id) = self.torn.running[index] {
                self.torn_take_off(id);
            }
        }
        self.torn.stage = Stage::Write;
        self.torn.dirty = false;
        self.torn.store.generation += 1;
        let live: Vec<MemberIndex> = self.live_members().collect();
        self.torn.outstanding = 0;
        self.torn.failed |= live.is_empty();
        let generation = self.torn.store.generation;
        for member in live {
            self.torn_write_to(member, generation, out);
        }
        if self.torn.outstanding == 0 {
            self.torn_saved(out);
        }
    }

    fn torn_take_off(&mut self, id: OpId) {
        let op = &self.ops[id.0];
        let stripe = self.stripe_of(BandKey(op.band));
        for index in 0..self.ops[id.0].fragments.len() {
            let fragment = self.ops[id.0].fragments[index];
            let member = self.geometry.member(stripe, fragment.strip.into());
            let from = self.geometry.member_offset(stripe, fragment.start);
            let to = from + u64::from(fragment.end - fragment.start);
            self.torn.store.torn.remove(member.0, from..to);
        }
    }

    pub(super) fn torn_io_done(
        &mut self,
        token: Token,
        result: Result<(), IoError>,
        out: &mut Vec<Action>,
    ) {
        let member = MemberIndex(token.part() as u16);
        self.member_io_ended(member);
        if result.is_err() && !self.write_failed(member, out) {
            self.torn.failed = true;
        }
        self.torn.outstanding -= 1;
        if self.torn.outstanding > 0 {
            return;
        }
        match self.torn.stage {
            Stage::Flush if !self.torn.failed => self.torn_catch_up(out),
            Stage::CatchUp if !self.torn.failed => self.torn_write(out),
            _ => self.torn_saved(out),
        }
    }

    fn torn_saved(&mut self, out: &mut Vec<Action>) {
        let failed = self.torn.failed;
        self.broken |= failed;
        self.torn.stage = Stage::Idle;
        let ended = std::mem::take(&mut self.torn.running);
        if ended.contains(&SaveFor::Start) {
            // Once for all of them: each would ask for one more save where another waits, for ever.
            if self.meta.is_ready() {
                self.meta_save(out);
            } else {
                self.started(out);
            }
        }
        for who in ended {
            match who {
                SaveFor::Start => {}
                SaveFor::Replay => self.replay_torn_saved(out),
                SaveFor::Command(id) => out.push(Action::CommandDone(id, self.saved_result())),
                SaveFor::Op(id) => {
                    let result = if failed {
                        Err(BlockError::Unavailable)
                    } else {
                        Ok(())
                    };
                    self.op_end(id, result, out);
                    self.log_step(out);
                }
                SaveFor::Nobody => {}
            }
        }
        self.torn_next(out);
        self.stop_step(out);
    }

    /// No save runs: the next one begins, or who waits for none goes on.
    fn torn_next(&mut self, out: &mut Vec<Action>) {
        self.torn_start(out);
        if self.torn.is_quiet() {
            self.replay_torn_saved(out);
            self.region_job_start(out);
        }
    }

    /// Parity of a region is not to be believed any more while members are missing: what they held
    /// there is suspect.
    pub(super) fn torn_list_missing(&mut self, region: u32, out: &mut Vec<Action>) {
        if self.geometry.data() == 1 {
            return;
        }
        let before = self.torn().len();
        for member in 0..self.members.len() {
            let it = &self.members[member];
            if it.state != MemberState::Active || !it.attached {
                self.torn_list_region(member as u16, region);
            }
        }
        if self.torn().len() > before {
            self.torn_save(SaveFor::Nobody, out);
        }
    }

    /// A member has left: where a resync had not made parity true, what it held is suspect. True:
    /// something was listed.
    ///
    /// `held`: bytes of its data area that it held; of the others nothing changes.
    pub(super) fn torn_list_doubtful(&mut self, member: MemberIndex, held: u64) -> bool {
        if self.geometry.data() == 1 || !self.regions.any_needs_sync() {
            return false;
        }
        let bytes = self.geometry.region_bytes();
        for region in self.regions.all_needing_sync() {
            let offset = u64::from(region) * bytes;
            let length = bytes.min(held.saturating_sub(offset));
            if length > 0 {
                self.torn.insert_suspect(member.0, offset, offset + length);
            }
        }
        // What the first strips say of it is from now on what it held: so that others are written.
        self.accept_doubtful();
        self.torn.dirty
    }

    /// Lists all of a region on a member; returns how many blocks that are.
    pub(super) fn torn_list_region(&mut self, member: u16, region: u32) -> u64 {
        let bytes = self.geometry.region_bytes();
        let from = u64::from(region) * bytes;
        self.torn.insert_suspect(member, from, from + bytes);
        bytes / u64::from(self.geometry.shape().block_size_bytes)
    }
}
