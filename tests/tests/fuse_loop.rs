//! Real file systems on loop devices over FUSE: on any Linux machine, without any module.

use std::path::Path;
use strake_tests::mounts::{self, Mount};
use strake_tests::{Daemon, MIB, tools, wait_until};

/// mkfs.xfs refuses less than 300 MB.
const DRIVE_BYTES: u64 = 256 * MIB;

/// A RAID 6 array of six drives as a block device.
fn attached(daemon: &Daemon) -> String {
    let members = daemon.drives("d", 6, DRIVE_BYTES);
    daemon.create("disk", &["6"], &members);
    attach(daemon, "disk")
}

fn attach(daemon: &Daemon, array: &str) -> String {
    let printed = daemon.say(["attach", array]).stdout;
    printed
        .split(|letter: char| letter.is_whitespace() || "\"',:.".contains(letter))
        .find(|word| word.starts_with("/dev/loop"))
        .unwrap_or_else(|| panic!("no device in: {printed}"))
        .to_owned()
}

fn fio_verifies(folder: &Path) {
    let file = folder.join("fio.bin").display().to_string();
    tools::run(
        "fio",
        &[
            "--name=fs",
            "--thread",
            &format!("--filename={file}"),
            "--size=96m",
            "--rw=randwrite",
            "--bsrange=4k-256k",
            "--ioengine=io_uring",
            "--iodepth=16",
            "--direct=1",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=1",
        ],
    );
}

fn copy_tree(folder: &Path) {
    let to = folder.display().to_string();
    tools::run(
        "cp",
        &["-r", "/usr/share/perl5", "/usr/share/locale/de", &to],
    );
}

/// What `diff` says of the copied trees: nothing.
fn compare_tree(folder: &Path) {
    for tree in ["/usr/share/perl5", "/usr/share/locale/de"] {
        let copy = folder.join(Path::new(tree).file_name().unwrap());
        tools::run(
            "diff",
            &["-r", "--no-dereference", tree, copy.to_str().unwrap()],
        );
    }
}

#[test]
fn xfs_lives_through_failures_and_a_remount() {
    if mounts::skip_without_mounts("xfs_lives_through_failures_and_a_remount") {
        return;
    }
    let daemon = Daemon::start();
    let device = attached(&daemon);
    tools::run(
        "mkfs.xfs",
        &["-q", "-f", "-d", "su=64k,sw=4", "-s", "size=4096", &device],
    );
    let mount = Mount::new(&device, daemon.path("mnt"), "xfs");
    copy_tree(mount.path());
    daemon.ok(["array", "fail", "disk", "0"]);
    daemon.ok(["array", "fail", "disk", "5"]);
    fio_verifies(mount.path());
    mount.unmount();
    tools::run("xfs_repair", &["-n", &device]);
    let mount = Mount::new(&device, daemon.path("mnt"), "xfs");
    compare_tree(mount.path());
    tools::run("fstrim", &[mount.path()]);
    compare_tree(mount.path());
    mount.unmount();
    daemon.ok(["detach", "disk"]);
    assert!(mounts::loops().iter().all(|(name, _)| *name != device));
}

#[test]
fn ext4_lives_through_a_detach_and_attach() {
    if mounts::skip_without_mounts("ext4_lives_through_a_detach_and_attach") {
        return;
    }
    let daemon = Daemon::start();
    let device = attached(&daemon);
    tools::run("mkfs.ext4", &["-q", "-F", &device]);
    let mount = Mount::new(&device, daemon.path("mnt"), "ext4");
    copy_tree(mount.path());
    fio_verifies(mount.path());
    mount.unmount();
    tools::run("e2fsck", &["-f", "-n", &device]);
    daemon.ok(["detach", "disk"]);

    let device = attach(&daemon, "disk");
    let mount = Mount::new(&device, daemon.path("mnt"), "ext4");
    compare_tree(mount.path());
    mount.unmount();
    daemon.ok(["detach", "disk"]);
    daemon.scrub_finds_nothing("disk");
}

#[test]
fn the_loop_device_has_the_arrays_size_and_sectors_and_no_page_cache_below() {
    if mounts::skip_without_mounts("the_loop_device_has_the_arrays_size") {
        return;
    }
    let daemon = Daemon::start();
    let device = attached(&daemon);
    let ask = |what: &str| tools::run("blockdev", &[what, &device]).trim().to_owned();
    let size = daemon.show("disk")["size_bytes"].to_string();
    assert_eq!(ask("--getsize64"), size);
    assert_eq!(ask("--getss"), "4096");
    let direct = tools::run("losetup", &["-l", "-n", "-O", "DIO", &device]);
    assert_eq!(direct.trim(), "1");
    // Attached already: said so, and no second device.
    assert_eq!(attach(&daemon, "disk"), device);
    daemon.ok(["detach", "disk"]);
}

#[test]
fn an_attached_array_is_not_stopped_under_a_mounted_file_system() {
    if mounts::skip_without_mounts("an_attached_array_is_not_stopped") {
        return;
    }
    let daemon = Daemon::start();
    let device = attached(&daemon);
    tools::run("mkfs.ext4", &["-q", "-F", &device]);
    let mount = Mount::new(&device, daemon.path("mnt"), "ext4");
    daemon.refused(["array", "stop", "disk"], &["disk"]);
    daemon.refused(["detach", "disk"], &[]);
    std::fs::write(mount.path().join("file"), "still here").unwrap();
    mount.unmount();
    daemon.ok(["detach", "disk"]);
    daemon.ok(["array", "stop", "disk"]);
}

#[test]
fn the_fuse_mount_is_gone_after_the_daemon_and_returns_with_it() {
    if mounts::skip_without_mounts("the_fuse_mount_is_gone_after_the_daemon") {
        return;
    }
    let mut daemon = Daemon::start();
    let members = daemon.drives("d", 3, DRIVE_BYTES);
    daemon.create("disk", &["5"], &members);
    let made = daemon.ok(["export", "create", "disk", "--fuse"]);
    let file = made["export"]["address"].as_str().unwrap().to_owned();
    assert!(Path::new(&file).exists(), "{file}");
    daemon.stop();
    assert!(!Path::new(&file).exists(), "{file} is still there");
    daemon.start_again();
    daemon.wait_for_exports();
    assert!(Path::new(&file).exists(), "{file} did not return");
    // Killed, it leaves a dead mount behind, which the next one must get out of the way.
    daemon.kill();
    daemon.start_again();
    daemon.wait_for_exports();
    wait_until("the file is served again", || {
        std::fs::metadata(&file).is_ok_and(|facts| facts.len() > 0)
    });
}
