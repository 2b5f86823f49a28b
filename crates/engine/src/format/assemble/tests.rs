use super::super::superblock::tests::sample;
use super::*;
use crate::layout::Level;
use proptest::prelude::*;

const HOST: Uuid = Uuid::from_u128(0x4057); // owner in `sample`

fn options() -> AssembleOptions {
    AssembleOptions {
        this_host: HOST,
        known_generation: None,
    }
}

/// Drives with the superblocks that were written to them; drive `i` starts at place `i`.
struct Rig {
    drives: Vec<Found>,
    now: Superblock,
}

impl Rig {
    fn new(level: Level, groups: u16, data: u16, parity: u16) -> Rig {
        let now = sample(level, groups, data, parity);
        let drives = (0..now.members.len()).map(|drive| Found {
            drive,
            path: format!("/dev/d{drive}"),
            serial: now.members[drive].serial.clone(),
            size_bytes: now.members[drive].size_bytes,
            copies: [const {
                Err(FormatError::NotStrake {
                    structure: "superblock",
                    offset: 0,
                })
            }; 2],
        });
        let mut rig = Rig {
            drives: drives.collect(),
            now,
        };
        let all: Vec<usize> = (0..rig.drives.len()).collect();
        rig.write(&all);
        rig
    }

    /// Writes the present superblock to both copies on these drives.
    fn write(&mut self, drives: &[usize]) {
        for &drive in drives {
            let found = &mut self.drives[drive];
            let own = self.now.for_member(drive as u16, found.size_bytes).unwrap();
            found.copies = [Ok(own.clone()), Ok(own)];
        }
    }

    fn change(&mut self, drives: &[usize], change: impl FnOnce(&mut Superblock)) {
        self.now.generation += 1;
        change(&mut self.now);
        self.write(drives);
    }

    /// A start on `drives`: absent members that were in the array are recorded as missing, under a
    /// new lineage.
    fn start_on(&mut self, drives: &[usize], lineage: u128) {
        self.now.raise_for_start(None);
        let members = self.now.members.iter().enumerate();
        let absent: Vec<u16> = members
            .filter(|(place, m)| m.state.is_in_array() && !drives.contains(place))
            .map(|(place, _)| place as u16)
            .collect();
        for &place in &absent {
            self.now.mark_left(place, MemberState::Missing);
        }
        if !absent.is_empty() {
            self.now.lineage = Uuid::from_u128(lineage << 64);
        }
        self.write(drives);
    }

    fn found(&self, drives: &[usize]) -> Vec<Found> {
        drives
            .iter()
            .map(|&drive| self.drives[drive].clone())
            .collect()
    }

    fn assemble(&self, drives: &[usize]) -> Result<Assembly, AssembleError> {
        assemble(self.now.array_uuid, &self.found(drives), &options())
    }
}

fn checksum_error() -> FormatError {
    FormatError::Checksum {
        structure: "superblock",
        offset: 4096,
        stored: 1,
        computed: 2,
    }
}

#[test]
fn a_whole_array_is_whole() {
    let rig = Rig::new(Level::Raid6, 1, 4, 2);
    let array = rig.assemble(&[5, 3, 1, 0, 2, 4]).unwrap();
    assert_eq!(array.members, (0..6).map(Some).collect::<Vec<_>>());
    assert!(array.enough_members() && !array.degraded && array.dirty);
    assert!(array.stale.is_empty() && array.missing.is_empty() && array.bad_copies.is_empty());
    assert_eq!(
        (array.newer_may_exist, array.owned_by_other_host),
        (None, None)
    );
}

#[test]
fn a_member_one_change_behind_is_current() {
    let mut rig = Rig::new(Level::Raid5, 1, 2, 1);
    rig.change(&[0, 1], |s| s.rebuild_priority = 9); // the crash came before drive 2
    let array = rig.assemble(&[0, 1, 2]).unwrap();
    assert_eq!(array.truth.rebuild_priority, 9);
    assert_eq!(array.members[2], Some(2));
    assert!(!array.degraded);
}

#[test]
fn a_member_recorded_as_failed_is_stale_whatever_it_says_itself() {
    let mut rig = Rig::new(Level::Raid5, 1, 2, 1);
    rig.change(&[0, 1], |s| s.mark_left(2, MemberState::Failed));
    let array = rig.assemble(&[0, 1, 2]).unwrap();
    let why = StaleReason::Left {
        state: MemberState::Failed,
        left_generation: 8,
    };
    assert_eq!(
        array.stale,
        [StaleDrive {
            drive: 2,
            place: 2,
            why
        }]
    );
    assert_eq!(array.missing[0].recorded, MemberState::Failed);
    assert!(array.degraded && array.enough_members() && array.dirty_and_degraded());
    assert_eq!(array.missing_expected().count(), 0);
    assert!(array.diverged.is_empty());
}

