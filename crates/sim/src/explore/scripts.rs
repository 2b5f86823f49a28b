//! What is tried: small arrays, what is lost before, and every sequence of up to three writes.

use strake_engine::format::superblock::Consistency;
use strake_engine::layout::{Geometry, GeometryRequest, Level, Shape, StripeIndex};

use crate::drive::Discarded;
use crate::geometries;
use crate::import::Sizes;
use crate::rig::Setup;

/// Bytes of a strip and of a block: a row is one block a strip.
pub const BLOCK_BYTES: u32 = 4096;

/// Rows of the only region: two that are written, and as many that never are.
const ROWS: u64 = 4;

/// One write of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// Row.
    pub row: u64,
    /// First data strip.
    pub strip: u64,
    /// Strips.
    pub count: u64,
    /// Forced unit access.
    pub durable: bool,
    /// What comes before it.
    pub link: Link,
}

/// How a write follows the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// At the same time.
    Beside,
    /// When it was acknowledged.
    After,
    /// When it was acknowledged and a flush has ended.
    Flushed,
}

/// An array, what it has lost, and what is written.
#[derive(Debug, Clone)]
pub struct Case {
    /// The array.
    pub setup: Setup,
    /// Places dropped before the first write.
    pub missing: Vec<usize>,
    /// Writes.
    pub script: Vec<Write>,
    /// Of latencies.
    pub seed: u64,
}

impl Case {
    /// For people: all but the script, which is what cases of a group have in common.
    pub fn begins(&self) -> String {
        let (setup, missing) = (&self.setup, &self.missing);
        format!(
            "{}, {:?}, volatile {}, sectors of {}, orderly {}, cores {}, missing {missing:?}, seed {}",
            geometries::name(&setup.shape),
            setup.policy,
            setup.volatile != 0,
            setup.sector_bytes,
            setup.orderly,
            setup.cores,
            self.seed
        )
    }
}

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Few shapes, every so many-th script: minutes.
    Small,
    /// Every shape up to four data strips and three parities, up to three writes: hours.
    Whole,
}

type Form = (Level, usize, Option<usize>);

const FORMS: [Form; 14] = [
    (Level::Raid1, 2, None),
    (Level::Raid1, 3, None),
    (Level::Raid1, 4, None),
    (Level::Raid5, 3, None),
    (Level::Raid5, 4, None),
    (Level::Raid5, 5, None),
    (Level::Raid6, 4, None),
    (Level::Raid6, 5, None),
    (Level::Raid6, 6, None),
    (Level::Raid73, 5, None),
    (Level::Raid73, 6, None),
    (Level::Raid73, 7, None),
    (Level::NPlusM, 4, Some(2)),
    (Level::NPlusM, 6, Some(3)),
];

const FORMS_SMALL: [Form; 6] = [
    (Level::Raid1, 2, None),
    (Level::Raid5, 3, None),
    (Level::Raid5, 4, None),
    (Level::Raid6, 4, None),
    (Level::Raid6, 6, None),
    (Level::NPlusM, 5, Some(2)),
];

fn forms(extent: Extent) -> &'static [Form] {
    match extent {
        Extent::Small => &FORMS_SMALL,
        Extent::Whole => &FORMS,
    }
}

fn shape((level, members, parity): Form) -> Shape {
    let request = GeometryRequest {
        level,
        members,
        strip_size_bytes: Some(u64::from(BLOCK_BYTES)),
        block_size_bytes: Some(BLOCK_BYTES),
        group_size: None,
        parity,
    };
    request.shape().expect("the forms are shapes")
}

fn setup(shape: Shape, policy: Consistency, volatile: bool, inside: bool, orderly: bool) -> Setup {
    Setup {
        sizes: Sizes {
            regions: 1,
            region_bytes: ROWS * u64::from(BLOCK_BYTES),
            log_bytes: 64 << 10,
        },
        policy,
        sector_bytes: if inside { 512 } else { BLOCK_BYTES },
        volatile: if volatile { u64::MAX } else { 0 },
        discarded: Discarded::Zeroes,
        orderly,
        memory_bytes: 512 << 10,
        ..Setup::plain(shape)
    }
}

/// What is missing at the beginning: every choice of members that differs for the first row, by
/// how many of its parities and which of its data strips are gone. Strips after the
/// third are alike.
fn losses(geometry: &Geometry) -> Vec<Vec<usize>> {
    let (data, parity) = (geometry.data(), geometry.strips() - geometry.data());
    let mut all = Vec::new();
    for mask in 0u32..1 << data.min(3) {
        for parities in 0..=parity {
            if mask.count_ones() as usize + parities > parity {
                continue;
            }
            let strips = (0..data).filter(|strip| mask >> strip & 1 == 1);
            let strips = strips.chain(data..data + parities);
            let place = |strip| geometry.member(StripeIndex(0), strip).at();
            all.push(strips.map(place).collect());
        }
    }
    all
}

/// Every write (row, first strip, strips) to two rows of `data` strips that differs from the others
/// in what the engine does; without `parts`, single strips and whole rows.
fn writes(data: u64, parts: bool) -> Vec<(u64, u64, u64)> {
    let mut all = vec![(0, 0, 1), (1, 0, 1)];
    if data > 1 {
        all.push((0, 1, 1));
        all.push((0, 0, data));
    }
    if data > 2 && parts {
        all.push((0, 0, 2));
    }
    if data > 3 && parts {
        all.push((0, 0, data - 1));
    }
    all
}

