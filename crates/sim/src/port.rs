//! A core's view of the [`World`].

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strake_reactor::drive::{DriveInfo, DriveSpec, OpenError};
use strake_reactor::port::{Completion, DriveId, DriveOp, Port, Waker};

use crate::world::World;

/// [`Port`] over simulated drives. Drive n is named `sim:n`.
pub struct SimPort {
    world: Rc<RefCell<World>>,
    number: usize,
    woken: Arc<AtomicBool>,
}

impl SimPort {
    /// A port of this world.
    pub fn new(world: Rc<RefCell<World>>) -> SimPort {
        let number = world.borrow_mut().add_port();
        SimPort {
            world,
            number,
            woken: Arc::default(),
        }
    }

    /// The spec of drive number `drive`.
    pub fn spec(drive: usize) -> DriveSpec {
        DriveSpec(format!("sim:{drive}"))
    }

    /// Serial of drive number `drive`.
    pub fn serial(drive: usize) -> String {
        format!("SIM{drive:04}")
    }
}

impl Port for SimPort {
    fn now_ns(&self) -> u64 {
        self.world.borrow().now_ns()
    }

    fn open(
        &mut self,
        spec: &DriveSpec,
        read_only: bool,
    ) -> Result<(DriveId, DriveInfo), OpenError> {
        let mut world = self.world.borrow_mut();
        let number = spec
            .0
            .strip_prefix("sim:")
            .and_then(|n| n.parse::<usize>().ok());
        let Some(number) = number.filter(|&n| n < world.drives.len()) else {
            return Err(OpenError::BadSpec {
                spec: spec.0.clone(),
                reason: "no such simulated drive".into(),
            });
        };
        if !world.claim(self.number, number, read_only) {
            return Err(OpenError::Busy {
                path: spec.0.clone(),
                by: "the array that has it".into(),
            });
        }
        let drive = &world.drives[number];
        let info = DriveInfo {
            spec: spec.clone(),
            path: spec.0.clone(),
            size_bytes: drive.size_bytes(),
            block_size_bytes: drive.sector_bytes(),
            serial: SimPort::serial(number),
            model: "simulated".into(),
            identity: spec.0.clone(),
            volatile_cache: drive.is_volatile(),
            fast_zeroes: true,
            notes: Vec::new(),
        };
        Ok((DriveId(number as u32), info))
    }

    fn close(&mut self, drive: DriveId) {
        let drive = drive.0 as usize;
        self.world.borrow_mut().release(self.number, drive);
    }

    fn submit(&mut self, drive: DriveId, token: u64, op: DriveOp) {
        self.world
            .borrow_mut()
            .submit(self.number, drive.0 as usize, token, op);
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.world.borrow_mut().poll(self.number, completions);
    }

    fn wait(&mut self, until_ns: Option<u64>) {
        if self.woken.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut world = self.world.borrow_mut();
        let next = [world.next_ns(), until_ns].into_iter().flatten().min();
        if let Some(next) = next {
            world.advance(next);
        }
    }

    fn waker(&self) -> Waker {
        let woken = self.woken.clone();
        Waker(Arc::new(move || woken.store(true, Ordering::Relaxed)))
    }
}
