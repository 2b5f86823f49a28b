//! Regions: unwritten until their first write, dirty while writes may be in flight.
//!
//! One *job* at a time changes the map: it zeroes what is written for the first time, flushes,
//! writes the changed map pages durably to every live member, and only then lets the waiting
//! operations on. Everything that waits while a job runs becomes the next job (group commit).
//!
//! An unwritten region may hold anything: it is zeroed and flushed before the map says that it
//! is written, so a crash at any step leaves it unwritten or all zeroes. The map page is the one
//! commit point; a separate durable `zeroing` mark would protect nothing more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::published::{Published, RegionReads};
use super::*;
use crate::format::region_map::{
    MAP_PAGE_BYTES, MapPlace, RegionEntry, RegionState, encode_page, page_of,
};
use crate::format::superblock::Consistency;
use log::DrainFor;

/// A dirty region without writes for this long is made clean.
const IDLE_BEFORE_CLEAN_NS: u64 = 3_000_000_000;
/// Cleaning is looked at this often.
const CLEAN_EVERY_NS: u64 = 1_000_000_000;
/// Regions made ready ahead of writes that go forward, so that these wait for one map commit in
/// sixteen, or none. At most this many bytes of each member.
const AHEAD_REGIONS: u32 = 15;
const AHEAD_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for the next job to make it dirty.
    Wanted,
    /// In the running job.
    Changing,
    /// Dirty on disk: writes may go on.
    Open,
}

struct Active {
    phase: Phase,
    in_flight: u32,
    waiting: VecDeque<OpId>,
    /// A discard that waits for the writes in flight, and for the log to retire them.
    discards: Vec<RequestId>,
    draining: bool,
    drained: bool,
    last_use_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Zero,
    Flush,
    /// Until every member that left is recorded as gone: what it missed here must not be taken for
    /// done when it comes back.
    Absence,
    /// At a start: members that have older pages get the present ones, beside theirs.
    CatchUp,
    Pages,
    /// Reads that began before the map said unwritten must end: what they read is about to go.
    Readers,
    Discard,
}

struct Job {
    stage: Stage,
    outstanding: u32,
    failed: bool,
    changes: BTreeMap<u32, RegionState>,
    /// Pages to be written as they are, first to the members that have older ones.
    rewrite: BTreeMap<u32, Vec<Behind>>,
    /// Regions to be zeroed first.
    zero: Vec<u32>,
    /// Flush before the pages are written.
    flush: bool,
    /// Regions whose content is given up after the pages are written.
    discard: Vec<u32>,
    /// A member that gets every page (it has just been put in).
    whole_map_for: Option<MemberIndex>,
}

/// The region map and what is going on with it.
pub(super) struct Regions {
    map: RegionMap,
    published: Arc<Published>,
    active: FastMap<u32, Active>,
    wanted: BTreeSet<u32>,
    cleaning: BTreeSet<u32>,
    /// At a stop: regions whose resync has not ended, to be recorded as such.
    unsure: BTreeSet<u32>,
    /// At a start: pages that some member does not have as they are here.
    rewrite: BTreeMap<u32, Vec<Behind>>,
    job: Option<Job>,
    new_members: VecDeque<MemberIndex>,
    /// Operations that read what is stored in a region: its content is not given up under them.
    visitors: FastMap<u32, u32>,
    next_clean_ns: u64,
    /// Reads without a lock under way, by the parity of the epoch in which they began. A discard opens
    /// a new epoch and waits for the one before.
    readers: [u32; 2],
    epoch: u8,
    /// Bands of regions in state needs-sync whose copies or parities have been made true since.
    settled: FastMap<u32, BTreeSet<u64>>,
    /// Regions in state needs-sync: a quick answer for the usual zero.
    needs_sync: u64,
    stopping: bool,
}

