//! Orders that durability rests on: what must have ended before what begins.

use super::*;
use crate::format::areas::{AreaRequest, Areas};
use crate::format::region_map::{RegionEntry, RegionState};
use crate::format::superblock::{
    ChecksumKind, Consistency, Features, LayoutParameters, MemberRecord, MemberState, RunState,
};
use crate::layout::{GeometryRequest, Level};
use uuid::Uuid;

const DRIVE_BYTES: u64 = 8 << 20;
const STRIP: u64 = 64 << 10;

/// An array whose I/O ends when the test says so.
pub(super) struct Bench {
    pub(super) array: Array,
    pub(super) pending: Vec<Io>,
    pub(super) completed: Vec<(RequestId, Result<(), BlockError>)>,
    commands: Vec<(CommandId, Result<(), CommandError>)>,
    detached: Vec<MemberIndex>,
}

/// What an I/O is to these tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    CopyA,
    CopyB,
    Page,
    Zero,
    Flush,
    Discard,
    Data,
    Read,
    Log,
}

pub(super) fn superblock(level: Level, members: usize, strip: u64) -> Superblock {
    let shape = GeometryRequest {
        level,
        members,
        strip_size_bytes: Some(strip),
        block_size_bytes: Some(4096),
        group_size: None,
        parity: None,
    }
    .shape()
    .expect("a shape of the tests");
    let request = AreaRequest {
        strip_size_bytes: strip,
        block_size_bytes: 4096,
        log_bytes: None,
        log_bytes_min: 0,
        checksums: false,
    };
    let plan = Areas::plan(DRIVE_BYTES, &request).expect("the drives are large enough");
    let geometry = Geometry::new(shape, plan.member_data_bytes, plan.region_size_bytes);
    let member = |place: usize| {
        let uuid = Uuid::from_u128(100 + place as u128);
        let group = (place / shape.strips()) as u16;
        let index = (place % shape.strips()) as u16;
        MemberRecord::new(
            uuid,
            "serial",
            DRIVE_BYTES,
            group,
            index,
            MemberState::Active,
        )
    };
    Superblock {
        features: Features::default(),
        read_only_only: false,
        array_uuid: Uuid::from_u128(1),
        name: "bench".into(),
        created_unix: 1,
        generation: 7,
        epoch: 3,
        lineage: Uuid::from_u128(2),
        owner_host: Uuid::from_u128(3),
        replay: None,
        owner_started_unix: 1,
        state: RunState::InUse,
        level,
        groups: shape.groups,
        data: shape.data,
        parity: shape.parity,
        strip_size_bytes: strip,
        block_size_bytes: 4096,
        code_id: strake_codec::CODE_ID,
        layout: LayoutParameters::of(level),
        consistency: Consistency::Resync,
        checksums: ChecksumKind::None,
        rebuild_priority: 100,
        members: (0..members).map(member).collect(),
        member_index: 0,
        areas: plan.areas,
        member_data_bytes: plan.member_data_bytes,
        region_size_bytes: plan.region_size_bytes,
        volume_size_bytes: geometry.volume_bytes(),
    }
}

impl Bench {
    /// An array of which nothing has ended yet.
    fn starting(level: Level, members: usize) -> Bench {
        let superblock = superblock(level, members, STRIP);
        let regions = RegionMap::new(superblock.regions());
        Bench::from(superblock, regions)
    }

    pub(super) fn from(superblock: Superblock, regions: RegionMap) -> Bench {
        let present = vec![true; superblock.members.len()];
        Bench::with(superblock, regions, &present, false)
    }

    fn with(
        superblock: Superblock,
        regions: RegionMap,
        present: &[bool],
        accept_doubtful: bool,
    ) -> Bench {
        let code = code_of(&superblock).expect("the shape has a code");
        let mut out = Vec::new();
        let start = Start {
            present: present.to_vec(),
            regions,
            superblock,
            volatile: Vec::new(),
            replay: None,
            store: crate::format::store::Store::new(),
            store_changed: false,
            store_behind: Vec::new(),
            pages_behind: Default::default(),
            copy_b_first: Vec::new(),
            read_only: false,
            accept_doubtful,
            memory_bytes: 4 << 20,
            now_ns: 1,
        };
        let array = Array::start(start, code, &mut out);
        let mut bench = Bench {
            array,
            pending: Vec::new(),
            completed: Vec::new(),
            commands: Vec::new(),
            detached: Vec::new(),
        };
        bench.carry_out(out);
        bench
    }

