use super::*;
use crate::buffer::Buffer;

/// The kernel's answers that cannot be provoked here, and what follows.
#[test]
fn answers_lead_on_or_end() {
    let buffer = Buffer::heap(8192);
    let target = |zeroing, durability| Target {
        number: 0,
        registered: false,
        zeroing,
        durability,
        when: WhenDurable::OnRequest,
    };
    let flight = |job| Flight {
        drive: 0,
        token: 0,
        job,
        outcome: Ok(()),
        retries: 0,
    };
    let write = |durability| Job::Write {
        offset: 0,
        from: buffer.lend_outbound(0..8192),
        done: 0,
        durability,
    };
    let zero = |way| Job::Zero {
        offset: 0,
        length: 8192,
        way,
        done: 0,
    };
    let discard = Job::Discard {
        offset: 0,
        length: 8192,
    };
    let gone = Err(DriveError::Gone);
    let short = Err(DriveError::Short);
    let cases = [
        ("whole", write(Durability::None), vec![8192], Ok(())),
        (
            "in parts",
            write(Durability::Dsync),
            vec![4096, 512, 3584],
            Ok(()),
        ),
        ("nothing", write(Durability::None), vec![0], short),
        ("odd part", write(Durability::None), vec![100], short),
        (
            "interrupted",
            write(Durability::None),
            vec![-libc::EINTR, -libc::EAGAIN, 8192],
            Ok(()),
        ),
        (
            "no dsync",
            write(Durability::Dsync),
            vec![-libc::EOPNOTSUPP, 8192, 0],
            Ok(()),
        ),
        (
            "flush fails",
            write(Durability::Flush),
            vec![8192, -5],
            Err(DriveError::Io(5)),
        ),
        (
            "unplugged",
            write(Durability::None),
            vec![-libc::ENODEV],
            gone,
        ),
        ("closed", Job::Flush, vec![-libc::EBADF], gone),
        (
            "medium",
            Job::Flush,
            vec![-libc::EIO],
            Err(DriveError::Io(libc::EIO)),
        ),
        ("no discard", discard, vec![-libc::EOPNOTSUPP], Ok(())),
        ("punch", zero(Zeroing::Punch), vec![0], Ok(())),
        (
            "no punch",
            zero(Zeroing::Punch),
            vec![-libc::EOPNOTSUPP, 0],
            Ok(()),
        ),
        (
            "no range",
            zero(Zeroing::Punch),
            vec![-95, -95, 4096, 4096],
            Ok(()),
        ),
        (
            "no room",
            zero(Zeroing::Write),
            vec![-libc::ENOSPC],
            Err(DriveError::Io(28)),
        ),
    ];
    for (name, job, answers, end) in cases {
        let mut flight = flight(job);
        let mut target = target(Zeroing::Punch, Durability::Dsync);
        let (last, before) = answers.split_last().unwrap();
        for &answer in before {
            assert_eq!(flight.answered(answer, &mut target), Step::Again, "{name}");
        }
        assert_eq!(
            flight.answered(*last, &mut target),
            Step::Done(end),
            "{name}"
        );
    }
    let mut flight = flight(Job::Flush);
    let mut target = target(Zeroing::Punch, Durability::Dsync);
    let end = (0..100_000).find(|_| flight.answered(-libc::EAGAIN, &mut target) != Step::Again);
    assert!(end.is_some(), "trying again has an end");
}
