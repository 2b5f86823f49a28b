use super::*;
use crate::testing::{noise, refs, refs_mut};

fn stripe(rng: &mut fastrand::Rng, code: &Code, len: usize) -> Vec<Vec<u8>> {
    let mut strips = noise(rng, code.data(), len);
    let mut parities = vec![vec![0; len]; code.parity()];
    code.encoder()
        .apply(&refs(&strips), &mut refs_mut(&mut parities));
    strips.append(&mut parities);
    strips
}

fn pick(strips: &[Vec<u8>], mask: u64) -> Vec<&[u8]> {
    bits(mask).map(|strip| &strips[strip][..]).collect()
}

/// Changes about half of the bytes of each of these strips, byte `at` for certain.
fn spoil(rng: &mut fastrand::Rng, strips: &mut [Vec<u8>], wrong: u64, at: usize) {
    for strip in bits(wrong) {
        for byte in &mut strips[strip] {
            *byte ^= if rng.bool() { rng.u8(..) } else { 0 };
        }
        strips[strip][at] = strips[strip][at].wrapping_add(1);
    }
}

#[test]
fn every_loss_and_every_error_within_the_bound_is_located() {
    let mut rng = fastrand::Rng::with_seed(18);
    for (data, parity) in [(1, 2), (1, 4), (2, 2), (4, 3), (5, 4), (3, 6)] {
        let code = Code::new(data, parity).expect("a shape that is allowed");
        let total = data + parity;
        let whole = stripe(&mut rng, &code, 33);
        for missing in 0..1_u64 << total {
            let redundant = parity.checked_sub(missing.count_ones() as usize);
            let Some(redundant) = redundant.filter(|&redundant| redundant > 0) else {
                continue;
            };
            for wrong in (0..1_u64 << total).filter(|wrong| wrong & missing == 0) {
                if wrong.count_ones() as usize > redundant / 2 {
                    continue;
                }
                let mut strips = whole.clone();
                for strip in bits(wrong) {
                    strips[strip][rng.usize(..33)] ^= rng.u8(1..);
                }
                let available = low_bits(total) & !missing;
                let expected = match wrong {
                    0 => Located::Holds,
                    _ => Located::Wrong(wrong),
                };
                let found = code.locate(available, &pick(&strips, available));
                assert_eq!(found, Ok(expected), "{data}+{parity} without {missing:b}");
            }
        }
    }
}

#[test]
fn wide_codes_locate_up_to_half_their_parities() {
    let mut rng = fastrand::Rng::with_seed(19);
    for (data, parity) in [(8, 2), (8, 3), (16, 4), (20, 8), (56, 8)] {
        let code = Code::new(data, parity).expect("a shape that is allowed");
        let whole = stripe(&mut rng, &code, 512);
        let total = data + parity;
        for _ in 0..8 {
            let missing = rng.usize(..parity - 1);
            let count = (parity - missing) / 2;
            let order = rng.choose_multiple(0..total, missing + count);
            let mask =
                |strips: &[usize]| strips.iter().fold(0, |mask, strip| mask | 1_u64 << strip);
            let (missing, wrong) = (mask(&order[count..]), mask(&order[..count]));
            let mut strips = whole.clone();
            let at = rng.usize(..512);
            spoil(&mut rng, &mut strips, wrong, at);
            let changed = bits(wrong).filter(|&strip| strips[strip] != whole[strip]);
            let expected = changed.fold(0, |mask, strip| mask | 1 << strip);
            let available = low_bits(total) & !missing;
            let found = code.locate(available, &pick(&strips, available));
            assert_eq!(found, Ok(Located::Wrong(expected)), "{data}+{parity}");
        }
    }
}

#[test]
fn more_errors_than_the_bound_are_not_guessed_at() {
    let mut rng = fastrand::Rng::with_seed(20);
    // (data, parity, missing, wrong)
    for (data, parity, missing, wrong) in [
        (8, 1, 0, 1),
        (8, 2, 0, 2),
        (8, 2, 1, 1),
        (8, 3, 0, 2),
        (8, 3, 2, 1),
        (16, 4, 0, 3),
        (16, 4, 2, 2),
    ] {
        let code = Code::new(data, parity).expect("a shape that is allowed");
        let whole = stripe(&mut rng, &code, 4096);
        for _ in 0..10 {
            let order = rng.choose_multiple(0..data + parity, missing + wrong);
            let gone = order[..missing].iter().fold(0, |mask, s| mask | 1_u64 << s);
            let bad = order[missing..].iter().fold(0, |mask, s| mask | 1_u64 << s);
            let mut strips = whole.clone();
            for strip in bits(bad) {
                rng.fill(&mut strips[strip]);
            }
            let available = low_bits(data + parity) & !gone;
            let found = code.locate(available, &pick(&strips, available));
            assert_eq!(found, Ok(Located::CannotTell), "{data}+{parity}");
        }
    }
}

#[test]
fn without_redundancy_nothing_is_said() {
    let code = Code::new(4, 2).expect("RAID 6");
    let strips = [&[1_u8][..]; 4];
    let available = 0b11_0011;
    assert_eq!(code.locate(available, &strips), Ok(Located::CannotTell));
    let error = CodeError::TooFewStrips { have: 3, need: 4 };
    assert_eq!(code.locate(0b111, &strips[..3]), Err(error));
}
