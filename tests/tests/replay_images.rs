//! Power cuts under the real process: nothing durable is lost, whatever drives lost of the rest.
//!
//! A daemon serves an array on drives that record every change (`recorded:`), while a writer
//! notes when what was sent, answered and durable; members fail and are rebuilt meanwhile. Then,
//! again and again: a moment, a choice of what had landed by then, perhaps further members gone,
//! as many as the level allows; the drives are made as they may have been left, a daemon is
//! started on them (of another host sometimes, which imports the array), and every block is
//! compared. Half of these starts are cut as well, and the
//! drives that were gone may be back. As Linux's dm-log-writes does for file systems.
//!
//! `STRAKE_IMAGES=N`: so many images over all arrays (default 20). `STRAKE_SEED=S`: another
//! seed. The drives of an image that fails are kept, and said where.

use std::collections::BTreeMap;
use std::path::Path;
use strake_tests::recording::{Pages, PowerCut, Recording};
use strake_tests::timeline::{Contents, CutAt, Timeline};
use strake_tests::{Daemon, MIB, NbdAddress, pattern, proof, wait_until};

const DRIVE_BYTES: u64 = 256 * MIB;
const VOLUME_PART: (u64, u64) = (3 * MIB, 6 * MIB);
const IMAGES: usize = 20;
/// Tests of this file: each takes its share of the images.
const ARRAYS: usize = 6;
/// Comes round several times.
const LOG_SIZE: &str = "1MiB";
/// Requests of a whole recording.
const REQUESTS: usize = 400;
/// The member that fails and is rebuilt.
const FAILING: usize = 1;

/// An array under test.
struct Level {
    name: &'static str,
    words: &'static [&'static str],
    drives: usize,
    /// Members that survive each other: of a mirror pair or of the whole.
    group: usize,
    /// Members of a group that may be missing.
    losses: usize,
    block_bytes: usize,
    /// Drives whose writes are durable when they complete.
    write_through: bool,
}

/// What happened, to be cut off anywhere.
struct History<'a> {
    level: &'a Level,
    recording: Recording,
    timeline: Timeline,
    /// Folder in which it happened, as text: paths below it stand in the states.
    folder: String,
    /// The host's state file from a moment on.
    states: Vec<(u64, String)>,
    /// From the moment the array served until the end.
    serving: (u64, u64),
    /// While member [`FAILING`] was not or not fully there.
    degraded: (u64, u64),
    seed: u64,
}

/// Records a history of an array, then cuts it.
fn survives_power_cuts(level: &Level, seed: u64) {
    let seed = proof::seed(seed);
    let images = proof::number_from("STRAKE_IMAGES").map_or(IMAGES, |images| images as usize);
    let history = record(level, seed);
    println!(
        "{} seed {seed}: {} changes recorded",
        level.name,
        history.recording.change_count()
    );
    for index in 0..images.div_ceil(ARRAYS) {
        history.check_image(index as u64);
    }
}

