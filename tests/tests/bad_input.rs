//! What bad input gets: a refusal that says why, exit code 1 (2 where the words make no
//! sense), and no byte changed on any drive.

use strake_tests::daemon::create_arguments;
use strake_tests::drives::{self, Snapshot, unchanged};
use strake_tests::{Daemon, MIB, mounts, pattern, tools, wait_until};

const DRIVE_BYTES: u64 = 128 * MIB;

/// A refused creation on fresh drives.
#[track_caller]
fn refuses_to_create(count: usize, level: &[&str], words: &[&str]) {
    let daemon = Daemon::start();
    let members = daemon.drives("d", count, DRIVE_BYTES);
    unchanged(&members, || {
        daemon.refused(create_arguments("a", level, &members), words);
    });
    let arrays = daemon.ok(["array", "list"])["arrays"].clone();
    assert_eq!(arrays.as_array().unwrap().len(), 0);
}

#[test]
fn too_few_drives() {
    for (count, level) in [(2, "5"), (3, "6"), (4, "7.3"), (1, "1")] {
        refuses_to_create(count, &[level], &["drives"]);
    }
    refuses_to_create(2, &["10", "--copies", "3"], &["drives"]);
    refuses_to_create(3, &["50", "--group-size", "3"], &["drives", "6"]);
}

#[test]
fn more_parity_than_data() {
    refuses_to_create(5, &["n+m", "--parity", "3"], &["parit"]);
}

#[test]
fn parity_out_of_range() {
    refuses_to_create(4, &["n+m", "--parity", "0"], &["parit"]);
    refuses_to_create(6, &["n+m", "--parity", "33"], &["parit"]);
}

#[test]
fn a_group_size_that_does_not_divide() {
    refuses_to_create(7, &["50", "--group-size", "3"], &["group", "7"]);
    refuses_to_create(6, &["60", "--group-size", "3"], &["group"]);
    refuses_to_create(5, &["10"], &["5"]);
}

#[test]
fn strips_that_are_no_power_of_two_or_out_of_range() {
    for strip in ["48KiB", "2KiB", "2MiB", "65537"] {
        refuses_to_create(3, &["5", "--strip-size", strip], &["strip"]);
    }
}

#[test]
fn block_sizes_other_than_512_and_4096() {
    refuses_to_create(3, &["5", "--block-size", "1024"], &["block size"]);
}

#[test]
fn policies_and_log_sizes_that_cannot_be() {
    for policy in ["log", "log-all", "resync"] {
        refuses_to_create(3, &["0", "--policy", policy], &["raid0", "none"]);
    }
    refuses_to_create(3, &["0", "--log-size", "4M"], &["raid0", "--log-size"]);
    for size in ["0", "512k", "33M", "1T"] {
        refuses_to_create(
            3,
            &["5", "--log-size", size],
            &["--log-size", "1 MiB", "32 MiB"],
        );
    }
    let daemon = Daemon::start();
    let members = daemon.drives("d", 3, DRIVE_BYTES);
    for words in [["--policy", "journal"], ["--log-size", "much"]] {
        unchanged(&members, || {
            daemon.misused(create_arguments("a", &["5", words[0], words[1]], &members));
        });
    }
    daemon.create("stripes", &["0"], &members);
    let set = |policy| ["array", "set", "stripes", "--policy", policy];
    daemon.refused(set("log"), &["raid0", "none"]);
    assert_eq!(daemon.ok(set("none"))["changed"], false);
    daemon.misused(["array", "set", "stripes"]);
    for verb in ["torn", "accept"] {
        daemon.refused(["array", verb, "nobody"], &["nobody"]);
    }
    let accepted = daemon.ok(["array", "accept", "stripes"]);
    assert_eq!(accepted["changed"], false);
}

#[test]
fn a_malformed_name() {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 3, DRIVE_BYTES);
    let long = "x".repeat(49);
    for name in ["two words", "", ".hidden", "a/b", "größe", long.as_str()] {
        unchanged(&members, || {
            daemon.refused(create_arguments(name, &["5"], &members), &["name"]);
        });
    }
}

