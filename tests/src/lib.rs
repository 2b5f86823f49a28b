//! Harness of the end-to-end tests.
//!
//! A [`Daemon`] is the real program with its own socket, state, drives and cleaning up, so
//! that tests run beside each other. Tests speak to it as people and clients do: the command
//! line, NBD, mounted file systems. Nothing here shares code with what is tested: the NBD
//! client and the checkers are the harness's own.
//!
//! No test asserts a duration. Where something must happen, [`wait_until`] gives it far more
//! time than it needs, so that a hang becomes a failure.
#![forbid(unsafe_code)]

pub mod daemon;
pub mod drives;
pub mod ledger;
pub mod mounts;
pub mod nbd;
mod program;
pub mod proof;
pub mod recording;
pub mod superblock;
pub mod timeline;
pub mod tools;

pub use daemon::{Daemon, NbdAddress, Reply};

use std::time::{Duration, Instant};

/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;

/// A hang, not slowness: the slowest machine needs a fraction of this.
const WAIT_LIMIT: Duration = Duration::from_secs(180);

/// Looks until `done` holds. Panics with `what` when it never does.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < WAIT_LIMIT, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}
