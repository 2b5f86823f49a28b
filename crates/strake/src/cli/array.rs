//! `strake array`.

use super::progress::{self, Goal};
use super::show;
use super::{CliResult, Context};
use crate::drives::{absolute, absolute_member};
use crate::size;
use clap::{Args, Subcommand};
use strake_api as api;

/// Verbs on arrays. NAME may be a UUID everywhere; MEMBER is an index or the drive's path.
#[derive(Debug, Subcommand)]
pub enum ArrayCommand {
    /// Make an array of drives and start it
    Create(CreateArgs),
    /// List the arrays that this host knows
    List,
    /// Show everything about an array
    Show {
        /// Name or UUID
        name: String,
    },
    /// Drop a member
    Fail(MemberArgs),
    /// Take a member out of its place
    Remove(MemberArgs),
    /// Put a drive into a place and rebuild it
    Replace(ReplaceArgs),
    /// Stop an array cleanly; it stays stopped until it is started
    Stop {
        /// Name or UUID
        name: String,
        /// Also while clients use its exports
        #[arg(long)]
        force: bool,
    },
    /// Start a stopped or offline array; its exports return
    Start {
        /// Name or UUID
        name: String,
        /// Although members are missing that may hold newer data
        #[arg(long)]
        force: bool,
        /// Serve reads only and change nothing on the drives
        #[arg(long)]
        read_only: bool,
    },
    /// Start an array from what its drives say; without NAME, list what could be imported
    Import(ImportArgs),
    /// Erase an array; all its data is lost
    Destroy {
        /// Name or UUID
        name: String,
        /// Yes, lose the data
        #[arg(long)]
        force: bool,
    },
    /// Read everything and check that parity holds
    Scrub(ScrubArgs),
    /// Wait until rebuild, resync and scrub have ended
    Wait {
        /// Name or UUID
        name: String,
    },
    /// Change settings
    Set(SetArgs),
    /// List the blocks that read as errors, and how to heal them
    Torn {
        /// Name or UUID
        name: String,
    },
    /// Serve suspect blocks as they are, whatever they hold
    Accept {
        /// Name or UUID
        name: String,
        /// Yes, their content may be wrong
        #[arg(long)]
        force: bool,
    },
}

/// Options of create.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name: 1 to 48 of letters, digits, `-`, `_`, `.`
    pub name: String,
    /// 0, 1, 5, 6, 7.3, 10, 50, 60, 70 or n+m
    #[arg(long, value_name = "L")]
    pub level: api::Level,
    /// Drives in the order of their places; cache=none:DRIVE or cache=volatile:DRIVE where the kernel
    /// is wrong about a drive's write cache
    #[arg(long, value_name = "D", num_args = 1.., required = true)]
    pub drives: Vec<String>,
    /// Bytes of a stripe on one member, a power of two [default: 64KiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub strip_size: Option<u64>,
    /// Smallest addressable unit, 512 or 4096 [default: 4096]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_u32)]
    pub block_size: Option<u32>,
    /// Members of one group (levels 50, 60, 70)
    #[arg(long, value_name = "N")]
    pub group_size: Option<u16>,
    /// Parities (level n+m)
    #[arg(long, value_name = "M")]
    pub parity: Option<u16>,
    /// Copies of each block (level 10) [default: 2]
    #[arg(long, value_name = "C")]
    pub copies: Option<u16>,
    /// What keeps parity true over a crash: log, log-all, resync or none [default: log; none for
    /// level 0]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<api::Policy>,
    /// Parity log of each member [default: 1/64 of the smallest drive, at most 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub log_size: Option<u64>,
    /// Destroy what is on the drives (never a drive in use)
    #[arg(long)]
    pub force: bool,
}

/// Options of set.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Name or UUID
    pub name: String,
    /// How much a rebuild (resync, scrub) may take while clients are busy, 1 to 100: at 50 it has three
    /// stripes under way, at 100 sixteen; below 32 one, with pauses
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100), required_unless_present = "policy")]
    pub rebuild_priority: Option<u8>,
    /// What keeps parity true over a crash: log, log-all, resync or none
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<api::Policy>,
}

