//! The life of an array of every level: created, written, losing as many members as it
//! survives, rebuilt, scrubbed, stopped, started, destroyed; what was written is there at
//! every step.

use strake_tests::nbd::Client;
use strake_tests::{Daemon, MIB, drives, pattern};

const DRIVE_BYTES: u64 = 128 * MIB;

/// Written at the start: several stripes of every geometry here, and a part of one.
const WRITTEN_BYTES: usize = 12 * MIB as usize + 4096 * 5;

/// A level at a small size.
struct Case {
    level: &'static [&'static str],
    drives: usize,
    /// Members lost together in the first round, as many as may be, and in the second.
    losses: [&'static [usize]; 2],
    /// As `array show` prints it.
    shown: &'static str,
    /// Members' worth of data, times the groups.
    data_members: u64,
}

/// Strips small enough that the written range has many stripes.
const STRIP: [&str; 2] = ["--strip-size", "16KiB"];

fn live(case: &Case) {
    let daemon = Daemon::start();
    let members = daemon.drives("d", case.drives, DRIVE_BYTES);
    let level: Vec<&str> = case.level.iter().chain(&STRIP).copied().collect();
    daemon.create("life", &level, &members);
    check_shape(&daemon, case);

    let address = daemon.export_nbd("life");
    let mut client = address.connect();
    let mut model = Model::new();
    model.write(&mut client, 0, &pattern(1, WRITTEN_BYTES));
    model.write(&mut client, 4096 * 7, &pattern(2, 4096 * 3));
    client.flush();
    model.check(&mut client);

    for (round, lost) in case.losses.iter().enumerate() {
        lose_and_rebuild(&daemon, &mut client, &mut model, lost, round, case.drives);
    }
    match case.losses[0].is_empty() {
        true => drop(daemon.refused(["array", "scrub", "life"], &["redundancy"])),
        false => daemon.scrub_finds_nothing("life"),
    }
    model.check(&mut client);
    drop(client);

    daemon.ok(["array", "stop", "life"]);
    daemon.wait_for_state("life", "stopped");
    daemon.ok(["array", "start", "life"]);
    daemon.wait_for_exports();
    let mut client = address.connect();
    model.check(&mut client);
    drop(client);
    destroy(&daemon);
}

fn check_shape(daemon: &Daemon, case: &Case) {
    let show = daemon.show("life");
    assert_eq!(show["level"], case.shown);
    assert_eq!(show["state"], "healthy");
    assert_eq!(show["members"].as_array().unwrap().len(), case.drives);
    let size = show["size_bytes"].as_u64().unwrap();
    assert_eq!(size % case.data_members, 0, "whole strips of each member");
    let used = size / case.data_members;
    assert!(used <= DRIVE_BYTES, "more than the drives have: {used}");
    assert!(used >= DRIVE_BYTES / 4, "wastes most of the drives: {used}");
}

fn lose_and_rebuild(
    daemon: &Daemon,
    client: &mut Client,
    model: &mut Model,
    lost: &[usize],
    round: usize,
    members: usize,
) {
    if lost.is_empty() {
        return;
    }
    for member in lost {
        daemon.ok(["array", "fail", "life", &member.to_string()]);
    }
    let show = daemon.show("life");
    assert_eq!(show["state"], "degraded");
    for member in lost {
        assert_eq!(show["members"][member]["state"], "failed");
    }
    model.check(client);
    let seed = 10 + round as u64;
    model.write(client, 4096 * 40, &pattern(seed, 4096 * 30));
    model.write(client, 5 << 20, &pattern(seed + 50, 1 << 20));
    client.flush();
    model.check(client);

    for member in lost {
        let spare = daemon.drive(&format!("spare-{round}-{member}"), DRIVE_BYTES);
        daemon.ok(["array", "replace", "life", &member.to_string(), &spare]);
    }
    daemon.say(["array", "wait", "life"]);
    daemon.wait_for_state("life", "healthy");
    let show = daemon.show("life");
    let active = |member: &serde_json::Value| member["state"] == "active";
    let count = show["members"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|m| active(m))
        .count();
    assert_eq!(count, members);
    model.check(client);
}

