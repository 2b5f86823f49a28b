//! Which outcomes are the same but for the names of members.
//!
//! In the rows of a script, parities are like one another for the rules of the log, and so are data
//! strips that no write touches: what differs is their coefficients, and that every choice of
//! strips can be solved for is the codec's own proof. So of two outcomes that differ by an exchange
//! of such members one is tried.
//!
//! A drive is described not by what it holds but by which of its versions each page holds, counted
//! as they came: the second version of a row is the same write's on every parity. Partial versions
//! would be counted by chance, so nothing is exchanged where blocks may be torn inside.

use std::collections::{HashMap, HashSet};

use strake_engine::layout::{Geometry, StripeIndex};

use super::{Case, Write};
use crate::drive::SimDrive;
use crate::image::mix;
use crate::rig::Moment;

/// What a place is in one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// No write of the script touches the row.
    Idle,
    /// A data strip that is written.
    Written(usize),
    /// A data strip that is not.
    Left,
    /// A parity, or a copy.
    Parity,
}

/// Outcomes of one case, told apart up to an exchange of members that are alike.
pub struct Symmetry {
    /// Number of the class by place; `None`: nothing is exchanged.
    classes: Option<Vec<usize>>,
    /// By drive and page: the versions seen, by hash.
    versions: HashMap<(usize, usize), Vec<u64>>,
    seen: HashSet<u64>,
}

impl Symmetry {
    /// For a case.
    pub fn of(case: &Case) -> Symmetry {
        let shape = case.setup.shape;
        let region_bytes = case.setup.sizes.region_bytes;
        let geometry = Geometry::new(shape, region_bytes, region_bytes);
        let mut roles = vec![[Role::Idle; 2]; shape.members()];
        for (row, role_in_row) in (0..2).zip(0..) {
            let touches = |write: &&Write| write.row == row;
            let writes: Vec<&Write> = case.script.iter().filter(touches).collect();
            if writes.is_empty() {
                continue;
            }
            for strip in 0..geometry.strips() {
                let written = |write: &&Write| {
                    (write.strip..write.strip + write.count).contains(&(strip as u64))
                };
                let place = geometry.member(StripeIndex(row), strip).at();
                roles[place][role_in_row] = match strip {
                    _ if strip >= geometry.data() => Role::Parity,
                    _ if writes.iter().any(written) => Role::Written(strip),
                    _ => Role::Left,
                };
            }
        }
        let mut kinds = roles.clone();
        kinds.sort_unstable();
        kinds.dedup();
        let class = |role: &[Role; 2]| kinds.binary_search(role).expect("it is one of them");
        let whole = case.setup.sector_bytes == shape.block_size_bytes;
        Symmetry {
            classes: whole.then(|| roles.iter().map(class).collect()),
            versions: HashMap::new(),
            seen: HashSet::new(),
        }
    }

    /// Number of its class by place; `None`: nothing is exchanged.
    #[cfg(test)]
    pub fn classes(&self) -> Option<&[usize]> {
        self.classes.as_deref()
    }

    /// Counts the versions that are there now. To be called for every moment, in their order.
    pub fn count(&mut self, moment: &Moment, base: &[SimDrive]) {
        if self.classes.is_some() {
            for (number, drive) in moment.snapshot.drives.iter().enumerate() {
                self.describe(number, drive, &base[number]);
            }
        }
    }

    /// By drive: which versions its pages hold.
    pub fn describe_all(&mut self, drives: &[SimDrive], base: &[SimDrive]) -> Vec<u64> {
        if self.classes.is_none() {
            return Vec::new();
        }
        let pairs = drives.iter().zip(base).enumerate();
        pairs
            .map(|(number, (drive, base))| self.describe(number, drive, base))
            .collect()
    }

    fn describe(&mut self, number: usize, drive: &SimDrive, base: &SimDrive) -> u64 {
        let mut all = 0;
        drive.image().each_change(base.image(), |page, content| {
            let versions = self.versions.entry((number, page)).or_default();
            let known = versions.iter().position(|&version| version == content);
            let version = known.unwrap_or_else(|| {
                versions.push(content);
                versions.len() - 1
            });
            mix(&mut all, (page as u64) << 20 | version as u64);
        });
        all
    }

    /// False: the same but for an exchange was there before.
    pub fn insert(&mut self, moment: &Moment, described: &[u64], lose: &[usize]) -> bool {
        let Some(classes) = &self.classes else {
            return true;
        };
        let mut places: Vec<(usize, u64)> = (0..classes.len())
            .map(|place| {
                let what = match moment.drive(place) {
                    _ if !moment.live[place] => 1,
                    _ if lose.contains(&place) => 2,
                    Some(drive) => described[drive] | 4,
                    None => 3,
                };
                (classes[place], what)
            })
            .collect();
        places.sort_unstable();
        let mut hash = 0;
        moment.model.hash_into(&mut hash);
        for (class, what) in places {
            mix(&mut hash, class as u64);
            mix(&mut hash, what);
        }
        self.seen.insert(hash)
    }
}
