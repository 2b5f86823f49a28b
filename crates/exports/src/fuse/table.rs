//! The files of a mount, by name and by inode number.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::FuseError;
use super::file::VolumeFile;
use crate::volume::Volume;

/// Inode number of the directory.
pub(super) const ROOT_INO: u64 = 1;
/// Longest file name, bytes.
const NAME_BYTES_MAX: usize = 255;

/// The files of a mount.
pub(super) struct Table {
    by_ino: BTreeMap<u64, Arc<VolumeFile>>,
    next_ino: u64,
}

impl Table {
    /// No files yet.
    pub(super) fn new() -> Table {
        Table {
            by_ino: BTreeMap::new(),
            next_ino: ROOT_INO + 1,
        }
    }

    /// The file with this inode number.
    pub(super) fn file(&self, ino: u64) -> Option<&Arc<VolumeFile>> {
        self.by_ino.get(&ino)
    }

    /// The file of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Arc<VolumeFile>> {
        self.by_ino.values().find(|file| file.name == name)
    }

    /// All files, in the order in which they were added.
    pub(super) fn files(&self) -> impl Iterator<Item = &Arc<VolumeFile>> {
        self.by_ino.values()
    }

    /// Adds a file; fails with `BadName` or `Exists`.
    pub(super) fn add(&mut self, name: &str, volume: Volume) -> Result<(), FuseError> {
        let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
        if !fits || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(FuseError::BadName { name: name.into() });
        }
        if self.find(name).is_some() {
            return Err(FuseError::Exists { name: name.into() });
        }
        let ino = self.next_ino;
        self.next_ino += 1;
        let file = VolumeFile::new(ino, name.into(), volume);
        self.by_ino.insert(ino, Arc::new(file));
        Ok(())
    }

    /// Removes a file; fails with `Unknown`, or with `Busy` while it is open.
    pub(super) fn remove(
        &mut self,
        name: &str,
        directory: &Path,
    ) -> Result<Arc<VolumeFile>, FuseError> {
        let Some(file) = self.find(name) else {
            return Err(FuseError::Unknown { name: name.into() });
        };
        let (ino, open_count) = (file.ino, file.open_count());
        if open_count > 0 {
            return Err(FuseError::Busy {
                path: directory.join(name),
                open_count,
            });
        }
        Ok(self.by_ino.remove(&ino).expect("found above"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::BufferCache;
    use crate::mock::Mock;

    #[test]
    fn names_are_checked_and_inode_numbers_never_come_back() {
        let volume = Volume::new(Mock::of(4096), BufferCache::new(0));
        let mut table = Table::new();
        for name in ["", ".", "..", "a/b", "a\0", &"x".repeat(256)] {
            let error = table.add(name, volume.clone()).expect_err(name);
            assert!(matches!(error, FuseError::BadName { .. }));
        }
        table.add("vol", volume.clone()).unwrap();
        assert!(matches!(
            table.add("vol", volume.clone()),
            Err(FuseError::Exists { .. })
        ));
        let directory = Path::new("/mnt");
        let missing = table.remove("other", directory).map(drop);
        assert!(matches!(missing, Err(FuseError::Unknown { .. })));
        let first = table.find("vol").unwrap().clone();
        first.opened();
        let busy = table.remove("vol", directory).map(drop).unwrap_err();
        assert!(
            busy.to_string().contains("/mnt/vol is open 1 times"),
            "{busy}"
        );
        first.released();
        table.remove("vol", directory).unwrap();
        table.add("vol", volume).unwrap();
        assert_ne!(table.find("vol").unwrap().ino, first.ino);
        assert!(table.file(first.ino).is_none());
    }
}
