//! Arrays on real files through real reactors: made, written, degraded, rebuilt, imported.

use std::sync::mpsc;

use strake_engine::block::{BlockDevice, BlockError, BlockRequest, Operation};
use strake_engine::layout::{GeometryRequest, Level};
use strake_node::{
    Array, ArrayState, CreateArray, ErrorKind, ImportArray, MemberState, Node, NodeConfig,
};
use strake_reactor::buffer::Buffer;
use strake_reactor::drive::DriveSpec;
use uuid::Uuid;

fn node() -> Node {
    node_of(1)
}

fn node_of(cores: usize) -> Node {
    Node::start(NodeConfig {
        cores,
        memory_bytes: 32 << 20,
        host_id: Uuid::new_v4(),
    })
    .unwrap()
}

struct Drives {
    folder: tempfile::TempDir,
    specs: Vec<DriveSpec>,
}

fn drives(count: usize, bytes: u64) -> Drives {
    let folder = tempfile::tempdir().unwrap();
    let specs = (0..count)
        .map(|index| {
            let path = folder.path().join(format!("d{index}.img"));
            std::fs::File::create(&path)
                .unwrap()
                .set_len(bytes)
                .unwrap();
            DriveSpec(path.display().to_string())
        })
        .collect();
    Drives { folder, specs }
}

fn request(level: Level, members: usize) -> GeometryRequest {
    GeometryRequest {
        level,
        members,
        strip_size_bytes: None,
        block_size_bytes: None,
        group_size: None,
        parity: None,
    }
}

fn create(node: &Node, name: &str, geometry: GeometryRequest, drives: &[DriveSpec]) -> Array {
    node.create(CreateArray {
        name: name.into(),
        geometry,
        drives: drives.to_vec(),
        policy: None,
        log_bytes: None,
        force: false,
    })
    .unwrap()
}

fn submit(
    array: &Array,
    operation: Operation,
    offset: u64,
    length: u64,
    buffer: Option<Buffer>,
) -> (Result<(), BlockError>, Option<Buffer>) {
    let (sender, receiver) = mpsc::channel();
    array.submit(BlockRequest {
        operation,
        offset,
        length,
        durable: false,
        buffer,
        done: Box::new(move |result, buffer| sender.send((result, buffer)).unwrap()),
    });
    receiver.recv().unwrap()
}

fn pattern(offset: u64, length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64)
        .map(|at| {
            ((offset + at) / 512)
                .wrapping_mul(0x9e37_79b9)
                .wrapping_add((offset + at) % 512)
                .wrapping_add(seed) as u8
        })
        .collect()
}

fn write(array: &Array, offset: u64, bytes: &[u8]) {
    let mut buffer = Buffer::heap(bytes.len());
    buffer.copy_from_slice(bytes);
    submit(
        array,
        Operation::Write,
        offset,
        bytes.len() as u64,
        Some(buffer),
    )
    .0
    .unwrap();
}

fn read(array: &Array, offset: u64, length: usize) -> Vec<u8> {
    let (result, buffer) = submit(
        array,
        Operation::Read,
        offset,
        length as u64,
        Some(Buffer::heap(length)),
    );
    result.unwrap();
    buffer.unwrap().to_vec()
}

