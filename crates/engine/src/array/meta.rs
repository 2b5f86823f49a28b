//! The superblocks: saved on every live member, one copy everywhere before the other anywhere.
//!
//! A save takes the state of the moment it starts, raises the generation, and counts as durable
//! when the first copy is on every live member. Changes that come meanwhile make one more save.
//! The first copy is A, but on a member that was found with a bad copy B it is B: a write that
//! is cut off must never meet the only good one.

use super::*;
use crate::format::superblock::{MemberState, RunState, clip_serial};
use crate::layout::Shape;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    First,
    Second,
}

pub(super) struct Meta {
    superblock: Superblock,
    /// What the running save writes, in both copies.
    snapshot: Option<Box<Superblock>>,
    stage: Stage,
    outstanding: u32,
    /// Number of the latest change, of the latest that a running save contains, and of the latest
    /// that is durable.
    wanted: u64,
    saving: u64,
    saved: u64,
    /// Change that must be durable before a write is acknowledged.
    barrier: u64,
    held: Vec<RequestId>,
    commands: Vec<(CommandId, u64)>,
    /// What a save would rely on is made good: at a start, maps and stores that were behind.
    ready: bool,
    /// The start has been saved once: what it counts as gone is recorded so.
    recorded: bool,
    /// What was replayed is durable, and so is the start, on all members.
    confirmed: bool,
    /// By place: copy B is written first.
    b_first: Vec<bool>,
}

impl Meta {
    pub(super) fn new(superblock: Superblock, b_first: Vec<bool>) -> Meta {
        Meta {
            superblock,
            snapshot: None,
            stage: Stage::Idle,
            outstanding: 0,
            wanted: 0,
            saving: 0,
            saved: 0,
            barrier: 0,
            held: Vec::new(),
            commands: Vec::new(),
            ready: false,
            recorded: false,
            confirmed: false,
            b_first,
        }
    }

    pub(super) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.stage == Stage::Idle && self.saved == self.wanted
    }

    pub(super) fn set_ready(&mut self) {
        self.ready = true;
    }

    /// Saves wait for the rest of the start.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    pub(super) fn set_replay(&mut self, replay: Option<Replay>) {
        self.superblock.replay = replay;
    }

    /// Saves are under way or done in this start, so that a change can be recorded.
    pub(super) fn is_recorded(&self) -> bool {
        self.recorded
    }

    pub(super) fn set_clean(&mut self) {
        self.superblock.state = RunState::Clean;
    }

    /// Number of the latest change that is durable.
    pub(super) fn saved(&self) -> u64 {
        self.saved
    }

    /// Number of the latest change.
    pub(super) fn wanted(&self) -> u64 {
        self.wanted
    }

    pub(super) fn set_policy(&mut self, policy: crate::format::superblock::Consistency) {
        self.superblock.consistency = policy;
    }

    pub(super) fn set_priority(&mut self, percent: u8) {
        self.superblock.rebuild_priority = percent;
    }
}

/// Geometry that a superblock describes.
pub(super) fn geometry(superblock: &Superblock) -> Geometry {
    Geometry::new(
        Shape {
            level: superblock.level,
            groups: superblock.groups,
            data: superblock.data,
            parity: superblock.parity,
            strip_size_bytes: superblock.strip_size_bytes,
            block_size_bytes: superblock.block_size_bytes,
        },
        superblock.member_data_bytes,
        superblock.region_size_bytes,
    )
}

/// First band at or after a byte of the data area (rounded down to a row).
pub(super) fn band_at(geometry: &Geometry, bytes: u64) -> u64 {
    let row = bytes / geometry.strip_bytes();
    row * u64::from(geometry.shape().groups) * geometry.bands()
}

/// Byte of the data area below which all bands below `band` lie: inverse of [`band_at`].
pub(super) fn bytes_below(geometry: &Geometry, band: u64) -> u64 {
    band / geometry.bands() / u64::from(geometry.shape().groups) * geometry.strip_bytes()
}

impl Array {
    /// Has the present state written to all live members.
    pub(super) fn meta_save(&mut self, out: &mut Vec<Action>) {
        if self.read_only {
            return;
        }
        self.meta.wanted += 1;
        self.meta_start(out);
    }

