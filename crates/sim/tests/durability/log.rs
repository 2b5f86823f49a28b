//! The parity log.

use super::*;

#[test]
pub fn every_carriers_record_is_durable_before_the_first_write_in_place() {
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
pub fn what_an_entry_is_logged_over_is_durable_and_what_retires_is_durable_everywhere() {
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
pub fn an_entry_in_force_is_not_written_over() {
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
pub fn a_policy_is_recorded_when_the_log_is_drained_and_before_a_write_relies_on_it() {
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

#[test]
pub fn the_log_is_given_up_when_the_replay_is_durable() {
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

/// A drive refuses a write to a stripe, and is needed: the array stays, the write is an error.
#[test]
fn an_entry_of_a_write_that_failed_in_part_is_kept_until_the_region_is_to_be_resynced() {
    let failed = Cell::new(0);
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 4)] {
        let setup = setup(level, members, Consistency::Log, false);
        let order = |found: &Aftermath<'_>| {
            let kept = found.live().any(|place| {
                let mut entries = found.in_force(place).into_iter();
                entries.any(|(_, stripe)| stripe == 2)
            });
            let changed = found.data_changed(found.stripe_rows(2));
            failed.set(failed.get() + u32::from(changed && !kept));
            holds(
                !changed || kept || found.all_maps_say(0, &[NeedsSync]),
                "the entry of a write that failed is gone, and nothing asks for a resync",
            )
        };
        prove(&format!("{level:?}"), 2, FEW, order, |seed| {
            let mut rig = served(setup, seed);
            restart(&mut rig)?;
            let data = rig.geometry().data();
            // As many members leave as can: of strips that are not written.
            let gone = (1..=rig.geometry().parity()).map(|at| data - at);
            let gone: Vec<usize> = gone.filter(|&strip| strip > 0).collect();
            for strip in gone
                .into_iter()
                .chain(data..data + rig.geometry().parity() - 1)
            {
                let place = rig.geometry().member(StripeIndex(2), strip).at();
                if rig.look(|array| array.redundancy_left()) != Some(0) {
                    rig.do_command(Command::Fail {
                        member: MemberIndex(place as u16),
                        force: false,
                    })?;
                }
            }
            rig.idle(IDLE_NS)?;
            let place = rig.geometry().member(StripeIndex(2), 0).at();
            let offset =
                setup.sizes.areas().data.offset + rig.geometry().member_offset(StripeIndex(2), 0);
            let drive = rig.places[place].expect("it has a drive");
            rig.world.borrow_mut().drives[drive]
                .faults
                .bad_writes
                .push(offset..offset + 4096);
            rig.errors_allowed = true;
            let mut story = Story::begin(&rig);
            let data = data as u64;
            rig.submit(Operation::Write, 2 * data..2 * data + 1, false);
            // Others end meanwhile and would retire what is older.
            for stripe in 3..6 {
                rig.submit(Operation::Write, stripe * data..stripe * data + 1, false);
            }
            story.quiesce(&mut rig)?;
            for stripe in 6..9 {
                rig.submit(Operation::Write, stripe * data..stripe * data + 1, false);
                story.quiesce(&mut rig)?;
            }
            story.rest(&mut rig)?;
            Ok(story)
        });
    }
    assert!(failed.get() > 0, "an entry that failed retires in the end");
}