/// Options of fail and remove.
#[derive(Debug, Args)]
pub struct MemberArgs {
    /// Name or UUID of the array
    pub name: String,
    /// Index, or the drive's path
    pub member: String,
    /// Although the level does not survive it
    #[arg(long)]
    pub force: bool,
}

/// Options of replace.
#[derive(Debug, Args)]
pub struct ReplaceArgs {
    /// Name or UUID of the array
    pub name: String,
    /// Index, or the path of the drive that is or was there
    pub member: String,
    /// The new drive
    pub drive: String,
    /// Destroy what is on the new drive
    #[arg(long)]
    pub force: bool,
    /// Wait for the end of the rebuild
    #[arg(long)]
    pub wait: bool,
}

/// Options of import.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Name or UUID; without it, arrays are listed and none is started
    #[arg(value_name = "NAME|UUID")]
    pub name: Option<String>,
    /// Drives to look at besides those of this host
    #[arg(long, value_name = "D", num_args = 1..)]
    pub drives: Vec<String>,
    /// Rename the array
    #[arg(long = "name", value_name = "NEW", requires = "name")]
    pub new_name: Option<String>,
    /// Serve reads only and change nothing on the drives
    #[arg(long, requires = "name")]
    pub read_only: bool,
    /// Although members are missing that may hold newer data, or another host owns it
    #[arg(long, requires = "name")]
    pub force: bool,
}

/// Options of scrub.
#[derive(Debug, Args)]
pub struct ScrubArgs {
    /// Name or UUID
    pub name: String,
    /// Rewrite parity that does not hold
    #[arg(long)]
    pub repair: bool,
    /// Wait for its end
    #[arg(long)]
    pub wait: bool,
    /// End the running scrub
    #[arg(long, conflicts_with_all = ["repair", "wait"])]
    pub stop: bool,
}

/// Runs a verb.
pub fn run(command: &ArrayCommand, context: &Context) -> CliResult {
    let client = &context.client;
    match command {
        ArrayCommand::Create(args) => {
            let outcome: api::ArrayOutcome =
                client.post(&["v1", "arrays"], &create_request(args))?;
            context.print(&outcome, show::created)
        }
        ArrayCommand::List => {
            let list: api::ArrayList = client.get(&["v1", "arrays"])?;
            context.print(&list, show::array_list)
        }
        ArrayCommand::Show { name } => {
            let detail: api::ArrayDetail = client.get(&["v1", "arrays", name])?;
            context.print(&detail, show::array_detail)
        }
        ArrayCommand::Fail(args) => member(context, args, "fail"),
        ArrayCommand::Remove(args) => member(context, args, "remove"),
        ArrayCommand::Replace(args) => replace(context, args),
        ArrayCommand::Stop { name, force } => {
            let request = api::StopArray { force: *force };
            act(context, name, "stop", &request)
        }
        ArrayCommand::Start {
            name,
            force,
            read_only,
        } => {
            let request = api::StartArray {
                force: *force,
                read_only: *read_only,
            };
            act(context, name, "start", &request)
        }
        ArrayCommand::Import(args) => import(context, args),
        ArrayCommand::Destroy { name, force } => {
            let outcome: api::Outcome = client.delete(&["v1", "arrays", name], *force)?;
            context.print(&outcome, |outcome| outcome.message.clone())
        }
        ArrayCommand::Scrub(args) => scrub(context, args),
        ArrayCommand::Wait { name } => {
            let detail = progress::wait(client, name)?;
            let verdict = progress::verdict(&detail, Goal::All);
            context.print(&detail, |detail| match &verdict {
                Ok(text) => text.clone(),
                Err(_) => show::headline(detail),
            })?;
            verdict.map(drop)
        }
        ArrayCommand::Set(args) => {
            let request = api::SetArray {
                rebuild_priority_percent: args.rebuild_priority,
                policy: args.policy,
            };
            let path = ["v1", "arrays", &args.name];
            let outcome: api::ArrayOutcome = client.patch(&path, &request)?;
            context.print(&outcome, message)
        }
        ArrayCommand::Torn { name } => {
            let list: api::TornList = client.get(&["v1", "arrays", name, "torn"])?;
            context.print(&list, show::torn_list)
        }
        ArrayCommand::Accept { name, force } => {
            let request = api::AcceptSuspect { force: *force };
            act(context, name, "accept", &request)
        }
    }
}

