//! Commands on what a running array keeps: settings, and blocks that read as errors.

use super::{Manager, Result, error};
use crate::daemon::backend::ArrayHandle;
use crate::daemon::convert::{self, node_error};
use crate::daemon::state::KnownArray;
use crate::size::human;
use strake_api::{self as api, ErrorKind};
use strake_node::ArrayStatus;
use tracing::info;

/// What a setting's change did: whether anything changed, and a line for people.
type Change = (bool, String);

impl Manager {
    /// Changes settings of a running array. All are checked before the first is changed.
    pub fn set_array(&self, array: &str, request: api::SetArray) -> Result<api::ArrayOutcome> {
        let known = self.resolve(array)?;
        let handle = self.running(&known)?;
        let status = handle.status().map_err(node_error)?;
        if request == api::SetArray::default() {
            let text = "nothing to set was given: use --rebuild-priority 1..100 or --policy POLICY";
            return Err(error(ErrorKind::Invalid, text));
        }
        check(&known, &status, request)?;
        let mut changes = Vec::new();
        if let Some(policy) = request.policy {
            changes.push(set_policy(&known, handle.as_ref(), &status, policy)?);
        }
        if let Some(percent) = request.rebuild_priority_percent {
            changes.push(set_priority(&known, handle.as_ref(), &status, percent)?);
        }
        let changed = changes.iter().any(|(changed, _)| *changed);
        if changed {
            self.refresh(known.uuid, &[])?;
        }
        let lines: Vec<String> = changes.into_iter().map(|(_, line)| line).collect();
        self.outcome(known.uuid, changed, lines.join("; "))
    }

    /// Blocks of a running array that read as errors.
    pub fn torn(&self, array: &str) -> Result<api::TornList> {
        let known = self.resolve(array)?;
        let handle = self.running(&known)?;
        let blocks = handle.torn().map_err(node_error)?;
        Ok(convert::torn(&known, &blocks))
    }

    /// Serves suspect blocks as they are.
    pub fn accept_suspect(
        &self,
        array: &str,
        request: api::AcceptSuspect,
    ) -> Result<api::ArrayOutcome> {
        let known = self.resolve(array)?;
        let handle = self.running(&known)?;
        let name = &known.name;
        let bytes = handle.status().map_err(node_error)?.suspect_bytes;
        if bytes == 0 {
            let message = format!("array {name} has no suspect blocks: nothing to accept");
            return self.outcome(known.uuid, false, message);
        }
        if !request.force {
            let text = format!(
                "accepting {} of suspect blocks of array {name} may serve wrong content as if it were right: `strake array torn {name}` lists them; restore what matters by writing it, then add --force to accept the rest",
                human(bytes)
            );
            return Err(error(ErrorKind::Refused, text));
        }
        handle.accept_suspect().map_err(node_error)?;
        self.refresh(known.uuid, &[])?;
        info!(array = %name, bytes, "suspect blocks accepted by command");
        let message = format!(
            "{} of suspect blocks of array {name} are accepted as they are",
            human(bytes)
        );
        self.outcome(known.uuid, true, message)
    }
}

fn check(known: &KnownArray, status: &ArrayStatus, request: api::SetArray) -> Result<()> {
    if let Some(percent) = request.rebuild_priority_percent
        && !(1..=100).contains(&percent)
    {
        let text = format!("a rebuild priority of {percent} is not possible: use 1 to 100");
        return Err(error(ErrorKind::Invalid, text));
    }
    match request.policy {
        Some(policy) if status.parity == 0 && policy != api::Policy::None => {
            let text = format!(
                "array {}: {} keeps no redundancy that a crash could make wrong: its policy can only be none",
                known.name, status.level
            );
            Err(error(ErrorKind::Invalid, text))
        }
        _ => Ok(()),
    }
}

fn set_policy(
    known: &KnownArray,
    handle: &dyn ArrayHandle,
    status: &ArrayStatus,
    policy: api::Policy,
) -> Result<Change> {
    let name = &known.name;
    if status.policy == convert::consistency(policy) {
        return Ok((false, format!("policy of {name} is already {policy}")));
    }
    let set = handle.set_policy(convert::consistency(policy));
    set.map_err(node_error)?;
    info!(array = %name, %policy, "policy changed by command");
    Ok((true, format!("policy of {name} set to {policy}")))
}

fn set_priority(
    known: &KnownArray,
    handle: &dyn ArrayHandle,
    status: &ArrayStatus,
    percent: u8,
) -> Result<Change> {
    let name = &known.name;
    if status.rebuild_priority == percent {
        let line = format!("rebuild priority of {name} is already {percent} %");
        return Ok((false, line));
    }
    handle.set_rebuild_priority(percent).map_err(node_error)?;
    Ok((
        true,
        format!("rebuild priority of {name} set to {percent} %"),
    ))
}
