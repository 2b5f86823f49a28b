//! Drives that join.

use super::*;

/// A drive put into the place of one that was dropped, until it is in sync.
fn replaced(setup: Setup, seed: u64, slowness: u64) -> Outcome<Story> {
    let mut rig = served(setup, seed);
    let blocks = rig.blocks() / REGIONS * 2;
    for start in (0..blocks).step_by(16) {
        rig.submit(Operation::Write, start..start + 16, true);
        rig.quiesce()?;
    }
    rig.do_command(Command::Fail {
        member: MemberIndex(1),
        force: false,
    })?;
    rig.idle(IDLE_NS)?;
    let fresh = rig.fresh_drive(0);
    let mut story = Story::begin(&rig);
    rig.world.borrow_mut().slowness = slowness;
    let command = rig.replace(1, fresh);
    story.command(&mut rig, command)?;
    story.until(&mut rig, "the end of the rebuild", |rig| {
        let active = rig.look(|array| array.members()[1].state == MemberState::Active);
        active && rig.world.borrow().under_way() == 0
    })?;
    Ok(story)
}

/// Member 1 is another drive than at the beginning.
fn is_new(superblock: &Superblock) -> bool {
    superblock.members[1].serial != "SIM0001"
}

#[test]
fn a_joining_member_has_the_map_and_the_store_before_any_superblock_counts_it() {
    let setup = setup(Level::Raid5, 3, Consistency::Log, true);
    let order = |found: &Aftermath<'_>| {
        let mut copies = found.live().flat_map(|place| found.copies(place));
        let Some(superblock) = copies.find_map(|copy| copy.filter(is_new)) else {
            return Ok(());
        };
        let uuid = superblock.members[1].uuid;
        let map = found.map_of(1, uuid);
        let known = map.lost.is_empty() && map.map.entries[0].state() != Unwritten;
        holds(
            known && found.torn_of(1, uuid).is_some(),
            "a superblock counts a drive that has not got the map and the store",
        )
    };
    prove("replaced", 2, FEW, order, |seed| replaced(setup, seed, 1));
}

#[test]
fn a_rebuilds_position_is_recorded_when_what_is_below_it_is_durable() {
    let positions = Cell::new(0);
    let setup = setup(Level::Raid5, 3, Consistency::Log, true);
    let order = |found: &Aftermath<'_>| {
        let whole = found.geometry.rows() * found.geometry.strip_bytes();
        let copies = found.live().flat_map(|place| found.copies(place));
        let reached = copies.flatten().filter(is_new).map(|superblock| {
            let record = &superblock.members[1];
            match record.state {
                MemberState::Active => whole * 2 / REGIONS,
                _ => record.rebuild_position_bytes,
            }
        });
        let reached = reached.max().unwrap_or(0);
        let between = 0 < reached && reached < whole * 2 / REGIONS;
        positions.set(positions.get() + u32::from(between));
        holds(
            found.rows_hold_everywhere(0..reached.min(whole * 2 / REGIONS)),
            "a position is recorded above rows that a power cut takes back",
        )
    };
    prove("slowly", 2, FEW, order, |seed| {
        replaced(setup, seed, 30_000)
    });
    assert!(positions.get() > 0, "a position on the way is recorded");
}
