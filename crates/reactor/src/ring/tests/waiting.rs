//! Sleeping, and what ends it.

use std::time::Duration;

use super::*;

#[test]
fn a_wake_ends_a_wait_whenever_it_comes() {
    let mut rig = Rig::new(8);
    let waker = rig.port.waker();
    // Before: the next wait returns at once. Twice is once.
    waker.wake();
    waker.wake();
    rig.port.wait(None);
    for round in 0..200 {
        let waker = rig.port.waker();
        let thread = std::thread::spawn(move || {
            if round % 4 == 0 {
                std::thread::sleep(Duration::from_micros(round * 10));
            }
            waker.wake();
        });
        rig.port.wait(None);
        thread.join().unwrap();
        // The event may still be on its way; it must end a wait and no more than that.
        rig.port.wait(Some(rig.port.now_ns() + 1));
    }
    drop(rig);
    waker.wake();
}

/// Messages and wakes from several threads: none is missed, or this test does not end.
#[test]
fn no_wake_is_lost() {
    let mut rig = Rig::new(8);
    let (sender, mailbox) = std::sync::mpsc::channel::<u32>();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (sender, waker) = (sender.clone(), rig.port.waker());
            std::thread::spawn(move || {
                for i in 0..5_000 {
                    sender.send(i).unwrap();
                    waker.wake();
                }
            })
        })
        .collect();
    let mut received = 0;
    while received < 15_000 {
        received += mailbox.try_iter().count();
        if received < 15_000 {
            rig.port.wait(None);
        }
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_wait_ends_at_its_time_and_not_for_nothing_before() {
    let mut rig = Rig::new(8);
    rig.port.wait(Some(0));
    rig.port.waker().wake();
    rig.port.wait(None);
    let until = rig.port.now_ns() + 3_000_000;
    let mut returns = 0;
    while rig.port.now_ns() < until {
        rig.port.wait(Some(until));
        returns += 1;
    }
    // A stale wake and a signal may end some; a port that never sleeps returns thousands of times.
    assert!(returns < 20, "{returns} waits in 3 ms");
}

#[test]
fn a_completion_ends_a_wait() {
    on_every_drive("wait", |rig, drive, text| {
        let buffer = Buffer::heap(4096);
        let from = buffer.lend_outbound(0..4096);
        let op = DriveOp::Write {
            offset: 0,
            from,
            durable: true,
        };
        rig.port.submit(drive, 5, op);
        let mut done = Vec::new();
        while done.is_empty() {
            rig.port.wait(None);
            rig.port.poll(&mut done);
        }
        assert_eq!((done.len(), done[0].token), (1, 5), "{text}");
    });
}
