//! The actions that change a node: off, reboot, on.

use std::fmt::Display;
use std::time::{Duration, Instant};

use super::parameters::Settings;
use super::wait::{Desk, End, Round, fence};
use super::{Agent, Exit};
use crate::audit::{Event, Status};
use crate::spool::Spool;
use crate::spool::directory::Trust;
use crate::spool::name::NodeName;
use crate::spool::presence::is_watched;
use crate::spool::request::{Action, Request};
use crate::spool::watch::Watch;

/// Fences the targets, or says why not (design 4.2).
pub fn run(agent: &Agent<'_>, settings: &Settings, action: Action) -> Exit {
    let targets = match super::target::targets(settings) {
        Ok(targets) => targets,
        Err(fault) => return refuse(agent, settings, action, Status::Failed, &fault),
    };
    if action == Action::On && !settings.request_on {
        agent.console.success("Success: Powered ON");
        return Exit::Success;
    }
    let spool = match usable_spool(settings) {
        Ok(spool) => spool,
        Err(reason) => return refuse(agent, settings, action, Status::Failed, &reason),
    };
    if let Err(signal) = agent.interrupt.sleep(settings.delay) {
        return refuse(
            agent,
            settings,
            action,
            Status::Cancelled,
            &format!("cancelled by {signal} during delay; nothing was requested"),
        );
    }
    let (watch, no_events) = Watch::new(&spool.responses);
    if let Some(error) = no_events {
        let every = settings.poll_interval.as_secs_f64();
        agent.console.warning(&format!(
            "no inotify watch on response_dir ({}): looking every {every} s",
            error.desc()
        ));
    }
    let audit = super::audit(settings);
    let desk = Desk {
        spool: &spool,
        watch: &watch,
        audit: &audit,
        console: &agent.console,
        interrupt: agent.interrupt,
        settings,
    };
    Fence {
        desk,
        targets,
        deadline: Instant::now() + settings.response_timeout,
    }
    .carry_out(action)
}

/// The spool, if requests can be answered through it; else why not and what to do, in one line.
fn usable_spool(settings: &Settings) -> Result<Spool, String> {
    let trust = if settings.allow_insecure_dirs {
        Trust::Waived
    } else {
        Trust::Checked
    };
    let spool = Spool::open(&settings.request_dir, &settings.response_dir, trust)
        .map_err(|fault| format!("{fault}; {}", remedies(settings)))?;
    if settings.responder_check && !is_watched(&spool.requests) {
        return Err(format!("{}; {}", nobody_watches(settings), ban()));
    }
    Ok(spool)
}

/// What `responder_check` has found out.
pub fn nobody_watches(settings: &Settings) -> String {
    let directory = settings.request_dir.display();
    format!("responder_check: no responder watches request_dir {directory}: start it on this node")
}

/// What an administrator can do about a node that has no usable spool (design 2).
pub fn remedies(settings: &Settings) -> String {
    let (requests, responses) = (
        settings.request_dir.display(),
        settings.response_dir.display(),
    );
    format!(
        "create the directories where the responder runs (install -d -m 0755 {requests} {responses}) or {}",
        ban()
    )
}

fn ban() -> &'static str {
    "ban the device from this node (pcs constraint location DEVICE avoids NODE)"
}

/// Ends before any request was made; the event is recorded for whatever was named as target.
pub fn refuse(
    agent: &Agent<'_>,
    settings: &Settings,
    action: Action,
    status: Status,
    reason: &dyn Display,
) -> Exit {
    let (action, details) = (action.as_str(), &reason.to_string());
    let chosen = super::target::chosen(settings).ok().flatten();
    let named = chosen.map(|(_, value)| value).or(settings.plug.as_deref());
    agent.console.allow_logging();
    let Some(target) = named else {
        agent
            .console
            .failure(&format!("{action} failed: {details}"));
        return Exit::Failure;
    };
    agent
        .console
        .failure(&format!("{action} of {target} failed: {details}"));
    let event = Event {
        action,
        target,
        status,
        details,
        request_id: None,
        duration: None,
    };
    if let Err(fault) = super::audit(settings).record(&event) {
        agent.console.audit_warning(&fault.to_string());
    }
    Exit::Failure
}

/// One call of the agent that has a spool and knows its targets.
struct Fence<'a> {
    desk: Desk<'a>,
    targets: Vec<NodeName>,
    /// Both rounds of a reboot share it (design 8).
    deadline: Instant,
}

impl Fence<'_> {
    fn carry_out(&self, action: Action) -> Exit {
        let count = self.targets.len();
        if action != Action::Reboot || count == 1 {
            let ends = self.round(action, Round::AllOrNothing, "");
            let said = match action {
                Action::Off => "Success: Powered OFF",
                Action::On => "Success: Powered ON",
                Action::Reboot => "Success: Rebooted",
            };
            return self.conclude(action, &ends, || said.to_owned());
        }
        let off = self.round(
            Action::Off,
            Round::AllOrNothing,
            &format!("reboot of {count} plugs: off for all of them"),
        );
        self.conclude(action, &off, || self.switch_on(count))
    }

    /// The second half of a reboot of several plugs; the node was off, so nothing here is a failure.
    fn switch_on(&self, count: usize) -> String {
        if !self.desk.settings.request_on {
            return format!(
                "Success: Powered OFF ({count} plugs; on was not requested: request_on=0)"
            );
        }
        let on = self.round(
            Action::On,
            Round::Each,
            &format!("reboot of {count} plugs: on for all of them"),
        );
        let failed: Vec<_> = on
            .iter()
            .filter(|end| end.status != Status::Completed)
            .collect();
        for end in &failed {
            let warning = format!("{} is off, but on failed: {}", end.target, end.reason);
            self.desk.console.warning(&warning);
        }
        if failed.is_empty() {
            format!("Success: Rebooted ({count} plugs: off for all, then on for all)")
        } else {
            format!(
                "Success: Powered OFF ({count} plugs; on failed for {} of them)",
                failed.len()
            )
        }
    }

    fn round(&self, action: Action, round: Round, details: &str) -> Vec<End> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        // whole milliseconds are enough for people and still exact for the deadline
        let left = Duration::from_millis(u64::try_from(left.as_millis() + 1).unwrap_or(u64::MAX))
            .min(self.desk.settings.response_timeout);
        let nodename = self.desk.settings.nodename.as_deref();
        let host = &self.desk.audit.host;
        let requests = self
            .targets
            .iter()
            .map(|target| Request::new(action, target, nodename, host, left))
            .collect();
        fence(&self.desk, requests, self.deadline, round, details)
    }

    fn conclude(&self, action: Action, ends: &[End], success: impl FnOnce() -> String) -> Exit {
        let all_succeeded = ends.len() == self.targets.len()
            && ends.iter().all(|end| end.status == Status::Completed);
        if all_succeeded {
            let said = success();
            self.desk.console.success(&said);
            return Exit::Success;
        }
        let first = ends.iter().find(|end| end.status != Status::Completed);
        let reason = first.map_or("no request was written", |end| end.reason.as_str());
        let target = first.map_or("", |end| end.target.as_str());
        self.desk
            .console
            .failure(&format!("{} of {target} failed: {reason}", action.as_str()));
        Exit::Failure
    }
}
