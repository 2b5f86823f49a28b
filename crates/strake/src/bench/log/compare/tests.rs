use super::*;

fn sample(requests_per_second: f64, drive_us: f64, busy: f64) -> Sample {
    Sample {
        block_bytes: 4096,
        requests_per_second,
        latency_us: drive_us,
        cpu_ns: 1000.0,
        idle: 0.2,
        taken_away: 0.0,
        busy,
        rebuilt_per_second: None,
        asked: Asked {
            drive_us,
            written_bytes: drive_us * 1000.0,
            ..Asked::default()
        },
    }
}

#[test]
fn a_spread_has_the_middle_and_the_ends() {
    let of = |figures: &[f64]| Spread::of(figures.iter().copied());
    let spread = |median, min, max| Spread { median, min, max };
    assert_eq!(of(&[5.0]), spread(5.0, 5.0, 5.0));
    assert_eq!(of(&[9.0, 1.0]), spread(5.0, 1.0, 9.0));
    assert_eq!(of(&[3.0, 100.0, 2.0]), spread(3.0, 2.0, 100.0));
}

#[test]
fn the_cost_is_taken_pair_by_pair_and_the_bar_is_kept_or_not() {
    // The machine was slow in the second pair, for both alike.
    let without = [sample(100.0, 4.0, 0.95), sample(50.0, 4.0, 0.95)];
    let with = [sample(80.0, 5.0, 0.95), sample(40.0, 5.0, 0.95)];
    let mut compared = Comparison::new("array", 8, &without, &with);
    let cost = compared.cost_percent;
    assert!((cost.max - cost.min).abs() < 1e-9 && (cost.median - 20.0).abs() < 1e-9);
    let of_time = compared.cost_of_drive_time_percent.unwrap();
    assert!((of_time.median - 20.0).abs() < 1e-9);
    assert_eq!(compared.latency_more_us.median, 1.0);
    assert_eq!(compared.holds(), None);
    compared.bar_percent = Some(20.1);
    assert_eq!(compared.holds(), Some(true));
    compared.bar_percent = Some(19.9);
    assert_eq!(compared.holds(), Some(false));
}

#[test]
fn where_the_drives_were_not_the_limit_no_bar_is_judged() {
    let without = [sample(100.0, 4.0, 0.95)];
    let with = |busy, idle, taken_away| {
        [Sample {
            idle,
            taken_away,
            ..sample(99.0, 4.1, busy)
        }]
    };
    // Drives busy, core idle, core taken away; what was the limit.
    let cases = [
        (0.91, 0.01, 0.3, Limit::Drives, Some(true)),
        (0.89, 0.01, 0.01, Limit::Core, None),
        (0.89, 0.2, 0.01, Limit::Depth, None),
        (0.89, 0.2, 0.3, Limit::Others, None),
    ];
    for (busy, idle, taken_away, limit, holds) in cases {
        let with = with(busy, idle, taken_away);
        let mut compared = Comparison::new("array", 8, &without, &with);
        compared.bar_percent = Some(20.0);
        assert_eq!((compared.limit, compared.holds()), (limit, holds));
        let mut turned = Comparison::new("array", 8, &with, &without);
        turned.bar_percent = Some(20.0);
        assert_eq!((turned.limit, turned.holds()), (limit, holds));
    }
}

#[test]
fn a_log_that_writes_nothing_is_seen() {
    let [little, more, nothing] = [4.0, 5.0, 0.0].map(|us| [sample(9.0, us, 0.5)]);
    let wrote_no_more = |without, with| Comparison::new("a", 1, without, with).wrote_no_more();
    assert!(wrote_no_more(&little, &little));
    assert!(!wrote_no_more(&little, &more));
    // Memory drives count nothing.
    assert!(!wrote_no_more(&nothing, &nothing));
}
