//! What a crash has left on the drives, read through the format's decoders: what an order of
//! durability is asserted on.
//!
//! Nothing here starts anything or asks the engine. A member's structures are those that an import
//! would believe: of the two copies the newer valid one.

use std::ops::Range;

use strake_engine::format::Extent;
use strake_engine::format::log::record::{self, RECORD_ALIGN, Record};
use strake_engine::format::log::ring;
use strake_engine::format::region_map::{self, LoadedMap, MapPlace, RegionState};
use strake_engine::format::store::{self, Store, StorePlace};
use strake_engine::format::superblock::{Replay, Superblock};
use strake_engine::format::torn::TornList;
use strake_engine::layout::{Geometry, StripeIndex};
use uuid::Uuid;

use crate::content::{self, Stamp};
use crate::drive::SimDrive;
use crate::import;
use crate::rig::{Moment, Setup};

/// The drives after a crash, beside those of the story's beginning.
pub struct Aftermath<'a> {
    /// What the array is made of.
    pub setup: &'a Setup,
    /// Shape and places.
    pub geometry: &'a Geometry,
    /// Drives at the beginning, by number.
    pub base: &'a [SimDrive],
    /// Drives now, by number.
    pub drives: &'a [SimDrive],
    /// The moment of the crash.
    pub moment: &'a Moment,
    /// Requests answered since the beginning.
    pub answered: u64,
    /// Commands answered since the beginning.
    pub commands: u64,
}

