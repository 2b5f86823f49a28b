//! RAID levels as text.
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// RAID level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Level {
    /// Striping, no redundancy.
    #[serde(rename = "raid0")]
    Raid0,
    /// Every drive a copy.
    #[serde(rename = "raid1")]
    Raid1,
    /// One parity.
    #[serde(rename = "raid5")]
    Raid5,
    /// Two parities.
    #[serde(rename = "raid6")]
    Raid6,
    /// Three parities.
    #[serde(rename = "raid7.3")]
    Raid73,
    /// Striped mirrors.
    #[serde(rename = "raid10")]
    Raid10,
    /// Striped RAID 5 groups.
    #[serde(rename = "raid50")]
    Raid50,
    /// Striped RAID 6 groups.
    #[serde(rename = "raid60")]
    Raid60,
    /// Striped RAID 7.3 groups.
    #[serde(rename = "raid70")]
    Raid70,
    /// N data and M parities, both chosen.
    #[serde(rename = "n+m")]
    NPlusM,
}

impl Level {
    /// Every level, in the order in which they are documented.
    pub const ALL: [Level; 10] = [
        Level::Raid0,
        Level::Raid1,
        Level::Raid5,
        Level::Raid6,
        Level::Raid73,
        Level::Raid10,
        Level::Raid50,
        Level::Raid60,
        Level::Raid70,
        Level::NPlusM,
    ];

    /// The level's name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
            Level::Raid73 => "raid7.3",
            Level::Raid10 => "raid10",
            Level::Raid50 => "raid50",
            Level::Raid60 => "raid60",
            Level::Raid70 => "raid70",
            Level::NPlusM => "n+m",
        }
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Level {
    type Err = String;

    /// Accepts the number alone or with "raid" before it, in any case. Fails with a text that
    /// lists the levels.
    fn from_str(text: &str) -> Result<Level, String> {
        let lower = text.trim().to_ascii_lowercase();
        let short = lower.strip_prefix("raid").unwrap_or(&lower);
        let short = short.trim_start_matches([' ', '-']);
        Level::ALL
            .into_iter()
            .find(|level| level.name().trim_start_matches("raid") == short)
            .ok_or_else(|| {
                format!("\"{text}\" is not a level: use 0, 1, 5, 6, 7.3, 10, 50, 60, 70 or n+m")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_read_back_with_and_without_prefix() {
        for level in Level::ALL {
            assert_eq!(level.name().parse(), Ok(level));
            assert_eq!(level.name().to_uppercase().parse(), Ok(level));
            assert_eq!(level.name().trim_start_matches("raid").parse(), Ok(level));
            let json = serde_json::to_value(level).unwrap();
            assert_eq!(json, level.name());
        }
    }

    #[test]
    fn other_text_is_refused_with_the_list() {
        for text in ["", "4", "raid", "7", "6+2", "raid raid6"] {
            let error = text.parse::<Level>().unwrap_err();
            assert!(error.contains("7.3"), "{error}");
        }
    }
}
