//! kill -9 again and again: healthy, degraded and rebuilding arrays under verified load and
//! under a file system, members taken away between the crash and the start.
//!
//! A kill loses no write that a drive has completed. So after each start every block holds what
//! was last answered, or what was in flight; where members are gone, a block in flight may read
//! as an error, and is whole again once written. Then the array is made healthy for the next
//! round, and a scrub finds nothing.
//!
//! `STRAKE_KILLS=N`: so many rounds over all tests (default 10). `STRAKE_SEED=S`: another seed.
//! Arrays that keep no parity log are only killed healthy, and nothing is taken away.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use strake_tests::ledger::Ledger;
use strake_tests::mounts::{self, Mount};
use strake_tests::tools::{self, NbdFio, VERIFY_PLACE};
use strake_tests::{Daemon, MIB, NbdAddress, drives, pattern, proof, wait_until};

const DRIVE_BYTES: u64 = 256 * MIB;
const ROUNDS: usize = 10;
/// Parts of a volume: our writer's and fio's.
const LEDGER: (u64, u64) = (0, 8 * MIB);
const FIO: (u64, u64) = (8 * MIB, 8 * MIB);

/// Rounds of a test that takes so many of ten.
fn rounds(tenths: usize) -> usize {
    let rounds = proof::number_from("STRAKE_KILLS").map_or(ROUNDS, |rounds| rounds as usize);
    (rounds * tenths).div_ceil(10)
}

/// What an array is when it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Healthy,
    Degraded,
    Rebuilding,
}

/// A host with one array, `volume`, killed again and again.
struct Host {
    daemon: Daemon,
    /// Drive text of each member.
    members: Vec<String>,
    /// Members of a group, of which `losses` may be missing.
    group: usize,
    losses: usize,
    drives_made: usize,
    random: fastrand::Rng,
    policy: bool,
    /// Of its first round.
    first: Condition,
}

impl Host {
    fn new(
        level: &[&str],
        (drives, group, losses): (usize, usize, usize),
        first: Condition,
        seed: u64,
    ) -> Host {
        let seed = proof::seed(seed);
        println!("seed {seed}");
        let mut host = Host {
            daemon: Daemon::start(),
            members: Vec::new(),
            group,
            losses,
            drives_made: 0,
            random: fastrand::Rng::with_seed(seed),
            policy: proof::log_exists(),
            first,
        };
        host.members = (0..drives).map(|_| host.new_drive()).collect();
        let mut words = level.to_vec();
        words.extend(proof::log_words("1MiB"));
        host.daemon.create("volume", &words, &host.members);
        host
    }

    fn new_drive(&mut self) -> String {
        let path = self
            .daemon
            .drive(&format!("d{}", self.drives_made), DRIVE_BYTES);
        self.drives_made += 1;
        format!("faulty:{path}")
    }

    /// Each condition in its turn.
    fn condition(&self, round: usize) -> Condition {
        match (self.policy, (round + self.first as usize) % 3) {
            (false, _) | (true, 0) => Condition::Healthy,
            (true, 1) => Condition::Degraded,
            (true, _) => Condition::Rebuilding,
        }
    }

    /// Brings the array into this condition; the member that is not there, if one is not.
    fn enter(&mut self, condition: Condition) -> Option<usize> {
        if condition == Condition::Healthy {
            return None;
        }
        let member = self.random.usize(..self.members.len());
        let index = member.to_string();
        self.daemon.ok(["array", "fail", "volume", &index]);
        if condition == Condition::Rebuilding {
            let spare = self.new_drive();
            // Slow, so that the kill comes in the middle.
            let slow = &self.members[(member + 1) % self.members.len()];
            self.daemon
                .ok(["drive", "fault", slow, "--latency-us", "5000"]);
            self.daemon
                .ok(["array", "replace", "volume", &index, &spare]);
            self.forget(member);
            self.members[member] = spare;
        }
        Some(member)
    }

    /// The file of a member that was replaced.
    fn forget(&self, member: usize) {
        let path = self.members[member].trim_start_matches("faulty:");
        // Taken away already, perhaps.
        let _ = std::fs::remove_file(path);
    }

    /// Takes members' drives away, as many as the level allows beside the one already missing.
    fn take_away(&mut self, missing: Option<usize>) -> Vec<usize> {
        let mut gone = Vec::new();
        if !self.policy {
            return gone;
        }
        for group in 0..self.members.len() / self.group {
            let mut places: Vec<usize> = (group * self.group..(group + 1) * self.group).collect();
            places.retain(|place| Some(*place) != missing);
            let left = self.losses - usize::from(places.len() < self.group);
            self.random.shuffle(&mut places);
            let count = self.random.usize(..=left);
            gone.extend(places.into_iter().take(count));
        }
        for place in &gone {
            self.forget(*place);
        }
        gone
    }

