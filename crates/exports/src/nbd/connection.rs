//! One client: a reader thread that submits and a writer thread that replies.
//!
//! Between the two is the [`Outbox`]. A completion, on the device's thread, only puts its reply
//! there. Every request is charged when it is read and paid back when its reply is written (or
//! dropped, with the connection broken), so a client that sends and never reads stalls itself
//! alone. The connection is over when the last request has come back from the device.

use std::io::{self, BufReader, IoSlice, Read, Write};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strake_engine::block::{BlockError, Operation};

use super::session::{Agreed, Decision, Export, Negotiation, Reply, Step, Submit, Transmission};
use super::socket::Socket;
use super::wire::{REQUEST_HEADER_BYTES, Request};
use crate::volume::{Data, Volume};

/// Requests of one client that are under way at a time.
const REQUESTS_MAX: usize = 128;
/// Data of one client's requests under way, bytes; one request may exceed it alone.
const DATA_BYTES_MAX: usize = 64 << 20;
/// How long a silent client may take for its next word of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes read ahead: many small requests in one system call.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// Serves one client until it leaves, breaks the protocol or the socket is shut down.
pub(super) fn serve(socket: &Socket, export: Arc<Export>, volume: &Volume) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(READ_AHEAD_BYTES, socket);
    socket.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
    let Some(agreed) = negotiate(&mut reader, socket, Arc::clone(&export))? else {
        return Ok(());
    };
    socket.set_read_timeout(None)?;
    let session = Arc::new(Transmission::new(export, agreed));
    let outbox = Arc::new(Outbox::default());
    std::thread::scope(|scope| {
        let writer = std::thread::Builder::new()
            .name("nbd-write".into())
            .spawn_scoped(scope, || write_replies(&outbox, &session, socket))?;
        let read = read_requests(&mut reader, &outbox, &session, volume);
        outbox.close();
        let written = writer.join().expect("the writer does not panic");
        read.and(written)
    })
}

fn negotiate(
    reader: &mut impl Read,
    mut socket: &Socket,
    export: Arc<Export>,
) -> io::Result<Option<Agreed>> {
    let mut out = Vec::new();
    let mut negotiation = Negotiation::new(export, &mut out);
    let mut bytes = Vec::new();
    loop {
        socket.write_all(&out)?;
        out.clear();
        bytes.resize(negotiation.need(), 0);
        reader.read_exact(&mut bytes)?;
        let step = negotiation.feed(&bytes, &mut out).map_err(broken)?;
        if step == Step::More {
            continue;
        }
        socket.write_all(&out)?;
        return Ok(match step {
            Step::Transmit(agreed) => Some(agreed),
            _ => None,
        });
    }
}

fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn read_requests(
    reader: &mut impl Read,
    outbox: &Arc<Outbox>,
    session: &Arc<Transmission>,
    volume: &Volume,
) -> io::Result<()> {
    let mut header = [0; REQUEST_HEADER_BYTES];
    loop {
        reader.read_exact(&mut header)?;
        let request = Request::parse(&header).map_err(broken)?;
        match session.decide(request) {
            Decision::Close => return Ok(()),
            Decision::Reply { skip_bytes, reply } => {
                skip(reader, skip_bytes)?;
                outbox.charge(0);
                outbox.push(reply, Data::default(), 0);
            }
            Decision::Submit(submit) => match submit.operation {
                Operation::Read | Operation::Write => {
                    submit_data(reader, outbox, session, volume, submit)?;
                }
                _ => submit_plain(outbox, session, volume, submit),
            },
        }
    }
}

