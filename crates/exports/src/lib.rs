//! Front ends: they serve a [`BlockDevice`] to clients.
//!
//! * [`nbd`]: the NBD protocol over a Unix socket or TCP, for virtual machines and other hosts.
//! * [`fuse`]: every volume one file under one mount, from which `losetup` makes a block device
//!   on any Linux machine.
//!
//! Each front end is *wire* (bytes and messages, pure), *session* (states, pure) and *serve*
//! (threads and I/O). What always holds: a submitted request owns its buffers until the device
//! calls it done, whatever happens to the client meanwhile; a completion never blocks the
//! device's thread; no client makes a server panic or hold memory without bound.

#![forbid(unsafe_code)]

mod buffers;
pub mod fuse;
#[cfg(test)]
#[path = "../tests/common/mock.rs"]
mod mock;
pub mod nbd;
mod volume;

use std::sync::Arc;

use strake_engine::block::BlockDevice;
use strake_reactor::buffer::Buffer;

/// What an export serves: a volume that answers block requests with reactor buffers.
pub type Device = Arc<dyn BlockDevice<Buffer>>;
