use super::*;
use crate::cli::show::tests::{detail, task};

#[test]
fn work_goes_on_while_a_task_or_a_rebuilding_member_is_there() {
    let mut array = detail();
    for goal in [Goal::All, Goal::Member(1), Goal::Scrub] {
        assert!(!at_work(&array, goal), "{goal:?}");
    }
    array.tasks.push(task("scrub"));
    assert!(at_work(&array, Goal::All));
    assert!(at_work(&array, Goal::Scrub));
    assert!(!at_work(&array, Goal::Member(1)));
    array.tasks.clear();
    array.members[1].state = MemberState::Rebuilding;
    assert!(at_work(&array, Goal::All));
    assert!(at_work(&array, Goal::Member(1)));
    assert!(!at_work(&array, Goal::Member(0)));
    assert!(!at_work(&array, Goal::Scrub));
}

#[test]
fn a_rebuild_of_a_failed_array_is_not_waited_for() {
    let mut array = detail();
    array.members[1].state = MemberState::Rebuilding;
    array.state = ArrayState::Failed;
    assert!(!at_work(&array, Goal::All));
    assert!(verdict(&array, Goal::All).is_err());
    assert!(verdict(&array, Goal::Member(1)).is_err());
}

#[test]
fn a_rebuild_ended_well_when_its_member_is_in_sync() {
    let mut array = detail();
    assert!(verdict(&array, Goal::Member(1)).is_ok());
    array.members[1].state = MemberState::Failed;
    array.state = ArrayState::Degraded;
    let error = verdict(&array, Goal::Member(1)).unwrap_err().to_string();
    assert!(
        error.contains("failed") && error.contains("array show data"),
        "{error}"
    );
    // All work has ended, and a degraded array is no failure of waiting.
    assert!(verdict(&array, Goal::All).is_ok());
}

#[test]
fn a_scrub_ended_well_when_parity_holds_now() {
    let mut array = detail();
    assert!(verdict(&array, Goal::Scrub).is_err());
    for (done, mismatches, repaired, errors, well) in [
        (100, 0, 0, 0, true),
        (100, 3, 3, 0, true),
        (100, 3, 0, 0, false),
        (100, 0, 0, 1, false),
        (50, 0, 0, 0, false),
    ] {
        array.last_scrub = Some(api::Task {
            done_bytes: done,
            total_bytes: 100,
            mismatches,
            repaired,
            errors,
            ..task("scrub")
        });
        let result = verdict(&array, Goal::Scrub);
        assert_eq!(result.is_ok(), well, "{result:?}");
    }
}
