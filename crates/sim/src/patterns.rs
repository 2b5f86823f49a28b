//! Every loss pattern of one geometry: lose, read, write, read, replace, rebuild, scrub, read.

use fastrand::Rng;
use strake_engine::array::Command;
use strake_engine::block::Operation;
use strake_engine::layout::{MemberIndex, Shape};

use crate::rig::{Outcome, Rig, Setup};

/// Sets of places that may be lost together: up to `parity` of one group, and for several groups
/// also one whole loss in each.
pub fn losses(shape: &Shape) -> Vec<Vec<usize>> {
    let (strips, groups, parity) = (
        shape.strips(),
        usize::from(shape.groups),
        usize::from(shape.parity),
    );
    let mut sets = Vec::new();
    for mask in 1u32..1 << strips {
        if mask.count_ones() as usize <= parity {
            let group = mask as usize % groups;
            let places = (0..strips).filter(|strip| mask >> strip & 1 == 1);
            sets.push(places.map(|strip| group * strips + strip).collect());
        }
    }
    if groups > 1 && parity > 0 {
        sets.push(
            (0..groups)
                .flat_map(|group| (0..parity).map(move |strip| group * strips + strip))
                .collect(),
        );
    }
    sets
}

fn random_writes(rig: &mut Rig, rng: &mut Rng, count: usize) -> Outcome {
    for _ in 0..count {
        let stripe = rig.geometry().stripe_data_bytes() / rig.block_bytes();
        let blocks = rig.blocks();
        let length = rng.u64(1..=(stripe * 2).min(blocks).min(1 << 11));
        let start = rng.u64(0..=blocks - length);
        rig.submit(Operation::Write, start..start + length, rng.u8(..8) == 0);
        rig.run_until("a write", |rig| rig.under_way() < 8)?;
    }
    rig.quiesce()
}

/// One array through all its loss patterns, by turns by command and by drive death.
///
/// # Errors
/// The first thing that is not as it must be.
pub fn all(shape: Shape, seed: u64, patterns_max: usize) -> Outcome<u64> {
    let mut rng = Rng::with_seed(seed);
    let setup = Setup {
        memory_bytes: 16 << 20,
        ..Setup::plain(shape)
    };
    let mut rig = Rig::new(setup, rng.u64(..))?;
    random_writes(&mut rig, &mut rng, 24)?;
    rig.verify()?;
    rig.check_rest()?;
    rig.check_parity()?;
    let mut sets = losses(&shape);
    rng.shuffle(&mut sets);
    for places in sets.iter().take(patterns_max) {
        one(&mut rig, &mut rng, places).map_err(|why| format!("members {places:?} lost: {why}"))?;
    }
    rig.stop()?;
    rig.start()?;
    rig.verify()?;
    let hash = rig.world.borrow().hash();
    Ok(hash)
}

fn one(rig: &mut Rig, rng: &mut Rng, places: &[usize]) -> Outcome {
    let (lost, by_death): (Vec<usize>, Vec<usize>) = places.iter().partition(|_| rng.bool());
    for place in lost {
        let member = MemberIndex(place as u16);
        rig.do_command(Command::Fail {
            member,
            force: false,
        })?;
    }
    for &place in &by_death {
        let drive = rig.places[place].expect("was healthy");
        let error = if rng.bool() {
            strake_reactor::port::DriveError::Gone
        } else {
            strake_reactor::port::DriveError::Io(5)
        };
        rig.world.borrow_mut().drives[drive].faults.dead = Some(error);
    }
    rig.verify()?;
    random_writes(rig, rng, 6)?;
    rig.verify()?;
    for place in by_death {
        let live = rig.look(move |array| array.members()[place].is_live());
        if live {
            rig.do_command(Command::Fail {
                member: MemberIndex(place as u16),
                force: true,
            })?;
        }
    }
    for &place in places {
        rig.do_replace(place)?;
    }
    random_writes(rig, rng, 4)?;
    rig.wait_healthy()?;
    rig.verify()?;
    rig.scrub_clean()?;
    rig.check_rest()?;
    rig.check_parity()
}
