//! The end of a job: its answer, its record, its claims, in this order (design 3.4).

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use nix::errno::Errno;

use super::desk::Desk;
use super::job::{Claim, Job, Verdict};
use super::seat::Seat;
use crate::audit::{Event, Status};
use crate::jobs::record::Reason;
use crate::spool::calls::DirectoryCalls;
use crate::spool::response::Response;
use crate::spool::system::with_advice;
use crate::text::one_line;

/// The pause before an answer that couldn't be written is tried again.
const ANSWER_INTERVAL: Duration = Duration::from_millis(500);

/// From its deadline to when a request is known to have lost its agent (design 3.3).
pub const GRACE: SignedDuration = SignedDuration::from_secs(10);

/// Answers the job's requests, records its end, and gives up its claims.
pub fn finish(desk: &Desk, job: &mut Job, mut verdict: Verdict) -> Reason {
    job.drop_withdrawn(desk.seat().as_deref());
    let mut is_answered = false;
    let mut failed = None;
    // one answer that could not be given changes none of the others
    for claim in &job.claims {
        match answer(desk, job, claim, &verdict) {
            Ok(given) => is_answered |= given,
            Err(instead) => failed = Some(instead),
        }
    }
    if let Some(instead) = failed {
        verdict = instead;
    } else if !is_answered && verdict.reason != Reason::Cancelled {
        let message = format!(
            "the request was withdrawn; before that: {}",
            verdict.message
        );
        verdict = Verdict::new(Reason::Cancelled, message);
    }
    end(desk, job, &verdict);
    for claim in &job.claims {
        release(desk, claim, &verdict);
    }
    verdict.reason
}

/// Records the end and says it in the log.
pub fn end(desk: &Desk, job: &mut Job, verdict: &Verdict) {
    job.record
        .end(verdict.reason, verdict.is_success(), &verdict.message);
    desk.save(&job.record);
    let (id, node) = (job.id(), one_line(job.node()));
    let action = job.record.request.action.as_str();
    let message = one_line(&verdict.message);
    if verdict.is_success() {
        tracing::info!(job = id, node, action, reason = %verdict.reason, "{message}");
    } else {
        tracing::warn!(job = id, node, action, reason = %verdict.reason, "{message}");
    }
}

/// Publishes the answer, again and again until the deadline if it can't be written; false if the
/// agent withdraws its request meanwhile.
///
/// # Errors
/// How the job ends instead.
fn answer(desk: &Desk, job: &Job, claim: &Claim, verdict: &Verdict) -> Result<bool, Verdict> {
    let performed = job.record.performs;
    let response = Response::to(
        &claim.request,
        verdict.is_success(),
        &verdict.message,
        performed,
    );
    loop {
        let Some(seat) = desk.seat() else {
            return Err(Verdict::new(Reason::Cancelled, "the spool was removed"));
        };
        let fault = match publish(&seat, &response, claim) {
            Ok(()) => return Ok(true),
            Err(None) => return Err(somebody_elses(&seat, claim, verdict)),
            Err(Some(fault)) => fault,
        };
        tracing::error!(job = job.id(), "the answer: {fault}");
        let next = Instant::now() + ANSWER_INTERVAL;
        if next >= claim.deadline {
            let message = format!("{}; it could not be answered: {fault}", verdict.message);
            return Err(Verdict::new(Reason::AnswerFailed, message));
        }
        desk.wait_until(next, || false);
        if matches!(seat.claims.holds(&claim.name), Ok(false)) {
            return Ok(false);
        }
    }
}

/// One try: why the answer isn't there; nothing if another file is.
fn publish(seat: &Seat, response: &Response, claim: &Claim) -> Result<(), Option<String>> {
    if !seat.reaches_agents() {
        let path = seat.spool.responses.path_of("");
        return Err(Some(format!("{path} is another directory now")));
    }
    match seat.publish(response, &claim.name) {
        Ok(()) => Ok(()),
        Err(fault) if fault.error == Errno::EEXIST && is_there(seat, claim) => Err(None),
        // it is there, and only a power cut could still take it away
        Err(_) if seat.answer_to(&claim.name).is_ok() => Ok(()),
        Err(fault) => Err(Some(fault.to_string())),
    }
}

/// Whether anything has the answer's name; it could be the temporary name that is taken.
fn is_there(seat: &Seat, claim: &Claim) -> bool {
    !matches!(seat.answer_to(&claim.name), Err(fault) if fault.is_missing())
}

/// How the job ends where another file has the answer's name: that is never replaced, whether it
/// counts or not.
fn somebody_elses(seat: &Seat, claim: &Claim, verdict: &Verdict) -> Verdict {
    let (what, path) = (
        &verdict.message,
        seat.spool.responses.path_of(claim.name.as_str()),
    );
    match seat.answer_to(&claim.name) {
        Ok(response) => {
            let word = if response.success {
                "success"
            } else {
                "failure"
            };
            let message = format!("{what}; somebody else had answered with {word}");
            Verdict::new(Reason::AnsweredElsewhere, message)
        }
        Err(fault) => {
            let message = format!("{what}; not answered, because {path} is there and {fault}");
            Verdict::new(Reason::AnswerFailed, message)
        }
    }
}

/// Removes a claim that has its answer. Of one that outlived its agent nobody else records the end.
pub fn release(desk: &Desk, claim: &Claim, verdict: &Verdict) {
    let Some(seat) = desk.seat() else {
        return;
    };
    match seat.claims.release(&claim.name) {
        Ok(true) if has_lost_its_agent(claim) => record_expired(desk, claim, verdict),
        Ok(true) => desk.ends.note_claim(claim, &desk.audit.host),
        Ok(false) => {}
        Err(error) => {
            let path = seat.claims.claimed.path_of(claim.name.as_str());
            tracing::error!("{path} can't be removed: {}", with_advice(error));
        }
    }
}

fn has_lost_its_agent(claim: &Claim) -> bool {
    let end = claim.deadline_time.checked_add(GRACE);
    end.is_ok_and(|end| Timestamp::now() > end)
}

fn record_expired(desk: &Desk, claim: &Claim, verdict: &Verdict) {
    let recorded = desk.audit.record(&Event {
        action: claim.request.action.as_str(),
        target: &claim.request.target_node,
        status: Status::Expired,
        details: &format!(
            "no agent withdrew it; asked by {} at {}; the responder: {}",
            claim.request.recorder_node, claim.request.timestamp, verdict.message
        ),
        request_id: Some(&claim.request.request_id),
        duration: None,
    });
    if let Err(fault) = recorded {
        tracing::warn!("{fault}");
    }
}
