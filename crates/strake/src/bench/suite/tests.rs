use super::*;

#[test]
fn every_row_has_its_own_name_and_can_be_run() {
    let args = SuiteArgs {
        runs: 1,
        seconds: 0.01,
        only: None,
        core: 0,
    };
    for (at, row) in ROWS.iter().enumerate() {
        assert!(ROWS[..at].iter().all(|other| other.name != row.name));
        assert_eq!(row.name.contains("log"), row.policy == Policy::Log);
        assert_eq!(row.name.contains("two cores"), row.unit == Unit::TwoCores);
    }
    // Memory drives are filled first, and every run warms up: one of each kind does.
    let null = ROWS.iter().find(|row| row.level == "0").unwrap();
    assert!(one(&args, null, 1).unwrap().iops > 0.0);
}

#[test]
fn latencies_hold_below_their_bar_and_the_rest_above_it() {
    let line = |unit, median| {
        let row = Row {
            unit,
            bar: Some(100.0),
            ..READ
        };
        Line::new(&row, Spread::of([median].into_iter()), 0.0)
    };
    assert_eq!(line(Unit::KiloIops, 101.0).holds, Some(true));
    assert_eq!(line(Unit::KiloIops, 99.0).holds, Some(false));
    assert_eq!(line(Unit::Median, 99.0).holds, Some(true));
    assert_eq!(line(Unit::Tail, 101.0).holds, Some(false));
}
