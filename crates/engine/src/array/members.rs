//! Members: which strips are true, what happens when a drive fails.

use super::*;
use crate::format::superblock::MemberState;
use uuid::Uuid;

/// A member whose reads had to be answered from redundancy this often is dropped.
pub const READ_ERRORS_MAX: u64 = 20;

/// One place of the array.
#[derive(Debug, Clone)]
pub struct Member {
    /// Identity of the drive's role; written in its superblock.
    pub uuid: Uuid,
    /// State.
    pub state: MemberState,
    /// I/O that has not ended.
    pub in_flight: u32,
    /// Reads that failed since the start.
    pub read_errors: u64,
    /// Writes that failed since the start.
    pub write_errors: u64,
    /// Read and write errors recorded before this start.
    pub(super) errors_before: (u64, u64),
    /// Rebuilding: bands below are true.
    pub(super) position: u64,
    /// A drive is attached and may be used.
    pub(super) attached: bool,
    /// Its drive has a cache that a power cut may lose.
    pub volatile: bool,
}

impl Member {
    /// Takes writes.
    pub fn is_live(&self) -> bool {
        self.attached && matches!(self.state, MemberState::Active | MemberState::Rebuilding)
    }
}

pub(super) fn from_superblock(
    superblock: &Superblock,
    geometry: &Geometry,
    present: &[bool],
    volatile: &[bool],
) -> Vec<Member> {
    assert_eq!(present.len(), superblock.members.len());
    superblock
        .members
        .iter()
        .zip(present)
        .enumerate()
        .map(|(place, (record, &present))| Member {
            volatile: volatile.get(place).copied().unwrap_or(false),
            uuid: record.uuid,
            state: match record.state {
                MemberState::Active | MemberState::Rebuilding if !present => MemberState::Missing,
                state => state,
            },
            in_flight: 0,
            read_errors: 0,
            write_errors: 0,
            errors_before: (record.read_errors, record.write_errors),
            position: meta::band_at(geometry, record.rebuild_position_bytes),
            attached: present,
        })
        .collect()
}

impl Array {
    /// The member's content of this band is true.
    pub(super) fn in_sync(&self, member: MemberIndex, band: BandKey) -> bool {
        let it = &self.members[member.at()];
        match it.state {
            MemberState::Active => it.attached,
            MemberState::Rebuilding => {
                it.attached && (band.0 < it.position || self.background.has_rebuilt(member, band))
            }
            _ => false,
        }
    }

    /// Strips of a band that lie on members being refilled and are not true yet.
    pub(super) fn rebuild_targets(&self, band: BandKey) -> u64 {
        if self.all_active {
            return 0;
        }
        let stripe = self.stripe_of(band);
        (0..self.geometry.strips())
            .filter(|&strip| {
                let member = self.geometry.member(stripe, strip);
                let it = &self.members[member.at()];
                it.is_live() && it.state == MemberState::Rebuilding && !self.in_sync(member, band)
            })
            .fold(0, |mask, strip| mask | 1 << strip)
    }

    /// Whether every block stays readable when this member goes.
    pub fn survives_without(&self, member: MemberIndex) -> bool {
        let it = &self.members[member.at()];
        if it.state != MemberState::Active {
            return true;
        }
        let group = self.geometry.group_of(member);
        let gone = self
            .group_members(group)
            .filter(|&other| other != member)
            .filter(|other| self.members[other.at()].state != MemberState::Active)
            .count();
        gone < self.geometry.parity()
    }

    pub(super) fn group_members(&self, group: u16) -> impl Iterator<Item = MemberIndex> + use<> {
        let strips = self.geometry.strips() as u16;
        (group * strips..(group + 1) * strips).map(MemberIndex)
    }

