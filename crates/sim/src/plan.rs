//! What a run does, written down before it begins: an array and a list of steps with all their
//! parameters. A plan is text, one step a line, so that one that failed can be kept as a test.
//!
//! A step that makes no sense where it comes (a loss that the level would not survive, a block
//! behind the volume's end) is left out or bent when the plan is carried out, so any part of a plan
//! is a plan.

use std::fmt;
use std::str::FromStr;

use strake_engine::format::superblock::Consistency;
use strake_engine::layout::{Level, Shape};

use crate::drive::Discarded;
use crate::import::Sizes;
use crate::rig::Setup;

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident $verb:literal { $($field:ident: $type:ty),* })*) => {
        /// One step. Places, blocks and codes are taken modulo what there is.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs)] // the fields of a step are explained with it
        pub enum Step {
            $($(#[$doc])* $name { $($field: $type),* },)*
        }

        impl fmt::Display for Step {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Step::$name { $($field),* } => {
                        f.write_str($verb)?;
                        $(write!(f, " {}={}", stringify!($field), $field)?;)*
                        Ok(())
                    })*
                }
            }
        }

        impl FromStr for Step {
            type Err = String;

            fn from_str(line: &str) -> Result<Step, String> {
                let words = Words::of(line);
                match words.verb {
                    $($verb => Ok(Step::$name { $($field: words.get(stringify!($field))?),* }),)*
                    other => Err(format!("no step is called {other:?}")),
                }
            }
        }
    };
}

