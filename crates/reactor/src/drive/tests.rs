use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Command;

use super::*;

fn spec(text: &str) -> DriveSpec {
    DriveSpec(text.into())
}

fn file_of(folder: &Path, name: &str, bytes: u64) -> DriveSpec {
    let path = folder.join(name);
    File::create(&path).unwrap().set_len(bytes).unwrap();
    spec(path.to_str().unwrap())
}

#[test]
fn specs_are_taken_apart() {
    let memory = |size_bytes, label: Option<&str>| DriveKind::Memory {
        size_bytes,
        label: label.map(str::to_owned),
    };
    let cases = [
        ("/dev/x", DriveKind::Path("/dev/x".into())),
        ("memory:64MiB", memory(64 << 20, None)),
        ("memory:64MiB:a:b", memory(64 << 20, Some("a:b"))),
        ("memory:10000", memory(8192, None)),
        (
            "null:1TiB:n",
            DriveKind::Null {
                size_bytes: 1 << 40,
                label: Some("n".into()),
            },
        ),
        (
            "faulty:memory:4k",
            DriveKind::Faulty(Box::new(memory(4096, None))),
        ),
        (
            "faulty:/x",
            DriveKind::Faulty(Box::new(DriveKind::Path("/x".into()))),
        ),
        (
            "paced:cm7/16:1GiB:p",
            DriveKind::Paced {
                model: pace::PaceModel::parse("cm7/16").unwrap(),
                size_bytes: 1 << 30,
                label: Some("p".into()),
            },
        ),
    ];
    for (text, kind) in cases {
        assert_eq!(spec(text).parse().unwrap(), kind, "{text}");
    }
}

#[test]
fn a_write_cache_is_told_before_the_drive_and_within_faulty() {
    let path = |text: &str| DriveKind::Path(text.into());
    let faulty = || DriveKind::Faulty(Box::new(path("/x")));
    let cases = [
        ("/x", path("/x"), None),
        ("cache=none:/x", path("/x"), Some(WriteCache::None)),
        ("cache=volatile:/x", path("/x"), Some(WriteCache::Volatile)),
        ("cache=none:faulty:/x", faulty(), Some(WriteCache::None)),
        ("faulty:cache=none:/x", faulty(), Some(WriteCache::None)),
        // A path is a path, whatever is in it.
        ("/x,cache=none", path("/x,cache=none"), None),
        ("/cache=none:/x", path("/cache=none:/x"), None),
    ];
    for (text, kind, told) in cases {
        assert_eq!(spec(text).parse().unwrap(), kind, "{text}");
        assert_eq!(spec(text).write_cache().unwrap(), told, "{text}");
    }
}

#[test]
fn bad_specs_say_what_is_accepted() {
    let cases = [
        ("", "absolute path"),
        ("relative", "absolute path"),
        ("disk:1", "disk: is not a kind"),
        ("memory:", "not understood"),
        ("memory:64XB", "not understood"),
        ("memory:1000", "4KiB"),
        ("memory:99999999TiB", "EiB"),
        ("memory:1MiB:", "label"),
        ("faulty:faulty:/x", "twice"),
        ("faulty:x", "absolute path"),
        ("paced:cm7", "no size"),
        ("paced:cm8:1GiB", "not a model"),
        ("paced:cm7/0:1GiB", "whole number"),
        ("paced:cm7:1", "4KiB"),
        ("cache=none", "absolute path"),
        ("cache=none:x", "absolute path"),
        ("cache=some:/x", "cache=none: for"),
        ("cache=:/x", "cache=none: for"),
        ("cache=none:cache=none:/x", "twice"),
        ("cache=none:faulty:cache=volatile:/x", "twice"),
    ];
    for (text, part) in cases {
        let error = spec(text).parse().unwrap_err().to_string();
        assert!(error.contains(part), "{text:?}: {error}");
    }
}

