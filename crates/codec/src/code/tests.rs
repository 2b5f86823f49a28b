use super::*;
use crate::tables::bits;
use crate::testing::{multiply_bitwise, noise, refs, refs_mut};

const EVERY_ROW: usize = PARITY_MAX;
const EVERY_COLUMN: usize = STRIPS_MAX - 2;

/// The determinant by elimination; zero if the matrix is singular.
fn determinant(mut matrix: Vec<Vec<u8>>) -> u8 {
    let size = matrix.len();
    let mut product = 1;
    for step in 0..size {
        let Some(pivot) = (step..size).find(|&row| matrix[row][step] != 0) else {
            return 0;
        };
        matrix.swap(step, pivot);
        product = field::multiply(product, matrix[step][step]);
        let inverse = field::invert(matrix[step][step]);
        for row in step + 1..size {
            let factor = field::multiply(matrix[row][step], inverse);
            let from = matrix[step].clone();
            for (entry, term) in matrix[row].iter_mut().zip(from) {
                *entry ^= field::multiply(factor, term);
            }
        }
    }
    product
}

fn submatrix(rows: &[usize], columns: &[usize]) -> Vec<Vec<u8>> {
    rows.iter()
        .map(|&row| columns.iter().map(|&col| coefficient(row, col)).collect())
        .collect()
}

/// The determinant by the formula at the head of the code's file.
fn determinant_by_formula(rows: &[usize], columns: &[usize]) -> u8 {
    let finite: Vec<usize> = rows.iter().copied().filter(|&row| row != 0).collect();
    let x: Vec<u8> = finite.iter().map(|&row| row_point(row)).collect();
    let y: Vec<u8> = columns.iter().map(|&col| column_point(col)).collect();
    let mut product = 1;
    for points in [&x, &y] {
        for a in 0..points.len() {
            for b in a + 1..points.len() {
                product = field::multiply(product, points[a] ^ points[b]);
            }
        }
    }
    for a in &x {
        for b in &y {
            product = field::multiply(product, field::invert(a ^ b));
        }
    }
    for &row in &finite {
        product = field::multiply(product, row_point(row) ^ column_point(0));
    }
    product
}

fn choose(rng: &mut fastrand::Rng, from: usize, count: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..from).collect();
    rng.shuffle(&mut all);
    all.truncate(count);
    all.sort_unstable();
    all
}

fn indices(mask: u32) -> Vec<usize> {
    (0..32).filter(|bit| mask & (1 << bit) != 0).collect()
}

#[test]
fn every_row_is_a_scaled_cauchy_row_and_all_points_differ() {
    let mut seen = [false; 256];
    let rows = (1..EVERY_ROW).map(row_point);
    let columns = (0..EVERY_COLUMN).map(column_point);
    for point in rows.chain(columns) {
        assert!(!seen[usize::from(point)], "point {point} twice");
        seen[usize::from(point)] = true;
    }
    for column in 0..EVERY_COLUMN {
        assert_eq!(coefficient(0, column), 1);
        for row in 1..EVERY_ROW {
            let scale = row_point(row) ^ column_point(0);
            let difference = row_point(row) ^ column_point(column);
            assert_ne!(scale, 0);
            assert_eq!(field::multiply(coefficient(row, column), difference), scale);
        }
    }
}

#[test]
fn every_square_submatrix_of_8_rows_by_16_columns_is_invertible() {
    for rows in 1..1_u32 << 8 {
        for columns in (1..1_u32 << 16).filter(|c| c.count_ones() == rows.count_ones()) {
            let matrix = submatrix(&indices(rows), &indices(columns));
            assert_ne!(determinant(matrix), 0, "rows {rows:b} columns {columns:b}");
        }
    }
}

#[test]
fn every_pair_of_rows_and_columns_is_invertible() {
    for a in 0..EVERY_ROW {
        for b in a + 1..EVERY_ROW {
            for c in 0..EVERY_COLUMN {
                for d in c + 1..EVERY_COLUMN {
                    let straight = field::multiply(coefficient(a, c), coefficient(b, d));
                    let crossed = field::multiply(coefficient(a, d), coefficient(b, c));
                    assert_ne!(straight, crossed, "rows {a} {b} columns {c} {d}");
                }
            }
        }
    }
}

#[test]
fn determinants_of_any_size_follow_the_formula_and_are_not_zero() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..4000 {
        let size = rng.usize(1..=EVERY_ROW);
        let rows = choose(&mut rng, EVERY_ROW, size);
        let columns = choose(&mut rng, EVERY_COLUMN, size);
        let found = determinant(submatrix(&rows, &columns));
        assert_ne!(found, 0, "rows {rows:?} columns {columns:?}");
        assert_eq!(found, determinant_by_formula(&rows, &columns));
    }
}

