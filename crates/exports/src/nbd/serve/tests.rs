use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use strake_engine::block::BlockError;

use super::*;
use crate::mock::Mock;

const SIZE: u64 = 8 << 20;

fn start(path: &Path, mock: &Arc<Mock>) -> io::Result<NbdServer> {
    let config = NbdConfig {
        listen: Listen::Unix(path.into()),
        export_name: "vol".into(),
        description: "test".into(),
    };
    NbdServer::start(config, mock.clone())
}

/// A server in a directory of its own.
fn served(mock: &Arc<Mock>) -> (tempfile::TempDir, NbdServer) {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory.path().join("nbd.sock"), mock).unwrap();
    (directory, server)
}

fn connect(server: &NbdServer) -> UnixStream {
    let NbdAddress::Unix(path) = server.address() else {
        panic!("a Unix socket");
    };
    let mut stream = UnixStream::connect(path).unwrap();
    handshake(&mut stream);
    stream
}

/// Oldest handshake there is: simple replies.
fn handshake(stream: &mut (impl Read + Write)) {
    stream.read_exact(&mut [0; 18]).unwrap();
    stream
        .write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x03vol")
        .unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
}

fn request(command: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// Error and cookie of the next simple reply.
fn reply(stream: &mut impl Read) -> (u32, u64) {
    let mut bytes = [0; 16];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes[..4], [0x67, 0x44, 0x66, 0x98]);
    let error = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
    (error, u64::from_be_bytes(bytes[8..].try_into().unwrap()))
}

fn is_closed(stream: &mut impl Read) -> bool {
    matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_))
}

#[test]
fn writes_are_read_back_and_replies_come_out_of_order() {
    let mock = Mock::of(SIZE);
    let (_directory, server) = served(&mock);
    let mut stream = connect(&server);
    for cookie in 0..64u64 {
        stream
            .write_all(&request(1, 1, cookie, cookie * 4096, 4096))
            .unwrap();
        stream.write_all(&[cookie as u8 + 1; 4096]).unwrap();
    }
    let mut cookies: Vec<u64> = (0..64)
        .map(|_| reply(&mut stream))
        .map(|(error, cookie)| {
            assert_eq!(error, 0);
            cookie
        })
        .collect();
    cookies.sort_unstable();
    assert!(cookies.iter().copied().eq(0..64));
    assert_eq!(mock.counts().durable.load(Ordering::SeqCst), 64);
    mock.hold();
    for cookie in 0..64u64 {
        stream
            .write_all(&request(0, 0, cookie, cookie * 4096, 4096))
            .unwrap();
    }
    mock.wait_until("64 reads", |mock| mock.waiting() == 64);
    mock.release();
    let mut in_order = true;
    for expected in 0..64 {
        let (error, cookie) = reply(&mut stream);
        let mut data = [0; 4096];
        stream.read_exact(&mut data).unwrap();
        assert_eq!((error, data), (0, [cookie as u8 + 1; 4096]));
        in_order &= cookie == expected;
    }
    assert!(!in_order, "64 shuffled reads in order would be a wonder");
    assert_eq!(mock.violations(), 0);
}

#[test]
fn a_request_past_the_end_gets_an_error_and_the_connection_stays() {
    let mock = Mock::of(SIZE);
    let (_directory, server) = served(&mock);
    let mut stream = connect(&server);
    stream.write_all(&request(0, 0, 1, SIZE, 4096)).unwrap();
    assert_eq!(reply(&mut stream), (22, 1));
    stream
        .write_all(&request(1, 0, 2, SIZE - 4096, 8192))
        .unwrap();
    stream.write_all(&[1; 8192]).unwrap();
    assert_eq!(reply(&mut stream), (28, 2));
    stream.write_all(&request(0, 0, 3, 3, 4096)).unwrap();
    assert_eq!(reply(&mut stream), (22, 3));
    stream.write_all(&request(77, 0, 4, 0, 4096)).unwrap();
    assert_eq!(reply(&mut stream), (22, 4));
    stream.write_all(&request(3, 0, 5, 0, 0)).unwrap();
    assert_eq!(reply(&mut stream), (0, 5));
    assert_eq!(mock.content(), vec![0; SIZE as usize]);
}

