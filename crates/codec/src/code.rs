//! The one code of the house: which multiples of the data strips make each parity.
//!
//! # The matrix
//!
//! Parity r is the sum over the data strips j of c(r, j) × strip j, in GF(2⁸) with
//! polynomial 0x11d. Let y_j = 2^-j for each column. Then
//!
//! - row 0 is all ones: P, the XOR;
//! - row 1 is 1 / (0 + y_j) = 2^j: Q, the syndrome of Linux md;
//! - row r ≥ 2 is s_r / (x_r + y_j), with x_r = 2^(r-1) and s_r = x_r + y_0, so that
//!   its first coefficient is 1.
//!
//! Rows from 1 on are therefore those of a Cauchy matrix with x_1 = 0, each scaled by
//! a constant, and row 0 is its limit for an x that goes to infinity (an extended
//! Cauchy matrix). The x are distinct, the y are distinct, and no x is a y: with at
//! least two parities there are at most 62 columns, whose y have the exponents 0 and
//! 194 to 254 modulo 255, while x has the exponents 1 to 30, and 0 is no power of two.
//! The determinant of any square choice of rows x_1…x_n and columns y_1…y_n is
//!
//! Π_{a<b} (x_a + x_b) × Π_{a<b} (y_a + y_b) / Π_{a,b} (x_a + y_b)
//!
//! times the scales, and with row 0 chosen as well the same without the factors of
//! that row's x. All factors are nonzero, so every square submatrix is invertible:
//! any k of the k + m strips bring back all others.
//!
//! With one data strip every coefficient is 1 by the scaling: each parity is a copy,
//! and mirrors are this code, too, with any number of copies.
//!
//! A coefficient depends on its row and column only, never on k or m. So an array can
//! gain a parity without changing those it has, and the whole family has one number
//! in the on-disk format: [`CODE_ID`].
//!
//! Sources: H. P. Anvin, "The mathematics of RAID-6", for P and Q; the construction of
//! further rows from Cauchy matrices follows the idea of J. Blömer et al., "An
//! XOR-based erasure-resilient coding scheme" (1995), and the fact that P and Q fit
//! into an extended Cauchy matrix is known from SnapRAID's documentation.

use std::sync::Arc;

use crate::decoder::{Cache, Decoder};
use crate::field;
use crate::transform::{Onto, Sum, Transform, low_bits};

/// Most strips in a stripe, data and parity together.
pub const STRIPS_MAX: usize = 64;

/// Most parities of a code with two or more data strips.
pub const PARITY_MAX: usize = 32;

/// The number that names this family of codes in the on-disk format.
pub const CODE_ID: u32 = 1;

/// Why there is no such code, or no such way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// The counts are outside of what the code allows.
    #[error(
        "no code has {data} data and {parity} parity strips: choose at least 1 data strip, \
         at most 32 parities (mirrors: any number of copies) and at most 64 strips in all"
    )]
    Shape {
        /// Data strips asked for.
        data: usize,
        /// Parity strips asked for.
        parity: usize,
    },
    /// Too many strips are missing.
    #[error(
        "{have} strips of the stripe are available and {need} are needed to compute \
         the others: bring back a missing member, or restore from a backup"
    )]
    TooFewStrips {
        /// Strips available.
        have: usize,
        /// Strips needed.
        need: usize,
    },
}

/// Coefficient of data strip `column` in parity `row`; see the head of this file.
/// `row` is below 32 unless `column` is 0, and `column` below 62 unless `row` is 0.
pub(crate) const fn coefficient(row: usize, column: usize) -> u8 {
    match (row, column) {
        (0, _) | (_, 0) => 1,
        (1, _) => field::power_of_two(column),
        _ => {
            assert!(row < PARITY_MAX && column < STRIPS_MAX - 2);
            let x = row_point(row);
            let scale = x ^ column_point(0);
            field::multiply(scale, field::invert(x ^ column_point(column)))
        }
    }
}

/// x of a row from 1 on.
const fn row_point(row: usize) -> u8 {
    match row {
        1 => 0,
        _ => field::power_of_two(row - 1),
    }
}

/// y of a column.
const fn column_point(column: usize) -> u8 {
    field::power_of_two(255 - column)
}

/// The code of k data and m parity strips: what encodes, updates and brings back.
///
/// Strips are numbered data first (0 to k-1), then parity (k to k+m-1). A clone is
/// cheap and shares everything, the cache of decoders included.
#[derive(Debug, Clone)]
pub struct Code(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    data: usize,
    parity: usize,
    encoder: Transform,
    decoders: Cache,
}

