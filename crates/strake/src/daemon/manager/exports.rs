//! Exports: configured here, served by the [`Servers`], bound to the life of their array.

use super::{ExportView, Live, Manager, Result, error};
use crate::daemon::backend::ArrayHandle;
use crate::daemon::state::{KnownArray, KnownExport};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use strake_api::{self as api, ErrorKind, ExportKind, ExportState};
use tracing::{error as log_error, info};
use uuid::Uuid;

/// A client that has just left is seen to leave a moment later: so often, and so far apart, is
/// looked again.
const GOODBYE_TRIES: u32 = 25;
const GOODBYE_PAUSE: Duration = Duration::from_millis(20);
/// Longest path of a Unix socket: `sun_path` less its terminating zero (unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 107;

impl Manager {
    /// Every export, by identity.
    pub fn list_exports(&self) -> api::ExportList {
        let arrays = self.inner().state.arrays.clone();
        let mut exports: Vec<api::Export> = arrays
            .iter()
            .flat_map(|array| self.exports_of(array))
            .collect();
        exports.sort_by_key(|export| (number(&export.id), export.id.clone()));
        api::ExportList { exports }
    }

    /// One export.
    pub fn show_export(&self, id: &str) -> Result<api::Export> {
        let all = self.list_exports().exports;
        all.into_iter()
            .find(|export| export.id == id)
            .ok_or_else(|| {
                let text =
                    format!("no export \"{id}\": `strake export list` shows those there are");
                error(ErrorKind::NotFound, text)
            })
    }

    /// Serves a running array.
    pub fn create_export(&self, request: &api::CreateExport) -> Result<api::ExportOutcome> {
        let _turn = self.command()?;
        let known = self.resolve(&request.array)?;
        let handle = self.running(&known)?;
        let kind = self.checked_kind(&known, &request.kind)?;
        let existing = self
            .inner()
            .state
            .exports
            .iter()
            .find(|e| same_place(e, &kind, known.uuid))
            .cloned();
        if let Some(existing) = existing {
            return self.export_again(&known, existing, request, handle.as_ref());
        }
        let export = {
            let inner = self.inner();
            KnownExport {
                id: format!("{}{}", prefix(&kind), inner.state.next_export),
                array_uuid: known.uuid,
                kind,
                for_attach: request.for_attach,
            }
        };
        self.serve(&known.name, &export, handle.as_ref())
            .map_err(|reason| error(ErrorKind::Export, reason))?;
        let id = export.id.clone();
        self.inner().update(|state| {
            state.next_export += 1;
            state.exports.push(export);
        })?;
        let export = self.show_export(&id)?;
        info!(export = %id, array = %known.name, address = %export.address, "export created");
        let message = format!("export {id} serves {} at {}", known.name, export.address);
        Ok(api::ExportOutcome {
            changed: true,
            message: message + exposure(&export.kind),
            export,
        })
    }

    /// An export of that place is there: a conflict when it is another array's, else made to
    /// serve if it does not, and kept beyond `detach` if it is asked for by name.
    fn export_again(
        &self,
        known: &KnownArray,
        existing: KnownExport,
        request: &api::CreateExport,
        handle: &dyn ArrayHandle,
    ) -> Result<api::ExportOutcome> {
        let id = existing.id.clone();
        if existing.array_uuid != known.uuid {
            let text = format!(
                "{} is the place of export {id} of another array: choose another, or remove that one with `strake export remove {id}`",
                self.servers.address(&known.name, &existing.kind)
            );
            return Err(error(ErrorKind::Conflict, text));
        }
        let serving = self.inner().serving.contains_key(&id);
        if !serving {
            self.serve(&known.name, &existing, handle)
                .map_err(|reason| error(ErrorKind::Export, reason))?;
        }
        let keep = existing.for_attach && !request.for_attach;
        if keep {
            self.inner().update(|state| {
                if let Some(export) = state.exports.iter_mut().find(|e| e.id == id) {
                    export.for_attach = false;
                }
            })?;
        }
        let export = self.show_export(&id)?;
        let message = match serving {
            true => format!(
                "export {id} already serves {} at {}",
                known.name, export.address
            ),
            false => format!(
                "export {id} serves {} again at {}",
                known.name, export.address
            ),
        };
        Ok(api::ExportOutcome {
            changed: !serving || keep,
            message,
            export,
        })
    }

