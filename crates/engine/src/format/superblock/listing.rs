//! A superblock for people: `strake inspect`.

use super::*;

/// Bytes for people: the number, and in the largest binary unit when that is shorter to grasp.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = None;
    for name in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = Some(name);
    }
    match unit {
        None => format!("{bytes} bytes"),
        Some(unit) if value.fract() == 0.0 => format!("{value} {unit} ({bytes} bytes)"),
        Some(unit) => format!("{value:.2} {unit} ({bytes} bytes)"),
    }
}

impl Superblock {
    /// Every field with its value, in an order that people want: the array, its geometry, its
    /// state, the areas, then each member.
    pub fn fields(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        self.list_identity(&mut out);
        self.list_geometry(&mut out);
        for (name, extent) in self.areas.named() {
            if extent.length > 0 {
                let value = format!("byte {}, {}", extent.offset, human_bytes(extent.length));
                out.push((format!("area: {name}"), value));
            }
        }
        for (place, member) in self.members.iter().enumerate() {
            out.push((format!("member {place}"), self.list_member(place, member)));
        }
        out
    }

    fn list_identity(&self, out: &mut Vec<(String, String)>) {
        let mut put = |name: &str, value: String| out.push((name.to_owned(), value));
        put("array", self.name.clone());
        put("array UUID", self.array_uuid.to_string());
        put("format version", FORMAT_VERSION.to_string());
        put(
            "features",
            format!(
                "compatible {:#x}, read-only compatible {:#x}, incompatible {:#x}",
                self.features.compatible,
                self.features.read_only_compatible,
                self.features.incompatible
            ),
        );
        if self.read_only_only {
            put(
                "note",
                "uses features unknown to this Strake: can only be read".into(),
            );
        }
        put("created", format!("{} (Unix time)", self.created_unix));
        put("generation", self.generation.to_string());
        put("epoch", self.epoch.to_string());
        put("lineage", self.lineage.to_string());
        if let Some(log) = self.replay {
            let log = format!("of epoch {}, lineage {}", log.epoch, log.lineage);
            put("log being replayed", log);
        }
        let state = match self.state {
            RunState::Clean => "clean",
            RunState::InUse => "in use (running, or not stopped properly)",
        };
        put("state", state.into());
        put(
            "owner",
            format!(
                "host {}, started {} (Unix time)",
                self.owner_host, self.owner_started_unix
            ),
        );
        put(
            "this member",
            format!("{} (UUID {})", self.member_index, self.own().uuid),
        );
    }

    fn list_geometry(&self, out: &mut Vec<(String, String)>) {
        let mut put = |name: &str, value: String| out.push((name.to_owned(), value));
        put("level", self.level.name().into());
        put(
            "groups",
            format!(
                "{} of {} data + {} parity",
                self.groups, self.data, self.parity
            ),
        );
        put("strip size", human_bytes(self.strip_size_bytes));
        put("block size", human_bytes(self.block_size_bytes.into()));
        let layout = match self.layout.id {
            LAYOUT_LEFT_SYMMETRIC => "left-symmetric".into(),
            LAYOUT_FIXED => "no rotation".into(),
            other => other.to_string(),
        };
        put("layout", layout);
        put("code", self.code_id.to_string());
        put("consistency", self.consistency.name().into());
        put("block checksums", "none".into());
        put("rebuild priority", format!("{} %", self.rebuild_priority));
        put("volume size", human_bytes(self.volume_size_bytes));
        put("data of each member", human_bytes(self.member_data_bytes));
        put(
            "region size",
            format!(
                "{}, {} regions",
                human_bytes(self.region_size_bytes),
                self.regions()
            ),
        );
        put("restripe", "none".into());
    }

    fn list_member(&self, place: usize, member: &MemberRecord) -> String {
        let mut text = format!(
            "{}, serial {:?}, {}, UUID {}",
            member.state.name(),
            member.serial,
            human_bytes(member.size_bytes),
            member.uuid
        );
        if self.groups > 1 {
            text += &format!(", group {}", member.group);
        }
        if member.state == MemberState::Rebuilding {
            text += &format!(
                ", in sync below {}",
                human_bytes(member.rebuild_position_bytes)
            );
        }
        if !member.state.is_in_array() && member.left_generation > 0 {
            text += &format!(", left at generation {}", member.left_generation);
        }
        let errors = [
            member.read_errors,
            member.write_errors,
            member.checksum_errors,
        ];
        if errors != [0; 3] {
            text += &format!(
                ", errors: {} read, {} write, {} checksum",
                errors[0], errors[1], errors[2]
            );
        }
        if place == usize::from(self.member_index) {
            text += " (this drive)";
        }
        text
    }
}
