//! From the node's words to the API's.

use crate::daemon::state::KnownArray;
use std::time::Duration;
use strake_api as api;
use strake_engine::layout::{GeometryRequest, Level};
use strake_node::{
    ArrayState, ArrayStatus, Consistency, ErrorKind, MemberState, MemberStatus, NodeError,
    TaskStatus, TornBlocks,
};
use strake_reactor::drive::{FaultPlan, OpenError};

/// An error with its kind.
pub fn error(kind: api::ErrorKind, message: impl Into<String>) -> api::Error {
    api::Error {
        kind,
        message: message.into(),
    }
}

/// An error of the node.
pub fn node_error(error: NodeError) -> api::Error {
    let kind = match error.kind {
        ErrorKind::Invalid => api::ErrorKind::Invalid,
        ErrorKind::Conflict => api::ErrorKind::Conflict,
        ErrorKind::NotFound => api::ErrorKind::NotFound,
        ErrorKind::Refused => api::ErrorKind::Refused,
        ErrorKind::Drive => api::ErrorKind::Drive,
        ErrorKind::Stopped => api::ErrorKind::Stopped,
    };
    self::error(kind, error.message)
}

/// A drive that cannot be opened.
pub fn open_error(error: OpenError) -> api::Error {
    let kind = match error {
        OpenError::BadSpec { .. } => api::ErrorKind::Invalid,
        OpenError::System { .. } => api::ErrorKind::Drive,
        OpenError::Busy { .. } => api::ErrorKind::Conflict,
    };
    self::error(kind, error.to_string())
}

/// The geometry that a creation asks for. Fails on options that do not belong to the level;
/// everything else is the node's to judge.
pub fn geometry(request: &api::CreateArray) -> Result<GeometryRequest, api::Error> {
    let level = level(request.level);
    let invalid = |text: String| Err(error(api::ErrorKind::Invalid, text));
    if request.copies.is_some() && level != Level::Raid10 {
        return invalid(format!(
            "--copies is for raid10 only; {} has no such choice",
            request.level
        ));
    }
    if request.parity.is_some() && level != Level::NPlusM {
        return invalid(format!(
            "--parity is for n+m only; the number of parities of {} is fixed",
            request.level
        ));
    }
    if request.group_size.is_some() && request.copies.is_some() {
        return invalid(
            "give --copies or --group-size, not both: a group of raid10 is one set of copies"
                .into(),
        );
    }
    Ok(GeometryRequest {
        level,
        members: request.drives.len(),
        strip_size_bytes: request.strip_size_bytes,
        block_size_bytes: request.block_size_bytes,
        group_size: request.group_size.or(request.copies).map(usize::from),
        parity: request.parity.map(usize::from),
    })
}

fn level(level: api::Level) -> Level {
    match level {
        api::Level::Raid0 => Level::Raid0,
        api::Level::Raid1 => Level::Raid1,
        api::Level::Raid5 => Level::Raid5,
        api::Level::Raid6 => Level::Raid6,
        api::Level::Raid73 => Level::Raid73,
        api::Level::Raid10 => Level::Raid10,
        api::Level::Raid50 => Level::Raid50,
        api::Level::Raid60 => Level::Raid60,
        api::Level::Raid70 => Level::Raid70,
        api::Level::NPlusM => Level::NPlusM,
    }
}

/// A policy that a request names.
pub fn consistency(policy: api::Policy) -> Consistency {
    match policy {
        api::Policy::Log => Consistency::Log,
        api::Policy::LogAll => Consistency::LogAll,
        api::Policy::Resync => Consistency::Resync,
        api::Policy::None => Consistency::None,
    }
}

fn policy(consistency: Consistency) -> api::Policy {
    match consistency {
        Consistency::Log => api::Policy::Log,
        Consistency::LogAll => api::Policy::LogAll,
        Consistency::Resync => api::Policy::Resync,
        Consistency::None => api::Policy::None,
    }
}

/// What keeps a running array's parity true.
fn keeping(status: &ArrayStatus, protected_after: Option<Duration>) -> api::Consistency {
    api::Consistency {
        policy: policy(status.policy),
        log_size_bytes: status.log_bytes,
        log_entries: status.log.entries,
        replayed_entries: status.log.replayed_entries,
        voided_entries: status.log.voided_entries,
        torn_blocks: status.log.torn_blocks,
        protected_after_us: protected_after.map(|after| after.as_micros() as u64),
        torn_bytes: status.torn_bytes,
        suspect_bytes: status.suspect_bytes,
    }
}

