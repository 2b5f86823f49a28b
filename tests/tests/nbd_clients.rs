//! NBD clients that we did not write, several at once, and clients that misbehave.

use std::io::Write;
use strake_tests::nbd::{self, Command, FLAG_FUA, FLAG_NO_HOLE, Handshake};
use strake_tests::tools::{self, NbdFio};
use strake_tests::{Daemon, MIB, NbdAddress, pattern, wait_until};

fn served() -> (Daemon, NbdAddress) {
    let daemon = Daemon::start();
    let members = daemon.drives("d", 5, 128 * MIB);
    daemon.create("volume", &["6", "--strip-size", "16KiB"], &members);
    let address = daemon.export_nbd("volume");
    (daemon, address)
}

/// A file of random bytes in the test's folder.
fn image(daemon: &Daemon, name: &str, bytes: u64) -> String {
    let path = daemon.path(name);
    let length = usize::try_from(bytes).unwrap();
    std::fs::write(&path, pattern(bytes, length)).unwrap();
    path.display().to_string()
}

fn volume_bytes(daemon: &Daemon) -> u64 {
    daemon.show("volume")["size_bytes"].as_u64().unwrap()
}

#[test]
fn nbdinfo_sees_size_flags_and_block_sizes() {
    let (daemon, address) = served();
    let text = tools::run("nbdinfo", &["--json", &address.uri()]);
    let info: serde_json::Value = serde_json::from_str(&text).unwrap();
    let export = &info["exports"][0];
    assert_eq!(info["protocol"], "newstyle-fixed");
    assert_eq!(info["structured"], true);
    assert_eq!(export["export-size"], volume_bytes(&daemon));
    assert_eq!(export["is_read_only"], false);
    for ability in [
        "can_flush",
        "can_fua",
        "can_trim",
        "can_zero",
        "can_multi_conn",
    ] {
        assert_eq!(export[ability], true, "{ability}: {export}");
    }
    assert_eq!(export["block_size_minimum"], 4096);
    let list = tools::run("nbdinfo", &["--list", &address.uri()]);
    assert!(list.contains("volume"), "{list}");
}

#[test]
fn nbdcopy_in_and_out_with_several_connections() {
    let (daemon, address) = served();
    let size = volume_bytes(&daemon);
    let source = image(&daemon, "source", size);
    tools::run("nbdcopy", &["--flush", "-C", "4", &source, &address.uri()]);
    let copy = daemon.path("copy").display().to_string();
    tools::run("nbdcopy", &["-C", "4", &address.uri(), &copy]);
    tools::run("cmp", &[&source, &copy]);
    daemon.scrub_finds_nothing("volume");
}

#[test]
fn qemu_img_converts_and_compares() {
    let (daemon, address) = served();
    let source = image(&daemon, "source", volume_bytes(&daemon));
    tools::run(
        "qemu-img",
        &[
            "convert",
            "-n",
            "-f",
            "raw",
            "-O",
            "raw",
            &source,
            &address.uri(),
        ],
    );
    tools::run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", &source, &address.uri()],
    );
}

#[test]
fn qemu_io_writes_discards_zeroes_and_flushes() {
    let (_daemon, address) = served();
    let uri = address.uri();
    let script = [
        "write -P 0xa5 0 8M",
        "read -P 0xa5 0 8M",
        "write -f -P 0x5a 1M 64k",
        "read -P 0x5a 1M 64k",
        // Written zeroes are zeroes, whole stripes and parts of them.
        "write -z 2M 1M",
        "read -P 0 2M 1M",
        "write -z 4100k 4k",
        "read -P 0 4100k 4k",
        "read -P 0xa5 4104k 4k",
        "write -z -u 5M 192k",
        "read -P 0 5M 192k",
        // What is discarded may read as anything; its neighbours may not.
        "discard 6M 1M",
        "read -P 0xa5 5312k 832k",
        "read -P 0xa5 7M 1M",
        "aio_write -P 0x11 0 64k",
        "aio_write -P 0x22 64k 64k",
        "aio_flush",
        "read -P 0x11 0 64k",
        "read -P 0x22 64k 64k",
        "flush",
    ];
    let mut arguments = vec!["-f".to_owned(), "raw".to_owned(), uri];
    for command in script {
        arguments.extend(["-c".to_owned(), command.to_owned()]);
    }
    let printed = tools::run("qemu-io", &arguments);
    assert!(!printed.contains("verification failed"), "{printed}");
    assert!(!printed.to_lowercase().contains("error"), "{printed}");
}

#[test]
fn fio_verifies_random_writes_healthy_and_degraded() {
    let (daemon, address) = served();
    let fio = NbdFio::new(address.uri(), 0, 48 * MIB);
    let job = [
        "--rw=randwrite",
        "--bsrange=4k-128k",
        "--iodepth=16",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--do_verify=1",
    ];
    fio.run(&job);
    daemon.ok(["array", "fail", "volume", "1"]);
    fio.run(&job);
    daemon.ok(["array", "fail", "volume", "4"]);
    fio.run(&job);
}

#[test]
fn several_clients_at_once_each_on_its_part() {
    let (daemon, address) = served();
    let children: Vec<_> = (0..4)
        .map(|part| {
            let fio = NbdFio::new(address.uri(), part * 24 * MIB, 24 * MIB);
            fio.start(&[
                "--rw=randwrite",
                "--bs=16k",
                "--iodepth=8",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--do_verify=1",
            ])
        })
        .collect();
    for child in children {
        tools::finish(child);
    }
    daemon.scrub_finds_nothing("volume");
}

