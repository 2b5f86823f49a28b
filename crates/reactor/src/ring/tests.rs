mod durable;
mod faults;
mod paced;
mod waiting;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::path::Path;

use super::*;
use crate::drive::tests::Loop;

const MIB: usize = 1 << 20;
const DRIVE_BYTES: u64 = 16 << 20;

fn spec(text: &str) -> DriveSpec {
    DriveSpec(text.into())
}

fn file_in(folder: &Path, name: &str) -> DriveSpec {
    let path = folder.join(name);
    File::create(&path).unwrap().set_len(DRIVE_BYTES).unwrap();
    spec(path.to_str().unwrap())
}

/// A port and the calls that tests want.
struct Rig {
    port: RingPort,
    pool: Pool,
    done: Vec<Completion>,
}

impl Rig {
    fn new(entries: u32) -> Rig {
        let pool = Pool::new(16 * MIB).unwrap();
        let config = RingConfig {
            entries,
            pool: Some(pool.clone()),
        };
        let port = RingPort::new(config).unwrap();
        Rig {
            port,
            pool,
            done: Vec::new(),
        }
    }

    fn open(&mut self, text: &str) -> DriveId {
        self.port.open(&spec(text), false).unwrap().0
    }

    /// Waits for `count` completions.
    fn reap(&mut self, count: usize) -> Vec<Completion> {
        while self.done.len() < count {
            self.port.poll(&mut self.done);
            if self.done.len() < count {
                self.port.wait(None);
            }
        }
        self.done.drain(..count).collect()
    }

    fn run(&mut self, drive: DriveId, op: DriveOp) -> Result<(), DriveError> {
        self.port.submit(drive, 77, op);
        let done = self.reap(1)[0];
        assert_eq!(done.token, 77);
        done.result
    }

    fn write(
        &mut self,
        drive: DriveId,
        offset: u64,
        byte: u8,
        len: usize,
    ) -> Result<(), DriveError> {
        self.write_as(drive, offset, byte, len, false)
    }

    fn write_as(
        &mut self,
        drive: DriveId,
        offset: u64,
        byte: u8,
        len: usize,
        durable: bool,
    ) -> Result<(), DriveError> {
        let mut buffer = Buffer::heap(len);
        buffer.as_mut_slice().fill(byte);
        let from = buffer.lend_outbound(0..len);
        let op = DriveOp::Write {
            offset,
            from,
            durable,
        };
        self.run(drive, op)
    }

    fn read(&mut self, drive: DriveId, offset: u64, len: usize) -> Result<Buffer, DriveError> {
        let mut buffer = Buffer::heap(len);
        buffer.as_mut_slice().fill(0xee);
        let into = buffer.lend_inbound(0..len);
        self.run(drive, DriveOp::Read { offset, into })?;
        Ok(buffer)
    }

    /// Asserts that the range is filled with `byte`.
    fn expect(&mut self, drive: DriveId, offset: u64, byte: u8, len: usize) {
        let buffer = self.read(drive, offset, len).unwrap();
        let odd = buffer.iter().position(|&b| b != byte);
        assert_eq!(odd, None, "{len} bytes at {offset} are {byte}");
    }
}

/// Runs `test` on every kind of drive there is here, plain and as `faulty:`.
fn on_every_drive(name: &str, test: impl Fn(&mut Rig, DriveId, &str)) {
    let disk = tempfile::tempdir().unwrap();
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    let behind_loop = file_in(shm.path(), "loop");
    let device = Loop::over(&behind_loop);
    let mut texts = vec![
        file_in(disk.path(), "d").0,
        file_in(shm.path(), "d").0,
        format!("memory:16MiB:ring-tests-{name}"),
        format!("paced:cm7:16MiB:ring-tests-{name}"),
        format!("cache=none:{}", file_in(disk.path(), "each").0),
    ];
    texts.extend(device.iter().map(|device| device.0.clone()));
    for text in texts {
        for text in [format!("faulty:{text}"), text] {
            let mut rig = Rig::new(8);
            let drive = rig.open(&text);
            test(&mut rig, drive, &text);
            rig.port.close(drive);
        }
    }
}