/// Members up to which three writes may be to parts of rows.
const PARTS_MEMBERS_MAX: usize = 5;

/// Every sequence of one to `most` writes; the last of them may force unit access. Without caches
/// what is written is durable: only short sequences force or flush all the same. `alike`: the first
/// two strips of the first row are both there, or both missing.
fn scripts(shape: Shape, most: usize, volatile: bool, alike: bool) -> Vec<Vec<Write>> {
    let data = u64::from(shape.data);
    let mut all: Vec<Vec<Write>> = Vec::new();
    let mut last: Vec<Vec<Write>> = vec![Vec::new()];
    for length in 1..=most {
        let links: &[Link] = match length {
            1 => &[Link::Beside],
            3 if !volatile => &[Link::Beside, Link::After],
            _ => &[Link::Beside, Link::After, Link::Flushed],
        };
        if length == 3 && !volatile {
            last.retain(|script| script.iter().all(|write| write.link != Link::Flushed));
        }
        let parts = length < 3 || shape.members() <= PARTS_MEMBERS_MAX;
        if !parts {
            let whole = |write: &Write| write.count == 1 || write.count == data;
            last.retain(|script| script.iter().all(whole));
        }
        let mut next = Vec::new();
        for script in &last {
            for &link in links {
                for (row, strip, count) in writes(data, parts) {
                    let mut script = script.clone();
                    let durable = false;
                    script.push(Write {
                        row,
                        strip,
                        count,
                        durable,
                        link,
                    });
                    next.push(script);
                }
            }
        }
        // Two flushes leave one write after what is durable: a shorter script, but for what is there.
        next.retain(|script| {
            script
                .iter()
                .filter(|write| write.link == Link::Flushed)
                .count()
                < 2
        });
        let forces = volatile || length == 1;
        for script in next
            .iter()
            .filter(|script| is_first_of_its_likes(script, alike))
        {
            all.push(script.clone());
            // Forcing what a flush came before is a shorter script's.
            if forces && (length < 3 || script[length - 1].link != Link::Flushed) {
                let mut forced = script.clone();
                forced[length - 1].durable = true;
                all.push(forced);
            }
        }
        last = next;
    }
    all
}

/// Of scripts that write the first row alone and are the same but for an exchange of its first two
/// strips, one is tried: the strip that is written alone first is the first. (In the second row the
/// two members have other places.)
fn is_first_of_its_likes(script: &[Write], alike: bool) -> bool {
    let mut singles = script.iter().filter(|write| write.count == 1);
    let alone = script.iter().all(|write| write.row == 0);
    !alike || !alone || singles.next().is_none_or(|first| first.strip == 0)
}

/// Every case.
pub fn cases(extent: Extent) -> Vec<Case> {
    let mut cases = Vec::new();
    add_cases(extent, 0..KINDS, &mut cases);
    add_cases(extent, KINDS..KINDS + 1, &mut cases);
    cases
}

fn add_cases(extent: Extent, kinds: std::ops::Range<u32>, cases: &mut Vec<Case>) {
    for &form in forms(extent) {
        let shape = shape(form);
        let bytes = ROWS * u64::from(BLOCK_BYTES);
        let geometry = Geometry::new(shape, bytes, bytes);
        for missing in losses(&geometry) {
            let gone = |strip| missing.contains(&geometry.member(StripeIndex(0), strip).at());
            let alike = shape.data > 1 && gone(0) == gone(1);
            for kind in kinds.clone() {
                let (policy, volatile, inside, orderly, mut writes) = kind_of(kind);
                if kind == KINDS && shape.members() > THREE_ON_TWO_CORES_MEMBERS_MAX {
                    writes = 2;
                }
                // One seed for all, so that what a shorter script has had is not had again.
                let seed = cases.len() as u64;
                for script in scripts(shape, writes, volatile, alike) {
                    cases.push(Case {
                        setup: Setup {
                            // Both, with every policy: requests to one core, or to any of two.
                            cores: 2 - kind as usize % 2,
                            ..setup(shape, policy, volatile, inside, orderly)
                        },
                        missing: missing.clone(),
                        script,
                        seed,
                    });
                }
            }
        }
    }
}

/// Members up to which three writes to volatile caches also go to any of two cores.
const THREE_ON_TWO_CORES_MEMBERS_MAX: usize = 4;

/// And one more behind all others: volatile caches and two cores.
const KINDS: u32 = 8;

/// Policy, volatile caches, sectors smaller than a block, orderly, writes at most.
fn kind_of(kind: u32) -> (Consistency, bool, bool, bool, usize) {
    match kind {
        0 => (Consistency::Log, false, false, false, 3),
        1 => (Consistency::Log, true, false, false, 3),
        2 => (Consistency::Log, true, false, true, 2),
        3 => (Consistency::Log, false, true, false, 2),
        4 => (Consistency::LogAll, false, false, false, 2),
        5 => (Consistency::LogAll, true, false, false, 2),
        6 => (Consistency::Resync, false, false, false, 2),
        8 => (Consistency::Log, true, false, false, 3),
        _ => (Consistency::Resync, true, false, false, 2),
    }
}
