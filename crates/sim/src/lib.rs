//! The real engine and node on simulated drives and virtual time, from one seed.
//!
//! [`world`] holds the clock, the drives and what is under way; [`port`] is the view of it that a
//! [`strake_node::core::Core`] gets; [`drive`] is one drive with its cache and its faults.
//! [`rig`] puts an array on drives, starts it as an import does, and talks to it. [`model`] says
//! what each block may hold and shares no code with the engine. [`patterns`] tries every loss
//! pattern of one geometry. [`crashes`] follows one story with a crash at each of its steps, and
//! [`aftermath`] reads what is then on the drives. A random run is a [`plan`], made of a seed by [`generate`], carried out
//! by [`execute`], and made shorter by [`shrink`] when it fails.
//!
//! Same seed and commit, same run: time starts at zero, every choice comes from the seed, and all
//! that happens is hashed, so that two runs can be compared.
#![forbid(unsafe_code)]

pub mod aftermath;
pub mod content;
pub mod crashes;
pub mod drive;
pub mod execute;
pub mod explore;
pub mod generate;
pub mod geometries;
pub mod image;
pub mod import;
pub mod model;
pub mod parity;
pub mod patterns;
pub mod plan;
#[cfg(feature = "planted")]
pub mod planted;
pub mod port;
pub mod rig;
pub mod runner;
pub mod shrink;
mod tears;
pub mod world;
