//! The spool: the protocol of request and response files between agent and responder (design 3).

pub mod answer;
pub mod calls;
pub mod claim;
pub mod clear;
pub mod directory;
pub mod fenced;
pub mod file;
pub mod json;
pub mod lock;
pub mod name;
pub mod place;
pub mod presence;
pub mod publish;
pub mod request;
pub mod response;
pub mod sweep;
pub mod system;
pub mod time;
pub mod waiting;
pub mod watch;
pub mod withdraw;

use std::path::Path;

use thiserror::Error;

use directory::{Directory, DirectoryFault, Role, Trust};

/// The two directories, opened and checked.
#[derive(Debug)]
pub struct Spool {
    /// Where requests are written.
    pub requests: Directory,
    /// Where responses are read.
    pub responses: Directory,
}

/// Why a spool can't be used on this node.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpoolFault {
    /// The requests' side.
    #[error("request_dir {0}")]
    Requests(DirectoryFault),
    /// The responses' side.
    #[error("response_dir {0}")]
    Responses(DirectoryFault),
    /// A response would look like a request.
    #[error("request_dir and response_dir are one directory: name two")]
    Same,
}

impl Spool {
    /// Opens both directories; creates nothing.
    ///
    /// # Errors
    /// When one is missing, unsafe or unusable, or both are one.
    pub fn open(requests: &Path, responses: &Path, trust: Trust) -> Result<Self, SpoolFault> {
        let spool = Self {
            requests: Directory::open(requests, Role::Requests, trust)
                .map_err(SpoolFault::Requests)?,
            responses: Directory::open(responses, Role::Responses, trust)
                .map_err(SpoolFault::Responses)?,
        };
        if spool.requests.is_same_as(&spool.responses) {
            Err(SpoolFault::Same)
        } else {
            Ok(spool)
        }
    }
}
