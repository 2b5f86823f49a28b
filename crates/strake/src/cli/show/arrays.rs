//! Arrays: the list, the page of one, and what a scan found.

use super::drives::{cache, dash, indented, size_or_dash, size_with_bytes};
use super::exports;
use super::torn::torn_bytes;
use crate::cli::table::{pairs, table};
use crate::size::{human, human_seconds};
use strake_api::{self as api, ArrayState, MemberState};

/// `array list`.
pub fn array_list(list: &api::ArrayList) -> String {
    let rows = list.arrays.iter().map(|array| {
        let members = match array.state.is_running() {
            true => format!("{}/{}", array.members_active, array.members),
            false => array.members.to_string(),
        };
        vec![
            array.name.clone(),
            state_text(array),
            array.level.clone(),
            size_or_dash(array.size_bytes),
            members,
            array.exports.to_string(),
            array
                .tasks
                .iter()
                .map(short_task)
                .collect::<Vec<_>>()
                .join(", "),
        ]
    });
    table(
        &[
            "NAME", "STATE", "LEVEL", "SIZE", "MEMBERS", "EXPORTS", "WORK",
        ],
        rows.collect(),
        &[3, 4, 5],
        "no arrays: `strake array create` makes one, `strake array import` finds those on drives",
    )
}

fn state_text(array: &api::ArraySummary) -> String {
    let mut text = array.state.name().to_owned();
    if array.read_only && array.state.is_running() {
        text += ", read-only";
    }
    if let Some(reason) = &array.reason {
        text += &format!(": {reason}");
    }
    text
}

fn short_task(task: &api::Task) -> String {
    format!("{} {:.0} %", task.kind, task.percent.floor())
}

/// What `create` and `import` answer: the line, and what people should know at once.
pub fn created(outcome: &api::ArrayOutcome) -> String {
    let array = &outcome.array;
    let mut text = format!("{}\n", outcome.message);
    if outcome.changed {
        text += &format!("{}, {} usable\n", array.level, human(array.size_bytes));
        if array.state != ArrayState::Healthy {
            text += &headline(array);
        }
    }
    text + &warnings(array)
}

/// `array show`.
pub fn array_detail(array: &api::ArrayDetail) -> String {
    let mut text = headline(array);
    text += &warnings(array);
    text += "\n";
    text += &pairs(&facts(array));
    text += "\nmembers\n";
    text += &indented(&members(array));
    if !array.tasks.is_empty() {
        text += "\nwork\n";
        let lines: String = array
            .tasks
            .iter()
            .map(|task| task_line(task) + "\n")
            .collect();
        text += &indented(&lines);
    }
    if !array.exports.is_empty() {
        text += "\nexports\n";
        text += &indented(&exports_of(array));
    }
    text
}

/// The state in a line, and below it what to do when not all is well.
pub fn headline(array: &api::ArrayDetail) -> String {
    let name = &array.name;
    let count = |state: MemberState| array.members.iter().filter(|m| m.state == state).count();
    let total = array.members.len();
    let rebuilding = count(MemberState::Rebuilding);
    let out = total - count(MemberState::Active) - rebuilding;
    let read_only = if array.read_only { ", read-only" } else { "" };
    let state = array.state.name();
    match array.state {
        ArrayState::Healthy => format!("{name}: healthy{read_only}, {total} members\n"),
        ArrayState::Degraded => {
            let mut parts = Vec::new();
            if out > 0 {
                parts.push(format!("{out} of {total} members out"));
            }
            if rebuilding > 0 {
                parts.push(format!("{rebuilding} being rebuilt"));
            }
            let survives = match array.survives.unwrap_or(0) {
                0 => "no further loss is survived".to_owned(),
                1 => "1 further loss is survived".to_owned(),
                n => format!("{n} further losses are survived"),
            };
            let parts = parts.join(", ");
            format!(
                "{name}: {state}{read_only}: {parts}; {survives}\n{}",
                advice(array)
            )
        }
        ArrayState::Failed => format!(
            "{name}: failed: {out} of {total} members out, more than parity replaces; it cannot be written\n{}",
            advice(array)
        ),
        ArrayState::Starting => format!("{name}: starting\n"),
        ArrayState::Stopped => {
            format!("{name}: stopped\n  start it: strake array start {name}\n")
        }
        ArrayState::Offline => {
            let reason = array.reason.as_deref().unwrap_or("not running");
            format!("{name}: offline: {reason}\n  try again: strake array start {name}\n")
        }
    }
}

/// What to do about members that are out.
fn advice(array: &api::ArrayDetail) -> String {
    let name = &array.name;
    let out = array.members.iter().find(|member| {
        matches!(
            member.state,
            MemberState::Failed | MemberState::Missing | MemberState::Removed
        )
    });
    match out {
        Some(member) if array.state == ArrayState::Degraded => format!(
            "  put a new drive in: strake array replace {name} {} DRIVE\n",
            member.index
        ),
        Some(_) => format!(
            "  bring the missing drives back, then: strake array stop {name}; strake array start {name}\n"
        ),
        None => String::new(),
    }
}