    fn meta_start(&mut self, out: &mut Vec<Action>) {
        let nothing = self.meta.saved == self.meta.wanted;
        // What a member that left held there must be listed before its absence is recorded.
        let listing = self.torn.is_listing() && !self.broken;
        if self.meta.stage != Stage::Idle || nothing || !self.meta.ready || listing {
            return;
        }
        self.meta.saving = self.meta.wanted;
        self.meta.superblock.generation += 1;
        for index in 0..self.members.len() {
            self.meta_record(index);
        }
        self.meta.snapshot = Some(Box::new(self.meta.superblock.clone()));
        self.meta.stage = Stage::First;
        self.meta_write_copies(out);
    }

    /// Brings one member's record up to date.
    fn meta_record(&mut self, index: usize) {
        let member = &self.members[index];
        let superblock = &mut self.meta.superblock;
        if member.state.is_in_array() {
            let record = &mut superblock.members[index];
            record.state = member.state;
            record.left_generation = 0;
            record.left_lineage_tag = 0;
            record.rebuild_position_bytes = if member.state == MemberState::Rebuilding {
                bytes_below(&self.geometry, member.position)
            } else {
                0
            };
        } else {
            superblock.mark_left(index as u16, member.state);
            superblock.members[index].rebuild_position_bytes = 0;
        }
        let record = &mut superblock.members[index];
        record.read_errors = member.errors_before.0 + member.read_errors;
        record.write_errors = member.errors_before.1 + member.write_errors;
    }

    fn meta_write_copies(&mut self, out: &mut Vec<Action>) {
        let snapshot = self.meta.snapshot.as_ref().expect("a save runs");
        // A member that joined since the save began is in the next one.
        let live: Vec<MemberIndex> = self
            .live_members()
            .filter(|m| snapshot.members[m.at()].uuid == self.members[m.at()].uuid)
            .collect();
        if live.is_empty() {
            self.broken = true;
        }
        self.meta.outstanding = live.len() as u32;
        for member in live {
            let snapshot = self.meta.snapshot.as_ref().expect("a save runs");
            let size_bytes = snapshot.members[member.at()].size_bytes;
            let copy = snapshot
                .for_member(member.0, size_bytes)
                .expect("a member holds the areas");
            let b_first = self.meta.b_first.get(member.at()) == Some(&true);
            let offset = if (self.meta.stage == Stage::First) == b_first {
                copy.areas.superblock_b.offset
            } else {
                copy.areas.superblock_a.offset
            };
            let bytes = copy.encode(offset);
            let io = Io {
                token: Token::new(Class::Meta, 0, u32::from(member.0)),
                member,
                offset,
                length: bytes.len() as u32,
                kind: IoKind::WriteMeta(bytes.into()),
            };
            self.member_io(io, out);
        }
        if self.meta.outstanding == 0 {
            self.meta_stage_done(out);
        }
    }

    pub(super) fn meta_io_done(
        &mut self,
        token: Token,
        result: Result<(), IoError>,
        out: &mut Vec<Action>,
    ) {
        let member = MemberIndex(token.part() as u16);
        self.member_io_ended(member);
        if token.index() == STOP_FLUSH {
            return self.stop_flushed(member, result, out);
        }
        if token.index() == START_FLUSH {
            return self.start_flushed(member, result, out);
        }
        if result.is_err() && !self.write_failed(member, out) {
            self.broken = true;
        }
        self.meta.outstanding -= 1;
        if self.meta.outstanding == 0 {
            self.meta_stage_done(out);
        }
    }

    fn meta_stage_done(&mut self, out: &mut Vec<Action>) {
        match self.meta.stage {
            Stage::First => {
                self.meta.saved = self.meta.saving;
                self.meta.stage = Stage::Second;
                self.meta_saved(out);
                self.meta_write_copies(out);
            }
            Stage::Second => {
                self.meta.stage = Stage::Idle;
                self.meta.snapshot = None;
                self.meta_start(out);
                self.stop_step(out);
            }
            Stage::Idle => unreachable!("no save runs"),
        }
    }

