//! A matrix over GF(2⁸) that is applied to strips.

use arrayvec::ArrayVec;

use crate::arch::Kernel;
use crate::code::STRIPS_MAX;
use crate::kernel::{self, KernelError};
use crate::tables::{Job, Tables, bits};

/// Rows compared at a time, and bytes of each: so much scratch space is on the stack and
/// in the first-level cache beside the sources.
const CHECKED_ROWS: usize = 4;
const CHECKED_BYTES: usize = 2048;

/// What sums are added to.
#[derive(Debug, Clone, Copy)]
pub enum Onto<'a> {
    /// Nothing: what the outputs held is replaced.
    Nothing,
    /// What the outputs hold.
    Outputs,
    /// Other strips, one for each output; what the outputs held is replaced.
    Strips(&'a [&'a [u8]]),
}

/// One computation with a part of a matrix, in one pass over all strips:
/// outputs = onto + matrix × (inputs - less). (Subtracting is adding is XOR.)
#[derive(Debug, Clone, Copy)]
pub struct Sum<'a> {
    /// Bit r chooses row r; the nth chosen row, ascending, goes to the nth output.
    pub rows: u64,
    /// Bit c chooses column c; the nth chosen column, ascending, takes the nth input.
    /// Columns that are not chosen count as zeroes.
    pub columns: u64,
    /// One strip for each chosen column.
    pub inputs: &'a [&'a [u8]],
    /// As many strips as inputs, or none.
    pub less: &'a [&'a [u8]],
    /// What is added to.
    pub onto: Onto<'a>,
}

/// A rows × columns matrix over GF(2⁸) with its tables prepared: each output strip
/// is a sum of multiples of the input strips, byte by byte.
///
/// In every call: one input a column and one output a row (or chosen row), all of
/// the same length, which may be anything including zero; any alignment; nothing is
/// allocated. Counts or lengths that do not fit are the caller's mistake and panic.
pub struct Transform {
    tables: Tables,
    kernel: Kernel,
}

impl Transform {
    /// Prepares the matrix whose coefficients are given row by row: `rows` × `cols`
    /// of them, at most 64 rows (none is allowed) and 1 to 64 columns. Panics
    /// otherwise.
    pub fn new(rows: usize, cols: usize, coefficients: &[u8]) -> Transform {
        assert!(rows <= STRIPS_MAX, "{rows} rows");
        assert!((1..=STRIPS_MAX).contains(&cols), "{cols} columns");
        assert_eq!(coefficients.len(), rows * cols, "rows x columns");
        Transform {
            tables: Tables::new(rows, cols, coefficients),
            kernel: kernel::chosen(),
        }
    }

    /// Number of rows: outputs.
    pub fn rows(&self) -> usize {
        self.tables.rows()
    }

    /// Number of columns: inputs.
    pub fn cols(&self) -> usize {
        self.tables.columns()
    }

    /// The coefficient by which input `col` goes into output `row`. Panics if there
    /// is no such row or column.
    pub fn coefficient(&self, row: usize, col: usize) -> u8 {
        assert!(row < self.rows() && col < self.cols());
        self.tables.coefficient(row, col)
    }

    /// outputs = matrix × inputs; what the outputs held is replaced.
    pub fn apply(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.apply_rows(self.all_rows(), inputs, outputs);
    }

    /// outputs ^= matrix × inputs.
    pub fn accumulate(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.accumulate_rows(self.all_rows(), inputs, outputs);
    }

    /// As [`Transform::apply`] for some rows only, chosen as in [`Sum::rows`].
    pub fn apply_rows(&self, rows: u64, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.sum(&self.whole(rows, inputs, Onto::Nothing), outputs);
    }

    /// As [`Transform::accumulate`] for some rows only, chosen as in [`Sum::rows`].
    pub fn accumulate_rows(&self, rows: u64, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.sum(&self.whole(rows, inputs, Onto::Outputs), outputs);
    }

    /// outputs = onto + chosen rows and columns of the matrix × (inputs - less).
    pub fn sum(&self, sum: &Sum<'_>, outputs: &mut [&mut [u8]]) {
        self.run(self.kernel, sum, outputs);
    }

    /// As [`Transform::sum`], carried out by the kernel of this name, for tests and
    /// measurements. Fails, with nothing written, if there is no such kernel or this
    /// machine cannot run it.
    pub fn sum_on(
        &self,
        kernel: &str,
        sum: &Sum<'_>,
        outputs: &mut [&mut [u8]],
    ) -> Result<(), KernelError> {
        self.run(kernel::find(kernel)?, sum, outputs);
        Ok(())
    }