fn warnings(array: &api::ArrayDetail) -> String {
    let lines = array
        .warnings
        .iter()
        .map(|text| format!("warning: {text}\n"));
    lines.collect()
}

fn facts(array: &api::ArrayDetail) -> Vec<(&'static str, String)> {
    let mut facts = vec![("uuid", array.uuid.to_string()), ("level", level(array))];
    if let Some(geometry) = &array.geometry {
        facts.push(("size", size_with_bytes(array.size_bytes)));
        facts.push((
            "strip, block",
            format!(
                "{}, {}",
                human(geometry.strip_size_bytes),
                human(geometry.block_size_bytes.into())
            ),
        ));
        if geometry.unused_bytes > 0 {
            let text = format!(
                "{} (the smallest member counts)",
                human(geometry.unused_bytes)
            );
            facts.push(("unused", text));
        }
    }
    if let Some(regions) = &array.regions {
        let region = array.geometry.as_ref().map_or(0, |g| g.region_size_bytes);
        facts.push((
            "regions",
            format!(
                "{} unwritten, {} clean, {} dirty, {} to resync, of {} a member",
                regions.unwritten,
                regions.clean,
                regions.dirty,
                regions.needs_resync,
                human(region)
            ),
        ));
    }
    if let Some(keeping) = &array.consistency {
        facts.extend(consistency(keeping));
    }
    if let Some(counters) = &array.counters {
        facts.push(("reads", requests(counters.reads, counters.read_bytes)));
        facts.push(("writes", requests(counters.writes, counters.write_bytes)));
        facts.push(("stripe writes", stripe_writes(counters)));
    }
    if let Some(scrub) = &array.last_scrub {
        facts.push(("last scrub", scrub_result(scrub)));
    }
    facts.push(("generation", generation(array)));
    if !array.kernel.is_empty() {
        facts.push(("parity kernel", array.kernel.clone()));
        let text = format!("{} %", array.rebuild_priority_percent);
        facts.push(("rebuild priority", text));
    }
    facts.push((
        "starts by itself",
        if array.autostart { "yes" } else { "no" }.to_owned(),
    ));
    facts
}

/// "raid6, 10 data + 2 parity", "raid60, 2 groups of 4 data + 2 parity"
fn level(array: &api::ArrayDetail) -> String {
    let Some(geometry) = &array.geometry else {
        return array.level.clone();
    };
    let (data, parity) = (geometry.data, geometry.parity);
    let shape = match (data, parity) {
        (data, 0) => format!("{data} data"),
        (1, parity) => format!("{} copies", parity + 1),
        (data, parity) => format!("{data} data + {parity} parity"),
    };
    match geometry.groups {
        0 | 1 => format!("{}, {shape}", array.level),
        groups => format!("{}, {groups} groups of {shape}", array.level),
    }
}

/// What keeps parity true over a crash, and what that did at the last start.
fn consistency(keeping: &api::Consistency) -> Vec<(&'static str, String)> {
    let logs = matches!(keeping.policy, api::Policy::Log | api::Policy::LogAll);
    let mut facts = Vec::new();
    let mut policy = keeping.policy.name().to_owned();
    if logs || keeping.log_entries > 0 {
        policy += &format!(
            ", {} a member, {} entries in force",
            human(keeping.log_size_bytes),
            keeping.log_entries
        );
    }
    facts.push(("policy", policy));
    if keeping.policy != api::Policy::None {
        let mut start = match keeping.protected_after_us {
            Some(after) => format!("protected after {}", short_time(after)),
            None => "not protected yet, until a replay or resync has ended".to_owned(),
        };
        if logs {
            start += &format!(
                ", {} log entries replayed, {} void",
                keeping.replayed_entries, keeping.voided_entries
            );
        }
        if keeping.torn_blocks > 0 {
            start += &format!(", {} blocks torn", keeping.torn_blocks);
        }
        facts.push(("last start", start));
    }
    let listed = torn_bytes(keeping.torn_bytes, keeping.suspect_bytes);
    if !listed.is_empty() {
        facts.push(("read as errors", listed));
    }
    facts
}

