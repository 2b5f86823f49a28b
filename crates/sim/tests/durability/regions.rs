//! Region maps.

use super::*;

#[test]
fn a_region_is_dirty_on_every_member_before_its_first_data_write() {
    for policy in [Consistency::Log, Consistency::Resync, Consistency::None] {
        for volatile in [false, true] {
            let setup = setup(Level::Raid5, 4, policy, volatile);
            let order = |found: &Aftermath<'_>| {
                let written = found.data_changed(found.region_rows(0));
                holds(
                    !written || found.all_maps_say(0, &[Dirty, NeedsSync]),
                    "data is written in a region that some map calls clean",
                )
            };
            prove(&format!("{policy:?}"), 2, FEW, order, |seed| {
                let mut rig = served(setup, seed);
                let mut story = Story::begin(&rig);
                write_stripes(&mut rig, 2);
                story.quiesce(&mut rig)?;
                story.rest(&mut rig)?;
                Ok(story)
            });
        }
    }
}

#[test]
fn a_region_is_zeroed_durably_on_every_member_before_a_map_says_that_it_is_written() {
    for (level, members) in [(Level::Raid5, 3), (Level::Raid1, 2)] {
        for volatile in [false, true] {
            let setup = setup(level, members, Consistency::Log, volatile);
            let order = |found: &Aftermath<'_>| {
                let regions = 0..REGIONS as usize;
                let old = |region: usize| {
                    found.live().any(|place| {
                        let data = found.data(place, found.region_rows(region));
                        let mut blocks = data.chunks(4096);
                        blocks.any(|block| block.iter().all(|&byte| byte == OLD))
                    })
                };
                let mut written = regions
                    .filter(|&region| found.any_map_says(region, &[Clean, Dirty, NeedsSync]));
                holds(
                    !written.any(old),
                    "a map says that a region is written where what was there before still is",
                )
            };
            prove(&format!("{level:?}"), 2, FEW, order, |seed| {
                let mut rig = Rig::new(setup, seed)?;
                rig.idle(IDLE_NS)?;
                let data = setup.sizes.areas().data;
                for drive in &mut rig.world.borrow_mut().drives {
                    drive.poke(data.offset, &vec![OLD; data.length as usize]);
                }
                let mut story = Story::begin(&rig);
                let blocks = rig.blocks() / REGIONS;
                rig.submit(Operation::Write, 1..2, false);
                story.quiesce(&mut rig)?;
                // The next regions are zeroed ahead of it.
                rig.submit(Operation::Write, blocks..blocks + 3, false);
                story.quiesce(&mut rig)?;
                story.rest(&mut rig)?;
                Ok(story)
            });
        }
    }
}

#[test]
fn a_region_is_called_clean_when_its_writes_are_durable_on_every_member() {
    for (level, members) in [(Level::Raid5, 3), (Level::Raid1, 2)] {
        for policy in [Consistency::Log, Consistency::Resync] {
            let setup = setup(level, members, policy, true);
            let order = |found: &Aftermath<'_>| {
                let clean = found.any_map_says(0, &[Clean]) && found.answered > 0;
                // Before the write the map said clean, too.
                let late = clean && !found.moment.model.touched().all(|block| block < 4);
                holds(
                    !late || found.answered < 4 || settled(found, 4),
                    "a map calls a region clean whose writes a power cut takes back",
                )
            };
            prove(&format!("{level:?} {policy:?}"), 2, FEW, order, |seed| {
                let mut rig = served(setup, seed);
                let mut story = Story::begin(&rig);
                write_stripes(&mut rig, 4);
                story.quiesce(&mut rig)?;
                story.until(&mut rig, "the region's cleaning", |rig| {
                    rig.look(|array| array.region_counts()[2] == 0 && !array.busy())
                })?;
                story.rest(&mut rig)?;
                Ok(story)
            });
        }
    }
}

#[test]
fn an_array_is_called_clean_when_everything_is_durable_and_every_region_is_clean() {
    for policy in [Consistency::Log, Consistency::Resync] {
        let setup = setup(Level::Raid5, 4, policy, true);
        let order = |found: &Aftermath<'_>| {
            let clean = found.any_says(|superblock| superblock.state == RunState::Clean);
            let quiet =
                (0..REGIONS as usize).all(|region| found.all_maps_say(region, &[Clean, Unwritten]));
            holds(
                !clean || quiet && settled(found, 4),
                "a superblock calls the array clean while something is dirty or not durable",
            )
        };
        prove(&format!("{policy:?}"), 3, FEW, order, |seed| {
            let mut rig = served(setup, seed);
            let mut story = Story::begin(&rig);
            write_stripes(&mut rig, 4);
            let command = rig.command(Command::Stop);
            story.command(&mut rig, command)?;
            Ok(story)
        });
    }
}

#[test]
fn a_discarded_region_is_drained_then_called_unwritten_and_then_the_drives_are_told() {
    for volatile in [false, true] {
        for policy in [Consistency::Log, Consistency::Resync] {
            let setup = setup(Level::Raid5, 4, policy, volatile);
            let order = |found: &Aftermath<'_>| {
                let garbage = (0..9).any(|block| found.stamp(block).is_none());
                holds(
                    !garbage || found.all_maps_say(0, &[Unwritten]),
                    "drives were told of a discard that some map does not know",
                )?;
                let first = |stripe: u64| stripe < found.geometry.stripes_per_region();
                let entries = found.live().flat_map(|place| found.in_force(place));
                let drained = !entries.into_iter().any(|(_, stripe)| first(stripe));
                holds(
                    !found.any_map_says(0, &[Unwritten]) || drained,
                    "a map calls a region unwritten that the log speaks of",
                )
            };
            prove(&format!("{policy:?}"), 2, FEW, order, |seed| {
                let mut rig = served(setup, seed);
                let region = rig.blocks() / REGIONS;
                rig.submit(Operation::Write, region..region + 2, true);
                rig.quiesce()?;
                let mut story = Story::begin(&rig);
                write_stripes(&mut rig, 2);
                story.quiesce(&mut rig)?;
                // Whole region and a part of the next, which is written with zeroes.
                rig.submit(Operation::Discard, 0..region + 1, false);
                story.quiesce(&mut rig)?;
                rig.submit(Operation::Read, 0..2, false);
                story.quiesce(&mut rig)?;
                story.rest(&mut rig)?;
                Ok(story)
            });
        }
    }
}

#[test]
fn every_members_map_is_brought_up_to_date_before_a_start_relies_on_it() {
    let (apart, mut followed) = (Cell::new(0), 0);
    for policy in [Consistency::Log, Consistency::None] {
        let setup = setup(Level::Raid5, 4, policy, false);
        for (story, _) in starts_after_a_crash(setup, 2, false, |_| true).unwrap() {
            let order = |found: &Aftermath<'_>| {
                let raised = found.any_says(|superblock| superblock.epoch > 2);
                let mut states = found.live().map(|place| found.state(place, 0));
                let first = states.next();
                let even = states.all(|state| Some(state) == first);
                apart.set(apart.get() + u32::from(!even));
                holds(
                    !raised || even,
                    "a start is durable while the region maps of two members differ",
                )
            };
            followed += story.follow(FEW, &order).unwrap().outcomes;
        }
    }
    assert!(followed > 50 && apart.get() > 0, "{followed}, {apart:?}");
}
