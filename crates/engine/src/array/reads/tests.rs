use super::*;
use crate::format::region_map::RegionState;
use crate::layout::{GeometryRequest, Level};

const STRIP_BYTES: u64 = 16 << 10;
const REGION_BYTES: u64 = 64 << 10;

struct Bench {
    published: Arc<Published>,
    reads: DirectReads,
    out: Vec<Step>,
}

/// An array of two regions that is served, with all its drives open here.
fn bench(level: Level, members: usize, states: [RegionState; 2]) -> Bench {
    let request = GeometryRequest {
        level,
        members,
        strip_size_bytes: Some(STRIP_BYTES),
        block_size_bytes: Some(4096),
        group_size: None,
        parity: None,
    };
    let geometry = Geometry::new(request.shape().unwrap(), 2 * REGION_BYTES, REGION_BYTES);
    let states = states.into_iter().map(RegionReads::of);
    let published = Arc::new(Published::new(members, states));
    let mut reads = DirectReads::new(geometry, 1 << 20, published.clone());
    for place in 0..members {
        published.set_member(place, true);
        reads.set_drive(MemberIndex(place as u16), true, 0);
    }
    published.set_open(true);
    Bench {
        published,
        reads,
        out: Vec::new(),
    }
}

const WRITTEN: [RegionState; 2] = [RegionState::Dirty, RegionState::Clean];

impl Bench {
    fn submit(&mut self, offset: u64, length: u64) -> bool {
        self.reads.submit(offset, length, &mut self.out).is_some()
    }

    /// Ends the reads in `out`, those for which `ok` says so well.
    fn end(&mut self, ok: impl Fn(MemberIndex) -> bool) {
        for step in std::mem::take(&mut self.out) {
            if let Step::Read { part, member, .. } = step {
                self.reads.io_done(part, ok(member), &mut self.out);
            }
        }
    }

    fn members(&self) -> Vec<u16> {
        let members = self.out.iter().filter_map(|step| match step {
            Step::Read { member, .. } => Some(member.0),
            _ => None,
        });
        members.collect()
    }
}

#[test]
fn a_block_is_read_from_its_member_and_is_done() {
    let mut it = bench(Level::Raid5, 3, WRITTEN);
    assert!(it.submit(STRIP_BYTES + 4096, 4096));
    let geometry = it.reads.geometry.clone();
    let piece = geometry.piece(STRIP_BYTES + 4096, 4096);
    let member = geometry.member(piece.stripe, piece.strip.into());
    assert_eq!(
        it.out,
        [Step::Read {
            part: WHOLE,
            request: ReadId(0),
            member,
            offset: (1 << 20) + geometry.member_offset(piece.stripe, piece.start),
            at: 0,
            length: 4096,
        }]
    );
    assert_eq!(it.reads.in_flight(member), 1);
    it.end(|_| true);
    assert_eq!(it.out, [Step::Done(ReadId(0))]);
    assert_eq!((it.reads.in_flight(member), it.reads.used()), (0, 0));
    assert_eq!(it.published.read_counts(), (1, 4096));
}

#[test]
fn a_long_read_is_cut_and_joined() {
    let mut it = bench(Level::Raid5, 3, WRITTEN);
    let all = it.reads.geometry.volume_bytes();
    assert!(it.submit(0, all));
    let mut covered = 0;
    for step in &it.out {
        let Step::Read { at, length, .. } = step else {
            panic!("{step:?}")
        };
        assert_eq!(u64::from(*at), covered);
        covered += u64::from(*length);
    }
    assert_eq!(covered, all);
    it.end(|_| true);
    assert_eq!(it.out, [Step::Done(ReadId(0))]);
}

#[test]
fn more_pieces_than_may_be_under_way_follow_those_that_end() {
    let mut it = bench(Level::Raid0, 2, WRITTEN);
    let geometry = Geometry::new(*it.reads.geometry.shape(), 128 * REGION_BYTES, REGION_BYTES);
    let states = (0..128).map(|_| RegionReads::Direct);
    let published = Arc::new(Published::new(2, states));
    it.reads = DirectReads::new(geometry.clone(), 0, published.clone());
    for place in 0..2 {
        published.set_member(place.into(), true);
        it.reads.set_drive(MemberIndex(place), true, 0);
    }
    published.set_open(true);
    assert!(it.submit(0, geometry.volume_bytes()));
    assert_eq!(it.out.len(), PARTS_MAX as usize);
    let mut rounds = 0;
    while it.reads.used() > 0 {
        it.end(|_| true);
        rounds += 1;
    }
    assert_eq!(it.out, [Step::Done(ReadId(0))]);
    let pieces = geometry.volume_bytes() / STRIP_BYTES;
    assert_eq!(rounds, pieces / u64::from(PARTS_MAX));
}

