//! `faulty:` drives through the ring.

use super::*;

#[test]
fn faulty_drives_fail_as_told_until_healed() {
    let disk = tempfile::tempdir().unwrap();
    let file = file_in(disk.path(), "d").0;
    for text in [
        format!("faulty:{file}"),
        "faulty:memory:16MiB:ring-tests-faulty".into(),
    ] {
        let mut rig = Rig::new(8);
        let drive = rig.open(&text);
        let eio = Err(DriveError::Io(libc::EIO));
        let plan = FaultPlan::default;
        rig.write(drive, 0, 1, MIB).unwrap();

        let bad_ranges = vec![(8192, 4096)];
        assert!(rig.port.set_faults(
            drive,
            Some(FaultPlan {
                bad_ranges,
                ..plan()
            })
        ));
        assert_eq!(rig.read(drive, 4096, 8192).map(drop), eio);
        rig.expect(drive, 0, 1, 8192);
        rig.write(drive, 8192, 2, 4096).unwrap();
        rig.expect(drive, 8192, 2, 4096);

        let one = Some(1);
        let cases = [
            (
                FaultPlan {
                    torn_write_one_in: one,
                    ..plan()
                },
                eio,
                (3, 2),
            ),
            (
                FaultPlan {
                    lost_write_one_in: one,
                    ..plan()
                },
                Ok(()),
                (2, 2),
            ),
            (
                FaultPlan {
                    write_error_one_in: one,
                    ..plan()
                },
                eio,
                (2, 2),
            ),
            (
                FaultPlan {
                    dead: true,
                    ..plan()
                },
                eio,
                (2, 2),
            ),
        ];
        for (plan, result, (first, second)) in cases {
            rig.port.set_faults(drive, None);
            rig.write_as(drive, 8192, 2, 4096, true).unwrap();
            rig.port.set_faults(drive, Some(plan.clone()));
            assert_eq!(rig.write(drive, 8192, 3, 4096), result, "{plan:?}");
            rig.port.set_faults(drive, None);
            rig.expect(drive, 8192, first, 2048);
            rig.expect(drive, 10240, second, 2048);
        }

        let die_after = Some(3);
        rig.port.set_faults(
            drive,
            Some(FaultPlan {
                die_after,
                ..plan()
            }),
        );
        let flushes = [(); 5].map(|()| rig.run(drive, DriveOp::Flush));
        assert_eq!(flushes, [Ok(()), Ok(()), eio, eio, eio]);
        // Another port of the process sees the same drive, dead, and can heal it.
        let mut other = Rig::new(8);
        let same = other.open(&text);
        assert_eq!(other.run(same, DriveOp::Flush), eio);
        crate::faulty::set(&spec(&text), None).unwrap();
        assert_eq!(rig.run(drive, DriveOp::Flush), Ok(()));
    }
    let mut rig = Rig::new(8);
    let plain = rig.open("memory:16MiB");
    assert!(!rig.port.set_faults(plain, None));
    assert!(!rig.port.set_faults(DriveId(50), None));
}

#[test]
fn a_slow_drive_completes_late_and_in_order() {
    let mut rig = Rig::new(8);
    let slow = rig.open("faulty:memory:16MiB:ring-tests-slow");
    let fast = rig.open("memory:16MiB:ring-tests-fast");
    let latency_us = 2000;
    let plan = FaultPlan {
        latency_us,
        ..FaultPlan::default()
    };
    rig.port.set_faults(slow, Some(plan));
    let start = rig.port.now_ns();
    for token in 0..4 {
        rig.port.submit(slow, token, DriveOp::Flush);
    }
    rig.port.submit(fast, 4, DriveOp::Flush);
    assert_eq!(rig.reap(1)[0].token, 4);
    let order = rig
        .reap(4)
        .iter()
        .map(|done| done.token)
        .collect::<Vec<_>>();
    assert_eq!(order, [0, 1, 2, 3]);
    assert!(rig.port.now_ns() - start >= latency_us * 1000);
    // Held back operations go with the port.
    let buffer = Buffer::heap(512);
    let from = buffer.lend_outbound(0..512);
    let op = DriveOp::Write {
        offset: 0,
        from,
        durable: false,
    };
    rig.port.submit(slow, 9, op);
    rig.port.close(slow);
    drop(rig);
    assert!(!buffer.is_lent());
}
