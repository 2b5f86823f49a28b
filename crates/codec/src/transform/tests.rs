use super::*;
use crate::field::{multiply, power_of_two};
use crate::kernels;
use crate::testing::{noise, refs, refs_mut};

/// Bytes around every slice, to see that nothing else is written.
const GUARD: usize = 80;
const UNTOUCHED: u8 = 0xa5;
const BENEATH: u8 = 0x3c;

/// The definition: each output byte is the sum of products of the input bytes.
fn by_definition(transform: &Transform, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let sum_at = |row: usize, at: usize| {
        inputs.iter().enumerate().fold(0, |sum, (col, input)| {
            sum ^ multiply(transform.coefficient(row, col), input[at])
        })
    };
    (0..transform.rows())
        .map(|row| (0..inputs[0].len()).map(|at| sum_at(row, at)).collect())
        .collect()
}

/// Matrices that take every way through the kernels: XOR, mirrors, an updater, P and
/// Q, P and Q and more, and any matrix with rows below and above a batch.
fn matrices(rng: &mut fastrand::Rng) -> Vec<(usize, usize, Vec<u8>)> {
    let mut all = vec![
        (1, 1, vec![1]),
        (1, 2, vec![1; 2]),
        (1, 5, vec![1; 5]),
        (3, 1, vec![1; 3]),
        (3, 2, vec![1, 1, 7, 7, 200, 200]),
        (0, 3, vec![]),
    ];
    for columns in [2, 3, 8] {
        let mut pq = vec![1; columns];
        pq.extend((0..columns).map(power_of_two));
        all.push((2, columns, pq.clone()));
        pq.extend((0..columns).map(|_| rng.u8(..)));
        all.push((3, columns, pq));
    }
    for rows in [1, 2, 3, 4, 5, 6, 7, 8, 9, 13] {
        for columns in [1, 2, 5] {
            all.push((rows, columns, bytes(rng, rows * columns)));
        }
    }
    all
}

fn bytes(rng: &mut fastrand::Rng, count: usize) -> Vec<u8> {
    (0..count).map(|_| rng.u8(..)).collect()
}

/// Strips of which any prefix is a case, and what comes of them.
struct Sample {
    transform: Transform,
    inputs: Vec<Vec<u8>>,
    expected: Vec<Vec<u8>>,
}

impl Sample {
    fn new(rng: &mut fastrand::Rng, rows: usize, cols: usize, matrix: &[u8], len: usize) -> Sample {
        let transform = Transform::new(rows, cols, matrix);
        let inputs = noise(rng, cols, len);
        let expected = by_definition(&transform, &inputs);
        Sample {
            transform,
            inputs,
            expected,
        }
    }

    /// Runs one kernel over the first `len` bytes, every slice displaced from a
    /// 64-byte boundary by its own amount, and looks at every byte afterwards.
    fn check(&self, kernel: &str, mode: Mode, rows: u64, len: usize, displaced: usize) {
        let place = |index: usize| GUARD + (displaced + 13 * index) % 65;
        let held: Vec<Vec<u8>> = self
            .inputs
            .iter()
            .enumerate()
            .map(|(i, input)| [&vec![0; place(i)], &input[..len]].concat())
            .collect();
        let inputs: Vec<&[u8]> = held
            .iter()
            .enumerate()
            .map(|(i, held)| &held[place(i)..])
            .collect();
        let chosen: Vec<usize> = (0..64).filter(|row| rows & (1 << row) != 0).collect();
        let mut outputs: Vec<Vec<u8>> = (0..chosen.len())
            .map(|i| vec![UNTOUCHED; place(i + 5) + len + GUARD])
            .collect();
        let mut slices: Vec<&mut [u8]> = outputs
            .iter_mut()
            .enumerate()
            .map(|(i, output)| &mut output[place(i + 5)..][..len])
            .collect();
        let beneath = vec![BENEATH; len];
        let beneath = vec![&beneath[..]; chosen.len()];
        let less: Vec<Vec<u8>> = inputs
            .iter()
            .map(|input| input.iter().map(|byte| byte.rotate_left(3)).collect())
            .collect();
        let changed: Vec<Vec<u8>> = (inputs.iter().zip(&less))
            .map(|(input, less)| input.iter().zip(less).map(|(a, b)| a ^ b).collect())
            .collect();
        let (inputs, less) = match mode {
            Mode::Update => (refs(&changed), refs(&less)),
            _ => (inputs, vec![]),
        };
        let sum = Sum {
            rows,
            columns: low_bits(self.transform.cols()),
            inputs: &inputs,
            less: &less,
            onto: match mode {
                Mode::Replace => Onto::Nothing,
                Mode::Accumulate => Onto::Outputs,
                Mode::Update | Mode::Beside => Onto::Strips(&beneath),
            },
        };
        self.transform
            .sum_on(kernel, &sum, &mut slices)
            .expect("a usable kernel");
        for (i, (output, &row)) in outputs.iter().zip(&chosen).enumerate() {
            let (before, rest) = output.split_at(place(i + 5));
            let (result, after) = rest.split_at(len);
            let held = match mode {
                Mode::Replace => 0,
                Mode::Accumulate => UNTOUCHED,
                Mode::Update | Mode::Beside => BENEATH,
            };
            let right = (result.iter().zip(&self.expected[row])).all(|(r, e)| *r == e ^ held);
            assert!(
                right,
                "{kernel} {mode:?} row {row} of {:?}, {len} bytes displaced by {displaced}",
                self.transform
            );
            assert!(before.iter().chain(after).all(|&b| b == UNTOUCHED));
        }
    }

