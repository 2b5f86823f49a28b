//! Which values a superblock can have together: checked after reading and before writing.

use super::super::areas::{REGIONS_MAX, superblock_b_offset};
use super::super::error::FormatError;
use super::super::region_map::{MAP_PAGE_BYTES, page_count};
use super::*;
use crate::layout::{PARITY_MAX, STRIP_SIZE_BYTES_MAX, STRIP_SIZE_BYTES_MIN, STRIPS_MAX};
use std::collections::HashSet;

/// Bytes of a volume at most: the geometry's arithmetic is exact below twice that.
const VOLUME_BYTES_MAX: u64 = 1 << 62;

/// A field, its value and what it must be.
type Broken = (&'static str, String, String);

fn broken<T>(
    name: &'static str,
    value: impl ToString,
    why: impl Into<String>,
) -> Result<T, Broken> {
    Err((name, value.to_string(), why.into()))
}

/// Whether `name` may name an array: 1 to 48 of letters, digits, `-`, `_`, `.` (ASCII), the first
/// a letter or digit. The error says the rule.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err("must have 1 to 48 characters");
    }
    if !name.chars().all(good) || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(
            "must be of letters, digits, '-', '_' and '.', and start with a letter or digit",
        );
    }
    Ok(())
}

impl Superblock {
    /// Whether every value can be, alone and with the others, for the copy at `own_offset`.
    ///
    /// # Errors
    /// [`FormatError::Field`].
    pub(super) fn check(&self, own_offset: u64) -> Result<(), FormatError> {
        self.check_identity()
            .and_then(|()| self.check_geometry())
            .and_then(|()| self.check_layout())
            .and_then(|()| self.check_places(own_offset))
            .and_then(|()| self.check_sizes())
            .and_then(|()| self.check_members())
            .map_err(|(name, value, why)| KIND.field(own_offset, name, value, why))
    }

    fn check_identity(&self) -> Result<(), Broken> {
        if self.array_uuid.is_nil() {
            return broken("array UUID", self.array_uuid, "must not be nil");
        }
        if self.lineage.is_nil() {
            return broken("lineage", self.lineage, "must not be nil");
        }
        if let Some(log) = self.replay
            && (log.lineage.is_nil() || log.epoch >= self.epoch || self.state == RunState::Clean)
        {
            let why = "must be of an epoch before, with a lineage, and of an array in use";
            return broken("log replayed", log.epoch, why);
        }
        if self.generation == 0 {
            return broken("generation", 0, "generations start at 1");
        }
        if let Err(why) = check_name(&self.name) {
            return broken("name", format!("{:?}", self.name), why);
        }
        if !(1..=100).contains(&self.rebuild_priority) {
            return broken(
                "rebuild priority",
                self.rebuild_priority,
                "must be 1 to 100",
            );
        }
        Ok(())
    }

    fn check_geometry(&self) -> Result<(), Broken> {
        let members =
            usize::from(self.groups) * (usize::from(self.data) + usize::from(self.parity));
        if members != self.members.len() || members == 0 || members > MEMBERS_MAX {
            let why = format!("must be groups × (data + parity) = {members}, 1 to {MEMBERS_MAX}");
            return broken("members", self.members.len(), why);
        }
        if self.data == 0 || usize::from(self.data) + usize::from(self.parity) > STRIPS_MAX {
            let why = format!(
                "must be at least 1, and with {} parities at most {STRIPS_MAX}",
                self.parity
            );
            return broken("data", self.data, why);
        }
        if !level_has(self.level, self.groups, self.data, self.parity) {
            let value = format!(
                "{} with {} groups of {}+{}",
                self.level.name(),
                self.groups,
                self.data,
                self.parity
            );
            return broken("level", value, "the level does not have these counts");
        }
        let strip = self.strip_size_bytes;
        if !strip.is_power_of_two()
            || !(STRIP_SIZE_BYTES_MIN..=STRIP_SIZE_BYTES_MAX).contains(&strip)
        {
            return broken(
                "strip size",
                strip,
                "must be a power of two from 4 KiB to 1 MiB",
            );
        }
        if self.block_size_bytes != 512 && self.block_size_bytes != 4096 {
            return broken("block size", self.block_size_bytes, "must be 512 or 4096");
        }
        Ok(())
    }

    fn check_layout(&self) -> Result<(), Broken> {
        if self.code_id != CODE_ID {
            let why = "parity coefficients not known here; use the Strake that wrote it";
            return broken("code id", self.code_id, why);
        }
        let expected = LayoutParameters::of(self.level);
        if self.layout != expected {
            let value = format!("{:?}", self.layout);
            return broken(
                "layout",
                value,
                format!("must be {expected:?} for {}", self.level.name()),
            );
        }
        Ok(())
    }

