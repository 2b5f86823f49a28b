//! The story, a stage a function. Each says what it does and how long the demo has run.

use super::files::{Checksums, Comparison};
use super::load::{self, Ground, JOBS};
use super::place::Place;
use super::report::{self, Row};
use super::strake::Host;
use super::target::{self, DATA, LOG, MEASURED_BYTES, Target};
use super::{Options, interrupt};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Drives of each array.
const DRIVES: usize = 12;
/// The drive that dies by itself, and the one failed by command.
const DYING: usize = 3;
const FAILED: usize = 7;

const MIB: u64 = 1 << 20;
const DATA_DRIVE_BYTES: u64 = 1024 * MIB;
const LOG_DRIVE_BYTES: u64 = 256 * MIB;

/// What the demo writes at most, drives being sparse; less free space is refused at the start.
const NEEDED_BYTES: u64 = 7 << 30;

/// Operations that the dying drive still does: it dies in the middle of the load.
const DIES_AFTER_OPERATIONS: u32 = 300;

/// Priority of the rebuild while it is measured against a load.
const REBUILD_PRIORITY_MEASURED: &str = "10";
const REBUILD_PRIORITY_AFTER: &str = "60";

/// How long the daemon is watched doing nothing.
const IDLE_WATCHED: Duration = Duration::from_secs(3);

/// A member that fails is dropped within this, or something is wrong.
const DROP_LIMIT: Duration = Duration::from_secs(20);

/// The drives as files.
struct Drives {
    data: Vec<PathBuf>,
    log: Vec<PathBuf>,
    spares: Vec<PathBuf>,
}

/// Prints stages with the time since the start.
struct Clock(Instant);

impl Clock {
    fn stage(&self, text: impl std::fmt::Display) -> Result<()> {
        interrupt::check()?;
        println!("{:5.1} s  {text}", self.0.elapsed().as_secs_f64());
        Ok(())
    }
}

/// Tells the story; fails when something was lost.
pub fn run(place: &Place, program: &Path, options: &Options) -> Result<()> {
    let clock = Clock(Instant::now());
    let over_nbd = choose_way(options);
    check_space(place)?;
    let drives = make_drives(&clock, place)?;
    let mut rows = vec![measure_raw(&clock, place, options)?];

    let host = Host::start(program, place, "host-a")?;
    create_arrays(&clock, &host, &drives)?;
    clock.stage(way_text(over_nbd))?;
    let target = Target::make(&host, place, over_nbd)?;
    let before = fill(&clock, &target)?;

    load::lay_out(&target.measured())?;
    rows.push(measure(&clock, &target, options, "healthy")?);
    die_under_load(&clock, &host, &target, &drives)?;
    rows.push(measure(&clock, &target, options, "one drive gone")?);
    fail_second(&clock, &host)?;
    rows.push(measure(&clock, &target, options, "two drives gone")?);
    compare_degraded(&clock, &target, &before)?;

    rows.push(rebuild(&clock, &host, &target, &drives, options)?);
    scrub(&clock, &host)?;

    clock.stage("unmount; watch the idle daemon; stop the arrays, end the daemon")?;
    target.release(&host)?;
    let cost = daemon_cost(&host)?;
    host.run(["array", "stop", DATA])?;
    host.run(["array", "stop", LOG])?;
    host.stop()?;

    let comparison = other_host(&clock, place, program, &drives, target, &before)?;
    finish(&clock, &rows, &cost, &comparison)
}

fn choose_way(options: &Options) -> bool {
    if options.nbd {
        println!("over NBD, as asked: nothing is mounted");
        return true;
    }
    match target::no_mount_reason() {
        Some(reason) => {
            println!("cannot mount here ({reason}): proving the same over NBD");
            true
        }
        None => false,
    }
}

fn way_text(over_nbd: bool) -> &'static str {
    if over_nbd {
        "export the data array over NBD"
    } else {
        "attach both arrays, mkfs.xfs -d su=64k,sw=10 with the log on the second, mount"
    }
}

fn check_space(place: &Place) -> Result<()> {
    let free = place.free_bytes()?;
    if free < NEEDED_BYTES {
        bail!(
            "{} MiB are free where the demo's folder is, {} MiB are needed: choose another with \
             STRAKE_DEMO_DIR",
            free / MIB,
            NEEDED_BYTES / MIB
        );
    }
    Ok(())
}

fn make_drives(clock: &Clock, place: &Place) -> Result<Drives> {
    clock.stage(format!(
        "{DRIVES} sparse drives of {} MiB for data, {DRIVES} of {} MiB for the journal, 2 spares",
        DATA_DRIVE_BYTES / MIB,
        LOG_DRIVE_BYTES / MIB
    ))?;
    let folder = place.folder("drives")?;
    let make = |name: String, bytes: u64| -> Result<PathBuf> {
        let path = folder.join(name);
        File::create(&path)
            .and_then(|file| file.set_len(bytes))
            .with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    };
    Ok(Drives {
        data: (0..DRIVES)
            .map(|index| make(format!("data-{index:02}"), DATA_DRIVE_BYTES))
            .collect::<Result<_>>()?,
        log: (0..DRIVES)
            .map(|index| make(format!("log-{index:02}"), LOG_DRIVE_BYTES))
            .collect::<Result<_>>()?,
        spares: (0..2)
            .map(|index| make(format!("spare-{index}"), DATA_DRIVE_BYTES))
            .collect::<Result<_>>()?,
    })
}

