//! Request, response and error types of the management API.
//!
//! The daemon serves them as JSON over HTTP on a Unix socket, under `/v1`; the command line and
//! the OpenAPI document (`openapi.json` beside this crate) are made from the same types. Field
//! names carry their units. Sizes are JSON numbers: exact up to 2^53 bytes (8 PiB), which clients
//! that read numbers as doubles should know. Unknown fields in a request are an error.
#![forbid(unsafe_code)]

mod array;
mod drive;
mod error;
mod export;
mod import;
mod level;
mod policy;
mod status;
mod torn;

pub use array::*;
pub use drive::*;
pub use error::*;
pub use export::*;
pub use import::*;
pub use level::*;
pub use policy::*;
pub use status::*;
pub use torn::*;

/// Default path of the daemon's socket.
pub const DEFAULT_SOCKET: &str = "/run/strake/strake.sock";
/// Default folder of the host-local state.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/strake";
