//! The end of the program, or of the power, and what is left to start from.

use super::*;
use crate::tears::Tears;
use crate::world::Snapshot;
use strake_engine::format::log::record::{self, RECORD_ALIGN, Summary};
use strake_engine::format::log::ring;

/// An array at one moment of its run: what its crash is followed from.
pub struct Moment {
    /// Drives and what is under way on them.
    pub snapshot: Snapshot,
    /// What blocks may hold.
    pub model: Model,
    /// By place: in the array and in sync, as the engine sees it.
    pub live: Vec<bool>,
    /// Policy.
    pub policy: Consistency,
    places: Vec<Option<usize>>,
    plugged: Vec<usize>,
    starts: u64,
    errors_allowed: bool,
}

impl Moment {
    /// Number of the drive in this place.
    pub fn drive(&self, place: usize) -> Option<usize> {
        self.places[place]
    }

    /// Which members are live, a bit each.
    pub fn live_bits(&self) -> u64 {
        let live = self.live.iter().enumerate();
        live.fold(0, |bits, (place, &live)| bits | u64::from(live) << place)
    }

    /// Sets of places (the empty one first) that may be lost in one group.
    pub fn may_lose(&self, shape: Shape) -> Vec<Vec<usize>> {
        let places: Vec<usize> = (0..self.live.len())
            .filter(|&place| self.live[place])
            .collect();
        let gone = self.live.len() - places.len();
        let most = usize::from(shape.parity).saturating_sub(gone);
        (0u64..1 << places.len())
            .filter(|mask| mask.count_ones() as usize <= most)
            .map(|mask| {
                let chosen = places.iter().enumerate();
                let chosen = chosen.filter(|(bit, _)| mask >> bit & 1 == 1);
                chosen.map(|(_, &place)| place).collect()
            })
            .collect()
    }
}

