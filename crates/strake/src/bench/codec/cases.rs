//! What is measured of our own kernels.

use serde::Serialize;
use strake_codec::{Code, Onto, Sum, copy_with_checksums, crc32c, is_zero, kernel};

/// Bytes of a strip, where a case does not say another.
pub const STRIP_BYTES: usize = 64 << 10;
/// Bytes of a block, the unit of updates and checksums.
pub const BLOCK_BYTES: usize = 4096;

/// The operation whose rows are the ceilings.
pub const CEILING: &str = "read";

/// Where the strips are when a call begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Set {
    /// In the caches: one stripe, again and again.
    Hot,
    /// Beyond them: a ring of stripes.
    Memory,
}

/// How strips lie to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Of the pool's strips every one, every second, and so on.
    Every(usize),
    /// One behind the other with [`DISPLACED_BYTES`] between: what suits some peers best.
    Displaced,
}

/// Bytes between displaced strips.
pub const DISPLACED_BYTES: usize = 320;

/// Inputs and outputs of a call.
pub type Work = Box<dyn FnMut(&[&[u8]], &mut [&mut [u8]])>;

/// One thing to measure.
pub struct Case {
    pub data: usize,
    pub parity: usize,
    pub strip_bytes: usize,
    pub set: Set,
    pub operation: &'static str,
    pub kernel: String,
    pub peer: bool,
    /// Strips that a call reads.
    pub inputs: usize,
    /// Strips that a call writes.
    pub outputs: usize,
    /// In cache: where the strips lie.
    pub placement: Placement,
    /// Bytes of data that a call counts for.
    pub bytes: usize,
    pub work: Work,
}

/// The codes of the tables, narrow to wide.
pub const SHAPES: [(usize, usize); 6] = [(8, 1), (8, 2), (10, 2), (8, 3), (16, 4), (20, 8)];
/// Rebuild of as many data strips as there are parities.
pub const REBUILT: [(usize, usize); 3] = [(8, 2), (8, 3), (16, 4)];
/// Placements: of the pool's strips every one, every second, and so on.
const PLACED: [(usize, &str); 5] = [
    (1, "encode, strips adjacent"),
    (2, "encode, every 2nd strip"),
    (4, "encode, every 4th strip"),
    (8, "encode, every 8th strip"),
    (16, "encode, every 16th strip"),
];

/// All of them.
pub fn ours() -> Vec<Case> {
    let mut cases = ceilings();
    for set in [Set::Hot, Set::Memory] {
        cases.extend(SHAPES.map(|shape| encode(shape, set)));
        cases.extend(REBUILT.map(|shape| rebuild(shape, set)));
    }
    cases.extend(updates());
    cases.extend([(8, 2), (8, 3)].map(check));
    cases.extend(checksums());
    for shape in [(8, 1), (8, 2), (10, 2), (16, 4)] {
        cases.extend(PLACED.map(|(every, operation)| Case {
            operation,
            placement: Placement::Every(every),
            ..encode(shape, Set::Hot)
        }));
    }
    cases
}

/// A case of one call over whole strips by the kernel in use.
fn case(operation: &'static str, (data, parity): (usize, usize), set: Set, work: Work) -> Case {
    Case {
        data,
        parity,
        strip_bytes: STRIP_BYTES,
        set,
        operation,
        kernel: kernel().to_owned(),
        peer: false,
        inputs: data,
        outputs: parity,
        placement: Placement::Every(1),
        bytes: data * STRIP_BYTES,
        work,
    }
}

/// Reading alone, one strip after the other and eight side by side: the faster is the
/// ceiling. No case can read its data faster.
fn ceilings() -> Vec<Case> {
    let plain = |set, strips, work: Work| Case {
        inputs: strips,
        bytes: strips * STRIP_BYTES,
        ..case(CEILING, (0, 0), set, work)
    };
    let mut cases = Vec::new();
    for set in [Set::Hot, Set::Memory] {
        let look: Work = Box::new(|inputs, _| {
            assert!(
                inputs.iter().all(|input| is_zero(input)),
                "memory of zeroes"
            );
        });
        cases.push(plain(set, 4, look));
        let sum = Code::new(8, 1).expect("a shape of the tables");
        cases.push(Case {
            outputs: 0,
            ..plain(
                set,
                8,
                Box::new(move |inputs, _| {
                    std::hint::black_box(sum.encoder().differing(1, inputs, &inputs[..1]));
                }),
            )
        });
    }
    cases
}

fn code((data, parity): (usize, usize)) -> Code {
    Code::new(data, parity).expect("a shape of the tables")
}

