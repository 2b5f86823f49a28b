//! The daemon from outside: HTTP over its Unix socket.

use super::{CliError, CliResult};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};
use strake_api as api;

/// A connection to the daemon, made when the first request is.
pub struct Client {
    socket: PathBuf,
    http: reqwest::Client,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// Prepares requests to the daemon on that socket; does not connect yet.
    pub fn new(socket: &Path) -> CliResult<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let http = reqwest::Client::builder()
            .unix_socket(socket)
            .no_proxy()
            .build()
            .map_err(|error| CliError::Other(format!("cannot prepare requests: {error}")))?;
        Ok(Client {
            socket: socket.to_owned(),
            http,
            runtime,
        })
    }

    /// GET.
    pub fn get<T: DeserializeOwned>(&self, path: &[&str]) -> CliResult<T> {
        self.send(self.http.get(url(path, &[])))
    }

    /// GET with a query.
    pub fn query<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> CliResult<T> {
        self.send(self.http.get(url(path, query)))
    }

    /// POST with a body.
    pub fn post<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> CliResult<T> {
        self.send(self.http.post(url(path, &[])).json(body))
    }

    /// PATCH with a body.
    pub fn patch<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> CliResult<T> {
        self.send(self.http.patch(url(path, &[])).json(body))
    }

    /// DELETE, forced or not.
    pub fn delete<T: DeserializeOwned>(&self, path: &[&str], force: bool) -> CliResult<T> {
        let force = if force { "true" } else { "false" };
        self.send(self.http.delete(url(path, &[("force", force)])))
    }

    fn send<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> CliResult<T> {
        let (status, body) = self
            .runtime
            .block_on(async {
                let response = request.send().await?;
                Ok((response.status(), response.bytes().await?))
            })
            .map_err(|error: reqwest::Error| CliError::Other(self.explain(&error)))?;
        if !status.is_success() {
            return Err(match serde_json::from_slice::<api::ErrorBody>(&body) {
                Ok(body) => CliError::Api(body.error),
                Err(_) => CliError::Other(self.strange(&format!("status {status}"))),
            });
        }
        serde_json::from_slice(&body)
            .map_err(|error| CliError::Other(self.strange(&error.to_string())))
    }

    /// An answer that this program does not understand.
    fn strange(&self, what: &str) -> String {
        format!(
            "the daemon on {} answered what this program does not understand ({what}): are both of the same version? Compare `strake --version` with the daemon's log",
            self.socket.display()
        )
    }

    /// No answer: why, and what to do.
    fn explain(&self, error: &reqwest::Error) -> String {
        let socket = self.socket.display();
        let start = format!(
            "start it with `strake daemon --socket {socket}`, or name another socket with --socket or STRAKE_SOCKET"
        );
        match io_kind(error) {
            Some(io::ErrorKind::NotFound) => {
                format!("the daemon is not running: there is no socket {socket}; {start}")
            }
            Some(io::ErrorKind::ConnectionRefused) => {
                format!("the daemon is not running: nobody answers on {socket}; {start}")
            }
            Some(io::ErrorKind::PermissionDenied) => {
                format!("{socket} is not yours: run this as the user who runs the daemon (root?)")
            }
            _ if error.is_connect() => {
                format!("cannot connect to {socket}: {}; {start}", root(error))
            }
            _ => format!(
                "the daemon on {socket} ended the connection before it answered ({}): its log says why; whether the command took effect, `strake array list` shows",
                root(error)
            ),
        }
    }
}

/// The URL of a path and query; the host is a name that nobody looks up.
fn url(path: &[&str], query: &[(&str, &str)]) -> reqwest::Url {
    let mut url = reqwest::Url::parse("http://strake/").expect("a constant URL");
    url.path_segments_mut()
        .expect("an http URL has a path")
        .clear()
        .extend(path);
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

/// The kind of the operating system's error beneath, if there is one.
fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        next = error.source();
    }
    None
}

/// The text of the innermost cause.
fn root(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = error.to_string();
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