    /// Ends an export.
    pub fn remove_export(&self, id: &str, force: bool) -> Result<api::ExportOutcome> {
        let _turn = self.command()?;
        let mut export = self.show_export(id)?;
        for _ in 0..GOODBYE_TRIES {
            if export.clients == 0 || force {
                break;
            }
            std::thread::sleep(GOODBYE_PAUSE);
            export = self.show_export(id)?;
        }
        if export.clients > 0 && !force {
            let text = format!(
                "export {id} is in use ({}): disconnect its clients, or add --force to cut them off",
                in_use(&export)
            );
            return Err(error(ErrorKind::Refused, text));
        }
        self.stop_export(id);
        self.inner()
            .update(|state| state.exports.retain(|export| export.id != id))?;
        export.state = ExportState::Waiting;
        export.clients = 0;
        info!(export = %id, "export removed");
        let message = format!("export {id} of {} removed", export.array_name);
        Ok(api::ExportOutcome {
            changed: true,
            message,
            export,
        })
    }

    /// The exports of an array as they are now.
    pub(super) fn exports_of(&self, array: &KnownArray) -> Vec<api::Export> {
        let views: Vec<ExportView> = {
            let inner = self.inner();
            let exports = inner.state.exports_of(array.uuid);
            exports
                .map(|known| ExportView {
                    known: known.clone(),
                    serving: inner.serving.get(&known.id).cloned(),
                    failure: inner.failed_exports.get(&known.id).cloned(),
                })
                .collect()
        };
        views
            .into_iter()
            .map(|view| self.describe(array, view))
            .collect()
    }

    fn describe(&self, array: &KnownArray, view: ExportView) -> api::Export {
        let (state, reason, clients) = match (view.serving, view.failure) {
            (Some(server), _) => (ExportState::Serving, None, server.clients()),
            (None, Some(failure)) => (ExportState::Failed, Some(failure), 0),
            (None, None) => {
                let reason = "its array is not running".to_owned();
                (ExportState::Waiting, Some(reason), 0)
            }
        };
        api::Export {
            address: self.servers.address(&array.name, &view.known.kind),
            id: view.known.id,
            array_uuid: array.uuid,
            array_name: array.name.clone(),
            kind: view.known.kind,
            state,
            reason,
            clients,
            for_attach: view.known.for_attach,
        }
    }

    /// Starts every configured export of a running array. One that fails stays configured and
    /// shows why.
    pub(super) fn start_exports(&self, uuid: Uuid) {
        let (name, exports, handle) = {
            let inner = self.inner();
            let Some(Live::Running(handle)) = inner.live.get(&uuid) else {
                return;
            };
            let Some(known) = inner.state.array(uuid) else {
                return;
            };
            let exports: Vec<KnownExport> = inner.state.exports_of(uuid).cloned().collect();
            (known.name.clone(), exports, handle.clone())
        };
        for export in exports {
            if let Err(reason) = self.serve(&name, &export, handle.as_ref()) {
                log_error!(export = %export.id, array = %name, "export does not serve: {reason}");
            }
        }
    }

    /// Stops serving an array's exports; they stay configured.
    pub(super) fn stop_exports(&self, uuid: Uuid) {
        let ids: Vec<String> = {
            let inner = self.inner();
            inner.state.exports_of(uuid).map(|e| e.id.clone()).collect()
        };
        for id in ids {
            self.stop_export(&id);
        }
    }

    fn stop_export(&self, id: &str) {
        let server = {
            let mut inner = self.inner();
            inner.failed_exports.remove(id);
            inner.serving.remove(id)
        };
        if let Some(server) = server {
            server.stop();
        }
    }

    fn serve(
        &self,
        name: &str,
        export: &KnownExport,
        handle: &dyn ArrayHandle,
    ) -> std::result::Result<(), String> {
        let started = self.servers.start(name, &export.kind, handle.device());
        let mut inner = self.inner();
        match started {
            Ok(server) if inner.shutting_down => {
                drop(inner);
                server.stop();
                Err("the daemon is shutting down".into())
            }
            Ok(server) => {
                inner.failed_exports.remove(&export.id);
                inner.serving.insert(export.id.clone(), server);
                Ok(())
            }
            Err(reason) => {
                if inner.state.exports.contains(export) {
                    inner
                        .failed_exports
                        .insert(export.id.clone(), reason.clone());
                }
                Err(reason)
            }
        }
    }

