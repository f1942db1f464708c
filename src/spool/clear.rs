//! Takes a response out of response_dir without losing it: whoever watches sees it removed.

use nix::errno::Errno;
use nix::sys::stat::FileStat;
use thiserror::Error;

use super::calls::DirectoryCalls;
use super::claim::open_or_make;
use super::directory::Directory;
use super::file::{FileFault, read_regular};
use super::name::FileName;
use super::publish::{MODE, PublishFault, replace};
use super::response::MAX_RESPONSE_BYTES;
use super::system::with_advice;

/// Where responses that an administrator took away are kept, below response_dir.
pub const CLEARED: &str = ".cleared";

/// As many responses of one name as are kept.
const MOST_OF_A_NAME: u8 = 9;

/// Why a response stays where it is.
#[derive(Debug, Error)]
pub enum ClearFault {
    /// A step failed.
    #[error("{path} can't be {step}: {}", with_advice(*.error))]
    System {
        /// Of what.
        path: String,
        /// Which.
        step: &'static str,
        /// How.
        error: Errno,
    },
    /// It can't be copied, where links can't be made.
    #[error("{path} {fault}")]
    Read {
        /// Which.
        path: String,
        /// Why.
        fault: FileFault,
    },
    /// Nor can its copy be written.
    #[error(transparent)]
    Copy(#[from] PublishFault),
}

/// Links the response `name` into `.cleared`, syncs that, and only then removes it: a rename would
/// not be a removal to nnf-sos. False when it was gone already.
///
/// # Errors
/// The step that failed; the response is in one of the two places, or in both.
pub fn clear(responses: &Directory, name: &FileName) -> Result<bool, ClearFault> {
    let fault = |path: String, step| move |error| ClearFault::System { path, step, error };
    let cleared = open_or_make(responses, CLEARED)
        .map_err(fault(responses.path_of(CLEARED), "made or opened"))?;
    match keep(responses, &cleared, name) {
        Ok(true) => {}
        Ok(false) => return Ok(false),
        Err(fault) => return Err(fault),
    }
    cleared
        .sync()
        .map_err(fault(responses.path_of(CLEARED), "synced"))?;
    match responses.remove(name.as_str()) {
        Ok(()) => {}
        Err(Errno::ENOENT) => return Ok(false),
        Err(error) => return Err(fault(responses.path_of(name.as_str()), "removed")(error)),
    }
    responses
        .sync()
        .map_err(fault(responses.path_of(""), "synced"))?;
    Ok(true)
}

/// Has the response in `cleared` too, under its name or, where an earlier one has that, beside it;
/// false when it is gone.
fn keep(responses: &Directory, cleared: &Directory, name: &FileName) -> Result<bool, ClearFault> {
    let name = name.as_str();
    let is_same =
        |one: &FileStat, other: &FileStat| (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino);
    let fresh = (1..MOST_OF_A_NAME).map(|number| format!("{name}.{number}"));
    for new in std::iter::once(name.to_owned()).chain(fresh) {
        match responses.link(name, cleared, &new) {
            Ok(()) => return Ok(true),
            Err(Errno::ENOENT) => return Ok(false),
            Err(Errno::EEXIST) => {
                // one that was cut off after the link
                let both =
                    (responses.entry(name.as_ref()).ok()).zip(cleared.entry(new.as_ref()).ok());
                if both.is_some_and(|(one, other)| is_same(&one, &other)) {
                    return Ok(true);
                }
            }
            // the file system has no links
            Err(Errno::EPERM | Errno::EOPNOTSUPP | Errno::ENOSYS) => {
                return copy(responses, cleared, name);
            }
            Err(error) => {
                let path = responses.path_of(name);
                let step = "linked into .cleared";
                return Err(ClearFault::System { path, step, error });
            }
        }
    }
    let path = cleared.path_of(name);
    let step = "kept beside the earlier ones of its name: move those away";
    let error = Errno::EEXIST;
    Err(ClearFault::System { path, step, error })
}

fn copy(responses: &Directory, cleared: &Directory, name: &str) -> Result<bool, ClearFault> {
    match read_regular(responses, name, MAX_RESPONSE_BYTES, true) {
        Ok(file) => {
            replace(cleared, name, &file.bytes, MODE)?;
            Ok(true)
        }
        Err(FileFault::Missing) => Ok(false),
        Err(fault) => {
            let path = responses.path_of(name);
            Err(ClearFault::Read { path, fault })
        }
    }
}