impl Rig {
    /// The array of these drives, not started: what a crash at `moment` has left.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub fn resume(setup: Setup, drives: Vec<SimDrive>, moment: &Moment, seed: u64) -> Outcome<Rig> {
        let mut world = World::new(seed);
        for drive in drives {
            world.add_drive(drive);
        }
        let mut rig = Rig::with_world(setup, world, moment.model.clone())?;
        rig.starts = moment.starts;
        rig.errors_allowed = moment.errors_allowed;
        rig.next_stamp = moment.starts << 32;
        rig.places.clone_from(&moment.places);
        rig.plugged.clone_from(&moment.plugged);
        Ok(rig)
    }

    /// All that a crash now would be followed from.
    pub fn moment(&mut self) -> Moment {
        let (live, policy) = self.look(|array| {
            let members = array.members().iter();
            let live = members.map(|m| m.is_live() && m.state == MemberState::Active);
            (live.collect(), array.superblock().consistency)
        });
        Moment {
            snapshot: self.world.borrow().snapshot(),
            model: self.model.clone(),
            live,
            policy,
            places: self.places.clone(),
            plugged: self.plugged.clone(),
            starts: self.starts,
            errors_allowed: self.errors_allowed,
        }
    }

    /// Tells the model of the crash at `moment` that this array was resumed from (`power`: the
    /// drives' caches went with it), with these places lost as far as all data stays on the others.
    pub fn after_crash(&mut self, lose: &[usize], moment: &Moment, power: bool) {
        self.lose(lose, &moment.live);
        self.crashed_model(power, Some(moment.policy), &moment.live);
    }

    /// What counts is how many members are lost at the crash, not how many die later. Without a log
    /// (that can be read) a block that cannot be read is one loss too many until a resync.
    fn spare_blocks(&self, policy: Option<Consistency>) {
        let logged = [Some(Consistency::Log), Some(Consistency::LogAll)].contains(&policy)
            && self.log_can_be_read();
        // A rebuild that had ended, and was not recorded, has not.
        let assembly = import::look(&self.world.borrow(), &self.plugged);
        let enough = assembly.is_ok_and(|assembly| self.redundancy_for_bad_blocks(&assembly));
        let drives = &mut self.world.borrow_mut().drives;
        for drive in drives {
            drive.faults.dies_after = None;
            if !logged || !enough {
                drive.faults.bad_reads.clear();
                drive.faults.bad_writes.clear();
            }
        }
    }

    /// A drive that was there at the crash is given a fault while the start has not ended.
    pub fn lost_in_start(&mut self) {
        if let Some((policy, live)) = self.before_crash.clone() {
            let tears = Tears::of(self, policy, &live);
            self.model.torn_too(|block| tears.of_block(block));
        }
    }

    /// Blocks of a write, just acknowledged, that lie in a region which waits for its resync and on a
    /// member whose drive is about to die: nothing stands in for what it holds there, old or new.
    /// `due`: a resync was due when the write was submitted, and these members were live; what one
    /// that has died since left behind stays listed.
    pub(super) fn lost_with_the_resync(&mut self, write: u64, due: Option<Vec<bool>>) -> Vec<u64> {
        let dying = self.dying();
        if self.geometry().data() == 1 || !dying.contains(&true) {
            return Vec::new();
        }
        let (size, blocks) = (self.block_bytes(), self.model.blocks_of(write));
        self.look(move |array| {
            let geometry = array.geometry();
            let lost = |block: &u64| {
                let piece = geometry.piece(block * size, size);
                let member = geometry.member(piece.stripe, usize::from(piece.strip));
                let waits = if array.members()[member.at()].is_live() {
                    array.region_needs_sync(geometry.region(piece.stripe))
                } else {
                    due.as_ref().is_some_and(|live| live[member.at()])
                };
                dying[member.at()] && waits
            };
            blocks.filter(lost).collect()
        })
    }

    /// By place: its drive is dead, or about to be.
    fn dying(&self) -> Vec<bool> {
        let world = self.world.borrow();
        let dying = |drive: usize| world.drives[drive].faults.is_dying();
        let places = self.places.iter();
        places.map(|place| place.is_some_and(dying)).collect()
    }

    /// A drive dies. What it holds beside blocks that are written in a region which waits for its
    /// resync can be neither read nor computed until it has left: such a write may fail.
    pub(super) fn some_drive_dies(&self) -> bool {
        self.geometry().data() > 1 && self.dying().contains(&true)
    }

    /// Some of these blocks lie in a region that waits for its resync, or may when the start has
    /// ended.
    pub(super) fn wait_for_a_resync(&mut self, mut blocks: Range<u64>) -> bool {
        let size = self.block_bytes();
        self.look(move |array| {
            let geometry = array.geometry();
            let region = |block: u64| geometry.region(geometry.stripe_at(block * size));
            array.is_starting() || blocks.any(|block| array.region_needs_sync(region(block)))
        })
    }

    /// The live members, if some of these blocks lie in a region that waits for its resync, or if
    /// the start that has not ended may leave one: nothing but a log that can be read saves it from
    /// that.
    pub(super) fn resync_is_due(&mut self, mut blocks: Range<u64>) -> Option<Vec<bool>> {
        let (size, readable) = (self.block_bytes(), self.log_can_be_read());
        self.look(move |array| {
            let geometry = array.geometry();
            let region = |block: u64| geometry.region(geometry.stripe_at(block * size));
            let policy = array.superblock().consistency;
            let logged = matches!(policy, Consistency::Log | Consistency::LogAll);
            let due = array.is_starting() && !(logged && readable)
                || blocks.any(|block| array.region_needs_sync(region(block)));
            let members = array.members().iter();
            due.then(|| members.map(|member| member.is_live()).collect())
        })
    }

    /// A bit of a record in a member's ring rots: of one that the newest record there says must be
    /// there. (Of any other nobody could tell that it ever was.) False: there is none.
    pub fn rot_log(&mut self, place: usize, pick: u64) -> bool {
        let area = self.look(|array| ring(array.superblock().areas.log));
        let Some(drive) = self.places[place] else {
            return false;
        };
        let drive = &mut self.world.borrow_mut().drives[drive];
        let mut bytes = vec![0; area.length as usize];
        drive.peek(area.offset, &mut bytes);
        let pages = (0..bytes.len()).step_by(RECORD_ALIGN);
        let records: Vec<(u64, Summary)> = pages
            .filter_map(|at| {
                let at_device = area.offset + at as u64;
                let found = record::summary(&bytes[at..], at_device).ok()?;
                Some((at_device, found))
            })
            .collect();
        let heads = records.iter().map(|(_, record)| record.head);
        let Some(newest) = heads.max_by_key(|head| (head.epoch, head.number)) else {
            return false;
        };
        let needed = newest.first..=newest.complete;
        let records = records.into_iter();
        let needed: Vec<(u64, Summary)> = records
            .filter(|(_, it)| it.head.epoch == newest.epoch && needed.contains(&it.head.number))
            .collect();
        if needed.is_empty() {
            return false;
        }
        let (at, record) = needed[(pick % needed.len() as u64) as usize];
        let at = at + (pick >> 8) % record.bytes as u64;
        drive.rot(at..at + 1);
        drive.faults.rotten_log = true;
        true
    }

    /// No drive's log is damaged.
    pub fn log_can_be_read(&self) -> bool {
        let world = self.world.borrow();
        let mut drives = world.drives.iter();
        !drives.any(|drive| drive.faults.log_is_bad())
    }

    fn crashed_model(&mut self, power: bool, policy: Option<Consistency>, live: &[bool]) {
        let tears = Tears::of(self, policy, live);
        self.unprotected |= tears.unprotected;
        self.model.crashed(power, |block| tears.of_block(block));
        for block in tears.given_up(self) {
            self.model.give_up(block);
        }
    }

    /// The program is gone at this moment; with `power`, so are the drives' caches. Of the drives
    /// in the places of `lose` as many are lost, too, as can be without losing data; with `back`,
    /// drives that were pulled before are there again.
    pub fn crash(&mut self, power: bool, lose: &[usize], back: bool) -> Vec<usize> {
        let live = self.look_if_started(|array| {
            let members = array.members().iter();
            members.map(|m| m.is_live()).collect::<Vec<bool>>()
        });
        let policy = self.look_if_started(|array| array.superblock().consistency);
        self.world.borrow_mut().crash(power);
        let seed = self.world.borrow().seed();
        self.cores = Cores::new(&self.world, &self.pool, self.setup.cores, seed);
        self.answers.lock().expect("one thread").clear();
        self.replies.lock().expect("one thread").clear();
        self.asked.clear();
        self.failed.clear();
        self.settling = false;
        self.stopped = false;
        self.late_from = None;
        self.replayed = false;
        self.spare_blocks(policy);
        if back {
            self.plug_in_again();
            self.refuse_apart();
        }
        let live = live.unwrap_or_default();
        let lost = self.lose(lose, &live);
        self.crashed_model(power, policy, &live);
        self.before_crash = Some((policy, live));
        lost
    }

    /// Pulls the drives of these places as far as all data stays on the others.
    fn lose(&mut self, places: &[usize], live: &[bool]) -> Vec<usize> {
        let newest = |rig: &Rig, drive: usize| {
            let world = rig.world.borrow();
            let copies = import::superblocks(&world.drives[drive]);
            copies.into_iter().flatten().map(|s| s.generation).max()
        };
        // What every live member knows has taken effect; what is newer has not.
        let members = self.places.iter().zip(live);
        let settled = members
            .filter_map(|(place, live)| place.filter(|_| *live))
            .filter_map(|drive| newest(self, drive))
            .min();
        let mut lost = Vec::new();
        for &place in places {
            let Some(drive) = self.places.get(place).copied().flatten() else {
                continue;
            };
            if self.world.borrow().drives[drive].faults.dead.is_some() {
                continue;
            }
            self.world.borrow_mut().drives[drive].faults.dead = Some(DriveError::Gone);
            let assembly = import::look(&self.world.borrow(), &self.plugged);
            let enough = assembly.is_ok_and(|assembly| {
                assembly.enough_members()
                    && Some(assembly.truth.generation) >= settled
                    && self.redundancy_for_bad_blocks(&assembly)
            });
            if enough {
                lost.push(place);
            } else {
                self.world.borrow_mut().drives[drive].faults.dead = None;
            }
        }
        lost
    }

    /// Drives with bad blocks or going astray count as lost when it is counted what may be lost.
    fn redundancy_for_bad_blocks(&self, assembly: &Assembly) -> bool {
        let world = self.world.borrow();
        let members = assembly.members.iter().zip(&assembly.truth.members);
        let good: Vec<bool> = members
            .map(|(drive, record)| {
                let sound = drive.is_some_and(|drive| !world.drives[drive].faults.any());
                sound && record.state == MemberState::Active
            })
            .collect();
        good.chunks(self.geometry.strips())
            .all(|group| group.iter().filter(|good| **good).count() >= self.geometry.data())
    }

    /// Drives that were pulled, or left the array, are there again with what they held.
    pub fn plug_in_again(&mut self) {
        let mut world = self.world.borrow_mut();
        self.returned.clear();
        for &drive in &self.plugged {
            if world.drives[drive].faults.dead.take().is_some() {
                self.returned.push(drive);
            }
        }
    }

    /// A drive that was pulled in the middle of a change may hold one that nobody else has: the
    /// array is refused until it is out again.
    pub fn refuse_apart(&mut self) {
        let apart = match import::look(&self.world.borrow(), &self.plugged) {
            Ok(assembly) => !assembly.diverged.is_empty(),
            Err(_) => true,
        };
        for drive in std::mem::take(&mut self.returned) {
            if apart {
                self.world.borrow_mut().drives[drive].faults.dead = Some(DriveError::Gone);
            }
        }
    }

    fn look_if_started<T: Send + 'static>(
        &mut self,
        look: impl FnOnce(&Array) -> T + Send + 'static,
    ) -> Option<T> {
        let seen = Arc::new(Mutex::new(None));
        let into = seen.clone();
        let now = self.now_ns();
        let look = Box::new(move |view: Option<strake_node::core::View<'_>>| {
            *into.lock().expect("one thread") = view.map(|view| look(view.engine));
        });
        let id = self.cores.id();
        self.cores.message(Message::Look(id, look), now);
        std::mem::take(&mut *seen.lock().expect("one thread"))
    }
}
