//! What answers what: NBD's handshake and transmission as states, without I/O.
//!
//! [`Negotiation`] says how many bytes it needs next and is fed exactly those; [`Transmission`]
//! turns a request into a [`Decision`]. Nothing here blocks, and no input makes it panic.
//! The decisions that the protocol leaves open: one export per server, also found under the
//! empty name; a request that is not aligned to the block size, or of no known kind, gets
//! `EINVAL`, and the connection stays; only what makes the stream unreadable closes it.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use strake_engine::block::{BlockError, BlockInfo, Operation};

use super::wire::{
    self, BadMagic, Command, Errno, InfoKind, OPTION_HEADER_BYTES, OptionHeader, OptionKind,
    OptionReply, Request, command_flag, handshake, transmission,
};

/// Largest request with data, bytes: what the protocol promises to clients that do not ask.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// Longest option data that is looked at, bytes.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Longest data that is read only to be dropped, bytes; beyond it the connection is closed.
const SKIP_BYTES_MAX: u32 = 64 << 20;
/// The one metadata context there is.
const BASE_ALLOCATION: &str = "base:allocation";
/// Its number on the wire.
const BASE_ALLOCATION_ID: u32 = 1;

/// What clients are told about the export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    name: String,
    description: String,
    size_bytes: u64,
    read_only: bool,
    block_size_bytes: u32,
    preferred_bytes: u32,
    request_bytes_max: u32,
}

impl Export {
    /// The export of a volume of shape `info`. Names and descriptions longer than the protocol
    /// carries (4096 bytes) are cut.
    pub fn new(name: &str, description: &str, info: &BlockInfo) -> Export {
        let block = info.block_size_bytes;
        let max = info.max_request_bytes.min(REQUEST_BYTES_MAX);
        let max = (max - max % block).max(block);
        // The largest power of two that is no more than the largest request.
        let preferred_max = 1 << max.ilog2();
        let strip = info.strip_size_bytes.max(4096).next_power_of_two();
        Export {
            name: cut(name).to_owned(),
            description: cut(description).to_owned(),
            size_bytes: info.size_bytes,
            read_only: info.read_only,
            block_size_bytes: block,
            preferred_bytes: strip.clamp(block, preferred_max),
            request_bytes_max: max,
        }
    }

    fn is_called(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }

    fn flags(&self, structured: bool) -> u16 {
        use transmission::*;
        let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN;
        flags |= match self.read_only {
            true => READ_ONLY,
            false => SEND_TRIM | SEND_WRITE_ZEROES,
        };
        if structured {
            flags |= SEND_DF;
        }
        flags
    }
}

/// The longest start of `text` that fits a string of the protocol.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(wire::STRING_BYTES_MAX)]
}

/// What the handshake settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Replies are structured.
    pub structured: bool,
    /// The client may ask for block status.
    pub base_allocation: bool,
}

/// What follows a fed piece of the handshake. What was appended to `out` is sent in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// More of the handshake.
    More,
    /// Requests from now on.
    Transmit(Agreed),
    /// The connection ends here, by agreement or because no other answer exists.
    Close,
}

/// Where the handshake stands: what the next bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    ClientFlags,
    OptionHeader,
    OptionData(OptionHeader),
    /// Data too long to look at.
    Skip(OptionHeader, u32),
}

/// The server's side of a handshake.
#[derive(Debug)]
pub struct Negotiation {
    export: Arc<Export>,
    state: State,
    zeroes: bool,
    structured: bool,
    /// Name under which `base:allocation` was chosen.
    context_of: Option<Vec<u8>>,
}