    /// An array that serves and has nothing under way.
    pub(super) fn running(level: Level, members: usize) -> Bench {
        let mut bench = Bench::starting(level, members);
        bench.end_all();
        bench
    }

    fn carry_out(&mut self, mut actions: Vec<Action>) {
        while !actions.is_empty() {
            let mut more = Vec::new();
            for action in actions {
                match action {
                    Action::Io(io) => self.pending.push(io),
                    Action::Compute(op) => self.array.computed(op, 0, &[0; 64], &mut more),
                    Action::Complete(request, result) => self.completed.push((request, result)),
                    Action::CommandDone(id, result) => self.commands.push((id, result)),
                    Action::Detach(member) => self.detached.push(member),
                    Action::ReleaseSlots(_) | Action::Zero(..) | Action::Event(_) => {}
                }
            }
            actions = more;
        }
    }

    fn sort(&self, io: &Io) -> Sort {
        let areas = &self.array.superblock().areas;
        match &io.kind {
            IoKind::WriteMeta(_) if io.offset == areas.superblock_a.offset => Sort::CopyA,
            IoKind::WriteMeta(_) if io.offset > areas.data.end() => Sort::CopyB,
            IoKind::WriteMeta(_) => Sort::Page,
            IoKind::WriteZeroes => Sort::Zero,
            IoKind::Discard => Sort::Discard,
            IoKind::Flush => Sort::Flush,
            IoKind::Write(..) => Sort::Data,
            IoKind::Read(_) | IoKind::ReadMeta => Sort::Read,
            IoKind::WriteLog(_) => Sort::Log,
        }
    }

    /// Sorts of what is under way, each once, in the order of their beginning.
    pub(super) fn sorts(&self) -> Vec<Sort> {
        let mut sorts: Vec<Sort> = self.pending.iter().map(|io| self.sort(io)).collect();
        sorts.dedup();
        sorts
    }

    pub(super) fn end(&mut self, index: usize, result: Result<(), IoError>) {
        let io = self.pending.remove(index);
        let mut out = Vec::new();
        self.array.io_done(io.token, result, &mut out);
        self.carry_out(out);
    }

    /// Ends what is under way now; not what that begins.
    fn end_round(&mut self) {
        for _ in 0..self.pending.len() {
            self.end(0, Ok(()));
        }
    }

    /// Ends I/O until none is left.
    pub(super) fn end_all(&mut self) {
        let mut steps = 0;
        while !self.pending.is_empty() {
            self.end(0, Ok(()));
            steps += 1;
            assert!(steps < 100_000, "I/O without end");
        }
    }

    pub(super) fn submit(&mut self, operation: Operation, offset: u64, length: u64) -> RequestId {
        let mut out = Vec::new();
        let id = self
            .array
            .submit(operation, offset, length, false, &mut out);
        self.carry_out(out);
        id
    }

    pub(super) fn command(&mut self, command: Command) {
        let mut out = Vec::new();
        self.array.command(CommandId(1), command, &mut out);
        self.carry_out(out);
    }

    pub(super) fn tick(&mut self, now_ns: u64) {
        let mut out = Vec::new();
        self.array.tick(now_ns, &mut out);
        self.carry_out(out);
    }

    pub(super) fn written(&mut self) {
        self.submit(Operation::Write, 0, 4096);
        self.end_all();
        self.completed.clear();
    }

    /// The superblocks under way.
    fn superblocks(&self) -> Vec<Superblock> {
        let decode = |io: &Io| match &io.kind {
            IoKind::WriteMeta(bytes) => Superblock::decode(bytes, io.offset).ok(),
            _ => None,
        };
        self.pending.iter().filter_map(decode).collect()
    }
}

