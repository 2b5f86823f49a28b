//! kill -9 of the daemon under verified load: nothing durable is lost, arrays and exports
//! come back by themselves, long work goes on where it was.

use std::sync::atomic::AtomicBool;
use std::time::Duration;
use strake_tests::ledger::Ledger;
use strake_tests::tools::{self, NbdFio, VERIFY_PLACE};
use strake_tests::{Daemon, MIB, NbdAddress, drives, pattern, wait_until};

const ROUNDS: u32 = 20;

/// Parts of the volume: our writer's, fio's, and one where nothing is written after the start.
const LEDGER: (u64, u64) = (0, 24 * MIB);
const FIO: (u64, u64) = (24 * MIB, 24 * MIB);
const QUIET: (u64, u64) = (48 * MIB, 24 * MIB);

/// A test's writers and what must be where.
struct Load {
    ledger: Ledger,
    fio: NbdFio,
    quiet: NbdFio,
}

impl Load {
    fn prepare(address: &NbdAddress, seed: u64) -> Load {
        println!("seed {seed}");
        let fio = NbdFio::new(address.uri(), FIO.0, FIO.1);
        let quiet = NbdFio::new(address.uri(), QUIET.0, QUIET.1);
        for part in [&fio, &quiet] {
            part.run(
                &[
                    &VERIFY_PLACE[..],
                    &["--rw=write", "--iodepth=8", "--do_verify=0"],
                ]
                .concat(),
            );
        }
        Load {
            ledger: Ledger::new(LEDGER.0, LEDGER.1, seed),
            fio,
            quiet,
        }
    }

    /// Writes with both until `end` has ended the server.
    fn write_through(&mut self, address: &NbdAddress, end: impl FnOnce()) {
        let fio = self.fio.start(
            &[
                &VERIFY_PLACE[..],
                &["--rw=randwrite", "--iodepth=8", "--do_verify=0"],
                &["--norandommap", "--time_based", "--runtime=600"],
            ]
            .concat(),
        );
        let never = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| self.ledger.write_until(address, &never));
            end();
            let told_to_stop = writer.join().expect("the writer saw no wrong answer");
            assert!(!told_to_stop);
        });
        tools::end(fio);
    }

    /// Reads all parts back.
    fn check(&mut self, address: &NbdAddress) {
        self.ledger.check(&mut address.connect());
        for part in [&self.fio, &self.quiet] {
            part.run(
                &[
                    &VERIFY_PLACE[..],
                    &["--rw=write", "--iodepth=8", "--verify_only=1"],
                ]
                .concat(),
            );
        }
    }
}

fn pause(random: &mut fastrand::Rng) {
    std::thread::sleep(Duration::from_millis(random.u64(100..700)));
}

/// Kills and restarts under load, checking everything after each; then loses as many members
/// as the level survives, so that parity must be right as well.
fn survives_kills(level: &[&str], drives: usize, losses: &[&str], rounds: u32, seed: u64) {
    let mut daemon = Daemon::start();
    let members = daemon.drives("d", drives, 128 * MIB);
    daemon.create("volume", level, &members);
    let address = daemon.export_nbd("volume");
    let mut load = Load::prepare(&address, seed);
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..rounds {
        load.write_through(&address, || {
            pause(&mut random);
            daemon.kill();
        });
        daemon.start_again();
        daemon.wait_for_exports();
        load.check(&address);
        println!("round {round}: nothing lost");
    }
    assert!(load.ledger.answered_writes() > u64::from(rounds));
    daemon.wait_for_tasks("volume");
    daemon.scrub_finds_nothing("volume");
    for member in losses {
        daemon.ok(["array", "fail", "volume", member]);
    }
    load.check(&address);
}

#[test]
fn raid6_under_load_survives_twenty_kills() {
    let level = ["6", "--strip-size", "16KiB"];
    survives_kills(&level, 6, &["0", "3"], ROUNDS, 61);
}

#[test]
fn raid5_under_load_survives_kills() {
    survives_kills(&["5", "--strip-size", "4KiB"], 4, &["2"], 6, 51);
}

#[test]
fn raid10_under_load_survives_kills() {
    survives_kills(&["10"], 4, &["0", "3"], 6, 101);
}

#[test]
fn n_plus_m_with_blocks_of_512_under_load_survives_kills() {
    let level = ["n+m", "--parity", "3", "--block-size", "512"];
    survives_kills(&level, 7, &["1", "2", "6"], 6, 43);
}

#[test]
fn an_unclean_stop_is_resynced_by_itself() {
    let mut daemon = Daemon::start();
    let members = daemon.drives("d", 5, 128 * MIB);
    daemon.create("volume", &["6"], &members);
    let address = daemon.export_nbd("volume");
    let mut load = Load::prepare(&address, 7);
    load.write_through(&address, || {
        std::thread::sleep(Duration::from_millis(400));
        daemon.kill();
    });
    daemon.start_again();
    daemon.wait_for_exports();
    daemon.wait_for_tasks("volume");
    wait_until("no region needs a resync", || {
        daemon.show("volume")["regions"]["needs_resync"] == 0
    });
    daemon.scrub_finds_nothing("volume");
}

#[test]
fn a_clean_stop_leaves_nothing_to_resync() {
    let mut daemon = Daemon::start();
    let members = daemon.drives("d", 4, 128 * MIB);
    daemon.create("volume", &["5"], &members);
    let address = daemon.export_nbd("volume");
    address.connect().write(0, &pattern(1, 1 << 20));
    daemon.stop();
    daemon.start_again();
    daemon.wait_for_exports();
    let regions = daemon.show("volume")["regions"].clone();
    assert_eq!(regions["needs_resync"], 0, "{regions}");
    assert_eq!(regions["dirty"], 0, "{regions}");
    let found = address.connect().read(0, 1 << 20);
    assert_eq!(found, pattern(1, 1 << 20));
}

