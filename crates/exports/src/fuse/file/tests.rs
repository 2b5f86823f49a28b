use std::sync::mpsc::channel;

use super::*;
use crate::buffers::BufferCache;
use crate::mock::{Mock, Mode, info};

const SIZE: u64 = 1 << 20;

fn file(mock: &Arc<Mock>) -> Arc<VolumeFile> {
    let volume = Volume::new(mock.clone(), BufferCache::new(1 << 20));
    Arc::new(VolumeFile::new(2, "vol".into(), volume))
}

fn small_requests(mode: Mode) -> Arc<Mock> {
    let mut shape = info(SIZE);
    shape.max_request_bytes = 12288;
    Mock::new(shape, mode)
}

fn read(file: &VolumeFile, offset: u64, length: u32) -> Result<Vec<u8>, i32> {
    let (sender, receiver) = channel();
    let done = Box::new(move |result: Result<&[u8], i32>| {
        sender.send(result.map(<[u8]>::to_vec)).unwrap();
    });
    file.read(offset, length, done);
    receiver.recv().unwrap()
}

fn write(file: &Arc<VolumeFile>, offset: u64, bytes: &[u8]) -> Result<u32, i32> {
    let (sender, receiver) = channel();
    let done = Box::new(move |result| sender.send(result).unwrap());
    file.write(offset, bytes, false, done);
    receiver.recv().unwrap()
}

fn clear(file: &Arc<VolumeFile>, operation: Operation, offset: u64, length: u64) -> Outcome {
    let (sender, receiver) = channel();
    let done = Box::new(move |result| sender.send(result).unwrap());
    file.clear(operation, offset, length, done);
    receiver.recv().unwrap()
}

#[test]
fn bytes_of_any_shape_match_a_plain_array() {
    for (seed, mock) in [
        Mock::of(SIZE),
        small_requests(Mode::Shuffled),
        small_requests(Mode::Inline),
    ]
    .iter()
    .enumerate()
    {
        let file = file(mock);
        let mut model = vec![0; SIZE as usize];
        let mut random = fastrand::Rng::with_seed(seed as u64);
        for _ in 0..1000 {
            let offset = random.u64(..SIZE);
            let length = match random.u8(..3) {
                0 => random.u64(1..600),
                1 => random.u64(1..60_000),
                _ => 4096 * random.u64(1..8),
            };
            let offset = if random.bool() {
                offset & !4095
            } else {
                offset
            };
            let end = (offset + length).min(SIZE);
            let range = offset as usize..end as usize;
            match random.u8(..4) {
                0 => {
                    let byte = random.u8(..);
                    let bytes = vec![byte; length as usize];
                    assert_eq!(write(&file, offset, &bytes), Ok((end - offset) as u32));
                    model[range].fill(byte);
                }
                1 => {
                    let operation = match random.bool() {
                        true => Operation::Discard,
                        false => Operation::WriteZeroes,
                    };
                    assert_eq!(clear(&file, operation, offset, length), Ok(()));
                    model[range].fill(0);
                }
                _ => {
                    let bytes = read(&file, offset, length as u32).unwrap();
                    assert!(bytes == model[range], "seed {seed}: {offset}+{length}");
                }
            }
        }
        assert!(mock.content() == model);
        assert_eq!(mock.violations(), 0);
    }
}

#[test]
fn the_end_of_the_file_is_the_end_of_the_volume() {
    let mock = Mock::of(SIZE);
    let file = file(&mock);
    assert_eq!(read(&file, SIZE - 10, 4096), Ok(vec![0; 10]));
    assert_eq!(read(&file, SIZE, 4096), Ok(vec![]));
    assert_eq!(read(&file, u64::MAX, 4096), Ok(vec![]));
    assert_eq!(write(&file, SIZE - 10, &[1; 4096]), Ok(10));
    assert_eq!(write(&file, SIZE, &[1; 4096]), Err(libc::ENOSPC));
    assert_eq!(write(&file, u64::MAX, &[1; 4096]), Err(libc::ENOSPC));
    assert_eq!(
        clear(&file, Operation::Discard, SIZE - 10, u64::MAX),
        Ok(())
    );
    assert_eq!(mock.content(), vec![0; SIZE as usize]);
    assert_eq!(mock.violations(), 0);
}

#[test]
fn parts_of_one_block_written_at_once_all_arrive() {
    let mock = Mock::of(SIZE);
    let file = file(&mock);
    let (sender, receiver) = channel();
    // 512-byte sectors of two blocks, all at once: what a loop device with such sectors sends.
    for sector in 0..16u64 {
        let sender = sender.clone();
        let done = Box::new(move |result| sender.send(result).unwrap());
        file.write(sector * 512, &[sector as u8 + 1; 512], false, done);
    }
    for _ in 0..16 {
        assert_eq!(receiver.recv().unwrap(), Ok(512));
    }
    let content = mock.content();
    for sector in 0..16 {
        assert_eq!(content[sector * 512..][..512], [sector as u8 + 1; 512]);
    }
}

#[test]
fn a_whole_block_is_not_undone_by_a_part_of_it() {
    for round in 0..200u64 {
        let mock = Mock::new(info(8192), Mode::Shuffled);
        let file = file(&mock);
        let (sender, receiver) = channel();
        let sender2 = sender.clone();
        let part = move |result| sender.send(result).unwrap();
        let whole = move |result| sender2.send(result).unwrap();
        if round % 2 == 0 {
            file.write(0, &[1; 512], false, Box::new(part));
            file.write(0, &[2; 4096], false, Box::new(whole));
        } else {
            file.write(0, &[2; 4096], false, Box::new(whole));
            file.write(0, &[1; 512], false, Box::new(part));
        }
        assert!(receiver.recv().unwrap().is_ok() && receiver.recv().unwrap().is_ok());
        let content = mock.content();
        let first = if round % 2 == 0 { 2 } else { 1 };
        assert_eq!(content[..512], [first; 512]);
        assert_eq!(
            content[512..4096],
            [2; 4096 - 512],
            "only the whole block wrote there"
        );
    }
}

#[test]
fn errors_carry_their_errno() {
    let mock = Mock::of(SIZE);
    mock.set_bad(8192..12288, BlockError::Unavailable);
    let file = file(&mock);
    assert_eq!(read(&file, 0, 16384), Err(libc::EIO));
    assert_eq!(write(&file, 8192, &[1; 4096]), Err(libc::EIO));
    assert_eq!(
        write(&file, 8200, &[1; 10]),
        Err(libc::EIO),
        "the read before it"
    );
    assert_eq!(clear(&file, Operation::Discard, 100, 20000), Err(libc::EIO));
    // The locks of the failed ones are free again.
    mock.set_bad(0..0, BlockError::Unavailable);
    assert_eq!(write(&file, 8200, &[1; 10]), Ok(10));

    let mut shape = info(SIZE);
    shape.read_only = true;
    let mock = Mock::new(shape, Mode::Inline);
    let file = self::file(&mock);
    assert_eq!(write(&file, 0, &[1; 4096]), Err(libc::EROFS));
    assert_eq!(clear(&file, Operation::Discard, 0, 4096), Err(libc::EROFS));
    assert_eq!(mock.violations(), 0);
}
