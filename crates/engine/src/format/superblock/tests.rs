use super::super::areas::AreaRequest;
use super::super::bytes::tests::dump;
use super::super::header;
use super::*;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

/// A plausible array: `groups` of `data + parity` on drives of 1 GiB and a little more.
pub(in super::super) fn sample(level: Level, groups: u16, data: u16, parity: u16) -> Superblock {
    let request = AreaRequest {
        strip_size_bytes: 64 << 10,
        block_size_bytes: 4096,
        log_bytes: None,
        log_bytes_min: 0,
        checksums: false,
    };
    let plan = Areas::plan(GIB, &request).unwrap();
    let size = data + parity;
    let members = (0..groups * size).map(|place| {
        MemberRecord::new(
            Uuid::from_u128(0x1000 + u128::from(place)),
            &format!("SERIAL{place:04}"),
            GIB + u64::from(place) * 4096,
            place / size,
            place % size,
            MemberState::Active,
        )
    });
    Superblock {
        features: Features::default(),
        read_only_only: false,
        array_uuid: Uuid::from_u128(0xa11a),
        name: "tank".into(),
        created_unix: 1_700_000_000,
        generation: 7,
        epoch: 3,
        lineage: Uuid::from_u128(0x11ea_6e00_0000_0000_0000_0000_0000_0001),
        owner_host: Uuid::from_u128(0x4057),
        replay: None,
        owner_started_unix: 1_700_000_100,
        state: RunState::InUse,
        level,
        groups,
        data,
        parity,
        strip_size_bytes: 64 << 10,
        block_size_bytes: 4096,
        code_id: CODE_ID,
        layout: LayoutParameters::of(level),
        consistency: Consistency::Resync,
        checksums: ChecksumKind::None,
        rebuild_priority: 50,
        members: members.collect(),
        member_index: 0,
        areas: plan.areas,
        member_data_bytes: plan.member_data_bytes,
        region_size_bytes: plan.region_size_bytes,
        volume_size_bytes: plan.member_data_bytes * u64::from(groups) * u64::from(data),
    }
}

fn raid6() -> Superblock {
    sample(Level::Raid6, 1, 4, 2)
}

/// After a change of the bytes, the checksum that a careless writer would have put.
fn resealed(raw: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut raw = raw.to_vec();
    change(&mut raw);
    let checksum = bytes::crc32c_without(&raw, field(16, 4));
    bytes::put_u32(&mut raw, field(16, 4), checksum);
    raw
}

#[test]
fn golden_bytes() {
    let mut superblock = sample(Level::Raid1, 1, 1, 1);
    superblock.members[1].state = MemberState::Rebuilding;
    superblock.members[1].rebuild_position_bytes = 0x0123_4567;
    superblock.members[1].read_errors = 5;
    let raw = superblock.encode(4096);
    assert_eq!(dump(&raw), include_str!("golden.txt"));
}

#[test]
fn both_copies_of_every_member_come_back() {
    let truth = raid6();
    for place in 0..6 {
        let size = truth.members[usize::from(place)].size_bytes;
        let own = truth.for_member(place, size).unwrap();
        for at in [own.areas.superblock_a.offset, own.areas.superblock_b.offset] {
            let back = Superblock::decode(&own.encode(at), at).unwrap();
            assert_eq!(back, own);
            assert!(back.same_array_state(&truth));
        }
    }
}

#[test]
fn the_largest_array_fits() {
    let superblock = sample(Level::Raid10, 240, 1, 1);
    let back = Superblock::decode(&superblock.encode(4096), 4096).unwrap();
    assert_eq!(back.members.len(), MEMBERS_MAX);
    assert_eq!(back, superblock);
}

