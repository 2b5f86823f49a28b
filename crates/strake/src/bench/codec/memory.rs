//! The strips that the cases work on, where the engine's buffer pool places them.
//!
//! Those in cache hold noise. The ring holds zeroes, and stays so under every code: so the
//! memory can be read through `is_zero`, which looks no further than the first byte that
//! is not.

use std::time::Duration;

use anyhow::{Context, ensure};
use strake_reactor::buffer::{Buffer, Pool};

use super::cases::{CEILING, Case, DISPLACED_BYTES, Placement, STRIP_BYTES, Set};
use super::timed;

/// Most strips of one call.
pub const STRIPS_MAX: usize = 32;
/// Strips in cache: so many that any placement in `cases` finds its own.
const HOT_STRIPS: usize = 16 * STRIPS_MAX;

/// Strips from a pool, and how far the walk over the ring has come.
pub struct Memory {
    hot: Vec<Buffer>,
    ring: Vec<Buffer>,
    /// Strips in cache, one behind the other with a gap between.
    displaced: Buffer,
    next: usize,
}

impl Memory {
    /// Takes `ring_mib` MiB of strips for the ring, and some more.
    pub fn new(ring_mib: usize) -> anyhow::Result<Memory> {
        ensure!(ring_mib >= 16, "--ring-mib {ring_mib}: give at least 16");
        let count = ring_mib * (1 << 20) / STRIP_BYTES;
        let pool = Pool::new((HOT_STRIPS + count) * STRIP_BYTES)
            .with_context(|| format!("--ring-mib {ring_mib}: give less"))?;
        let strip = || pool.alloc(STRIP_BYTES);
        let hot: Option<Vec<Buffer>> = (0..HOT_STRIPS).map(|_| strip()).collect();
        let ring: Option<Vec<Buffer>> = (0..count).map(|_| strip()).collect();
        let (mut hot, mut ring) = hot
            .zip(ring)
            .context("the pool has less than it was made with")?;
        let mut rng = fastrand::Rng::with_seed(1);
        hot.iter_mut().for_each(|strip| rng.fill(strip));
        ring.iter_mut().for_each(|strip| strip.fill(0));
        let mut displaced = Buffer::heap(STRIPS_MAX * (STRIP_BYTES + DISPLACED_BYTES));
        rng.fill(&mut displaced);
        Ok(Memory {
            hot,
            ring,
            displaced,
            next: 0,
        })
    }

    /// Time of so many calls of a case.
    pub fn run(&mut self, case: &mut Case, calls: usize) -> Duration {
        let strips = case.inputs + case.outputs;
        if case.set == Set::Hot {
            let place = if case.operation == CEILING {
                &mut self.ring
            } else {
                &mut self.hot
            };
            let (inputs, mut outputs) = match case.placement {
                Placement::Every(every) => split(slices(place.iter_mut().step_by(every)), case),
                Placement::Displaced => {
                    let apart = STRIP_BYTES + DISPLACED_BYTES;
                    split(self.displaced.as_mut_slice().chunks_exact_mut(apart), case)
                }
            };
            return timed(calls, |_| (case.work)(&inputs, &mut outputs));
        }
        let stripes = self.ring.len() / strips;
        let first = self.next / strips;
        self.next = (first + calls) % stripes * strips;
        timed(calls, |number| {
            let at = (first + number) % stripes * strips;
            let (inputs, mut outputs) = split(slices(self.ring[at..at + strips].iter_mut()), case);
            (case.work)(&inputs, &mut outputs);
        })
    }
}

fn slices<'a>(strips: impl Iterator<Item = &'a mut Buffer>) -> impl Iterator<Item = &'a mut [u8]> {
    strips.map(Buffer::as_mut_slice)
}

/// The first strips, as the case wants them.
fn split<'a>(
    strips: impl Iterator<Item = &'a mut [u8]>,
    case: &Case,
) -> (Vec<&'a [u8]>, Vec<&'a mut [u8]>) {
    let mut strips = strips.map(|strip| &mut strip[..case.strip_bytes]);
    let inputs = strips.by_ref().take(case.inputs).map(|strip| &*strip);
    let inputs: Vec<&[u8]> = inputs.collect();
    let outputs: Vec<&mut [u8]> = strips.take(case.outputs).collect();
    assert_eq!((inputs.len(), outputs.len()), (case.inputs, case.outputs));
    (inputs, outputs)
}
