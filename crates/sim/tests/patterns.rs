//! Every loss pattern of every level at small sizes.

use strake_sim::geometries::{self, CASES};
use strake_sim::patterns;

#[test]
fn first() {
    let mut bad = 0;
    for (index, case) in CASES.into_iter().enumerate() {
        for strip in [4 << 10, 64 << 10, 1 << 20] {
            let shape = geometries::shape(case, strip, if index % 2 == 0 { 4096 } else { 512 });
            let started = std::time::Instant::now();
            let result = std::panic::catch_unwind(|| patterns::all(shape, 1, 12));
            println!(
                "{} {:?} {:?}",
                geometries::name(&shape),
                started.elapsed(),
                result
            );
            if !matches!(result, Ok(Ok(_))) {
                bad += 1;
            }
        }
    }
    assert_eq!(bad, 0);
}
