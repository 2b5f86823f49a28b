//! kill -9 when every member's log of the default size has been written round: the start reads them
//! all, nothing is lost, and it is printed how long it took from the daemon's start until
//! everything was protected.
//!
//! `STRAKE_LOG_MEMBERS=N`: so many members (default 4; 24 for a figure worth quoting).

use std::time::Duration;
use strake_tests::tools::{self, NbdFio, VERIFY_PLACE};
use strake_tests::{Daemon, MIB, proof, wait_until};

/// The default log is the largest on drives of this size; what is not written takes no room.
const DRIVE_BYTES: u64 = 8 << 30;
const LOG_BYTES: u64 = 64 * MIB;
const MEMBERS: u64 = 4;
/// Of the volume.
const PART: (u64, u64) = (0, 256 * MIB);

#[test]
fn logs_that_are_full_are_replayed() {
    if !proof::log_exists() {
        return;
    }
    let members = proof::number_from("STRAKE_LOG_MEMBERS").unwrap_or(MEMBERS);
    let mut daemon = Daemon::start();
    let drives: Vec<String> = (0..members)
        .map(|at| daemon.drive(&format!("d{at}"), DRIVE_BYTES))
        .collect();
    daemon.create("volume", &["6"], &drives);
    let log_bytes = daemon.show("volume")["consistency"]["log_size_bytes"].clone();
    assert_eq!(log_bytes, LOG_BYTES, "the default");
    let address = daemon.export_nbd("volume");
    let fio = NbdFio::new(address.uri(), PART.0, PART.1);
    let fill = ["--rw=write", "--iodepth=32", "--do_verify=0"];
    fio.run(&[&VERIFY_PLACE[..], &fill].concat());
    // A write leaves an entry of its length and more with each of the two parities.
    let written = format!("--io_size={}", members * LOG_BYTES / 2);
    let load = ["--rw=randwrite", "--iodepth=32", "--do_verify=0"];
    let all = ["--norandommap", written.as_str()];
    fio.run(&[&VERIFY_PLACE[..], &load, &all].concat());
    let endless = ["--norandommap", "--time_based", "--runtime=600"];
    let under_way = fio.start(&[&VERIFY_PLACE[..], &load, &endless].concat());
    std::thread::sleep(Duration::from_secs(1));
    daemon.kill();
    tools::end(under_way);

    daemon.start_again();
    wait_until("everything is protected", || {
        !daemon.show("volume")["consistency"]["protected_after_us"].is_null()
    });
    let show = daemon.show("volume");
    assert_eq!(show["state"], "healthy", "{show}");
    let keeping = &show["consistency"];
    assert_ne!(keeping["replayed_entries"], 0, "{keeping}");
    println!(
        "{members} logs of {LOG_BYTES} bytes: {} entries replayed, protected {} us after the daemon's start",
        keeping["replayed_entries"], keeping["protected_after_us"]
    );
    daemon.wait_for_exports();
    let verify = ["--rw=write", "--iodepth=8", "--verify_only=1"];
    fio.run(&[&VERIFY_PLACE[..], &verify].concat());
    daemon.scrub_finds_nothing("volume");
}
