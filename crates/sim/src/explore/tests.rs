use super::*;

#[test]
fn the_small_part_holds() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let explored = explore(Extent::Small, Limits::of(Extent::Small), threads, || {});
    println!("{explored}");
    assert!(explored.failures.is_empty(), "{explored}");
    assert!(explored.states > 10_000, "{explored}");
}
