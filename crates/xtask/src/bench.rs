//! `make bench`: what the engine costs on this machine, and which share of what drives allow reaches
//! the client. Writes both tables to docs/benchmarks.md, with machine, date and commit. No drive is
//! needed; about a quarter of an hour.

use crate::{shell, workspace};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Both tables; with arguments, the one measurement that they ask for.
pub fn run(arguments: &[String]) -> Result<()> {
    let strake = workspace::build_release_program()?;
    if !arguments.is_empty() {
        return shell::show(
            Command::new(strake)
                .args(["bench", "engine"])
                .args(arguments),
        );
    }
    let suite = measure(&strake, "suite")?;
    let shares = measure(&strake, "shares")?;
    let mut page = heading()?;
    page += &suite_table(&suite)?;
    page += &shares_tables(&shares)?;
    let path = workspace::root().join("docs/benchmarks.md");
    std::fs::write(&path, &page).with_context(|| format!("writing {}", path.display()))?;
    print!("{page}");
    Ok(())
}

fn measure(strake: &Path, table: &str) -> Result<Value> {
    eprintln!("strake bench {table}: some minutes");
    let text = shell::read(Command::new(strake).args(["--json", "bench", table]))?;
    serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
}

fn heading() -> Result<String> {
    let said = |program: &str, arguments: &[&str]| -> Result<String> {
        Ok(shell::read(Command::new(program).args(arguments))?
            .trim()
            .to_owned())
    };
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let date = said("date", &["-u", "+%Y-%m-%d"])?;
    let commit = said("git", &["rev-parse", "--short", "HEAD"])?;
    let changed = !said(
        "git",
        &[
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            "crates",
        ],
    )?
    .is_empty();
    let changed = if changed { " with changes" } else { "" };
    Ok(format!(
        "# Benchmarks\n\nWritten by `make bench`: numbers of this project come from here. {model}, {cores} cores, {date}, commit {commit}{changed}. Medians; least to greatest in brackets.\n"
    ))
}

fn suite_table(suite: &Value) -> Result<String> {
    let mut out = format!(
        "\n## What a request costs\n\n`strake bench suite`: {} runs of {} s, one pinned core, kernel {}. Bars and SPDK's figures are of the project's reference machine.\n\n| workload | measured | CPU ns a request | bar | | SPDK there |\n|---|---|---|---|---|---|\n",
        suite["runs"],
        suite["seconds"],
        text(&suite["kernel"])
    );
    for row in list(suite, "rows")? {
        let unit = text(&row["unit"]);
        writeln!(
            out,
            "| {} | {} {unit} | {:.0} | {} | {} | {} |",
            text(&row["row"]),
            spread(&row["measured"]),
            number(&row["cpu_ns_per_io"]),
            optional(&row["bar"]),
            verdict(row, "bar"),
            optional(&row["peer"]),
        )?;
    }
    for skipped in list(suite, "skipped")? {
        writeln!(out, "\nNot run: {}.", text(skipped))?;
    }
    Ok(out)
}

fn shares_tables(shares: &Value) -> Result<String> {
    let (model, scale) = (text(&shares["model"]), &shares["scale"]);
    let mut out = format!(
        "\n## Shares of what the drives allow\n\n`strake bench shares`: {} runs of {} s, drives paced as {model} slowed {scale} times, one core. What the drives allow is arithmetic on their figures; published shares are of other systems on real drives.\n\n| figure | array | depth | measured | of | bar | | published | drives busy | limit |\n|---|---|---|---|---|---|---|---|---|---|\n",
        shares["runs"], shares["seconds"]
    );
    for row in list(shares, "figures")? {
        writeln!(
            out,
            "| {} | {} | {} | {} % | {} | {} | {} | {} | {:.0} % | {} |",
            text(&row["figure"]),
            text(&row["array"]),
            row["depth"],
            spread(&row["share_percent"]),
            text(&row["against"]),
            optional(&row["bar_percent"]),
            verdict(row, "bar_percent"),
            text(&row["published"]),
            number(&row["measured"]["busy"]["median"]) * 100.0,
            text(&row["limit"]),
        )?;
    }
    writeln!(
        out,
        "\nOne such drive alone:\n\n| operation | depth | a second | by its figures | share | kept within 2 % | mean µs |\n|---|---|---|---|---|---|---|"
    )?;
    for row in list(shares, "alone")? {
        writeln!(
            out,
            "| {} | {} | {:.0} | {:.0} | {:.1} % | {} | {:.1} |",
            text(&row["operation"]),
            row["depth"],
            number(&row["per_second"]),
            number(&row["theory_per_second"]),
            number(&row["share_percent"]),
            if row["kept"] == true { "yes" } else { "**no**" },
            number(&row["mean_us"]),
        )?;
    }
    Ok(out)
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    value[name]
        .as_array()
        .with_context(|| format!("{name} is missing: {value}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn optional(value: &Value) -> String {
    value
        .as_f64()
        .map_or("–".to_owned(), |number| number.to_string())
}

fn verdict(row: &Value, bar: &str) -> &'static str {
    match (row[bar].is_null(), row["holds"].as_bool()) {
        (true, _) => "–",
        (_, Some(true)) => "holds",
        (_, Some(false)) => "**missed**",
        (_, None) => "not measured",
    }
}

fn spread(value: &Value) -> String {
    let digits = if number(&value["median"]) >= 100.0 {
        0
    } else {
        2
    };
    let [median, min, max] = ["median", "min", "max"].map(|part| number(&value[part]));
    format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
}
