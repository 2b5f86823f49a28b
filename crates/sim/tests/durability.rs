//! What must be durable before what: each order of `docs/internals/format.md`, with a crash at each
//! step from its beginning to its end.
//!
//! A test brings one order about, asserts it on the bytes that every crash leaves on the drives,
//! and lets the array start from them, with drives lost and drives back. Each order is said as the
//! format says it: if the later thing lies on any member, the earlier one lies on all.

use strake_engine::array::Command;
use strake_engine::block::Operation;
use strake_engine::format::region_map::RegionState::{Clean, Dirty, NeedsSync, Unwritten};
use strake_engine::format::superblock::{Consistency, MemberState, RunState, Superblock};
use strake_engine::layout::{Level, MemberIndex};
use strake_reactor::port::DriveError;
use strake_sim::aftermath::Aftermath;
use strake_sim::crashes::{Limits, Story};
use strake_sim::drive::Discarded;
use strake_sim::geometries;
use strake_sim::import::Sizes;
use strake_sim::rig::{Outcome, Rig, Setup};

/// Regions of a member, 64 KiB each: 16 stripes of one block a strip.
const REGIONS: u64 = 3;
/// Longer than a region stays dirty without writes.
const IDLE_NS: u64 = 20_000_000_000;
/// What a drive held before it was a member.
const OLD: u8 = 0x5a;

const FEW: Limits = Limits {
    start_every: 3,
    again_every: 97,
    lose: 1,
};

fn setup(level: Level, members: usize, policy: Consistency, volatile: bool) -> Setup {
    let shape = geometries::shape((level, members, None, None), 4096, 4096);
    Setup {
        sizes: Sizes {
            regions: REGIONS,
            region_bytes: 64 << 10,
            log_bytes: 64 << 10,
        },
        policy,
        volatile: if volatile { u64::MAX } else { 0 },
        discarded: Discarded::Garbage,
        memory_bytes: 512 << 10,
        ..Setup::plain(shape)
    }
}

/// An array whose first two stripes hold something durable; its regions are clean again.
fn served(setup: Setup, seed: u64) -> Rig {
    let mut rig = Rig::new(setup, seed).unwrap();
    rig.submit(Operation::Write, 0..2 * u64::from(setup.shape.data), true);
    rig.flush();
    rig.idle(IDLE_NS).unwrap();
    rig
}

/// One block of each of so many stripes, from the third on.
fn write_stripes(rig: &mut Rig, stripes: u64) {
    let data = rig.geometry().data() as u64;
    for stripe in 2..2 + stripes {
        rig.submit(Operation::Write, stripe * data..stripe * data + 1, false);
    }
}

fn drop_member(rig: &mut Rig, place: u16) -> u64 {
    rig.command(Command::Fail {
        member: MemberIndex(place),
        force: false,
    })
}

fn holds(what: bool, order: &str) -> Outcome {
    if what { Ok(()) } else { Err(order.into()) }
}

/// Follows a story for each seed and says what that was.
fn prove(
    name: &str,
    seeds: u64,
    limits: Limits,
    order: impl Fn(&Aftermath<'_>) -> Outcome,
    tell: impl Fn(u64) -> Outcome<Story>,
) {
    for seed in 0..seeds {
        let story = tell(seed).unwrap_or_else(|why| panic!("{name}, seed {seed}: {why}"));
        let followed = story.follow(limits, &order);
        let followed = followed.unwrap_or_else(|why| panic!("{name}, seed {seed}: {why}"));
        println!("{name}, seed {seed}: {followed:?}");
        assert!(
            followed.outcomes > 10 && followed.starts > 5,
            "{name}: {followed:?}"
        );
    }
}

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

/// What is said of the superblock's copies: if any second copy has been touched, every first copy
/// is valid and not older than any. `b_first`: places whose copy B goes first.
fn copies_in_order(found: &Aftermath<'_>, b_first: &[usize]) -> Outcome {
    let first = |place: usize| usize::from(b_first.contains(&place));
    let generation = |copy: &Option<Superblock>| copy.as_ref().map_or(0, |copy| copy.generation);
    let firsts = found.live().map(|place| found.copies(place)[first(place)].clone());
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
fn the_first_superblock_copy_is_on_every_member_before_the_second_on_any() {
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
fn the_only_good_superblock_copy_is_never_written_first() {
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
fn a_members_absence_is_recorded_before_anything_that_counts_it_as_gone() {
    for volatile in [false, true] {
        let setup = setup(Level::Raid5, 4, Consistency::Log, volatile);
        let order = |found: &Aftermath<'_>| {
            let began = found.data_changed(found.region_rows(0)) || found.any_in_force();
            let gone = |superblock: &Superblock| !superblock.members[1].state.is_in_array();
            holds(
                !began || found.all_say(gone),
                "an entry or a write that misses a member is there before its absence is recorded",
            )
        };
        prove("dropped, then written", 2, FEW, order, |seed| {
            let mut rig = served(setup, seed);
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
fn a_members_absence_is_recorded_before_a_write_that_missed_it_is_acknowledged() {
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
fn a_start_without_a_member_records_its_absence_before_it_serves() {
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
fn a_start_raises_the_epoch_everywhere_before_it_writes_anything_else() {
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

#[test]
fn every_carriers_record_is_durable_before_the_first_write_in_place() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid1, 3)] {
        for volatile in [false, true] {
            let setup = setup(level, members, Consistency::Log, volatile);
            let order = |found: &Aftermath<'_>| {
                let geometry = found.geometry;
                for stripe in 2..6 {
                    let index = strake_engine::layout::StripeIndex(stripe);
                    let parities = geometry.data()..geometry.strips();
                    let mut carriers = parities.map(|strip| geometry.member(index, strip).at());
                    let logged = carriers.all(|place| found.has_entry(place, stripe));
                    let retired = found.retired(found.live()) > stripe - 1;
                    holds(
                        !found.data_changed(found.stripe_rows(stripe)) || logged || retired,
                        "a stripe is written in place before all its carriers have its entry",
                    )?;
                }
                Ok(())
            };
            prove(&format!("{level:?}"), 2, FEW, order, |seed| {
                let mut rig = served(setup, seed);
                let data = rig.geometry().data() as u64;
                // The epoch of the start that is written to, and a dirty region.
                rig.submit(Operation::Write, 0..1, true);
                rig.quiesce()?;
                let mut story = Story::begin(&rig);
                write_stripes(&mut rig, 3);
                rig.submit(Operation::Write, 5 * data..6 * data, false);
                story.quiesce(&mut rig)?;
                story.rest(&mut rig)?;
                Ok(story)
            });
        }
    }
}
