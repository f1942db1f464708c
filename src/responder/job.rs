//! One job on its way from the claim to the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::config::Rule;
use super::seat::Seat;
use crate::jobs::record::{Reason, Record, State, TaskRecord};
use crate::spool::name::FileName;
use crate::spool::request::Request;
use crate::spool::system::with_advice;
use crate::spool::time::timestamp_text;
use crate::text::one_line;

/// A request that was claimed for a job.
#[derive(Debug)]
pub struct Claim {
    /// The file's name.
    pub name: FileName,
    /// What is in it.
    pub request: Request,
    /// When its agent stops waiting.
    pub deadline: Instant,
    /// The same by the wall clock, as files have it.
    pub deadline_time: Timestamp,
}

/// A job in the hands of the responder.
#[derive(Debug)]
pub struct Job {
    /// What is written of it.
    pub record: Record,
    /// The claims that are not known to be withdrawn.
    pub claims: Vec<Claim>,
    /// The rule that it follows.
    pub rule: Option<Arc<Rule>>,
    /// How it ends, once that is decided.
    pub verdict: Option<Verdict>,
}

/// How a job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// In one word.
    pub reason: Reason,
    /// For people: the answer's message.
    pub message: String,
}

impl Verdict {
    /// An end, and why.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// Whether the answer is a success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.reason == Reason::Completed
    }
}

impl Claim {
    /// The claim `name` on `request`, written when its file says. The wall clock is asked once; from
    /// then on the monotonic one counts (design 3.3).
    #[must_use]
    pub fn new(name: FileName, request: Request, written: Timestamp) -> Self {
        let deadline_time = request.deadline(written);
        let left = deadline_time.duration_since(Timestamp::now());
        let now = Instant::now();
        let deadline = match Duration::try_from(left) {
            Ok(left) => now.checked_add(left).unwrap_or(now),
            // past already: any moment that is no later than now will do
            Err(_) => now,
        };
        Self {
            name,
            request,
            deadline,
            deadline_time,
        }
    }

    /// The moment from which it is too late to start anything (design 3.4).
    #[must_use]
    pub fn latest_start(&self) -> Instant {
        let margin = self.request.margin();
        self.deadline.checked_sub(margin).unwrap_or(self.deadline)
    }

    /// Whether it is too late to start anything.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        Instant::now() >= self.latest_start()
    }
}

impl Job {
    /// A new job for `claim`, which `rule` serves.
    #[must_use]
    pub fn new(claim: Claim, rule: Option<Arc<Rule>>) -> Self {
        let record = Record::new(claim.request.clone(), claim.deadline_time);
        let mut job = Self {
            record,
            claims: vec![claim],
            rule,
            verdict: None,
        };
        job.follow_rule();
        job
    }

    /// A job that an earlier responder left, with those of its claims that are still there.
    #[must_use]
    pub fn resume(record: Record, claims: Vec<Claim>, rule: Option<Arc<Rule>>) -> Self {
        let mut job = Self {
            record,
            claims,
            rule,
            verdict: None,
        };
        let rule = job.rule.clone();
        let is_same = rule.as_ref().is_some_and(|rule| {
            let tasks = &job.record.tasks;
            job.record.rule.as_ref() == Some(&rule.name)
                && tasks.len() == rule.tasks.len()
                && tasks
                    .iter()
                    .zip(&rule.tasks)
                    .all(|(done, task)| done.name == task.name)
        });
        if !is_same {
            job.follow_rule();
        }
        for task in &mut job.record.tasks {
            task.interrupt();
        }
        job
    }

    fn follow_rule(&mut self) {
        let Some(rule) = &self.rule else {
            self.record.tasks.clear();
            return;
        };
        self.record.rule = Some(rule.name.clone());
        self.record.performs = rule.performed(self.record.request.action);
        self.record.tasks = rule
            .tasks
            .iter()
            .map(|task| TaskRecord::new(&task.name))
            .collect();
    }

    /// Takes in a later request for the same node and action (design 3.4).
    pub fn join(&mut self, claim: Claim) {
        self.record.joined.push(claim.request.clone());
        self.claims.push(claim);
        if let Some(last) = self.last_claim() {
            self.record.deadline = timestamp_text(last.deadline_time);
        }
    }

    /// Forgets the claims that are gone from `seat`, because their agents withdrew them or the whole
    /// spool is; returns how many are left. One that can't be looked at counts as gone: it must not
    /// be executed, and is found again if it is there.
    pub fn drop_withdrawn(&mut self, seat: Option<&Seat>) -> usize {
        self.claims.retain(
            |claim| match seat.map(|seat| seat.claims.holds(&claim.name)) {
                Some(Ok(holds)) => holds,
                Some(Err(error)) => {
                    tracing::error!(
                        claim = one_line(claim.name.as_str()),
                        "can't be looked at: {}",
                        with_advice(error)
                    );
                    false
                }
                None => false,
            },
        );
        self.claims.len()
    }

    /// Whether `request` asks for the same.
    #[must_use]
    pub fn asks_for_the_same_as(&self, request: &Request) -> bool {
        let own = &self.record.request;
        own.target_node == request.target_node && own.action == request.action
    }

    /// The claim that is good for longest.
    #[must_use]
    pub fn last_claim(&self) -> Option<&Claim> {
        self.claims.iter().max_by_key(|claim| claim.deadline)
    }

    /// The node it is about.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.record.request.target_node
    }

    /// Its id: that of the request it was made for.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.record.request.request_id
    }

    /// How it ends by a person's word alone.
    #[must_use]
    pub fn verdict_of_person(&self) -> Option<Verdict> {
        let word = self.record.answer.as_ref()?;
        match (word.success, self.record.tasks.is_empty()) {
            (false, _) => Some(Verdict::new(Reason::Refused, word.to_string())),
            (true, true) => Some(Verdict::new(Reason::Completed, word.to_string())),
            (true, false) => None,
        }
    }

    /// Whether a person has to answer before anything is run.
    #[must_use]
    pub fn needs_approval(&self) -> bool {
        let is_manual = self
            .rule
            .as_ref()
            .is_some_and(|rule| rule.approval == super::config::Approval::Manual);
        is_manual && self.record.answer.is_none()
    }
}

impl TaskRecord {
    /// What was at work is so no more.
    pub fn interrupt(&mut self) {
        if self.state == State::Running {
            self.state = State::Interrupted;
        }
        for attempt in &mut self.attempts {
            if attempt.state == State::Running {
                attempt.state = State::Interrupted;
                attempt.completion_time = Some(crate::jobs::record::now());
            }
        }
    }
}
