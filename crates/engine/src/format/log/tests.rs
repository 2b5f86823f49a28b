use super::super::bytes::tests::dump;
use super::*;
use proptest::prelude::*;

const AREA: Extent = Extent::new(2 << 20, 16 << 20);

fn header() -> LogHeader {
    LogHeader {
        array_uuid: Uuid::from_u128(0xa),
        member_uuid: Uuid::from_u128(0xb),
        generation: 4,
        epoch: 2,
        lineage: Uuid::from_u128(0xc),
        policy: Consistency::Resync,
    }
}

/// What the error names, and the change that must raise it.
type Fault = (&'static str, fn(&mut [u8]));

#[test]
fn golden_bytes() {
    let mut expected = vec![0u8; LOG_HEADER_BYTES];
    expected[..8].copy_from_slice(b"STRAKELG");
    expected[8] = 1; // version
    expected[13] = 0x10; // 4096 bytes
    expected[26] = 0x20; // at 2 MiB
    expected[47] = 0xa;
    expected[63] = 0xb;
    expected[64] = 4; // generation
    expected[72] = 2; // epoch
    expected[95] = 0xc; // lineage
    expected[97] = 0x10; // ring at 2 MiB + 4 KiB
    expected[98] = 0x20;
    expected[105..107].copy_from_slice(&[0xf0, 0xff]); // 16 MiB - 4 KiB
    expected[120] = 1; // resync
    expected[121] = 1; // empty
    expected[16..20].copy_from_slice(&GOLDEN_CHECKSUM.to_le_bytes());
    assert_eq!(dump(&header().encode(AREA)), dump(&expected));
}

/// Computed by another program.
const GOLDEN_CHECKSUM: u32 = 0xa190_3493;

#[test]
fn a_flip_of_any_bit_and_every_torn_write_is_seen() {
    let mut raw = header().encode(AREA);
    for at in 0..raw.len() {
        for bit in 0..8 {
            raw[at] ^= 1 << bit;
            assert!(
                LogHeader::decode(&raw, AREA).is_err(),
                "byte {at} bit {bit}"
            );
            raw[at] ^= 1 << bit;
        }
    }
    let older = LogHeader {
        generation: 3,
        ..header()
    }
    .encode(AREA);
    for sectors in 1..8 {
        let torn = [&older[..sectors * 512], &raw[sectors * 512..]].concat();
        assert_eq!(LogHeader::decode(&torn, AREA).is_ok(), torn == older);
    }
}

#[test]
fn every_field_is_distrusted() {
    let cases: [Fault; 6] = [
        ("state", |raw| raw[121] = 2),
        ("policy", |raw| raw[120] = 9),
        ("ring", |raw| raw[97] = 0),
        ("ring", |raw| raw[106] = 0),
        ("reserved space", |raw| raw[112] = 1),
        ("reserved space", |raw| raw[4095] = 1),
    ];
    for (field_name, change) in cases {
        let mut raw = header().encode(AREA);
        change(&mut raw);
        let checksum = bytes::crc32c_without(&raw, field(16, 4));
        bytes::put_u32(&mut raw, field(16, 4), checksum);
        match LogHeader::decode(&raw, AREA) {
            Err(FormatError::Field { name, .. }) => assert_eq!(name, field_name),
            other => panic!("{field_name}: {other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn any_header_comes_back(ids in any::<[u128; 3]>(), generation: u64, epoch: u64, none: bool, page in 1u64..1 << 40, pages in 2u64..1 << 20) {
        let area = Extent::new(page * 4096, pages * 4096);
        let header = LogHeader {
            array_uuid: Uuid::from_u128(ids[0]),
            member_uuid: Uuid::from_u128(ids[1]),
            generation,
            epoch,
            lineage: Uuid::from_u128(ids[2]),
            policy: if none { Consistency::None } else { Consistency::Resync },
        };
        prop_assert_eq!(LogHeader::decode(&header.encode(area), area), Ok(header));
    }
}
