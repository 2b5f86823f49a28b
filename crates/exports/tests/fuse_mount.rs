//! FUSE as the kernel, loop devices and file systems use it.
//!
//! Needs root, `/dev/fuse` and loop devices. Where they are missing the tests fail, unless
//! `STRAKE_TEST_WITHOUT_FUSE=1` says that this is known.

mod common;

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::mock::{Mock, Mode, info};
use common::{client, run, try_run};
use strake_engine::block::BlockError;
use strake_exports::fuse::{FuseError, FuseMount, FuseOptions};

const SIZE: u64 = 64 << 20;

/// Whether to test; fails when FUSE is missing and nobody said so.
fn fuse_is_here() -> bool {
    if std::env::var_os("STRAKE_TEST_WITHOUT_FUSE").is_some_and(|value| value == "1") {
        eprintln!("not tested: STRAKE_TEST_WITHOUT_FUSE=1");
        return false;
    }
    let root = rustix::process::geteuid().is_root();
    assert!(
        root && Path::new("/dev/fuse").exists(),
        "these tests need root and /dev/fuse; set STRAKE_TEST_WITHOUT_FUSE=1 to go without"
    );
    true
}

/// A mount with one volume; taken away again whatever happens.
struct Mounted {
    mount: FuseMount,
    mock: Arc<Mock>,
    file: PathBuf,
    directory: tempfile::TempDir,
}

impl Mounted {
    fn new(mock: Arc<Mock>) -> Mounted {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("volumes");
        let mount = FuseMount::mount(&at, FuseOptions::default()).unwrap();
        let file = mount.add("vol", mock.clone()).unwrap();
        Mounted {
            mount,
            mock,
            file,
            directory,
        }
    }

    fn open(&self, flags: i32) -> File {
        File::options()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(&self.file)
            .unwrap()
    }

    fn path(&self) -> &str {
        self.file.to_str().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.mock.violations(), 0, "every request kept the contract");
        }
    }
}

fn random_file(directory: &Path, length: u64) -> PathBuf {
    let mut bytes = vec![0; length as usize];
    fastrand::Rng::with_seed(length).fill(&mut bytes);
    let path = directory.join(format!("random{length}"));
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_volume_is_a_file_with_its_size() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(SIZE));
    let meta = fs::metadata(&mounted.file).unwrap();
    assert_eq!((meta.len(), meta.nlink(), meta.uid()), (SIZE, 1, 0));
    assert_eq!(meta.mode(), 0o100_600);
    assert_eq!(meta.blocks() * 512, SIZE);
    mounted.mount.add("second", Mock::of(8192)).unwrap();
    let mut names: Vec<String> = fs::read_dir(mounted.mount.directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["second", "vol"]);
    assert_eq!(mounted.mount.file_path("vol").as_ref(), Some(&mounted.file));
    assert_eq!(mounted.mount.file_path("third"), None);
    let missing = fs::metadata(mounted.mount.directory().join("third")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let text = run("stat", &["-f", "-c", "%S %b", mounted.path()]);
    assert_eq!(text.trim(), format!("4096 {}", (SIZE + 8192) / 4096));
    let xattr = rustix::fs::getxattr(&mounted.file, "user.x", &mut [0; 16]);
    assert_eq!(xattr, Err(rustix::io::Errno::OPNOTSUPP));
}

