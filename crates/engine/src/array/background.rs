//! Long work: resync after an unclean stop, rebuild of members, scrub.
//!
//! Each is a window that moves over the bands of the array. Bands below `next` that are not
//! outstanding are done, so any number may be under way and end in any order. Resync goes before
//! rebuild, rebuild before scrub; one moves at a time. While clients are busy the window narrows
//! by the rebuild priority, and below one band pauses in proportion to what a band took.

use std::collections::BTreeSet;

use super::*;
use crate::format::superblock::MemberState;
use ops::{OpEnd, Purpose};

/// Bands under way when clients are idle.
const WINDOW_IDLE: usize = 16;
/// Clients count as busy for this long after a request.
const BUSY_NS: u64 = 50_000_000;
/// Rebuild progress is made durable this often.
const SAVE_EVERY_NS: u64 = 2_000_000_000;
/// Work that failed somewhere is tried again after this long, or when a member changes.
const RETRY_NS: u64 = 30_000_000_000;
/// Regions skipped in one step at most, so that one step stays short.
const SKIPS_MAX: usize = 4096;
/// Bands that may fail before a pass gives up until its retry.
const FAILED_MAX: usize = 1 << 16;

/// Kind of long work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskKind {
    /// Parity made true again after an unclean stop.
    Resync,
    /// Members refilled.
    Rebuild,
    /// Everything read and checked.
    Scrub,
}

impl TaskKind {
    /// Name for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            TaskKind::Resync => "resync",
            TaskKind::Rebuild => "rebuild",
            TaskKind::Scrub => "scrub",
        }
    }
}

/// Where long work stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskReport {
    /// Kind.
    pub kind: TaskKind,
    /// Bytes of each member done.
    pub done_bytes: u64,
    /// Bytes of each member in all.
    pub total_bytes: u64,
    /// Bytes a second of each member, recent.
    pub rate_bytes: u64,
    /// Scrub: bands whose parity did not hold.
    pub mismatches: u64,
    /// Bands whose parity was rewritten.
    pub repaired: u64,
    /// Bands that could not be worked on.
    pub errors: u64,
}

struct Pass {
    kind: TaskKind,
    repair: bool,
    start: u64,
    next: u64,
    end: u64,
    outstanding: BTreeSet<u64>,
    failed: BTreeSet<u64>,
    /// Resync: regions below have been looked at.
    regions_seen: u32,
    /// Members that this pass refills.
    members: Vec<MemberIndex>,
    /// No new bands: the pass ends when the outstanding ones have.
    draining: bool,
    /// A pause ends then, or when clients have been idle for a while, or by a higher priority.
    resume_ns: u64,
    /// During a pause: when to look again whether it goes on.
    look_ns: u64,
    next_save_ns: u64,
    saving: Saving,
    mismatches: u64,
    repaired: u64,
    rate_from: (u64, u64),
    rate_bytes: u64,
    /// When the last band began.
    band_started_ns: u64,
}

/// A flush of the refilled members under way, before progress (or the end) is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Saving {
    No,
    Flushing { left: u32, low: u64, failed: bool },
}

impl Pass {
    fn low(&self) -> u64 {
        [self.outstanding.first(), self.failed.first()]
            .into_iter()
            .flatten()
            .fold(self.next, |low, &band| low.min(band))
    }

    fn at_end(&self) -> bool {
        self.next >= self.end && self.outstanding.is_empty()
    }
}

/// Bands under way while clients are busy, by the rebuild priority in per cent; below one a share of
/// the time.
///
/// What clients lose is what the drives' queues hold of long work, so few bands cost much: beside
/// deep random reads of paced drives the default's 3 leave clients nine tenths and the rebuild a sixth
/// to a fifth of its drive's speed (`strake bench shares --only under`). So half of the priorities is
/// for at most 3 bands, and the lowest third for pauses.
fn busy_window(priority_percent: u8) -> f64 {
    const EXPONENT: f64 = 2.4;
    let share = f64::from(priority_percent.clamp(1, 100)) / 100.0;
    let one_band = (WINDOW_IDLE as f64).powf(-1.0 / EXPONENT);
    if share < one_band {
        return share / one_band;
    }
    WINDOW_IDLE as f64 * share.powf(EXPONENT)
}