#[test]
fn a_start_raises_the_epoch_on_all_members_before_it_serves() {
    let mut bench = Bench::starting(Level::Raid5, 3);
    bench.submit(Operation::Write, 0, 4096);
    bench.submit(Operation::Read, 0, 4096);
    assert_eq!(bench.sorts(), [Sort::CopyA]);
    assert_eq!(bench.pending.len(), 3);
    bench.end(0, Ok(()));
    bench.end(0, Ok(()));
    assert_eq!(
        (bench.sorts(), bench.completed.len()),
        (vec![Sort::CopyA], 0)
    );
    bench.end(0, Ok(()));
    // Then, once more, with a generation above all that a start cut off before here can have.
    for (sort, epoch_durable) in [(Sort::CopyB, false), (Sort::CopyA, true)] {
        assert_eq!((bench.sorts(), bench.pending.len()), (vec![sort], 3));
        assert_eq!(bench.superblocks()[0].generation > 1 << 20, epoch_durable);
        assert!(bench.completed.is_empty());
        for _ in 0..3 {
            bench.end(0, Ok(()));
        }
    }
    assert!(bench.sorts().contains(&Sort::Zero), "the write has begun");
    assert_eq!(
        bench.completed.len(),
        1,
        "the read of an unwritten region needs no I/O"
    );
}

#[test]
fn copy_a_is_on_all_members_before_copy_b_on_any() {
    let mut bench = Bench::running(Level::Raid6, 4);
    bench.command(Command::Priority(10));
    for left in (1..=4).rev() {
        assert_eq!(
            (bench.sorts(), bench.pending.len()),
            (vec![Sort::CopyA], left)
        );
        assert!(bench.commands.is_empty());
        bench.end(0, Ok(()));
    }
    assert_eq!(
        bench.commands.len(),
        1,
        "copy A on all members is durable enough"
    );
    assert_eq!((bench.sorts(), bench.pending.len()), (vec![Sort::CopyB], 4));
}

#[test]
fn a_stop_before_the_start_has_ended_ends_too() {
    let mut bench = Bench::starting(Level::Raid5, 3);
    bench.submit(Operation::Write, 0, 4096);
    bench.command(Command::Stop);
    bench.end_all();
    assert_eq!(bench.completed.len(), 1);
    assert!(bench.array.is_stopped());
}

#[test]
fn a_first_write_zeroes_flushes_records_and_then_writes() {
    let mut bench = Bench::running(Level::Raid5, 3);
    bench.submit(Operation::Write, 0, 4096);
    for sort in [Sort::Zero, Sort::Flush, Sort::Page] {
        assert_eq!((bench.sorts(), bench.pending.len()), (vec![sort], 3));
        bench.end(1, Ok(()));
        bench.end(1, Ok(()));
        assert_eq!(bench.sorts(), [sort], "the last member counts");
        bench.end(0, Ok(()));
    }
    assert!(bench.completed.is_empty());
    bench.end_all();
    assert_eq!(bench.completed.len(), 1);
}

#[test]
fn a_write_to_a_clean_region_makes_it_dirty_on_all_members_first() {
    let mut bench = Bench::running(Level::Raid5, 3);
    bench.written();
    bench.tick(10_000_000_000);
    assert_eq!(
        bench.sorts(),
        [Sort::Flush],
        "what was written is durable before it is called clean"
    );
    bench.end_round();
    assert_eq!(bench.sorts(), [Sort::Page]);
    bench.end_all();
    assert_eq!(bench.array.region_counts()[2], 0);
    bench.submit(Operation::Write, 8192, 4096);
    assert_eq!((bench.sorts(), bench.pending.len()), (vec![Sort::Page], 3));
    bench.end(0, Ok(()));
    bench.end(0, Ok(()));
    assert_eq!(bench.sorts(), [Sort::Page]);
    bench.end(0, Ok(()));
    assert!(
        bench
            .sorts()
            .iter()
            .all(|&sort| sort == Sort::Read || sort == Sort::Data)
    );
}

