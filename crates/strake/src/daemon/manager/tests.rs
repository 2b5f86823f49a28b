//! Commands against a node without drives: what is remembered, what is refused, what is already so.

use super::*;
use crate::daemon::mock::{MockNode, MockServers, task};
use api::{ArrayState as S, ExportKind, ExportState};
use std::sync::atomic::Ordering;
use tempfile::TempDir;

pub struct Host {
    manager: Manager,
    node: Arc<MockNode>,
    servers: Arc<MockServers>,
    dir: TempDir,
}

impl Host {
    pub fn new(drives: usize) -> Host {
        Host::open(tempfile::tempdir().unwrap(), MockNode::with_drives(drives))
    }

    /// The manager, and the folder that must live as long.
    pub fn into_manager(self) -> (Manager, TempDir) {
        (self.manager, self.dir)
    }

    fn open(dir: TempDir, node: Arc<MockNode>) -> Host {
        let (store, state) = Store::open(dir.path()).unwrap();
        let servers = Arc::new(MockServers::default());
        let config = Config {
            state_dir: dir.path().to_owned(),
            run_dir: "/run/strake".into(),
            cores: 1,
            memory_bytes: 1 << 20,
            kernel: "mock".into(),
            began: std::time::Instant::now(),
        };
        let manager = Manager::new(config, store, state, node.clone(), servers.clone());
        Host {
            manager,
            node,
            servers,
            dir,
        }
    }

    /// The daemon is killed and started again; the drives stay.
    fn restart(self) -> Host {
        let Host {
            manager, node, dir, ..
        } = self;
        drop(manager);
        let host = Host::open(dir, node);
        host.manager.start_all();
        host
    }

    fn create(&self, name: &str, drives: std::ops::Range<usize>) -> api::ArrayOutcome {
        let drives = drives.map(|index| format!("/d{index}")).collect();
        self.manager.create_array(&create(name, drives)).unwrap()
    }

    fn show(&self, name: &str) -> api::ArrayDetail {
        self.manager.show_array(name).unwrap()
    }

    fn export(&self, array: &str, kind: ExportKind) -> Result<api::ExportOutcome> {
        self.manager.create_export(&api::CreateExport {
            array: array.into(),
            kind,
            for_attach: false,
        })
    }

    fn clients(&self, address: &str, count: u64) {
        let mut running = self.servers.running.lock().unwrap();
        *running.get_mut(address).unwrap() = count;
    }
}

pub fn create(name: &str, drives: Vec<String>) -> api::CreateArray {
    api::CreateArray {
        name: name.into(),
        level: api::Level::Raid5,
        drives,
        strip_size_bytes: None,
        block_size_bytes: None,
        group_size: None,
        parity: None,
        copies: None,
        policy: None,
        log_size_bytes: None,
        force: false,
    }
}

fn import(array: &str) -> api::ImportArray {
    api::ImportArray {
        array: array.into(),
        drives: Vec::new(),
        new_name: None,
        read_only: false,
        force: false,
    }
}

fn member(member: &str) -> api::MemberRequest {
    api::MemberRequest {
        member: member.into(),
        force: false,
    }
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind
}

const NBD: ExportKind = ExportKind::NbdUnix { path: None };
const NBD_ADDRESS: &str = "unix:/run/strake/nbd-data.sock";

#[test]
fn an_array_and_its_exports_come_back_after_a_kill() {
    let host = Host::new(3);
    let uuid = host.create("data", 0..3).array.uuid;
    host.export("data", NBD).unwrap();
    let host = host.restart();
    let data = host.show("data");
    assert_eq!((data.uuid, data.state), (uuid, S::Healthy));
    assert_eq!(data.exports[0].state, ExportState::Serving);
    assert!(
        host.servers
            .running
            .lock()
            .unwrap()
            .contains_key(NBD_ADDRESS)
    );
    // The generation that was seen proves that no newer array exists.
    assert!(host.node.known_generation.lock().unwrap().is_some());
}