    fn all_rows(&self) -> u64 {
        self.transform.all_rows()
    }
}

/// What the sums of a case are added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Replace,
    Accumulate,
    /// To other strips; the inputs are differences of two.
    Update,
    /// To other strips.
    Beside,
}

const MODES: [Mode; 4] = [Mode::Replace, Mode::Accumulate, Mode::Update, Mode::Beside];

/// Every one of up to two vectors, and those around the pieces of the kernels.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=130)
        .chain([192, 255, 256, 257, 320])
        .chain(510..=514)
        .chain(574..=577)
        .chain(1022..=1025)
}

#[test]
fn every_kernel_is_right_at_every_length() {
    let mut rng = fastrand::Rng::with_seed(1);
    for (rows, cols, matrix) in matrices(&mut rng) {
        let sample = Sample::new(&mut rng, rows, cols, &matrix, 1025);
        for kernel in kernels() {
            for len in lengths() {
                let mode = MODES[len % 4];
                sample.check(kernel, mode, sample.all_rows(), len, 0);
                sample.check(kernel, MODES[(len + 1) % 4], sample.all_rows(), len, len);
            }
        }
    }
}

/// Small enough for Miri, which sees every access of `vector`, by the model of a kernel,
/// and of `plain`.
#[test]
fn a_little_of_everything() {
    let mut rng = fastrand::Rng::with_seed(24);
    for (rows, cols) in [(1, 1), (1, 3), (2, 3), (4, 2), (9, 2)] {
        let matrix = bytes(&mut rng, rows * cols);
        let sample = Sample::new(&mut rng, rows, cols, &matrix, 1024);
        for kernel in kernels() {
            for (mode, len) in MODES.into_iter().zip([513, 512, 582, 1024]) {
                sample.check(kernel, mode, sample.all_rows(), len, rows);
            }
        }
    }
    // A pane in groups.
    let mut pq = vec![1; 10];
    pq.extend((0..10).map(power_of_two));
    let sample = Sample::new(&mut rng, 2, 10, &pq, 4096 + 70);
    for kernel in kernels() {
        sample.check(kernel, Mode::Replace, sample.all_rows(), 4096 + 70, 0);
    }
}

#[test]
fn every_kernel_is_right_at_every_alignment() {
    let mut rng = fastrand::Rng::with_seed(2);
    for (rows, cols, matrix) in matrices(&mut rng) {
        let sample = Sample::new(&mut rng, rows, cols, &matrix, 577);
        for kernel in kernels() {
            for displaced in 0..=64 {
                let len = [255, 256, 511, 512, 577][displaced % 5];
                sample.check(
                    kernel,
                    MODES[displaced % 4],
                    sample.all_rows(),
                    len,
                    displaced,
                );
            }
        }
    }
}

#[test]
fn every_coefficient_meets_every_byte() {
    let input: Vec<u8> = (0..512).map(|i| i as u8).collect();
    for coefficient in 0..=255 {
        let expected: Vec<u8> = input.iter().map(|&b| multiply(coefficient, b)).collect();
        // The second keeps the kernel from the short way of uniform rows.
        for matrix in [vec![coefficient], vec![coefficient, coefficient ^ 1]] {
            let transform = Transform::new(1, matrix.len(), &matrix);
            let zeroes = [0; 512];
            let inputs = [&input[..], &zeroes[..]];
            for kernel in kernels() {
                let mut output = [UNTOUCHED; 512];
                let inputs = &inputs[..matrix.len()];
                let sum = transform.whole(1, inputs, Onto::Nothing);
                transform
                    .sum_on(kernel, &sum, &mut [&mut output])
                    .expect("a usable kernel");
                assert!(output == expected[..], "{kernel} by {coefficient}");
            }
        }
    }
}