fn record(level: &Level, seed: u64) -> History<'_> {
    let mut daemon = Daemon::start();
    let record = daemon.path("record");
    let cache = if level.write_through {
        "cache=none:"
    } else {
        ""
    };
    let spec = |name: &str| {
        let path = daemon.drive(name, DRIVE_BYTES);
        format!("recorded:{}:{cache}faulty:{path}", record.display())
    };
    let members: Vec<String> = (0..level.drives)
        .map(|at| spec(&format!("d{at}")))
        .collect();
    let spare = spec("spare");
    let mut words = level.words.to_vec();
    words.extend(proof::log_words(LOG_SIZE));
    daemon.create("volume", &words, &members);
    let address = daemon.export_nbd("volume");
    let now = || {
        std::fs::metadata(&record)
            .expect("the record is there")
            .len()
    };
    let mut timeline = Timeline::new(VOLUME_PART.0, VOLUME_PART.1, level.block_bytes, seed);
    if level.write_through {
        timeline.set_write_through();
    }
    let state = || {
        let text = std::fs::read_to_string(daemon.state_dir().join("state.json"));
        (now(), text.expect("the daemon keeps its state"))
    };
    let start = now();
    let mut states = vec![state()];
    timeline.write(&address, REQUESTS * 2 / 5, &now);

    let failed = now();
    daemon.ok(["array", "fail", "volume", &FAILING.to_string()]);
    states.push(state());
    timeline.write(&address, REQUESTS / 5, &now);

    // Slow, so that the rebuild meets the writes.
    daemon.ok(["drive", "fault", &members[0], "--latency-us", "3000"]);
    daemon.ok(["array", "replace", "volume", &FAILING.to_string(), &spare]);
    states.push(state());
    timeline.write(&address, REQUESTS / 5, &now);
    daemon.ok(["drive", "fault", &members[0], "--heal"]);
    daemon.say(["array", "wait", "volume"]);
    daemon.wait_for_state("volume", "healthy");
    let healthy = now();
    states.push(state());
    timeline.write(&address, REQUESTS / 5, &now);
    daemon.stop();

    History {
        level,
        recording: Recording::read(&record, !level.write_through),
        timeline,
        folder: folder_of(&daemon),
        states,
        serving: (start, now()),
        degraded: (failed, healthy),
        seed,
    }
}

fn folder_of(daemon: &Daemon) -> String {
    daemon
        .path("")
        .to_str()
        .expect("test folders are text")
        .trim_end_matches('/')
        .to_owned()
}

/// A power cut and the drives that are there afterwards.
struct Image {
    cut: PowerCut,
    /// Names of the drive files that are there.
    present: Vec<String>,
    /// Places whose drives went with the power.
    gone: Vec<usize>,
    degraded: bool,
}

/// Every drive as it was left, also those that are not there, and the host's state.
#[derive(Clone)]
struct Left {
    drives: BTreeMap<String, Pages>,
    present: Vec<String>,
    /// The state file; [`FOLDER`] stands for the folder of the drives.
    state: String,
}

const FOLDER: &str = "@FOLDER@";

