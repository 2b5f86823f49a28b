//! Commands on whole arrays: create, start, stop, import, destroy, set.

use super::{LastStart, Live, Manager, Result, error, record};
use crate::daemon::backend::ArrayHandle;
use crate::daemon::convert::{self, node_error};
use crate::daemon::state::KnownArray;
use std::sync::Arc;
use std::time::Instant;
use strake_api::{self as api, ErrorKind};
use strake_node::{ArrayStatus, CreateArray, ImportArray, MemberState, MemberStatus};
use strake_reactor::drive::DriveSpec;
use tracing::{info, warn};
use uuid::Uuid;

/// What to do with a member of an array that is destroyed already.
const CLEAN_LATER: &str = "if one comes back, erase it with `strake drive clean DRIVE --force`";

/// Members of a running array that have no drive now though one is expected.
fn absent(handle: &dyn ArrayHandle) -> Result<usize> {
    let status = handle.status().map_err(node_error)?;
    let gone =
        |member: &&MemberStatus| member.path.is_none() && member.state != MemberState::Removed;
    Ok(status.members.iter().filter(gone).count())
}

impl Manager {
    /// Makes an array and starts it.
    pub fn create_array(&self, request: &api::CreateArray) -> Result<api::ArrayOutcome> {
        let _turn = self.command()?;
        let geometry = convert::geometry(request)?;
        self.name_is_free(&request.name, None)
            .map_err(|cause| error(cause.kind, format!("{cause}: choose another name")))?;
        let began = Instant::now();
        let created = self.backend.create(CreateArray {
            name: request.name.clone(),
            geometry,
            drives: request.drives.iter().cloned().map(DriveSpec).collect(),
            policy: request.policy.map(convert::consistency),
            log_bytes: request.log_size_bytes,
            force: request.force,
        });
        let handle = created.map_err(node_error)?;
        let status = handle.status().map_err(node_error)?;
        self.adopt(handle, &status, &request.drives, began)?;
        info!(array = %status.name, uuid = %status.uuid, level = %status.level, "array created");
        let message = format!("array {} created and started", status.name);
        self.outcome(status.uuid, true, message)
    }

    /// Starts a stopped or offline array.
    pub fn start_array(&self, array: &str, request: api::StartArray) -> Result<api::ArrayOutcome> {
        let _turn = self.command()?;
        let known = self.resolve(array)?;
        self.not_starting(&known)?;
        if matches!(self.live(known.uuid), Some(Live::Running(_))) {
            return self.already_running(&known, request.read_only);
        }
        let began = Instant::now();
        let drives = self.look(&[]).drives_of(known.uuid);
        let (read_only, force) = (request.read_only, request.force);
        self.bring_up(known.uuid, &drives, None, read_only, force, began)?;
        self.outcome(known.uuid, true, format!("array {} started", known.name))
    }

    /// Starts an array of which this host may know nothing yet.
    pub fn import_array(&self, request: &api::ImportArray) -> Result<api::ArrayOutcome> {
        let _turn = self.command()?;
        let began = Instant::now();
        let looked = self.look(&request.drives);
        let (uuid, found_name) = self.find_array(&request.array, &looked)?;
        let known = self.inner().state.array(uuid).cloned();
        if let Some(known) = &known {
            self.not_starting(known)?;
            if matches!(self.live(uuid), Some(Live::Running(_))) {
                return self.already_imported(known, request);
            }
        }
        let name = request.new_name.as_deref().unwrap_or(&found_name);
        self.name_is_free(name, Some(uuid)).map_err(|cause| {
            let text = format!("{cause}: import it under another name with --name NEW");
            error(cause.kind, text)
        })?;
        let new_name = request.new_name.clone();
        let (_, status) = self.bring_up(
            uuid,
            &looked.drives_of(uuid),
            new_name,
            request.read_only,
            request.force,
            began,
        )?;
        let mode = if status.read_only { " read-only" } else { "" };
        let message = format!("array {} imported and started{mode}", status.name);
        self.outcome(uuid, true, message)
    }

