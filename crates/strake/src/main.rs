//! The Strake program: the daemon, the command line, and offline inspection of drives.
//!
//! `strake daemon` is the only part that serves data; every other command but `inspect`, `bench`
//! and `completions` asks it over its Unix socket and can do nothing that the API cannot.
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod daemon;
mod drives;
mod size;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(&cli::Cli::parse())
}
