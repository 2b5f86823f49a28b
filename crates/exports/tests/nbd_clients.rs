//! NBD as clients speak it that we did not write.

mod common;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::mock::{Mock, Mode, info};
use common::{client, run, try_run};
use strake_engine::block::BlockError;
use strake_exports::nbd::{Listen, NbdConfig, NbdServer};

const SIZE: u64 = 64 << 20;

struct Served {
    server: NbdServer,
    mock: Arc<Mock>,
    directory: tempfile::TempDir,
}

impl Served {
    fn new(mock: Arc<Mock>) -> Served {
        let directory = tempfile::tempdir().unwrap();
        let config = NbdConfig {
            listen: Listen::Unix(directory.path().join("nbd.sock")),
            export_name: "vol0".into(),
            description: "Strake volume".into(),
        };
        let server = NbdServer::start(config, mock.clone()).unwrap();
        Served {
            server,
            mock,
            directory,
        }
    }

    fn uri(&self) -> &str {
        self.server.uri()
    }

    /// A file of `length` random bytes.
    fn file(&self, name: &str, length: u64, seed: u64) -> PathBuf {
        let mut bytes = vec![0; length as usize];
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        let path = self.directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.mock.violations(), 0, "every request kept the contract");
        }
    }
}

#[test]
fn nbdinfo_sees_size_flags_and_block_sizes() {
    let served = Served::new(Mock::of(SIZE));
    let text = run("nbdinfo", &["--json", served.uri()]);
    for expected in [
        "\"protocol\": \"newstyle-fixed\"",
        "\"structured\": true",
        "\"export-name\": \"vol0\"",
        "\"description\": \"Strake volume\"",
        "\"base:allocation\"",
        "\"is_read_only\": false",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"can_df\": true",
        "\"can_multi_conn\": true",
        "\"can_fast_zero\": false",
        "\"block_size_minimum\": 4096",
        "\"block_size_preferred\": 65536",
        "\"block_size_maximum\": 4194304",
        "\"export-size\": 67108864",
    ] {
        assert!(text.contains(expected), "{expected} in:\n{text}");
    }
    assert_eq!(run("nbdinfo", &["--size", served.uri()]).trim(), "67108864");
    let list = run("nbdinfo", &["--list", served.uri()]);
    assert!(
        list.contains("vol0") && list.contains("Strake volume"),
        "{list}"
    );
    let map = run("nbdinfo", &["--map", served.uri()]);
    assert!(map.contains("67108864") && map.contains("data"), "{map}");
    let (found, text) = try_run("nbdinfo", &[&served.uri().replace("vol0", "vol1")]);
    assert!(!found, "no such export:\n{text}");
}

#[test]
fn nbdcopy_there_and_back_again() {
    let served = Served::new(Mock::of(SIZE));
    let source = served.file("source", SIZE, 1);
    let back = served.directory.path().join("back");
    let source_text = source.to_str().unwrap();
    run("nbdcopy", &["--flush", source_text, served.uri()]);
    assert!(served.mock.content() == fs::read(&source).unwrap());
    assert!(served.mock.counts().flushes.load(Ordering::SeqCst) > 0);
    run("nbdcopy", &[served.uri(), back.to_str().unwrap()]);
    assert!(fs::read(&back).unwrap() == fs::read(&source).unwrap());
}

#[test]
fn nbdcopy_from_export_to_export() {
    let (from, to) = (Served::new(Mock::of(SIZE)), Served::new(Mock::of(SIZE)));
    from.mock.fill(3);
    run(
        "nbdcopy",
        &["--requests=64", "--connections=4", from.uri(), to.uri()],
    );
    assert!(from.mock.content() == to.mock.content());
}

#[test]
fn requests_longer_than_the_device_takes_are_cut() {
    let mut shape = info(SIZE);
    shape.max_request_bytes = 192 << 10;
    shape.stripe_data_bytes = 3 * 65536;
    let served = Served::new(Mock::new(shape, Mode::Shuffled));
    let source = served.file("source", SIZE, 1);
    // libnbd does not cut for us: half a MiB is longer than the device's largest request.
    let size = "--request-size=524288";
    run("nbdcopy", &[size, source.to_str().unwrap(), served.uri()]);
    assert!(served.mock.content() == fs::read(&source).unwrap());
    assert_eq!(
        served.mock.counts().longest.load(Ordering::SeqCst),
        192 << 10
    );
}

#[test]
fn qemu_img_informs_converts_and_compares() {
    let served = Served::new(Mock::of(SIZE));
    let text = run("qemu-img", &["info", served.uri()]);
    assert!(text.contains("64 MiB (67108864 bytes)"), "{text}");
    let source = served.file("source", SIZE / 2, 5);
    fs::File::options()
        .write(true)
        .open(&source)
        .unwrap()
        .set_len(SIZE)
        .unwrap();
    served.mock.fill(6);
    let source = source.to_str().unwrap();
    run(
        "qemu-img",
        &[
            "convert",
            "-n",
            "-f",
            "raw",
            "-O",
            "raw",
            "-W",
            source,
            served.uri(),
        ],
    );
    let same = run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", source, served.uri()],
    );
    assert!(same.contains("Images are identical"), "{same}");
    assert!(served.mock.counts().zeroings.load(Ordering::SeqCst) > 0);
    assert!(served.mock.content() == fs::read(source).unwrap());
}

