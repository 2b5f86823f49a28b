//! A small NBD client of the harness's own: fixed newstyle, simple replies, several requests
//! in flight. Written from the protocol's text (NetworkBlockDevice: doc/proto.md), so that
//! it can also say things that a proper client never would.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const MAGIC: &[u8; 8] = b"NBDMAGIC";
const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;

const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_ERROR_BIT: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;

/// Reply to an option that the server does not know.
pub const REPLY_UNSUPPORTED: u32 = REPLY_ERROR_BIT | 1;

/// Invalid argument.
pub const EINVAL: u32 = 22;
/// No space left: a write past the end.
pub const ENOSPC: u32 = 28;

/// Requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read = 0,
    /// Write.
    Write = 1,
    /// Flush.
    Flush = 3,
    /// Discard.
    Trim = 4,
    /// Write zeroes.
    WriteZeroes = 6,
}

/// The request is answered when it is durable.
pub const FLAG_FUA: u16 = 1;
/// Zeroes must be written, not punched.
pub const FLAG_NO_HOLE: u16 = 2;

/// A connection in transmission phase.
pub struct Client {
    stream: UnixStream,
    size: u64,
    next_cookie: u64,
}

/// A connection during option haggling.
pub struct Handshake {
    stream: UnixStream,
}

impl Handshake {
    /// Connects and exchanges greetings.
    pub fn start(socket: &Path) -> Result<Handshake> {
        let mut stream = UnixStream::connect(socket)?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        if &greeting[..8] != MAGIC || &greeting[8..16] != OPTION_MAGIC {
            return Err(bad("greeting"));
        }
        // Fixed newstyle, no zeroes.
        stream.write_all(&3u32.to_be_bytes())?;
        Ok(Handshake { stream })
    }

    /// Sends an option and returns its replies up to the last one, as (type, data).
    pub fn option(&mut self, option: u32, data: &[u8]) -> Result<Vec<(u32, Vec<u8>)>> {
        let mut message = OPTION_MAGIC.to_vec();
        message.extend(option.to_be_bytes());
        message.extend(u32_of(data.len()).to_be_bytes());
        message.extend(data);
        self.stream.write_all(&message)?;
        let mut replies = Vec::new();
        loop {
            let (kind, data) = self.reply(option)?;
            let last = kind == REPLY_ACK || kind & REPLY_ERROR_BIT != 0;
            replies.push((kind, data));
            if last {
                return Ok(replies);
            }
        }
    }

    fn reply(&mut self, option: u32) -> Result<(u32, Vec<u8>)> {
        let mut header = [0; 20];
        self.stream.read_exact(&mut header)?;
        if be64(&header[..8]) != OPTION_REPLY_MAGIC || be32(&header[8..12]) != option {
            return Err(bad("option reply"));
        }
        let mut data = vec![0; be32(&header[16..20]) as usize];
        self.stream.read_exact(&mut data)?;
        Ok((be32(&header[12..16]), data))
    }

    /// Chooses an export and begins transmission.
    pub fn go(mut self, name: &str) -> Result<Client> {
        let mut data = u32_of(name.len()).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend(0u16.to_be_bytes());
        let replies = self.option(OPTION_GO, &data)?;
        let (last, text) = replies.last().expect("at least the last reply");
        if *last != REPLY_ACK {
            return Err(Error::other(String::from_utf8_lossy(text).into_owned()));
        }
        let size = replies
            .iter()
            .find(|(kind, data)| {
                *kind == REPLY_INFO && data.get(..2) == Some(&INFO_EXPORT.to_be_bytes())
            })
            .map(|(_, data)| be64(&data[2..10]))
            .ok_or_else(|| bad("answer without the export's size"))?;
        Ok(Client {
            stream: self.stream,
            size,
            next_cookie: 1,
        })
    }
}

impl Client {
    /// Connects to an export.
    pub fn connect(socket: &Path, name: &str) -> Result<Client> {
        Handshake::start(socket)?.go(name)
    }

    /// Bytes of the export.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Sends a request and returns its cookie; `data` for writes only.
    pub fn send(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> Result<u64> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let mut message = Vec::with_capacity(28 + data.len());
        message.extend(REQUEST_MAGIC.to_be_bytes());
        message.extend(flags.to_be_bytes());
        message.extend((command as u16).to_be_bytes());
        message.extend(cookie.to_be_bytes());
        message.extend(offset.to_be_bytes());
        message.extend(length.to_be_bytes());
        message.extend(data);
        self.stream.write_all(&message)?;
        Ok(cookie)
    }

    /// Receives the next reply without data: (cookie, error number).
    pub fn receive(&mut self) -> Result<(u64, u32)> {
        let mut header = [0; 16];
        self.stream.read_exact(&mut header)?;
        if be32(&header[..4]) != SIMPLE_REPLY_MAGIC {
            return Err(bad("reply"));
        }
        Ok((be64(&header[8..16]), be32(&header[4..8])))
    }

    /// One request, one reply: its error number, 0 for success.
    pub fn request(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> Result<u32> {
        let cookie = self.send(command, flags, offset, length, data)?;
        let (answered, error) = self.receive()?;
        if answered != cookie {
            return Err(bad("cookie"));
        }
        Ok(error)
    }

    /// Writes; panics when that fails.
    #[track_caller]
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let length = u32_of(data.len());
        let error = self.request(Command::Write, 0, offset, length, data);
        assert_eq!(error.expect("the server answers"), 0, "writing at {offset}");
    }

    /// Reads; panics when that fails.
    #[track_caller]
    pub fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        self.try_read(offset, length)
            .expect("the server answers")
            .unwrap_or_else(|error| panic!("reading {length} at {offset}: error {error}"))
    }

    /// Reads; the inner error is the server's.
    pub fn try_read(
        &mut self,
        offset: u64,
        length: usize,
    ) -> Result<std::result::Result<Vec<u8>, u32>> {
        let error = self.request(Command::Read, 0, offset, u32_of(length), &[])?;
        if error != 0 {
            return Ok(Err(error));
        }
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data)?;
        Ok(Ok(data))
    }

    /// Makes what was answered durable; panics when that fails.
    #[track_caller]
    pub fn flush(&mut self) {
        let error = self.request(Command::Flush, 0, 0, 0, &[]);
        assert_eq!(error.expect("the server answers"), 0, "flushing");
    }

    /// The bare connection, to say what no client should.
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }
}

fn bad(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("not an NBD {what}"))
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

fn be64(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

fn u32_of(length: usize) -> u32 {
    u32::try_from(length).expect("lengths of tests are small")
}
