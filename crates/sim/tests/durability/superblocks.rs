//! Superblocks: their copies, absences, epochs, what a start records.

use super::*;

/// What is said of the superblock's copies: if any second copy has been touched, every first copy
/// is valid and not older than any. `b_first`: places whose copy B goes first.
fn copies_in_order(found: &Aftermath<'_>, b_first: &[usize]) -> Outcome {
    let first = |place: usize| usize::from(b_first.contains(&place));
    let generation = |copy: &Option<Superblock>| copy.as_ref().map_or(0, |copy| copy.generation);
    let firsts = found
        .live()
        .map(|place| found.copies(place)[first(place)].clone());
    let oldest = firsts.map(|copy| generation(&copy)).min();
    for place in found.live() {
        let second = 1 - first(place);
        let copies = found.copies(place);
        holds(
            copies.iter().any(Option::is_some),
            "a member has no superblock copy left",
        )?;
        // Unchanged since the beginning, or torn, or of a generation.
        let touched = found.copy_changed(place, second);
        holds(
            !touched || oldest > Some(0) && oldest >= Some(generation(&copies[second])),
            "a second superblock copy is written before all first ones are",
        )?;
    }
    Ok(())
}

#[test]
pub fn the_first_superblock_copy_is_on_every_member_before_the_second_on_any() {
    for volatile in [false, true] {
        let setup = setup(Level::Raid6, 5, Consistency::Log, volatile);
        let order = |found: &Aftermath<'_>| copies_in_order(found, &[]);
        prove("changes", 2, FEW, order, |seed| {
            let mut rig = served(setup, seed);
            let mut story = Story::begin(&rig);
            for percent in [20, 30] {
                let command = rig.command(Command::Priority(percent));
                story.command(&mut rig, command)?;
            }
            let command = drop_member(&mut rig, 1);
            story.command(&mut rig, command)?;
            story.rest(&mut rig)?;
            Ok(story)
        });
    }
}

#[test]
pub fn the_only_good_superblock_copy_is_never_written_first() {
    let setup = setup(Level::Raid5, 3, Consistency::Log, false);
    let order = |found: &Aftermath<'_>| copies_in_order(found, &[1]);
    prove("copy B of member 1 is bad", 2, FEW, order, |seed| {
        let mut rig = served(setup, seed);
        rig.stop()?;
        let at = setup.sizes.areas().superblock_b.offset;
        rig.world.borrow_mut().drives[1].poke(at, &[OLD; 4096]);
        let mut story = Story::begin(&rig);
        rig.start()?;
        rig.submit(Operation::Read, 0..1, false);
        story.quiesce(&mut rig)?;
        let command = rig.command(Command::Priority(20));
        story.command(&mut rig, command)?;
        story.rest(&mut rig)?;
        Ok(story)
    });
}

#[test]
pub fn a_members_absence_is_recorded_before_anything_that_counts_it_as_gone() {
    for volatile in [false, true] {
        let setup = setup(Level::Raid5, 4, Consistency::Log, volatile);
        let order = |found: &Aftermath<'_>| {
            let mut entries = found.live().flat_map(|place| found.in_force(place));
            let began =
                entries.any(|(_, stripe)| stripe >= 2) || found.data_changed(found.region_rows(0));
            let gone = |superblock: &Superblock| !superblock.members[1].state.is_in_array();
            holds(
                !began || found.all_say(gone),
                "an entry or a write that misses a member is there before its absence is recorded",
            )
        };
        prove("dropped, then written", 2, FEW, order, |seed| {
            let mut rig = served(setup, seed);
            if seed > 0 {
                // A dirty region: nothing waits for its map.
                rig.submit(Operation::Write, 0..1, true);
                rig.quiesce()?;
            }
            let mut story = Story::begin(&rig);
            let command = drop_member(&mut rig, 1);
            write_stripes(&mut rig, 3);
            story.quiesce(&mut rig)?;
            story.command(&mut rig, command)?;
            story.rest(&mut rig)?;
            Ok(story)
        });
    }
}