steps! {
    /// Write blocks; `durable`: forced unit access.
    Write "write" { start: u64, count: u64, durable: bool }
    /// Read blocks.
    Read "read" { start: u64, count: u64 }
    /// Zero blocks.
    Zero "zero" { start: u64, count: u64, durable: bool }
    /// Discard blocks.
    Discard "discard" { start: u64, count: u64 }
    /// Flush.
    Flush "flush" {}
    /// Let so many events happen.
    Run "run" { events: u64 }
    /// Wait for the requests.
    Quiesce "quiesce" {}
    /// Wait for the commands.
    Settle "settle" {}
    /// Let time pass.
    Idle "idle" { ms: u64 }
    /// Read and compare everything of interest.
    Verify "verify" {}
    /// Drop a member.
    Fail "fail" { place: u64 }
    /// Remove a member.
    Remove "remove" { place: u64 }
    /// Put a fresh drive in an empty place; it may die after so many operations (0: not). `keep`:
    /// the old drive stays plugged in.
    Replace "replace" { place: u64, dies_after: u64, keep: bool }
    /// Start a scrub.
    Scrub "scrub" { repair: bool }
    /// End a scrub.
    StopScrub "stop-scrub" {}
    /// Share of long work.
    Priority "priority" { percent: u8 }
    /// Change the policy: 0 none, 1 resync, 2 log, 3 log-all.
    Policy "policy" { code: u8 }
    /// Accept suspect blocks as they are.
    Accept "accept" {}
    /// A drive dies after so many operations (0: now). `gone`: it is pulled, else it answers with
    /// errors.
    Die "die" { place: u64, after: u64, gone: bool }
    /// Bytes of a drive cannot be read until they are written.
    BadReads "bad-reads" { place: u64, offset: u64, length: u64 }
    /// Bytes of a drive's log cannot be read until they are written.
    BadLog "bad-log" { place: u64, offset: u64, length: u64 }
    /// A record of a drive's log rots, one that a later record says must be there.
    RotLog "rot-log" { place: u64, pick: u64 }
    /// Bytes of a drive cannot be written.
    BadWrites "bad-writes" { place: u64, offset: u64, length: u64 }
    /// Bytes of a drive change.
    Rot "rot" { place: u64, offset: u64, length: u64 }
    /// The next write that begins in this range is lost.
    LoseWrite "lose-write" { place: u64, offset: u64, length: u64 }
    /// The next write that begins in this range goes `by` bytes behind its place.
    Misdirect "misdirect" { place: u64, offset: u64, length: u64, by: u64 }
    /// Until the next start reads that begin in this range return what is `by` bytes behind.
    Misread "misread" { place: u64, offset: u64, length: u64, by: u64 }
    /// After so many operations none ends on this drive until the program is gone.
    Hang "hang" { place: u64, after: u64 }
    /// A drive becomes slower.
    Slow "slow" { place: u64, factor: u64 }
    /// Reads of a drive take longer.
    SlowReads "slow-reads" { place: u64, factor: u64 }
    /// Writes that begin in this range of a drive take longer.
    SlowWrites "slow-writes" { place: u64, offset: u64, length: u64, factor: u64 }
    /// Stop and start. `back`: drives that were pulled are there again.
    Restart "restart" { back: bool }
    /// The program is gone, with `power` the drives' caches too; start again. `lose`: places whose
    /// drives are pulled meanwhile, as far as the level allows. `back` as for a restart.
    Crash "crash" { power: bool, lose: u64, back: bool }
    /// A copy of a member's drive is plugged in at a start: refused while it is there.
    Clone "clone" { place: u64 }
    /// A copy of a member's drive is made now, and plugged in at the next crash: refused as well.
    Copy "copy" { place: u64 }
    /// More members of a group die than the level survives: from now on errors are answers.
    TooMany "too-many" { group: u64 }
    /// All faults end, every place gets a drive that works; then everything must hold.
    Heal "heal" {}
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Of latencies and of what lands at a crash.
    pub seed: u64,
    /// The array.
    pub setup: Setup,
    /// What is done.
    pub steps: Vec<Step>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup {
            shape,
            sizes,
            policy,
            sector_bytes,
            volatile,
            discarded,
            slowness,
            orderly,
            memory_bytes,
            cores,
        } = &self.setup;
        writeln!(
            f,
            "array seed={} level={} groups={} data={} parity={} strip={} block={} regions={} region={} log={} policy={} sector={sector_bytes} volatile={volatile} discarded={} slowness={slowness} orderly={orderly} memory={memory_bytes} cores={cores}",
            self.seed,
            shape.level.name(),
            shape.groups,
            shape.data,
            shape.parity,
            shape.strip_size_bytes,
            shape.block_size_bytes,
            sizes.regions,
            sizes.region_bytes,
            sizes.log_bytes,
            *policy as u8,
            *discarded as u8,
        )?;
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Plan, String> {
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or(""));
        let mut lines = lines.map(str::trim).filter(|line| !line.is_empty());
        let first = lines.next().ok_or("a plan begins with its array")?;
        let words = Words::of(first);
        if words.verb != "array" {
            return Err(format!(
                "a plan begins with \"array\", not {:?}",
                words.verb
            ));
        }
        let level = words.text("level")?;
        let setup = Setup {
            shape: Shape {
                level: Level::parse(level).ok_or(format!("no level {level:?}"))?,
                groups: words.get("groups")?,
                data: words.get("data")?,
                parity: words.get("parity")?,
                strip_size_bytes: words.get("strip")?,
                block_size_bytes: words.get("block")?,
            },
            sizes: Sizes {
                regions: words.get("regions")?,
                region_bytes: words.get("region")?,
                log_bytes: words.get("log")?,
            },
            policy: policy(words.get("policy")?),
            sector_bytes: words.get("sector")?,
            volatile: words.get("volatile")?,
            discarded: discarded(words.get("discarded")?),
            slowness: words.get("slowness")?,
            orderly: words.get("orderly")?,
            memory_bytes: words.get("memory")?,
            // Plans that were kept before there could be several say nothing of them.
            cores: words.text("cores").map_or(Ok(1), |_| words.get("cores"))?,
        };
        Ok(Plan {
            seed: words.get("seed")?,
            setup,
            steps: lines.map(str::parse).collect::<Result<_, _>>()?,
        })
    }
}

/// The policy of a code, modulo the number of policies.
pub fn policy(code: u8) -> Consistency {
    [
        Consistency::None,
        Consistency::Resync,
        Consistency::Log,
        Consistency::LogAll,
    ][usize::from(code % 4)]
}

fn discarded(code: u8) -> Discarded {
    [Discarded::Old, Discarded::Zeroes, Discarded::Garbage][usize::from(code % 3)]
}

/// `verb key=value key=value`.
struct Words<'a> {
    verb: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Words<'a> {
        let mut words = line.split_whitespace();
        Words {
            verb: words.next().unwrap_or(""),
            pairs: words.filter_map(|word| word.split_once('=')).collect(),
        }
    }

    fn text(&self, key: &str) -> Result<&'a str, String> {
        let pair = self.pairs.iter().find(|(name, _)| *name == key);
        let pair = pair.ok_or_else(|| format!("{}: {key}= is missing", self.verb))?;
        Ok(pair.1)
    }

    fn get<T: FromStr>(&self, key: &str) -> Result<T, String> {
        let text = self.text(key)?;
        text.parse()
            .map_err(|_| format!("{}: {key}={text} is not a value", self.verb))
    }
}

#[cfg(test)]
mod tests;