#[test]
fn what_a_volume_can_not_do_is_refused() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(SIZE));
    let file = mounted.open(0);
    file.set_len(SIZE).expect("the same size");
    let errno = |error: std::io::Error| error.raw_os_error().unwrap();
    assert_eq!(errno(file.set_len(0).unwrap_err()), libc::EINVAL);
    assert_eq!(errno(file.set_len(SIZE * 2).unwrap_err()), libc::EINVAL);
    let other = mounted.mount.directory().join("other");
    assert!(File::create(&other).is_err());
    assert!(fs::remove_file(&mounted.file).is_err());
    assert!(fs::rename(&mounted.file, &other).is_err());
    assert_eq!(
        errno(file.write_at(&[1; 4096], SIZE).unwrap_err()),
        libc::ENOSPC
    );
    assert_eq!(file.write_at(&[1; 8192], SIZE - 4096).unwrap(), 4096);
    let mode = libc::FALLOC_FL_COLLAPSE_RANGE;
    assert_eq!(fallocate(&file, mode, 0, 4096), Err(libc::EOPNOTSUPP));
    assert_eq!(fallocate(&file, 0, 0, SIZE), Ok(()));
    assert_eq!(fallocate(&file, 0, SIZE, 4096), Err(libc::ENOSPC));
    assert_eq!(fs::metadata(&mounted.file).unwrap().len(), SIZE);

    let mut shape = info(SIZE);
    shape.read_only = true;
    let mounted = Mounted::new(Mock::new(shape, Mode::Shuffled));
    let error = File::options().write(true).open(&mounted.file).unwrap_err();
    assert_eq!(errno(error), libc::EROFS);
    assert!(File::open(&mounted.file).is_ok());
}

fn fallocate(file: &File, mode: i32, offset: u64, length: u64) -> Result<(), i32> {
    let flags = rustix::fs::FallocateFlags::from_bits_retain(mode as u32);
    rustix::fs::fallocate(file, flags, offset, length).map_err(|error| error.raw_os_error())
}

#[test]
fn cached_reads_and_writes_of_any_shape_arrive() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(SIZE));
    let source = random_file(mounted.directory.path(), 10_000_000);
    let (from, to) = (
        format!("if={}", source.display()),
        format!("of={}", mounted.path()),
    );
    run(
        "dd",
        &[
            &from,
            &to,
            "bs=1000",
            "conv=notrunc,fsync",
            "count=3000",
            "seek=7",
        ],
    );
    let expected = fs::read(&source).unwrap();
    assert!(mounted.mock.content()[7000..3_007_000] == expected[..3_000_000]);
    assert!(mounted.mock.counts().flushes.load(Ordering::SeqCst) > 0);
    run("dd", &[&from, &to, "bs=1M", "conv=notrunc"]);
    assert!(mounted.mock.content()[..10_000_000] == expected[..]);
    let mut read = Vec::new();
    File::open(&mounted.file)
        .unwrap()
        .take(10_000_000)
        .read_to_end(&mut read)
        .unwrap();
    assert!(read == expected);
    let (success, text) = try_run("dd", &["if=/dev/zero", &to, "bs=1M", "conv=notrunc"]);
    assert!(
        !success && text.contains("No space left on device"),
        "{text}"
    );
    assert!(mounted.mock.content().iter().all(|&byte| byte == 0));
    run("cmp", &["-n", "67108864", mounted.path(), "/dev/zero"]);
}

#[test]
fn direct_io_passes_straight_through() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(SIZE));
    let source = random_file(mounted.directory.path(), 8 << 20);
    let (from, to) = (
        format!("if={}", source.display()),
        format!("of={}", mounted.path()),
    );
    let writes = || mounted.mock.counts().writes.load(Ordering::SeqCst);
    run("dd", &[&from, &to, "bs=1M", "oflag=direct", "conv=notrunc"]);
    assert_eq!(writes(), 8, "a megabyte is one request");
    assert!(mounted.mock.content()[..8 << 20] == fs::read(&source).unwrap());
    let reads = mounted.mock.counts().reads.load(Ordering::SeqCst);
    for _ in 0..2 {
        let from = format!("if={}", mounted.path());
        run(
            "dd",
            &[&from, "of=/dev/null", "bs=1M", "count=8", "iflag=direct"],
        );
    }
    let reads = mounted.mock.counts().reads.load(Ordering::SeqCst) - reads;
    assert_eq!(reads, 16, "nothing was cached");
    let durable = || mounted.mock.counts().durable.load(Ordering::SeqCst);
    run(
        "dd",
        &[
            &from,
            &to,
            "bs=1M",
            "oflag=direct,dsync",
            "count=1",
            "conv=notrunc",
        ],
    );
    let flushes = mounted.mock.counts().flushes.load(Ordering::SeqCst);
    assert!(durable() + flushes > 0, "a synchronous write is durable");
}

