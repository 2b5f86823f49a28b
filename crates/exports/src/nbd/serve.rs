//! A server: one export on one listening socket, any number of clients.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::connection;
use super::session::Export;
use super::socket::{Listener, Socket};
use crate::Device;
use crate::buffers::BufferCache;
use crate::volume::Volume;

/// Clients of one server at a time; more are turned away.
const CONNECTIONS_MAX: usize = 256;
/// Free buffers that a server keeps for its next requests, bytes.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// How long to wait when accepting fails for want of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket at this path. A dead socket there is replaced.
    Unix(PathBuf),
    /// TCP; port 0 takes a free one. Nothing authenticates clients: keep to loopback or a
    /// trusted network.
    Tcp(SocketAddr),
}

/// What a server serves and where.
#[derive(Debug, Clone)]
pub struct NbdConfig {
    /// Where to listen.
    pub listen: Listen,
    /// The export's name, at most 4096 bytes. Clients that ask for no name get it, too.
    pub export_name: String,
    /// Text for people, at most 4096 bytes.
    pub description: String,
}

/// Where a running server is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NbdAddress {
    /// A Unix socket.
    Unix(PathBuf),
    /// TCP, with the port that was really taken.
    Tcp(SocketAddr),
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            NbdAddress::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// A running NBD server. Stops when dropped.
pub struct NbdServer {
    shared: Arc<Shared>,
    address: NbdAddress,
    uri: String,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    export: Arc<Export>,
    volume: Volume,
    stopping: AtomicBool,
    /// Wakes the acceptor to stop.
    wake: OwnedFd,
    connected: AtomicUsize,
    connections: Mutex<Vec<Connection>>,
}

struct Connection {
    /// Gone when the connection is.
    socket: Weak<Socket>,
    thread: JoinHandle<()>,
}

impl NbdServer {
    /// Starts to serve `device`.
    ///
    /// Fails when the address can not be taken: `AddrInUse` when another server answers there,
    /// `AlreadyExists` when the path is no socket, or what the system says.
    pub fn start(config: NbdConfig, device: Device) -> io::Result<NbdServer> {
        let listener = match &config.listen {
            Listen::Unix(path) => Listener::unix(path)?,
            Listen::Tcp(address) => Listener::tcp(*address)?,
        };
        let address = match &listener {
            Listener::Unix(_, path) => NbdAddress::Unix(path.clone()),
            Listener::Tcp(listener) => NbdAddress::Tcp(listener.local_addr()?),
        };
        let volume = Volume::new(device, BufferCache::new(KEPT_BYTES_MAX));
        let export = Export::new(&config.export_name, &config.description, volume.info());
        let shared = Arc::new(Shared {
            export: Arc::new(export),
            volume,
            stopping: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC)?,
            connected: AtomicUsize::new(0),
            connections: Mutex::default(),
        });
        let acceptor = std::thread::Builder::new()
            .name("nbd-accept".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.accept(&listener)
            })?;
        tracing::info!(export = config.export_name, %address, "NBD server started");
        Ok(NbdServer {
            shared,
            uri: uri(&address, &config.export_name),
            address,
            acceptor: Mutex::new(Some(acceptor)),
        })
    }

    /// Where clients find the server.
    pub fn address(&self) -> &NbdAddress {
        &self.address
    }

    /// The export as an NBD URI, as `nbdinfo` and `qemu-img` take it.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// How many clients are connected.
    pub fn connections(&self) -> usize {
        self.shared.connected.load(Ordering::Relaxed)
    }

    /// Ends everything: no new clients, connections closed, threads joined, socket file gone.
    /// Waits until the device has completed what clients had submitted; so not to be called on
    /// a thread that completes requests. A second call does nothing.
    pub fn stop(&self) {
        let mut acceptor = self.acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(acceptor) = acceptor.take() else {
            return;
        };
        self.shared.stopping.store(true, Ordering::Release);
        // An eventfd takes a one unless it is near 2^64.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        if acceptor.join().is_err() {
            tracing::error!(address = %self.address, "NBD acceptor panicked");
        }
        let connections = std::mem::take(&mut *self.shared.connections());
        for socket in connections.iter().filter_map(|one| one.socket.upgrade()) {
            socket.shutdown();
        }
        for connection in connections {
            connection.join();
        }
        tracing::info!(address = %self.address, "NBD server stopped");
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for NbdServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdServer")
            .field("address", &self.address)
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn connections(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Shared>, listener: &Listener) {
        while !self.stopping.load(Ordering::Acquire) {
            let mut sources = [
                PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
            ];
            // Interrupted or short of memory: the next round asks again.
            if let Err(error) = poll(&mut sources, None) {
                tracing::debug!(%error, "NBD poll");
                std::thread::sleep(ACCEPT_PAUSE);
            }
            if !sources[0].revents().is_empty() {
                self.accept_one(listener);
            }
        }
    }

    fn accept_one(self: &Arc<Shared>, listener: &Listener) {
        self.reap();
        match listener.accept() {
            Ok((socket, peer)) => {
                if self.connected.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                    tracing::warn!(%peer, "NBD client turned away: {CONNECTIONS_MAX} are connected");
                } else if let Err(error) = self.connect(socket, peer) {
                    tracing::warn!(%error, "NBD client turned away: no thread for it");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "NBD client not accepted");
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }

    fn connect(self: &Arc<Shared>, socket: Socket, peer: String) -> io::Result<()> {
        let socket = Arc::new(socket);
        let weak = Arc::downgrade(&socket);
        let shared = Arc::clone(self);
        self.connected.fetch_add(1, Ordering::Relaxed);
        let thread = std::thread::Builder::new()
            .name("nbd-read".into())
            .spawn(move || shared.serve(&socket, &peer))
            .inspect_err(|_| {
                self.connected.fetch_sub(1, Ordering::Relaxed);
            })?;
        let socket = weak;
        self.connections().push(Connection { socket, thread });
        Ok(())
    }

    fn serve(&self, socket: &Socket, peer: &str) {
        tracing::debug!(peer, "NBD client connected");
        match connection::serve(socket, Arc::clone(&self.export), &self.volume) {
            Ok(()) => tracing::debug!(peer, "NBD client left"),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!(peer, %error, "NBD client cut off");
            }
            Err(error) => tracing::debug!(peer, %error, "NBD client gone"),
        }
        socket.shutdown();
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// Joins the threads of clients that have left.
    fn reap(&self) {
        let mut connections = self.connections();
        for left in connections.extract_if(.., |one| one.thread.is_finished()) {
            left.join();
        }
    }
}

impl Connection {
    fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("NBD connection panicked");
        }
    }
}

fn uri(address: &NbdAddress, export_name: &str) -> String {
    let name = escaped(export_name, "");
    match address {
        NbdAddress::Unix(path) => {
            let path = escaped(&path.to_string_lossy(), "/");
            format!("nbd+unix:///{name}?socket={path}")
        }
        NbdAddress::Tcp(address) => format!("nbd://{address}/{name}"),
    }
}

/// Percent-encoding of all but letters, digits, `-._~` and `also`.
fn escaped(text: &str, also: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        let plain = char::from(byte);
        if byte.is_ascii_alphanumeric() || "-._~".contains(plain) || also.contains(plain) {
            out.push(plain);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