impl Regions {
    pub(super) fn new(
        geometry: &Geometry,
        map: RegionMap,
        rewrite: BTreeMap<u32, Vec<Behind>>,
        now_ns: u64,
    ) -> Regions {
        assert_eq!(map.regions(), geometry.regions());
        let reads = map.entries.iter().map(|e| RegionReads::of(e.state()));
        let published = Arc::new(Published::new(geometry.shape().members(), reads));
        let needs_sync = map
            .entries
            .iter()
            .filter(|e| e.state() == RegionState::NeedsSync)
            .count();
        // Without parity (or by force) a region stays dirty over a crash: to be cleaned when idle.
        let dirty: Vec<u32> = (0..map.entries.len() as u32)
            .filter(|&region| map.entries[region as usize].state() == RegionState::Dirty)
            .collect();
        let mut regions = Regions {
            map,
            published,
            active: FastMap::default(),
            wanted: BTreeSet::new(),
            cleaning: BTreeSet::new(),
            unsure: BTreeSet::new(),
            rewrite,
            job: None,
            new_members: VecDeque::new(),
            visitors: FastMap::default(),
            next_clean_ns: 0,
            readers: [0; 2],
            epoch: 0,
            settled: FastMap::default(),
            needs_sync: needs_sync as u64,
            stopping: false,
        };
        for region in dirty {
            regions.activate(region, Phase::Open, now_ns);
        }
        regions
    }

    pub(super) fn state(&self, region: u32) -> RegionState {
        self.map.entries[region as usize].state()
    }

    pub(super) fn is_unwritten(&self, region: u32) -> bool {
        self.state(region) == RegionState::Unwritten
    }

    /// Writes may have been under way there before this start.
    pub(super) fn may_be_written(&self, region: u32) -> bool {
        matches!(
            self.state(region),
            RegionState::Dirty | RegionState::NeedsSync
        )
    }

    pub(super) fn needs_sync(&self, region: u32) -> bool {
        self.needs_sync > 0 && self.state(region) == RegionState::NeedsSync
    }

    pub(super) fn all_needing_sync(&self) -> BTreeSet<u32> {
        (0..self.len())
            .filter(|&region| self.state(region) == RegionState::NeedsSync)
            .collect()
    }

    pub(super) fn any_needs_sync(&self) -> bool {
        self.needs_sync > 0
    }

    pub(super) fn is_active(&self, region: u32) -> bool {
        self.active.contains_key(&region)
    }

    pub(super) fn len(&self) -> u32 {
        self.map.entries.len() as u32
    }

    pub(super) fn counts(&self) -> [u64; 4] {
        let mut counts = [0; 4];
        for entry in &self.map.entries {
            counts[match entry.state() {
                RegionState::Unwritten | RegionState::Zeroing => 0,
                RegionState::Clean => 1,
                RegionState::Dirty => 2,
                RegionState::NeedsSync => 3,
            }] += 1;
        }
        counts
    }

    pub(super) fn next_clean_ns(&self) -> Option<u64> {
        (!self.active.is_empty()).then_some(self.next_clean_ns)
    }

    /// Pages are to be written before a start goes on.
    pub(super) fn has_rewrites(&self) -> bool {
        let running = self.job.as_ref();
        !self.rewrite.is_empty() || running.is_some_and(|job| !job.rewrite.is_empty())
    }

    /// Writes go on at once there, or soon.
    pub(super) fn is_ready(&self, region: u32) -> bool {
        self.may_be_written(region) || self.is_active(region)
    }

    /// Regions are becoming dirty, perhaps without anybody who waits for them.
    pub(super) fn is_opening(&self) -> bool {
        self.job.is_some() || !self.wanted.is_empty()
    }

    /// The map is being written, or is about to be.
    pub(super) fn is_changing(&self) -> bool {
        self.job.is_some() || !self.unsure.is_empty()
    }

    /// Every dirty region needs a resync, and is to be recorded so. Before anything is served.
    pub(super) fn doubt_dirty(&mut self) -> Vec<u32> {
        let dirty: Vec<u32> = (0..self.len())
            .filter(|&region| self.state(region) == RegionState::Dirty)
            .collect();
        for &region in &dirty {
            let generation = self.map.entries[region as usize].generation();
            self.set(region, RegionState::NeedsSync, generation);
            self.active.remove(&region);
            self.unsure.insert(region);
        }
        dirty
    }

    /// No job runs or waits, and no region is open.
    pub(super) fn is_quiet(&self) -> bool {
        self.job.is_none()
            && self.wanted.is_empty()
            && self.active.is_empty()
            && self.new_members.is_empty()
            && self.unsure.is_empty()
    }

    fn set(&mut self, region: u32, state: RegionState, generation: u64) {
        let was = self.state(region);
        if was == RegionState::NeedsSync {
            self.needs_sync -= 1;
        }
        if state == RegionState::NeedsSync {
            self.needs_sync += 1;
        }
        self.settled.remove(&region);
        self.map.entries[region as usize] = RegionEntry::new(state, generation);
        self.published.set_region(region, RegionReads::of(state));
    }

