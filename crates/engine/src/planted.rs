//! Planted bugs, for the simulator to find: each breaks one rule, most of them the parity log's.
//!
//! They exist only with the cargo feature `planted`, which nothing but the simulator's own proof
//! turns on; without it every question is answered `false` at compile time.

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// A unit that ends retires every older one with it.
    RetireOutOfOrder,
    /// An entry goes to one of the carriers that it names.
    CarriersLeftOut,
    /// An older entry of a row is replayed after the newest.
    SupersededReplayed,
    /// A row is touched again although a power cut may take back what it holds.
    PartialParityOverUndurable,
    /// A log that cannot be read counts as one without entries.
    UnreadableTakenForTorn,
    /// Blocks are listed as torn last: after the parity around them was rewritten, and after the
    /// epoch that ends what the log says was raised. (Between the two the log still says it: the
    /// next replay tears the same blocks again.)
    TornListAfterParity,
    /// What a hypothesis says of a lost strip is believed without its checksum.
    HypothesisWithoutChecksum,
    /// A durable write is acknowledged when its data is durable, its parity not.
    FuaBeforeParity,
    /// Nothing waits until a member's absence is recorded: writes that miss it begin, end, are
    /// acknowledged and retire.
    AbsenceRecordedLate,
    /// A member is refilled while entries of before are in force.
    ProgressOfToday,
    /// Records of different members are ordered each for itself.
    SeparateRings,
    /// An entry counts although a carrier that could be read lacks it.
    VoidEntryReplayed,
    /// A direct read counts although what it relied on has changed under it.
    ReadNotLookedAtAgain,
}

impl Planted {
    /// Every planted bug.
    pub const ALL: [Planted; 13] = [
        Planted::RetireOutOfOrder,
        Planted::CarriersLeftOut,
        Planted::SupersededReplayed,
        Planted::PartialParityOverUndurable,
        Planted::UnreadableTakenForTorn,
        Planted::TornListAfterParity,
        Planted::HypothesisWithoutChecksum,
        Planted::FuaBeforeParity,
        Planted::AbsenceRecordedLate,
        Planted::ProgressOfToday,
        Planted::SeparateRings,
        Planted::VoidEntryReplayed,
        Planted::ReadNotLookedAtAgain,
    ];
}

#[cfg(feature = "planted")]
thread_local! {
    static ON: std::cell::Cell<Option<Planted>> = const { std::cell::Cell::new(None) };
}

/// Whether a rule is broken on this thread.
#[cfg(feature = "planted")]
pub(crate) fn on(bug: Planted) -> bool {
    ON.with(|on| on.get() == Some(bug))
}

/// Never.
#[cfg(not(feature = "planted"))]
pub(crate) const fn on(_bug: Planted) -> bool {
    false
}

/// Breaks a rule on this thread from now on, or none.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Planted>) {
    ON.with(|on| on.set(bug));
}
