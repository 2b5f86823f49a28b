use proptest::prelude::*;

use super::*;

#[test]
fn the_greeting_is_the_protocols() {
    let mut out = Vec::new();
    put_greeting(&mut out, handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
    assert_eq!(out, b"NBDMAGICIHAVEOPT\0\x03");
}

#[test]
fn an_option_reply_has_its_golden_bytes() {
    let mut out = Vec::new();
    put_option_reply(&mut out, 7, OptionReply::ErrUnknown, b"no");
    let golden = [
        0x00, 0x03, 0xe8, 0x89, 0x04, 0x55, 0x65, 0xa9, 0, 0, 0, 7, 0x80, 0, 0, 6, 0, 0, 0, 2,
        b'n', b'o',
    ];
    assert_eq!(out, golden);
}

#[test]
fn replies_have_their_golden_bytes() {
    let mut out = Vec::new();
    put_simple_reply(&mut out, 0x0102, Some(Errno::NoSpace));
    assert_eq!(
        out,
        [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 1, 2]
    );
    out.clear();
    put_structured_data(&mut out, 5, 4096, 512);
    let golden = [
        0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 2, 8, 0, 0, 0, 0, 0, 0,
        0x10, 0,
    ];
    assert_eq!(out, golden);
    out.clear();
    put_structured_error(&mut out, 5, Errno::Io, "gone");
    let golden = [
        0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 10, 0, 0, 0, 5, 0,
        4, b'g', b'o', b'n', b'e',
    ];
    assert_eq!(out, golden);
    out.clear();
    put_block_status(&mut out, 5, 1, 4096, 3);
    let golden = [
        0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0,
        0x10, 0, 0, 0, 0, 3,
    ];
    assert_eq!(out, golden);
}

#[test]
fn export_name_may_end_with_zeroes() {
    for (zeroes, length) in [(true, 134), (false, 10)] {
        let mut out = Vec::new();
        put_export_name_reply(&mut out, 1 << 20, transmission::HAS_FLAGS, zeroes);
        assert_eq!(out.len(), length);
        assert_eq!(out[..10], [0, 0, 0, 0, 0, 0x10, 0, 0, 0, 1]);
    }
}

#[test]
fn a_request_is_read_field_by_field() {
    let mut bytes = [0; REQUEST_HEADER_BYTES];
    bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[5] = 1;
    bytes[7] = 6;
    bytes[15] = 9;
    bytes[22] = 0x10;
    bytes[26] = 2;
    let expected = Request {
        flags: command_flag::FUA,
        command: Command::WriteZeroes,
        cookie: 9,
        offset: 4096,
        length: 512,
    };
    assert_eq!(Request::parse(&bytes), Ok(expected));
    bytes[0] ^= 1;
    assert_eq!(
        Request::parse(&bytes).map_err(|error| error.found),
        Err(u64::from(REQUEST_MAGIC ^ 0x0100_0000))
    );
}

#[test]
fn an_option_header_needs_its_magic() {
    let mut bytes = *b"IHAVEOPT\0\0\0\x07\0\0\x01\0";
    let expected = OptionHeader {
        number: 7,
        length: 256,
    };
    assert_eq!(OptionHeader::parse(&bytes), Ok(expected));
    bytes[3] = b'x';
    assert!(OptionHeader::parse(&bytes).is_err());
}

#[test]
fn info_data_is_taken_whole_or_not_at_all() {
    let good = b"\0\0\0\x03vol\0\x02\0\0\0\x03";
    assert_eq!(parse_info(good), Some((&b"vol"[..], vec![0, 3])));
    for cut in 0..good.len() {
        assert_eq!(parse_info(&good[..cut]), None, "cut at {cut}");
    }
    assert_eq!(parse_info(b"\0\0\0\0\0\0x"), None, "something follows");
    assert_eq!(
        parse_info(b"\xff\xff\xff\xffvol\0\0"),
        None,
        "name too long"
    );
}

#[test]
fn meta_context_data_is_taken_whole_or_not_at_all() {
    let good = b"\0\0\0\x01v\0\0\0\x02\0\0\0\x05base:\0\0\0\x01x";
    let expected = (&b"v"[..], vec![&b"base:"[..], &b"x"[..]]);
    assert_eq!(parse_meta_context(good), Some(expected));
    for cut in 0..good.len() {
        assert_eq!(parse_meta_context(&good[..cut]), None, "cut at {cut}");
    }
    assert_eq!(parse_meta_context(b"\0\0\0\0\xff\xff\xff\xff"), None);
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = parse_info(&data);
        let _ = parse_meta_context(&data);
        if let Some(header) = data.first_chunk() {
            let _ = OptionHeader::parse(header);
        }
        if let Some(header) = data.first_chunk() {
            let _ = Request::parse(header);
        }
    }

    #[test]
    fn every_request_survives_the_wire(
        flags: u16, command: u16, cookie: u64, offset: u64, length: u32
    ) {
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        let command = Command::from(command);
        let expected = Request { flags, command, cookie, offset, length };
        prop_assert_eq!(Request::parse(bytes[..].try_into().unwrap()), Ok(expected));
    }
}
