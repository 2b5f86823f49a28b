//! A node and servers without drives and sockets, for tests of everything above them. Its arrays
//! have one parity; its drives are entries of a map and remember what was written on them.

use crate::daemon::backend::{ArrayHandle, Backend};
use crate::daemon::exports::{Servers, Serving};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use strake_api::ExportKind;
use strake_engine::block::{BlockDevice, BlockInfo, BlockRequest};
use strake_node::probe::{MemberOf, Probe};
use strake_node::{
    ArrayState, ArrayStatus, Consistency, CreateArray, ErrorKind, ImportArray, LogReport,
    MemberState, MemberStatus, NodeError, TaskStatus, TornBlocks,
};
use strake_reactor::buffer::Buffer;
use strake_reactor::drive::{DriveInfo, DriveSpec, FaultPlan, OpenError};
use uuid::Uuid;

/// A drive of 1 GiB.
pub fn drive_info(path: &str) -> DriveInfo {
    DriveInfo {
        spec: DriveSpec(path.into()),
        path: path.into(),
        size_bytes: 1 << 30,
        block_size_bytes: 4096,
        serial: format!("serial-{}", path.trim_start_matches('/')),
        model: "mock".into(),
        identity: path.into(),
        volatile_cache: false,
        fast_zeroes: false,
        notes: Vec::new(),
    }
}

/// What is written on each drive that is there.
type Drives = Arc<Mutex<BTreeMap<String, Option<MemberOf>>>>;

/// See the module.
#[derive(Default)]
pub struct MockNode {
    pub drives: Drives,
    /// The last import's known generation.
    pub known_generation: Mutex<Option<u64>>,
    pub shut_down: AtomicBool,
    /// Torn and suspect bytes of the arrays made from now on.
    pub doubt: Mutex<(u64, u64)>,
}

pub fn refused(kind: ErrorKind, message: &str) -> NodeError {
    NodeError {
        kind,
        message: message.into(),
    }
}

fn path_of(spec: &DriveSpec) -> String {
    crate::drives::unwrapped(&spec.0).to_owned()
}

impl MockNode {
    /// A node with drives `/d0` to `/d<count - 1>`.
    pub fn with_drives(count: usize) -> Arc<MockNode> {
        let node = MockNode::default();
        for index in 0..count {
            node.drives
                .lock()
                .unwrap()
                .insert(format!("/d{index}"), None);
        }
        Arc::new(node)
    }

    /// Unplugs a drive; what was on it is returned.
    pub fn unplug(&self, path: &str) -> Option<MemberOf> {
        self.drives.lock().unwrap().remove(path).unwrap()
    }
}

impl Backend for MockNode {
    fn create(&self, request: CreateArray) -> Result<Arc<dyn ArrayHandle>, NodeError> {
        let mut drives = self.drives.lock().unwrap();
        let paths: Vec<String> = request.drives.iter().map(path_of).collect();
        if let Some(taken) = paths
            .iter()
            .find(|path| !request.force && matches!(drives.get(*path), Some(Some(_))))
        {
            return Err(refused(ErrorKind::Refused, &format!("{taken} is a member")));
        }
        let array_uuid = Uuid::new_v4();
        for (index, path) in paths.iter().enumerate() {
            let member = MemberOf {
                array_uuid,
                array_name: request.name.clone(),
                member_uuid: Uuid::new_v4(),
                member: index as u16,
                level: "raid5".into(),
                members: paths.len() as u16,
                generation: 1,
                epoch: 1,
                clean: false,
                fields: vec![("name".into(), request.name.clone())],
            };
            drives.insert(path.clone(), Some(member));
        }
        drop(drives);
        let places = paths.into_iter().map(Some).collect();
        let array = MockArray::start(&self.drives, array_uuid, &request.name, places, false);
        {
            let mut status = array.status.lock().unwrap();
            (status.torn_bytes, status.suspect_bytes) = *self.doubt.lock().unwrap();
        }
        Ok(array)
    }

