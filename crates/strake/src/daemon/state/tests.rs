use super::*;

fn example() -> State {
    let mut state = State::new();
    let uuid = Uuid::from_u128(7);
    state.put_array(KnownArray {
        uuid,
        name: "data".into(),
        level: "raid6".into(),
        drives: vec![KnownDrive {
            member: 0,
            spec: Some("/dev/sda".into()),
            serial: "S1".into(),
        }],
        autostart: true,
        read_only: false,
        generation: 3,
    });
    state.exports.push(KnownExport {
        id: "nbd1".into(),
        array_uuid: uuid,
        kind: ExportKind::NbdTcp {
            address: "127.0.0.1:10809".into(),
        },
        for_attach: false,
    });
    state
}

#[test]
fn a_new_folder_gets_a_host_identity_that_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    let (store, first) = Store::open(&path).unwrap();
    drop(store);
    let (_store, second) = Store::open(&path).unwrap();
    assert_eq!(first, second);
}

#[test]
fn what_is_saved_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(dir.path()).unwrap();
    store.save(&example()).unwrap();
    let host_id = example().host_id;
    drop(store);
    let (_store, mut read) = Store::open(dir.path()).unwrap();
    read.host_id = host_id;
    assert_eq!(
        State {
            host_id,
            ..example()
        },
        read
    );
}

#[test]
fn a_temporary_file_of_a_crash_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(dir.path()).unwrap();
    let state = example();
    store.save(&state).unwrap();
    fs::write(dir.path().join(TEMPORARY), b"{\"for").unwrap();
    drop(store);
    let (store, read) = Store::open(dir.path()).unwrap();
    assert_eq!(read, state);
    store.save(&read).unwrap();
    assert!(!dir.path().join(TEMPORARY).exists());
}

#[test]
fn a_failed_save_leaves_the_old_content() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(dir.path()).unwrap();
    let state = example();
    store.save(&state).unwrap();
    // A folder in the place of the temporary file stands for a disk that refuses the write.
    fs::create_dir(dir.path().join(TEMPORARY)).unwrap();
    let mut changed = state.clone();
    changed.arrays.clear();
    let error = store.save(&changed).unwrap_err().to_string();
    assert!(error.contains("cannot write"), "{error}");
    drop(store);
    assert_eq!(Store::open(dir.path()).unwrap().1, state);
}

#[test]
fn a_corrupt_file_is_an_error_and_stays_as_it_is() {
    for content in [
        &b""[..],
        b"{",
        b"[]",
        b"{\"format\":1}",
        b"{\"format\":2,\"new\":true}",
        b"{\"format\":1,\"host_id\":\"00000000-0000-0000-0000-000000000007\",\"next_export\":1,\"arrays\":[],\"exports\":[],\"other\":1}",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        fs::write(&path, content).unwrap();
        let error = Store::open(dir.path()).unwrap_err();
        assert!(matches!(error, StateError::Corrupt { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("array import"), "{text}");
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}

#[test]
fn a_newer_format_is_named() {
    let error = parse(b"{\"format\":2,\"new\":true}").unwrap_err();
    assert!(error.contains("format 2"), "{error}");
}

#[test]
fn one_folder_serves_one_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, _) = Store::open(dir.path()).unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(matches!(error, StateError::Locked(_)), "{error}");
}

#[test]
fn forgetting_an_array_forgets_its_exports() {
    let mut state = example();
    let uuid = state.arrays[0].uuid;
    assert_eq!(state.exports_of(uuid).count(), 1);
    state.forget(uuid);
    assert!(state.array(uuid).is_none());
    assert_eq!(state.exports.len(), 0);
}
