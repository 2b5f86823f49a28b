use super::super::region_map::page_count;
use super::*;
use proptest::prelude::*;

const TIB: u64 = 1 << 40;

fn request() -> AreaRequest {
    AreaRequest {
        strip_size_bytes: 64 * KIB,
        block_size_bytes: 4096,
        log_bytes: None,
        log_bytes_min: 0,
        checksums: false,
    }
}

fn plan(size: u64) -> AreaPlan {
    Areas::plan(size, &request()).unwrap()
}

/// What the error names, and the change that must raise it.
type Fault = (&'static str, fn(&mut Areas));

#[test]
fn golden_places_of_a_1_gib_drive() {
    let plan = plan(GIB);
    let places: Vec<(u64, u64)> = plan
        .areas
        .named()
        .iter()
        .map(|a| (a.1.offset, a.1.length))
        .collect();
    let map = 3 * 4096; // 1024 regions in pages of 496
    let expected = [
        (4096, 65536),
        (69632, map),
        (69632 + map, map),
        (69632 + 2 * map, MIB),
        (69632 + 2 * map + MIB, 16 * MIB),
        (69632 + 2 * map + 17 * MIB, 0),
        (18 * MIB, GIB - 34 * MIB),
        (GIB - 65536, 65536),
    ];
    assert_eq!(places, expected);
    assert_eq!(plan.region_size_bytes, MIB);
}

#[test]
fn the_smallest_drive_holds_a_few_regions_and_smaller_ones_are_refused() {
    let smallest = plan(DRIVE_BYTES_MIN);
    assert!(smallest.member_data_bytes >= MIB);
    let error = Areas::plan(DRIVE_BYTES_MIN - 1, &request()).unwrap_err();
    let expected = AreaError::TooSmall {
        size_bytes: DRIVE_BYTES_MIN - 1,
        needed_bytes: DRIVE_BYTES_MIN,
    };
    assert_eq!(error, expected);
    assert!(error.to_string().contains("(8 MiB)"), "{error}");
    assert!(Areas::plan(0, &request()).is_err());
}

#[test]
fn a_log_takes_1_mib_to_a_quarter_of_the_drive() {
    let with_log = |size: u64, log: u64| {
        let log_bytes = Some(log);
        let request = AreaRequest {
            log_bytes,
            ..request()
        };
        Areas::plan(size, &request).map(|plan| plan.areas.log.length)
    };
    for (size, log, expected) in [
        (64 * MIB, MIB, MIB),
        (64 * MIB, MIB + 1, 2 * MIB),
        (64 * MIB, 16 * MIB, 16 * MIB),
        (TIB, 4 * GIB, 4 * GIB),
    ] {
        assert_eq!(with_log(size, log), Ok(expected));
    }
    for (size, log, most) in [
        (64 * MIB, MIB - 1, 16 * MIB),
        (64 * MIB, 0, 16 * MIB),
        (64 * MIB, 16 * MIB + 1, 16 * MIB),
        (TIB, 4 * GIB + 1, 4 * GIB),
        (TIB, u64::MAX, 4 * GIB),
    ] {
        let expected = AreaError::LogSize {
            log_bytes: log,
            least_bytes: 1 << 20,
            most_bytes: most,
            size_bytes: size,
        };
        assert_eq!(with_log(size, log), Err(expected));
    }
    assert!(matches!(
        with_log(MIB, 64 * MIB),
        Err(AreaError::TooSmall { .. })
    ));
}

#[test]
fn large_drives_keep_64_mib_back_and_round_to_64_mib() {
    for size in [8 * GIB, 8 * GIB + 12345, 960_197_124_096, 15 * TIB + 4096] {
        let plan = plan(size);
        assert!(plan.member_data_bytes.is_multiple_of(64 * MIB));
        assert!(size - plan.areas.data.end() >= 64 * MIB);
        assert_eq!(plan.areas.log.length, 64 * MIB);
    }
}

#[test]
fn regions_grow_with_the_drive_and_the_strip() {
    assert_eq!(region_size_bytes(GIB, 4096), MIB);
    assert_eq!(region_size_bytes(2 * TIB, MIB), MIB);
    assert_eq!(region_size_bytes(2 * TIB + 1, 4096), 2 * MIB);
    assert_eq!(region_size_bytes(128 * TIB, 4096), 64 * MIB);
    // Nothing overflows at the end of the numbers.
    assert!(u64::MAX.div_ceil(region_size_bytes(u64::MAX, 4096)) <= REGIONS_MAX);
}

#[test]
fn superblock_b_is_in_the_last_whole_64_kib() {
    assert_eq!(superblock_b_offset(GIB), Some(GIB - 65536));
    assert_eq!(superblock_b_offset(GIB + 65535), Some(GIB - 65536));
    assert_eq!(superblock_b_offset(GIB + 65536), Some(GIB));
    assert_eq!(superblock_b_offset(65536), None);
}

#[test]
fn a_replacement_of_nearly_the_same_size_fits_and_a_smaller_one_is_refused() {
    let areas = plan(10 * GIB).areas;
    let slightly_smaller = areas.on_drive(10 * GIB - 60 * MIB).unwrap();
    assert_eq!(slightly_smaller.data, areas.data);
    assert!(slightly_smaller.check().is_ok());
    let needed = areas.drive_bytes_needed();
    assert!(areas.on_drive(needed).is_ok());
    let error = areas.on_drive(needed - 1).unwrap_err();
    assert_eq!(
        error,
        AreaError::DoesNotFit {
            size_bytes: needed - 1,
            needed_bytes: needed
        }
    );
    assert!(areas.on_drive(0).is_err());
}

#[test]
fn check_names_the_area_that_is_wrong() {
    let good = plan(GIB).areas;
    let cases: [Fault; 9] = [
        ("superblock A", |a| a.superblock_a.offset = 8192),
        ("superblock A", |a| a.superblock_a.length = 4096),
        ("region map, copy 0", |a| a.region_map[0].offset -= 4096),
        ("region map, copy 1", |a| a.region_map[1].length -= 4096),
        ("array store", |a| a.store.length = 0),
        ("parity log", |a| a.log.offset += 512),
        ("data", |a| a.data.offset += 4096),
        ("data", |a| a.data.length = !4095),
        ("superblock B", |a| a.superblock_b.offset = a.data.offset),
    ];
    for (name, change) in cases {
        let mut areas = good;
        change(&mut areas);
        assert_eq!(areas.check().unwrap_err().0, name);
    }
}

proptest! {
    #[test]
    fn any_plan_holds_its_rules(
        size in prop_oneof![DRIVE_BYTES_MIN..16 * GIB, DRIVE_BYTES_MIN..2000 * TIB],
        strip_shift in 12u32..=20,
        log_mib in prop::option::of(1u64..3),
        checksums: bool,
    ) {
        let request = AreaRequest {
            strip_size_bytes: 1 << strip_shift,
            log_bytes: log_mib.map(|mib| mib * MIB),
            log_bytes_min: 0,
            checksums,
            ..request()
        };
        let plan = Areas::plan(size, &request).unwrap();
        let areas = plan.areas;
        prop_assert_eq!(areas.check(), Ok(()));
        prop_assert!(areas.superblock_b.end() <= size);
        prop_assert!(plan.region_size_bytes >= request.strip_size_bytes);
        prop_assert!(plan.member_data_bytes.is_multiple_of(plan.region_size_bytes));
        let regions = plan.member_data_bytes / plan.region_size_bytes;
        prop_assert!(regions <= REGIONS_MAX);
        prop_assert!(page_count(regions) * PAGE_BYTES <= areas.region_map[0].length);
        if checksums {
            prop_assert!(areas.checksums.length >= plan.member_data_bytes / 1024);
        }
        // Data is most of any drive that is not tiny.
        if size > GIB {
            prop_assert!(plan.member_data_bytes >= size / 10 * 9, "{}", plan.member_data_bytes);
        }
        let mut table = vec![0; AREAS_BYTES];
        areas.encode(&mut table);
        prop_assert_eq!(Areas::decode(&table), areas);
    }
}
