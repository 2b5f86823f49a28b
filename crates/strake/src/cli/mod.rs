//! The command line: nouns, and verbs on them. One file per noun.
//!
//! Exit code 0: as asked (changed, or already so). 1: the request failed; the reason is on
//! standard error, and with `--json` also on standard output as the API's error. 2: usage.

pub mod array;
pub mod attach;
pub mod client;
pub mod daemon;
pub mod drive;
pub mod export;
pub mod inspect;
pub mod progress;
mod show;
mod table;

use clap::{CommandFactory, Parser, Subcommand};
use client::Client;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use strake_api as api;

/// Software RAID in user space: fast, and nothing lost.
#[derive(Debug, Parser)]
#[command(
    name = "strake",
    version,
    propagate_version = true,
    infer_subcommands = false
)]
pub struct Cli {
    /// Unix socket of the daemon
    #[arg(long, global = true, env = "STRAKE_SOCKET", value_name = "PATH", default_value = api::DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Print the API's answer as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Nouns, and what goes with none.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon: serves arrays and answers all other commands
    Daemon(daemon::DaemonArgs),
    /// Drives: list, show, clean, make them fail on purpose
    #[command(subcommand)]
    Drive(drive::DriveCommand),
    /// Read a drive's metadata, without a daemon
    Inspect(inspect::InspectArgs),
    /// Arrays: create, look after, destroy
    #[command(subcommand)]
    Array(array::ArrayCommand),
    /// Exports: serve arrays to clients
    #[command(subcommand)]
    Export(export::ExportCommand),
    /// Make an array a block device of this host and print its path
    Attach(attach::AttachArgs),
    /// Undo attach
    Detach(attach::DetachArgs),
    /// Show the daemon's version, folders and kernel
    Status,
    /// Measure on this machine, without a daemon
    #[command(subcommand)]
    Bench(crate::bench::Bench),
    /// Print completions for a shell
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The daemon refused.
    #[error("{0}")]
    Api(#[from] api::Error),
    /// Work that was waited for ended badly. Its result was printed already.
    #[error("{0}")]
    Work(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> CliError {
        CliError::Other(error.to_string())
    }
}

/// Result of a command.
pub type CliResult<T = ()> = Result<T, CliError>;

/// What every command needs.
pub struct Context {
    /// The daemon.
    pub client: Client,
    /// Print JSON.
    pub json: bool,
}

impl Context {
    /// Prints an answer: as JSON, or as people read it.
    pub fn print<T: serde::Serialize>(
        &self,
        answer: &T,
        people: impl FnOnce(&T) -> String,
    ) -> CliResult {
        let mut text = match self.json {
            true => to_json(answer),
            false => people(answer),
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        write_out(&text)
    }
}

fn to_json<T: serde::Serialize>(answer: &T) -> String {
    serde_json::to_string_pretty(answer).expect("API types have string keys only")
}

/// Writes to standard output; a reader that went away (`| head`) is no error.
fn write_out(text: &str) -> CliResult {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// Runs a command and reports how it ended.
pub fn run(cli: &Cli) -> ExitCode {
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let (CliError::Api(error), true) = (&error, cli.json) {
                let body = api::ErrorBody {
                    error: error.clone(),
                };
                // The exit code and standard error tell it too.
                let _ = write_out(&(to_json(&body) + "\n"));
            }
            eprintln!("strake: {error}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(cli: &Cli) -> CliResult {
    let ask = || -> CliResult<Context> {
        Ok(Context {
            client: Client::new(&cli.socket)?,
            json: cli.json,
        })
    };
    let whole = |error: anyhow::Error| CliError::Other(format!("{error:#}"));
    match &cli.command {
        Command::Daemon(args) => crate::daemon::run(&cli.socket, args).map_err(whole),
        Command::Inspect(args) => inspect::run(args, cli.json),
        Command::Bench(bench) => crate::bench::run(bench, cli.json).map_err(whole),
        Command::Completions { shell } => completions(*shell),
        Command::Drive(command) => drive::run(command, &ask()?),
        Command::Array(command) => array::run(command, &ask()?),
        Command::Export(command) => export::run(command, &ask()?),
        Command::Attach(args) => attach::attach(args, &ask()?),
        Command::Detach(args) => attach::detach(args, &ask()?),
        Command::Status => daemon::status(&ask()?),
    }
}

fn completions(shell: clap_complete::Shell) -> CliResult {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "strake", &mut text);
    write_out(&String::from_utf8_lossy(&text))
}

#[cfg(test)]
mod tests;