    pub(super) fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// Copies of a band agree, durably.
    pub(super) fn settle(&mut self, region: u32, band: BandKey) {
        if self.needs_sync(region) {
            self.settled.entry(region).or_default().insert(band.0);
        }
    }

    pub(super) fn is_settled(&self, region: u32, band: BandKey) -> bool {
        let settled = self.settled.get(&region);
        !self.needs_sync(region) || settled.is_some_and(|bands| bands.contains(&band.0))
    }

    fn activate(&mut self, region: u32, phase: Phase, now_ns: u64) -> &mut Active {
        self.active.entry(region).or_insert_with(|| Active {
            phase,
            in_flight: 0,
            waiting: VecDeque::new(),
            discards: Vec::new(),
            draining: false,
            drained: false,
            last_use_ns: now_ns,
        })
    }
}

impl std::fmt::Debug for Regions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let job = self.job.as_ref().map(|job| (job.stage, job.outstanding));
        f.debug_struct("Regions")
            .field("active", &self.active.len())
            .field("wanted", &self.wanted)
            .field("unsure", &self.unsure)
            .field("job", &job)
            .finish_non_exhaustive()
    }
}

/// A read under way that holds no lock: a discard must not overtake it on the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Reader(u8);

impl Array {
    /// Something is about to be read without a lock.
    pub(super) fn reader_enter(&mut self) -> Reader {
        let epoch = self.regions.epoch;
        self.regions.readers[usize::from(epoch)] += 1;
        Reader(epoch)
    }

    pub(super) fn reader_leave(&mut self, reader: Reader, out: &mut Vec<Action>) {
        self.regions.readers[usize::from(reader.0)] -= 1;
        let waits = self
            .regions
            .job
            .as_ref()
            .is_some_and(|job| job.stage == Stage::Readers);
        if waits {
            self.job_stage_done_if_idle(out);
        }
    }

    /// True: the region is dirty on disk and `op` is counted in it. False: `op` waits and is let
    /// on by [`Array::op_region_open`] or [`Array::op_region_failed`].
    pub(super) fn region_enter(&mut self, region: u32, op: OpId, out: &mut Vec<Action>) -> bool {
        let now = self.now_ns;
        let on_disk = matches!(
            self.regions.state(region),
            RegionState::Dirty | RegionState::NeedsSync
        );
        let phase = if on_disk { Phase::Open } else { Phase::Wanted };
        let known = self.regions.is_active(region);
        let active = self.regions.activate(region, phase, now);
        if active.phase == Phase::Open && active.discards.is_empty() {
            active.in_flight += 1;
            return true;
        }
        active.waiting.push_back(op);
        if !known {
            self.regions.wanted.insert(region);
            self.region_job_start(out);
        }
        false
    }

    /// True: `op` may read what is stored in the region until it leaves. False: the region is
    /// being given up; `op` waits and is let on as by [`Array::region_enter`].
    pub(super) fn region_visit(&mut self, region: u32, op: OpId) -> bool {
        let given_up = self
            .regions
            .job
            .as_ref()
            .is_some_and(|job| job.discard.contains(&region));
        if given_up {
            let active = self.regions.active.get_mut(&region).expect("discarding");
            active.waiting.push_back(op);
            return false;
        }
        *self.regions.visitors.entry(region).or_insert(0) += 1;
        true
    }

    pub(super) fn region_unvisit(&mut self, region: u32, out: &mut Vec<Action>) {
        let visitors = self.regions.visitors.get_mut(&region).expect("visited");
        *visitors -= 1;
        if *visitors > 0 {
            return;
        }
        self.regions.visitors.remove(&region);
        let waited = self.regions.active.get(&region).is_some_and(|a| {
            a.phase != Phase::Changing && a.in_flight == 0 && !a.discards.is_empty()
        });
        if waited {
            self.regions.wanted.insert(region);
            self.region_job_start(out);
        }
    }

    pub(super) fn region_leave(&mut self, region: u32, failed: bool, out: &mut Vec<Action>) {
        let now = self.now_ns;
        let active = self
            .regions
            .active
            .get_mut(&region)
            .expect("region is open");
        active.in_flight -= 1;
        active.last_use_ns = now;
        let discard = active.in_flight == 0 && !active.discards.is_empty();
        if failed && self.geometry.parity() > 0 {
            self.region_doubt(region, out);
        }
        if discard {
            self.regions.wanted.insert(region);
            self.region_job_start(out);
        }
    }