#[test]
fn a_name_that_is_taken() {
    let daemon = Daemon::start();
    let first = daemon.drives("first", 3, DRIVE_BYTES);
    daemon.create("data", &["5"], &first);
    settle(&daemon, "data", &first);
    let second = daemon.drives("second", 3, DRIVE_BYTES);
    let all = [first, second.clone()].concat();
    unchanged(&all, || {
        daemon.refused(create_arguments("data", &["5"], &second), &["data"]);
    });
}

#[test]
fn a_drive_given_twice_by_whatever_name() {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 3, DRIVE_BYTES);
    let link = daemon.path("link");
    std::os::unix::fs::symlink(&members[1], &link).unwrap();
    let hard_link = daemon.path("hard-link");
    std::fs::hard_link(&members[1], &hard_link).unwrap();
    for other in [
        members[1].clone(),
        link.display().to_string(),
        hard_link.display().to_string(),
        format!("faulty:{}", members[1]),
    ] {
        let given = vec![members[0].clone(), members[1].clone(), other];
        unchanged(&members, || {
            daemon.refused(create_arguments("a", &["5"], &given), &["same drive"]);
        });
    }
}

#[test]
fn a_drive_that_is_a_member_already() {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 3, DRIVE_BYTES);
    daemon.create("first", &["5"], &members);
    settle(&daemon, "first", &members);
    let fresh = daemon.drives("fresh", 2, DRIVE_BYTES);
    let given = [fresh.clone(), vec![members[0].clone()]].concat();
    let all = [fresh, members.clone()].concat();
    // Running: not even with force.
    for force in [&[][..], &["--force"]] {
        let level = [&["5"], force].concat();
        unchanged(&all, || {
            daemon.refused(create_arguments("second", &level, &given), &["first"]);
        });
    }
    daemon.ok(["array", "stop", "first"]);
    unchanged(&all, || {
        daemon.refused(create_arguments("second", &["5"], &given), &["first"]);
    });
}

#[test]
fn a_drive_with_a_file_system_unless_forced() {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 3, DRIVE_BYTES);
    tools::run("mkfs.ext4", &["-q", "-F", &members[1]]);
    unchanged(&members, || {
        let reply = daemon.refused(create_arguments("a", &["5"], &members), &["ext4"]);
        reply.says(&[&members[1], "--force"]);
    });
    daemon.create("a", &["5", "--force"], &members);
}

#[test]
fn a_drive_with_a_partition_table_unless_forced() {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 3, DRIVE_BYTES);
    let mut sector = vec![0; 512];
    // One partition, and the signature of a DOS partition table.
    sector[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 8, 0, 0, 8, 0, 0, 0, 8, 0, 0]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    drives::overwrite(&members[2], 0, &sector);
    unchanged(&members, || {
        daemon.refused(create_arguments("a", &["5"], &members), &["partition"]);
    });
}

#[test]
fn a_mounted_drive_even_with_force() {
    if mounts::skip_without_mounts("a_mounted_drive_even_with_force") {
        return;
    }
    let daemon = Daemon::start();
    let mut members = daemon.drives("d", 3, DRIVE_BYTES);
    tools::run("mkfs.ext4", &["-q", "-F", &members[0]]);
    let device = mounts::Loop::new(&members[0], 512);
    let mounted = mounts::Mount::new(device.device(), daemon.path("mnt"), "ext4");
    members[0] = device.device().to_owned();
    for force in [&[][..], &["--force"]] {
        let level = [&["5"], force].concat();
        unchanged(&members[1..], || {
            daemon.refused(create_arguments("a", &level, &members), &["mounted"]);
        });
    }
    mounted.unmount();
}

#[test]
fn blocks_of_512_on_a_drive_of_4096() {
    if mounts::skip_without_mounts("blocks_of_512_on_a_drive_of_4096") {
        return;
    }
    let daemon = Daemon::start();
    let members = daemon.drives("d", 3, DRIVE_BYTES);
    let device = mounts::Loop::new(&members[2], 4096);
    let given = vec![
        members[0].clone(),
        members[1].clone(),
        device.device().to_owned(),
    ];
    unchanged(&members, || {
        daemon.refused(
            create_arguments("a", &["5", "--block-size", "512"], &given),
            &["512", "4096"],
        );
    });
    daemon.create("a", &["5", "--block-size", "4096"], &given);
    daemon.ok(["array", "destroy", "a", "--force"]);
}