fn encode(shape: (usize, usize), set: Set) -> Case {
    let code = code(shape);
    let work = move |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
        code.encoder().apply(inputs, outputs);
    };
    case("encode", shape, set, Box::new(work))
}

/// The first m data strips from the others and all parities.
fn rebuild((data, parity): (usize, usize), set: Set) -> Case {
    let lost = (1 << parity) - 1;
    let all = (1 << (data + parity)) - 1;
    let decoder = code((data, parity)).decoder(all & !lost, lost);
    let decoder = decoder.expect("as many are lost as there are parities");
    let work = move |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
        decoder.transform().apply(inputs, outputs);
    };
    case("rebuild", (data, parity), set, Box::new(work))
}

/// One block of 8+2 and 8+3 written anew: parity brought up to date in one pass, and in
/// the steps that it is made of.
fn updates() -> Vec<Case> {
    let mut cases = Vec::new();
    for (data, parity) in [(8, 2), (8, 3)] {
        let rows = (1 << parity) - 1;
        let block = |operation, outputs, work: Work| Case {
            strip_bytes: BLOCK_BYTES,
            inputs: 2,
            outputs,
            bytes: BLOCK_BYTES,
            ..case(operation, (data, parity), Set::Hot, work)
        };
        let fused = code((data, parity));
        cases.push(block(
            "update",
            parity,
            Box::new(move |inputs, outputs| {
                fused.update(rows, 1 << 3, &inputs[..1], &inputs[1..], outputs);
            }),
        ));
        let steps = code((data, parity));
        let xor = code((2, 1));
        cases.push(block(
            "update in steps",
            parity + 1,
            Box::new(move |inputs, outputs| {
                let (parities, delta) = outputs.split_at_mut(parity);
                xor.encoder().apply(inputs, delta);
                for (row, strip) in parities.iter_mut().enumerate() {
                    let sum = Sum {
                        rows: 1 << row,
                        columns: 1 << 3,
                        inputs: &[&*delta[0]],
                        less: &[],
                        onto: Onto::Outputs,
                    };
                    steps.encoder().sum(&sum, &mut [&mut **strip]);
                }
            }),
        ));
    }
    cases
}

fn check((data, parity): (usize, usize)) -> Case {
    let code = code((data, parity));
    let work = move |inputs: &[&[u8]], _: &mut [&mut [u8]]| {
        std::hint::black_box(code.check(inputs));
    };
    Case {
        inputs: data + parity,
        outputs: 0,
        ..case("check", (data, parity), Set::Hot, Box::new(work))
    }
}

/// CRC-32C alone, and with an encode or a copy, in one pass and in two.
fn checksums() -> Vec<Case> {
    let mut cases = Vec::new();
    for set in [Set::Hot, Set::Memory] {
        let strips = |operation, work: Work| Case {
            inputs: 4,
            outputs: 4,
            bytes: 4 * STRIP_BYTES,
            ..case(operation, (0, 0), set, work)
        };
        cases.push(strips("crc32c", Box::new(|inputs, _| sums_of(inputs))));
        let mut sums = vec![0; STRIP_BYTES / BLOCK_BYTES];
        cases.push(strips(
            "copy with crc32c",
            Box::new(move |inputs, outputs| {
                for (from, to) in inputs.iter().zip(outputs) {
                    copy_with_checksums(from, to, BLOCK_BYTES, &mut sums);
                }
            }),
        ));
        cases.push(strips(
            "copy, then crc32c",
            Box::new(|inputs, outputs| {
                for (from, to) in inputs.iter().zip(outputs) {
                    to.copy_from_slice(from);
                }
                sums_of(inputs);
            }),
        ));
        let shape = (8, 2);
        let fused = code(shape);
        let mut sums = vec![0; 10 * STRIP_BYTES / BLOCK_BYTES];
        let work = move |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            fused.encode_with_checksums(3, inputs, outputs, BLOCK_BYTES, &mut sums);
        };
        cases.push(case("encode with crc32c", shape, set, Box::new(work)));
        let apart = code(shape);
        let work = move |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            apart.encoder().apply(inputs, outputs);
            sums_of(inputs);
            outputs.iter().for_each(|output| sums_of(&[output]));
        };
        cases.push(case("encode, then crc32c", shape, set, Box::new(work)));
    }
    cases
}

fn sums_of(strips: &[&[u8]]) {
    for block in strips.iter().flat_map(|strip| strip.chunks(BLOCK_BYTES)) {
        std::hint::black_box(crc32c(block));
    }
}
