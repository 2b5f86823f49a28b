use std::sync::mpsc::channel;

use super::*;
use crate::mock::{Mock, Mode, info};

fn volume(mock: &Arc<Mock>) -> Volume {
    Volume::new(mock.clone(), BufferCache::new(8 << 20))
}

fn transfer(
    volume: &Volume,
    operation: Operation,
    offset: u64,
    data: Data,
) -> Result<Data, BlockError> {
    let (sender, receiver) = channel();
    let done = Box::new(move |result: Result<(), BlockError>, data| {
        sender.send(result.map(|()| data)).unwrap();
    });
    volume.submit_data(operation, offset, false, data, done);
    receiver.recv().unwrap()
}

fn plain(
    volume: &Volume,
    operation: Operation,
    offset: u64,
    length: u64,
) -> Result<(), BlockError> {
    let (sender, receiver) = channel();
    let done = Box::new(move |result| sender.send(result).unwrap());
    volume.submit_plain(operation, offset, length, false, done);
    let result = receiver.recv().unwrap();
    assert!(receiver.recv().is_err(), "called once");
    result
}

fn bytes(data: &Data) -> Vec<u8> {
    data.pieces()
        .flat_map(|piece| piece.as_slice().to_vec())
        .collect()
}

#[test]
fn long_data_is_cut_at_stripes_and_comes_back_whole() {
    for mode in [Mode::Shuffled, Mode::Inline] {
        let mut shape = info(16 << 20);
        shape.max_request_bytes = 1 << 20;
        shape.stripe_data_bytes = 3 * 65536;
        let mock = Mock::new(shape, mode);
        mock.fill(1);
        let volume = volume(&mock);
        let offset = 5 * 4096;
        let mut data = volume.data(offset, 7 << 20);
        let cut = 5 * 3 * 65536;
        let lengths: Vec<usize> = data.pieces().map(Piece::len).collect();
        assert_eq!(lengths[0] as u64, cut - offset);
        assert!(
            lengths[1..lengths.len() - 1]
                .iter()
                .all(|&length| length as u64 == cut)
        );
        assert_eq!(lengths.iter().sum::<usize>(), 7 << 20);

        let pattern: Vec<u8> = (0..7 << 20)
            .map(|index: u32| (index / 4093) as u8)
            .collect();
        data.copy_in(0, &pattern);
        transfer(&volume, Operation::Write, offset, data).unwrap_or_else(|_| panic!());
        let read = transfer(
            &volume,
            Operation::Read,
            offset,
            volume.data(offset, 7 << 20),
        );
        assert!(bytes(&read.unwrap_or_else(|_| panic!())) == pattern);
        assert_eq!(mock.violations(), 0);
    }
}

#[test]
fn one_bad_piece_fails_the_request_once() {
    let mut shape = info(8 << 20);
    shape.max_request_bytes = 256 << 10;
    let mock = Mock::new(shape, Mode::Shuffled);
    mock.set_bad(2 << 20..(2 << 20) + 4096, BlockError::Unavailable);
    let volume = volume(&mock);
    let read = transfer(&volume, Operation::Read, 0, volume.data(0, 4 << 20));
    assert_eq!(read.err(), Some(BlockError::Unavailable));
    assert!(transfer(&volume, Operation::Read, 0, volume.data(0, 2 << 20)).is_ok());
    assert_eq!(
        plain(&volume, Operation::Discard, 0, 8 << 20),
        Err(BlockError::Unavailable)
    );
}

#[test]
fn a_discard_of_everything_goes_window_by_window() {
    for mode in [Mode::Shuffled, Mode::Inline] {
        let mut shape = info(64 << 20);
        shape.max_request_bytes = 8192;
        shape.stripe_data_bytes = 0;
        let mock = Mock::new(shape, mode);
        mock.fill(2);
        let volume = volume(&mock);
        assert_eq!(
            plain(&volume, Operation::Discard, 4096, (64 << 20) - 4096),
            Ok(())
        );
        let content = mock.content();
        assert!(content[..4096].iter().any(|&byte| byte != 0));
        assert!(content[4096..].iter().all(|&byte| byte == 0));
        assert_eq!(mock.violations(), 0);
        assert_eq!(plain(&volume, Operation::Flush, 0, 0), Ok(()));
    }
}

#[test]
fn never_more_than_a_window_is_with_the_device() {
    let mut shape = info(1 << 20);
    shape.max_request_bytes = 4096;
    let mock = Mock::new(shape, Mode::Shuffled);
    mock.hold();
    let volume = volume(&mock);
    let (sender, receiver) = channel();
    let done = Box::new(move |result| sender.send(result).unwrap());
    volume.submit_plain(Operation::WriteZeroes, 0, 1 << 20, true, done);
    assert_eq!(mock.waiting(), WINDOW);
    mock.release();
    assert_eq!(receiver.recv().unwrap(), Ok(()));
}

#[test]
fn copy_in_reaches_every_piece() {
    let mut shape = info(1 << 20);
    shape.max_request_bytes = 4096;
    let mock = Mock::new(shape, Mode::Inline);
    let volume = volume(&mock);
    let mut data = volume.data(0, 3 * 4096);
    data.copy_in(0, &[0; 3 * 4096]);
    data.copy_in(4000, &[9; 5000]);
    let bytes = bytes(&data);
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(at, &byte)| (byte == 9) == (4000..9000).contains(&at))
    );
    assert_eq!(data.len(), 3 * 4096);
    assert!(data.as_single().is_none());
    assert_eq!(
        volume.data(0, 4096).as_single().map(<[u8]>::len),
        Some(4096)
    );
}
