//! What is written: blocks that name their write, so that a block read back says which it is.

/// Names the content of a block. Zero: zeroes.
pub type Stamp = u64;
/// What a block "holds" that reads as an error: lost in a crash, and listed.
pub const TORN: Stamp = u64::MAX;
/// What a block may hold that was torn inside where nothing protects against it: anything.
pub const MIXED: Stamp = u64::MAX - 1;

fn word(stamp: Stamp, block: u64, index: u64) -> u64 {
    let mixed =
        (stamp ^ block.rotate_left(32)).wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}

/// Fills a block (a multiple of 8 bytes) with what `stamp` means at block number `block`.
pub fn fill(stamp: Stamp, block: u64, out: &mut [u8]) {
    if stamp == 0 {
        return out.fill(0);
    }
    for (index, bytes) in out.chunks_exact_mut(8).enumerate() {
        let value = if index == 0 {
            stamp
        } else {
            word(stamp, block, index as u64)
        };
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

/// The stamp of a block's content; `None`: it was never written so to this block.
pub fn stamp_of(block: u64, bytes: &[u8]) -> Option<Stamp> {
    let first = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    if first == 0 {
        return bytes.iter().all(|&byte| byte == 0).then_some(0);
    }
    let whole = bytes
        .chunks_exact(8)
        .enumerate()
        .skip(1)
        .all(|(index, bytes)| bytes == word(first, block, index as u64).to_le_bytes());
    whole.then_some(first)
}