/// The same loads at the same depth on twelve plain files, as drives without an array would
/// take them; before the arrays, so that nothing else runs.
fn measure_raw(clock: &Clock, place: &Place, options: &Options) -> Result<Row> {
    clock.stage("measure the raw drives: the same loads on twelve plain files")?;
    let folder = place.folder("raw")?;
    let ground = Ground::Files {
        paths: (0..DRIVES)
            .map(|index| folder.join(format!("{index:02}")))
            .collect(),
        bytes: MEASURED_BYTES / DRIVES as u64 / MIB * MIB * DRIVES as u64,
    };
    load::lay_out(&ground)?;
    let mut row = empty_row("raw drives");
    for (rate, job) in row.rates.iter_mut().zip(JOBS) {
        *rate = Some(load::measure(&ground, job, options.seconds)?);
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(row)
}

fn create_arrays(clock: &Clock, host: &Host, drives: &Drives) -> Result<()> {
    clock.stage("create data (RAID 6, 10+2, 64 KiB strips) and log (RAID 10)")?;
    let mut arguments: Vec<String> = ["array", "create", DATA, "--level", "6"]
        .map(String::from)
        .into();
    arguments.extend(["--strip-size", "64KiB", "--drives"].map(String::from));
    arguments.extend(drives.data.iter().enumerate().map(|(index, path)| {
        // This one can be told to die.
        let wrap = if index == DYING { "faulty:" } else { "" };
        format!("{wrap}{}", path.display())
    }));
    host.run(arguments)?;
    let mut arguments: Vec<String> = ["array", "create", LOG, "--level", "10", "--drives"]
        .map(String::from)
        .into();
    arguments.extend(drives.log.iter().map(|path| path.display().to_string()));
    host.run(arguments).map(drop)
}

fn fill(clock: &Clock, target: &Target) -> Result<Checksums> {
    clock.stage("copy data in")?;
    let what = target.fill()?;
    clock.stage(format!("copied {what}; checksums"))?;
    target.checksums()
}

fn empty_row(title: &str) -> Row {
    Row {
        title: title.into(),
        rates: [None; JOBS.len()],
    }
}

fn measure(clock: &Clock, target: &Target, options: &Options, title: &str) -> Result<Row> {
    clock.stage(format!("measure: {title}"))?;
    let mut row = empty_row(title);
    for (rate, job) in row.rates.iter_mut().zip(JOBS) {
        *rate = Some(load::measure(&target.measured(), job, options.seconds)?);
    }
    Ok(row)
}

fn die_under_load(clock: &Clock, host: &Host, target: &Target, drives: &Drives) -> Result<()> {
    clock.stage(format!("drive {DYING} dies in the middle of a write load"))?;
    let load = load::start_verified_writes(&target.verified())?;
    let drive = format!("faulty:{}", drives.data[DYING].display());
    host.run([
        "drive",
        "fault",
        &drive,
        "--die-after",
        &DIES_AFTER_OPERATIONS.to_string(),
    ])?;
    wait_for_active(host, DRIVES - 1)?;
    load::finish(load, "the load that wrote while the drive died")?;
    clock.stage("the array dropped it; the load wrote on and read all of it back unharmed")
}

fn wait_for_active(host: &Host, members: usize) -> Result<()> {
    let start = Instant::now();
    loop {
        let (active, state) = host.health(DATA)?;
        if active == members {
            return Ok(());
        }
        if start.elapsed() > DROP_LIMIT {
            bail!("{active} members are active and the array is {state}: expected {members}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn fail_second(clock: &Clock, host: &Host) -> Result<()> {
    clock.stage(format!("fail drive {FAILED} by command"))?;
    host.run(["array", "fail", DATA, &FAILED.to_string()])?;
    wait_for_active(host, DRIVES - 2)
}

fn compare_degraded(clock: &Clock, target: &Target, before: &Checksums) -> Result<()> {
    clock.stage("compare every checksum with two drives gone")?;
    let comparison = target.compare(before)?;
    if comparison.lost.is_empty() {
        return Ok(());
    }
    bail!("with two drives gone: {}", verdict(&comparison))
}

fn rebuild(
    clock: &Clock,
    host: &Host,
    target: &Target,
    drives: &Drives,
    options: &Options,
) -> Result<Row> {
    clock.stage("replace both drives; measure while the rebuild runs")?;
    host.run([
        "array",
        "set",
        DATA,
        "--rebuild-priority",
        REBUILD_PRIORITY_MEASURED,
    ])?;
    for (member, spare) in [DYING, FAILED].iter().zip(&drives.spares) {
        let spare = spare.display().to_string();
        host.run(["array", "replace", DATA, &member.to_string(), &spare])?;
    }
    let mut row = empty_row("rebuilding");
    for (rate, job) in row.rates.iter_mut().zip(JOBS) {
        let measured = load::measure(&target.measured(), job, options.seconds)?;
        // Only what ran beside the rebuild to its end counts.
        *rate = host.task(DATA, "rebuild")?.map(|_| measured);
    }
    clock.stage("the rebuild goes on faster, under a mixed load")?;
    host.run([
        "array",
        "set",
        DATA,
        "--rebuild-priority",
        REBUILD_PRIORITY_AFTER,
    ])?;
    let mut load = load::start_mixed(&target.measured(), 600)?;
    host.follow(DATA, "rebuild")?;
    if let Some(status) = load.try_wait()? {
        bail!("the load beside the rebuild ended early ({status})");
    }
    load.kill()?;
    load.wait()?;
    wait_for_active(host, DRIVES)?;
    Ok(row)
}

fn scrub(clock: &Clock, host: &Host) -> Result<()> {
    clock.stage("scrub")?;
    for array in [DATA, LOG] {
        host.run(["array", "scrub", array])?;
        host.follow(array, "scrub")?;
        let show = host.json(["array", "show", array])?;
        let last = &show["last_scrub"];
        if last["mismatches"] != 0 || last["errors"] != 0 {
            bail!("the scrub of {array} found what should not be: {last}");
        }
    }
    clock.stage("every stripe of both arrays holds")
}

fn other_host(
    clock: &Clock,
    place: &Place,
    program: &Path,
    drives: &Drives,
    target: Target,
    before: &Checksums,
) -> Result<Comparison> {
    clock.stage("another host imports both arrays from their drives alone")?;
    let host = Host::start(program, place, "host-b")?;
    // All drives, the two that were replaced among them: it must tell which are stale.
    let all: Vec<String> = [&drives.data, &drives.log, &drives.spares]
        .into_iter()
        .flatten()
        .map(|path| path.display().to_string())
        .collect();
    clock.stage(found_text(&host, &all)?)?;
    for array in [DATA, LOG] {
        let mut arguments = ["array", "import", array, "--drives"]
            .map(String::from)
            .to_vec();
        arguments.extend(all.iter().cloned());
        host.run(arguments)?;
    }
    let (active, state) = host.health(DATA)?;
    if active != DRIVES {
        bail!("imported with {active} of {DRIVES} members, {state}");
    }
    let target = target.use_again(&host, place)?;
    clock.stage("compare every checksum")?;
    let comparison = target.compare(before)?;
    target.release(&host)?;
    for array in [DATA, LOG] {
        host.run(["array", "stop", array])?;
    }
    host.stop()?;
    Ok(comparison)
}

/// What the drives say of themselves, before anything is started.
fn found_text(host: &Host, drives: &[String]) -> Result<String> {
    let mut arguments = ["array", "import", "--drives"].map(String::from).to_vec();
    arguments.extend_from_slice(drives);
    let scan = host.json(arguments)?;
    let arrays = scan["arrays"].as_array().context("no list of arrays")?;
    let found: Vec<_> = arrays.iter().map(found_in).collect();
    Ok(format!("found on the drives: {}", found.join("; ")))
}

fn found_in(array: &serde_json::Value) -> String {
    let found = array["found"].as_array().map_or(&[][..], Vec::as_slice);
    let set_aside = found.iter().filter(|drive| !drive["note"].is_null());
    format!(
        "{} ({}, {} members; {} drives set aside as stale)",
        array["name"].as_str().unwrap_or("?"),
        array["level"].as_str().unwrap_or("?"),
        array["members"],
        set_aside.count()
    )
}

/// What the daemon costs, in a sentence.
fn daemon_cost(host: &Host) -> Result<String> {
    Ok(format!(
        "The daemon: {} MiB of memory at its peak, {:.1} % of a core when idle with both arrays \
         online.",
        host.peak_memory()? / MIB,
        host.idle_percent(IDLE_WATCHED)?
    ))
}

fn finish(clock: &Clock, rows: &[Row], cost: &str, comparison: &Comparison) -> Result<()> {
    clock.stage("done")?;
    println!();
    println!(
        "Throughput through the whole path, with the share of the healthy array and of the raw"
    );
    println!("drives (the same fio load at the same depth, on twelve plain files on this disk).");
    println!();
    println!("{}", report::table(rows));
    println!("{cost}");
    println!();
    println!("{}", verdict(comparison));
    if !comparison.lost.is_empty() {
        for path in comparison.lost.iter().take(10) {
            println!("  lost: {}", path.display());
        }
        bail!("{} {} were lost", comparison.lost.len(), comparison.what);
    }
    Ok(())
}

fn verdict(comparison: &Comparison) -> String {
    format!(
        "{} {} compared, {} lost",
        comparison.compared,
        comparison.what,
        comparison.lost.len()
    )
}
