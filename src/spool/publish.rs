//! Puts a file under its final name whole and durable, or not at all.

use nix::errno::Errno;
use nix::sys::stat::Mode;
use thiserror::Error;

use super::calls::{DirectoryCalls, FileCalls};
use super::name::FileName;
use super::system::with_advice;

/// The mode of every published file, whatever the umask: readers may run as anybody (design 3.1).
pub const MODE: Mode = Mode::from_bits_truncate(0o644);

/// Which step of publishing failed, on which path, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{path} can't be {step}: {}", with_advice(*.error))]
pub struct PublishFault {
    /// The file or directory of the step.
    pub path: String,
    /// What was being done with it.
    pub step: &'static str,
    /// How it failed.
    pub error: Errno,
}

/// Writes `bytes` as the file `name` in `directory` by the steps of design 3.1: a temporary file
/// that is new, its mode, all bytes, fsync, rename, fsync of the directory. Never replaces a file.
///
/// # Errors
/// The step that failed. Up to the rename nothing is left behind; if only the last sync failed,
/// the file is there and may not survive a power cut.
pub fn publish<D: DirectoryCalls>(
    directory: &D,
    name: &FileName,
    bytes: &[u8],
) -> Result<(), PublishFault> {
    let temporary = name.temporary();
    write_temporary(directory, &temporary, bytes, MODE)?;
    put_in_place(directory, &temporary, name.as_str(), rename_new)
}

/// Writes `bytes` as the file `name` of ours in `directory`, in place of the one that is there, by
/// the same steps. There must be one writer only: a temporary file that a killed one left is taken
/// away first.
///
/// # Errors
/// The step that failed; up to the rename the file is as it was.
pub fn replace<D: DirectoryCalls>(
    directory: &D,
    name: &str,
    bytes: &[u8],
    mode: Mode,
) -> Result<(), PublishFault> {
    let temporary = format!(".{name}.tmp");
    let _ = directory.remove(&temporary);
    write_temporary(directory, &temporary, bytes, mode)?;
    put_in_place(directory, &temporary, name, |directory, from, to| {
        directory.rename(from.as_ref(), directory, to.as_ref())
    })
}

fn put_in_place<D: DirectoryCalls>(
    directory: &D,
    temporary: &str,
    name: &str,
    rename: impl Fn(&D, &str, &str) -> nix::Result<()>,
) -> Result<(), PublishFault> {
    if let Err(error) = rename(directory, temporary, name) {
        let _ = directory.remove(temporary);
        return Err(PublishFault {
            path: directory.path_of(name),
            step: "renamed into place",
            error,
        });
    }
    directory.sync().map_err(|error| PublishFault {
        path: directory.path_of(""),
        step: "synced",
        error,
    })
}

fn write_temporary<D: DirectoryCalls>(
    directory: &D,
    temporary: &str,
    bytes: &[u8],
    mode: Mode,
) -> Result<(), PublishFault> {
    let fault = |step| {
        move |error| PublishFault {
            path: directory.path_of(temporary),
            step,
            error,
        }
    };
    let file = directory
        .create(temporary, mode)
        .map_err(fault("created"))?;
    let written = (file.set_mode(mode).map_err(fault("given its mode")))
        .and_then(|()| write_all(&file, bytes).map_err(fault("written")))
        .and_then(|()| file.sync().map_err(fault("synced")));
    if written.is_err() {
        let _ = directory.remove(temporary);
    }
    written
}

fn write_all(file: &impl FileCalls, mut bytes: &[u8]) -> nix::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes)? {
            0 => return Err(Errno::EIO),
            length => bytes = &bytes[length..],
        }
    }
    Ok(())
}

fn rename_new<D: DirectoryCalls>(directory: &D, from: &str, to: &str) -> nix::Result<()> {
    match directory.rename_new(from.as_ref(), directory, to.as_ref()) {
        // the file system doesn't know the flag (NFS, some FUSE): a link replaces nothing either
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
            directory.link(from, directory, to)?;
            directory.remove(from)
        }
        result => result,
    }
}