#[test]
fn sizes_have_units() {
    let cases = [
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("1K", 1024),
        ("1KB", 1000),
        ("64KiB", 65536),
        ("1.5TiB", 3 << 39),
        ("2 TB", 2_000_000_000_000),
        ("8EiB", 8 << 60),
    ];
    for (text, bytes) in cases {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for text in [
        "", "KiB", "-1", "1.K", ".5K", "1.2.3K", "1KiBs", "16EiB", "1e3",
    ] {
        assert!(parse_size(text).is_err(), "{text}");
    }
}

#[test]
fn files_are_described_without_a_claim() {
    let folder = tempfile::tempdir().unwrap();
    let drive = file_of(folder.path(), "d0", (1 << 20) + 1000);
    let _claimed = blocking(&drive, false).unwrap();
    let info = describe(&drive).unwrap();
    let block = u64::from(info.block_size_bytes);
    assert_eq!(info.size_bytes, ((1 << 20) + 1000) / block * block);
    assert_eq!(info.serial, info.identity);
    assert!(info.serial.starts_with("file-"), "{}", info.serial);
    assert_eq!(
        (info.path.as_str(), info.model.as_str()),
        (drive.0.as_str(), "file")
    );
    assert!(info.volatile_cache && info.fast_zeroes);
    assert!(
        info.notes[0].starts_with("write cache: volatile (a file"),
        "{:?}",
        info.notes
    );

    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&drive.0, &link).unwrap();
    let other = describe(&spec(link.to_str().unwrap())).unwrap();
    assert_eq!((other.path, other.identity), (info.path, info.identity));
    let faulty = describe(&spec(&format!("faulty:{drive}"))).unwrap();
    assert_eq!(faulty.identity, info.serial);
}

#[test]
fn what_is_no_drive_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    let cases = [
        (spec(absent.to_str().unwrap()), "check the path"),
        (spec(folder.path().to_str().unwrap()), "regular file"),
        (spec("/dev/null"), "regular file"),
        (file_of(folder.path(), "empty", 0), "truncate"),
        (file_of(folder.path(), "small", 1024), "truncate"),
    ];
    for (spec, part) in cases {
        for error in [describe(&spec).err(), blocking(&spec, true).err()] {
            let error = error.unwrap().to_string();
            assert!(error.contains(part), "{spec}: {error}");
            assert!(error.contains(&spec.0), "{error}");
        }
    }
}

#[test]
fn a_cache_is_what_the_queue_says_and_what_is_told_comes_first() {
    use cache::{Found, WhenDurable};
    let through = Found::of_queue(Some("write through"), false, false);
    let back = Found::of_queue(Some("write back"), true, false);
    let without_fua = Found::of_queue(Some("write back"), false, false);
    let silent = Found::of_queue(None, false, false);
    let behind_loop = Found::of_queue(Some("write through"), false, true);
    let (none, volatile) = (Some(WriteCache::None), Some(WriteCache::Volatile));
    use WhenDurable::{AtCompletion, EachWrite, OnRequest};
    let cases = [
        (
            through,
            None,
            AtCompletion,
            "protected (kernel: write through)",
        ),
        (back, None, OnRequest, "volatile (kernel: write back)"),
        (without_fua, None, OnRequest, "no FUA"),
        (silent, None, OnRequest, "does not say"),
        (behind_loop, None, OnRequest, "volatile (a loop device"),
        (Found::FILE, None, OnRequest, "volatile (a file"),
        (Found::BUFFERED, None, OnRequest, "volatile (buffered"),
        (Found::MEMORY, None, AtCompletion, ""),
        (
            back,
            none,
            AtCompletion,
            "protected (by option; kernel: write back)",
        ),
        (through, volatile, OnRequest, "volatile (by option; kernel"),
        (behind_loop, none, EachWrite, "each write is made durable"),
        (Found::FILE, none, EachWrite, "each write is made durable"),
        (Found::FILE, volatile, OnRequest, "by option"),
        (Found::MEMORY, volatile, OnRequest, "volatile (by option)"),
    ];
    for (found, told, when, part) in cases {
        let mut info = describe(&spec("memory:4KiB")).unwrap();
        info.notes.clear();
        assert_eq!(
            cache::settle(told, found, &mut info),
            when,
            "{found:?} {told:?}"
        );
        assert_eq!(info.volatile_cache, when == OnRequest, "{found:?} {told:?}");
        let note = info.notes.concat();
        assert!(
            note.contains(part) && note.is_empty() == part.is_empty(),
            "{note}"
        );
    }
}

