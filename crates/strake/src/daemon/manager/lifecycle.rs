//! Start, shutdown and the slow tick of the daemon.

use super::{Live, Manager, error};
use crate::daemon::state::KnownArray;
use strake_api::ErrorKind;
use tracing::{error as log_error, info, warn};
use uuid::Uuid;

impl Manager {
    /// Starts every array that should run, side by side, and their exports. An array that does
    /// not come up is offline with its reason; the others are not held up. Returns when all are
    /// up or have failed.
    pub fn start_all(&self) {
        let wanted: Vec<KnownArray> = {
            let mut inner = self.inner();
            let wanted: Vec<KnownArray> = inner
                .state
                .arrays
                .iter()
                .filter(|array| array.autostart)
                .cloned()
                .collect();
            for array in &wanted {
                inner.live.insert(array.uuid, Live::Starting);
            }
            wanted
        };
        if wanted.is_empty() {
            return;
        }
        let looked = self.look(&[]);
        std::thread::scope(|scope| {
            for array in &wanted {
                let drives = looked.drives_of(array.uuid);
                scope.spawn(move || self.start_known(array, &drives));
            }
        });
    }

    fn start_known(&self, array: &KnownArray, drives: &[String]) {
        let began = self.config.began;
        match self.bring_up(array.uuid, drives, None, array.read_only, false, began) {
            Ok(_) => info!(array = %array.name, uuid = %array.uuid, "array is up"),
            Err(cause) => {
                log_error!(array = %array.name, uuid = %array.uuid, "array stays offline: {cause}");
                self.inner()
                    .live
                    .insert(array.uuid, Live::Offline(cause.message));
            }
        }
    }

    /// Keeps the state file's view of running arrays fresh; called every few seconds.
    pub fn tick(&self) {
        let running: Vec<Uuid> = {
            let inner = self.inner();
            if inner.shutting_down {
                return;
            }
            inner
                .live
                .iter()
                .filter(|(_, live)| matches!(live, Live::Running(_)))
                .map(|(uuid, _)| *uuid)
                .collect()
        };
        for uuid in running {
            if let Err(cause) = self.refresh(uuid, &[]) {
                warn!(%uuid, "{cause}");
            }
        }
    }

    /// Stops all exports, then all arrays cleanly, then the node. Refuses every later command.
    /// Arrays stay marked for autostart.
    pub fn shutdown(&self) {
        // Lets the command at work end; those that wait are refused by the flag.
        self.inner().shutting_down = true;
        let _turn = self.commands.lock().expect("a command panicked");
        let (serving, running) = {
            let mut inner = self.inner();
            let serving: Vec<_> = inner.serving.drain().collect();
            let running: Vec<_> = inner
                .live
                .drain()
                .filter_map(|(uuid, live)| match live {
                    Live::Running(handle) => Some((uuid, handle)),
                    Live::Starting | Live::Offline(_) => None,
                })
                .collect();
            (serving, running)
        };
        for (id, server) in serving {
            server.stop();
            info!(export = %id, "export stopped");
        }
        self.servers.shutdown();
        std::thread::scope(|scope| {
            for (uuid, handle) in &running {
                scope.spawn(move || self.stop_for_shutdown(*uuid, handle.as_ref()));
            }
        });
        self.backend.shutdown();
    }

    fn stop_for_shutdown(&self, uuid: Uuid, handle: &dyn crate::daemon::backend::ArrayHandle) {
        match handle.stop() {
            Ok(()) => info!(%uuid, "array stopped cleanly"),
            Err(cause) => log_error!(%uuid, "array did not stop cleanly: {cause}"),
        }
        self.note_generation(uuid, handle);
    }

    /// Records the generation that a stop wrote, where the stopped array still tells it.
    pub(super) fn note_generation(
        &self,
        uuid: Uuid,
        handle: &dyn crate::daemon::backend::ArrayHandle,
    ) {
        let Ok(status) = handle.status() else {
            return;
        };
        let saved = self.inner().update(|state| {
            if let Some(known) = state.array_mut(uuid) {
                known.generation = known.generation.max(status.generation);
            }
        });
        if let Err(cause) = saved {
            warn!(%uuid, "{cause}");
        }
    }

    /// Refuses work on an array that is just coming up.
    pub(super) fn not_starting(&self, known: &KnownArray) -> super::Result<()> {
        match self.live(known.uuid) {
            Some(Live::Starting) => Err(error(
                ErrorKind::Conflict,
                format!(
                    "array {} is being started: try again shortly, `strake array list` shows when",
                    known.name
                ),
            )),
            _ => Ok(()),
        }
    }
}