#[test]
fn qemu_io_reads_writes_discards_and_zeroes() {
    let served = Served::new(Mock::of(SIZE));
    let script = [
        "write -P 0xaa 0 1M",
        "write -f -P 0xbb 1M 64k",
        "read -P 0xaa 0 1M",
        "read -P 0xbb 1M 64k",
        "discard 0 256k",
        "read -P 0 0 256k",
        "write -z 256k 256k",
        "write -z -u 512k 4k",
        "read -P 0 256k 260k",
        "read -P 0xaa 516k 508k",
        "aio_write -P 0xcc 2M 1M",
        "aio_write -P 0xdd 3M 1M",
        "aio_write -P 0xee 4M 4k",
        "aio_flush",
        "aio_read -P 0xcc 2M 1M",
        "aio_read -P 0xdd 3M 1M",
        "aio_read -P 0xee 4M 4k",
        "aio_flush",
        "write -P 0x11 100 1000",
        "read -P 0x11 100 1000",
        "writev -P 0x22 8M 4k 12k 64k",
        "read -P 0x22 8M 80k",
        "flush",
    ];
    let mut arguments = vec!["-f", "raw", "-t", "none"];
    for line in script {
        arguments.extend(["-c", line]);
    }
    arguments.push(served.uri());
    let text = run("qemu-io", &arguments);
    assert!(!text.contains("verification failed"), "{text}");
    assert!(!text.contains("error"), "{text}");
    let counts = served.mock.counts();
    assert!(counts.discards.load(Ordering::SeqCst) > 0);
    assert!(counts.zeroings.load(Ordering::SeqCst) > 0);
    assert!(counts.durable.load(Ordering::SeqCst) > 0);
    assert!(counts.flushes.load(Ordering::SeqCst) > 0);
}

#[test]
fn qemu_io_is_told_of_errors_and_read_only_exports() {
    let served = Served::new(Mock::of(SIZE));
    served.mock.set_bad(4096..8192, BlockError::Unavailable);
    let (_, text) = try_run(
        "qemu-io",
        &[
            "-f",
            "raw",
            "-c",
            "read 4k 4k",
            "-c",
            "read 8k 4k",
            served.uri(),
        ],
    );
    assert!(text.contains("read failed: Input/output error"), "{text}");
    assert!(
        text.contains("read 4096/4096 bytes at offset 8192"),
        "{text}"
    );

    let mut shape = info(SIZE);
    shape.read_only = true;
    let served = Served::new(Mock::new(shape, Mode::Shuffled));
    let (opened, text) = try_run("qemu-io", &["-f", "raw", "-c", "write 0 4k", served.uri()]);
    assert!(!opened, "{text}");
    let text = run(
        "qemu-io",
        &["-r", "-f", "raw", "-c", "read -P 0 0 4k", served.uri()],
    );
    assert!(text.contains("read 4096/4096"), "{text}");
}

fn fio(served: &Served, name: &str, more: &[&str]) -> std::process::Command {
    let mut command = client("fio");
    command
        .current_dir(served.directory.path())
        .arg(format!("--name={name}"))
        .args(["--ioengine=nbd", "--thread"])
        .arg(format!("--uri={}", served.uri()))
        .args(more);
    command
}

#[test]
fn fio_verifies_what_it_wrote() {
    let served = Served::new(Mock::of(SIZE));
    let runs: [&[&str]; 2] = [
        &["--rw=randwrite", "--bs=4k", "--iodepth=32", "--fsync=100"],
        &[
            "--rw=randwrite",
            "--bsrange=4k-512k",
            "--blockalign=4k",
            "--iodepth=16",
        ],
    ];
    for (index, more) in runs.into_iter().enumerate() {
        let name = format!("verify{index}");
        let output = fio(&served, &name, more)
            .args([
                "--size=32m",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--do_verify=1",
            ])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{output:?}");
        assert!(text.contains("err= 0"), "{text}");
    }
}

#[test]
fn several_clients_at_once_do_not_disturb_each_other() {
    let served = Served::new(Mock::of(SIZE));
    let clients: Vec<_> = (0..4)
        .map(|index| {
            let offset = format!("--offset={}m", index * 16);
            fio(&served, &format!("client{index}"), &[&offset])
                .args(["--rw=randrw", "--bs=8k", "--iodepth=8", "--size=16m"])
                .args(["--verify=crc32c", "--verify_fatal=1"])
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for client in clients {
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn a_client_killed_in_mid_request_leaves_the_server_well() {
    let served = Served::new(Mock::of(SIZE));
    for depth in ["4", "64"] {
        let more = [
            "--rw=randwrite",
            "--bs=256k",
            "--size=64m",
            "--time_based",
            "--runtime=30",
        ];
        let mut victim = fio(&served, "victim", &more)
            .args(["--iodepth", depth])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let writes = &served.mock.counts().writes;
        let before = writes.load(Ordering::SeqCst);
        served
            .mock
            .wait_until("writes", |_| writes.load(Ordering::SeqCst) > before + 50);
        victim.kill().unwrap();
        victim.wait().unwrap();
        served
            .mock
            .wait_until("the end", |_| served.server.connections() == 0);
    }
    assert_eq!(run("nbdinfo", &["--size", served.uri()]).trim(), "67108864");
    let source = served.file("source", SIZE, 9);
    run("nbdcopy", &[source.to_str().unwrap(), served.uri()]);
    assert!(served.mock.content() == fs::read(&source).unwrap());
}

#[test]
fn stop_under_load_is_quick_and_the_client_gets_an_error() {
    let served = Served::new(Mock::of(SIZE));
    let more = [
        "--rw=randread",
        "--bs=64k",
        "--size=64m",
        "--time_based",
        "--runtime=30",
    ];
    let client = fio(&served, "load", &more)
        .args(["--iodepth=32"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let reads = &served.mock.counts().reads;
    served
        .mock
        .wait_until("reads", |_| reads.load(Ordering::SeqCst) > 100);
    let before = Instant::now();
    served.server.stop();
    assert!(before.elapsed() < Duration::from_secs(5));
    let output = client.wait_with_output().unwrap();
    assert!(!output.status.success(), "the load ended with an error");
}
