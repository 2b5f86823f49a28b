//! Why bytes on a drive are not the structure that was looked for.

/// What is wrong with a structure on a drive. Offsets are bytes from the start of the drive. The
/// caller adds the drive's path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The magic is not there: these bytes are something else, or nothing.
    #[error("{structure} at byte {offset}: not there (no Strake magic)")]
    NotStrake {
        /// What was looked for.
        structure: &'static str,
        /// Where.
        offset: u64,
    },
    /// The drive could not read the place: proves nothing about what was written there.
    #[error("{structure} at byte {offset}: cannot be read: {reason}")]
    Unreadable {
        /// What was looked for.
        structure: &'static str,
        /// Where.
        offset: u64,
        /// The drive's answer.
        reason: String,
    },
    /// Fewer bytes than the structure has.
    #[error(
        "{structure} at byte {offset}: {found} bytes where {needed} are needed; the drive or file is cut short"
    )]
    Short {
        /// What was looked for.
        structure: &'static str,
        /// Where.
        offset: u64,
        /// Bytes there.
        found: usize,
        /// Bytes of the structure.
        needed: usize,
    },
    /// Written by a newer Strake, whole as far as can be seen.
    #[error(
        "{structure} at byte {offset}: format version {found}, this Strake knows versions up to {known}; use a newer Strake (nothing was changed)"
    )]
    Version {
        /// What was looked for.
        structure: &'static str,
        /// Where.
        offset: u64,
        /// Version there.
        found: u32,
        /// Newest version known here.
        known: u32,
    },
    /// Torn write or damage.
    #[error(
        "{structure} at byte {offset}: checksum {stored:#010x} stored, {computed:#010x} computed: torn or damaged; its other copy is used where there is one"
    )]
    Checksum {
        /// What was looked for.
        structure: &'static str,
        /// Where.
        offset: u64,
        /// Checksum in the structure.
        stored: u32,
        /// Checksum of what is there.
        computed: u32,
    },
    /// Whole, but made for another place: a misdirected write, or a drive image moved or resized.
    #[error(
        "{structure} at byte {found_at}: was written for byte {says}; a misdirected write or a drive image that was shifted"
    )]
    Misplaced {
        /// What was looked for.
        structure: &'static str,
        /// Device offset that the structure carries.
        says: u64,
        /// Where it was found.
        found_at: u64,
    },
    /// Whole, but of another array or member.
    #[error("{structure} at byte {offset}: belongs to {field} {found}, not {expected}")]
    Foreign {
        /// What was looked for.
        structure: &'static str,
        /// Where.
        offset: u64,
        /// "array" or "member".
        field: &'static str,
        /// UUID wanted.
        expected: uuid::Uuid,
        /// UUID there.
        found: uuid::Uuid,
    },
    /// Uses features that must be understood and are not.
    #[error(
        "superblock: incompatible features {flags:#x} are not known to this Strake; use a newer Strake (nothing was changed)"
    )]
    Incompatible {
        /// The unknown ones.
        flags: u64,
    },
    /// The checksum holds but a value cannot be: written by a faulty or foreign program.
    #[error("{structure} at byte {offset}: {name} is {value}: {why}")]
    Field {
        /// What was looked for.
        structure: &'static str,
        /// Where the structure lies.
        offset: u64,
        /// Field.
        name: &'static str,
        /// What it says.
        value: String,
        /// What it must be.
        why: String,
    },
}

impl FormatError {
    /// Nothing of Strake's is there, as on a drive that was never used or was wiped.
    pub fn is_absent(&self) -> bool {
        matches!(self, FormatError::NotStrake { .. })
    }

    /// A newer Strake could read it: nothing here may be overwritten as damaged.
    pub fn needs_newer(&self) -> bool {
        matches!(
            self,
            FormatError::Version { .. } | FormatError::Incompatible { .. }
        )
    }
}