fn destroy(daemon: &Daemon) {
    let members = daemon.show("life")["members"].clone();
    daemon.ok(["array", "destroy", "life", "--force"]);
    assert_eq!(daemon.strake(["array", "show", "life"]).code, 1);
    for member in members.as_array().unwrap() {
        let inspect = daemon.ok(["inspect", member["path"].as_str().unwrap()]);
        let copies = inspect["superblock_copies"].clone();
        assert_eq!(copies, serde_json::json!(["absent", "absent"]));
    }
}

/// What must be on the volume: everything behind the written range is zeroes.
struct Model {
    bytes: Vec<u8>,
}

impl Model {
    fn new() -> Model {
        Model {
            bytes: vec![0; 16 << 20],
        }
    }

    fn write(&mut self, client: &mut Client, offset: usize, data: &[u8]) {
        for (index, part) in data.chunks(1 << 20).enumerate() {
            client.write((offset + index * (1 << 20)) as u64, part);
        }
        self.bytes[offset..offset + data.len()].copy_from_slice(data);
    }

    fn check(&self, client: &mut Client) {
        for (index, expected) in self.bytes.chunks(1 << 20).enumerate() {
            let found = client.read((index as u64) << 20, expected.len());
            if found != expected {
                let at = found.iter().zip(expected).position(|(a, b)| a != b);
                panic!("MiB {index} of the volume differs at byte {at:?}");
            }
        }
    }
}

#[test]
fn raid0() {
    live(&Case {
        level: &["0"],
        drives: 3,
        losses: [&[], &[]],
        shown: "raid0",
        data_members: 3,
    });
}

#[test]
fn raid1_of_three_copies_survives_two() {
    live(&Case {
        level: &["1"],
        drives: 3,
        losses: [&[0, 2], &[1]],
        shown: "raid1",
        data_members: 1,
    });
}

#[test]
fn raid10_survives_one_of_each_pair() {
    live(&Case {
        level: &["10"],
        drives: 6,
        losses: [&[0, 3, 4], &[1, 2, 5]],
        shown: "raid10",
        data_members: 3,
    });
}

#[test]
fn raid10_of_three_copies_survives_two_of_each() {
    live(&Case {
        level: &["10", "--copies", "3"],
        drives: 6,
        losses: [&[0, 1, 4, 5], &[2, 3]],
        shown: "raid10",
        data_members: 2,
    });
}

#[test]
fn raid5() {
    live(&Case {
        level: &["5"],
        drives: 3,
        losses: [&[1], &[2]],
        shown: "raid5",
        data_members: 2,
    });
}

#[test]
fn raid6() {
    live(&Case {
        level: &["raid6"],
        drives: 5,
        losses: [&[0, 4], &[1, 2]],
        shown: "raid6",
        data_members: 3,
    });
}

#[test]
fn raid7_3() {
    live(&Case {
        level: &["7.3"],
        drives: 6,
        losses: [&[0, 2, 5], &[1, 3, 4]],
        shown: "raid7.3",
        data_members: 3,
    });
}

#[test]
fn raid50_survives_one_of_each_group() {
    live(&Case {
        level: &["50", "--group-size", "3"],
        drives: 6,
        losses: [&[0, 5], &[2, 3]],
        shown: "raid50",
        data_members: 4,
    });
}

#[test]
fn raid60_survives_two_of_each_group() {
    live(&Case {
        level: &["60", "--group-size", "4"],
        drives: 8,
        losses: [&[0, 3, 4, 5], &[1, 2, 6, 7]],
        shown: "raid60",
        data_members: 4,
    });
}

#[test]
fn raid70_survives_three_of_each_group() {
    live(&Case {
        level: &["70", "--group-size", "5"],
        drives: 10,
        losses: [&[0, 1, 2, 7, 8, 9], &[3, 4, 5]],
        shown: "raid70",
        data_members: 4,
    });
}

