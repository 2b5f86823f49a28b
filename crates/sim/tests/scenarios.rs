//! Single stories: planted damage, latent errors, read-only, commands at awkward moments.

use strake_engine::array::{Command, CommandErrorKind};
use strake_engine::block::Operation;
use strake_engine::format::superblock::MemberState;
use strake_engine::layout::{Level, MemberIndex, Shape};
use strake_reactor::port::DriveError;
use strake_sim::geometries;
use strake_sim::rig::{Rig, Setup};

fn shape(level: Level, members: usize, group: Option<usize>, parity: Option<usize>) -> Shape {
    geometries::shape((level, members, group, parity), 16 << 10, 4096)
}

fn rig(shape: Shape) -> Rig {
    Rig::new(Setup::plain(shape), 1).expect("a fresh array starts")
}

fn fill(rig: &mut Rig) {
    let (blocks, step) = (rig.blocks(), 64);
    for start in (0..blocks).step_by(step as usize) {
        rig.submit(Operation::Write, start..(start + step).min(blocks), false);
        rig.run_until("a write", |rig| rig.under_way() < 8).unwrap();
    }
    rig.verify().unwrap();
}

fn state(rig: &mut Rig, place: usize) -> MemberState {
    rig.look(move |array| array.members()[place].state)
}

/// Changes bytes of a member's data area behind the array's back.
fn corrupt(rig: &mut Rig, place: usize, at: u64) {
    let offset = rig.look(|array| array.superblock().areas.data.offset) + at;
    let drive = rig.places[place].expect("a member has a drive");
    let mut world = rig.world.borrow_mut();
    let mut bytes = [0; 64];
    world.drives[drive].peek(offset, &mut bytes);
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
    world.drives[drive].poke(offset, &bytes);
}

/// Byte in the data area of the member that holds `strip` of stripe 5, and its place.
fn strip(rig: &Rig, strip: usize) -> (usize, u64) {
    let stripe = strake_engine::layout::StripeIndex(5);
    let geometry = rig.geometry();
    (
        geometry.member(stripe, strip).at(),
        geometry.member_offset(stripe, 4096),
    )
}

/// The block at `offset` of a drive cannot be read any more.
fn spoil(rig: &Rig, drive: usize, offset: u64) {
    let mut world = rig.world.borrow_mut();
    let bad = &mut world.drives[drive].faults.bad_reads;
    bad.push(offset..offset + 4096);
}

#[test]
fn a_scrub_finds_wrong_parity_and_repairs_it_when_told_to() {
    for shape in [
        shape(Level::Raid5, 4, None, None),
        shape(Level::Raid6, 5, None, None),
        shape(Level::Raid73, 6, None, None),
        shape(Level::Raid1, 3, None, None),
        shape(Level::Raid10, 4, None, None),
        shape(Level::Raid60, 8, Some(4), None),
    ] {
        for parity in 0..usize::from(shape.parity) {
            let mut rig = rig(shape);
            fill(&mut rig);
            rig.scrub_clean().unwrap();
            let (place, at) = strip(&rig, usize::from(shape.data) + parity);
            corrupt(&mut rig, place, at);
            let name = geometries::name(&shape);
            assert_eq!(
                rig.scrub(false).unwrap(),
                (1, 0, 0),
                "{name}: found, left alone"
            );
            assert_eq!(
                rig.scrub(true).unwrap(),
                (1, 1, 0),
                "{name}: found, repaired"
            );
            rig.scrub_clean().unwrap();
            rig.check_parity().unwrap();
            rig.verify().unwrap();
        }
    }
}

#[test]
fn a_scrub_sees_wrong_data_too() {
    let mut rig = rig(shape(Level::Raid6, 5, None, None));
    fill(&mut rig);
    let (place, at) = strip(&rig, 1);
    corrupt(&mut rig, place, at);
    assert_eq!(rig.scrub(false).unwrap(), (1, 0, 0));
}

#[test]
fn unreadable_blocks_are_answered_rewritten_and_counted() {
    let mut rig = rig(shape(Level::Raid5, 4, None, None));
    fill(&mut rig);
    let (place, at) = strip(&rig, 0);
    let offset = rig.look(|array| array.superblock().areas.data.offset) + at;
    let drive = rig.places[place].unwrap();
    spoil(&rig, drive, offset);
    rig.verify().unwrap();
    assert!(
        rig.world.borrow().drives[drive].faults.bad_reads.is_empty(),
        "rewritten"
    );
    assert_eq!(rig.look(move |array| array.members()[place].read_errors), 1);
    assert_eq!(state(&mut rig, place), MemberState::Active);
    rig.scrub_clean().unwrap();
}