#[test]
fn every_number_of_rows_and_columns_is_right() {
    let mut rng = fastrand::Rng::with_seed(3);
    for size in 1..=STRIPS_MAX {
        for (rows, cols) in [(size, 3), (3, size), (size, size.div_ceil(4))] {
            let matrix = bytes(&mut rng, rows * cols);
            let sample = Sample::new(&mut rng, rows, cols, &matrix, 580);
            for kernel in kernels() {
                sample.check(kernel, MODES[size % 4], sample.all_rows(), 580, size);
            }
        }
    }
}

#[test]
fn strips_longer_than_a_block_are_right() {
    let mut rng = fastrand::Rng::with_seed(4);
    for (rows, cols) in [(20, 20), (9, 3), (32, 32), (5, 16)] {
        let matrix = bytes(&mut rng, rows * cols);
        let sample = Sample::new(&mut rng, rows, cols, &matrix, 20_011);
        for kernel in kernels() {
            for len in [20_011, 16_384] {
                sample.check(kernel, Mode::Accumulate, sample.all_rows(), len, 0);
            }
        }
    }
}

/// Sums of more strips than are taken at a time, over more than one pane and parts of one.
#[test]
fn sums_of_many_strips_are_right() {
    let mut rng = fastrand::Rng::with_seed(7);
    for cols in [7, 8, 9, 10, 12, 13, 19, 40, 41] {
        let ones = vec![1; cols];
        let sevens = vec![7; cols];
        let powers: Vec<u8> = (0..cols).map(power_of_two).collect();
        let kinds = [
            (1, ones.clone()),
            (1, sevens.clone()),
            (2, [ones.clone(), sevens].concat()),
            (2, [ones, powers].concat()),
        ];
        for (rows, matrix) in kinds {
            let sample = Sample::new(&mut rng, rows, cols, &matrix, 3 * 4096 + 640);
            for kernel in kernels() {
                for mode in MODES {
                    sample.check(kernel, mode, sample.all_rows(), 3 * 4096 + 640, cols);
                    sample.check(kernel, mode, 1 << (rows - 1), 8192, 0);
                }
            }
        }
    }
}

/// P and Q in blocks beside other rows, so that they begin in the middle of a strip too.
#[test]
fn p_and_q_among_many_rows_are_right() {
    let mut rng = fastrand::Rng::with_seed(8);
    for cols in [3, 9, 20] {
        let (rows, len) = (7, 16_384);
        let mut matrix = vec![1; cols];
        matrix.extend((0..cols).map(power_of_two));
        matrix.extend(bytes(&mut rng, (rows - 2) * cols));
        let sample = Sample::new(&mut rng, rows, cols, &matrix, len);
        for kernel in kernels() {
            for mode in MODES {
                sample.check(kernel, mode, 0b111_1011, len, 0);
                sample.check(kernel, mode, sample.all_rows(), len, 3);
            }
        }
    }
}

/// What a write to one strip does: any column, any rows, each way of adding.
#[test]
fn one_column_of_many_is_right_in_any_rows() {
    let mut rng = fastrand::Rng::with_seed(9);
    let (rows, cols, len) = (5, 4, 1200);
    let mut matrix = vec![1; cols];
    matrix.extend(bytes(&mut rng, (rows - 1) * cols));
    matrix[2 * cols + 1] = 1;
    for column in 0..cols {
        let one: Vec<u8> = (0..rows).map(|row| matrix[row * cols + column]).collect();
        let sample = Sample::new(&mut rng, rows, 1, &one, len);
        for kernel in kernels() {
            for mode in MODES {
                for chosen in 1..1 << rows {
                    sample.check(kernel, mode, chosen, len, column);
                }
            }
        }
    }
}

#[test]
fn chosen_rows_go_to_the_outputs_in_order() {
    let mut rng = fastrand::Rng::with_seed(5);
    for (rows, cols, matrix) in matrices(&mut rng) {
        let sample = Sample::new(&mut rng, rows, cols, &matrix, 600);
        for kernel in kernels() {
            for _ in 0..40 {
                let chosen = rng.u64(..) & sample.all_rows();
                sample.check(kernel, MODES[rng.usize(..4)], chosen, 600, rng.usize(..64));
            }
        }
    }
}

#[test]
fn the_chosen_kernel_answers_as_the_named_one() {
    let mut rng = fastrand::Rng::with_seed(6);
    let matrix = bytes(&mut rng, 12);
    let sample = Sample::new(&mut rng, 3, 4, &matrix, 700);
    let inputs = refs(&sample.inputs);

    let mut outputs = vec![vec![UNTOUCHED; 700]; 3];
    sample.transform.apply(&inputs, &mut refs_mut(&mut outputs));
    assert_eq!(outputs, sample.expected);
    sample
        .transform
        .accumulate(&inputs, &mut refs_mut(&mut outputs));
    assert!(outputs.iter().all(|output| crate::is_zero(output)));

    let mut outputs = vec![vec![UNTOUCHED; 700]; 2];
    sample
        .transform
        .apply_rows(0b101, &inputs, &mut refs_mut(&mut outputs));
    assert_eq!(outputs, [&sample.expected[0][..], &sample.expected[2][..]]);
    sample
        .transform
        .accumulate_rows(0b101, &inputs, &mut refs_mut(&mut outputs));
    assert!(outputs.iter().all(|output| crate::is_zero(output)));
}