/// Blocks that read as errors.
pub fn torn(known: &KnownArray, blocks: &[TornBlocks]) -> api::TornList {
    let bytes = |suspect: bool| {
        let of_kind = blocks.iter().filter(|blocks| blocks.suspect == suspect);
        of_kind.map(|blocks| blocks.length_bytes).sum()
    };
    api::TornList {
        array_uuid: known.uuid,
        array_name: known.name.clone(),
        torn_bytes: bytes(false),
        suspect_bytes: bytes(true),
        extents: blocks.iter().map(torn_extent).collect(),
    }
}

fn torn_extent(blocks: &TornBlocks) -> api::TornExtent {
    let range = |range: &std::ops::Range<u64>| api::ByteRange {
        offset_bytes: range.start,
        length_bytes: range.end - range.start,
    };
    api::TornExtent {
        member: blocks.member,
        kind: match blocks.suspect {
            true => api::TornKind::Suspect,
            false => api::TornKind::Torn,
        },
        offset_bytes: blocks.offset_bytes,
        length_bytes: blocks.length_bytes,
        volume: blocks.volume.iter().map(range).collect(),
        volume_left_out: blocks.volume_left_out,
    }
}

/// The faults that a request asks for; `None` heals.
pub fn faults(request: &api::FaultDrive) -> Result<Option<FaultPlan>, api::Error> {
    let plan = FaultPlan {
        dead: request.dead,
        die_after: request.die_after,
        bad_ranges: request
            .bad_ranges
            .iter()
            .map(|range| (range.offset_bytes, range.length_bytes))
            .collect(),
        read_error_one_in: request.read_error_one_in,
        write_error_one_in: request.write_error_one_in,
        lost_write_one_in: request.lost_write_one_in,
        torn_write_one_in: request.torn_write_one_in,
        latency_us: request.latency_us,
    };
    let nothing = plan == FaultPlan::default();
    let zero = [
        request.die_after,
        request.read_error_one_in,
        request.write_error_one_in,
        request.lost_write_one_in,
        request.torn_write_one_in,
    ];
    if zero.contains(&Some(0)) {
        return Err(error(
            api::ErrorKind::Invalid,
            "a count of 0 makes no sense: give 1 or more, or leave the option out",
        ));
    }
    match (request.heal, nothing) {
        (true, true) => Ok(None),
        (true, false) => Err(error(
            api::ErrorKind::Invalid,
            "--heal ends all faults and goes with no other option",
        )),
        (false, true) => Err(error(
            api::ErrorKind::Invalid,
            "no fault was named: give one, like --dead, or --heal to end them",
        )),
        (false, false) => Ok(Some(plan)),
    }
}

/// State of a running array.
pub fn state(state: ArrayState) -> api::ArrayState {
    match state {
        ArrayState::Healthy => api::ArrayState::Healthy,
        ArrayState::Degraded => api::ArrayState::Degraded,
        ArrayState::Failed => api::ArrayState::Failed,
    }
}

/// Long work.
pub fn task(task: &TaskStatus) -> api::Task {
    let left = task.total_bytes.saturating_sub(task.done_bytes);
    let percent = match task.total_bytes {
        0 => 100.0,
        total => task.done_bytes.min(total) as f64 * 100.0 / total as f64,
    };
    api::Task {
        kind: task.kind.clone(),
        done_bytes: task.done_bytes,
        total_bytes: task.total_bytes,
        percent,
        rate_bytes_per_second: task.rate_bytes,
        seconds_left: left.checked_div(task.rate_bytes),
        mismatches: task.mismatches,
        repaired: task.repaired,
        errors: task.errors,
    }
}

fn member(member: &MemberStatus) -> api::Member {
    api::Member {
        index: member.index,
        group: member.group,
        state: match member.state {
            MemberState::Active => api::MemberState::Active,
            MemberState::Rebuilding => api::MemberState::Rebuilding,
            MemberState::Failed => api::MemberState::Failed,
            MemberState::Missing => api::MemberState::Missing,
            MemberState::Removed => api::MemberState::Removed,
        },
        path: member.path.clone(),
        serial: member.serial.clone(),
        size_bytes: member.size_bytes,
        read_errors: member.read_errors,
        write_errors: member.write_errors,
        volatile_cache: member.volatile_cache,
        notes: member.notes.clone(),
    }
}