#[test]
fn a_stopped_array_stays_stopped_and_its_exports_wait() {
    let host = Host::new(3);
    host.create("data", 0..3);
    host.export("data", NBD).unwrap();
    assert!(host.manager.stop_array("data", false).unwrap().changed);
    assert!(!host.manager.stop_array("data", false).unwrap().changed);
    let host = host.restart();
    let data = host.show("data");
    assert_eq!(
        (data.state, data.exports[0].state),
        (S::Stopped, ExportState::Waiting)
    );
    assert_eq!(data.members[2].path.as_deref(), Some("/d2"));
    let started = host
        .manager
        .start_array("data", api::StartArray::default())
        .unwrap();
    assert!(started.changed);
    assert_eq!(started.array.exports[0].state, ExportState::Serving);
    let again = host
        .manager
        .start_array("data", api::StartArray::default())
        .unwrap();
    assert!(!again.changed, "{}", again.message);
}

#[test]
fn an_array_that_does_not_come_up_is_offline_with_its_reason() {
    let host = Host::new(6);
    host.create("data", 0..3);
    host.create("other", 3..6);
    host.node.unplug("/d0");
    host.node.unplug("/d1");
    let host = host.restart();
    let data = host.show("data");
    assert_eq!(data.state, S::Offline);
    assert!(data.reason.unwrap().contains("too many members"));
    assert_eq!(host.show("other").state, S::Healthy);
    let error = host
        .manager
        .scrub("data", api::Scrub::default())
        .unwrap_err();
    assert!(error.message.contains("array start data"), "{error}");
    let forced = api::StartArray {
        force: true,
        ..Default::default()
    };
    assert!(host.manager.start_array("data", forced).unwrap().changed);
}

#[test]
fn a_name_belongs_to_one_array() {
    let host = Host::new(6);
    host.create("data", 0..3);
    host.manager.stop_array("data", false).unwrap();
    let taken = host
        .manager
        .create_array(&create("data", vec!["/d3".into()]));
    assert_eq!(kind(taken), ErrorKind::Conflict);
}

#[test]
fn importing_under_a_taken_name_asks_for_another() {
    let host = Host::new(6);
    let foreign = host.create("data", 0..3).array.uuid;
    // Another host: the drives stay, the state does not.
    let host = Host::open(tempfile::tempdir().unwrap(), host.node);
    host.create("data", 3..6);
    let error = host
        .manager
        .import_array(&import(&foreign.to_string()))
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(error.message.contains("--name"), "{error}");
    let renamed = api::ImportArray {
        new_name: Some("old".into()),
        ..import(&foreign.to_string())
    };
    let outcome = host.manager.import_array(&renamed).unwrap();
    assert_eq!(
        (outcome.array.name.as_str(), outcome.array.uuid),
        ("old", foreign)
    );
    assert!(!host.manager.import_array(&import("old")).unwrap().changed);
}

#[test]
fn one_name_on_drives_of_two_arrays_needs_a_uuid() {
    let host = Host::new(6);
    host.create("data", 0..3);
    let host = Host::open(tempfile::tempdir().unwrap(), host.node);
    host.create("data", 3..6);
    let host = Host::open(tempfile::tempdir().unwrap(), host.node);
    let error = host.manager.import_array(&import("data")).unwrap_err();
    assert!(error.message.contains("UUID"), "{error}");
    let error = host.manager.import_array(&import("none")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.message.contains("found are: data"), "{error}");
}

#[test]
fn a_scan_tells_what_is_missing_and_where_it_was() {
    let host = Host::new(4);
    host.create("data", 0..3);
    host.manager.stop_array("data", false).unwrap();
    let scan = |host: &Host| {
        let found = host.manager.scan(&api::ScanRequest::default());
        found.arrays.into_iter().next().unwrap()
    };
    let whole = scan(&host);
    assert!(whole.importable && whole.clean && whole.missing.is_empty());
    assert_eq!(whole.reason, None);
    host.node.unplug("/d1");
    let degraded = scan(&host);
    assert!(degraded.importable);
    assert_eq!(degraded.missing[0].index, 1);
    assert_eq!(degraded.missing[0].path.as_deref(), Some("/d1"));
    assert_eq!(degraded.missing[0].serial.as_deref(), Some("serial-d1"));
    let copy = host.node.drives.lock().unwrap()["/d0"].clone();
    host.node.drives.lock().unwrap().insert("/d3".into(), copy);
    let cloned = scan(&host);
    assert!(!cloned.importable);
    assert!(cloned.found[0].note.as_ref().unwrap().contains("clone"));
}

