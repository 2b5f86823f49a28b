//! What drives of a known pace allow: requests a second if none of them is ever without work.

use strake_engine::layout::Shape;
use strake_reactor::drive::pace::PaceModel;

use super::Workload;

/// Requests of `block_bytes` a second that the drives which are there allow, in the drives' own
/// time: what each request takes of it at least, by so much as they have. `None` where that depends
/// on more than these (how large random writes lie in their stripes, which of several groups has
/// lost members).
pub fn allowed(
    shape: &Shape,
    missing: usize,
    model: PaceModel,
    workload: Workload,
    block_bytes: u64,
) -> Option<f64> {
    if missing > 0 && shape.groups > 1 || missing > usize::from(shape.parity) {
        return None;
    }
    let (strips, data) = (shape.strips() as f64, f64::from(shape.data));
    let parity = f64::from(shape.parity);
    let strip_bytes = shape.strip_size_bytes;
    let within = block_bytes <= strip_bytes;
    let pieces = block_bytes as f64 / strip_bytes as f64;
    let gone = missing as f64;
    let read_ns = || match within {
        // Of the blocks of missing members each costs as many reads as there are data strips.
        true => (1.0 + gone / strips * (data - 1.0)) * model.read_ns(block_bytes),
        // Whole rows take as many reads as they have data strips, whichever are missing.
        false => pieces * model.read_ns(strip_bytes),
    };
    let random_write_ns = || match (shape.data, shape.parity) {
        _ if !within || missing > 0 && shape.data > 1 => None,
        // Every copy that is there.
        (1, _) => Some((1.0 + parity - gone) * model.write_ns(block_bytes, false)),
        (_, 0) => Some(model.write_ns(block_bytes, false)),
        // Old data and old parities are read, new ones written.
        _ => {
            let both_ns = model.read_ns(block_bytes) + model.write_ns(block_bytes, false);
            Some((1.0 + parity) * both_ns)
        }
    };
    let drive_ns = match workload {
        // What rows that are read in part cost beside a missing member depends on where they lie.
        Workload::Read if missing > 0 && within => return None,
        Workload::Randread if missing > 0 && !within => return None,
        Workload::Read | Workload::Randread => read_ns(),
        Workload::Write => pieces / data * (strips - gone) * model.write_ns(strip_bytes, true),
        Workload::Randwrite => random_write_ns()?,
        Workload::Rw70 => 0.7 * read_ns() + 0.3 * random_write_ns()?,
    };
    Some((shape.members() - missing) as f64 * 1e9 / drive_ns)
}
