//! Each algorithm once, over a small trait that an instruction set fills in.
//!
//! All functions here are inlined into the one entry function of an instruction set
//! (`arch/`), which is what lets the compiler use its instructions.
//!
//! Sources are read once per batch of output rows: the sums of a batch stay in
//! registers while all columns pass by, or a group of them where a kernel takes many
//! columns in groups. An update reads each old and new content once and the parities
//! once, and adds what has changed to all of them in that pass. Where more than one
//! batch is needed, the strips are cut into blocks whose sources stay in the first-level
//! cache between the batches. Strips are looked up a pane or a piece at a time, so that
//! the innermost loops check nothing. What remains of a strip after the last whole piece
//! goes to the plain code; in this house lengths are multiples of 512 bytes, and nothing
//! remains.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::code::STRIPS_MAX;
use crate::plain;
use crate::tables::{Job, Tables, bits};
use crate::transform::Onto;

/// One register full of bytes, and how to multiply them.
///
/// `Isa` proves that the processor has the instructions: a vector comes from nothing
/// but an `Isa`, so every operation on one is allowed.
pub(crate) trait Vector: Copy {
    /// Proof that the instruction set is there.
    type Isa: Copy;
    /// A coefficient in memory.
    type Stored;
    /// A coefficient in registers.
    type Factor: Copy;
    /// A vector made ready to be multiplied by several factors.
    type Split: Copy;

    /// Bytes in a vector.
    const BYTES: usize;
    /// Whether there are 32 registers (else 16), and multiplying needs no temporaries
    /// that would fill them.
    const WIDE: bool;
    /// Whether a product is one instruction: then two of them and the sum are best added
    /// in one three-way XOR.
    const PAIRS: bool;
    /// Whether eight vectors of a strip at a time beat four where registers allow: less
    /// is spent on the way from strip to strip. On a Cascade Lake core XOR 8+1 in cache
    /// went from 60 to 72, 8+2 from 47 to 51 GB/s.
    const LONG: bool;
    /// From how many sources on asking for later lines pays where only sums are made. Where loads
    /// are the limit it does not: on a Cascade Lake core (AVX-512) it took XOR 8+1 in cache from 64
    /// to 49 GB/s, and gave nothing out of it; on a Zen 3 core (AVX2) XOR went without it from 10 to
    /// 16 (8+1) and from 11 to 15 (16+1) GB/s from memory, and gained 5 to 10 % in cache.
    const SUMS_AHEAD_FROM: usize;
    /// Of how many sources at a time a sum is made where there are more than a set of the first-level
    /// cache has ways; `NEVER`: of all. On a Zen 3 core (AVX2) groups of up to six took P and Q 10+2
    /// in cache from 32 to 41, 16+2 from 37 to 45 GB/s, from memory 16+2 from 14 to 18 and 10+2 from
    /// 21 to 19.
    const TOGETHER: usize;
    /// Whether `double_add` costs less than a product, so that Q is best made by Horner's
    /// rule.
    const DOUBLES: bool;