#[test]
fn a_member_with_too_many_read_errors_is_dropped_and_nothing_is_lost() {
    let mut rig = rig(shape(Level::Raid5, 4, None, None));
    fill(&mut rig);
    let offset = rig.look(|array| array.superblock().areas.data.offset);
    let drive = rig.places[2].unwrap();
    let bad = (0..64).map(|n| offset + n * 20480..offset + n * 20480 + 4096);
    rig.world.borrow_mut().drives[drive].faults.bad_reads = bad.collect();
    rig.verify().unwrap();
    assert_eq!(state(&mut rig, 2), MemberState::Failed);
    rig.do_replace(2).unwrap();
    rig.wait_healthy().unwrap();
    rig.verify().unwrap();
    rig.scrub_clean().unwrap();
    rig.check_parity().unwrap();
}

#[test]
fn a_rebuild_goes_on_past_a_block_that_nobody_can_read() {
    let mut rig = rig(shape(Level::Raid5, 3, None, None));
    fill(&mut rig);
    let offset = rig.look(|array| array.superblock().areas.data.offset) + (1 << 20);
    rig.do_command(Command::Fail {
        member: MemberIndex(0),
        force: false,
    })
    .unwrap();
    let drive = rig.places[1].unwrap();
    spoil(&rig, drive, offset);
    rig.do_replace(0).unwrap();
    rig.idle(20_000_000_000).unwrap();
    assert_eq!(
        state(&mut rig, 0),
        MemberState::Rebuilding,
        "one band is missing"
    );
    rig.errors_allowed = true;
    rig.verify().unwrap();
    rig.errors_allowed = false;
    // The block becomes readable again: the rebuild is tried again by itself.
    rig.world.borrow_mut().drives[drive]
        .faults
        .bad_reads
        .clear();
    rig.wait_healthy().unwrap();
    rig.verify().unwrap();
    rig.scrub_clean().unwrap();
    rig.check_parity().unwrap();
}

#[test]
fn more_losses_than_the_level_survives_are_refused_without_force() {
    for shape in [
        shape(Level::Raid0, 2, None, None),
        shape(Level::Raid5, 3, None, None),
        shape(Level::Raid50, 6, Some(3), None),
        shape(Level::NPlusM, 6, None, Some(3)),
    ] {
        let mut rig = rig(shape);
        for place in 0..shape.parity {
            rig.do_command(Command::Fail {
                member: MemberIndex(place),
                force: false,
            })
            .unwrap();
        }
        let member = MemberIndex(shape.parity);
        let id = rig.command(Command::Fail {
            member,
            force: false,
        });
        let answer = rig.answer_of(id).expect("refused at once").unwrap();
        assert_eq!(answer.unwrap_err().kind, CommandErrorKind::Refused);
    }
}

#[test]
fn a_new_drive_that_refuses_its_metadata_changes_nothing() {
    let mut rig = rig(shape(Level::Raid5, 3, None, None));
    fill(&mut rig);
    rig.do_command(Command::Fail {
        member: MemberIndex(1),
        force: false,
    })
    .unwrap();
    rig.quiesce().unwrap();
    let fresh = rig.fresh_drive(0);
    let places = rig.places.clone();
    rig.world.borrow_mut().drives[fresh].faults.dead = Some(DriveError::Io(5));
    let id = rig.replace(1, fresh);
    let why = rig.wait_command(id, "replace").unwrap_err();
    assert!(why.contains("refused"), "{why}");
    rig.places = places;
    assert_eq!(state(&mut rig, 1), MemberState::Failed);
    rig.do_replace(1).unwrap();
    rig.wait_healthy().unwrap();
    rig.verify().unwrap();
    rig.check_parity().unwrap();
}

#[test]
fn a_drive_may_be_replaced_while_the_region_map_is_being_written() {
    let mut rig = rig(shape(Level::Raid6, 4, None, None));
    rig.do_command(Command::Fail {
        member: MemberIndex(1),
        force: false,
    })
    .unwrap();
    rig.quiesce().unwrap();
    rig.submit(Operation::Write, 0..4, false);
    let fresh = rig.fresh_drive(0);
    let id = rig.replace(1, fresh);
    rig.wait_command(id, "replace").unwrap();
    rig.wait_healthy().unwrap();
    rig.verify().unwrap();
    rig.check_parity().unwrap();
}

