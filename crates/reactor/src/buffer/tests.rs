use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

fn assert_send<T: Send>() {}

fn panics(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

#[test]
fn buffers_loans_and_pools_can_be_sent() {
    assert_send::<Buffer>();
    assert_send::<Inbound>();
    assert_send::<Outbound>();
    assert_send::<Pool>();
}

#[test]
fn buffers_are_page_aligned_and_as_long_as_asked() {
    let pool = Pool::new(16 << 20).unwrap();
    for len in [0, 1, 511, 512, 4096, 4097, 65536, 70_000, 4 << 20] {
        for buffer in [Buffer::heap(len), pool.alloc(len).unwrap()] {
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_slice().len(), len);
            assert_eq!(buffer.as_slice().as_ptr() as usize % PAGE_BYTES, 0);
        }
    }
    assert!(pool.alloc((4 << 20) + 1).is_none());
    assert_eq!(pool.bytes_free(), pool.bytes_total());
    assert!(Pool::new(0).is_err());
}

#[test]
fn heap_buffers_are_zero() {
    assert!(Buffer::heap(10_000).iter().all(|&byte| byte == 0));
}

#[test]
fn loans_carry_content_both_ways() {
    let mut buffer = Buffer::heap(8192);
    let mut inbound = buffer.lend_inbound(4096..8192);
    inbound.fill(&[7; 4096]);
    drop(inbound);
    assert_eq!(buffer[4095], 0);
    assert_eq!(buffer[4096..], [7; 4096]);
    let outbound = buffer.lend_outbound(4000..4200);
    let mut seen = [1; 200];
    outbound.copy_to(&mut seen);
    assert_eq!((seen[95], seen[96]), (0, 7));
    drop(outbound);
    let mut inbound = buffer.lend_inbound(0..8192);
    inbound.zero();
    drop(inbound);
    assert!(buffer.iter().all(|&byte| byte == 0));
    buffer[3] = 9;
    assert_eq!(buffer.as_slice()[3], 9);
}

/// The module's table of rules, row by row.
#[test]
fn what_loans_forbid() {
    let mut buffer = Buffer::heap(4096);
    let inbound = buffer.lend_inbound(1024..2048);
    assert!(panics(|| _ = buffer.as_slice()));
    assert!(panics(|| _ = buffer.as_mut_slice()));
    assert!(panics(|| _ = buffer.lend_inbound(2047..2048)));
    assert!(panics(|| _ = buffer.lend_outbound(0..1025)));
    drop(buffer.lend_inbound(2048..4096));
    drop(buffer.lend_outbound(0..1024));
    drop(inbound);

    let outbound = buffer.lend_outbound(1024..2048);
    assert_eq!(buffer.as_slice().len(), 4096);
    assert!(panics(|| _ = buffer.as_mut_slice()));
    assert!(panics(|| _ = buffer.lend_inbound(1024..1025)));
    drop(buffer.lend_inbound(0..1024));
    drop(buffer.lend_outbound(0..4096));
    drop(outbound);

    assert!(!buffer.is_lent());
    assert!(panics(|| _ = buffer.lend_outbound(0..4097)));
    #[allow(clippy::reversed_empty_ranges)]
    let backwards = 2..1;
    assert!(panics(|| _ = buffer.lend_outbound(backwards)));
    buffer.as_mut_slice().fill(1);
}

#[test]
fn a_buffer_may_be_lent_in_hundreds_of_parts() {
    let parts = if cfg!(miri) { 70 } else { 300 };
    let mut buffer = Buffer::heap(parts * 512);
    for _ in 0..2 {
        let mut loans: Vec<_> = (0..parts)
            .map(|i| buffer.lend_inbound(i * 512..(i + 1) * 512))
            .collect();
        assert!(panics(
            || _ = buffer.lend_outbound((parts - 1) * 512..parts * 512)
        ));
        // Return every other and lend them again: freed places are used, overlaps still found.
        for i in (0..parts).step_by(2) {
            loans[i].with_mut(|bytes| bytes.fill(i as u8));
        }
        let mut index = 0;
        loans.retain(|_| {
            index += 1;
            index % 2 == 0
        });
        drop(buffer.lend_outbound(0..512));
        assert!(panics(|| _ = buffer.lend_outbound(512..1024)));
        drop(loans);
        assert_eq!(buffer[(parts - 2) * 512], (parts - 2) as u8);
    }
}

#[test]
fn loans_returned_by_another_thread_show_its_writes() {
    let pool = Pool::new(1 << 20).unwrap();
    let mut buffer = pool.alloc(64 * 512).unwrap();
    for round in 0..if cfg!(miri) { 2 } else { 50 } {
        std::thread::scope(|scope| {
            for i in 0..64 {
                let mut loan = buffer.lend_inbound(i * 512..(i + 1) * 512);
                if i % 16 == 0 {
                    scope.spawn(move || loan.with_mut(|bytes| bytes.fill(round + 1)));
                } else {
                    loan.with_mut(|bytes| bytes.fill(round + 1));
                }
            }
            while buffer.is_lent() {
                std::thread::yield_now();
            }
            assert!(buffer.iter().all(|&byte| byte == round + 1));
        });
    }
}