#[test]
pub fn a_members_absence_is_recorded_before_a_write_that_missed_it_is_acknowledged() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid1, 2)] {
        for policy in [Consistency::Log, Consistency::Resync] {
            let setup = setup(level, members, policy, false);
            let order = |found: &Aftermath<'_>| {
                let gone = |superblock: &Superblock| !superblock.members[1].state.is_in_array();
                // The first stays whole: every stripe was written with member 1 dead.
                holds(
                    found.answered == 0 || found.all_say(gone),
                    "a write that missed a member is acknowledged before its absence is recorded",
                )
            };
            prove(&format!("{level:?} {policy:?}"), 2, FEW, order, |seed| {
                let mut rig = served(setup, seed);
                let mut story = Story::begin(&rig);
                rig.world.borrow_mut().drives[1].faults.dead = Some(DriveError::Gone);
                let blocks = 4 * rig.geometry().data() as u64;
                rig.submit(Operation::Write, 0..blocks, false);
                story.quiesce(&mut rig)?;
                story.rest(&mut rig)?;
                Ok(story)
            });
        }
    }
}

#[test]
pub fn a_start_without_a_member_records_its_absence_before_it_serves() {
    for volatile in [false, true] {
        let setup = setup(Level::Raid5, 4, Consistency::Log, volatile);
        let order = |found: &Aftermath<'_>| {
            let gone = |superblock: &Superblock| !superblock.members[1].state.is_in_array();
            holds(
                !found.changed_beside_superblocks() && found.answered == 0 || found.all_say(gone),
                "something is served or written before the absence of a member is recorded",
            )
        };
        prove("member 1 is away", 2, FEW, order, |seed| {
            let mut rig = served(setup, seed);
            rig.stop()?;
            rig.world.borrow_mut().drives[1].faults.dead = Some(DriveError::Gone);
            let mut story = Story::begin(&rig);
            rig.start()?;
            write_stripes(&mut rig, 2);
            story.quiesce(&mut rig)?;
            story.rest(&mut rig)?;
            Ok(story)
        });
    }
}

#[test]
pub fn a_start_raises_the_epoch_everywhere_before_it_writes_anything_else() {
    for policy in [Consistency::Log, Consistency::Resync] {
        let setup = setup(Level::Raid6, 5, policy, true);
        let order = |found: &Aftermath<'_>| {
            // The first start's epoch is 1.
            let raised = |superblock: &Superblock| {
                superblock.epoch == 2 && superblock.state == RunState::InUse
            };
            holds(
                !found.changed_beside_superblocks() && found.answered == 0 || found.all_say(raised),
                "something is served or written before the epoch is raised",
            )?;
            let served = found.data_changed(found.region_rows(0)) || found.answered > 0;
            let above = |superblock: &Superblock| superblock.generation >= 2 << 20;
            holds(
                !served || found.all_say(above),
                "something is served under a generation that a start cut off may have",
            )
        };
        prove(&format!("{policy:?}"), 2, FEW, order, |seed| {
            let mut rig = served(setup, seed);
            rig.stop()?;
            let mut story = Story::begin(&rig);
            rig.start()?;
            write_stripes(&mut rig, 2);
            story.quiesce(&mut rig)?;
            story.rest(&mut rig)?;
            Ok(story)
        });
    }
}

/// A carrier is lost in a crash before it had the entry of a write whose data is lost in part, too;
/// the start replays the entry without it, is cut off, and the carrier is back. If it is not on
/// record as gone, the entry is void to the next replay, and what the first made of the other parity
/// stays: with one member less, strips that nobody was writing are then wrong.
#[test]
pub fn a_replay_records_who_is_missing_before_it_writes_what_they_miss() {
    let setup = setup(Level::Raid6, 5, Consistency::Log, false);
    let limits = Limits {
        starts: usize::MAX,
        again: 40,
        starts_again: 600,
        lose: 1,
    };
    let mut rig = served(setup, 2);
    let mut story = Story::begin(&rig);
    rig.world.borrow_mut().drives[1].faults.dead = Some(DriveError::Gone);
    let blocks = 4 * rig.geometry().data() as u64;
    rig.submit(Operation::Write, 0..blocks, false);
    story.quiesce(&mut rig).unwrap();
    story.rest(&mut rig).unwrap();
    story.follow(limits, &|_| Ok(())).unwrap();
}
