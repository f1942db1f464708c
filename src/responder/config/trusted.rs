//! Reads the configuration and secrets from files, and takes programs, that nobody else could have
//! changed.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::fstatat;
use nix::unistd::geteuid;
use thiserror::Error;

use crate::spool::calls::DirectoryCalls;
use crate::spool::directory::{Directory, DirectoryFault, Role, Trust};
use crate::spool::file::{FileFault, read_regular};
use crate::text::one_line;

/// The most bytes of a configuration or secret file.
const MAX_BYTES: usize = 1024 * 1024;

/// As many links as the kernel follows itself.
const MAX_LINKS: usize = 40;

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrecy {
    /// Anybody.
    Open,
    /// Its owner alone.
    Secret,
}

/// Why a file isn't taken.
#[derive(Debug, Error)]
#[error("{} {reason}", one_line(&path.to_string_lossy()))]
pub struct TrustFault {
    /// Which.
    pub path: PathBuf,
    reason: Reason,
}

#[derive(Debug, Error)]
enum Reason {
    #[error("is not an absolute path")]
    Relative,
    #[error("is in a directory that can't be used: {0}")]
    Directory(DirectoryFault),
    #[error("is in a directory that belongs to user {0}: chown it to root")]
    DirectoryOwner(u32),
    #[error("is a link of user {0}, who could turn it elsewhere: name its target")]
    LinkOwner(u32),
    #[error("{0}")]
    File(FileFault),
    #[error("belongs to user {0}: chown it to root")]
    Owner(u32),
    #[error("is writable by others (mode {0:04o}): chmod go-w it")]
    Writable(u32),
    #[error("is a secret that others can read (mode {0:04o}): chmod 0600 it")]
    Readable(u32),
    #[error("is not UTF-8")]
    Encoding,
}

/// The text of the file at `path`, if root or this process's user alone can have written it, here
/// or in any directory on the way, and, if it is a secret, nobody else can read it. Links are
/// followed, if nobody else can turn them.
///
/// # Errors
/// What of this is not so.
pub fn read_trusted(path: &Path, secrecy: Secrecy) -> Result<String, TrustFault> {
    read(path, secrecy).map_err(|reason| TrustFault {
        path: path.to_owned(),
        reason,
    })
}

/// Whether the file at `path` is a program that nobody else could have changed: it is run as the
/// responder's user.
///
/// # Errors
/// What of this is not so.
pub fn check_program(path: &Path) -> Result<(), TrustFault> {
    check(path).map_err(|reason| TrustFault {
        path: path.to_owned(),
        reason,
    })
}

fn check(path: &Path) -> Result<(), Reason> {
    if !path.is_absolute() {
        return Err(Reason::Relative);
    }
    let (directory, name) = find(path)?;
    let status = fstatat(&directory, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
    let status = status.map_err(|error| {
        Reason::File(match error {
            Errno::ENOENT => FileFault::Missing,
            error => FileFault::System(error),
        })
    })?;
    if status.st_mode & nix::libc::S_IFMT != nix::libc::S_IFREG {
        return Err(Reason::File(FileFault::NotRegular));
    }
    is_untouched(status.st_uid, status.st_mode & 0o7777)
}

/// Whether nobody else could have written a file with this owner and mode.
fn is_untouched(owner: u32, mode: u32) -> Result<(), Reason> {
    if !is_trusted(owner) {
        return Err(Reason::Owner(owner));
    }
    if mode & 0o022 != 0 {
        return Err(Reason::Writable(mode));
    }
    Ok(())
}

fn read(path: &Path, secrecy: Secrecy) -> Result<String, Reason> {
    if !path.is_absolute() {
        return Err(Reason::Relative);
    }
    let (directory, name) = find(path)?;
    let file = read_regular(&directory, &name, MAX_BYTES, true).map_err(Reason::File)?;
    let (owner, mode) = (file.status.st_uid, file.status.st_mode & 0o7777);
    is_untouched(owner, mode)?;
    if secrecy == Secrecy::Secret && mode & 0o044 != 0 {
        return Err(Reason::Readable(mode));
    }
    String::from_utf8(file.bytes).map_err(|_| Reason::Encoding)
}

/// The directory and name to which `path` leads. Whoever can turn a link on the way, or replace a
/// file there, decides what is read, so that each directory and link is looked at.
fn find(path: &Path) -> Result<(Directory, String), Reason> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
        else {
            return Err(Reason::File(FileFault::NotRegular));
        };
        let directory =
            Directory::open(parent, Role::Responses, Trust::Checked).map_err(Reason::Directory)?;
        let owner = directory.status().st_uid;
        if !is_trusted(owner) {
            return Err(Reason::DirectoryOwner(owner));
        }
        let Ok(target) = readlinkat(&directory, name) else {
            return Ok((directory, name.to_owned()));
        };
        let link = fstatat(&directory, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        match link.map(|link| link.st_uid) {
            Ok(owner) if is_trusted(owner) => path = parent.join(target),
            Ok(owner) => return Err(Reason::LinkOwner(owner)),
            Err(error) => return Err(Reason::File(FileFault::System(error))),
        }
    }
    Err(Reason::File(FileFault::System(Errno::ELOOP)))
}

fn is_trusted(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}
