//! The same questions put to ISA-L.

use strake_isal::{Isal, Matrix};

use super::cases::{Case, DISPLACED_BYTES, Placement, REBUILT, SHAPES, STRIP_BYTES, Set, Work};

/// Encoding and rebuilding with the functions that ISA-L has for each code.
pub fn isal(library: &Isal) -> Vec<Case> {
    let mut cases = Vec::new();
    for set in [Set::Hot, Set::Memory] {
        for shape in SHAPES {
            cases.push(case(library, "encode", shape, set, encode(library, shape)));
            if set == Set::Hot {
                let own = case(library, "encode", shape, set, encode(library, shape));
                cases.push(Case {
                    kernel: format!("{} +{DISPLACED_BYTES} B", own.kernel),
                    placement: Placement::Displaced,
                    ..own
                });
            }
        }
        for (data, parity) in REBUILT {
            let rebuilt = matrix(library, (data, parity));
            let work = move |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
                rebuilt.apply(inputs, outputs);
            };
            cases.push(case(
                library,
                "rebuild",
                (data, parity),
                set,
                Box::new(work),
            ));
        }
    }
    cases
}

fn encode(library: &Isal, (data, parity): (usize, usize)) -> Work {
    let own = library.clone();
    match parity {
        1 => Box::new(move |inputs, outputs| own.xor_gen(inputs, outputs[0])),
        2 => Box::new(move |inputs, outputs| match outputs {
            [p, q] => own.pq_gen(inputs, p, q),
            _ => unreachable!("a code of two parities"),
        }),
        _ => {
            let matrix = matrix(library, (data, parity));
            Box::new(move |inputs, outputs| matrix.apply(inputs, outputs))
        }
    }
}

/// Its Cauchy matrix: what a rebuild of m strips costs depends on the shape alone.
fn matrix(library: &Isal, (data, parity): (usize, usize)) -> Matrix {
    library.matrix(parity, data, &library.cauchy1(data, parity))
}

fn case(
    library: &Isal,
    operation: &'static str,
    (data, parity): (usize, usize),
    set: Set,
    work: Work,
) -> Case {
    let file = library.file().file_name().unwrap_or_default();
    Case {
        data,
        parity,
        strip_bytes: STRIP_BYTES,
        set,
        operation,
        kernel: file.to_string_lossy().into_owned(),
        peer: true,
        inputs: data,
        outputs: parity,
        placement: Placement::Every(1),
        bytes: data * STRIP_BYTES,
        work,
    }
}