#[test]
fn an_idle_array_wants_no_tick() {
    let mut rig = rig(shape(Level::Raid5, 3, None, None));
    fill(&mut rig);
    rig.idle(20_000_000_000).unwrap();
    assert_eq!(rig.look(|array| array.next_tick_ns()), None);
}

#[test]
fn what_a_discard_gave_up_reads_as_zeroes_also_after_losses() {
    let mut rig = rig(shape(Level::Raid6, 5, None, None));
    fill(&mut rig);
    let blocks = rig.blocks();
    rig.submit(Operation::Discard, 3..blocks - 3, false);
    rig.quiesce().unwrap();
    assert!(
        rig.look(|array| array.region_counts()[0]) > 0,
        "whole regions are unwritten again"
    );
    for place in [0, 3] {
        rig.do_command(Command::Fail {
            member: MemberIndex(place),
            force: false,
        })
        .unwrap();
    }
    rig.verify().unwrap();
    for place in [0, 3] {
        rig.do_replace(place).unwrap();
    }
    fill(&mut rig);
    rig.wait_healthy().unwrap();
    rig.verify().unwrap();
    rig.check_parity().unwrap();
}

#[test]
fn the_counters_count_what_was_asked() {
    let mut rig = rig(shape(Level::Raid5, 3, None, None));
    rig.submit(Operation::Write, 0..8, false);
    rig.quiesce().unwrap();
    rig.submit(Operation::Read, 0..3, false);
    rig.flush();
    rig.quiesce().unwrap();
    let counters = rig.look(|array| array.counters());
    assert_eq!((counters.writes, counters.write_bytes), (1, 8 * 4096));
    assert_eq!((counters.reads, counters.read_bytes), (1, 3 * 4096));
    assert_eq!(
        counters.full_stripe + counters.read_modify + counters.reconstruct,
        1
    );
}

/// A degraded array whose program is gone while regions are dirty, without a write under way.
fn crashed_degraded(shape: Shape) -> Rig {
    let mut rig = rig(shape);
    fill(&mut rig);
    rig.do_command(Command::Fail {
        member: MemberIndex(1),
        force: false,
    })
    .unwrap();
    rig.submit(Operation::Write, 0..4, false);
    rig.quiesce().unwrap();
    assert!(rig.look(|array| array.region_counts()[2]) > 0, "dirty");
    rig.crash(false, &[], false);
    rig
}

#[test]
fn what_is_accepted_after_a_degraded_crash_is_served_and_rebuilt() {
    for shape in [
        shape(Level::Raid5, 4, None, None),
        shape(Level::Raid6, 5, None, None),
        shape(Level::Raid1, 3, None, None),
    ] {
        let mut rig = crashed_degraded(shape);
        rig.accept_doubtful = true;
        rig.start().unwrap();
        rig.verify().unwrap();
        rig.do_replace(1).unwrap();
        rig.wait_healthy().unwrap();
        rig.verify().unwrap();
        rig.scrub_clean().unwrap();
        rig.check_parity().unwrap();
    }
}

#[test]
fn what_is_not_accepted_after_a_degraded_crash_reads_as_errors_and_never_wrong() {
    let mut rig = crashed_degraded(shape(Level::Raid5, 4, None, None));
    rig.start().unwrap();
    rig.errors_allowed = true;
    rig.verify().unwrap();
    assert!(rig.errors > 0, "blocks of the missing member are in doubt");
    // Once accepted, they are served.
    rig.stop().unwrap();
    rig.errors_allowed = false;
    rig.accept_doubtful = true;
    rig.start().unwrap();
    rig.verify().unwrap();
    rig.do_replace(1).unwrap();
    rig.wait_healthy().unwrap();
    rig.check_parity().unwrap();
}

#[test]
fn a_resync_that_was_interrupted_by_a_stop_goes_on_after_the_start() {
    let mut rig = rig(shape(Level::Raid1, 2, None, None));
    fill(&mut rig);
    for start in (0..rig.blocks()).step_by(7) {
        rig.submit(Operation::Write, start..start + 1, false);
        if start % 5 == 0 {
            rig.step(u64::MAX).unwrap();
        }
    }
    rig.crash(false, &[], false);
    rig.start().unwrap();
    assert!(rig.look(|array| array.region_counts()[3]) > 0);
    rig.stop().unwrap();
    rig.check_stopped().unwrap();
    rig.start().unwrap();
    assert!(
        rig.look(|array| array.region_counts()[3]) > 0,
        "what is left of the resync is known"
    );
    rig.wait_healthy().unwrap();
    rig.verify().unwrap();
    rig.check_parity().unwrap();
}
