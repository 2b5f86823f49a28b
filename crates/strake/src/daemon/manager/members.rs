//! Commands on members of a running array, and scrubs. They go to the array without waiting for
//! commands on other arrays.

use super::{Manager, Result, error};
use crate::daemon::backend::ArrayHandle;
use crate::daemon::convert::{self, node_error};
use crate::daemon::state::KnownArray;
use crate::drives::key;
use std::collections::HashMap;
use std::sync::Arc;
use strake_api::{self as api, ErrorKind};
use strake_node::{ArrayStatus, MemberState, MemberStatus};
use strake_reactor::drive::DriveSpec;
use tracing::info;

/// A member of a running array.
struct Place {
    known: KnownArray,
    handle: Arc<dyn ArrayHandle>,
    status: ArrayStatus,
    index: u16,
}

impl Place {
    fn member(&self) -> &MemberStatus {
        let found = self.status.members.iter().find(|m| m.index == self.index);
        found.expect("place was found in this status")
    }

    /// "member 3 of data (/dev/sdd)"
    fn text(&self) -> String {
        let path = self.member().path.as_ref();
        let path = path.map(|path| format!(" ({path})")).unwrap_or_default();
        format!("member {} of {}{path}", self.index, self.known.name)
    }
}

impl Manager {
    /// Drops a member.
    pub fn fail_member(
        &self,
        array: &str,
        request: &api::MemberRequest,
    ) -> Result<api::ArrayOutcome> {
        let place = self.place(array, &request.member)?;
        let state = place.member().state;
        if !matches!(state, MemberState::Active | MemberState::Rebuilding) {
            let message = format!("{} is already {}", place.text(), state_name(state));
            return self.outcome(place.known.uuid, false, message);
        }
        let failed = place.handle.fail_member(place.index, request.force);
        failed.map_err(node_error)?;
        self.refresh(place.known.uuid, &[])?;
        info!(array = %place.known.name, member = place.index, "member failed by command");
        let message = format!("{} failed", place.text());
        self.outcome(place.known.uuid, true, message)
    }

    /// Empties a place.
    pub fn remove_member(
        &self,
        array: &str,
        request: &api::MemberRequest,
    ) -> Result<api::ArrayOutcome> {
        let place = self.place(array, &request.member)?;
        if place.member().state == MemberState::Removed {
            let message = format!("{} is already removed", place.text());
            return self.outcome(place.known.uuid, false, message);
        }
        let removed = place.handle.remove_member(place.index, request.force);
        removed.map_err(node_error)?;
        self.refresh(place.known.uuid, &[])?;
        info!(array = %place.known.name, member = place.index, "member removed by command");
        let message = format!("{} removed", place.text());
        self.outcome(place.known.uuid, true, message)
    }

    /// Fills a place with a drive and starts to rebuild it.
    pub fn replace_member(
        &self,
        array: &str,
        request: &api::ReplaceMember,
    ) -> Result<api::ArrayOutcome> {
        let place = self.place(array, &request.member)?;
        let state = place.member().state;
        let there = place.member().path.as_deref().map(key);
        let serving = matches!(state, MemberState::Active | MemberState::Rebuilding);
        if serving && there == Some(key(&request.drive)) {
            let message = format!("{} is already {}", place.text(), state_name(state));
            return self.outcome(place.known.uuid, false, message);
        }
        let drive = DriveSpec(request.drive.clone());
        let replaced = place
            .handle
            .replace_member(place.index, drive, request.force);
        replaced.map_err(node_error)?;
        self.refresh(place.known.uuid, std::slice::from_ref(&request.drive))?;
        info!(array = %place.known.name, member = place.index, drive = %request.drive, "member replaced");
        let message = format!(
            "member {} of {} is now {}: rebuild started",
            place.index, place.known.name, request.drive
        );
        self.outcome(place.known.uuid, true, message)
    }

