use super::super::tests::sample;
use super::super::*;
use super::*;
use crate::layout::Level;

/// A sound superblock with these bytes written into it, as a later Strake would seal it.
fn with(at: usize, value: u8) -> Result<Superblock, FormatError> {
    let mut raw = sample(Level::Raid6, 1, 4, 2).encode(4096);
    raw[at] = value;
    let checksum = bytes::crc32c_without(&raw, field(16, 4));
    bytes::put_u32(&mut raw, field(16, 4), checksum);
    Superblock::decode(&raw, 4096)
}

#[test]
fn a_restripe_that_was_begun_is_refused_by_the_field_that_says_so() {
    for (name, field) in RESTRIPE_FIELDS {
        for at in [field.at, field.at + field.bytes - 1] {
            match with(RESTRIPE.at + at, 1) {
                Err(FormatError::Field { name: says, .. }) => assert_eq!(says, name),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
    for at in [HEARTBEAT.at, RESERVED_4.at] {
        assert!(matches!(with(at, 1), Err(FormatError::Field { .. })));
    }
}

#[test]
fn what_is_not_built_is_not_known() {
    let not_built = [
        INCOMPATIBLE_RESTRIPE,
        INCOMPATIBLE_CHECKSUMS,
        INCOMPATIBLE_VOLUMES,
        INCOMPATIBLE_DECLUSTERED,
    ];
    for flag in not_built {
        assert_eq!(INCOMPATIBLE_KNOWN & flag, 0);
        match with(INCOMPATIBLE.at, flag as u8) {
            Err(FormatError::Incompatible { flags }) => assert_eq!(flags, flag),
            other => panic!("{flag:#x}: {other:?}"),
        }
    }
    let all = not_built.iter().fold(0, |all, flag| all | flag);
    assert_eq!(
        all.count_ones() as usize,
        not_built.len(),
        "each its own bit"
    );
    assert_eq!(
        READ_ONLY_COMPATIBLE_KNOWN & READ_ONLY_COMPATIBLE_HEARTBEAT,
        0
    );
}

#[test]
fn an_array_whose_owner_keeps_a_heartbeat_may_be_read() {
    let mut raw = sample(Level::Raid6, 1, 4, 2).encode(4096);
    bytes::put_u64(
        &mut raw,
        READ_ONLY_COMPATIBLE,
        READ_ONLY_COMPATIBLE_HEARTBEAT,
    );
    raw[HEARTBEAT.at] = 9;
    let checksum = bytes::crc32c_without(&raw, field(16, 4));
    bytes::put_u32(&mut raw, field(16, 4), checksum);
    assert!(Superblock::decode(&raw, 4096).unwrap().read_only_only);
}
