//! Drives of the host: listing, showing, cleaning.

use super::{Manager, Result, error};
use crate::daemon::convert::{node_error, open_error};
use crate::drives::{self, distinct, key};
use std::collections::{BTreeMap, HashMap};
use strake_api::{self as api, DriveUse, ErrorKind};
use strake_reactor::drive::DriveSpec;
use tracing::info;

impl Manager {
    /// Drives that could be members, and those that arrays of this host use or used.
    pub fn list_drives(&self) -> api::DriveList {
        let users = self.users();
        let candidates = self.backend.candidates().into_iter().map(|drive| drive.0);
        let specs = distinct(self.remembered_drives().into_iter().chain(candidates));
        let by_path: BTreeMap<String, api::Drive> = specs
            .into_iter()
            .map(|spec| self.look_at(spec, &users))
            .map(|drive| (drive.path.clone(), drive))
            .collect();
        api::DriveList {
            drives: by_path.into_values().collect(),
        }
    }

    /// Everything about one drive.
    pub fn show_drive(&self, drive: &str) -> Result<api::DriveDetail> {
        let probe = self.backend.probe(&DriveSpec(drive.to_owned()));
        let mut detail = drives::detail(&probe.map_err(open_error)?);
        name_user(drive, &mut detail.drive, &self.users());
        Ok(detail)
    }

    /// Erases Strake's metadata on a drive that no running array uses.
    pub fn clean_drive(&self, request: &api::CleanDrive) -> Result<api::Outcome> {
        let _turn = self.command()?;
        let drive = DriveSpec(request.drive.clone());
        let path = &request.drive;
        if let Some(user) = self.users().get(&key(path)) {
            let text = format!(
                "{path} is {user}, which is running: take it out with `strake array remove` first"
            );
            return Err(error(ErrorKind::Refused, text));
        }
        let probe = self.backend.probe(&drive).map_err(open_error)?;
        if probe.copies.iter().all(|copy| copy == "absent") {
            return Ok(api::Outcome {
                changed: false,
                message: format!("{path} holds no metadata of Strake"),
            });
        }
        self.backend
            .clean(&drive, request.force)
            .map_err(node_error)?;
        info!(drive = %path, "metadata erased");
        Ok(api::Outcome {
            changed: true,
            message: format!("metadata of Strake erased on {path}"),
        })
    }

    fn look_at(&self, spec: String, users: &HashMap<String, String>) -> api::Drive {
        let drive = DriveSpec(spec);
        let mut found = match self.backend.probe(&drive) {
            Ok(probe) => drives::summary(&probe),
            Err(cause) => drives::unreadable(&drive, &cause),
        };
        name_user(&drive.0, &mut found, users);
        found
    }

    /// Drive texts of every known array.
    pub(super) fn remembered_drives(&self) -> Vec<String> {
        let inner = self.inner();
        let drives = inner.state.arrays.iter().flat_map(|array| &array.drives);
        drives.filter_map(|drive| drive.spec.clone()).collect()
    }

    /// Where this host last saw a member: path and serial.
    pub(super) fn last_seen(
        &self,
        uuid: uuid::Uuid,
        member: u16,
    ) -> (Option<String>, Option<String>) {
        let inner = self.inner();
        let known = inner.state.array(uuid);
        let drive = known.and_then(|known| known.drives.iter().find(|d| d.member == member));
        match drive {
            Some(drive) => {
                let serial = Some(drive.serial.clone()).filter(|serial| !serial.is_empty());
                (drive.spec.as_deref().map(key), serial)
            }
            None => (None, None),
        }
    }
}

/// A drive in a running array is a member of it, whatever a look from outside says.
fn name_user(spec: &str, drive: &mut api::Drive, users: &HashMap<String, String>) {
    if let Some(user) = users.get(&key(spec)) {
        drive.usage = DriveUse::Member;
        drive.usage_text = user.clone();
    }
}
