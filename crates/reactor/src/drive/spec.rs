//! The text that names a drive.

use std::path::PathBuf;

use super::{DriveSpec, OpenError};

/// A drive's name, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriveKind {
    /// A block device or file, by absolute path.
    Path(PathBuf),
    /// Memory of this process. With a label: one drive, however often it is opened.
    Memory {
        /// Usable bytes, a multiple of 4096.
        size_bytes: u64,
        /// Its name in this process.
        label: Option<String>,
    },
    /// Discards writes, reads nothing.
    Null {
        /// Usable bytes, a multiple of 4096.
        size_bytes: u64,
        /// Tells null drives apart.
        label: Option<String>,
    },
    /// Another drive that fails on request.
    Faulty(Box<DriveKind>),
}

const ACCEPTED: &str = "give an absolute path like /dev/nvme0n1, memory:SIZE[:LABEL], \
                        null:SIZE[:LABEL], or faulty: before one of these";

impl DriveSpec {
    /// Takes the text apart. Fails with [`OpenError::BadSpec`].
    pub fn parse(&self) -> Result<DriveKind, OpenError> {
        parse(&self.0).map_err(|reason| OpenError::BadSpec {
            spec: self.0.clone(),
            reason,
        })
    }
}

fn parse(text: &str) -> Result<DriveKind, String> {
    if text.contains('\0') {
        return Err(format!("contains a zero byte; {ACCEPTED}"));
    }
    if text.starts_with('/') {
        return Ok(DriveKind::Path(PathBuf::from(text)));
    }
    let (kind, rest) = text
        .split_once(':')
        .ok_or_else(|| format!("is not an absolute path; {ACCEPTED}"))?;
    match kind {
        "faulty" => match parse(rest)? {
            DriveKind::Faulty(_) => Err("faulty: is there twice; once is enough".into()),
            inner => Ok(DriveKind::Faulty(Box::new(inner))),
        },
        "memory" => sized(rest).map(|(size_bytes, label)| DriveKind::Memory { size_bytes, label }),
        "null" => sized(rest).map(|(size_bytes, label)| DriveKind::Null { size_bytes, label }),
        _ => Err(format!("{kind}: is not a kind of drive; {ACCEPTED}")),
    }
}

fn sized(text: &str) -> Result<(u64, Option<String>), String> {
    let (size, label) = match text.split_once(':') {
        Some((_, "")) => return Err("the label after the second colon is empty".into()),
        Some((size, label)) => (size, Some(label.to_owned())),
        None => (text, None),
    };
    let size_bytes = parse_size(size)? / 4096 * 4096;
    if size_bytes == 0 || size_bytes > i64::MAX as u64 {
        return Err(format!("size {size} is not within 4KiB and 8EiB"));
    }
    Ok((size_bytes, label))
}

/// Bytes from text like `65536`, `64KiB`, `1.5TiB`, `2TB`: a number, then nothing or B, KiB to
/// EiB (powers of 1024; `K` and `KB` likewise: `K` is 1024, `KB` 1000). Fails with a sentence
/// about what is accepted.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let refused =
        || format!("size {text:?} is not understood; give a number like 65536, 64KiB or 2TB");
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = unit_bytes(unit.trim()).ok_or_else(refused)?;
    let bytes = match number.split_once('.') {
        None => number.parse::<u128>().map_err(|_| refused())? * factor,
        Some((whole, part)) => {
            if part.is_empty() || part.len() > 9 {
                return Err(refused());
            }
            let tenths = 10u128.pow(part.len() as u32);
            let whole = whole.parse::<u64>().map_err(|_| refused())? as u128;
            let part = part.parse::<u128>().map_err(|_| refused())?;
            (whole * tenths + part) * factor / tenths
        }
    };
    u64::try_from(bytes).map_err(|_| format!("size {text:?} is above 16EiB"))
}

fn unit_bytes(unit: &str) -> Option<u128> {
    let unit = unit.to_ascii_lowercase();
    if unit.is_empty() || unit == "b" {
        return Some(1);
    }
    let power = "kmgtpe".find(unit.chars().next()?)? as u32 + 1;
    match &unit[1..] {
        "" | "ib" => Some(1024u128.pow(power)),
        "b" => Some(1000u128.pow(power)),
        _ => None,
    }
}