fn message(outcome: &api::ArrayOutcome) -> String {
    outcome.message.clone()
}

fn create_request(args: &CreateArgs) -> api::CreateArray {
    api::CreateArray {
        name: args.name.clone(),
        level: args.level,
        drives: args.drives.iter().map(|drive| absolute(drive)).collect(),
        strip_size_bytes: args.strip_size,
        block_size_bytes: args.block_size,
        group_size: args.group_size,
        parity: args.parity,
        copies: args.copies,
        policy: args.policy,
        log_size_bytes: args.log_size,
        force: args.force,
    }
}

/// A verb whose answer is one line.
fn act(context: &Context, name: &str, verb: &str, request: &impl serde::Serialize) -> CliResult {
    let path = ["v1", "arrays", name, verb];
    let outcome: api::ArrayOutcome = context.client.post(&path, request)?;
    context.print(&outcome, message)
}

fn member(context: &Context, args: &MemberArgs, verb: &str) -> CliResult {
    let request = api::MemberRequest {
        member: absolute_member(&args.member),
        force: args.force,
    };
    act(context, &args.name, verb, &request)
}

fn replace(context: &Context, args: &ReplaceArgs) -> CliResult {
    let request = api::ReplaceMember {
        member: absolute_member(&args.member),
        drive: absolute(&args.drive),
        force: args.force,
    };
    let path = ["v1", "arrays", &args.name, "replace"];
    let outcome: api::ArrayOutcome = context.client.post(&path, &request)?;
    if !args.wait {
        return context.print(&outcome, message);
    }
    let key = crate::drives::key(&args.drive);
    let holds = |member: &&api::Member| {
        member.path.as_deref().map(crate::drives::key).as_ref() == Some(&key)
    };
    let goal = match outcome.array.members.iter().find(holds) {
        Some(member) => Goal::Member(member.index),
        None => Goal::All,
    };
    finish(context, outcome, goal)
}

fn scrub(context: &Context, args: &ScrubArgs) -> CliResult {
    let request = api::Scrub {
        repair: args.repair,
        stop: args.stop,
    };
    let path = ["v1", "arrays", &args.name, "scrub"];
    let outcome: api::ArrayOutcome = context.client.post(&path, &request)?;
    match args.wait {
        true => finish(context, outcome, Goal::Scrub),
        false => context.print(&outcome, message),
    }
}

/// Waits for the work that a command has started, and answers with how it ended.
fn finish(context: &Context, mut outcome: api::ArrayOutcome, goal: Goal) -> CliResult {
    if !context.json {
        context.print(&outcome, message)?;
    }
    let uuid = outcome.array.uuid.to_string();
    outcome.array = progress::wait_for(&context.client, &uuid, goal)?;
    let verdict = progress::verdict(&outcome.array, goal);
    match &verdict {
        Ok(text) => outcome.message = text.clone(),
        Err(error) => outcome.message = error.to_string(),
    }
    if context.json || verdict.is_ok() {
        context.print(&outcome, message)?;
    }
    verdict.map(drop)
}

fn import(context: &Context, args: &ImportArgs) -> CliResult {
    let drives: Vec<String> = args.drives.iter().map(|drive| absolute(drive)).collect();
    let Some(name) = &args.name else {
        let request = api::ScanRequest { drives };
        let found: api::ScanResult = context.client.post(&["v1", "arrays", "scan"], &request)?;
        return context.print(&found, show::scan);
    };
    let request = api::ImportArray {
        array: name.clone(),
        drives,
        new_name: args.new_name.clone(),
        read_only: args.read_only,
        force: args.force,
    };
    let path = ["v1", "arrays", "import"];
    let outcome: api::ArrayOutcome = context.client.post(&path, &request)?;
    context.print(&outcome, show::created)
}
