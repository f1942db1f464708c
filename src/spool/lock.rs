//! The lock that a responder holds for its life, asked about without getting in its way.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, openat};
use nix::libc;
use nix::sys::stat::{Mode, fstat};

use super::calls::DirectoryCalls;
use super::directory::Directory;
use super::system::uninterrupted;

/// The file whose lock a responder holds, in request_dir (design 3.4).
pub const LOCK: &str = ".responder.lock";

const FLAGS: OFlag = OFlag::O_NOFOLLOW
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

/// A lock of an open file description; it ends with this value, or with the process.
#[derive(Debug)]
pub struct Lock {
    file: OwnedFd,
}

impl Lock {
    /// Locks the file `name` in `directory`, which is made (mode 0600, empty) where it is not
    /// there. `None` when somebody else holds it.
    ///
    /// # Errors
    /// What the system says.
    pub fn take(directory: &Directory, name: &str) -> nix::Result<Option<Self>> {
        let flags = FLAGS | OFlag::O_RDWR | OFlag::O_CREAT;
        let mode = Mode::from_bits_truncate(0o600);
        let file = uninterrupted(|| openat(directory, name, flags, mode))?;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file())) {
            Ok(_) => Ok(Some(Self { file })),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the locked file is still the one that others would lock.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        fstat(&self.file).is_ok_and(|status| status.st_nlink > 0)
    }

    /// Whether somebody holds the lock `name` in `directory`: asking takes no lock, so no responder
    /// that starts now finds it held by us.
    #[must_use]
    pub fn is_held(directory: &Directory, name: &str) -> bool {
        let Ok(file) = openat(directory, name, FLAGS | OFlag::O_RDONLY, Mode::empty()) else {
            return false;
        };
        let owned = fstat(&file).is_ok_and(|status| {
            status.st_mode & libc::S_IFMT == libc::S_IFREG
                && (status.st_uid == 0 || status.st_uid == directory.status().st_uid)
        });
        let mut lock = whole_file();
        owned
            && fcntl(file.as_fd(), FcntlArg::F_OFD_GETLK(&mut lock)).is_ok()
            && lock.l_type != lock_constant(libc::F_UNLCK)
    }
}

fn whole_file() -> libc::flock {
    libc::flock {
        l_type: lock_constant(libc::F_WRLCK),
        l_whence: lock_constant(libc::SEEK_SET),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// The constants of `struct flock` are declared wider than its fields on some platforms.
fn lock_constant(value: impl TryInto<libc::c_short>) -> libc::c_short {
    value.try_into().unwrap_or_default()
}