    fn import(&self, request: ImportArray) -> Result<Arc<dyn ArrayHandle>, NodeError> {
        *self.known_generation.lock().unwrap() = request.known_generation;
        let found: Vec<(String, MemberOf)> = {
            let drives = self.drives.lock().unwrap();
            let member =
                |spec: &DriveSpec| Some((path_of(spec), drives.get(&path_of(spec))?.clone()?));
            request
                .drives
                .iter()
                .filter_map(member)
                .filter(|(_, m)| m.array_uuid == request.uuid)
                .collect()
        };
        let (_, first) = found
            .first()
            .ok_or(refused(ErrorKind::NotFound, "no member"))?;
        let place = |index| {
            found
                .iter()
                .find(|(_, m)| m.member == index)
                .map(|(path, _)| path.clone())
        };
        let places: Vec<Option<String>> = (0..first.members).map(place).collect();
        if places.iter().filter(|place| place.is_none()).count() > 1 && !request.force {
            return Err(refused(ErrorKind::Refused, "too many members are missing"));
        }
        let name = request.new_name.unwrap_or(first.array_name.clone());
        Ok(MockArray::start(
            &self.drives,
            request.uuid,
            &name,
            places,
            request.read_only,
        ))
    }

    fn probe(&self, drive: &DriveSpec) -> Result<Probe, OpenError> {
        let path = path_of(drive);
        let drives = self.drives.lock().unwrap();
        let member = drives.get(&path).ok_or(OpenError::System {
            path: path.clone(),
            action: "open",
            reason: "no such file".into(),
        })?;
        let copy = if member.is_some() { "valid" } else { "absent" };
        Ok(Probe {
            info: drive_info(&path),
            member: member.clone(),
            copies: [copy.into(), copy.into()],
            foreign: None,
            in_use: None,
        })
    }

    fn candidates(&self) -> Vec<DriveSpec> {
        self.drives
            .lock()
            .unwrap()
            .keys()
            .cloned()
            .map(DriveSpec)
            .collect()
    }

    fn clean(&self, drive: &DriveSpec, force: bool) -> Result<(), NodeError> {
        if !force {
            return Err(refused(ErrorKind::Refused, "is a member: add --force"));
        }
        self.drives.lock().unwrap().insert(path_of(drive), None);
        Ok(())
    }

    fn shutdown(&self) {
        self.shut_down.store(true, Ordering::Relaxed);
    }
}

/// A running array of the mock.
pub struct MockArray {
    drives: Drives,
    pub status: Mutex<ArrayStatus>,
    stopped: AtomicBool,
}

impl MockArray {
    fn start(
        drives: &Drives,
        uuid: Uuid,
        name: &str,
        places: Vec<Option<String>>,
        read_only: bool,
    ) -> Arc<MockArray> {
        let array = MockArray {
            drives: drives.clone(),
            status: Mutex::new(status(uuid, name, places, read_only)),
            stopped: AtomicBool::new(false),
        };
        array.write(2, false);
        Arc::new(array)
    }

    /// Writes name and generation on the members, as the node does.
    fn write(&self, raise: u64, clean: bool) {
        let mut status = self.status.lock().unwrap();
        let mut drives = self.drives.lock().unwrap();
        let members = drives.values_mut().flatten();
        let mut own: Vec<_> = members.filter(|m| m.array_uuid == status.uuid).collect();
        let newest = own.iter().map(|m| m.generation).max().unwrap_or(0);
        status.generation = newest + raise;
        for member in &mut own {
            member.generation = status.generation;
            member.array_name = status.name.clone();
            member.clean = clean;
        }
    }

    fn set(&self, member: u16, state: MemberState, path: Option<String>) {
        let mut status = self.status.lock().unwrap();
        let place = &mut status.members[usize::from(member)];
        place.state = state;
        place.path = path;
        let lost = status
            .members
            .iter()
            .filter(|m| m.state != MemberState::Active)
            .count();
        status.state = match lost {
            0 => ArrayState::Healthy,
            1 => ArrayState::Degraded,
            _ => ArrayState::Failed,
        };
    }
}