#[test]
fn a_drive_smaller_than_the_metadata() {
    let daemon = Daemon::start();
    let mut members = daemon.drives("d", 2, DRIVE_BYTES);
    members.push(daemon.drive("tiny", MIB));
    unchanged(&members, || {
        let words = [members[2].as_str(), "larger drive"];
        daemon.refused(create_arguments("a", &["5"], &members), &words);
    });
}

#[test]
fn a_drive_that_is_not_there_or_is_none() {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 2, DRIVE_BYTES);
    let folder = daemon.path("folder");
    std::fs::create_dir(&folder).unwrap();
    for other in [daemon.path("nowhere"), folder] {
        let other = other.display().to_string();
        let given = [members.clone(), vec![other.clone()]].concat();
        unchanged(&members, || {
            daemon.refused(create_arguments("a", &["5"], &given), &[&other]);
        });
    }
}

#[test]
fn replacing_with_a_smaller_drive() {
    let (daemon, members) = running_array("5", 3);
    daemon.ok(["array", "fail", "a", "1"]);
    settle(&daemon, "a", &members);
    let smaller = daemon.drive("smaller", DRIVE_BYTES / 2);
    let all = [members, vec![smaller.clone()]].concat();
    unchanged(&all, || {
        daemon.refused(["array", "replace", "a", "1", &smaller], &["small"]);
    });
}

#[test]
fn replacing_with_a_drive_in_use_or_with_data_on_it() {
    let (daemon, members) = running_array("5", 3);
    let others = daemon.drives("other", 3, DRIVE_BYTES);
    daemon.create("other", &["5"], &others);
    daemon.ok(["array", "fail", "a", "1"]);
    settle(&daemon, "a", &members);
    settle(&daemon, "other", &others);
    let foreign = daemon.drive("foreign", DRIVE_BYTES);
    tools::run("mkfs.ext4", &["-q", "-F", &foreign]);
    let all = [members.clone(), others.clone(), vec![foreign.clone()]].concat();
    unchanged(&all, || {
        daemon.refused(["array", "replace", "a", "1", &members[0]], &[&members[0]]);
        daemon.refused(["array", "replace", "a", "1", &others[0]], &["other"]);
        daemon.refused(["array", "replace", "a", "1", &foreign], &["ext4"]);
    });
}

#[test]
fn failing_more_members_than_the_level_survives_unless_forced() {
    let (daemon, members) = running_array("6", 5);
    daemon.ok(["array", "fail", "a", "0"]);
    daemon.ok(["array", "fail", "a", "3"]);
    settle(&daemon, "a", &members);
    unchanged(&members, || {
        let reply = daemon.refused(["array", "fail", "a", "4"], &["--force"]);
        reply.says(&["surviv"]);
        daemon.refused(["array", "remove", "a", "4"], &["--force"]);
    });
    assert_eq!(daemon.show("a")["state"], "degraded");
    daemon.ok(["array", "fail", "a", "4", "--force"]);
    assert_eq!(daemon.show("a")["state"], "failed");
}

#[test]
fn failing_a_member_of_raid0_unless_forced() {
    let (daemon, members) = running_array("0", 2);
    settle(&daemon, "a", &members);
    unchanged(&members, || {
        daemon.refused(["array", "fail", "a", "0"], &["--force"]);
    });
}

#[test]
fn members_and_arrays_that_do_not_exist() {
    let (daemon, members) = running_array("5", 3);
    settle(&daemon, "a", &members);
    unchanged(&members, || {
        daemon.refused(["array", "fail", "a", "3"], &["3"]);
        daemon.refused(["array", "fail", "a", "/no/drive"], &["/no/drive"]);
        daemon.refused(["array", "show", "b"], &["b"]);
        daemon.refused(["array", "stop", "b"], &["b"]);
        daemon.refused(["export", "remove", "nbd9"], &["nbd9"]);
        daemon.refused(["export", "create", "b", "--nbd"], &["b"]);
        daemon.refused(["drive", "fault", &members[0], "--dead"], &["faulty:"]);
    });
}

#[test]
fn destroying_an_array_in_use_and_cleaning_its_drives() {
    let (daemon, members) = running_array("5", 3);
    let client = daemon.export_nbd("a").connect();
    settle(&daemon, "a", &members);
    unchanged(&members, || {
        daemon.refused(["array", "destroy", "a"], &["--force"]);
        daemon.refused(["drive", "clean", &members[0]], &["a"]);
        daemon.refused(["drive", "clean", &members[0], "--force"], &["a"]);
    });
    assert_eq!(daemon.show("a")["state"], "healthy");
    drop(client);
}

