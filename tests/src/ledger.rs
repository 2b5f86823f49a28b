//! A writer that survives crashes of the server and knows what may be on every block.
//!
//! Every write of a block carries a new version. After a crash a block must hold
//! - at least the version that was last known durable (a write with FUA that was answered, or
//!   one answered before a flush was sent that was answered), and, because only the process
//!   died and not the machine, at least the last version that was answered at all;
//! - at most the last version that was sent;
//! - and all of that version: no mixture, no other block's content.
//!
//! What is found then becomes the base: a version that was passed over may not come back.

use crate::daemon::NbdAddress;
use crate::nbd::{Client, Command, FLAG_FUA};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: usize = 4096;

/// Requests in flight.
const DEPTH: usize = 8;

/// Longest request in blocks: more than one stripe of the arrays under test.
const RUN_BLOCKS_MAX: usize = 96;

/// What is known of one block.
#[derive(Debug, Clone, Default)]
struct History {
    /// Found at the last check.
    base: u32,
    /// Sent since then, in order.
    sent: Vec<u32>,
    /// Answered.
    answered: u32,
    /// Answered and durable.
    durable: u32,
}

/// A request in flight.
enum Flight {
    Write {
        first: usize,
        blocks: usize,
        version: u32,
        durable: bool,
    },
    /// What was answered when it was sent.
    Flush(Vec<u32>),
}

/// Blocks of a range of a volume, with what may be on them.
pub struct Ledger {
    offset: u64,
    blocks: Vec<History>,
    next_version: u32,
    random: fastrand::Rng,
    seed: u64,
    answered_writes: u64,
}

impl Ledger {
    /// A range that has never been written.
    pub fn new(offset: u64, bytes: u64, seed: u64) -> Ledger {
        let count = usize::try_from(bytes).expect("fits memory") / BLOCK;
        Ledger {
            offset,
            blocks: vec![History::default(); count],
            next_version: 1,
            random: fastrand::Rng::with_seed(seed),
            seed,
            answered_writes: 0,
        }
    }

    /// Writes that were answered, in all.
    pub fn answered_writes(&self) -> u64 {
        self.answered_writes
    }

    /// Writes until told to stop or until the server is gone. True when it was told to stop.
    pub fn write_until(&mut self, address: &NbdAddress, stop: &AtomicBool) -> bool {
        let Ok(mut client) = Client::connect(&address.socket, &address.name) else {
            return false;
        };
        let mut flights: HashMap<u64, Flight> = HashMap::new();
        loop {
            while flights.len() < DEPTH && !stop.load(Ordering::Relaxed) {
                if self.send_one(&mut client, &mut flights).is_err() {
                    return false;
                }
            }
            if flights.is_empty() {
                return true;
            }
            let Ok((cookie, error)) = client.receive() else {
                return false;
            };
            let flight = flights.remove(&cookie).expect("a cookie that was sent");
            assert_eq!(error, 0, "a request failed on a healthy connection");
            self.land(flight);
        }
    }

    fn send_one(
        &mut self,
        client: &mut Client,
        flights: &mut HashMap<u64, Flight>,
    ) -> std::io::Result<()> {
        if self.random.u32(..16) == 0 {
            let answered = self.blocks.iter().map(|block| block.answered).collect();
            let cookie = client.send(Command::Flush, 0, 0, 0, &[])?;
            flights.insert(cookie, Flight::Flush(answered));
            return Ok(());
        }
        let (first, count) = self.choose(flights);
        let version = self.next_version;
        self.next_version += 1;
        let mut data = Vec::with_capacity(count * BLOCK);
        for block in first..first + count {
            self.blocks[block].sent.push(version);
            data.extend(content(self.seed, block, version));
        }
        let durable = self.random.u32(..4) == 0;
        let flags = if durable { FLAG_FUA } else { 0 };
        let offset = self.offset + (first * BLOCK) as u64;
        let length = u32::try_from(data.len()).expect("requests are small");
        let cookie = client.send(Command::Write, flags, offset, length, &data)?;
        flights.insert(
            cookie,
            Flight::Write {
                first,
                blocks: count,
                version,
                durable,
            },
        );
        Ok(())
    }

    /// A run of blocks that no request in flight touches: the order of those would be open.
    fn choose(&mut self, flights: &HashMap<u64, Flight>) -> (usize, usize) {
        loop {
            // Mostly short, sometimes across whole stripes.
            let longest = *self
                .random
                .choice(&[1, 1, 2, 8, 16, RUN_BLOCKS_MAX])
                .expect("not empty");
            let count = self.random.usize(1..=longest);
            let first = self.random.usize(..self.blocks.len() - count);
            let free = flights.values().all(|flight| match flight {
                Flight::Write {
                    first: other,
                    blocks,
                    ..
                } => first + count <= *other || other + blocks <= first,
                Flight::Flush(_) => true,
            });
            if free {
                return (first, count);
            }
        }
    }

    fn land(&mut self, flight: Flight) {
        match flight {
            Flight::Write {
                first,
                blocks,
                version,
                durable,
            } => {
                self.answered_writes += 1;
                for block in &mut self.blocks[first..first + blocks] {
                    block.answered = version;
                    if durable {
                        block.durable = version;
                    }
                }
            }
            Flight::Flush(answered) => {
                for (block, answered) in self.blocks.iter_mut().zip(answered) {
                    block.durable = block.durable.max(answered);
                }
            }
        }
    }