#[test]
fn only_what_its_members_need_is_written_and_read() {
    for (members, bytes) in [(4, 8), (32, 8), (34, 12), (480, 64)] {
        let superblock = sample(Level::Raid10, members / 2, 1, 1);
        let mut raw = superblock.encode(4096);
        assert_eq!(raw.len(), bytes << 10, "{members} members");
        // What a larger array left behind it.
        raw.resize(SUPERBLOCK_BYTES, 0xa5);
        assert_eq!(Superblock::decode(&raw, 4096).unwrap(), superblock);
        // A bad block counts where the copy has it.
        let used = bytes << 10;
        for bad in (0..SUPERBLOCK_BYTES).step_by(4096) {
            let read = |offset: u64, out: &mut [u8]| {
                let at = offset as usize - 4096;
                if (at..at + out.len()).contains(&bad) {
                    return Err("bad block");
                }
                out.copy_from_slice(&raw[at..at + out.len()]);
                Ok(())
            };
            match Superblock::read(4096, read) {
                Ok(back) => assert!(back == superblock && bad >= used),
                Err(FormatError::Unreadable { .. }) => assert!(bad < used),
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[test]
fn a_superblock_of_version_1_is_read() {
    let superblock = raid6();
    let mut raw = superblock.encode(4096);
    raw.resize(SUPERBLOCK_BYTES, 0);
    let first = resealed(&raw, |raw| {
        bytes::put_u32(raw, field(8, 4), 1);
        bytes::put_u32(raw, field(12, 4), SUPERBLOCK_BYTES as u32);
    });
    assert_eq!(Superblock::decode(&first, 4096).unwrap(), superblock);
    // A later one over it that is torn, of another length.
    let later = superblock.encode(4096);
    for written in 1..later.len() / 512 {
        let cut = written * 512;
        let torn = [&later[..cut], &first[cut..]].concat();
        let result = Superblock::decode(&torn, 4096);
        assert_eq!(
            result.is_ok(),
            later[cut..] == first[cut..later.len()],
            "{cut} bytes"
        );
    }
}

#[test]
fn a_flip_of_any_bit_is_seen() {
    let good = raid6().encode(4096);
    // As it is read: with what lies behind it.
    let mut raw = good.clone();
    raw.resize(SUPERBLOCK_BYTES, 0);
    for at in 0..good.len() {
        // Every bit of the used part, one bit of each byte of the rest.
        let bits = if at < 4096 + 6 * MEMBER_BYTES {
            0..8
        } else {
            at % 8..at % 8 + 1
        };
        for bit in bits {
            raw[at] ^= 1 << bit;
            let result = Superblock::decode(&raw, 4096);
            assert!(result.is_err(), "byte {at} bit {bit}");
            if at < 8 {
                assert!(matches!(result, Err(FormatError::NotStrake { .. })));
            } else {
                assert!(
                    matches!(result, Err(FormatError::Checksum { .. })),
                    "byte {at}"
                );
            }
            raw[at] = good[at];
        }
    }
}

#[test]
fn a_torn_write_leaves_the_old_the_new_or_an_error() {
    let old = raid6();
    let mut new = old.clone();
    new.generation += 1;
    new.members[5].state = MemberState::Failed;
    new.members[5].left_generation = new.generation;
    let (old_raw, new_raw) = (old.encode(4096), new.encode(4096));
    let blank = vec![0u8; old_raw.len()];
    for sector in [512, 4096] {
        for before in [&old_raw, &blank] {
            for written in 1..old_raw.len() / sector {
                let cut = written * sector;
                let prefix = [&new_raw[..cut], &before[cut..]].concat();
                let suffix = [&before[..cut], &new_raw[cut..]].concat();
                for torn in [prefix, suffix] {
                    let whole = torn == new_raw || torn == old_raw;
                    let result = Superblock::decode(&torn, 4096);
                    assert_eq!(result.is_ok(), whole, "{cut} bytes in sectors of {sector}");
                }
            }
        }
    }
}

#[test]
fn a_copy_in_the_wrong_place_is_seen() {
    let raw = raid6().encode(4096);
    let found = Superblock::decode(&raw, 65536);
    assert!(matches!(
        found,
        Err(FormatError::Misplaced {
            says: 4096,
            found_at: 65536,
            ..
        })
    ));
    // Written for a place that is none of the member's own two.
    let moved = resealed(&raw, |raw| bytes::put_u64(raw, field(24, 8), 8192));
    assert_field(Superblock::decode(&moved, 8192), "own offset");
}

fn assert_field(result: Result<Superblock, FormatError>, expected: &str) {
    match result {
        Err(FormatError::Field {
            name, value, why, ..
        }) => {
            assert_eq!(name, expected, "{value}: {why}");
            assert!(!why.is_empty());
        }
        other => panic!("{expected}: {other:?}"),
    }
}

#[test]
fn newer_versions_and_features_are_told_apart() {
    let raw = raid6().encode(4096);
    let newer = resealed(&raw, |raw| bytes::put_u32(raw, field(8, 4), 3));
    let error = Superblock::decode(&newer, 4096).unwrap_err();
    assert!(matches!(
        error,
        FormatError::Version {
            found: 3,
            known: 2,
            ..
        }
    ));
    assert!(error.to_string().contains("newer Strake"), "{error}");
    assert!(error.needs_newer());

    let incompatible = resealed(&raw, |raw| bytes::put_u64(raw, INCOMPATIBLE, 6));
    let error = Superblock::decode(&incompatible, 4096).unwrap_err();
    assert_eq!(error, FormatError::Incompatible { flags: 6 });

    let read_only = resealed(&raw, |raw| {
        bytes::put_u64(raw, READ_ONLY_COMPATIBLE, 1);
        raw[640] = 9; // which the feature may have given a meaning
    });
    assert!(Superblock::decode(&read_only, 4096).unwrap().read_only_only);

    let compatible = resealed(&raw, |raw| bytes::put_u64(raw, COMPATIBLE, 1 << 40));
    let back = Superblock::decode(&compatible, 4096).unwrap();
    assert!(!back.read_only_only);
    assert_eq!(
        back.encode(4096),
        compatible,
        "unknown compatible flags survive"
    );
}

#[test]
#[should_panic(expected = "features unknown here")]
fn a_superblock_with_unknown_features_is_never_written() {
    let mut superblock = raid6();
    superblock.read_only_only = true;
    superblock.encode(4096);
}

/// A field's name in the error, and the change that makes it impossible.
type Fault = (&'static str, fn(&mut [u8]));

#[test]
fn every_field_is_distrusted() {
    const FIRST: usize = 4096;
    const SECOND: usize = FIRST + MEMBER_BYTES;
    let faults: &[Fault] = &[
        ("array UUID", |raw| raw[32..48].fill(0)),
        ("generation", |raw| raw[64..72].fill(0)),
        ("lineage", |raw| bytes::put_uuid(raw, LINEAGE, Uuid::nil())),
        ("name", |raw| bytes::put_text(raw, NAME, "")),
        ("name", |raw| bytes::put_text(raw, NAME, "../x")),
        ("name", |raw| raw[NAME.at + 20] = b'x'),
        ("state", |raw| bytes::put_u8(raw, STATE, 0)),
        ("level", |raw| bytes::put_u8(raw, LEVEL, 99)),
        ("level", |raw| bytes::put_u8(raw, LEVEL, 5)),
        ("consistency", |raw| bytes::put_u8(raw, CONSISTENCY, 4)),
        ("checksums", |raw| bytes::put_u8(raw, CHECKSUMS, 1)),
        ("rebuild priority", |raw| {
            bytes::put_u8(raw, REBUILD_PRIORITY, 0)
        }),
        ("rebuild priority", |raw| {
            bytes::put_u8(raw, REBUILD_PRIORITY, 101)
        }),
        ("reserved space", |raw| raw[RESERVED_1.at + 2] = 1),
        ("members", |raw| bytes::put_u16(raw, GROUPS, 2)),
        ("members", |raw| bytes::put_u16(raw, DATA, 5)),
        ("members", |raw| bytes::put_u16(raw, PARITY, u16::MAX)),
        ("members", |raw| bytes::put_u16(raw, MEMBERS, 481)),
        ("length", |raw| bytes::put_u16(raw, MEMBERS, 33)),
        ("member table", |raw| bytes::put_u16(raw, MEMBERS, 5)),
        ("member's state", |raw| bytes::put_u16(raw, MEMBERS, 7)),
        ("member index", |raw| bytes::put_u16(raw, MEMBER_INDEX, 6)),
        ("reserved space", |raw| raw[RESERVED_2.at] = 1),
        ("strip size", |raw| bytes::put_u64(raw, STRIP_SIZE, 65535)),
        ("strip size", |raw| bytes::put_u64(raw, STRIP_SIZE, 2 << 20)),
        ("block size", |raw| bytes::put_u32(raw, BLOCK_SIZE, 1024)),
        ("code id", |raw| bytes::put_u32(raw, CODE_ID_FIELD, 2)),
        ("layout", |raw| bytes::put_u32(raw, LAYOUT_ID, 2)),
        ("layout", |raw| bytes::put_u32(raw, LAYOUT_GENERATOR, 1)),
        ("layout", |raw| bytes::put_u64(raw, LAYOUT_ROTATION, 1)),
        ("layout", |raw| bytes::put_u64(raw, LAYOUT_SEED, 1)),
        ("member data", |raw| bytes::put_u64(raw, MEMBER_DATA, 0)),
        ("member data", |raw| {
            bytes::put_u64(raw, MEMBER_DATA, u64::MAX)
        }),
        ("member data", |raw| bytes::put_u64(raw, MEMBER_DATA, 4096)),
        ("region size", |raw| bytes::put_u64(raw, REGION_SIZE, 0)),
        ("region size", |raw| {
            bytes::put_u64(raw, REGION_SIZE, 3 << 20)
        }),
        ("region size", |raw| {
            bytes::put_u64(raw, REGION_SIZE, 64 << 10)
        }),
        ("volume size", |raw| bytes::put_u64(raw, VOLUME_SIZE, 0)),
        ("volume size", |raw| bytes::put_u64(raw, VOLUME_SIZE, 4097)),
        ("volume size", |raw| bytes::put_u64(raw, VOLUME_SIZE, !4095)),
        ("log replayed", |raw| {
            bytes::put_u64(raw, LOG_EPOCH, 3);
            raw[LOG_LINEAGE.at + 15] = 1;
        }),
        ("log replayed", |raw| bytes::put_u64(raw, LOG_EPOCH, 1)),
        ("restripe direction", |raw| raw[RESTRIPE.at] = 1),
        ("reserved space", |raw| raw[4095] = 1),
        ("superblock A", |raw| raw[AREAS.at + 1] = 0),
        ("region map, copy 0", |raw| raw[AREAS.at + 16] = 1),
        ("region map, copy 1", |raw| {
            raw[AREAS.at + 32..AREAS.at + 40].fill(0)
        }),
        ("array store", |raw| {
            raw[AREAS.at + 56..AREAS.at + 64].fill(0)
        }),
        ("data", |raw| raw[AREAS.at + 97] = 0x10),
        ("superblock B", |raw| {
            raw[AREAS.at + 112..AREAS.at + 120].fill(0xff)
        }),
        ("member's group and index", |raw| raw[FIRST + 120] = 1),
        ("member's group and index", |raw| raw[FIRST + 122] = 1),
        ("member's state", |raw| raw[FIRST + 124] = 0),
        ("member's reserved space", |raw| raw[FIRST + 127] = 1),
        ("member's serial", |raw| raw[FIRST + 16] = b'\n'),
        ("member's size", |raw| raw[FIRST + 64..FIRST + 72].fill(0)),
        ("member's rebuild position", |raw| raw[FIRST + 79] = 1),
        ("member's UUID", |raw| raw[SECOND..SECOND + 16].fill(0)),
        ("member's UUID", |raw| {
            raw.copy_within(FIRST..FIRST + 16, SECOND)
        }),
        ("member table", |raw| *raw.last_mut().unwrap() = 1),
    ];
    let good = raid6().encode(4096);
    for (name, change) in faults {
        assert_field(Superblock::decode(&resealed(&good, change), 4096), name);
    }
    let other = resealed(&good, |raw| raw[48] ^= 1);
    let result = Superblock::decode(&other, 4096);
    assert!(matches!(
        result,
        Err(FormatError::Foreign {
            field: "member",
            ..
        })
    ));
}

#[test]
fn random_garbage_behind_a_good_checksum_never_panics() {
    let mut random = fastrand_like(42);
    let good = raid6().encode(4096);
    for _ in 0..20_000 {
        let raw = resealed(&good, |raw| {
            for _ in 0..1 + random() % 4 {
                let at = header::HEADER_BYTES + (random() as usize) % 1800;
                // The head's used part and the first records, skipping most of the zeroes.
                let at = if at < 640 { at } else { 4096 + at - 640 };
                raw[at] = random() as u8;
            }
        });
        if let Ok(back) = Superblock::decode(&raw, 4096) {
            // What is accepted can be written again, byte for byte, unless it is for reading only.
            if !back.read_only_only {
                assert!(back.encode(4096) == raw);
            }
            back.fields();
        }
    }
}

/// A small generator of our own (xorshift*), so that the test is the same everywhere.
fn fastrand_like(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}

#[test]
fn leaving_keeps_what_tells_a_stale_member_from_one_that_ran_apart() {
    let mut superblock = raid6();
    superblock.generation += 1;
    let tag = lineage_tag(superblock.lineage);
    superblock.mark_left(2, MemberState::Failed);
    superblock.lineage = Uuid::from_u128(77);
    superblock.generation += 1;
    superblock.mark_left(2, MemberState::Removed);
    let record = &superblock.members[2];
    assert_eq!(record.state, MemberState::Removed);
    assert_eq!((record.left_generation, record.left_lineage_tag), (8, tag));
}

#[test]
fn names_and_serials() {
    for good in ["a", "tank-1", "9.x_y", &"n".repeat(48)] {
        assert!(check_name(good).is_ok(), "{good}");
    }
    for bad in ["", "-a", ".a", "a b", "ä", "a/b", &"n".repeat(49)] {
        assert!(check_name(bad).is_err(), "{bad}");
    }
    assert_eq!(clip_serial("  S4\n X "), "S4 X");
    assert_eq!(clip_serial(&"ä".repeat(30)), "ä".repeat(24));
}

#[test]
fn the_listing_names_what_people_look_for() {
    let mut superblock = raid6();
    superblock.members[1].state = MemberState::Rebuilding;
    superblock.members[1].rebuild_position_bytes = 1 << 20;
    let fields = superblock.fields();
    let value = |name: &str| fields.iter().find(|f| f.0 == name).unwrap().1.clone();
    assert_eq!(value("array"), "tank");
    assert_eq!(value("level"), "raid6");
    assert_eq!(value("strip size"), "64 KiB (65536 bytes)");
    assert!(value("member 1").contains("in sync below 1 MiB"));
    assert!(value("member 0").ends_with("(this drive)"));
}

fn any_state() -> impl Strategy<Value = MemberState> {
    prop::sample::select(MemberState::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_superblock_comes_back(
        shape in prop::sample::select(vec![
            (Level::Raid0, 3, 1, 0), (Level::Raid1, 1, 1, 2), (Level::Raid5, 1, 2, 1),
            (Level::Raid6, 1, 10, 2), (Level::Raid73, 1, 5, 3), (Level::Raid10, 3, 1, 1),
            (Level::Raid50, 2, 3, 1), (Level::Raid60, 2, 4, 2), (Level::Raid70, 3, 6, 3),
            (Level::NPlusM, 1, 32, 32),
        ]),
        numbers in any::<[u64; 6]>(),
        name in "[a-zA-Z0-9][a-zA-Z0-9._-]{0,47}",
        serial in "\\PC{0,12}",
        states in prop::collection::vec(any_state(), 64),
        clean: bool,
        seeds in any::<[u128; 3]>(),
    ) {
        let mut superblock = sample(shape.0, shape.1, shape.2, shape.3);
        superblock.name = name;
        superblock.created_unix = numbers[0];
        superblock.generation = numbers[1].max(1);
        superblock.epoch = numbers[2];
        superblock.owner_started_unix = numbers[3];
        superblock.features.compatible = numbers[4];
        superblock.array_uuid = Uuid::from_u128(seeds[0] | 1);
        superblock.lineage = Uuid::from_u128(seeds[1] | 1);
        superblock.owner_host = Uuid::from_u128(seeds[2]);
        if clean {
            superblock.state = RunState::Clean;
        } else if superblock.epoch > 1 {
            superblock.replay = Some(Replay {
                epoch: superblock.epoch - 1,
                lineage: Uuid::from_u128(seeds[2] | 1),
            });
        }
        for (member, state) in superblock.members.iter_mut().zip(states) {
            member.state = state;
            member.serial = clip_serial(&serial);
            member.rebuild_position_bytes = numbers[5] % (superblock.member_data_bytes + 1);
            member.left_generation = numbers[1] / 2;
            member.write_errors = numbers[0];
        }
        let back = Superblock::decode(&superblock.encode(4096), 4096);
        prop_assert_eq!(back, Ok(superblock));
    }
}