/// Long work of one array.
#[derive(Default)]
pub(super) struct Background {
    pass: Option<Pass>,
    /// Scrub that waits for more urgent work: repair, place to go on, what it found so far.
    scrub: Option<Box<Pass>>,
    last_scrub: Option<TaskReport>,
    retry_ns: u64,
    /// A resync that cannot succeed yet must not keep a rebuild from starting.
    resync_retry_ns: u64,
    stepping: bool,
    again: bool,
    halted: bool,
    start_after_change: bool,
}

impl Background {
    /// The band has been refilled on this member by the running pass.
    pub(super) fn has_rebuilt(&self, member: MemberIndex, band: BandKey) -> bool {
        self.pass.as_ref().is_some_and(|pass| {
            pass.kind == TaskKind::Rebuild
                && pass.start <= band.0
                && band.0 < pass.next
                && !pass.outstanding.contains(&band.0)
                && !pass.failed.contains(&band.0)
                && pass.members.contains(&member)
        })
    }

    /// A write failed in part: a resync that has passed the band has not made it true.
    pub(super) fn band_failed(&mut self, band: BandKey) {
        if let Some(pass) = &mut self.pass
            && pass.kind == TaskKind::Resync
            && pass.start <= band.0
            && band.0 < pass.next
        {
            pass.failed.insert(band.0);
        }
    }

    /// A member left: what was refilled there says nothing of the drive that takes its place.
    pub(super) fn member_left(&mut self, member: MemberIndex) {
        if let Some(pass) = &mut self.pass {
            pass.members.retain(|&other| other != member);
        }
    }

    /// Something changed: what failed may work now.
    pub(super) fn retry(&mut self) {
        self.retry_ns = 0;
        self.resync_retry_ns = 0;
        self.start_after_change = true;
    }

    pub(super) fn next_step_ns(&self) -> Option<u64> {
        if self.halted {
            return None;
        }
        if self.start_after_change {
            return Some(0);
        }
        match &self.pass {
            // The end of the flush goes on.
            Some(pass) if pass.saving != Saving::No => None,
            Some(pass) if pass.outstanding.is_empty() => Some(pass.resume_ns.min(pass.look_ns)),
            // Completions go on; only a rebuild has progress to save meanwhile.
            Some(pass) if pass.kind != TaskKind::Rebuild => None,
            Some(pass) => Some(pass.next_save_ns),
            None => [self.retry_ns, self.resync_retry_ns]
                .into_iter()
                .filter(|&at| at > 0)
                .min(),
        }
    }

    /// I/O of long work is under way.
    pub(super) fn busy(&self) -> bool {
        self.pass
            .as_ref()
            .is_some_and(|pass| !pass.outstanding.is_empty() || pass.saving != Saving::No)
    }
}

impl Array {
    /// Running long work.
    pub fn tasks(&self) -> Vec<TaskReport> {
        let running = self.background.pass.as_ref().into_iter();
        let waiting = self.background.scrub.as_deref().into_iter();
        running
            .chain(waiting)
            .map(|pass| self.report(pass))
            .collect()
    }

    /// Outcome of the last scrub that came to its end since the start.
    pub fn last_scrub(&self) -> Option<TaskReport> {
        self.background.last_scrub
    }

    fn report(&self, pass: &Pass) -> TaskReport {
        TaskReport {
            kind: pass.kind,
            done_bytes: meta::bytes_below(&self.geometry, pass.low()),
            total_bytes: meta::bytes_below(&self.geometry, pass.end),
            rate_bytes: pass.rate_bytes,
            mismatches: pass.mismatches,
            repaired: pass.repaired,
            errors: pass.failed.len() as u64,
        }
    }

