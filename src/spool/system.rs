//! What every system call of the spool needs: another try after EINTR, and advice for an error.

use nix::errno::Errno;

/// Calls `call` until it ends otherwise than interrupted by a signal.
///
/// # Errors
/// Whatever else `call` fails with.
pub fn uninterrupted<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

/// What `error` says, and what to do about it where that can be said.
#[must_use]
pub fn with_advice(error: Errno) -> String {
    let advice = match error {
        Errno::ENOSPC => "free space or inodes on that file system",
        Errno::EDQUOT => "raise or free the quota on that file system",
        Errno::EROFS => "mount that file system read-write",
        Errno::EACCES | Errno::EPERM => "run as root, or give the agent's user access",
        Errno::EMFILE | Errno::ENFILE => "raise the limit of open files",
        Errno::EIO => "check the disk and the kernel log",
        Errno::ESTALE => "check the network file system and its server",
        Errno::EFBIG => "raise the limit of file sizes (ulimit -f)",
        _ => return error.desc().to_owned(),
    };
    format!("{}: {advice}", error.desc())
}
