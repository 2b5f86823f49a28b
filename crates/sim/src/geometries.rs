//! The small geometries that are tried.

use fastrand::Rng;
use strake_engine::layout::{Geometry, GeometryRequest, Level, Shape};

/// Level, members, group size (or copies) and parities.
type Case = (Level, usize, Option<usize>, Option<usize>);

/// Every level at its small sizes.
pub const CASES: [Case; 27] = [
    (Level::Raid0, 1, None, None),
    (Level::Raid0, 3, None, None),
    (Level::Raid1, 2, None, None),
    (Level::Raid1, 3, None, None),
    (Level::Raid10, 4, None, None),
    (Level::Raid10, 6, Some(2), None),
    (Level::Raid10, 6, Some(3), None),
    (Level::Raid5, 3, None, None),
    (Level::Raid5, 4, None, None),
    (Level::Raid5, 5, None, None),
    (Level::Raid6, 4, None, None),
    (Level::Raid6, 5, None, None),
    (Level::Raid6, 6, None, None),
    (Level::Raid73, 5, None, None),
    (Level::Raid73, 6, None, None),
    (Level::Raid73, 8, None, None),
    (Level::Raid50, 6, Some(3), None),
    (Level::Raid50, 8, Some(4), None),
    (Level::Raid60, 8, Some(4), None),
    (Level::Raid60, 10, Some(5), None),
    (Level::Raid70, 10, Some(5), None),
    (Level::NPlusM, 2, None, Some(1)),
    (Level::NPlusM, 4, None, Some(2)),
    (Level::NPlusM, 6, None, Some(3)),
    (Level::NPlusM, 8, None, Some(4)),
    (Level::NPlusM, 7, None, Some(2)),
    (Level::NPlusM, 12, None, Some(5)),
];

/// Strips that are tried, bytes.
pub const STRIPS: [u64; 6] = [4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// The shape of a case.
pub fn shape(case: Case, strip_size_bytes: u64, block_size_bytes: u32) -> Shape {
    let (level, members, group_size, parity) = case;
    let request = GeometryRequest {
        level,
        members,
        strip_size_bytes: Some(strip_size_bytes),
        block_size_bytes: Some(block_size_bytes),
        group_size,
        parity,
    };
    request.shape().expect("the cases are shapes")
}

/// Any of them with at most so many members; of `level` only, if one is named.
pub fn random(rng: &mut Rng, level: Option<Level>, members_max: usize) -> Shape {
    let cases: Vec<Case> = CASES
        .into_iter()
        .filter(|case| level.is_none_or(|level| case.0 == level) && case.1 <= members_max)
        .collect();
    let case = cases[rng.usize(..cases.len())];
    assert!(
        !cases.is_empty(),
        "no array of {level:?} has at most {members_max} members"
    );
    let block = if rng.bool() { 4096 } else { 512 };
    shape(case, STRIPS[rng.usize(..STRIPS.len())], block)
}

/// For people: `raid6 4+2, strips of 65536, blocks of 4096`.
pub fn name(shape: &Shape) -> String {
    format!(
        "{} {}×({}+{}), strips of {}, blocks of {}",
        shape.level.name(),
        shape.groups,
        shape.data,
        shape.parity,
        shape.strip_size_bytes,
        shape.block_size_bytes
    )
}

/// Arithmetic of a shape over its members.
pub fn geometry(shape: Shape, member_data_bytes: u64, region_size_bytes: u64) -> Geometry {
    Geometry::new(shape, member_data_bytes, region_size_bytes)
}
