//! Makes a plan that fails shorter, as long as it still fails.

use crate::plan::Plan;
use crate::runner;

/// Runs at most while shrinking.
const RUNS_MAX: u32 = 2000;

/// The shortest plan found that fails, and its failure. `plan` fails.
pub fn shrink(plan: &Plan, why: String) -> (Plan, String) {
    shrink_with(plan, why, &mut |plan| runner::execute(plan).err())
}

/// The same with any judge: what is wrong with a plan, if something is.
pub fn shrink_with(
    plan: &Plan,
    why: String,
    fails: &mut dyn FnMut(&Plan) -> Option<String>,
) -> (Plan, String) {
    let (mut best, mut best_why) = (plan.clone(), why);
    let mut runs = 0;
    let mut size = (best.steps.len() / 2).max(1);
    loop {
        let mut shorter = false;
        let mut at = 0;
        while at < best.steps.len() && runs < RUNS_MAX {
            let mut tried = best.clone();
            let end = (at + size).min(tried.steps.len());
            tried.steps.drain(at..end);
            runs += 1;
            match fails(&tried) {
                Some(why) => {
                    (best, best_why) = (tried, why);
                    shorter = true;
                }
                None => at += size,
            }
        }
        if runs >= RUNS_MAX || size == 1 && !shorter {
            return (best, best_why);
        }
        size = (size / 2).max(1);
    }
}

#[cfg(test)]
mod tests;
