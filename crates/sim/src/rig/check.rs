//! What must hold: contents, parity, rest, a clean stop.

use super::*;

/// Bytes of one request at most in a whole read of the volume.
const VERIFY_BYTES: u64 = 1 << 20;

impl Rig {
    /// Reads every row that was ever written, and some others, and compares; every block holds
    /// from now on what was found. A block found torn reads as an error from now on.
    ///
    /// # Errors
    /// A block with wrong content.
    pub fn verify(&mut self) -> Outcome {
        self.quiesce()?;
        // While copies or parity are not true, what is read now is not what is read later.
        let resync = self.look(|array| array.region_counts()[3]) > 0;
        self.settling = !self.errors_allowed;
        self.doubtful = resync || self.unreadable();
        self.torn = 0;
        let ranges = self.interesting();
        let result = self.read_all(&ranges).and_then(|()| {
            let failed = std::mem::take(&mut self.failed);
            failed
                .into_iter()
                .flatten()
                .try_for_each(|block| self.read_alone(block))
        });
        self.settling = false;
        result
    }

    /// Blocks that cannot be read may be readable again later.
    fn unreadable(&self) -> bool {
        let world = self.world.borrow();
        let mut drives = self.places.iter().flatten();
        drives.any(|&drive| !world.drives[drive].faults.bad_reads.is_empty())
    }

    /// Blocks of all rows that were ever written, and a few others.
    fn interesting(&mut self) -> Vec<Range<u64>> {
        const OTHERS: u64 = 6;
        let size = self.block_bytes();
        let geometry = &self.geometry;
        let mut blocks: std::collections::BTreeSet<u64> = self.model.touched().collect();
        if blocks.len() as u64 * 2 > self.model.len() {
            return std::iter::once(0..self.model.len()).collect();
        }
        let mates = blocks.iter().flat_map(|&block| {
            let piece = geometry.piece(block * size, size);
            let strips = 0..geometry.data();
            strips.map(move |s| geometry.volume_offset(piece.stripe, s, piece.start) / size)
        });
        let mates: Vec<u64> = mates.collect();
        blocks.extend(mates);
        for _ in 0..OTHERS {
            self.verified += 1;
            blocks.insert(self.verified.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.model.len());
        }
        let most = VERIFY_BYTES / size;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for block in blocks {
            match ranges.last_mut() {
                Some(last) if last.end == block && last.end - last.start < most => last.end += 1,
                _ => ranges.push(block..block + 1),
            }
        }
        ranges
    }

    fn read_all(&mut self, ranges: &[Range<u64>]) -> Outcome {
        let most = VERIFY_BYTES / self.block_bytes();
        for range in ranges {
            let mut block = range.start;
            while block < range.end {
                let end = (block + most).min(range.end);
                self.submit(Operation::Read, block..end, false);
                block = end;
                if self.under_way() >= 16 {
                    self.run_until("a read", |rig| rig.under_way() < 16)?;
                }
            }
        }
        self.quiesce()
    }

    /// A read of several blocks failed: which of them it was.
    fn read_alone(&mut self, block: u64) -> Outcome {
        let allowed = self.model.may_be_torn(block);
        self.submit(Operation::Read, block..block + 1, false);
        self.quiesce()?;
        if self.failed.pop().is_some() {
            self.torn += 1;
            if allowed && !self.doubtful {
                self.model.settle(block, TORN, self.replayed);
            }
        }
        Ok(())
    }

    /// Compares data and parity as they lie on the drives, by arithmetic of our own. Every member
    /// is active and nothing is under way.
    ///
    /// # Errors
    /// The first row that does not hold.
    pub fn check_parity(&mut self) -> Outcome {
        let states = self.look(|array| {
            let regions = array.geometry().regions() as u32;
            (0..regions)
                .map(|region| array.region_is_written(region))
                .collect::<Vec<bool>>()
        });
        let offset = self.look(|array| array.superblock().areas.data.offset);
        let drives: Vec<usize> = self
            .places
            .iter()
            .map(|place| place.expect("every place has its drive"))
            .collect();
        parity::check(
            &self.world.borrow(),
            &self.geometry,
            &drives,
            offset,
            &states,
        )
    }