    /// Stops an array cleanly; its exports stay configured and return with it.
    pub fn stop_array(&self, array: &str, force: bool) -> Result<api::ArrayOutcome> {
        let _turn = self.command()?;
        let known = self.resolve(array)?;
        self.not_starting(&known)?;
        let name = &known.name;
        let (changed, message) = match self.live(known.uuid) {
            Some(Live::Running(handle)) => {
                self.unused_or_forced(&known, force, "stop")?;
                self.stop_running(&known, handle.as_ref())?;
                (true, format!("array {name} stopped"))
            }
            _ if known.autostart => {
                let text = format!("array {name} was offline and will not be started by itself");
                (true, text)
            }
            _ => (false, format!("array {name} is already stopped")),
        };
        let mut inner = self.inner();
        inner.live.remove(&known.uuid);
        inner.update(|state| {
            if let Some(known) = state.array_mut(known.uuid) {
                known.autostart = false;
            }
        })?;
        drop(inner);
        self.outcome(known.uuid, changed, message)
    }

    fn stop_running(&self, known: &KnownArray, handle: &dyn ArrayHandle) -> Result<()> {
        // Drive texts and the generation as of now: the stopped array may not tell them.
        self.refresh(known.uuid, &[])?;
        self.stop_exports(known.uuid);
        if let Err(cause) = handle.stop() {
            self.start_exports(known.uuid);
            return Err(node_error(cause));
        }
        self.note_generation(known.uuid, handle);
        info!(array = %known.name, uuid = %known.uuid, "array stopped");
        Ok(())
    }

    /// Erases an array: its metadata on every drive that can be reached, and what this host knows.
    pub fn destroy_array(&self, array: &str, force: bool) -> Result<api::Outcome> {
        let _turn = self.command()?;
        let known = self.resolve(array)?;
        self.not_starting(&known)?;
        let name = &known.name;
        if !force {
            let text = format!(
                "destroying array {name} loses all data on its {} drives{}: add --force to do it",
                known.drives.len(),
                self.exports_as_text(&known),
            );
            return Err(error(ErrorKind::Refused, text));
        }
        let message = match self.live(known.uuid) {
            Some(Live::Running(handle)) => {
                let missing = absent(handle.as_ref())?;
                self.stop_exports(known.uuid);
                if let Err(cause) = handle.destroy() {
                    self.start_exports(known.uuid);
                    return Err(node_error(cause));
                }
                let mut message =
                    format!("array {name} destroyed: its data is gone, its drives are free");
                if missing > 0 {
                    message += &format!(
                        "; {missing} members were not there and keep their metadata: {CLEAN_LATER}"
                    );
                }
                message
            }
            _ => self.erase_resting(&known)?,
        };
        let mut inner = self.inner();
        inner.live.remove(&known.uuid);
        inner.update(|state| state.forget(known.uuid))?;
        info!(array = %name, uuid = %known.uuid, "array destroyed");
        Ok(api::Outcome {
            changed: true,
            message,
        })
    }

    /// Erases the metadata of an array that does not run, drive by drive.
    fn erase_resting(&self, known: &KnownArray) -> Result<String> {
        let drives = self.look(&[]).drives_of(known.uuid);
        for spec in &drives {
            let drive = DriveSpec(spec.clone());
            self.backend.clean(&drive, true).map_err(node_error)?;
        }
        let missing = known.drives.len().saturating_sub(drives.len());
        let mut message = format!(
            "array {} destroyed: metadata erased on {} drives",
            known.name,
            drives.len()
        );
        if missing > 0 {
            message += &format!(
                "; {missing} drives were not found: if one comes back, erase it with `strake drive clean DRIVE --force`"
            );
        }
        Ok(message)
    }

