//! Answered requests whose agent may have been killed before it could record their end (design 5).

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::ending::GRACE;
use super::job::Claim;
use crate::audit::{Audit, Event, Status};
use crate::spool::request::Request;

/// How often the log is read at most: it may be long.
const INTERVAL: Duration = Duration::from_secs(15);

/// What the main thread looks after until its agents are known to be gone.
#[derive(Debug, Default)]
pub struct Ends {
    open: Mutex<Vec<Answered>>,
    settled: Mutex<Option<Instant>>,
}

/// A request that was answered while its agent was still to hear of it.
#[derive(Debug)]
struct Answered {
    request: Request,
    /// From then on its agent is gone.
    due: Timestamp,
}

impl Ends {
    /// Remembers a request of this `host` until its agent must have ended.
    pub fn note(&self, request: &Request, deadline: Timestamp, host: &str) {
        // others record in logs of their own
        let due = deadline.checked_add(GRACE).ok();
        if let Some(due) = due.filter(|_| request.recorder_node == host) {
            let request = request.clone();
            let answered = Answered { request, due };
            self.lock().push(answered);
        }
    }

    /// The same for a claim.
    pub fn note_claim(&self, claim: &Claim, host: &str) {
        self.note(&claim.request, claim.deadline_time, host);
    }

    /// Records the end of those that are due and have none. The log says which: it has the event of
    /// the request, and none after it. One that says nothing of the request is not its agent's.
    ///
    /// # Errors
    /// Why the log can't be read or written.
    pub fn settle(&self, audit: &Audit) -> Result<(), String> {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if settled.is_some_and(|last| last.elapsed() < INTERVAL) {
            return Ok(());
        }
        let now = Timestamp::now();
        let due: Vec<_> = self
            .lock()
            .extract_if(.., |answered| answered.due <= now)
            .collect();
        if due.is_empty() {
            return Ok(());
        }
        *settled = Some(Instant::now());
        let ids = due
            .iter()
            .map(|answered| answered.request.request_id.as_str());
        let made = due
            .iter()
            .filter_map(|answered| answered.request.timestamp.parse().ok());
        let since = made.min().unwrap_or(Timestamp::MIN);
        let open = audit.without_end(&ids.collect::<HashSet<_>>(), since)?;
        for answered in due {
            if open.contains(&answered.request.request_id) {
                record(audit, &answered.request).map_err(|fault| fault.to_string())?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Answered>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record(audit: &Audit, request: &Request) -> Result<(), crate::audit::AuditFault> {
    audit.record(&Event {
        action: request.action.as_str(),
        target: &request.target_node,
        status: Status::Expired,
        details: &format!(
            "answered, but its agent recorded no end; asked by {} at {}",
            request.recorder_node, request.timestamp
        ),
        request_id: Some(&request.request_id),
        duration: None,
    })
}