impl History<'_> {
    fn check_image(&self, index: u64) {
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(index);
        let mut random = fastrand::Rng::with_seed(seed);
        let image = self.choose(&mut random);
        let mut what = self.describe(index, &image);
        println!("{what}");
        let left = self.leave(&image);
        let again = random.bool();
        let name = format!("strake-image-{}-{}-{index}", self.level.name, self.seed);
        let keep = KeepOnPanic::new(&name, &left);
        let imported = !again && random.bool();
        if imported {
            println!("  imported by another host");
        }
        let mut daemon = match imported {
            true => left.import(),
            false => left.start(again),
        };
        let contents = self.check(&daemon, &image, &what);
        if !again {
            self.check_whole(&daemon, &image, contents, &what);
            return;
        }
        if random.bool() {
            daemon.wait_for_tasks("volume");
        }
        daemon.kill();
        let recording = Recording::read(&daemon.path("record"), !self.level.write_through);
        drop((daemon, keep));
        let moments = recording.moments(0..u64::MAX);
        let moment = *random.choice(moments).expect("a start writes");
        let cut = self.cut_at(moment, &mut random);
        let (second, left) = self.cut_again(&image, &left, (&recording, &cut), &mut random);
        what += &format!(", then at {moment}, {:?} there", left.present);
        println!("  {what}");
        let _keep = KeepOnPanic::new(&name, &left);
        let daemon = left.start(false);
        let contents = self.check(&daemon, &second, &what);
        self.check_whole(&daemon, &second, contents, &what);
    }

    fn describe(&self, index: u64, image: &Image) -> String {
        format!(
            "{} seed {} image {index}: moment {}, pieces of {}, {}, {:?} gone",
            self.level.name,
            self.seed,
            image.cut.moment,
            image.cut.piece_bytes,
            if image.degraded {
                "degraded"
            } else {
                "healthy"
            },
            image.gone,
        )
    }

    fn choose(&self, random: &mut fastrand::Rng) -> Image {
        let policy = proof::log_exists();
        let moment = loop {
            let moments = self.recording.moments(self.serving.0..self.serving.1);
            let moment = *random.choice(moments).expect("something was recorded");
            if policy || !self.is_degraded(moment) {
                break moment;
            }
        };
        let degraded = self.is_degraded(moment);
        let gone = match policy {
            true => self.lose(&[], degraded, random),
            false => Vec::new(),
        };
        // Of the failing member's two drives the one in use goes with the member; of the other
        // anything may have become.
        let failing_gone = gone.contains(&FAILING);
        let mut present: Vec<String> = (0..self.level.drives)
            .filter(|place| *place != FAILING && !gone.contains(place))
            .map(|place| format!("d{place}"))
            .collect();
        let in_use = [moment < self.degraded.0, moment >= self.degraded.1];
        for (file, in_use) in ["d1", "spare"].into_iter().zip(in_use) {
            if if in_use { !failing_gone } else { random.bool() } {
                present.push(file.to_owned());
            }
        }
        Image {
            cut: self.cut_at(moment, random),
            present,
            gone,
            degraded,
        }
    }

    fn cut_at(&self, moment: u64, random: &mut fastrand::Rng) -> PowerCut {
        let whole_blocks = self.level.block_bytes as u64;
        PowerCut {
            moment,
            piece_bytes: *random.choice(&[512, whole_blocks]).expect("not empty"),
            seed: random.u64(..),
        }
    }

    fn is_degraded(&self, moment: u64) -> bool {
        (self.degraded.0..self.degraded.1).contains(&moment)
    }

    /// Places to lose beside those gone already, as many as the level allows.
    fn lose(&self, gone: &[usize], degraded: bool, random: &mut fastrand::Rng) -> Vec<usize> {
        let missing = |place: &usize| gone.contains(place) || (degraded && *place == FAILING);
        let mut lost = Vec::new();
        for group in 0..self.level.drives / self.level.group {
            let places = group * self.level.group..(group + 1) * self.level.group;
            let (out, mut here): (Vec<usize>, Vec<usize>) = places.partition(missing);
            let count = random.usize(..=self.level.losses - out.len());
            random.shuffle(&mut here);
            lost.extend(here.into_iter().take(count));
        }
        lost
    }

    fn leave(&self, image: &Image) -> Left {
        let names = self.recording.drives().iter().enumerate();
        let drives = names.map(|(drive, name)| {
            let pages = self.recording.image(drive, &Pages::default(), &image.cut);
            (file_of(name), pages)
        });
        let known = |(since, _): &&(u64, String)| *since <= image.cut.moment;
        let state = self.states.iter().rev().find(known);
        let (_, state) = state.unwrap_or(&self.states[0]);
        let record = format!("recorded:{}/record:", self.folder);
        let state = state.replace(&record, "").replace("faulty:", "");
        Left {
            drives: drives.collect(),
            present: image.present.clone(),
            state: state.replace(&self.folder, FOLDER),
        }
    }

    /// Cuts the start on `left` as well, perhaps in the middle of what it repairs. Drives that
    /// were gone may be back, as they were left then, and further ones be gone.
    fn cut_again(
        &self,
        first: &Image,
        left: &Left,
        (recording, cut): (&Recording, &PowerCut),
        random: &mut fastrand::Rng,
    ) -> (Image, Left) {
        let mut drives = left.drives.clone();
        for (drive, name) in recording.drives().iter().enumerate() {
            let pages = recording.image(drive, &drives[&file_of(name)], cut);
            drives.insert(file_of(name), pages);
        }
        let lost = match proof::log_exists() {
            true => self.lose(&first.gone, first.degraded, random),
            false => Vec::new(),
        };
        let lost_files: Vec<String> = lost
            .iter()
            .map(|place| self.file_in_use(first, *place))
            .collect();
        let mut present: Vec<String> = left.present.clone();
        present.retain(|file| !lost_files.contains(file));
        for place in &first.gone {
            if random.bool() {
                present.push(self.file_in_use(first, *place));
            }
        }
        let left = Left {
            drives,
            present: present.clone(),
            state: left.state.clone(),
        };
        let image = Image {
            // What clients wrote ended with the first cut.
            cut: PowerCut {
                moment: first.cut.moment,
                piece_bytes: cut.piece_bytes.min(first.cut.piece_bytes),
                seed: cut.seed,
            },
            present,
            gone: [first.gone.clone(), lost].concat(),
            degraded: first.degraded,
        };
        (image, left)
    }

    fn file_in_use(&self, image: &Image, place: usize) -> String {
        match place == FAILING && image.cut.moment >= self.degraded.0 {
            true => "spare".into(),
            false => format!("d{place}"),
        }
    }

    /// Waits for the start and compares every block.
    fn check(&self, daemon: &Daemon, image: &Image, what: &str) -> Contents {
        wait_until("the array has started or failed", || {
            daemon.show("volume")["state"] != "starting"
        });
        let show = daemon.show("volume");
        assert_ne!(show["state"], "offline", "{what}: {show}");
        daemon.wait_for_exports();
        let cut = CutAt {
            moment: image.cut.moment,
            sectors_tear: image.cut.piece_bytes < self.level.block_bytes as u64,
        };
        let mut client = address(daemon).connect();
        let (found, contents) = self.timeline.check(&mut client, cut, what);
        println!("  {found:?}");
        let whole = image.gone.is_empty() && !image.degraded;
        assert!(
            !whole || found.errors == 0,
            "{what}: {found:?} with all members there"
        );
        proof::errors_are_listed(daemon, "volume", &contents.errors(), what);
        contents
    }

    /// What was found stays so, and parity agrees with it.
    fn check_whole(&self, daemon: &Daemon, image: &Image, contents: Contents, what: &str) {
        daemon.wait_for_tasks("volume");
        let address = address(daemon);
        contents.check_again(&mut address.connect(), what);
        let errors = contents.errors();
        self.heal(&errors, &address, what);
        proof::nothing_is_torn(daemon, "volume", what);
        daemon.scrub_finds_nothing("volume");
        if !errors.is_empty() || daemon.show("volume")["state"] != "healthy" {
            return;
        }
        let mut random = fastrand::Rng::with_seed(image.cut.seed);
        for place in self.lose(&[], false, &mut random) {
            daemon.ok(["array", "fail", "volume", &place.to_string()]);
        }
        contents.check_again(&mut address.connect(), what);
    }

    /// Blocks that read as errors are whole again once written.
    fn heal(&self, errors: &[u64], address: &NbdAddress, what: &str) {
        let mut client = address.connect();
        for offset in errors {
            let healed = pattern(*offset, self.level.block_bytes);
            client.write(*offset, &healed);
            let read = client.try_read(*offset, healed.len()).expect("an answer");
            assert_eq!(read, Ok(healed), "{what}: after writing at {offset}");
        }
        client.flush();
    }
}