    fn zero(isa: Self::Isa) -> Self;
    /// Tells the processor that the 64 bytes around this address will be read soon. It
    /// may lie outside of every slice: nothing is read. Does nothing by default.
    #[inline(always)]
    fn prefetch(_isa: Self::Isa, _address: *const u8) {}
    /// Reads the first `BYTES` bytes; panics if there are fewer.
    fn load(isa: Self::Isa, from: &[u8]) -> Self;
    /// Writes the first `BYTES` bytes; panics if there are fewer.
    fn store(self, to: &mut [u8]);
    fn xor(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn is_zero(self) -> bool;
    fn xor3(self, second: Self, third: Self) -> Self;
    /// What contents differ by, byte by byte, while they are doubled and added to.
    #[inline(always)]
    fn offset(isa: Self::Isa) -> Self {
        Self::zero(isa)
    }
    /// Multiplies each byte by 2 and adds the other vector; both this and the result lie off by
    /// `offset`, the other does not.
    fn double_add(self, other: Self) -> Self;
    fn split(self) -> Self::Split;
    fn stored(tables: &Tables) -> &[Self::Stored];
    fn factor(isa: Self::Isa, stored: &Self::Stored) -> Self::Factor;
    fn product(split: Self::Split, factor: Self::Factor) -> Self;
    /// This and the product.
    #[inline(always)]
    fn add_product(self, split: Self::Split, factor: Self::Factor) -> Self {
        self.xor(Self::product(split, factor))
    }
}

/// Vectors of one strip that are in the registers at a time, most often.
const SPAN: usize = 4;

/// The same where only XORs and doublings are made and the kernel is `LONG`.
const LONG_SPAN: usize = 8;

/// How far ahead of its use a source is asked for. The processor's own prefetcher
/// follows a few streams well and twenty badly: on a Zen 5 core, out of cache, asking
/// raised 8+2 from 19 to 24, 16+4 from 17 to 24 and 20+8 from 12 to 22 GB/s of data.
/// 512 to 2048 measure alike within the noise, there and on Cascade Lake; so did asking
/// for the lines to be written, and writing around the caches.
const AHEAD_BYTES: usize = 512;

/// For `SUMS_AHEAD_FROM`.
pub(crate) const ALWAYS: usize = 0;
/// For `SUMS_AHEAD_FROM` and `TOGETHER`.
pub(crate) const NEVER: usize = usize::MAX;
/// For `SUMS_AHEAD_FROM`: more streams than every processor's own prefetcher follows.
pub(crate) const MANY: usize = 11;

/// No line is asked for.
const NO_HINT: usize = 0;

/// Every line is asked for, which from memory is worth 4 % for P and Q and 6 to 22 % for tables.
const EACH_LINE: usize = 64;

/// Every second line is: processors fetch lines in pairs. Where a sum is made of more strips than a
/// set of the first-level cache has ways, and strips lie a power of two apart, a hint for each line
/// drives out what is about to be read: on a Cascade Lake core it took 10+2 in cache from 49 to
/// 42 GB/s.
const EACH_PAIR: usize = 128;

/// Sources and sums that a set of any first-level cache has room for, near enough.
const WAYS: usize = 8;

/// Source bytes to keep in a first-level cache of 32 KiB or more while several
/// batches of rows use them.
const BLOCK_BYTES: usize = 24 * 1024;

/// Carries out the whole job.
#[inline(always)]
pub(crate) fn run<V: Vector>(isa: V::Isa, job: &mut Job<'_, '_>) {
    const {
        assert!(PIECE_BYTES.is_multiple_of(LONG_SPAN * V::BYTES));
        assert!(PANE_BYTES.is_multiple_of(PIECE_BYTES));
    }
    let whole = job.len - job.len % PIECE_BYTES;
    if whole > 0 {
        if job.is_uniform() {
            uniform::<V>(isa, job, whole);
        } else {
            general::<V>(isa, job, whole);
        }
    }
    if whole < job.len {
        plain::run_range(job, whole..job.len);
    }
}

/// Whether all bytes are zero. Looks at the collected bits once a block.
#[inline(always)]
pub(crate) fn is_zero<V: Vector>(isa: V::Isa, bytes: &[u8]) -> bool {
    const LOOK_BYTES: usize = 1024;
    let mut blocks = bytes.chunks_exact(LOOK_BYTES);
    for block in &mut blocks {
        let mut seen = [V::zero(isa); SPAN];
        for at in (0..LOOK_BYTES).step_by(SPAN * V::BYTES) {
            for u in 0..SPAN {
                seen[u] = seen[u].or(V::load(isa, &block[at + u * V::BYTES..]));
            }
        }
        if !seen[0].or(seen[1]).or(seen[2].or(seen[3])).is_zero() {
            return false;
        }
    }
    plain::is_zero(blocks.remainder())
}

/// Every row has one coefficient: sum the inputs, then multiply once a row.
#[inline(always)]
fn uniform<V: Vector>(isa: V::Isa, job: &mut Job<'_, '_>, whole: usize) {
    let first = usize::from(*job.columns.first().unwrap_or(&0));
    let is_one = |row| job.tables.coefficient(row, first) == 1;
    let plain = is_one(job.rows.trailing_zeros() as usize);
    let done = job.inputs.len() == 1
        && !bits(job.rows).all(is_one)
        && match (plain, job.less.is_empty()) {
            (true, true) => one_column_of::<V, true, false>(isa, job, whole),
            (true, false) => one_column_of::<V, true, true>(isa, job, whole),
            (false, true) => one_column_of::<V, false, false>(isa, job, whole),
            (false, false) => one_column_of::<V, false, true>(isa, job, whole),
        };
    if done {
        return;
    }
    if plain && job.rows.is_power_of_two() {
        uniform_of::<V, true>(isa, job, whole);
    } else {
        uniform_of::<V, false>(isa, job, whole);
    }
}

/// One column into a few rows, as after a write to one strip: the factors are looked up once, and what
/// is multiplied is made ready once for all rows. With `PLAIN` the first row's factor is 1; with
/// `LESS` the input is the difference of two. No line is asked for: most often a block is all there
/// is, and its end is near.
#[inline(always)]
fn one_column<V: Vector, const ROWS: usize, const PLAIN: bool, const LESS: bool>(
    isa: V::Isa,
    job: &mut Job<'_, '_>,
    whole: usize,
) {
    let first = usize::from(job.columns[0]) * job.tables.rows();
    let stored = V::stored(job.tables);
    let mut factors = [V::factor(isa, &stored[first]); ROWS];
    for (factor, row) in factors.iter_mut().zip(bits(job.rows)) {
        *factor = V::factor(isa, &stored[first + row]);
    }
    for start in (0..whole).step_by(PIECE_BYTES) {
        let taken: &Piece = chunk(job.inputs[0], start);
        let less: &Piece = if LESS {
            chunk(job.less[0], start)
        } else {
            taken
        };
        let mut outputs = chunks_mut::<PIECE_BYTES, ROWS>(job.outputs, start);
        for within in (0..PIECE_BYTES).step_by(SPAN * V::BYTES) {
            let window = within..within + SPAN * V::BYTES;
            let source = difference::<V, SPAN, NO_HINT, LESS>(isa, taken, less, &window);
            let mut split = [source[0].split(); SPAN];
            for u in 1..SPAN {
                split[u] = source[u].split();
            }
            for (row, (&factor, output)) in factors.iter().zip(&mut outputs).enumerate() {
                let mut result = source;
                if !(PLAIN && row == 0) {
                    for u in 0..SPAN {
                        result[u] = V::product(split[u], factor);
                    }
                }
                put_onto(
                    isa,
                    result,
                    &mut output[window.clone()],
                    job.onto,
                    row,
                    start + within,
                );
            }
        }
    }
}

/// Picks the code for the number of rows; false: there are too many.
#[inline(always)]
fn one_column_of<V: Vector, const PLAIN: bool, const LESS: bool>(
    isa: V::Isa,
    job: &mut Job<'_, '_>,
    whole: usize,
) -> bool {
    match job.rows.count_ones() {
        1 if !PLAIN => one_column::<V, 1, PLAIN, LESS>(isa, job, whole),
        2 => one_column::<V, 2, PLAIN, LESS>(isa, job, whole),
        3 => one_column::<V, 3, PLAIN, LESS>(isa, job, whole),
        4 => one_column::<V, 4, PLAIN, LESS>(isa, job, whole),
        _ => return false,
    }
    true
}

/// `PLAIN`: one row, whose coefficient is 1, so that nothing of a product is made.
#[inline(always)]
fn uniform_of<V: Vector, const PLAIN: bool>(isa: V::Isa, job: &mut Job<'_, '_>, whole: usize) {
    let sources = job.inputs.len() + job.less.len();
    let all = 0..whole;
    if sources > WAYS && V::TOGETHER < NEVER {
        return sum_sources::<V, SPAN, NO_HINT, false, PLAIN, true>(isa, job, all);
    }
    match (V::LONG, sources >= V::SUMS_AHEAD_FROM) {
        (true, true) => sum_sources::<V, LONG_SPAN, EACH_PAIR, false, PLAIN, false>(isa, job, all),
        (true, false) => sum_sources::<V, LONG_SPAN, NO_HINT, false, PLAIN, false>(isa, job, all),
        (false, true) => sum_sources::<V, SPAN, EACH_PAIR, false, PLAIN, false>(isa, job, all),
        (false, false) => sum_sources::<V, SPAN, NO_HINT, false, PLAIN, false>(isa, job, all),
    }
}

/// Bytes of a strip that sums look up at a time. Where P or P and Q are made anew nothing is checked
/// within them any more.
const PANE_BYTES: usize = 4096;

/// Bytes of a strip that products look up at a time. What is smaller goes to the plain code.
const PIECE_BYTES: usize = 512;

/// Sources whose panes are looked up together. (An array: an `ArrayVec` took 6 % from 8+1.)
const PANES_MAX: usize = 40;

type Pane = [u8; PANE_BYTES];
type Piece = [u8; PIECE_BYTES];

/// The bytes of a strip from `at` on.
#[inline(always)]
fn chunk<const BYTES: usize>(strip: &[u8], at: usize) -> &[u8; BYTES] {
    let chunk = strip[at..].first_chunk();
    chunk.expect("callers stay within the strips")
}

/// The bytes of the first `COUNT` outputs from `at` on.
#[inline(always)]
fn chunks_mut<'a, const BYTES: usize, const COUNT: usize>(
    outputs: &'a mut [&mut [u8]],
    at: usize,
) -> [&'a mut [u8; BYTES]; COUNT] {
    let mut outputs = outputs.iter_mut();
    std::array::from_fn(|_| {
        let output = outputs.next().expect("an output for each row");
        let chunk = output[at..].first_chunk_mut();
        chunk.expect("callers stay within the strips")
    })
}