#[test]
fn what_is_told_of_a_cache_changes_neither_path_nor_identity() {
    let folder = tempfile::tempdir().unwrap();
    let plain = file_of(folder.path(), "d0", 1 << 20);
    let found = describe(&plain).unwrap();
    let told = spec(&format!("cache=none:{plain}"));
    let open = blocking(&told, false).unwrap();
    for info in [&describe(&told).unwrap(), open.info()] {
        assert!(!info.volatile_cache);
        assert_eq!((&info.path, &info.identity), (&found.path, &found.identity));
        assert_eq!(info.spec, told);
        let about_cache = info
            .notes
            .iter()
            .filter(|note| note.starts_with("write cache: "));
        assert_eq!(about_cache.count(), 1, "{:?}", info.notes);
    }
    // The claim is one for both texts, and each opening is told its own.
    assert!(blocking(&plain, false).unwrap().info().volatile_cache);
    assert!(in_use(&told).unwrap().is_none());
}

#[test]
fn a_paced_drive_says_whose_pace_it_keeps_and_is_one_by_its_label() {
    let drive = spec("paced:cm7/16:1MiB:drive-tests-p");
    let info = describe(&drive).unwrap();
    assert_eq!(info.model, "paced cm7/16");
    assert!(
        info.notes
            .iter()
            .any(|note| note.contains("slowed 16 times"))
    );
    assert!(!info.volatile_cache);
    blocking(&drive, false)
        .unwrap()
        .write_at(4096, &[7; 512])
        .unwrap();
    let mut seen = [0; 512];
    blocking(&drive, true)
        .unwrap()
        .read_at(4096, &mut seen)
        .unwrap();
    assert_eq!(seen, [7; 512]);
    for other in [
        "paced:cm7:1MiB:drive-tests-p",
        "paced:cm7/16:2MiB:drive-tests-p",
    ] {
        let error = blocking(&spec(other), true).err().unwrap().to_string();
        assert!(error.contains("exists as cm7/16"), "{error}");
    }
}

#[test]
fn labelled_memory_is_one_drive_and_unlabelled_always_new() {
    let named = spec("memory:1MiB:drive-tests-a");
    blocking(&named, false)
        .unwrap()
        .write_at(8192, &[3; 512])
        .unwrap();
    let again = blocking(&named, true).unwrap();
    let mut seen = [0; 1024];
    again.read_at(8192, &mut seen).unwrap();
    assert_eq!((seen[511], seen[512]), (3, 0));
    let other_size = blocking(&spec("memory:2MiB:drive-tests-a"), true);
    assert!(other_size.err().unwrap().to_string().contains("exists"));

    let unnamed = spec("memory:1MiB");
    let first = blocking(&unnamed, false).unwrap();
    first.write_at(0, &[3; 512]).unwrap();
    let second = blocking(&unnamed, false).unwrap();
    second.read_at(0, &mut seen[..512]).unwrap();
    assert_eq!(seen[0], 0);
    assert_ne!(first.info().identity, second.info().identity);
}