#[test]
fn a_write_that_missed_a_member_is_acknowledged_when_its_absence_is_recorded() {
    let mut bench = Bench::running(Level::Raid6, 4);
    bench.written();
    bench.submit(Operation::Write, 0, 4096);
    while bench.sorts() != [Sort::Data] {
        bench.end_round();
    }
    let failed = bench.pending[0].member;
    bench.end(0, Err(IoError::Range));
    assert_eq!(bench.detached, [failed]);
    while let Some(data) = bench
        .pending
        .iter()
        .position(|io| bench.sort(io) == Sort::Data)
    {
        bench.end(data, Ok(()));
    }
    assert!(
        bench.completed.is_empty(),
        "all data is written, the failure is not recorded"
    );
    let superblocks = bench.superblocks();
    assert_eq!(superblocks.len(), 3, "on every survivor");
    for superblock in superblocks {
        assert_eq!(superblock.members[failed.at()].state, MemberState::Failed);
    }
    bench.end(0, Ok(()));
    bench.end(0, Ok(()));
    assert!(bench.completed.is_empty());
    bench.end(0, Ok(()));
    assert_eq!(bench.completed.len(), 1);
    assert_eq!(bench.completed[0].1, Ok(()));
}

#[test]
fn a_write_whose_missed_member_cannot_be_recorded_is_an_error() {
    let mut bench = Bench::running(Level::Raid5, 3);
    bench.written();
    bench.submit(Operation::Write, 0, 4096);
    while bench.sorts() != [Sort::Data] {
        bench.end_round();
    }
    bench.end(0, Err(IoError::Range));
    let copy = |bench: &Bench, sort| bench.pending.iter().position(|io| bench.sort(io) == sort);
    while let Some(data) = copy(&bench, Sort::Data) {
        bench.end(data, Ok(()));
    }
    // A survivor that the array cannot do without refuses the record.
    let refused = copy(&bench, Sort::CopyA).expect("the absence is being recorded");
    bench.end(refused, Err(IoError::Range));
    bench.end_all();
    assert_eq!(bench.completed.len(), 1);
    assert_eq!(bench.completed[0].1, Err(BlockError::Unavailable));
    // From here on nothing that changes is acknowledged, and a stop ends all the same.
    bench.submit(Operation::Write, 0, 4096);
    bench.end_all();
    assert_eq!(bench.completed[1].1, Err(BlockError::Unavailable));
    bench.command(Command::Stop);
    bench.end_all();
    assert!(bench.array.is_stopped());
    assert!(
        bench
            .commands
            .last()
            .is_some_and(|(_, result)| result.is_err())
    );
}

#[test]
fn a_new_member_has_the_whole_map_before_it_is_one() {
    let mut bench = Bench::running(Level::Raid5, 3);
    bench.written();
    bench.command(Command::Remove {
        member: MemberIndex(1),
        force: false,
    });
    bench.end_all();
    bench.commands.clear();
    let uuid = Uuid::from_u128(900);
    let serial = "new".to_owned();
    bench.command(Command::Replace {
        member: MemberIndex(1),
        uuid,
        serial,
        size_bytes: DRIVE_BYTES,
        volatile: false,
    });
    assert_eq!(
        (bench.sorts(), bench.pending.len()),
        (vec![Sort::Page], 5),
        "both copies of the map, and the array store"
    );
    assert!(bench.pending.iter().all(|io| io.member == MemberIndex(1)));
    bench.end_round();
    assert!(bench.commands.is_empty());
    let superblocks = bench.superblocks();
    assert_eq!(superblocks.len(), 3);
    for superblock in superblocks {
        assert_eq!(superblock.members[1].state, MemberState::Rebuilding);
        assert_eq!(superblock.members[1].uuid, uuid);
    }
}

