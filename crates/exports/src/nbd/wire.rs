//! NBD's bytes: every message of the protocol that this server reads or writes.
//!
//! Pure: bytes in, messages out, and back. All integers are big endian. Nothing here decides.
//! Lengths from the peer are checked before they are believed.

#[cfg(test)]
mod tests;

/// First bytes of the server: "NBDMAGIC".
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Newstyle, and the start of every option: "IHAVEOPT".
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Start of every answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Start of each part of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags; the client answers with the same bits.
pub mod handshake {
    /// Both sides speak fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// No 124 zero bytes after the answer to `EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags: what the export can do.
pub mod transmission {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `FLUSH` is understood.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The FUA command flag is understood.
    pub const SEND_FUA: u16 = 1 << 3;
    /// `TRIM` is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `WRITE_ZEROES` is understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The "do not fragment" command flag is understood.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers the completed writes of all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Command flags.
pub mod command_flag {
    /// Durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// Zeroes must not become a hole.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Data of a read in one part.
    pub const DF: u16 = 1 << 2;
    /// One extent per context.
    pub const REQ_ONE: u16 = 1 << 3;
}

/// Errors that a reply may carry; their values are Linux's, on every system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: the export is read-only.
    Perm = 1,
    /// The I/O failed.
    Io = 5,
    /// The request makes no sense.
    Inval = 22,
    /// Past the end of the export.
    NoSpace = 28,
    /// The server is going away.
    Shutdown = 108,
}

/// Options that a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// Old way into transmission: a name, no error possible.
    ExportName,
    /// The client gives up.
    Abort,
    /// Which exports are there.
    List,
    /// TLS, please.
    StartTls,
    /// Tell me about an export.
    Info,
    /// Tell me about an export and enter transmission.
    Go,
    /// Structured replies, please.
    StructuredReply,
    /// Which metadata contexts are there.
    ListMetaContext,
    /// Use these metadata contexts.
    SetMetaContext,
    /// One that this server never heard of.
    Unknown(u32),
}

impl From<u32> for OptionKind {
    fn from(number: u32) -> OptionKind {
        match number {
            1 => OptionKind::ExportName,
            2 => OptionKind::Abort,
            3 => OptionKind::List,
            5 => OptionKind::StartTls,
            6 => OptionKind::Info,
            7 => OptionKind::Go,
            8 => OptionKind::StructuredReply,
            9 => OptionKind::ListMetaContext,
            10 => OptionKind::SetMetaContext,
            other => OptionKind::Unknown(other),
        }
    }
}

/// Types of answers to options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum OptionReply {
    /// Done.
    Ack = 1,
    /// One export's name and description.
    Server = 2,
    /// One piece of information about an export.
    Info = 3,
    /// One metadata context.
    MetaContext = 4,
    /// The option is not known here.
    ErrUnsupported = (1 << 31) + 1,
    /// The option's data makes no sense.
    ErrInvalid = (1 << 31) + 3,
    /// There is no such export.
    ErrUnknown = (1 << 31) + 6,
    /// The option's data is too long.
    ErrTooBig = (1 << 31) + 9,
}

/// Kinds of information about an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum InfoKind {
    /// Size and transmission flags.
    Export = 0,
    /// Canonical name.
    Name = 1,
    /// Text for people.
    Description = 2,
    /// Smallest, preferred and largest request.
    BlockSize = 3,
}

impl InfoKind {
    /// The kind with this number, if it is known here.
    pub fn from_number(number: u16) -> Option<InfoKind> {
        [
            InfoKind::Export,
            InfoKind::Name,
            InfoKind::Description,
            InfoKind::BlockSize,
        ]
        .into_iter()
        .find(|&kind| kind as u16 == number)
    }
}

/// Length of an option's header, bytes.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Length of a request's header, bytes.
pub const REQUEST_HEADER_BYTES: usize = 28;
/// Longest string of the protocol, bytes.
pub const STRING_BYTES_MAX: usize = 4096;

