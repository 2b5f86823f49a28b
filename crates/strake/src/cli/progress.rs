//! Waiting for long work: bars on a terminal, plain lines elsewhere, both on standard error so
//! that standard output stays the answer.

use super::client::Client;
use super::show::{self, task_line};
use super::{CliError, CliResult};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use strake_api::{self as api, ArrayState, MemberState};

/// How often the daemon is asked.
const POLL: Duration = Duration::from_millis(200);
/// How often a plain line is written.
const LINE: Duration = Duration::from_secs(2);

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// All long work.
    All,
    /// This member in sync.
    Member(u16),
    /// The scrub.
    Scrub,
}

/// Waits for all long work on an array.
pub fn wait(client: &Client, array: &str) -> CliResult<api::ArrayDetail> {
    wait_for(client, array, Goal::All)
}

/// Waits for long work on an array and returns how the array is then. Fails when the array stops
/// meanwhile.
pub fn wait_for(client: &Client, array: &str, goal: Goal) -> CliResult<api::ArrayDetail> {
    let mut view = View::new(std::io::stderr().is_terminal());
    loop {
        let detail: api::ArrayDetail = client.get(&["v1", "arrays", array])?;
        match detail.state {
            state if state.is_running() => {
                if !at_work(&detail, goal) {
                    view.end();
                    return Ok(detail);
                }
                view.update(&detail, goal);
            }
            ArrayState::Starting => {}
            _ => {
                view.end();
                return Err(CliError::Work(
                    show::headline(&detail).trim_end().to_owned(),
                ));
            }
        }
        std::thread::sleep(POLL);
    }
}

/// Whether what is waited for goes on. An array that has failed gets no further by waiting.
fn at_work(detail: &api::ArrayDetail, goal: Goal) -> bool {
    let task = |task: &api::Task| match goal {
        Goal::All => true,
        Goal::Member(_) => false,
        Goal::Scrub => task.kind == "scrub",
    };
    let member = |member: &api::Member| match goal {
        Goal::All => member.state == MemberState::Rebuilding,
        Goal::Member(index) => member.index == index && member.state == MemberState::Rebuilding,
        Goal::Scrub => false,
    };
    let stuck = detail.state == ArrayState::Failed && detail.tasks.is_empty();
    !stuck && (detail.tasks.iter().any(task) || detail.members.iter().any(member))
}

/// How the work ended: a line for people, or why it failed.
pub fn verdict(detail: &api::ArrayDetail, goal: Goal) -> CliResult<String> {
    let name = &detail.name;
    let fail = |text: String| Err(CliError::Work(text));
    match goal {
        Goal::Member(index) => {
            let member = detail.members.iter().find(|member| member.index == index);
            let state = member.map_or(MemberState::Missing, |member| member.state);
            match state {
                MemberState::Active => Ok(format!("member {index} of {name} is in sync")),
                state => fail(format!(
                    "the rebuild of member {index} of {name} failed: it is {} now; `strake array show {name}` says more",
                    state.name()
                )),
            }
        }
        Goal::Scrub => scrub_verdict(detail),
        Goal::All => {
            if let Some(member) = detail
                .members
                .iter()
                .find(|m| m.state == MemberState::Rebuilding)
            {
                return fail(format!(
                    "the rebuild of member {} of {name} does not go on: the array has failed; `strake array show {name}` says more",
                    member.index
                ));
            }
            match detail.state {
                ArrayState::Failed => fail(show::headline(detail).trim_end().to_owned()),
                state => Ok(format!("no work is left on {name}; it is {}", state.name())),
            }
        }
    }
}

fn scrub_verdict(detail: &api::ArrayDetail) -> CliResult<String> {
    let name = &detail.name;
    let Some(scrub) = &detail.last_scrub else {
        return Err(CliError::Work(format!(
            "the scrub of {name} did not reach its end; `strake array show {name}` says more"
        )));
    };
    let text = show::scrub_result(scrub);
    if scrub.done_bytes < scrub.total_bytes {
        return Err(CliError::Work(format!(
            "the scrub of {name} was stopped: {text}"
        )));
    }
    if scrub.errors > 0 || scrub.mismatches > scrub.repaired {
        let hint = match scrub.mismatches > scrub.repaired {
            true => "; `strake array scrub --repair` rewrites parity from the data",
            false => "",
        };
        return Err(CliError::Work(format!("scrub of {name}: {text}{hint}")));
    }
    Ok(format!("scrub of {name}: {text}"))
}

/// What is on the screen.
struct View {
    bars: Option<MultiProgress>,
    by_kind: HashMap<String, ProgressBar>,
    last_line: Option<Instant>,
}

impl View {
    fn new(terminal: bool) -> View {
        View {
            bars: terminal.then(MultiProgress::new),
            by_kind: HashMap::new(),
            last_line: None,
        }
    }

    fn update(&mut self, detail: &api::ArrayDetail, goal: Goal) {
        let wanted = |task: &&api::Task| goal != Goal::Scrub || task.kind == "scrub";
        let tasks: Vec<&api::Task> = detail.tasks.iter().filter(wanted).collect();
        match &self.bars {
            Some(bars) => {
                self.by_kind.retain(|kind, bar| {
                    let goes_on = tasks.iter().any(|task| task.kind == *kind);
                    if !goes_on {
                        bar.finish();
                    }
                    goes_on
                });
                for task in tasks {
                    let new = || bars.add(bar(&format!("{} {}", detail.name, task.kind)));
                    let bar = self.by_kind.entry(task.kind.clone()).or_insert_with(new);
                    bar.set_length(task.total_bytes);
                    bar.set_position(task.done_bytes.min(task.total_bytes));
                    bar.set_message(show::rate_and_rest(task));
                }
            }
            None => {
                if self.last_line.is_some_and(|last| last.elapsed() < LINE) {
                    return;
                }
                for task in &tasks {
                    eprintln!("{}: {}", detail.name, task_line(task));
                    self.last_line = Some(Instant::now());
                }
            }
        }
    }

    fn end(&mut self) {
        for bar in self.by_kind.values() {
            bar.set_position(bar.length().unwrap_or(0));
            bar.finish();
        }
        self.by_kind.clear();
    }
}

fn bar(name: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{prefix} [{bar:30}] {percent:>3} % {binary_bytes}/{binary_total_bytes} {msg}",
    );
    let style = style.expect("a constant template").progress_chars("=> ");
    ProgressBar::new(0)
        .with_style(style)
        .with_prefix(name.to_owned())
}

#[cfg(test)]
mod tests;
