//! One core: what becomes of requests for an array that is not there any more.

use std::sync::{Arc, Mutex};

use strake_engine::array::Command;
use strake_engine::block::{BlockError, BlockRequest, Operation};
use strake_engine::layout::{GeometryRequest, Level};
use strake_node::core::{Core, Message};
use strake_node::{CreateArray, make};
use strake_reactor::buffer::{Buffer, Pool};
use strake_reactor::drive::{DriveSpec, describe};
use strake_reactor::ring::{RingConfig, RingPort};

type Answer<T> = Arc<Mutex<Option<T>>>;

fn answer<T: Send + 'static>() -> (Answer<T>, Box<dyn FnOnce(T) + Send>) {
    let answer: Answer<T> = Arc::default();
    let sender = answer.clone();
    let send = Box::new(move |value| *sender.lock().unwrap() = Some(value));
    (answer, send)
}

fn wait<T>(core: &mut Core<RingPort>, answer: &Answer<T>) -> T {
    loop {
        if let Some(value) = answer.lock().unwrap().take() {
            return value;
        }
        core.turn();
    }
}

fn add(core: &mut Core<RingPort>, label: &str) -> usize {
    let drives: Vec<DriveSpec> = (0..3)
        .map(|at| DriveSpec(format!("memory:16MiB:{label}-{at}")))
        .collect();
    let infos: Vec<_> = drives.iter().map(|spec| describe(spec).unwrap()).collect();
    let request = CreateArray {
        name: label.into(),
        geometry: GeometryRequest {
            level: Level::Raid5,
            members: 3,
            strip_size_bytes: None,
            block_size_bytes: None,
            group_size: None,
            parity: None,
        },
        drives: drives.clone(),
        policy: None,
        log_bytes: None,
        force: false,
    };
    let start = make::unrecorded(&request, &infos, &[], 1 << 20).unwrap();
    let (added, reply) = answer();
    let specs = drives.into_iter().map(Some).collect();
    core.message(Message::Add(Box::new(start), specs, reply), 0);
    wait(core, &added).unwrap()
}

fn write(core: &mut Core<RingPort>, array: usize) -> Result<(), BlockError> {
    let (done, reply) = answer();
    let request = BlockRequest {
        operation: Operation::Write,
        offset: 0,
        length: 4096,
        durable: false,
        buffer: Some(Buffer::heap(4096)),
        done: Box::new(move |result, _| reply(result)),
    };
    core.message(Message::Block(array, request), 0);
    wait(core, &done)
}

/// A client of a stopped array that still sends must not write into the array that took its place.
#[test]
fn an_arrays_id_is_never_given_twice() {
    let pool = Pool::new(8 << 20).unwrap();
    let mut core = Core::new(RingPort::new(RingConfig::default()).unwrap(), pool);
    let first = add(&mut core, "first");
    assert_eq!(write(&mut core, first), Ok(()));
    let (stopped, reply) = answer();
    core.message(Message::Command(first, Command::Stop, reply), 0);
    wait(&mut core, &stopped).unwrap();
    core.message(Message::Forget(first, Box::new(|| {})), 0);

    let second = add(&mut core, "second");
    assert_ne!(first, second);
    assert_eq!(first & 0xff, second & 0xff, "it has the first one's place");
    assert_eq!(write(&mut core, first), Err(BlockError::Stopped));
    assert_eq!(write(&mut core, second), Ok(()));
    let (stopped, reply) = answer();
    core.message(Message::Command(second, Command::Stop, reply), 0);
    wait(&mut core, &stopped).unwrap();
    core.message(Message::Forget(second, Box::new(|| {})), 0);
}