    /// Reads every block. Panics at the first that holds what it may not hold.
    pub fn check(&mut self, client: &mut Client) {
        const STEP: usize = 256;
        for first in (0..self.blocks.len()).step_by(STEP) {
            let count = STEP.min(self.blocks.len() - first);
            let data = client.read(self.offset + (first * BLOCK) as u64, count * BLOCK);
            for (index, bytes) in data.chunks_exact(BLOCK).enumerate() {
                self.check_block(first + index, bytes);
            }
        }
    }

    /// As `check` where members were lost with the crash: a block that was being written may read
    /// as an error. Shows the offsets of those to `errors`, then writes them with zeroes, so that
    /// they are whole again. Returns how many there were.
    pub fn check_after_loss(&mut self, client: &mut Client, errors: impl FnOnce(&[u64])) -> usize {
        let mut lost = Vec::new();
        for index in 0..self.blocks.len() {
            let offset = self.offset + (index * BLOCK) as u64;
            match client.try_read(offset, BLOCK).expect("the server answers") {
                Ok(bytes) => self.check_block(index, &bytes),
                Err(error) => {
                    self.check_error(index, error);
                    lost.push(offset);
                }
            }
        }
        errors(&lost);
        for offset in &lost {
            client.write(*offset, &[0; BLOCK]);
        }
        client.flush();
        lost.len()
    }

    /// Only what was being written may read as an error.
    fn check_error(&mut self, index: usize, error: u32) {
        let block = &self.blocks[index];
        assert!(
            block.sent.last() > Some(&block.answered),
            "block {index} (offset {}), seed {}, reads as error {error} and was not being written: \
             {block:?}",
            self.offset + (index * BLOCK) as u64,
            self.seed
        );
        self.blocks[index] = History::default();
    }

    fn check_block(&mut self, index: usize, bytes: &[u8]) {
        let found = version_of(bytes);
        let block = &mut self.blocks[index];
        let place = format!(
            "block {index} (offset {}), seed {}: {block:?}",
            self.offset + (index * BLOCK) as u64,
            self.seed
        );
        assert!(
            bytes == content(self.seed, index, found),
            "holds something that was never written there: {place}"
        );
        assert!(
            found == block.base || block.sent.contains(&found),
            "version {found} should not be there any more: {place}"
        );
        assert!(
            found >= block.durable,
            "a durable write was lost, version {found} is there: {place}"
        );
        assert!(
            found >= block.answered,
            "an answered write was lost though only the process died, version {found} is there: \
             {place}"
        );
        *block = History {
            base: found,
            sent: Vec::new(),
            answered: found,
            durable: found,
        };
    }
}

fn version_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

/// Version, place, then bytes that follow from both; version 0 is a block never written.
fn content(seed: u64, block: usize, version: u32) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    if version == 0 {
        return bytes;
    }
    let mixed = seed ^ (block as u64) << 32 ^ u64::from(version).wrapping_mul(0x9e37_79b9);
    fastrand::Rng::with_seed(mixed).fill(&mut bytes[12..]);
    bytes[..4].copy_from_slice(&version.to_le_bytes());
    bytes[4..12].copy_from_slice(&(block as u64).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new(0, 4 * BLOCK as u64, 7);
        // Version 1 durable, 2 answered, 3 in flight on block 0.
        ledger.blocks[0] = History {
            base: 0,
            sent: vec![1, 2, 3],
            answered: 2,
            durable: 1,
        };
        ledger
    }

    #[test]
    fn the_answered_and_the_version_in_flight_may_be_there() {
        for version in [2, 3] {
            ledger().check_block(0, &content(7, 0, version));
        }
    }

    #[test]
    #[should_panic(expected = "an answered write was lost")]
    fn an_older_version_than_the_answered_is_a_loss() {
        ledger().check_block(0, &content(7, 0, 1));
    }

    #[test]
    #[should_panic(expected = "a durable write was lost")]
    fn zeroes_in_place_of_a_durable_write_are_a_loss() {
        ledger().check_block(0, &content(7, 0, 0));
    }

    #[test]
    #[should_panic(expected = "never written there")]
    fn a_mixture_of_two_versions_is_corruption() {
        let mut bytes = content(7, 0, 3);
        bytes[2048..].copy_from_slice(&content(7, 0, 2)[2048..]);
        ledger().check_block(0, &bytes);
    }

    #[test]
    #[should_panic(expected = "was not being written")]
    fn an_error_for_an_answered_block_is_a_loss() {
        let mut ledger = ledger();
        ledger.check_error(0, 5);
        ledger.blocks[1].sent = vec![4];
        ledger.blocks[1].answered = 4;
        ledger.check_error(1, 5);
    }

    #[test]
    #[should_panic(expected = "should not be there any more")]
    fn a_version_that_was_passed_over_may_not_come_back() {
        let mut ledger = ledger();
        ledger.check_block(0, &content(7, 0, 2));
        ledger.check_block(0, &content(7, 0, 3));
    }
}