/// The sum of all sources, for the rows of one coefficient each; or with `Q` the first two parities:
/// the last column first, Q doubled before each next one is added. With `GROUPS` see `make_pane`.
#[inline(always)]
fn sum_sources<
    V: Vector,
    const WIDTH: usize,
    const HINT: usize,
    const Q: bool,
    const PLAIN: bool,
    const GROUPS: bool,
>(
    isa: V::Isa,
    job: &mut Job<'_, '_>,
    range: Range<usize>,
) {
    let step = WIDTH * V::BYTES;
    let count = job.inputs.len() + job.less.len();
    let made_anew = (Q || PLAIN) && matches!(job.onto, Onto::Nothing);
    let mut start = range.start;
    if (1..=PANES_MAX).contains(&count) {
        let mut found: [&Pane; PANES_MAX] = [&[0; PANE_BYTES]; PANES_MAX];
        while range.end - start >= PANE_BYTES {
            let sources = job.inputs.iter().chain(job.less).copied();
            for (pane, source) in found.iter_mut().zip(sources) {
                *pane = chunk(source, start);
            }
            let panes = &found[..count];
            if made_anew {
                make_pane::<V, WIDTH, HINT, Q, GROUPS>(isa, panes, job.outputs, start);
            } else {
                for within in (0..PANE_BYTES).step_by(step) {
                    let (p, q) = sum_window::<V, WIDTH, HINT, Q>(isa, panes, within, None);
                    put_sums::<V, WIDTH, Q, PLAIN>(isa, p, q, job, start + within);
                }
            }
            start += PANE_BYTES;
        }
    }
    for at in (start..range.end).step_by(step) {
        let mut p = [V::zero(isa); WIDTH];
        let mut q = offset(isa, p);
        for input in job.inputs.iter().chain(job.less).rev() {
            let source = fetch::<V, WIDTH, HINT>(isa, &input[at..at + step]);
            add::<V, WIDTH, Q>(&mut p, &mut q, source);
        }
        put_sums::<V, WIDTH, Q, PLAIN>(isa, p, q, job, at);
    }
}

