//! Changes of the consistency policy while the array runs.
//!
//! No write may be under way that the old policy protects and the new one does not: writes wait,
//! those under way end, what they wrote becomes durable, the log retires; then the superblock
//! says the new policy, and writes go on.

use super::*;
use crate::format::superblock::Consistency;
use log::DrainFor;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Writers,
    Drain,
    /// Until the save that contains this change.
    Saving(u64),
}

/// A change under way.
#[derive(Default)]
pub(super) struct Change {
    running: Option<(CommandId, Consistency, Stage)>,
    waiting: Vec<OpId>,
}

impl Change {
    pub(super) fn is_quiet(&self) -> bool {
        self.running.is_none()
    }
}

impl Array {
    pub(super) fn policy_change(
        &mut self,
        id: CommandId,
        policy: Consistency,
        out: &mut Vec<Action>,
    ) -> Result<(), CommandError> {
        let refuse = |kind, message: &str| {
            Err(CommandError {
                kind,
                message: message.to_owned(),
            })
        };
        if self.geometry.parity() == 0 && policy != Consistency::None {
            return refuse(
                CommandErrorKind::Refused,
                "raid0 keeps no redundancy: there is nothing to keep consistent, its policy is none",
            );
        }
        if !self.policy.is_quiet() {
            return refuse(
                CommandErrorKind::Conflict,
                "another change of the policy is under way: try again in a moment",
            );
        }
        if policy == self.log.policy {
            out.push(Action::CommandDone(id, Ok(())));
            return Ok(());
        }
        let logs = matches!(policy, Consistency::Log | Consistency::LogAll);
        if logs && self.regions.any_needs_sync() {
            return refuse(
                CommandErrorKind::Refused,
                "a resync is not finished, and what it has not reached must not be logged: wait for it (see `array show`), then change the policy",
            );
        }
        self.policy.running = Some((id, policy, Stage::Writers));
        self.policy_step(out);
        Ok(())
    }

    /// False: the operation waits until the change is over.
    pub(super) fn policy_admits(&mut self, op: OpId) -> bool {
        if self.policy.is_quiet() {
            return true;
        }
        self.ops[op.0].phase = ops::Phase::Policy;
        self.policy.waiting.push(op);
        false
    }

    /// A writer has ended.
    pub(super) fn policy_step(&mut self, out: &mut Vec<Action>) {
        if let Some((id, policy, Stage::Writers)) = self.policy.running
            && self.writers() == 0
        {
            self.policy.running = Some((id, policy, Stage::Drain));
            self.log_flush(out);
            self.log_drain(DrainFor::Policy, out);
        }
    }

    pub(super) fn policy_drained(&mut self, out: &mut Vec<Action>) {
        let Some((id, policy, Stage::Drain)) = self.policy.running else {
            return;
        };
        if self.broken {
            // The log is not drained: the policy that replays it stays, on the drives above all.
            self.policy.running = None;
            out.push(Action::CommandDone(id, self.saved_result()));
            return self.policy_resume(out);
        }
        self.log.policy = policy;
        self.meta.set_policy(policy);
        self.meta_save(out);
        let change = self.meta.wanted();
        self.policy.running = Some((id, policy, Stage::Saving(change)));
        self.meta_when_saved(id, out);
        // Without a live member a save ends before it has begun.
        self.policy_saved(self.meta.saved(), out);
    }

    pub(super) fn policy_saved(&mut self, saved: u64, out: &mut Vec<Action>) {
        if let Some((_, _, Stage::Saving(change))) = self.policy.running
            && change <= saved
        {
            self.policy.running = None;
            self.policy_resume(out);
        }
    }

    /// Writes that waited go on.
    fn policy_resume(&mut self, out: &mut Vec<Action>) {
        for op in std::mem::take(&mut self.policy.waiting) {
            self.op_enter_region(op, out);
        }
    }
}
