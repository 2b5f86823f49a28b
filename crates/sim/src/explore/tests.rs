use super::*;

#[test]
fn the_small_part_holds() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let explored = explore(Extent::Small, Limits::of(Extent::Small), threads, || {});
    println!("{explored}");
    assert!(explored.failures.is_empty(), "{explored}");
    assert!(explored.is_complete(), "{explored}");
    assert!(explored.states > 10_000, "{explored}");
}

/// Classes of the six members of the first case of RAID 6 4+2 whose script is like this.
fn classes(wanted: impl Fn(&Case) -> bool) -> Vec<usize> {
    let all = cases(Extent::Whole).into_iter();
    let mut all = all.filter(|case| case.setup.shape.members() == 6 && case.missing.is_empty());
    let case = all.find(wanted).unwrap();
    let symmetry = Symmetry::of(&case);
    let classes = symmetry.classes().expect("nothing is torn inside");
    let geometry = case.setup.shape;
    assert_eq!((geometry.data, geometry.parity, classes.len()), (4, 2, 6));
    classes.to_vec()
}

#[test]
fn members_are_exchanged_only_where_every_row_that_is_written_sees_them_alike() {
    let kinds = |mut classes: Vec<usize>| {
        classes.sort_unstable();
        classes.dedup();
        classes.len()
    };
    // One strip of one row: that strip, three that are left, two parities.
    let one = classes(|case| case.script.len() == 1 && case.script[0].count == 1);
    assert_eq!(kinds(one), 3);
    // A whole row: four strips that are written, two parities.
    let row = classes(|case| case.script.len() == 1 && case.script[0].count == 4);
    assert_eq!(kinds(row), 5);
    // Two rows, whose parities lie on different members.
    let two = classes(|case| case.script.len() == 2 && case.script[0].row != case.script[1].row);
    assert!(kinds(two) > 4);
}
