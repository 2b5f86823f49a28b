use super::*;
use crate::drive::{DriveKind, DriveSpec, blocking};
use crate::port::Port;
use crate::ring::{RingConfig, RingPort};

/// An event as it is in the file.
struct Event {
    kind: u8,
    flag: u8,
    sequence: u64,
    operation: u64,
    offset: u64,
    length: u64,
    content: Vec<u8>,
}

fn events(path: &Path) -> Vec<Event> {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(&bytes[..8], MAGIC);
    let mut rest = &bytes[8..];
    let mut out: Vec<Event> = Vec::new();
    while !rest.is_empty() {
        let word = |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().unwrap());
        let inline = if rest[0] <= 2 { word(32) as usize } else { 0 };
        let event = Event {
            kind: rest[0],
            flag: rest[1],
            sequence: word(8),
            operation: word(16),
            offset: word(24),
            length: word(32),
            content: rest[HEAD_BYTES..HEAD_BYTES + inline].to_vec(),
        };
        let before = out.last().map_or(0, |event| event.sequence);
        assert!(event.sequence > before, "numbered in the file's order");
        out.push(event);
        rest = &rest[HEAD_BYTES + inline..];
    }
    out
}

#[test]
fn recorded_specs_are_taken_apart_and_wrong_ones_say_what_is_accepted() {
    let spec = |text: &str| DriveSpec(text.into());
    let kind = spec("recorded:/l:faulty:/x").parse().unwrap();
    let DriveKind::Recorded { log, name, inner } = kind else {
        panic!("{kind:?}");
    };
    assert_eq!(
        (log.as_path(), name.as_str()),
        (Path::new("/l"), "faulty:/x")
    );
    assert_eq!(
        *inner,
        DriveKind::Faulty(Box::new(DriveKind::Path("/x".into())))
    );
    let wrong = [
        ("recorded:/x", "recorded:LOGFILE:DRIVE"),
        ("recorded:log:/x", "absolute path"),
        ("recorded:/l:recorded:/l:/x", "twice"),
        ("faulty:recorded:/l:/x", "goes before"),
        ("recorded:/l:disk:1", "not a kind"),
    ];
    for (text, says) in wrong {
        let error = spec(text).parse().unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

fn recorded_file(folder: &Path, log: &str) -> DriveSpec {
    let drive = folder.join("drive");
    File::create(&drive).unwrap().set_len(1 << 20).unwrap();
    let log = folder.join(log);
    DriveSpec(format!("recorded:{}:{}", log.display(), drive.display()))
}

#[test]
fn blocking_changes_are_recorded_with_their_content_and_reads_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let spec = recorded_file(folder.path(), "log");
    let drive = blocking(&spec, false).unwrap();
    drive.write_at(8192, &[7; 4096]).unwrap();
    drive.read_at(8192, &mut [0; 4096]).unwrap();
    drive.flush().unwrap();
    drop(drive);
    let events = events(&folder.path().join("log"));
    let kinds: Vec<u8> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [1, 2, 6, 5, 6]);
    assert!(events[0].content.ends_with(b"/drive"));
    assert_eq!(
        (events[1].offset, &events[1].content),
        (8192, &vec![7; 4096])
    );
    for at in [2, 4] {
        assert_eq!(events[at].flag, 1);
        assert_eq!(events[at].operation, events[at - 1].sequence);
    }
}

#[test]
fn a_port_records_a_completion_before_it_hands_it_out() {
    let folder = tempfile::tempdir().unwrap();
    let spec = recorded_file(folder.path(), "log");
    let mut port = RingPort::new(RingConfig::default()).unwrap();
    let (drive, info) = port.open(&spec, false).unwrap();
    assert!(info.notes.iter().any(|note| note.contains("recorded in")));
    let buffer = crate::buffer::Buffer::heap(4096);
    let ops = [
        DriveOp::Write {
            offset: 4096,
            from: buffer.lend_outbound(0..4096),
            durable: true,
        },
        DriveOp::WriteZeroes {
            offset: 0,
            length: 512,
        },
        DriveOp::Discard {
            offset: 8192,
            length: 4096,
        },
        DriveOp::Flush,
    ];
    for (token, op) in ops.into_iter().enumerate() {
        port.submit(drive, token as u64, op);
        let mut done = Vec::new();
        while done.is_empty() {
            port.poll(&mut done);
        }
        assert_eq!(done[0].result, Ok(()));
        let events = events(&folder.path().join("log"));
        let (last, before) = (&events[events.len() - 1], &events[events.len() - 2]);
        assert_eq!((last.kind, last.flag), (6, 1));
        assert_eq!(last.operation, before.sequence);
        assert_eq!(before.kind, token as u8 + 2);
    }
    let events = events(&folder.path().join("log"));
    assert_eq!(events[1].flag, 1, "durable");
    let ranges = [1, 3, 5].map(|at| (events[at].offset, events[at].length));
    assert_eq!(ranges, [(4096, 4096), (0, 512), (8192, 4096)]);
}

#[test]
fn a_failed_change_completes_as_failed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let name = format!(
        "recorded:{}:faulty:memory:64KiB:recorded-test",
        log.display()
    );
    let spec = DriveSpec(name);
    let plan = crate::drive::FaultPlan {
        dead: true,
        ..Default::default()
    };
    crate::faulty::set(&spec, Some(plan)).unwrap();
    let drive = blocking(&spec, false).unwrap();
    drive.write_at(0, &[1; 512]).unwrap_err();
    let events = events(&log);
    assert_eq!((events[2].kind, events[2].flag), (6, 0));
}

#[test]
fn a_record_of_before_is_neither_overwritten_nor_continued() {
    let folder = tempfile::tempdir().unwrap();
    let spec = recorded_file(folder.path(), "old");
    std::fs::write(folder.path().join("old"), "precious").unwrap();
    let error = blocking(&spec, false).err().unwrap().to_string();
    assert!(error.contains("old: cannot record to"), "{error}");
    assert!(error.contains("name a new file"), "{error}");
    // Looking at the drive records nothing.
    blocking(&spec, true).unwrap();
    let kept = std::fs::read(folder.path().join("old")).unwrap();
    assert_eq!(kept, b"precious");
}