fn status(uuid: Uuid, name: &str, places: Vec<Option<String>>, read_only: bool) -> ArrayStatus {
    let missing = places.iter().filter(|place| place.is_none()).count();
    let members = places
        .into_iter()
        .enumerate()
        .map(|(index, path)| MemberStatus {
            index: index as u16,
            group: 0,
            serial: path
                .as_deref()
                .map(|path| drive_info(path).serial)
                .unwrap_or_default(),
            state: if path.is_some() {
                MemberState::Active
            } else {
                MemberState::Missing
            },
            path,
            size_bytes: 1 << 30,
            read_errors: 0,
            write_errors: 0,
            volatile_cache: None,
            notes: Vec::new(),
        });
    let members: Vec<MemberStatus> = members.collect();
    ArrayStatus {
        uuid,
        name: name.into(),
        level: "raid5".into(),
        state: if missing == 0 {
            ArrayState::Healthy
        } else {
            ArrayState::Degraded
        },
        read_only,
        starting: false,
        size_bytes: (members.len() as u64 - 1) << 30,
        block_size_bytes: 4096,
        strip_size_bytes: 65_536,
        groups: 1,
        data: members.len() as u16 - 1,
        parity: 1,
        members,
        tasks: Vec::new(),
        last_scrub: None,
        generation: 0,
        epoch: 1,
        policy: Consistency::Log,
        log_bytes: 16 << 20,
        log: LogReport::default(),
        torn_bytes: 0,
        suspect_bytes: 0,
        region_size_bytes: 1 << 20,
        regions: [900, 100, 0, 0],
        kernel: "mock".into(),
        reads: 0,
        writes: 0,
        read_bytes: 0,
        write_bytes: 0,
        write_plans: [0; 4],
        gathered_bytes: 0,
        rebuild_priority: 50,
        unused_bytes: 0,
        warnings: Vec::new(),
    }
}

/// A task a quarter done.
pub fn task(kind: &str) -> TaskStatus {
    TaskStatus {
        kind: kind.into(),
        done_bytes: 1 << 28,
        total_bytes: 1 << 30,
        rate_bytes: 1 << 26,
        mismatches: 0,
        repaired: 0,
        errors: 0,
    }
}

