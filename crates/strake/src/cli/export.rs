//! `strake export`.

use super::show;
use super::{CliResult, Context};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use strake_api as api;

/// Verbs on exports.
#[derive(Debug, Subcommand)]
pub enum ExportCommand {
    /// Serve an array to clients
    Create(CreateArgs),
    /// List exports
    List,
    /// Show one export
    Show {
        /// Identity, like nbd1
        id: String,
    },
    /// End an export
    Remove {
        /// Identity, like nbd1
        id: String,
        /// Also while clients use it
        #[arg(long)]
        force: bool,
    },
}

/// How to serve.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("protocol").required(true))]
pub struct CreateArgs {
    /// Array, by name or UUID
    pub name: String,
    /// NBD, on a Unix socket unless --tcp is given
    #[arg(long, group = "protocol")]
    pub nbd: bool,
    /// A file under the daemon's FUSE mount
    #[arg(long, group = "protocol", conflicts_with_all = ["unix", "tcp"])]
    pub fuse: bool,
    /// NBD: path of the Unix socket [default: nbd-NAME.sock in the daemon's run folder]
    #[arg(long, value_name = "PATH", conflicts_with = "tcp")]
    pub unix: Option<PathBuf>,
    /// NBD: TCP address and port
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub tcp: Option<String>,
}

impl CreateArgs {
    fn kind(&self) -> CliResult<api::ExportKind> {
        Ok(match (&self.tcp, &self.unix) {
            _ if self.fuse => api::ExportKind::Fuse,
            (Some(address), _) => api::ExportKind::NbdTcp {
                address: address.clone(),
            },
            (None, Some(path)) => api::ExportKind::NbdUnix {
                path: Some(std::path::absolute(path)?.to_string_lossy().into_owned()),
            },
            (None, None) => api::ExportKind::NbdUnix { path: None },
        })
    }
}

/// Runs a verb.
pub fn run(command: &ExportCommand, context: &Context) -> CliResult {
    let client = &context.client;
    let message = |outcome: &api::ExportOutcome| outcome.message.clone();
    match command {
        ExportCommand::Create(args) => {
            let request = api::CreateExport {
                array: args.name.clone(),
                kind: args.kind()?,
                for_attach: false,
            };
            let outcome: api::ExportOutcome = client.post(&["v1", "exports"], &request)?;
            context.print(&outcome, message)
        }
        ExportCommand::List => {
            let list: api::ExportList = client.get(&["v1", "exports"])?;
            context.print(&list, show::export_list)
        }
        ExportCommand::Show { id } => {
            let export: api::Export = client.get(&["v1", "exports", id])?;
            context.print(&export, show::export_detail)
        }
        ExportCommand::Remove { id, force } => {
            let outcome: api::ExportOutcome = client.delete(&["v1", "exports", id], *force)?;
            context.print(&outcome, message)
        }
    }
}