#[test]
fn n_plus_m_of_four_and_four() {
    live(&Case {
        level: &["n+m", "--parity", "4"],
        drives: 8,
        losses: [&[0, 1, 2, 3], &[2, 5, 6, 7]],
        shown: "n+m",
        data_members: 4,
    });
}

/// The most drives and the most parities that there may be.
#[test]
fn n_plus_m_of_thirty_two_and_thirty_two() {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 64, 16 * MIB);
    let level = ["n+m", "--parity", "32", "--strip-size", "4KiB"];
    daemon.create("wide", &level, &members);
    let mut client = daemon.export_nbd("wide").connect();
    let mut model = Model::new();
    model.write(&mut client, 0, &pattern(1, WRITTEN_BYTES));
    for member in 16..48 {
        daemon.ok(["array", "fail", "wide", &member.to_string()]);
    }
    model.check(&mut client);
    model.write(&mut client, 4096 * 3, &pattern(2, 4096 * 100));
    model.check(&mut client);
    daemon.refused(["array", "fail", "wide", "0"], &["--force"]);
}

/// Requests of one sector, at places that no larger block begins at.
#[test]
fn blocks_of_512_healthy_and_degraded() {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 4, DRIVE_BYTES);
    let level = ["6", "--block-size", "512", "--strip-size", "4KiB"];
    daemon.create("small", &level, &members);
    let mut client = daemon.export_nbd("small").connect();
    let mut model = Model::new();
    let mut random = fastrand::Rng::with_seed(512);
    for round in 0..3 {
        for _ in 0..200 {
            let offset = 512 * random.usize(..8000);
            let length = 512 * random.usize(1..40);
            model.write(&mut client, offset, &pattern(random.u64(..), length));
        }
        model.check(&mut client);
        if round < 2 {
            daemon.ok(["array", "fail", "small", &(round * 2).to_string()]);
        }
    }
}

/// A block that changed on a drive behind everybody's back.
#[test]
fn a_scrub_finds_parity_that_does_not_hold_and_repairs_it_when_asked() {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 4, DRIVE_BYTES);
    daemon.create("rot", &["5", "--strip-size", "16KiB"], &members);
    let mut client = daemon.export_nbd("rot").connect();
    let mut model = Model::new();
    model.write(&mut client, 0, &pattern(1, WRITTEN_BYTES));
    client.flush();
    daemon.scrub_finds_nothing("rot");
    let start = random_data_start(&members[2]);
    drives::overwrite(&members[2], start + 4096, &pattern(5, 4096));

    daemon.strake(["array", "scrub", "rot", "--wait"]);
    let last = daemon.show("rot")["last_scrub"].clone();
    assert_eq!(last["mismatches"], 1, "{last}");
    assert_eq!(last["repaired"], 0, "{last}");
    daemon.strake(["array", "scrub", "rot", "--repair", "--wait"]);
    let last = daemon.show("rot")["last_scrub"].clone();
    assert_eq!(last["repaired"], 1, "{last}");
    daemon.scrub_finds_nothing("rot");
}

#[test]
fn the_smallest_drive_counts_and_that_is_said() {
    let daemon = Daemon::start();
    let mut members = daemon.drives("d", 3, 128 * MIB);
    members.push(daemon.drive("big", 256 * MIB));
    let reply = daemon.say(strake_tests::daemon::create_arguments(
        "uneven",
        &["5"],
        &members,
    ));
    reply.says(&["small"]);
    let show = daemon.show("uneven");
    let unused = show["geometry"]["unused_bytes"].as_u64().unwrap();
    assert!(unused >= 128 * MIB, "{unused}");
}

