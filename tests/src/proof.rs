//! What the proofs of crash safety share: how many rounds, from which seed, and what an array
//! itself says of blocks that it lost.

use crate::{Daemon, program};
use std::ops::Range;

/// The number in an environment variable, if it is set. Panics where it is no number.
pub fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// The seed of a test: its own, or `STRAKE_SEED`.
pub fn seed(own: u64) -> u64 {
    number_from("STRAKE_SEED").unwrap_or(own)
}

/// Words of `array create` for arrays that keep a parity log; none where this program has none.
/// `log_size` makes the log small enough to come round.
pub fn log_words(log_size: &'static str) -> Vec<&'static str> {
    match log_exists() {
        true => vec!["--policy", "log", "--log-size", log_size],
        false => Vec::new(),
    }
}

/// Whether arrays can be made with a parity log.
pub fn log_exists() -> bool {
    let help = std::process::Command::new(program::strake())
        .args(["array", "create", "--help"])
        .output()
        .expect("the program starts");
    String::from_utf8_lossy(&help.stdout).contains("--policy")
}

/// Panics with `what` unless the array lists every block that read as an error; `errors` are
/// offsets in the volume.
#[track_caller]
pub fn errors_are_listed(daemon: &Daemon, array: &str, errors: &[u64], what: &str) {
    if errors.is_empty() {
        return;
    }
    let listed = torn_ranges(daemon, array);
    for offset in errors {
        assert!(
            listed.iter().any(|range| range.contains(offset)),
            "{what}: {offset} reads as an error and is not listed as torn: {listed:?}"
        );
    }
}

/// Panics with `what` unless nothing of the volume is listed as torn or suspect.
#[track_caller]
pub fn nothing_is_torn(daemon: &Daemon, array: &str, what: &str) {
    if log_exists() {
        let listed = torn_ranges(daemon, array);
        assert!(listed.is_empty(), "{what}: still listed: {listed:?}");
    }
}

/// What of the volume reads as errors, as the array lists it.
pub fn torn_ranges(daemon: &Daemon, array: &str) -> Vec<Range<u64>> {
    let list = daemon.ok(["array", "torn", array]);
    let extents = list["extents"].as_array().expect("a list of extents");
    let ranges = extents.iter().flat_map(|extent| {
        let volume = extent["volume"].as_array();
        volume.expect("ranges of the volume").iter()
    });
    ranges
        .map(|range| {
            let number = |field: &str| range[field].as_u64().expect("a number");
            let start = number("offset_bytes");
            start..start + number("length_bytes")
        })
        .collect()
}
