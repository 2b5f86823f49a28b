//! Arrays from their drives alone, on a host that has never seen them; and drives that are
//! not what they seem.

use strake_tests::drives::{self, unchanged};
use strake_tests::superblock;
use strake_tests::{Daemon, MIB, NbdAddress, pattern};

const DRIVE_BYTES: u64 = 128 * MIB;

/// A stopped RAID 6 of five with something on it, and a daemon that has never seen it.
fn foreign_array() -> (Daemon, Vec<String>) {
    let mut daemon = Daemon::start();
    let members = daemon.drives("d", 5, DRIVE_BYTES);
    daemon.create("data", &["6"], &members);
    write_pattern(&daemon, 1);
    daemon.ok(["array", "stop", "data"]);
    daemon.move_to_new_host();
    (daemon, members)
}

fn write_pattern(daemon: &Daemon, seed: u64) {
    let mut client = daemon.export_nbd("data").connect();
    client.write(0, &pattern(seed, 4 << 20));
    client.flush();
}

/// Where `write_pattern` exported the array.
fn address(daemon: &Daemon) -> NbdAddress {
    NbdAddress {
        socket: daemon.run_dir().join("data.nbd"),
        name: "data".into(),
    }
}

fn check_pattern(daemon: &Daemon, array: &str, seed: u64) {
    let mut client = daemon.export_nbd(array).connect();
    assert_eq!(client.read(0, 4 << 20), pattern(seed, 4 << 20));
}

fn import<'a>(array: &'a [&'a str], members: &'a [String]) -> Vec<&'a str> {
    let mut words = vec!["array", "import"];
    words.extend(array);
    words.push("--drives");
    words.extend(members.iter().map(String::as_str));
    words
}

#[test]
fn another_host_lists_and_imports_from_drives_alone() {
    let (daemon, members) = foreign_array();
    let list = unchanged(&members, || daemon.ok(import(&[], &members)));
    let candidate = &list["arrays"][0];
    assert_eq!(candidate["name"], "data");
    assert_eq!(candidate["importable"], true);
    assert_eq!(candidate["found"].as_array().unwrap().len(), 5);
    daemon.ok(import(&["data"], &members));
    assert_eq!(daemon.show("data")["state"], "healthy");
    check_pattern(&daemon, "data", 1);
}

#[test]
fn the_order_of_the_drives_does_not_matter_and_foreign_ones_are_ignored() {
    let (daemon, members) = foreign_array();
    let mut given: Vec<String> = members.iter().rev().cloned().collect();
    given.insert(2, daemon.drive("blank", DRIVE_BYTES));
    daemon.ok(import(&["data"], &given));
    assert_eq!(daemon.show("data")["state"], "healthy");
    check_pattern(&daemon, "data", 1);
}

#[test]
fn import_can_rename() {
    let (daemon, members) = foreign_array();
    daemon.ok(import(&["data", "--name", "other"], &members));
    assert_eq!(daemon.show("other")["state"], "healthy");
    assert_eq!(daemon.strake(["array", "show", "data"]).code, 1);
    check_pattern(&daemon, "other", 1);
}

#[test]
fn an_imported_array_comes_back_after_a_restart() {
    let (mut daemon, members) = foreign_array();
    daemon.ok(import(&["data"], &members));
    check_pattern(&daemon, "data", 1);
    daemon.kill();
    daemon.start_again();
    daemon.wait_for_state("data", "healthy");
}

/// With as many members missing as parity replaces it is imported degraded.
#[test]
fn as_many_may_be_missing_as_parity_replaces() {
    let (daemon, members) = foreign_array();
    daemon.ok(import(&["data", "--force"], &members[..3]));
    let show = daemon.show("data");
    assert_eq!(show["state"], "degraded");
    assert_eq!(show["members"][4]["state"], "missing");
    check_pattern(&daemon, "data", 1);
}

#[test]
fn too_few_members_are_refused_with_those_missing_by_serial() {
    let (daemon, members) = foreign_array();
    let given = &members[1..3];
    let serials: Vec<String> = [0, 3, 4]
        .map(|index| serial(&daemon, &members[index]))
        .into();
    unchanged(&members, || {
        let reply = daemon.refused(import(&["data"], given), &["missing"]);
        for serial in &serials {
            reply.says(&[serial]);
        }
        daemon.refused(import(&["data", "--force"], given), &[]);
    });
}

