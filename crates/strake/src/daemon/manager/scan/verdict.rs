//! Whether an import may be tried, told from the superblocks' own words.
//!
//! This is advice for the list of importable arrays; the node judges when an import is tried. The
//! table of members is read from the superblock's listing for people, and what is not found there
//! is not known: then the import may be tried.

use strake_node::probe::MemberOf;
use uuid::Uuid;

/// Members and redundancy of an array, as its newest superblock lists them.
pub(super) struct Table {
    /// Parities of a group; `None` when not listed.
    parity: Option<usize>,
    /// By place.
    members: Vec<Row>,
}

#[derive(Default)]
struct Row {
    state: String,
    serial: Option<String>,
    group: u16,
}

impl Table {
    /// Reads the listing: "groups" is "2 of 4 data + 2 parity", "member 3" is
    /// `active, serial "S3", ..., group 1`.
    pub(super) fn read(newest: &MemberOf) -> Table {
        let field = |wanted: &str| {
            let mut fields = newest.fields.iter();
            let found = fields.find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.as_str())
        };
        let parity = field("groups")
            .and_then(|text| text.rsplit_once("+ "))
            .and_then(|(_, text)| text.strip_suffix(" parity"))
            .and_then(|text| text.parse().ok());
        let rows = (0..newest.members).map(|index| {
            let row = field(&format!("member {index}"));
            row.map(row_of).unwrap_or_default()
        });
        Table {
            parity,
            members: rows.collect(),
        }
    }

    /// The serial of the drive that is or was in this place.
    pub(super) fn serial(&self, index: u16) -> Option<String> {
        let row = self.members.get(usize::from(index))?;
        row.serial.clone().filter(|serial| !serial.is_empty())
    }

    /// Whether nobody is expected in this place.
    pub(super) fn is_empty_place(&self, index: u16) -> bool {
        let row = self.members.get(usize::from(index));
        row.is_some_and(|row| row.state == "removed")
    }

    /// Members out of sync in the group that has lost most, given those found up to date.
    fn worst_loss(&self, current: &[u16]) -> usize {
        let out = |(index, row): &(usize, &Row)| {
            let in_sync = matches!(row.state.as_str(), "" | "active");
            !in_sync || !current.contains(&(*index as u16))
        };
        let mut by_group = std::collections::BTreeMap::<u16, usize>::new();
        for (_, row) in self.members.iter().enumerate().filter(out) {
            *by_group.entry(row.group).or_default() += 1;
        }
        by_group.into_values().max().unwrap_or(0)
    }
}

fn row_of(text: &str) -> Row {
    let quoted = text.split_once("serial \"").map(|(_, rest)| rest);
    let group = text.split_once(", group ").map(|(_, rest)| rest);
    let digits = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit());
        text[..end.unwrap_or(text.len())].parse().ok()
    };
    Row {
        state: text.split(',').next().unwrap_or("").trim().to_owned(),
        serial: quoted.and_then(|rest| rest.split('"').next().map(str::to_owned)),
        group: group.and_then(digits).unwrap_or(0),
    }
}

/// Whether to try, and what to know before. `current`: places found with the newest generation.
pub(super) fn verdict(
    newest: &MemberOf,
    table: &Table,
    current: &[u16],
    running: bool,
    clones: &[Uuid],
) -> (bool, Option<String>) {
    let text = |importable, text: &str| (importable, Some(text.to_owned()));
    if running {
        return text(false, "running on this host");
    }
    if !clones.is_empty() {
        return text(
            false,
            "two drives carry the identity of one member: unplug the copy, or erase it with `strake drive clean DRIVE --force`",
        );
    }
    let loss = table.worst_loss(current);
    if let Some(parity) = table.parity
        && loss > parity
    {
        let reason = format!(
            "{loss} members are missing or stale and the level survives {parity}: bring drives back, or see what `--read-only --force` can still read"
        );
        return (false, Some(reason));
    }
    let mut notes = Vec::new();
    if loss > 0 {
        notes.push("starts degraded");
    }
    if !newest.clean {
        notes.push("was not stopped cleanly, is made consistent at the start");
    }
    (true, (!notes.is_empty()).then(|| notes.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newest(groups: &str, members: &[&str]) -> MemberOf {
        let mut fields = vec![("groups".to_owned(), groups.to_owned())];
        for (index, member) in members.iter().enumerate() {
            fields.push((format!("member {index}"), member.to_string()));
        }
        MemberOf {
            array_uuid: Uuid::nil(),
            array_name: "data".into(),
            member_uuid: Uuid::nil(),
            member: 0,
            level: "raid50".into(),
            members: members.len() as u16,
            generation: 1,
            epoch: 1,
            clean: true,
            fields,
        }
    }

    const GROUPS: [&str; 6] = [
        "active, serial \"A\", 1 GiB, UUID x, group 0 (this drive)",
        "active, serial \"B\", 1 GiB, UUID x, group 0",
        "active, serial \"C\", 1 GiB, UUID x, group 0",
        "active, serial \"D\", 1 GiB, UUID x, group 1",
        "failed, serial \"E\", 1 GiB, UUID x, group 1, left at generation 3",
        "active, serial \"\", 1 GiB, UUID x, group 1",
    ];

    #[test]
    fn each_group_survives_its_parities() {
        let newest = newest("2 of 2 data + 1 parity", &GROUPS);
        let table = Table::read(&newest);
        let can = |current: &[u16]| verdict(&newest, &table, current, false, &[]);
        assert_eq!(
            can(&[0, 1, 2, 3, 5]),
            (true, Some("starts degraded".into()))
        );
        assert!(can(&[0, 1, 3, 5]).0);
        let (importable, reason) = can(&[0, 1, 2, 5]);
        assert!(!importable && reason.unwrap().contains("survives 1"));
        assert!(!can(&[0, 3, 5]).0);
    }

    #[test]
    fn serials_are_read_from_the_listing() {
        let table = Table::read(&newest("2 of 2 data + 1 parity", &GROUPS));
        assert_eq!(table.serial(3).as_deref(), Some("D"));
        assert_eq!((table.serial(5), table.serial(9)), (None, None));
    }

    #[test]
    fn an_unknown_listing_leaves_the_judgement_to_the_node() {
        let newest = newest("", &["", ""]);
        let table = Table::read(&newest);
        assert!(verdict(&newest, &table, &[], false, &[]).0);
        assert_eq!(verdict(&newest, &table, &[0, 1], false, &[]), (true, None));
    }
}
