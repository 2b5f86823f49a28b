//! `strake attach` and `strake detach`: a block device of this host, by FUSE and a loop device.
//!
//! The loop device is made here, by the caller and with the caller's rights, not by the daemon:
//! the daemon must answer the first reads of the loop device while `losetup` runs.

use super::{CliError, CliResult, Context};
use clap::Args;
use serde::Serialize;
use std::path::Path;
use std::process::Command;
use strake_api::{self as api, ExportKind, ExportState};

/// Options of attach.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// Array, by name or UUID
    pub name: String,
}

/// Options of detach.
#[derive(Debug, Args)]
pub struct DetachArgs {
    /// Array, by name or UUID
    pub name: String,
}

/// What attach answers.
#[derive(Debug, Serialize)]
struct Attached {
    changed: bool,
    device: String,
    file: String,
}

/// What detach answers.
#[derive(Debug, Serialize)]
struct Detached {
    changed: bool,
    message: String,
    devices: Vec<String>,
}

/// Makes the array a block device and prints its path.
pub fn attach(args: &AttachArgs, context: &Context) -> CliResult {
    need_root("attach")?;
    let array: api::ArrayDetail = context.client.get(&["v1", "arrays", &args.name])?;
    let request = api::CreateExport {
        array: array.uuid.to_string(),
        kind: ExportKind::Fuse,
        for_attach: !has_fuse(&array),
    };
    let made: api::ExportOutcome = context.client.post(&["v1", "exports"], &request)?;
    let file = made.export.address;
    if let Some(device) = loops_of(&file)?.into_iter().next() {
        return answer_attach(context, false, device, file);
    }
    let block_size = array
        .geometry
        .map_or(4096, |g| g.block_size_bytes)
        .to_string();
    let mut arguments = vec![
        "--find",
        "--show",
        "--direct-io=on",
        "--sector-size",
        &block_size,
    ];
    if array.read_only {
        arguments.push("--read-only");
    }
    arguments.push(&file);
    match losetup(&arguments) {
        Ok(device) => answer_attach(context, true, device.trim().to_owned(), file),
        Err(error) => {
            if made.changed && made.export.for_attach {
                // What failed was the loop device; leave nothing behind. The error tells enough.
                let path = ["v1", "exports", &made.export.id];
                let _ = context.client.delete::<api::ExportOutcome>(&path, false);
            }
            Err(error)
        }
    }
}

fn answer_attach(context: &Context, changed: bool, device: String, file: String) -> CliResult {
    if !changed && !context.json {
        eprintln!("strake: already attached");
    }
    let attached = Attached {
        changed,
        device,
        file,
    };
    context.print(&attached, |attached| attached.device.clone())
}

/// Takes the block device away, and the FUSE export if attach made it.
pub fn detach(args: &DetachArgs, context: &Context) -> CliResult {
    need_root("detach")?;
    let array: api::ArrayDetail = context.client.get(&["v1", "arrays", &args.name])?;
    let name = &array.name;
    let export = array.exports.iter().find(|e| e.kind == ExportKind::Fuse);
    let Some(export) = export else {
        let message = format!("array {name} is not attached");
        return answer_detach(context, false, Vec::new(), message);
    };
    let devices = loops_of(&export.address)?;
    for device in &devices {
        let users = users_of(device);
        if !users.is_empty() {
            return Err(CliError::Other(format!(
                "{device} is in use ({}): unmount or stop that first, then detach {name}",
                users.join(", ")
            )));
        }
    }
    for device in &devices {
        losetup(&["--detach", device])?;
        wait_until_gone(device, &export.address);
    }
    let mut message = match devices.is_empty() {
        true => format!("array {name} had no block device"),
        false => format!("{} detached from array {name}", devices.join(", ")),
    };
    if export.for_attach {
        let path = ["v1", "exports", &export.id];
        let _removed: api::ExportOutcome = context.client.delete(&path, false)?;
        message += &format!("; its export {} removed", export.id);
    } else if devices.is_empty() {
        message = format!("array {name} is not attached");
    }
    let changed = !devices.is_empty() || export.for_attach;
    answer_detach(context, changed, devices, message)
}

