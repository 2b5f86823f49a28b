//! A writer that knows when each of its writes was sent, answered and durable, so that what may
//! be on every block after a power cut at any moment can be said afterwards.
//!
//! Moments are those of [`crate::recording`]: lengths of the record, read before a request is
//! sent and after it was answered. For a cut at a moment, a block holds
//! - its last version that was durable by then (answered with FUA; answered before a flush was
//!   sent that was answered; answered at all, where drives have no volatile cache),
//! - or a later one that was sent by then;
//! - or, if there is such a later one, an error may stand in their place.
//!
//! Requests in flight never overlap, so the versions of a block have one order.

use crate::daemon::NbdAddress;
use crate::nbd::{Client, Command, FLAG_FUA};
use std::collections::HashMap;

/// Requests in flight.
const DEPTH: usize = 8;
/// Smallest piece that a drive may write of a block.
const SECTOR: usize = 512;

/// One content of one block.
#[derive(Debug, Clone, Copy)]
struct Version {
    /// 0: zeroes.
    number: u32,
    sent: u64,
    durable: Option<u64>,
}

/// A request in flight: blocks and version, or a flush.
enum Flight {
    Write {
        first: usize,
        count: usize,
        durable: bool,
    },
    /// For each block how many of its versions had been answered when it was sent.
    Flush(Vec<usize>),
}

/// Blocks of a range of a volume with all that was ever written to them.
pub struct Timeline {
    offset: u64,
    block_bytes: usize,
    /// The first version is the zeroes of the start.
    blocks: Vec<Vec<Version>>,
    /// How many versions of a block were answered, by block.
    answered: Vec<usize>,
    /// An answered write is durable.
    write_through: bool,
    next_number: u32,
    random: fastrand::Rng,
    seed: u64,
}

/// What a check found on the blocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Found {
    /// Blocks that were not their last durable version.
    pub newer: usize,
    /// Blocks that read as an error.
    pub errors: usize,
    /// Blocks of sectors of several versions.
    pub mixed: usize,
}

/// What a check is of.
#[derive(Debug, Clone, Copy)]
pub struct CutAt {
    /// When the power went.
    pub moment: u64,
    /// Drives may have written sectors of a block and not others.
    pub sectors_tear: bool,
}

impl Timeline {
    /// A range that has never been written; `offset` and `bytes` are multiples of the block.
    pub fn new(offset: u64, bytes: u64, block_bytes: usize, seed: u64) -> Timeline {
        let zeroes = Version {
            number: 0,
            sent: 0,
            durable: Some(0),
        };
        let count = bytes as usize / block_bytes;
        Timeline {
            offset,
            block_bytes,
            blocks: vec![vec![zeroes]; count],
            answered: vec![1; count],
            write_through: false,
            next_number: 1,
            random: fastrand::Rng::with_seed(seed),
            seed,
        }
    }

    /// From now on an answered write is durable: no drive has a volatile cache.
    pub fn set_write_through(&mut self) {
        self.write_through = true;
    }

    /// Sends `requests` and waits for all answers; none may fail. `now` tells the moment.
    pub fn write(&mut self, address: &NbdAddress, requests: usize, now: &dyn Fn() -> u64) {
        let mut client = address.connect();
        let mut flights: HashMap<u64, Flight> = HashMap::new();
        let mut left = requests;
        while left > 0 || !flights.is_empty() {
            while left > 0 && flights.len() < DEPTH {
                let sent = self.send_one(&mut client, &mut flights, now());
                sent.expect("the server listens");
                left -= 1;
            }
            let (cookie, error) = client.receive().expect("the server answers");
            assert_eq!(error, 0, "a request failed (seed {})", self.seed);
            let flight = flights.remove(&cookie).expect("a cookie that was sent");
            self.land(flight, now());
        }
    }