#[test]
fn a_stopped_array_stays_stopped_and_its_export_waits() {
    let mut daemon = Daemon::start();
    let members = daemon.drives("d", 3, 128 * MIB);
    daemon.create("volume", &["5"], &members);
    daemon.export_nbd("volume");
    daemon.ok(["array", "stop", "volume"]);
    daemon.kill();
    daemon.start_again();
    daemon.wait_for_state("volume", "stopped");
    let list = daemon.ok(["export", "list"]);
    assert_eq!(list["exports"][0]["state"], "waiting");
    daemon.ok(["array", "start", "volume"]);
    daemon.wait_for_exports();
}

/// A rebuild that is killed goes on behind what was recorded as done: what lies below is not
/// touched again, and all of it is right in the end.
#[test]
fn a_killed_rebuild_goes_on_where_it_was() {
    let mut daemon = Daemon::start();
    let mut members = daemon.drives("d", 5, 256 * MIB);
    members[0] = format!("faulty:{}", members[0]);
    daemon.create("volume", &["6"], &members);
    let address = daemon.export_nbd("volume");
    fill(&daemon, &address);
    zero_ledger(&address);
    let mut load = Load::prepare(&address, 9);
    // Degraded and dirty at once would need somebody's word to start again.
    wait_until("no region is dirty", || {
        daemon.show("volume")["regions"]["dirty"] == 0
    });
    // Slow enough that the kill comes in the middle.
    daemon.ok(["drive", "fault", &members[0], "--latency-us", "20000"]);
    daemon.ok(["array", "fail", "volume", "1"]);
    let spare = daemon.drive("spare", 256 * MIB);
    daemon.ok(["array", "replace", "volume", "1", &spare]);
    wait_until("a part is recorded as rebuilt", || {
        rebuilt_bytes(&daemon, &members[2]) > 2 * MIB
    });
    daemon.kill();

    let marked = data_start(&daemon, &spare) + MIB;
    let rebuilt = drives::read(&spare, marked, 4096);
    drives::overwrite(&spare, marked, &pattern(1, 4096));
    daemon.start_again();
    daemon.wait_for_exports();
    daemon.say(["array", "wait", "volume"]);
    daemon.wait_for_state("volume", "healthy");
    let found = drives::read(&spare, marked, 4096);
    assert_eq!(found, pattern(1, 4096), "the rebuild began from zero again");
    drives::overwrite(&spare, marked, &rebuilt);

    daemon.scrub_finds_nothing("volume");
    daemon.ok(["array", "fail", "volume", "0"]);
    daemon.ok(["array", "fail", "volume", "4"]);
    load.check(&address);
}

/// What the superblock of a member says of member 1: "..., in sync below N bytes" (or MiB,
/// with the bytes in parentheses).
fn rebuilt_bytes(daemon: &Daemon, drive: &str) -> u64 {
    let text = superblock_field(daemon, drive, "member 1");
    let Some((_, below)) = text.split_once("in sync below ") else {
        return 0;
    };
    let bytes = below.split_once('(').map_or(below, |(_, bytes)| bytes);
    first_number(bytes)
}

/// Where the data area of a member begins.
fn data_start(daemon: &Daemon, drive: &str) -> u64 {
    let text = superblock_field(daemon, drive, "area: data");
    first_number(text.trim_start_matches("byte "))
}

fn superblock_field(daemon: &Daemon, drive: &str, name: &str) -> String {
    let inspect = daemon.ok(["inspect", drive]);
    let fields = inspect["superblock"].as_array().expect("fields");
    let field = fields.iter().find(|field| field["name"] == name);
    let value = field.and_then(|field| field["value"].as_str());
    value.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

fn first_number(text: &str) -> u64 {
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().expect("a number")
}

/// Unwritten regions need no rebuild: something must be everywhere.
fn fill(daemon: &Daemon, address: &NbdAddress) {
    let size = daemon.show("volume")["size_bytes"].as_u64().unwrap();
    NbdFio::new(address.uri(), 0, size).run(&["--rw=write", "--bs=1m", "--iodepth=4"]);
}

/// The ledger begins with blocks of zeroes.
fn zero_ledger(address: &NbdAddress) {
    let mut client = address.connect();
    for mib in 0..LEDGER.1 / MIB {
        client.write(LEDGER.0 + mib * MIB, &vec![0; 1 << 20]);
    }
    client.flush();
}

#[test]
fn a_rebuild_under_load_ends_with_the_right_content() {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 5, 256 * MIB);
    daemon.create("volume", &["6"], &members);
    let address = daemon.export_nbd("volume");
    fill(&daemon, &address);
    zero_ledger(&address);
    let mut ledger = Ledger::new(LEDGER.0, LEDGER.1, 77);
    daemon.ok(["array", "fail", "volume", "0"]);
    daemon.ok(["array", "fail", "volume", "2"]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| ledger.write_until(&address, &stop));
        for member in ["0", "2"] {
            let spare = daemon.drive(&format!("spare{member}"), 256 * MIB);
            daemon.ok(["array", "replace", "volume", member, &spare]);
        }
        daemon.say(["array", "wait", "volume"]);
        daemon.wait_for_state("volume", "healthy");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(writer.join().unwrap(), "the connection broke");
    });
    ledger.check(&mut address.connect());
    daemon.scrub_finds_nothing("volume");
    daemon.ok(["array", "fail", "volume", "1"]);
    daemon.ok(["array", "fail", "volume", "3"]);
    ledger.check(&mut address.connect());
}