/// Writes the sums of a pane of each source to the first output, and with `Q` to the second.
/// Within the pane nothing is checked and nothing chosen, which took 8+2 on a Zen 3 core (AVX2) from
/// 40 to 43 GB/s in cache, and from 49 to 55 where strips do not lie a power of two apart.
///
/// With `GROUPS` (what is added to strips or to the outputs is made in one go) no more than `V::TOGETHER` sources are taken at a time, a pane of each group after the
/// other, and the outputs hold what is made so far. Strips most often lie a power of two apart, and
/// then a set of the first-level cache gets a line of each source.
#[inline(always)]
fn make_pane<
    V: Vector,
    const WIDTH: usize,
    const HINT: usize,
    const Q: bool,
    const GROUPS: bool,
>(
    isa: V::Isa,
    panes: &[&Pane],
    outputs: &mut [&mut [u8]],
    at: usize,
) {
    let step = WIDTH * V::BYTES;
    let (p_pane, mut q_pane) = if Q {
        let [p, q] = chunks_mut::<PANE_BYTES, 2>(outputs, at);
        (p, Some(q))
    } else {
        let [p] = chunks_mut::<PANE_BYTES, 1>(outputs, at);
        (p, None)
    };
    let groups = if GROUPS {
        panes.len().div_ceil(V::TOGETHER)
    } else {
        1
    };
    for (n, group) in panes.rchunks(panes.len().div_ceil(groups)).enumerate() {
        let (first, last) = (!GROUPS || n == 0, !GROUPS || n + 1 == groups);
        for within in (0..PANE_BYTES).step_by(step) {
            let window = within..within + step;
            let before = (!first).then(|| {
                let p = fetch::<V, WIDTH, NO_HINT>(isa, &p_pane[window.clone()]);
                match &q_pane {
                    Some(q_pane) => (p, fetch::<V, WIDTH, NO_HINT>(isa, &q_pane[window.clone()])),
                    None => (p, p),
                }
            });
            let (p, q) = sum_window::<V, WIDTH, HINT, Q>(isa, group, within, before);
            store(p, &mut p_pane[window.clone()]);
            if let Some(q_pane) = &mut q_pane {
                let q = if last { offset(isa, q) } else { q };
                store(q, &mut q_pane[window]);
            }
        }
    }
}

