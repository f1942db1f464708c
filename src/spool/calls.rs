//! The system calls that the protocol is made of, as traits, so that a test can put simulated
//! directories in the kernel's place and try every order of every process's calls.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use jiff::Timestamp;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, fsync, linkat, read, unlinkat, write};

use super::directory::Directory;
use super::system::uninterrupted;
use super::time::from_file_time;
use crate::text::one_line;

/// What the protocol does with a directory and its entries. Each method but the first three is one
/// system call, made again while signals interrupt it, and fails with what that fails with.
#[allow(clippy::missing_errors_doc)] // said above, once
pub trait DirectoryCalls: Sized {
    /// An open file.
    type File: FileCalls;

    /// The path it was opened by.
    fn path(&self) -> &Path;

    /// Its status when it was opened: owner, device, inode.
    fn status(&self) -> &FileStat;

    /// The path of `name` in it, for people to read.
    #[must_use]
    fn path_of(&self, name: &str) -> String {
        one_line(&self.path().join(name).to_string_lossy())
    }

    /// Opens `name` below this directory, which must be a directory itself and no link.
    fn open_below(&self, name: &str) -> nix::Result<Self>;

    /// Makes the directory `name`.
    fn make_below(&self, name: &str, mode: Mode) -> nix::Result<()>;

    /// Sets the directory's own mode.
    fn set_mode(&self, mode: Mode) -> nix::Result<()>;

    /// Makes the entries durable. A file system that can't sync directories (EINVAL) is taken as
    /// one that has nothing to sync.
    fn sync(&self) -> nix::Result<()>;

    /// Makes the file `name`, which must not be there, to be written.
    fn create(&self, name: &str, mode: Mode) -> nix::Result<Self::File>;

    /// Opens `name` to be read, without following a link and without blocking (design 3.2).
    fn open_file(&self, name: &str) -> nix::Result<Self::File>;

    /// Renames `name` to `new` in `to`, in place of what is there.
    fn rename(&self, name: &OsStr, to: &Self, new: &OsStr) -> nix::Result<()>;

    /// Renames `name` to `new` in `to` where nothing is there, else EEXIST; EINVAL, ENOSYS or
    /// EOPNOTSUPP where the file system can't promise that (NFS, some FUSE).
    fn rename_new(&self, name: &OsStr, to: &Self, new: &OsStr) -> nix::Result<()>;

    /// Gives the file `name` a second name, `new` in `to`, where nothing is there.
    fn link(&self, name: &str, to: &Self, new: &str) -> nix::Result<()>;

    /// Removes the entry `name`.
    fn remove(&self, name: &str) -> nix::Result<()>;

    /// The status of the entry `name` itself, be it a link.
    fn entry(&self, name: &OsStr) -> nix::Result<FileStat>;

    /// When the entry `name` was last written, if it is there.
    #[must_use]
    fn written(&self, name: &OsStr) -> Option<Timestamp> {
        self.entry(name).ok().map(|status| from_file_time(&status))
    }

    /// Calls `visit` with the name of each entry until it returns false.
    fn for_each_name(&self, visit: impl FnMut(&OsStr) -> bool) -> nix::Result<()>;

    /// Asks the file system's server, if it has one, for the directory as it is now, so that a
    /// cached "no such file" ends (design 3.3). False when the directory itself was removed.
    #[must_use]
    fn revalidate(&self) -> bool;
}

/// What the protocol does with an open file; each method is one system call, as above.
#[allow(clippy::missing_errors_doc)]
pub trait FileCalls {
    /// Sets its mode.
    fn set_mode(&self, mode: Mode) -> nix::Result<()>;

    /// Writes some of `bytes`, and says how many.
    fn write(&self, bytes: &[u8]) -> nix::Result<usize>;

    /// Makes its content durable.
    fn sync(&self) -> nix::Result<()>;