#[test]
fn a_rebuilding_member_keeps_the_position_of_the_truth() {
    let mut rig = Rig::new(Level::Raid5, 1, 2, 1);
    rig.change(&[0, 1, 2], |s| s.members[2].state = MemberState::Rebuilding);
    rig.change(&[0, 1], |s| s.members[2].rebuild_position_bytes = 1 << 20);
    let array = rig.assemble(&[0, 1, 2]).unwrap();
    assert_eq!(array.members[2], Some(2));
    assert_eq!(array.truth.members[2].rebuild_position_bytes, 1 << 20);
    assert!(array.degraded && array.missing.is_empty());
    // It cannot stand in for a member in sync.
    assert_eq!(rig.assemble(&[0, 2]).unwrap().short_groups, [0]);
}

#[test]
fn a_member_that_was_replaced_is_named_and_not_used() {
    let mut rig = Rig::new(Level::Raid5, 1, 2, 1);
    let old = rig.drives[2].clone();
    rig.change(&[0, 1, 2], |s| s.members[2].uuid = Uuid::from_u128(0x2222));
    let mut found = rig.found(&[0, 1, 2]);
    found.push(Found {
        drive: 3,
        path: "/dev/old".into(),
        ..old
    });
    let array = assemble(rig.now.array_uuid, &found, &options()).unwrap();
    assert_eq!(array.members, [Some(0), Some(1), Some(2)]);
    assert_eq!(
        array.stale,
        [StaleDrive {
            drive: 3,
            place: 2,
            why: StaleReason::NotListed
        }]
    );
}

#[test]
fn missing_members_are_named_with_their_serial() {
    let rig = Rig::new(Level::Raid60, 2, 2, 2);
    let array = rig.assemble(&[0, 1, 2, 3, 4]).unwrap();
    assert_eq!(array.short_groups, [1]);
    let serials: Vec<_> = array
        .missing_expected()
        .map(|m| m.serial.as_str())
        .collect();
    assert_eq!(serials, ["SERIAL0005", "SERIAL0006", "SERIAL0007"]);
    assert!(array.newer_may_exist.is_none(), "group 0 is whole here");
}

#[test]
fn torn_and_lagging_copies_are_listed_and_the_other_copy_serves() {
    let mut rig = Rig::new(Level::Raid5, 1, 2, 1);
    let old = rig.drives[1].copies[1].clone();
    rig.change(&[0, 1, 2], |_| {});
    rig.drives[0].copies[0] = Err(checksum_error());
    rig.drives[1].copies[1] = old;
    let array = rig.assemble(&[0, 1, 2]).unwrap();
    assert_eq!(array.members, [Some(0), Some(1), Some(2)]);
    let expected = [
        BadCopy {
            drive: 0,
            copy: 0,
            why: BadCopyReason::Invalid(checksum_error()),
        },
        BadCopy {
            drive: 1,
            copy: 1,
            why: BadCopyReason::Behind { says: 7, newest: 8 },
        },
    ];
    assert_eq!(array.bad_copies, expected);
}

#[test]
fn a_drive_with_both_copies_torn_is_foreign_and_its_member_missing() {
    let mut rig = Rig::new(Level::Raid5, 1, 2, 1);
    rig.drives[1].copies = [Err(checksum_error()), Err(checksum_error())];
    let array = rig.assemble(&[0, 1, 2]).unwrap();
    assert_eq!(array.foreign, [1]);
    assert_eq!(array.missing[0].place, 1);
}

#[test]
fn other_arrays_and_blank_drives_are_foreign() {
    let rig = Rig::new(Level::Raid1, 1, 1, 1);
    let mut other = Rig::new(Level::Raid1, 1, 1, 1);
    other.now.array_uuid = Uuid::from_u128(0xb0b);
    other.now.name = "other".into();
    other.write(&[0, 1]);
    let mut found = rig.found(&[0, 1]);
    found.push(Found {
        drive: 7,
        ..other.drives[0].clone()
    });
    let mut blank = other.drives[1].clone();
    blank.drive = 8;
    blank.copies = [Err(checksum_error()), Err(checksum_error())];
    found.push(blank);
    let array = assemble(rig.now.array_uuid, &found, &options()).unwrap();
    assert_eq!(array.foreign, [7, 8]);
    let names: Vec<String> = arrays(&found).into_iter().map(|a| a.1).collect();
    assert_eq!(names, ["other", "tank"]);
    let none = assemble(Uuid::from_u128(1), &found, &options());
    assert!(matches!(none, Err(AssembleError::NotFound { .. })));
}

