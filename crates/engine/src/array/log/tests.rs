//! What records say of the records before them.

use super::super::tests::{Bench, Sort, superblock};
use super::*;
use crate::format::log::record;
use crate::format::region_map::RegionMap;
use crate::layout::Level;

impl Bench {
    /// The only record under way, as it would be on the drive.
    fn record(&self) -> (usize, RecordHead) {
        let mut logs = self.pending.iter().enumerate().filter_map(|(at, io)| {
            let IoKind::WriteLog(id) = io.kind else {
                return None;
            };
            let mut raw = vec![0; io.length as usize];
            let zeroes = vec![0; raw.len()];
            self.array
                .compose_log(id, &mut raw, &|_, bytes| &zeroes[..bytes]);
            let read = record::summary(&raw, io.offset).expect("a record of this build");
            Some((at, read.head))
        });
        let found = logs.next().expect("a record is under way");
        assert!(logs.next().is_none(), "one parity, one record");
        found
    }

    /// Begins a write of the first block; its record is under way, and nothing else.
    fn begin_write(&mut self) {
        self.submit(Operation::Write, 0, 4096);
        while self.sorts() != [Sort::Log] {
            self.end(0, Ok(()));
        }
    }
}

/// A member that the array cannot do without could not write a record: no later one may promise
/// that it is there, else its absence would be taken for a drive that lost what it had stored.
#[test]
fn a_record_that_failed_is_not_among_those_that_must_be_there() {
    let mut superblock = superblock(Level::Raid5, 3, 64 << 10);
    superblock.consistency = Consistency::Log;
    let regions = RegionMap::new(superblock.regions());
    let mut bench = Bench::from(superblock, regions);
    bench.end_all();
    // With one data member gone nothing can be done without.
    let parity = bench.array.geometry().member(StripeIndex(0), 2);
    let member = bench.array.geometry().member(StripeIndex(0), 1);
    bench.command(Command::Fail {
        member,
        force: false,
    });
    bench.end_all();
    bench.written();
    bench.begin_write();
    let (at, before) = bench.record();
    assert_eq!(bench.pending[at].member, parity);
    assert_eq!(before.complete, before.number - 1);
    bench.completed.clear();
    bench.end(at, Err(IoError::Range));
    bench.end_all();
    assert_eq!(bench.completed.len(), 1);
    assert_eq!(bench.completed[0].1, Err(BlockError::Unavailable));
    bench.begin_write();
    let (_, head) = bench.record();
    assert_eq!(head.number, before.number + 1);
    assert_eq!(head.complete, before.number - 1, "its room is not free yet");
    bench.end_all();
    // Once its room is free, no record says that it is in force.
    bench.begin_write();
    let (_, head) = bench.record();
    assert!(head.first > before.number && head.complete == before.number + 1);
}
