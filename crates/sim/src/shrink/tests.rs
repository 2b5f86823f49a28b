use super::*;
use crate::generate::{self, Kind};
use crate::plan::Step;

#[test]
fn what_matters_is_left() {
    let mut plan = generate::plan(7, Kind::Long, None);
    plan.steps.insert(11, Step::Accept {});
    plan.steps.insert(29, Step::Clone { place: 1 });
    let clone = |step: &Step| matches!(step, Step::Clone { .. });
    let mut fails = |plan: &Plan| {
        let accept = plan.steps.iter().position(|step| *step == Step::Accept {});
        let clone = plan.steps.iter().rposition(clone);
        (accept? < clone?).then(|| "both".to_owned())
    };
    let (short, why) = shrink_with(&plan, String::new(), &mut fails);
    assert_eq!(why, "both");
    assert_eq!(short.steps.len(), 2, "{short}");
}