/// P and, with `Q`, Q as `double_add` keeps it, over `WIDTH` vectors of each pane, which are added to
/// `before` where that is given.
#[inline(always)]
fn sum_window<V: Vector, const WIDTH: usize, const HINT: usize, const Q: bool>(
    isa: V::Isa,
    panes: &[&Pane],
    within: usize,
    before: Option<([V; WIDTH], [V; WIDTH])>,
) -> ([V; WIDTH], [V; WIDTH]) {
    let window = within..within + WIDTH * V::BYTES;
    let (top, others) = panes.split_last().expect("at least one source");
    let source = fetch::<V, WIDTH, HINT>(isa, &top[window.clone()]);
    let (mut p, mut q) = match before {
        None => (source, offset(isa, source)),
        Some((mut p, mut q)) => {
            add::<V, WIDTH, Q>(&mut p, &mut q, source);
            (p, q)
        }
    };
    let mut pairs = others.rchunks_exact(2);
    for pair in &mut pairs {
        let high = fetch::<V, WIDTH, HINT>(isa, &pair[1][window.clone()]);
        let low = fetch::<V, WIDTH, HINT>(isa, &pair[0][window.clone()]);
        for u in 0..WIDTH {
            p[u] = p[u].xor3(high[u], low[u]);
            if Q {
                q[u] = q[u].double_add(high[u]).double_add(low[u]);
            }
        }
    }
    for pane in pairs.remainder() {
        let source = fetch::<V, WIDTH, HINT>(isa, &pane[window.clone()]);
        add::<V, WIDTH, Q>(&mut p, &mut q, source);
    }
    (p, q)
}

/// One more source.
#[inline(always)]
fn add<V: Vector, const WIDTH: usize, const Q: bool>(
    p: &mut [V; WIDTH],
    q: &mut [V; WIDTH],
    source: [V; WIDTH],
) {
    for u in 0..WIDTH {
        p[u] = p[u].xor(source[u]);
        if Q {
            q[u] = q[u].double_add(source[u]);
        }
    }
}

/// Contents as `double_add` keeps them, and back.
#[inline(always)]
fn offset<V: Vector, const WIDTH: usize>(isa: V::Isa, mut vectors: [V; WIDTH]) -> [V; WIDTH] {
    for vector in &mut vectors {
        *vector = vector.xor(V::offset(isa));
    }
    vectors
}

/// Writes what `sum_sources` made of the window from `at` on.
#[inline(always)]
fn put_sums<V: Vector, const WIDTH: usize, const Q: bool, const PLAIN: bool>(
    isa: V::Isa,
    p: [V; WIDTH],
    q: [V; WIDTH],
    job: &mut Job<'_, '_>,
    at: usize,
) {
    if Q {
        put(isa, p, job, 0, at);
        put(isa, offset(isa, q), job, 1, at);
    } else {
        put_multiples::<V, WIDTH, PLAIN>(isa, p, job, at);
    }
}

/// Writes to each row's output the sum times the row's coefficient.
#[inline(always)]
fn put_multiples<V: Vector, const WIDTH: usize, const PLAIN: bool>(
    isa: V::Isa,
    sum: [V; WIDTH],
    job: &mut Job<'_, '_>,
    at: usize,
) {
    if PLAIN {
        return put(isa, sum, job, 0, at);
    }
    let stored = V::stored(job.tables);
    let first = usize::from(*job.columns.first().unwrap_or(&0));
    for (n, row) in bits(job.rows).enumerate() {
        let mut result = sum;
        if job.tables.coefficient(row, first) != 1 {
            let factor = V::factor(isa, &stored[first * job.tables.rows() + row]);
            for u in 0..WIDTH {
                result[u] = V::product(sum[u].split(), factor);
            }
        }
        put(isa, result, job, n, at);
    }
}