#[test]
fn what_is_written_is_read() {
    on_every_drive("rw", |rig, drive, text| {
        for (offset, len) in [(0, 512), (4096, 4096), (65536, 65536), (MIB, 5 * MIB)] {
            for durable in [false, true] {
                let byte = 1 + durable as u8;
                let result = rig.write_as(drive, offset as u64, byte, len, durable);
                assert_eq!(result, Ok(()), "{text} {offset} {len}");
                rig.expect(drive, offset as u64, byte, len);
            }
        }
        assert_eq!(rig.run(drive, DriveOp::Flush), Ok(()));
        rig.expect(drive, 0, 2, 512);
    });
}

#[test]
fn zeroed_ranges_read_as_zeroes_and_the_size_stays() {
    on_every_drive("zero", |rig, drive, text| {
        rig.write(drive, 0, 9, 8 * MIB).unwrap();
        for (offset, length) in [(512, 512), (4096, 8192), (MIB as u64, 3 << 20)] {
            let zero = DriveOp::WriteZeroes { offset, length };
            assert_eq!(rig.run(drive, zero), Ok(()), "{text}");
            rig.expect(drive, offset, 0, length as usize);
            rig.expect(drive, offset + length, 9, 512);
        }
        rig.expect(drive, 0, 9, 512);
        if let Ok(meta) = std::fs::metadata(text)
            && meta.is_file()
        {
            use std::os::unix::fs::MetadataExt;
            let allocated = meta.blocks() * 512;
            assert!(
                allocated < 6 << 20,
                "{text} keeps {allocated} of 8 MiB, 3 of them zero"
            );
        }
        let tail = DRIVE_BYTES - 4096;
        let zero = DriveOp::WriteZeroes {
            offset: tail,
            length: 4096,
        };
        assert_eq!(rig.run(drive, zero), Ok(()));
        rig.expect(drive, tail, 0, 4096);
        if let Ok(meta) = std::fs::metadata(text)
            && meta.is_file()
        {
            assert_eq!(meta.len(), DRIVE_BYTES);
        }
    });
}

#[test]
fn every_way_of_zeroing_zeroes() {
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    let disk = tempfile::tempdir().unwrap();
    // tmpfs refuses to zero a range, so that one falls further; the way is remembered.
    let cases = [
        (disk.path(), Zeroing::ZeroRange, Zeroing::ZeroRange),
        (shm.path(), Zeroing::ZeroRange, Zeroing::Write),
        (shm.path(), Zeroing::Write, Zeroing::Write),
    ];
    for (folder, first, last) in cases {
        let mut rig = Rig::new(8);
        let text = file_in(folder, "d").0;
        let drive = rig.open(&text);
        rig.write(drive, 0, 5, 8 * MIB).unwrap();
        rig.target(drive).zeroing = first;
        let zero = DriveOp::WriteZeroes {
            offset: 4096,
            length: 5 << 20,
        };
        assert_eq!(rig.run(drive, zero), Ok(()));
        assert_eq!(rig.target(drive).zeroing, last, "{text}");
        rig.expect(drive, 4096, 0, 5 * MIB);
        rig.expect(drive, 0, 5, 4096);
        rig.expect(drive, 4096 + (5 << 20), 5, 4096);
    }
}

impl Rig {
    fn target(&mut self, drive: DriveId) -> &mut Target {
        match &mut self.port.drives[drive.0 as usize].as_mut().unwrap().medium {
            RingMedium::File { target, .. } => target,
            _ => panic!("not a file"),
        }
    }
}

#[test]
fn a_drive_without_dsync_gets_a_flush_after_the_write() {
    let disk = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(8);
    let text = file_in(disk.path(), "d").0;
    let drive = rig.open(&text);
    rig.target(drive).durability = Durability::Flush;
    rig.write_as(drive, 0, 3, 2 * MIB, true).unwrap();
    rig.expect(drive, 0, 3, 2 * MIB);
}

#[test]
fn discard_succeeds_everywhere() {
    on_every_drive("discard", |rig, drive, text| {
        rig.write(drive, 0, 9, MIB).unwrap();
        let discard = DriveOp::Discard {
            offset: 65536,
            length: 65536,
        };
        assert_eq!(rig.run(drive, discard), Ok(()), "{text}");
        rig.expect(drive, 0, 9, 65536);
        rig.expect(drive, 131072, 9, 65536);
    });
}