/// Reads and drops `count` bytes.
fn skip(reader: &mut impl Read, count: u32) -> io::Result<()> {
    match io::copy(&mut reader.take(count.into()), &mut io::sink())? {
        read if read == u64::from(count) => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn submit_data(
    reader: &mut impl Read,
    outbox: &Arc<Outbox>,
    session: &Arc<Transmission>,
    volume: &Volume,
    submit: Submit,
) -> io::Result<()> {
    let length = submit.length as usize;
    outbox.charge(length);
    let mut data = volume.data(submit.offset, length);
    if submit.operation == Operation::Write {
        let read = data
            .pieces_mut()
            .try_for_each(|piece| reader.read_exact(piece.as_mut_slice()));
        if let Err(error) = read {
            outbox.pay_back(1, length);
            return Err(error);
        }
    }
    // The closure holds no device: the last reference to it must not go on its own thread.
    let (outbox, session) = (Arc::clone(outbox), Arc::clone(session));
    let done = Box::new(move |result: Result<(), BlockError>, data: Data| {
        let reply = session.reply(&submit, result);
        let carries_data = matches!(reply, Reply::Data { .. });
        let data = if carries_data { data } else { Data::default() };
        outbox.push(reply, data, length);
    });
    let (operation, offset, durable) = (submit.operation, submit.offset, submit.durable);
    volume.submit_data(operation, offset, durable, data, done);
    Ok(())
}

fn submit_plain(
    outbox: &Arc<Outbox>,
    session: &Arc<Transmission>,
    volume: &Volume,
    submit: Submit,
) {
    outbox.charge(0);
    let (outbox, session) = (Arc::clone(outbox), Arc::clone(session));
    volume.submit_plain(
        submit.operation,
        submit.offset,
        submit.length.into(),
        submit.durable,
        Box::new(move |result| {
            outbox.push(session.reply(&submit, result), Data::default(), 0);
        }),
    );
}

/// A reply on its way to the client, and what its request was charged.
struct Ready {
    reply: Reply,
    data: Data,
    charged_bytes: usize,
}

/// Replies that wait for the writer, and the client's account.
#[derive(Default)]
struct Outbox {
    state: Mutex<OutboxState>,
    /// A reply came, or the last request was paid back after the end.
    changed: Condvar,
    /// Something was paid back.
    room: Condvar,
}

#[derive(Default)]
struct OutboxState {
    ready: Vec<Ready>,
    requests: usize,
    bytes: usize,
    closing: bool,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more request of `bytes` bytes of data is allowed, and counts it.
    fn charge(&self, bytes: usize) {
        let mut state = self.lock();
        while state.requests >= REQUESTS_MAX
            || (state.bytes > 0 && state.bytes + bytes > DATA_BYTES_MAX)
        {
            state = self
                .room
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.requests += 1;
        state.bytes += bytes;
    }

    fn pay_back(&self, requests: usize, bytes: usize) {
        let mut state = self.lock();
        state.requests -= requests;
        state.bytes -= bytes;
        drop(state);
        self.room.notify_one();
        self.changed.notify_one();
    }

    /// Queues a reply; called on any thread and never waits for I/O.
    fn push(&self, reply: Reply, data: Data, charged_bytes: usize) {
        self.lock().ready.push(Ready {
            reply,
            data,
            charged_bytes,
        });
        self.changed.notify_one();
    }

    /// No more requests will be charged.
    fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_one();
    }

    /// Waits for replies and swaps them into `batch`, which is empty; `false` when there will be
    /// none any more.
    fn wait(&self, batch: &mut Vec<Ready>) -> bool {
        let mut state = self.lock();
        loop {
            if !state.ready.is_empty() {
                std::mem::swap(&mut state.ready, batch);
                return true;
            }
            if state.closing && state.requests == 0 {
                return false;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn write_replies(outbox: &Outbox, session: &Transmission, socket: &Socket) -> io::Result<()> {
    let mut batch = Vec::new();
    let mut headers = Headers::default();
    let mut result = Ok(());
    while outbox.wait(&mut batch) {
        if result.is_ok() {
            result = headers.write(&batch, session, socket);
            if result.is_err() {
                // Wakes the reader; what is still with the device is only waited for.
                socket.shutdown();
            }
        }
        let bytes = batch.iter().map(|ready| ready.charged_bytes).sum();
        let requests = batch.len();
        batch.clear();
        outbox.pay_back(requests, bytes);
    }
    result
}

/// Space for the headers of a batch, used again for the next.
#[derive(Default)]
struct Headers {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Headers {
    /// Writes a batch in as few system calls as the socket takes, the data straight from its
    /// buffers.
    fn write(
        &mut self,
        batch: &[Ready],
        session: &Transmission,
        socket: &Socket,
    ) -> io::Result<()> {
        self.bytes.clear();
        self.ends.clear();
        for ready in batch {
            session.encode(&ready.reply, &mut self.bytes);
            self.ends.push(self.bytes.len());
        }
        let mut slices = Vec::with_capacity(2 * batch.len());
        let mut pending: Range<usize> = 0..0;
        for (ready, &end) in batch.iter().zip(&self.ends) {
            pending.end = end;
            if ready.data.len() > 0 {
                slices.push(IoSlice::new(&self.bytes[pending]));
                slices.extend(
                    ready
                        .data
                        .pieces()
                        .map(|piece| IoSlice::new(piece.as_slice())),
                );
                pending = end..end;
            }
        }
        if !pending.is_empty() {
            slices.push(IoSlice::new(&self.bytes[pending]));
        }
        write_all_vectored(socket, &mut slices)
    }
}

fn write_all_vectored(mut socket: &Socket, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        match socket.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