    /// Members that each group can still lose, the least of all groups; `None`: a group has lost
    /// more than its parities replace.
    pub fn redundancy_left(&self) -> Option<usize> {
        (0..self.geometry.shape().groups)
            .map(|group| {
                let gone = self
                    .group_members(group)
                    .filter(|member| self.members[member.at()].state != MemberState::Active)
                    .count();
                self.geometry.parity().checked_sub(gone)
            })
            .min()
            .flatten()
    }

    /// A write (or flush) on this member failed. True: the member is out and the array goes on.
    pub(super) fn write_failed(&mut self, member: MemberIndex, out: &mut Vec<Action>) -> bool {
        let it = &mut self.members[member.at()];
        it.write_errors += 1;
        if !it.is_live() || self.read_only {
            return true;
        }
        if !self.survives_without(member) {
            return false;
        }
        self.drop_member(member, MemberState::Failed, "a write failed", out);
        true
    }

    /// A read on this member failed. True: the member stays, and what could not be read should be
    /// written back.
    pub(super) fn read_failed(
        &mut self,
        member: MemberIndex,
        error: IoError,
        out: &mut Vec<Action>,
    ) -> bool {
        let it = &mut self.members[member.at()];
        it.read_errors += 1;
        if !it.is_live() {
            return false;
        }
        let reason = match error {
            IoError::Gone => "the drive is gone",
            IoError::Range if it.read_errors >= READ_ERRORS_MAX => "too many read errors",
            IoError::Range => return !self.read_only,
        };
        if self.survives_without(member) && !self.read_only {
            self.drop_member(member, MemberState::Failed, reason, out);
        }
        false
    }

    /// Takes a member out of service. Writes that miss it are acknowledged only when the others
    /// have recorded its absence.
    pub(super) fn drop_member(
        &mut self,
        member: MemberIndex,
        state: MemberState,
        reason: &'static str,
        out: &mut Vec<Action>,
    ) {
        let it = &mut self.members[member.at()];
        let held = match it.state {
            MemberState::Rebuilding => meta::bytes_below(&self.geometry, it.position),
            _ => u64::MAX,
        };
        it.state = state;
        if std::mem::take(&mut it.attached) {
            out.push(Action::Detach(member));
        }
        out.push(Action::event(Event::MemberFailed(member, reason)));
        self.meta_member_left();
        self.background.member_left(member);
        self.members_changed();
        self.rebuild_restart(out);
        if self.torn_list_doubtful(member, held) {
            // Listed before the absence is recorded: after that, a start would not list it.
            self.torn_save(torn::SaveFor::Start, out);
        } else {
            self.meta_save(out);
        }
        self.log_member_left(member, out);
    }

    pub(super) fn members_changed(&mut self) {
        self.all_active = self
            .members
            .iter()
            .all(|member| member.state == MemberState::Active && member.attached);
        let published = self.regions.published();
        for (place, member) in self.members.iter().enumerate() {
            let is_true = member.state == MemberState::Active && member.attached;
            published.set_member(place, is_true);
        }
        published.new_regime();
        self.background.retry();
    }

    /// The new member has the whole region map: from now on it takes writes.
    pub(super) fn member_has_map(&mut self, member: MemberIndex, out: &mut Vec<Action>) {
        let it = &mut self.members[member.at()];
        it.state = MemberState::Rebuilding;
        it.attached = true;
        it.position = 0;
        self.members_changed();
        self.rebuild_restart(out);
        self.command_drive_is_member(member);
        self.meta_save(out);
        if !self.torn().is_empty() || !self.torn.is_quiet() {
            // A save may have passed it by.
            self.torn_save(torn::SaveFor::Nobody, out);
        }
        self.command_joined(member, Ok(()), out);
    }

    pub(super) fn member_map_failed(&mut self, member: MemberIndex, out: &mut Vec<Action>) {
        out.push(Action::Detach(member));
        let error = CommandError::drive(
            "the new drive refused the array's metadata: nothing was changed in the array",
        );
        self.command_joined(member, Err(error), out);
    }
}