    /// Starts the daemon again; the array must come up by itself.
    fn start(&mut self, what: &str) {
        self.daemon.start_again();
        wait_until("the array has started or failed", || {
            self.daemon.show("volume")["state"] != "starting"
        });
        let show = self.daemon.show("volume");
        assert_ne!(show["state"], "offline", "{what}: {show}");
        self.daemon.wait_for_exports();
        if self.policy {
            self.wait_until_protected();
        }
    }

    fn wait_until_protected(&self) {
        let after = || self.daemon.show("volume")["consistency"]["protected_after_us"].clone();
        wait_until("everything is protected", || !after().is_null());
        println!("  protected after {} us", after());
    }

    /// Rebuilds every member that is not there onto a new drive; then all must hold.
    fn make_healthy(&mut self, missing: Option<usize>, gone: &[usize], what: &str) {
        self.daemon.wait_for_tasks("volume");
        for place in 0..self.members.len() {
            let state = self.daemon.show("volume")["members"][place]["state"].clone();
            if state != "active" {
                let known = missing == Some(place) || gone.contains(&place);
                assert!(known, "{what}: member {place} is {state}");
                let spare = self.new_drive();
                let index = place.to_string();
                self.daemon
                    .ok(["array", "replace", "volume", &index, &spare]);
                self.forget(place);
                self.members[place] = spare;
            }
        }
        self.daemon.say(["array", "wait", "volume"]);
        self.daemon.wait_for_state("volume", "healthy");
        self.daemon.scrub_finds_nothing("volume");
    }
}

/// Kills an array served over NBD under two writers.
///
/// `shape`: drives, members of a group, losses that a group survives. `first`: the array's
/// condition in the first round; the others take their turns.
fn survives_kills(level: &[&str], shape: (usize, usize, usize), first: Condition, tenths: usize) {
    let seed = shape.0 as u64 * 1000 + shape.2 as u64;
    let mut host = Host::new(level, shape, first, seed);
    let address = host.daemon.export_nbd("volume");
    let fio = NbdFio::new(address.uri(), FIO.0, FIO.1);
    let fill = ["--rw=write", "--iodepth=8", "--do_verify=0"];
    fio.run(&[&VERIFY_PLACE[..], &fill].concat());
    let mut ledger = Ledger::new(LEDGER.0, LEDGER.1, seed);
    for round in 0..rounds(tenths) {
        let condition = host.condition(round);
        let missing = host.enter(condition);
        let pause = Duration::from_millis(host.random.u64(50..600));
        write_through(&mut ledger, &fio, &address, || {
            std::thread::sleep(pause);
            host.daemon.kill();
        });
        let gone = host.take_away(missing);
        let what = format!(
            "{level:?} seed {seed} round {round}, {condition:?} ({missing:?}), {gone:?} gone"
        );
        println!("{what}");
        host.start(&what);
        let errors = ledger.check_after_loss(&mut address.connect(), |errors| {
            proof::errors_are_listed(&host.daemon, "volume", errors, &what);
        });
        proof::nothing_is_torn(&host.daemon, "volume", &what);
        assert!(
            errors == 0 || missing.is_some() || !gone.is_empty(),
            "{what}: {errors} errors"
        );
        let verify = ["--rw=write", "--iodepth=8", "--verify_only=1"];
        fio.run(&[&VERIFY_PLACE[..], &verify].concat());
        println!("  nothing lost, {errors} blocks in flight read as errors");
        host.make_healthy(missing, &gone, &what);
        ledger.check(&mut address.connect());
    }
    assert!(ledger.answered_writes() > rounds(tenths) as u64);
}

/// Writes with both until `end` has ended the server.
fn write_through(ledger: &mut Ledger, fio: &NbdFio, address: &NbdAddress, end: impl FnOnce()) {
    let load = ["--rw=randwrite", "--iodepth=8", "--do_verify=0"];
    let endless = ["--norandommap", "--time_based", "--runtime=600"];
    let fio = fio.start(&[&VERIFY_PLACE[..], &load, &endless].concat());
    let never = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| ledger.write_until(address, &never));
        end();
        let told_to_stop = writer.join().expect("the writer saw no wrong answer");
        assert!(!told_to_stop);
    });
    tools::end(fio);
}

#[test]
fn raid5_is_killed_degraded_and_rebuilding() {
    let level = ["5", "--strip-size", "16KiB"];
    survives_kills(&level, (4, 4, 1), Condition::Degraded, 2);
}