impl Negotiation {
    /// A fresh handshake; appends the greeting to `out`.
    pub fn new(export: Arc<Export>, out: &mut Vec<u8>) -> Negotiation {
        wire::put_greeting(out, handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        Negotiation {
            export,
            state: State::ClientFlags,
            zeroes: true,
            structured: false,
            context_of: None,
        }
    }

    /// How many bytes [`Negotiation::feed`] takes next: 1 to 64 KiB.
    pub fn need(&self) -> usize {
        match self.state {
            State::ClientFlags => 4,
            State::OptionHeader => OPTION_HEADER_BYTES,
            State::OptionData(header) => header.length as usize,
            State::Skip(_, left) => left.min(OPTION_BYTES_MAX) as usize,
        }
    }

    /// Takes exactly [`Negotiation::need`] bytes and appends what is to be sent to `out`.
    /// Fails when the client does not speak the protocol.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Step, BadMagic> {
        assert_eq!(bytes.len(), self.need(), "fed what was asked for");
        match self.state {
            State::ClientFlags => Ok(self.client_flags(bytes)),
            State::OptionHeader => self.option_header(bytes, out),
            State::OptionData(header) => {
                self.state = State::OptionHeader;
                Ok(self.option(header, bytes, out))
            }
            State::Skip(header, left) => {
                self.skipped(header, left - bytes.len() as u32, out);
                Ok(Step::More)
            }
        }
    }

    fn client_flags(&mut self, bytes: &[u8]) -> Step {
        let flags = bytes
            .iter()
            .fold(0, |all, &byte| all << 8 | u32::from(byte));
        let known = u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        self.zeroes = flags & u32::from(handshake::NO_ZEROES) == 0;
        self.state = State::OptionHeader;
        match flags & !known {
            0 => Step::More,
            _ => Step::Close,
        }
    }