#[test]
fn an_unreadable_drive_is_named_when_it_was_given() {
    let host = Host::new(1);
    let found = host.manager.scan(&api::ScanRequest {
        drives: vec!["/gone".into()],
    });
    assert!(found.unreadable[0].contains("/gone"));
}

#[test]
fn destroying_needs_force_and_frees_the_drives() {
    let host = Host::new(3);
    host.create("data", 0..3);
    host.export("data", NBD).unwrap();
    let error = host.manager.destroy_array("data", false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.message.contains("loses all data"), "{error}");
    assert!(error.message.contains("--force"), "{error}");
    assert!(host.manager.destroy_array("data", true).unwrap().changed);
    assert_eq!(kind(host.manager.show_array("data")), ErrorKind::NotFound);
    assert!(host.manager.list_exports().exports.is_empty());
    assert!(host.servers.running.lock().unwrap().is_empty());
    assert!(
        host.node
            .drives
            .lock()
            .unwrap()
            .values()
            .all(Option::is_none)
    );
}

#[test]
fn a_stopped_array_is_destroyed_drive_by_drive() {
    let host = Host::new(3);
    host.create("data", 0..3);
    host.manager.stop_array("data", false).unwrap();
    host.node.unplug("/d2");
    let outcome = host.manager.destroy_array("data", true).unwrap();
    assert!(
        outcome.message.contains("1 drives were not found"),
        "{}",
        outcome.message
    );
    assert!(
        host.node
            .drives
            .lock()
            .unwrap()
            .values()
            .all(Option::is_none)
    );
}

#[test]
fn members_are_named_by_index_and_path_also_when_they_are_gone() {
    let host = Host::new(4);
    host.create("data", 0..3);
    let failed = host.manager.fail_member("data", &member("/d1")).unwrap();
    assert!(failed.changed);
    assert_eq!(failed.array.state, S::Degraded);
    assert_eq!(failed.array.survives, Some(0));
    let again = host.manager.fail_member("data", &member("1")).unwrap();
    assert!(!again.changed && again.message.contains("already"));
    assert_eq!(
        kind(host.manager.fail_member("data", &member("2"))),
        ErrorKind::Refused
    );
    // The failed drive has no path any more; it is found by where it was.
    let replaced = host.manager.replace_member(
        "data",
        &api::ReplaceMember {
            member: "/d1".into(),
            drive: "faulty:/d3".into(),
            force: false,
        },
    );
    assert!(replaced.unwrap().changed);
    let same = api::ReplaceMember {
        member: "1".into(),
        drive: "/d3".into(),
        force: false,
    };
    assert!(!host.manager.replace_member("data", &same).unwrap().changed);
    for (wrong, expected) in [("9", ErrorKind::NotFound), ("/x", ErrorKind::NotFound)] {
        assert_eq!(
            kind(host.manager.remove_member("data", &member(wrong))),
            expected
        );
    }
    assert!(
        host.manager
            .remove_member("data", &member("1"))
            .unwrap()
            .changed
    );
    assert!(
        !host
            .manager
            .remove_member("data", &member("1"))
            .unwrap()
            .changed
    );
}

#[test]
fn a_wrapped_drive_is_remembered_with_its_wrapper() {
    let host = Host::new(3);
    let texts = ["faulty:/d0", "cache=none:/d1", "cache=volatile:faulty:/d2"];
    let drives = texts.map(String::from).to_vec();
    host.manager.create_array(&create("data", drives)).unwrap();
    let known = |host: &Host| host.manager.inner().state.arrays[0].clone();
    let specs = |host: &Host| {
        known(host)
            .drives
            .into_iter()
            .map(|drive| drive.spec.unwrap())
    };
    assert!(specs(&host).eq(texts));
    let host = host.restart();
    assert!(specs(&host).eq(texts));
}