    fn new_pass(&self, kind: TaskKind, start: u64) -> Pass {
        Pass {
            kind,
            repair: false,
            start,
            next: start,
            end: self.geometry.stripes() * self.geometry.bands(),
            outstanding: BTreeSet::new(),
            failed: BTreeSet::new(),
            regions_seen: 0,
            members: Vec::new(),
            draining: false,
            resume_ns: 0,
            look_ns: u64::MAX,
            next_save_ns: self.now_ns + SAVE_EVERY_NS,
            saving: Saving::No,
            mismatches: 0,
            repaired: 0,
            rate_from: (self.now_ns, meta::bytes_below(&self.geometry, start)),
            rate_bytes: 0,
            band_started_ns: self.now_ns,
        }
    }

    pub(super) fn scrub_start(
        &mut self,
        repair: bool,
        out: &mut Vec<Action>,
    ) -> Result<(), CommandError> {
        let running = self.background.scrub.is_some()
            || self
                .background
                .pass
                .as_ref()
                .is_some_and(|pass| pass.kind == TaskKind::Scrub);
        if running {
            return Err(CommandError {
                kind: CommandErrorKind::Conflict,
                message: "a scrub is already running: see it with `array show`, end it with `array scrub --stop`".into(),
            });
        }
        if self.geometry.parity() == 0 {
            return Err(CommandError {
                kind: CommandErrorKind::Refused,
                message: "raid0 keeps no redundancy: there is nothing to compare".into(),
            });
        }
        let mut pass = self.new_pass(TaskKind::Scrub, 0);
        pass.repair = repair;
        self.background.scrub = Some(Box::new(pass));
        self.background_step(out);
        Ok(())
    }

    pub(super) fn scrub_stop(&mut self, out: &mut Vec<Action>) -> Result<(), CommandError> {
        if self.background.scrub.take().is_some() {
            return Ok(());
        }
        match &mut self.background.pass {
            Some(pass) if pass.kind == TaskKind::Scrub => {
                pass.draining = true;
                self.background_step(out);
                Ok(())
            }
            _ => Err(CommandError {
                kind: CommandErrorKind::Conflict,
                message: "no scrub is running".into(),
            }),
        }
    }

    /// No new work: the array stops.
    pub(super) fn background_halt(&mut self) {
        self.background.halted = true;
    }

    /// Members changed: a running rebuild ends where it is and the next begins with today's set.
    pub(super) fn rebuild_restart(&mut self, out: &mut Vec<Action>) {
        if let Some(pass) = &mut self.background.pass
            && pass.kind == TaskKind::Rebuild
        {
            pass.draining = true;
        }
        self.background_step(out);
    }

    /// Starts what is most urgent and lets it work as far as its window allows.
    pub(super) fn background_step(&mut self, out: &mut Vec<Action>) {
        self.background.again = true;
        if self.background.stepping
            || self.background.halted
            || self.mode != Mode::Running
            || self.read_only
        {
            return;
        }
        self.background.stepping = true;
        while std::mem::take(&mut self.background.again) {
            self.background.start_after_change = false;
            self.yield_scrub();
            if self.background.pass.is_none() {
                self.pass_begin(out);
            }
            self.pass_work(out);
            self.pass_save(out);
            self.pass_end(out);
        }
        for at in [
            &mut self.background.retry_ns,
            &mut self.background.resync_retry_ns,
        ] {
            if self.now_ns >= *at {
                *at = 0;
            }
        }
        self.background.stepping = false;
    }

    /// A scrub makes way when something more urgent has come up.
    fn yield_scrub(&mut self) {
        let urgent = self.wants_resync() || self.wants_rebuild();
        if let Some(pass) = &mut self.background.pass
            && pass.kind == TaskKind::Scrub
            && urgent
            && !pass.draining
            && pass.outstanding.is_empty()
        {
            self.background.scrub = self.background.pass.take().map(Box::new);
        }
    }

    fn wants_resync(&self) -> bool {
        self.regions.any_needs_sync() && self.now_ns >= self.background.resync_retry_ns
    }