    /// Part of a stripe may be written and part not: parity there is not to be believed.
    fn region_doubt(&mut self, region: u32, out: &mut Vec<Action>) {
        self.regions.settled.remove(&region);
        if self.regions.state(region) == RegionState::Dirty {
            self.accepted.regions.remove(&region);
            let generation = self.regions.map.entries[region as usize].generation();
            self.regions.set(region, RegionState::NeedsSync, generation);
        }
        // Also where it needed one before: what parity says of them may have been believed.
        self.torn_list_missing(region, out);
        if self.log.is_on() {
            // After a crash only a recorded state says so: dirty regions are what the log says.
            self.regions.unsure.insert(region);
            self.region_job_start(out);
        }
    }

    /// Gives a region's content up on behalf of a request's part.
    pub(super) fn region_discard(
        &mut self,
        region: u32,
        request: RequestId,
        out: &mut Vec<Action>,
    ) {
        let now = self.now_ns;
        let known = self.regions.is_active(region);
        let active = self.regions.activate(region, Phase::Open, now);
        active.discards.push(request);
        if active.phase == Phase::Open && active.in_flight == 0 || !known {
            self.regions.wanted.insert(region);
            self.region_job_start(out);
        }
    }

    /// A member was put in: it gets the whole map before it counts.
    pub(super) fn regions_add_member(&mut self, member: MemberIndex, out: &mut Vec<Action>) {
        self.regions.new_members.push_back(member);
        self.region_job_start(out);
    }

    /// Starts the next job if none runs and something waits.
    pub(super) fn region_job_start(&mut self, out: &mut Vec<Action>) {
        // The torn list must not be behind when a region that was given up is written again.
        if self.regions.job.is_some() || !self.torn.is_quiet() || self.start_flushes > 0 {
            return;
        }
        let mut job = Job {
            stage: Stage::Zero,
            outstanding: 0,
            failed: false,
            changes: BTreeMap::new(),
            rewrite: BTreeMap::new(),
            zero: Vec::new(),
            flush: false,
            discard: Vec::new(),
            whole_map_for: None,
        };
        let mut drain = Vec::new();
        if let Some(member) = self.regions.new_members.pop_front() {
            // Alone, so that no other page is written while this member is not yet among the live.
            job.whole_map_for = Some(member);
            job.stage = Stage::Flush;
        } else {
            job.rewrite = std::mem::take(&mut self.regions.rewrite);
            drain = self.job_collect(&mut job);
        }
        let pages = !job.changes.is_empty() || !job.rewrite.is_empty();
        if pages || job.whole_map_for.is_some() {
            self.regions.job = Some(job);
            self.job_zero(out);
        }
        for region in drain {
            self.log_drain(DrainFor::Region(region), out);
        }
    }

    /// Returns the regions to be given up that the log must retire first.
    fn job_collect(&mut self, job: &mut Job) -> Vec<u32> {
        let mut drain = Vec::new();
        for region in std::mem::take(&mut self.regions.unsure) {
            job.changes.insert(region, RegionState::NeedsSync);
        }
        for region in std::mem::take(&mut self.regions.wanted) {
            let state = self.regions.state(region);
            let active = self
                .regions
                .active
                .get_mut(&region)
                .expect("wanted regions are active");
            let visited =
                !active.discards.is_empty() && self.regions.visitors.contains_key(&region);
            if visited || active.phase == Phase::Open && active.in_flight > 0 {
                continue; // a discard that must wait; the last one to leave asks again
            }
            if !active.discards.is_empty() && self.log.is_on() && !active.drained {
                if !std::mem::replace(&mut active.draining, true) {
                    drain.push(region);
                }
                continue;
            }
            active.phase = Phase::Changing;
            if !active.discards.is_empty() {
                active.drained = false;
                job.changes.insert(region, RegionState::Unwritten);
                job.discard.push(region);
                continue;
            }
            job.changes.insert(region, RegionState::Dirty);
            if state == RegionState::Unwritten {
                job.zero.push(region);
                self.job_zero_ahead(job, region);
            }
        }
        for region in std::mem::take(&mut self.regions.cleaning) {
            let Some(active) = self.regions.active.get_mut(&region) else {
                continue;
            };
            let idle = active.phase == Phase::Open && active.in_flight == 0;
            if !idle || !active.discards.is_empty() {
                continue;
            }
            if self.regions.map.entries[region as usize].state() != RegionState::Dirty {
                // A job that recorded it as needing a resync has ended since.
                self.regions.active.remove(&region);
                continue;
            }
            active.phase = Phase::Changing;
            job.changes.insert(region, RegionState::Clean);
            job.flush = true;
        }
        job.flush |= !job.zero.is_empty();
        drain
    }

