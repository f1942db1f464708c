//! The jobs whose tasks don't run yet: they wait for their turn, or for a person.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use super::job::{Claim, Job};
use crate::spool::name::FileName;
use crate::spool::request::Request;

/// Jobs in the order in which they came.
#[derive(Debug, Default)]
pub struct Pending {
    jobs: VecDeque<Job>,
    /// The names of all their claims by their ids, to tell at once whether a file is one.
    names: HashMap<String, String>,
}

impl Pending {
    /// Takes in a job.
    pub fn push(&mut self, job: Job) {
        self.names.extend(job.claims.iter().map(id_and_name));
        self.jobs.push_back(job);
    }

    /// All of them.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether one of them has the claim `name`.
    #[must_use]
    pub fn holds(&self, name: &str) -> bool {
        FileName::parse(name.as_ref())
            .is_some_and(|name| self.name_of(name.request_id()) == Some(name.as_str()))
    }

    /// The name of the claim with this id, if one of them has it.
    #[must_use]
    pub fn name_of(&self, id: &str) -> Option<&str> {
        self.names.get(id).map(String::as_str)
    }

    /// The job that has the claim `name`.
    pub fn holder_of(&mut self, name: &str) -> Option<&mut Job> {
        if !self.holds(name) {
            return None;
        }
        let has = |job: &&mut Job| job.claims.iter().any(|claim| claim.name.as_str() == name);
        self.jobs.iter_mut().find(has)
    }

    /// Adds the claim to the job that it can join (design 3.4).
    ///
    /// # Errors
    /// The claim, if there is none.
    #[allow(clippy::result_large_err)]
    pub fn join(&mut self, claim: Claim) -> Result<&mut Job, Claim> {
        let is_same = |job: &&mut Job| {
            job.verdict.is_none() && !has_begun(job) && job.asks_for_the_same_as(&claim.request)
        };
        match self.jobs.iter_mut().find(is_same) {
            Some(job) => {
                self.names.extend([id_and_name(&claim)]);
                job.join(claim);
                Ok(job)
            }
            None => Err(claim),
        }
    }

    /// Takes out the first job that `is_wanted` says yes to.
    pub fn take(&mut self, is_wanted: impl FnMut(&Job) -> bool) -> Option<Job> {
        let at = self.jobs.iter().position(is_wanted)?;
        let job = self.jobs.remove(at)?;
        for claim in &job.claims {
            self.names.remove(claim.name.request_id());
        }
        Some(job)
    }

    /// Calls `look` with each job, which may change it; names that are no claims of theirs any more
    /// are forgotten.
    pub fn for_each(&mut self, mut look: impl FnMut(&mut Job)) {
        for job in &mut self.jobs {
            look(job);
        }
        let claims = self.jobs.iter().flat_map(|job| &job.claims);
        self.names = claims.map(id_and_name).collect();
    }

    /// When the first of them is too late to be started.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        let undecided = self.jobs.iter().filter(|job| job.verdict.is_none());
        undecided
            .filter_map(|job| Some(job.last_claim()?.latest_start()))
            .min()
    }
}

fn id_and_name(claim: &Claim) -> (String, String) {
    (claim.name.request_id().to_owned(), claim.name.to_string())
}

/// A resumed job whose tasks an earlier responder had begun.
fn has_begun(job: &Job) -> bool {
    job.record
        .tasks
        .iter()
        .any(|task| !task.attempts.is_empty())
}

/// Whether the request can be executed at all; if not, why.
///
/// # Errors
/// What is wrong with it, for the answer.
pub fn check(request: &Request, now: jiff::Timestamp) -> Result<(), String> {
    if request.is_from_the_future(now) {
        return Err(format!(
            "clocks differ: the request says {}, more than 5 s ahead of the responder's clock: \
             synchronize the clocks of {} and this node",
            request.timestamp, request.recorder_node
        ));
    }
    if request.deadline.is_some() && request.own_deadline().is_none() {
        return Err("its deadline is no RFC 3339 time".to_owned());
    }
    let nodename = request.nodename.as_deref();
    match nodename.map(crate::spool::name::NodeName::parse) {
        Some(Err(fault)) => Err(format!("its nodename is none: {fault}")),
        _ => Ok(()),
    }
}
