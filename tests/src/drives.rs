//! Drives as files, and what is on them: to prove that nothing changed, or to change it.

use rustix::fs::{SeekFrom, seek};
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::Path;

const BLOCK: usize = 4096;

/// Makes a sparse file.
pub fn make_file(path: &Path, bytes: u64) {
    let file = File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.set_len(bytes).expect("a sparse file can be made");
}

/// Every block of a drive that is not all zeroes, by its offset. Equal if no byte changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    length: u64,
    blocks: BTreeMap<u64, u64>,
}

impl Snapshot {
    /// Reads a drive; holes are skipped.
    pub fn of(path: &str) -> Snapshot {
        let file = File::open(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let length = file.metadata().expect("a drive has a length").len();
        let mut blocks = BTreeMap::new();
        let mut position = 0;
        // Ends with ENXIO behind the last data.
        while let Ok(start) = seek(&file, SeekFrom::Data(position)) {
            let end = seek(&file, SeekFrom::Hole(start)).unwrap_or(length);
            read_blocks(&file, start, end, &mut blocks);
            position = end;
        }
        Snapshot { length, blocks }
    }

    /// Of several drives.
    pub fn of_all(paths: &[String]) -> Vec<Snapshot> {
        paths.iter().map(|path| Snapshot::of(path)).collect()
    }

    /// Blocks that are not all zeroes.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }
}

fn read_blocks(file: &File, start: u64, end: u64, blocks: &mut BTreeMap<u64, u64>) {
    let mut buffer = [0; BLOCK];
    let mut offset = start / BLOCK as u64 * BLOCK as u64;
    while offset < end {
        let read = file.read_at(&mut buffer, offset).expect("a drive reads");
        if buffer[..read].iter().any(|byte| *byte != 0) {
            let mut hasher = DefaultHasher::new();
            buffer[..read].hash(&mut hasher);
            blocks.insert(offset, hasher.finish());
        }
        offset += BLOCK as u64;
    }
}

/// Panics if a byte on any drive changed while `act` ran.
#[track_caller]
pub fn unchanged<T>(paths: &[String], act: impl FnOnce() -> T) -> T {
    let before = Snapshot::of_all(paths);
    let result = act();
    for ((path, before), after) in paths.iter().zip(&before).zip(Snapshot::of_all(paths)) {
        assert!(
            *before == after,
            "{path} was changed by a refused command: blocks {:?} differ",
            differing(before, &after)
        );
    }
    result
}

fn differing(before: &Snapshot, after: &Snapshot) -> Vec<u64> {
    before
        .blocks
        .keys()
        .chain(after.blocks.keys())
        .filter(|offset| before.blocks.get(offset) != after.blocks.get(offset))
        .copied()
        .take(8)
        .collect()
}

/// Reads `length` bytes.
pub fn read(path: &str, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    File::open(path)
        .and_then(|file| file.read_exact_at(&mut bytes, offset))
        .unwrap_or_else(|error| panic!("reading {path}: {error}"));
    bytes
}

/// Writes bytes behind everybody's back.
pub fn overwrite(path: &str, offset: u64, bytes: &[u8]) {
    File::options()
        .write(true)
        .open(path)
        .and_then(|file| file.write_all_at(bytes, offset))
        .unwrap_or_else(|error| panic!("writing {path}: {error}"));
}

/// A drive like another, byte by byte: what cloning tools make.
pub fn clone(from: &str, to: &str) {
    crate::tools::run("cp", &["--sparse=always", from, to]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_one_changed_byte_and_no_rewritten_zeroes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive");
        make_file(&path, 1 << 20);
        let path = path.to_str().unwrap();
        overwrite(path, 70_000, b"x");
        let before = Snapshot::of(path);
        overwrite(path, 200_000, &[0; 5000]);
        assert_eq!(Snapshot::of(path), before);
        overwrite(path, 70_001, b"y");
        assert_ne!(Snapshot::of(path), before);
    }
}