    /// Which of the chosen rows do not give what is stored: bit r is set where
    /// matrix row r × inputs differs from its strip in `stored`, which has one for each
    /// chosen row. Writes nothing but scratch space on the stack.
    pub fn differing(&self, rows: u64, inputs: &[&[u8]], stored: &[&[u8]]) -> u64 {
        assert_eq!(stored.len(), rows.count_ones() as usize, "stored strips");
        let Some(first) = stored.first() else {
            return 0;
        };
        assert!(inputs.iter().all(|input| input.len() == first.len()));
        assert!(stored.iter().all(|strip| strip.len() == first.len()));
        let mut scratch = [[0; CHECKED_BYTES]; CHECKED_ROWS];
        let (mut differing, mut left, mut stored) = (0, rows, stored);
        while left != 0 {
            let some = lowest(left, CHECKED_ROWS);
            let (strips, rest) = stored.split_at(some.count_ones() as usize);
            for start in (0..first.len()).step_by(CHECKED_BYTES) {
                let range = start..first.len().min(start + CHECKED_BYTES);
                let inputs: ArrayVec<&[u8], STRIPS_MAX> =
                    inputs.iter().map(|input| &input[range.clone()]).collect();
                let mut computed: ArrayVec<&mut [u8], CHECKED_ROWS> = scratch
                    .iter_mut()
                    .take(strips.len())
                    .map(|strip| &mut strip[..range.len()])
                    .collect();
                self.apply_rows(some, &inputs, &mut computed);
                for ((row, strip), computed) in bits(some).zip(strips).zip(&computed) {
                    differing |= u64::from(strip[range.clone()] != **computed) << row;
                }
            }
            (left, stored) = (left & !some, rest);
        }
        differing
    }

    /// The mask that chooses every row.
    fn all_rows(&self) -> u64 {
        low_bits(self.rows())
    }

    fn whole<'a>(&self, rows: u64, inputs: &'a [&'a [u8]], onto: Onto<'a>) -> Sum<'a> {
        Sum {
            rows,
            columns: low_bits(self.cols()),
            inputs,
            less: &[],
            onto,
        }
    }

    fn run(&self, kernel: Kernel, sum: &Sum<'_>, outputs: &mut [&mut [u8]]) {
        assert_eq!(sum.rows & !self.all_rows(), 0, "a row that is not there");
        let all_columns = low_bits(self.cols());
        assert_eq!(sum.columns & !all_columns, 0, "a column that is not there");
        let columns: ArrayVec<u8, STRIPS_MAX> = bits(sum.columns).map(|c| c as u8).collect();
        assert_eq!(sum.inputs.len(), columns.len(), "inputs");
        let less = sum.less.len();
        assert!(less == 0 || less == columns.len(), "less");
        assert_eq!(outputs.len(), sum.rows.count_ones() as usize, "outputs");
        let Some(first) = outputs.first() else {
            return;
        };
        let len = first.len();
        let mut reads = sum.inputs.iter().chain(sum.less);
        assert!(reads.all(|input| input.len() == len), "lengths");
        assert!(outputs.iter().all(|output| output.len() == len), "lengths");
        if let Onto::Strips(strips) = sum.onto {
            assert_eq!(strips.len(), outputs.len(), "strips to add to");
            assert!(strips.iter().all(|strip| strip.len() == len), "lengths");
        }
        kernel.run(&mut Job {
            tables: &self.tables,
            rows: sum.rows,
            columns: &columns,
            inputs: sum.inputs,
            less: sum.less,
            onto: sum.onto,
            outputs,
            len,
        });
    }
}

impl std::fmt::Debug for Transform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transform")
            .field("rows", &self.rows())
            .field("cols", &self.cols())
            .field("kernel", &self.kernel)
            .finish_non_exhaustive()
    }
}

/// The `count` lowest set bits of a mask, or all where there are fewer.
pub(crate) fn lowest(mask: u64, count: usize) -> u64 {
    bits(mask).take(count).fold(0, |low, bit| low | 1 << bit)
}

/// A mask of the `count` lowest bits; `count` is at most 64.
pub(crate) fn low_bits(count: usize) -> u64 {
    match count {
        64 => u64::MAX,
        _ => (1 << count) - 1,
    }
}

#[cfg(test)]
mod tests;
