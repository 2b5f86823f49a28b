//! The programs that tests and demo use, from Debian's packages.
//!
//! Installs only what is missing, only as root and only where there is apt-get; says
//! what to install otherwise. Rust itself is not installed: `rust-toolchain.toml` names it.

use crate::shell;
use anyhow::{Result, bail};
use std::process::Command;
use std::time::Duration;

/// A program and the Debian package that has it.
struct Need {
    program: &'static str,
    package: &'static str,
}

const fn need(program: &'static str, package: &'static str) -> Need {
    Need { program, package }
}

const NEEDS: &[Need] = &[
    need("cc", "gcc"),
    need("fio", "fio"),
    need("mkfs.xfs", "xfsprogs"),
    need("xfs_repair", "xfsprogs"),
    need("mkfs.ext4", "e2fsprogs"),
    need("e2fsck", "e2fsprogs"),
    need("fusermount3", "fuse3"),
    need("qemu-img", "qemu-utils"),
    need("qemu-io", "qemu-utils"),
    need("nbdinfo", "libnbd-bin"),
    need("nbdcopy", "libnbd-bin"),
    need("losetup", "mount"),
    need("mount", "mount"),
    need("blkid", "util-linux"),
    need("wipefs", "util-linux"),
    need("b2sum", "coreutils"),
    // Other people's parity, to compare the codec's with.
    need(ISAL, "libisal2"),
];

/// Where Debian has ISA-L on this kind of machine.
const ISAL: &str = if cfg!(target_arch = "aarch64") {
    "/usr/lib/aarch64-linux-gnu/libisal.so.2"
} else {
    "/usr/lib/x86_64-linux-gnu/libisal.so.2"
};

const CROSS_NEEDS: &[Need] = &[
    need("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    need("qemu-aarch64-static", "qemu-user-static"),
    // Only recommended by the compiler's package, and nothing links without it.
    need(AARCH64_C_LIBRARY, "libc6-dev-arm64-cross"),
];

/// A file of the C library for aarch64.
pub const AARCH64_C_LIBRARY: &str = "/usr/aarch64-linux-gnu/lib/Scrt1.o";

/// apt-get fails while another one runs, lock option or not.
const INSTALL_TRIES: u32 = 4;

/// Installs what is missing, or fails with the command that would.
///
/// What only the aarch64 check uses may stay missing: that check says so itself.
pub fn run(cross: bool) -> Result<()> {
    install_missing(NEEDS)?;
    if cross && let Err(error) = install_missing(CROSS_NEEDS) {
        println!("setup: without aarch64: {error:#}");
    }
    Ok(())
}

fn install_missing(needs: &[Need]) -> Result<()> {
    let packages = missing_packages(needs);
    if packages.is_empty() {
        return Ok(());
    }
    let command = format!(
        "apt-get install --no-install-recommends {}",
        packages.join(" ")
    );
    if !rustix::process::geteuid().is_root() || shell::find("apt-get").is_none() {
        bail!(
            "these programs are missing: {}. On Debian, as root: {command}",
            missing_programs(needs).join(", ")
        );
    }
    println!("setup: {command}");
    install(&packages)?;
    match missing_programs(needs) {
        left if left.is_empty() => Ok(()),
        left => bail!(
            "still missing after the installation: {}. Install them by hand",
            left.join(", ")
        ),
    }
}

fn missing_programs(needs: &[Need]) -> Vec<&'static str> {
    needs
        .iter()
        .filter(|need| shell::find(need.program).is_none())
        .map(|need| need.program)
        .collect()
}

fn missing_packages(needs: &[Need]) -> Vec<&'static str> {
    let mut packages: Vec<_> = needs
        .iter()
        .filter(|need| shell::find(need.program).is_none())
        .map(|need| need.package)
        .collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn install(packages: &[&str]) -> Result<()> {
    let mut last = apt_get("install", packages);
    for attempt in 1..INSTALL_TRIES {
        if last.is_ok() {
            return Ok(());
        }
        if attempt > 1 {
            std::thread::sleep(Duration::from_secs(10));
        }
        // Lists may be missing (a new machine) or old (packages gone from the mirror).
        if let Err(error) = apt_get("update", &[]) {
            println!("setup: {error:#}");
        }
        last = apt_get("install", packages);
    }
    last
}

fn apt_get(verb: &str, packages: &[&str]) -> Result<()> {
    shell::read(
        Command::new("apt-get")
            .args(["-q", "-y", "-o", "DPkg::Lock::Timeout=120"])
            .arg("--no-install-recommends")
            .arg(verb)
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
    .map(drop)
}
