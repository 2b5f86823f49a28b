//! The thin layer between the manager and the servers of `strake-exports`.

mod servers;

pub use servers::{Served, clear_stale_mount};

use std::sync::Arc;
use strake_api::ExportKind;
use strake_engine::block::BlockDevice;
use strake_reactor::buffer::Buffer;

/// What starts servers; the tests put one without sockets in its place.
pub trait Servers: Send + Sync {
    /// Where clients find an export of that kind: an NBD URI, or the path of the file.
    fn address(&self, array_name: &str, kind: &ExportKind) -> String;
    /// Starts to serve. Fails with what, where and what to do.
    fn start(
        &self,
        array_name: &str,
        kind: &ExportKind,
        device: Arc<dyn BlockDevice<Buffer>>,
    ) -> Result<Arc<dyn Serving>, String>;
    /// Ends what all servers share. Every server was stopped before.
    fn shutdown(&self);
}

/// A running server of one export.
pub trait Serving: Send + Sync {
    /// Clients that use it now.
    fn clients(&self) -> u64;
    /// Disconnects its clients and stops. A second call does nothing.
    fn stop(&self);
}