    /// Nothing is under way: all memory is back, nobody holds anything.
    ///
    /// # Errors
    /// What is still held.
    pub fn check_rest(&mut self) -> Outcome {
        self.quiesce()?;
        // Long work and the saving of metadata take memory, too, and give it back.
        self.run_until("rest, with all of the pool free,", |rig| {
            let free = rig.pool.bytes_free() == rig.pool.bytes_total();
            free && !rig.look(|array| array.busy())
        })?;
        let leaked = self.look(|array| array.held_at_rest());
        if let Some(what) = leaked {
            return Err(format!("at rest the engine still holds {what}"));
        }
        Ok(())
    }

    /// Waits until every request has been answered, whatever long work goes on.
    ///
    /// # Errors
    /// Those of [`Rig::quiesce`].
    pub fn check_rest_under_work(&mut self) -> Outcome {
        self.quiesce()?;
        match self.model.under_way() {
            0 => Ok(()),
            left => Err(format!("{left} requests are under way for the model alone")),
        }
    }

    /// After a clean stop: every member holds the same superblock twice, clean, and no region is
    /// dirty.
    ///
    /// # Errors
    /// What is not so.
    pub fn check_stopped(&self) -> Outcome {
        let world = self.world.borrow();
        let mut first: Option<Superblock> = None;
        for (place, drive) in self.places.iter().enumerate() {
            let Some(drive) = drive else { continue };
            let faults = &world.drives[*drive].faults;
            if self.stopped_without.contains(&place) || faults.damaged {
                continue;
            }
            for (copy, superblock) in import::superblocks(&world.drives[*drive])
                .into_iter()
                .enumerate()
            {
                let superblock =
                    superblock.map_err(|error| format!("member {place} copy {copy}: {error}"))?;
                if superblock.state != RunState::Clean {
                    return Err(format!(
                        "member {place} copy {copy} is not clean after a stop"
                    ));
                }
                let first = first.get_or_insert_with(|| superblock.clone());
                if !first.same_array_state(&superblock) {
                    return Err(format!(
                        "member {place} copy {copy} differs from the first member's"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Scrubs and returns the mismatches, repairs and errors found.
    ///
    /// # Errors
    /// Those of the steps.
    pub fn scrub(&mut self, repair: bool) -> Outcome<(u64, u64, u64)> {
        self.do_command(Command::Scrub { repair })?;
        self.run_until("the end of the scrub", |rig| {
            rig.look(|array| array.tasks().is_empty())
        })?;
        let report = self
            .look(|array| array.last_scrub())
            .ok_or("the scrub left no report")?;
        Ok((report.mismatches, report.repaired, report.errors))
    }

    /// A scrub that must find nothing.
    ///
    /// # Errors
    /// That it found something.
    pub fn scrub_clean(&mut self) -> Outcome {
        match self.scrub(false)? {
            (0, _, 0) => Ok(()),
            found => Err(format!(
                "a scrub of a quiet array found (mismatches, repaired, errors) {found:?}"
            )),
        }
    }

    /// Waits until every member is active and no long work runs.
    ///
    /// # Errors
    /// Those of [`Rig::run_until`].
    pub fn wait_healthy(&mut self) -> Outcome {
        self.run_until("the end of all rebuilds", |rig| {
            rig.look(|array| {
                array
                    .members()
                    .iter()
                    .all(|m| m.state == MemberState::Active)
                    && array.tasks().is_empty()
                    && array.region_counts()[3] == 0
            })
        })?;
        let left = self.look(|array| array.redundancy_left());
        if left != Some(usize::from(self.setup.shape.parity)) {
            return Err(format!(
                "all members are active and the redundancy left is {left:?}"
            ));
        }
        Ok(())
    }
}