    /// No entry of the log speaks of the region any more: it may be given up.
    pub(super) fn region_drained(&mut self, region: u32, out: &mut Vec<Action>) {
        if let Some(active) = self.regions.active.get_mut(&region) {
            active.draining = false;
            active.drained = !active.discards.is_empty();
            self.regions.wanted.insert(region);
        }
        self.region_job_start(out);
    }

    /// A first fill that goes on where the region before is already written gets the next ones
    /// zeroed in the same job.
    fn job_zero_ahead(&mut self, job: &mut Job, region: u32) {
        let sequential = region > 0
            && (!self.regions.is_unwritten(region - 1) || job.changes.contains_key(&(region - 1)));
        if !sequential {
            return;
        }
        let most = self.regions_ahead_most();
        // With what the job has to zero already, this region among it.
        let most = most.saturating_sub(job.zero.len() as u32 - 1);
        let state = if self.may_open_ahead() {
            RegionState::Dirty
        } else {
            RegionState::Clean
        };
        for next in region + 1..=(region + most).min(self.regions.len() - 1) {
            let free = self.regions.is_unwritten(next) && !self.regions.is_active(next);
            if !free || job.changes.contains_key(&next) {
                break;
            }
            job.changes.insert(next, state);
            job.zero.push(next);
            // Nobody may write there until this job is done.
            let now = self.now_ns;
            self.regions.activate(next, Phase::Changing, now);
        }
    }

    /// Regions that may be made ready ahead.
    pub(super) fn regions_ahead_most(&self) -> u32 {
        let bytes = AHEAD_BYTES_MAX / self.geometry.region_bytes();
        bytes.min(u64::from(AHEAD_REGIONS)) as u32
    }

    /// Not where what missing members hold in dirty regions may be doubtful after a crash: what
    /// nobody writes yet is not to be.
    fn may_open_ahead(&self) -> bool {
        let resync = self.meta.superblock().consistency == Consistency::Resync;
        self.geometry.parity() == 0 || self.all_active && !resync
    }

    /// These regions are about to be written: they become dirty in one change of the map, before
    /// anybody waits for it. False: nothing was done.
    pub(super) fn regions_ahead(
        &mut self,
        regions: std::ops::Range<u32>,
        out: &mut Vec<Action>,
    ) -> bool {
        if self.mode != Mode::Running || self.broken || !self.may_open_ahead() {
            return false;
        }
        let (now, end) = (self.now_ns, regions.end.min(self.regions.len()));
        for region in regions.start..end {
            let to_change = matches!(
                self.regions.state(region),
                RegionState::Unwritten | RegionState::Clean
            );
            if to_change && !self.regions.is_active(region) {
                self.regions.activate(region, Phase::Wanted, now);
                self.regions.wanted.insert(region);
            }
        }
        self.region_job_start(out);
        true
    }

    fn job_zero(&mut self, out: &mut Vec<Action>) {
        let job = self.regions.job.as_mut().expect("a job runs");
        let mut zero = job.zero.clone();
        zero.sort_unstable();
        let bytes = self.geometry.region_bytes();
        let start = self.data_offset();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for region in zero {
            let offset = start + u64::from(region) * bytes;
            match runs.last_mut() {
                // One operation stays below 1 GiB: lengths are 32 bits at the port.
                Some((first, length)) if *first + *length == offset && *length < 1 << 30 => {
                    *length += bytes
                }
                _ => runs.push((offset, bytes)),
            }
        }
        let live: Vec<MemberIndex> = self.live_members().collect();
        for &(offset, length) in &runs {
            for &member in &live {
                self.job_io(member, offset, length as u32, IoKind::WriteZeroes, out);
            }
        }
        self.job_stage_done_if_idle(out);
    }

    fn job_io(
        &mut self,
        member: MemberIndex,
        offset: u64,
        length: u32,
        kind: IoKind,
        out: &mut Vec<Action>,
    ) {
        let job = self.regions.job.as_mut().expect("a job runs");
        job.outstanding += 1;
        let io = Io {
            token: Token::new(Class::Region, 0, u32::from(member.0)),
            member,
            offset,
            length,
            kind,
        };
        self.member_io(io, out);
    }