/// The peer does not speak this protocol: nothing that follows can be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected the {expected} but read {found:#x}; the peer does not speak NBD")]
pub struct BadMagic {
    /// What should have come.
    pub expected: &'static str,
    /// What came.
    pub found: u64,
}

/// Reads big-endian fields from the front of a slice; every read may fail, none panics.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    fn u16(&mut self) -> Option<u16> {
        let bytes = self.bytes(2)?.try_into().ok()?;
        Some(u16::from_be_bytes(bytes))
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.bytes(4)?.try_into().ok()?;
        Some(u32::from_be_bytes(bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        let bytes = self.bytes(8)?.try_into().ok()?;
        Some(u64::from_be_bytes(bytes))
    }

    /// A length of 32 bits and that many bytes, at most [`STRING_BYTES_MAX`].
    fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        if length > STRING_BYTES_MAX {
            return None;
        }
        self.bytes(length)
    }

    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// The header in front of every option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHeader {
    /// The option's number as it came; the answer repeats it.
    pub number: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl OptionHeader {
    /// Reads a header; fails when it does not start with [`OPTION_MAGIC`].
    pub fn parse(bytes: &[u8; OPTION_HEADER_BYTES]) -> Result<OptionHeader, BadMagic> {
        let mut fields = Fields(bytes);
        let found = fields.u64().unwrap_or(0);
        match (found, fields.u32(), fields.u32()) {
            (OPTION_MAGIC, Some(number), Some(length)) => Ok(OptionHeader { number, length }),
            _ => Err(BadMagic {
                expected: "start of an option",
                found,
            }),
        }
    }
}

/// Data of `INFO` and `GO`: the export's name and which information is asked for.
/// `None` when it is malformed.
pub fn parse_info(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u16()?;
    let kinds = (0..count).map(|_| fields.u16()).collect::<Option<_>>()?;
    fields.end((name, kinds))
}

/// Data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`: the export's name and the queries.
/// `None` when it is malformed.
pub fn parse_meta_context(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u32()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(fields.string()?);
    }
    fields.end((name, queries))
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Data from the export.
    Read,
    /// Data to the export; it follows the header.
    Write,
    /// Finish what is under way and close.
    Disconnect,
    /// Make completed writes durable.
    Flush,
    /// The range's content is no longer needed.
    Trim,
    /// The range reads as zeroes.
    WriteZeroes,
    /// What is allocated in the range.
    BlockStatus,
    /// One that this server never heard of.
    Unknown(u16),
}

impl From<u16> for Command {
    fn from(number: u16) -> Command {
        match number {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            other => Command::Unknown(other),
        }
    }
}

/// The header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Bits of [`command_flag`].
    pub flags: u16,
    /// What is asked for.
    pub command: Command,
    /// The client's name for the request; the reply repeats it.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

