//! Takes a request back, whether it still waits or a responder has claimed it.

use nix::errno::Errno;
use thiserror::Error;

use super::calls::DirectoryCalls;
use super::system::with_advice;

/// Where responders move the requests they work on, below request_dir (design 3.4).
pub const CLAIMED: &str = ".claimed";

/// Where the withdrawn request was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawn {
    /// In request_dir: nobody had taken it.
    Waiting,
    /// In `.claimed`: a responder had taken it.
    Claimed,
    /// Nowhere: a responder removed it already, as nnf-sos does after its answer.
    Gone,
}

/// The request stays where it is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{path} can't be withdrawn: {}: remove it by hand, or a responder may still execute it", with_advice(*.error))]
pub struct WithdrawFault {
    /// The request.
    pub path: String,
    /// How it failed.
    pub error: Errno,
}

/// Removes the request `name` or the claim on it, and makes that durable (design 3.3).
///
/// # Errors
/// When it is there and can't be removed.
pub fn withdraw<D: DirectoryCalls>(requests: &D, name: &str) -> Result<Withdrawn, WithdrawFault> {
    if remove_durably(requests, name)? {
        return Ok(Withdrawn::Waiting);
    }
    match requests.open_below(CLAIMED) {
        Ok(claimed) if remove_durably(&claimed, name)? => Ok(Withdrawn::Claimed),
        Ok(_) | Err(Errno::ENOENT) => Ok(Withdrawn::Gone),
        Err(error) => Err(WithdrawFault {
            path: requests.path_of(CLAIMED),
            error,
        }),
    }
}

/// False when there was nothing to remove.
fn remove_durably<D: DirectoryCalls>(directory: &D, name: &str) -> Result<bool, WithdrawFault> {
    let fault = |error| WithdrawFault {
        path: directory.path_of(name),
        error,
    };
    match directory.remove(name) {
        Ok(()) => directory.sync().map(|()| true).map_err(fault),
        Err(Errno::ENOENT) => Ok(false),
        Err(error) => Err(fault(error)),
    }
}