#[test]
fn fallocate_discards_and_zeroes() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(SIZE));
    mounted.mock.fill(1);
    let mut model = mounted.mock.content();
    run(
        "fallocate",
        &["-p", "-o", "65536", "-l", "1048576", mounted.path()],
    );
    model[65536..65536 + (1 << 20)].fill(0);
    assert!(mounted.mock.content() == model);
    assert_eq!(mounted.mock.counts().discards.load(Ordering::SeqCst), 1);
    assert_eq!(mounted.mock.counts().writes.load(Ordering::SeqCst), 0);
    let file = mounted.open(0);
    fallocate(
        &file,
        libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
        2 << 20,
        1 << 20,
    )
    .unwrap();
    model[2 << 20..3 << 20].fill(0);
    assert!(mounted.mock.content() == model);
    assert_eq!(mounted.mock.counts().zeroings.load(Ordering::SeqCst), 1);
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    fallocate(&file, punch, 5_000_001, 100_000).unwrap();
    model[5_000_001..5_100_001].fill(0);
    assert!(
        mounted.mock.content() == model,
        "parts of blocks are zeroed, too"
    );
    let mut read = vec![1; 100_000];
    file.read_exact_at(&mut read, 5_000_001).unwrap();
    assert!(read.iter().all(|&byte| byte == 0));
    fallocate(&file, punch, 0, SIZE).unwrap();
    assert!(mounted.mock.content().iter().all(|&byte| byte == 0));
}

fn fio(mounted: &Mounted, more: &[&str]) {
    let output = client("fio")
        .current_dir(mounted.directory.path())
        .args([
            "--name=t",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--size=32m",
        ])
        .arg(format!("--filename={}", mounted.path()))
        .args(more)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{more:?}: {text}{output:?}");
}

#[test]
fn fio_verifies_direct_and_cached() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(SIZE));
    let runs: [&[&str]; 4] = [
        &[
            "--direct=1",
            "--rw=randwrite",
            "--bs=4k",
            "--ioengine=libaio",
            "--iodepth=32",
        ],
        &[
            "--direct=1",
            "--rw=randwrite",
            "--bs=64k",
            "--ioengine=psync",
            "--offset=32m",
        ],
        &[
            "--direct=1",
            "--rw=write",
            "--bs=1m",
            "--ioengine=io_uring",
            "--iodepth=8",
        ],
        &[
            "--direct=0",
            "--rw=randwrite",
            "--bsrange=512-20000",
            "--bs_unaligned=1",
            "--ioengine=psync",
            "--fsync=64",
        ],
    ];
    for more in runs {
        fio(&mounted, more);
    }
}

#[test]
fn an_open_file_is_not_removed_and_a_name_may_come_back() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(SIZE));
    let mount = &mounted.mount;
    assert_eq!(mount.open_count("vol"), Some(0));
    let file = mounted.open(0);
    assert_eq!(mount.open_count("vol"), Some(1));
    assert!(matches!(
        mount.remove("vol"),
        Err(FuseError::Busy { open_count: 1, .. })
    ));
    let busy = mount.unmount().unwrap_err();
    assert!(busy.to_string().contains("(open: vol)"), "{busy}");
    file.write_at(&[7; 4096], 0).expect("all goes on");
    drop(file);
    mount.remove("vol").expect("just closed");
    assert_eq!(mount.open_count("vol"), None);
    assert_eq!(Arc::strong_count(&mounted.mock), 1, "the device is let go");
    assert!(matches!(
        mount.remove("vol"),
        Err(FuseError::Unknown { .. })
    ));
    assert!(fs::metadata(&mounted.file).is_err());
    let other = Mock::of(2 * SIZE);
    mount.add("vol", other.clone()).unwrap();
    assert_eq!(fs::metadata(&mounted.file).unwrap().len(), 2 * SIZE);
    let mut first = [1; 1];
    File::open(&mounted.file)
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    assert_eq!(first, [0], "nothing of the old volume is cached");
    mount.unmount().unwrap();
    mount.unmount().unwrap();
    assert!(fs::read_dir(mount.directory()).unwrap().next().is_none());
    assert_eq!(Arc::strong_count(&other), 2, "the table still has it");
}

