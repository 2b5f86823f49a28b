//! Where a byte of the volume lives: pure arithmetic from geometry to members and back.
//!
//! Every level is *groups of k data + m parity strips*, striped over each other:
//!
//! | level | groups | k | m |
//! |---|---|---|---|
//! | 0 | n | 1 | 0 |
//! | 1 | 1 | 1 | n − 1 (a parity over one strip is a copy) |
//! | 10 | n ÷ copies | 1 | copies − 1 |
//! | 5, 6, 7.3 | 1 | n − m | 1, 2, 3 |
//! | 50, 60, 70 | n ÷ group size | group size − m | 1, 2, 3 |
//! | N+M | 1 | N | M |
//!
//! A *row* is one strip on every member; a *stripe* is the row's part in one group. Stripe
//! `s` lies in row `s / groups` of group `s % groups`. Parity rotates as in Linux md's
//! left-symmetric layout (`drivers/md/raid5.c`, documented in md(4)), so that other tools can
//! check our arrays; mirrors and RAID 0 do not rotate.

mod divisor;
#[cfg(test)]
mod tests;

use divisor::Divisor;

/// Members of one array at most: the member table of the superblock holds this many.
pub const MEMBERS_MAX: usize = 480;
/// Strips of one stripe at most: a stripe's strips are a 64-bit mask.
pub const STRIPS_MAX: usize = 64;
/// Largest group of the striped parity levels (50, 60, 70).
pub const GROUP_MAX: usize = 32;
/// Parities of N+M at most.
pub const PARITY_MAX: usize = 32;
/// Smallest strip.
pub const STRIP_SIZE_BYTES_MIN: u64 = 4 << 10;
/// Largest strip.
pub const STRIP_SIZE_BYTES_MAX: u64 = 1 << 20;
/// Strip when none is asked for.
pub const STRIP_SIZE_BYTES_DEFAULT: u64 = 64 << 10;
/// A stripe is locked and planned in *bands* of rows of at most this many bytes a strip, so that
/// one operation's memory stays bounded (64 strips × 128 KiB) whatever the strip size.
pub const BAND_BYTES_MAX: u64 = 128 << 10;

/// RAID level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// Striping, no redundancy.
    Raid0,
    /// Every member a copy.
    Raid1,
    /// One parity.
    Raid5,
    /// Two parities.
    Raid6,
    /// Three parities.
    Raid73,
    /// Striped mirrors.
    Raid10,
    /// Striped RAID 5 groups.
    Raid50,
    /// Striped RAID 6 groups.
    Raid60,
    /// Striped RAID 7.3 groups.
    Raid70,
    /// N data + M parity, both chosen.
    NPlusM,
}

impl Level {
    /// Every level, for tests and help texts.
    pub const ALL: [Level; 10] = [
        Level::Raid0,
        Level::Raid1,
        Level::Raid5,
        Level::Raid6,
        Level::Raid73,
        Level::Raid10,
        Level::Raid50,
        Level::Raid60,
        Level::Raid70,
        Level::NPlusM,
    ];

    /// Name in commands, errors and the API.
    pub fn name(self) -> &'static str {
        match self {
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
            Level::Raid73 => "raid7.3",
            Level::Raid10 => "raid10",
            Level::Raid50 => "raid50",
            Level::Raid60 => "raid60",
            Level::Raid70 => "raid70",
            Level::NPlusM => "n+m",
        }
    }

    /// Level from `6`, `raid6`, `RAID 6`, `7.3`, `n+m`, `nm`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Level> {
        let lower = text.trim().to_ascii_lowercase();
        let bare = lower.strip_prefix("raid").unwrap_or(&lower).trim();
        Some(match bare {
            "0" => Level::Raid0,
            "1" => Level::Raid1,
            "5" => Level::Raid5,
            "6" => Level::Raid6,
            "7.3" | "7" | "73" => Level::Raid73,
            "10" => Level::Raid10,
            "50" => Level::Raid50,
            "60" => Level::Raid60,
            "70" => Level::Raid70,
            "n+m" | "nm" => Level::NPlusM,
            _ => return None,
        })
    }

    /// Stable number in the superblock.
    pub fn code(self) -> u8 {
        match self {
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            Level::Raid73 => 7,
            Level::Raid10 => 10,
            Level::Raid50 => 50,
            Level::Raid60 => 60,
            Level::Raid70 => 70,
            Level::NPlusM => 100,
        }
    }

    /// Inverse of [`Level::code`].
    pub fn from_code(code: u8) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.code() == code)
    }

    /// Parities of the fixed-parity levels.
    fn fixed_parity(self) -> usize {
        match self {
            Level::Raid5 | Level::Raid50 => 1,
            Level::Raid6 | Level::Raid60 => 2,
            Level::Raid73 | Level::Raid70 => 3,
            _ => 0,
        }
    }
}