#[test]
fn a_clone_is_refused_naming_both_drives_until_one_is_left_out() {
    let rig = Rig::new(Level::Raid5, 1, 2, 1);
    let mut found = rig.found(&[0, 1, 2]);
    found.push(Found {
        drive: 3,
        path: "/dev/clone".into(),
        ..rig.drives[1].clone()
    });
    let error = assemble(rig.now.array_uuid, &found, &options()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, AssembleError::Clones { place: 1, .. }));
    assert!(
        text.contains("/dev/d1") && text.contains("/dev/clone"),
        "{text}"
    );
    found.pop();
    assert!(assemble(rig.now.array_uuid, &found, &options()).is_ok());
}

#[test]
fn clones_of_a_member_that_left_do_no_harm() {
    let mut rig = Rig::new(Level::Raid5, 1, 2, 1);
    rig.change(&[0, 1], |s| s.mark_left(2, MemberState::Removed));
    let mut found = rig.found(&[0, 1, 2]);
    found.push(Found {
        drive: 3,
        ..rig.drives[2].clone()
    });
    let array = assemble(rig.now.array_uuid, &found, &options()).unwrap();
    assert_eq!(array.clones, [(2, vec![2, 3])]);
    assert_eq!(array.stale.len(), 2);
}

#[test]
fn halves_that_ran_apart_and_are_equally_new_are_refused() {
    let mut one = Rig::new(Level::Raid1, 1, 1, 1);
    let mut other = Rig::new(Level::Raid1, 1, 1, 1);
    one.start_on(&[0], 1);
    other.start_on(&[1], 2);
    let found = [one.drives[0].clone(), other.drives[1].clone()];
    let error = assemble(one.now.array_uuid, &found, &options()).unwrap_err();
    let AssembleError::Diverged { one, other, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((one.len(), other.len()), (1, 1));
    assert!(error.to_string().contains("/dev/d0") && error.to_string().contains("/dev/d1"));
}

/// A start from `now` that wrote its first copies to `drives` and was cut off there.
fn cut_off_start(rig: &mut Rig, drives: &[usize], started_unix: u64) {
    let before: Vec<Found> = rig.drives.clone();
    rig.now.raise_for_start(None);
    rig.now.state = RunState::InUse;
    rig.now.owner_started_unix = started_unix;
    rig.write(drives);
    for &drive in drives {
        rig.drives[drive].copies[1] = before[drive].copies[1].clone();
    }
}

/// The first left torn superblocks only; the second, from the same state, made one of them whole.
#[test]
fn two_starts_in_a_row_that_were_cut_off_before_they_were_recorded_are_one() {
    let mut first = Rig::new(Level::Raid5, 1, 2, 1);
    let mut second = Rig::new(Level::Raid5, 1, 2, 1);
    cut_off_start(&mut first, &[0], 3);
    cut_off_start(&mut second, &[1], 4);
    let uuid = first.now.array_uuid;
    let found = [first.drives[0].clone(), second.drives[1].clone()];
    let array = assemble(uuid, &found, &options()).unwrap();
    assert_eq!(array.members, [Some(0), Some(1), None]);
}

/// Copies of all drives of an array, each set started and stopped: what they hold differs, and all
/// that says so is when they were started.
#[test]
fn drives_of_two_sets_of_copies_are_never_joined() {
    let run = |started_unix, state| {
        let mut rig = Rig::new(Level::Raid5, 1, 2, 1);
        rig.now.raise_for_start(None);
        rig.now.raise_for_serving();
        rig.now.state = state;
        rig.now.owner_started_unix = started_unix;
        rig.write(&[0, 1, 2]);
        rig
    };
    for state in [RunState::Clean, RunState::InUse] {
        let (one, mut other) = (run(3, state), run(4, state));
        let mut found = [one.drives[0].clone(), other.drives[1].clone()];
        let refused = |found: &[Found]| {
            let error = assemble(one.now.array_uuid, found, &options()).unwrap_err();
            assert!(matches!(error, AssembleError::Diverged { .. }), "{error}");
        };
        refused(&found);
        // One with its second copies on the way.
        found[1].copies[1] = other.drives[2].copies[1].clone();
        refused(&found);
        // Both cut off in a start after it: the copies from before say so.
        let mut one = run(3, state);
        cut_off_start(&mut one, &[0], 5);
        cut_off_start(&mut other, &[1], 6);
        let mut found = [one.drives[0].clone(), other.drives[1].clone()];
        refused(&found);
        // And where one of those cannot be read, nothing says that they would agree.
        found[1].copies[1] = Err(FormatError::NotStrake {
            structure: "superblock",
            offset: 0,
        });
        refused(&found);
    }
}

#[test]
fn of_halves_that_ran_apart_the_older_one_is_named_diverged() {
    let mut one = Rig::new(Level::Raid1, 1, 1, 1);
    let mut other = Rig::new(Level::Raid1, 1, 1, 1);
    one.start_on(&[0], 1);
    one.change(&[0], |_| {});
    other.start_on(&[1], 2);
    let found = [one.drives[0].clone(), other.drives[1].clone()];
    let array = assemble(one.now.array_uuid, &found, &options()).unwrap();
    assert_eq!(array.members, [Some(0), None]);
    assert_eq!(array.diverged, [1]);
    assert!(array.stale.is_empty());
}

#[test]
fn a_member_that_was_only_absent_is_stale_and_not_diverged() {
    let mut rig = Rig::new(Level::Raid1, 1, 1, 2);
    rig.start_on(&[0, 1], 1);
    rig.start_on(&[0], 2);
    let array = rig.assemble(&[0, 1, 2]).unwrap();
    assert_eq!(array.members, [Some(0), None, None]);
    let stale: Vec<usize> = array.stale.iter().map(|s| s.drive).collect();
    assert_eq!(stale, [1, 2]);
    assert!(array.diverged.is_empty());
}

#[test]
fn half_a_change_before_the_split_does_not_make_a_member_diverged() {
    let mut rig = Rig::new(Level::Raid1, 1, 1, 1);
    let before = rig.now.clone();
    rig.change(&[1], |_| {}); // the crash came before drive 0 had it; drive 1 then stayed away
    rig.now = before;
    rig.start_on(&[0], 1);
    let array = rig.assemble(&[0, 1]).unwrap();
    assert_eq!(array.stale.len(), 1);
    assert!(array.diverged.is_empty());
}

/// Drives brought together.
type Present = &'static [usize];

#[test]
fn newer_data_may_be_on_absent_members_that_could_run_alone() {
    let rows: &[(Level, u16, u16, u16, Present, bool)] = &[
        (Level::Raid1, 1, 1, 1, &[0], true),
        (Level::Raid1, 1, 1, 2, &[0, 1], true),
        (Level::Raid5, 1, 2, 1, &[0, 1], false),
        (Level::Raid5, 1, 2, 1, &[0], true), // but too few to start anyway
        (Level::Raid6, 1, 4, 2, &[0, 1, 2, 3], false),
        (Level::Raid10, 2, 1, 1, &[0, 2], true),
        (Level::Raid10, 2, 1, 1, &[0, 1, 2], false),
        (Level::NPlusM, 1, 3, 3, &[0, 1, 2], true),
        (Level::NPlusM, 1, 4, 3, &[0, 1, 2, 3], false),
    ];
    for &(level, groups, data, parity, present, expected) in rows {
        let rig = Rig::new(level, groups, data, parity);
        let array = rig.assemble(present).unwrap();
        let row = format!("{} {groups}x{data}+{parity} {present:?}", level.name());
        assert_eq!(array.newer_may_exist.is_some(), expected, "{row}");
        for (known, doubt) in [(7, false), (6, false), (8, true)] {
            let options = AssembleOptions {
                known_generation: Some(known),
                ..options()
            };
            let array = assemble(rig.now.array_uuid, &rig.found(present), &options).unwrap();
            assert_eq!(
                array.newer_may_exist.is_some(),
                doubt,
                "{row}, known {known}"
            );
        }
    }
}

#[test]
fn the_survivor_that_saw_the_other_fail_starts_alone_and_the_failed_one_does_not() {
    let mut rig = Rig::new(Level::Raid1, 1, 1, 1);
    rig.change(&[1], |s| s.mark_left(0, MemberState::Failed));
    assert_eq!(rig.assemble(&[1]).unwrap().newer_may_exist, None);
    let text = rig.assemble(&[0]).unwrap().newer_may_exist.unwrap();
    assert!(text.contains("1 (serial SERIAL0001)"), "{text}");
}

#[test]
fn another_hosts_array_is_seen_unless_it_was_stopped() {
    let mut rig = Rig::new(Level::Raid1, 1, 1, 1);
    rig.change(&[0, 1], |s| s.owner_host = Uuid::from_u128(0xfee));
    let owner = rig.assemble(&[0, 1]).unwrap().owned_by_other_host.unwrap();
    assert_eq!(owner.host, Uuid::from_u128(0xfee));
    rig.change(&[0, 1], |s| s.state = RunState::Clean);
    let array = rig.assemble(&[0, 1]).unwrap();
    assert!(array.owned_by_other_host.is_none() && !array.dirty);
}

#[test]
fn a_drive_cut_short_is_not_used() {
    let mut rig = Rig::new(Level::Raid5, 1, 2, 1);
    rig.drives[2].size_bytes = 100 << 20;
    let array = rig.assemble(&[0, 1, 2]).unwrap();
    assert_eq!(array.members[2], None);
    assert!(
        matches!(array.stale[0].why, StaleReason::Shrunk { size_bytes, .. } if size_bytes == 100 << 20)
    );
}

#[test]
fn a_copy_of_a_newer_format_stops_everything() {
    let mut rig = Rig::new(Level::Raid5, 1, 2, 1);
    let newer = FormatError::Version {
        structure: "superblock",
        offset: 4096,
        found: 2,
        known: 1,
    };
    rig.drives[1].copies[0] = Err(newer);
    let error = rig.assemble(&[0, 1, 2]).unwrap_err();
    assert!(matches!(error, AssembleError::NeedsNewer { .. }));
    assert!(error.to_string().contains("/dev/d1"), "{error}");
}

/// The whole life of an array as the rules have it: changes that reach all members or, in a
/// crash, some; members that fail; restarts with members absent. Whatever drives are then brought
/// together, no member that missed an acknowledged write is used.
#[derive(Debug, Clone)]
enum Event {
    Change,
    CrashInChange(usize, u8),
    Fail(usize),
    Restart(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Change),
        (0usize..5, any::<u8>()).prop_map(|(n, mask)| Event::CrashInChange(n, mask)),
        (0usize..5).prop_map(Event::Fail),
        any::<u8>().prop_map(Event::Restart),
    ]
}

