//! A connected or listening stream socket of either family behind one type.

use std::fs;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A connection.
#[derive(Debug)]
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Ends both directions: blocked reads and writes return at once.
    pub(super) fn shutdown(&self) {
        // It fails when the peer was faster; then there is nothing left to end.
        let _ = match self {
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Bounds how long one read waits; `None` is forever.
    pub(super) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Unix(stream) => stream.set_read_timeout(timeout),
            Socket::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&*stream).read(bytes),
            Socket::Tcp(stream) => (&*stream).read(bytes),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&*stream).write_vectored(slices),
            Socket::Tcp(stream) => (&*stream).write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A listening socket; a Unix one removes its file when dropped.
#[derive(Debug)]
pub(super) enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens at `path`. A socket there that nobody answers is replaced; fails with
    /// `AddrInUse` when somebody answers, and with `AlreadyExists` when it is no socket.
    pub(super) fn unix(path: &Path) -> io::Result<Listener> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => replace_if_dead(path)?,
            Ok(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!(
                        "{} exists and is no socket; remove it or choose another path",
                        path.display()
                    ),
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Unix(listener, path.to_owned()))
    }

    /// Listens at `address`; port 0 picks a free one.
    pub(super) fn tcp(address: SocketAddr) -> io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Tcp(listener))
    }

    /// Takes one waiting connection; `WouldBlock` when there is none.
    pub(super) fn accept(&self) -> io::Result<(Socket, String)> {
        match self {
            Listener::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok((Socket::Unix(stream), format!("unix:{}", path.display())))
            }
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                Ok((Socket::Tcp(stream), format!("tcp:{peer}")))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener, _) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self
            && let Err(error) = fs::remove_file(&*path)
        {
            tracing::debug!(path = %path.display(), %error, "socket file not removed");
        }
    }
}

fn replace_if_dead(path: &Path) -> io::Result<()> {
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!(
                "another server answers at {}; stop it or choose another path",
                path.display()
            ),
        )),
    }
}