#[test]
fn device_errors_reach_the_program() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(SIZE));
    mounted.mock.set_bad(8192..12288, BlockError::Unavailable);
    let file = mounted.open(0);
    let error = file.read_at(&mut [0; 4096], 8192).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    let error = file.write_at(&[0; 4096], 8192).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    file.write_at(&[0; 4096], 12288).unwrap();
}

/// A loop device over the volume; detached whatever happens.
struct Loop(String);

impl Loop {
    fn new(file: &str, sector: &str) -> Loop {
        let arguments = [
            "--find",
            "--show",
            "--direct-io=on",
            "--sector-size",
            sector,
            file,
        ];
        // Others on this machine may take the same free device at the same moment.
        for _ in 0..20 {
            let (success, text) = try_run("losetup", &arguments);
            if success {
                return Loop(text.trim().to_owned());
            }
            assert!(text.contains("busy"), "losetup: {text}");
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("no loop device for {file}");
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = try_run("losetup", &["-d", &self.0]);
    }
}

/// A mounted file system; unmounted whatever happens.
struct Filesystem(PathBuf);

impl Filesystem {
    fn new(device: &str, at: PathBuf) -> Filesystem {
        fs::create_dir(&at).unwrap();
        run("mount", &[device, at.to_str().unwrap()]);
        Filesystem(at)
    }
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        let _ = try_run("umount", &[&self.0]);
    }
}

/// Makes a file system on a loop device on the volume, fills it, trims it, and reads it again
/// after it was mounted anew.
fn live_on(mounted: &Mounted, sector: &str, mkfs: &str, arguments: &[&str]) {
    let device = Loop::new(mounted.path(), sector);
    let dio = run("losetup", &["-l", "-n", "-O", "DIO", &device.0]);
    assert_eq!(dio.trim(), "1", "direct I/O is on");
    assert_eq!(mounted.mount.open_count("vol"), Some(1));
    assert!(matches!(
        mounted.mount.remove("vol"),
        Err(FuseError::Busy { .. })
    ));
    let mut all = arguments.to_vec();
    all.push(&device.0);
    run(mkfs, &all);
    let filesystem = Filesystem::new(&device.0, mounted.directory.path().join("fs"));
    let counts = mounted.mock.counts();
    let flushes = counts.flushes.load(Ordering::SeqCst);
    let content: Vec<Vec<u8>> = (0..40u64)
        .map(|seed| {
            let mut bytes = vec![0; (seed * 7919) as usize];
            fastrand::Rng::with_seed(seed).fill(&mut bytes);
            let mut file = File::create(filesystem.0.join(format!("file{seed}"))).unwrap();
            file.write_all(&bytes).unwrap();
            file.sync_all().unwrap();
            bytes
        })
        .collect();
    assert!(
        counts.flushes.load(Ordering::SeqCst) > flushes,
        "fsync becomes a flush"
    );
    fs::write(filesystem.0.join("garbage"), vec![1; 8 << 20]).unwrap();
    run("sync", &["-f", filesystem.0.to_str().unwrap()]);
    fs::remove_file(filesystem.0.join("garbage")).unwrap();
    run("sync", &["-f", filesystem.0.to_str().unwrap()]);
    let discards = counts.discards.load(Ordering::SeqCst);
    run("fstrim", &["-v", filesystem.0.to_str().unwrap()]);
    assert!(
        counts.discards.load(Ordering::SeqCst) > discards,
        "trim becomes a discard"
    );
    let at = filesystem.0.clone();
    drop(filesystem);
    fs::remove_dir(&at).unwrap();
    let filesystem = Filesystem::new(&device.0, at);
    for (seed, bytes) in content.iter().enumerate() {
        let read = fs::read(filesystem.0.join(format!("file{seed}"))).unwrap();
        assert!(read == *bytes, "file{seed}");
    }
    drop(filesystem);
    drop(device);
    mounted.mount.unmount().expect("nobody uses it any more");
}