#[test]
fn a_fresh_array_reads_as_zeroes_without_any_initial_sync() {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 4, 128 * MIB);
    for member in &members {
        drives::overwrite(member, 16 * MIB, &pattern(9, 4 << 20));
    }
    daemon.create("fresh", &["6"], &members);
    let show = daemon.show("fresh");
    assert_eq!(show["tasks"].as_array().unwrap().len(), 0);
    assert_eq!(show["regions"]["clean"], 0);
    let mut client = daemon.export_nbd("fresh").connect();
    for offset in [0, 10 * MIB, 30 * MIB] {
        let found = client.read(offset, 1 << 20);
        assert!(found.iter().all(|byte| *byte == 0), "old bytes at {offset}");
    }
    // A small write must not let the old bytes beside it through.
    client.write(20 * MIB, &pattern(3, 4096));
    let around = client.read(20 * MIB, 1 << 20);
    assert_eq!(around[..4096], pattern(3, 4096));
    assert!(around[4096..].iter().all(|byte| *byte == 0));
}

#[test]
fn arrays_are_addressed_by_uuid_and_commands_say_when_nothing_changed() {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 3, 128 * MIB);
    let created = daemon.create("named", &["5"], &members);
    let uuid = created["array"]["uuid"].as_str().unwrap().to_owned();
    assert_eq!(daemon.show(&uuid)["name"], "named");
    assert_eq!(created["changed"], true);
    assert_eq!(daemon.ok(["array", "stop", &uuid])["changed"], true);
    assert_eq!(daemon.ok(["array", "stop", &uuid])["changed"], false);
    assert_eq!(daemon.ok(["array", "start", "named"])["changed"], true);
    assert_eq!(daemon.ok(["array", "start", "named"])["changed"], false);
    let list = daemon.ok(["array", "list"]);
    assert_eq!(list["arrays"][0]["name"], "named");
}

#[test]
fn a_member_that_dies_under_writes_is_dropped_and_nothing_is_lost() {
    let daemon = Daemon::start();
    let mut members = daemon.drives("d", 5, DRIVE_BYTES);
    members[2] = format!("faulty:{}", members[2]);
    daemon.create("dying", &["6", "--strip-size", "16KiB"], &members);
    let mut client = daemon.export_nbd("dying").connect();
    daemon.ok(["drive", "fault", &members[2], "--die-after", "40"]);
    let mut model = Model::new();
    model.write(&mut client, 0, &pattern(1, WRITTEN_BYTES));
    client.flush();
    model.check(&mut client);
    daemon.wait_for_state("dying", "degraded");
    assert_eq!(daemon.show("dying")["members"][2]["state"], "failed");
    let spare = daemon.drive("spare", DRIVE_BYTES);
    daemon.say(["array", "replace", "dying", "2", &spare, "--wait"]);
    daemon.wait_for_state("dying", "healthy");
    model.check(&mut client);
    daemon.scrub_finds_nothing("dying");
}

#[test]
fn read_errors_are_answered_from_parity_rewritten_and_counted() {
    let daemon = Daemon::start();
    let mut members = daemon.drives("d", 4, DRIVE_BYTES);
    members[1] = format!("faulty:{}", members[1]);
    daemon.create("worn", &["5", "--strip-size", "16KiB"], &members);
    let mut client = daemon.export_nbd("worn").connect();
    let mut model = Model::new();
    model.write(&mut client, 0, &pattern(1, WRITTEN_BYTES));
    client.flush();
    // Somewhere in the data that was just written, wherever the data area begins.
    let ranges = bad_ranges(&members[1]);
    let mut words = vec!["drive", "fault", &members[1]];
    for range in &ranges {
        words.extend(["--bad-range", range.as_str()]);
    }
    daemon.ok(words);
    model.check(&mut client);
    let member = daemon.show("worn")["members"][1].clone();
    assert!(member["read_errors"].as_u64().unwrap() >= 1, "{member}");
    assert_eq!(member["state"], "active", "a few errors are survived");
    // Rewritten: the same blocks now read from the drive itself, without new errors.
    let errors = member["read_errors"].clone();
    model.check(&mut client);
    let member = daemon.show("worn")["members"][1].clone();
    assert_eq!(member["read_errors"], errors);
}

