//! Little-endian fields at fixed places of a byte slice, and the checksum of everything on disk.
//!
//! A [`Field`] is a place and a length. Structures declare theirs as constants and prove at
//! compile time with [`tiles`] that they follow each other without gap or overlap. Lengths of
//! slices are checked by the callers before the first field is read; a field outside its slice or
//! of the wrong width is our own mistake and panics.

use crc_fast::{CrcAlgorithm, Digest};
pub use strake_codec::crc32c;
use uuid::Uuid;

#[cfg(test)]
pub(super) mod tests;

/// Place of a field within its structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// First byte.
    pub at: usize,
    /// Length in bytes.
    pub bytes: usize,
}

/// A field of `bytes` bytes at `at`.
pub const fn field(at: usize, bytes: usize) -> Field {
    Field { at, bytes }
}

/// Whether `fields`, in order, cover `from..to` without gap or overlap.
pub const fn tiles(fields: &[Field], from: usize, to: usize) -> bool {
    let mut next = from;
    let mut i = 0;
    while i < fields.len() {
        if fields[i].at != next {
            return false;
        }
        next += fields[i].bytes;
        i += 1;
    }
    next == to
}

/// The field's bytes.
pub fn slice(bytes: &[u8], field: Field) -> &[u8] {
    &bytes[field.at..field.at + field.bytes]
}

fn slice_mut(bytes: &mut [u8], field: Field) -> &mut [u8] {
    &mut bytes[field.at..field.at + field.bytes]
}

fn array<const N: usize>(bytes: &[u8], field: Field) -> [u8; N] {
    assert_eq!(field.bytes, N, "field at {} has another width", field.at);
    let mut out = [0; N];
    out.copy_from_slice(slice(bytes, field));
    out
}

/// One byte.
pub fn get_u8(bytes: &[u8], field: Field) -> u8 {
    array::<1>(bytes, field)[0]
}

/// Two bytes, little-endian.
pub fn get_u16(bytes: &[u8], field: Field) -> u16 {
    u16::from_le_bytes(array(bytes, field))
}

/// Four bytes, little-endian.
pub fn get_u32(bytes: &[u8], field: Field) -> u32 {
    u32::from_le_bytes(array(bytes, field))
}

/// Eight bytes, little-endian.
pub fn get_u64(bytes: &[u8], field: Field) -> u64 {
    u64::from_le_bytes(array(bytes, field))
}

/// Sixteen bytes in RFC 9562 order (the order in which a UUID is printed).
pub fn get_uuid(bytes: &[u8], field: Field) -> Uuid {
    Uuid::from_bytes(array(bytes, field))
}

/// Text padded with zero bytes to the field's length. `Err` says what is wrong with it: not
/// UTF-8, a control character, or something behind the padding.
pub fn get_text(bytes: &[u8], field: Field) -> Result<String, &'static str> {
    let raw = slice(bytes, field);
    let end = raw.iter().position(|&b| b == 0).unwrap_or(raw.len());
    if !is_zero(&raw[end..]) {
        return Err("must be padded with zero bytes only");
    }
    let text = std::str::from_utf8(&raw[..end]).map_err(|_| "must be UTF-8")?;
    if text.chars().any(char::is_control) {
        return Err("must not hold control characters");
    }
    Ok(text.to_owned())
}

/// See [`get_u8`].
pub fn put_u8(bytes: &mut [u8], field: Field, value: u8) {
    put_bytes(bytes, field, &[value]);
}

/// See [`get_u16`].
pub fn put_u16(bytes: &mut [u8], field: Field, value: u16) {
    put_bytes(bytes, field, &value.to_le_bytes());
}

/// See [`get_u32`].
pub fn put_u32(bytes: &mut [u8], field: Field, value: u32) {
    put_bytes(bytes, field, &value.to_le_bytes());
}

/// See [`get_u64`].
pub fn put_u64(bytes: &mut [u8], field: Field, value: u64) {
    put_bytes(bytes, field, &value.to_le_bytes());
}

/// See [`get_uuid`].
pub fn put_uuid(bytes: &mut [u8], field: Field, value: Uuid) {
    put_bytes(bytes, field, value.as_bytes());
}

/// Text, padded with zero bytes. Text longer than the field is our own mistake: callers clip.
pub fn put_text(bytes: &mut [u8], field: Field, value: &str) {
    let place = slice_mut(bytes, field);
    assert!(
        value.len() <= place.len(),
        "text of {} bytes in a field of {}",
        value.len(),
        place.len()
    );
    place.fill(0);
    place[..value.len()].copy_from_slice(value.as_bytes());
}

/// Exactly the field's bytes.
pub fn put_bytes(bytes: &mut [u8], field: Field, value: &[u8]) {
    slice_mut(bytes, field).copy_from_slice(value);
}

/// Whether every byte is zero, as reserved bytes must be. By pieces, which a compiler makes vector
/// instructions of: an import looks so at most of what it reads.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (pieces, rest) = bytes.as_chunks::<128>();
    let zero = |piece: &[u8]| piece.iter().fold(0, |all, &byte| all | byte) == 0;
    pieces.iter().all(|piece| zero(piece)) && zero(rest)
}

/// CRC-32C of `bytes` with the four bytes of `hole`, where the checksum itself lives, taken as
/// zero.
pub fn crc32c_without(bytes: &[u8], hole: Field) -> u32 {
    assert_eq!(hole.bytes, 4);
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..hole.at]);
    digest.update(&[0; 4]);
    digest.update(&bytes[hole.at + 4..]);
    digest.finalize() as u32
}
