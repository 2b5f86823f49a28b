//! How lost strips come back: a matrix per pattern of loss, remembered.
//!
//! Only the lost data among the k sources has to be solved for. With the sources
//! being the data strips D that are there and as many parities R as data strips L are
//! lost, each parity r in R says
//!
//! strip r = Σ_{j in D} c(r, j) strip j + Σ_{l in L} c(r, l) strip l,
//!
//! a system of |L| ≤ m equations whose matrix, c restricted to R × L, is invertible by
//! the construction of the code.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use arrayvec::ArrayVec;

use crate::code::{CodeError, PARITY_MAX, STRIPS_MAX, coefficient};
use crate::field::{invert, multiply};
use crate::tables::bits;
use crate::transform::{Transform, low_bits, lowest};

/// Computes certain strips of a stripe from k others.
#[derive(Debug)]
pub struct Decoder {
    sources: ArrayVec<u8, STRIPS_MAX>,
    wanted: ArrayVec<u8, STRIPS_MAX>,
    transform: Transform,
}

impl Decoder {
    /// The strips to read, exactly k, ascending: the inputs of the transform in order.
    pub fn sources(&self) -> &[u8] {
        &self.sources
    }

    /// The strips that are computed, ascending: the outputs of the transform in order.
    pub fn wanted(&self) -> &[u8] {
        &self.wanted
    }

    /// The matrix from sources to wanted.
    pub fn transform(&self) -> &Transform {
        &self.transform
    }

    /// `sources` has exactly `data` bits; neither mask has a bit past the last strip.
    fn new(data: usize, sources: u64, wanted: u64) -> Decoder {
        let solved = Solution::new(data, sources);
        let mut rows = Vec::with_capacity(wanted.count_ones() as usize * data);
        for strip in bits(wanted) {
            if strip < data {
                rows.extend_from_slice(&solved.data_row(strip));
            } else {
                rows.extend_from_slice(&solved.parity_row(strip - data));
            }
        }
        Decoder {
            transform: Transform::new(wanted.count_ones() as usize, data, &rows),
            sources: bits(sources).map(|strip| strip as u8).collect(),
            wanted: bits(wanted).map(|strip| strip as u8).collect(),
        }
    }
}

/// A row of coefficients over the sources.
type Row = ArrayVec<u8, STRIPS_MAX>;

/// Each data strip as a row over the sources.
struct Solution {
    data: ArrayVec<Row, STRIPS_MAX>,
}

impl Solution {
    fn new(data: usize, sources: u64) -> Solution {
        let positions: Vec<usize> = bits(sources).collect();
        let parities: Vec<usize> = bits(sources)
            .filter(|&strip| strip >= data)
            .map(|strip| strip - data)
            .collect();
        let lost: Vec<usize> = bits(low_bits(data) & !sources).collect();
        let inverse = invert_matrix(&parities, &lost);
        let row = |strip: usize| -> Row {
            match lost.iter().position(|&l| l == strip) {
                None => positions.iter().map(|&s| u8::from(s == strip)).collect(),
                Some(l) => positions
                    .iter()
                    .map(|&s| lost_coefficient(&inverse[l], &parities, s, data))
                    .collect(),
            }
        };
        Solution {
            data: (0..data).map(row).collect(),
        }
    }

    fn data_row(&self, strip: usize) -> Row {
        self.data[strip].clone()
    }

    /// A parity is the code's sum of the data strips, whatever those are made of.
    fn parity_row(&self, parity: usize) -> Row {
        let columns = self.data[0].len();
        let mut sum: Row = (0..columns).map(|_| 0).collect();
        for (column, row) in self.data.iter().enumerate() {
            let factor = coefficient(parity, column);
            for (total, &term) in sum.iter_mut().zip(row) {
                *total ^= multiply(factor, term);
            }
        }
        sum
    }
}

/// How source strip `source` goes into a lost data strip, whose row of the inverse,
/// over `parities`, is given: a parity directly, a data strip through all parities.
fn lost_coefficient(inverse: &[u8], parities: &[usize], source: usize, data: usize) -> u8 {
    let terms = inverse.iter().zip(parities);
    terms
        .map(|(&factor, &parity)| {
            if source >= data {
                u8::from(parity == source - data) * factor
            } else {
                multiply(factor, coefficient(parity, source))
            }
        })
        .fold(0, |sum, term| sum ^ term)
}

/// A square matrix of at most 32 × 32.
type Square = ArrayVec<ArrayVec<u8, PARITY_MAX>, PARITY_MAX>;