fn address(daemon: &Daemon) -> NbdAddress {
    NbdAddress {
        socket: daemon.run_dir().join("volume.nbd"),
        name: "volume".into(),
    }
}

/// The file of a drive's text.
fn file_of(drive: &str) -> String {
    let (_, file) = drive
        .rsplit_once('/')
        .expect("a drive's text ends in a path");
    file.to_owned()
}

impl Left {
    /// Starts a daemon on the drives, which records what it changes if told so.
    fn start(&self, recorded: bool) -> Daemon {
        Daemon::start_prepared(|folder| self.make(folder, recorded))
    }

    /// Imports the array on a host that knows nothing of it, and serves it there.
    fn import(&self) -> Daemon {
        let daemon = Daemon::start_prepared(|folder| self.make_drives(folder));
        let drive = |file: &String| daemon.path(file).to_str().expect("text").to_owned();
        let drives: Vec<String> = self.present.iter().map(drive).collect();
        // Another host owns it, and members that are missing may hold newer data.
        let words = ["array", "import", "volume", "--force", "--drives"];
        let words = words.into_iter().map(str::to_owned);
        daemon.say(words.chain(drives));
        daemon.export_nbd("volume");
        daemon
    }

    fn make_drives(&self, folder: &Path) {
        for file in &self.present {
            self.drives[file].write_to(&folder.join(file), DRIVE_BYTES);
        }
    }

