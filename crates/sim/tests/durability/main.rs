//! What must be durable before what: each order of `docs/internals/format.md`, with a crash at each
//! step from its beginning to its end.
//!
//! A test brings one order about, asserts it on the bytes that every crash leaves on the drives,
//! and lets the array start from them, with drives lost and drives back. Each order is said as the
//! format says it: if the later thing lies on any member, the earlier one lies on all.

mod log;
mod members;
mod regions;
mod superblocks;
mod torn;

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

/// So many stripes from the third on hold their newest content, and parity agrees.
fn settled(found: &Aftermath<'_>, stripes: u64) -> bool {
    let data = found.geometry.data() as u64;
    let rows = found.stripe_rows(2).start..found.stripe_rows(1 + stripes).end;
    (2..2 + stripes).all(|stripe| found.stamp(stripe * data) == Some(stripe))
        && found.rows_hold(rows)
}

/// No entry of the stripes written first is in force any more.
fn retired_or_later(found: &Aftermath<'_>) -> bool {
    let entries = found.live().flat_map(|place| found.in_force(place));
    entries.into_iter().all(|(_, stripe)| stripe >= 8)
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
                superblocks::a_members_absence_is_recorded_before_anything_that_counts_it_as_gone,
            ),
            (
                Planted::TornListAfterParity,
                torn::what_a_crash_tore_is_listed_on_every_member_before_parity_is_written_around_it,
            ),
            (
                Planted::CarriersLeftOut,
                log::every_carriers_record_is_durable_before_the_first_write_in_place,
            ),
            (
                Planted::PartialParityOverUndurable,
                log::what_an_entry_is_logged_over_is_durable_and_what_retires_is_durable_everywhere,
            ),
            (
                Planted::RetireOutOfOrder,
                log::what_an_entry_is_logged_over_is_durable_and_what_retires_is_durable_everywhere,
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