impl Code {
    /// The code with `data` ≥ 1 data and `parity` ≥ 0 parity strips, together at most
    /// [`STRIPS_MAX`]; at most [`PARITY_MAX`] parities unless `data` is 1, where every
    /// parity is a copy. Fails with [`CodeError::Shape`] otherwise.
    pub fn new(data: usize, parity: usize) -> Result<Code, CodeError> {
        let fits = (1..=STRIPS_MAX).contains(&data)
            && parity <= STRIPS_MAX - data
            && (parity <= PARITY_MAX || data == 1);
        if !fits {
            return Err(CodeError::Shape { data, parity });
        }
        Ok(Code(Arc::new(Inner {
            data,
            parity,
            encoder: encoder(data, parity),
            decoders: Cache::new(),
        })))
    }

    /// Number of data strips, k.
    pub fn data(&self) -> usize {
        self.0.data
    }

    /// Number of parity strips, m.
    pub fn parity(&self) -> usize {
        self.0.parity
    }

    /// The coefficient of data strip `data` in parity `parity`, both counted from 0.
    /// Panics if the code has no such strip.
    pub fn coefficient(&self, parity: usize, data: usize) -> u8 {
        assert!(parity < self.parity() && data < self.data());
        coefficient(parity, data)
    }

    /// Makes parity: k data strips in, m parities out.
    pub fn encoder(&self) -> &Transform {
        &self.0.encoder
    }

    /// Brings parities up to date after a write to the data strips in `written`, in one
    /// pass: `old` and `new` are their contents before and after, ascending, and
    /// `parities` those parity strips whose bit is set in `rows`, bit 0 for P; each gets
    /// the sum of c(r, data) × (old - new) added. `old` and `new` may change places.
    /// All of one length. Panics on strips that the code does not have.
    pub fn update(
        &self,
        rows: u64,
        written: u64,
        old: &[&[u8]],
        new: &[&[u8]],
        parities: &mut [&mut [u8]],
    ) {
        assert_eq!(old.len(), new.len(), "old and new contents");
        let sum = Sum {
            rows,
            columns: written,
            inputs: old,
            less: new,
            onto: Onto::Outputs,
        };
        self.encoder().sum(&sum, parities);
    }

    /// Partial parity: what the data strips in `present` alone contribute to the
    /// parities in `rows`. `contents` are theirs, ascending; the others count as zeroes.
    /// Panics on strips that the code does not have.
    pub fn partial_parity(
        &self,
        rows: u64,
        present: u64,
        contents: &[&[u8]],
        partial: &mut [&mut [u8]],
    ) {
        let sum = Sum {
            rows,
            columns: present,
            inputs: contents,
            less: &[],
            onto: Onto::Nothing,
        };
        self.encoder().sum(&sum, partial);
    }

    /// Partial parity from the other side: the parities in `rows`, whose contents are
    /// `parities`, less what the data strips in `absent` contribute to them. `contents`
    /// are those of the absent strips, ascending, that the parities were made with.
    /// Panics on strips that the code does not have.
    pub fn partial_parity_without(
        &self,
        rows: u64,
        absent: u64,
        contents: &[&[u8]],
        parities: &[&[u8]],
        partial: &mut [&mut [u8]],
    ) {
        let sum = Sum {
            rows,
            columns: absent,
            inputs: contents,
            less: &[],
            onto: Onto::Strips(parities),
        };
        self.encoder().sum(&sum, partial);
    }

    /// Whether a stripe holds: the parities (bit 0 for P) that are not those of the data.
    /// `strips` are all k + m, data first, of one length. Zero: it holds.
    pub fn check(&self, strips: &[&[u8]]) -> u64 {
        assert_eq!(strips.len(), self.data() + self.parity(), "strips");
        let (data, parities) = strips.split_at(self.data());
        self.encoder()
            .differing(low_bits(self.parity()), data, parities)
    }

    /// How to compute the strips in `wanted` from strips in `available`; both are masks
    /// over the k data and then the m parity strips. Of the available strips the k with
    /// the lowest numbers are read: data before parity. A wanted strip may be available
    /// as well.
    ///
    /// Remembered per pattern in a bounded cache that all clones share; asking again
    /// allocates nothing. Fails with [`CodeError::TooFewStrips`] if fewer than k are
    /// available, even if fewer would do. Panics on strips that the code does not have.
    pub fn decoder(&self, available: u64, wanted: u64) -> Result<Arc<Decoder>, CodeError> {
        self.0
            .decoders
            .get(self.data(), self.parity(), available, wanted)
    }
}

fn encoder(data: usize, parity: usize) -> Transform {
    let rows: Vec<u8> = (0..parity)
        .flat_map(|row| (0..data).map(move |column| coefficient(row, column)))
        .collect();
    Transform::new(parity, data, &rows)
}

#[cfg(test)]
mod tests;
