use super::super::super::bytes::tests::dump;
use super::*;

fn head() -> RecordHead {
    RecordHead {
        array_uuid: Uuid::from_u128(1),
        member_uuid: Uuid::from_u128(2),
        epoch: 3,
        lineage: Uuid::from_u128(4),
        own_offset: 1 << 20,
        number: 5,
        oldest: 6,
        first: 2,
        complete: 4,
    }
}

fn entry(sequence: u64, logged: u64, partial: bool) -> EntryHead {
    EntryHead {
        sequence,
        stripe: 77,
        start: 4096,
        end: 4096 + 1024,
        written: 0b101,
        live: 0b1111,
        carriers: 0b1000,
        logged,
        old: 0b001,
        unit_bytes: 512,
        partial,
    }
}

fn written() -> Vec<u8> {
    let entries = [entry(8, 0, true), entry(9, 0b100, false)];
    let bytes: usize = entries.iter().map(EntryHead::bytes).sum();
    let payload: usize = entries.iter().map(EntryHead::payload_bytes).sum();
    let mut out = vec![0xee; record_bytes(bytes, payload)];
    let mut writer = Writer::new(&mut out, bytes);
    for (fill, entry) in (1..).zip(&entries) {
        writer.entry(entry, 10..16).fill(fill);
    }
    writer.finish(&head());
    out
}

#[test]
fn golden_bytes() {
    // Made from the tables by another program. The checksum is that of all the record.
    assert_eq!(dump(&written()[..336]), include_str!("golden.txt"));
}

#[test]
fn a_record_of_version_1_says_nothing_of_those_before_it() {
    let mut raw = written();
    bytes::put_u32(&mut raw, field(8, 4), 1);
    bytes::put_u64(&mut raw, FIRST, 0);
    bytes::put_u64(&mut raw, COMPLETE, 0);
    let checksum = bytes::crc32c_without(&raw, field(16, 4));
    bytes::put_u32(&mut raw, field(16, 4), checksum);
    let record = decode(&raw, 1 << 20).expect("whole");
    assert_eq!((record.head.first, record.head.complete), (0, 0));
    assert_eq!(record.entries.len(), 2);
}

#[test]
fn a_record_comes_back_as_it_was_written() {
    let raw = written();
    assert_eq!(claimed_bytes(&raw), Some(raw.len()));
    let record = decode(&raw, 1 << 20).expect("whole");
    assert_eq!(record.head, head());
    assert_eq!(record.bytes, raw.len());
    let heads: Vec<_> = record.entries.iter().map(|e| e.head).collect();
    assert_eq!(heads, [entry(8, 0, true), entry(9, 0b100, false)]);
    for (fill, entry) in (1..).zip(&record.entries) {
        assert_eq!(entry.checksums, (10..16).collect::<Vec<u32>>());
        assert_eq!(raw[entry.payload.clone()], [fill; 1024]);
    }
    let short = summary(&raw, 1 << 20).expect("whole");
    assert_eq!((short.head, short.bytes), (record.head, record.bytes));
    assert_eq!(short.last_sequence, Some(9));
}

#[test]
fn a_record_is_claimed_by_who_wrote_it_and_where() {
    let raw = written();
    let owner = Owner {
        array_uuid: Uuid::from_u128(1),
        member_uuid: Uuid::from_u128(2),
        epoch: 3,
        lineage: Uuid::from_u128(4),
    };
    let (other, place) = (Uuid::from_u128(9), 1 << 20);
    assert_eq!(claimed_by(&raw, place, &owner), Some(raw.len()));
    assert_eq!(claimed_by(&raw, 2 << 20, &owner), None);
    for stranger in [
        Owner {
            array_uuid: other,
            ..owner
        },
        Owner {
            member_uuid: other,
            ..owner
        },
        Owner { epoch: 4, ..owner },
        Owner {
            lineage: other,
            ..owner
        },
    ] {
        assert_eq!(claimed_by(&raw, place, &stranger), None);
    }
}

#[test]
fn every_torn_or_flipped_record_is_refused() {
    let whole = written();
    for cut in (0..whole.len()).step_by(512) {
        let mut torn = whole.clone();
        torn[cut..].fill(0xee);
        assert!(decode(&torn, 1 << 20).is_err(), "cut at {cut}");
    }
    for bit in (0..whole.len() * 8).step_by(7) {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&flipped, 1 << 20).is_err(), "bit {bit}");
    }
    assert!(decode(&whole, 2 << 20).is_err(), "misdirected");
}
