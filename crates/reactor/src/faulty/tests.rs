use super::*;

fn plan() -> FaultPlan {
    FaultPlan::default()
}

#[test]
fn nothing_asked_nothing_fails() {
    let mut faults = Faults::new(plan());
    for i in 0..1000 {
        assert_eq!(faults.judge(Intent::Read(i * 512, 512)), Verdict::Proceed);
        assert_eq!(faults.judge(Intent::Write(i * 512, 512)), Verdict::Proceed);
        assert_eq!(faults.judge(Intent::Other), Verdict::Proceed);
    }
}

#[test]
fn dies_at_the_nth_operation_and_stays_dead() {
    for n in 1..5 {
        let die_after = Some(n);
        let mut faults = Faults::new(FaultPlan {
            die_after,
            ..plan()
        });
        for i in 1..10 {
            let expected = if i < n {
                Verdict::Proceed
            } else {
                Verdict::Fail
            };
            assert_eq!(
                faults.judge(Intent::Other),
                expected,
                "n {n}, operation {i}"
            );
        }
    }
}

#[test]
fn a_bad_range_is_mended_where_it_is_written() {
    let bad_ranges = vec![(4096, 8192)];
    let mut faults = Faults::new(FaultPlan {
        bad_ranges,
        ..plan()
    });
    assert_eq!(faults.judge(Intent::Read(0, 4096)), Verdict::Proceed);
    assert_eq!(faults.judge(Intent::Read(0, 4608)), Verdict::Fail);
    assert_eq!(faults.judge(Intent::Read(12288, 512)), Verdict::Proceed);
    assert_eq!(faults.judge(Intent::Read(11776, 512)), Verdict::Fail);
    assert_eq!(faults.judge(Intent::Write(8192, 512)), Verdict::Proceed);
    assert_eq!(faults.plan().bad_ranges, [(4096, 4096), (8704, 3584)]);
    assert_eq!(faults.judge(Intent::Zero(0, 8704)), Verdict::Proceed);
    assert_eq!(faults.judge(Intent::Write(8192, 65536)), Verdict::Proceed);
    assert_eq!(faults.plan().bad_ranges, []);
    assert_eq!(faults.judge(Intent::Read(4096, 8192)), Verdict::Proceed);
}

#[test]
fn one_in_one_is_always_and_each_kind_its_own() {
    let one = Some(1);
    let cases = [
        (
            FaultPlan {
                read_error_one_in: one,
                ..plan()
            },
            Verdict::Fail,
            Verdict::Proceed,
        ),
        (
            FaultPlan {
                write_error_one_in: one,
                ..plan()
            },
            Verdict::Proceed,
            Verdict::Fail,
        ),
        (
            FaultPlan {
                lost_write_one_in: one,
                ..plan()
            },
            Verdict::Proceed,
            Verdict::Lose,
        ),
        (
            FaultPlan {
                torn_write_one_in: one,
                ..plan()
            },
            Verdict::Proceed,
            Verdict::Tear(1536),
        ),
    ];
    for (plan, read, write) in cases {
        let mut faults = Faults::new(plan.clone());
        assert_eq!(faults.judge(Intent::Read(0, 3584)), read, "{plan:?}");
        assert_eq!(faults.judge(Intent::Write(0, 3584)), write, "{plan:?}");
    }
}

#[test]
fn the_same_plan_gives_the_same_verdicts() {
    let plan = FaultPlan {
        read_error_one_in: Some(7),
        torn_write_one_in: Some(5),
        ..plan()
    };
    let run = || {
        let mut faults = Faults::new(plan.clone());
        let one = |i: u64| match i % 2 {
            0 => faults.judge(Intent::Read(i * 4096, 4096)),
            _ => faults.judge(Intent::Write(i * 4096, 4096)),
        };
        (0..500).map(one).collect::<Vec<_>>()
    };
    let first = run();
    assert_eq!(first, run());
    assert!(first.contains(&Verdict::Fail) && first.contains(&Verdict::Tear(2048)));
    assert!(first.contains(&Verdict::Proceed));
}

#[test]
fn only_faulty_drives_take_a_plan() {
    let spec = DriveSpec("memory:1MiB:plain".into());
    assert!(
        set(&spec, None)
            .unwrap_err()
            .to_string()
            .contains("faulty:")
    );
    let spec = DriveSpec("faulty:memory:1MiB".into());
    assert!(set(&spec, None).unwrap_err().to_string().contains("label"));
    let spec = DriveSpec("faulty:memory:1MiB:plan-kept".into());
    set(
        &spec,
        Some(FaultPlan {
            dead: true,
            ..plan()
        }),
    )
    .unwrap();
    assert!(get(&spec).unwrap().dead);
    set(&spec, None).unwrap();
    assert_eq!(get(&spec).unwrap(), plan());
}
