use super::*;
use proptest::prelude::*;

const MEMBER: u16 = 3;

fn torn(offset: u64, length: u64) -> TornExtent {
    TornExtent {
        member: MEMBER,
        kind: TornKind::Torn,
        offset,
        length,
    }
}

#[test]
fn extents_join_split_and_come_back_from_their_bytes() {
    let mut list = TornList::default();
    assert!(list.insert(torn(4096, 4096)));
    assert!(list.insert(torn(8192, 4096)));
    assert_eq!(list.iter().collect::<Vec<_>>(), [torn(4096, 8192)]);
    assert!(!list.insert(torn(4096, 100)));
    assert!(list.remove(MEMBER, 6000..7000));
    assert_eq!(
        list.iter().collect::<Vec<_>>(),
        [torn(4096, 1904), torn(7000, 5288)]
    );
    assert!(list.overlaps(MEMBER, 6000..7000).is_none());
    assert!(list.overlaps(MEMBER, 6999..7001).is_some());
    assert!(list.overlaps(MEMBER + 1, 0..u64::MAX).is_none());
    assert_eq!(TornList::decode(&list.encode()), Ok(list));
}

/// Blocks of four members, one by one.
type Model = std::collections::BTreeMap<(u16, u64), TornKind>;
const SPAN: u64 = 64;

fn blocks(list: &TornList) -> Model {
    let blocks = list.iter().flat_map(|extent| {
        assert!(extent.length > 0);
        (extent.offset..extent.offset + extent.length)
            .map(move |block| ((extent.member, block), extent.kind))
    });
    blocks.collect()
}

#[derive(Debug, Clone)]
enum Step {
    Insert(TornExtent),
    Remove(u16, Range<u64>),
    RemoveKind(TornKind),
}

fn kinds() -> impl Strategy<Value = TornKind> {
    prop_oneof![Just(TornKind::Torn), Just(TornKind::Suspect)]
}

fn steps() -> impl Strategy<Value = Step> {
    let range = (0..4u16, 0..SPAN, 1..SPAN / 2);
    prop_oneof![
        8 => (range.clone(), kinds()).prop_map(|((member, offset, length), kind)| {
            Step::Insert(TornExtent { member, kind, offset, length })
        }),
        4 => range.prop_map(|(member, at, length)| Step::Remove(member, at..at + length)),
        1 => kinds().prop_map(Step::RemoveKind),
    ]
}

fn apply(model: &mut Model, step: &Step) {
    match step {
        Step::Insert(extent) => {
            let all = extent.offset..extent.offset + extent.length;
            model.extend(all.map(|block| ((extent.member, block), extent.kind)));
        }
        Step::Remove(member, range) => {
            model.retain(|(m, block), _| m != member || !range.contains(block));
        }
        Step::RemoveKind(kind) => model.retain(|_, other| other != kind),
    }
}

proptest! {
    #[test]
    fn a_list_is_the_set_of_its_blocks(
        steps in proptest::collection::vec(steps(), 1..40),
        probes in proptest::collection::vec((0..4u16, 0..SPAN, 1..SPAN), 8),
    ) {
        let (mut list, mut model) = (TornList::default(), Model::new());
        for step in steps {
            let before = model.clone();
            apply(&mut model, &step);
            let changed = match step {
                Step::Insert(extent) => list.insert(extent),
                Step::Remove(member, range) => list.remove(member, range),
                Step::RemoveKind(kind) => list.remove_kind(kind),
            };
            prop_assert_eq!(changed, before != model);
            prop_assert_eq!(blocks(&list), model.clone());
        }
        // Joined where they touch and are of one kind.
        let extents: Vec<TornExtent> = list.iter().collect();
        for pair in extents.windows(2) {
            let end = pair[0].offset + pair[0].length;
            prop_assert!(
                (pair[0].member, pair[0].kind) != (pair[1].member, pair[1].kind)
                    || end < pair[1].offset
            );
        }
        for kind in [TornKind::Torn, TornKind::Suspect] {
            let count = model.values().filter(|&&other| other == kind).count();
            prop_assert_eq!(list.bytes(kind), count as u64);
        }
        for (member, at, length) in probes {
            let hit = list.overlaps(member, at..at + length);
            let expected = (at..at + length).any(|block| model.contains_key(&(member, block)));
            prop_assert_eq!(hit.is_some(), expected);
        }
        prop_assert_eq!(TornList::decode(&list.encode()), Ok(list));
    }
}

#[test]
fn bytes_that_are_no_list_are_refused() {
    let mut list = TornList::default();
    list.insert(torn(4096, 4096));
    list.insert(torn(16384, 4096));
    let good = list.encode();
    let with = |at: usize, value: u8| {
        let mut raw = good.clone();
        raw[at] = value;
        TornList::decode(&raw)
    };
    let faults = [
        (2, 3),    // a kind that is none
        (2, 0),    // likewise
        (4, 1),    // reserved
        (17, 0),   // no bytes
        (23, 255), // ends behind 2^64 - 1 with any offset of note
        (17, 64),  // reaches into the next
    ];
    for (at, value) in faults {
        let result = with(at, value);
        assert!(result.is_err(), "byte {at} = {value}: {result:?}");
    }
    assert!(TornList::decode(&good[..30]).is_err());
    assert_eq!(TornList::decode(&[]), Ok(TornList::default()));
}