/// "340 ms", "1.25 s"
fn short_time(us: u64) -> String {
    match us {
        0..1_000_000 => format!("{} ms", us.div_ceil(1000)),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

fn generation(array: &api::ArrayDetail) -> String {
    match array.epoch {
        0 => format!("{} (last seen)", array.generation),
        epoch => format!("{}, epoch {epoch}", array.generation),
    }
}

fn requests(count: u64, bytes: u64) -> String {
    format!("{count} requests, {}", human(bytes))
}

fn stripe_writes(counters: &api::Counters) -> String {
    let ways = format!(
        "{} full-stripe, {} read-modify-write, {} reconstruct-write, {} joined",
        counters.full_stripe_writes,
        counters.read_modify_writes,
        counters.reconstruct_writes,
        counters.joined_writes
    );
    match counters.gathered_bytes {
        0 => ways,
        bytes => format!("{ways} ({} not read for parity)", human(bytes)),
    }
}

fn members(array: &api::ArrayDetail) -> String {
    let grouped = array.geometry.as_ref().is_some_and(|g| g.groups > 1);
    let mut header = vec!["MEMBER"];
    if grouped {
        header.push("GROUP");
    }
    header.extend([
        "STATE",
        "DRIVE",
        "SERIAL",
        "SIZE",
        "CACHE",
        "ERRORS R/W",
        "NOTES",
    ]);
    let rows = array.members.iter().map(|member| {
        let mut row = vec![member.index.to_string()];
        if grouped {
            row.push(member.group.to_string());
        }
        row.extend([
            member.state.name().to_owned(),
            dash(member.path.as_deref().unwrap_or("")),
            dash(&member.serial),
            size_or_dash(member.size_bytes),
            cache(member.volatile_cache).to_owned(),
            format!("{}/{}", member.read_errors, member.write_errors),
            notes(member),
        ]);
        row
    });
    let rows = rows.collect();
    let right: &[usize] = if grouped { &[0, 1, 5, 7] } else { &[0, 4, 6] };
    table(&header, rows, right, "none")
}

/// Notes without the one that the column says in a word.
fn notes(member: &api::Member) -> String {
    let notes = member.notes.iter().map(String::as_str);
    let others: Vec<&str> = notes
        .filter(|note| !note.starts_with("write cache: "))
        .collect();
    others.join("; ")
}

fn exports_of(array: &api::ArrayDetail) -> String {
    let rows = array.exports.iter().map(|export| {
        vec![
            export.id.clone(),
            export.address.clone(),
            exports::state(export),
        ]
    });
    table(&["ID", "ADDRESS", "STATE"], rows.collect(), &[], "none")
}

/// "rebuild 23 %, 1.20 GiB of 5 GiB a member, 300 MiB/s, 12 s left"
pub fn task_line(task: &api::Task) -> String {
    let mut text = format!(
        "{} {:.0} %, {} of {} a member, {}",
        task.kind,
        task.percent.floor(),
        human(task.done_bytes),
        human(task.total_bytes),
        rate_and_rest(task)
    );
    if task.mismatches > 0 || task.repaired > 0 || task.errors > 0 {
        text += &format!("; {}", counts(task));
    }
    text
}

/// "300 MiB/s, 12 s left"; "starting" as long as no rate is known.
pub fn rate_and_rest(task: &api::Task) -> String {
    if task.rate_bytes_per_second == 0 {
        return "starting".to_owned();
    }
    let rate = format!("{}/s", human(task.rate_bytes_per_second));
    match task.seconds_left {
        Some(seconds) => format!("{rate}, {} left", human_seconds(seconds)),
        None => rate,
    }
}

/// What a scrub found.
pub fn scrub_result(scrub: &api::Task) -> String {
    match (scrub.mismatches, scrub.errors) {
        (0, 0) => format!("{} a member checked, parity holds", human(scrub.done_bytes)),
        _ => format!(
            "{} a member checked, {}",
            human(scrub.done_bytes),
            counts(scrub)
        ),
    }
}

fn counts(task: &api::Task) -> String {
    format!(
        "{} stripes did not hold, {} repaired, {} ranges unreadable",
        task.mismatches, task.repaired, task.errors
    )
}

/// `array import` without a name.
pub fn scan(found: &api::ScanResult) -> String {
    let mut text = String::new();
    for array in &found.arrays {
        text += &candidate(array);
    }
    if found.arrays.is_empty() {
        text += "no arrays were found; name their drives with --drives\n";
    }
    for unreadable in &found.unreadable {
        text += &format!("unreadable: {unreadable}\n");
    }
    text
}

fn candidate(array: &api::ImportCandidate) -> String {
    let clean = if array.clean { "clean" } else { "dirty" };
    let mut text = format!(
        "{}: {}, {} of {} members found, {clean}\n",
        array.name,
        array.level,
        usize::from(array.members).saturating_sub(array.missing.len()),
        array.members
    );
    text += &format!("  uuid    {}\n", array.uuid);
    text += &match (&array.reason, array.importable) {
        (reason, true) => {
            let reason = reason.as_ref().map(|text| format!(" ({text})"));
            let reason = reason.unwrap_or_default();
            format!("  import  strake array import {}{reason}\n", array.name)
        }
        (Some(reason), false) => format!("  not now: {reason}\n"),
        (None, false) => "  not now\n".to_owned(),
    };
    for member in &array.found {
        let note = member.note.as_ref().map(|note| format!("  ({note})"));
        text += &format!(
            "  member {:>2}  {}  serial {}{}\n",
            member.index,
            member.path,
            dash(&member.serial),
            note.unwrap_or_default()
        );
    }
    for member in &array.missing {
        let path = member
            .path
            .as_ref()
            .map(|path| format!(", last seen at {path}"));
        let serial = member
            .serial
            .as_ref()
            .map(|serial| format!(", serial {serial}"));
        text += &format!(
            "  member {:>2}  missing{}{}\n",
            member.index,
            path.unwrap_or_default(),
            serial.unwrap_or_default()
        );
    }
    text
}