/// A host that has seen the array knows where its members were, too.
#[test]
fn members_missing_at_a_start_are_named_by_serial_and_path() {
    let mut daemon = Daemon::start();
    let members = daemon.drives("d", 5, DRIVE_BYTES);
    daemon.create("data", &["6"], &members);
    daemon.stop();
    let lost = [0, 3, 4];
    let serials: Vec<String> = lost.map(|index| serial(&daemon, &members[index])).into();
    for index in lost {
        std::fs::rename(&members[index], format!("{}.away", members[index])).unwrap();
    }
    daemon.start_again();
    daemon.wait_for_state("data", "offline");
    let reply = daemon.refused(["array", "start", "data"], &["missing"]);
    let show = daemon.show("data");
    let reason = show["reason"].as_str().unwrap();
    for (index, serial) in lost.into_iter().zip(&serials) {
        reply.says(&[serial, &members[index]]);
        assert!(reason.contains(serial), "{reason}");
    }
    // Back in their places, they are found again.
    for index in lost {
        std::fs::rename(format!("{}.away", members[index]), &members[index]).unwrap();
    }
    daemon.ok(["array", "start", "data"]);
    assert_eq!(daemon.show("data")["state"], "healthy");
}

fn serial(daemon: &Daemon, drive: &str) -> String {
    let inspect = daemon.ok(["inspect", drive]);
    inspect["drive"]["serial"].as_str().unwrap().to_owned()
}

#[test]
fn a_read_only_import_changes_nothing_on_any_drive() {
    let (daemon, members) = foreign_array();
    unchanged(&members, || {
        daemon.ok(import(&["data", "--read-only"], &members));
        assert_eq!(daemon.show("data")["read_only"], true);
        let mut client = daemon.export_nbd("data").connect();
        assert_eq!(client.read(0, 4 << 20), pattern(1, 4 << 20));
        let write = client.request(
            strake_tests::nbd::Command::Write,
            0,
            0,
            4096,
            &pattern(2, 4096),
        );
        assert_ne!(write.unwrap(), 0, "a read-only array took a write");
        drop(client);
        daemon.ok(["array", "stop", "data"]);
    });
}

/// A RAID 6 that was killed while it ran with two members dropped, and is not started again.
fn killed_while_degraded(policy: &str) -> (Daemon, Vec<String>) {
    let mut daemon = Daemon::start();
    let members = daemon.drives("d", 5, DRIVE_BYTES);
    daemon.create("data", &["6", "--policy", policy], &members);
    daemon.ok(["array", "fail", "data", "0"]);
    daemon.ok(["array", "fail", "data", "1"]);
    write_pattern(&daemon, 1);
    daemon.kill();
    (daemon, members)
}

/// The parity log keeps what a crash would cost an array without all its members.
#[test]
fn a_crash_while_degraded_costs_nothing_with_the_log() {
    let (mut daemon, _members) = killed_while_degraded("log");
    daemon.start_again();
    daemon.wait_for_state("data", "degraded");
    daemon.wait_for_exports();
    let torn = daemon.ok(["array", "torn", "data"]);
    assert_eq!(torn["extents"], serde_json::json!([]));
    let found = address(&daemon).connect().read(0, 4 << 20);
    assert_eq!(found, pattern(1, 4 << 20), "nothing was in flight");
}

