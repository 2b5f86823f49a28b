use super::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

fn failure(client: &Client) -> String {
    match client.get::<api::ArrayList>(&["v1", "arrays"]) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("nobody can have answered"),
    }
}

#[test]
fn without_a_socket_the_text_names_it_and_how_to_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none.sock");
    let text = failure(&Client::new(&path).unwrap());
    assert!(text.contains("is not running"), "{text}");
    assert!(text.contains(path.to_str().unwrap()), "{text}");
    assert!(text.contains("strake daemon"), "{text}");
    assert!(text.contains("STRAKE_SOCKET"), "{text}");
}

#[test]
fn on_a_dead_socket_nobody_answers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dead.sock");
    drop(UnixListener::bind(&path).unwrap());
    let text = failure(&Client::new(&path).unwrap());
    assert!(text.contains("nobody answers"), "{text}");
}

/// A server that reads a request and answers with these bytes.
fn answering(answer: &'static str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(answer.as_bytes());
    });
    let text = failure(&Client::new(&path).unwrap());
    server.join().unwrap();
    text
}

#[test]
fn a_daemon_that_dies_is_told_from_one_that_is_not_there() {
    let text = answering("");
    assert!(text.contains("before it answered"), "{text}");
}

#[test]
fn an_answer_of_another_program_is_not_believed() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 500 Oops\r\ncontent-length: 5\r\n\r\nhello",
    ] {
        let text = answering(answer);
        assert!(text.contains("same version"), "{text}");
    }
}

#[test]
fn paths_and_queries_are_escaped() {
    let url = url(&["v1", "arrays", "a/b?c"], &[("drive", "/dev/a b&c")]);
    assert_eq!(
        url.as_str(),
        "http://strake/v1/arrays/a%2Fb%3Fc?drive=%2Fdev%2Fa+b%26c"
    );
}
