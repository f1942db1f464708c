//! From a file in request_dir to a job: what counts, the claim, the rule, joining (design 3.2, 3.4).

use std::ffi::{OsStr, OsString};

use jiff::Timestamp;

use super::config::Unmatched;
use super::ending::release;
use super::job::{Claim, Job, Verdict};
use super::pending::check;
use super::recovery::{verdict_at_once, verdict_of};
use super::seat::Seat;
use super::service::Service;
use crate::jobs::record::{Reason, Record};
use crate::spool::calls::DirectoryCalls;
use crate::spool::claim::{Claimed, Claims};
use crate::spool::directory::Directory;
use crate::spool::file::FileFault;
use crate::spool::name::FileName;
use crate::spool::request::{Request, RequestFault};
use crate::spool::response::ResponseFault;
use crate::spool::system::with_advice;
use crate::text::one_line;

/// How many files a look takes in before it sees to the jobs again.
const BATCH: usize = 32;

impl Service {
    /// A whole file is in request_dir.
    pub(super) fn arrived(&mut self, name: &OsStr) {
        if let Some(seat) = self.desk.seat() {
            self.take_in(&seat, name);
        }
    }

    /// Looks at every file of the spool's directories.
    pub(super) fn scan(&mut self, seat: &Seat) {
        // what was claimed came before what wasn't
        let mut names = self.list(&seat.claims.claimed);
        // what is at work may have ended while the directory was read
        names.retain(|name| name.to_str().is_none_or(|name| !self.is_known(name)));
        self.collect();
        self.in_batches(&names, |service, name| service.adopt(seat, name));
        let names = self.list(&seat.spool.requests);
        self.in_batches(&names, |service, name| service.take_in(seat, name));
        for name in self.list(&seat.answers) {
            self.answered(&name);
        }
    }

    fn in_batches(&mut self, names: &[OsString], mut look: impl FnMut(&mut Self, &OsStr)) {
        for (number, name) in names.iter().enumerate() {
            // it may say that nothing more is to be claimed; what is left is found by the next look
            if self.interrupt.has_come() {
                return;
            }
            look(self, name);
            if number % BATCH == BATCH - 1 {
                super::systemd::alive();
                self.collect();
                self.start_jobs();
            }
        }
    }

    /// The visible names, in the order in which the files were written: what is asked of one node is
    /// done in that order.
    fn list(&mut self, directory: &Directory) -> Vec<OsString> {
        let mut files = Vec::new();
        let listed = directory.for_each_name(|name| {
            if is_visible(name) {
                files.push((directory.written(name), name.to_owned()));
            }
            true
        });
        if let Err(error) = listed {
            let what = format!(
                "{} can't be read: {}",
                directory.path_of(""),
                with_advice(error)
            );
            self.complain("list", &what);
        }
        files.sort_unstable();
        files.into_iter().map(|(_, name)| name).collect()
    }

    fn is_known(&self, name: &str) -> bool {
        self.pending.holds(name) || self.at_work.contains(name)
    }

    /// Claims the file, if it is for us.
    fn take_in(&mut self, seat: &Seat, name: &OsStr) {
        if !is_visible(name) {
            return;
        }
        let Some(file_name) = FileName::parse(name) else {
            if self.config.unmatched == Unmatched::Refuse {
                self.reject(
                    seat,
                    &seat.spool.requests,
                    name,
                    "is not named <node>-<uuid>.json",
                );
            }
            return;
        };
        if self.config.unmatched == Unmatched::Ignore && !self.is_served(seat, &file_name) {
            return;
        }
        match seat.claims.take(&seat.spool.requests, &file_name) {
            Ok(Claimed::Ours) => self.consider(seat, file_name),
            Ok(Claimed::Gone) => {}
            Ok(Claimed::Again) => {
                self.reject(
                    seat,
                    &seat.spool.requests,
                    name,
                    "has the name of one that is being worked on",
                );
            }
            Err(error) => {
                let path = seat.spool.requests.path_of(file_name.as_str());
                self.complain(
                    "claim",
                    &format!("{path} can't be claimed: {}", with_advice(error)),
                );
            }
        }
    }

    /// Whether a rule serves the request, which is looked at where it lies.
    fn is_served(&self, seat: &Seat, name: &FileName) -> bool {
        let request = Request::read(&seat.spool.requests, name);
        request.is_ok_and(|(request, _)| {
            self.config
                .rule_for(&request.target_node, request.action)
                .is_some()
        })
    }

    /// A claim that no job of ours has: an earlier responder's, or one whose rename said that it
    /// failed.
    fn adopt(&mut self, seat: &Seat, name: &OsStr) {
        match FileName::parse(name) {
            Some(name) if !self.is_known(name.as_str()) => self.consider(seat, name),
            Some(_) => {}
            None => self.reject(
                seat,
                &seat.claims.claimed,
                name,
                "is not named <node>-<uuid>.json",
            ),
        }
    }