    fn send_one(
        &mut self,
        client: &mut Client,
        flights: &mut HashMap<u64, Flight>,
        now: u64,
    ) -> std::io::Result<()> {
        if self.random.u32(..16) == 0 {
            let cookie = client.send(Command::Flush, 0, 0, 0, &[])?;
            flights.insert(cookie, Flight::Flush(self.answered.clone()));
            return Ok(());
        }
        let (first, count) = self.choose(flights);
        let zeroes = self.random.u32(..12) == 0;
        let number = if zeroes { 0 } else { self.next_number };
        self.next_number += u32::from(!zeroes);
        let mut data = Vec::new();
        for block in first..first + count {
            self.blocks[block].push(Version {
                number,
                sent: now,
                durable: None,
            });
            if !zeroes {
                data.extend(self.content(block, number));
            }
        }
        let durable = self.random.u32(..4) == 0;
        let flags = if durable { FLAG_FUA } else { 0 };
        let command = if zeroes {
            Command::WriteZeroes
        } else {
            Command::Write
        };
        let offset = self.offset + (first * self.block_bytes) as u64;
        let length = u32::try_from(count * self.block_bytes).expect("requests are small");
        let cookie = client.send(command, flags, offset, length, &data)?;
        let durable = durable || self.write_through;
        let flight = Flight::Write {
            first,
            count,
            durable,
        };
        flights.insert(cookie, flight);
        Ok(())
    }

    /// A run of blocks that no request in flight touches, often beside or over recent ones.
    fn choose(&mut self, flights: &HashMap<u64, Flight>) -> (usize, usize) {
        let scale = 4096 / self.block_bytes;
        loop {
            let longest = self.random.choice([1, 1, 1, 2, 8, 24, 64]);
            let longest = longest.expect("not empty") * scale;
            let count = self.random.usize(1..=longest);
            // Half of the writes meet in an eighth of the range: rows written again and again.
            let range = self.blocks.len() - count;
            let range = range >> (3 * self.random.u32(..2));
            let first = self.random.usize(..range);
            let free = flights.values().all(|flight| match flight {
                Flight::Write {
                    first: other,
                    count: others,
                    ..
                } => first + count <= *other || other + others <= first,
                Flight::Flush(_) => true,
            });
            if free {
                return (first, count);
            }
        }
    }

    fn land(&mut self, flight: Flight, now: u64) {
        match flight {
            Flight::Write {
                first,
                count,
                durable,
            } => {
                for block in first..first + count {
                    let versions = &mut self.blocks[block];
                    self.answered[block] = versions.len();
                    let last = versions.last_mut().expect("was pushed when sent");
                    last.durable = durable.then_some(now);
                }
            }
            Flight::Flush(answered) => {
                for (versions, answered) in self.blocks.iter_mut().zip(answered) {
                    let last = &mut versions[answered - 1];
                    last.durable = last.durable.or(Some(now));
                }
            }
        }
    }

    /// Reads every block after a power cut and compares. Panics with `what` at the first that
    /// holds what it may not hold. Afterwards a timeline of one moment, whose blocks hold exactly
    /// what was found (an error counts as the last durable version and is not known).
    pub fn check(&self, client: &mut Client, cut: CutAt, what: &str) -> (Found, Contents) {
        let mut found = Found::default();
        let mut contents = Contents {
            offset: self.offset,
            blocks: Vec::with_capacity(self.blocks.len()),
        };
        let step = (1 << 20) / self.block_bytes;
        for first in (0..self.blocks.len()).step_by(step) {
            let count = step.min(self.blocks.len() - first);
            for (index, bytes) in self.read(client, first, count).into_iter().enumerate() {
                self.check_block(first + index, bytes.as_deref(), cut, what, &mut found);
                contents.blocks.push(bytes);
            }
        }
        (found, contents)
    }

    /// Blocks, `None` for one that reads as an error.
    fn read(&self, client: &mut Client, first: usize, count: usize) -> Vec<Option<Vec<u8>>> {
        let offset = self.offset + (first * self.block_bytes) as u64;
        read_blocks(client, offset, self.block_bytes, count)
    }

