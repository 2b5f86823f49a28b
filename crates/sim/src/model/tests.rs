use super::*;

fn read(model: &mut Model, block: u64, found: Stamp) -> bool {
    let read = model.read_submitted(block..block + 1);
    model.read_ended(read, &[Some(found)]).is_ok()
}

#[test]
fn an_acknowledged_write_is_the_only_content() {
    let mut model = Model::new(4, false);
    let write = model.write_submitted(1..3, 7);
    model.write_ended(write, true, false);
    assert!(read(&mut model, 1, 7) && !read(&mut model, 1, 0) && read(&mut model, 0, 0));
}

#[test]
fn of_overlapping_writes_any_may_win() {
    let mut model = Model::new(4, false);
    let one = model.write_submitted(0..1, 1);
    let other = model.write_submitted(0..1, 2);
    assert!(read(&mut model, 0, 0), "both are under way");
    model.write_ended(other, true, false);
    model.write_ended(one, true, false);
    assert!(read(&mut model, 0, 1) && read(&mut model, 0, 2) && !read(&mut model, 0, 0));
}

#[test]
fn a_read_under_way_may_return_what_was_there_when_it_began() {
    let mut model = Model::new(1, false);
    let read = model.read_submitted(0..1);
    let write = model.write_submitted(0..1, 5);
    model.write_ended(write, true, false);
    assert!(model.read_ended(read, &[Some(0)]).is_ok());
}

#[test]
fn a_failed_write_may_have_happened() {
    let mut model = Model::new(1, false);
    let write = model.write_submitted(0..1, 5);
    model.write_ended(write, false, false);
    assert!(read(&mut model, 0, 5) && read(&mut model, 0, 0));
    let write = model.write_submitted(0..1, 6);
    model.write_ended(write, true, false);
    assert!(read(&mut model, 0, 6) && !read(&mut model, 0, 5));
}

#[test]
fn a_power_cut_undoes_what_was_not_made_durable() {
    let mut model = Model::new(3, true);
    for (block, durable) in [(0, false), (1, true), (2, false)] {
        let write = model.write_submitted(block..block + 1, 9);
        model.write_ended(write, true, durable);
        if block == 0 {
            let flush = model.flush_submitted();
            model.flush_ended(flush, true);
        }
    }
    model.crashed(true, |_| Tear::No);
    assert!(!read(&mut model, 0, 0), "flushed");
    assert!(!read(&mut model, 1, 0), "forced unit access");
    assert!(read(&mut model, 2, 0) && read(&mut model, 2, 9));
}

#[test]
fn a_crash_of_the_program_alone_loses_nothing_acknowledged() {
    let mut model = Model::new(1, true);
    let write = model.write_submitted(0..1, 9);
    model.write_ended(write, true, false);
    model.crashed(false, |_| Tear::No);
    assert!(!read(&mut model, 0, 0));
    model.settle(0, 9, false);
    model.crashed(true, |_| Tear::No);
    assert!(read(&mut model, 0, 0), "it was never flushed");
}

#[test]
fn a_block_in_doubt_may_be_torn_where_that_is_allowed_and_then_stays_torn() {
    let mut model = Model::new(2, false);
    let write = model.write_submitted(0..1, 7);
    model.crashed(false, |_| Tear::Doubtful);
    assert!(model.may_be_torn(0) && !model.may_be_torn(1));
    assert!(read(&mut model, 0, 0) && read(&mut model, 0, 7));
    let failed = model.read_submitted(0..2);
    assert!(model.read_failed(failed));
    model.settle(0, TORN, true);
    assert!(
        !read(&mut model, 0, 0) && !read(&mut model, 0, 7),
        "it stays torn"
    );
    let again = model.write_submitted(0..1, 8);
    assert_ne!(write, again);
    model.write_ended(again, true, false);
    assert!(
        read(&mut model, 0, 8) && !model.may_be_torn(0),
        "a write heals it"
    );
}

#[test]
fn a_block_that_is_not_in_doubt_is_not_torn() {
    let mut model = Model::new(2, false);
    let write = model.write_submitted(0..1, 7);
    model.write_ended(write, true, false);
    model.crashed(true, |_| Tear::Doubtful);
    assert!(!model.may_be_torn(0));
    model.crashed(true, |block| if block == 1 { Tear::Any } else { Tear::No });
    assert!(
        model.may_be_torn(1) && read(&mut model, 1, 0),
        "suspect, or as it was"
    );
}

#[test]
fn what_a_replay_left_is_durable_once_it_was_read() {
    let mut model = Model::new(1, true);
    let write = model.write_submitted(0..1, 7);
    model.write_ended(write, true, false);
    model.crashed(true, |_| Tear::No);
    assert!(read(&mut model, 0, 0) && read(&mut model, 0, 7));
    model.settle(0, 0, true);
    model.crashed(true, |_| Tear::No);
    assert!(read(&mut model, 0, 0) && !read(&mut model, 0, 7));
}