#[test]
fn blocking_reads_and_writes_any_memory() {
    for folder in [tempfile::tempdir(), tempfile::tempdir_in("/dev/shm")] {
        let folder = folder.unwrap();
        let drive = file_of(folder.path(), "d", 8 << 20);
        let open = blocking(&drive, false).unwrap();
        let content: Vec<u8> = (0..3 << 20).map(|i: u32| (i / 4096) as u8).collect();
        open.write_at(4096, &content).unwrap();
        open.flush().unwrap();
        let mut seen = vec![0; content.len() + 1];
        open.read_at(4096, &mut seen[1..]).unwrap();
        assert!(seen[1..] == content);
        for (offset, len) in [(1, 4096), (0, 100), (8 << 20, 4096), (u64::MAX - 511, 512)] {
            let error = open.read_at(offset, &mut vec![0; len]).unwrap_err();
            assert_eq!(
                error.kind(),
                std::io::ErrorKind::InvalidInput,
                "{offset} {len}"
            );
        }
        drop(open);
        let read_only = blocking(&drive, true).unwrap();
        let error = read_only.write_at(0, &content[..4096]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    }
}

#[test]
fn blocking_drives_fail_as_told() {
    let drive = spec("faulty:memory:1MiB:drive-tests-f");
    let open = blocking(&drive, false).unwrap();
    let set = |plan| crate::faulty::set(&drive, Some(plan)).unwrap();
    open.write_at(0, &[1; 4096]).unwrap();
    set(FaultPlan {
        torn_write_one_in: Some(1),
        ..FaultPlan::default()
    });
    open.write_at(0, &[2; 4096]).unwrap_err();
    set(FaultPlan {
        lost_write_one_in: Some(1),
        ..FaultPlan::default()
    });
    open.write_at(0, &[3; 4096]).unwrap();
    let mut seen = [0; 4096];
    open.read_at(0, &mut seen).unwrap();
    assert_eq!((seen[2047], seen[2048]), (2, 1));
    set(FaultPlan {
        dead: true,
        ..FaultPlan::default()
    });
    let error = open.read_at(0, &mut seen).unwrap_err().to_string();
    assert!(error.contains("read at 0"), "{error}");
    open.flush().unwrap_err();
}

/// Opens a file or device in another process for as long as the guard lives.
struct OtherProcess {
    child: std::process::Child,
    /// Kept open: the other process prints until its end.
    _output: BufReader<std::process::ChildStdout>,
}

const HOLD: &str = "STRAKE_TEST_HOLD";

impl OtherProcess {
    fn holding(drive: &DriveSpec, read_only: bool) -> OtherProcess {
        let mode = if read_only { "r" } else { "w" };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "drive::tests::hold_for_another_test",
                "--nocapture",
            ])
            .env(HOLD, format!("{mode}{drive}"))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let held = output
            .by_ref()
            .lines()
            .any(|line| line.unwrap().contains("HELD"));
        assert!(held, "the other process could not open {drive}");
        OtherProcess {
            child,
            _output: output,
        }
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Does nothing by itself: [`OtherProcess`] runs it.
#[test]
fn hold_for_another_test() {
    let Ok(order) = std::env::var(HOLD) else {
        return;
    };
    let (mode, path) = order.split_at(1);
    let _held = blocking(&spec(path), mode == "r").unwrap();
    println!("\nHELD");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_file_is_claimed_against_other_processes() {
    let folder = tempfile::tempdir().unwrap();
    let drive = file_of(folder.path(), "d", 1 << 20);
    let is_busy = |read_only| matches!(blocking(&drive, read_only), Err(OpenError::Busy { .. }));
    let writer = OtherProcess::holding(&drive, false);
    assert!(is_busy(false) && is_busy(true));
    drop(writer);
    let reader = OtherProcess::holding(&drive, true);
    assert!(is_busy(false) && !is_busy(true));
    drop(reader);
    assert!(!is_busy(false));
}

#[test]
fn within_the_process_a_claim_is_shared_and_ends_with_the_last() {
    let folder = tempfile::tempdir().unwrap();
    let drive = file_of(folder.path(), "d", 1 << 20);
    let first = blocking(&drive, false).unwrap();
    let second = blocking(&drive, false).unwrap();
    drop(first);
    second.write_at(0, &[1; 4096]).unwrap();
    drop(second);
    let reader = blocking(&drive, true).unwrap();
    assert!(matches!(
        blocking(&drive, false),
        Err(OpenError::Busy { .. })
    ));
    drop(reader);
    drop(OtherProcess::holding(&drive, false));
}

#[test]
fn a_file_behind_a_loop_device_is_busy_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let drive = file_of(folder.path(), "d", 1 << 20);
    let Some(device) = Loop::over(&drive) else {
        return;
    };
    let text = blocking(&drive, false).err().unwrap().to_string();
    assert!(text.contains(&device.0), "{text}");
    assert!(in_use(&drive).unwrap().unwrap().contains("losetup -d"));
    assert_eq!(in_use(&spec(&device.0)).unwrap(), None);
}

#[test]
fn a_block_device_is_claimed_from_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let backing = file_of(folder.path(), "d", 16 << 20);
    let Some(device) = Loop::over(&backing) else {
        return;
    };
    let drive = spec(&device.0);
    let info = describe(&drive).unwrap();
    assert_eq!((info.size_bytes, info.block_size_bytes), (16 << 20, 512));
    assert!(info.identity.starts_with("dev-7:"), "{}", info.identity);
    assert!(info.serial.starts_with("loop-file-"), "{}", info.serial);
    assert_eq!(info.model, "loop");
    assert!(
        info.volatile_cache && info.notes.concat().contains("volatile (a loop device"),
        "{:?}",
        info.notes
    );
    let writer = OtherProcess::holding(&drive, false);
    let text = blocking(&drive, false).err().unwrap().to_string();
    assert!(text.contains("in use: another process"), "{text}");
    drop(writer);
    blocking(&drive, false)
        .unwrap()
        .write_at(0, &[0; 4096])
        .unwrap();
}