#[test]
fn an_unknown_kernel_is_refused_and_nothing_written() {
    let transform = Transform::new(1, 1, &[1]);
    let mut output = [UNTOUCHED; 4];
    let inputs: [&[u8]; 1] = [&[0; 4]];
    let sum = transform.whole(1, &inputs, Onto::Nothing);
    let refused = transform.sum_on("abacus", &sum, &mut [&mut output]);
    assert!(matches!(refused, Err(KernelError::Unknown { .. })));
    assert_eq!(output, [UNTOUCHED; 4]);
}

/// Calls `apply` of a 2 × 2 matrix with these lengths of inputs and outputs.
fn apply_with_lengths(inputs: &[usize], outputs: &[usize]) {
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|&len| vec![0; len]).collect();
    let mut outputs: Vec<Vec<u8>> = outputs.iter().map(|&len| vec![0; len]).collect();
    Transform::new(2, 2, &[1, 1, 1, 2]).apply(&refs(&inputs), &mut refs_mut(&mut outputs));
}

#[test]
#[should_panic(expected = "inputs")]
fn too_few_inputs_panic() {
    apply_with_lengths(&[8], &[8, 8]);
}

#[test]
#[should_panic(expected = "outputs")]
fn too_many_outputs_panic() {
    apply_with_lengths(&[8, 8], &[8, 8, 8]);
}

#[test]
#[should_panic(expected = "lengths")]
fn a_shorter_input_panics() {
    apply_with_lengths(&[8, 7], &[8, 8]);
}

#[test]
#[should_panic(expected = "lengths")]
fn a_longer_output_panics() {
    apply_with_lengths(&[8, 8], &[8, 9]);
}

#[test]
#[should_panic(expected = "a row that is not there")]
fn a_row_past_the_last_panics() {
    Transform::new(1, 1, &[1]).apply_rows(2, &[&[]], &mut [&mut []]);
}

#[test]
fn chosen_columns_take_the_inputs_in_order() {
    let mut rng = fastrand::Rng::with_seed(14);
    for (rows, cols, matrix) in matrices(&mut rng) {
        let transform = Transform::new(rows, cols, &matrix);
        let inputs = noise(&mut rng, cols, 600);
        let singles = (0..cols).map(|col| 1 << col);
        let some = std::iter::repeat_with(|| rng.u64(..) & low_bits(cols)).take(20);
        for columns in singles.chain(some) {
            let kept = |col: usize| columns & (1 << col) != 0;
            let zeroed: Vec<Vec<u8>> = (0..cols)
                .map(|col| {
                    if kept(col) {
                        inputs[col].clone()
                    } else {
                        vec![0; 600]
                    }
                })
                .collect();
            let expected = by_definition(&transform, &zeroed);
            let some: Vec<&[u8]> = bits(columns).map(|col| &inputs[col][..]).collect();
            let sum = Sum {
                rows: low_bits(rows),
                columns,
                inputs: &some,
                less: &[],
                onto: Onto::Nothing,
            };
            for kernel in kernels() {
                let mut outputs = vec![vec![UNTOUCHED; 600]; rows];
                transform
                    .sum_on(kernel, &sum, &mut refs_mut(&mut outputs))
                    .expect("a usable kernel");
                assert_eq!(outputs, expected, "{kernel} columns {columns:b}");
            }
        }
    }
}

#[test]
fn differing_names_exactly_the_rows_that_differ() {
    let mut rng = fastrand::Rng::with_seed(15);
    for (rows, cols) in [(1, 3), (2, 8), (9, 5), (32, 32)] {
        let matrix = bytes(&mut rng, rows * cols);
        for len in [0, 1, 512, 2048, 4099] {
            let sample = Sample::new(&mut rng, rows, cols, &matrix, len);
            let mut stored = sample.expected.clone();
            let wrong = if len == 0 {
                0
            } else {
                rng.u64(..) & low_bits(rows)
            };
            for row in bits(wrong) {
                stored[row][rng.usize(..len)] ^= 1 << rng.u8(..8);
            }
            let asked = rng.u64(..) & low_bits(rows);
            let some: Vec<&[u8]> = bits(asked).map(|row| &stored[row][..]).collect();
            let transform = &sample.transform;
            let found = transform.differing(asked, &refs(&sample.inputs), &some);
            assert_eq!(found, wrong & asked, "{rows} rows, {len} bytes");
        }
    }
}