/// Three blocks of what is written to the data area of a drive.
fn bad_ranges(faulty: &str) -> Vec<String> {
    let data_start = random_data_start(faulty.strip_prefix("faulty:").unwrap());
    (0..3)
        .map(|index| format!("{}:4096", data_start + index * 5 * 4096))
        .collect()
}

/// The first MiB of a drive that begins with random bytes: metadata is not random.
fn random_data_start(drive: &str) -> u64 {
    (0..DRIVE_BYTES / MIB)
        .map(|mib| mib * MIB)
        .find(|offset| {
            let bytes = drives::read(drive, *offset, 4096 * 16);
            bytes.chunks(4096).all(|block| distinct(block) > 200)
        })
        .expect("written data lies on the drive")
}

fn distinct(block: &[u8]) -> usize {
    block.iter().collect::<std::collections::HashSet<_>>().len()
}

/// Every policy, chosen at creation and changed while the array runs; and the log's size.
#[test]
fn policies_are_chosen_at_creation_and_changed_online() {
    let mut daemon = Daemon::start();
    let members = daemon.drives("d", 4, DRIVE_BYTES);
    let keeping = |daemon: &Daemon| daemon.show("life")["consistency"].clone();
    for policy in ["log-all", "resync", "none", "log"] {
        daemon.create("life", &["6", "--policy", policy], &members);
        assert_eq!(keeping(&daemon)["policy"], policy);
        destroy(&daemon);
    }
    daemon.create("life", &["6", "--log-size", "7M"], &members);
    assert_eq!(keeping(&daemon)["policy"], "log", "the default");
    assert_eq!(keeping(&daemon)["log_size_bytes"], 7 * MIB);
    let torn = daemon.say(["array", "torn", "life"]);
    torn.says(&["no block reads as an error"]);

    let address = daemon.export_nbd("life");
    let mut client = address.connect();
    let mut model = Model::new();
    for (seed, policy) in ["resync", "none", "log-all", "log"].into_iter().enumerate() {
        model.write(&mut client, seed << 20, &pattern(seed as u64, 1 << 20));
        let outcome = daemon.ok(["array", "set", "life", "--policy", policy]);
        assert_eq!(outcome["changed"], true);
        assert_eq!(outcome["array"]["consistency"]["policy"], policy);
        let again = daemon.ok(["array", "set", "life", "--policy", policy]);
        assert_eq!(again["changed"], false);
        model.write(&mut client, (seed << 20) + 4096, &pattern(50, 8192));
        model.check(&mut client);
    }
    drop(client);
    let show = daemon.say(["array", "show", "life"]);
    show.says(&["policy", "log, 7 MiB a member", "last start", "CACHE"]);
    // What was set last is what the drives say.
    daemon.ok(["array", "set", "life", "--policy", "log-all"]);
    daemon.kill();
    daemon.start_again();
    daemon.wait_for_state("life", "healthy");
    daemon.wait_for_exports();
    assert_eq!(keeping(&daemon)["policy"], "log-all");
    model.check(&mut address.connect());
    daemon.scrub_finds_nothing("life");
}

/// The cache of a member's drive is shown as the kernel or the administrator says.
#[test]
fn a_drives_write_cache_is_shown() {
    let daemon = Daemon::start();
    let mut members = daemon.drives("d", 3, DRIVE_BYTES);
    members[0] = format!("cache=none:{}", members[0]);
    daemon.create("life", &["5"], &members);
    let show = daemon.show("life");
    let volatile = |member: usize| show["members"][member]["volatile_cache"].clone();
    assert_eq!(
        (volatile(0).as_bool(), volatile(1).as_bool()),
        (Some(false), Some(true))
    );
    let drive = daemon.ok(["drive", "show", &members[1]]);
    assert_eq!(drive["drive"]["volatile_cache"], true);
    daemon.say(["drive", "list"]).says(&["CACHE", "volatile"]);
    destroy(&daemon);
}