#[test]
fn clients_over_tcp_on_loopback() {
    let (daemon, _unix) = served();
    let place = free_tcp_address();
    let made = daemon.ok(["export", "create", "volume", "--nbd", "--tcp", &place]);
    let address = made["export"]["address"].as_str().unwrap().to_owned();
    assert!(address.contains(&place), "{address}");
    let size = tools::run("nbdinfo", &["--size", &address]);
    assert_eq!(size.trim(), volume_bytes(&daemon).to_string());
}

/// A port that was free a moment ago.
fn free_tcp_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[test]
fn what_one_client_flushed_another_reads() {
    let (_daemon, address) = served();
    let (mut first, mut second) = (address.connect(), address.connect());
    let data = pattern(5, 1 << 20);
    let length = u32::try_from(data.len()).unwrap();
    let error = first.request(Command::Write, FLAG_FUA, 3 * MIB, length, &data);
    assert_eq!(error.unwrap(), 0);
    assert_eq!(second.read(3 * MIB, data.len()), data);
}

#[test]
fn zeroes_that_may_not_be_punched_are_zeroes_too() {
    let (_daemon, address) = served();
    let mut client = address.connect();
    client.write(0, &pattern(1, 1 << 20));
    let flags = FLAG_NO_HOLE | FLAG_FUA;
    let error = client.request(Command::WriteZeroes, flags, 8192, 512 * 1024, &[]);
    assert_eq!(error.unwrap(), 0);
    let found = client.read(0, 1 << 20);
    assert_eq!(found[..8192], pattern(1, 1 << 20)[..8192]);
    assert!(found[8192..8192 + 512 * 1024].iter().all(|byte| *byte == 0));
    assert_eq!(
        found[8192 + 512 * 1024..],
        pattern(1, 1 << 20)[8192 + 512 * 1024..]
    );
}

#[test]
fn requests_past_the_end_are_errors_and_the_connection_lives() {
    let (_daemon, address) = served();
    let mut client = address.connect();
    let end = client.size();
    let past = |client: &mut nbd::Client, command, length: u32| {
        let data = vec![7; length as usize];
        let data = if command == Command::Write {
            &data[..]
        } else {
            &[]
        };
        client
            .request(command, 0, end - 4096, length, data)
            .expect("the connection lives")
    };
    assert_eq!(past(&mut client, Command::Read, 8192), nbd::EINVAL);
    assert_eq!(past(&mut client, Command::Write, 8192), nbd::ENOSPC);
    assert_ne!(past(&mut client, Command::Trim, 8192), 0);
    assert_ne!(past(&mut client, Command::WriteZeroes, 8192), 0);
    let overflow = client.request(Command::Read, 0, u64::MAX - 4095, 8192, &[]);
    assert_eq!(overflow.unwrap(), nbd::EINVAL);
    // Nothing of the refused write arrived.
    let last = client.read(end - 4096, 4096);
    assert!(last.iter().all(|byte| *byte == 0));
}

#[test]
fn an_unknown_option_is_answered_and_the_haggling_goes_on() {
    let (_daemon, address) = served();
    let mut handshake = Handshake::start(address.socket.as_path()).unwrap();
    let replies = handshake.option(0x1234_5678, &[1, 2, 3, 4]).unwrap();
    assert_eq!(replies.last().unwrap().0, nbd::REPLY_UNSUPPORTED);
    let mut client = handshake.go("volume").unwrap();
    client.write(0, &pattern(1, 4096));
}

#[test]
fn an_unknown_export_is_refused_by_name() {
    let (_daemon, address) = served();
    let handshake = Handshake::start(address.socket.as_path()).unwrap();
    assert!(handshake.go("another").is_err());
}

#[test]
fn a_client_that_goes_in_the_middle_of_a_request_harms_nobody() {
    let (daemon, address) = served();
    let mut steady = address.connect();
    let data = pattern(4, 256 * 1024);
    steady.write(0, &data);
    for cut in [3, 28, 100, 60_000] {
        let mut leaving = address.connect();
        // Reads that nobody will receive, then a write that stops half way.
        for _ in 0..8 {
            leaving.send(Command::Read, 0, 0, 128 * 1024, &[]).unwrap();
        }
        let mut message = write_header(0, 128 * 1024);
        message.extend(pattern(cut as u64, 128 * 1024));
        leaving.into_stream().write_all(&message[..cut]).unwrap();
    }
    assert_eq!(
        steady.read(0, data.len()),
        data,
        "half a write was carried out"
    );
    drop(steady);
    wait_until("the clients that left are gone", || {
        let list = daemon.ok(["export", "list"]);
        list["exports"][0]["clients"] == 0
    });
    assert_eq!(address.connect().read(0, data.len()), data);
}

#[test]
fn a_client_that_speaks_nonsense_is_cut_off_and_harms_nobody() {
    let (_daemon, address) = served();
    let mut steady = address.connect();
    steady.write(0, &pattern(1, 4096));
    let mut client = address.connect().into_stream();
    client.write_all(&[0x5a; 4096]).unwrap();
    let mut answer = Vec::new();
    // It is closed: whether with an error or cleanly is the server's choice.
    let _ = std::io::Read::read_to_end(&mut client, &mut answer);
    assert_eq!(steady.read(0, 4096), pattern(1, 4096));
}

/// A write request's first 28 bytes.
fn write_header(offset: u64, length: u32) -> Vec<u8> {
    let mut message = 0x2560_9513u32.to_be_bytes().to_vec();
    message.extend(0u16.to_be_bytes());
    message.extend((Command::Write as u16).to_be_bytes());
    message.extend(99u64.to_be_bytes());
    message.extend(offset.to_be_bytes());
    message.extend(length.to_be_bytes());
    message
}
