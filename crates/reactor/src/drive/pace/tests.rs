use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn pace(model: &str) -> Pace {
    Pace::new(PaceModel::parse(model).unwrap())
}

/// Keeps `depth` operations with a drive for a second of virtual time: each that ends is followed
/// by the next. Returns operations a second and their mean latency.
fn drive_alone(
    model: &str,
    depth: usize,
    kind: PaceKind,
    bytes: u64,
    mut offset_of: impl FnMut(u64) -> u64,
) -> (u64, u64) {
    let mut pace = pace(model);
    let mut ends = std::collections::BinaryHeap::new();
    let (mut begun, mut ended, mut latencies_ns) = (0, 0, 0);
    let mut now_ns = 0;
    loop {
        while ends.len() < depth {
            let due_ns = pace.admit(now_ns, kind, offset_of(begun), bytes);
            latencies_ns += due_ns - now_ns;
            ends.push(std::cmp::Reverse(due_ns));
            begun += 1;
        }
        now_ns = ends.pop().unwrap().0;
        if now_ns > SECOND_NS {
            return (ended, latencies_ns / begun);
        }
        ended += 1;
    }
}

/// Far apart, never where another ended.
fn scattered(number: u64) -> u64 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) * 8192
}

/// Within a thousandth, and for the operations still under way at the end.
fn near(seen: u64, expected: u64) -> bool {
    seen.abs_diff(expected) <= expected / 1000 + 300
}

#[test]
fn a_model_alone_keeps_its_figures() {
    use PaceKind::{Read, Write};
    // Model, kind, bytes, operations a second at depth 256, nanoseconds at depth 1.
    let cases = [
        ("cm7", Read, 4096, 2_700_000, 65_370),
        ("cm7", Write, 4096, 700_000, 13_428),
        ("cm7/16", Read, 4096, 168_750, 65_000 + 5_925),
        ("cm7/16", Write, 4096, 43_750, 12_000 + 22_857),
        ("cm7", Read, 128 << 10, 106_811, 65_000 + 9_362),
        ("cm7", Write, 128 << 10, 51_498, 12_000 + 19_418),
    ];
    for (model, kind, bytes, per_second, alone_ns) in cases {
        let (deep, _) = drive_alone(model, 256, kind, bytes, scattered);
        assert!(
            near(deep, per_second),
            "{model} {kind:?} {bytes}: {deep} a second"
        );
        let (one, latency_ns) = drive_alone(model, 1, kind, bytes, scattered);
        // The tail adds a little.
        let percent = |seen: u64, expected: u64| seen.abs_diff(expected) * 100 / expected;
        assert!(
            latency_ns >= alone_ns && percent(latency_ns, alone_ns) < 2,
            "{latency_ns} ns"
        );
        assert!(
            percent(one, SECOND_NS / alone_ns) < 2,
            "{one} a second at depth 1"
        );
    }
}

#[test]
fn a_hundredth_of_all_operations_take_longer_as_is_said() {
    let mut counts = std::collections::BTreeMap::new();
    for number in 0..1_000_000 {
        *counts.entry(tail_ns(number, 1000)).or_insert(0) += 1;
    }
    let near = |latency_ns: u64, expected: i32| {
        let seen: i32 = counts[&latency_ns];
        assert!(
            (seen - expected).abs() < expected / 20,
            "{seen} of {latency_ns} ns"
        );
    };
    assert_eq!(counts.len(), 4);
    near(1000, 990_000);
    near(1500, 9_000);
    near(3000, 900);
    near(8000, 100);
    let sum: u64 = counts.iter().map(|(&ns, &count)| ns * count as u64).sum();
    assert!((sum as f64 / 1e9 - TAIL_MEAN).abs() < 1e-3);
}

#[test]
fn contiguous_writes_are_counted_by_bytes() {
    let sequential = |number| number * 4096;
    let (writes, _) = drive_alone("cm7", 256, PaceKind::Write, 4096, sequential);
    assert!(near(writes, 6_750_000_000 / 4096), "{writes} a second");
    let (reads, _) = drive_alone("cm7", 256, PaceKind::Read, 4096, sequential);
    assert!(near(reads, 2_700_000), "{reads} a second");
}