#[test]
fn raid6_with_blocks_of_512_is_killed_in_every_condition() {
    let level = ["6", "--strip-size", "8KiB", "--block-size", "512"];
    survives_kills(&level, (6, 6, 2), Condition::Healthy, 3);
}

#[test]
fn raid10_is_killed_rebuilding_and_healthy() {
    let level = ["10", "--strip-size", "16KiB"];
    survives_kills(&level, (4, 2, 1), Condition::Rebuilding, 2);
}

#[test]
fn files_that_were_synced_survive_kills_under_xfs() {
    if mounts::skip_without_mounts("files_that_were_synced_survive_kills_under_xfs") {
        return;
    }
    let mut host = Host::new(
        &["6", "--strip-size", "16KiB"],
        (6, 6, 2),
        Condition::Healthy,
        77,
    );
    let device = attach(&host.daemon);
    tools::run("mkfs.xfs", &["-q", "-f", "-s", "size=4096", &device]);
    let mut files = Files::default();
    let mut device = Some(device);
    for round in 0..rounds(3) {
        let condition = host.condition(round);
        let missing = host.enter(condition);
        let at = device.take().unwrap_or_else(|| attach(&host.daemon));
        let mount = Mount::new(&at, host.daemon.path("mnt"), "xfs");
        let pause = Duration::from_millis(host.random.u64(200..900));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| files.write_until_error(mount.path()));
            std::thread::sleep(pause);
            host.daemon.kill();
            writer.join().expect("the writer ends with the server");
        });
        unmount_dead(mount);
        tools::run("losetup", &["-d", &at]);
        let gone = host.take_away(missing);
        let what = format!("xfs round {round}, {condition:?} ({missing:?}), {gone:?} gone");
        println!("{what}, {} files", files.synced.len());
        host.start(&what);
        let at = attach(&host.daemon);
        zero_torn(&host.daemon, &at);
        let mount = Mount::new(&at, host.daemon.path("mnt"), "xfs");
        files.check(mount.path(), &what);
        mount.unmount();
        tools::run("xfs_repair", &["-n", &at]);
        host.make_healthy(missing, &gone, &what);
        device = Some(at);
    }
    host.daemon.ok(["detach", "volume"]);
}

/// The kernel may still be giving up what it wanted to write.
fn unmount_dead(mount: Mount) {
    wait_until("the dead file system is unmounted", || {
        tools::attempt("umount", &[mount.path()]).status.success()
    });
    mount.forget();
}

/// What was in flight may be lost where members are gone, and reads as an error: as an
/// administrator would, writes zeroes there, so that the file system can be looked at.
fn zero_torn(daemon: &Daemon, device: &str) {
    if !proof::log_exists() {
        return;
    }
    for range in proof::torn_ranges(daemon, "volume") {
        println!("  {range:?} was in flight and is torn");
        drives::overwrite(
            device,
            range.start,
            &vec![0; (range.end - range.start) as usize],
        );
    }
    tools::run("sync", &[device]);
    proof::nothing_is_torn(daemon, "volume", "after writing zeroes");
}

fn attach(daemon: &Daemon) -> String {
    let printed = daemon.say(["attach", "volume"]).stdout;
    printed
        .split(|letter: char| letter.is_whitespace() || "\"',:.".contains(letter))
        .find(|word| word.starts_with("/dev/loop"))
        .unwrap_or_else(|| panic!("no device in: {printed}"))
        .to_owned()
}

/// Files written and synced, by number.
#[derive(Default)]
struct Files {
    next: u64,
    synced: Vec<u64>,
}

impl Files {
    /// Writes files, each synced with its folder, until that fails.
    fn write_until_error(&mut self, folder: &Path) {
        loop {
            let number = self.next;
            self.next += 1;
            if write_synced(&place(folder, number), &content(number)).is_err() {
                return;
            }
            self.synced.push(number);
        }
    }

    /// Panics unless every synced file is there and whole.
    fn check(&self, folder: &Path, what: &str) {
        for number in &self.synced {
            let found = std::fs::read(place(folder, *number))
                .unwrap_or_else(|error| panic!("{what}: synced file {number}: {error}"));
            assert!(
                found == content(*number),
                "{what}: synced file {number} differs"
            );
        }
    }
}

fn place(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("f{number}"))
}

fn content(number: u64) -> Vec<u8> {
    pattern(number, 1 + (number as usize * 7919) % 150_000)
}

fn write_synced(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()?;
    File::open(path.parent().expect("in a folder"))?.sync_all()
}