    fn wants_rebuild(&self) -> bool {
        !self.all_active
            && self.now_ns >= self.background.retry_ns
            && self
                .members
                .iter()
                .any(|m| m.is_live() && m.state == MemberState::Rebuilding)
    }

    fn pass_begin(&mut self, out: &mut Vec<Action>) {
        let pass = if self.wants_resync() {
            self.new_pass(TaskKind::Resync, 0)
        } else if self.wants_rebuild() {
            let members: Vec<MemberIndex> = self
                .live_members()
                .filter(|m| self.members[m.at()].state == MemberState::Rebuilding)
                .collect();
            let start = members
                .iter()
                .map(|m| self.members[m.at()].position)
                .min()
                .unwrap_or(0);
            Pass {
                members,
                ..self.new_pass(TaskKind::Rebuild, start)
            }
        } else if let Some(mut scrub) = self.background.scrub.take() {
            scrub.draining = false;
            *scrub
        } else {
            return;
        };
        out.push(Action::event(Event::TaskStarted(pass.kind)));
        self.background.pass = Some(pass);
    }

    /// How many bands may be under way now; below one: for which share of the time one may.
    fn window(&self) -> f64 {
        if self.clients_busy() {
            busy_window(self.meta.superblock().rebuild_priority)
        } else {
            WINDOW_IDLE as f64
        }
    }

    fn clients_busy(&self) -> bool {
        self.requests.used() > 0
            || self.last_request_ns > 0 && self.now_ns < self.last_request_ns + BUSY_NS
    }

    fn pass_work(&mut self, out: &mut Vec<Action>) {
        for _ in 0..SKIPS_MAX {
            let window = self.window();
            let Some(pass) = &mut self.background.pass else {
                return;
            };
            // A priority raised meanwhile ends a pause, too.
            let paused = window < 1.0 && self.now_ns < pass.resume_ns;
            if paused {
                pass.look_ns = self.now_ns + BUSY_NS;
            }
            let pass = self.background.pass.as_ref().expect("runs");
            let urgent = self.wants_resync() || self.wants_rebuild();
            let wait = pass.draining
                || pass.kind == TaskKind::Scrub && urgent
                || pass.next >= pass.end
                || pass.outstanding.len() >= window.round().max(1.0) as usize
                || pass.failed.len() >= FAILED_MAX
                || paused;
            if wait {
                return;
            }
            let band = BandKey(pass.next);
            let kind = pass.kind;
            if let Some(next) = self.skip_from(kind, band) {
                self.background.pass.as_mut().expect("runs").next = next;
                continue;
            }
            let pass = self.background.pass.as_mut().expect("runs");
            pass.outstanding.insert(band.0);
            pass.next += 1;
            pass.band_started_ns = self.now_ns;
            let purpose = match kind {
                TaskKind::Resync => Purpose::Resync,
                TaskKind::Rebuild => Purpose::Rebuild,
                TaskKind::Scrub => Purpose::Check,
            };
            self.begin_work_op(purpose, band, out);
        }
        // More to skip than one step may: go on at the next tick.
        self.background.start_after_change = true;
    }

    /// Where to go on when there is nothing to do at `band`.
    fn skip_from(&self, kind: TaskKind, band: BandKey) -> Option<u64> {
        let region = self.geometry.region(self.stripe_of(band));
        let skip = match kind {
            TaskKind::Resync => !self.regions.needs_sync(region),
            TaskKind::Rebuild => self.regions.is_unwritten(region),
            TaskKind::Scrub => self.regions.is_unwritten(region) || self.regions.needs_sync(region),
        };
        if skip {
            let bands = self.geometry.stripes_per_region() * self.geometry.bands();
            return Some((u64::from(region) + 1) * bands);
        }
        (kind == TaskKind::Rebuild && self.rebuild_targets(band) == 0).then_some(band.0 + 1)
    }

