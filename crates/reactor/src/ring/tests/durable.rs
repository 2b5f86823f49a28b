//! Which writes are made durable, by what is known or told of a drive's cache.

use super::*;
use crate::drive::cache::WhenDurable;

#[test]
fn a_write_is_made_durable_where_the_drive_does_not_do_it_by_itself() {
    let disk = tempfile::tempdir().unwrap();
    let plain = file_in(disk.path(), "d").0;
    let mut rig = Rig::new(8);
    // Spec, when it is asked for, when it is not.
    let cases = [
        (plain.clone(), Durability::Dsync, Durability::None),
        (
            format!("cache=volatile:{plain}"),
            Durability::Dsync,
            Durability::None,
        ),
        (
            format!("cache=none:{plain}"),
            Durability::Dsync,
            Durability::Dsync,
        ),
        (
            format!("cache=none:faulty:{plain}"),
            Durability::Dsync,
            Durability::Dsync,
        ),
    ];
    for (text, asked, unasked) in cases {
        let drive = rig.open(&text);
        let target = rig.target(drive);
        assert_eq!(target.durability_of(true), asked, "{text}");
        assert_eq!(target.durability_of(false), unasked, "{text}");
        assert!(!target.needs_no(&DriveOp::Flush), "{text}");
        target.when = WhenDurable::AtCompletion;
        assert_eq!(target.durability_of(true), Durability::None);
        assert!(target.needs_no(&DriveOp::Flush));
        assert!(!target.needs_no(&DriveOp::Discard {
            offset: 0,
            length: 512
        }));
        rig.write_as(drive, 0, 4, 4096, true).unwrap();
        assert_eq!(rig.run(drive, DriveOp::Flush), Ok(()));
        rig.expect(drive, 0, 4, 4096);
        rig.port.close(drive);
    }
}

#[test]
fn zeroing_is_flushed_where_everything_is_to_be_durable() {
    let mut flight = Flight {
        drive: 0,
        token: 0,
        job: Job::Zero {
            offset: 0,
            length: 4096,
            way: Zeroing::Punch,
            done: 0,
        },
        outcome: Ok(()),
        retries: 0,
    };
    let mut target = Target {
        number: 0,
        registered: false,
        zeroing: Zeroing::Punch,
        durability: Durability::Dsync,
        when: WhenDurable::EachWrite,
    };
    assert_eq!(flight.answered(0, &mut target), Step::Again);
    assert!(matches!(flight.job, Job::Flush));
    assert_eq!(flight.answered(0, &mut target), Step::Done(Ok(())));
}