/// How many more members may be lost in the worst case: the group that has lost most decides.
pub fn survives(status: &ArrayStatus) -> u16 {
    (0..status.groups.max(1))
        .map(|group| {
            let lost = status
                .members
                .iter()
                .filter(|member| member.group == group && member.state != MemberState::Active)
                .count();
            status.parity.saturating_sub(lost as u16)
        })
        .min()
        .unwrap_or(0)
}

/// A running array, protected since so long after its start.
pub fn running(
    known: &KnownArray,
    status: &ArrayStatus,
    protected_after: Option<Duration>,
    exports: Vec<api::Export>,
) -> api::ArrayDetail {
    let [unwritten, clean, dirty, needs_resync] = status.regions;
    let [
        full_stripe_writes,
        read_modify_writes,
        reconstruct_writes,
        joined_writes,
    ] = status.write_plans;
    api::ArrayDetail {
        uuid: status.uuid,
        name: status.name.clone(),
        state: state(status.state),
        reason: None,
        level: status.level.clone(),
        size_bytes: status.size_bytes,
        read_only: status.read_only,
        autostart: known.autostart,
        survives: Some(survives(status)),
        geometry: Some(api::Geometry {
            block_size_bytes: status.block_size_bytes,
            strip_size_bytes: status.strip_size_bytes,
            groups: status.groups,
            data: status.data,
            parity: status.parity,
            region_size_bytes: status.region_size_bytes,
            unused_bytes: status.unused_bytes,
        }),
        members: status.members.iter().map(member).collect(),
        tasks: status.tasks.iter().map(task).collect(),
        last_scrub: status.last_scrub.as_ref().map(task),
        generation: status.generation,
        epoch: status.epoch,
        regions: Some(api::Regions {
            unwritten,
            clean,
            dirty,
            needs_resync,
        }),
        consistency: Some(keeping(status, protected_after)),
        counters: Some(api::Counters {
            reads: status.reads,
            writes: status.writes,
            read_bytes: status.read_bytes,
            write_bytes: status.write_bytes,
            full_stripe_writes,
            read_modify_writes,
            reconstruct_writes,
            joined_writes,
            gathered_bytes: status.gathered_bytes,
        }),
        kernel: status.kernel.clone(),
        rebuild_priority_percent: status.rebuild_priority,
        exports,
        warnings: status.warnings.clone(),
    }
}

/// An array that does not run: what the state file remembers.
pub fn resting(
    known: &KnownArray,
    state: api::ArrayState,
    reason: Option<String>,
    exports: Vec<api::Export>,
) -> api::ArrayDetail {
    api::ArrayDetail {
        uuid: known.uuid,
        name: known.name.clone(),
        state,
        reason,
        level: known.level.clone(),
        size_bytes: 0,
        read_only: known.read_only,
        autostart: known.autostart,
        survives: None,
        geometry: None,
        members: known.drives.iter().map(resting_member).collect(),
        tasks: Vec::new(),
        last_scrub: None,
        generation: known.generation,
        epoch: 0,
        regions: None,
        consistency: None,
        counters: None,
        kernel: String::new(),
        rebuild_priority_percent: 0,
        exports,
        warnings: Vec::new(),
    }
}

fn resting_member(drive: &crate::daemon::state::KnownDrive) -> api::Member {
    api::Member {
        index: drive.member,
        group: 0,
        state: api::MemberState::Unknown,
        path: drive.spec.clone(),
        serial: drive.serial.clone(),
        size_bytes: 0,
        read_errors: 0,
        write_errors: 0,
        volatile_cache: None,
        notes: Vec::new(),
    }
}

/// The short form of a detail.
pub fn summary(detail: &api::ArrayDetail) -> api::ArraySummary {
    let active = |member: &&api::Member| member.state == api::MemberState::Active;
    api::ArraySummary {
        uuid: detail.uuid,
        name: detail.name.clone(),
        state: detail.state,
        reason: detail.reason.clone(),
        level: detail.level.clone(),
        size_bytes: detail.size_bytes,
        members: detail.members.len() as u16,
        members_active: detail.members.iter().filter(active).count() as u16,
        read_only: detail.read_only,
        tasks: detail.tasks.clone(),
        exports: detail.exports.len() as u16,
    }
}
