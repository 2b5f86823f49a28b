//! The cores that serve the array under test: the first runs it, the others have a front of it.
//!
//! They take turns at one moment of time. With several, each falls behind at random: what it is
//! told, and what its drives have answered, waits while the others go on.

use super::*;

/// A core falls behind once in so many steps.
const STALL_EVERY: u8 = 24;
/// For at most so long.
const STALL_NS: u64 = 400_000;

/// Cores and what each calls the array.
pub(super) struct Cores {
    all: Vec<Core<SimPort>>,
    ids: Vec<usize>,
    /// By core: until when it does nothing.
    stalled: Vec<u64>,
    rng: fastrand::Rng,
}

impl Cores {
    pub(super) fn new(world: &Rc<RefCell<World>>, pool: &Pool, count: usize, seed: u64) -> Cores {
        let core = |_| Core::new(SimPort::new(world.clone()), pool.clone());
        Cores {
            all: (0..count).map(core).collect(),
            ids: vec![0; count],
            stalled: vec![0; count],
            rng: fastrand::Rng::with_seed(seed ^ 0x5eed),
        }
    }

    /// A message for the core that runs the array, or its answer at once.
    pub(super) fn message(&mut self, message: Message, now_ns: u64) {
        self.all[0].message(message, now_ns);
    }

    /// A message for the core that runs the array, behind what it was told before.
    pub(super) fn tell(&mut self, message: Message, now_ns: u64) {
        if self.all.len() == 1 {
            return self.message(message, now_ns);
        }
        self.all[0].mailbox().send(message);
    }

    /// What the core that runs the array calls it.
    pub(super) fn id(&self) -> usize {
        self.ids[0]
    }

    /// A client's request, to any of the cores.
    pub(super) fn submit(&mut self, request: BlockRequest<Buffer>, now_ns: u64) {
        if self.all.len() == 1 {
            return self.message(Message::Block(self.ids[0], request), now_ns);
        }
        let core = self.rng.usize(..self.all.len());
        let message = Message::Block(self.ids[core], request);
        self.all[core].mailbox().send(message);
    }

    /// Starts the array on the first core and joins the others to it.
    pub(super) fn add(
        &mut self,
        start: strake_engine::array::Start,
        specs: Vec<Option<strake_reactor::drive::DriveSpec>>,
        now_ns: u64,
    ) -> Outcome {
        let added = answered(|reply| {
            let reply = Box::new(reply);
            self.message(Message::Add(Box::new(start), specs, reply), now_ns);
        })?;
        self.ids[0] = added.map_err(|error| format!("the array does not start: {error}"))?;
        for core in 1..self.all.len() {
            let other = self.all[core].mailbox();
            let share = answered(|reply| {
                self.message(Message::Share(self.ids[0], other, Box::new(reply)), now_ns);
            })?;
            let share = Box::new(share.ok_or("the array was just added")?);
            let link = share.link();
            let joined = answered(|reply| {
                self.all[core].message(Message::Join(share, Box::new(reply)), now_ns);
            })?;
            self.ids[core] = joined.ok_or("the core has room")?;
            self.message(Message::Link(self.ids[0], link, self.ids[core]), now_ns);
        }
        Ok(())
    }

    /// Lets the cores work until none has anything to do now. Every core that is not behind works.
    ///
    /// # Errors
    /// They do not come to rest.
    pub(super) fn work(&mut self, now_ns: u64) -> Outcome {
        if self.all.len() > 1 {
            for until in &mut self.stalled {
                if *until <= now_ns && self.rng.u8(..STALL_EVERY) == 0 {
                    *until = now_ns + self.rng.u64(1..=STALL_NS);
                }
            }
        }
        for _ in 0..TURNS_MAX {
            let mut worked = false;
            for (core, &until) in self.all.iter_mut().zip(&self.stalled) {
                worked |= until <= now_ns && core.turn();
            }
            if !worked {
                return Ok(());
            }
        }
        Err(format!("the cores do not come to rest at {now_ns} ns"))
    }

    /// When the next of them wants to work, without an event.
    pub(super) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let behind = self.stalled.iter().copied().filter(|&until| until > now_ns);
        let cores = self.all.iter().zip(&self.stalled);
        let ticks = cores.filter_map(|(core, &until)| Some(core.next_tick_ns()?.max(until)));
        behind.chain(ticks).min()
    }

    /// The array is to stop: all cores but the first leave it. Counts those that have, and the
    /// first.
    pub(super) fn leave(&mut self) -> Arc<Mutex<usize>> {
        let left = Arc::new(Mutex::new(1));
        for core in 1..self.all.len() {
            let told = left.clone();
            let reply = Box::new(move || *told.lock().expect("one thread") += 1);
            let message = Message::Forget(self.ids[core], reply);
            self.all[core].mailbox().send(message);
        }
        left
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

/// The answer to a message that is answered at once.
fn answered<T: Send + 'static>(
    ask: impl FnOnce(Box<dyn FnOnce(T) + Send>),
) -> Result<T, &'static str> {
    let answer = Arc::new(Mutex::new(None));
    let told = answer.clone();
    ask(Box::new(move |result| {
        *told.lock().expect("one thread") = Some(result);
    }));
    let answer = answer.lock().expect("one thread").take();
    answer.ok_or("a message was not answered")
}
