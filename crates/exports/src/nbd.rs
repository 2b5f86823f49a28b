//! NBD: the Network Block Device protocol, fixed newstyle, server side.
//!
//! [`wire`] turns bytes into messages and back, [`session`] decides what answers what, [`serve`]
//! does the I/O: one reader and one writer thread per connection. Source of every number and
//! rule: "The NBD protocol" (`doc/proto.md` of the NetworkBlockDevice/nbd project).
//!
//! There: simple and structured replies, flush, FUA, trim, write zeroes, block status with
//! `base:allocation`, block size constraints, several connections per client. Not there, and
//! said so to clients that ask: TLS, extended headers, fast zero, cache, resize.

mod connection;
pub mod serve;
pub mod session;
mod socket;
pub mod wire;

pub use serve::{Listen, NbdAddress, NbdConfig, NbdServer};