/// The inverse of the code's matrix restricted to these rows and columns, by
/// Gauss–Jordan elimination; its rows go with `columns`, its columns with `rows`.
/// No pivot has to be looked for: the leading submatrices are invertible as well.
fn invert_matrix(rows: &[usize], columns: &[usize]) -> Square {
    let size = columns.len();
    assert_eq!(rows.len(), size, "as many parities as lost data strips");
    let square = |entry: &dyn Fn(usize, usize) -> u8| -> Square {
        (0..size)
            .map(|a| (0..size).map(|b| entry(a, b)).collect())
            .collect()
    };
    let mut left = square(&|a, b| coefficient(rows[a], columns[b]));
    let mut right = square(&|a, b| u8::from(a == b));
    for step in 0..size {
        let factor = invert(left[step][step]);
        scale(&mut left[step], factor);
        scale(&mut right[step], factor);
        for row in (0..size).filter(|&row| row != step) {
            let factor = left[row][step];
            subtract(&mut left, row, step, factor);
            subtract(&mut right, row, step, factor);
        }
    }
    right
}

fn scale(row: &mut [u8], factor: u8) {
    for entry in row {
        *entry = multiply(*entry, factor);
    }
}

/// Row `row` less `factor` times row `from`.
fn subtract(matrix: &mut Square, row: usize, from: usize, factor: u8) {
    for column in 0..matrix.len() {
        let term = multiply(matrix[from][column], factor);
        matrix[row][column] ^= term;
    }
}

/// Patterns remembered per code: 64 rotations of parity times 8 ways to miss some.
/// A decoder of 16 + 4 that rebuilds two strips takes about 1.5 KiB.
const CACHED_MAX: usize = 512;

/// The decoders of one code, by sources and wanted strips. When it is full, the
/// pattern that was not asked for the longest, about, makes room (clock).
#[derive(Debug)]
pub(crate) struct Cache(RwLock<Clock>);

#[derive(Debug, Default)]
struct Clock {
    places: HashMap<(u64, u64), usize>,
    entries: Vec<Entry>,
    hand: usize,
}

#[derive(Debug)]
struct Entry {
    pattern: (u64, u64),
    decoder: Arc<Decoder>,
    /// Asked for since the hand last passed.
    used: AtomicBool,
}

impl Cache {
    pub(crate) fn new() -> Cache {
        Cache(RwLock::default())
    }

    /// See `Code::decoder`.
    pub(crate) fn get(
        &self,
        data: usize,
        parity: usize,
        available: u64,
        wanted: u64,
    ) -> Result<Arc<Decoder>, CodeError> {
        let strips = low_bits(data + parity);
        assert_eq!((available | wanted) & !strips, 0, "no such strip");
        let have = available.count_ones() as usize;
        if have < data {
            return Err(CodeError::TooFewStrips { have, need: data });
        }
        let sources = lowest(available, data);
        let pattern = (sources, wanted);
        // A panic while the lock was held cannot have left half a change that matters:
        // an entry is whole before it is linked.
        let clock = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(decoder) = clock.find(pattern) {
            return Ok(decoder);
        }
        drop(clock);
        let decoder = Arc::new(Decoder::new(data, sources, wanted));
        let mut clock = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Ok(clock.find_or_insert(pattern, decoder))
    }
}

impl Clock {
    fn find(&self, pattern: (u64, u64)) -> Option<Arc<Decoder>> {
        let entry = &self.entries[*self.places.get(&pattern)?];
        entry.used.store(true, Ordering::Relaxed);
        Some(Arc::clone(&entry.decoder))
    }

    /// Another thread may have been faster: then its decoder stays.
    fn find_or_insert(&mut self, pattern: (u64, u64), decoder: Arc<Decoder>) -> Arc<Decoder> {
        if let Some(there) = self.find(pattern) {
            return there;
        }
        let entry = Entry {
            pattern,
            decoder: Arc::clone(&decoder),
            used: AtomicBool::new(false),
        };
        let place = if self.entries.len() < CACHED_MAX {
            self.entries.push(entry);
            self.entries.len() - 1
        } else {
            let place = self.make_room();
            self.entries[place] = entry;
            place
        };
        self.places.insert(pattern, place);
        decoder
    }

    /// Turns the hand to the next entry that was not used and forgets its pattern.
    fn make_room(&mut self) -> usize {
        loop {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.entries.len();
            if !self.entries[place].used.swap(false, Ordering::Relaxed) {
                self.places.remove(&self.entries[place].pattern);
                return place;
            }
        }
    }
}

#[cfg(test)]
mod tests;
