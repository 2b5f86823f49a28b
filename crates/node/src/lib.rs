//! Carries out the engine's plans on reactors: arrays, members, commands.
//!
//! [`core::Core`] is the loop of one core over any [`strake_reactor::port::Port`]; `served` keeps
//! one array's memory and drives on the core that runs it, `front` is the array as each core has
//! it. The management side is [`handle`]: blocking calls for a control plane. [`probe`] looks at
//! drives that nobody serves. Nothing here decides: that is the engine.
#![forbid(unsafe_code)]

pub mod core;
mod front;
pub mod handle;
mod import;
pub mod make;
pub mod probe;
mod served;
mod status;
mod torn;

pub use handle::*;
pub use torn::{TornBlocks, VOLUME_RANGES_MAX};