    /// Refuses to take an array away from clients, unless forced.
    pub(super) fn unused_or_forced(
        &self,
        known: &KnownArray,
        force: bool,
        verb: &str,
    ) -> Result<()> {
        let mut exports = self.exports_of(known);
        for _ in 0..GOODBYE_TRIES {
            if force || exports.iter().all(|export| export.clients == 0) {
                return Ok(());
            }
            std::thread::sleep(GOODBYE_PAUSE);
            exports = self.exports_of(known);
        }
        let busy: Vec<String> = exports
            .iter()
            .filter(|export| export.clients > 0)
            .map(|export| format!("{} at {} ({})", export.id, export.address, in_use(export)))
            .collect();
        let text = format!(
            "cannot {verb} array {}: clients use its exports: {}. Disconnect them (unmount, `strake detach`), or add --force to cut them off",
            known.name,
            busy.join("; ")
        );
        Err(error(ErrorKind::Refused, text))
    }

    /// ", and ends its exports nbd1, fuse2", or nothing.
    pub(super) fn exports_as_text(&self, known: &KnownArray) -> String {
        let exports = self.exports_of(known);
        if exports.is_empty() {
            return String::new();
        }
        let texts: Vec<String> = exports
            .iter()
            .map(|export| match export.clients {
                0 => export.id.clone(),
                _ => format!("{} (in use)", export.id),
            })
            .collect();
        format!(" and ends its exports {}", texts.join(", "))
    }

    /// The kind with everything filled in.
    fn checked_kind(&self, known: &KnownArray, kind: &ExportKind) -> Result<ExportKind> {
        let invalid = |text: String| Err(error(ErrorKind::Invalid, text));
        match kind {
            ExportKind::Fuse => Ok(ExportKind::Fuse),
            ExportKind::NbdTcp { address } => match address.parse::<SocketAddr>() {
                Ok(parsed) if parsed.port() != 0 => Ok(ExportKind::NbdTcp {
                    address: parsed.to_string(),
                }),
                _ => invalid(format!(
                    "\"{address}\" is not an address with a port: use one like 127.0.0.1:10809"
                )),
            },
            ExportKind::NbdUnix { path } => {
                let path = match path {
                    Some(path) => path.clone(),
                    None => {
                        let file = format!("nbd-{}.sock", known.name);
                        self.config
                            .run_dir
                            .join(file)
                            .to_string_lossy()
                            .into_owned()
                    }
                };
                if !Path::new(&path).is_absolute() {
                    return invalid(format!("\"{path}\" is not an absolute path of a socket"));
                }
                if path.len() > SOCKET_PATH_BYTES_MAX {
                    return invalid(format!(
                        "the socket path {path} is longer than {SOCKET_PATH_BYTES_MAX} bytes: choose a shorter one with --unix PATH"
                    ));
                }
                Ok(ExportKind::NbdUnix { path: Some(path) })
            }
        }
    }
}

/// What to know about an address that other hosts may reach.
fn exposure(kind: &ExportKind) -> &'static str {
    let ExportKind::NbdTcp { address } = kind else {
        return "";
    };
    match address.parse::<SocketAddr>() {
        Ok(address) if !address.ip().is_loopback() => {
            "; everybody who reaches this address can read and write it"
        }
        _ => "",
    }
}

/// Whether an export takes the place that a request wants. A FUSE file's place is its array.
fn same_place(export: &KnownExport, kind: &ExportKind, array_uuid: Uuid) -> bool {
    match kind {
        ExportKind::Fuse => export.kind == ExportKind::Fuse && export.array_uuid == array_uuid,
        _ => export.kind == *kind,
    }
}

fn prefix(kind: &ExportKind) -> &'static str {
    match kind {
        ExportKind::NbdUnix { .. } | ExportKind::NbdTcp { .. } => "nbd",
        ExportKind::Fuse => "fuse",
    }
}

/// The number in an identity, to sort nbd10 behind nbd9.
fn number(id: &str) -> u64 {
    id.trim_start_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .unwrap_or(0)
}

fn in_use(export: &api::Export) -> String {
    match (&export.kind, export.clients) {
        (ExportKind::Fuse, 1) => "its file is open, by a loop device perhaps".to_owned(),
        (ExportKind::Fuse, n) => format!("its file is open {n} times"),
        (_, 1) => "1 connection".to_owned(),
        (_, n) => format!("{n} connections"),
    }
}
