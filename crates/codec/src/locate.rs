//! Which strips of a wrong stripe are wrong.
//!
//! The k lowest available strips predict the others, R = m - Z of them with Z strips
//! missing; the differences are the *syndromes*, zero everywhere in a stripe that holds.
//! Errors in a set S of strips can only make syndromes from the span of their |S| columns
//! of the code's check matrix. Any k strips determine the stripe, so two different
//! explanations by up to E strips each would be two stripes that differ in at most 2E
//! strips, and those differ in R + 1 at least: with 2E ≤ R the smallest explanation is
//! the only one. It is looked for by trying all sets, small ones first.
//!
//! Source of the bound: any text on Reed-Solomon codes; here every strip is one symbol a
//! byte position, and one set has to explain all positions.

use arrayvec::ArrayVec;

use crate::code::{Code, CodeError, PARITY_MAX, STRIPS_MAX};
use crate::field::{invert, multiply};
use crate::tables::bits;
use crate::transform::{Onto, Sum, low_bits, lowest};

/// Most wrong strips that are looked for: 635,376 sets of 4 among 64 strips can be tried,
/// more could not in any useful time.
const WRONG_MAX: usize = 4;

/// What is wrong with a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Located {
    /// Nothing: all available strips fit together.
    Holds,
    /// These strips (bit: strip), and no others if it is so few.
    Wrong(u64),
    /// Something is, in more strips than the parities can tell; or there is no parity to
    /// tell anything from.
    CannotTell,
}

impl Code {
    /// Finds the wrong strips among those in `available`, whose contents are `strips`,
    /// ascending, of one length: with Z strips missing, up to E wrong ones where
    /// Z + 2E ≤ m (and E ≤ 4). What is said holds for the whole length together: ask
    /// block by block where errors may be in different strips.
    ///
    /// More wrong strips than that can look like fewer others: then the answer is
    /// wrong, with a probability of about C(n, E) / 256 for every wrong byte alone.
    ///
    /// Allocates; not for the path of every request. Fails with
    /// [`CodeError::TooFewStrips`] if fewer than k strips are available. Panics on
    /// strips that the code does not have.
    pub fn locate(&self, available: u64, strips: &[&[u8]]) -> Result<Located, CodeError> {
        assert_eq!(strips.len(), available.count_ones() as usize, "strips");
        let sources = lowest(available, self.data());
        let decoder = self.decoder(sources, available & !sources)?;
        let (inputs, checks) = strips.split_at(self.data());
        if checks.is_empty() {
            return Ok(Located::CannotTell);
        }
        let mut syndromes = vec![vec![0; checks[0].len()]; checks.len()];
        let sum = Sum {
            rows: low_bits(checks.len()),
            columns: low_bits(inputs.len()),
            inputs,
            less: &[],
            onto: Onto::Strips(checks),
        };
        let mut outputs: ArrayVec<&mut [u8], STRIPS_MAX> =
            syndromes.iter_mut().map(|s| &mut s[..]).collect();
        decoder.transform().sum(&sum, &mut outputs);
        drop(outputs);
        let syndromes = nonzero(&syndromes);
        if syndromes.is_empty() {
            return Ok(Located::Holds);
        }
        // The check matrix, a column for each available strip.
        let column = |at: usize| -> Column {
            let entry = |row: usize| match at.checked_sub(inputs.len()) {
                None => decoder.transform().coefficient(row, at),
                Some(check) => u8::from(check == row),
            };
            (0..checks.len()).map(entry).collect()
        };
        let columns: Vec<Column> = (0..strips.len()).map(column).collect();
        let names: Vec<usize> = bits(available).collect();
        Ok(match smallest_explanation(&columns, &syndromes) {
            Some(set) => Located::Wrong(set.iter().fold(0, |mask, &at| mask | 1 << names[at])),
            None => Located::CannotTell,
        })
    }
}

/// One entry for each check.
type Column = ArrayVec<u8, STRIPS_MAX>;

/// Positions in the list of available strips.
type Set = ArrayVec<usize, WRONG_MAX>;

/// The syndromes of each byte position where they are not all zero.
fn nonzero(syndromes: &[Vec<u8>]) -> Vec<Column> {
    let at = |at: usize| -> Column { syndromes.iter().map(|row| row[at]).collect() };
    (0..syndromes[0].len())
        .map(at)
        .filter(|column| column.iter().any(|&s| s != 0))
        .collect()
}

fn smallest_explanation(columns: &[Column], syndromes: &[Column]) -> Option<Set> {
    let checks = columns[0].len();
    for size in 1..=(checks / 2).min(WRONG_MAX) {
        let mut set: Set = (0..size).collect();
        loop {
            // A few checks refuse nearly every wrong set at the first byte.
            if explains(columns, &set, size + 1, syndromes)
                && explains(columns, &set, checks, syndromes)
            {
                return Some(set);
            }
            if !next(&mut set, columns.len()) {
                break;
            }
        }
    }
    None
}

/// The next set of as many of the numbers below `end`, in lexical order.
fn next(set: &mut Set, end: usize) -> bool {
    let size = set.len();
    let Some(at) = (0..size).rfind(|&at| set[at] + size - at < end) else {
        return false;
    };
    let first = set[at] + 1;
    for (step, place) in set[at..].iter_mut().enumerate() {
        *place = first + step;
    }
    true
}

/// Whether the first `checks` syndromes of every position lie in the span of the columns
/// in `set`: eliminates the columns and applies the same steps to the syndromes.
fn explains(columns: &[Column], set: &Set, checks: usize, syndromes: &[Column]) -> bool {
    let mut left: ArrayVec<ArrayVec<u8, WRONG_MAX>, STRIPS_MAX> = (0..checks)
        .map(|row| set.iter().map(|&at| columns[at][row]).collect())
        .collect();
    // Step `n` subtracts `factors[n][row]` times row `pivots[n]` from every other row.
    let mut steps: ArrayVec<(usize, [u8; PARITY_MAX]), WRONG_MAX> = ArrayVec::new();
    let mut pivots = 0_u64;
    for n in 0..set.len() {
        let free = |row: &usize| pivots & (1 << row) == 0 && left[*row][n] != 0;
        let Some(pivot) = (0..checks).find(free) else {
            continue;
        };
        pivots |= 1 << pivot;
        let inverse = invert(left[pivot][n]);
        let mut factors = [0; PARITY_MAX];
        for row in (0..checks).filter(|&row| pivots & (1 << row) == 0) {
            factors[row] = multiply(left[row][n], inverse);
            for later in n..set.len() {
                left[row][later] ^= multiply(factors[row], left[pivot][later]);
            }
        }
        steps.push((pivot, factors));
    }
    syndromes.iter().all(|syndrome| {
        let mut rest: Column = syndrome[..checks].iter().copied().collect();
        for (pivot, factors) in &steps {
            for row in 0..checks {
                let term = multiply(factors[row], rest[*pivot]);
                rest[row] ^= term;
            }
        }
        (0..checks).all(|row| pivots & (1 << row) != 0 || rest[row] == 0)
    })
}

#[cfg(test)]
mod tests;
