use super::*;
use strake_engine::layout::{GeometryRequest, Level};

const STRIP: u64 = 4096;
const MEMBER: u64 = 64 * STRIP;

fn geometry(level: Level, members: usize) -> Geometry {
    let request = GeometryRequest {
        level,
        members,
        strip_size_bytes: Some(STRIP),
        block_size_bytes: Some(512),
        group_size: (level == Level::Raid60).then_some(members / 2),
        parity: None,
    };
    Geometry::new(request.shape().unwrap(), MEMBER, 16 * STRIP)
}

fn of(geometry: &Geometry, member: u16, offset: u64, length: u64) -> TornBlocks {
    let mut list = TornList::default();
    list.insert(TornExtent {
        member,
        kind: TornKind::Torn,
        offset,
        length,
    });
    blocks(&list, geometry, geometry.volume_bytes()).remove(0)
}

/// Every block of the volume is found on the member that holds it, and nothing else is.
#[test]
fn members_blocks_are_those_of_the_volume() {
    for (level, members) in [
        (Level::Raid0, 3),
        (Level::Raid5, 4),
        (Level::Raid6, 6),
        (Level::Raid60, 10),
    ] {
        let geometry = geometry(level, members);
        for offset in (0..geometry.volume_bytes()).step_by(512) {
            let piece = geometry.piece(offset, 512);
            let member = geometry.member(piece.stripe, usize::from(piece.strip));
            let at = geometry.member_offset(piece.stripe, piece.start);
            let found = of(&geometry, member.0, at, 512);
            assert_eq!(found.volume.len(), 1);
            assert_eq!(found.volume[0], offset..offset + 512, "{level:?} {offset}");
        }
        let all: u64 = (0..members as u16)
            .flat_map(|member| of(&geometry, member, 0, MEMBER).volume)
            .map(|range| range.end - range.start)
            .sum();
        assert_eq!(all, geometry.volume_bytes(), "{level:?}");
    }
}

#[test]
fn each_copy_of_a_mirror_holds_the_volume() {
    let geometry = geometry(Level::Raid1, 3);
    for member in 0..3 {
        let found = of(&geometry, member, 100, 2 * STRIP);
        assert_eq!(found.volume.len(), 1);
        assert_eq!(found.volume[0], 100..100 + 2 * STRIP);
    }
}

#[test]
fn ranges_are_cut_at_the_volumes_end_and_counted_beyond_the_most() {
    let geometry = Geometry::new(
        GeometryRequest {
            level: Level::Raid0,
            members: 2,
            strip_size_bytes: Some(STRIP),
            block_size_bytes: Some(512),
            group_size: None,
            parity: None,
        }
        .shape()
        .unwrap(),
        2048 * STRIP,
        16 * STRIP,
    );
    let found = of(&geometry, 1, 0, 2048 * STRIP);
    assert_eq!(found.volume.len(), VOLUME_RANGES_MAX);
    assert_eq!(found.volume_left_out, 2048 - VOLUME_RANGES_MAX as u64);
    let mut list = TornList::default();
    list.insert(TornExtent {
        member: 0,
        kind: TornKind::Suspect,
        offset: 0,
        length: 4 * STRIP,
    });
    let found = blocks(&list, &geometry, 2 * STRIP + 512);
    assert_eq!(found[0].volume, [0..STRIP, 2 * STRIP..2 * STRIP + 512]);
    assert!(found[0].suspect);
}