#[test]
fn coefficients_on_disk_never_change() {
    assert_eq!(CODE_ID, 1);
    assert_eq!(
        (0..6).map(|c| coefficient(0, c)).collect::<Vec<_>>(),
        [1; 6]
    );
    assert_eq!(
        (0..10).map(|c| coefficient(1, c)).collect::<Vec<_>>(),
        [1, 2, 4, 8, 16, 32, 64, 128, 29, 58]
    );
    // Each value worked out with shift and add only: c × (x + y) = x + 1.
    for row in 2..EVERY_ROW {
        let x = (1..row).fold(1, |x, _| multiply_bitwise(x, 2));
        let mut y = 1;
        for column in 0..EVERY_COLUMN {
            assert_eq!(multiply_bitwise(coefficient(row, column), x ^ y), x ^ 1);
            // 2^-1 is 142: 2 x 142 = 284 = 0x11c, and 0x11c + 0x11d = 1.
            y = multiply_bitwise(y, 142);
        }
    }
}

#[test]
fn a_coefficient_depends_on_row_and_column_only() {
    for data in 1..=STRIPS_MAX {
        let most = if data == 1 {
            63
        } else {
            PARITY_MAX.min(STRIPS_MAX - data)
        };
        for parity in [0, 1, 2, 3, most] {
            if parity > most {
                continue;
            }
            let code = Code::new(data, parity).expect("a shape that is allowed");
            assert_eq!((code.data(), code.parity()), (data, parity));
            for row in 0..parity {
                for column in 0..data {
                    let expected = coefficient(row, column);
                    assert_eq!(code.coefficient(row, column), expected);
                    assert_eq!(code.encoder().coefficient(row, column), expected);
                }
            }
        }
    }
}

#[test]
fn shapes_outside_the_limits_are_refused() {
    let refused = [
        (0, 0),
        (0, 1),
        (65, 0),
        (64, 1),
        (63, 2),
        (31, 33),
        (2, 33),
        (1, 64),
    ];
    for (data, parity) in refused {
        let error = Code::new(data, parity).expect_err("too much");
        assert_eq!(error, CodeError::Shape { data, parity });
        assert!(error.to_string().contains("at most 64 strips"));
    }
    assert_eq!(
        Code::new(usize::MAX, usize::MAX).expect_err("far too much"),
        CodeError::Shape {
            data: usize::MAX,
            parity: usize::MAX
        }
    );
    for (data, parity) in [
        (1, 0),
        (1, 63),
        (64, 0),
        (63, 1),
        (62, 2),
        (32, 32),
        (2, 32),
    ] {
        assert!(Code::new(data, parity).is_ok());
    }
}

/// P and Q as Linux md's documentation defines them, written anew: from the highest
/// data disk down, Q is doubled and the disk added.
fn md_syndrome(data: &[Vec<u8>]) -> [Vec<u8>; 2] {
    let len = data[0].len();
    let (mut p, mut q) = (vec![0; len], vec![0; len]);
    for disk in data.iter().rev() {
        for at in 0..len {
            let doubled = (u16::from(q[at]) << 1) ^ if q[at] >= 128 { 0x11d } else { 0 };
            p[at] ^= disk[at];
            q[at] = doubled as u8 ^ disk[at];
        }
    }
    [p, q]
}

#[test]
fn p_and_q_are_those_of_linux_md() {
    let mut rng = fastrand::Rng::with_seed(8);
    for data in 1..=62 {
        let strips = noise(&mut rng, data, 520);
        let code = Code::new(data, 2).expect("RAID 6");
        let mut parity = vec![vec![0; 520]; 2];
        code.encoder()
            .apply(&refs(&strips), &mut refs_mut(&mut parity));
        assert_eq!(parity, md_syndrome(&strips), "{data} data disks");
    }
}

#[test]
fn p_and_q_of_a_stripe_worked_out_by_hand() {
    // Q = 0x01 + 2 * 0x80 + 4 * 0xff: 2 * 0x80 = 0x1d; 4 * 0xff = 0x3fc, less
    // 2 * 0x11d = 0x1c6, less 0x11d = 0xdb.
    let code = Code::new(3, 2).expect("RAID 6");
    let (mut p, mut q) = ([0], [0]);
    code.encoder()
        .apply(&[&[0x01], &[0x80], &[0xff]], &mut [&mut p, &mut q]);
    assert_eq!(p, [0x01 ^ 0x80 ^ 0xff]);
    assert_eq!(q, [0x01 ^ 0x1d ^ 0xdb]);
}

