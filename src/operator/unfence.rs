//! `fence_recorder unfence`: an administrator lets a fenced node back in.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use jiff::Timestamp;
use nix::errno::Errno;
use serde_json::json;
use thiserror::Error;

use super::options::{
    flag, log_dir, log_dir_of, request_dir, request_dir_of, response_dir, response_dir_of, text_of,
    word,
};
use super::person::{self, Said};
use super::view::{View, failed, json_option, print};
use crate::audit::{Audit, Event, Status};
use crate::clock::since;
use crate::jobs::store::{Store, StoreFault};
use crate::spool::calls::DirectoryCalls;
use crate::spool::clear::{CLEARED, ClearFault, clear};
use crate::spool::directory::{Directory, DirectoryFault, Role, Trust};
use crate::spool::fenced::ResponseNames;
use crate::spool::name::{FileName, NodeName, NodeNameFault};
use crate::spool::system::with_advice;
use crate::spool::waiting::{WaitingFault, waiting};

/// An agent may still read a response that is younger.
const YOUNG: Duration = Duration::from_secs(10);

/// Why the node stays as it is.
#[derive(Debug, Error)]
enum Fault {
    #[error("{0}")]
    Node(#[from] NodeNameFault),
    #[error("response_dir {0}")]
    Responses(DirectoryFault),
    #[error("response_dir {path} can't be read: {}", with_advice(*.error))]
    List { path: String, error: Errno },
    #[error(
        "{node} has no response in {path}: is that its name? fence_recorder fenced lists those that are fenced"
    )]
    Nothing { node: NodeName, path: String },
    #[error("{node} isn't left alone: {why}: wait for that to end, or use --force")]
    Busy { node: NodeName, why: Busy },
    #[error("not confirmed: {0} is fenced as before")]
    NotConfirmed(NodeName),
    #[error(
        "this lets {0} back to what it was cut off from: confirm it on a terminal, or with --yes"
    )]
    NoTerminal(NodeName),
    #[error("{0}")]
    Clear(#[from] ClearFault),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// What goes on with the node.
#[derive(Debug, Error)]
enum Busy {
    #[error("request_dir {0}")]
    Directory(#[from] DirectoryFault),
    #[error("{0}")]
    Waiting(#[from] WaitingFault),
    #[error("the request {0} is pending")]
    Pending(String),
    #[error("the responder's job {0} is not over")]
    Job(String),
    #[error("the responder's records: {0}")]
    Store(#[from] StoreFault),
    #[error("the responder's records can't be read: {}", with_advice(*.0))]
    Records(Errno),
    #[error("the response to {0} is younger than 10 s, and its agent may still read it")]
    Young(String),
}

/// The options, from which parser, help and manual are made.
#[must_use]
pub fn command() -> clap::Command {
    crate::commands::UNFENCE
        .command()
        .arg(word("node", "NODE", "Which node").required(true))
        .arg(flag("yes", "Don't ask"))
        .arg(flag(
            "force",
            "Even while the node has a pending request, a running job or a response younger than 10 s",
        ))
        .arg(json_option())
        .arg(request_dir())
        .arg(response_dir())
        .arg(log_dir())
}

/// Unfences, and says what was taken away.
#[must_use]
pub fn main(matches: &ArgMatches) -> ExitCode {
    let done = unfence(matches).map_err(|fault| fault.to_string());
    match done.and_then(|view| print(&view, matches.get_flag("json"))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => failed(&fault),
    }
}

/// One node, and where all that concerns it lies.
struct Subject {
    node: NodeName,
    request_dir: PathBuf,
    responses: Directory,
}

fn unfence(matches: &ArgMatches) -> Result<View, Fault> {
    let response_dir = response_dir_of(matches);
    let subject = Subject {
        node: NodeName::parse(text_of(matches, "node").unwrap_or_default())?,
        request_dir: request_dir_of(matches),
        responses: Directory::open(&response_dir, Role::Responses, Trust::Waived)
            .map_err(Fault::Responses)?,
    };
    let is_forced = matches.get_flag("force");
    subject.ready(is_forced)?;
    if !matches.get_flag("yes") {
        subject.confirm()?;
    }
    // the person may have taken his time
    let names = subject.ready(is_forced)?;
    let audit = Audit::new(log_dir_of(matches));
    let mut cleared = Vec::new();
    let result = names.iter().try_for_each(|name| {
        cleared.extend(clear(&subject.responses, name)?.then_some(name));
        Ok(())
    });
    if let Some(newest) = cleared.last() {
        subject.record(&audit, newest, cleared.len());
    }
    result.map(|()| subject.view(&cleared))
}

impl Subject {
    /// The node's responses, the oldest first, if nothing goes on with it.
    fn ready(&self, is_forced: bool) -> Result<Vec<FileName>, Fault> {
        let node = &self.node;
        let names = ResponseNames::collect(&self.responses, |other| other == node.as_str())
            .map_err(|error| Fault::List {
                path: self.responses.path_of(""),
                error,
            })?;
        let mut names = names.of(node.as_str()).to_vec();
        names.sort_by_cached_key(|name| self.written(name));
        let Some(newest) = names.last() else {
            return Err(Fault::Nothing {
                node: node.clone(),
                path: self.responses.path_of(""),
            });
        };
        if !is_forced {
            self.refuse_if_busy(newest).map_err(|why| Fault::Busy {
                node: node.clone(),
                why,
            })?;
        }
        Ok(names)
    }

    fn written(&self, name: &FileName) -> Option<Timestamp> {
        self.responses.written(name.as_str().as_ref())
    }

    fn refuse_if_busy(&self, newest: &FileName) -> Result<(), Busy> {
        let node = self.node.as_str();
        match Directory::open(&self.request_dir, Role::Responses, Trust::Waived) {
            // no requests, no fence
            Err(DirectoryFault::Missing(_)) => {}
            requests => {
                let pending = waiting(&requests?, |name| name.node() == node)?;
                if let Some((name, _)) = pending.first() {
                    return Err(Busy::Pending(name.request_id().to_owned()));
                }
            }
        }
        if let Some(id) = self.running_job()? {
            return Err(Busy::Job(id));
        }
        let written = self.written(newest);
        match written {
            Some(written) if since(written, Timestamp::now()) < YOUNG => {
                Err(Busy::Young(newest.request_id().to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn running_job(&self) -> Result<Option<String>, Busy> {
        let store = match Store::open(&super::jobs::state_dir(&self.request_dir)) {
            // no responder of ours has been here
            Err(StoreFault::Directory(
                DirectoryFault::Missing(_)
                | DirectoryFault::System {
                    error: Errno::ENOENT,
                    ..
                },
            )) => return Ok(None),
            store => store?,
        };
        let mut running = None;
        let visited = store.for_each(|id, record| {
            let is_running = record
                .is_ok_and(|job| job.request.target_node == self.node.as_str() && !job.is_over());
            running = running.take().or_else(|| is_running.then(|| id.to_owned()));
        });
        visited.map_err(Busy::Records)?;
        Ok(running)
    }

    fn confirm(&self) -> Result<(), Fault> {
        let question = format!(
            "This lets {self} back to what it was cut off from. If it still runs as it did when it was fenced, the cluster \
             will corrupt data: go on only after you have seen that it is off, or was started anew."
        );
        match person::ask(&question)? {
            Said::Yes => Ok(()),
            Said::No => Err(Fault::NotConfirmed(self.node.clone())),
            Said::Nobody => Err(Fault::NoTerminal(self.node.clone())),
        }
    }

    /// A fault of logging doesn't take anything back (design 4.1).
    fn record(&self, audit: &Audit, newest: &FileName, count: usize) {
        let recorded = audit.record(&Event {
            action: "unfence",
            target: self.node.as_str(),
            status: Status::Unfenced,
            details: &format!("{} taken away by {}", responses(count), person::name()),
            request_id: Some(newest.request_id()),
            duration: None,
        });
        if let Err(fault) = recorded {
            let _ = failed(&format_args!("unfenced, but not recorded: {fault}"));
        }
    }

    fn view(&self, cleared: &[&FileName]) -> View {
        let kept = self.responses.path_of(CLEARED);
        let names: Vec<_> = cleared.iter().map(|name| name.as_str()).collect();
        View {
            text: format!(
                "{self} is unfenced: {} moved to {kept}\n",
                responses(names.len())
            ),
            json: json!({"node": self.node.as_str(), "cleared": names, "kept_in": kept}),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::text::one_line(self.node.as_str()))
    }
}

fn responses(count: usize) -> String {
    match count {
        1 => "1 response".to_owned(),
        count => format!("{count} responses"),
    }
}
