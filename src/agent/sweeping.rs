//! Sweeps dead requests and records them as expired.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::console::Console;
use super::parameters::Settings;
use super::wait::Desk;
use crate::audit::{Audit, Event, Status};
use crate::spool::directory::Directory;
use crate::spool::sweep::{SweepRules, Swept, sweep};

/// How long a fence may spend on what others left behind, while its responder works.
const BRIEFLY: Duration = Duration::from_millis(200);

/// Sweeps beside a fence, until a response may be there: what it doesn't get to is left to monitor.
pub fn sweep_briefly(desk: &Desk<'_>) {
    let end = Instant::now() + BRIEFLY;
    let _ = sweep_and_record(
        &desk.spool.requests,
        desk.settings,
        desk.audit,
        desk.console,
        || Instant::now() < end && !desk.watch.has_news(),
    );
}

/// Sweeps, records each request it removes, and returns which nodes' requests are past their
/// deadline, but not yet dead.
pub fn sweep_and_record(
    requests: &Directory,
    settings: &Settings,
    audit: &Audit,
    console: &Console<'_>,
    go_on: impl FnMut() -> bool,
) -> Vec<String> {
    let rules = SweepRules {
        host: &audit.host,
        max_age: settings.cleanup_max_age,
        now: Timestamp::now(),
    };
    let mut overdue = Vec::new();
    sweep(requests, rules, go_on, |swept| match swept {
        Swept::Expired(request) => {
            console.debug(
                1,
                &format!(
                    "removed the dead request {} for {}",
                    request.request_id, request.target_node
                ),
            );
            let recorded = audit.record(&Event {
                action: request.action.as_str(),
                target: &request.target_node,
                status: Status::Expired,
                details: &format!(
                    "no agent withdrew it; asked by {} at {}",
                    request.recorder_node, request.timestamp
                ),
                request_id: Some(&request.request_id),
                duration: None,
            });
            if let Err(fault) = recorded {
                console.audit_warning(&fault.to_string());
            }
        }
        Swept::Overdue(request) => overdue.push(request.target_node),
        Swept::Fault(fault) => console.warning(&fault),
    });
    overdue
}
