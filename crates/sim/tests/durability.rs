//! What must be durable before what: each order of `docs/internals/format.md`, with a crash at each
//! step from its beginning to its end.
//!
//! A test brings one order about, asserts it on the bytes that every crash leaves on the drives,
//! and lets the array start from them, with drives lost and drives back. Each order is said as the
//! format says it: if the later thing lies on any member, the earlier one lies on all.

use std::cell::Cell;

use strake_engine::array::Command;
use strake_engine::block::Operation;
use strake_engine::format::region_map::RegionState::{Clean, Dirty, NeedsSync, Unwritten};
use strake_engine::format::superblock::{Consistency, MemberState, RunState, Superblock};
use strake_engine::layout::{Level, MemberIndex, StripeIndex};
use strake_reactor::port::DriveError;
use strake_sim::aftermath::Aftermath;
use strake_sim::content;
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
    starts: 45,
    again: 1,
    starts_again: 20,
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

/// Stops and starts: the log of the new epoch is empty.
fn restart(rig: &mut Rig) -> Outcome {
    rig.stop()?;
    rig.start()?;
    rig.idle(IDLE_NS)
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
                    let index = StripeIndex(stripe);
                    let parities = geometry.data()..geometry.strips();
                    let mut carriers = parities.map(|strip| geometry.member(index, strip).at());
                    let logged = carriers.all(|place| found.has_entry(place, stripe));
                    // The ring is not full yet: entries that are retired are still there.
                    holds(
                        !found.data_changed(found.stripe_rows(stripe)) || logged,
                        "a stripe is written in place before all its carriers have its entry",
                    )?;
                }
                Ok(())
            };
            prove(&format!("{level:?}"), 2, FEW, order, |seed| {
                let mut rig = served(setup, seed);
                let data = rig.geometry().data() as u64;
                restart(&mut rig)?;
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

#[test]
fn what_an_entry_is_logged_over_is_durable_and_what_retires_is_durable_everywhere() {
    // (A mirror's copies are written anew without waiting for a flush.)
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 4)] {
        let setup = setup(level, members, Consistency::Log, true);
        let order = |found: &Aftermath<'_>| {
            // Entry n is of write n, of stripe 2 + (n - 1) % 4, with stamp n + 1.
            let logged = found.live().flat_map(|place| found.records(place));
            let entries = logged.flat_map(|record| record.entries);
            let newest = entries.map(|entry| entry.head.sequence).max().unwrap_or(0);
            let retired = found.retired(found.live());
            for write in 1..=newest {
                let stripe = 2 + (write - 1) % 4;
                let block = stripe * found.geometry.data() as u64;
                // In the same row: the write before this one's successor.
                let durable = found.stamp(block).is_some_and(|stamp| stamp > write);
                holds(
                    write + 4 > newest || durable,
                    "a row is logged over content that a power cut takes back",
                )?;
                holds(
                    write >= retired || durable,
                    "an entry is retired before its write is durable",
                )?;
                let whole = found.rows_hold(found.stripe_rows(stripe));
                let last = write + 4 > newest;
                holds(
                    !(last && write < retired) || whole,
                    "an entry is retired before its parity is durable",
                )?;
            }
            Ok(())
        };
        prove(&format!("{level:?}"), 2, FEW, order, |seed| {
            let mut rig = served(setup, seed);
            restart(&mut rig)?;
            let mut story = Story::begin(&rig);
            // Every third of four is durable at once, and must not retire those before it.
            for write in 0..12u64 {
                let block = (2 + write % 4) * rig.geometry().data() as u64;
                rig.submit(Operation::Write, block..block + 1, write % 4 == 2);
                story.quiesce(&mut rig)?;
            }
            story.rest(&mut rig)?;
            Ok(story)
        });
    }
}

#[test]
fn an_entry_in_force_is_not_written_over() {
    let setup = setup(Level::Raid5, 3, Consistency::Log, true);
    let order = |found: &Aftermath<'_>| {
        for place in found.live() {
            let records = found.records(place);
            let retired = found.retired(std::iter::once(place));
            let entries = records.iter().flat_map(|record| &record.entries);
            let mut here: Vec<u64> = entries.map(|entry| entry.head.sequence).collect();
            here.sort_unstable();
            for sequence in retired.max(1)..=found.answered {
                let stripe = StripeIndex(1 + sequence);
                let carrier = found.geometry.member(stripe, found.geometry.data()).at();
                holds(
                    carrier != place || here.contains(&sequence),
                    "the entry of an acknowledged write is gone and not called retired",
                )?;
            }
        }
        Ok(())
    };
    prove("a ring that is written round", 2, FEW, order, |seed| {
        let mut rig = served(setup, seed);
        restart(&mut rig)?;
        let mut story = Story::begin(&rig);
        let data = rig.geometry().data() as u64;
        for stripe in 2..40 {
            rig.submit(Operation::Write, stripe * data..stripe * data + 1, false);
            story.quiesce(&mut rig)?;
        }
        story.rest(&mut rig)?;
        Ok(story)
    });
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