/// The model: which content each drive has seen; acknowledged content counts up.
struct Life {
    rig: Rig,
    running: Vec<usize>,
    content: Vec<u64>,
    acknowledged: u64,
    lineage: u128,
}

impl Life {
    fn write(&mut self) {
        self.acknowledged += 1;
        for &drive in &self.running {
            self.content[drive] = self.acknowledged;
        }
    }

    fn step(&mut self, event: &Event) {
        match *event {
            Event::Change => {
                let running = self.running.clone();
                self.rig.change(&running, |s| {
                    s.rebuild_priority = s.rebuild_priority % 100 + 1
                });
            }
            Event::CrashInChange(reached, present) => {
                let mut running = self.running.clone();
                let by = reached % running.len();
                running.rotate_left(by);
                running.truncate(reached);
                self.rig.change(&running, |s| {
                    s.rebuild_priority = s.rebuild_priority % 100 + 1
                });
                self.restart(present);
            }
            Event::Fail(nth) => {
                if self.running.len() > 3 {
                    let drive = self.running.remove(nth % self.running.len());
                    let running = self.running.clone();
                    let failed = MemberState::Failed;
                    self.rig
                        .change(&running, |s| s.mark_left(drive as u16, failed));
                }
            }
            Event::Restart(present) => self.restart(present),
        }
        self.write();
    }

