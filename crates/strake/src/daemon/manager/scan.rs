//! Looking for arrays on drives: what could be imported, and what stands against it.

use super::{Live, Manager, Result, error};
use crate::drives::distinct;
use std::collections::BTreeMap;
use strake_api::{self as api, ErrorKind};
use strake_node::probe::{MemberOf, Probe};
use strake_reactor::drive::DriveSpec;
use uuid::Uuid;

/// A drive that says it is a member.
struct Found {
    path: String,
    serial: String,
    member: MemberOf,
}

impl Manager {
    /// Every array that drives speak of, also those that run here.
    pub fn scan(&self, request: &api::ScanRequest) -> api::ScanResult {
        let (by_array, unreadable) = self.find_members(&request.drives);
        let mut arrays: Vec<api::ImportCandidate> = by_array
            .into_iter()
            .map(|(uuid, found)| self.candidate(uuid, found))
            .collect();
        arrays.sort_by(|a, b| (&a.name, a.uuid).cmp(&(&b.name, b.uuid)));
        api::ScanResult { arrays, unreadable }
    }

    /// The identity and name of the array that a name or UUID means, known here or on drives.
    pub(super) fn find_array(&self, array: &str, drives: &[String]) -> Result<(Uuid, String)> {
        if let Ok(known) = self.resolve(array) {
            return Ok((known.uuid, known.name));
        }
        let (by_array, unreadable) = self.find_members(drives);
        let wanted = Uuid::parse_str(array).ok();
        let mut matching: Vec<(Uuid, String)> = by_array
            .iter()
            .map(|(uuid, found)| (*uuid, newest(found).array_name.clone()))
            .filter(|(uuid, name)| Some(*uuid) == wanted || name == array)
            .collect();
        match matching.len() {
            1 => Ok(matching.remove(0)),
            0 => Err(none_found(array, &by_array, &unreadable)),
            _ => {
                let uuids: Vec<String> =
                    matching.iter().map(|(uuid, _)| uuid.to_string()).collect();
                let text = format!(
                    "several arrays are named {array}: {}. Import one by its UUID",
                    uuids.join(", ")
                );
                Err(error(ErrorKind::Conflict, text))
            }
        }
    }

    /// Members on the given drives, the remembered ones and those of this host, by array; and
    /// what is wrong with given drives that could not be read.
    fn find_members(&self, given: &[String]) -> (BTreeMap<Uuid, Vec<Found>>, Vec<String>) {
        let candidates = self.backend.candidates().into_iter().map(|drive| drive.0);
        let specs = given
            .iter()
            .cloned()
            .chain(self.remembered_drives())
            .chain(candidates);
        let mut by_array: BTreeMap<Uuid, Vec<Found>> = BTreeMap::new();
        let mut unreadable = Vec::new();
        for spec in distinct(specs) {
            match self.backend.probe(&DriveSpec(spec.clone())) {
                Ok(Probe {
                    info,
                    member: Some(member),
                    ..
                }) => by_array.entry(member.array_uuid).or_default().push(Found {
                    path: info.path,
                    serial: info.serial,
                    member,
                }),
                Ok(_) => {}
                Err(cause) if given.contains(&spec) => unreadable.push(cause.to_string()),
                Err(_) => {}
            }
        }
        (by_array, unreadable)
    }

    fn candidate(&self, uuid: Uuid, mut found: Vec<Found>) -> api::ImportCandidate {
        found.sort_by(|a, b| (a.member.member, &a.path).cmp(&(b.member.member, &b.path)));
        let newest = newest(&found).clone();
        let missing: Vec<api::MissingMember> = (0..newest.members)
            .filter(|index| !found.iter().any(|f| f.member.member == *index))
            .map(|index| {
                let (path, serial) = self.last_seen(uuid, index);
                api::MissingMember {
                    index,
                    path,
                    serial,
                }
            })
            .collect();
        let running = matches!(self.live(uuid), Some(Live::Running(_) | Live::Starting));
        let clones = clones(&found);
        let (importable, reason) = verdict(&newest, missing.len(), running, &clones);
        api::ImportCandidate {
            uuid,
            name: newest.array_name.clone(),
            level: newest.level.clone(),
            members: newest.members,
            found: found
                .iter()
                .map(|f| describe(f, &newest, &clones))
                .collect(),
            missing,
            clean: newest.clean,
            running,
            importable,
            reason,
        }
    }
}

/// The member with the newest superblock. There is at least one.
fn newest(found: &[Found]) -> &MemberOf {
    let newest = found
        .iter()
        .max_by_key(|f| (f.member.epoch, f.member.generation));
    &newest.expect("an array is known by a member").member
}

/// Identities that more than one drive carries.
fn clones(found: &[Found]) -> Vec<Uuid> {
    let mut seen = std::collections::HashSet::new();
    let ids = found.iter().map(|f| f.member.member_uuid);
    ids.filter(|id| !seen.insert(*id)).collect()
}

fn describe(found: &Found, newest: &MemberOf, clones: &[Uuid]) -> api::FoundMember {
    let member = &found.member;
    let note = if clones.contains(&member.member_uuid) {
        Some("clone: another drive has the same identity".to_owned())
    } else if member.generation < newest.generation {
        Some(format!(
            "stale: the newest generation is {}",
            newest.generation
        ))
    } else {
        None
    };
    api::FoundMember {
        index: member.member,
        path: found.path.clone(),
        serial: found.serial.clone(),
        generation: member.generation,
        note,
    }
}

/// Whether an import may be tried, and what to know before. The node decides when it is tried.
fn verdict(
    newest: &MemberOf,
    missing: usize,
    running: bool,
    clones: &[Uuid],
) -> (bool, Option<String>) {
    let text = |importable, text: String| (importable, Some(text));
    if running {
        return text(false, "running on this host".into());
    }
    if !clones.is_empty() {
        return text(
            false,
            "two drives carry the identity of one member: unplug the copy, or erase it with `strake drive clean DRIVE --force`".into(),
        );
    }
    let dirty = match newest.clean {
        true => "",
        false => "; it was not stopped cleanly and is resynced after the start",
    };
    match missing {
        0 if newest.clean => (true, None),
        0 => text(true, dirty.trim_start_matches("; ").to_owned()),
        1 => text(
            survives_one(&newest.level),
            format!("1 member is missing: it would start degraded{dirty}"),
        ),
        n if n >= usize::from(newest.members) || newest.level == "raid0" => {
            text(false, format!("{n} members are missing"))
        }
        n => text(
            survives_one(&newest.level),
            format!("{n} members are missing: importing says whether that is too many{dirty}"),
        ),
    }
}

fn survives_one(level: &str) -> bool {
    !level.ends_with("raid0") && level != "0"
}

fn none_found(
    array: &str,
    by_array: &BTreeMap<Uuid, Vec<Found>>,
    unreadable: &[String],
) -> api::Error {
    let mut text = format!("no array \"{array}\" was found on any drive");
    if by_array.is_empty() {
        text += ": name its drives with --drives";
    } else {
        let names = by_array
            .iter()
            .map(|(uuid, found)| format!("{} ({uuid})", newest(found).array_name));
        let names: Vec<String> = names.collect();
        text += &format!("; found are: {}", names.join(", "));
    }
    for cause in unreadable {
        text += &format!(". {cause}");
    }
    error(ErrorKind::NotFound, text)
}
