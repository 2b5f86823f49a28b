//! Pages as people see them, whole: a change in wording is a change in a test.

use super::*;
use strake_api::{self as api, ArrayState, MemberState};
use uuid::Uuid;

/// A healthy RAID 5 of three drives.
pub fn detail() -> api::ArrayDetail {
    api::ArrayDetail {
        uuid: Uuid::from_u128(0x1234),
        name: "data".into(),
        state: ArrayState::Healthy,
        reason: None,
        level: "raid5".into(),
        size_bytes: 2 << 30,
        read_only: false,
        autostart: true,
        survives: Some(1),
        geometry: Some(api::Geometry {
            block_size_bytes: 4096,
            strip_size_bytes: 65_536,
            groups: 1,
            data: 2,
            parity: 1,
            region_size_bytes: 1 << 20,
            unused_bytes: 0,
        }),
        members: (0..3).map(member).collect(),
        tasks: Vec::new(),
        last_scrub: None,
        generation: 7,
        epoch: 2,
        regions: Some(api::Regions {
            unwritten: 900,
            clean: 100,
            dirty: 2,
            needs_resync: 0,
        }),
        consistency: Some(api::Consistency {
            policy: api::Policy::Log,
            log_size_bytes: 16 << 20,
            log_entries: 3,
            replayed_entries: 12,
            voided_entries: 1,
            torn_blocks: 0,
            protected_after_us: Some(31_400),
            torn_bytes: 0,
            suspect_bytes: 0,
        }),
        counters: Some(api::Counters {
            reads: 10,
            writes: 20,
            read_bytes: 40_960,
            write_bytes: 81_920,
            full_stripe_writes: 1,
            read_modify_writes: 2,
            reconstruct_writes: 3,
            joined_writes: 4,
            gathered_bytes: 5 << 20,
        }),
        kernel: "avx2".into(),
        rebuild_priority_percent: 50,
        exports: Vec::new(),
        warnings: Vec::new(),
    }
}

fn member(index: u16) -> api::Member {
    api::Member {
        index,
        group: 0,
        state: MemberState::Active,
        path: Some(format!("/srv/d{index}")),
        serial: format!("S{index}"),
        size_bytes: 1 << 30,
        read_errors: 0,
        write_errors: 0,
        volatile_cache: Some(index == 0),
        notes: Vec::new(),
    }
}

/// Work a quarter done.
pub fn task(kind: &str) -> api::Task {
    api::Task {
        kind: kind.into(),
        done_bytes: 1 << 28,
        total_bytes: 1 << 30,
        percent: 25.0,
        rate_bytes_per_second: 1 << 26,
        seconds_left: Some(12),
        mismatches: 0,
        repaired: 0,
        errors: 0,
    }
}

#[test]
fn the_page_of_a_healthy_array() {
    assert_eq!(
        array_detail(&detail()),
        "\
data: healthy, 3 members

uuid              00000000-0000-0000-0000-000000001234
level             raid5, 2 data + 1 parity
size              2 GiB (2147483648 bytes)
strip, block      64 KiB, 4 KiB
regions           900 unwritten, 100 clean, 2 dirty, 0 to resync, of 1 MiB a member
policy            log, 16 MiB a member, 3 entries in force
last start        protected after 32 ms, 12 log entries replayed, 1 void
reads             10 requests, 40 KiB
writes            20 requests, 80 KiB
stripe writes     1 full-stripe, 2 read-modify-write, 3 reconstruct-write, 4 joined (5 MiB not read for parity)
generation        7, epoch 2
parity kernel     avx2
rebuild priority  50 %
starts by itself  yes

members
  MEMBER  STATE   DRIVE    SERIAL   SIZE  CACHE      ERRORS R/W  NOTES
       0  active  /srv/d0  S0      1 GiB  volatile          0/0
       1  active  /srv/d1  S1      1 GiB  protected         0/0
       2  active  /srv/d2  S2      1 GiB  protected         0/0
"
    );
}

#[test]
fn the_page_of_a_degraded_array_starts_with_what_to_do() {
    let mut array = detail();
    array.state = ArrayState::Degraded;
    array.survives = Some(0);
    array.members[1].state = MemberState::Failed;
    array.members[1].path = None;
    array.tasks.push(task("rebuild"));
    array.warnings.push("drive S1 failed".into());
    let page = array_detail(&array);
    assert!(
        page.starts_with(
            "\
data: degraded: 1 of 3 members out; no further loss is survived
  put a new drive in: strake array replace data 1 DRIVE
warning: drive S1 failed
"
        ),
        "{page}"
    );
    assert!(page.contains("     1  failed  -        S1"), "{page}");
    assert!(
        page.ends_with("\nwork\n  rebuild 25 %, 256 MiB of 1 GiB a member, 64 MiB/s, 12 s left\n"),
        "{page}"
    );
}