#[test]
fn device_errors_reach_the_client() {
    let mock = Mock::of(SIZE);
    mock.set_bad(0..4096, BlockError::Unavailable);
    let (_directory, server) = served(&mock);
    let mut stream = connect(&server);
    stream.write_all(&request(0, 0, 1, 0, 8192)).unwrap();
    assert_eq!(reply(&mut stream), (5, 1), "an error carries no data");
    mock.set_bad(0..SIZE, BlockError::Stopped);
    stream.write_all(&request(3, 0, 2, 0, 0)).unwrap();
    stream.write_all(&request(4, 0, 3, 0, 4096)).unwrap();
    let replies = [reply(&mut stream), reply(&mut stream)];
    assert!(replies.contains(&(108, 3)));
}

#[test]
fn a_wrong_magic_ends_the_connection_and_only_this_one() {
    let mock = Mock::of(SIZE);
    let (_directory, server) = served(&mock);
    let mut other = connect(&server);
    let mut stream = connect(&server);
    stream.write_all(&[0xff; 28]).unwrap();
    assert!(is_closed(&mut stream));
    other.write_all(&request(3, 0, 9, 0, 0)).unwrap();
    assert_eq!(reply(&mut other), (0, 9));
}

#[test]
fn disconnect_waits_for_what_is_under_way() {
    let mock = Mock::of(SIZE);
    let (_directory, server) = served(&mock);
    let mut stream = connect(&server);
    mock.hold();
    stream.write_all(&request(0, 0, 1, 0, 4096)).unwrap();
    stream.write_all(&request(2, 0, 2, 0, 0)).unwrap();
    mock.wait_until("the read", |mock| mock.waiting() == 1);
    mock.release();
    assert_eq!(reply(&mut stream), (0, 1));
    stream.read_exact(&mut [0; 4096]).unwrap();
    assert!(is_closed(&mut stream));
}

#[test]
fn a_client_that_vanishes_leaves_nothing_behind() {
    let mock = Mock::of(SIZE);
    let (_directory, server) = served(&mock);
    mock.hold();
    let mut stream = connect(&server);
    for cookie in 0..40 {
        stream
            .write_all(&request(0, 0, cookie, cookie * 4096, 65536))
            .unwrap();
    }
    // And a write whose data never comes whole.
    stream.write_all(&request(1, 0, 99, 0, 65536)).unwrap();
    stream.write_all(&[1; 1000]).unwrap();
    mock.wait_until("the reads", |mock| mock.waiting() == 40);
    drop(stream);
    assert_eq!(
        server.connections(),
        1,
        "requests are still with the device"
    );
    mock.release();
    mock.wait_until("the end of the connection", |_| server.connections() == 0);
    assert_eq!(mock.counts().writes.load(Ordering::SeqCst), 0);
    let mut stream = connect(&server);
    stream.write_all(&request(3, 0, 5, 0, 0)).unwrap();
    assert_eq!(reply(&mut stream), (0, 5));
}

#[test]
fn a_client_that_never_reads_stalls_itself_alone() {
    let mock = Mock::of(SIZE);
    let (_directory, server) = served(&mock);
    let mut greedy = connect(&server);
    greedy.set_nonblocking(true).unwrap();
    let many: Vec<u8> = (0..20_000u64)
        .flat_map(|cookie| request(0, 0, cookie, 0, 1 << 20))
        .collect();
    let _ = greedy.write(&many);
    std::thread::sleep(Duration::from_millis(200));
    let reads = mock.counts().reads.load(Ordering::SeqCst);
    assert!(
        reads <= 2 * 64,
        "{reads} MiB of reads for a client that takes none"
    );
    let mut other = connect(&server);
    other.write_all(&request(3, 0, 5, 0, 0)).unwrap();
    assert_eq!(reply(&mut other), (0, 5));
    let before = Instant::now();
    server.stop();
    assert!(before.elapsed() < Duration::from_secs(10));
}

