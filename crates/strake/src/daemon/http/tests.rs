//! Routes over a real socket, with a node without drives behind them.

use super::*;
use crate::cli::CliError;
use crate::cli::client::Client;
use crate::daemon::manager::tests::{Host, create};
use std::collections::BTreeSet;

/// A daemon's HTTP side on a socket of its own.
struct Daemon {
    client: Client,
    runtime: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
    _state_dir: tempfile::TempDir,
}

fn daemon(drives: usize) -> Daemon {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (manager, state_dir) = Host::new(drives).into_manager();
    let app = router(Arc::new(manager));
    let listener = {
        let _guard = runtime.enter();
        tokio::net::UnixListener::bind(&path).unwrap()
    };
    runtime.spawn(async move { axum::serve(listener, app).await });
    Daemon {
        client: Client::new(&path).unwrap(),
        runtime,
        dir,
        _state_dir: state_dir,
    }
}

fn api_error<T>(result: Result<T, CliError>) -> api::Error {
    match result {
        Err(CliError::Api(error)) => error,
        Err(other) => panic!("not an error of the API: {other}"),
        Ok(_) => panic!("not an error"),
    }
}

#[test]
fn an_array_is_made_shown_and_destroyed_over_the_socket() {
    let daemon = daemon(3);
    let client = &daemon.client;
    let request = create("data", vec!["/d0".into(), "/d1".into(), "/d2".into()]);
    let made: api::ArrayOutcome = client.post(&["v1", "arrays"], &request).unwrap();
    assert!(made.changed);
    let uuid = made.array.uuid.to_string();
    let shown: api::ArrayDetail = client.get(&["v1", "arrays", &uuid]).unwrap();
    assert_eq!(shown, made.array);
    let list: api::ArrayList = client.get(&["v1", "arrays"]).unwrap();
    assert_eq!(list.arrays[0].members_active, 3);
    let drive: api::DriveDetail = client
        .query(&["v1", "drives", "show"], &[("drive", "/d1")])
        .unwrap();
    assert_eq!(drive.drive.member, Some(1));
    let error = api_error(client.delete::<api::Outcome>(&["v1", "arrays", "data"], false));
    assert_eq!(error.kind, ErrorKind::Refused);
    let gone: api::Outcome = client.delete(&["v1", "arrays", "data"], true).unwrap();
    assert!(gone.changed);
}

#[test]
fn every_mistake_is_answered_with_an_error_of_the_api() {
    let daemon = daemon(0);
    let client = &daemon.client;
    let error = api_error(client.get::<api::ArrayDetail>(&["v1", "arrays", "a/b?c"]));
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.message.contains("a/b?c"), "{error}");
    let error = api_error(client.get::<api::ArrayDetail>(&["v2", "arrays"]));
    assert!(error.message.contains("openapi.json"), "{error}");
    let error = api_error(client.delete::<api::Outcome>(&["v1", "drives"], false));
    assert_eq!(error.kind, ErrorKind::NotFound);
    let wrong = serde_json::json!({"name": "data", "nonsense": 1});
    let error = api_error(client.post::<api::ArrayOutcome>(&["v1", "arrays"], &wrong));
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("nonsense"), "{error}");
    let error = api_error(client.get::<api::DriveDetail>(&["v1", "drives", "show"]));
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("drive"), "{error}");
}

/// Sends a request of that method and tells whether a route answered it.
fn routed(daemon: &Daemon, method: &str, path: &str) -> bool {
    let http = reqwest::Client::builder()
        .unix_socket(daemon.dir.path().join("s"))
        .build()
        .unwrap();
    let method = reqwest::Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
    let text = daemon.runtime.block_on(async {
        let url = format!("http://strake{path}");
        http.request(method, url)
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
    });
    !text.contains("no such path or method")
}

#[test]
fn every_documented_path_is_a_route() {
    let daemon = daemon(0);
    let document = serde_json::to_value(Document::openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 15);
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            assert!(routed(&daemon, method, path), "{method} {path}");
        }
    }
    assert!(!routed(&daemon, "put", "/v1/arrays"));
}

#[test]
fn every_route_is_documented() {
    let source = include_str!("../http.rs");
    let routes: BTreeSet<&str> = source
        .split("\"/v1/")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .filter(|path| *path != "openapi.json")
        .collect();
    let document = serde_json::to_value(Document::openapi()).unwrap();
    let documented = document["paths"].as_object().unwrap();
    for route in routes {
        assert!(documented.contains_key(&format!("/v1/{route}")), "{route}");
    }
}

#[test]
fn the_document_is_served_and_is_the_one_checked_in() {
    let daemon = daemon(0);
    let served: serde_json::Value = daemon.client.get(&["v1", "openapi.json"]).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../api/openapi.json");
    let text = Document::openapi().to_pretty_json().unwrap() + "\n";
    if std::env::var_os("STRAKE_UPDATE_OPENAPI").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        text == checked_in,
        "crates/api/openapi.json is not what the routes say: look at the change, then accept it with STRAKE_UPDATE_OPENAPI=1 cargo test -p strake openapi the_document"
    );
    let checked_in: serde_json::Value = serde_json::from_str(&checked_in).unwrap();
    assert_eq!(served, checked_in);
}
