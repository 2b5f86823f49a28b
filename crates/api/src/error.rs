//! Errors, as every failed request returns them.
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Classes of errors, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request itself makes no sense (HTTP 400).
    Invalid,
    /// Not safe now, or would destroy data; `force` overrides where the text says so (403).
    Refused,
    /// No such array, member, drive or export (404).
    NotFound,
    /// Something of that name, or in that state, is already there (409).
    Conflict,
    /// The daemon failed, for instance to write its state file (500).
    Internal,
    /// An export could not be started or stopped (500).
    Export,
    /// A drive failed underneath (502).
    Drive,
    /// The array is stopped, or the daemon is shutting down (503).
    Stopped,
}

impl ErrorKind {
    /// The HTTP status that carries this kind.
    pub fn http_status(self) -> u16 {
        match self {
            ErrorKind::Invalid => 400,
            ErrorKind::Refused => 403,
            ErrorKind::NotFound => 404,
            ErrorKind::Conflict => 409,
            ErrorKind::Internal | ErrorKind::Export => 500,
            ErrorKind::Drive => 502,
            ErrorKind::Stopped => 503,
        }
    }
}

/// What happened, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Error {
    /// For programs.
    pub kind: ErrorKind,
    /// For people: one or two sentences.
    pub message: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Body of every 4xx and 5xx response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: Error,
}
