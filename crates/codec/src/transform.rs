//! A matrix over GF(2⁸) that is applied to strips.

use crate::arch::Kernel;
use crate::code::STRIPS_MAX;
use crate::kernel::{self, KernelError};
use crate::tables::{Job, Tables};

/// What happens to the bytes that the outputs hold before a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are replaced: outputs = matrix × inputs.
    Replace,
    /// They are added to: outputs ^= matrix × inputs.
    Accumulate,
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

    /// As [`Transform::apply`] for some rows only: bit r of `rows` chooses row r, and
    /// the nth chosen row, ascending, is the nth of `outputs`.
    pub fn apply_rows(&self, rows: u64, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run(self.kernel, Mode::Replace, rows, inputs, outputs);
    }

    /// As [`Transform::accumulate`] for some rows only, chosen as in
    /// [`Transform::apply_rows`].
    pub fn accumulate_rows(&self, rows: u64, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run(self.kernel, Mode::Accumulate, rows, inputs, outputs);
    }

    /// As [`Transform::apply_rows`] or [`Transform::accumulate_rows`], carried out by
    /// the kernel of this name, for tests and measurements. Fails, with nothing
    /// written, if there is no such kernel or this machine cannot run it.
    pub fn run_on(
        &self,
        kernel: &str,
        mode: Mode,
        rows: u64,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), KernelError> {
        self.run(kernel::find(kernel)?, mode, rows, inputs, outputs);
        Ok(())
    }

    /// The mask that chooses every row.
    fn all_rows(&self) -> u64 {
        low_bits(self.rows())
    }

    fn run(
        &self,
        kernel: Kernel,
        mode: Mode,
        rows: u64,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) {
        assert_eq!(rows & !self.all_rows(), 0, "a row that is not there");
        assert_eq!(inputs.len(), self.cols(), "inputs");
        assert_eq!(outputs.len(), rows.count_ones() as usize, "outputs");
        let len = inputs[0].len();
        assert!(inputs.iter().all(|input| input.len() == len), "lengths");
        assert!(outputs.iter().all(|output| output.len() == len), "lengths");
        kernel.run(&mut Job {
            tables: &self.tables,
            rows,
            inputs,
            outputs,
            len,
            accumulate: mode == Mode::Accumulate,
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

/// A mask of the `count` lowest bits; `count` is at most 64.
pub(crate) fn low_bits(count: usize) -> u64 {
    match count {
        64 => u64::MAX,
        _ => (1 << count) - 1,
    }
}

#[cfg(test)]
mod tests;