/// Without a log, nothing says whether what missing members held is what parity says: it reads as
/// errors, over restarts too, until it is written or accepted.
#[test]
fn a_crash_while_degraded_makes_blocks_suspect_without_a_log() {
    let (mut daemon, members) = killed_while_degraded("resync");
    daemon.start_again();
    daemon.wait_for_state("data", "degraded");
    daemon.wait_for_exports();
    let torn = daemon.ok(["array", "torn", "data"]);
    let suspect = torn["suspect_bytes"].as_u64().unwrap();
    assert!(suspect >= 4 << 20, "two of three data strips: {torn}");
    assert_eq!(torn["torn_bytes"], 0);
    let extent = &torn["extents"][0];
    assert_eq!(
        (extent["kind"].as_str(), &extent["member"]),
        (Some("suspect"), &0.into())
    );
    let listed = extent["volume"][0]["offset_bytes"].as_u64().unwrap();
    let show = daemon.show("data");
    assert_eq!(show["consistency"]["suspect_bytes"], suspect);
    let words = ["suspect", "strake array torn data"];
    daemon.say(["array", "show", "data"]).says(&words);
    let words = [
        "MEMBER",
        "suspect",
        "writing",
        "strake array accept data --force",
    ];
    daemon.say(["array", "torn", "data"]).says(&words);

    let mut client = address(&daemon).connect();
    assert!(
        client.try_read(listed, 4096).unwrap().is_err(),
        "suspect, and read"
    );
    client.write(listed, &pattern(9, 4096));
    client.flush();
    assert_eq!(
        client.read(listed, 4096),
        pattern(9, 4096),
        "healed by writing"
    );
    drop(client);
    let healed = daemon.ok(["array", "torn", "data"])["suspect_bytes"].as_u64();
    assert_eq!(healed, Some(suspect - 4096));

    daemon.ok(["array", "stop", "data", "--force"]);
    daemon.move_to_new_host();
    daemon.ok(import(&["data"], &members[2..]));
    assert_eq!(
        daemon.ok(["array", "torn", "data"])["suspect_bytes"].as_u64(),
        healed
    );
    daemon.refused(["array", "accept", "data"], &["--force", "torn"]);
    daemon.ok(["array", "accept", "data", "--force"]);
    let again = daemon.ok(["array", "accept", "data", "--force"]);
    assert_eq!(again["changed"], false);
    assert_eq!(daemon.ok(["array", "torn", "data"])["suspect_bytes"], 0);
    let mut expected = pattern(1, 4 << 20);
    expected[listed as usize..][..4096].copy_from_slice(&pattern(9, 4096));
    let mut client = daemon.export_nbd("data").connect();
    assert!(client.read(0, 4 << 20) == expected, "nothing was in flight");
}

/// To look at what is there without deciding anything, or to accept it at once.
#[test]
fn a_dirty_and_degraded_array_is_read_only_or_accepted_at_the_start() {
    let (mut daemon, members) = killed_while_degraded("resync");
    daemon.move_to_new_host();
    unchanged(&members, || {
        daemon.ok(import(&["data", "--read-only"], &members));
        assert_eq!(daemon.show("data")["read_only"], true);
        let mut client = daemon.export_nbd("data").connect();
        assert!(
            client.try_read(0, 1 << 20).unwrap().is_err(),
            "doubtful, and read"
        );
        drop(client);
        daemon.ok(["array", "stop", "data", "--force"]);
    });
    daemon.ok(import(&["data", "--force"], &members));
    assert_eq!(daemon.ok(["array", "torn", "data"])["suspect_bytes"], 0);
    let mut client = daemon.export_nbd("data").connect();
    assert_eq!(
        client.read(0, 4 << 20),
        pattern(1, 4 << 20),
        "nothing was in flight"
    );
}

/// Running elsewhere, as far as its drives know.
#[test]
fn an_array_in_use_by_another_host_is_imported_only_when_asked() {
    let mut daemon = Daemon::start();
    let members = daemon.drives("d", 5, DRIVE_BYTES);
    daemon.create("data", &["6"], &members);
    write_pattern(&daemon, 1);
    daemon.kill();
    daemon.move_to_new_host();
    unchanged(&members, || {
        daemon.refused(import(&["data"], &members), &["in use", "--force"]);
    });
    daemon.ok(import(&["data", "--force"], &members));
    check_pattern(&daemon, "data", 1);
}

