//! The report as people read it.

use super::super::log::compare::Limit;
use super::{Report, Share};

impl Report {
    /// Prints the tables.
    pub(super) fn print(&self) {
        println!(
            "{} slowed {} times, one drive alone: measured a second, and by its figures",
            self.model, self.scale
        );
        for alone in &self.alone {
            println!(
                "  {:<22} depth {:<4} {:>9.0}  {:>9.0}  {:>6.1} %  mean {:.1} µs, by its figures {:.1}{}",
                alone.operation,
                alone.depth,
                alone.per_second,
                alone.theory_per_second,
                alone.share_percent,
                alone.mean_us,
                alone.theory_mean_us,
                if alone.kept {
                    ""
                } else {
                    ": NOT KEPT on this machine"
                },
            );
        }
        println!(
            "\nShares of what the drives allow, {} runs of {} s on one core; medians, (least to greatest)",
            self.runs, self.seconds
        );
        for share in &self.figures {
            share.print();
        }
    }
}

impl Share {
    fn print(&self) {
        let bar = match (self.bar_percent, self.holds) {
            (Some(bar), Some(true)) => format!("bar {bar} %: holds"),
            (Some(bar), Some(false)) => format!("bar {bar} %: MISSED"),
            (Some(bar), None) => format!("bar {bar} %: not measured"),
            (None, _) => String::new(),
        };
        let measured = &self.measured;
        println!(
            "  {:<34} {:<26} depth {:<5} {:>5.1} ({:.1} to {:.1}) % of {}; published {}; {bar}",
            self.figure,
            self.array,
            self.depth,
            self.share_percent.median,
            self.share_percent.min,
            self.share_percent.max,
            self.against,
            self.published,
        );
        if measured.iops.median > 0.0 {
            println!(
                "    {:.2} GB/s, {:.1} kIOPS; drives busy {:.0} %, core idle {:.0} %; a request: {}",
                measured.gbps.median,
                measured.iops.median / 1e3,
                measured.busy.median * 100.0,
                measured.idle.median * 100.0,
                measured.asked.text()
            );
        }
        if let Some(rebuilt) = &self.rebuilt_per_second {
            println!("    rebuilt meanwhile: {:.1} MB/s", rebuilt.median / 1e6);
        }
        match self.limit {
            Limit::Drives | Limit::Depth => {}
            Limit::Core => {
                println!("    the engine on this core was the limit: give a larger --scale")
            }
            Limit::Others => println!(
                "    other programs had the core for {:.0} % of the time: let it alone, or give a larger --scale",
                measured.taken_away.median * 100.0
            ),
        }
    }
}
