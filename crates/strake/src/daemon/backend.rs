//! What the manager needs from the node, as a trait: the product is the node itself, the tests
//! put a node without drives in its place. Every call may block.

use std::sync::{Arc, RwLock};
use strake_engine::block::BlockDevice;
use strake_node::probe::{self, Probe};
use strake_node::{
    Array, ArrayStatus, Consistency, CreateArray, ErrorKind, ImportArray, Node, NodeError,
    TornBlocks,
};
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
    /// Changes what keeps parity true over a crash.
    fn set_policy(&self, policy: Consistency) -> Result<(), NodeError>;
    /// Blocks that read as errors.
    fn torn(&self) -> Result<Vec<TornBlocks>, NodeError>;
    /// Serves suspect blocks as they are.
    fn accept_suspect(&self) -> Result<(), NodeError>;
    /// Injects faults; `None` heals.
    fn inject(&self, member: u16, fault: Option<FaultPlan>) -> Result<(), NodeError>;
    /// Stops cleanly.
    fn stop(&self) -> Result<(), NodeError>;
    /// Stops and erases the metadata.
    fn destroy(&self) -> Result<(), NodeError>;
    /// The array as exports see it.
    fn device(&self) -> Arc<dyn BlockDevice<Buffer>>;
}

/// Looking at a drive locks it for a moment, and opening it for an array meanwhile would find it
/// busy. So one look at a time, and none while drives are opened; openings go side by side.
#[derive(Default, Clone)]
struct Doors(Arc<RwLock<()>>);

impl Doors {
    fn look<T>(&self, call: impl FnOnce() -> T) -> T {
        let _alone = self.0.write().expect("a node call panicked");
        call()
    }

    fn open<T>(&self, call: impl FnOnce() -> T) -> T {
        let _among_others = self.0.read().expect("a node call panicked");
        call()
    }
}

/// An array of the real node.
struct NodeArray {
    array: Array,
    doors: Doors,
}

impl ArrayHandle for NodeArray {
    fn status(&self) -> Result<ArrayStatus, NodeError> {
        self.array.status()
    }
    fn fail_member(&self, member: u16, force: bool) -> Result<(), NodeError> {
        self.array.fail_member(member, force)
    }
    fn remove_member(&self, member: u16, force: bool) -> Result<(), NodeError> {
        self.array.remove_member(member, force)
    }
    fn replace_member(&self, member: u16, drive: DriveSpec, force: bool) -> Result<(), NodeError> {
        self.doors
            .open(|| self.array.replace_member(member, drive, force))
    }
    fn start_scrub(&self, repair: bool) -> Result<(), NodeError> {
        self.array.start_scrub(repair)
    }
    fn stop_scrub(&self) -> Result<(), NodeError> {
        self.array.stop_scrub()
    }
    fn set_rebuild_priority(&self, percent: u8) -> Result<(), NodeError> {
        self.array.set_rebuild_priority(percent)
    }
    fn set_policy(&self, policy: Consistency) -> Result<(), NodeError> {
        self.array.set_policy(policy)
    }
    fn torn(&self) -> Result<Vec<TornBlocks>, NodeError> {
        self.array.torn()
    }
    fn accept_suspect(&self) -> Result<(), NodeError> {
        self.array.accept_suspect()
    }
    fn inject(&self, member: u16, fault: Option<FaultPlan>) -> Result<(), NodeError> {
        self.array.inject(member, fault)
    }
    fn stop(&self) -> Result<(), NodeError> {
        self.array.stop()
    }
    fn destroy(&self) -> Result<(), NodeError> {
        self.array.destroy()
    }
    fn device(&self) -> Arc<dyn BlockDevice<Buffer>> {
        Arc::new(self.array.clone())
    }
}

/// The real node, until it is shut down.
pub struct NodeBackend {
    node: RwLock<Option<Node>>,
    doors: Doors,
}

impl NodeBackend {
    /// Takes a started node.
    pub fn new(node: Node) -> NodeBackend {
        NodeBackend {
            node: RwLock::new(Some(node)),
            doors: Doors::default(),
        }
    }

    /// An array that the node opens.
    fn open(
        &self,
        call: impl FnOnce(&Node) -> Result<Array, NodeError>,
    ) -> Result<Arc<dyn ArrayHandle>, NodeError> {
        let node = self.node.read().expect("a node call panicked");
        let Some(node) = &*node else {
            return Err(NodeError {
                kind: ErrorKind::Stopped,
                message: "the daemon is shutting down: start it again and repeat".into(),
            });
        };
        let array = self.doors.open(|| call(node))?;
        let doors = self.doors.clone();
        Ok(Arc::new(NodeArray { array, doors }))
    }
}

impl Backend for NodeBackend {
    fn create(&self, request: CreateArray) -> Result<Arc<dyn ArrayHandle>, NodeError> {
        self.open(|node| node.create(request))
    }
    fn import(&self, request: ImportArray) -> Result<Arc<dyn ArrayHandle>, NodeError> {
        self.open(|node| node.import(request))
    }
    fn probe(&self, drive: &DriveSpec) -> Result<Probe, OpenError> {
        self.doors.look(|| probe::probe(drive))
    }
    fn candidates(&self) -> Vec<DriveSpec> {
        probe::candidates()
    }
    fn clean(&self, drive: &DriveSpec, force: bool) -> Result<(), NodeError> {
        self.doors.open(|| probe::clean(drive, force))
    }
    fn shutdown(&self) {
        let node = self.node.write().expect("a node call panicked").take();
        if let Some(node) = node {
            node.shutdown();
        }
    }
}
