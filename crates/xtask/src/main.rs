//! Project tasks: what `make` and `.ci/run` call. One module a task.
#![forbid(unsafe_code)]

mod aarch64;
mod bench;
mod demo;
mod miri;
mod prove;
mod setup;
mod shell;
mod test;
mod tidy;
mod workspace;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Project tasks")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install the programs that the other tasks use (Debian packages), or say which are missing
    Setup {
        /// Also what the aarch64 task uses
        #[arg(long)]
        cross: bool,
    },
    /// Real files on twelve drives, through two drive failures
    Demo(demo::Options),
    /// Unit, property and end-to-end tests, planted bugs too, with one line that sums them up
    Test {
        /// Passed on to `cargo test`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        cargo_arguments: Vec<String>,
    },
    /// What the engine costs, and shares of what drives allow: writes docs/benchmarks.md
    Bench {
        /// One measurement instead of the tables: passed on to `strake bench engine`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        bench_arguments: Vec<String>,
    },
    /// The simulator's whole proof: planted bugs, random runs, every crash of small cases; hours
    Prove(prove::Options),
    /// The parity kernels on aarch64, under emulation
    Aarch64,
    /// Memory rules of buffers and of the codec, under Miri
    Miri,
    /// House rules that a compiler does not check
    Tidy,
}

fn main() -> std::process::ExitCode {
    let result = match Arguments::parse().task {
        Task::Setup { cross } => setup::run(cross),
        Task::Demo(options) => demo::run(&options),
        Task::Test { cargo_arguments } => test::run(&cargo_arguments),
        Task::Bench { bench_arguments } => bench::run(&bench_arguments),
        Task::Prove(options) => prove::run(&options),
        Task::Aarch64 => aarch64::run(),
        Task::Miri => miri::run(),
        Task::Tidy => tidy::run(),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