/// What the administrator asks for at creation; everything not given has its default.
#[derive(Debug, Clone)]
pub struct GeometryRequest {
    /// Level.
    pub level: Level,
    /// Number of drives given.
    pub members: usize,
    /// Strip in bytes; power of two, 4 KiB to 1 MiB. Default 64 KiB.
    pub strip_size_bytes: Option<u64>,
    /// Array block size, 512 or 4096. Default 4096.
    pub block_size_bytes: Option<u32>,
    /// Members of one group (50, 60, 70: required; 10: copies, default 2).
    pub group_size: Option<usize>,
    /// Parities (N+M only: required).
    pub parity: Option<usize>,
}

/// A geometry that cannot be. The text says what is wrong and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GeometryError(pub String);

fn refuse<T>(text: String) -> Result<T, GeometryError> {
    Err(GeometryError(text))
}

/// Groups, data and parity of an array, before the drives' sizes are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Level.
    pub level: Level,
    /// Groups.
    pub groups: u16,
    /// Data strips in a stripe (k).
    pub data: u16,
    /// Parity strips in a stripe (m); copies beyond the first for mirrors.
    pub parity: u16,
    /// Strip in bytes.
    pub strip_size_bytes: u64,
    /// Array block size in bytes.
    pub block_size_bytes: u32,
}

impl GeometryRequest {
    /// Checks the request against the level's rules.
    ///
    /// # Errors
    /// [`GeometryError`] with the rule that is broken and the nearest right value.
    pub fn shape(&self) -> Result<Shape, GeometryError> {
        let (groups, data, parity) = self.groups_data_parity()?;
        let strip_size_bytes = self.strip_size_bytes.unwrap_or(STRIP_SIZE_BYTES_DEFAULT);
        if !strip_size_bytes.is_power_of_two()
            || !(STRIP_SIZE_BYTES_MIN..=STRIP_SIZE_BYTES_MAX).contains(&strip_size_bytes)
        {
            return refuse(format!(
                "strip size {strip_size_bytes} bytes: must be a power of two from 4 KiB to 1 MiB"
            ));
        }
        let block_size_bytes = self.block_size_bytes.unwrap_or(4096);
        if block_size_bytes != 512 && block_size_bytes != 4096 {
            return refuse(format!(
                "block size {block_size_bytes} bytes: must be 512 or 4096"
            ));
        }
        Ok(Shape {
            level: self.level,
            groups: groups as u16,
            data: data as u16,
            parity: parity as u16,
            strip_size_bytes,
            block_size_bytes,
        })
    }