#[test]
fn a_rebuild_is_recorded_only_after_a_flush_of_what_it_wrote() {
    let mut bench = Bench::running(Level::Raid5, 3);
    bench.written();
    bench.command(Command::Fail {
        member: MemberIndex(1),
        force: false,
    });
    bench.end_all();
    let serial = "new".to_owned();
    let uuid = Uuid::from_u128(900);
    bench.command(Command::Replace {
        member: MemberIndex(1),
        uuid,
        serial,
        size_bytes: DRIVE_BYTES,
        volatile: false,
    });
    let (mut unflushed, mut active) = (0, false);
    while !bench.pending.is_empty() {
        for superblock in bench.superblocks() {
            let record = &superblock.members[1];
            active |= record.state == MemberState::Active;
            if record.state == MemberState::Active || record.rebuild_position_bytes > 0 {
                assert_eq!(unflushed, 0, "writes of the rebuild are not durable yet");
            }
        }
        match (bench.sort(&bench.pending[0]), bench.pending[0].member) {
            (Sort::Data, MemberIndex(1)) => unflushed += 1,
            (Sort::Flush, MemberIndex(1)) => unflushed = 0,
            _ => {}
        }
        bench.end(0, Ok(()));
    }
    assert!(active, "the rebuild has come to its end");
    assert_eq!(bench.array.redundancy_left(), Some(1));
}

#[test]
fn a_drive_that_takes_a_failed_ones_place_is_refilled_from_the_beginning() {
    let mut bench = Bench::running(Level::Raid6, 4);
    bench.submit(Operation::Write, 0, 1 << 20);
    bench.end_all();
    let replace = |uuid| Command::Replace {
        member: MemberIndex(1),
        uuid: Uuid::from_u128(uuid),
        serial: "new".into(),
        size_bytes: DRIVE_BYTES,
        volatile: false,
    };
    bench.command(Command::Fail {
        member: MemberIndex(1),
        force: false,
    });
    bench.end_all();
    bench.command(replace(900));
    while !bench.pending.iter().any(|io| bench.sort(io) == Sort::Data) {
        bench.end(0, Ok(()));
    }
    bench.end_round();
    // It fails while some of its bands are refilled and others are under way.
    bench.command(Command::Fail {
        member: MemberIndex(1),
        force: false,
    });
    let of_others = |bench: &Bench| {
        bench
            .pending
            .iter()
            .position(|io| io.member != MemberIndex(1))
    };
    while let Some(index) = bench
        .pending
        .iter()
        .position(|io| io.member == MemberIndex(1))
    {
        bench.end(index, Err(IoError::Gone));
    }
    bench.command(replace(901));
    while !bench.array.members()[1].is_live() {
        let index = bench
            .pending
            .iter()
            .position(|io| io.member == MemberIndex(1));
        let index = index
            .or_else(|| of_others(&bench))
            .expect("the new drive joins");
        bench.end(index, Ok(()));
    }
    assert_ne!(
        bench.array.rebuild_targets(BandKey(0)),
        0,
        "the first band is not true on it"
    );
    bench.end_all();
    assert_eq!(bench.array.redundancy_left(), Some(2));
}

#[test]
fn a_discard_is_recorded_before_the_drives_hear_of_it_and_waits_for_reads() {
    let mut bench = Bench::running(Level::Raid5, 3);
    bench.written();
    bench.submit(Operation::Read, 0, 4096);
    let read = bench.pending[0].clone();
    let region = bench.array.geometry().region_volume_bytes();
    bench.submit(Operation::Discard, 0, region);
    let page = bench
        .pending
        .iter()
        .filter(|io| bench.sort(io) == Sort::Page)
        .count();
    assert_eq!(page, 3);
    while let Some(index) = bench.pending.iter().position(|io| io.token != read.token) {
        bench.end(index, Ok(()));
    }
    assert!(
        bench.completed.is_empty(),
        "the read is under way on a drive: nothing is discarded"
    );
    bench.end(0, Ok(()));
    assert_eq!(bench.sorts(), [Sort::Discard]);
    bench.end_all();
    assert_eq!(bench.completed.len(), 2);
}

