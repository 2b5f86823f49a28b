//! The harness's own NBD client and ledger against a server that we did not write: what they
//! accuse Strake of must not be their own fault.

use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use strake_tests::daemon::NbdAddress;
use strake_tests::ledger::Ledger;
use strake_tests::nbd::{self, Command as Request, Handshake};
use strake_tests::{MIB, drives, pattern, wait_until};

/// qemu-nbd on a file, ended when dropped.
struct QemuNbd {
    child: Child,
    folder: tempfile::TempDir,
}

impl QemuNbd {
    fn start() -> QemuNbd {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        drives::make_file(&image, 16 * MIB);
        let child = Command::new("qemu-nbd")
            .args(["-f", "raw", "-t", "-e", "4", "-x", "volume", "-k"])
            .arg(folder.path().join("socket"))
            .arg(&image)
            .spawn()
            .unwrap();
        let server = QemuNbd { child, folder };
        wait_until("qemu-nbd listens", || server.address().socket.exists());
        server
    }

    fn address(&self) -> NbdAddress {
        NbdAddress {
            socket: self.folder.path().join("socket"),
            name: "volume".into(),
        }
    }
}

impl Drop for QemuNbd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_client_reads_what_it_wrote_and_hears_of_errors() {
    let server = QemuNbd::start();
    let mut client = server.address().connect();
    assert_eq!(client.size(), 16 * MIB);
    let data = pattern(1, 12345);
    client.write(777, &data);
    client.flush();
    assert_eq!(client.read(777, data.len()), data);
    let beyond = client.try_read(16 * MIB, 4096).unwrap();
    assert_eq!(beyond, Err(nbd::EINVAL));
    let past_end = client.request(Request::Write, 0, 16 * MIB, 4, b"past");
    assert!([nbd::EINVAL, nbd::ENOSPC].contains(&past_end.unwrap()));
}

#[test]
fn the_client_can_ask_for_what_no_server_knows() {
    let server = QemuNbd::start();
    let mut handshake = Handshake::start(&server.address().socket).unwrap();
    let replies = handshake.option(0x7777, b"what is this").unwrap();
    assert_eq!(replies.last().unwrap().0, nbd::REPLY_UNSUPPORTED);
    assert!(handshake.go("volume").is_ok());
}

#[test]
fn the_ledger_finds_all_it_wrote() {
    let server = QemuNbd::start();
    let mut ledger = Ledger::new(MIB, 8 * MIB, 3);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| ledger.write_until(&server.address(), &stop));
        std::thread::sleep(std::time::Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap(), "the server does not go away");
    });
    assert!(ledger.answered_writes() > 0);
    ledger.check(&mut server.address().connect());
}