#[test]
fn words_that_make_no_sense_are_usage_errors() {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 3, DRIVE_BYTES);
    unchanged(&members, || {
        daemon.misused(create_arguments("a", &["4"], &members));
        daemon.misused(create_arguments(
            "a",
            &["5", "--strip-size", "many"],
            &members,
        ));
        daemon.misused(["array", "conjure", "a"]);
        daemon.misused(["array", "create", "a"]);
        daemon.misused(["export", "create", "a"]);
    });
}

#[test]
fn a_second_daemon_on_the_same_socket_or_state() {
    let (daemon, members) = running_array("5", 3);
    settle(&daemon, "a", &members);
    let state = daemon.state_dir().display().to_string();
    unchanged(&members, || {
        let fresh = format!("{state}-2");
        daemon.refused(["daemon", "--state-dir", &fresh], &["strake.sock"]);
        let other = daemon.path("other.sock");
        let reply = daemon.strake_on(&other, ["daemon", "--state-dir", &state]);
        reply.with_code(1).says(&[&state]);
    });
    assert_eq!(daemon.show("a")["state"], "healthy");
}

/// A kernel of the other kind of processor.
const FOREIGN_KERNEL: &str = if cfg!(target_arch = "aarch64") {
    "avx2"
} else {
    "neon"
};

#[test]
fn a_parity_kernel_that_cannot_run() {
    let daemon = Daemon::start();
    let (socket, state) = (daemon.path("other.sock"), daemon.path("other-state"));
    let serve = ["daemon", "--state-dir", state.to_str().unwrap()];
    let engine = ["bench", "engine", "--seconds", "0.1", "--drives", "null:3"];
    let log: [&str; 4] = ["bench", "log", "--seconds", "0.1"];
    let computing: [&[&str]; 4] = [&engine, &log, &["bench", "codec"], &serve];
    for (kernel, why) in [("abacus", "does not exist"), (FOREIGN_KERNEL, "lacks")] {
        let forced = [("STRAKE_KERNEL", kernel)];
        for arguments in computing {
            let reply = daemon.strake_with(&forced, &socket, arguments).with_code(1);
            // The plain kernel is among those that every machine can run.
            reply.says(&["STRAKE_KERNEL", kernel, why, "plain"]);
            assert_eq!(reply.stdout, "", "nothing was measured");
        }
        // What computes no parity does not ask.
        let asking = daemon.strake_with(&forced, &daemon.socket(), ["array", "list"]);
        asking.with_code(0);
    }
    assert!(!state.exists() && !socket.exists());
    let forced = [("STRAKE_KERNEL", "plain")];
    let reply = daemon.strake_with(&forced, &socket, engine);
    reply.with_code(0).says(&["kernel plain"]);
}

#[test]
fn errors_are_json_when_json_is_asked_for() {
    let daemon = Daemon::start();
    let reply = daemon.strake(["--json", "array", "show", "nothing"]);
    assert_eq!(reply.code, 1);
    let error = reply.json();
    assert_eq!(error["error"]["kind"], "not_found");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("nothing"), "{message}");
}

/// An array named `a` with something written on it.
fn running_array(level: &str, count: usize) -> (Daemon, Vec<String>) {
    let daemon = Daemon::start();
    let members = daemon.drives("d", count, DRIVE_BYTES);
    daemon.create("a", &[level], &members);
    let mut client = daemon.export_nbd("a").connect();
    client.write(MIB, &pattern(1, 1 << 20));
    client.flush();
    drop(client);
    (daemon, members)
}

/// Waits until the array itself no longer writes: regions become clean some time after the
/// last write, and a refusal must not be blamed for that.
fn settle(daemon: &Daemon, array: &str, members: &[String]) {
    wait_until("no region is dirty", || {
        daemon.show(array)["regions"]["dirty"] == 0
    });
    let mut before = Snapshot::of_all(members);
    wait_until("the drives rest", || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let now = Snapshot::of_all(members);
        std::mem::replace(&mut before, now.clone()) == now
    });
}
