use proptest::prelude::*;

use super::*;
use crate::mock::info;

const SIZE: u64 = 1 << 20;

fn export(read_only: bool) -> Arc<Export> {
    let mut info = info(SIZE);
    info.read_only = read_only;
    Arc::new(Export::new("vol", "a volume", &info))
}

/// A client that sends options and reads the answers.
struct Client {
    negotiation: Negotiation,
    step: Step,
}

/// Option number, reply type, data.
type Answers = Vec<(u32, u32, Vec<u8>)>;

impl Client {
    fn new() -> Client {
        let mut out = Vec::new();
        let mut client = Client {
            negotiation: Negotiation::new(export(false), &mut out),
            step: Step::More,
        };
        assert_eq!(out, b"NBDMAGICIHAVEOPT\0\x03");
        client.send(&[0, 0, 0, 3]);
        client
    }

    /// Feeds `bytes` as the connection would, in the pieces that are asked for.
    fn send(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        while !bytes.is_empty() {
            assert_eq!(self.step, Step::More);
            let (now, later) = bytes.split_at(self.negotiation.need());
            self.step = self.negotiation.feed(now, &mut out).expect("valid");
            bytes = later;
        }
        out
    }

    fn option(&mut self, number: u32, data: &[u8]) -> Answers {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        let mut out = &self.send(&bytes)[..];
        let mut answers = Vec::new();
        while !out.is_empty() {
            assert_eq!(out[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
            let field = |at: usize| u32::from_be_bytes(out[at..at + 4].try_into().unwrap());
            let end = 20 + field(16) as usize;
            answers.push((field(8), field(12), out[20..end].to_vec()));
            out = &out[end..];
        }
        answers
    }

    fn kinds(&mut self, number: u32, data: &[u8]) -> Vec<u32> {
        let answers = self.option(number, data);
        assert!(answers.iter().all(|answer| answer.0 == number));
        answers.iter().map(|answer| answer.1).collect()
    }
}

const ACK: u32 = OptionReply::Ack as u32;
const INFO: u32 = OptionReply::Info as u32;
const SERVER: u32 = OptionReply::Server as u32;
const META: u32 = OptionReply::MetaContext as u32;
const UNSUPPORTED: u32 = OptionReply::ErrUnsupported as u32;
const INVALID: u32 = OptionReply::ErrInvalid as u32;
const UNKNOWN: u32 = OptionReply::ErrUnknown as u32;
const TOO_BIG: u32 = OptionReply::ErrTooBig as u32;

fn info_data(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((kinds.len() as u16).to_be_bytes());
    data.extend(kinds.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

fn meta_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(query.as_bytes());
    }
    data
}

#[test]
fn go_tells_size_flags_and_block_sizes_and_enters_transmission() {
    let mut client = Client::new();
    let answers = client.option(7, &info_data("vol", &[1, 2, 99]));
    let flags = 0b1_0110_1101u16;
    assert_eq!(answers[0].2, wire::info_export(SIZE, flags));
    assert_eq!(answers[1].2, wire::info_block_size(4096, 65536, 4 << 20));
    assert_eq!(answers[2].2, b"\0\x01vol");
    assert_eq!(answers[3].2, b"\0\x02a volume");
    assert_eq!((answers[4].1, answers.len()), (ACK, 5));
    let agreed = Agreed {
        structured: false,
        base_allocation: false,
    };
    assert_eq!(client.step, Step::Transmit(agreed));
}

#[test]
fn info_tells_the_same_and_stays() {
    let mut client = Client::new();
    assert_eq!(client.kinds(6, &info_data("", &[])), [INFO, INFO, ACK]);
    assert_eq!(client.kinds(6, &info_data("vol", &[])), [INFO, INFO, ACK]);
    assert_eq!(client.kinds(6, &info_data("other", &[])), [UNKNOWN]);
    assert_eq!(client.kinds(7, &info_data("other", &[])), [UNKNOWN]);
    assert_eq!(client.kinds(7, b"\0\0\0\x09vol\0\0"), [INVALID]);
    assert_eq!(client.step, Step::More);
}

#[test]
fn options_that_are_not_there_are_refused_and_the_talk_goes_on() {
    let mut client = Client::new();
    let cases: [(u32, &[u8], &[u32]); 8] = [
        (4, b"", &[UNSUPPORTED]),  // PEEK_EXPORT, withdrawn
        (5, b"", &[UNSUPPORTED]),  // STARTTLS
        (11, b"", &[UNSUPPORTED]), // EXTENDED_HEADERS
        (4711, b"abc", &[UNSUPPORTED]),
        (3, b"", &[SERVER, ACK]),
        (3, b"x", &[INVALID]),
        (8, b"x", &[INVALID]),
        (7, b"", &[INVALID]),
    ];
    for (number, data, expected) in cases {
        assert_eq!(client.kinds(number, data), expected, "option {number}");
    }
    assert_eq!(client.option(3, b"")[0].2, b"\0\0\0\x03vola volume");
    assert_eq!(client.kinds(2, b""), [ACK]);
    assert_eq!(client.step, Step::Close);
}

#[test]
fn too_long_option_data_is_skipped() {
    let mut client = Client::new();
    assert_eq!(client.kinds(7, &vec![0; 200 << 10]), [TOO_BIG]);
    assert_eq!(client.kinds(3, b""), [SERVER, ACK]);
    client.send(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff");
    assert_eq!(client.step, Step::Close, "4 GiB are not worth skipping");
}

#[test]
fn block_status_needs_structured_replies_and_its_context() {
    let good = meta_data("vol", &["x:y", "base:allocation"]);
    let mut client = Client::new();
    assert_eq!(client.kinds(10, &good), [INVALID], "not structured yet");
    assert_eq!(client.kinds(8, b""), [ACK]);
    assert_eq!(client.kinds(9, &meta_data("vol", &[])), [META, ACK]);
    assert_eq!(client.kinds(9, &meta_data("vol", &["base:"])), [META, ACK]);
    assert_eq!(client.kinds(9, &meta_data("vol", &["x:"])), [ACK]);
    assert_eq!(client.kinds(9, &meta_data("other", &[])), [UNKNOWN]);
    assert_eq!(client.option(10, &good)[0].2, b"\0\0\0\x01base:allocation");
    client.option(7, &info_data("vol", &[]));
    let agreed = Agreed {
        structured: true,
        base_allocation: true,
    };
    assert_eq!(client.step, Step::Transmit(agreed));
}

#[test]
fn a_context_is_lost_by_a_later_choice_or_another_name() {
    for (later, name) in [
        (meta_data("vol", &["x:y"]), "vol"),
        (meta_data("other", &["base:allocation"]), "vol"),
        (b"\0".to_vec(), "vol"),
        (meta_data("vol", &["base:allocation"]), ""),
    ] {
        let mut client = Client::new();
        client.option(8, b"");
        client.option(10, &meta_data("vol", &["base:allocation"]));
        client.option(10, &later);
        client.option(7, &info_data(name, &[]));
        let Step::Transmit(agreed) = client.step else {
            panic!("in transmission");
        };
        assert!(!agreed.base_allocation, "{later:?} {name}");
    }
}

#[test]
fn export_name_is_answered_or_cut_off() {
    let mut client = Client::new();
    let out = client.send(b"IHAVEOPT\0\0\0\x01\0\0\0\x03vol");
    assert_eq!(out.len(), 10);
    assert!(matches!(client.step, Step::Transmit(_)));
    let mut client = Client::new();
    assert_eq!(client.send(b"IHAVEOPT\0\0\0\x01\0\0\0\x03vul"), b"");
    assert_eq!(client.step, Step::Close);
    let mut client = Client::new();
    client.send(b"IHAVEOPT\0\0\0\x01\0\0\0\0");
    assert!(matches!(client.step, Step::Transmit(_)), "the empty name");
}

#[test]
fn unknown_client_flags_close() {
    let mut negotiation = Negotiation::new(export(false), &mut Vec::new());
    let step = negotiation.feed(&[0, 0, 0, 4], &mut Vec::new());
    assert_eq!(step, Ok(Step::Close));
}

#[test]
fn block_sizes_fit_together_for_every_device() {
    for block in [512, 4096] {
        for max in [block, 3 * block, 100_000, 1 << 20, 5 << 20, 1 << 30] {
            for strip in [0, 512, 4096, 65536, 1 << 20] {
                let mut info = info(SIZE);
                info.block_size_bytes = block;
                info.max_request_bytes = max.max(block);
                info.strip_size_bytes = strip;
                let export = Export::new("", "", &info);
                let preferred = export.preferred_bytes;
                assert!(preferred.is_power_of_two());
                assert!(block <= preferred && preferred <= export.request_bytes_max);
                assert!(export.request_bytes_max.is_multiple_of(block));
                assert!(export.request_bytes_max <= REQUEST_BYTES_MAX);
            }
        }
    }
}

fn transmission_of(read_only: bool, structured: bool) -> Transmission {
    let agreed = Agreed {
        structured,
        base_allocation: structured,
    };
    Transmission::new(export(read_only), agreed)
}

fn request(command: Command, flags: u16, offset: u64, length: u32) -> Request {
    Request {
        flags,
        command,
        cookie: 7,
        offset,
        length,
    }
}

#[test]
fn good_requests_are_submitted() {
    let transmission = transmission_of(false, true);
    let fua = command_flag::FUA;
    let cases = [
        (Command::Read, 0, Operation::Read, false),
        (Command::Read, command_flag::DF, Operation::Read, false),
        (Command::Write, 0, Operation::Write, false),
        (Command::Write, fua, Operation::Write, true),
        (Command::Trim, fua, Operation::Discard, true),
        (
            Command::WriteZeroes,
            command_flag::NO_HOLE,
            Operation::WriteZeroes,
            false,
        ),
    ];
    for (command, flags, operation, durable) in cases {
        let submit = Submit {
            cookie: 7,
            operation,
            offset: 8192,
            length: 4096,
            durable,
        };
        let decision = transmission.decide(request(command, flags, 8192, 4096));
        assert_eq!(decision, Decision::Submit(submit), "{command:?}");
    }
    let decision = transmission.decide(request(Command::Flush, 0, 0, 0));
    assert!(matches!(decision, Decision::Submit(submit) if submit.operation == Operation::Flush));
    let decision = transmission.decide(request(Command::Disconnect, 0, 0, 0));
    assert_eq!(decision, Decision::Close);
}

#[test]
fn bad_requests_get_their_error_and_the_connection_stays() {
    use Command::*;
    let end = SIZE;
    let cases = [
        (Read, 0, end, 4096, Errno::Inval),
        (Read, 0, end - 4096, 8192, Errno::Inval),
        (Read, 0, u64::MAX - 4095, 4096, Errno::Inval),
        (Read, 0, 1, 4096, Errno::Inval),
        (Read, 0, 0, 511, Errno::Inval),
        (Read, command_flag::NO_HOLE, 0, 4096, Errno::Inval),
        (Write, 0, end, 4096, Errno::NoSpace),
        (Write, 0, u64::MAX, 4096, Errno::NoSpace),
        (Write, 0, 512, 4096, Errno::Inval),
        (Write, command_flag::DF, 0, 4096, Errno::Inval),
        (WriteZeroes, 0, end, 4096, Errno::NoSpace),
        (WriteZeroes, 1 << 4, 0, 4096, Errno::Inval), // fast zero was not offered
        (Trim, 0, end, 4096, Errno::Inval),
        (Trim, 0, 0, 4095, Errno::Inval),
        (BlockStatus, 0, 0, 0, Errno::Inval),
        (BlockStatus, 0, end, 1, Errno::Inval),
        (Unknown(5), 0, 0, 4096, Errno::Inval),
        (Unknown(99), 0, 0, 4096, Errno::Inval),
    ];
    let transmission = transmission_of(false, true);
    for (command, flags, offset, length, expected) in cases {
        match transmission.decide(request(command, flags, offset, length)) {
            Decision::Reply {
                skip_bytes,
                reply: Reply::Error {
                    cookie: 7, errno, ..
                },
            } => {
                assert_eq!(errno, expected, "{command:?} {offset} {length}");
                assert_eq!(skip_bytes, if command == Write { length } else { 0 });
            }
            other => panic!("{command:?} {offset} {length}: {other:?}"),
        }
    }
    let huge = request(Write, 0, 0, SKIP_BYTES_MAX + 4096);
    assert_eq!(transmission.decide(huge), Decision::Close);
}

#[test]
fn a_read_only_export_refuses_every_change() {
    let transmission = transmission_of(true, false);
    for command in [Command::Write, Command::Trim, Command::WriteZeroes] {
        let decision = transmission.decide(request(command, 0, 0, 4096));
        let refused = matches!(
            decision,
            Decision::Reply {
                reply: Reply::Error {
                    errno: Errno::Perm,
                    ..
                },
                ..
            }
        );
        assert!(refused, "{command:?}");
    }
    for command in [Command::Read, Command::Flush] {
        let decision = transmission.decide(request(command, 0, 0, 4096));
        assert!(matches!(decision, Decision::Submit(_)), "{command:?}");
    }
    let flags = export(true).flags(false);
    assert_ne!(flags & transmission::READ_ONLY, 0);
    assert_eq!(flags & transmission::SEND_TRIM, 0);
}

#[test]
fn requests_of_no_bytes_succeed_without_the_device() {
    let transmission = transmission_of(false, false);
    for command in [
        Command::Read,
        Command::Write,
        Command::Trim,
        Command::WriteZeroes,
    ] {
        let decision = transmission.decide(request(command, 0, SIZE, 0));
        let reply = Reply::Done { cookie: 7 };
        assert_eq!(
            decision,
            Decision::Reply {
                skip_bytes: 0,
                reply
            }
        );
    }
}

#[test]
fn device_errors_map_to_the_protocols() {
    use BlockError::*;
    let cases = [
        (Operation::Read, OutOfRange, Errno::Inval),
        (Operation::Write, OutOfRange, Errno::NoSpace),
        (Operation::WriteZeroes, OutOfRange, Errno::NoSpace),
        (Operation::Discard, OutOfRange, Errno::Inval),
        (Operation::Write, Unaligned, Errno::Inval),
        (Operation::Write, ReadOnly, Errno::Perm),
        (Operation::Read, Unavailable, Errno::Io),
        (Operation::Flush, Stopped, Errno::Shutdown),
    ];
    for (operation, error, expected) in cases {
        assert_eq!(errno(operation, error), expected, "{operation:?} {error:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_handshake_panic(
        data in proptest::collection::vec(any::<u8>(), 0..2000),
        options in proptest::collection::vec((0u32..13, 0usize..200), 1..20),
    ) {
        let mut out = Vec::new();
        let mut negotiation = Negotiation::new(export(false), &mut out);
        negotiation.feed(&[0, 0, 0, 1], &mut out).unwrap();
        let mut at = 0;
        for (number, length) in options {
            let length = length.min(data.len() - at);
            let mut header = b"IHAVEOPT".to_vec();
            header.extend(number.to_be_bytes());
            header.extend((length as u32).to_be_bytes());
            let mut step = negotiation.feed(&header, &mut out).unwrap();
            if length > 0 {
                step = negotiation.feed(&data[at..at + length], &mut out).unwrap();
                at += length;
            }
            if step != Step::More {
                break;
            }
        }
    }

    #[test]
    fn what_is_submitted_is_aligned_and_within(
        flags in 0u16..32, command in 0u16..10, offset in 0..2 * SIZE, length in 0..(2 * SIZE as u32),
        aligned: bool, read_only: bool,
    ) {
        let mask = if aligned { !4095 } else { !0 };
        let (offset, length) = (offset & mask, length & mask as u32);
        let request = request(command.into(), flags, offset, length);
        let writes = request.command == Command::Write;
        match transmission_of(read_only, true).decide(request) {
            Decision::Submit(submit) => {
                prop_assert!(submit.offset % 4096 == 0 && submit.length % 4096 == 0);
                prop_assert!(submit.offset + u64::from(submit.length) <= SIZE);
                let changes = !matches!(submit.operation, Operation::Read | Operation::Flush);
                prop_assert!(!(changes && read_only));
            }
            Decision::Reply { skip_bytes, .. } => {
                prop_assert_eq!(skip_bytes, if writes { length } else { 0 });
            }
            Decision::Close => prop_assert_eq!(request.command, Command::Disconnect),
        }
    }
}
