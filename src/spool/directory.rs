//! A spool directory that was checked for safety once and is then used through its descriptor.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::unistd::{AccessFlags, faccessat, geteuid};
use thiserror::Error;

use super::system::{uninterrupted, with_advice};
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
    pub(super) path: PathBuf,
    pub(super) status: FileStat,
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
        let needed = match role {
            Role::Requests => AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK,
            Role::Responses => AccessFlags::R_OK | AccessFlags::X_OK,
        };
        faccessat(&descriptor, ".", needed, AtFlags::AT_EACCESS).map_err(system)?;
        Self::from_descriptor(descriptor, path.to_owned()).map_err(system)
    }

    /// The directory that `descriptor` is open on, whose path is `path`.
    pub(super) fn from_descriptor(descriptor: OwnedFd, path: PathBuf) -> nix::Result<Self> {
        let status = fstat(&descriptor)?;
        Ok(Self {
            descriptor,
            path,
            status,
        })
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
