//! The text that names a drive.

use std::path::PathBuf;

use super::pace::PaceModel;
use super::{DriveSpec, OpenError, WriteCache};

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
    /// Memory of this process that keeps a real drive's pace.
    Paced {
        /// Whose pace.
        model: PaceModel,
        /// Usable bytes, a multiple of 4096.
        size_bytes: u64,
        /// Its name in this process.
        label: Option<String>,
    },
    /// Another drive that fails on request.
    Faulty(Box<DriveKind>),
    /// Another drive whose changes are recorded in a file.
    Recorded {
        /// The record, by absolute path without a colon.
        log: PathBuf,
        /// The drive's text.
        name: String,
        /// The drive.
        inner: Box<DriveKind>,
    },
}

const ACCEPTED: &str = "give an absolute path like /dev/nvme0n1, memory:SIZE[:LABEL], \
                        null:SIZE[:LABEL], paced:MODEL:SIZE[:LABEL], or faulty:, cache=none:, \
                        cache=volatile: or recorded:LOGFILE: before one of these";

impl DriveSpec {
    /// Takes the text apart. Fails with [`OpenError::BadSpec`].
    pub fn parse(&self) -> Result<DriveKind, OpenError> {
        Ok(self.parts()?.0)
    }

    /// What the text says of the drive's write cache, if it does. Fails as [`DriveSpec::parse`].
    pub fn write_cache(&self) -> Result<Option<WriteCache>, OpenError> {
        Ok(self.parts()?.1)
    }

    pub(super) fn parts(&self) -> Result<Parts, OpenError> {
        parse(&self.0).map_err(|reason| OpenError::BadSpec {
            spec: self.0.clone(),
            reason,
        })
    }
}

/// What is named, and what is said of its cache.
type Parts = (DriveKind, Option<WriteCache>);

fn parse(text: &str) -> Result<Parts, String> {
    if text.contains('\0') {
        return Err(format!("contains a zero byte; {ACCEPTED}"));
    }
    if text.starts_with('/') {
        return Ok((DriveKind::Path(PathBuf::from(text)), None));
    }
    let (kind, rest) = text
        .split_once(':')
        .ok_or_else(|| format!("is not an absolute path; {ACCEPTED}"))?;
    if let Some(told) = kind.strip_prefix("cache=") {
        return with_cache(told, parse(rest)?);
    }
    let kind = match kind {
        "faulty" => match parse(rest)? {
            (DriveKind::Faulty(_), _) => {
                return Err("faulty: is there twice; once is enough".into());
            }
            (DriveKind::Recorded { .. }, _) => return Err("recorded: goes before faulty:".into()),
            (inner, told) => return Ok((DriveKind::Faulty(Box::new(inner)), told)),
        },
        "recorded" => return recorded(rest),
        "memory" => {
            let (size_bytes, label) = sized(rest)?;
            DriveKind::Memory { size_bytes, label }
        }
        "null" => {
            let (size_bytes, label) = sized(rest)?;
            DriveKind::Null { size_bytes, label }
        }
        "paced" => paced(rest)?,
        _ => return Err(format!("{kind}: is not a kind of drive; {ACCEPTED}")),
    };
    Ok((kind, None))
}

fn with_cache(told: &str, (kind, inner): Parts) -> Result<Parts, String> {
    let told = match told {
        "none" => WriteCache::None,
        "volatile" => WriteCache::Volatile,
        _ => {
            return Err(format!(
                "cache={told}: is not known; give cache=none: for a drive with power-loss \
                 protection, cache=volatile: for one without"
            ));
        }
    };
    match inner {
        None => Ok((kind, Some(told))),
        Some(_) => Err("cache= is there twice; give it once".into()),
    }
}

fn paced(text: &str) -> Result<DriveKind, String> {
    let (model, rest) = text.split_once(':').ok_or_else(|| {
        format!("paced:{text} has no size; give paced:MODEL:SIZE[:LABEL], like paced:cm7:1GiB")
    })?;
    let model = PaceModel::parse(model)?;
    let (size_bytes, label) = sized(rest)?;
    Ok(DriveKind::Paced {
        model,
        size_bytes,
        label,
    })
}

fn recorded(text: &str) -> Result<Parts, String> {
    let (log, name) = text
        .split_once(':')
        .filter(|(log, _)| log.starts_with('/'))
        .ok_or("give recorded:LOGFILE:DRIVE, LOGFILE an absolute path without a colon")?;
    let (inner, told) = parse(name)?;
    if matches!(inner, DriveKind::Recorded { .. }) {
        return Err("recorded: is there twice; once is enough".into());
    }
    let kind = DriveKind::Recorded {
        log: PathBuf::from(log),
        name: name.to_owned(),
        inner: Box::new(inner),
    };
    Ok((kind, told))
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
