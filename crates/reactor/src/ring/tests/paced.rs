//! Drives that keep a pace: their completions come when due, and the port sleeps meanwhile.

use super::*;
use crate::drive::pace_use;

#[test]
fn nothing_is_told_before_its_time_and_all_of_it_is_told() {
    let mut rig = Rig::new(8);
    let drive = rig.open("paced:cm7/1000:16MiB:ring-tests-due");
    let begun_ns = rig.port.now_ns();
    let mut buffers: Vec<_> = (0..20).map(|_| Buffer::heap(4096)).collect();
    for (at, buffer) in buffers.iter_mut().enumerate() {
        let from = buffer.lend_outbound(0..4096);
        let op = DriveOp::Write {
            offset: at as u64 * 65536,
            from,
            durable: at % 2 == 0,
        };
        rig.port.submit(drive, at as u64, op);
    }
    // 20 random writes at 700 a second.
    let done = rig.reap(20);
    let elapsed_ns = rig.port.now_ns() - begun_ns;
    assert!(elapsed_ns >= 20 * 1_000_000_000 / 700, "{elapsed_ns}");
    let in_order = done.iter().enumerate();
    assert!(
        in_order
            .clone()
            .all(|(at, end)| end.token == at as u64 && end.result == Ok(()))
    );
    let used = pace_use(&spec("paced:cm7/1000:16MiB:ring-tests-due")).unwrap();
    assert_eq!((used.random_writes, used.write_bytes), (20, 20 * 4096));
    assert_eq!(pace_use(&spec("memory:16MiB:ring-tests-due")), None);
    assert_eq!(pace_use(&spec("paced:cm7:16MiB:ring-tests-never")), None);
}

#[test]
fn a_far_completion_is_slept_for() {
    let mut rig = Rig::new(8);
    let drive = rig.open("paced:cm7/10000:16MiB");
    let buffer = Buffer::heap(4096);
    let from = buffer.lend_outbound(0..4096);
    let op = DriveOp::Write {
        offset: 0,
        from,
        durable: false,
    };
    // 14 ms.
    rig.port.submit(drive, 1, op);
    let due_ns = rig.port.paced.next_ns().unwrap();
    let mut slept = 0;
    while rig.port.now_ns() + POLLED_NS < due_ns {
        rig.port.wait(None);
        slept += 1;
    }
    assert!(slept < 20, "{slept} waits in 14 ms");
    assert_eq!(rig.reap(1)[0].result, Ok(()));
}

#[test]
fn two_ports_share_one_timeline() {
    let text = "paced:cm7/1000:16MiB:ring-tests-shared";
    let mut rigs = [Rig::new(8), Rig::new(8)];
    let drives = rigs.each_mut().map(|rig| rig.open(text));
    let begun_ns = rigs[0].port.now_ns();
    for (rig, drive) in rigs.iter_mut().zip(drives) {
        rig.port.submit(
            drive,
            1,
            DriveOp::Discard {
                offset: 0,
                length: 4096,
            },
        );
    }
    let due_ns = rigs.each_ref().map(|rig| rig.port.paced.next_ns().unwrap());
    // The second waits for the first.
    assert!(
        due_ns[1] >= begun_ns + 2 * 1_000_000_000 / 700,
        "{due_ns:?}"
    );
    assert!(rigs.iter_mut().all(|rig| rig.reap(1)[0].result == Ok(())));
}

#[test]
fn a_closed_paced_drive_still_completes() {
    let mut rig = Rig::new(8);
    let drive = rig.open("paced:cm7:16MiB");
    rig.port.submit(drive, 3, DriveOp::Flush);
    rig.port.close(drive);
    assert_eq!(rig.reap(1)[0].token, 3);
    assert_eq!(rig.write(drive, 0, 1, 4096), Err(DriveError::Gone));
}