    /// Starts an array from these drives, remembers it and brings its exports back. On error the
    /// array is as it was before.
    pub(super) fn bring_up(
        &self,
        uuid: Uuid,
        drives: &[String],
        new_name: Option<String>,
        read_only: bool,
        force: bool,
        began: Instant,
    ) -> Result<(Arc<dyn ArrayHandle>, ArrayStatus)> {
        if drives.is_empty() {
            let text = format!(
                "no drive of array {uuid} was found: plug its drives in, or name them with `strake array import {uuid} --drives D...`"
            );
            return Err(error(ErrorKind::NotFound, text));
        }
        let known = self.inner().state.array(uuid).cloned();
        let last_seen = known.iter().flat_map(|known| &known.drives);
        let imported = self.backend.import(ImportArray {
            uuid,
            drives: drives.iter().cloned().map(DriveSpec).collect(),
            new_name,
            read_only,
            force,
            known_generation: known.as_ref().map(|known| known.generation),
            last_seen: last_seen
                .filter_map(|drive| Some((drive.member, drive.spec.clone()?)))
                .collect(),
        });
        let handle = imported.map_err(node_error)?;
        let status = handle.status().map_err(node_error)?;
        if let Err(cause) = self.name_is_free(&status.name, Some(uuid)) {
            // Renamed on another host, perhaps, to a name that is taken here.
            if let Err(cause) = handle.stop() {
                warn!(%uuid, "array did not stop cleanly: {cause}");
            }
            let text = format!("{cause}: import it with `strake array import {uuid} --name NEW`");
            return Err(error(cause.kind, text));
        }
        self.adopt(handle.clone(), &status, drives, began)?;
        self.start_exports(uuid);
        Ok((handle, status))
    }

    /// Remembers an array that runs now.
    fn adopt(
        &self,
        handle: Arc<dyn ArrayHandle>,
        status: &ArrayStatus,
        specs: &[String],
        began: Instant,
    ) -> Result<()> {
        let mut inner = self.inner();
        if inner.shutting_down {
            // The node stops the array with all others.
            let text = "the daemon is shutting down: start it again and repeat";
            return Err(error(ErrorKind::Stopped, text));
        }
        inner.live.insert(status.uuid, Live::Running(handle));
        let start = LastStart {
            began,
            up_after: began.elapsed(),
            resyncs: false,
            protected_after: None,
        };
        inner.starts.insert(status.uuid, start);
        inner.update(|state| {
            let mut known = state.array(status.uuid).cloned().unwrap_or(KnownArray {
                uuid: status.uuid,
                name: String::new(),
                level: String::new(),
                drives: Vec::new(),
                autostart: true,
                read_only: false,
                generation: 0,
            });
            known.autostart = true;
            known.read_only = status.read_only;
            record(&mut known, status, specs);
            state.put_array(known);
        })
    }

    /// Fails when another array than `except` has the name.
    fn name_is_free(&self, name: &str, except: Option<Uuid>) -> Result<()> {
        let inner = self.inner();
        let other = inner
            .state
            .arrays
            .iter()
            .find(|known| known.name == name && Some(known.uuid) != except);
        match other {
            None => Ok(()),
            Some(other) => Err(error(
                ErrorKind::Conflict,
                format!("the name {name} is taken by array {}", other.uuid),
            )),
        }
    }

    fn already_running(&self, known: &KnownArray, read_only: bool) -> Result<api::ArrayOutcome> {
        if read_only != known.read_only {
            let (now, wanted) = match known.read_only {
                true => ("read-only", "writable"),
                false => ("writable", "read-only"),
            };
            let text = format!(
                "array {0} is running {now}: stop it first (`strake array stop {0}`) to start it {wanted}",
                known.name
            );
            return Err(error(ErrorKind::Conflict, text));
        }
        let message = format!("array {} is already running", known.name);
        self.outcome(known.uuid, false, message)
    }

    fn already_imported(
        &self,
        known: &KnownArray,
        request: &api::ImportArray,
    ) -> Result<api::ArrayOutcome> {
        if let Some(new_name) = request.new_name.as_ref().filter(|new| **new != known.name) {
            let text = format!(
                "array {0} is running here: stop it first (`strake array stop {0}`) to import it as {new_name}",
                known.name
            );
            return Err(error(ErrorKind::Conflict, text));
        }
        self.already_running(known, request.read_only)
    }
}