impl Request {
    /// Reads a header; fails when it does not start with [`REQUEST_MAGIC`].
    pub fn parse(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<Request, BadMagic> {
        let mut fields = Fields(bytes);
        let found = fields.u32().unwrap_or(0);
        let parsed = (|| {
            let (flags, command) = (fields.u16()?, fields.u16()?);
            let (cookie, offset) = (fields.u64()?, fields.u64()?);
            Some(Request {
                flags,
                command: command.into(),
                cookie,
                offset,
                length: fields.u32()?,
            })
        })();
        match parsed {
            Some(request) if found == REQUEST_MAGIC => Ok(request),
            _ => Err(BadMagic {
                expected: "start of a request",
                found: found.into(),
            }),
        }
    }
}

/// Appends the server's first words.
pub fn put_greeting(out: &mut Vec<u8>, flags: u16) {
    out.extend(MAGIC.to_be_bytes());
    out.extend(OPTION_MAGIC.to_be_bytes());
    out.extend(flags.to_be_bytes());
}

/// Appends an answer to option `number`; `data` must be shorter than 4 GiB.
pub fn put_option_reply(out: &mut Vec<u8>, number: u32, reply: OptionReply, data: &[u8]) {
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(number.to_be_bytes());
    out.extend((reply as u32).to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}

/// Appends the answer to `EXPORT_NAME`, which has no header.
pub fn put_export_name_reply(out: &mut Vec<u8>, size_bytes: u64, flags: u16, zeroes: bool) {
    out.extend(size_bytes.to_be_bytes());
    out.extend(flags.to_be_bytes());
    if zeroes {
        out.extend([0; 124]);
    }
}

/// Data of an `Info` answer about size and flags.
pub fn info_export(size_bytes: u64, flags: u16) -> Vec<u8> {
    let mut data = (InfoKind::Export as u16).to_be_bytes().to_vec();
    data.extend(size_bytes.to_be_bytes());
    data.extend(flags.to_be_bytes());
    data
}

/// Data of an `Info` answer that is a text: name or description.
pub fn info_text(kind: InfoKind, text: &str) -> Vec<u8> {
    let mut data = (kind as u16).to_be_bytes().to_vec();
    data.extend(text.as_bytes());
    data
}

/// Data of an `Info` answer about block sizes, bytes.
pub fn info_block_size(minimum: u32, preferred: u32, maximum: u32) -> Vec<u8> {
    let mut data = (InfoKind::BlockSize as u16).to_be_bytes().to_vec();
    for size in [minimum, preferred, maximum] {
        data.extend(size.to_be_bytes());
    }
    data
}

/// Data of a `Server` answer: one export in the list.
pub fn list_entry(name: &str, description: &str) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend(description.as_bytes());
    data
}

/// Data of a `MetaContext` answer.
pub fn meta_context(id: u32, name: &str) -> Vec<u8> {
    let mut data = id.to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data
}

/// Appends a simple reply's header; a successful read's data follows it.
pub fn put_simple_reply(out: &mut Vec<u8>, cookie: u64, error: Option<Errno>) {
    out.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    out.extend(error.map_or(0, |error| error as u32).to_be_bytes());
    out.extend(cookie.to_be_bytes());
}

/// Types of structured reply parts; each of ours is a whole reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
enum Part {
    None = 0,
    OffsetData = 1,
    BlockStatus = 5,
    Error = (1 << 15) + 1,
}

/// Flag of the last part of a structured reply.
const PART_DONE: u16 = 1;

fn put_part(out: &mut Vec<u8>, cookie: u64, part: Part, length: usize) {
    out.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    out.extend(PART_DONE.to_be_bytes());
    out.extend((part as u16).to_be_bytes());
    out.extend(cookie.to_be_bytes());
    out.extend((length as u32).to_be_bytes());
}

/// Appends a structured reply that says only "done".
pub fn put_structured_done(out: &mut Vec<u8>, cookie: u64) {
    put_part(out, cookie, Part::None, 0);
}

/// Appends what precedes the `length` bytes of a read in a structured reply.
pub fn put_structured_data(out: &mut Vec<u8>, cookie: u64, offset: u64, length: usize) {
    put_part(out, cookie, Part::OffsetData, 8 + length);
    out.extend(offset.to_be_bytes());
}

/// Appends a structured error; `message` is for people and at most [`STRING_BYTES_MAX`] long.
pub fn put_structured_error(out: &mut Vec<u8>, cookie: u64, error: Errno, message: &str) {
    put_part(out, cookie, Part::Error, 6 + message.len());
    out.extend((error as u32).to_be_bytes());
    out.extend((message.len() as u16).to_be_bytes());
    out.extend(message.as_bytes());
}

/// Appends a block status of one extent with state `flags`.
pub fn put_block_status(out: &mut Vec<u8>, cookie: u64, context: u32, length: u32, flags: u32) {
    put_part(out, cookie, Part::BlockStatus, 12);
    out.extend(context.to_be_bytes());
    out.extend(length.to_be_bytes());
    out.extend(flags.to_be_bytes());
}
