//! The daemon's Unix socket: for its owner only, one daemon at a time, stale ones replaced.

use anyhow::{Context, bail};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A bound socket.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    listener: UnixListener,
}

impl Socket {
    /// Binds with mode 0600. A socket on which nobody listens is replaced; one that answers, or
    /// a file that is no socket, is an error.
    pub fn bind(path: &Path) -> anyhow::Result<Socket> {
        check_free(path)?;
        let listener = bind_private(path)
            .with_context(|| format!("cannot make the socket {}", path.display()))?;
        Ok(Socket {
            path: path.to_owned(),
            listener,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands the socket to the asynchronous threads. Its file stays; after a kill, the next
    /// daemon replaces it.
    pub fn listen(self) -> io::Result<tokio::net::UnixListener> {
        self.listener.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(self.listener)
    }
}

/// The socket gets its mode under another name, so that nobody else connects in between.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&temporary)?;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&temporary, path)?;
    Ok(listener)
}

/// Fails when the place is not free for a socket.
fn check_free(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot look at {shown}")),
    };
    if !found.file_type().is_socket() {
        bail!("{shown} is in the way of the socket and is none: choose another with --socket");
    }
    match UnixStream::connect(path) {
        Ok(_) => bail!(
            "another strake daemon listens on {shown}: stop it, or choose another with --socket"
        ),
        // Stale: the new socket is renamed over it.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot tell who listens on {shown}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_socket_is_for_its_owner_and_a_stale_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(Socket::bind(&path).unwrap());
        assert!(path.exists());
        let _socket = Socket::bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_socket_that_answers_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _first = Socket::bind(&path).unwrap();
        let error = Socket::bind(&path).unwrap_err().to_string();
        assert!(error.contains("another strake daemon"), "{error}");
    }

    #[test]
    fn a_file_in_the_way_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        std::fs::write(&path, b"mine").unwrap();
        let error = Socket::bind(&path).unwrap_err().to_string();
        assert!(error.contains("--socket"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}