    pub(super) fn region_io_done(
        &mut self,
        token: Token,
        result: Result<(), IoError>,
        out: &mut Vec<Action>,
    ) {
        let member = MemberIndex(token.part() as u16);
        self.member_io_ended(member);
        if result.is_err() {
            let job = self.regions.job.as_ref().expect("a job runs");
            let joining = job.whole_map_for == Some(member);
            // A discard is a hint: its failure costs nothing.
            if job.stage != Stage::Discard && (joining || !self.write_failed(member, out)) {
                self.regions.job.as_mut().expect("a job runs").failed = true;
            }
        }
        self.regions.job.as_mut().expect("a job runs").outstanding -= 1;
        self.job_stage_done_if_idle(out);
    }

    fn job_stage_done_if_idle(&mut self, out: &mut Vec<Action>) {
        loop {
            let job = self.regions.job.as_ref().expect("a job runs");
            if job.outstanding > 0 {
                return;
            }
            if job.failed && job.stage != Stage::Discard {
                return self.job_failed(out);
            }
            match job.stage {
                Stage::Zero => {
                    self.job_enter(Stage::Flush);
                    self.job_flush(out);
                }
                Stage::Flush => self.job_enter(Stage::Absence),
                Stage::Absence => {
                    if self.broken {
                        // Who left will not be recorded: no page may say that all is well.
                        return self.job_failed(out);
                    }
                    // Before a start is saved for the first time no absence can be recorded.
                    if self.meta_absence_unrecorded() && self.meta.is_recorded() {
                        return;
                    }
                    self.job_enter(Stage::CatchUp);
                    self.job_catch_up(out);
                }
                Stage::CatchUp => {
                    self.job_enter(Stage::Pages);
                    self.job_pages(out);
                }
                Stage::Pages => {
                    self.job_commit(out);
                    self.regions.epoch ^= u8::from(self.job_has_discards());
                    self.job_enter(Stage::Readers);
                }
                Stage::Readers => {
                    let before = usize::from(self.regions.epoch ^ 1);
                    if self.job_has_discards() && self.regions.readers[before] > 0 {
                        return;
                    }
                    self.job_enter(Stage::Discard);
                    self.job_discards(out);
                }
                Stage::Discard => return self.job_done(out),
            }
        }
    }

    /// Members that left are recorded as gone.
    pub(super) fn job_absence_recorded(&mut self, out: &mut Vec<Action>) {
        let waits = |job: &Job| job.stage == Stage::Absence && job.outstanding == 0;
        if self.regions.job.as_ref().is_some_and(waits) {
            self.job_stage_done_if_idle(out);
        }
    }

    fn job_has_discards(&self) -> bool {
        self.regions
            .job
            .as_ref()
            .is_some_and(|job| !job.discard.is_empty())
    }

    fn job_enter(&mut self, stage: Stage) {
        self.regions.job.as_mut().expect("a job runs").stage = stage;
    }

    fn job_flush(&mut self, out: &mut Vec<Action>) {
        if !self.regions.job.as_ref().expect("a job runs").flush {
            return;
        }
        for member in self.live_members().collect::<Vec<_>>() {
            self.job_io(member, 0, 0, IoKind::Flush, out);
        }
    }

    fn job_catch_up(&mut self, out: &mut Vec<Action>) {
        let job = self.regions.job.as_ref().expect("a job runs");
        let rewrite = job.rewrite.iter();
        let todo = rewrite.flat_map(|(&page, members)| members.iter().map(move |&m| (page, m)));
        for (page, behind) in todo.collect::<Vec<_>>() {
            let member = MemberIndex(behind.place);
            if self.members[member.at()].is_live() {
                let newest = self.regions.map.page_generations[page as usize];
                let entries = self.regions.map.page_entries(page).to_vec();
                let generation = behind.catch_up(newest);
                self.job_page(member, page, generation, &entries, out);
            }
        }
    }

    fn job_page(
        &mut self,
        member: MemberIndex,
        page: u32,
        generation: u64,
        entries: &[RegionEntry],
        out: &mut Vec<Action>,
    ) {
        let place = self.map_place(member);
        let mut bytes = vec![0; MAP_PAGE_BYTES];
        encode_page(&mut bytes, &place, page, generation, entries);
        let offset = place.offset(page, generation);
        let kind = IoKind::WriteMeta(bytes.into());
        self.job_io(member, offset, MAP_PAGE_BYTES as u32, kind, out);
    }