/// A member that was out while the others wrote on must not be believed.
#[test]
fn a_stale_member_is_recognised_and_named() {
    let mut daemon = Daemon::start();
    let members = daemon.drives("d", 5, DRIVE_BYTES);
    daemon.create("data", &["6"], &members);
    write_pattern(&daemon, 1);
    daemon.ok(["array", "fail", "data", "2"]);
    address(&daemon).connect().write(0, &pattern(2, 4 << 20));
    daemon.ok(["array", "stop", "data"]);
    daemon.move_to_new_host();
    let list = daemon.ok(import(&[], &members));
    let found = list["arrays"][0]["found"].as_array().unwrap().clone();
    let stale = found.iter().find(|member| member["index"] == 2).unwrap();
    let note = stale["note"].as_str().unwrap_or_default().to_lowercase();
    assert!(note.contains("stale") || note.contains("failed"), "{list}");
    daemon.ok(import(&["data"], &members));
    let show = daemon.show("data");
    assert_ne!(show["members"][2]["state"], "active");
    check_pattern(&daemon, "data", 2);
}

#[test]
fn a_cloned_member_is_recognised_and_named() {
    let (daemon, members) = foreign_array();
    let copy = daemon.path("copy").display().to_string();
    drives::clone(&members[3], &copy);
    let mut given = members.clone();
    given.push(copy.clone());
    unchanged(&given, || {
        let reply = daemon.say(import(&[], &given));
        reply.says(&["clone", &copy, &members[3]]);
    });
    // Neither is used until somebody says which: the rest still makes an array.
    let reply = daemon.strake(import(&["data"], &given));
    if reply.code == 0 {
        assert_ne!(daemon.show("data")["members"][3]["state"], "active");
        check_pattern(&daemon, "data", 1);
    } else {
        reply.says(&["clone"]);
    }
}

#[test]
fn inspect_reads_a_drive_without_a_daemon() {
    let (mut daemon, members) = foreign_array();
    daemon.stop();
    unchanged(&members, || {
        let inspect = daemon.ok(["inspect", members[1].as_str()]);
        assert_eq!(inspect["superblock_copies"][0], "valid");
        assert_eq!(inspect["superblock_copies"][1], "valid");
        assert_eq!(inspect["drive"]["array_name"], "data");
        assert_eq!(inspect["drive"]["member"], 1);
        daemon
            .say(["inspect", members[1].as_str()])
            .says(&["data", "raid6"]);
    });
    daemon.start_again();
}

#[test]
fn a_torn_superblock_is_served_by_its_other_copy() {
    let (daemon, members) = foreign_array();
    for member in &members {
        let [first, _] = superblock::copies(member);
        drives::overwrite(member, first + 1024, &pattern(3, 512));
    }
    let inspect = daemon.ok(["inspect", members[0].as_str()]);
    assert_ne!(inspect["superblock_copies"][0], "valid");
    assert_eq!(inspect["superblock_copies"][1], "valid");
    daemon.ok(import(&["data"], &members));
    assert_eq!(daemon.show("data")["state"], "healthy");
    check_pattern(&daemon, "data", 1);
    // The start wrote both copies again.
    daemon.ok(["array", "stop", "data", "--force"]);
    let inspect = daemon.ok(["inspect", members[0].as_str()]);
    assert_eq!(inspect["superblock_copies"][0], "valid");
}

#[test]
fn a_member_with_both_copies_gone_is_missing() {
    let (daemon, members) = foreign_array();
    for copy in superblock::copies(&members[0]) {
        drives::overwrite(&members[0], copy, &[0; 4096]);
    }
    daemon.ok(import(&["data", "--force"], &members));
    let show = daemon.show("data");
    assert_eq!(show["state"], "degraded");
    assert_eq!(show["members"][0]["state"], "missing");
    check_pattern(&daemon, "data", 1);
}

#[test]
fn a_superblock_of_a_newer_version_is_refused_with_its_number() {
    let (daemon, members) = foreign_array();
    for member in &members {
        for copy in superblock::copies(member) {
            superblock::raise_version(member, copy, 9);
        }
    }
    unchanged(&members, || {
        let inspect = daemon.say(["inspect", members[0].as_str()]);
        inspect.says(&["version 9"]);
        daemon.refused(import(&["data"], &members), &[]);
        // It is somebody's array: a new one is not made over it.
        let words = strake_tests::daemon::create_arguments("new", &["5"], &members);
        daemon.refused(words, &["version 9"]);
    });
}