#[test]
fn a_full_pool_says_so_and_recovers() {
    let pages = if cfg!(miri) { 8 } else { 256 };
    let pool = Pool::new(pages * 4096).unwrap();
    let mut buffers: Vec<_> = std::iter::from_fn(|| pool.alloc(4096)).collect();
    assert_eq!(buffers.len(), pages);
    assert_eq!(pool.bytes_free(), 0);
    for (i, buffer) in buffers.iter_mut().enumerate() {
        buffer.as_mut_slice().fill(i as u8);
    }
    for (i, buffer) in buffers.iter().enumerate() {
        assert!(buffer.iter().all(|&byte| byte == i as u8));
    }
    // Every other page free: half the memory, and not one piece of two pages.
    let kept: Vec<_> = buffers.into_iter().step_by(2).collect();
    assert_eq!(pool.bytes_free(), pages / 2 * 4096);
    let low = kept.iter().map(|buffer| buffer.as_slice().as_ptr()).min();
    assert!(low.is_some() && pool.alloc(8192).is_none());
    drop(kept);
    assert_eq!(pool.alloc(pages * 4096).unwrap().len(), pages * 4096);
}

#[test]
fn a_pool_of_odd_size_is_used_to_the_last_page() {
    let pool = Pool::new((4 << 20) + 7 * 4096 + 1).unwrap();
    assert_eq!(pool.bytes_total(), (4 << 20) + 8 * 4096);
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc(1)).collect();
    assert_eq!(all.len() * 4096, pool.bytes_total());
    drop(all);
    let large = [4 << 20, 8 * 4096].map(|len| pool.alloc(len).unwrap());
    assert_eq!(pool.bytes_free(), 0);
    drop(large);
    assert_eq!(pool.bytes_free(), pool.bytes_total());
}

#[test]
fn random_use_never_overlaps_and_always_merges_back() {
    let pool = Pool::new(8 << 20).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut held: Vec<(Buffer, u64)> = Vec::new();
    for round in 0..if cfg!(miri) { 200 } else { 20_000_u64 } {
        if rng.bool() || held.is_empty() {
            if let Some(mut buffer) = pool.alloc(4096 << rng.u32(0..8)) {
                let last = buffer.len() - 8;
                buffer[..8].copy_from_slice(&round.to_ne_bytes());
                buffer[last..].copy_from_slice(&round.to_ne_bytes());
                held.push((buffer, round));
            }
        } else {
            let (buffer, mark) = held.swap_remove(rng.usize(..held.len()));
            assert_eq!(buffer[..8], mark.to_ne_bytes());
            assert_eq!(buffer[buffer.len() - 8..], mark.to_ne_bytes());
        }
        let used: usize = held.iter().map(|held| held.0.len()).sum();
        assert_eq!(pool.bytes_free(), (8 << 20) - used);
    }
    drop(held);
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc(4 << 20)).collect();
    assert_eq!(all.len(), 2, "everything merged back");
}

#[test]
fn threads_share_a_pool() {
    let pool = Pool::new(4 << 20).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let pool = pool.clone();
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
                    if let Some(mut buffer) = pool.alloc(rng.usize(1..100_000)) {
                        let last = buffer.len() - 1;
                        buffer[0] = seed as u8;
                        buffer[last] = seed as u8;
                        std::thread::yield_now();
                        assert_eq!((buffer[0], buffer[last]), (seed as u8, seed as u8));
                    }
                }
            });
        }
    });
    assert_eq!(pool.bytes_free(), pool.bytes_total());
}

#[test]
fn a_buffer_outlives_its_pool_handle() {
    let mut buffer = Pool::new(4096).unwrap().alloc(4096).unwrap();
    buffer.as_mut_slice().fill(5);
    let outbound = buffer.lend_outbound(0..4096);
    outbound.with(|bytes| assert_eq!(bytes[4095], 5));
}

#[test]
#[cfg(not(miri))]
fn dropping_a_lent_buffer_aborts() {
    const VARIABLE: &str = "STRAKE_TEST_DROPS_LENT_BUFFER";
    const NAME: &str = "buffer::tests::dropping_a_lent_buffer_aborts";
    if std::env::var_os(VARIABLE).is_some() {
        let buffer = Buffer::heap(4096);
        let _loan = std::mem::ManuallyDrop::new(buffer.lend_outbound(0..512));
        drop(buffer);
        return;
    }
    let this = std::env::current_exe().unwrap();
    let run = std::process::Command::new(this)
        .args(["--exact", NAME, "--nocapture"])
        .env(VARIABLE, "1")
        .output()
        .unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(run.status.signal(), Some(6), "SIGABRT");
    assert!(String::from_utf8_lossy(&run.stderr).contains("while a drive may use it"));
}