    fn check_block(
        &self,
        index: usize,
        bytes: Option<&[u8]>,
        cut: CutAt,
        what: &str,
        found: &mut Found,
    ) {
        let allowed = self.allowed(index, cut.moment);
        let place = || {
            format!(
                "{what}: block {index} (offset {}, {} bytes) at moment {}: allowed {allowed:?}, of {:?}",
                self.offset + (index * self.block_bytes) as u64,
                self.block_bytes,
                cut.moment,
                self.blocks[index]
            )
        };
        let Some(bytes) = bytes else {
            found.errors += 1;
            assert!(
                allowed.len() > 1,
                "an error for a durable block: {}",
                place()
            );
            return;
        };
        let contents: Vec<Vec<u8>> = allowed
            .iter()
            .map(|number| self.content(index, *number))
            .collect();
        if let Some(at) = contents.iter().position(|content| content == bytes) {
            found.newer += usize::from(at > 0);
            return;
        }
        let mixture = bytes.chunks(SECTOR).enumerate().all(|(sector, bytes)| {
            let at = sector * SECTOR;
            let of = |content: &Vec<u8>| content[at..at + SECTOR] == *bytes;
            contents.iter().any(of)
        });
        found.mixed += 1;
        assert!(
            mixture && cut.sectors_tear && allowed.len() > 1,
            "holds {}: {}",
            self.describe(index, bytes, mixture),
            place()
        );
    }

    /// Version numbers that a block may hold; the first is the durable one.
    fn allowed(&self, index: usize, moment: u64) -> Vec<u32> {
        let versions = &self.blocks[index];
        let durable = versions
            .iter()
            .rposition(|version| version.durable.is_some_and(|at| at <= moment))
            .expect("the first is durable from the start");
        let sent = |version: &&Version| version.sent < moment;
        let later = versions[durable + 1..].iter().take_while(sent);
        let all = std::iter::once(&versions[durable]).chain(later);
        all.map(|version| version.number).collect()
    }

    fn describe(&self, index: usize, bytes: &[u8], mixture: bool) -> String {
        if mixture {
            return "a mixture of allowed versions".into();
        }
        let number = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
        let known = self.blocks[index].iter();
        let mut known = known.map(|version| version.number).chain([number]);
        match known.find(|number| self.content(index, *number) == bytes) {
            Some(number) => format!("version {number}"),
            None => "what was never written there".into(),
        }
    }

    /// Number, place, then bytes that follow from both; so is every sector's beginning.
    fn content(&self, block: usize, number: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.block_bytes];
        if number == 0 {
            return bytes;
        }
        let mixed = self.seed ^ (block as u64) << 32 ^ u64::from(number).wrapping_mul(0x9e37_79b9);
        fastrand::Rng::with_seed(mixed).fill(&mut bytes);
        for sector in bytes.chunks_mut(SECTOR) {
            sector[..4].copy_from_slice(&number.to_le_bytes());
            sector[4..12].copy_from_slice(&(block as u64).to_le_bytes());
        }
        bytes
    }
}

/// What was read, to be read again.
pub struct Contents {
    offset: u64,
    /// `None`: an error.
    blocks: Vec<Option<Vec<u8>>>,
}

impl Contents {
    /// Blocks that read as errors, by offset.
    pub fn errors(&self) -> Vec<u64> {
        let blocks = self.blocks.iter().enumerate();
        let errors = blocks.filter(|(_, block)| block.is_none());
        errors
            .map(|(index, _)| self.offset + (index * self.block_bytes()) as u64)
            .collect()
    }

    fn block_bytes(&self) -> usize {
        let known = self.blocks.iter().flatten().next();
        known.map_or(4096, Vec::len)
    }