    pub(super) fn background_op_ended(&mut self, end: OpEnd, out: &mut Vec<Action>) {
        self.look_at_reads();
        let window = self.window();
        let now = self.now_ns;
        let Some(pass) = &mut self.background.pass else {
            return;
        };
        if pass.kind == TaskKind::Scrub && end.purpose == Purpose::Check && end.differing != 0 {
            pass.mismatches += 1;
            if pass.repair && !pass.draining {
                // Stays outstanding until its parity has been rewritten.
                return self.begin_work_op(Purpose::Resync, end.band, out);
            }
        }
        pass.outstanding.remove(&end.band.0);
        match end.result {
            Ok(()) if end.purpose == Purpose::Resync => pass.repaired += 1,
            Ok(()) => {}
            Err(_) => {
                pass.failed.insert(end.band.0);
            }
        }
        if window < 1.0 && pass.outstanding.is_empty() {
            let took = now.saturating_sub(pass.band_started_ns).min(1_000_000_000);
            pass.resume_ns = now + (took as f64 * (1.0 / window - 1.0)) as u64;
        }
        self.measure_rate();
        self.background_step(out);
    }

    fn measure_rate(&mut self) {
        let now = self.now_ns;
        let Some(pass) = &self.background.pass else {
            return;
        };
        let done = meta::bytes_below(&self.geometry, pass.low());
        let pass = self.background.pass.as_mut().expect("runs");
        let (then, before) = pass.rate_from;
        let elapsed = now.saturating_sub(then);
        if elapsed >= 500_000_000 {
            pass.rate_bytes = (u128::from(done.saturating_sub(before)) * 1_000_000_000
                / u128::from(elapsed)) as u64;
            pass.rate_from = (now, done);
        }
    }

    /// Flushes the refilled members before progress, or the end of the rebuild, is recorded.
    fn pass_save(&mut self, out: &mut Vec<Action>) {
        let now = self.now_ns;
        let Some(pass) = &self.background.pass else {
            return;
        };
        if pass.kind != TaskKind::Rebuild || pass.saving != Saving::No {
            return;
        }
        let due = now >= pass.next_save_ns;
        let over = pass.outstanding.is_empty() && (pass.at_end() || pass.draining);
        if !due && !over {
            return;
        }
        if !self.rebuild_has_unsaved(pass) {
            let pass = self.background.pass.as_mut().expect("runs");
            pass.next_save_ns = pass.next_save_ns.max(now + SAVE_EVERY_NS);
            return;
        }
        let low = pass.low();
        let members: Vec<MemberIndex> = pass
            .members
            .iter()
            .copied()
            .filter(|m| self.members[m.at()].is_live())
            .collect();
        let pass = self.background.pass.as_mut().expect("runs");
        pass.next_save_ns = now + SAVE_EVERY_NS;
        pass.saving = Saving::Flushing {
            left: members.len() as u32,
            low,
            failed: false,
        };
        for member in members {
            let io = Io {
                token: Token::new(Class::Background, 0, u32::from(member.0)),
                member,
                offset: 0,
                length: 0,
                kind: IoKind::Flush,
            };
            self.member_io(io, out);
        }
    }

    pub(super) fn background_io_done(
        &mut self,
        token: Token,
        result: Result<(), IoError>,
        out: &mut Vec<Action>,
    ) {
        let member = MemberIndex(token.part() as u16);
        self.member_io_ended(member);
        let dropped = result.is_err() && self.write_failed(member, out);
        let bad = result.is_err() && !dropped;
        let pass = self
            .background
            .pass
            .as_mut()
            .expect("a pass waits for its flush");
        let Saving::Flushing { left, low, failed } = pass.saving else {
            unreachable!("a flush of long work is under way")
        };
        let failed = failed || bad;
        if left > 1 {
            pass.saving = Saving::Flushing {
                left: left - 1,
                low,
                failed,
            };
            return;
        }
        pass.saving = Saving::No;
        if !failed {
            self.rebuild_reached(low, out);
        }
        self.background_step(out);
        self.stop_step(out);
    }