#[test]
fn null_drives_complete_and_keep_nothing() {
    let mut rig = Rig::new(8);
    let drive = rig.open("null:1TiB");
    rig.write(drive, 1 << 39, 1, 4096).unwrap();
    rig.read(drive, 1 << 39, 4096).unwrap();
    rig.run(drive, DriveOp::Flush).unwrap();
}

#[test]
fn operations_outside_a_drive_fail_and_empty_ones_succeed() {
    on_every_drive("bounds", |rig, drive, text| {
        let outside = Err(DriveError::Io(libc::EINVAL));
        assert_eq!(
            rig.write(drive, DRIVE_BYTES - 512, 1, 1024),
            outside,
            "{text}"
        );
        assert_eq!(rig.write(drive, u64::MAX - 511, 1, 512), outside, "{text}");
        let zero = DriveOp::WriteZeroes {
            offset: DRIVE_BYTES,
            length: 512,
        };
        assert_eq!(rig.run(drive, zero), outside, "{text}");
        assert_eq!(rig.write(drive, DRIVE_BYTES, 1, 0), Ok(()), "{text}");
    });
}

#[test]
fn a_drive_opened_to_read_refuses_changes() {
    let disk = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(8);
    for text in [
        file_in(disk.path(), "d").0,
        "memory:16MiB:ring-tests-ro".into(),
    ] {
        let drive = rig.port.open(&spec(&text), true).unwrap().0;
        assert_eq!(
            rig.write(drive, 0, 1, 512),
            Err(DriveError::Io(libc::EROFS))
        );
        rig.expect(drive, 0, 0, 512);
        rig.run(drive, DriveOp::Flush).unwrap();
    }
}

#[test]
fn a_file_that_was_cut_reads_short() {
    for folder in [tempfile::tempdir(), tempfile::tempdir_in("/dev/shm")] {
        let folder = folder.unwrap();
        let text = file_in(folder.path(), "d").0;
        let mut rig = Rig::new(8);
        let drive = rig.open(&text);
        rig.write(drive, 0, 1, 2 * MIB).unwrap();
        OpenOptions::new()
            .write(true)
            .open(&text)
            .unwrap()
            .set_len(MIB as u64)
            .unwrap();
        rig.expect(drive, 0, 1, MIB);
        let half = rig.read(drive, MIB as u64 / 2, MIB);
        assert_eq!(half.err(), Some(DriveError::Short), "{text}");
        let beyond = rig.read(drive, 4 << 20, 4096);
        assert_eq!(beyond.err(), Some(DriveError::Short), "{text}");
    }
}

#[test]
fn closed_drives_are_gone_and_free_for_others() {
    let disk = tempfile::tempdir().unwrap();
    let text = file_in(disk.path(), "d").0;
    let mut rig = Rig::new(8);
    let drive = rig.open(&text);
    rig.port.close(drive);
    rig.port.close(drive);
    assert_eq!(rig.write(drive, 0, 1, 512), Err(DriveError::Gone));
    assert_eq!(rig.write(DriveId(99), 0, 1, 512), Err(DriveError::Gone));
    let again = rig.open(&text);
    assert_ne!(drive, again);
    rig.write(again, 0, 1, 512).unwrap();
    // A descriptor that was closed underneath.
    rig.target(again).registered = false;
    rig.target(again).number = 1_000_000;
    assert_eq!(rig.read(again, 0, 512).err(), Some(DriveError::Gone));
}

#[test]
fn closing_with_operations_in_flight_still_completes_them() {
    let disk = tempfile::tempdir().unwrap();
    let text = file_in(disk.path(), "d").0;
    let mut rig = Rig::new(8);
    let drive = rig.open(&text);
    let mut buffer = rig.pool.alloc(4 * MIB).unwrap();
    for i in 0..64 {
        let into = buffer.lend_inbound(i * 65536..(i + 1) * 65536);
        let offset = i as u64 * 65536;
        rig.port
            .submit(drive, i as u64, DriveOp::Read { offset, into });
    }
    rig.port.close(drive);
    assert!(rig.reap(64).iter().all(|done| done.result == Ok(())));
    assert!(!buffer.is_lent());
}

