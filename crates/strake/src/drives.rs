//! Drive texts and what a probe of a drive says, in the API's words.
//!
//! Shared by the daemon (`drive list`) and by the offline `strake inspect`, so that both say the
//! same of a drive.

use std::path::{Path, PathBuf};
use strake_api::{Drive, DriveDetail, DriveUse, Field};
use strake_node::probe::{MemberOf, Probe};
use strake_reactor::drive::{DriveSpec, OpenError};

/// Wrappers that a drive text may carry before the drive itself.
const WRAPPERS: [&str; 3] = ["faulty:", "cache=none:", "cache=volatile:"];
/// Drive texts that are not paths. `cache=` that no wrapper took is left for the reactor to refuse.
const NOT_PATHS: [&str; 4] = ["memory:", "null:", "paced:", "cache="];

/// The drive text with a relative path made absolute: the daemon has another working folder.
pub fn absolute(spec: &str) -> String {
    if let Some((wrapper, inner)) = wrapper(spec) {
        return format!("{wrapper}{}", absolute(inner));
    }
    if spec.is_empty() || NOT_PATHS.iter().any(|prefix| spec.starts_with(prefix)) {
        return spec.to_owned();
    }
    match std::path::absolute(spec) {
        Ok(path) => path.to_string_lossy().into_owned(),
        Err(_) => spec.to_owned(),
    }
}

/// The outermost wrapper (`recorded:LOGFILE:` is one) and what it wraps.
fn wrapper(spec: &str) -> Option<(&str, &str)> {
    const RECORDED: &str = "recorded:";
    let plain = WRAPPERS.iter().find(|wrapper| spec.starts_with(**wrapper));
    let length = match (plain, spec.strip_prefix(RECORDED)) {
        (Some(wrapper), _) => wrapper.len(),
        (None, Some(rest)) => RECORDED.len() + rest.find(':')? + 1,
        (None, None) => return None,
    };
    Some(spec.split_at(length))
}

/// A member as the administrator named it: an index stays, a drive text is made absolute.
pub fn absolute_member(member: &str) -> String {
    if !member.is_empty() && member.bytes().all(|byte| byte.is_ascii_digit()) {
        return member.to_owned();
    }
    absolute(member)
}

/// The drive text without wrappers.
pub fn unwrapped(spec: &str) -> &str {
    wrapper(spec).map_or(spec, |(_, inner)| unwrapped(inner))
}

/// What two texts that name the same drive have in common: the canonical path where there is one.
pub fn key(spec: &str) -> String {
    let inner = unwrapped(spec);
    if NOT_PATHS.iter().any(|prefix| inner.starts_with(prefix)) {
        return inner.to_owned();
    }
    let path: PathBuf = Path::new(inner)
        .canonicalize()
        .unwrap_or_else(|_| PathBuf::from(inner));
    path.to_string_lossy().into_owned()
}

/// Drive texts without those that name a drive named before; the first text wins.
pub fn distinct(specs: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    specs
        .into_iter()
        .filter(|spec| seen.insert(key(spec)))
        .collect()
}

/// What a probe found, in the API's words.
pub fn detail(probe: &Probe) -> DriveDetail {
    let member = probe.member.as_ref();
    DriveDetail {
        drive: summary(probe),
        in_use: probe.in_use.clone(),
        foreign: probe.foreign.clone(),
        superblock_copies: probe.copies.clone(),
        superblock: member.map(fields).unwrap_or_default(),
        notes: probe.info.notes.clone(),
    }
}

/// What a probe found, in short.
pub fn summary(probe: &Probe) -> Drive {
    let (usage, usage_text) = usage(probe);
    let member = probe.member.as_ref();
    Drive {
        path: probe.info.path.clone(),
        size_bytes: probe.info.size_bytes,
        block_size_bytes: probe.info.block_size_bytes,
        serial: probe.info.serial.clone(),
        model: probe.info.model.clone(),
        volatile_cache: Some(probe.info.volatile_cache),
        usage,
        usage_text,
        array_uuid: member.map(|member| member.array_uuid),
        array_name: member.map(|member| member.array_name.clone()),
        member: member.map(|member| member.member),
    }
}

/// A drive that could not be looked at.
pub fn unreadable(spec: &DriveSpec, error: &OpenError) -> Drive {
    let usage = match error {
        OpenError::Busy { .. } => DriveUse::Busy,
        OpenError::BadSpec { .. } | OpenError::System { .. } => DriveUse::Error,
    };
    Drive {
        path: spec.0.clone(),
        size_bytes: 0,
        block_size_bytes: 0,
        serial: String::new(),
        model: String::new(),
        volatile_cache: None,
        usage,
        usage_text: error.to_string(),
        array_uuid: None,
        array_name: None,
        member: None,
    }
}

/// What the drive is used for. A member is a member also while its array has it open; anybody
/// else's use comes before what lies on the drive.
fn usage(probe: &Probe) -> (DriveUse, String) {
    if let Some(member) = &probe.member {
        let text = format!("member {} of {}", member.member, member.array_name);
        return (DriveUse::Member, text);
    }
    if let Some(by) = &probe.in_use {
        return (DriveUse::Busy, by.clone());
    }
    if let Some(foreign) = &probe.foreign {
        return (DriveUse::Foreign, foreign.clone());
    }
    let damaged = probe.copies.iter().find(|copy| *copy != "absent");
    match damaged {
        Some(copy) => (DriveUse::Foreign, format!("damaged superblock: {copy}")),
        None => (DriveUse::Free, "free".to_owned()),
    }
}

fn fields(member: &MemberOf) -> Vec<Field> {
    member
        .fields
        .iter()
        .map(|(name, value)| Field {
            name: name.clone(),
            value: value.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests;
