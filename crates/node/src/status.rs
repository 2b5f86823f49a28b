//! What `array show` tells, taken from the engine in one look.

use strake_engine::array::{Array, TaskReport};
use strake_engine::format::superblock;
use strake_engine::format::torn::TornKind;
use strake_engine::layout::MemberIndex;

use crate::core::View;
use crate::handle::{ArrayState, ArrayStatus, MemberState, MemberStatus, TaskStatus};

pub(crate) fn status(view: &View) -> ArrayStatus {
    let engine = view.engine;
    let superblock = engine.superblock();
    let counters = engine.counters();
    let members = members(view);
    let state = match engine.redundancy_left() {
        None => ArrayState::Failed,
        Some(left) if left < engine.geometry().parity() => ArrayState::Degraded,
        Some(_) => ArrayState::Healthy,
    };
    let needed = superblock.areas.drive_bytes_needed();
    let sizes: Vec<u64> = superblock.members.iter().map(|m| m.size_bytes).collect();
    let smallest = sizes.iter().copied().min().unwrap_or(needed);
    let unused_bytes = sizes.iter().map(|size| size - smallest).sum();
    ArrayStatus {
        uuid: superblock.array_uuid,
        name: superblock.name.clone(),
        level: superblock.level.name().to_owned(),
        state,
        read_only: engine.is_read_only(),
        starting: engine.is_starting(),
        size_bytes: superblock.volume_size_bytes,
        block_size_bytes: superblock.block_size_bytes,
        strip_size_bytes: superblock.strip_size_bytes,
        groups: superblock.groups,
        data: superblock.data,
        parity: superblock.parity,
        members,
        tasks: engine.tasks().iter().map(task).collect(),
        last_scrub: engine.last_scrub().as_ref().map(task),
        generation: superblock.generation,
        epoch: superblock.epoch,
        policy: superblock.consistency,
        log_bytes: superblock.areas.log.length,
        log: engine.log_report(),
        torn_bytes: engine.torn().bytes(TornKind::Torn),
        suspect_bytes: engine.torn().bytes(TornKind::Suspect),
        region_size_bytes: superblock.region_size_bytes,
        regions: engine.region_counts(),
        kernel: strake_codec::kernel().to_owned(),
        reads: counters.reads,
        writes: counters.writes,
        read_bytes: counters.read_bytes,
        write_bytes: counters.write_bytes,
        write_plans: [
            counters.full_stripe,
            counters.read_modify,
            counters.reconstruct,
            counters.joined,
        ],
        gathered_bytes: counters.gathered_bytes,
        rebuild_priority: superblock.rebuild_priority,
        unused_bytes,
        warnings: warnings(view, unused_bytes),
    }
}

fn members(view: &View) -> Vec<MemberStatus> {
    let records = &view.engine.superblock().members;
    let places = view.engine.members().iter().zip(records).zip(&view.drives);
    places
        .enumerate()
        .map(|(index, ((member, record), drive))| MemberStatus {
            index: index as u16,
            group: record.group,
            path: drive.map(|info| info.path.clone()),
            serial: record.serial.clone(),
            state: match member.state {
                superblock::MemberState::Active => MemberState::Active,
                superblock::MemberState::Rebuilding => MemberState::Rebuilding,
                superblock::MemberState::Failed => MemberState::Failed,
                superblock::MemberState::Missing => MemberState::Missing,
                superblock::MemberState::Removed => MemberState::Removed,
            },
            size_bytes: record.size_bytes,
            read_errors: member.read_errors,
            write_errors: member.write_errors,
            volatile_cache: drive.map(|info| info.volatile_cache),
            notes: drive.map(|info| info.notes.clone()).unwrap_or_default(),
        })
        .collect()
}

fn task(report: &TaskReport) -> TaskStatus {
    TaskStatus {
        kind: report.kind.name().to_owned(),
        done_bytes: report.done_bytes,
        total_bytes: report.total_bytes,
        rate_bytes: report.rate_bytes,
        mismatches: report.mismatches,
        repaired: report.repaired,
        errors: report.errors,
    }
}

/// Blocks that read as errors, and what to do.
fn torn_text(engine: &Array) -> Option<String> {
    let torn = engine.torn();
    let count = |kind, name| match torn.bytes(kind) {
        0 => None,
        bytes => Some(format!("{bytes} bytes are {name}")),
    };
    let parts = [
        count(TornKind::Torn, "torn (a crash cut a write off)"),
        count(TornKind::Suspect, "suspect (their content may be wrong)"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| {
        format!(
            "{} and read as errors: `strake array torn {}` lists them and says what to do",
            parts.join(", "),
            engine.superblock().name
        )
    })
}

fn warnings(view: &View, unused_bytes: u64) -> Vec<String> {
    let engine = view.engine;
    let mut warnings = Vec::new();
    match engine.redundancy_left() {
        None => warnings.push(
            "more members are missing than parity replaces: part of the data is unavailable".into(),
        ),
        Some(0) if engine.geometry().parity() > 0 => {
            warnings.push(
                "no redundancy is left: another failure loses data; replace missing members now"
                    .into(),
            );
        }
        Some(_) => {}
    }
    let [.., needs_resync] = engine.region_counts();
    if needs_resync > 0
        && engine
            .redundancy_left()
            .is_some_and(|left| left < engine.geometry().parity())
    {
        warnings.push(format!(
            "{needs_resync} regions wait for a resync: until it has ended, blocks of missing members there may read as errors and are not rebuilt"
        ));
    }
    warnings.extend(torn_text(engine));
    if unused_bytes > 0 {
        warnings.push(format!("drives of unequal size: the smallest counts, {unused_bytes} bytes of the others are not used"));
    }
    for (index, member) in engine.members().iter().enumerate() {
        if !engine.survives_without(MemberIndex(index as u16)) && member.read_errors > 0 {
            warnings.push(format!(
                "member {index} has read errors and the array would not survive without it"
            ));
        }
    }
    warnings
}
