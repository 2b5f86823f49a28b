//! What the end-to-end tests of the exports share.

#![allow(dead_code)]

pub mod mock;

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// Where each client comes from (Debian's names).
const PACKAGES: [(&str, &str); 17] = [
    ("nbdinfo", "libnbd-bin"),
    ("nbdcopy", "libnbd-bin"),
    ("qemu-img", "qemu-utils and qemu-block-extra"),
    ("qemu-io", "qemu-utils and qemu-block-extra"),
    ("fio", "fio"),
    ("dd", "coreutils"),
    ("stat", "coreutils"),
    ("sync", "coreutils"),
    ("cmp", "diffutils"),
    ("losetup", "mount"),
    ("fallocate", "util-linux"),
    ("fstrim", "util-linux"),
    ("blkdiscard", "util-linux"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mount", "mount"),
    ("umount", "mount"),
];

/// A client to be run; a test that needs one which is not installed fails and says what to do.
pub fn client(program: &str) -> Command {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|directory| directory.join(program).is_file())
    });
    let package = PACKAGES
        .iter()
        .find(|(name, _)| *name == program)
        .map_or(program, |(_, package)| package);
    assert!(found, "{program} is not installed; install {package}");
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null());
    command
}

/// Runs a client to its end; returns what it printed. It must succeed.
pub fn run<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> String {
    let (success, output) = try_run(program, arguments);
    let arguments: Vec<_> = arguments.iter().map(|one| one.as_ref()).collect();
    assert!(success, "{program} {arguments:?} failed:\n{output}");
    output
}

/// Runs a client to its end; returns whether it succeeded and what it printed.
pub fn try_run<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> (bool, String) {
    let output = client(program).args(arguments).output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}