#[test]
fn mounts_and_swap_are_found_in_the_kernels_tables() {
    let mounts = "24 1 254:0 / / rw - ext4 /dev/vda rw\n\
                  36 24 259:3 /sub /mnt/a\\040b rw,noatime shared:7 - xfs /dev/nvme0n1p2 rw\n\
                  37 24 0:44 / /srv rw - btrfs /dev/nvme9n9 rw\n";
    let names = |name: &str| vec![std::path::PathBuf::from(name)];
    let cases = [
        ("/dev/nvme0n1p2", (259, 3), Some("/mnt/a b")),
        ("/dev/renamed", (259, 3), Some("/mnt/a b")),
        ("/dev/nvme9n9", (259, 9), Some("/srv")),
        ("/dev/nvme0n1", (259, 1), None),
    ];
    for (name, device, point) in cases {
        let by = usage::mount_in(mounts, &names(name), &[device]);
        let expected = point.map(|p| format!("mounted at {p}; unmount it with: umount {p}"));
        assert_eq!(by, expected, "{name}");
    }
    let swaps = "Filename\tType\tSize\tUsed\tPriority\n/dev/nvme0n1p3  partition\t8\t0\t-2\n";
    assert!(
        usage::swap_in(swaps, &names("/dev/nvme0n1p3"))
            .unwrap()
            .contains("swapoff")
    );
    assert_eq!(usage::swap_in(swaps, &names("/dev/nvme0n1p4")), None);
}

/// A loop device over a file; detached on drop.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    /// `None`, said loudly, where this machine or user cannot.
    pub(crate) fn over(drive: &DriveSpec) -> Option<Loop> {
        let run = Command::new("losetup")
            .args(["--find", "--show", &drive.0])
            .output();
        match run {
            Ok(run) if run.status.success() => Some(Loop(
                String::from_utf8(run.stdout).unwrap().trim().to_owned(),
            )),
            other => {
                eprintln!("SKIPPED: no loop device (needs root): {other:?}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}