    fn option_header(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Step, BadMagic> {
        let bytes = bytes.try_into().expect("as many bytes as a header has");
        let header = OptionHeader::parse(bytes)?;
        match header.length {
            0 => return Ok(self.option(header, &[], out)),
            1..=OPTION_BYTES_MAX => self.state = State::OptionData(header),
            _ if header.length <= SKIP_BYTES_MAX => {
                self.state = State::Skip(header, header.length);
            }
            _ => return Ok(Step::Close),
        }
        Ok(Step::More)
    }

    fn skipped(&mut self, header: OptionHeader, left: u32, out: &mut Vec<u8>) {
        self.state = match left {
            0 => State::OptionHeader,
            _ => State::Skip(header, left),
        };
        if left == 0 {
            let text = b"option data is longer than 64 KiB";
            wire::put_option_reply(out, header.number, OptionReply::ErrTooBig, text);
        }
    }

    fn option(&mut self, header: OptionHeader, data: &[u8], out: &mut Vec<u8>) -> Step {
        let mut answer = Answer {
            number: header.number,
            out,
        };
        match OptionKind::from(header.number) {
            OptionKind::ExportName => return self.export_name(data, answer.out),
            OptionKind::Abort => {
                answer.put(OptionReply::Ack, &[]);
                return Step::Close;
            }
            OptionKind::Info => {
                self.info(data, &mut answer);
            }
            OptionKind::Go => {
                if let Some(agreed) = self.info(data, &mut answer) {
                    return Step::Transmit(agreed);
                }
            }
            OptionKind::List => self.list(data, &mut answer),
            OptionKind::StructuredReply => self.structured_reply(data, &mut answer),
            OptionKind::ListMetaContext => self.meta_context(data, false, &mut answer),
            OptionKind::SetMetaContext => self.meta_context(data, true, &mut answer),
            OptionKind::StartTls => answer.put(
                OptionReply::ErrUnsupported,
                b"this server has no TLS; connect without it",
            ),
            OptionKind::Unknown(_) => {
                answer.put(OptionReply::ErrUnsupported, b"option not known here");
            }
        }
        Step::More
    }

    fn export_name(&mut self, name: &[u8], out: &mut Vec<u8>) -> Step {
        if !self.export.is_called(name) {
            return Step::Close;
        }
        let flags = self.export.flags(self.structured);
        wire::put_export_name_reply(out, self.export.size_bytes, flags, self.zeroes);
        Step::Transmit(self.agreed(name))
    }

    fn agreed(&self, name: &[u8]) -> Agreed {
        Agreed {
            structured: self.structured,
            base_allocation: self.structured && self.context_of.as_deref() == Some(name),
        }
    }

    fn info(&mut self, data: &[u8], answer: &mut Answer) -> Option<Agreed> {
        let Some((name, kinds)) = wire::parse_info(data) else {
            answer.put(OptionReply::ErrInvalid, b"malformed INFO or GO");
            return None;
        };
        if !self.export.is_called(name) {
            answer.unknown_export();
            return None;
        }
        let export = &self.export;
        let flags = export.flags(self.structured);
        answer.put(
            OptionReply::Info,
            &wire::info_export(export.size_bytes, flags),
        );
        // Told without being asked: a client that does not know them can not keep to them.
        let sizes = wire::info_block_size(
            export.block_size_bytes,
            export.preferred_bytes,
            export.request_bytes_max,
        );
        answer.put(OptionReply::Info, &sizes);
        for kind in [InfoKind::Name, InfoKind::Description] {
            let asked = kinds
                .iter()
                .any(|&number| InfoKind::from_number(number) == Some(kind));
            let text = match kind {
                InfoKind::Name => &export.name,
                _ => &export.description,
            };
            if asked {
                answer.put(OptionReply::Info, &wire::info_text(kind, text));
            }
        }
        answer.put(OptionReply::Ack, &[]);
        Some(self.agreed(name))
    }

    fn list(&self, data: &[u8], answer: &mut Answer) {
        if !data.is_empty() {
            return answer.put(OptionReply::ErrInvalid, b"LIST takes no data");
        }
        let entry = wire::list_entry(&self.export.name, &self.export.description);
        answer.put(OptionReply::Server, &entry);
        answer.put(OptionReply::Ack, &[]);
    }

    fn structured_reply(&mut self, data: &[u8], answer: &mut Answer) {
        if !data.is_empty() {
            return answer.put(OptionReply::ErrInvalid, b"STRUCTURED_REPLY takes no data");
        }
        self.structured = true;
        answer.put(OptionReply::Ack, &[]);
    }

    fn meta_context(&mut self, data: &[u8], set: bool, answer: &mut Answer) {
        if set {
            // Whatever was chosen before is forgotten, also when this fails.
            self.context_of = None;
        }
        let Some((name, queries)) = wire::parse_meta_context(data) else {
            return answer.put(OptionReply::ErrInvalid, b"malformed META_CONTEXT");
        };
        if !self.structured {
            let text = b"metadata contexts need structured replies";
            return answer.put(OptionReply::ErrInvalid, text);
        }
        if !self.export.is_called(name) {
            return answer.unknown_export();
        }
        let asked = queries.iter().any(|query| match set {
            true => *query == BASE_ALLOCATION.as_bytes(),
            false => *query == b"base:" || *query == BASE_ALLOCATION.as_bytes(),
        });
        if asked || (!set && queries.is_empty()) {
            let id = if set { BASE_ALLOCATION_ID } else { 0 };
            let context = wire::meta_context(id, BASE_ALLOCATION);
            answer.put(OptionReply::MetaContext, &context);
        }
        if set && asked {
            self.context_of = Some(name.to_vec());
        }
        answer.put(OptionReply::Ack, &[]);
    }
}

/// Where the answers to one option go.
struct Answer<'a> {
    number: u32,
    out: &'a mut Vec<u8>,
}

impl Answer<'_> {
    fn put(&mut self, reply: OptionReply, data: &[u8]) {
        wire::put_option_reply(self.out, self.number, reply, data);
    }

    fn unknown_export(&mut self) {
        let text = b"no export of this name here; LIST tells the name";
        self.put(OptionReply::ErrUnknown, text);
    }
}