    /// Writes every changed page to every live member (or all pages to the new one).
    fn job_pages(&mut self, out: &mut Vec<Action>) {
        let job = self.regions.job.as_ref().expect("a job runs");
        let generation = self.meta.superblock().generation;
        let changes: Vec<(u32, RegionState)> = job.changes.iter().map(|(&r, &s)| (r, s)).collect();
        if let Some(member) = job.whole_map_for {
            // With a generation of its own: what is in memory may say more than the pages of this
            // generation on the others. Two steps, so that the next page written everywhere does
            // not go over the newest that the others have.
            for newest in &mut self.regions.map.page_generations {
                *newest += 2;
            }
            // Both copies, so that what lies there from another life is never newer.
            let place = self.map_place(member);
            let pages = self.regions.map.initial_pages(&place);
            let pages = pages.map(|(offset, page)| (offset, page.to_vec()));
            let store = self.store_pages(member);
            for (offset, bytes) in pages.chain(store).collect::<Vec<_>>() {
                self.job_io(
                    member,
                    offset,
                    bytes.len() as u32,
                    IoKind::WriteMeta(bytes.into()),
                    out,
                );
            }
            return;
        }
        let as_they_are = job.rewrite.iter();
        let map = &self.regions.map;
        let mut pages: BTreeMap<u32, Vec<RegionEntry>> = as_they_are
            .map(|(&page, _)| (page, map.page_entries(page).to_vec()))
            .collect();
        for (region, state) in changes {
            let (page, at) = page_of(u64::from(region));
            let map = &self.regions.map;
            let entries = pages
                .entry(page)
                .or_insert_with(|| map.page_entries(page).to_vec());
            entries[at] = RegionEntry::new(state, generation);
        }
        let live: Vec<MemberIndex> = self.live_members().collect();
        for (page, entries) in pages {
            let newer = &mut self.regions.map.page_generations[page as usize];
            *newer += 1;
            let page_generation = *newer;
            for &member in &live {
                self.job_page(member, page, page_generation, &entries, out);
            }
        }
    }

    fn map_place(&self, member: MemberIndex) -> MapPlace {
        let superblock = self.meta.superblock();
        MapPlace {
            array_uuid: superblock.array_uuid,
            member_uuid: self.members[member.at()].uuid,
            copies: superblock.areas.region_map,
        }
    }

    /// The pages are durable: the new states count.
    fn job_commit(&mut self, out: &mut Vec<Action>) {
        let generation = self.meta.superblock().generation;
        let job = self.regions.job.as_mut().expect("a job runs");
        let changes = std::mem::take(&mut job.changes);
        let discarded = job.discard.clone();
        let new_member = job.whole_map_for;
        for (&region, &state) in &changes {
            self.regions.set(region, state, generation);
        }
        if let Some(member) = new_member {
            self.member_has_map(member, out);
        }
        for (&region, &state) in &changes {
            if discarded.contains(&region) {
                self.torn_region_unwritten(region, out);
                continue; // let on when the drives have been told
            }
            if state == RegionState::NeedsSync {
                self.log_region_recorded(region);
                continue; // who uses it goes on
            }
            self.region_changed(region, state, out);
        }
    }

    fn region_changed(&mut self, region: u32, state: RegionState, out: &mut Vec<Action>) {
        let now = self.now_ns;
        let Some(active) = self.regions.active.get_mut(&region) else {
            return;
        };
        if state != RegionState::Dirty {
            if active.waiting.is_empty() && active.discards.is_empty() {
                self.regions.active.remove(&region);
            } else {
                active.phase = Phase::Wanted;
                self.regions.wanted.insert(region);
            }
            return;
        }
        active.phase = Phase::Open;
        let waiting = std::mem::take(&mut active.waiting);
        if !waiting.is_empty() {
            // Made ready ahead, it was last asked for when that was begun.
            active.last_use_ns = now;
        }
        active.in_flight += waiting.len() as u32;
        if active.in_flight == 0 && !active.discards.is_empty() {
            self.regions.wanted.insert(region);
        }
        for op in waiting {
            self.op_region_open(op, out);
        }
    }