fn wait_healthy(array: &Array) {
    for _ in 0..600 {
        let status = array.status().unwrap();
        if status.state == ArrayState::Healthy && status.tasks.is_empty() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("not healthy: {:?}", array.status());
}

#[test]
fn raid6_lives_through_two_losses_and_an_import_elsewhere() {
    let set = drives(6, 64 << 20);
    let first = node();
    let array = create(&first, "data", request(Level::Raid6, 6), &set.specs);
    let size = array.info().size_bytes;
    assert!(
        read(&array, 0, 1 << 20).iter().all(|&b| b == 0),
        "unwritten reads as zeroes"
    );
    let places: Vec<(u64, usize)> = vec![
        (0, 1 << 20),
        (4096 * 37, 4096 * 3),
        (5 << 20, 2 << 20),
        (size - 65536, 65536),
    ];
    for &(at, length) in &places[..1] {
        write(&array, at, &pattern(at, length, 1));
    }
    for &(at, length) in &places[2..] {
        write(&array, at, &pattern(at, length, 1));
    }
    array.fail_member(1, false).unwrap();
    let (at, length) = places[1];
    write(&array, at, &pattern(at, length, 1));
    array.fail_member(4, false).unwrap();
    let refused = array.fail_member(0, false).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Refused, "{refused}");
    for &(at, length) in &places {
        assert_eq!(
            read(&array, at, length),
            pattern(at, length, 1),
            "degraded at {at}"
        );
    }
    write(&array, 3 << 20, &pattern(3 << 20, 300 << 10, 1));
    let spares = drives(2, 64 << 20);
    array
        .replace_member(1, spares.specs[0].clone(), false)
        .unwrap();
    array
        .replace_member(4, spares.specs[1].clone(), false)
        .unwrap();
    wait_healthy(&array);
    array.start_scrub(false).unwrap();
    wait_healthy(&array);
    let scrub = array.status().unwrap().last_scrub.unwrap();
    assert_eq!((scrub.mismatches, scrub.errors), (0, 0));
    let uuid = array.uuid();
    array.stop().unwrap();
    first.shutdown();

    let second = node();
    let mut all = set.specs.clone();
    all.extend(spares.specs.clone());
    let array = second
        .import(ImportArray {
            uuid,
            drives: all,
            new_name: Some("moved".into()),
            read_only: false,
            force: false,
            known_generation: None,
            last_seen: Vec::new(),
        })
        .unwrap();
    assert_eq!(array.info().name, "moved");
    let status = array.status().unwrap();
    assert_eq!(status.state, ArrayState::Healthy);
    assert!(
        status
            .members
            .iter()
            .all(|m| m.state == MemberState::Active)
    );
    assert!(
        status
            .warnings
            .iter()
            .any(|w| w.contains("left the array") || w.contains("no longer a member")),
        "{:?}",
        status.warnings
    );
    for &(at, length) in &places {
        assert_eq!(
            read(&array, at, length),
            pattern(at, length, 1),
            "imported at {at}"
        );
    }
    assert_eq!(
        read(&array, 3 << 20, 300 << 10),
        pattern(3 << 20, 300 << 10, 1)
    );
    second.shutdown();
    drop((set.folder, spares.folder));
}

/// Reads go to all cores, by threads that take turns: each sees what was acknowledged to any, also
/// of a drive that came later, and that every opening would make anew. A stop answers all.
#[test]
fn every_core_reads_what_was_written_and_what_was_rebuilt_until_the_stop() {
    let node = node_of(3);
    let spec = DriveSpec("memory:64MiB".into());
    let array = create(
        &node,
        "cores",
        request(Level::Raid5, 3),
        &[(); 3].map(|()| spec.clone()),
    );
    let content = pattern(0, 1 << 20, 7);
    let on_all_cores = |check: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            (0..6).for_each(|_| {
                scope.spawn(check);
            });
        });
    };
    write(&array, 0, &content);
    on_all_cores(&|| assert!(read(&array, 0, content.len()) == content));
    array.replace_member(1, spec, false).unwrap();
    while array.status().unwrap().state != ArrayState::Healthy {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    on_all_cores(&|| assert!(read(&array, 0, content.len()) == content));
    let reads = array.status().unwrap().reads;
    assert!(reads >= 12, "{reads} reads are counted");
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let buffer = Some(Buffer::heap(4096));
                    match submit(&array, Operation::Read, 8192, 4096, buffer) {
                        (Ok(()), Some(buffer)) => assert!(buffer[..] == content[8192..12288]),
                        (result, _) => break assert_eq!(result, Err(BlockError::Stopped)),
                    }
                }
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        let stops = [(); 2].map(|()| scope.spawn(|| array.stop()));
        let stops = stops.map(|stop| stop.join().unwrap());
        assert!(stops.iter().any(Result::is_ok), "{stops:?}");
    });
    node.shutdown();
}