#[test]
fn a_stop_cleans_flushes_and_then_says_clean() {
    let mut bench = Bench::running(Level::Raid5, 3);
    bench.written();
    bench.command(Command::Stop);
    for sort in [
        Sort::Flush,
        Sort::Page,
        Sort::Flush,
        Sort::CopyA,
        Sort::CopyB,
    ] {
        assert_eq!((bench.sorts(), bench.pending.len()), (vec![sort], 3));
        assert!(!bench.array.is_stopped());
        let clean = bench
            .superblocks()
            .iter()
            .all(|s| s.state == RunState::Clean);
        assert!(clean, "no superblock says anything else any more");
        bench.end_round();
    }
    assert!(bench.array.is_stopped());
    assert_eq!(bench.commands.len(), 1);
}

#[test]
fn a_stop_before_the_end_of_a_resync_leaves_it_recorded() {
    let superblock = superblock(Level::Raid5, 3, STRIP);
    let mut regions = RegionMap::new(superblock.regions());
    regions.entries[1] = RegionEntry::new(RegionState::NeedsSync, 5);
    let mut bench = Bench::from(superblock, regions);
    bench.end_round();
    bench.command(Command::Stop);
    let mut recorded = false;
    while !bench.pending.is_empty() {
        recorded |= bench.sort(&bench.pending[0]) == Sort::Page;
        bench.end(0, Ok(()));
    }
    assert!(bench.array.is_stopped() && recorded);
    assert_eq!(bench.array.region_counts()[3], 1);
}

#[test]
fn a_read_only_array_writes_nothing_and_sleeps() {
    let superblock = superblock(Level::Raid5, 3, STRIP);
    let code = code_of(&superblock).expect("the shape has a code");
    let mut out = Vec::new();
    let start = Start {
        present: vec![true, false, true],
        regions: RegionMap::new(superblock.regions()),
        superblock,
        volatile: Vec::new(),
        replay: None,
        store: crate::format::store::Store::new(),
        store_changed: false,
        store_behind: Vec::new(),
        pages_behind: Default::default(),
        copy_b_first: Vec::new(),
        read_only: true,
        accept_doubtful: false,
        memory_bytes: 4 << 20,
        now_ns: 1,
    };
    let mut array = Array::start(start, code, &mut out);
    assert!(out.is_empty());
    assert_eq!(array.next_tick_ns(), None);
    array.submit(Operation::Write, 0, 4096, false, &mut out);
    assert!(matches!(
        out[..],
        [Action::Complete(_, Err(BlockError::ReadOnly))]
    ));
}

#[test]
fn a_mirror_is_read_only_where_all_bands_are_refilled() {
    let mut superblock = superblock(Level::Raid1, 2, 1 << 20);
    superblock.members[1].state = MemberState::Rebuilding;
    let mut regions = RegionMap::new(superblock.regions());
    regions.entries[0] = RegionEntry::new(RegionState::Clean, 5);
    let mut bench = Bench::from(superblock, regions);
    bench.end_all();
    bench.tick(2);
    let target = |bench: &Bench| {
        let band = crate::layout::BAND_BYTES_MAX;
        let third = bench.array.data_offset() + 3 * band..bench.array.data_offset() + 4 * band;
        let others = |io: &Io| !third.contains(&io.offset) && bench.sort(io) != Sort::Flush;
        bench.pending.iter().position(others)
    };
    // All bands but one in the middle are refilled.
    while let Some(index) = target(&bench) {
        bench.end(index, Ok(()));
    }
    assert!(
        bench.array.rebuild_targets(BandKey(3)) != 0
            && bench.array.rebuild_targets(BandKey(7)) == 0
    );
    for _ in 0..4 {
        let before = bench.pending.len();
        bench.submit(Operation::Read, 0, 1 << 20);
        assert!(bench.pending.len() > before);
        let refilled = bench.pending[before..]
            .iter()
            .filter(|io| io.member == MemberIndex(1));
        assert_eq!(refilled.count(), 0, "the middle is not true there");
    }
}