#[test]
fn ext4_lives_on_a_loop_device_with_the_volumes_sectors() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(SIZE));
    live_on(&mounted, "4096", "mkfs.ext4", &["-q", "-F"]);
}

#[test]
fn ext4_lives_on_a_loop_device_with_smaller_sectors() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(SIZE));
    live_on(&mounted, "512", "mkfs.ext4", &["-q", "-F", "-b", "1024"]);
}

#[test]
fn xfs_lives_on_a_loop_device() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(320 << 20));
    live_on(
        &mounted,
        "4096",
        "mkfs.xfs",
        &["-q", "-f", "-s", "size=4096"],
    );
}

#[test]
fn a_loop_device_zeroes_and_discards() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(SIZE));
    mounted.mock.fill(3);
    let device = Loop::new(mounted.path(), "4096");
    run("blkdiscard", &["-f", "-o", "0", "-l", "1048576", &device.0]);
    assert!(mounted.mock.counts().discards.load(Ordering::SeqCst) > 0);
    run(
        "blkdiscard",
        &["-f", "-z", "-o", "1048576", "-l", "1048576", &device.0],
    );
    assert!(mounted.mock.counts().zeroings.load(Ordering::SeqCst) > 0);
    let content = mounted.mock.content();
    assert!(content[..2 << 20].iter().all(|&byte| byte == 0));
    assert!(content[2 << 20..][..4096].iter().any(|&byte| byte != 0));
    run("blkdiscard", &["-f", &device.0]);
    assert!(mounted.mock.content().iter().all(|&byte| byte == 0));
}

#[test]
fn dropping_a_mount_in_use_cuts_its_users_off() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(SIZE));
    let file = mounted.open(libc::O_DIRECT);
    let mock = mounted.mock.clone();
    let volumes = mounted.mount.directory().to_owned();
    let before = Instant::now();
    drop(mounted);
    assert!(before.elapsed() < Duration::from_secs(5));
    assert!(file.read_at(&mut [0; 4096], 0).is_err());
    assert!(
        fs::metadata(volumes).is_err(),
        "the temporary directory is gone, too"
    );
    drop(file);
    assert_eq!(Arc::strong_count(&mock), 1, "the device is let go");
}

#[test]
fn a_living_mount_is_respected() {
    if !fuse_is_here() {
        return;
    }
    let mounted = Mounted::new(Mock::of(SIZE));
    let again = FuseMount::mount(mounted.mount.directory(), FuseOptions::default());
    assert!(matches!(again.map(drop), Err(FuseError::Taken { .. })));
    assert_eq!(fs::metadata(&mounted.file).unwrap().len(), SIZE);
    let file = mounted.directory.path().join("file");
    fs::write(&file, b"x").unwrap();
    let error = FuseMount::mount(&file, FuseOptions::default()).map(drop);
    assert!(matches!(error, Err(FuseError::Mount { .. })));
}

#[test]
fn a_mount_that_a_killed_server_left_is_cleared_away() {
    if !fuse_is_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .unwrap();
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0",
        std::os::fd::AsRawFd::as_raw_fd(&device)
    );
    let options = std::ffi::CString::new(options).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("dead", at, "fuse.dead", flags, options.as_c_str()).unwrap();
    drop(device);
    assert_eq!(
        fs::metadata(at).unwrap_err().raw_os_error(),
        Some(libc::ENOTCONN)
    );
    let mount = FuseMount::mount(at, FuseOptions::default()).unwrap();
    let file = mount.add("vol", Mock::of(SIZE)).unwrap();
    assert_eq!(fs::metadata(file).unwrap().len(), SIZE);
    mount.unmount().unwrap();
    assert!(fs::read_dir(at).is_ok(), "no mount is left");
}