impl ArrayHandle for MockArray {
    fn status(&self) -> Result<ArrayStatus, NodeError> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(refused(ErrorKind::Stopped, "stopped"));
        }
        Ok(self.status.lock().unwrap().clone())
    }
    fn fail_member(&self, member: u16, force: bool) -> Result<(), NodeError> {
        let state = self.status.lock().unwrap().state;
        if state != ArrayState::Healthy && !force {
            return Err(refused(ErrorKind::Refused, "would not survive it"));
        }
        self.set(member, MemberState::Failed, None);
        self.write(1, false);
        Ok(())
    }
    fn remove_member(&self, member: u16, _force: bool) -> Result<(), NodeError> {
        self.set(member, MemberState::Removed, None);
        Ok(())
    }
    fn replace_member(&self, member: u16, drive: DriveSpec, _force: bool) -> Result<(), NodeError> {
        self.set(member, MemberState::Rebuilding, Some(path_of(&drive)));
        self.status.lock().unwrap().tasks.push(task("rebuild"));
        Ok(())
    }
    fn start_scrub(&self, _repair: bool) -> Result<(), NodeError> {
        self.status.lock().unwrap().tasks.push(task("scrub"));
        Ok(())
    }
    fn stop_scrub(&self) -> Result<(), NodeError> {
        self.status.lock().unwrap().tasks.clear();
        Ok(())
    }
    fn set_rebuild_priority(&self, percent: u8) -> Result<(), NodeError> {
        self.status.lock().unwrap().rebuild_priority = percent;
        Ok(())
    }
    fn set_policy(&self, policy: Consistency) -> Result<(), NodeError> {
        self.status.lock().unwrap().policy = policy;
        Ok(())
    }
    fn torn(&self) -> Result<Vec<TornBlocks>, NodeError> {
        let status = self.status.lock().unwrap();
        let blocks = |suspect, length_bytes| TornBlocks {
            member: 1,
            suspect,
            offset_bytes: u64::from(suspect) << 20,
            length_bytes,
            volume: std::iter::once(0..length_bytes).collect(),
            volume_left_out: 0,
        };
        let both = [(false, status.torn_bytes), (true, status.suspect_bytes)];
        let listed = both.into_iter().filter(|(_, bytes)| *bytes > 0);
        Ok(listed
            .map(|(suspect, bytes)| blocks(suspect, bytes))
            .collect())
    }
    fn accept_suspect(&self) -> Result<(), NodeError> {
        self.status.lock().unwrap().suspect_bytes = 0;
        Ok(())
    }
    fn inject(&self, _member: u16, fault: Option<FaultPlan>) -> Result<(), NodeError> {
        let text = fault.map(|fault| format!("{fault:?}"));
        self.status.lock().unwrap().warnings = text.into_iter().collect();
        Ok(())
    }
    fn stop(&self) -> Result<(), NodeError> {
        self.write(1, true);
        self.stopped.store(true, Ordering::Relaxed);
        Ok(())
    }
    fn destroy(&self) -> Result<(), NodeError> {
        let uuid = self.status.lock().unwrap().uuid;
        for drive in self.drives.lock().unwrap().values_mut() {
            if drive
                .as_ref()
                .is_some_and(|member| member.array_uuid == uuid)
            {
                *drive = None;
            }
        }
        self.stopped.store(true, Ordering::Relaxed);
        Ok(())
    }
    fn device(&self) -> Arc<dyn BlockDevice<Buffer>> {
        Arc::new(NoDevice)
    }
}

struct NoDevice;

impl BlockDevice<Buffer> for NoDevice {
    fn info(&self) -> BlockInfo {
        unreachable!("mock servers do not look at the device")
    }
    fn submit(&self, _request: BlockRequest<Buffer>) {
        unreachable!("mock servers serve nobody")
    }
}

/// Servers without clients, until a test says otherwise.
#[derive(Default)]
pub struct MockServers {
    /// Servers that run, by address.
    pub running: Arc<Mutex<BTreeMap<String, u64>>>,
    /// Starting one fails.
    pub broken: AtomicBool,
    /// Starts counted.
    pub starts: AtomicU64,
}

struct MockServer {
    address: String,
    running: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Servers for MockServers {
    fn address(&self, array_name: &str, kind: &ExportKind) -> String {
        match kind {
            ExportKind::NbdUnix { path } => format!("unix:{}", path.as_deref().unwrap_or("")),
            ExportKind::NbdTcp { address } => format!("tcp:{address}"),
            ExportKind::Fuse => format!("/run/volumes/{array_name}"),
        }
    }
    fn start(
        &self,
        array_name: &str,
        kind: &ExportKind,
        _device: Arc<dyn BlockDevice<Buffer>>,
    ) -> Result<Arc<dyn Serving>, String> {
        if self.broken.load(Ordering::Relaxed) {
            return Err("the address is taken".into());
        }
        self.starts.fetch_add(1, Ordering::Relaxed);
        let address = self.address(array_name, kind);
        self.running.lock().unwrap().insert(address.clone(), 0);
        Ok(Arc::new(MockServer {
            address,
            running: self.running.clone(),
        }))
    }
    fn shutdown(&self) {}
}

impl Serving for MockServer {
    fn clients(&self) -> u64 {
        self.running
            .lock()
            .unwrap()
            .get(&self.address)
            .copied()
            .unwrap_or(0)
    }
    fn stop(&self) {
        self.running.lock().unwrap().remove(&self.address);
    }
}
