//! The life of requests from the agent's side: published, waited for, ended (design 3.3).

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::time::Instant;

use super::console::Console;
use super::parameters::Settings;
use super::sweeping::sweep_briefly;
use crate::audit::{Audit, Event, Status};
use crate::interrupt::Interrupt;
use crate::spool::Spool;
use crate::spool::calls::DirectoryCalls;
use crate::spool::name::FileName;
use crate::spool::publish::PublishFault;
use crate::spool::request::Request;
use crate::spool::response::{Response, ResponseFault};
use crate::spool::watch::{Change, Watch, Woken};
use crate::spool::withdraw::withdraw;

/// What a fence works with.
pub struct Desk<'a> {
    /// The opened spool.
    pub spool: &'a Spool,
    /// What tells of responses; it was there before the first request.
    pub watch: &'a Watch,
    /// Where the ends of requests are recorded.
    pub audit: &'a Audit,
    /// What is said to people.
    pub console: &'a Console<'a>,
    /// What ends it early.
    pub interrupt: &'a Interrupt,
    /// The parameters.
    pub settings: &'a Settings,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The node.
    pub target: String,
    /// Completed, or how not.
    pub status: Status,
    /// The responder's message, or why it failed.
    pub reason: String,
}

/// Whether one failure decides the round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// Only the success of all is success, so the first failure ends it.
    AllOrNothing,
    /// Each for itself.
    Each,
}

/// A request that was published and has not ended; dropping it (a panic) withdraws it too.
struct Pending<'a> {
    desk: &'a Desk<'a>,
    request: Request,
    name: FileName,
    since: Instant,
    ended: bool,
    /// Why the file that lies under the response's name doesn't count (yet).
    fault: Option<ResponseFault>,
}

/// Writes all requests, waits for all responses until `deadline`, and returns how each ended.
pub fn fence(
    desk: &Desk<'_>,
    requests: Vec<Request>,
    deadline: Instant,
    round: Round,
    details: &str,
) -> Vec<End> {
    let mut ends = Vec::new();
    match publish_all(desk, requests, details) {
        Ok(pending) => {
            sweep_briefly(desk);
            wait(desk, pending, deadline, round, &mut ends);
        }
        Err((published, target, fault)) => {
            let reason = fault.to_string();
            ends.push(End {
                target: target.clone(),
                status: Status::Failed,
                reason: reason.clone(),
            });
            for pending in published {
                ends.push(pending.end(
                    Status::Cancelled,
                    format!("the request for {target} failed: {reason}"),
                ));
            }
        }
    }
    ends
}

type Unpublished<'a> = (Vec<Pending<'a>>, String, PublishFault);

fn publish_all<'a>(
    desk: &'a Desk<'a>,
    requests: Vec<Request>,
    details: &str,
) -> Result<Vec<Pending<'a>>, Unpublished<'a>> {
    let mut published = Vec::new();
    let mut failed = None;
    for request in requests {
        // the target is a checked node name and the id a new UUID: they always make a file name
        let Ok(name) = request.file_name() else {
            continue;
        };
        let mut pending = Pending {
            desk,
            request,
            name,
            since: Instant::now(),
            ended: false,
            fault: None,
        };
        if let Err(fault) = pending.request.publish(&desk.spool.requests, &pending.name) {
            pending.ended = true;
            failed = Some(unpublished(&pending, fault));
            break;
        }
        published.push(pending);
    }
    desk.console.allow_logging();
    for pending in &published {
        desk.console.debug(
            1,
            &format!(
                "wrote {}",
                desk.spool.requests.path_of(pending.name.as_str())
            ),
        );
        pending.record(Status::Requested, details);
    }
    match failed {
        None => Ok(published),
        Some((target, fault)) => Err((published, target, fault)),
    }
}

/// What could not be published is not left behind: if only the last sync failed, it is there.
fn unpublished(pending: &Pending<'_>, fault: PublishFault) -> (String, PublishFault) {
    if let Err(fault) = withdraw(&pending.desk.spool.requests, pending.name.as_str()) {
        pending.desk.console.warning(&fault.to_string());
    }
    pending.record(Status::Failed, &fault.to_string());
    (pending.request.target_node.clone(), fault)
}