#[test]
fn a_member_stopped_at_the_end_of_its_rebuild_becomes_active() {
    let mut superblock = superblock(Level::Raid5, 3, STRIP);
    superblock.members[1].state = MemberState::Rebuilding;
    superblock.members[1].rebuild_position_bytes = superblock.member_data_bytes;
    let regions = RegionMap::new(superblock.regions());
    let mut bench = Bench::from(superblock, regions);
    bench.end_all();
    bench.tick(2);
    bench.end_all();
    assert_eq!(bench.array.redundancy_left(), Some(1));
}

#[test]
fn regions_left_dirty_without_parity_are_cleaned_when_idle() {
    let superblock = superblock(Level::Raid0, 2, STRIP);
    let mut regions = RegionMap::new(superblock.regions());
    regions.entries[1] = RegionEntry::new(RegionState::Dirty, 5);
    let mut bench = Bench::from(superblock, regions);
    bench.end_all();
    assert!(bench.array.next_tick_ns().is_some());
    bench.tick(10_000_000_000);
    bench.end_all();
    assert_eq!(bench.array.region_counts()[2], 0);
}

/// A lone reader of a mirror uses all copies: of equally idle ones each has its turn.
#[test]
fn reads_of_an_idle_mirror_go_round() {
    for copies in 2..=4 {
        let mut bench = Bench::running(Level::Raid1, copies);
        bench.written();
        bench.end_all();
        let strip = bench.array.geometry().strip_bytes();
        let mut read = vec![0; copies];
        for stripe in 0..copies as u64 {
            bench.submit(Operation::Read, stripe * strip, 4096);
            let [io] = &bench.pending[..] else {
                panic!("one piece, one read: {:?}", bench.pending);
            };
            read[io.member.at()] += 1;
            bench.end_all();
        }
        assert_eq!(read, vec![1; copies]);
    }
}

/// A read is under way on a member in a region that waits for its resync, and the member leaves:
/// what it held there is suspect from then on, and is not made up from parity that may be wrong.
#[test]
fn a_read_that_loses_its_member_before_the_resync_does_not_believe_parity() {
    for by_command in [true, false] {
        let superblock = superblock(Level::Raid5, 3, STRIP);
        let mut regions = RegionMap::new(superblock.regions());
        regions.entries[1] = RegionEntry::new(RegionState::NeedsSync, 5);
        let mut bench = Bench::from(superblock, regions);
        while bench.array.is_starting() {
            bench.end(0, Ok(()));
        }
        let offset = bench.array.geometry().region_volume_bytes();
        let read = bench.submit(Operation::Read, offset, 4096);
        let direct = |io: &Io| matches!(io.kind, IoKind::Read(IoMemory::Request(..)));
        let index = bench.pending.iter().position(direct).expect("a read");
        let member = bench.pending[index].member;
        if by_command {
            let force = true;
            bench.command(Command::Fail { member, force });
            bench.end(index, Ok(()));
        } else {
            bench.end(index, Err(IoError::Gone));
        }
        bench.end_all();
        assert_eq!(bench.completed, [(read, Err(BlockError::Torn))]);
    }
}

/// Where nothing stands in for a member, nothing was acknowledged without it either.
#[test]
fn a_read_of_a_member_that_nothing_replaces_is_answered_when_it_leaves() {
    let mut bench = Bench::running(Level::Raid0, 3);
    bench.written();
    let read = bench.submit(Operation::Read, 0, 4096);
    let member = bench.pending[0].member;
    let force = true;
    bench.command(Command::Fail { member, force });
    bench.end(0, Ok(()));
    assert_eq!(bench.completed, [(read, Ok(()))]);
}

/// What a core could not read directly fails here too, where it is counted and mended, and is not
/// hidden by the copy whose turn it is.
#[test]
fn a_copy_that_could_not_be_read_directly_is_tried_again_first() {
    for copy in 0..3 {
        let mut bench = Bench::running(Level::Raid1, 3);
        bench.written();
        bench.end_all();
        let member = MemberIndex(copy);
        let mut out = Vec::new();
        let read = bench.array.read_again(0, 4096, member, &mut out);
        bench.carry_out(out);
        assert_eq!(bench.pending[0].member, member);
        bench.end(0, Err(IoError::Range));
        bench.end_all();
        assert_eq!(bench.completed, [(read, Ok(()))]);
        assert_eq!(bench.array.members()[member.at()].read_errors, 1);
    }
}

