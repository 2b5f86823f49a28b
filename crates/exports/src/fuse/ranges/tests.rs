use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

type Guards = Arc<Mutex<Vec<(u32, RangeGuard)>>>;

/// Locks, and keeps the guard under `name` once it is held.
fn lock(locks: &Arc<RangeLocks>, guards: &Guards, name: u32, range: Range<u64>, exclusive: bool) {
    let guards = Arc::clone(guards);
    locks.lock(range, exclusive, move |guard| {
        guards.lock().unwrap().push((name, guard));
    });
}

fn names(guards: &Guards) -> Vec<u32> {
    guards
        .lock()
        .unwrap()
        .iter()
        .map(|(name, _)| *name)
        .collect()
}

fn release(guards: &Guards, name: u32) {
    let mut all = guards.lock().unwrap();
    let at = all
        .iter()
        .position(|(held, _)| *held == name)
        .expect("held");
    let guard = all.remove(at);
    drop(all);
    drop(guard);
}

#[test]
fn whole_blocks_share_and_parts_exclude() {
    let (locks, guards) = (Arc::default(), Guards::default());
    lock(&locks, &guards, 1, 0..4096, false);
    lock(&locks, &guards, 2, 0..8192, false);
    lock(&locks, &guards, 3, 4096..8192, true);
    lock(&locks, &guards, 4, 8192..12288, true);
    assert_eq!(names(&guards), [1, 2, 4]);
    release(&guards, 1);
    assert_eq!(names(&guards), [2, 4]);
    release(&guards, 2);
    assert_eq!(names(&guards), [4, 3]);
}

#[test]
fn a_waiting_exclusive_is_not_overtaken() {
    let (locks, guards) = (Arc::default(), Guards::default());
    lock(&locks, &guards, 1, 0..4096, false);
    lock(&locks, &guards, 2, 0..4096, true);
    lock(&locks, &guards, 3, 0..4096, false);
    lock(&locks, &guards, 4, 4096..8192, false);
    assert_eq!(names(&guards), [1, 4], "3 waits behind 2");
    release(&guards, 1);
    assert_eq!(names(&guards), [4, 2]);
    release(&guards, 2);
    assert_eq!(names(&guards), [4, 3]);
    release(&guards, 3);
    release(&guards, 4);
    assert!(locks.state().held.is_empty() && locks.state().waiting.is_empty());
}

#[test]
fn threads_never_meet_in_an_exclusive_range() {
    let locks: Arc<RangeLocks> = Arc::default();
    let inside: Arc<[AtomicUsize; 4]> = Arc::default();
    let finished = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (locks, inside, finished) = (&locks, &inside, &finished);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..5000 {
                    let block = random.usize(..4);
                    let exclusive = random.bool();
                    let (inside, finished) = (Arc::clone(inside), Arc::clone(finished));
                    let start = block as u64 * 4096;
                    locks.lock(start..start + 4096, exclusive, move |guard| {
                        let weight = if exclusive { 1 << 20 } else { 1 };
                        let before = inside[block].fetch_add(weight, Ordering::SeqCst);
                        assert!(before < 1 << 20 && (!exclusive || before == 0));
                        std::hint::spin_loop();
                        inside[block].fetch_sub(weight, Ordering::SeqCst);
                        finished.fetch_add(1, Ordering::SeqCst);
                        drop(guard);
                    });
                }
            });
        }
    });
    assert_eq!(finished.load(Ordering::SeqCst), 20_000);
}
