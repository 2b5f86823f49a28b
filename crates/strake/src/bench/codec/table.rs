//! The rows as people read them.

use super::Row;
use super::cases::{CEILING, Set};

/// Prints all rows, the working sets apart.
pub fn print(rows: &[Row], rounds: usize) {
    println!(
        "One core, kernel {}; GB/s of data: median of {rounds} (least to greatest).",
        strake_codec::kernel()
    );
    for (set, title) in [(Set::Hot, "In cache"), (Set::Memory, "From memory")] {
        let of_set: Vec<&Row> = rows.iter().filter(|row| row.working_set == set).collect();
        let ceiling = of_set.first().map_or(0.0, |row| row.ceiling_gbps);
        println!("\n{title}: reading alone at most {ceiling:.1} GB/s");
        println!(
            "{:<7}{:>8}  {:<26}{:<14}{:>8}{:>16}{:>9}   peer",
            "code", "strip", "operation", "kernel", "GB/s", "", "share"
        );
        for row in of_set.iter().filter(|row| row.operation != CEILING) {
            line(row);
        }
    }
    println!();
    for steps in rows.iter().filter(|row| row.operation == "update in steps") {
        let fused = |row: &&Row| row.operation == "update" && row.code == steps.code;
        if let Some(fused) = rows.iter().find(fused) {
            println!(
                "update of {}: one pass beside its steps: {:.2} times",
                steps.code,
                fused.gbps / steps.gbps
            );
        }
    }
    placement_loss(rows);
}

fn line(row: &Row) {
    print!(
        "{:<7}{:>7}K  {:<26}{:<14}{:>8.1}{:>16}{:>7.0} %",
        row.code,
        row.strip_bytes >> 10,
        row.operation,
        row.kernel,
        row.gbps,
        format!("({:.1}-{:.1})", row.gbps_min, row.gbps_max),
        100.0 * row.gbps / row.ceiling_gbps,
    );
    for peer in &row.peer {
        print!(
            "   {} {:.1} ({:.1}-{:.1}): ours {:.2} times",
            peer.kernel,
            peer.gbps,
            peer.gbps_min,
            peer.gbps_max,
            row.gbps / peer.gbps
        );
    }
    println!();
}

/// What the least fortunate placement costs against the best.
fn placement_loss(rows: &[Row]) {
    let placed =
        |row: &&Row| row.operation.starts_with("encode, ") && row.operation.contains("strip");
    let mut codes: Vec<&str> = rows
        .iter()
        .filter(placed)
        .map(|row| row.code.as_str())
        .collect();
    codes.dedup();
    for code in codes {
        let figures = rows.iter().filter(placed).filter(|row| row.code == code);
        let figures = figures.map(|row| row.gbps);
        let (best, worst) = (
            figures.clone().fold(0.0, f64::max),
            figures.fold(f64::MAX, f64::min),
        );
        println!(
            "placement of {code}: worst {:.1} % below best",
            100.0 * (1.0 - worst / best)
        );
    }
}