/// Neighbouring rows that are summed in one pass over the sources.
#[derive(Clone, Copy)]
struct Batch {
    first_row: usize,
    rows: usize,
    /// Index of the output that the first row goes to.
    first_output: usize,
}

/// Most rows in a batch: eight times two or four times four sums fill half of 32
/// registers; four are what 16 registers hold beside tables and sources.
const fn batch_max<V: Vector>() -> usize {
    if V::WIDE { 8 } else { 4 }
}

/// The next batch of the rows in `rows`, as even as may be: 3 + 2, not 4 + 1.
#[inline(always)]
fn next_batch<V: Vector>(rows: u64, first_output: usize) -> Batch {
    let first_row = rows.trailing_zeros() as usize;
    let neighbours = (rows >> first_row).trailing_ones() as usize;
    let batches = neighbours.div_ceil(batch_max::<V>());
    Batch {
        first_row,
        rows: neighbours.div_ceil(batches),
        first_output,
    }
}

/// Any matrix, in blocks and batches.
#[inline(always)]
fn general<V: Vector>(isa: V::Isa, job: &mut Job<'_, '_>, whole: usize) {
    let block = if job.rows.count_ones() as usize <= batch_max::<V>() {
        whole
    } else {
        let sources = job.inputs.len() + job.less.len();
        (BLOCK_BYTES / sources / PIECE_BYTES * PIECE_BYTES).max(PIECE_BYTES)
    };
    let mut start = 0;
    while start < whole {
        let end = whole.min(start + block);
        let (mut rows, mut output) = (job.rows, 0);
        while rows != 0 {
            let batch = next_batch::<V>(rows, output);
            run_batch::<V>(isa, job, batch, start..end);
            rows &= !(((1 << batch.rows) - 1) << batch.first_row);
            output += batch.rows;
        }
        start = end;
    }
}

/// Picks the code for the batch's number of rows: the more rows, the fewer vectors of
/// each, so that the sums fit into the registers.
#[inline(always)]
fn run_batch<V: Vector>(isa: V::Isa, job: &mut Job<'_, '_>, batch: Batch, range: Range<usize>) {
    let whole_pq = batch.first_row == 0 && batch.rows == 2 && job.starts_with_pq();
    if V::DOUBLES && whole_pq && job.less.is_empty() {
        let few = job.inputs.len() <= WAYS;
        if !few && V::TOGETHER < NEVER {
            return sum_sources::<V, SPAN, NO_HINT, true, false, true>(isa, job, range);
        }
        return match (V::LONG, few) {
            (true, true) => {
                sum_sources::<V, LONG_SPAN, EACH_LINE, true, false, false>(isa, job, range)
            }
            (true, false) => {
                sum_sources::<V, LONG_SPAN, EACH_PAIR, true, false, false>(isa, job, range)
            }
            (false, true) => sum_sources::<V, SPAN, EACH_LINE, true, false, false>(isa, job, range),
            (false, false) => {
                sum_sources::<V, SPAN, EACH_PAIR, true, false, false>(isa, job, range)
            }
        };
    }
    if V::WIDE {
        match batch.rows {
            1 => sums::<V, 1, 4>(isa, job, batch, range),
            2 => sums::<V, 2, 4>(isa, job, batch, range),
            3 => sums::<V, 3, 4>(isa, job, batch, range),
            4 => sums::<V, 4, 4>(isa, job, batch, range),
            5 => sums::<V, 5, 2>(isa, job, batch, range),
            6 => sums::<V, 6, 2>(isa, job, batch, range),
            7 => sums::<V, 7, 2>(isa, job, batch, range),
            8 => sums::<V, 8, 2>(isa, job, batch, range),
            rows => unreachable!("a batch of {rows} rows"),
        }
    } else {
        match batch.rows {
            1 => sums::<V, 1, 4>(isa, job, batch, range),
            2 => sums::<V, 2, 4>(isa, job, batch, range),
            3 => sums::<V, 3, 2>(isa, job, batch, range),
            4 => sums::<V, 4, 2>(isa, job, batch, range),
            rows => unreachable!("a batch of {rows} rows"),
        }
    }
}