    fn make(&self, folder: &Path, recorded: bool) {
        self.make_drives(folder);
        let mut state: serde_json::Value = serde_json::from_str(&self.state).expect("JSON");
        // The host may have heard of a generation whose superblocks the moment does not have.
        state["arrays"][0]["generation"] = 0.into();
        for drive in state["arrays"][0]["drives"].as_array_mut().expect("drives") {
            let spec = drive["spec"].as_str().unwrap_or_default();
            if recorded && !spec.is_empty() {
                drive["spec"] = format!("recorded:{FOLDER}/record:{spec}").into();
            }
        }
        let folder_text = folder.to_str().expect("test folders are text");
        let text = state.to_string().replace(FOLDER, folder_text);
        std::fs::create_dir(folder.join("state0")).expect("a state folder");
        std::fs::write(folder.join("state0/state.json"), text).expect("a state");
    }
}

/// Keeps the drives of an image that failed, as they were before the daemon's start.
struct KeepOnPanic<'a> {
    left: &'a Left,
    name: &'a str,
}

impl<'a> KeepOnPanic<'a> {
    fn new(name: &'a str, left: &'a Left) -> KeepOnPanic<'a> {
        KeepOnPanic { left, name }
    }
}

impl Drop for KeepOnPanic<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let folder = std::env::temp_dir().join(self.name);
        let _ = std::fs::remove_dir_all(&folder);
        if std::fs::create_dir(&folder).is_ok() {
            self.left.make(&folder, false);
            eprintln!("the image's drives are kept in {}", folder.display());
        }
    }
}

#[test]
fn raid5_survives_power_cuts() {
    let level = Level {
        name: "raid5",
        words: &["5", "--strip-size", "16KiB"],
        drives: 4,
        group: 4,
        losses: 1,
        block_bytes: 4096,
        write_through: false,
    };
    survives_power_cuts(&level, 501);
}

#[test]
fn raid5_with_blocks_of_512_survives_power_cuts() {
    let level = Level {
        name: "raid5-512",
        words: &["5", "--strip-size", "4KiB", "--block-size", "512"],
        drives: 4,
        group: 4,
        losses: 1,
        block_bytes: 512,
        write_through: false,
    };
    survives_power_cuts(&level, 502);
}

#[test]
fn raid6_survives_power_cuts() {
    let level = Level {
        name: "raid6",
        words: &["6", "--strip-size", "16KiB"],
        drives: 6,
        group: 6,
        losses: 2,
        block_bytes: 4096,
        write_through: false,
    };
    survives_power_cuts(&level, 601);
}

#[test]
fn raid10_survives_power_cuts() {
    let level = Level {
        name: "raid10",
        words: &["10", "--strip-size", "16KiB"],
        drives: 4,
        group: 2,
        losses: 1,
        block_bytes: 4096,
        write_through: false,
    };
    survives_power_cuts(&level, 1001);
}

#[test]
fn three_parities_with_blocks_of_512_survive_power_cuts() {
    let level = Level {
        name: "n+m-512",
        words: &[
            "n+m",
            "--parity",
            "3",
            "--strip-size",
            "8KiB",
            "--block-size",
            "512",
        ],
        drives: 7,
        group: 7,
        losses: 3,
        block_bytes: 512,
        write_through: false,
    };
    survives_power_cuts(&level, 4301);
}

#[test]
fn raid6_on_write_through_drives_survives_power_cuts() {
    let level = Level {
        name: "raid6-wt",
        words: &["6", "--strip-size", "16KiB"],
        drives: 5,
        group: 5,
        losses: 2,
        block_bytes: 4096,
        write_through: true,
    };
    survives_power_cuts(&level, 602);
}