#[test]
fn reads_and_writes_share_one_timeline() {
    let mut pace = pace("cm7");
    let mut last_ns = 0;
    for number in 0..7_000 {
        last_ns = pace.admit(0, PaceKind::Read, 0, 4096);
        last_ns = last_ns.max(pace.admit(0, PaceKind::Write, scattered(number), 4096));
    }
    let both_ns = 7_000 * SECOND_NS / 2_700_000 + 7_000 * SECOND_NS / 700_000;
    // The last read's base latency reaches beyond the last write's end.
    assert!(last_ns.abs_diff(both_ns + 65_000) < 5_000, "{last_ns}");
    // Each operation's picoseconds are cut at the point.
    assert!(
        pace.used().busy_ns.abs_diff(both_ns) <= 14,
        "{:?}",
        pace.used()
    );
}

#[test]
fn a_stream_stays_one_among_random_writes() {
    let mut pace = pace("cm7");
    let mut ring = 1 << 40;
    for round in 0..1000 {
        pace.admit(0, PaceKind::Write, ring, 8192);
        ring += 8192;
        // More between than are remembered, once it is known for a stream.
        let between = if round == 0 { 60 } else { 200 };
        for number in 0..between {
            pace.admit(0, PaceKind::Write, scattered(round * 1000 + number), 4096);
        }
    }
    assert_eq!(pace.used().contiguous_writes, 999);
}

#[test]
fn a_beginning_is_forgotten_among_many_and_the_oldest_stream_among_newer() {
    let mut streams = Streams::new();
    assert!(!streams.continues(0, 10));
    for number in 1..=RECENT as u64 {
        assert!(!streams.continues(number * 1000, number * 1000 + 10));
    }
    assert!(!streams.continues(10, 20), "64 others were between");
    let mut streams = Streams::new();
    for number in 0..=STREAMS as u64 {
        assert!(!streams.continues(number * 1000, number * 1000 + 10));
        assert!(streams.continues(number * 1000 + 10, number * 1000 + 20));
    }
    assert!(streams.continues(1020, 1030));
    assert!(!streams.continues(20, 30), "eight newer streams");
}

#[test]
fn flushes_and_unmaps_take_what_they_should() {
    let mut pace = pace("cm7");
    assert_eq!(pace.admit(5, PaceKind::Flush, 0, 0), 12_005);
    let first_ns = pace.admit(5, PaceKind::Unmap, 0, 1 << 40);
    assert_eq!(first_ns, 5 + 1_428 + 12_000);
    // The third operation is one of the tail.
    let tail_ns = tail_ns(3, 12_000) - 12_000;
    assert_eq!(pace.admit(5, PaceKind::Flush, 0, 0), first_ns + tail_ns);
    let used = pace.used();
    assert_eq!(
        (used.flushes, used.random_writes, used.busy_ns),
        (2, 1, 1428)
    );
}

#[test]
fn an_idle_time_is_not_saved_up() {
    let mut pace = pace("cm7");
    pace.admit(0, PaceKind::Write, 0, 4096);
    let late_ns = 10 * SECOND_NS;
    let due_ns = pace.admit(late_ns, PaceKind::Write, 1 << 20, 4096);
    assert_eq!(due_ns, late_ns + 12_000 + 1_428);
}

#[test]
fn models_are_named_with_an_optional_divisor() {
    for text in ["cm7", "cm7/16", "cm7/10000"] {
        assert_eq!(PaceModel::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(PaceModel::parse("cm7/1"), PaceModel::parse("cm7"));
    for text in [
        "",
        "cm8",
        "CM7",
        "cm7/",
        "cm7/0",
        "cm7/10001",
        "cm7/x",
        "cm7/1/2",
        "/16",
    ] {
        let error = PaceModel::parse(text).unwrap_err();
        assert!(error.contains("cm7"), "{text}: {error}");
    }
}