/// So many stripes from the third on hold their newest content, and parity agrees.
fn settled(found: &Aftermath<'_>, stripes: u64) -> bool {
    let data = found.geometry.data() as u64;
    let rows = found.stripe_rows(2).start..found.stripe_rows(1 + stripes).end;
    (2..2 + stripes).all(|stripe| found.stamp(stripe * data) == Some(stripe))
        && found.rows_hold(rows)
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
fn a_policy_is_recorded_when_the_log_is_drained_and_before_a_write_relies_on_it() {
    use Consistency::{Log, LogAll, None, Resync};
    for (before, after) in [(Log, Resync), (Log, None), (Resync, Log), (None, LogAll)] {
        let setup = setup(Level::Raid5, 4, before, true);
        let order = |found: &Aftermath<'_>| {
            let changed = found.any_says(|superblock| superblock.consistency == after);
            holds(
                !changed || settled(found, 3) && (before != Log || retired_or_later(found)),
                "a policy is recorded while what the one before protects is under way",
            )?;
            // Stripe 8 is written after the change was asked for, under the new policy.
            let recorded = found.all_say(|superblock| superblock.consistency == after);
            holds(
                !found.data_changed(found.stripe_rows(8)) || recorded,
                "a write relies on a policy that is not recorded",
            )
        };
        prove(&format!("{before:?} to {after:?}"), 2, FEW, order, |seed| {
            let mut rig = served(setup, seed);
            let mut story = Story::begin(&rig);
            write_stripes(&mut rig, 3);
            story.quiesce(&mut rig)?;
            let data = rig.geometry().data() as u64;
            let command = rig.command(Command::Policy(after));
            rig.submit(Operation::Write, 8 * data..8 * data + 2, false);
            story.command(&mut rig, command)?;
            story.quiesce(&mut rig)?;
            story.rest(&mut rig)?;
            Ok(story)
        });
    }
}

/// No entry of the stripes written first is in force any more.
fn retired_or_later(found: &Aftermath<'_>) -> bool {
    let entries = found.live().flat_map(|place| found.in_force(place));
    entries.into_iter().all(|(_, stripe)| stripe >= 8)
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

/// Stories of starts after crashes in the middle of a write of two blocks to the third stripe, the
/// drive of the first of them lost with the crash if `lost`. `keep` chooses, from the array started.
fn starts_after_a_crash(
    setup: Setup,
    seed: u64,
    lost: bool,
    mut keep: impl FnMut(&mut Rig) -> bool,
) -> Outcome<Vec<(Story, Rig)>> {
    const MOST: usize = 3;
    let mut rig = served(setup, seed);
    restart(&mut rig)?;
    let mut first = Story::begin(&rig);
    let data = rig.geometry().data() as u64;
    rig.submit(Operation::Write, 2 * data..2 * data + 2, false);
    first.quiesce(&mut rig)?;
    let place = rig.geometry().member(StripeIndex(2), 0).at();
    let lose: &[usize] = if lost { &[place] } else { &[] };
    let mut stories = Vec::new();
    first.after_each(true, lose, |mut rig| {
        if stories.len() == MOST {
            return Ok(());
        }
        let mut story = Story::begin(&rig);
        rig.start()?;
        rig.submit(Operation::Read, 0..1, false);
        story.quiesce(&mut rig)?;
        story.rest(&mut rig)?;
        if keep(&mut rig) {
            stories.push((story, rig));
        }
        Ok(())
    })?;
    Ok(stories)
}

#[test]
fn what_a_crash_tore_is_listed_on_every_member_before_parity_is_written_around_it() {
    let mut followed = 0;
    for seed in 0..4 {
        for volatile in [false, true] {
            let setup = setup(Level::Raid5, 4, Consistency::Log, volatile);
            let torn = |rig: &mut Rig| rig.look(|array| !array.torn().is_empty());
            let stories = starts_after_a_crash(setup, seed, true, torn).unwrap();
            for (story, mut rig) in stories {
                let list = rig.look(|array| array.torn().clone());
                let order = |found: &Aftermath<'_>| {
                    let listed = |place| found.torn(place).is_some_and(|torn| torn == list);
                    holds(
                        !found.data_changed(found.stripe_rows(2)) || found.live().all(listed),
                        "parity is written around blocks that some member does not list as torn",
                    )
                };
                followed += story.follow(FEW, &order).unwrap().outcomes;
            }
        }
    }
    assert!(followed > 100, "{followed} outcomes");
}

