use super::*;
use std::collections::HashSet;

fn request(level: Level, members: usize) -> GeometryRequest {
    GeometryRequest {
        level,
        members,
        strip_size_bytes: Some(4096),
        block_size_bytes: None,
        group_size: None,
        parity: None,
    }
}

fn small_shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for level in Level::ALL {
        for members in 1..=12 {
            for group_size in [None, Some(2), Some(3), Some(4), Some(5), Some(6)] {
                for parity in [None, Some(1), Some(2), Some(3), Some(4)] {
                    let asked = GeometryRequest {
                        group_size,
                        parity,
                        ..request(level, members)
                    };
                    shapes.extend(asked.shape());
                }
            }
        }
    }
    assert!(shapes.len() > 60, "{}", shapes.len());
    shapes
}

/// Every byte offset of every small geometry goes to a place of its own and comes back.
#[test]
fn every_small_geometry_there_and_back() {
    for shape in small_shapes() {
        let geometry = Geometry::new(shape, 1 << 16, 1 << 14);
        let mut seen = HashSet::new();
        let strip = geometry.strip_bytes();
        for index in 0..geometry.volume_bytes() / strip {
            let offset = index * strip + 512;
            let piece = geometry.piece(offset, u64::MAX);
            assert_eq!(u64::from(piece.length), strip - 512);
            let member = geometry.member(piece.stripe, usize::from(piece.strip));
            let at = geometry.member_offset(piece.stripe, piece.start);
            assert!(member.at() < shape.members());
            assert!(at < geometry.rows() * strip);
            assert!(seen.insert((member, at)), "{shape:?} {offset}");
            assert_eq!(
                geometry.strip_of(piece.stripe, member),
                usize::from(piece.strip)
            );
            assert_eq!(
                geometry.volume_offset(piece.stripe, usize::from(piece.strip), piece.start),
                offset
            );
        }
        // With the parities every strip of every member is used exactly once.
        for stripe in (0..geometry.stripes()).map(StripeIndex) {
            for parity in geometry.data()..geometry.strips() {
                let member = geometry.member(stripe, parity);
                let at = geometry.member_offset(stripe, 512);
                assert!(seen.insert((member, at)), "{shape:?} {stripe:?}");
                assert_eq!(geometry.group_of(member), geometry.group(stripe));
            }
        }
        assert_eq!(seen.len() as u64, geometry.rows() * shape.members() as u64);
    }
}

/// md(4), left-symmetric: parity walks down from the last device, data follows it.
#[test]
fn raid5_is_left_symmetric() {
    let shape = request(Level::Raid5, 4).shape().unwrap();
    let geometry = Geometry::new(shape, 1 << 16, 1 << 14);
    let row = |row: u64| -> Vec<u16> {
        (0..4)
            .map(|strip| geometry.member(StripeIndex(row), strip).0)
            .collect()
    };
    // Order: data 0, 1, 2, parity.
    assert_eq!(row(0), [0, 1, 2, 3]);
    assert_eq!(row(1), [3, 0, 1, 2]);
    assert_eq!(row(2), [2, 3, 0, 1]);
    assert_eq!(row(3), [1, 2, 3, 0]);
    assert_eq!(row(4), [0, 1, 2, 3]);
}

/// RAID 6 in md: Q follows P (wrapping), data follows Q.
#[test]
fn raid6_q_follows_p_and_data_follows_q() {
    let shape = request(Level::Raid6, 5).shape().unwrap();
    let geometry = Geometry::new(shape, 1 << 16, 1 << 14);
    for row in 0..10u64 {
        let p = geometry.member(StripeIndex(row), 3).0;
        assert_eq!(u64::from(p), 4 - row % 5);
        assert_eq!(geometry.member(StripeIndex(row), 4).0, (p + 1) % 5);
        for data in 0..3u16 {
            assert_eq!(
                geometry.member(StripeIndex(row), data.into()).0,
                (p + 2 + data) % 5
            );
        }
    }
}

#[test]
fn requests_that_cannot_be_are_refused_with_the_rule() {
    let cases: [(GeometryRequest, &str); 14] = [
        (request(Level::Raid5, 2), "at least 3"),
        (request(Level::Raid6, 3), "at least 4"),
        (request(Level::Raid73, 4), "at least 5"),
        (request(Level::Raid1, 1), "at least 2"),
        (request(Level::Raid10, 5), "do not divide"),
        (request(Level::Raid50, 6), "needs a group size"),
        (request(Level::Raid5, 65), "at most 64"),
        (request(Level::Raid0, 481), "at most 480"),
        (request(Level::NPlusM, 8), "needs the number of parities"),
        (
            GeometryRequest {
                parity: Some(5),
                ..request(Level::NPlusM, 8)
            },
            "may not outnumber",
        ),
        (
            GeometryRequest {
                group_size: Some(4),
                ..request(Level::Raid50, 10)
            },
            "do not divide",
        ),
        (
            GeometryRequest {
                strip_size_bytes: Some(48 << 10),
                ..request(Level::Raid5, 4)
            },
            "power of two",
        ),
        (
            GeometryRequest {
                block_size_bytes: Some(1024),
                ..request(Level::Raid5, 4)
            },
            "512 or 4096",
        ),
        (
            GeometryRequest {
                parity: Some(2),
                ..request(Level::Raid5, 4)
            },
            "belongs to level n+m",
        ),
    ];
    for (asked, expected) in cases {
        let text = asked.shape().unwrap_err().to_string();
        assert!(text.contains(expected), "{asked:?}: {text}");
    }
}

#[test]
fn level_names_parse_back() {
    for level in Level::ALL {
        assert_eq!(Level::parse(level.name()), Some(level));
        assert_eq!(Level::from_code(level.code()), Some(level));
    }
    assert_eq!(Level::parse("RAID 6"), Some(Level::Raid6));
    assert_eq!(Level::parse("raid4"), None);
}