#[inline(always)]
fn sums<V: Vector, const ROWS: usize, const WIDTH: usize>(
    isa: V::Isa,
    job: &mut Job<'_, '_>,
    batch: Batch,
    range: Range<usize>,
) {
    match (job.tables.is_xor(batch.first_row), job.less.is_empty()) {
        (true, true) => table_sums::<V, ROWS, WIDTH, true, false>(isa, job, batch, range),
        (false, true) => table_sums::<V, ROWS, WIDTH, false, false>(isa, job, batch, range),
        (true, false) => table_sums::<V, ROWS, WIDTH, true, true>(isa, job, batch, range),
        (false, false) => table_sums::<V, ROWS, WIDTH, false, true>(isa, job, batch, range),
    }
}

/// What one column contributes to the rows of a batch.
struct Term<'a, V: Vector, const ROWS: usize> {
    source: &'a Piece,
    /// With `LESS`: what the source is a difference from.
    less: &'a Piece,
    by: &'a [V::Stored; ROWS],
}

impl<V: Vector, const ROWS: usize> Term<'_, V, ROWS> {
    #[inline(always)]
    fn fetch<const WIDTH: usize, const LESS: bool>(
        &self,
        isa: V::Isa,
        window: &Range<usize>,
    ) -> [V; WIDTH] {
        difference::<V, WIDTH, EACH_LINE, LESS>(isa, self.source, self.less, window)
    }
}

/// Sums of products by tables, for `ROWS` rows over `WIDTH` vectors at a time. With
/// `PLAIN` the first row has only ones and needs no product; with `LESS` every input is
/// the difference of two.
#[inline(always)]
fn table_sums<
    V: Vector,
    const ROWS: usize,
    const WIDTH: usize,
    const PLAIN: bool,
    const LESS: bool,
>(
    isa: V::Isa,
    job: &mut Job<'_, '_>,
    batch: Batch,
    range: Range<usize>,
) {
    let stored = V::stored(job.tables);
    let rows = job.tables.rows();
    let mut terms: ArrayVec<Term<'_, V, ROWS>, STRIPS_MAX> = ArrayVec::new();
    for &column in job.columns {
        terms.push(Term {
            source: &[0; PIECE_BYTES],
            less: &[0; PIECE_BYTES],
            by: stored[usize::from(column) * rows + batch.first_row..]
                .first_chunk()
                .expect("a batch of rows that are there"),
        });
    }
    for start in range.step_by(PIECE_BYTES) {
        for (index, term) in terms.iter_mut().enumerate() {
            term.source = chunk(job.inputs[index], start);
            if LESS {
                term.less = chunk(job.less[index], start);
            }
        }
        let outputs = &mut job.outputs[batch.first_output..];
        let mut outputs = chunks_mut::<PIECE_BYTES, ROWS>(outputs, start);
        for within in (0..PIECE_BYTES).step_by(WIDTH * V::BYTES) {
            let window = within..within + WIDTH * V::BYTES;
            let sum = table_window::<V, ROWS, WIDTH, PLAIN, LESS>(isa, &terms, &window);
            for (n, (sum, output)) in sum.into_iter().zip(&mut outputs).enumerate() {
                let output = &mut output[window.clone()];
                let strip = batch.first_output + n;
                put_onto(isa, sum, output, job.onto, strip, start + within);
            }
        }
    }
}

/// The sums over one window of each term.
#[inline(always)]
fn table_window<
    V: Vector,
    const ROWS: usize,
    const WIDTH: usize,
    const PLAIN: bool,
    const LESS: bool,
