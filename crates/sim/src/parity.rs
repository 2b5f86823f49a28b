//! Data and parity as they lie on drives, checked by plain arithmetic of our own.

use strake_codec::Code;
use strake_engine::layout::{Geometry, StripeIndex};

use crate::world::World;

/// Product in GF(2⁸) with the polynomial 0x11d, bit by bit.
fn product(mut a: u8, mut b: u8) -> u8 {
    let mut sum = 0;
    while b != 0 {
        if b & 1 == 1 {
            sum ^= a;
        }
        a = a << 1 ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    sum
}

fn power_of_two(exponent: usize) -> u8 {
    (0..exponent).fold(1, |value, _| product(value, 2))
}

/// Coefficient of data strip `column` in parity `row`: copies for mirrors, P and Q by their
/// definition, the others as the codec says.
fn coefficient(code: &Code, row: usize, column: usize) -> u8 {
    match row {
        _ if code.data() == 1 => 1,
        0 => 1,
        1 => power_of_two(column),
        _ => code.coefficient(row, column),
    }
}

/// Checks every stripe of the regions that are written. `drives`: by place; `offset`: of the data
/// area on each.
///
/// # Errors
/// The first stripe whose parity does not hold.
pub fn check(
    world: &World,
    geometry: &Geometry,
    drives: &[usize],
    offset: u64,
    written: &[bool],
) -> Result<(), String> {
    if geometry.parity() == 0 {
        return Ok(());
    }
    let code = Code::new(geometry.data(), geometry.parity()).map_err(|error| error.to_string())?;
    let length = geometry.strip_bytes() as usize;
    let tables: Vec<Vec<[u8; 256]>> = (0..geometry.parity())
        .map(|row| {
            let table = |column| {
                std::array::from_fn(|value| product(coefficient(&code, row, column), value as u8))
            };
            (0..geometry.data()).map(table).collect()
        })
        .collect();
    let mut strip = vec![0; length];
    let mut expected = vec![vec![0u8; length]; geometry.parity()];
    for stripe in (0..geometry.stripes()).map(StripeIndex) {
        if !written[geometry.region(stripe) as usize] {
            continue;
        }
        let at = offset + geometry.member_offset(stripe, 0);
        expected.iter_mut().for_each(|parity| parity.fill(0));
        for column in 0..geometry.data() {
            world.drives[drives[geometry.member(stripe, column).at()]].peek(at, &mut strip);
            if strip.iter().all(|&byte| byte == 0) {
                continue;
            }
            for (parity, tables) in expected.iter_mut().zip(&tables) {
                let table = &tables[column];
                for (sum, &byte) in parity.iter_mut().zip(&strip) {
                    *sum ^= table[usize::from(byte)];
                }
            }
        }
        for (row, expected) in expected.iter().enumerate() {
            let member = geometry.member(stripe, geometry.data() + row);
            world.drives[drives[member.at()]].peek(at, &mut strip);
            if let Some(byte) = strip.iter().zip(expected).position(|(a, b)| a != b) {
                return Err(format!(
                    "parity {row} of {stripe:?} (member {}) does not hold at byte {byte} of the strip",
                    member.0
                ));
            }
        }
    }
    Ok(())
}
