//! Drives.

use crate::cli::table::{pairs, table};
use crate::size::human;
use strake_api as api;

/// `drive list`.
pub fn drive_list(list: &api::DriveList) -> String {
    let rows = list.drives.iter().map(|drive| {
        vec![
            drive.path.clone(),
            size_or_dash(drive.size_bytes),
            dash(&drive.serial),
            dash(&drive.model),
            cache(drive.volatile_cache).to_owned(),
            drive.usage_text.clone(),
        ]
    });
    table(
        &["DRIVE", "SIZE", "SERIAL", "MODEL", "CACHE", "USE"],
        rows.collect(),
        &[1],
        "no drives that could be members; files can be, too: name them by their path",
    )
}

/// `drive show` and `inspect`.
pub fn drive_detail(detail: &api::DriveDetail) -> String {
    let drive = &detail.drive;
    let [copy_a, copy_b] = &detail.superblock_copies;
    let mut rows = vec![
        ("drive", drive.path.clone()),
        ("use", drive.usage_text.clone()),
        ("size", size_with_bytes(drive.size_bytes)),
        ("block size", format!("{} bytes", drive.block_size_bytes)),
        ("serial", dash(&drive.serial)),
        ("model", dash(&drive.model)),
        ("write cache", cache(drive.volatile_cache).to_owned()),
    ];
    if let Some(by) = &detail.in_use {
        rows.push(("in use", by.clone()));
    }
    if let Some(foreign) = &detail.foreign {
        rows.push(("holds", foreign.clone()));
    }
    rows.push(("superblock A", copy_a.clone()));
    rows.push(("superblock B", copy_b.clone()));
    let mut text = pairs(&rows);
    for note in &detail.notes {
        text += &format!("note: {note}\n");
    }
    if !detail.superblock.is_empty() {
        text += "\nsuperblock\n";
        let fields = detail.superblock.iter();
        let fields: Vec<(&str, String)> = fields
            .map(|field| (field.name.as_str(), field.value.clone()))
            .collect();
        text += &indented(&pairs(&fields));
    }
    text
}

/// Every line two spaces in.
pub(super) fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// A drive's write cache in a word: what it completed a power cut may take back, or not.
pub(super) fn cache(volatile: Option<bool>) -> &'static str {
    match volatile {
        Some(true) => "volatile",
        Some(false) => "protected",
        None => "-",
    }
}

pub(super) fn dash(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        text => text.to_owned(),
    }
}

pub(super) fn size_or_dash(bytes: u64) -> String {
    match bytes {
        0 => "-".to_owned(),
        bytes => human(bytes),
    }
}

/// "64 MiB (67108864 bytes)"
pub(super) fn size_with_bytes(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", human(bytes))
}
