//! How a responder takes requests for itself: claims, and what doesn't count put aside.

use std::ffi::{OsStr, OsString};

use nix::errno::Errno;
use nix::sys::stat::Mode;

use super::calls::DirectoryCalls;
use super::directory::Directory;
use super::name::FileName;
use super::withdraw::CLAIMED;

/// Where a responder moves what is no request that counts, below request_dir (design 3.2).
pub const REJECTED: &str = ".rejected";

/// The mode of the directories below request_dir.
const MODE: Mode = Mode::from_bits_truncate(0o755);

/// The directories of a responder below request_dir (design 3.4).
#[derive(Debug)]
pub struct Claims<D = Directory> {
    /// The claimed requests.
    pub claimed: D,
}

/// What became of an attempt to claim a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// It is ours.
    Ours,
    /// It was withdrawn, or somebody else was first.
    Gone,
    /// A claim of that very name is being worked on.
    Again,
}

impl<D: DirectoryCalls> Claims<D> {
    /// Opens them, and makes those that are not there; `.rejected` too, so that a
    /// fault of it shows at once.
    ///
    /// # Errors
    /// What the system says, and of which name.
    pub fn open(requests: &D) -> Result<Self, (&'static str, Errno)> {
        let open = |name| open_or_make(requests, name).map_err(|error| (name, error));
        let claimed = open(CLAIMED)?;
        open(REJECTED)?;
        Ok(Self { claimed })
    }

    /// Claims the request `name`: whoever renames it has it.
    ///
    /// # Errors
    /// What the system says; the request stays where it is.
    pub fn take(&self, requests: &D, name: &FileName) -> nix::Result<Claimed> {
        let name = OsStr::new(name.as_str());
        match rename(requests, &self.claimed, name, name) {
            Ok(()) => Ok(Claimed::Ours),
            // over NFS a rename can succeed and report that; such a claim is found and adopted
            Err(Errno::ENOENT) => Ok(Claimed::Gone),
            Err(Errno::EEXIST) => Ok(Claimed::Again),
            Err(error) => Err(error),
        }
    }

    /// Whether the claim is still there: its agent withdraws it by removing it (design 3.4).
    ///
    /// # Errors
    /// When that can't be said.
    pub fn holds(&self, name: &FileName) -> nix::Result<bool> {
        // a server's word, not a cached one
        let _ = self.claimed.revalidate();
        match self.claimed.entry(name.as_str().as_ref()) {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a claim that was answered; false when its agent was first.
    ///
    /// # Errors
    /// What the system says.
    pub fn release(&self, name: &FileName) -> nix::Result<bool> {
        match self.claimed.remove(name.as_str()) {
            Ok(()) => self.claimed.sync().map(|()| true),
            Err(Errno::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Puts the file `name` of `from` aside, under a name that isn't taken yet; false when it is
    /// gone. Whoever has looked through what was put aside may have cleared it away with its
    /// directory, so that is opened each time.
    ///
    /// # Errors
    /// What the system says.
    pub fn reject(requests: &D, from: &D, name: &OsStr) -> nix::Result<bool> {
        let rejected = open_or_make(requests, REJECTED)?;
        // the name itself could have no room for more
        let fresh = OsString::from(format!("{}.json", uuid::Uuid::new_v4()));
        let result = match rename(from, &rejected, name, name) {
            Err(Errno::EEXIST) => rename(from, &rejected, name, &fresh),
            result => result,
        };
        match result {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Opens `name` below request_dir, or makes it with mode 0755 first, whatever the umask.
///
/// # Errors
/// What the system says.
pub fn open_or_make<D: DirectoryCalls>(requests: &D, name: &str) -> nix::Result<D> {
    match requests.open_below(name) {
        Err(Errno::ENOENT) => {
            match requests.make_below(name, MODE) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(error) => return Err(error),
            }
            let made = requests.open_below(name)?;
            made.set_mode(MODE)?;
            Ok(made)
        }
        opened => opened,
    }
}

/// Renames, and never replaces a file.
fn rename<D: DirectoryCalls>(from: &D, to: &D, name: &OsStr, new: &OsStr) -> nix::Result<()> {
    match from.rename_new(name, to, new) {
        // the file system doesn't know the flag (NFS, some FUSE): look first; nobody but the one
        // responder moves files into these directories
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => match to.entry(new) {
            Err(Errno::ENOENT) => from.rename(name, to, new),
            Ok(_) => Err(Errno::EEXIST),
            Err(error) => Err(error),
        },
        result => result,
    }
}
