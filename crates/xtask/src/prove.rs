//! `make prove`: the whole proof that nothing is lost. Planted bugs that must be found, random runs,
//! every crash of the exhaustive set, power cuts and kills of the real program. Hours; CI runs a part
//! of each.

use crate::{shell, workspace};
use anyhow::{Context, Result};

/// How much.
#[derive(clap::Args)]
pub struct Options {
    /// Random runs
    #[arg(long, default_value_t = 100_000)]
    seeds: u64,
    /// Images of power cuts under the real program
    #[arg(long, default_value_t = 200)]
    images: u64,
    /// Rounds of kill -9
    #[arg(long, default_value_t = 100)]
    kills: u64,
    /// Of so many cases of the exhaustive set one is tried; 1: all
    #[arg(long, default_value_t = 1)]
    every: u64,
    /// Minutes after which no further case of the exhaustive set is begun
    #[arg(long)]
    minutes: Option<u64>,
}

/// Runs everything; fails at the end when a part has.
pub fn run(options: &Options) -> Result<()> {
    shell::show(workspace::cargo().args([
        "build",
        "--release",
        "--package",
        "strake-sim",
        "--features",
        "planted",
    ]))
    .context("building the simulator")?;
    let program = workspace::target_dir().join("release/strake-sim");
    let sim = |arguments: &[String]| {
        println!("\n== strake-sim {}", arguments.join(" "));
        shell::show(std::process::Command::new(&program).args(arguments))
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut explore = words(&format!("explore --whole --every {}", options.every));
    if let Some(minutes) = options.minutes {
        explore.extend(words(&format!("--minutes {minutes}")));
    }
    let random = words(&format!("run --seeds 0..{}", options.seeds));
    // What one part finds must not keep the others from being run.
    let parts = [words("planted"), random, explore];
    let failed = parts.iter().filter(|part| sim(part).is_err());
    let mut failed: Vec<&str> = failed.map(|part| part[0].as_str()).collect();
    let strake = workspace::build_test_program()?;
    for (test, name, count) in [
        ("replay_images", "STRAKE_IMAGES", options.images),
        ("kill_rounds", "STRAKE_KILLS", options.kills),
    ] {
        println!("\n== {test}, {name}={count}");
        let mut cargo = workspace::cargo();
        cargo.args(["test", "--package", "strake-tests", "--test", test]);
        cargo.args(["--", "--nocapture"]);
        cargo.env("STRAKE_PROGRAM", &strake);
        if shell::show(cargo.env(name, count.to_string())).is_err() {
            failed.push(test);
        }
    }
    anyhow::ensure!(
        failed.is_empty(),
        "not proven: {} failed, as it says above",
        failed.join(", ")
    );
    Ok(())
}