#[test]
fn every_parity_of_one_data_strip_is_a_copy() {
    let mut rng = fastrand::Rng::with_seed(9);
    let strips = noise(&mut rng, 2, 600);
    for copies in [1, 2, 5, 33, 63] {
        let code = Code::new(1, copies).expect("mirrors");
        let mut parity = vec![vec![0; 600]; copies];
        code.encoder()
            .apply(&[&strips[0]], &mut refs_mut(&mut parity));
        assert!(parity.iter().all(|copy| *copy == strips[0]));
        let (old, new) = (&strips[0][..], &strips[1][..]);
        let rows = low_bits(copies);
        code.update(rows, 1, &[old], &[new], &mut refs_mut(&mut parity));
        assert!(parity.iter().all(|copy| *copy == strips[1]));
    }
}

#[test]
fn an_update_equals_encoding_again() {
    let mut rng = fastrand::Rng::with_seed(10);
    for (data, parity) in [
        (2, 1),
        (3, 2),
        (8, 3),
        (10, 2),
        (16, 4),
        (32, 32),
        (63, 1),
        (5, 0),
    ] {
        let code = Code::new(data, parity).expect("a shape that is allowed");
        let mut strips = noise(&mut rng, data, 777);
        let mut updated = encode(&code, &strips);
        for _ in 0..2 * data {
            let column = rng.usize(..data);
            let written = [1 << column, rng.u64(..) & low_bits(data)][rng.usize(..2)];
            let old = strips.clone();
            for strip in bits(written) {
                strips[strip] = noise(&mut rng, 1, 777).remove(0);
            }
            let before: Vec<&[u8]> = bits(written).map(|strip| &old[strip][..]).collect();
            let after: Vec<&[u8]> = bits(written).map(|strip| &strips[strip][..]).collect();
            let some = rng.u64(..) & low_bits(parity);
            for rows in [some, !some & low_bits(parity)] {
                let mut chosen = chosen(&mut updated, rows);
                code.update(rows, written, &before, &after, &mut chosen);
            }
            let expected = encode(&code, &strips);
            assert_eq!(updated, expected, "{data}+{parity}, strips {written:b}");
        }
    }
}

fn chosen(strips: &mut [Vec<u8>], rows: u64) -> Vec<&mut [u8]> {
    refs_mut(strips)
        .into_iter()
        .enumerate()
        .filter(|(row, _)| rows & (1 << row) != 0)
        .map(|(_, strip)| strip)
        .collect()
}

#[test]
fn partial_parity_is_the_same_from_both_sides() {
    let mut rng = fastrand::Rng::with_seed(16);
    for (data, parity) in [(2, 1), (4, 2), (8, 3), (16, 4), (20, 8), (63, 1)] {
        let code = Code::new(data, parity).expect("a shape that is allowed");
        let strips = noise(&mut rng, data, 513);
        let parities = encode(&code, &strips);
        for _ in 0..10 {
            let (present, rows) = (rng.u64(..) & low_bits(data), rng.u64(..) & low_bits(parity));
            let absent = low_bits(data) & !present;
            let of = |mask: u64| -> Vec<&[u8]> { bits(mask).map(|s| &strips[s][..]).collect() };
            let whole: Vec<&[u8]> = bits(rows).map(|row| &parities[row][..]).collect();
            let count = rows.count_ones() as usize;
            let (mut near, mut far) = (vec![vec![1; 513]; count], vec![vec![2; 513]; count]);
            code.partial_parity(rows, present, &of(present), &mut refs_mut(&mut near));
            code.partial_parity_without(rows, absent, &of(absent), &whole, &mut refs_mut(&mut far));
            assert_eq!(near, far, "{data}+{parity}, strips {present:b}");
            let mut zeroed = strips.clone();
            bits(absent).for_each(|strip| zeroed[strip].fill(0));
            let expected = encode(&code, &zeroed);
            assert!(bits(rows).map(|row| &expected[row]).eq(&near));
        }
    }
}

#[test]
fn check_names_the_parities_that_do_not_fit() {
    let mut rng = fastrand::Rng::with_seed(17);
    for (data, parity) in [(1, 1), (4, 2), (8, 3), (16, 4)] {
        let code = Code::new(data, parity).expect("a shape that is allowed");
        for len in [1, 512, 4096] {
            let mut strips = noise(&mut rng, data, len);
            strips.extend(encode(&code, &strips));
            assert_eq!(code.check(&refs(&strips)), 0);
            for strip in 0..data + parity {
                let at = rng.usize(..len);
                strips[strip][at] ^= 0x40;
                let wrong = match strip.checked_sub(data) {
                    Some(row) => 1 << row,
                    None => low_bits(parity),
                };
                assert_eq!(code.check(&refs(&strips)), wrong);
                strips[strip][at] ^= 0x40;
            }
        }
    }
}

fn encode(code: &Code, strips: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0; strips[0].len()]; code.parity()];
    code.encoder()
        .apply(&refs(strips), &mut refs_mut(&mut parity));
    parity
}
