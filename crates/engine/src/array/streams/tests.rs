use super::super::tests::{Bench, superblock};
use super::*;
use crate::format::region_map::{RegionEntry, RegionState};
use crate::format::superblock::Consistency;
use crate::layout::Level;

const KIB: u64 = 1 << 10;
const STRIPE: u64 = 128 * KIB;
/// Three quarters of a stripe: requests end in strips, and in the middle of them.
const PIECE: u64 = 96 * KIB;

/// An array of 2+1 with a region that is open.
fn open() -> Bench {
    open_with(Consistency::None, RegionState::Unwritten)
}

fn open_with(policy: Consistency, state: RegionState) -> Bench {
    let mut superblock = superblock(Level::Raid5, 3, 64 * KIB);
    superblock.consistency = policy;
    let mut regions = RegionMap::new(superblock.regions());
    regions.entries.fill(RegionEntry::new(state, 1));
    let mut bench = Bench::from(superblock, regions);
    bench.end_all();
    bench.written();
    // Far from what the tests write.
    bench.array.streams = Streams::default();
    bench
}

fn write(bench: &mut Bench, number: u64) -> RequestId {
    bench.submit(Operation::Write, number * PIECE, PIECE)
}

/// A stream of requests under way that is believed; the next one begins a stripe.
fn believed() -> Bench {
    let mut bench = open();
    for number in 0..4 {
        write(&mut bench, number);
    }
    assert_eq!(4 * PIECE % STRIPE, 0);
    bench
}

fn reads_of(bench: &Bench, stripe: u64) -> usize {
    let rows = bench.array.data_offset() + stripe * 64 * KIB;
    let read = |io: &&Io| matches!(io.kind, IoKind::Read(_));
    let there = |io: &&Io| (rows..rows + 64 * KIB).contains(&io.offset);
    bench.pending.iter().filter(read).filter(there).count()
}

#[test]
fn parts_of_a_stripe_become_one_write_of_it_all() {
    let mut bench = believed();
    write(&mut bench, 4);
    assert_eq!(reads_of(&bench, 3), 0, "it waits for the rest");
    let under_way = bench.pending.len();
    write(&mut bench, 5);
    assert_eq!(reads_of(&bench, 3), 0, "nothing is read for a whole stripe");
    assert_eq!(bench.pending.len(), under_way + 4, "all strips are written");
    let counters = bench.array.counters();
    assert_eq!(counters.gathered, 1);
    // Both strips' rows: min(2 + 1, 2 - 2) and min(1 + 1, 2 - 1) strips of 64 and 32 KiB of rows.
    assert_eq!(counters.gathered_bytes, 32 * KIB);
    // What is left of the last one goes on by itself in the end.
    bench.end_all();
    assert_eq!(bench.completed.len(), 5);
    assert!(bench.array.next_tick_ns().is_some());
    bench.tick(HOLD_NS_MAX);
    bench.end_all();
    assert_eq!(bench.completed.len(), 6);
    assert_eq!(bench.array.held_at_rest(), None);
}

#[test]
fn a_lone_writer_among_others_never_waits() {
    let mut bench = open();
    let far = 6 << 20;
    for number in 0..40 {
        // Somebody else's, which take long.
        bench.submit(Operation::Write, far + number * 4096, 4096);
        let others = bench.pending.len();
        let lone = write(&mut bench, number % 20);
        while bench.pending.len() > others {
            bench.end(others, Ok(()));
        }
        assert!(bench.completed.iter().any(|&(id, _)| id == lone));
        bench.end_all();
        bench.completed.clear();
    }
}

#[test]
fn a_stream_that_pauses_waits_no_longer_than_its_client_may_need() {
    let mut bench = believed();
    bench.array.streams.read_ns = HOLD_NS_MAX;
    write(&mut bench, 4);
    let due = |bench: &Bench| bench.array.streams.next_ns().expect("it is held");
    assert_eq!(due(&bench), bench.array.now_ns + HOLD_NS_MAX);
    bench.end_all();
    assert_eq!(bench.completed.len(), 4);
    assert_eq!(due(&bench), bench.array.now_ns + CLIENT_NS);
}

#[test]
fn a_lone_writer_never_waits() {
    let mut bench = open();
    for number in 0..40 {
        write(&mut bench, number);
        bench.end_all();
        assert_eq!(bench.completed.len() as u64, number + 1);
    }
    assert_eq!(bench.array.counters().gathered, 0);
}