/// A request that goes to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submit {
    /// Goes into the reply.
    pub cookie: u64,
    /// What to do. The data of a `Write` follows on the wire, `length` bytes.
    pub operation: Operation,
    /// First byte, aligned and within the volume.
    pub offset: u64,
    /// Bytes, aligned; 0 for `Flush` alone.
    pub length: u32,
    /// Durable before the reply.
    pub durable: bool,
}

/// A reply to one request. `Data` is followed by the data on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Success without data.
    Done {
        /// The request's.
        cookie: u64,
    },
    /// A successful read.
    Data {
        /// The request's.
        cookie: u64,
        /// The request's.
        offset: u64,
        /// Bytes that follow.
        length: u32,
    },
    /// A failure.
    Error {
        /// The request's.
        cookie: u64,
        /// What programs are told.
        errno: Errno,
        /// What people are told, where the reply can carry it.
        message: Cow<'static, str>,
    },
    /// The whole range is allocated.
    BlockStatus {
        /// The request's.
        cookie: u64,
        /// The request's, bytes.
        length: u32,
    },
}

/// What to do about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Hand it to the device.
    Submit(Submit),
    /// Drop `skip_bytes` bytes of data that follow on the wire, then reply.
    Reply {
        /// Data of a refused write.
        skip_bytes: u32,
        /// The reply.
        reply: Reply,
    },
    /// Finish what is under way, then close.
    Close,
}

/// The part of a connection in which requests are served. Holds no state of its own.
#[derive(Debug, Clone)]
pub struct Transmission {
    export: Arc<Export>,
    agreed: Agreed,
}

