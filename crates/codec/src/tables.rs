//! A matrix made ready for every kernel, and one request to apply it.

use crate::field::{self, Nibbles};
use crate::transform::Onto;

/// A rows × columns matrix over GF(2⁸) with the tables of each coefficient.
///
/// Column-major: the factors that one loaded source meets lie side by side.
#[derive(Debug)]
pub(crate) struct Tables {
    rows: usize,
    columns: usize,
    coefficients: Box<[u8]>,
    #[cfg(any(test, target_arch = "x86_64"))]
    affine: Box<[u64]>,
    nibbles: Box<[Nibbles]>,
    ones: u64,
    uniform: bool,
    powers: bool,
}

impl Tables {
    /// `coefficients` is row-major, rows × columns long; both counts are at most 64
    /// and there is at least one column.
    pub(crate) fn new(rows: usize, columns: usize, coefficients: &[u8]) -> Tables {
        let row = |r: usize| &coefficients[r * columns..(r + 1) * columns];
        let by_column: Box<[u8]> = (0..columns)
            .flat_map(|c| (0..rows).map(move |r| coefficients[r * columns + c]))
            .collect();
        Tables {
            rows,
            columns,
            #[cfg(any(test, target_arch = "x86_64"))]
            affine: by_column.iter().map(|&c| field::affine(c)).collect(),
            nibbles: by_column.iter().map(|&c| field::nibbles(c)).collect(),
            coefficients: by_column,
            ones: (0..rows)
                .filter(|&r| row(r).iter().all(|&c| c == 1))
                .fold(0, |mask, r| mask | 1 << r),
            uniform: (0..rows).all(|r| row(r).iter().all(|&c| c == row(r)[0])),
            powers: rows >= 2 && (0..columns).all(|c| row(1)[c] == field::power_of_two(c)),
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn coefficient(&self, row: usize, column: usize) -> u8 {
        self.coefficients[column * self.rows + row]
    }

    /// Affine matrices, column-major, for the processors that have GFNI.
    #[cfg(any(test, target_arch = "x86_64"))]
    pub(crate) fn affine(&self) -> &[u64] {
        &self.affine
    }

    /// Nibble tables, column-major.
    pub(crate) fn nibbles(&self) -> &[Nibbles] {
        &self.nibbles
    }

    /// The nibble tables of one coefficient.
    pub(crate) fn nibbles_at(&self, row: usize, column: usize) -> &Nibbles {
        &self.nibbles[column * self.rows + row]
    }

    /// Whether every coefficient of the row is 1: it needs XOR only.
    pub(crate) fn is_xor(&self, row: usize) -> bool {
        self.ones & (1 << row) != 0
    }

    /// Whether each row has one coefficient throughout: then the inputs are summed
    /// once and the sum multiplied once a row (XOR, mirrors, the updaters).
    pub(crate) fn is_uniform(&self) -> bool {
        self.uniform
    }

    /// Whether rows 0 and 1 are P and Q: ones, and the powers of two in order.
    pub(crate) fn starts_with_pq(&self) -> bool {
        self.powers && self.is_xor(0)
    }
}

/// One request: outputs = onto + chosen rows and columns of the matrix × inputs.
///
/// Made only by `Transform`, which has checked: `columns` ascending and none past the
/// last, one input for each; `less` empty or as many as inputs; as many outputs (and
/// strips to add to) as bits in `rows`, at least one and none past the last row; every
/// slice `len` bytes long.
pub(crate) struct Job<'a, 'b> {
    pub(crate) tables: &'a Tables,
    /// Bit r chooses row r; the nth chosen row goes to the nth output.
    pub(crate) rows: u64,
    /// The column of each input.
    pub(crate) columns: &'a [u8],
    pub(crate) inputs: &'a [&'a [u8]],
    /// Subtracted from (which is: added to) the inputs before anything else, if there.
    pub(crate) less: &'a [&'a [u8]],
    pub(crate) onto: Onto<'a>,
    pub(crate) outputs: &'a mut [&'b mut [u8]],
    /// Bytes in each slice.
    pub(crate) len: usize,
}

impl Job<'_, '_> {
    /// Whether each row has one coefficient over the chosen columns.
    pub(crate) fn is_uniform(&self) -> bool {
        self.columns.len() <= 1 || self.tables.is_uniform()
    }

    /// Whether rows 0 and 1 over the chosen columns are P and Q of all of them.
    pub(crate) fn starts_with_pq(&self) -> bool {
        self.columns.len() == self.tables.columns() && self.tables.starts_with_pq()
    }
}

/// The positions of the set bits, ascending.
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        (mask != 0).then(|| {
            mask &= mask - 1;
            bit
        })
    })
}