#[test]
fn who_waits_for_the_band_ends_the_gathering() {
    // A write of the same blocks cannot join.
    let mut bench = believed();
    write(&mut bench, 4);
    bench.submit(Operation::Write, 4 * PIECE, 4096);
    assert!(reads_of(&bench, 3) > 0);
    bench.end_all();
    assert_eq!(
        bench.completed.len(),
        6,
        "{}",
        bench.array.describe_operations()
    );
    // A drive fails: what is read from it has to be decoded.
    let mut bench = believed();
    bench.end_all();
    bench.command(Command::Fail {
        member: MemberIndex(0),
        force: false,
    });
    bench.end_all();
    bench.completed.clear();
    write(&mut bench, 3);
    write(&mut bench, 4);
    let strips = (0..2).map(|strip| 3 * STRIPE + strip * 64 * KIB);
    for at in strips.collect::<Vec<_>>() {
        bench.submit(Operation::Read, at, 4096);
    }
    bench.end_all();
    assert_eq!(bench.completed.len(), 4);
}

#[test]
fn a_stop_waits_for_nothing() {
    let mut bench = believed();
    write(&mut bench, 4);
    bench.command(Command::Stop);
    bench.end_all();
    assert_eq!(bench.completed.len(), 5);
    assert!(bench.array.is_stopped());
}

#[test]
fn a_stream_that_does_not_fill_its_stripes_is_not_waited_for() {
    let mut bench = believed();
    bench.end_all();
    bench.completed.clear();
    let mut held = 0;
    for number in 4..24 {
        // Every second piece only, and something else under way all the time.
        bench.submit(Operation::Write, 2 * number * STRIPE % (1 << 20), 4096);
        bench.submit(
            Operation::Write,
            (2 * number * STRIPE + STRIPE) % (1 << 20),
            4096,
        );
        bench.end_all();
        while bench.completed.len() < 2 {
            held += 1;
            bench.tick(number * 1_000_000_000);
            bench.end_all();
        }
        bench.completed.clear();
    }
    assert!((1..=4).contains(&held), "held {held} times");
}

#[test]
fn regions_are_made_ready_before_a_stream_comes_to_them() {
    let second = "the second region, before it is known how far it goes";
    for state in [RegionState::Unwritten, RegionState::Clean] {
        let bench = open_with(Consistency::None, state);
        assert_eq!(waits_for_regions(bench), 1, "{second}");
    }
    // A crash makes dirty regions doubtful: none is dirty that nobody writes.
    let bench = open_with(Consistency::Resync, RegionState::Clean);
    let regions = bench.array.geometry().regions();
    assert_eq!(waits_for_regions(bench), regions - 1);
}

/// A stream over the whole volume: how many regions are not ready when it comes to them.
fn waits_for_regions(mut bench: Bench) -> u64 {
    let region = bench.array.geometry().region_volume_bytes();
    let mut at = 0;
    let mut waited = 0;
    while at < bench.array.geometry().volume_bytes() {
        let pages = bench.array.regions.is_changing();
        let first = at % region == 0 && at > 0;
        let ready = bench.array.regions.state((at / region) as u32) == RegionState::Dirty;
        waited += u64::from(first && !ready);
        assert!(!pages, "all of it has ended");
        bench.submit(Operation::Write, at, STRIPE);
        bench.end_all();
        at += STRIPE;
    }
    assert!(bench.array.geometry().regions() >= 4);
    waited
}

#[test]
fn a_stop_cleans_what_was_made_ready_for_nobody() {
    let mut bench = open_with(Consistency::None, RegionState::Clean);
    let mut at = 0;
    // Until a region is being made ready while no request is under way.
    while !(bench.array.regions.is_opening() && bench.array.requests.used() == 0) {
        bench.end_all();
        bench.submit(Operation::Write, at, STRIPE);
        at += STRIPE;
        assert!(at < bench.array.geometry().volume_bytes(), "none is");
        while bench.array.requests.used() > 0 {
            let io = bench.pending.iter();
            let last = io.enumerate().max_by_key(|(_, io)| match io.kind {
                IoKind::Read(_) | IoKind::Write(..) => 1,
                _ => 0,
            });
            bench.end(last.expect("something is under way").0, Ok(()));
        }
    }
    bench.command(Command::Stop);
    bench.end_all();
    assert!(bench.array.is_stopped());
    assert_eq!(bench.array.region_counts()[2], 0, "no region is dirty");
}