/// Why a request is refused.
type Refusal = (Errno, &'static str);

impl Transmission {
    /// Serves `export` as agreed.
    pub fn new(export: Arc<Export>, agreed: Agreed) -> Transmission {
        Transmission { export, agreed }
    }

    /// What to do about `request`.
    pub fn decide(&self, request: Request) -> Decision {
        let writes = request.command == Command::Write;
        if request.command == Command::Disconnect || (writes && request.length > SKIP_BYTES_MAX) {
            return Decision::Close;
        }
        let skip_bytes = if writes { request.length } else { 0 };
        let cookie = request.cookie;
        if let Err((errno, message)) = self.check(&request) {
            let message = Cow::Borrowed(message);
            let reply = Reply::Error {
                cookie,
                errno,
                message,
            };
            return Decision::Reply { skip_bytes, reply };
        }
        let operation = match request.command {
            Command::Read => Operation::Read,
            Command::Write => Operation::Write,
            Command::Flush => Operation::Flush,
            Command::Trim => Operation::Discard,
            Command::WriteZeroes => Operation::WriteZeroes,
            Command::BlockStatus => return status(&request),
            Command::Disconnect | Command::Unknown(_) => unreachable!("answered above"),
        };
        if request.length == 0 && operation != Operation::Flush {
            let reply = Reply::Done { cookie };
            return Decision::Reply { skip_bytes, reply };
        }
        let flush = operation == Operation::Flush;
        Decision::Submit(Submit {
            cookie,
            operation,
            offset: if flush { 0 } else { request.offset },
            length: if flush { 0 } else { request.length },
            durable: request.flags & command_flag::FUA != 0,
        })
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let allowed = match request.command {
            Command::Read => command_flag::FUA | command_flag::DF,
            Command::WriteZeroes => command_flag::FUA | command_flag::NO_HOLE,
            Command::BlockStatus => command_flag::FUA | command_flag::REQ_ONE,
            Command::Unknown(_) => return Err((Errno::Inval, "command not known here")),
            _ => command_flag::FUA,
        };
        if request.flags & !allowed != 0 {
            return Err((Errno::Inval, "command flag not known here"));
        }
        let changes = match request.command {
            Command::Write | Command::Trim | Command::WriteZeroes => true,
            Command::Flush => return Ok(()),
            _ => false,
        };
        if changes && self.export.read_only {
            return Err((Errno::Perm, "the export is read-only"));
        }
        if request.command == Command::BlockStatus && !self.agreed.base_allocation {
            return Err((Errno::Inval, "base:allocation was not negotiated"));
        }
        self.check_range(request)
    }

    fn check_range(&self, request: &Request) -> Result<(), Refusal> {
        let end = request.offset.checked_add(request.length.into());
        if end.is_none_or(|end| end > self.export.size_bytes) {
            let errno = match request.command {
                Command::Write | Command::WriteZeroes => Errno::NoSpace,
                _ => Errno::Inval,
            };
            return Err((errno, "request reaches past the end of the export"));
        }
        let carries_data = matches!(request.command, Command::Read | Command::Write);
        if carries_data && request.length > REQUEST_BYTES_MAX {
            return Err((Errno::Inval, "request is longer than 32 MiB"));
        }
        if request.command == Command::BlockStatus {
            return match request.length {
                0 => Err((Errno::Inval, "block status of no bytes")),
                _ => Ok(()),
            };
        }
        let block = self.export.block_size_bytes;
        if !request.offset.is_multiple_of(block.into()) || !request.length.is_multiple_of(block) {
            return Err((Errno::Inval, "request is not aligned to the block size"));
        }
        Ok(())
    }

    /// The reply to `submit` after the device's answer.
    pub fn reply(&self, submit: &Submit, result: Result<(), BlockError>) -> Reply {
        let cookie = submit.cookie;
        match result {
            Ok(()) if submit.operation == Operation::Read => Reply::Data {
                cookie,
                offset: submit.offset,
                length: submit.length,
            },
            Ok(()) => Reply::Done { cookie },
            Err(error) => Reply::Error {
                cookie,
                errno: errno(submit.operation, error),
                message: Cow::Owned(error.to_string()),
            },
        }
    }

    /// Appends the reply's bytes; for [`Reply::Data`] all that precedes the data.
    pub fn encode(&self, reply: &Reply, out: &mut Vec<u8>) {
        match (reply, self.agreed.structured) {
            (Reply::Done { cookie }, false) => wire::put_simple_reply(out, *cookie, None),
            (Reply::Done { cookie }, true) => wire::put_structured_done(out, *cookie),
            (Reply::Data { cookie, .. }, false) => wire::put_simple_reply(out, *cookie, None),
            (
                Reply::Data {
                    cookie,
                    offset,
                    length,
                },
                true,
            ) => {
                wire::put_structured_data(out, *cookie, *offset, *length as usize);
            }
            (Reply::Error { cookie, errno, .. }, false) => {
                wire::put_simple_reply(out, *cookie, Some(*errno));
            }
            (
                Reply::Error {
                    cookie,
                    errno,
                    message,
                },
                true,
            ) => {
                wire::put_structured_error(out, *cookie, *errno, cut(message));
            }
            (Reply::BlockStatus { cookie, length }, _) => {
                // State 0: allocated, and not known to be zero. The device can not tell more.
                wire::put_block_status(out, *cookie, BASE_ALLOCATION_ID, *length, 0);
            }
        }
    }
}

fn status(request: &Request) -> Decision {
    let reply = Reply::BlockStatus {
        cookie: request.cookie,
        length: request.length,
    };
    Decision::Reply {
        skip_bytes: 0,
        reply,
    }
}

/// The protocol's error for a device's error.
fn errno(operation: Operation, error: BlockError) -> Errno {
    match (error, operation) {
        (BlockError::OutOfRange, Operation::Write | Operation::WriteZeroes) => Errno::NoSpace,
        (BlockError::OutOfRange | BlockError::Unaligned, _) => Errno::Inval,
        (BlockError::ReadOnly, _) => Errno::Perm,
        (BlockError::Unavailable | BlockError::Torn, _) => Errno::Io,
        (BlockError::Stopped, _) => Errno::Shutdown,
    }
}