    /// Makes a job of the claim `name`, or lets it join one.
    fn consider(&mut self, seat: &Seat, name: FileName) {
        let (request, written) = match Request::read(&seat.claims.claimed, &name) {
            Ok(read) => read,
            Err(RequestFault::File(FileFault::Missing)) => return,
            // it may count, and can't be read now: the next look finds it again
            Err(RequestFault::File(FileFault::System(error))) => {
                let path = seat.claims.claimed.path_of(name.as_str());
                return self.complain(
                    "read",
                    &format!("{path} can't be read: {}", with_advice(error)),
                );
            }
            Err(fault) => {
                let reason = fault.to_string();
                return self.reject(
                    seat,
                    &seat.claims.claimed,
                    OsStr::new(name.as_str()),
                    &reason,
                );
            }
        };
        let claim = Claim::new(name, request, written);
        match seat.answer_to(&claim.name) {
            Err(ResponseFault::File(FileFault::System(error))) => {
                let path = seat.spool.responses.path_of(claim.name.as_str());
                let what = format!("{path} can't be read: {}", with_advice(error));
                return self.complain("answer", &what);
            }
            Err(_) => {}
            Ok(response) => {
                let name = one_line(claim.name.as_str());
                tracing::info!(claim = name, "has its answer already");
                return release(&self.desk, &claim, &verdict_of(&response));
            }
        }
        if self.is_anothers_id(&claim.name) {
            let reason = "has the id of a request about another node";
            let name = OsStr::new(claim.name.as_str());
            return self.reject(seat, &seat.claims.claimed, name, reason);
        }
        self.metrics.requests += 1;
        tracing::info!(
            request = claim.request.request_id,
            node = one_line(&claim.request.target_node),
            action = claim.request.action.as_str(),
            from = one_line(&claim.request.recorder_node),
            "claimed"
        );
        self.accept(claim);
    }

    /// Whether the id of this request is another's too: a job's record goes by the id alone.
    fn is_anothers_id(&self, name: &FileName) -> bool {
        let id = name.request_id();
        let known = self
            .at_work
            .iter()
            .map(String::as_str)
            .chain(self.pending.name_of(id));
        let is_another = |other: &str| {
            let other = FileName::parse(other.as_ref());
            other.is_some_and(|other| other.request_id() == id && other.node() != name.node())
        };
        known.into_iter().any(is_another)
            || (self.desk.store.read(id))
                .is_ok_and(|record| record.request.target_node != name.node())
    }

    fn accept(&mut self, claim: Claim) {
        if let Some(verdict) = decided_at_once(&claim) {
            let mut job = Job::new(claim, None);
            job.verdict = Some(verdict);
            return self.pending.push(job);
        }
        if let Some(record) = self.ended_record(&claim) {
            return self.go_on_with(record, claim);
        }
        let claim = match self.pending.join(claim) {
            Ok(job) => {
                tracing::info!(job = job.id(), "joined");
                let record = job.record.clone();
                self.desk.save(&record);
                return;
            }
            Err(claim) => claim,
        };
        let request = &claim.request;
        let rule = self
            .config
            .rule_for(&request.target_node, request.action)
            .cloned();
        let no_rule = rule.is_none().then(|| {
            let message = format!(
                "no rule of the responder serves {} of {}",
                request.action.as_str(),
                request.target_node
            );
            Verdict::new(Reason::NoRule, message)
        });
        let mut job = Job::new(claim, rule);
        job.verdict = no_rule;
        self.admit(job);
    }

    /// The record of a job that was made for this claim, that ran tasks, and has ended: the claim could
    /// not be seen then, or not be removed.
    fn ended_record(&self, claim: &Claim) -> Option<Record> {
        let record = self.desk.store.read(&claim.request.request_id).ok()?;
        let has_run = record.tasks.iter().any(|task| !task.attempts.is_empty());
        (record.is_over() && has_run).then_some(record)
    }

    /// What was run to its end for a request is not run again, only answered.
    fn go_on_with(&mut self, mut record: Record, claim: Claim) {
        record.completion_time = None;
        let request = &record.request;
        let rule = self.config.rule_for(&request.target_node, request.action);
        let rule = rule.cloned();
        let has_rule = rule.is_some();
        let mut job = Job::resume(record, vec![claim], rule);
        job.verdict = verdict_at_once(&job, false, has_rule);
        self.admit(job);
    }

    /// Puts a job where it waits for its turn, or for a person, and records that.
    pub(super) fn admit(&mut self, mut job: Job) {
        if job.verdict.is_none() {
            job.verdict = job.verdict_of_person();
        }
        if job.needs_approval() && job.verdict.is_none() {
            let message = format!("fence_recorder answer {} --success or --failure", job.id());
            job.record.go_on(Reason::WaitingForApproval, &message);
            self.desk.save(&job.record);
            self.notify(&job);
        } else if job.verdict.is_none() {
            job.record.go_on(Reason::Queued, "");
            // one that starts now is recorded at once by its thread
            let starts_now = self.running < self.config.max_jobs && !self.busy.contains(job.node());
            if !starts_now {
                self.desk.save(&job.record);
            }
        }
        self.pending.push(job);
        self.start_jobs();
    }

    /// Puts aside what is no request that counts.
    fn reject(&mut self, seat: &Seat, from: &Directory, name: &OsStr, reason: &str) {
        let path = one_line(&from.path().join(name).to_string_lossy());
        match Claims::reject(&seat.spool.requests, from, name) {
            Ok(true) => {
                self.metrics.rejected += 1;
                tracing::warn!("{path} is no request that counts: it {reason}; moved to .rejected");
            }
            Ok(false) => {}
            Err(error) => self.complain(
                "reject",
                &format!(
                    "{path} is no request that counts: it {reason}; it can't be moved: {}",
                    with_advice(error)
                ),
            ),
        }
    }
}

/// Names that readers ignore (design 3.1).
fn is_visible(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    !name.starts_with(b".") && name.ends_with(b".json")
}

/// What is answered without a look at the rules.
fn decided_at_once(claim: &Claim) -> Option<Verdict> {
    if let Err(reason) = check(&claim.request, Timestamp::now()) {
        return Some(Verdict::new(Reason::Refused, reason));
    }
    claim.is_expired().then(|| {
        let message = format!(
            "expired: too little time was left before its deadline {}",
            claim.deadline_time
        );
        Verdict::new(Reason::Expired, message)
    })
}