>(
    isa: V::Isa,
    terms: &[Term<'_, V, ROWS>],
    window: &Range<usize>,
) -> [[V; WIDTH]; ROWS] {
    let mut sum = [[V::zero(isa); WIDTH]; ROWS];
    let mut terms = terms;
    while V::PAIRS
        && let [first, second, rest @ ..] = terms
    {
        let a = first.fetch::<WIDTH, LESS>(isa, window);
        let b = second.fetch::<WIDTH, LESS>(isa, window);
        for (row, sum) in sum.iter_mut().enumerate() {
            let a = times::<V, WIDTH, PLAIN>(isa, a, row, &first.by[row]);
            let b = times::<V, WIDTH, PLAIN>(isa, b, row, &second.by[row]);
            for u in 0..WIDTH {
                sum[u] = sum[u].xor3(a[u], b[u]);
            }
        }
        terms = rest;
    }
    for term in terms {
        let source = term.fetch::<WIDTH, LESS>(isa, window);
        let mut split = [source[0].split(); WIDTH];
        for u in 1..WIDTH {
            split[u] = source[u].split();
        }
        for (row, sum) in sum.iter_mut().enumerate() {
            if PLAIN && row == 0 {
                for u in 0..WIDTH {
                    sum[u] = sum[u].xor(source[u]);
                }
                continue;
            }
            let factor = V::factor(isa, &term.by[row]);
            for u in 0..WIDTH {
                sum[u] = sum[u].add_product(split[u], factor);
            }
        }
    }
    sum
}

/// `WIDTH` vectors of a source, with `LESS` less what it is a difference from.
#[inline(always)]
fn difference<V: Vector, const WIDTH: usize, const HINT: usize, const LESS: bool>(
    isa: V::Isa,
    source: &Piece,
    less: &Piece,
    window: &Range<usize>,
) -> [V; WIDTH] {
    let mut vectors = fetch::<V, WIDTH, HINT>(isa, &source[window.clone()]);
    if LESS {
        let less = fetch::<V, WIDTH, HINT>(isa, &less[window.clone()]);
        for u in 0..WIDTH {
            vectors[u] = vectors[u].xor(less[u]);
        }
    }
    vectors
}

/// The vectors times the factor of a row, which in row 0 is 1 if `PLAIN`.
#[inline(always)]
fn times<V: Vector, const WIDTH: usize, const PLAIN: bool>(
    isa: V::Isa,
    source: [V; WIDTH],
    row: usize,
    stored: &V::Stored,
) -> [V; WIDTH] {
    if PLAIN && row == 0 {
        return source;
    }
    let factor = V::factor(isa, stored);
    let mut product = source;
    for u in 0..WIDTH {
        product[u] = V::product(source[u].split(), factor);
    }
    product
}

/// `WIDTH` vectors from the start of a source's window, and a hint for every `HINT` bytes of later
/// ones.
#[inline(always)]
fn fetch<V: Vector, const WIDTH: usize, const HINT: usize>(
    isa: V::Isa,
    window: &[u8],
) -> [V; WIDTH] {
    if HINT != NO_HINT {
        let ahead = window.as_ptr().wrapping_add(AHEAD_BYTES);
        for line in (0..WIDTH * V::BYTES).step_by(HINT) {
            V::prefetch(isa, ahead.wrapping_add(line));
        }
    }
    let mut vectors = [V::zero(isa); WIDTH];
    for u in 0..WIDTH {
        vectors[u] = V::load(isa, &window[u * V::BYTES..]);
    }
    vectors
}

/// Writes the vectors, and what they are added to, to output `n` from byte
/// `at` on.
#[inline(always)]
fn put<V: Vector, const WIDTH: usize>(
    isa: V::Isa,
    vectors: [V; WIDTH],
    job: &mut Job<'_, '_>,
    n: usize,
    at: usize,
) {
    let window = &mut job.outputs[n][at..at + WIDTH * V::BYTES];
    put_onto(isa, vectors, window, job.onto, n, at);
}

#[inline(always)]
fn put_onto<V: Vector, const WIDTH: usize>(
    isa: V::Isa,
    mut vectors: [V; WIDTH],
    window: &mut [u8],
    onto: Onto<'_>,
    n: usize,
    at: usize,
) {
    let base = match onto {
        Onto::Nothing => None,
        Onto::Outputs => Some(fetch::<V, WIDTH, EACH_PAIR>(isa, window)),
        Onto::Strips(strips) => Some(fetch::<V, WIDTH, EACH_PAIR>(
            isa,
            &strips[n][at..at + window.len()],
        )),
    };
    if let Some(base) = &base {
        for u in 0..WIDTH {
            vectors[u] = vectors[u].xor(base[u]);
        }
    }
    store(vectors, window);
}

#[inline(always)]
fn store<V: Vector, const WIDTH: usize>(vectors: [V; WIDTH], window: &mut [u8]) {
    for u in 0..WIDTH {
        vectors[u].store(&mut window[u * V::BYTES..]);
    }
}
