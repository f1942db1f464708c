//! What a responder does before it serves: it ends what its forerunner left running, and takes over
//! its jobs (design 3.4).

use jiff::{SignedDuration, Timestamp};

use super::job::{Claim, Job, Verdict};
use super::process::{end_leftovers, end_marked};
use super::seat::Seat;
use super::service::Service;
use crate::jobs::record::{Reason, Record, State};
use crate::spool::name::FileName;
use crate::spool::request::Request;
use crate::spool::response::Response;
use crate::spool::system::with_advice;
use crate::text::one_line;

impl Service {
    /// Takes over the unended jobs of the last responder. After it, whatever else is claimed has no
    /// job and is adopted.
    pub(super) fn recover(&mut self, seat: &Seat) {
        let (records, unreadable) = self.unended_records();
        if !unreadable.is_empty() && !end_marked(&unreadable) {
            tracing::error!("processes of jobs without a readable record can't be killed");
        }
        for record in records {
            let stuck = end_processes(&record);
            self.take_over(seat, record, stuck);
        }
    }

    /// The records of jobs that have not ended, the oldest first, and the ids of those that can't be
    /// read.
    fn unended_records(&mut self) -> (Vec<Record>, Vec<String>) {
        let (mut records, mut unreadable) = (Vec::new(), Vec::new());
        let listed = self.desk.store.for_each(|id, read| match read {
            Ok(record) if !record.is_over() => records.push(record),
            Ok(record) => self.note_recent(&record),
            Err(fault) => {
                tracing::warn!(job = one_line(id), "its record {fault}");
                unreadable.push(id.to_owned());
            }
        });
        if let Err(error) = listed {
            self.complain(
                "recover",
                &format!("state_dir can't be read: {}", with_advice(error)),
            );
        }
        records.sort_by(|one, other| one.start_time.cmp(&other.start_time));
        (records, unreadable)
    }

    /// An answer that was given shortly before a crash may never have reached its agent.
    fn note_recent(&self, record: &Record) {
        let is_answered = record.reason() != Some(Reason::Cancelled);
        let deadline = record.deadline.parse::<Timestamp>();
        let Some(deadline) = deadline.ok().filter(|_| is_answered) else {
            return;
        };
        let is_recent = Timestamp::now().duration_since(deadline) < SignedDuration::from_hours(1);
        if is_recent {
            for request in record.requests() {
                self.desk
                    .ends
                    .note(request, deadline, &self.desk.audit.host);
            }
        }
    }

    fn take_over(&mut self, seat: &Seat, record: Record, stuck: bool) {
        let (claims, answer) = claims_of(seat, &record);
        let rule = self
            .config
            .rule_for(&record.request.target_node, record.request.action);
        let rule = rule.cloned();
        let has_rule = rule.is_some();
        let mut job = Job::resume(record, claims, rule);
        // the answer was given; its record, its other requests' answers, its claims were missing
        if let Some(response) = answer {
            let verdict = verdict_of(&response);
            job.claims.retain(|claim| {
                let is_answered = seat.answer_to(&claim.name).is_ok();
                if is_answered {
                    super::ending::release(&self.desk, claim, &verdict);
                }
                !is_answered
            });
            if job.claims.is_empty() {
                return self.close(job, &verdict);
            }
            job.verdict = Some(verdict);
        } else if job.claims.is_empty() {
            let message = "the request was withdrawn while no responder ran";
            return self.close(job, &Verdict::new(Reason::Cancelled, message));
        } else {
            job.verdict = verdict_at_once(&job, stuck, has_rule);
        }
        tracing::info!(job = job.id(), node = one_line(job.node()), "resumed");
        self.metrics.requests += job.claims.len() as u64;
        self.admit(job);
    }
}

/// Why a job can't be gone on with.
pub(super) fn verdict_at_once(job: &Job, stuck: bool, has_rule: bool) -> Option<Verdict> {
    let (reason, message) = if stuck {
        let message = "processes of its last attempt can't be killed";
        (Reason::TaskTimedOut, message)
    } else if !has_rule {
        (Reason::NoRule, "no rule serves it any more")
    } else if job.last_claim().is_some_and(Claim::is_expired) {
        (Reason::Expired, "expired while no responder ran")
    } else {
        return None;
    };
    Some(Verdict::new(reason, message))
}

/// Kills what is left of a job's processes; true if they can't be seen gone.
fn end_processes(record: &Record) -> bool {
    let attempts = record.tasks.iter().flat_map(|task| &task.attempts);
    let running = attempts.filter(|attempt| attempt.state == State::Running);
    let groups = running.filter_map(|attempt| attempt.process_group.as_ref());
    let ended = groups.map(|group| end_leftovers(group, &record.request.request_id));
    ended.filter(|is_gone| !is_gone).count() > 0
}

/// The job's claims that are still there, and the answer if one of its requests has one.
fn claims_of(seat: &Seat, record: &Record) -> (Vec<Claim>, Option<Response>) {
    let names = record
        .requests()
        .filter_map(|request| request.file_name().ok());
    let (mut claims, mut answer) = (Vec::new(), None);
    for name in names {
        answer = answer.or_else(|| seat.answer_to(&name).ok());
        claims.extend(claim_on(seat, name));
    }
    (claims, answer)
}

fn claim_on(seat: &Seat, name: FileName) -> Option<Claim> {
    let (request, written) = Request::read(&seat.claims.claimed, &name).ok()?;
    Some(Claim::new(name, request, written))
}

/// How a job ended that was answered so.
pub(super) fn verdict_of(response: &Response) -> Verdict {
    let reason = if response.success {
        Reason::Completed
    } else {
        Reason::TaskFailed
    };
    Verdict::new(reason, response.message_line())
}
