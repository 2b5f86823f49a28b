//! Commands of the administrator, each answered when its effect is durable.

use super::*;
use crate::format::superblock::{Consistency, MemberState};
use log::DrainFor;
use uuid::Uuid;

/// Names a command until its end is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommandId(pub u64);

/// What an administrator can ask of a running array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Drop a member.
    Fail {
        /// Member.
        member: MemberIndex,
        /// Also when data becomes unavailable.
        force: bool,
    },
    /// Take a member out of its place.
    Remove {
        /// Member.
        member: MemberIndex,
        /// Also when data becomes unavailable.
        force: bool,
    },
    /// A drive has been opened for an empty place: make it a member and rebuild it.
    Replace {
        /// Place.
        member: MemberIndex,
        /// New identity.
        uuid: Uuid,
        /// Serial number for the records.
        serial: String,
        /// Size of the drive in bytes.
        size_bytes: u64,
        /// It has a cache that a power cut may lose.
        volatile: bool,
    },
    /// Change how parity is kept consistent over crashes.
    Policy(Consistency),
    /// Take suspect blocks as they are.
    AcceptSuspect,
    /// Start a scrub.
    Scrub {
        /// Rewrite parity that does not hold.
        repair: bool,
    },
    /// End a scrub.
    StopScrub,
    /// Share of long work while clients are busy, 1 to 100.
    Priority(u8),
    /// Drain, clean, stop.
    Stop,
}

/// Kind of a refused command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandErrorKind {
    /// No such member.
    NotFound,
    /// Not in this state.
    Conflict,
    /// Would cost data.
    Refused,
    /// A drive failed.
    Drive,
    /// The array is stopping.
    Stopped,
}

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    /// For programs.
    pub kind: CommandErrorKind,
    /// For people.
    pub message: String,
}

impl CommandError {
    fn new(kind: CommandErrorKind, message: impl std::convert::Into<String>) -> CommandError {
        CommandError {
            kind,
            message: message.into(),
        }
    }

    /// The array is not served any more.
    pub fn stopped() -> CommandError {
        CommandError::new(CommandErrorKind::Stopped, "the array is stopped")
    }

    pub(super) fn drive(message: &str) -> CommandError {
        CommandError::new(CommandErrorKind::Drive, message)
    }
}

/// A clean stop under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopStage {
    Draining,
    Cleaning,
    Flushing(u32),
    Saving,
}

/// A drive that is becoming a member: it has its place when it has the region map.
struct Joining {
    member: MemberIndex,
    command: CommandId,
    uuid: Uuid,
    serial: String,
    size_bytes: u64,
}

/// Commands that wait for something other than a save.
#[derive(Default)]
pub(super) struct Pending {
    joining: Vec<Joining>,
    stop: Option<(CommandId, StopStage)>,
    /// Commands given while the log is replayed.
    early: Vec<(CommandId, Command)>,
    /// Drives given to places meanwhile: no entry may take them for the places' former drives.
    early_joins: Vec<MemberIndex>,
}

impl Array {
    /// The replay is over: what was asked for meanwhile is done, or refused.
    pub(super) fn begin_early_commands(&mut self, out: &mut Vec<Action>) {
        for member in std::mem::take(&mut self.pending.early_joins) {
            if self.broken {
                self.member_map_failed(member, out);
            } else {
                self.log_drain(DrainFor::Joining(member), out);
            }
        }
        for (id, command) in std::mem::take(&mut self.pending.early) {
            self.command(id, command, out);
        }
    }

    /// Takes a command; its end comes as [`Action::CommandDone`].
    pub fn command(&mut self, id: CommandId, command: Command, out: &mut Vec<Action>) {
        let waits = !matches!(command, Command::Stop | Command::Replace { .. });
        if self.replays() && waits {
            // What the log says is made good with the members that are there.
            return self.pending.early.push((id, command));
        }
        if let Err(error) = self.command_begin(id, command, out) {
            out.push(Action::CommandDone(id, Err(error)));
        }
        self.publish();
    }

    fn command_begin(
        &mut self,
        id: CommandId,
        command: Command,
        out: &mut Vec<Action>,
    ) -> Result<(), CommandError> {
        if matches!(self.mode, Mode::Stopping | Mode::Stopped) {
            return Err(CommandError::new(
                CommandErrorKind::Stopped,
                "the array is stopping",
            ));
        }
        if self.read_only && command != Command::Stop {
            return Err(CommandError::new(
                CommandErrorKind::Conflict,
                "the array was imported read-only: stop it and import it without --read-only first",
            ));
        }
        match command {
            Command::Fail { member, force } => self.fail(id, member, force, out),
            Command::Remove { member, force } => self.remove(id, member, force, out),
            Command::Replace {
                member,
                uuid,
                serial,
                size_bytes,
                volatile,
            } => self.replace(id, member, (uuid, serial, size_bytes, volatile), out),
            Command::Policy(policy) => self.policy_change(id, policy, out),
            Command::AcceptSuspect => {
                self.accept_suspect(id, out);
                Ok(())
            }
            Command::Scrub { repair } => {
                self.scrub_start(repair, out)?;
                out.push(Action::CommandDone(id, Ok(())));
                Ok(())
            }
            Command::StopScrub => {
                self.scrub_stop(out)?;
                out.push(Action::CommandDone(id, Ok(())));
                Ok(())
            }
            Command::Priority(percent) => {
                self.meta.set_priority(percent.clamp(1, 100));
                self.meta_save(out);
                self.meta_when_saved(id, out);
                Ok(())
            }
            Command::Stop => {
                self.mode = Mode::Stopping;
                self.gathers_end(out);
                self.pending.stop = Some((id, StopStage::Draining));
                self.background_halt();
                self.stop_step(out);
                Ok(())
            }
        }
    }

