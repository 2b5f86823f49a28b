use super::*;
use crate::generate::{self, Kind};

#[test]
fn a_plan_survives_being_written_down() {
    for seed in 0..300 {
        let plan = generate::plan(seed, Kind::Mixed, None);
        assert_eq!(plan.to_string().parse::<Plan>().as_ref(), Ok(&plan));
    }
}

#[test]
fn what_is_not_a_plan_is_refused_with_the_reason() {
    let plan = generate::plan(1, Kind::Small, None).to_string();
    let array = plan.lines().next().expect("the array");
    for (text, reason) in [
        ("", "begins with its array"),
        ("write start=1 count=1 durable=true", "begins with"),
        (&format!("{array}\njump place=1"), "no step is called"),
        (&format!("{array}\nread start=1"), "count= is missing"),
        (&format!("{array}\nread start=x count=1"), "not a value"),
    ] {
        let why = text.parse::<Plan>().expect_err("not a plan");
        assert!(why.contains(reason), "{why}");
    }
}