fn answer_detach(
    context: &Context,
    changed: bool,
    devices: Vec<String>,
    message: String,
) -> CliResult {
    let detached = Detached {
        changed,
        message,
        devices,
    };
    context.print(&detached, |detached| detached.message.clone())
}

fn has_fuse(array: &api::ArrayDetail) -> bool {
    let serving = |e: &&api::Export| e.kind == ExportKind::Fuse && e.state == ExportState::Serving;
    let mut exports = array.exports.iter().filter(serving);
    exports.any(|export| !export.for_attach)
}

fn need_root(verb: &str) -> CliResult {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(CliError::Other(format!(
        "{verb} makes a loop device, which only root may: run it with sudo, or use NBD (`strake export create NAME --nbd`), which needs no rights"
    )))
}

fn losetup(arguments: &[&str]) -> CliResult<String> {
    let output = Command::new("losetup")
        .args(arguments)
        .output()
        .map_err(|error| {
            CliError::Other(format!(
                "cannot run losetup ({error}): it belongs to util-linux (package mount in Debian)"
            ))
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(CliError::Other(format!(
        "losetup {} failed: {}",
        arguments.join(" "),
        reason.trim()
    )))
}

/// Loop devices on the file.
fn loops_of(file: &str) -> CliResult<Vec<String>> {
    if !Path::new(file).exists() {
        return Ok(Vec::new());
    }
    Ok(parse_loops(&losetup(&["--associated", file])?))
}

/// `losetup -j` writes `/dev/loop0: [0047]:2 (/run/strake/volumes/data)` a line.
fn parse_loops(text: &str) -> Vec<String> {
    let device = |line: &str| line.split_once(": ").map(|(device, _)| device.to_owned());
    text.lines().filter_map(device).collect()
}

/// Who uses a block device: mount points, swap, and devices stacked on it.
fn users_of(device: &str) -> Vec<String> {
    let name = device.trim_start_matches("/dev/");
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let number = read(&format!("/sys/block/{name}/dev"));
    let mut users = mounts_of(&read("/proc/self/mountinfo"), number.trim(), device);
    let swap = read("/proc/swaps");
    if swap
        .lines()
        .any(|line| line.split_whitespace().next() == Some(device))
    {
        users.push("swap".to_owned());
    }
    let holders = std::fs::read_dir(format!("/sys/block/{name}/holders"));
    for holder in holders.into_iter().flatten().flatten() {
        users.push(holder.file_name().to_string_lossy().into_owned());
    }
    users
}

/// Mount points of a device: by its number, and by its name where it is the source or an option
/// (an external journal).
fn mounts_of(mountinfo: &str, number: &str, device: &str) -> Vec<String> {
    let uses = |line: &&str| {
        let own = line.split(' ').nth(2) == Some(number);
        let rest = line.split(" - ").nth(1).unwrap_or("");
        own || rest.split([' ', ',', '=']).any(|word| word == device)
    };
    let point = |line: &str| {
        line.split(' ')
            .nth(4)
            .map(|point| format!("mounted at {point}"))
    };
    mountinfo.lines().filter(uses).filter_map(point).collect()
}

/// The kernel takes a loop device apart a moment after it was told to.
fn wait_until_gone(device: &str, file: &str) {
    for _ in 0..50 {
        match loops_of(file) {
            Ok(loops) if loops.iter().any(|other| other == device) => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losetup_output_is_read() {
        let text = "/dev/loop0: [0047]:2 (/run/strake/volumes/data)\n/dev/loop12: []: (/x)\n";
        assert_eq!(parse_loops(text), ["/dev/loop0", "/dev/loop12"]);
        assert!(parse_loops("").is_empty());
    }

    #[test]
    fn a_mount_or_an_external_journal_is_a_user() {
        let text = "\
30 1 7:0 / /mnt/data rw - xfs /dev/loop0 rw,logdev=/dev/loop1,noquota
31 1 8:1 / / rw - ext4 /dev/sda1 rw
";
        assert_eq!(
            mounts_of(text, "7:0", "/dev/loop0"),
            ["mounted at /mnt/data"]
        );
        assert_eq!(
            mounts_of(text, "7:1", "/dev/loop1"),
            ["mounted at /mnt/data"]
        );
        assert!(mounts_of(text, "7:2", "/dev/loop2").is_empty());
    }
}
