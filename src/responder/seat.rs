//! The spool as the one responder that holds its lock sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::errno::Errno;
use thiserror::Error;

use super::config::Config;
use crate::spool::answer::ANSWERS;
use crate::spool::calls::DirectoryCalls;
use crate::spool::claim::{Claims, open_or_make};
use crate::spool::directory::{Directory, DirectoryFault, Role, Trust};
use crate::spool::lock::{LOCK, Lock};
use crate::spool::name::FileName;
use crate::spool::presence::Responder;
use crate::spool::publish::PublishFault;
use crate::spool::response::{Response, ResponseFault};
use crate::spool::system::with_advice;
use crate::spool::time::timestamp_text;
use crate::spool::watch::{Interest, Watch};
use crate::spool::withdraw;
use crate::spool::{Spool, SpoolFault};

/// How long a responder waits for another one to let go of the spool (design 3.4).
pub const LOCK_TIME: Duration = Duration::from_secs(5);

/// The pause between two tries.
pub const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The spool's directories and its lock.
#[derive(Debug)]
pub struct Seat {
    /// The two directories of the protocol.
    pub spool: Spool,
    /// Those of claims.
    pub claims: Claims,
    /// That of people's answers.
    pub answers: Directory,
    lock: Arc<Lock>,
}

/// Why a responder can't serve a spool.
#[derive(Debug, Error)]
pub enum SeatFault {
    /// It isn't there, or isn't safe.
    #[error(
        "{0}: create the directories for the responder's user alone (install -d -m 0755), or let systemd's RuntimeDirectory= do it"
    )]
    Spool(#[from] SpoolFault),
    /// Something below request_dir can't be used.
    #[error("{path} can't be used: {}", with_advice(*.error))]
    Below {
        /// What.
        path: String,
        /// How.
        error: Errno,
    },
    /// Another responder serves it.
    #[error("another responder serves {0}: one spool has one responder")]
    Taken(String),
}

/// The order of the directories in [`Seat::watch`].
pub const REQUESTS: usize = 0;
/// See [`REQUESTS`].
pub const CLAIMED: usize = 1;
/// See [`REQUESTS`].
pub const ANSWERED: usize = 2;

impl Seat {
    /// Takes the lock of the spool and makes what a responder needs in it.
    ///
    /// # Errors
    /// When the spool isn't usable, or another responder has it.
    pub fn take(config: &Config) -> Result<Self, SeatFault> {
        Self::open(config, None)
    }

    /// The spool that is under the paths now; where its lock is still ours, nobody gets in between.
    ///
    /// # Errors
    /// As [`Seat::take`].
    pub fn renew(&self, config: &Config) -> Result<Self, SeatFault> {
        Self::open(config, Some(self))
    }

    fn open(config: &Config, old: Option<&Self>) -> Result<Self, SeatFault> {
        let spool = Spool::open(&config.request_dir, &config.response_dir, Trust::Checked)?;
        let held = old
            .filter(|old| old.spool.requests.is_same_as(&spool.requests) && old.lock.is_in_place());
        let below = |name: &str, error| SeatFault::Below {
            path: spool.requests.path_of(name),
            error,
        };
        let lock = match held {
            Some(old) => Arc::clone(&old.lock),
            None => Lock::take(&spool.requests, LOCK)
                .map_err(|error| below(LOCK, error))?
                .map(Arc::new)
                .ok_or_else(|| SeatFault::Taken(spool.requests.path_of("")))?,
        };
        let claims = Claims::open(&spool.requests).map_err(|(name, error)| below(name, error))?;
        let answers =
            open_or_make(&spool.requests, ANSWERS).map_err(|error| below(ANSWERS, error))?;
        Ok(Self {
            spool,
            claims,
            answers,
            lock,
        })
    }

    /// Like [`Seat::take`], and waits up to [`LOCK_TIME`] for a responder that just ends. `go_on`
    /// says whether it is worth it.
    ///
    /// # Errors
    /// As [`Seat::take`].
    pub fn take_patiently(config: &Config, go_on: impl Fn() -> bool) -> Result<Self, SeatFault> {
        let end = Instant::now() + LOCK_TIME;
        loop {
            match Self::take(config) {
                Err(SeatFault::Taken(_)) if Instant::now() < end && go_on() => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                result => return result,
            }
        }
    }

    /// Whether the paths still lead here: a directory that was removed and made again is another
    /// spool, with a lock of its own.
    #[must_use]
    pub fn is_in_place(&self, config: &Config) -> bool {
        let is_same = match Spool::open(&config.request_dir, &config.response_dir, Trust::Checked) {
            Ok(now) => {
                now.requests.is_same_as(&self.spool.requests)
                    && now.responses.is_same_as(&self.spool.responses)
            }
            // no descriptor to be had, say: that is no other spool
            Err(
                SpoolFault::Requests(DirectoryFault::System { .. })
                | SpoolFault::Responses(DirectoryFault::System { .. }),
            ) => true,
            Err(_) => false,
        };
        is_same
            && self.lock.is_in_place()
            && self.is_below(withdraw::CLAIMED, &self.claims.claimed)
            && self.is_below(ANSWERS, &self.answers)
    }

    /// Whether `name` in request_dir is this directory still.
    fn is_below(&self, name: &str, directory: &Directory) -> bool {
        match self.spool.requests.open_below(name) {
            Ok(now) => now.is_same_as(directory),
            Err(error) => !matches!(error, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP),
        }
    }

    /// A watch on all that is news to a responder. response_dir is watched for nothing but its end:
    /// while any watch on it lasts, the agents' own are taken down up to 20 ms faster.
    #[must_use]
    pub fn watch(&self) -> (Watch, Option<Errno>) {
        Watch::on(&[
            (&self.spool.requests, Interest::WholeArrivals),
            (&self.claims.claimed, Interest::Departures),
            (&self.answers, Interest::WholeArrivals),
            (&self.spool.responses, Interest::Nothing),
        ])
    }

    /// Says who serves this spool, and which nodes (design 3.4).
    ///
    /// # Errors
    /// See [`Responder::publish`].
    pub fn introduce(&self, config: &Config, started: Timestamp) -> Result<(), PublishFault> {
        let responder = Responder {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: timestamp_text(started),
            nodes: config.nodes(),
            state_dir: Some(config.state_dir.clone()),
        };
        responder.publish(&self.spool.requests)
    }

    /// Whether agents look for answers where this seat writes them: a directory may have been moved
    /// away, or mounted over.
    #[must_use]
    pub fn reaches_agents(&self) -> bool {
        let path = self.spool.responses.path();
        match Directory::open(path, Role::Responses, Trust::Checked) {
            Ok(now) => now.is_same_as(&self.spool.responses),
            Err(fault) => matches!(fault, DirectoryFault::System { .. }),
        }
    }

    /// The answer that is there already, if it counts.
    ///
    /// # Errors
    /// Why none counts.
    pub fn answer_to(&self, name: &FileName) -> Result<Response, ResponseFault> {
        Response::read(&self.spool.responses, name)
    }

    /// Publishes the answer to the request `name`. What a killed responder left half-written is
    /// taken away; an answer that is there stays (design 3.4).
    ///
    /// # Errors
    /// The step that failed; EEXIST where a file of that name is there.
    pub fn publish(&self, response: &Response, name: &FileName) -> Result<(), PublishFault> {
        let _ = self.spool.responses.remove(&name.temporary());
        response.publish(&self.spool.responses, name)
    }
}
