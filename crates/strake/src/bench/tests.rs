use super::*;

#[test]
fn several_drives_are_asked_for_by_kind() {
    let cases = [
        ("null:5", Some(("null", "5"))),
        ("memory:5:64MiB", Some(("memory", "5:64MiB"))),
        ("paced:cm7/16:5:1GiB", Some(("paced:cm7/16", "5:1GiB"))),
        ("paced:cm7:5", Some(("paced:cm7", "5"))),
        ("paced:cm7", None),
        ("/dev/sda", None),
        ("/dev/disk/by-path/pci:1", None),
    ];
    for (text, expected) in cases {
        assert_eq!(several(text), expected, "{text}");
    }
}

#[test]
fn drives_of_a_kind_are_told_apart_and_the_same_when_asked_again() {
    let two = rig::alike("paced:cm7/16", "1GiB", 2);
    assert_ne!(two[0], two[1]);
    assert_eq!(two, rig::alike("paced:cm7/16", "1GiB", 2));
    assert!(two[0].parse().is_ok());
}

/// A RAID 5 of three small drives; of a kind that no other test has, as those of one kind are the same.
fn plan(kind: &str, policy: Option<Consistency>, missing: usize) -> rig::Plan {
    rig::Plan {
        geometry: GeometryRequest {
            level: Level::Raid5,
            members: 3,
            strip_size_bytes: None,
            block_size_bytes: None,
            group_size: None,
            parity: None,
        },
        drives: rig::alike(kind, "64MiB", 3),
        missing,
        policy,
    }
}

#[test]
fn no_more_drives_are_missing_than_there_are() {
    assert!(rig::Rig::new(plan("paced:cm7/8", None, 1)).is_ok());
    let refused = rig::Rig::new(plan("paced:cm7/8", None, 4))
        .err()
        .expect("4 of 3");
    assert!(refused.to_string().contains("4 of 3 drives"));
}

/// A short run of a small array, to the end: nothing of the load is left under way.
#[test]
fn a_load_on_paced_drives_counts_what_the_drives_did() {
    let run = |policy, workload| {
        let load = load::Load {
            workload,
            block_bytes: 4096,
            depth: 8,
            span_bytes: 16 << 20,
            warm_up_seconds: 0.05,
            seconds: 0.1,
            fill: false,
            rebuild: false,
            part: 0,
            parts: 1,
        };
        let mut rig = rig::Rig::new(plan("paced:cm7/16", Some(policy), 0)).unwrap();
        rig.run(&load).unwrap()
    };
    for policy in [Consistency::None, Consistency::Resync, Consistency::Log] {
        let measured = run(policy, Workload::Randread);
        assert!(measured.requests > 0 && measured.all_requests >= measured.requests);
        let reads: u64 = measured.all_drives.iter().map(|used| used.reads).sum();
        assert_eq!(reads, measured.all_requests);
        let measured = run(policy, Workload::Randwrite);
        let written = measured.all_drives.iter().map(|used| used.write_bytes);
        assert!(written.sum::<u64>() >= measured.all_requests * 4096);
    }
}

#[test]
fn what_drives_allow_is_known_where_it_is_arithmetic() {
    let allowed = |level, members, missing, workload, block_bytes| {
        let request = GeometryRequest {
            level,
            members,
            strip_size_bytes: Some(64 << 10),
            block_size_bytes: None,
            group_size: None,
            parity: None,
        };
        let model = PaceModel::parse("cm7").unwrap();
        theory::allowed(
            &request.shape().unwrap(),
            missing,
            model,
            workload,
            block_bytes,
        )
    };
    let near = |seen: Option<f64>, expected: f64| {
        let seen = seen.expect("it is known");
        assert!(
            (seen / expected - 1.0).abs() < 1e-3,
            "{seen}, not {expected}"
        );
    };
    use Workload::{Randread, Randwrite, Read, Rw70, Write};
    near(allowed(Level::Raid0, 4, 0, Randwrite, 4096), 4.0 * 0.7e6);
    near(allowed(Level::Raid1, 2, 0, Randwrite, 4096), 0.7e6);
    near(allowed(Level::Raid1, 2, 1, Randwrite, 4096), 0.7e6);
    near(allowed(Level::Raid1, 2, 1, Randread, 4096), 2.7e6);
    let (read_s, write_s) = (1.0 / 2.7e6, 1.0 / 0.7e6);
    let mixed_s = 0.7 * read_s + 0.3 * 2.0 * (read_s + write_s);
    near(allowed(Level::Raid5, 5, 0, Rw70, 4096), 5.0 / mixed_s);
    // Whole stripes to the members that are left: one strip each.
    near(
        allowed(Level::Raid6, 12, 2, Write, 640 << 10),
        6.75e9 / 65536.0,
    );
    for (missing, workload, block_bytes) in [
        (1, Randwrite, 4096),
        (0, Randwrite, 1 << 20),
        (1, Randread, 1 << 20),
        (1, Read, 4096),
        (2, Randread, 4096),
    ] {
        assert_eq!(
            allowed(Level::Raid5, 5, missing, workload, block_bytes),
            None
        );
    }
}

#[test]
fn a_time_that_cannot_be_measured_is_refused() {
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
        assert!(!is_time(seconds), "{seconds}");
    }
    assert!(is_time(0.1));
}

#[test]
fn states_are_healthy_degraded_and_rebuilding() {
    assert_eq!(state("healthy").unwrap(), (0, false));
    assert_eq!(state("degraded").unwrap(), (1, false));
    assert_eq!(state("degraded:2").unwrap(), (2, false));
    assert_eq!(state("rebuilding").unwrap(), (1, true));
    assert_eq!(state("rebuilding:3").unwrap(), (3, true));
    for wrong in [
        "",
        "healthy:1",
        "degraded:",
        "degraded:-1",
        "rebuilt",
        "rebuilding:0",
    ] {
        let refused = state(wrong).expect_err(wrong).to_string();
        assert!(refused.starts_with(&format!("{wrong}: ")), "{refused}");
    }
}

#[test]
fn what_is_rebuilt_beside_a_load_is_counted_while_the_rebuild_lasts() {
    let load = |rebuild| load::Load {
        workload: Workload::Randread,
        block_bytes: 4096,
        depth: 4,
        span_bytes: 16 << 20,
        warm_up_seconds: 0.1,
        seconds: 0.3,
        fill: false,
        rebuild,
        part: 0,
        parts: 1,
    };
    let mut rig = rig::Rig::new(plan("paced:cm7/1000", None, 1)).unwrap();
    assert_eq!(rig.run(&load(false)).unwrap().rebuilt_bytes, None);
    let measured = rig.run(&load(true)).unwrap();
    let rebuilt = measured.rebuilt_bytes.expect("a rebuild");
    assert!(measured.requests > 0 && rebuilt > 0);
    // What the new drive's pace allows, and what was under way.
    let most = 6.75e6 * measured.elapsed.as_secs_f64() + (1 << 20) as f64;
    assert!((rebuilt as f64) < most, "{rebuilt} of {most}");

    let mut rig = rig::Rig::new(plan("paced:cm7/3", None, 1)).unwrap();
    rig.rebuild().unwrap();
    while rig.rebuilt_bytes().unwrap().is_some() {
        rig.core.turn();
    }
    let over = rig.run(&load(true)).err().expect("nothing to rebuild");
    assert!(over.to_string().contains("larger drives"), "{over}");
}
