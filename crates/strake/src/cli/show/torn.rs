//! `array torn`: blocks that read as errors.

use super::drives::indented;
use crate::cli::table::table;
use crate::size::human;
use strake_api as api;

/// Ranges of the volume that a line names; `--json` has more.
const RANGES_SHOWN: usize = 4;

/// The list, and how to heal what is on it.
pub fn torn_list(list: &api::TornList) -> String {
    let name = &list.array_name;
    if list.extents.is_empty() {
        return format!("{name}: no block reads as an error\n");
    }
    let mut text = format!(
        "{name}: {} read as errors\n",
        torn_bytes(list.torn_bytes, list.suspect_bytes)
    );
    let rows = list.extents.iter().map(|extent| {
        vec![
            extent.member.to_string(),
            extent.kind.name().to_owned(),
            extent.offset_bytes.to_string(),
            extent.length_bytes.to_string(),
            volume(extent),
        ]
    });
    text += &indented(&table(
        &["MEMBER", "KIND", "OFFSET", "LENGTH", "VOLUME BYTES"],
        rows.collect(),
        &[0, 2, 3],
        "none",
    ));
    text += "heal a block by writing it whole, as restored from a backup; a file system's or a\n";
    text += "database's own check says which file it belongs to\n";
    if list.suspect_bytes > 0 {
        text += &format!(
            "accept all that is suspect as it is, right or wrong: strake array accept {name} --force\n"
        );
    }
    text
}

/// "8 KiB torn, 1 MiB suspect"
pub fn torn_bytes(torn: u64, suspect: u64) -> String {
    let part = |bytes: u64, kind: &str| (bytes > 0).then(|| format!("{} {kind}", human(bytes)));
    let parts = [part(torn, "torn"), part(suspect, "suspect")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// "65536+4096, 131072+4096 and 12 more"; "parity" where no data is.
fn volume(extent: &api::TornExtent) -> String {
    if extent.volume.is_empty() {
        return "parity".to_owned();
    }
    let shown = extent.volume.iter().take(RANGES_SHOWN);
    let shown: Vec<String> = shown
        .map(|range| format!("{}+{}", range.offset_bytes, range.length_bytes))
        .collect();
    let more = (extent.volume.len() - shown.len()) as u64 + extent.volume_left_out;
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
