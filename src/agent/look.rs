//! The actions that only look: status, monitor, list, list-status.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::parameters::Settings;
use super::sweeping::sweep_and_record;
use super::{Agent, Exit};
use crate::spool::Spool;
use crate::spool::calls::DirectoryCalls;
use crate::spool::directory::Trust;
use crate::spool::fenced::ResponseNames;
use crate::spool::name::{FileName, NodeName};
use crate::spool::presence::{Responder, is_watched};
use crate::spool::system::with_advice;

/// How long monitor may spend on what others left behind.
const SWEEP_TIME: Duration = Duration::from_secs(10);

fn open_spool(settings: &Settings, trust: Trust) -> Result<Spool, String> {
    Spool::open(&settings.request_dir, &settings.response_dir, trust)
        .map_err(|fault| format!("{fault}; {}", super::fence::remedies(settings)))
}

fn trust(settings: &Settings) -> Trust {
    if settings.allow_insecure_dirs {
        Trust::Waived
    } else {
        Trust::Checked
    }
}

fn unreadable(settings: &Settings, error: Errno) -> String {
    format!(
        "response_dir {} can't be read: {}",
        settings.response_dir.display(),
        with_advice(error)
    )
}

/// Whether all targets are fenced: exit 2 and OFF, or exit 0 and ON (design 4.2).
///
/// # Errors
/// Why it can't be said, which is exit 1.
pub fn status(agent: &Agent<'_>, settings: &Settings) -> Result<Exit, String> {
    let targets = super::target::targets(settings).map_err(|fault| fault.to_string())?;
    let spool = open_spool(settings, trust(settings))?;
    let is_target = |node: &str| targets.iter().any(|target| target.as_str() == node);
    let names = ResponseNames::collect(&spool.responses, is_target)
        .map_err(|error| unreadable(settings, error))?;
    let all_off = targets
        .iter()
        .all(|target| names.is_fenced(&spool.responses, target.as_str()));
    let (said, exit) = if all_off {
        ("Status: OFF\n", Exit::Off)
    } else {
        ("Status: ON\n", Exit::Success)
    };
    // the exit code says the same, so it stands even if nobody reads the words
    let _ = agent.console.output(said);
    Ok(exit)
}

/// Whether this node can hand fencing over (design 4.2). It is Pacemaker's start operation too.
///
/// # Errors
/// Why not.
pub fn monitor(agent: &Agent<'_>, settings: &Settings) -> Result<Exit, String> {
    let spool = open_spool(settings, trust(settings))?;
    if settings.responder_check && !is_watched(&spool.requests) {
        return Err(super::fence::nobody_watches(settings));
    }
    if settings.allow_insecure_dirs {
        agent.console.warning(&match open_spool(settings, Trust::Checked) {
            Ok(_) => "allow_insecure_dirs=1 is not needed: the directories are safe, unset it".to_owned(),
            Err(fault) => format!("allow_insecure_dirs=1: a fence that never happened can be made to succeed: {fault}"),
        });
    }
    agent.console.allow_logging();
    let end = Instant::now() + SWEEP_TIME;
    let mut cancelled = None;
    let overdue = sweep_and_record(
        &spool.requests,
        settings,
        &super::audit(settings),
        &agent.console,
        || {
            cancelled = agent.interrupt.signal();
            cancelled.is_none() && Instant::now() < end
        },
    );
    if let Some(signal) = cancelled {
        return Err(format!("cancelled by {signal}"));
    }
    if let Some(first) = overdue.first() {
        let (count, directory) = (overdue.len(), settings.request_dir.display());
        agent.console.warning(&format!(
            "{count} pending past the deadline in {directory}, the first for {first}: check the responder"
        ));
    }
    Ok(Exit::Success)
}

/// The nodes known from the responder, pending requests and responses, one a line (design 4.2).
///
/// # Errors
/// Why they can't be said.
pub fn list(agent: &Agent<'_>, settings: &Settings, with_status: bool) -> Result<Exit, String> {
    let spool = open_spool(settings, trust(settings))?;
    let responses = ResponseNames::collect(&spool.responses, |_| true)
        .map_err(|error| unreadable(settings, error))?;
    let mut nodes: BTreeMap<String, bool> = BTreeMap::new();
    if let Some(responder) = Responder::read(&spool.requests) {
        nodes.extend(responder.plain_nodes().map(|node| (node.to_owned(), false)));
    }
    let listed = spool.requests.for_each_name(|name| {
        nodes.extend(FileName::parse(name).map(|name| (name.node().to_owned(), false)));
        true
    });
    listed.map_err(|error| {
        format!(
            "request_dir {} can't be read: {}",
            settings.request_dir.display(),
            with_advice(error)
        )
    })?;
    nodes.extend(responses.nodes().map(|node| {
        (
            node.to_owned(),
            with_status && responses.is_fenced(&spool.responses, node),
        )
    }));
    let mut lines = String::new();
    for (node, is_off) in nodes
        .iter()
        .filter(|(node, _)| NodeName::parse(node).is_ok())
    {
        let separator = &settings.separator;
        let status = if *is_off { "OFF" } else { "ON" };
        let _ = if with_status {
            writeln!(lines, "{node}{separator}{separator}{status}")
        } else {
            writeln!(lines, "{node}{separator}")
        };
    }
    super::print(agent, &lines)
}