    fn groups_data_parity(&self) -> Result<(usize, usize, usize), GeometryError> {
        let n = self.members;
        let name = self.level.name();
        if n > MEMBERS_MAX {
            return refuse(format!(
                "{n} drives: an array has at most {MEMBERS_MAX} members"
            ));
        }
        if self.parity.is_some() && self.level != Level::NPlusM {
            return refuse(format!(
                "the number of parities is fixed for {name}: --parity belongs to level n+m"
            ));
        }
        let grouped = matches!(
            self.level,
            Level::Raid10 | Level::Raid50 | Level::Raid60 | Level::Raid70
        );
        if self.group_size.is_some() && !grouped {
            return refuse(format!(
                "{name} has no groups: a group size (or copies) belongs to levels 10, 50, 60 and 70"
            ));
        }
        match self.level {
            Level::Raid0 => self.at_least(1).map(|()| (n, 1, 0)),
            Level::Raid1 => {
                self.at_least(2)?;
                self.at_most(STRIPS_MAX)?;
                Ok((1, 1, n - 1))
            }
            Level::Raid5 | Level::Raid6 | Level::Raid73 => {
                let m = self.level.fixed_parity();
                self.at_least(m + 2)?;
                self.at_most(STRIPS_MAX)?;
                Ok((1, n - m, m))
            }
            Level::Raid10 => {
                let copies = self.group_size.unwrap_or(2);
                if !(2..=STRIPS_MAX).contains(&copies) {
                    return refuse(format!(
                        "{copies} copies: raid10 keeps 2 to {STRIPS_MAX} copies"
                    ));
                }
                self.at_least(2 * copies)?;
                self.divides(copies)?;
                Ok((n / copies, 1, copies - 1))
            }
            Level::Raid50 | Level::Raid60 | Level::Raid70 => {
                let m = self.level.fixed_parity();
                let Some(group) = self.group_size else {
                    return refuse(format!(
                        "{name} needs a group size: the members of one RAID group, {} to {GROUP_MAX}",
                        m + 2
                    ));
                };
                if !(m + 2..=GROUP_MAX).contains(&group) {
                    return refuse(format!(
                        "group size {group}: {name} has groups of {} to {GROUP_MAX} members",
                        m + 2
                    ));
                }
                self.divides(group)?;
                self.at_least(2 * group)?;
                Ok((n / group, group - m, m))
            }
            Level::NPlusM => self.n_plus_m(),
        }
    }

    fn n_plus_m(&self) -> Result<(usize, usize, usize), GeometryError> {
        let n = self.members;
        let Some(m) = self.parity else {
            return refuse(format!(
                "n+m needs the number of parities, 1 to {PARITY_MAX}"
            ));
        };
        if !(1..=PARITY_MAX).contains(&m) {
            return refuse(format!("{m} parities: n+m has 1 to {PARITY_MAX}"));
        }
        self.at_most(STRIPS_MAX)?;
        if n < 2 * m {
            return refuse(format!(
                "{n} drives with {m} parities: parities may not outnumber data drives, so at least {} drives are needed",
                2 * m
            ));
        }
        Ok((1, n - m, m))
    }

    fn at_least(&self, least: usize) -> Result<(), GeometryError> {
        if self.members < least {
            return refuse(format!(
                "too few drives: {} needs at least {least}, {} given",
                self.level.name(),
                self.members
            ));
        }
        Ok(())
    }

    fn at_most(&self, most: usize) -> Result<(), GeometryError> {
        if self.members > most {
            return refuse(format!(
                "too many drives: {} has at most {most}, {} given; use a level with groups (10, 50, 60, 70)",
                self.level.name(),
                self.members
            ));
        }
        Ok(())
    }

    fn divides(&self, group: usize) -> Result<(), GeometryError> {
        if !self.members.is_multiple_of(group) {
            return refuse(format!(
                "{} drives do not divide into groups of {group}: give {} or {}",
                self.members,
                self.members / group * group,
                (self.members / group + 1) * group
            ));
        }
        Ok(())
    }
}

impl Shape {
    /// Strips of one stripe, members of one group.
    pub fn strips(&self) -> usize {
        usize::from(self.data) + usize::from(self.parity)
    }

    /// Members of the array.
    pub fn members(&self) -> usize {
        usize::from(self.groups) * self.strips()
    }
}

/// Place of a member in the array, `0..members`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberIndex(pub u16);

impl MemberIndex {
    /// As an index.
    pub fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// A stripe, counted over all groups in volume order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StripeIndex(pub u64);

/// Part of one data strip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StripPiece {
    /// Stripe.
    pub stripe: StripeIndex,
    /// Data strip within the stripe, `0..k`.
    pub strip: u8,
    /// First byte within the strip.
    pub start: u32,
    /// Bytes.
    pub length: u32,
}

/// Where a piece lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Member that holds it.
    pub member: MemberIndex,
    /// First byte in the member's data area.
    pub offset: u64,
    /// Region.
    pub region: u32,
}

/// Where everything is: a shape over members of a known size.
#[derive(Debug, Clone)]
pub struct Geometry {
    shape: Shape,
    rows: u64,
    rows_per_region: Divisor,
    groups: Divisor,
    /// Members of a group.
    strips: Divisor,
    stripe_data_bytes: Divisor,
    strip_shift: u32,
    /// Bands in a strip: a power of two.
    band_shift: u32,
    /// `rotation[(row % n) * n + strip]` = position in the group.
    rotation: Vec<u8>,
}