#[test]
fn a_rebuilding_array_needs_no_advice() {
    let mut array = detail();
    array.state = ArrayState::Degraded;
    array.survives = Some(2);
    array.members[0].state = MemberState::Rebuilding;
    assert_eq!(
        headline(&array),
        "data: degraded: 1 being rebuilt; 2 further losses are survived\n"
    );
}

#[test]
fn states_that_do_not_serve_say_how_to_start() {
    let mut array = detail();
    array.geometry = None;
    array.regions = None;
    array.counters = None;
    array.consistency = None;
    array.kernel = String::new();
    array.state = ArrayState::Offline;
    array.reason = Some("no drive was found".into());
    let page = array_detail(&array);
    assert!(
        page.starts_with(
            "data: offline: no drive was found\n  try again: strake array start data\n"
        ),
        "{page}"
    );
    array.state = ArrayState::Stopped;
    assert!(headline(&array).contains("start it: strake array start data"));
    array.state = ArrayState::Failed;
    array.members[0].state = MemberState::Missing;
    array.members[1].state = MemberState::Missing;
    assert!(headline(&array).starts_with("data: failed: 2 of 3 members out"));
}

#[test]
fn groups_have_a_column() {
    let mut array = detail();
    array.geometry.as_mut().unwrap().groups = 2;
    array.members[2].group = 1;
    let page = array_detail(&array);
    assert!(
        page.contains("raid5, 2 groups of 2 data + 1 parity"),
        "{page}"
    );
    assert!(page.contains("MEMBER  GROUP  STATE"), "{page}");
    let geometry = array.geometry.as_mut().unwrap();
    (geometry.data, geometry.parity) = (1, 1);
    assert!(array_detail(&array).contains("raid5, 2 groups of 2 copies"));
}

#[test]
fn the_list_of_arrays() {
    let running = crate::daemon::convert::summary(&detail());
    let mut offline = running.clone();
    offline.name = "old".into();
    offline.state = ArrayState::Offline;
    offline.reason = Some("no drive was found".into());
    offline.size_bytes = 0;
    let mut busy = running.clone();
    busy.name = "busy".into();
    busy.read_only = true;
    busy.tasks.push(task("scrub"));
    let list = api::ArrayList {
        arrays: vec![running, offline, busy],
    };
    assert_eq!(
        array_list(&list),
        "\
NAME  STATE                        LEVEL   SIZE  MEMBERS  EXPORTS  WORK
data  healthy                      raid5  2 GiB      3/3        0
old   offline: no drive was found  raid5      -        3        0
busy  healthy, read-only           raid5  2 GiB      3/3        0  scrub 25 %
"
    );
    assert!(array_list(&api::ArrayList { arrays: Vec::new() }).contains("array create"));
}

#[test]
fn the_list_of_drives() {
    let drive = |path: &str, usage, text: &str| api::Drive {
        path: path.into(),
        size_bytes: 1 << 30,
        block_size_bytes: 512,
        serial: "S".into(),
        model: String::new(),
        volatile_cache: Some(true),
        usage,
        usage_text: text.into(),
        array_uuid: None,
        array_name: None,
        member: None,
    };
    let list = api::DriveList {
        drives: vec![
            drive("/dev/sda", api::DriveUse::Free, "free"),
            drive("/dev/sdb", api::DriveUse::Member, "member 3 of data"),
        ],
    };
    assert_eq!(
        drive_list(&list),
        "\
DRIVE      SIZE  SERIAL  MODEL  CACHE     USE
/dev/sda  1 GiB  S       -      volatile  free
/dev/sdb  1 GiB  S       -      volatile  member 3 of data
"
    );
}

#[test]
fn the_page_of_a_drive_shows_its_superblock() {
    let page = drive_detail(&api::DriveDetail {
        drive: api::Drive {
            path: "/dev/sda".into(),
            size_bytes: 4096,
            block_size_bytes: 512,
            serial: "S".into(),
            model: "M".into(),
            volatile_cache: Some(false),
            usage: api::DriveUse::Member,
            usage_text: "member 3 of data".into(),
            array_uuid: None,
            array_name: None,
            member: None,
        },
        in_use: None,
        foreign: None,
        superblock_copies: ["valid".into(), "checksum does not match".into()],
        superblock: vec![api::Field {
            name: "generation".into(),
            value: "7".into(),
        }],
        notes: vec!["buffered I/O".into()],
    });
    assert_eq!(
        page,
        "\
drive         /dev/sda
use           member 3 of data
size          4 KiB (4096 bytes)
block size    512 bytes
serial        S
model         M
write cache   protected
superblock A  valid
superblock B  checksum does not match
note: buffered I/O

superblock
  generation  7
"
    );
}

