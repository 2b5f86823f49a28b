//! Plans carried out on strips in memory, against parity computed byte by byte.

use super::*;
use fastrand::Rng;

const ROWS: u32 = 96;
const STEP: u32 = 8;

/// Product in GF(2⁸) with the polynomial 0x11d, bit by bit.
fn product(mut a: u8, mut b: u8) -> u8 {
    let mut sum = 0;
    while b != 0 {
        if b & 1 == 1 {
            sum ^= a;
        }
        a = a << 1 ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    sum
}

/// A stripe as members hold it. Strips that cannot be read hold garbage.
struct Stripe {
    code: Code,
    /// What every strip should hold.
    truth: Vec<Vec<u8>>,
    stored: Vec<Vec<u8>>,
    strips: Strips,
    request: Vec<u8>,
}

fn parity_of(code: &Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    (0..code.parity())
        .map(|row| {
            let byte = |at: usize| {
                let column = |c: usize| product(code.coefficient(row, c), data[c][at]);
                (0..code.data()).fold(0, |sum, c| sum ^ column(c))
            };
            (0..ROWS as usize).map(byte).collect()
        })
        .collect()
}

fn random_bytes(rng: &mut Rng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rng.fill(&mut bytes);
    bytes
}

impl Stripe {
    /// `gone`: neither readable nor writable; `unread`: not readable, but writable.
    fn new(rng: &mut Rng, (data, parity): (usize, usize), gone: u64, unread: u64) -> Stripe {
        let code = Code::new(data, parity).expect("a shape of the tests");
        let mut truth: Vec<_> = (0..data)
            .map(|_| random_bytes(rng, ROWS as usize))
            .collect();
        truth.extend(parity_of(&code, &truth));
        let mut stored = truth.clone();
        for strip in strips_of(gone | unread) {
            stored[strip] = random_bytes(rng, ROWS as usize);
        }
        let all = mask(data + parity);
        Stripe {
            code,
            truth,
            stored,
            strips: Strips {
                data,
                parity,
                readable: all & !gone & !unread,
                writable: all & !gone,
            },
            request: random_bytes(rng, 64 * ROWS as usize),
        }
    }

    /// Reads, computes, copies and writes as node does; returns what a check found.
    fn carry_out(&mut self, plan: &Plan, fragments: &[Fragment]) -> u64 {
        let mut slots: Vec<Option<Vec<u8>>> = vec![None; SLOTS_MAX];
        let slot = |slots: &mut Vec<Option<Vec<u8>>>, index: usize| {
            slots[index].get_or_insert_with(|| vec![0xee; plan.slot_bytes()]);
        };
        for read in &plan.reads {
            assert!(read.start < read.end, "an empty read");
            let strip = usize::from(read.strip);
            assert_ne!(
                self.strips.readable & 1 << strip,
                0,
                "strip {strip} cannot be read"
            );
            let bytes = &self.stored[strip][read.start as usize..read.end as usize];
            match read.into {
                Into::Slot => {
                    slot(&mut slots, strip);
                    let at = (read.start - plan.start) as usize;
                    let memory = slots[strip].as_mut().expect("just made");
                    memory[at..at + bytes.len()].copy_from_slice(bytes);
                }
                Into::Fragment(number) => {
                    let Memory::Request(_, at) = fragments[usize::from(number)].memory else {
                        panic!("zeroes are not read")
                    };
                    self.request[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        for index in 0..SLOTS_MAX {
            if plan.slots >> index & 1 == 1 {
                slot(&mut slots, index);
            }
        }
        let request = self.request.clone();
        let bytes = |memory: Memory, length: usize| -> &[u8] {
            let Memory::Request(_, at) = memory else {
                panic!("zeroes need no memory")
            };
            &request[at as usize..at as usize + length]
        };
        let differing = compute::run(
            plan,
            fragments,
            &self.code,
            &mut slots,
            &bytes,
            &mut Vec::new(),
        );
        for &(number, index) in &plan.copies {
            let fragment = &fragments[usize::from(number)];
            let Memory::Request(_, at) = fragment.memory else {
                panic!("zeroes are not read")
            };
            let from = (fragment.start - plan.start) as usize;
            let length = (fragment.end - fragment.start) as usize;
            let source = slots[usize::from(index)]
                .as_ref()
                .expect("a slot that is copied from exists");
            self.request[at as usize..at as usize + length]
                .copy_from_slice(&source[from..from + length]);
        }
        for write in &plan.writes {
            self.write(plan, fragments, write, &slots);
        }
        differing
    }

    fn write(
        &mut self,
        plan: &Plan,
        fragments: &[Fragment],
        write: &WritePart,
        slots: &[Option<Vec<u8>>],
    ) {
        let strip = usize::from(write.strip);
        assert_ne!(
            self.strips.writable & 1 << strip,
            0,
            "strip {strip} takes no writes"
        );
        let (start, end) = (write.start as usize, write.end as usize);
        assert!(start < end, "an empty write");
        let content = match write.from {
            From::Zeroes => vec![0; end - start],
            From::Slot => {
                let slot = slots[strip]
                    .as_ref()
                    .expect("a slot that is written exists");
                slot[start - plan.start as usize..end - plan.start as usize].to_vec()
            }
            From::Fragment(number) => {
                let fragment = &fragments[usize::from(number)];
                let Memory::Request(_, at) = fragment.memory else {
                    panic!("zeroes have no memory")
                };
                let at = (at + write.start - fragment.start) as usize;
                self.request[at..at + end - start].to_vec()
            }
        };
        self.stored[strip][start..end].copy_from_slice(&content);
    }

    fn fragment(&self, rng: &mut Rng, strip: usize, number: usize) -> Fragment {
        let start = rng.u32(0..ROWS / STEP) * STEP;
        let end = rng.u32(start / STEP + 1..=ROWS / STEP) * STEP;
        Fragment {
            strip: strip as u8,
            start,
            end,
            memory: Memory::Request(RequestId(1), number as u32 * ROWS),
        }
    }

    /// What the truth is after a write.
    fn change(&mut self, fragments: &[Fragment]) {
        for fragment in fragments {
            let rows = fragment.start as usize..fragment.end as usize;
            let into = &mut self.truth[usize::from(fragment.strip)][rows.clone()];
            match fragment.memory {
                Memory::Zeroes => into.fill(0),
                Memory::Request(_, at) => {
                    into.copy_from_slice(&self.request[at as usize..at as usize + rows.len()]);
                }
            }
        }
        self.truth.truncate(self.strips.data);
        let parity = parity_of(&self.code, &self.truth);
        self.truth.extend(parity);
    }

    /// In these rows every strip of the mask holds what it should.
    fn assert_true(&self, strips: u64, rows: std::ops::Range<u32>, what: &str) {
        for strip in strips_of(strips) {
            let rows = rows.start as usize..rows.end as usize;
            assert_eq!(
                self.stored[strip][rows.clone()],
                self.truth[strip][rows],
                "strip {strip}: {what}"
            );
        }
    }
}

const SHAPES: [(usize, usize); 12] = [
    (1, 1),
    (1, 2),
    (2, 1),
    (3, 1),
    (4, 1),
    (2, 2),
    (3, 2),
    (4, 2),
    (2, 3),
    (4, 3),
    (4, 4),
    (3, 3),
];

/// Every pattern of up to m strips lost, each also with some of them only unreadable.
fn for_all_losses(mut test: impl FnMut(&mut Rng, (usize, usize), u64, u64)) {
    let mut rng = Rng::with_seed(7);
    for shape in SHAPES {
        for lost in 0..1u64 << (shape.0 + shape.1) {
            if lost.count_ones() as usize > shape.1 {
                continue;
            }
            let unread = lost & rng.u64(..);
            test(&mut rng, shape, lost, 0);
            test(&mut rng, shape, lost & !unread, unread);
        }
    }
}

fn any_fragments(rng: &mut Rng, stripe: &Stripe) -> Vec<Fragment> {
    let mut fragments: Vec<Fragment> = Vec::new();
    for number in 0..rng.usize(1..=6) {
        let strip = rng.usize(..stripe.strips.data);
        let mut fragment = stripe.fragment(rng, strip, number);
        if rng.u8(..4) == 0 {
            fragment.memory = Memory::Zeroes;
        }
        if rng.u8(..3) == 0 {
            (fragment.start, fragment.end) = (0, ROWS);
        }
        if !fragments.iter().any(|other| other.overlaps(&fragment)) {
            fragments.push(fragment);
        }
    }
    fragments
}

#[test]
fn after_any_write_every_live_strip_is_true_in_every_row_it_touched() {
    for_all_losses(|rng, shape, gone, unread| {
        for _ in 0..4 {
            let mut stripe = Stripe::new(rng, shape, gone, unread);
            let fragments = any_fragments(rng, &stripe);
            let mut plan = Plan::default();
            plan_write(&stripe.strips, &stripe.code, &fragments, None, &mut plan)
                .expect("losses within parity");
            stripe.carry_out(&plan, &fragments);
            stripe.change(&fragments);
            // What could not be read stays as it was in rows that the write has not touched.
            stripe.assert_true(stripe.strips.readable, 0..ROWS, "readable before the write");
            for fragment in &fragments {
                let strip = 1 << fragment.strip;
                stripe.assert_true(
                    strip & stripe.strips.writable,
                    fragment.start..fragment.end,
                    "written",
                );
            }
        }
    });
}

#[test]
fn a_write_of_all_data_strips_reads_nothing() {
    for_all_losses(|rng, shape, gone, unread| {
        let mut stripe = Stripe::new(rng, shape, gone, unread);
        let fragments: Vec<Fragment> = (0..shape.0)
            .map(|strip| Fragment {
                strip: strip as u8,
                start: 0,
                end: ROWS,
                memory: Memory::Request(RequestId(1), strip as u32 * ROWS),
            })
            .collect();
        let mut plan = Plan::default();
        plan_write(&stripe.strips, &stripe.code, &fragments, None, &mut plan)
            .expect("losses within parity");
        assert!(plan.reads.is_empty());
        stripe.carry_out(&plan, &fragments);
        stripe.change(&fragments);
        stripe.assert_true(stripe.strips.writable, 0..ROWS, "full stripe");
    });
}

#[test]
fn whole_stripes_of_zeroes_are_zeroed_without_memory() {
    let mut rng = Rng::with_seed(1);
    let stripe = Stripe::new(&mut rng, (4, 2), 0, 0);
    let fragments: Vec<Fragment> = (0..4)
        .map(|strip| Fragment {
            strip,
            start: 0,
            end: ROWS,
            memory: Memory::Zeroes,
        })
        .collect();
    let mut plan = Plan::default();
    plan_write(&stripe.strips, &stripe.code, &fragments, None, &mut plan).expect("nothing is lost");
    assert_eq!((plan.slots, plan.spans.len(), plan.writes.len()), (0, 0, 6));
    assert!(plan.writes.iter().all(|write| write.from == From::Zeroes));
}

#[test]
fn a_small_write_takes_the_way_with_fewer_reads() {
    let mut rng = Rng::with_seed(1);
    let one = |strip| Fragment {
        strip,
        start: 0,
        end: STEP,
        memory: Memory::Request(RequestId(1), u32::from(strip) * ROWS),
    };
    for (shape, strips, way, reads) in [
        ((8, 1), 1, Way::ReadModifyWrite, 2),
        ((8, 2), 1, Way::ReadModifyWrite, 3),
        ((2, 1), 1, Way::ReconstructWrite, 1),
        ((8, 1), 7, Way::ReconstructWrite, 1),
        ((4, 2), 3, Way::ReconstructWrite, 1),
    ] {
        let stripe = Stripe::new(&mut rng, shape, 0, 0);
        let fragments: Vec<Fragment> = (0..strips).map(one).collect();
        let mut plan = Plan::default();
        plan_write(&stripe.strips, &stripe.code, &fragments, None, &mut plan)
            .expect("nothing is lost");
        assert_eq!(plan.spans[0].way, way, "{shape:?}, {strips} strips written");
        assert_eq!(
            plan.reads.len(),
            reads,
            "{shape:?}, {strips} strips written"
        );
    }
}

#[test]
fn any_read_returns_the_truth_and_repairs_what_it_was_asked_to() {
    for_all_losses(|rng, shape, gone, unread| {
        for _ in 0..3 {
            let mut stripe = Stripe::new(rng, shape, gone, unread);
            let mut fragments = Vec::new();
            for strip in 0..shape.0 {
                if rng.bool() || strip == 0 {
                    fragments.push(stripe.fragment(rng, strip, strip));
                }
            }
            let repair = if rng.bool() { unread } else { 0 };
            let mut plan = Plan::default();
            plan_read(&stripe.strips, &stripe.code, &fragments, repair, &mut plan)
                .expect("losses within parity");
            stripe.carry_out(&plan, &fragments);
            for fragment in &fragments {
                let Memory::Request(_, at) = fragment.memory else {
                    unreachable!()
                };
                let rows = fragment.start as usize..fragment.end as usize;
                assert_eq!(
                    stripe.request[at as usize..at as usize + rows.len()],
                    stripe.truth[usize::from(fragment.strip)][rows],
                    "{shape:?} gone {gone:b} unread {unread:b} {fragment:?}"
                );
            }
            stripe.assert_true(repair, plan.start..plan.end, "repaired");
            assert!(
                plan.writes
                    .iter()
                    .all(|write| repair >> write.strip & 1 == 1)
            );
        }
    });
}

#[test]
fn a_rebuild_makes_its_targets_true() {
    for_all_losses(|rng, shape, gone, unread| {
        let mut stripe = Stripe::new(rng, shape, gone, unread);
        // Members being refilled take writes of the rebuild alone.
        let targets = gone & rng.u64(..);
        stripe.strips.writable |= targets;
        let mut plan = Plan::default();
        plan_rebuild(&stripe.strips, &stripe.code, targets, (0, ROWS), &mut plan)
            .expect("losses within parity");
        stripe.carry_out(&plan, &[]);
        stripe.assert_true(targets, 0..ROWS, "rebuilt");
    });
}

#[test]
fn a_check_sees_every_single_strip_that_is_wrong_and_nothing_else() {
    for_all_losses(|rng, shape, gone, unread| {
        let mut stripe = Stripe::new(rng, shape, gone, unread);
        let mut plan = Plan::default();
        plan_check(&stripe.strips, &stripe.code, (0, ROWS), &mut plan)
            .expect("losses within parity");
        assert_eq!(
            stripe.carry_out(&plan, &[]),
            0,
            "{shape:?} gone {gone:b} unread {unread:b}"
        );
        if stripe.strips.readable.count_ones() as usize == shape.0 {
            assert!(plan.spans.is_empty(), "nothing to compare with");
            return;
        }
        for strip in strips_of(stripe.strips.readable) {
            let at = rng.usize(..ROWS as usize);
            stripe.stored[strip][at] ^= 1 << rng.u8(..8);
            assert_ne!(
                stripe.carry_out(&plan, &[]),
                0,
                "{shape:?}: strip {strip} is wrong"
            );
            stripe.stored[strip] = stripe.truth[strip].clone();
        }
    });
}

#[test]
fn more_losses_than_parities_are_never_made_up() {
    let mut rng = Rng::with_seed(3);
    for (data, parity) in SHAPES {
        for lost in 0..1u64 << (data + parity) {
            if lost.count_ones() as usize != parity + 1 {
                continue;
            }
            let stripe = Stripe::new(&mut rng, (data, parity), lost, 0);
            let mut plan = Plan::default();
            let fragments = any_fragments(&mut rng, &stripe);
            assert!(plan_write(&stripe.strips, &stripe.code, &fragments, None, &mut plan).is_err());
            let targets = lost & lost.wrapping_neg();
            assert!(
                plan_rebuild(&stripe.strips, &stripe.code, targets, (0, ROWS), &mut plan).is_err()
            );
            let lost_data = lost & stripe.strips.data_mask();
            if lost_data != 0 {
                let strip = lost_data.trailing_zeros() as usize;
                let fragments = [stripe.fragment(&mut rng, strip, 0)];
                assert!(plan_read(&stripe.strips, &stripe.code, &fragments, 0, &mut plan).is_err());
            }
        }
    }
}

#[test]
fn with_parity_in_doubt_data_is_read_and_written_without_it() {
    // After a crash only data strips are believed: a partial write must read data, not parity.
    let mut rng = Rng::with_seed(5);
    for (data, parity) in SHAPES.into_iter().filter(|shape| shape.0 > 1) {
        for _ in 0..20 {
            let mut stripe = Stripe::new(&mut rng, (data, parity), 0, 0);
            for strip in data..data + parity {
                stripe.stored[strip] = random_bytes(&mut rng, ROWS as usize);
            }
            stripe.strips.readable = stripe.strips.data_mask();
            let fragments = any_fragments(&mut rng, &stripe);
            let mut plan = Plan::default();
            plan_write(&stripe.strips, &stripe.code, &fragments, None, &mut plan)
                .expect("all data is there");
            stripe.carry_out(&plan, &fragments);
            stripe.change(&fragments);
            for fragment in &fragments {
                let all = mask(data + parity);
                stripe.assert_true(
                    all,
                    fragment.start..fragment.end,
                    "true again where it was written",
                );
            }
        }
    }
}
