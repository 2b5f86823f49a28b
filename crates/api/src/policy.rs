//! What keeps parity true over a crash, as text.
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What keeps parity true over a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Policy {
    /// Parity log: nothing is lost, degraded too. What levels with redundancy have by default.
    #[serde(rename = "log")]
    Log,
    /// As `log`, and full-stripe writes while degraded are logged whole.
    #[serde(rename = "log-all")]
    LogAll,
    /// Regions that were being written are resynced; while degraded what missing members held
    /// there is suspect after a crash.
    #[serde(rename = "resync")]
    Resync,
    /// Nothing is done.
    #[serde(rename = "none")]
    None,
}

impl Policy {
    /// Every policy, in the order in which they are documented.
    pub const ALL: [Policy; 4] = [Policy::Log, Policy::LogAll, Policy::Resync, Policy::None];

    /// The policy's name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Log => "log",
            Policy::LogAll => "log-all",
            Policy::Resync => "resync",
            Policy::None => "none",
        }
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Policy {
    type Err = String;

    /// Accepts the names. Fails with a text that lists them.
    fn from_str(text: &str) -> Result<Policy, String> {
        let known = Policy::ALL
            .into_iter()
            .find(|policy| policy.name() == text.trim());
        known.ok_or_else(|| format!("\"{text}\" is not a policy: use log, log-all, resync or none"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_read_back_and_others_are_refused_with_the_list() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.name());
        }
        for text in ["", "LOG", "log all", "journal"] {
            let error = text.parse::<Policy>().unwrap_err();
            assert!(error.contains("log-all"), "{error}");
        }
    }
}
