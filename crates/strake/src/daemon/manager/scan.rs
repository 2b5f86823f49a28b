//! Looking for arrays on drives: what could be imported, and what stands against it.

mod verdict;

use super::{Live, Manager, Result, error};
use crate::drives::{distinct, unwrapped};
use std::collections::BTreeMap;
use strake_api::{self as api, ErrorKind};
use strake_node::probe::{MemberOf, Probe};
use strake_reactor::drive::DriveSpec;
use uuid::Uuid;
use verdict::{Table, verdict};

/// A drive that says it is a member.
struct Found {
    /// The text by which it was named.
    spec: String,
    path: String,
    serial: String,
    member: MemberOf,
}

/// Drives by the array that they say they belong to.
pub(super) struct Looked {
    by_array: BTreeMap<Uuid, Vec<Found>>,
    /// What is wrong with drives that were named and could not be read.
    unreadable: Vec<String>,
}

impl Looked {
    /// Drive texts that hold a member of the array.
    pub(super) fn drives_of(&self, uuid: Uuid) -> Vec<String> {
        let found = self.by_array.get(&uuid).into_iter().flatten();
        found.map(|found| found.spec.clone()).collect()
    }

    /// The array of that identity or name.
    fn find(&self, array: &str) -> Result<(Uuid, String)> {
        let wanted = Uuid::parse_str(array).ok();
        let mut matching: Vec<(Uuid, String)> = self
            .by_array
            .iter()
            .map(|(uuid, found)| (*uuid, newest(found).array_name.clone()))
            .filter(|(uuid, name)| Some(*uuid) == wanted || name == array)
            .collect();
        match matching.len() {
            1 => Ok(matching.remove(0)),
            0 => Err(self.none_found(array)),
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

    fn none_found(&self, array: &str) -> api::Error {
        let mut text = format!("no array \"{array}\" was found on any drive");
        if self.by_array.is_empty() {
            text += ": name its drives with --drives";
        } else {
            let names = self.by_array.iter();
            let names = names.map(|(uuid, found)| format!("{} ({uuid})", newest(found).array_name));
            let names: Vec<String> = names.collect();
            text += &format!("; found are: {}", names.join(", "));
        }
        for cause in &self.unreadable {
            text += &format!(". {cause}");
        }
        error(ErrorKind::NotFound, text)
    }
}

impl Manager {
    /// Every array that drives speak of, also those that run here.
    pub fn scan(&self, request: &api::ScanRequest) -> api::ScanResult {
        let looked = self.look(&request.drives);
        let mut arrays: Vec<api::ImportCandidate> = looked
            .by_array
            .into_iter()
            .map(|(uuid, found)| self.candidate(uuid, found))
            .collect();
        arrays.sort_by(|a, b| (&a.name, a.uuid).cmp(&(&b.name, b.uuid)));
        api::ScanResult {
            arrays,
            unreadable: looked.unreadable,
        }
    }

    /// The identity and name of the array that a name or UUID means, known here or on drives.
    pub(super) fn find_array(&self, array: &str, looked: &Looked) -> Result<(Uuid, String)> {
        match self.resolve(array) {
            Ok(known) => Ok((known.uuid, known.name)),
            Err(_) => looked.find(array),
        }
    }

    /// Looks at the given drives, those that arrays of this host used last, and the candidates of
    /// this host. A drive that cannot be read is left out; what is missing is then the node's to
    /// say. Of two texts for one drive, one with a wrapper wins, then the one used last.
    pub(super) fn look(&self, given: &[String]) -> Looked {
        let wrapped = |spec: &String| unwrapped(spec) != spec;
        let (with_wrapper, plain): (Vec<String>, Vec<String>) =
            given.iter().cloned().partition(wrapped);
        let candidates = self.backend.candidates().into_iter().map(|drive| drive.0);
        let specs = with_wrapper
            .into_iter()
            .chain(self.remembered_drives())
            .chain(plain)
            .chain(candidates);
        let mut looked = Looked {
            by_array: BTreeMap::new(),
            unreadable: Vec::new(),
        };
        for spec in distinct(specs) {
            match self.backend.probe(&DriveSpec(spec.clone())) {
                Ok(Probe {
                    info,
                    member: Some(member),
                    ..
                }) => {
                    let found = looked.by_array.entry(member.array_uuid).or_default();
                    found.push(Found {
                        spec,
                        path: info.path,
                        serial: info.serial,
                        member,
                    });
                }
                Ok(_) => {}
                Err(cause) if given.contains(&spec) => looked.unreadable.push(cause.to_string()),
                Err(_) => {}
            }
        }
        looked
    }

    fn candidate(&self, uuid: Uuid, mut found: Vec<Found>) -> api::ImportCandidate {
        found.sort_by(|a, b| (a.member.member, &a.path).cmp(&(b.member.member, &b.path)));
        let newest = newest(&found).clone();
        let table = Table::read(&newest);
        let clones = clones(&found);
        let running = matches!(self.live(uuid), Some(Live::Running(_) | Live::Starting));
        let current: Vec<u16> = found
            .iter()
            .filter(|found| found.member.generation == newest.generation)
            .map(|found| found.member.member)
            .collect();
        let (importable, reason) = verdict(&newest, &table, &current, running, &clones);
        let missing = (0..newest.members).filter(|index| {
            let there = found.iter().any(|found| found.member.member == *index);
            !there && !table.is_empty_place(*index)
        });
        let missing = missing.map(|index| {
            let (path, serial) = self.last_seen(uuid, index);
            api::MissingMember {
                index,
                path,
                serial: table.serial(index).or(serial),
            }
        });
        api::ImportCandidate {
            uuid,
            name: newest.array_name.clone(),
            level: newest.level.clone(),
            members: newest.members,
            missing: missing.collect(),
            found: found
                .iter()
                .map(|f| describe(f, &newest, &clones))
                .collect(),
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
        .max_by_key(|f| (f.member.generation, f.member.epoch));
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