    fn job_discards(&mut self, out: &mut Vec<Action>) {
        let job = self.regions.job.as_ref().expect("a job runs");
        let bytes = self.geometry.region_bytes();
        let regions = job.discard.clone();
        let live: Vec<MemberIndex> = self.live_members().collect();
        for region in regions {
            let offset = self.data_offset() + u64::from(region) * bytes;
            for &member in &live {
                self.job_io(member, offset, bytes as u32, IoKind::Discard, out);
            }
        }
    }

    fn job_done(&mut self, out: &mut Vec<Action>) {
        let job = self.regions.job.take().expect("a job runs");
        let rewritten = !job.rewrite.is_empty();
        for region in job.discard {
            let active = self.regions.active.get_mut(&region).expect("discarding");
            let requests = std::mem::take(&mut active.discards);
            self.region_changed(region, RegionState::Unwritten, out);
            for request in requests {
                self.part_done(request, Ok(()), out);
            }
        }
        self.region_job_start(out);
        if rewritten && self.replayer.is_none() {
            self.started(out);
        }
        self.replay_job_done(out);
        self.log_step(out);
        self.stop_step(out);
    }

    /// The map cannot be written where it must be: nothing that waits may go on, and as some
    /// members may hold the new pages and some the old, nothing is written any more. A new member
    /// that refuses it is just none.
    fn job_failed(&mut self, out: &mut Vec<Action>) {
        let job = self.regions.job.take().expect("a job runs");
        self.broken |= job.whole_map_for.is_none();
        for (&region, &state) in &job.changes {
            if state == RegionState::NeedsSync {
                continue; // who uses it goes on, and ends in its own way
            }
            let Some(active) = self.regions.active.remove(&region) else {
                continue;
            };
            for op in active.waiting {
                self.op_region_failed(op, out);
            }
            for request in active.discards {
                self.part_done(request, Err(BlockError::Unavailable), out);
            }
        }
        if let Some(member) = job.whole_map_for {
            self.member_map_failed(member, out);
        }
        self.region_job_start(out);
        if !job.rewrite.is_empty() && self.replayer.is_none() {
            self.started(out);
        }
        self.replay_job_done(out);
        self.stop_step(out);
    }

    /// Looks for dirty regions that have been idle for a while.
    pub(super) fn clean_idle_regions(&mut self, out: &mut Vec<Action>) {
        if self.read_only || self.now_ns < self.regions.next_clean_ns {
            return;
        }
        self.regions.next_clean_ns = self.now_ns + CLEAN_EVERY_NS;
        if !self.broken {
            self.clean_regions_idle_for(IDLE_BEFORE_CLEAN_NS, out);
        }
    }

    /// Cleans every dirty region, for a stop.
    pub(super) fn clean_all_regions(&mut self, out: &mut Vec<Action>) {
        if self.regions.stopping || self.read_only {
            return;
        }
        self.regions.stopping = true;
        let now = self.now_ns;
        for region in 0..self.regions.len() {
            match self.regions.state(region) {
                RegionState::Dirty => {
                    self.regions.activate(region, Phase::Open, now);
                }
                // On disk it may still be dirty, which a clean stop would make true.
                RegionState::NeedsSync => {
                    self.regions.unsure.insert(region);
                }
                _ => {}
            }
        }
        self.clean_regions_idle_for(0, out);
        self.region_job_start(out);
    }

    fn clean_regions_idle_for(&mut self, idle_ns: u64, out: &mut Vec<Action>) {
        let mut drop_needing_sync = Vec::new();
        for (&region, active) in &self.regions.active {
            let idle = active.phase == Phase::Open
                && active.in_flight == 0
                && active.discards.is_empty()
                && self.now_ns.saturating_sub(active.last_use_ns) >= idle_ns;
            if !idle {
                continue;
            }
            match self.regions.map.entries[region as usize].state() {
                RegionState::Dirty => {
                    self.regions.cleaning.insert(region);
                }
                _ => drop_needing_sync.push(region),
            }
        }
        for region in drop_needing_sync {
            self.regions.active.remove(&region);
        }
        if !self.regions.cleaning.is_empty() {
            self.region_job_start(out);
        }
    }

    /// A region's parity is true again (resync): on disk it stays dirty until it is idle.
    pub(super) fn region_synced(&mut self, region: u32) {
        if self.regions.state(region) == RegionState::NeedsSync {
            let generation = self.regions.map.entries[region as usize].generation();
            self.regions.set(region, RegionState::Dirty, generation);
            let now = self.now_ns;
            self.regions.activate(region, Phase::Open, now);
        }
    }
}