    /// Reads all again; panics with `what` where it differs. What read as an error must still.
    pub fn check_again(&self, client: &mut Client, what: &str) {
        let block_bytes = self.block_bytes();
        let step = (1 << 20) / block_bytes;
        for (piece, blocks) in self.blocks.chunks(step).enumerate() {
            let offset = self.offset + (piece * step * block_bytes) as u64;
            let again = read_blocks(client, offset, block_bytes, blocks.len());
            for (index, (was, is)) in blocks.iter().zip(&again).enumerate() {
                let at = offset + (index * block_bytes) as u64;
                assert!(
                    was == is,
                    "{what}: the block at {at} reads differently: {} then {}",
                    beginning(was.as_deref()),
                    beginning(is.as_deref())
                );
            }
        }
    }
}

fn beginning(bytes: Option<&[u8]>) -> String {
    bytes.map_or("an error".into(), |bytes| format!("{:02x?}", &bytes[..16]))
}

/// Reads blocks, one by one where a longer read fails.
fn read_blocks(
    client: &mut Client,
    offset: u64,
    block_bytes: usize,
    count: usize,
) -> Vec<Option<Vec<u8>>> {
    let mut read = |offset, length| client.try_read(offset, length).expect("the server answers");
    match read(offset, count * block_bytes) {
        Ok(bytes) => bytes
            .chunks(block_bytes)
            .map(|b| Some(b.to_vec()))
            .collect(),
        Err(_) => (0..count)
            .map(|index| read(offset + (index * block_bytes) as u64, block_bytes).ok())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Block 0: version 1 sent at 10 and durable at 20, version 2 sent at 30.
    fn timeline() -> Timeline {
        let mut timeline = Timeline::new(0, 2 * 4096, 4096, 7);
        timeline.blocks[0].push(Version {
            number: 1,
            sent: 10,
            durable: Some(20),
        });
        timeline.blocks[0].push(Version {
            number: 2,
            sent: 30,
            durable: None,
        });
        timeline
    }

    fn check(moment: u64, sectors_tear: bool, bytes: Option<&[u8]>) -> Found {
        let mut found = Found::default();
        let cut = CutAt {
            moment,
            sectors_tear,
        };
        timeline().check_block(0, bytes, cut, "test", &mut found);
        found
    }

    fn version(number: u32) -> Vec<u8> {
        timeline().content(0, number)
    }

    #[test]
    fn what_may_be_there_follows_from_the_moment() {
        let cases: [(u64, &[u32]); 6] = [
            (10, &[0]),
            (11, &[0, 1]),
            (19, &[0, 1]),
            (20, &[1]),
            (30, &[1]),
            (31, &[1, 2]),
        ];
        for (moment, allowed) in cases {
            assert_eq!(timeline().allowed(0, moment), allowed, "at {moment}");
            for number in allowed {
                check(moment, false, Some(&version(*number)));
            }
        }
        assert_eq!(check(31, false, Some(&version(2))).newer, 1);
    }

    #[test]
    #[should_panic(expected = "holds version 0")]
    fn a_lost_durable_version_is_seen() {
        check(31, true, Some(&version(0)));
    }

    #[test]
    #[should_panic(expected = "holds version 2")]
    fn a_version_of_the_future_is_seen() {
        check(30, true, Some(&version(2)));
    }

    #[test]
    #[should_panic(expected = "an error for a durable block")]
    fn an_error_for_what_was_not_being_written_is_seen() {
        check(30, true, None);
    }

    #[test]
    #[should_panic(expected = "a mixture of allowed versions")]
    fn a_mixture_is_seen_where_drives_write_blocks_whole() {
        let bytes = [&version(1)[..512], &version(2)[512..]].concat();
        assert_eq!(check(31, true, Some(&bytes)).mixed, 1);
        check(31, false, Some(&bytes));
    }

    #[test]
    #[should_panic(expected = "what was never written there")]
    fn garbage_is_seen() {
        check(31, true, Some(&[9; 4096]));
    }

    #[test]
    fn an_error_may_stand_for_what_was_being_written() {
        assert_eq!(check(31, false, None).errors, 1);
    }
}