#[test]
fn a_block_is_healed_durably_before_any_list_is_without_it_and_that_before_the_answer() {
    let mut followed = 0;
    for seed in 0..3 {
        for volatile in [false, true] {
            let setup = setup(Level::Raid5, 4, Consistency::Log, volatile);
            let torn = |rig: &mut Rig| rig.look(|array| !array.torn().is_empty());
            let stories = starts_after_a_crash(setup, seed, true, torn).unwrap();
            for (_, mut rig) in stories.into_iter().take(1) {
                let data = rig.geometry().data() as u64;
                let mut story = Story::begin(&rig);
                rig.submit(Operation::Write, 2 * data..2 * data + 1, false);
                story.quiesce(&mut rig).unwrap();
                story.rest(&mut rig).unwrap();
                let order = |found: &Aftermath<'_>| {
                    let gone = |place| found.torn(place).is_some_and(|torn| torn.is_empty());
                    let content = found.missing_strip(2);
                    let healed = content::stamp_of(2 * data, &content);
                    holds(
                        !found.live().any(gone) || healed.is_some_and(|stamp| stamp != 0),
                        "a block is off a torn list before its new content is durable",
                    )?;
                    holds(
                        found.answered == 0 || found.live().all(gone),
                        "a healing write is answered while some member lists the block as torn",
                    )
                };
                followed += story.follow(FEW, &order).unwrap().outcomes;
            }
        }
    }
    assert!(followed > 50, "{followed} outcomes");
}

#[test]
fn the_log_is_given_up_when_the_replay_is_durable() {
    let (early, mut followed) = (Cell::new(0), 0);
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        for volatile in [false, true] {
            let setup = setup(level, members, Consistency::Log, volatile);
            let replayed =
                |rig: &mut Rig| rig.look(|array| array.log_report().replayed_entries > 0);
            for (story, _) in starts_after_a_crash(setup, 1, false, replayed).unwrap() {
                let order = |found: &Aftermath<'_>| {
                    let given_up = found
                        .any_says(|superblock| superblock.epoch > 2 && superblock.replay.is_none());
                    let whole = found.rows_hold(found.region_rows(0));
                    early.set(early.get() + u32::from(!whole));
                    holds(
                        !given_up || whole,
                        "the log is given up while a row is not what its entry says",
                    )
                };
                followed += story.follow(FEW, &order).unwrap().outcomes;
            }
        }
    }
    assert!(followed > 50 && early.get() > 0, "{followed}, {early:?}");
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

/// A carrier is lost in a crash before it had the entry of a write whose data is lost in part, too;
/// the start replays the entry without it, is cut off, and the carrier is back. If it is not on
/// record as gone, the entry is void to the next replay, and what the first made of the other parity
/// stays: with one member less, strips that nobody was writing are then wrong.
#[test]
fn a_replay_records_who_is_missing_before_it_writes_what_they_miss() {
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

/// The orders that `strake_engine::planted` can swap: each test must see its own.
#[cfg(feature = "planted")]
mod planted {
    use super::*;
    use strake_engine::planted::{Planted, plant};

    #[test]
    fn swapped_orders_are_found() {
        let swapped: [(Planted, fn()); 5] = [
            (
                Planted::AbsenceRecordedLate,
                a_members_absence_is_recorded_before_anything_that_counts_it_as_gone,
            ),
            (
                Planted::TornListAfterParity,
                what_a_crash_tore_is_listed_on_every_member_before_parity_is_written_around_it,
            ),
            (
                Planted::CarriersLeftOut,
                every_carriers_record_is_durable_before_the_first_write_in_place,
            ),
            (
                Planted::PartialParityOverUndurable,
                what_an_entry_is_logged_over_is_durable_and_what_retires_is_durable_everywhere,
            ),
            (
                Planted::RetireOutOfOrder,
                what_an_entry_is_logged_over_is_durable_and_what_retires_is_durable_everywhere,
            ),
        ];
        for (bug, test) in swapped {
            plant(Some(bug));
            let result = std::panic::catch_unwind(test);
            plant(None);
            let text = result.expect_err(&format!("{bug:?} is not found"));
            let text = text.downcast_ref::<String>().map_or("", String::as_str);
            println!("{bug:?}: {}", text.lines().next().unwrap_or(""));
        }
    }
}
