//! Decisions of single rows that no run comes to easily.

use super::*;
use crate::format::bytes::crc32c;
use crate::format::log::record::EntryHead;

const BLOCK_BYTES: usize = 512;

fn block(fill: u8) -> Vec<u8> {
    vec![fill; BLOCK_BYTES]
}

/// An entry of a write of the first data strip, from `old` to `new`, that these members carry.
fn found(live: u64, carriers: u64, old: u8, new: u8, carried_by: &[u16]) -> Found {
    let head = EntryHead {
        sequence: 1,
        stripe: 0,
        start: 0,
        end: BLOCK_BYTES as u32,
        written: 0b1,
        live,
        carriers,
        logged: 0,
        old: 0b1,
        unit_bytes: BLOCK_BYTES as u32,
        partial: true,
    };
    Found {
        entry: Entry {
            head,
            checksums: [new, old].map(|fill| crc32c(&block(fill))).to_vec(),
            payload: 0..BLOCK_BYTES,
        },
        payloads: carried_by.iter().map(|&it| (it, block(0x77))).collect(),
    }
}

/// The log of the only parity's drive could be read in part before the drive left: it said an entry,
/// and no more that a newer one was written and acknowledged since.
#[test]
fn an_older_entry_of_a_log_whose_drive_left_tears_nothing() {
    let code = Code::new(2, 1).unwrap();
    let older = found(0b111, 0b100, 1, 2, &[2]);
    let strips = [3, 4, 5].map(|fill| Known::Content(block(fill)));
    let row = Row {
        code: &code,
        block_bytes: BLOCK_BYTES,
        start: 0,
        end: BLOCK_BYTES as u32,
        entries: vec![&older],
        parity_members: vec![2],
        in_sync: 0b011,
        attached: 0b011,
        listed: 0,
        unreadable_logs: 0,
        vouched: false,
        strips: &strips,
    };
    assert_eq!(row.wants(), 0);
    assert_eq!(row.resolve(), row::Resolved::default());
}

/// Of three parities one has a log with a gap, one was read everywhere and lacks the entry, one has
/// it: nothing had been written in place. Two data strips are missing, and keep what they held.
#[test]
fn a_void_entry_tears_nothing_that_nobody_wrote() {
    let code = Code::new(3, 3).unwrap();
    let entry = found(0b111_001, 0b111_000, 1, 2, &[5]);
    let strips = [1, 0, 0, 6, 7, 8].map(|fill| Known::Content(block(fill)));
    let row = Row {
        code: &code,
        block_bytes: BLOCK_BYTES,
        start: 0,
        end: BLOCK_BYTES as u32,
        entries: vec![&entry],
        parity_members: vec![3, 4, 5],
        in_sync: 0b111_001,
        attached: 0b111_001,
        listed: 0,
        unreadable_logs: 0b001_000,
        vouched: true,
        strips: &strips,
    };
    let resolved = row.resolve();
    assert_eq!(resolved.torn, []);
    let written: Vec<usize> = resolved.writes.iter().map(|(strip, _)| *strip).collect();
    assert_eq!(written, [5], "the parity whose own partial parity is known");
}
