//! Decisions: layout, plans, stripe operations, array states and the on-disk format. No I/O.
//!
//! [`array::Array`] is the state machine of one array; it speaks in [`array::Action`]s. The way
//! bytes lie on members is [`layout`]; how a stripe is read and written is decided in [`plan`];
//! what is on disk is in [`format`].
#![forbid(unsafe_code)]

pub mod array;
pub mod block;
pub mod format;
pub mod layout;
pub mod plan;
pub mod planted;
