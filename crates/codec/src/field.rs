//! The field GF(2⁸) with the polynomial x⁸+x⁴+x³+x²+1 (0x11d) and generator 2,
//! as in Linux md's RAID 6 (H. P. Anvin, "The mathematics of RAID-6").
//!
//! Addition is XOR. All tables are made by the compiler from the two constants below.

/// The reducing polynomial, with its x⁸ term.
pub(crate) const POLYNOMIAL: u16 = 0x11d;

/// Number of nonzero elements: 2 generates them all.
const ORDER: usize = 255;

/// `EXP[i]` = 2^i; twice around, so that a sum of two logarithms needs no modulo.
const EXP: [u8; 2 * ORDER] = exponents();

/// `LOG[2^i]` = i for i in 0..255; `LOG[0]` is unused.
const LOG: [u8; 256] = logarithms();

const fn exponents() -> [u8; 2 * ORDER] {
    let mut table = [0; 2 * ORDER];
    let mut value: u16 = 1;
    let mut i = 0;
    while i < 2 * ORDER {
        table[i] = value as u8;
        value <<= 1;
        if value & 0x100 != 0 {
            value ^= POLYNOMIAL;
        }
        i += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < ORDER {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
}

/// 2 to the power `exponent`, which is taken modulo 255.
pub(crate) const fn power_of_two(exponent: usize) -> u8 {
    EXP[exponent % ORDER]
}

/// The product of two elements.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
}

/// What doubling adds to an element's shifted bits where its highest one was set.
pub(crate) const REDUCE: u8 = POLYNOMIAL as u8;

/// Elements kept off by this are doubled by adding `REDUCE` where the highest bit is *clear*: the
/// result lies off by the same. (Its own highest bit is clear, so that elements keep theirs. Shifted it
/// differs from itself by `REDUCE`: so that is added once where the bit is set, and twice, which is not
/// at all, where it is clear.) Look-ups of bytes give 0 where the highest bit is set, in one instruction.
#[cfg(any(test, target_arch = "x86_64"))]
pub(crate) const OFFSET: u8 = {
    let mut offset = 0;
    while offset ^ (offset << 1) != REDUCE {
        offset += 1;
        assert!(offset < 0x80);
    }
    offset
};

/// The inverse of a nonzero element. Panics on zero.
pub(crate) const fn invert(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    EXP[ORDER - LOG[a as usize] as usize]
}

/// Multiplication by one constant as two tables of 16: the products of the low
/// nibble (first half) and of the high nibble (second half); their XOR is the product.
pub(crate) type Nibbles = [u8; 32];

/// The nibble tables of `coefficient`.
pub(crate) const fn nibbles(coefficient: u8) -> Nibbles {
    let mut table = [0; 32];
    let mut i = 0;
    while i < 16 {
        table[i] = multiply(coefficient, i as u8);
        table[i + 16] = multiply(coefficient, (i as u8) << 4);
        i += 1;
    }
    table
}

/// Multiplication by `coefficient` as an 8×8 matrix over GF(2), in the operand
/// format of GF2P8AFFINEQB (Intel SDM volume 2): byte 7-i is the row whose AND with
/// the input has the parity of output bit i.
#[cfg(any(test, target_arch = "x86_64"))]
pub(crate) const fn affine(coefficient: u8) -> u64 {
    let mut rows = [0_u8; 8];
    let mut input_bit = 0;
    while input_bit < 8 {
        let column = multiply(coefficient, 1 << input_bit);
        let mut output_bit = 0;
        while output_bit < 8 {
            if column & (1 << output_bit) != 0 {
                rows[7 - output_bit] |= 1 << input_bit;
            }
            output_bit += 1;
        }
        input_bit += 1;
    }
    u64::from_le_bytes(rows)
}

#[cfg(test)]
mod tests;