    fn check_places(&self, own_offset: u64) -> Result<(), Broken> {
        self.areas.check().or_else(|(name, why)| {
            let areas = self.areas.named();
            let extent = areas
                .iter()
                .find(|(n, _)| *n == name)
                .map(|a| a.1)
                .unwrap_or_default();
            broken(
                name,
                format!("{} bytes at {}", extent.length, extent.offset),
                why,
            )
        })?;
        let copies = [
            self.areas.superblock_a.offset,
            self.areas.superblock_b.offset,
        ];
        if !copies.contains(&own_offset) {
            let why = format!(
                "copies of this member belong at {} and {}",
                copies[0], copies[1]
            );
            return broken("own offset", own_offset, why);
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), Broken> {
        let (region, data) = (self.region_size_bytes, self.member_data_bytes);
        if !region.is_power_of_two() || region < self.strip_size_bytes {
            return broken(
                "region size",
                region,
                "must be a power of two and hold a strip",
            );
        }
        if data == 0 || data > self.areas.data.length || !data.is_multiple_of(region) {
            let why = format!(
                "must be whole regions of {region} and at most the data area's {}",
                self.areas.data.length
            );
            return broken("member data", data, why);
        }
        let regions = data / region;
        let pages = self.areas.region_map[0].length / MAP_PAGE_BYTES as u64;
        if regions > REGIONS_MAX || page_count(regions) > pages {
            let why = format!(
                "makes {regions} regions; at most {REGIONS_MAX}, and {pages} map pages are there"
            );
            return broken("region size", region, why);
        }
        let strips = u64::from(self.groups) * u64::from(self.data);
        let most = data.saturating_mul(strips);
        if most > VOLUME_BYTES_MAX {
            let why = format!("makes a volume of {most} bytes; an array has at most 4 EiB");
            return broken("member data", data, why);
        }
        let size = self.volume_size_bytes;
        if size == 0 || size > most || !size.is_multiple_of(u64::from(self.block_size_bytes)) {
            return broken(
                "volume size",
                size,
                format!("must be whole blocks, at most {most} bytes"),
            );
        }
        Ok(())
    }

    fn check_members(&self) -> Result<(), Broken> {
        if usize::from(self.member_index) >= self.members.len() {
            let why = format!("must be below {}", self.members.len());
            return broken("member index", self.member_index, why);
        }
        let mut seen = HashSet::new();
        for (place, member) in self.members.iter().enumerate() {
            self.check_member(place, member)?;
            if !member.uuid.is_nil() && !seen.insert(member.uuid) {
                return broken("member's UUID", member.uuid, "is in the table twice");
            }
        }
        Ok(())
    }

    fn check_member(&self, place: usize, member: &MemberRecord) -> Result<(), Broken> {
        let size = usize::from(self.group_size());
        let expected = (place / size, place % size);
        let says = (
            usize::from(member.group),
            usize::from(member.index_in_group),
        );
        if says != expected {
            let why = format!("place {place} must be {expected:?}");
            return broken("member's group and index", format!("{says:?}"), why);
        }
        if member.uuid.is_nil() && member.state != MemberState::Removed {
            return broken(
                "member's UUID",
                member.uuid,
                "nil is for removed members only",
            );
        }
        if member.serial.len() > SERIAL_BYTES_MAX
            || member.serial.contains(|c: char| c.is_control())
        {
            return broken(
                "member's serial",
                format!("{:?}", member.serial),
                "must have at most 48 printable bytes",
            );
        }
        if member.rebuild_position_bytes > self.member_data_bytes {
            let why = format!(
                "must be at most the member's data, {}",
                self.member_data_bytes
            );
            return broken(
                "member's rebuild position",
                member.rebuild_position_bytes,
                why,
            );
        }
        let fits =
            superblock_b_offset(member.size_bytes).is_some_and(|b| b >= self.areas.data.end());
        if member.state.is_in_array() && !fits {
            let why = format!(
                "must be at least {}, which the areas need",
                self.areas.drive_bytes_needed()
            );
            return broken("member's size", member.size_bytes, why);
        }
        Ok(())
    }
}

/// Whether the level can have these counts.
fn level_has(level: Level, groups: u16, data: u16, parity: u16) -> bool {
    let (one, many) = (groups == 1, groups >= 2);
    match level {
        Level::Raid0 => (data, parity) == (1, 0),
        Level::Raid1 => one && data == 1 && parity >= 1,
        Level::Raid10 => many && data == 1 && parity >= 1,
        Level::Raid5 => one && data >= 2 && parity == 1,
        Level::Raid6 => one && data >= 2 && parity == 2,
        Level::Raid73 => one && data >= 2 && parity == 3,
        Level::Raid50 => many && data >= 2 && parity == 1,
        Level::Raid60 => many && data >= 2 && parity == 2,
        Level::Raid70 => many && data >= 2 && parity == 3,
        Level::NPlusM => one && parity >= 1 && parity <= data && usize::from(parity) <= PARITY_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use crate::layout::Level;

    #[test]
    fn a_volume_has_at_most_four_exbibytes() {
        let of_member = |bytes: u64| {
            let mut superblock = sample(Level::Raid0, 3, 1, 0);
            superblock.region_size_bytes = 1 << 42;
            superblock.areas.data.length = bytes;
            superblock.areas.region_map[0].length = 1 << 40;
            superblock.member_data_bytes = bytes;
            superblock.volume_size_bytes = 3 * bytes;
            superblock.check_sizes()
        };
        assert_eq!(of_member(1 << 60), Ok(()));
        let (name, _, why) = of_member(1 << 61).unwrap_err();
        assert!(
            name == "member data" && why.contains("4 EiB"),
            "{name}: {why}"
        );
    }
}
