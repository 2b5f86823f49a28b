use super::*;

const KIND: Kind = Kind {
    magic: *b"STRAKETT",
    name: "test page",
    version: 3,
    bytes: 4096,
};

fn page() -> Vec<u8> {
    sealed(KIND)
}

fn sealed(kind: Kind) -> Vec<u8> {
    let mut out = vec![0; kind.bytes];
    out[100] = 7;
    let header = Header {
        own_offset: 8192,
        array_uuid: Uuid::from_u128(1),
        member_uuid: Uuid::from_u128(2),
        generation: 9,
    };
    kind.seal(&mut out, &header);
    out
}

/// Seals again after a change that must be caught by more than the checksum.
fn resealed(mut raw: Vec<u8>, change: impl Fn(&mut [u8])) -> Vec<u8> {
    change(&mut raw);
    let checksum = bytes::crc32c_without(&raw, CHECKSUM);
    bytes::put_u32(&mut raw, CHECKSUM, checksum);
    raw
}

/// What the error names, and the change that must raise it.
type Fault = (&'static str, fn(&mut [u8]));

#[test]
fn a_sealed_header_opens() {
    let header = KIND.open(&page(), 8192).unwrap();
    assert_eq!(header.generation, 9);
    assert!(
        KIND.expect(&header, Uuid::from_u128(1), Uuid::from_u128(2))
            .is_ok()
    );
    let foreign = KIND.expect(&header, Uuid::from_u128(1), Uuid::from_u128(3));
    assert!(matches!(
        foreign,
        Err(FormatError::Foreign {
            field: "member",
            ..
        })
    ));
    let foreign = KIND.expect(&header, Uuid::from_u128(5), Uuid::from_u128(2));
    assert!(matches!(
        foreign,
        Err(FormatError::Foreign { field: "array", .. })
    ));
}

#[test]
fn every_fault_of_a_header_has_its_error() {
    assert!(matches!(
        KIND.open(&page()[..4095], 8192),
        Err(FormatError::Short { .. })
    ));
    assert!(matches!(
        KIND.open(&[0; 4096], 8192),
        Err(FormatError::NotStrake { .. })
    ));
    assert!(matches!(
        KIND.open(&page(), 4096),
        Err(FormatError::Misplaced {
            says: 8192,
            found_at: 4096,
            ..
        })
    ));
    let newer = sealed(Kind { version: 4, ..KIND });
    assert!(matches!(
        KIND.open(&newer, 8192),
        Err(FormatError::Version {
            found: 4,
            known: 3,
            ..
        })
    ));
    let longer = sealed(Kind {
        version: 4,
        bytes: 8192,
        ..KIND
    });
    assert!(matches!(
        KIND.open(&longer, 8192),
        Err(FormatError::Version { found: 4, .. })
    ));
    let older = sealed(Kind { version: 2, ..KIND });
    assert!(KIND.open(&older, 8192).is_ok());
    let cases: [Fault; 3] = [
        ("version", |raw| bytes::put_u32(raw, VERSION, 0)),
        ("length", |raw| bytes::put_u32(raw, BYTES, 512)),
        ("reserved space", |raw| raw[21] = 1),
    ];
    for (field, change) in cases {
        match KIND.open(&resealed(page(), change), 8192) {
            Err(FormatError::Field { name, .. }) => assert_eq!(name, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

#[test]
fn damage_is_not_taken_for_a_newer_version() {
    let mut raw = page();
    raw[8] = 0xff;
    assert!(matches!(
        KIND.open(&raw, 8192),
        Err(FormatError::Checksum { .. })
    ));
}