fn wait<'a>(
    desk: &'a Desk<'a>,
    pending: Vec<Pending<'a>>,
    deadline: Instant,
    round: Round,
    ends: &mut Vec<End>,
) {
    let mut waiting = VecDeque::from(pending);
    let mut look_at_all = true;
    let mut named: Vec<Change> = Vec::new();
    let mut next_look = Instant::now() + desk.settings.poll_interval;
    while !waiting.is_empty() {
        look(
            &mut waiting,
            |name| look_at_all || named.iter().any(|change| change.name == OsStr::new(name)),
            ends,
        );
        if round == Round::AllOrNothing && ends.iter().any(|end| end.status != Status::Completed) {
            return end_all(waiting, Status::Cancelled, "another plug failed", ends);
        }
        if waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        if now >= deadline {
            return ends.extend(waiting.into_iter().map(Pending::time_out));
        }
        let until = next_look.min(deadline);
        (look_at_all, named) = match desk.watch.wait(
            until.saturating_duration_since(now),
            &[desk.interrupt.as_fd()],
        ) {
            Woken::Interrupted => {
                let signal = desk
                    .interrupt
                    .signal()
                    .map_or_else(|| "a signal".to_owned(), |signal| signal.to_string());
                return end_all(
                    waiting,
                    Status::Cancelled,
                    &format!("cancelled by {signal}"),
                    ends,
                );
            }
            Woken::Named(changes) => (false, changes),
            Woken::Unknown => (true, Vec::new()),
            Woken::TimedOut => (false, Vec::new()),
        };
        if Instant::now() >= next_look {
            if !desk.spool.responses.revalidate() {
                let reason = format!(
                    "response_dir {} was removed",
                    desk.spool.responses.path_of("")
                );
                return end_all(waiting, Status::Failed, &reason, ends);
            }
            look_at_all = true;
            next_look = Instant::now() + desk.settings.poll_interval;
        }
    }
}

/// Looks at the responses that `is_due` says yes to, and ends the requests they decide.
fn look(waiting: &mut VecDeque<Pending<'_>>, is_due: impl Fn(&str) -> bool, ends: &mut Vec<End>) {
    for _ in 0..waiting.len() {
        let Some(mut pending) = waiting.pop_front() else {
            return;
        };
        if is_due(pending.name.as_str())
            && let Some((status, reason)) = pending.look()
        {
            ends.push(pending.end(status, reason));
        } else {
            waiting.push_back(pending);
        }
    }
}

fn end_all(waiting: VecDeque<Pending<'_>>, status: Status, reason: &str, ends: &mut Vec<End>) {
    ends.extend(
        waiting
            .into_iter()
            .map(|pending| pending.end(status, reason.to_owned())),
    );
}

impl Pending<'_> {
    /// What the response decides, if one is there that counts, or one that never will.
    fn look(&mut self) -> Option<(Status, String)> {
        let responses = &self.desk.spool.responses;
        match Response::read(responses, &self.name) {
            Ok(response) if response.success => Some((Status::Completed, response.message_line())),
            Ok(response) => {
                let message = response.message_line();
                let said = if message.is_empty() {
                    String::new()
                } else {
                    format!(": {message}")
                };
                Some((Status::Failed, format!("refused by the responder{said}")))
            }
            Err(fault) if fault.is_final() => Some((
                Status::Failed,
                format!(
                    "the response {} {fault}",
                    responses.path_of(self.name.as_str())
                ),
            )),
            Err(fault) => {
                if !fault.is_missing() {
                    let path = responses.path_of(self.name.as_str());
                    self.desk
                        .console
                        .debug(2, &format!("{path} doesn't count yet: it {fault}"));
                }
                self.fault = Some(fault);
                None
            }
        }
    }

    /// Time is over: withdraws, and then, whatever that said, looks once more (design 3.3).
    fn time_out(mut self) -> End {
        self.withdraw();
        let _ = self.desk.spool.responses.revalidate();
        let (status, reason) = self
            .look()
            .unwrap_or_else(|| (Status::TimedOut, self.why_nothing_counted()));
        self.finish(status, reason)
    }

    fn why_nothing_counted(&self) -> String {
        let waited = self.request.timeout_seconds.unwrap_or_default();
        let path = self.desk.spool.responses.path_of(self.name.as_str());
        match self.fault.as_ref().filter(|fault| !fault.is_missing()) {
            Some(fault) => format!("no response counted within {waited} s: {path} {fault}"),
            None => format!(
                "no response within {waited} s: check that the responder runs and writes {path}"
            ),
        }
    }

    fn end(mut self, status: Status, reason: String) -> End {
        self.withdraw();
        self.finish(status, reason)
    }

    fn withdraw(&mut self) {
        self.ended = true;
        match withdraw(&self.desk.spool.requests, self.name.as_str()) {
            Ok(withdrawn) => self
                .desk
                .console
                .debug(1, &format!("withdrew {}: {withdrawn:?}", self.name)),
            Err(fault) => self.desk.console.warning(&fault.to_string()),
        }
    }

    fn finish(self, status: Status, reason: String) -> End {
        self.record(status, &reason);
        End {
            target: self.request.target_node.clone(),
            status,
            reason,
        }
    }

    fn record(&self, status: Status, details: &str) {
        let recorded = self.desk.audit.record(&Event {
            action: self.request.action.as_str(),
            target: &self.request.target_node,
            status,
            details,
            request_id: Some(&self.request.request_id),
            duration: Some(self.since.elapsed()),
        });
        if let Err(fault) = recorded {
            self.desk.console.audit_warning(&fault.to_string());
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.withdraw();
            self.record(Status::Failed, "the agent broke off with an internal error");
        }
    }
}
