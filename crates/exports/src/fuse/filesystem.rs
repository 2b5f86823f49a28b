//! The kernel's questions, answered from the table of files.

use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use strake_engine::block::Operation;

use super::file::VolumeFile;
use super::table::{ROOT_INO, Table};

/// Largest read or write of the kernel, bytes: what `fs.fuse.max_pages_limit` allows by default.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Asynchronous requests (direct I/O of the loop device, read-ahead) that the kernel keeps with
/// us at a time.
const BACKGROUND_MAX: u16 = 256;
/// How long the kernel may believe a name without asking.
const NAME_TTL: Duration = Duration::from_secs(1);
/// How long the kernel may believe a file's attributes, which never change.
const ATTR_TTL: Duration = Duration::from_secs(60);
/// What there is of `fallocate` modes: `linux/falloc.h`.
const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE;
const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE;

/// What the mount's handle and the threads that serve it share.
pub(super) struct Shared {
    table: RwLock<Table>,
    started: SystemTime,
    owner: (u32, u32),
}

impl Shared {
    /// An empty directory that belongs to whoever runs this process.
    pub(super) fn new() -> Shared {
        Shared {
            table: RwLock::new(Table::new()),
            started: SystemTime::now(),
            owner: (
                rustix::process::geteuid().as_raw(),
                rustix::process::getegid().as_raw(),
            ),
        }
    }

    /// The files, to look at. Never held during I/O.
    pub(super) fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files, to change.
    pub(super) fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file `ino`; `ESTALE` when it was removed, which makes the kernel look the name up
    /// again.
    fn file(&self, ino: INodeNo) -> Result<Arc<VolumeFile>, Errno> {
        match self.table().file(ino.0) {
            Some(file) => Ok(Arc::clone(file)),
            None if ino.0 == ROOT_INO => Err(Errno::EISDIR),
            None => Err(Errno::ESTALE),
        }
    }

    fn attr(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        if ino.0 == ROOT_INO {
            return Ok(self.directory());
        }
        Ok(self.attr_of(&*self.file(ino)?))
    }

    fn directory(&self) -> FileAttr {
        FileAttr {
            ino: INodeNo(ROOT_INO),
            size: 0,
            blocks: 0,
            atime: self.started,
            mtime: self.started,
            ctime: self.started,
            crtime: self.started,
            kind: FileType::Directory,
            perm: 0o700,
            nlink: 2,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn attr_of(&self, file: &VolumeFile) -> FileAttr {
        let info = file.info();
        FileAttr {
            ino: INodeNo(file.ino),
            size: info.size_bytes,
            blocks: info.size_bytes / 512,
            kind: FileType::RegularFile,
            perm: if info.read_only { 0o400 } else { 0o600 },
            nlink: 1,
            blksize: info.block_size_bytes.max(4096),
            ..self.directory()
        }
    }
}

/// The file system as fuser drives it, on several threads.
pub(super) struct VolumeFilesystem(pub(super) Arc<Shared>);

/// Answers with `$value` or lets `$reply` carry the error.
macro_rules! or_error {
    ($value:expr, $reply:expr) => {
        match $value {
            Ok(value) => value,
            Err(errno) => return $reply.error(errno),
        }
    };
}

fn empty(reply: ReplyEmpty) -> Box<dyn FnOnce(Result<(), i32>) + Send> {
    Box::new(move |result| match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(Errno::from_i32(errno)),
    })
}

impl Filesystem for VolumeFilesystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that offers less gets what it offers: the call says the nearest it takes.
        if let Err(nearest) = config.set_max_write(TRANSFER_BYTES_MAX) {
            let _ = config.set_max_write(nearest);
        }
        if let Err(nearest) = config.set_max_readahead(TRANSFER_BYTES_MAX) {
            let _ = config.set_max_readahead(nearest);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX / 4 * 3);
        for wish in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            if let Err(missing) = config.add_capabilities(wish) {
                tracing::debug!(?missing, "FUSE without");
            }
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent.0 != ROOT_INO {
            return reply.error(Errno::ENOTDIR);
        }
        let file = name
            .to_str()
            .and_then(|name| self.0.table().find(name).cloned());
        let Some(file) = file else {
            return reply.error(Errno::ENOENT);
        };
        let attr = self.0.attr_of(&file);
        reply.entry_with_ttls(&ATTR_TTL, &NAME_TTL, &attr, Generation(0));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let attr = or_error!(self.0.attr(ino), reply);
        reply.attr(&ATTR_TTL, &attr);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let attr = or_error!(self.0.attr(ino), reply);
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        // Never pretended: who truncates a file to nothing may count on zeroes afterwards.
        if size.is_some_and(|size| size != attr.size) {
            return reply.error(Errno::EINVAL);
        }
        reply.attr(&ATTR_TTL, &attr);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        // Counted under the table's lock: a removal sees this user or comes first.
        let table = self.0.table();
        let Some(file) = table.file(ino.0) else {
            return reply.error(Errno::ESTALE);
        };
        if file.info().read_only && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        file.opened();
        let mut how = FopenFlags::FOPEN_NOFLUSH;
        if flags.0 & libc::O_DIRECT != 0 {
            how |= FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        }
        reply.opened(FileHandle(0), how);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(file) = self.0.table().file(ino.0) {
            file.released();
        }
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = or_error!(self.0.file(ino), reply);
        let done = move |result: Result<&[u8], i32>| match result {
            Ok(bytes) => reply.data(bytes),
            Err(errno) => reply.error(Errno::from_i32(errno)),
        };
        file.read(offset, size, Box::new(done));
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = or_error!(self.0.file(ino), reply);
        // The kernel follows a cached synchronous write with an fsync, a direct one not always.
        let durable = flags.0 & libc::O_DSYNC != 0;
        let done = move |result: Result<u32, i32>| match result {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(Errno::from_i32(errno)),
        };
        file.write(offset, data, durable, Box::new(done));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Asked at close(2); everything was written through already.
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let file = or_error!(self.0.file(ino), reply);
        file.flush(empty(reply));
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let file = or_error!(self.0.file(ino), reply);
        let past_end = offset.saturating_add(length) > file.info().size_bytes;
        let operation = match mode & !KEEP_SIZE {
            // A file that can not grow has no room behind its end.
            0 | ZERO_RANGE if past_end && mode & KEEP_SIZE == 0 => {
                return reply.error(Errno::ENOSPC);
            }
            0 => return reply.ok(),
            PUNCH_HOLE if mode & KEEP_SIZE != 0 => Operation::Discard,
            ZERO_RANGE => Operation::WriteZeroes,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        file.clear(operation, offset, length, empty(reply));
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino.0 != ROOT_INO {
            return reply.error(Errno::ENOTDIR);
        }
        // An entry's offset is where the next one starts: 1, 2, then inode number + 1.
        let table = self.0.table();
        let dots =
            [(1, "."), (2, "..")].map(|(at, name)| (ROOT_INO, at, FileType::Directory, name));
        let files = table
            .files()
            .map(|file| (file.ino, file.ino + 1, FileType::RegularFile, &*file.name));
        for (ino, next, kind, name) in dots.into_iter().chain(files) {
            if next > offset && reply.add(INodeNo(ino), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let table = self.0.table();
        // The loop device takes a file's block size from here for its discards.
        let block = match table.file(ino.0) {
            Some(file) => file.info().block_size_bytes,
            None => 4096,
        };
        let bytes: u64 = table.files().map(|file| file.info().size_bytes).sum();
        let files = table.files().count() as u64;
        reply.statfs(bytes / u64::from(block), 0, 0, files, 0, block, 255, block);
    }
}