    /// Its status now.
    fn status(&self) -> nix::Result<FileStat>;

    /// Reads some bytes, 0 at its end.
    fn read(&self, buffer: &mut [u8]) -> nix::Result<usize>;
}

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

const NEW_FILE: OFlag = OFlag::O_WRONLY
    .union(OFlag::O_CREAT)
    .union(OFlag::O_EXCL)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

const FOREIGN_FILE: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

impl DirectoryCalls for Directory {
    type File = OwnedFd;

    fn path(&self) -> &Path {
        &self.path
    }

    fn status(&self) -> &FileStat {
        &self.status
    }

    fn open_below(&self, name: &str) -> nix::Result<Self> {
        let flags = DIRECTORY | OFlag::O_NOFOLLOW;
        let descriptor = uninterrupted(|| openat(self, name, flags, Mode::empty()))?;
        Self::from_descriptor(descriptor, self.path().join(name))
    }

    fn make_below(&self, name: &str, mode: Mode) -> nix::Result<()> {
        uninterrupted(|| mkdirat(self, name, mode))
    }

    fn set_mode(&self, mode: Mode) -> nix::Result<()> {
        uninterrupted(|| fchmod(self, mode))
    }

    fn sync(&self) -> nix::Result<()> {
        match uninterrupted(|| fsync(self)) {
            Err(Errno::EINVAL) => Ok(()),
            result => result,
        }
    }

    fn create(&self, name: &str, mode: Mode) -> nix::Result<OwnedFd> {
        uninterrupted(|| openat(self, name, NEW_FILE, mode))
    }

    fn open_file(&self, name: &str) -> nix::Result<OwnedFd> {
        uninterrupted(|| openat(self, name, FOREIGN_FILE, Mode::empty()))
    }

    fn rename(&self, name: &OsStr, to: &Self, new: &OsStr) -> nix::Result<()> {
        uninterrupted(|| renameat(self, name, to, new))
    }

    fn rename_new(&self, name: &OsStr, to: &Self, new: &OsStr) -> nix::Result<()> {
        let flags = RenameFlags::RENAME_NOREPLACE;
        uninterrupted(|| renameat2(self, name, to, new, flags))
    }

    fn link(&self, name: &str, to: &Self, new: &str) -> nix::Result<()> {
        uninterrupted(|| linkat(self, name, to, new, AtFlags::empty()))
    }

    fn remove(&self, name: &str) -> nix::Result<()> {
        uninterrupted(|| unlinkat(self, name, UnlinkatFlags::NoRemoveDir))
    }

    fn entry(&self, name: &OsStr) -> nix::Result<FileStat> {
        fstatat(self, name, AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    fn for_each_name(&self, mut visit: impl FnMut(&OsStr) -> bool) -> nix::Result<()> {
        let mut entries = Dir::openat(self, ".", DIRECTORY, Mode::empty())?;
        for entry in entries.iter() {
            if !visit(OsStr::from_bytes(entry?.file_name().to_bytes())) {
                break;
            }
        }
        Ok(())
    }

    fn revalidate(&self) -> bool {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        // a kernel without statx, or a server that doesn't answer, must not end the wait
        statx(self, "", flags, StatxFlags::NLINK).map_or(true, |now| now.stx_nlink > 0)
    }
}

impl FileCalls for OwnedFd {
    fn set_mode(&self, mode: Mode) -> nix::Result<()> {
        uninterrupted(|| fchmod(self, mode))
    }

    fn write(&self, bytes: &[u8]) -> nix::Result<usize> {
        uninterrupted(|| write(self, bytes))
    }

    fn sync(&self) -> nix::Result<()> {
        uninterrupted(|| fsync(self))
    }

    fn status(&self) -> nix::Result<FileStat> {
        fstat(self)
    }

    fn read(&self, buffer: &mut [u8]) -> nix::Result<usize> {
        uninterrupted(|| read(self, buffer))
    }
}
