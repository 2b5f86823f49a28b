//! Our parity beside ISA-L's, for the codes that agree by construction: XOR, P and Q,
//! and any matrix that both are given.

mod common;

use std::io::Write;

use common::computed;
use strake_codec::{Code, Transform, kernels};
use strake_isal::Isal;

/// The library, or a line in the skip file: only where setup did not install it.
fn isal() -> Option<Isal> {
    match Isal::load() {
        Ok(library) => Some(library),
        Err(reason) => {
            if let Some(file) = std::env::var_os("STRAKE_TEST_SKIP_FILE") {
                let file = std::fs::File::options()
                    .append(true)
                    .create(true)
                    .open(file);
                let mut file = file.expect("the skip file");
                writeln!(file, "codec beside ISA-L: {reason}").expect("the skip file");
            }
            println!("skipped: {reason}");
            None
        }
    }
}

/// Strips whose contents start at multiples of 32 bytes.
struct Strips {
    held: Vec<Vec<u8>>,
    len: usize,
}

impl Strips {
    fn noise(rng: &mut fastrand::Rng, count: usize, len: usize) -> Strips {
        let mut held = vec![vec![0; len + 32]; count];
        held.iter_mut().for_each(|strip| rng.fill(strip));
        Strips { held, len }
    }

    fn read(&self) -> Vec<&[u8]> {
        let start = |strip: &[u8]| strip.as_ptr().align_offset(32);
        let part = |strip: &'_ Vec<u8>| start(strip)..start(strip) + self.len;
        self.held.iter().map(|strip| &strip[part(strip)]).collect()
    }

    fn write(&mut self) -> Vec<&mut [u8]> {
        let len = self.len;
        let part = |strip: &'_ mut Vec<u8>| strip.as_ptr().align_offset(32);
        self.held
            .iter_mut()
            .map(|strip| {
                let start = part(strip);
                &mut strip[start..start + len]
            })
            .collect()
    }
}

/// What each of our kernels makes of the matrix and the inputs is `expected`.
fn same(transform: &Transform, inputs: &[&[u8]], expected: &Strips) {
    for kernel in kernels() {
        let ours = computed(kernel, transform, inputs);
        assert!(ours.iter().eq(expected.read()), "{kernel} {transform:?}");
    }
}

/// Lengths of whole vectors of ISA-L's, and some that leave a rest.
const LENGTHS: [usize; 4] = [512, 4096, 1000, 33];

#[test]
fn every_cauchy_matrix_of_isal_gives_the_same_parity() {
    let Some(isal) = isal() else { return };
    let mut rng = fastrand::Rng::with_seed(30);
    let narrow = (1..=16).flat_map(|data| (1..=4).map(move |parity| (data, parity)));
    for (data, parity) in narrow.chain([(20, 8), (32, 16), (48, 5)]) {
        let matrix = isal.cauchy1(data, parity);
        for len in LENGTHS {
            let inputs = Strips::noise(&mut rng, data, len);
            let mut theirs = Strips::noise(&mut rng, parity, len);
            isal.matrix(parity, data, &matrix)
                .apply(&inputs.read(), &mut theirs.write());
            let ours = Transform::new(parity, data, &matrix);
            same(&ours, &inputs.read(), &theirs);
        }
    }
}

#[test]
fn our_matrix_in_the_hands_of_isal_gives_our_parity() {
    let Some(isal) = isal() else { return };
    let mut rng = fastrand::Rng::with_seed(31);
    for (data, parity) in [(8, 1), (8, 2), (10, 2), (8, 3), (16, 4), (20, 8), (32, 32)] {
        let code = Code::new(data, parity).expect("a shape that is allowed");
        let matrix: Vec<u8> = (0..parity)
            .flat_map(|row| (0..data).map(move |column| (row, column)))
            .map(|(row, column)| code.coefficient(row, column))
            .collect();
        let inputs = Strips::noise(&mut rng, data, 4096);
        let mut theirs = Strips::noise(&mut rng, parity, 4096);
        isal.matrix(parity, data, &matrix)
            .apply(&inputs.read(), &mut theirs.write());
        same(code.encoder(), &inputs.read(), &theirs);
    }
}

#[test]
fn xor_and_p_and_q_are_those_of_isal() {
    let Some(isal) = isal() else { return };
    let mut rng = fastrand::Rng::with_seed(32);
    for data in 2..=62 {
        let inputs = Strips::noise(&mut rng, data, 4096);
        let mut theirs = Strips::noise(&mut rng, 2, 4096);
        let [p, q] = &mut theirs.write()[..] else {
            unreachable!("two strips")
        };
        isal.pq_gen(&inputs.read(), p, q);
        let raid6 = Code::new(data, 2).expect("RAID 6");
        same(raid6.encoder(), &inputs.read(), &theirs);

        let mut theirs = Strips::noise(&mut rng, 1, 4096);
        isal.xor_gen(&inputs.read(), theirs.write().remove(0));
        let raid5 = Code::new(data, 1).expect("RAID 5");
        same(raid5.encoder(), &inputs.read(), &theirs);
    }
}
