//! Removes what agents that were killed left behind in request_dir.

use std::ffi::OsStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nix::errno::Errno;

use super::calls::DirectoryCalls;
use super::name::{FileName, is_temporary};
use super::request::Request;
use super::system::with_advice;
use super::time::from_file_time;
use super::withdraw::CLAIMED;

/// How long past its deadline this host's own request is left alone: its agent may still be at
/// withdrawing it (design 3.3).
const GRACE: Duration = Duration::from_secs(10);

/// When a request is dead (design 3.3).
#[derive(Debug, Clone, Copy)]
pub struct SweepRules<'a> {
    /// This host, as it stands in `recorder_node`.
    pub host: &'a str,
    /// How long past their deadline requests of other hosts and claims are left alone.
    pub max_age: Duration,
    /// The time by the wall clock, as deadlines are.
    pub now: Timestamp,
}

/// What a sweep came upon.
#[derive(Debug)]
pub enum Swept {
    /// This sweep, and no other, removed a dead request.
    Expired(Request),
    /// Past its deadline and not yet dead.
    Overdue(Request),
    /// Something can't be removed or read: what, and what to do.
    Fault(String),
}

/// Looks at every request and claim, removes the dead ones and temporary files nobody writes any
/// more, and calls `report` for what deserves it. Stops early when `go_on` says no, so that a
/// full spool can't hold up a fence. Files that are no requests are left for people to see.
pub fn sweep<D: DirectoryCalls>(
    requests: &D,
    rules: SweepRules<'_>,
    mut go_on: impl FnMut() -> bool,
    mut report: impl FnMut(Swept),
) {
    sweep_in(requests, rules, false, &mut go_on, &mut report);
    match requests.open_below(CLAIMED) {
        Ok(claimed) => sweep_in(&claimed, rules, true, &mut go_on, &mut report),
        Err(Errno::ENOENT) => {}
        Err(error) => report(Swept::Fault(format!(
            "{} can't be swept: {}",
            requests.path_of(CLAIMED),
            with_advice(error)
        ))),
    }
}

fn sweep_in<D: DirectoryCalls>(
    directory: &D,
    rules: SweepRules<'_>,
    are_claims: bool,
    go_on: &mut dyn FnMut() -> bool,
    report: &mut dyn FnMut(Swept),
) {
    let mut removed = false;
    let listed = directory.for_each_name(|name| {
        if is_temporary(name) {
            removed |= remove_stale_temporary(directory, name, rules);
        } else if let Some(name) = FileName::parse(name)
            && let Some(swept) = sweep_one(directory, &name, rules, are_claims)
        {
            removed |= matches!(swept, Swept::Expired(_));
            report(swept);
        }
        go_on()
    });
    let synced = if removed { directory.sync() } else { Ok(()) };
    if let Err(error) = listed.and(synced) {
        report(Swept::Fault(format!(
            "{} can't be swept: {}",
            directory.path_of(""),
            with_advice(error)
        )));
    }
}

fn sweep_one<D: DirectoryCalls>(
    directory: &D,
    name: &FileName,
    rules: SweepRules<'_>,
    is_claim: bool,
) -> Option<Swept> {
    let (request, written) = Request::read(directory, name).ok()?;
    let end = request.own_deadline().unwrap_or(written);
    let is_own = !is_claim && request.recorder_node == rules.host;
    let grace = if is_own { GRACE } else { rules.max_age };
    if !is_past(end, grace, rules.now) {
        return is_past(end, Duration::ZERO, rules.now).then_some(Swept::Overdue(request));
    }
    match directory.remove(name.as_str()) {
        Ok(()) => Some(Swept::Expired(request)),
        Err(Errno::ENOENT) => None,
        Err(error) => {
            let path = directory.path_of(name.as_str());
            Some(Swept::Fault(format!(
                "the dead request {path} can't be removed: {}",
                with_advice(error)
            )))
        }
    }
}

fn remove_stale_temporary<D: DirectoryCalls>(
    directory: &D,
    name: &OsStr,
    rules: SweepRules<'_>,
) -> bool {
    let Ok(status) = directory.entry(name) else {
        return false;
    };
    let Some(name) = name.to_str() else {
        return false;
    };
    // never one that an agent is writing at this moment, whatever cleanup_max_age says
    is_past(from_file_time(&status), rules.max_age.max(GRACE), rules.now)
        && directory.remove(name).is_ok()
}

fn is_past(end: Timestamp, grace: Duration, now: Timestamp) -> bool {
    SignedDuration::try_from(grace)
        .is_ok_and(|grace| end.checked_add(grace).is_ok_and(|end| now > end))
}