    /// Starts or ends a scrub.
    pub fn scrub(&self, array: &str, request: api::Scrub) -> Result<api::ArrayOutcome> {
        let known = self.resolve(array)?;
        let handle = self.running(&known)?;
        if request.stop && request.repair {
            let text = "--stop ends a scrub and goes with no other option";
            return Err(error(ErrorKind::Invalid, text));
        }
        let status = handle.status().map_err(node_error)?;
        let at_work = status.tasks.iter().any(|task| task.kind == "scrub");
        let name = &known.name;
        let message = match (at_work, request.stop) {
            (true, false) => format!("a scrub of {name} is already running"),
            (false, true) => format!("no scrub of {name} is running"),
            (true, true) => {
                handle.stop_scrub().map_err(node_error)?;
                format!("scrub of {name} stopped")
            }
            (false, false) => {
                handle.start_scrub(request.repair).map_err(node_error)?;
                format!("scrub of {name} started")
            }
        };
        self.outcome(known.uuid, at_work == request.stop, message)
    }

    /// Makes a member drive misbehave, or heals it.
    pub fn fault_drive(&self, request: &api::FaultDrive) -> Result<api::Outcome> {
        let plan = convert::faults(request)?;
        let wanted = key(&request.drive);
        for place in self.members_by_drive() {
            if place.member().path.as_deref().map(key).as_ref() != Some(&wanted) {
                continue;
            }
            let message = match &plan {
                Some(_) => format!("faults set on {}", place.text()),
                None => format!("faults ended on {}", place.text()),
            };
            let injected = place.handle.inject(place.index, plan);
            injected.map_err(node_error)?;
            return Ok(api::Outcome {
                changed: true,
                message,
            });
        }
        let text = format!(
            "{} is not a member of a running array: faults can be set on members that were given as faulty:DRIVE",
            request.drive
        );
        Err(error(ErrorKind::NotFound, text))
    }

    /// Every member of every running array.
    fn members_by_drive(&self) -> Vec<Place> {
        let known = self.inner().state.arrays.clone();
        let mut places = Vec::new();
        for array in known {
            let Ok(handle) = self.running(&array) else {
                continue;
            };
            let Ok(status) = handle.status() else {
                continue;
            };
            places.extend(status.members.iter().map(|member| Place {
                known: array.clone(),
                handle: handle.clone(),
                status: status.clone(),
                index: member.index,
            }));
        }
        places
    }

    /// What uses each drive of the running arrays, by the drive's key: "member 3 of data".
    pub(super) fn users(&self) -> HashMap<String, String> {
        let places = self.members_by_drive();
        let users = places.iter().filter_map(|place| {
            let member = place.member();
            let holds = matches!(member.state, MemberState::Active | MemberState::Rebuilding);
            let path = member.path.as_deref().filter(|_| holds)?;
            let text = format!("member {} of {}", place.index, place.known.name);
            Some((key(path), text))
        });
        users.collect()
    }

    fn place(&self, array: &str, member: &str) -> Result<Place> {
        let known = self.resolve(array)?;
        let handle = self.running(&known)?;
        let status = handle.status().map_err(node_error)?;
        let index = find_member(&known, &status, member)?;
        Ok(Place {
            known,
            handle,
            status,
            index,
        })
    }
}

/// The index that an index or a drive text names. A drive that is gone is found by where it was.
fn find_member(known: &KnownArray, status: &ArrayStatus, member: &str) -> Result<u16> {
    let has = |index: u16| status.members.iter().any(|m| m.index == index);
    if let Ok(index) = member.parse::<u16>() {
        if has(index) {
            return Ok(index);
        }
        let text = format!(
            "array {} has no member {index}: its members are 0 to {}",
            known.name,
            status.members.len().saturating_sub(1)
        );
        return Err(error(ErrorKind::NotFound, text));
    }
    let wanted = key(member);
    let now = status
        .members
        .iter()
        .find(|m| m.path.as_deref().map(key).as_ref() == Some(&wanted));
    let before = known
        .drives
        .iter()
        .find(|d| d.spec.as_deref().map(key).as_ref() == Some(&wanted));
    now.map(|m| m.index)
        .or(before.map(|d| d.member).filter(|index| has(*index)))
        .ok_or_else(|| {
            let text = format!(
                "{member} is not a drive of array {0}: `strake array show {0}` lists its members",
                known.name
            );
            error(ErrorKind::NotFound, text)
        })
}

fn state_name(state: MemberState) -> &'static str {
    match state {
        MemberState::Active => "active",
        MemberState::Rebuilding => "being rebuilt",
        MemberState::Failed => "failed",
        MemberState::Missing => "missing",
        MemberState::Removed => "removed",
    }
}