impl Aftermath<'_> {
    /// Places of the members that were in sync at the crash.
    pub fn live(&self) -> impl Iterator<Item = usize> + '_ {
        let live = self.moment.live.iter().enumerate();
        live.filter(|(_, live)| **live).map(|(place, _)| place)
    }

    fn drive(&self, place: usize) -> &SimDrive {
        &self.drives[self.moment.drive(place).expect("a live place has a drive")]
    }

    fn before(&self, place: usize) -> Option<&SimDrive> {
        self.base.get(self.moment.drive(place)?)
    }

    /// Copies A and B of a member's superblock, where they are valid.
    pub fn copies(&self, place: usize) -> [Option<Superblock>; 2] {
        import::superblocks(self.drive(place)).map(Result::ok)
    }

    /// The newer valid copy of a member's superblock.
    pub fn superblock(&self, place: usize) -> Option<Superblock> {
        let copies = self.copies(place).into_iter().flatten();
        copies.max_by_key(|superblock| superblock.generation)
    }

    /// Every live member's newer valid copy fulfils this.
    pub fn all_say(&self, what: impl Fn(&Superblock) -> bool) -> bool {
        self.live()
            .all(|place| self.superblock(place).is_some_and(|found| what(&found)))
    }

    /// Some valid copy of some live member fulfils this.
    pub fn any_says(&self, what: impl Fn(&Superblock) -> bool) -> bool {
        self.live()
            .any(|place| self.copies(place).iter().flatten().any(&what))
    }

    fn uuid(&self, place: usize) -> Uuid {
        let superblock = self.superblock(place);
        superblock.map_or(Uuid::nil(), |superblock| superblock.own().uuid)
    }

    fn peek(&self, place: usize, extent: Extent) -> Vec<u8> {
        let mut bytes = vec![0; extent.length as usize];
        self.drive(place).peek(extent.offset, &mut bytes);
        bytes
    }

    /// The region map on the drive of this place, as `member`'s.
    pub fn map_of(&self, place: usize, member: Uuid) -> LoadedMap {
        let areas = self.setup.sizes.areas();
        let map = MapPlace {
            array_uuid: import::ARRAY,
            member_uuid: member,
            copies: areas.region_map,
        };
        let copies = areas.region_map.map(|extent| self.peek(place, extent));
        region_map::load(&map, self.geometry.regions(), [&copies[0], &copies[1]])
    }

    /// What a member's map says of a region.
    pub fn state(&self, place: usize, region: usize) -> RegionState {
        let loaded = self.map_of(place, self.uuid(place));
        loaded.map.entries[region].state()
    }

    /// Every live member's map says of a region one of these.
    pub fn all_maps_say(&self, region: usize, states: &[RegionState]) -> bool {
        self.live()
            .all(|place| states.contains(&self.state(place, region)))
    }

    /// Some live member's map says of a region one of these.
    pub fn any_map_says(&self, region: usize, states: &[RegionState]) -> bool {
        self.live()
            .any(|place| states.contains(&self.state(place, region)))
    }

    /// The torn list on the drive of this place, as `member`'s; `None`: no half is valid.
    pub fn torn_of(&self, place: usize, member: Uuid) -> Option<TornList> {
        self.store(place, member).map(|store| store.torn)
    }

    fn store(&self, place: usize, member: Uuid) -> Option<Store> {
        let area = self.setup.sizes.areas().store;
        let store = StorePlace {
            array_uuid: import::ARRAY,
            member_uuid: member,
            area,
        };
        store::load(&store, &self.peek(place, area)).newest
    }

    /// Generation of a member's torn list; `None`: no half is valid.
    pub fn list_generation(&self, place: usize) -> Option<u64> {
        let store = self.store(place, self.uuid(place));
        store.map(|store| store.generation)
    }

    /// A member's torn list; `None`: no half is valid.
    pub fn torn(&self, place: usize) -> Option<TornList> {
        self.torn_of(place, self.uuid(place))
    }

    /// Whole records in a member's ring that a replay would believe: of its newest epoch.
    pub fn records(&self, place: usize) -> Vec<Record> {
        let Some(superblock) = self.superblock(place) else {
            return Vec::new();
        };
        let area = ring(superblock.areas.log);
        let bytes = self.peek(place, area);
        let pages = (0..bytes.len()).step_by(RECORD_ALIGN);
        let records = pages.filter_map(|at| {
            let claimed = record::claimed_bytes(&bytes[at..])?;
            let raw = bytes.get(at..at + claimed)?;
            record::decode(raw, area.offset + at as u64).ok()
        });
        let in_force = superblock.replay.unwrap_or(Replay {
            epoch: superblock.epoch,
            lineage: superblock.lineage,
        });
        records
            .filter(|record| {
                let head = &record.head;
                head.epoch == in_force.epoch
                    && head.lineage == in_force.lineage
                    && head.member_uuid == superblock.own().uuid
            })
            .collect()
    }

    /// Entries below this sequence are retired, as the records of these places say.
    pub fn retired(&self, places: impl Iterator<Item = usize>) -> u64 {
        let records = places.flat_map(|place| self.records(place));
        records.map(|record| record.head.oldest).max().unwrap_or(0)
    }

    /// Sequences and stripes of entries in a member's ring that no live member calls retired.
    pub fn in_force(&self, place: usize) -> Vec<(u64, u64)> {
        let retired = self.retired(self.live());
        let records = self.records(place).into_iter();
        let entries = records.flat_map(|record| record.entries);
        let heads = entries.map(|entry| (entry.head.sequence, entry.head.stripe));
        heads.filter(|(sequence, _)| *sequence >= retired).collect()
    }

    /// Some live member's ring has an entry in force.
    pub fn any_in_force(&self) -> bool {
        self.live().any(|place| !self.in_force(place).is_empty())
    }

    /// A member's ring holds an entry of this stripe, retired or not.
    pub fn has_entry(&self, place: usize, stripe: u64) -> bool {
        let records = self.records(place).into_iter();
        let mut entries = records.flat_map(|record| record.entries);
        entries.any(|entry| entry.head.stripe == stripe)
    }

    /// Bytes of a region on a member.
    pub fn region_rows(&self, region: usize) -> Range<u64> {
        let bytes = self.setup.sizes.region_bytes;
        region as u64 * bytes..(region as u64 + 1) * bytes
    }

    /// Bytes of a stripe on a member.
    pub fn stripe_rows(&self, stripe: u64) -> Range<u64> {
        let start = self.geometry.member_offset(StripeIndex(stripe), 0);
        start..start + self.geometry.strip_bytes()
    }

    /// A member's data of these rows.
    pub fn data(&self, place: usize, rows: Range<u64>) -> Vec<u8> {
        let data = self.setup.sizes.areas().data;
        let extent = Extent::new(data.offset + rows.start, rows.end - rows.start);
        self.peek(place, extent)
    }

    /// Whether a member's bytes differ from the beginning's.
    fn differs(&self, place: usize, extent: Extent) -> bool {
        let mut before = vec![0; extent.length as usize];
        match self.before(place) {
            Some(drive) => drive.peek(extent.offset, &mut before),
            None => return true,
        }
        before != self.peek(place, extent)
    }

    /// Whether some live member's data of these rows differs from the beginning's.
    pub fn data_changed(&self, rows: Range<u64>) -> bool {
        let data = self.setup.sizes.areas().data;
        let extent = Extent::new(data.offset + rows.start, rows.end - rows.start);
        self.live().any(|place| self.differs(place, extent))
    }

    /// Whether anything but superblocks differs on some live member from the beginning's.
    pub fn changed_beside_superblocks(&self) -> bool {
        let areas = self.setup.sizes.areas();
        let others = areas.superblock_a.end()..areas.superblock_b.offset;
        let extent = Extent::new(others.start, others.end - others.start);
        self.live().any(|place| self.differs(place, extent))
    }

    /// Copy 0 (A) or 1 (B) of a live member's superblock differs from the beginning's.
    pub fn copy_changed(&self, place: usize, copy: usize) -> bool {
        let areas = self.setup.sizes.areas();
        self.differs(place, [areas.superblock_a, areas.superblock_b][copy])
    }

    /// Stamp of a block as it lies on its own member; `None`: no content that was ever written.
    pub fn stamp(&self, block: u64) -> Option<Stamp> {
        let size = u64::from(self.setup.shape.block_size_bytes);
        let piece = self.geometry.piece(block * size, size);
        let place = self.geometry.member(piece.stripe, piece.strip.into()).at();
        let start = self.geometry.member_offset(piece.stripe, piece.start);
        content::stamp_of(block, &self.data(place, start..start + size))
    }

    /// What the members in sync say of this stripe's data strip whose member is missing, by XOR.
    pub fn missing_strip(&self, stripe: u64) -> Vec<u8> {
        let mut sum = vec![0; self.geometry.strip_bytes() as usize];
        for place in self.live() {
            let strip = self.data(place, self.stripe_rows(stripe));
            sum.iter_mut()
                .zip(strip)
                .for_each(|(sum, byte)| *sum ^= byte);
        }
        sum
    }

    /// Whether P (of a mirror: the second copy) of these rows says what the data says, by plain XOR.
    /// Of stripes with members that were not in sync nothing is said.
    pub fn rows_hold(&self, rows: Range<u64>) -> bool {
        self.hold(rows, |place| self.moment.live[place])
    }

    /// The same, members that were not in sync included.
    pub fn rows_hold_everywhere(&self, rows: Range<u64>) -> bool {
        self.hold(rows, |_| true)
    }

    fn hold(&self, rows: Range<u64>, counts: impl Fn(usize) -> bool) -> bool {
        let stripes = (0..self.geometry.stripes()).map(StripeIndex);
        let inside = |stripe: &StripeIndex| {
            let at = self.geometry.member_offset(*stripe, 0);
            rows.start <= at && at < rows.end
        };
        stripes.filter(inside).all(|stripe| {
            let strips = 0..=self.geometry.data();
            let places = strips.map(|strip| self.geometry.member(stripe, strip).at());
            let places: Vec<usize> = places.collect();
            !places.iter().all(|&place| counts(place)) || self.stripe_holds(stripe, &places)
        })
    }

    fn stripe_holds(&self, stripe: StripeIndex, places: &[usize]) -> bool {
        let mut sum = vec![0; self.geometry.strip_bytes() as usize];
        for &place in places {
            let strip = self.data(place, self.stripe_rows(stripe.0));
            sum.iter_mut()
                .zip(strip)
                .for_each(|(sum, byte)| *sum ^= byte);
        }
        sum.iter().all(|&byte| byte == 0)
    }
}
