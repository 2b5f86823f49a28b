//! The report as people read it.

use super::Report;
use super::compare::{Comparison, Limit, Side, Spread};

impl Report {
    /// Prints the tables.
    pub(super) fn print(&self) {
        println!(
            "Policy {} beside none: {} pairs of {} s on one core; medians, (least to greatest)",
            self.policy, self.pairs, self.seconds
        );
        let slowed = format!("{} slowed {} times", self.model, self.scale);
        heading(&format!("4 KiB random writes, {slowed}"), "kIOPS");
        for compared in &self.random {
            share(compared, |side| scaled(side.iops, 1e-3));
        }
        heading(&format!("Full-stripe writes, {slowed}"), "GB/s");
        for compared in &self.full_stripe {
            share(compared, |side| side.gbps);
        }
        heading(
            &format!("One 4 KiB write at a time, {}", self.model),
            "µs at the median",
        );
        for compared in &self.alone {
            more(compared, |side| side.latency_us, compared.latency_more_us);
        }
        heading("4 KiB random writes, memory drives", "CPU ns a request");
        for compared in &self.memory {
            more(compared, |side| side.cpu_ns, compared.cpu_more_ns);
        }
    }
}

fn heading(what: &str, unit: &str) {
    println!("\n{what}: {unit}");
}

fn share(compared: &Comparison, figure: impl Fn(&Side) -> Spread) {
    let bar = match (compared.bar_percent, compared.holds()) {
        (Some(bar), Some(true)) => format!("; bar {bar} %: holds"),
        (Some(bar), Some(false)) => format!("; bar {bar} %: EXCEEDED"),
        (Some(bar), None) => format!("; bar {bar} %: not measured"),
        (None, _) => String::new(),
    };
    println!(
        "  {:<14} depth {:<4} {} -> {}  cost {} %{bar}",
        compared.array,
        compared.depth,
        text(figure(&compared.without)),
        text(figure(&compared.with)),
        text(compared.cost_percent),
    );
    if let Some(cost) = compared.cost_of_drive_time_percent {
        println!("    by the drives' time: {} %", text(cost));
    }
    for (name, side) in [("none", &compared.without), ("with", &compared.with)] {
        println!(
            "    {name}: drives busy {:.0} %, core idle {:.0} %; a request: {}",
            side.busy.median * 100.0,
            side.idle.median * 100.0,
            side.asked.text()
        );
    }
    match compared.limit {
        Limit::Drives => {}
        Limit::Depth => println!("    the drives were not kept busy: give a larger depth"),
        Limit::Core => {
            println!("    the engine, not the drives, was the limit: give a larger --scale");
        }
        Limit::Others => println!(
            "    other programs had the core for {:.0} % of the time: let it alone, or give a larger --scale",
            compared
                .with
                .taken_away
                .median
                .max(compared.without.taken_away.median)
                * 100.0
        ),
    }
}

fn more(compared: &Comparison, figure: impl Fn(&Side) -> Spread, more: Spread) {
    println!(
        "  {:<14} depth {:<4} {} -> {}  more: {}",
        compared.array,
        compared.depth,
        text(figure(&compared.without)),
        text(figure(&compared.with)),
        text(more),
    );
}

fn scaled(spread: Spread, factor: f64) -> Spread {
    Spread {
        median: spread.median * factor,
        min: spread.min * factor,
        max: spread.max * factor,
    }
}

fn text(spread: Spread) -> String {
    let digits = match spread.max.abs() {
        large if large >= 1000.0 => 0,
        large if large >= 10.0 => 1,
        _ => 2,
    };
    format!(
        "{:.digits$} ({:.digits$} to {:.digits$})",
        spread.median, spread.min, spread.max
    )
}
