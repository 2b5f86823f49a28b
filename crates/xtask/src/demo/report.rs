//! The table at the end: each state of the array beside the healthy one and the raw drives.

use super::load::{JOBS, Rate};
use std::fmt::Write;

/// Rates of one state, in the order of [`JOBS`]; `None` where nothing was measured.
#[derive(Debug, Clone)]
pub struct Row {
    /// As printed.
    pub title: String,
    /// What was reached.
    pub rates: [Option<Rate>; JOBS.len()],
}

/// Renders the table. The first row is the raw drives, the second the healthy array.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let titles: String = JOBS
        .iter()
        .map(|job| format!("{:>24}", job.title))
        .collect();
    let units: String = (0..JOBS.len())
        .map(|job| format!("{:>24}", unit(job)))
        .collect();
    let _ = writeln!(text, "{:<18}{titles}", "");
    let _ = writeln!(text, "{:<18}{units}", "");
    for (index, row) in rows.iter().enumerate() {
        let cells: String = (0..JOBS.len())
            .map(|job| format!("{:>24}", cell(rows, index, job)))
            .collect();
        let _ = writeln!(text, "{:<18}{cells}", row.title);
    }
    text
}

fn unit(job: usize) -> &'static str {
    if is_sequential(job) {
        "GB/s  healthy    raw"
    } else {
        "kIOPS  healthy    raw"
    }
}

fn is_sequential(job: usize) -> bool {
    JOBS[job].title.starts_with("1 MiB")
}

fn value(rate: Rate, job: usize) -> f64 {
    if is_sequential(job) {
        rate.bytes / 1e9
    } else {
        rate.requests / 1e3
    }
}

/// The rate, its share of the healthy array's and its share of the raw drives'. What stands
/// above a row has no share of it.
fn cell(rows: &[Row], row: usize, job: usize) -> String {
    let Some(rate) = rows[row].rates[job] else {
        return "-".into();
    };
    let rate = value(rate, job);
    let share = |of: usize| match rows.get(of).and_then(|row| row.rates[job]) {
        Some(of_rate) if of <= row => format!("{:.0} %", 100.0 * rate / value(of_rate, job)),
        _ => String::new(),
    };
    format!("{rate:.2}  {:>7}{:>7}", share(1), share(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(title: &str, requests: f64) -> Row {
        let rate = Rate {
            bytes: requests * 1e6,
            requests,
        };
        Row {
            title: title.into(),
            rates: [Some(rate); JOBS.len()],
        }
    }

    #[test]
    fn shares_are_of_the_healthy_array_and_of_the_raw_drives() {
        let text = table(&[
            row("raw", 4000.0),
            row("healthy", 2000.0),
            row("gone", 1000.0),
        ]);
        let last = text.lines().last().unwrap();
        assert!(last.contains("1.00     50 %   25 %"), "{last}");
        assert!(
            !text.contains("200 %"),
            "the raw drives have no share: {text}"
        );
    }
}