    /// Starts from the drives in the mask, if the rules allow it; else from all.
    fn restart(&mut self, present: u8) {
        for mask in [present, 0xff] {
            let drives: Vec<usize> = (0..5).filter(|d| mask >> d & 1 == 1).collect();
            let Ok(array) = self.rig.assemble(&drives) else {
                continue;
            };
            if !array.enough_members() || array.newer_may_exist.is_some() {
                continue;
            }
            self.check(&array);
            self.rig.now = array.truth.clone();
            self.running = array.members.iter().flatten().copied().collect();
            let running = self.running.clone();
            self.lineage += 1;
            self.rig.start_on(&running, self.lineage);
            return;
        }
        panic!("all drives together always start");
    }

    fn check(&self, array: &Assembly) {
        for &drive in array.members.iter().flatten() {
            assert_eq!(
                self.content[drive], self.acknowledged,
                "drive {drive} missed a write"
            );
        }
        assert!(array.diverged.is_empty(), "nothing ran apart");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_member_that_missed_a_write_is_ever_used(
        events in prop::collection::vec(event(), 1..12),
        last: u8,
    ) {
        let mut life = Life {
            rig: Rig::new(Level::NPlusM, 1, 3, 2),
            running: (0..5).collect(),
            content: vec![0; 5],
            acknowledged: 0,
            lineage: 100,
        };
        for event in &events {
            life.step(event);
        }
        life.restart(last);
    }
}
