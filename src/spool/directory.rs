//! A spool directory that was checked for safety once and is then used through its descriptor.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, fsync, geteuid, unlinkat};
use thiserror::Error;

use super::system::{uninterrupted, with_advice};
use super::time::from_file_time;
use crate::text::one_line;

/// What a spool directory is for; their rules of ownership differ (design 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The agent writes here: root's or the agent's user's own.
    Requests,
    /// The responder writes here: anybody's own.
    Responses,
}

/// Whether a directory that others could change is taken all the same (`allow_insecure_dirs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// An unsafe directory is refused.
    Checked,
    /// Ownership and modes of directories don't count; what counts as a response stays as it is.
    Waived,
}

/// Why a directory can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DirectoryFault {
    /// It or one above it is not there.
    #[error("{} does not exist", one_line(&.0.to_string_lossy()))]
    Missing(PathBuf),
    /// Something else is in its place.
    #[error("{} is not a directory", one_line(&.0.to_string_lossy()))]
    NotADirectory(PathBuf),
    /// A path from the current directory means something else for every caller.
    #[error("{} is not an absolute path", one_line(&.0.to_string_lossy()))]
    Relative(PathBuf),
    /// Somebody else could change what is in it.
    #[error("{} {reason}", one_line(&path.to_string_lossy()))]
    Unsafe {
        /// The directory or link, on the way or at its end.
        path: PathBuf,
        /// What is wrong, and what mends it.
        reason: String,
    },
    /// A system call failed.
    #[error("{} can't be used: {}", one_line(&path.to_string_lossy()), with_advice(*.error))]
    System {
        /// Where.
        path: PathBuf,
        /// How.
        error: Errno,
    },
}

/// An open directory of the spool.
#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
    path: PathBuf,
    status: FileStat,
}

impl Directory {
    /// Opens `path`, walking from `/` through opened descriptors, so that what was checked is what
    /// is used, and checks on the way what design 4.2 calls safe.
    ///
    /// # Errors
    /// When it is missing, unsafe (unless `trust` waives that), or not usable for its `role`.
    pub fn open(path: &Path, role: Role, trust: Trust) -> Result<Self, DirectoryFault> {
        if !path.is_absolute() {
            return Err(DirectoryFault::Relative(path.to_owned()));
        }
        let found = Walk::new(role, trust)?.to(path)?;
        let system = |error| DirectoryFault::System {
            path: path.to_owned(),
            error,
        };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let descriptor =
            uninterrupted(|| openat(&found, ".", flags, Mode::empty())).map_err(system)?;
        let status = fstat(&descriptor).map_err(system)?;
        let needed = match role {
            Role::Requests => AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK,
            Role::Responses => AccessFlags::R_OK | AccessFlags::X_OK,
        };
        faccessat(&descriptor, ".", needed, AtFlags::AT_EACCESS).map_err(system)?;
        Ok(Self {
            descriptor,
            path: path.to_owned(),
            status,
        })
    }

    /// Opens `name` below this directory, which must be a directory itself and no link.
    ///
    /// # Errors
    /// What the system says, ENOENT where it doesn't exist.
    pub fn open_below(&self, name: &str) -> nix::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let descriptor = uninterrupted(|| openat(&self.descriptor, name, flags, Mode::empty()))?;
        let status = fstat(&descriptor)?;
        Ok(Self {
            descriptor,
            path: self.path.join(name),
            status,
        })
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of `name` in it, for people to read.
    #[must_use]
    pub fn path_of(&self, name: &str) -> String {
        one_line(&self.path.join(name).to_string_lossy())
    }

    /// Its status when it was opened: owner, device, inode.
    #[must_use]
    pub fn status(&self) -> &FileStat {
        &self.status
    }