impl Geometry {
    /// Geometry of `shape` over members with `member_data_bytes` of data area each (a multiple
    /// of `region_size_bytes`, which is a multiple of the strip).
    pub fn new(shape: Shape, member_data_bytes: u64, region_size_bytes: u64) -> Geometry {
        assert!(shape.strips() <= STRIPS_MAX && shape.data >= 1);
        assert!(region_size_bytes.is_multiple_of(shape.strip_size_bytes));
        assert!(member_data_bytes.is_multiple_of(region_size_bytes));
        let n = shape.strips();
        let mut rotation = vec![0u8; n * n];
        for phase in 0..n {
            for strip in 0..n {
                rotation[phase * n + strip] = position(&shape, phase, strip) as u8;
            }
        }
        Geometry {
            shape,
            rows: member_data_bytes / shape.strip_size_bytes,
            rows_per_region: Divisor::new(region_size_bytes / shape.strip_size_bytes),
            groups: Divisor::new(shape.groups.into()),
            strips: Divisor::new(n as u64),
            stripe_data_bytes: Divisor::new(shape.strip_size_bytes * u64::from(shape.data)),
            strip_shift: shape.strip_size_bytes.trailing_zeros(),
            band_shift: shape.strip_size_bytes.min(BAND_BYTES_MAX).trailing_zeros(),
            rotation,
        }
    }

    /// Groups, data, parity, strip and block size.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Data strips of a stripe.
    pub fn data(&self) -> usize {
        usize::from(self.shape.data)
    }

    /// Parity strips of a stripe.
    pub fn parity(&self) -> usize {
        usize::from(self.shape.parity)
    }

    /// Strips of a stripe.
    pub fn strips(&self) -> usize {
        self.shape.strips()
    }

    /// Rows of strips on each member.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Stripes of all groups.
    pub fn stripes(&self) -> u64 {
        self.rows * u64::from(self.shape.groups)
    }

    /// Bytes of the volume.
    pub fn volume_bytes(&self) -> u64 {
        self.stripes() * self.stripe_data_bytes()
    }

    /// Data bytes of one stripe.
    pub fn stripe_data_bytes(&self) -> u64 {
        self.stripe_data_bytes.get()
    }

    /// Stripe in which a byte of the volume lies.
    #[inline]
    pub fn stripe_at(&self, offset: u64) -> StripeIndex {
        StripeIndex(self.stripe_data_bytes.quotient(offset))
    }

    /// Strip in bytes.
    pub fn strip_bytes(&self) -> u64 {
        self.shape.strip_size_bytes
    }

    /// Bytes of one band (see [`BAND_BYTES_MAX`]) in each strip.
    pub fn band_bytes(&self) -> u64 {
        1 << self.band_shift
    }

    /// Bands in a strip.
    pub fn bands(&self) -> u64 {
        1 << (self.strip_shift - self.band_shift)
    }

    /// Stripe of a band; bands are counted over all stripes.
    #[inline]
    pub fn stripe_of_band(&self, band: u64) -> StripeIndex {
        StripeIndex(band >> (self.strip_shift - self.band_shift))
    }

    /// Band of a byte within the strips of a stripe.
    #[inline]
    pub fn band(&self, stripe: StripeIndex, start: u32) -> u64 {
        (stripe.0 << (self.strip_shift - self.band_shift)) + u64::from(start >> self.band_shift)
    }

    /// Row of a stripe.
    #[inline]
    pub fn row(&self, stripe: StripeIndex) -> u64 {
        self.groups.quotient(stripe.0)
    }

    /// Group of a stripe.
    #[inline]
    pub fn group(&self, stripe: StripeIndex) -> u16 {
        self.groups.divide(stripe.0).1 as u16
    }

    /// Member that holds `strip` (data `0..k`, parity `k..k+m`) of a stripe.
    #[inline]
    pub fn member(&self, stripe: StripeIndex, strip: usize) -> MemberIndex {
        let n = self.strips();
        let (row, group) = self.groups.divide(stripe.0);
        let phase = self.strips.divide(row).1 as usize;
        let position = usize::from(self.rotation[phase * n + strip]);
        MemberIndex((group as usize * n + position) as u16)
    }

