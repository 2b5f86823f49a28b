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

/// A short run of a small array, to the end: nothing of the load is left under way.
#[test]
fn a_load_on_paced_drives_counts_what_the_drives_did() {
    let run = |policy, workload| {
        let drives = rig::alike("paced:cm7/16", "64MiB", 3);
        let plan = rig::Plan {
            geometry: GeometryRequest {
                level: Level::Raid5,
                members: 3,
                strip_size_bytes: None,
                block_size_bytes: None,
                group_size: None,
                parity: None,
            },
            drives,
            missing: 0,
            policy: Some(policy),
        };
        let load = load::Load {
            workload,
            block_bytes: 4096,
            depth: 8,
            span_bytes: 16 << 20,
            warm_up_seconds: 0.05,
            seconds: 0.1,
            fill: false,
            part: 0,
            parts: 1,
        };
        rig::Rig::new(plan).unwrap().run(&load).unwrap()
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
