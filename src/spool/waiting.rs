//! Every request of a spool that has no end yet: those that wait, and those that are claimed.

use std::collections::HashMap;

use nix::errno::Errno;
use thiserror::Error;

use super::calls::DirectoryCalls;
use super::directory::Directory;
use super::name::FileName;
use super::system::with_advice;
use super::withdraw::CLAIMED;

/// Where a request lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// In request_dir: nobody has taken it.
    Waiting,
    /// In `.claimed`: a responder has taken it (design 3.4).
    Claimed,
}

/// A directory of requests that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{path} can't be read: {}", with_advice(*.error))]
pub struct WaitingFault {
    /// Which.
    pub path: String,
    /// How it failed.
    pub error: Errno,
}

/// The names of the requests that `is_wanted` says yes to, in order, and where each lies.
///
/// # Errors
/// When a directory can't be read.
pub fn waiting(
    requests: &Directory,
    is_wanted: impl Fn(&FileName) -> bool,
) -> Result<Vec<(FileName, Where)>, WaitingFault> {
    let mut found = HashMap::new();
    let fault = |path, error| WaitingFault { path, error };
    let mut collect = |directory: &Directory, place| {
        let listed = directory.for_each_name(|name| {
            // one that is claimed at this moment may be seen twice: then it is claimed
            found.extend(
                FileName::parse(name)
                    .filter(&is_wanted)
                    .map(|name| (name, place)),
            );
            true
        });
        listed.map_err(|error| fault(directory.path_of(""), error))
    };
    collect(requests, Where::Waiting)?;
    match requests.open_below(CLAIMED) {
        Ok(claimed) => collect(&claimed, Where::Claimed)?,
        Err(Errno::ENOENT) => {}
        Err(error) => return Err(fault(requests.path_of(CLAIMED), error)),
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_unstable_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
    Ok(found)
}
