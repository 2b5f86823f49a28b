//! What the manager needs from the node, as a trait: the product is the node itself, the tests
//! put a node without drives in its place. Every call may block.

use std::sync::{Arc, RwLock};
use strake_engine::block::BlockDevice;
use strake_node::probe::{self, Probe};
use strake_node::{Array, ArrayStatus, CreateArray, ErrorKind, ImportArray, Node, NodeError};
use strake_reactor::buffer::Buffer;
use strake_reactor::drive::{DriveSpec, FaultPlan, OpenError};

/// A node.
pub trait Backend: Send + Sync {
    /// Makes an array and starts it.
    fn create(&self, request: CreateArray) -> Result<Arc<dyn ArrayHandle>, NodeError>;
    /// Starts an array from its drives.
    fn import(&self, request: ImportArray) -> Result<Arc<dyn ArrayHandle>, NodeError>;
    /// Looks at a drive; changes nothing.
    fn probe(&self, drive: &DriveSpec) -> Result<Probe, OpenError>;
    /// Drives of this host that could be members.
    fn candidates(&self) -> Vec<DriveSpec>;
    /// Erases Strake's metadata on a drive that no array uses.
    fn clean(&self, drive: &DriveSpec, force: bool) -> Result<(), NodeError>;
    /// Stops what still runs and ends the reactors. Later calls fail.
    fn shutdown(&self);
}

/// A started array: see [`Array`] for what each call does.
pub trait ArrayHandle: Send + Sync {
    /// Snapshot.
    fn status(&self) -> Result<ArrayStatus, NodeError>;
    /// Drops a member.
    fn fail_member(&self, member: u16, force: bool) -> Result<(), NodeError>;
    /// Empties a place.
    fn remove_member(&self, member: u16, force: bool) -> Result<(), NodeError>;
    /// Fills a place and rebuilds.
    fn replace_member(&self, member: u16, drive: DriveSpec, force: bool) -> Result<(), NodeError>;
    /// Starts a scrub.
    fn start_scrub(&self, repair: bool) -> Result<(), NodeError>;
    /// Ends a scrub.
    fn stop_scrub(&self) -> Result<(), NodeError>;
    /// 1 to 100.
    fn set_rebuild_priority(&self, percent: u8) -> Result<(), NodeError>;
    /// Injects faults; `None` heals.
    fn inject(&self, member: u16, fault: Option<FaultPlan>) -> Result<(), NodeError>;
    /// Stops cleanly.
    fn stop(&self) -> Result<(), NodeError>;
    /// Stops and erases the metadata.
    fn destroy(&self) -> Result<(), NodeError>;
    /// The array as exports see it.
    fn device(&self) -> Arc<dyn BlockDevice<Buffer>>;
}

impl ArrayHandle for Array {
    fn status(&self) -> Result<ArrayStatus, NodeError> {
        Array::status(self)
    }
    fn fail_member(&self, member: u16, force: bool) -> Result<(), NodeError> {
        Array::fail_member(self, member, force)
    }
    fn remove_member(&self, member: u16, force: bool) -> Result<(), NodeError> {
        Array::remove_member(self, member, force)
    }
    fn replace_member(&self, member: u16, drive: DriveSpec, force: bool) -> Result<(), NodeError> {
        Array::replace_member(self, member, drive, force)
    }
    fn start_scrub(&self, repair: bool) -> Result<(), NodeError> {
        Array::start_scrub(self, repair)
    }
    fn stop_scrub(&self) -> Result<(), NodeError> {
        Array::stop_scrub(self)
    }
    fn set_rebuild_priority(&self, percent: u8) -> Result<(), NodeError> {
        Array::set_rebuild_priority(self, percent)
    }
    fn inject(&self, member: u16, fault: Option<FaultPlan>) -> Result<(), NodeError> {
        Array::inject(self, member, fault)
    }
    fn stop(&self) -> Result<(), NodeError> {
        Array::stop(self)
    }
    fn destroy(&self) -> Result<(), NodeError> {
        Array::destroy(self)
    }
    fn device(&self) -> Arc<dyn BlockDevice<Buffer>> {
        Arc::new(self.clone())
    }
}

/// The real node, until it is shut down.
pub struct NodeBackend(RwLock<Option<Node>>);

impl NodeBackend {
    /// Takes a started node.
    pub fn new(node: Node) -> NodeBackend {
        NodeBackend(RwLock::new(Some(node)))
    }

    fn with<T>(&self, call: impl FnOnce(&Node) -> Result<T, NodeError>) -> Result<T, NodeError> {
        match &*self.0.read().expect("a node call panicked") {
            Some(node) => call(node),
            None => Err(NodeError {
                kind: ErrorKind::Stopped,
                message: "the daemon is shutting down: start it again and repeat".into(),
            }),
        }
    }
}

impl Backend for NodeBackend {
    fn create(&self, request: CreateArray) -> Result<Arc<dyn ArrayHandle>, NodeError> {
        let array = self.with(|node| node.create(request))?;
        Ok(Arc::new(array))
    }
    fn import(&self, request: ImportArray) -> Result<Arc<dyn ArrayHandle>, NodeError> {
        let array = self.with(|node| node.import(request))?;
        Ok(Arc::new(array))
    }
    fn probe(&self, drive: &DriveSpec) -> Result<Probe, OpenError> {
        probe::probe(drive)
    }
    fn candidates(&self) -> Vec<DriveSpec> {
        probe::candidates()
    }
    fn clean(&self, drive: &DriveSpec, force: bool) -> Result<(), NodeError> {
        probe::clean(drive, force)
    }
    fn shutdown(&self) {
        let node = self.0.write().expect("a node call panicked").take();
        if let Some(node) = node {
            node.shutdown();
        }
    }
}