    fn known_member(&self, member: MemberIndex) -> Result<(), CommandError> {
        if member.at() < self.members.len() {
            return Ok(());
        }
        Err(CommandError::new(
            CommandErrorKind::NotFound,
            format!(
                "no member {}: the array has members 0 to {}",
                member.0,
                self.members.len() - 1
            ),
        ))
    }

    /// Whether [`Command::Fail`] without force would be accepted for a live member.
    ///
    /// # Errors
    /// The refusal that the command would get.
    pub fn may_fail(&self, member: MemberIndex) -> Result<(), CommandError> {
        self.known_member(member)?;
        self.may_lose(member, false)
    }

    fn may_lose(&self, member: MemberIndex, force: bool) -> Result<(), CommandError> {
        if force {
            return Ok(());
        }
        let counts = self.members[member.at()].state == MemberState::Active;
        if counts && self.geometry.parity() > 0 && self.regions.any_needs_sync() {
            return Err(CommandError::new(
                CommandErrorKind::Refused,
                format!(
                    "the resync after an unclean stop is not finished: without member {} some blocks could not be read; wait for it, or add --force",
                    member.0
                ),
            ));
        }
        if self.survives_without(member) {
            return Ok(());
        }
        let group = self.geometry.group_of(member);
        let gone: Vec<String> = self
            .group_members(group)
            .filter(|m| self.members[m.at()].state != MemberState::Active)
            .map(|m| m.0.to_string())
            .collect();
        let already = if gone.is_empty() {
            "it keeps no redundancy".to_owned()
        } else {
            format!(
                "member(s) {} are already missing or rebuilding",
                gone.join(", ")
            )
        };
        Err(CommandError::new(
            CommandErrorKind::Refused,
            format!(
                "the array would not survive the loss of member {}: {already}; wait for the rebuild, or add --force to lose data",
                member.0
            ),
        ))
    }

    fn fail(
        &mut self,
        id: CommandId,
        member: MemberIndex,
        force: bool,
        out: &mut Vec<Action>,
    ) -> Result<(), CommandError> {
        self.known_member(member)?;
        if !self.members[member.at()].is_live() {
            return Err(CommandError::new(
                CommandErrorKind::Conflict,
                format!(
                    "member {} is already {}",
                    member.0,
                    self.members[member.at()].state.name()
                ),
            ));
        }
        self.may_lose(member, force)?;
        self.drop_member(member, MemberState::Failed, "by command", out);
        self.meta_when_saved(id, out);
        Ok(())
    }

    fn remove(
        &mut self,
        id: CommandId,
        member: MemberIndex,
        force: bool,
        out: &mut Vec<Action>,
    ) -> Result<(), CommandError> {
        self.known_member(member)?;
        if self.members[member.at()].state == MemberState::Removed {
            return Err(CommandError::new(
                CommandErrorKind::Conflict,
                format!("member {} is already removed", member.0),
            ));
        }
        if self.members[member.at()].is_live() {
            self.may_lose(member, force)?;
            self.drop_member(member, MemberState::Removed, "removed by command", out);
        } else {
            self.members[member.at()].state = MemberState::Removed;
            self.meta_save(out);
        }
        self.meta_when_saved(id, out);
        Ok(())
    }

    fn replace(
        &mut self,
        id: CommandId,
        member: MemberIndex,
        (uuid, serial, size_bytes, volatile): (Uuid, String, u64, bool),
        out: &mut Vec<Action>,
    ) -> Result<(), CommandError> {
        self.known_member(member)?;
        if self.members[member.at()].is_live() || self.is_joining(member) {
            return Err(CommandError::new(
                CommandErrorKind::Conflict,
                format!(
                    "place {} is taken: fail or remove the member first",
                    member.0
                ),
            ));
        }
        if self.geometry.parity() == 0 {
            return Err(CommandError::new(
                CommandErrorKind::Refused,
                "the array keeps no redundancy: a lost member cannot be rebuilt",
            ));
        }
        let it = &mut self.members[member.at()];
        it.uuid = uuid;
        it.volatile = volatile;
        it.read_errors = 0;
        it.write_errors = 0;
        it.errors_before = (0, 0);
        self.pending.joining.push(Joining {
            member,
            command: id,
            uuid,
            serial,
            size_bytes,
        });
        self.log_forget_ring(member);
        // Entries of before may name this place's former drive as a carrier.
        if self.replays() {
            self.pending.early_joins.push(member);
        } else {
            self.log_drain(DrainFor::Joining(member), out);
        }
        Ok(())
    }

