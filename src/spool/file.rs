//! Reads a small file of the spool without trusting what lies under its name.

use nix::errno::Errno;
use nix::sys::stat::FileStat;
use nix::unistd::geteuid;
use thiserror::Error;

use super::calls::{DirectoryCalls, FileCalls};
use super::system::with_advice;

/// Why a file under an expected name doesn't count (design 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FileFault {
    /// Nothing has that name.
    #[error("is not there")]
    Missing,
    /// A link could lead anywhere.
    #[error("is a symbolic link, not a file")]
    Link,
    /// A directory, FIFO, socket or device.
    #[error("is not a regular file")]
    NotRegular,
    /// Written by somebody whose word doesn't count.
    #[error(
        "belongs to user {0}, whose word doesn't count here: write it as root or as the owner of the directory"
    )]
    Owner(u32),
    /// More than fits.
    #[error("is larger than {0} bytes")]
    TooLarge(usize),
    /// It can't be read.
    #[error("can't be read: {}", with_advice(*.0))]
    System(Errno),
}

/// What a regular file held, and its status when it was opened.
#[derive(Debug)]
pub struct RegularFile {
    /// All bytes.
    pub bytes: Vec<u8>,
    /// Owner, times.
    pub status: FileStat,
}

/// Reads the regular file `name` in `directory`, at most `limit` bytes, opened without following a
/// link and without blocking, if its owner is root, this process's user where `or_me`, or the
/// owner of the directory (design 3.2).
///
/// # Errors
/// What of this is not so.
pub fn read_regular<D: DirectoryCalls>(
    directory: &D,
    name: &str,
    limit: usize,
    or_me: bool,
) -> Result<RegularFile, FileFault> {
    let file = directory.open_file(name).map_err(|error| match error {
        Errno::ENOENT => FileFault::Missing,
        Errno::ELOOP => FileFault::Link,
        // what open says of a socket, and of a device without a driver
        Errno::ENXIO | Errno::ENODEV => FileFault::NotRegular,
        error => FileFault::System(error),
    })?;
    let status = file.status().map_err(FileFault::System)?;
    if status.st_mode & nix::libc::S_IFMT != nix::libc::S_IFREG {
        return Err(FileFault::NotRegular);
    }
    let owner = status.st_uid;
    if owner != 0 && owner != directory.status().st_uid && !(or_me && owner == geteuid().as_raw()) {
        return Err(FileFault::Owner(owner));
    }
    if usize::try_from(status.st_size).is_ok_and(|size| size > limit) {
        return Err(FileFault::TooLarge(limit));
    }
    Ok(RegularFile {
        bytes: read_to_end(&file, limit)?,
        status,
    })
}

/// The file may grow while it is read, so the limit is kept here too.
fn read_to_end(file: &impl FileCalls, limit: usize) -> Result<Vec<u8>, FileFault> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 8192];
    loop {
        match file.read(&mut chunk).map_err(FileFault::System)? {
            0 => return Ok(bytes),
            length if bytes.len() + length > limit => return Err(FileFault::TooLarge(limit)),
            length => bytes.extend_from_slice(&chunk[..length]),
        }
    }
}