    /// A save is durable: what waited for it goes on.
    fn meta_saved(&mut self, out: &mut Vec<Action>) {
        self.meta.recorded = true;
        let snapshot = self.meta.snapshot.as_ref();
        if snapshot.is_some_and(|snapshot| snapshot.replay.is_some()) {
            // Who is missing is recorded: from here on the replay may count on it.
            if self.meta.saved >= self.meta.barrier {
                self.log_absence_recorded(out);
            }
            return self.replay_recorded(out);
        }
        if !std::mem::replace(&mut self.meta.confirmed, true) && !self.broken {
            // Nothing is served before a generation that no start cut off here can have; also when
            // a stop came meanwhile, for what was asked for before it.
            self.meta.superblock.raise_for_serving();
            self.meta.wanted += 1;
            return;
        }
        if self.mode == Mode::Starting {
            self.mode = Mode::Running;
        }
        if planted::on(Planted::TornListAfterParity) && self.torn.is_dirty() {
            self.torn_save(torn::SaveFor::Nobody, out);
        }
        self.begin_early_commands(out);
        // Also when a stop came before the start had ended: it waits for them.
        self.begin_early(out);
        let saved = self.meta.saved;
        if saved >= self.meta.barrier {
            self.log_absence_recorded(out);
        }
        if saved >= self.meta.barrier {
            for request in std::mem::take(&mut self.meta.held) {
                if self.broken {
                    self.request_failed(request);
                }
                self.acknowledge(request, out);
            }
        }
        self.policy_saved(saved, out);
        let (done, waiting) = std::mem::take(&mut self.meta.commands)
            .into_iter()
            .partition(|&(_, change)| change <= saved);
        self.meta.commands = waiting;
        for (command, _) in Vec::from_iter::<Vec<(CommandId, u64)>>(done) {
            out.push(Action::CommandDone(command, self.saved_result()));
        }
    }

    pub(super) fn saved_result(&self) -> Result<(), CommandError> {
        if self.broken {
            return Err(CommandError::drive(
                "metadata could not be written to every member that the array cannot do without: the array takes no more writes; stop it, look after its drives, and start it again",
            ));
        }
        Ok(())
    }

    /// Ends a command when everything changed so far is durable.
    pub(super) fn meta_when_saved(&mut self, command: CommandId, out: &mut Vec<Action>) {
        if self.meta.saved == self.meta.wanted || self.read_only {
            out.push(Action::CommandDone(command, Ok(())));
        } else {
            self.meta.commands.push((command, self.meta.wanted));
        }
    }

    /// Nothing will be saved any more.
    pub(super) fn meta_refuse_commands(&mut self, out: &mut Vec<Action>) {
        for (command, _) in std::mem::take(&mut self.meta.commands) {
            out.push(Action::CommandDone(command, self.saved_result()));
        }
    }

    /// True: the acknowledgement waits until a member's absence is recorded.
    pub(super) fn meta_holds_acknowledgement(&mut self, request: RequestId) -> bool {
        let hold = self.meta_absence_unrecorded();
        if hold {
            self.meta.held.push(request);
        }
        hold
    }

    /// A member that left is not recorded as gone yet.
    pub(super) fn meta_absence_unrecorded(&self) -> bool {
        self.meta.saved < self.meta.barrier && !planted::on(Planted::AbsenceRecordedLate)
    }

    /// A member has left: no write that missed it is acknowledged before that is recorded.
    pub(super) fn meta_member_left(&mut self) {
        self.meta.barrier = self.meta.wanted + 1;
    }

    pub(super) fn meta_set_drive(
        &mut self,
        member: MemberIndex,
        uuid: uuid::Uuid,
        serial: &str,
        size_bytes: u64,
    ) {
        if let Some(b_first) = self.meta.b_first.get_mut(member.at()) {
            *b_first = false;
        }
        let record = &mut self.meta.superblock.members[member.at()];
        record.uuid = uuid;
        record.serial = clip_serial(serial);
        record.size_bytes = size_bytes;
        record.read_errors = 0;
        record.write_errors = 0;
    }
}

/// Index of the tokens of the flush before a clean stop.
pub(super) const STOP_FLUSH: u32 = 1;
/// Index of the tokens of the flush with which a start begins.
pub(super) const START_FLUSH: u32 = 2;