    pub(super) fn joining_drained(&mut self, member: MemberIndex, out: &mut Vec<Action>) {
        if self.broken {
            // The log is not drained: its entries would take this drive for the place's former one.
            return self.member_map_failed(member, out);
        }
        self.regions_add_member(member, out);
    }

    /// The place has a drive that is becoming a member.
    pub fn is_joining(&self, member: MemberIndex) -> bool {
        self.pending.joining.iter().any(|j| j.member == member)
    }

    /// The joining drive's identity goes into the superblock with its new state.
    pub(super) fn command_drive_is_member(&mut self, member: MemberIndex) {
        let joining = self.pending.joining.iter().find(|j| j.member == member);
        if let Some(Joining {
            uuid,
            serial,
            size_bytes,
            ..
        }) = joining
        {
            let (uuid, serial, size_bytes) = (*uuid, serial.clone(), *size_bytes);
            self.meta_set_drive(member, uuid, &serial, size_bytes);
        }
    }

    /// A replaced member has got (or refused) its metadata.
    pub(super) fn command_joined(
        &mut self,
        member: MemberIndex,
        result: Result<(), CommandError>,
        out: &mut Vec<Action>,
    ) {
        let Some(at) = self.pending.joining.iter().position(|j| j.member == member) else {
            return;
        };
        let id = self.pending.joining.remove(at).command;
        match result {
            Ok(()) => self.meta_when_saved(id, out),
            Err(error) => out.push(Action::CommandDone(id, Err(error))),
        }
    }

    /// Moves a clean stop on when what it waits for has come.
    pub(super) fn stop_step(&mut self, out: &mut Vec<Action>) {
        if self.mode != Mode::Stopping {
            return;
        }
        let Some((id, stage)) = self.pending.stop else {
            return;
        };
        match stage {
            StopStage::Draining => {
                let busy = self.requests.used() > 0
                    || self.ops.used() > 0
                    || self.background.busy()
                    || !self.log.is_quiet()
                    || !self.torn.is_quiet()
                    || !self.policy.is_quiet()
                    || self.start_flushes > 0
                    || self.regions.is_opening() && !self.broken
                    || self.replays();
                if busy {
                    return;
                }
                if self.read_only || self.broken {
                    return self.stop_done(id, out);
                }
                self.pending.stop = Some((id, StopStage::Cleaning));
                self.clean_all_regions(out);
                self.stop_step(out);
            }
            StopStage::Cleaning => {
                if self.broken {
                    return self.stop_done(id, out);
                }
                if !self.regions.is_quiet() {
                    return;
                }
                let left = self.flush(Class::Meta, meta::STOP_FLUSH, |_| true, out);
                self.pending.stop = Some((id, StopStage::Flushing(left)));
            }
            StopStage::Flushing(_) => {}
            StopStage::Saving => {
                if self.meta.is_quiet() || self.broken {
                    self.stop_done(id, out);
                }
            }
        }
    }

    pub(super) fn stop_flushed(
        &mut self,
        member: MemberIndex,
        result: Result<(), IoError>,
        out: &mut Vec<Action>,
    ) {
        if result.is_err() && !self.write_failed(member, out) {
            self.broken = true;
        }
        let Some((id, StopStage::Flushing(left))) = self.pending.stop else {
            return;
        };
        if left > 1 {
            self.pending.stop = Some((id, StopStage::Flushing(left - 1)));
            return;
        }
        self.pending.stop = Some((id, StopStage::Saving));
        if !self.broken {
            self.background_keep_position();
            self.meta.set_clean();
            self.meta_save(out);
        }
        self.stop_step(out);
    }

    /// The array has stopped by itself: who asked for it is answered.
    pub(super) fn stop_given_up(&mut self, out: &mut Vec<Action>) {
        if let Some((id, _)) = self.pending.stop.take() {
            out.push(Action::CommandDone(id, self.saved_result()));
        }
    }

    fn stop_done(&mut self, id: CommandId, out: &mut Vec<Action>) {
        if self.members.iter().any(|member| member.in_flight > 0) {
            return; // the last completion asks again
        }
        self.pending.stop = None;
        self.mode = Mode::Stopped;
        let result = if self.broken {
            Err(CommandError::drive(
                "stopped, but not cleanly: metadata could not be written; the next start checks parity",
            ))
        } else {
            Ok(())
        };
        out.push(Action::CommandDone(id, result));
    }
}