#[test]
fn what_was_never_written_is_zeroes_without_io() {
    let mut it = bench(
        Level::Raid5,
        3,
        [RegionState::Unwritten, RegionState::Clean],
    );
    let region = it.reads.geometry.region_volume_bytes();
    assert!(it.submit(0, 4096));
    let zero = |at, length| Step::Zero {
        request: ReadId(0),
        at,
        length,
    };
    assert_eq!(it.out, [zero(0, 4096), Step::Done(ReadId(0))]);
    it.out.clear();
    assert!(it.submit(region - 4096, 8192));
    assert_eq!(it.out[0], zero(0, 4096));
    assert_eq!(it.members().len(), 1);
}

#[test]
fn what_cannot_be_direct_is_passed_on_as_it_is() {
    let refused = |change: &dyn Fn(&mut Bench)| {
        let mut it = bench(Level::Raid5, 3, WRITTEN);
        change(&mut it);
        let taken = it.submit(0, 4096);
        assert_eq!(it.out.is_empty() && it.reads.used() == 0, !taken);
        !taken
    };
    assert!(!refused(&|_| {}));
    assert!(refused(&|it| it.published.set_open(false)));
    assert!(refused(&|it| it
        .published
        .set_region(0, RegionReads::Asked)));
    // Another drive has come or gone than this core knows of.
    assert!(refused(&|it| {
        it.published.drives_changed();
    }));
    let member = bench(Level::Raid5, 3, WRITTEN)
        .reads
        .geometry
        .member(crate::layout::StripeIndex(0), 0);
    assert!(refused(&|it| it.published.set_member(member.at(), false)));
    assert!(refused(&|it| it.reads.set_drive(member, false, 0)));
    for (offset, length) in [(1, 4096), (0, 100), (0, 0), (u64::MAX, 2), (1 << 40, 4096)] {
        let mut it = bench(Level::Raid5, 3, WRITTEN);
        assert!(!it.submit(offset, length), "{offset}+{length}");
    }
}

#[test]
fn what_failed_or_changed_under_a_read_is_passed_on_whole() {
    let passed_after = |failed: Option<u16>| Step::PassOn {
        request: ReadId(0),
        offset: 0,
        length: 3 * STRIP_BYTES,
        failed: failed.map(MemberIndex),
    };
    let passed = passed_after(None);
    let first = {
        let mut it = bench(Level::Raid5, 3, WRITTEN);
        assert!(it.submit(0, 3 * STRIP_BYTES));
        it.members()[0]
    };
    let after = |change: &dyn Fn(&Bench), ok: bool| {
        let mut it = bench(Level::Raid5, 3, WRITTEN);
        assert!(it.submit(0, 3 * STRIP_BYTES));
        change(&it);
        it.end(|member| ok || member.0 != first);
        assert_eq!(it.reads.used(), 0);
        it.out
    };
    assert_eq!(after(&|_| {}, true), [Step::Done(ReadId(0))]);
    assert_eq!(after(&|_| {}, false), [passed_after(Some(first))]);
    assert_eq!(after(&|it| it.published.new_regime(), true), [passed]);
    // Given up and written again meanwhile: it reads as before, and is not the same.
    let twice = |it: &Bench| {
        it.published.set_region(0, RegionReads::Zeroes);
        it.published.set_region(0, RegionReads::Direct);
    };
    assert_eq!(after(&twice, true), [passed]);
    // What only keeps new reads away does not touch those under way.
    assert_eq!(
        after(&|it| it.published.set_open(false), true),
        [Step::Done(ReadId(0))]
    );
    assert_eq!(
        after(&|it| it.published.set_region(1, RegionReads::Asked), true),
        [Step::Done(ReadId(0))]
    );
}

#[test]
fn a_mirror_is_read_from_the_copy_with_the_shortest_queue() {
    let mut it = bench(Level::Raid1, 3, WRITTEN);
    for _ in 0..6 {
        assert!(it.submit(0, 4096));
    }
    let mut members = it.members();
    members.sort_unstable();
    assert_eq!(members, [0, 0, 1, 1, 2, 2]);
    it.published.set_member(1, false);
    it.published.new_regime();
    it.out.clear();
    for _ in 0..4 {
        assert!(it.submit(0, 4096));
    }
    assert!(!it.members().contains(&1));
}
