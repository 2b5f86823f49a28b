//! The kernel's side: io_uring, buffers, timers, and drives behind one port.
//!
//! * [`buffer`]: memory for I/O, which knows what of it is lent to a drive.
//! * [`port`]: what a core sees of the world: drives, time, wake-ups. A trait, so that the
//!   simulator can be the world.
//! * [`ring`]: that trait on io_uring.
//! * [`drive`]: naming, describing and claiming drives; [`mod@faulty`]: drives that fail on request.
//!
//! Nothing here decides: which drive to read, what to do about an error and whose turn it is are
//! questions for the engine and the node.

#![deny(unsafe_code)]

pub mod buffer;
pub mod drive;
pub mod faulty;
pub mod port;
pub mod ring;
mod sys;