#[test]
fn more_requests_than_allowed_wait_at_the_door() {
    let mock = Mock::of(SIZE);
    let (_directory, server) = served(&mock);
    mock.hold();
    let mut stream = connect(&server);
    for cookie in 0..300 {
        stream.write_all(&request(0, 0, cookie, 0, 4096)).unwrap();
    }
    mock.wait_until("128 requests", |mock| mock.waiting() == 128);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(mock.waiting(), 128);
    mock.release();
    for _ in 0..300 {
        assert_eq!(reply(&mut stream).0, 0);
        stream.read_exact(&mut [0; 4096]).unwrap();
    }
}

#[test]
fn stop_closes_everything_and_may_be_called_twice() {
    let mock = Mock::of(SIZE);
    let (directory, server) = served(&mock);
    let mut transmitting = connect(&server);
    let mut silent = UnixStream::connect(directory.path().join("nbd.sock")).unwrap();
    silent.read_exact(&mut [0; 18]).unwrap();
    assert_eq!(server.connections(), 2);
    server.stop();
    server.stop();
    assert_eq!(server.connections(), 0);
    assert!(is_closed(&mut transmitting) && is_closed(&mut silent));
    assert!(!directory.path().join("nbd.sock").exists());
    drop(server);
    assert_eq!(Arc::strong_count(&mock), 1, "the device is let go");
}

#[test]
fn a_dead_socket_is_replaced_and_a_living_one_is_not() {
    let mock = Mock::of(SIZE);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nbd.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = start(&path, &mock).expect("the dead socket is replaced");
    let error = start(&path, &mock).map(drop).expect_err("somebody answers");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    drop(connect(&server));
    server.stop();
    std::fs::write(&path, b"precious").unwrap();
    let error = start(&path, &mock).map(drop).expect_err("no socket");
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn tcp_takes_a_free_port_and_tells_it() {
    let mock = Mock::of(SIZE);
    let config = NbdConfig {
        listen: Listen::Tcp("127.0.0.1:0".parse().unwrap()),
        export_name: "vol".into(),
        description: String::new(),
    };
    let server = NbdServer::start(config.clone(), mock.clone()).unwrap();
    let &NbdAddress::Tcp(address) = server.address() else {
        panic!("TCP");
    };
    assert_eq!(server.uri(), format!("nbd://{address}/vol"));
    let mut stream = TcpStream::connect(address).unwrap();
    handshake(&mut stream);
    stream.write_all(&request(3, 0, 5, 0, 0)).unwrap();
    assert_eq!(reply(&mut stream), (0, 5));
    let taken = NbdConfig {
        listen: Listen::Tcp(address),
        ..config
    };
    let error = NbdServer::start(taken, mock.clone())
        .map(drop)
        .expect_err("taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn uris_are_escaped() {
    let address = NbdAddress::Unix("/run/a b/n.sock".into());
    assert_eq!(
        uri(&address, "ünd/x"),
        "nbd+unix:///%C3%BCnd%2Fx?socket=/run/a%20b/n.sock"
    );
}

#[test]
fn random_bytes_never_harm_the_server() {
    let mock = Mock::of(SIZE);
    let (_directory, server) = served(&mock);
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..200 {
        let NbdAddress::Unix(path) = server.address() else {
            panic!("a Unix socket");
        };
        let mut stream = UnixStream::connect(path).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        if round % 2 == 0 {
            handshake(&mut stream);
        }
        let mut bytes = vec![0; random.usize(1..3000)];
        random.fill(&mut bytes);
        if round % 4 == 0 {
            // A valid request in front, so that the rest is its data.
            bytes.splice(
                ..0,
                request(
                    random.u16(..9),
                    random.u16(..4),
                    1,
                    random.u64(..SIZE),
                    4096,
                ),
            );
        }
        let _ = stream.write_all(&bytes);
    }
    mock.wait_until("the end of all", |_| server.connections() == 0);
    let mut stream = connect(&server);
    stream.write_all(&request(3, 0, 5, 0, 0)).unwrap();
    assert_eq!(reply(&mut stream), (0, 5));
    assert_eq!(mock.violations(), 0);
}