    /// Everything below `low` is durable on the refilled members.
    fn rebuild_reached(&mut self, low: u64, out: &mut Vec<Action>) {
        let pass = self.background.pass.as_ref().expect("runs");
        let complete = low >= pass.end;
        let members = pass.members.clone();
        let mut changed = false;
        for member in members {
            let it = &mut self.members[member.at()];
            if !it.is_live() || it.state != MemberState::Rebuilding {
                continue;
            }
            if complete {
                it.state = MemberState::Active;
                changed = true;
            } else if low > it.position {
                it.position = low;
                changed = true;
            }
        }
        if changed {
            self.members_changed();
            self.meta_save(out);
        }
    }

    /// Before a clean stop, after a flush: what has been refilled is kept.
    pub(super) fn background_keep_position(&mut self) {
        let Some(pass) = &self.background.pass else {
            return;
        };
        if pass.kind != TaskKind::Rebuild {
            return;
        }
        let low = pass.low();
        for member in pass.members.clone() {
            let it = &mut self.members[member.at()];
            if it.state == MemberState::Rebuilding && low > it.position {
                it.position = low;
            }
        }
    }

    fn pass_end(&mut self, out: &mut Vec<Action>) {
        self.resync_advance();
        let Some(pass) = &self.background.pass else {
            return;
        };
        let gave_up = pass.failed.len() >= FAILED_MAX && pass.outstanding.is_empty();
        let over = pass.at_end() || pass.outstanding.is_empty() && pass.draining || gave_up;
        if !over || pass.saving != Saving::No {
            return;
        }
        if pass.kind == TaskKind::Rebuild && self.rebuild_has_unsaved(pass) {
            return;
        }
        let report = self.report(pass);
        let pass = self.background.pass.take().expect("runs");
        if !pass.failed.is_empty() && !pass.draining {
            let retry_ns = self.now_ns + RETRY_NS;
            match pass.kind {
                TaskKind::Resync => self.background.resync_retry_ns = retry_ns,
                TaskKind::Rebuild => self.background.retry_ns = retry_ns,
                TaskKind::Scrub => {}
            }
        }
        if pass.kind == TaskKind::Scrub && pass.at_end() {
            self.background.last_scrub = Some(report);
        }
        out.push(Action::event(Event::TaskEnded(report)));
        self.background.again = true;
    }

    /// A finished rebuild waits for the save that makes its members active; a drained one for the
    /// save of its position.
    fn rebuild_has_unsaved(&self, pass: &Pass) -> bool {
        let low = pass.low();
        pass.members.iter().any(|m| {
            let it = &self.members[m.at()];
            // Stopped between its last band and the save, a member begins at the end.
            let reached = it.position < low || low >= pass.end;
            it.is_live() && it.state == MemberState::Rebuilding && reached
        })
    }

    /// Regions that the resync has passed without an error are true again.
    fn resync_advance(&mut self) {
        let Some(pass) = &self.background.pass else {
            return;
        };
        if pass.kind != TaskKind::Resync {
            return;
        }
        let bands = self.geometry.stripes_per_region() * self.geometry.bands();
        let busy_from = pass.outstanding.first().copied().unwrap_or(pass.next);
        let below = (busy_from / bands) as u32;
        let done: Vec<u32> = (pass.regions_seen..below)
            .filter(|&region| {
                let first = u64::from(region) * bands;
                self.regions.needs_sync(region)
                    && pass.failed.range(first..first + bands).next().is_none()
            })
            .collect();
        let pass = self.background.pass.as_mut().expect("runs");
        pass.regions_seen = below.max(pass.regions_seen);
        for region in done {
            self.region_synced(region);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_while_clients_are_busy_grows_with_the_priority() {
        let windows: Vec<f64> = (1..=100).map(busy_window).collect();
        assert!(windows.is_sorted_by(|a, b| a < b));
        assert_eq!(busy_window(100), WINDOW_IDLE as f64);
        assert_eq!(busy_window(50).round(), 3.0);
        assert!(busy_window(31) < 1.0 && busy_window(32) > 1.0);
        assert!(busy_window(1) > 0.03);
    }
}