/// Ten thousand operations, far beyond the ring, from pool and heap buffers, against a model.
#[test]
fn many_random_operations_keep_every_block_right() {
    const BLOCKS: u64 = 512;
    on_every_drive("many", |rig, drive, text| {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut model = vec![0u8; BLOCKS as usize];
        // Block by the token of the operation that has it: one operation for a block at a time.
        let mut flying: HashMap<u64, (u64, Option<Buffer>, bool)> = HashMap::new();
        let (mut token, mut finished) = (0, 0);
        while finished < 10_000 {
            while flying.len() < 300 && token < 10_000 {
                let block = rng.u64(..BLOCKS);
                if flying.values().any(|flight| flight.0 == block) {
                    break;
                }
                let offset = block * 4096;
                let mut buffer = match rng.bool() {
                    true => rig.pool.alloc(4096).unwrap(),
                    false => Buffer::heap(4096),
                };
                let (op, read) = match rng.u32(..10) {
                    0..4 => {
                        let into = buffer.lend_inbound(0..4096);
                        (DriveOp::Read { offset, into }, true)
                    }
                    4..9 => {
                        let byte = rng.u8(..);
                        model[block as usize] = byte;
                        buffer.as_mut_slice().fill(byte);
                        let from = buffer.lend_outbound(0..4096);
                        let op = DriveOp::Write {
                            offset,
                            from,
                            durable: false,
                        };
                        (op, false)
                    }
                    _ => {
                        model[block as usize] = 0;
                        let length = 4096;
                        (DriveOp::WriteZeroes { offset, length }, false)
                    }
                };
                flying.insert(token, (block, Some(buffer), read));
                rig.port.submit(drive, token, op);
                token += 1;
            }
            for done in rig.reap(1 + rng.usize(..flying.len())) {
                assert_eq!(done.result, Ok(()), "{text}");
                let (block, buffer, read) = flying.remove(&done.token).unwrap();
                let buffer = buffer.unwrap();
                let expected = model[block as usize];
                assert!(
                    !read || buffer.iter().all(|&byte| byte == expected),
                    "{text} {block}"
                );
                finished += 1;
            }
        }
        for block in 0..BLOCKS {
            rig.expect(drive, block * 4096, model[block as usize], 4096);
        }
        assert_eq!(rig.pool.bytes_free(), rig.pool.bytes_total());
        // The next test of this rig's memory drive starts from zeroes.
        let length = DRIVE_BYTES;
        rig.run(drive, DriveOp::WriteZeroes { offset: 0, length })
            .unwrap();
    });
}

#[test]
fn dropping_a_port_waits_for_the_kernel_and_returns_the_loans() {
    on_every_drive("drop", |rig, drive, _| {
        let waker = rig.port.waker();
        rig.port.wait(Some(rig.port.now_ns() + 1000));
        let mut buffers: Vec<_> = (0..100).map(|_| Buffer::heap(65536)).collect();
        for (i, buffer) in buffers.iter_mut().enumerate() {
            let into = buffer.lend_inbound(0..65536);
            let offset = i as u64 * 65536;
            rig.port
                .submit(drive, i as u64, DriveOp::Read { offset, into });
        }
        rig.port.pump();
        let other = Rig::new(8);
        let _ = std::mem::replace(rig, other);
        assert!(buffers.iter().all(|buffer| !buffer.is_lent()));
        waker.wake();
    });
}

#[test]
fn two_ports_use_one_drive_at_the_same_time() {
    let disk = tempfile::tempdir().unwrap();
    for text in [
        file_in(disk.path(), "d").0,
        "memory:16MiB:ring-tests-two".into(),
    ] {
        std::thread::scope(|scope| {
            for core in 0..2 {
                let text = &text;
                scope.spawn(move || {
                    let mut rig = Rig::new(8);
                    let drive = rig.open(text);
                    for i in 0..50 {
                        let offset = (i * 2 + core) * 65536;
                        rig.write(drive, offset, 1 + core as u8, 65536).unwrap();
                        rig.expect(drive, offset, 1 + core as u8, 65536);
                    }
                });
            }
        });
        let mut rig = Rig::new(8);
        let drive = rig.open(&text);
        for i in 0..100 {
            rig.expect(drive, i * 65536, 1 + (i % 2) as u8, 65536);
        }
    }
}