    /// A path by which the kernel finds this very directory, whatever was renamed meanwhile.
    #[must_use]
    pub fn path_by_descriptor(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()))
    }

    /// Whether both are one directory.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        (self.status.st_dev, self.status.st_ino) == (other.status.st_dev, other.status.st_ino)
    }

    /// Makes the entries durable. A file system that can't sync directories (EINVAL) is taken as
    /// one that has nothing to sync.
    ///
    /// # Errors
    /// What fsync fails with.
    pub fn sync(&self) -> nix::Result<()> {
        match uninterrupted(|| fsync(&self.descriptor)) {
            Err(Errno::EINVAL) => Ok(()),
            result => result,
        }
    }

    /// Removes the entry `name`.
    ///
    /// # Errors
    /// What unlinkat fails with.
    pub fn remove(&self, name: &str) -> nix::Result<()> {
        uninterrupted(|| unlinkat(&self.descriptor, name, UnlinkatFlags::NoRemoveDir))
    }

    /// Asks the file system's server, if it has one, for the directory as it is now, so that a
    /// cached "no such file" ends (design 3.3). False when the directory itself was removed.
    #[must_use]
    pub fn revalidate(&self) -> bool {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        // a kernel without statx, or a server that doesn't answer, must not end the wait
        statx(&self.descriptor, "", flags, StatxFlags::NLINK).map_or(true, |now| now.stx_nlink > 0)
    }

    /// When the entry `name` was last written, if it is there.
    #[must_use]
    pub fn written(&self, name: &OsStr) -> Option<Timestamp> {
        let status = fstatat(&self.descriptor, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        status.ok().map(|status| from_file_time(&status))
    }

    /// Calls `visit` with the name of each entry until it returns false.
    ///
    /// # Errors
    /// What reading the directory fails with.
    pub fn for_each_name(&self, mut visit: impl FnMut(&OsStr) -> bool) -> nix::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut entries = Dir::openat(&self.descriptor, ".", flags, Mode::empty())?;
        for entry in entries.iter() {
            if !visit(OsStr::from_bytes(entry?.file_name().to_bytes())) {
                break;
            }
        }
        Ok(())
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// As many links as the kernel follows itself.
const MAX_LINKS: usize = 40;

/// A walk from `/` to a directory, one opened descriptor after the other.
struct Walk {
    role: Role,
    trust: Trust,
    at: OwnedFd,
    path: PathBuf,
    links: usize,
}

impl Walk {
    fn new(role: Role, trust: Trust) -> Result<Self, DirectoryFault> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let path = PathBuf::from("/");
        let at = uninterrupted(|| open(&path, flags, Mode::empty())).map_err(|error| {
            DirectoryFault::System {
                path: path.clone(),
                error,
            }
        })?;
        Ok(Self {
            role,
            trust,
            at,
            path,
            links: 0,
        })
    }

    fn to(mut self, path: &Path) -> Result<OwnedFd, DirectoryFault> {
        let mut ahead: VecDeque<OsString> = names_of(path).collect();
        self.check(ahead.is_empty())?;
        while let Some(name) = ahead.pop_front() {
            let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let next = uninterrupted(|| openat(&self.at, name.as_os_str(), flags, Mode::empty()))
                .map_err(|error| self.fault(&name, error))?;
            let status = fstat(&next).map_err(|error| self.fault(&name, error))?;
            match status.st_mode & nix::libc::S_IFMT {
                nix::libc::S_IFDIR => self.enter(next, &name, ahead.is_empty())?,
                nix::libc::S_IFLNK => self.follow(&next, &status, &name, &mut ahead)?,
                _ => return Err(self.fault(&name, Errno::ENOTDIR)),
            }
        }
        Ok(self.at)
    }

    fn enter(&mut self, next: OwnedFd, name: &OsStr, is_last: bool) -> Result<(), DirectoryFault> {
        self.at = next;
        if name == ".." {
            self.path.pop();
        } else {
            self.path.push(name);
        }
        self.check(is_last)
    }

    /// Puts a link's target in front of what is still ahead.
    fn follow(
        &mut self,
        link: &OwnedFd,
        status: &FileStat,
        name: &OsStr,
        ahead: &mut VecDeque<OsString>,
    ) -> Result<(), DirectoryFault> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(self.fault(name, Errno::ELOOP));
        }
        if self.trust == Trust::Checked && !is_root_or_me(status.st_uid) {
            let reason = format!(
                "is a link of user {}, who could turn it elsewhere: name its target",
                status.st_uid
            );
            return Err(DirectoryFault::Unsafe {
                path: self.path.join(name),
                reason,
            });
        }
        let target = readlinkat(link, "").map_err(|error| self.fault(name, error))?;
        let target = Path::new(&target);
        if target.is_absolute() {
            let root = Self::new(self.role, self.trust)?;
            (self.at, self.path) = (root.at, root.path);
        }
        for name in names_of(target).collect::<Vec<_>>().into_iter().rev() {
            ahead.push_front(name);
        }
        if ahead.is_empty() {
            self.check(true)?;
        }
        Ok(())
    }

    /// The rules of design 4.2 for the directory the walk is at.
    fn check(&self, is_last: bool) -> Result<(), DirectoryFault> {
        if self.trust == Trust::Waived {
            return Ok(());
        }
        let status = fstat(&self.at).map_err(|error| DirectoryFault::System {
            path: self.path.clone(),
            error,
        })?;
        let others_write = status.st_mode & 0o022 != 0;
        let sticky = status.st_mode & nix::libc::S_ISVTX != 0;
        let anybodys = is_last && self.role == Role::Responses;
        let reason = if !anybodys && !is_root_or_me(status.st_uid) {
            format!(
                "belongs to user {}, not to root: chown root it",
                status.st_uid
            )
        } else if others_write && (is_last || !sticky) {
            format!(
                "is writable by others (mode {:04o}): chmod go-w it",
                status.st_mode & 0o7777
            )
        } else {
            return Ok(());
        };
        Err(DirectoryFault::Unsafe {
            path: self.path.clone(),
            reason,
        })
    }

    fn fault(&self, name: &OsStr, error: Errno) -> DirectoryFault {
        let path = self.path.join(name);
        match error {
            Errno::ENOENT => DirectoryFault::Missing(path),
            Errno::ENOTDIR => DirectoryFault::NotADirectory(path),
            error => DirectoryFault::System { path, error },
        }
    }
}

fn names_of(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
}

fn is_root_or_me(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}
