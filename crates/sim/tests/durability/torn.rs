//! Torn lists.

use super::*;

#[test]
pub fn what_a_crash_tore_is_listed_on_every_member_before_parity_is_written_around_it() {
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
pub fn a_block_is_healed_durably_before_any_list_is_without_it_and_that_before_the_answer() {
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

/// A crash while lists are written leaves some members behind; the next start lists more, or a write
/// heals a block.
#[test]
fn members_behind_get_the_list_before_any_member_gets_a_newer_one() {
    const EVERY: usize = 9;
    const MOST: usize = 10;
    let (behind, mut followed) = (Cell::new(0), 0);
    let order = |found: &Aftermath<'_>| {
        let generations = || found.live().map(|place| found.list_generation(place));
        let (oldest, newest) = (generations().min(), generations().max());
        let (oldest, newest) = (oldest.flatten(), newest.flatten());
        behind.set(behind.get() + u32::from(oldest < newest));
        holds(
            oldest.is_some() && oldest.zip(newest).is_some_and(|(old, new)| new <= old + 1),
            "a member has a list that is two generations newer than another's",
        )
    };
    for seed in 0..3 {
        let setup = setup(Level::Raid5, 4, Consistency::Log, true);
        let torn = |rig: &mut Rig| rig.look(|array| !array.torn().is_empty());
        for (story, _) in starts_after_a_crash(setup, seed, true, torn).unwrap() {
            let (mut crashes, mut stories) = (0_usize, 0);
            let crashed = |mut rig: Rig| {
                crashes += 1;
                if !crashes.is_multiple_of(EVERY) || stories == MOST {
                    return Ok(());
                }
                stories += 1;
                let data = rig.geometry().data() as u64;
                let mut story = Story::begin(&rig);
                rig.start()?;
                rig.submit(Operation::Write, 2 * data..2 * data + 1, false);
                story.quiesce(&mut rig)?;
                story.rest(&mut rig)?;
                followed += story.follow(FEW, &order)?.outcomes;
                Ok(())
            };
            story.after_each(true, &[], crashed).unwrap();
        }
    }
    let behind = behind.get();
    assert!(
        followed > 100 && behind > 10,
        "{followed} outcomes, {behind} behind"
    );
}