    /// How far the rotation has come in a stripe's row, `0..k + m`.
    #[inline]
    pub fn phase(&self, stripe: StripeIndex) -> usize {
        self.strips.divide(self.row(stripe)).1 as usize
    }

    /// Strip that `member` holds in a stripe of its own group: inverse of [`Geometry::member`].
    pub fn strip_of(&self, stripe: StripeIndex, member: MemberIndex) -> usize {
        let n = self.strips();
        debug_assert_eq!(member.at() / n, usize::from(self.group(stripe)));
        let phase = self.phase(stripe);
        let position = (member.at() % n) as u8;
        self.rotation[phase * n..(phase + 1) * n]
            .iter()
            .position(|&p| p == position)
            .expect("the rotation is a permutation")
    }

    /// Group of a member.
    pub fn group_of(&self, member: MemberIndex) -> u16 {
        (member.at() / self.strips()) as u16
    }

    /// Byte in the member's data area of byte `start` of any strip of a stripe.
    pub fn member_offset(&self, stripe: StripeIndex, start: u32) -> u64 {
        (self.row(stripe) << self.strip_shift) + u64::from(start)
    }

    /// The piece of the volume that begins at `offset`, cut at the strip's end and at `length`.
    #[inline]
    pub fn piece(&self, offset: u64, length: u64) -> StripPiece {
        let (stripe, within) = self.stripe_data_bytes.divide(offset);
        let strip = within >> self.strip_shift;
        let start = within & (self.shape.strip_size_bytes - 1);
        StripPiece {
            stripe: StripeIndex(stripe),
            strip: strip as u8,
            start: start as u32,
            length: length.min(self.shape.strip_size_bytes - start) as u32,
        }
    }

    /// Where a piece lies when `strip` of its stripe is read for it: for parity levels the piece's
    /// own, for mirrors any copy. One division by each of the geometry's numbers.
    #[inline]
    pub fn place(&self, piece: &StripPiece, strip: usize) -> Place {
        let (row, group) = self.groups.divide(piece.stripe.0);
        let n = self.strips();
        let phase = self.strips.divide(row).1 as usize;
        let position = usize::from(self.rotation[phase * n + strip]);
        Place {
            member: MemberIndex((group as usize * n + position) as u16),
            offset: (row << self.strip_shift) + u64::from(piece.start),
            region: self.rows_per_region.quotient(row) as u32,
        }
    }

    /// Volume offset of a byte of a data strip: inverse of [`Geometry::piece`].
    pub fn volume_offset(&self, stripe: StripeIndex, strip: usize, start: u32) -> u64 {
        stripe.0 * self.stripe_data_bytes()
            + ((strip as u64) << self.strip_shift)
            + u64::from(start)
    }

    /// Regions of the array.
    pub fn regions(&self) -> u64 {
        self.rows_per_region.quotient(self.rows)
    }

    /// Bytes of a region on each member.
    pub fn region_bytes(&self) -> u64 {
        self.rows_per_region.get() << self.strip_shift
    }

    /// Region of a stripe.
    #[inline]
    pub fn region(&self, stripe: StripeIndex) -> u32 {
        self.rows_per_region.quotient(self.row(stripe)) as u32
    }

    /// Stripes of one region, all groups.
    pub fn stripes_per_region(&self) -> u64 {
        self.rows_per_region.get() * self.groups.get()
    }

    /// Volume bytes of one region.
    pub fn region_volume_bytes(&self) -> u64 {
        self.stripes_per_region() * self.stripe_data_bytes()
    }

    /// Member of strip `strip` of parity or data for humans: "data 3", "parity 1".
    pub fn strip_name(&self, strip: usize) -> String {
        if strip < self.data() {
            format!("data {strip}")
        } else {
            format!("parity {}", strip - self.data())
        }
    }
}

/// Position in the group of `strip` in rows of `phase = row % n`.
fn position(shape: &Shape, phase: usize, strip: usize) -> usize {
    let (n, k, m) = (
        shape.strips(),
        usize::from(shape.data),
        usize::from(shape.parity),
    );
    if m == 0 || k == 1 {
        return strip;
    }
    let first_parity = n - 1 - phase;
    if strip < k {
        (first_parity + m + strip) % n
    } else {
        (first_parity + strip - k) % n
    }
}
