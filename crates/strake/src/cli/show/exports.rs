//! Exports.

use crate::cli::table::{pairs, table};
use strake_api::{self as api, ExportKind, ExportState};

/// `export list`.
pub fn export_list(list: &api::ExportList) -> String {
    let rows = list.exports.iter().map(|export| {
        vec![
            export.id.clone(),
            export.array_name.clone(),
            protocol(&export.kind).to_owned(),
            state(export),
            export.clients.to_string(),
            export.address.clone(),
        ]
    });
    table(
        &["ID", "ARRAY", "PROTOCOL", "STATE", "CLIENTS", "ADDRESS"],
        rows.collect(),
        &[4],
        "no exports: `strake export create NAME --nbd` or `strake attach NAME` makes one",
    )
}

/// `export show`.
pub fn export_detail(export: &api::Export) -> String {
    pairs(&[
        ("id", export.id.clone()),
        (
            "array",
            format!("{} ({})", export.array_name, export.array_uuid),
        ),
        ("protocol", protocol(&export.kind).to_owned()),
        ("address", export.address.clone()),
        ("state", state(export)),
        ("clients", export.clients.to_string()),
    ])
}

fn protocol(kind: &ExportKind) -> &'static str {
    match kind {
        ExportKind::NbdUnix { .. } => "NBD on a Unix socket",
        ExportKind::NbdTcp { .. } => "NBD on TCP",
        ExportKind::Fuse => "FUSE",
    }
}

pub(super) fn state(export: &api::Export) -> String {
    let state = match export.state {
        ExportState::Serving => return "serving".to_owned(),
        ExportState::Waiting => "waiting",
        ExportState::Failed => "failed",
    };
    match &export.reason {
        Some(reason) => format!("{state}: {reason}"),
        None => state.to_owned(),
    }
}