#[test]
fn faults_go_to_the_member_of_that_path() {
    let host = Host::new(4);
    host.create("data", 0..3);
    let fault = |drive: &str| api::FaultDrive {
        drive: drive.into(),
        dead: true,
        ..Default::default()
    };
    host.manager.fault_drive(&fault("/d1")).unwrap();
    assert!(host.show("data").warnings[0].contains("dead: true"));
    assert_eq!(
        kind(host.manager.fault_drive(&fault("/d3"))),
        ErrorKind::NotFound
    );
    let heal = api::FaultDrive {
        drive: "/d1".into(),
        heal: true,
        ..Default::default()
    };
    host.manager.fault_drive(&heal).unwrap();
    assert!(host.show("data").warnings.is_empty());
    let both = api::FaultDrive {
        heal: true,
        ..fault("/d1")
    };
    assert_eq!(kind(host.manager.fault_drive(&both)), ErrorKind::Invalid);
    let none = api::FaultDrive {
        dead: false,
        ..fault("/d1")
    };
    assert_eq!(kind(host.manager.fault_drive(&none)), ErrorKind::Invalid);
}

#[test]
fn clients_keep_an_array_from_being_stopped() {
    let host = Host::new(3);
    host.create("data", 0..3);
    let id = host.export("data", NBD).unwrap().export.id;
    host.clients(NBD_ADDRESS, 2);
    let error = host.manager.stop_array("data", false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(
        error.message.contains(&id) && error.message.contains("2 connections"),
        "{error}"
    );
    assert_eq!(
        kind(host.manager.remove_export(&id, false)),
        ErrorKind::Refused
    );
    assert_eq!(host.show("data").state, S::Healthy);
    assert!(host.manager.stop_array("data", true).unwrap().changed);
}

#[test]
fn an_export_is_made_once_and_its_place_is_its_own() {
    let host = Host::new(6);
    host.create("data", 0..3);
    host.create("other", 3..6);
    let tcp = |address: &str| ExportKind::NbdTcp {
        address: address.into(),
    };
    let first = host.export("data", tcp("127.0.0.1:10809")).unwrap();
    assert!(first.changed);
    assert!(!host.export("data", tcp("127.0.0.1:10809")).unwrap().changed);
    assert_eq!(
        kind(host.export("other", tcp("127.0.0.1:10809"))),
        ErrorKind::Conflict
    );
    assert_eq!(kind(host.export("data", tcp("10809"))), ErrorKind::Invalid);
    assert_eq!(
        kind(host.export("data", tcp("127.0.0.1:0"))),
        ErrorKind::Invalid
    );
    let open = host.export("data", tcp("0.0.0.0:10810")).unwrap();
    assert!(open.message.contains("everybody"), "{}", open.message);
    let fuse = host.export("other", ExportKind::Fuse).unwrap().export;
    assert_eq!(
        (fuse.id.as_str(), fuse.address.as_str()),
        ("fuse3", "/run/volumes/other")
    );
    assert!(host.manager.remove_export("nbd1", false).unwrap().changed);
    assert_eq!(
        kind(host.manager.remove_export("nbd1", false)),
        ErrorKind::NotFound
    );
    // An identity is not used twice.
    let next = host.export("data", tcp("127.0.0.1:10809")).unwrap().export;
    assert_eq!(next.id, "nbd4");
}

#[test]
fn sockets_have_absolute_paths_that_fit() {
    let host = Host::new(3);
    host.create("data", 0..3);
    for path in ["relative".to_owned(), format!("/{}", "x".repeat(107))] {
        let kind_of = host.export("data", ExportKind::NbdUnix { path: Some(path) });
        assert_eq!(kind(kind_of), ErrorKind::Invalid);
    }
}

#[test]
fn an_export_that_does_not_start_is_not_made_but_a_known_one_is_kept() {
    let host = Host::new(3);
    host.create("data", 0..3);
    host.servers.broken.store(true, Ordering::Relaxed);
    assert_eq!(kind(host.export("data", NBD)), ErrorKind::Export);
    assert!(host.manager.list_exports().exports.is_empty());
    host.servers.broken.store(false, Ordering::Relaxed);
    host.export("data", NBD).unwrap();
    host.manager.stop_array("data", false).unwrap();
    host.servers.broken.store(true, Ordering::Relaxed);
    host.manager
        .start_array("data", api::StartArray::default())
        .unwrap();
    let export = host.show("data").exports.remove(0);
    assert_eq!(export.state, ExportState::Failed);
    assert!(export.reason.unwrap().contains("taken"));
    host.servers.broken.store(false, Ordering::Relaxed);
    let again = host.export("data", NBD).unwrap();
    assert!(again.changed && again.export.state == ExportState::Serving);
}

#[test]
fn an_export_of_attach_is_kept_once_it_is_asked_for_by_name() {
    let host = Host::new(3);
    host.create("data", 0..3);
    let attach = api::CreateExport {
        array: "data".into(),
        kind: ExportKind::Fuse,
        for_attach: true,
    };
    assert!(
        host.manager
            .create_export(&attach)
            .unwrap()
            .export
            .for_attach
    );
    assert!(!host.manager.create_export(&attach).unwrap().changed);
    let kept = host.export("data", ExportKind::Fuse).unwrap();
    assert!(kept.changed && !kept.export.for_attach);
    assert!(
        !host
            .manager
            .create_export(&attach)
            .unwrap()
            .export
            .for_attach
    );
}

#[test]
fn a_running_scrub_is_not_started_twice() {
    let host = Host::new(3);
    host.create("data", 0..3);
    let start = api::Scrub::default();
    let stop = api::Scrub {
        stop: true,
        ..start
    };
    assert!(!host.manager.scrub("data", stop).unwrap().changed);
    assert!(host.manager.scrub("data", start).unwrap().changed);
    assert!(!host.manager.scrub("data", start).unwrap().changed);
    assert_eq!(host.show("data").tasks[0].kind, task("scrub").kind);
    assert!(host.manager.scrub("data", stop).unwrap().changed);
}

#[test]
fn settings_are_checked_and_say_whether_they_changed() {
    let host = Host::new(3);
    host.create("data", 0..3);
    let set = |percent| {
        host.manager.set_array(
            "data",
            api::SetArray {
                rebuild_priority_percent: percent,
                policy: None,
            },
        )
    };
    assert!(set(Some(80)).unwrap().changed);
    assert!(!set(Some(80)).unwrap().changed);
    assert_eq!(kind(set(Some(0))), ErrorKind::Invalid);
    assert_eq!(kind(set(None)), ErrorKind::Invalid);
}

#[test]
fn the_policy_is_set_alone_or_with_others_and_nothing_half_way() {
    let host = Host::new(3);
    host.create("data", 0..3);
    let set = |policy, percent| {
        let request = api::SetArray {
            rebuild_priority_percent: percent,
            policy: Some(policy),
        };
        host.manager.set_array("data", request)
    };
    let policy = || host.show("data").consistency.unwrap().policy;
    assert!(!set(api::Policy::Log, None).unwrap().changed);
    for wanted in [api::Policy::Resync, api::Policy::LogAll, api::Policy::None] {
        let outcome = set(wanted, None).unwrap();
        assert!(outcome.changed && policy() == wanted);
        assert!(
            outcome.message.contains(wanted.name()),
            "{}",
            outcome.message
        );
    }
    assert_eq!(kind(set(api::Policy::Log, Some(0))), ErrorKind::Invalid);
    assert_eq!(policy(), api::Policy::None);
    let both = set(api::Policy::Log, Some(80)).unwrap();
    assert_eq!(
        both.message,
        "policy of data set to log; rebuild priority of data set to 80 %"
    );
}

#[test]
fn suspect_blocks_are_listed_and_accepted_only_by_force() {
    let host = Host::new(6);
    host.create("sound", 0..3);
    *host.node.doubt.lock().unwrap() = (4096, 8192);
    host.create("data", 3..6);
    let accept_of = |array, force| {
        let request = api::AcceptSuspect { force };
        host.manager.accept_suspect(array, request)
    };
    assert!(!accept_of("sound", false).unwrap().changed);
    assert!(host.manager.torn("sound").unwrap().extents.is_empty());
    let accept = |force| accept_of("data", force);
    let list = host.manager.torn("data").unwrap();
    assert_eq!((list.torn_bytes, list.suspect_bytes), (4096, 8192));
    assert_eq!(list.extents[1].kind, api::TornKind::Suspect);
    assert_eq!(kind(accept(false)), ErrorKind::Refused);
    let outcome = accept(true).unwrap();
    assert!(outcome.changed);
    let keeping = outcome.array.consistency.unwrap();
    assert_eq!((keeping.torn_bytes, keeping.suspect_bytes), (4096, 0));
}

#[test]
fn drives_are_listed_with_their_use_and_cleaned_when_free() {
    let host = Host::new(4);
    host.create("data", 0..3);
    let list = host.manager.list_drives().drives;
    let uses: Vec<&str> = list.iter().map(|drive| drive.usage_text.as_str()).collect();
    assert_eq!(
        uses,
        [
            "member 0 of data",
            "member 1 of data",
            "member 2 of data",
            "free"
        ]
    );
    let clean = |drive: &str, force| {
        host.manager.clean_drive(&api::CleanDrive {
            drive: drive.into(),
            force,
        })
    };
    assert_eq!(kind(clean("/d0", true)), ErrorKind::Refused);
    assert!(!clean("/d3", false).unwrap().changed);
    host.manager.stop_array("data", false).unwrap();
    assert_eq!(kind(clean("/d0", false)), ErrorKind::Refused);
    assert!(clean("/d0", true).unwrap().changed);
    assert_eq!(
        host.manager.show_drive("/d0").unwrap().drive.usage,
        api::DriveUse::Free
    );
    assert_eq!(kind(host.manager.show_drive("/gone")), ErrorKind::Drive);
}

#[test]
fn shutdown_stops_everything_cleanly_and_refuses_what_comes_after() {
    let host = Host::new(3);
    host.create("data", 0..3);
    host.export("data", NBD).unwrap();
    host.manager.shutdown();
    assert!(host.servers.running.lock().unwrap().is_empty());
    assert!(host.node.shut_down.load(Ordering::Relaxed));
    assert!(
        host.node
            .drives
            .lock()
            .unwrap()
            .values()
            .flatten()
            .all(|m| m.clean)
    );
    assert_eq!(kind(host.export("data", NBD)), ErrorKind::Stopped);
    let host = host.restart();
    assert_eq!(host.show("data").state, S::Healthy);
}

#[test]
fn the_tick_takes_over_a_raised_generation() {
    let host = Host::new(3);
    host.create("data", 0..3);
    let known = |host: &Host| host.manager.inner().state.arrays[0].generation;
    let before = known(&host);
    let uuid = host.show("data").uuid;
    let Some(Live::Running(handle)) = host.manager.live(uuid) else {
        panic!("it runs");
    };
    handle.fail_member(0, false).unwrap();
    host.manager.tick();
    assert!(known(&host) > before);
}

#[test]
fn options_that_do_not_belong_to_the_level_are_refused() {
    let host = Host::new(3);
    let base = create("data", vec!["/d0".into()]);
    for request in [
        api::CreateArray {
            copies: Some(2),
            ..base.clone()
        },
        api::CreateArray {
            parity: Some(2),
            ..base.clone()
        },
        api::CreateArray {
            level: api::Level::Raid10,
            copies: Some(2),
            group_size: Some(2),
            ..base
        },
    ] {
        assert_eq!(
            kind(host.manager.create_array(&request)),
            ErrorKind::Invalid
        );
    }
}
