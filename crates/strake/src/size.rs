//! Sizes and times as people write and read them.
//!
//! Units are binary: `64k`, `64K`, `64KB` and `64KiB` all mean 65,536 bytes, because every size
//! that this program takes is a size of strips, blocks or memory, which come in powers of two.

/// Bytes of one unit, by its letter.
const UNITS: [(char, u64); 5] = [
    ('k', 1 << 10),
    ('m', 1 << 20),
    ('g', 1 << 30),
    ('t', 1 << 40),
    ('p', 1 << 50),
];

/// Reads a size: digits, and optionally one of k, M, G, T, P with `iB` or `B` behind it.
/// Fails with a text that shows what is accepted.
pub fn parse(text: &str) -> Result<u64, String> {
    let help = || format!("\"{text}\" is not a size: use bytes or a unit, like 4096, 64KiB or 1M");
    let trimmed = text.trim();
    let digits = trimmed.len()
        - trimmed
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .len();
    let number: u64 = trimmed[..digits].parse().map_err(|_| help())?;
    let unit = trimmed[digits..].trim_start().to_ascii_lowercase();
    let factor = factor(&unit).ok_or_else(help)?;
    number
        .checked_mul(factor)
        .ok_or_else(|| format!("\"{text}\" is more than 2^64 bytes"))
}

/// Bytes of a unit in small letters: "", "b", "k", "kb", "kib", ...
fn factor(unit: &str) -> Option<u64> {
    if matches!(unit, "" | "b") {
        return Some(1);
    }
    let (name, bytes) = UNITS.iter().find(|(name, _)| unit.starts_with(*name))?;
    matches!(&unit[name.len_utf8()..], "" | "b" | "ib").then_some(*bytes)
}

/// Reads a size that must fit 32 bits, like a block size.
pub fn parse_u32(text: &str) -> Result<u32, String> {
    u32::try_from(parse(text)?).map_err(|_| format!("\"{text}\" is too large here"))
}

/// Reads `OFFSET:LENGTH`, each a size.
pub fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let (offset, length) = text
        .split_once(':')
        .ok_or_else(|| format!("\"{text}\" is not a range: use OFFSET:LENGTH, like 1M:64KiB"))?;
    let range = (parse(offset)?, parse(length)?);
    if range.1 == 0 {
        return Err(format!("\"{text}\" is a range of no bytes"));
    }
    Ok(range)
}

/// Writes a size with the largest unit that leaves at least 1 before the point; exact multiples
/// without a point.
pub fn human(bytes: u64) -> String {
    let Some((letter, unit)) = UNITS.iter().rev().find(|(_, unit)| bytes >= *unit) else {
        return format!("{bytes} B");
    };
    let name = letter.to_ascii_uppercase();
    if bytes.is_multiple_of(*unit) {
        return format!("{} {name}iB", bytes / unit);
    }
    let value = bytes as f64 / *unit as f64;
    if value < 100.0 {
        format!("{value:.2} {name}iB")
    } else {
        format!("{value:.1} {name}iB")
    }
}

/// Writes a time in the two largest units: `2 h 5 min`, `40 s`.
pub fn human_seconds(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    if days > 0 {
        format!("{days} d {hours} h")
    } else if hours > 0 {
        format!("{hours} h {minutes} min")
    } else if minutes > 0 {
        format!("{minutes} min {} s", seconds % 60)
    } else {
        format!("{seconds} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_every_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("64k", 65_536),
            ("64K", 65_536),
            ("64KB", 65_536),
            ("64KiB", 65_536),
            ("64 kib", 65_536),
            ("1M", 1 << 20),
            ("3GiB", 3 << 30),
            ("2t", 2 << 40),
            ("1PiB", 1 << 50),
            (" 7 ", 7),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            "k",
            "-1",
            "1.5M",
            "64q",
            "64kk",
            "64KiBs",
            "ü",
            "1ü",
            "99999999P",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse_u32("4G").is_err());
    }

    #[test]
    fn ranges_are_two_sizes() {
        assert_eq!(parse_range("1M:64k"), Ok((1 << 20, 1 << 16)));
        for text in ["1M", "1M:", ":1", "1M:0", "a:b"] {
            assert!(parse_range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_written_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (65_536, "64 KiB"),
            (1536, "1.50 KiB"),
            (10 << 30, "10 GiB"),
            ((10 << 30) + (1 << 29), "10.50 GiB"),
            ((250 << 30) + (1 << 29), "250.5 GiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn times_are_written_in_two_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (61, "1 min 1 s"),
            (7_500, "2 h 5 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(human_seconds(seconds), text);
        }
    }
}
