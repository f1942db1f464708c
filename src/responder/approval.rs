//! Jobs that wait for a person: who is told, and what becomes of the answer.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::desk::Report;
use super::job::{Claim, Job};
use super::prepare::Order;
use super::process::{End, Limits, TERM_GRACE, launch};
use super::service::Service;
use crate::jobs::record::{Reason, Word};
use crate::spool::answer::Answer;
use crate::spool::calls::DirectoryCalls;
use crate::spool::name::FileName;
use crate::spool::system::with_advice;

/// How long a notify command may take.
const NOTIFY_TIME: Duration = Duration::from_mins(1);

impl Service {
    /// An answer lies in `.answers`.
    pub(super) fn answered(&mut self, name: &OsStr) {
        let (Some(name), Some(seat)) = (FileName::parse(name), self.desk.seat()) else {
            return;
        };
        // one that is found again was said already, and can't be removed
        let path = seat.answers.path_of(name.as_str());
        match Answer::read(&seat.answers, &name) {
            Ok(answer) => self.take_answer(&name, answer),
            Err(fault) if fault.is_missing() => return,
            Err(fault) => self.complain("answers", &format!("{path} {fault}")),
        }
        // whatever it was, it has been looked at
        match seat.answers.remove(name.as_str()) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => self.complain(
                "removing answers",
                &format!("{path} can't be removed: {}", with_advice(error)),
            ),
        }
    }

    fn take_answer(&mut self, name: &FileName, answer: Answer) {
        // one that lay there while we were stopped may be too late
        let is_late = |job: &Job| job.last_claim().is_none_or(Claim::is_expired);
        let waits = |job: &&mut Job| job.needs_approval() && job.verdict.is_none() && !is_late(job);
        let Some(job) = self.pending.holder_of(name.as_str()).filter(waits) else {
            let request = name.request_id();
            return tracing::warn!(request, "was answered by a person, but waits for none");
        };
        let word = Word {
            success: answer.success,
            by: answer.by,
            message: answer.message,
            time: answer.timestamp,
        };
        tracing::info!(job = job.id(), "{word}");
        job.record.go_on(Reason::Queued, &word.to_string());
        job.record.answer = Some(word);
        job.verdict = job.verdict_of_person();
        let record = job.record.clone();
        self.desk.save(&record);
    }

    /// Runs the rule's notify command for a job that waits; it decides nothing.
    pub(super) fn notify(&mut self, job: &Job) {
        let Some(rule) = job.rule.as_ref().filter(|_| !job.record.notified) else {
            return;
        };
        let id = job.id().to_owned();
        let order = Order::of(&job.record.request, &job.record.deadline);
        let prepared = match order.notify(rule) {
            Ok(Some(prepared)) => prepared,
            Ok(None) => return,
            Err(fault) => return tracing::error!(job = id, "nobody was notified: {fault}"),
        };
        let desk = Arc::clone(&self.desk);
        let thread = std::thread::Builder::new().name("notify".to_owned()).spawn(move || {
            let terminate = Instant::now() + NOTIFY_TIME;
            let kill = terminate + TERM_GRACE;
            match launch(&prepared).map(|waiting| waiting.run(Limits { terminate, kill }, desk.cut(), &[])) {
                Ok(ended) if ended.end == End::Exited(0) => tracing::info!(job = id, "notified: {}", ended.last_line),
                Ok(ended) => tracing::error!(job = id, end = ?ended.end, "notify failed: {}", ended.last_line),
                Err(error) => tracing::error!(job = id, "notify can't be started: {error}"),
            }
            desk.report(Report::Notified(id));
        });
        if let Err(error) = thread {
            self.complain("threads", &format!("no thread for notify: {error}"));
        }
    }

    /// A notify command has ended; after a restart it isn't run again.
    pub(super) fn notified(&mut self, id: &str) {
        let mut record = None;
        self.pending.for_each(|job| {
            if job.id() == id && job.verdict.is_none() {
                job.record.notified = true;
                record = Some(job.record.clone());
            }
        });
        if let Some(record) = record {
            self.desk.save(&record);
        }
    }
}