/// The administrator believes parity of a missing member in a region that needs a resync. A write
/// there is cut short: from then on parity is known to be wrong, and what was believed is suspect,
/// although the region's state has not changed.
#[test]
fn a_write_cut_short_in_a_region_that_is_believed_makes_missing_blocks_suspect() {
    let mut superblock = superblock(Level::Raid5, 3, STRIP);
    superblock.members[1].state = MemberState::Failed;
    let mut regions = RegionMap::new(superblock.regions());
    regions.entries[0] = RegionEntry::new(RegionState::NeedsSync, 5);
    let mut bench = Bench::with(superblock, regions, &[true, false, true], true);
    while bench.array.is_starting() {
        bench.end(0, Ok(()));
    }
    bench.end_all();
    bench.written();
    let missing = |bench: &Bench| bench.array.torn().overlaps(1, 0..1 << 20).is_some();
    assert!(!missing(&bench), "parity is believed");
    bench.submit(Operation::Write, 0, 4096);
    while bench.sorts() != [Sort::Data] {
        bench.end(0, Ok(()));
    }
    bench.end(0, Err(IoError::Range));
    bench.end_all();
    assert_eq!(bench.completed[0].1, Err(BlockError::Unavailable));
    assert_eq!(bench.array.region_counts()[3], 1);
    assert!(missing(&bench));
}

#[test]
fn long_work_pauses_while_clients_are_busy_and_no_longer() {
    const MS: u64 = 1_000_000;
    let reads = |bench: &Bench| {
        let sorts = bench.pending.iter().map(|io| bench.sort(io));
        sorts.filter(|&sort| sort == Sort::Read).count()
    };
    let mut superblock = superblock(Level::Raid5, 3, STRIP);
    superblock.rebuild_priority = 10;
    let regions = RegionMap::new(superblock.regions());
    let mut bench = Bench::from(superblock, regions);
    bench.end_all();
    let unwritten = bench.array.superblock().volume_size_bytes - 4096;
    for offset in (0..unwritten - (1 << 20)).step_by(STRIP as usize) {
        bench.submit(Operation::Write, offset, 4096);
        bench.end_all();
    }
    bench.command(Command::Scrub { repair: false });
    let one_band = bench.pending.len();
    assert_eq!((bench.sorts(), one_band), (vec![Sort::Read], 3));

    // A band that took one millisecond is followed by a pause of some two.
    bench.tick(MS);
    bench.end_round();
    assert_eq!(reads(&bench), 0);
    bench.tick(2 * MS);
    assert_eq!(reads(&bench), 0);
    bench.tick(5 * MS);
    assert_eq!(reads(&bench), one_band);

    // One that took a second is followed by two, but not when clients have gone.
    for ms in (40..=1000).step_by(40) {
        bench.submit(Operation::Read, unwritten, 4096);
        bench.tick(ms * MS);
    }
    bench.end_round();
    bench.tick(1001 * MS);
    assert_eq!(reads(&bench), 0);
    let next = bench.array.next_tick_ns().expect("the scrub goes on");
    assert!((1001 * MS..=1060 * MS).contains(&next), "{next}");
    bench.tick(1100 * MS);
    assert_eq!(reads(&bench), 16 * one_band);
}

#[test]
fn a_priority_that_is_raised_ends_a_pause() {
    const MS: u64 = 1_000_000;
    let mut bench = Bench::running(Level::Raid5, 3);
    bench.written();
    bench.command(Command::Priority(1));
    bench.end_all();
    bench.command(Command::Scrub { repair: false });
    bench.tick(10 * MS);
    bench.end_round();
    bench.submit(Operation::Read, 0, 4096);
    bench.end_all();
    bench.tick(20 * MS);
    assert!(bench.pending.is_empty(), "{:?}", bench.sorts());
    bench.command(Command::Priority(50));
    bench.tick(30 * MS);
    assert!(bench.sorts().contains(&Sort::Read));
}