#[test]
fn a_ring_without_pool_or_registered_files_works_too() {
    let disk = tempfile::tempdir().unwrap();
    let config = RingConfig {
        entries: 8,
        pool: None,
    };
    let mut rig = Rig::new(8);
    rig.port = RingPort::new(config).unwrap();
    rig.port.uring.forget_file_places();
    let text = file_in(disk.path(), "d").0;
    let drive = rig.open(&text);
    assert!(!rig.target(drive).registered);
    rig.write(drive, 4096, 8, MIB).unwrap();
    rig.expect(drive, 4096, 8, MIB);
}

#[test]
fn older_kernels_ways_of_completing_work_too() {
    use uring::TaskRun;
    let disk = tempfile::tempdir().unwrap();
    let text = file_in(disk.path(), "d").0;
    for task_run in [
        TaskRun::Deferred,
        TaskRun::Cooperative,
        TaskRun::Interrupting,
    ] {
        let mut rig = Rig::new(8);
        rig.port.uring = Uring::new_as(task_run, 8).unwrap().0;
        let drive = rig.open(&text);
        let mut buffer = Buffer::heap(4 * MIB);
        rig.write(drive, 0, 6, 4 * MIB).unwrap();
        for i in 0..256 {
            let into = buffer.lend_inbound(i * 16384..(i + 1) * 16384);
            let offset = i as u64 * 16384;
            rig.port
                .submit(drive, i as u64, DriveOp::Read { offset, into });
        }
        assert!(rig.reap(256).iter().all(|done| done.result == Ok(())));
        assert!(buffer.iter().all(|&byte| byte == 6), "{task_run:?}");
        let waker = rig.port.waker();
        let thread = std::thread::spawn(move || waker.wake());
        rig.port.wait(None);
        thread.join().unwrap();
    }
}

#[test]
fn a_resumed_transfer_goes_on_where_it_stopped() {
    let disk = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(8);
    let text = file_in(disk.path(), "d").0;
    let drive = rig.open(&text);
    rig.write(drive, 0, 1, 16384).unwrap();
    let mut source = rig.pool.alloc(8192).unwrap();
    source[..4096].fill(2);
    source[4096..].fill(3);
    let write = Job::Write {
        offset: 4096,
        from: source.lend_outbound(0..8192),
        done: 4096,
        durability: Durability::None,
    };
    rig.resume(drive, write);
    rig.expect(drive, 4096, 1, 4096);
    rig.expect(drive, 8192, 3, 4096);
    rig.expect(drive, 12288, 1, 4096);
    source.as_mut_slice().fill(9);
    let read = Job::Read {
        offset: 4096,
        into: source.lend_inbound(0..8192),
        done: 4096,
    };
    rig.resume(drive, read);
    assert_eq!((source[4095], source[4096], source[8191]), (9, 3, 3));
}

impl Rig {
    /// Puts a job into flight that the kernel has done a part of.
    fn resume(&mut self, drive: DriveId, job: Job) {
        self.port.drives[drive.0 as usize]
            .as_mut()
            .unwrap()
            .in_flight += 1;
        let flight = Flight {
            drive: drive.0,
            token: 1,
            job,
            outcome: Ok(()),
            retries: 0,
        };
        let index = self.port.flights.insert(flight);
        self.port.launch(index);
        assert_eq!(self.reap(1)[0].result, Ok(()));
    }
}

#[test]
fn a_drive_that_another_opened_to_read_is_busy_for_writing() {
    let disk = tempfile::tempdir().unwrap();
    let drive = file_in(disk.path(), "d");
    let mut rig = Rig::new(8);
    let reader = rig.port.open(&drive, true).unwrap().0;
    let error = rig.port.open(&drive, false).unwrap_err();
    assert!(matches!(error, OpenError::Busy { .. }), "{error}");
    rig.port.close(reader);
    rig.port.open(&drive, false).unwrap();
    let absent = spec("/absent/drive");
    assert!(matches!(
        rig.port.open(&absent, false),
        Err(OpenError::System { .. })
    ));
}