#[test]
fn the_page_says_what_reads_as_errors() {
    let mut array = detail();
    let keeping = array.consistency.as_mut().unwrap();
    keeping.policy = api::Policy::Resync;
    keeping.log_entries = 0;
    (keeping.torn_bytes, keeping.suspect_bytes) = (8192, 1 << 20);
    array.members[0].notes = vec!["write cache: volatile (a file)".into(), "slow".into()];
    let page = array_detail(&array);
    assert!(page.contains("policy            resync\n"), "{page}");
    let line = "last start        protected after 32 ms\n";
    assert!(page.contains(line), "{page}");
    let line = "read as errors    8 KiB torn, 1 MiB suspect\n";
    assert!(page.contains(line), "{page}");
    assert!(page.contains("0/0  slow\n"), "{page}");

    array.consistency.as_mut().unwrap().protected_after_us = None;
    let line = "last start        not protected yet, until a replay or resync has ended\n";
    let page = array_detail(&array);
    assert!(page.contains(line), "{page}");
}

#[test]
fn the_list_of_torn_blocks_says_how_to_heal_them() {
    let range = |offset_bytes| api::ByteRange {
        offset_bytes,
        length_bytes: 4096,
    };
    let extent = |kind, volume, volume_left_out| api::TornExtent {
        member: 2,
        kind,
        offset_bytes: 65_536,
        length_bytes: 4096,
        volume,
        volume_left_out,
    };
    let mut list = api::TornList {
        array_uuid: Uuid::from_u128(1),
        array_name: "data".into(),
        torn_bytes: 8192,
        suspect_bytes: 4096,
        extents: vec![
            extent(api::TornKind::Torn, vec![range(0)], 0),
            extent(api::TornKind::Torn, Vec::new(), 0),
            extent(
                api::TornKind::Suspect,
                (0..6).map(|at| range(at << 16)).collect(),
                7,
            ),
        ],
    };
    assert_eq!(
        torn_list(&list),
        "\
data: 8 KiB torn, 4 KiB suspect read as errors
  MEMBER  KIND     OFFSET  LENGTH  VOLUME BYTES
       2  torn      65536    4096  0+4096
       2  torn      65536    4096  parity
       2  suspect   65536    4096  0+4096, 65536+4096, 131072+4096, 196608+4096 and 9 more
heal a block by writing it whole, as restored from a backup; a file system's or a
database's own check says which file it belongs to
accept all that is suspect as it is, right or wrong: strake array accept data --force
"
    );
    list.extents.clear();
    assert_eq!(torn_list(&list), "data: no block reads as an error\n");
}

#[test]
fn a_scan_names_what_is_missing() {
    let found = api::ScanResult {
        arrays: vec![api::ImportCandidate {
            uuid: Uuid::from_u128(1),
            name: "data".into(),
            level: "raid5".into(),
            members: 3,
            found: vec![api::FoundMember {
                index: 0,
                path: "/d0".into(),
                serial: "S0".into(),
                generation: 7,
                note: Some("stale: the newest generation is 8".into()),
            }],
            missing: vec![api::MissingMember {
                index: 1,
                path: Some("/d1".into()),
                serial: Some("S1".into()),
            }],
            clean: false,
            running: false,
            importable: true,
            reason: Some("1 member is missing".into()),
        }],
        unreadable: vec!["/x: cannot open".into()],
    };
    assert_eq!(
        scan(&found),
        "\
data: raid5, 2 of 3 members found, dirty
  uuid    00000000-0000-0000-0000-000000000001
  import  strake array import data (1 member is missing)
  member  0  /d0  serial S0  (stale: the newest generation is 8)
  member  1  missing, last seen at /d1, serial S1
unreadable: /x: cannot open
"
    );
}

#[test]
fn the_list_of_exports() {
    let list = api::ExportList {
        exports: vec![api::Export {
            id: "nbd1".into(),
            array_uuid: Uuid::from_u128(1),
            array_name: "data".into(),
            kind: api::ExportKind::NbdTcp {
                address: "127.0.0.1:10809".into(),
            },
            address: "nbd://127.0.0.1:10809/data".into(),
            state: api::ExportState::Failed,
            reason: Some("address in use".into()),
            clients: 0,
            for_attach: false,
        }],
    };
    assert_eq!(
        export_list(&list),
        "\
ID    ARRAY  PROTOCOL    STATE                   CLIENTS  ADDRESS
nbd1  data   NBD on TCP  failed: address in use        0  nbd://127.0.0.1:10809/data
"
    );
}
