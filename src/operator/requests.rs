//! `fence_recorder requests`: what waits in the spool, and who holds it.

use std::process::ExitCode;

use clap::ArgMatches;
use std::time::Duration;

use jiff::Timestamp;
use nix::errno::Errno;
use serde::Serialize;
use serde_json::json;
use thiserror::Error;

use super::options::{request_dir, request_dir_of};
use super::view::table::{Cell, Table};
use super::view::terminal::{Style, Tone};
use super::view::{View, json_option, show, watch_option};
use crate::clock::{since, span};
use crate::spool::calls::DirectoryCalls;
use crate::spool::directory::{Directory, DirectoryFault, Role, Trust};
use crate::spool::lock::{LOCK, Lock};
use crate::spool::name::FileName;
use crate::spool::presence::Responder;
use crate::spool::request::{Action, Request, RequestFault};
use crate::spool::system::with_advice;
use crate::spool::waiting::{WaitingFault, Where, waiting};
use crate::spool::withdraw::CLAIMED;

/// Why the requests can't be shown.
#[derive(Debug, Error)]
enum Fault {
    #[error("request_dir {0}")]
    Directory(#[from] DirectoryFault),
    #[error("{0}")]
    Waiting(#[from] WaitingFault),
    #[error("{path} can't be used: {}", with_advice(*.error))]
    Claimed { path: String, error: Errno },
}

/// The options, from which parser, help and manual are made.
#[must_use]
pub fn command() -> clap::Command {
    crate::commands::REQUESTS
        .command()
        .arg(json_option())
        .arg(watch_option())
        .arg(request_dir())
}

/// Shows them.
#[must_use]
pub fn main(matches: &ArgMatches) -> ExitCode {
    let request_dir = request_dir_of(matches);
    show(matches, |style| look(&request_dir, style))
}

/// How far a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Pending,
    Claimed,
    /// Past its deadline.
    Expired,
    /// No responder takes it for a request.
    Invalid,
}

impl State {
    fn as_cell(self) -> Cell {
        match self {
            Self::Pending => Cell::toned("pending", Tone::Caution),
            Self::Claimed => Cell::toned("claimed", Tone::Good),
            Self::Expired => Cell::toned("expired", Tone::Bad),
            Self::Invalid => Cell::toned("invalid", Tone::Bad),
        }
    }
}

/// One request, as `--json` has it.
#[derive(Debug, Serialize)]
struct Shown {
    request_id: String,
    node: String,
    nodename: Option<String>,
    action: Option<Action>,
    state: State,
    timestamp: Option<String>,
    deadline: Option<String>,
    age_seconds: Option<f64>,
    seconds_left: Option<f64>,
    requested_by: Option<String>,
    held_by: Option<String>,
    fault: Option<String>,
}

fn look(request_dir: &std::path::Path, style: &Style) -> Result<View, Fault> {
    let requests = Directory::open(request_dir, Role::Responses, Trust::Waived)?;
    let names = waiting(&requests, |_| true)?;
    let claimed = match requests.open_below(CLAIMED) {
        Ok(claimed) => Some(claimed),
        Err(Errno::ENOENT) => None,
        Err(error) => {
            let path = requests.path_of(CLAIMED);
            return Err(Fault::Claimed { path, error });
        }
    };
    let holder = holder(&requests);
    let now = Timestamp::now();
    let mut shown = Vec::new();
    for (name, place) in names {
        let (directory, held_by) = match (place, &claimed) {
            (Where::Claimed, Some(claimed)) => (claimed, Some(holder.clone())),
            _ => (&requests, None),
        };
        match Request::read(directory, &name) {
            // it ended at this moment
            Err(RequestFault::File(crate::spool::file::FileFault::Missing)) => {}
            read => shown.push(describe(&name, read, held_by, now)),
        }
    }
    let age = |one: &Shown| one.age_seconds.unwrap_or(f64::INFINITY);
    shown.sort_by(|one, other| age(other).total_cmp(&age(one)));
    Ok(View {
        text: table(&shown).render(style, "no request is pending"),
        json: json!(shown),
    })
}

/// Who holds what is claimed.
fn holder(requests: &Directory) -> String {
    match Responder::read(requests) {
        _ if !Lock::is_held(requests, LOCK) => "nobody".to_owned(),
        Some(responder) => format!("responder {}", responder.pid),
        None => "a responder".to_owned(),
    }
}

fn describe(
    name: &FileName,
    read: Result<(Request, Timestamp), RequestFault>,
    held_by: Option<String>,
    now: Timestamp,
) -> Shown {
    let mut shown = Shown {
        request_id: name.request_id().to_owned(),
        node: name.node().to_owned(),
        nodename: None,
        action: None,
        state: State::Invalid,
        timestamp: None,
        deadline: None,
        age_seconds: None,
        seconds_left: None,
        requested_by: None,
        held_by,
        fault: None,
    };
    match read {
        Err(fault) => shown.fault = Some(fault.to_string()),
        Ok((request, written)) => {
            let deadline = request.deadline(written);
            let left = deadline.duration_since(now).as_secs_f64();
            shown.state = match &shown.held_by {
                _ if left <= 0.0 => State::Expired,
                Some(_) => State::Claimed,
                None => State::Pending,
            };
            let made = request.timestamp.parse().unwrap_or(written);
            shown.age_seconds = Some(since(made, now).as_secs_f64());
            shown.seconds_left = Some(left);
            shown.deadline = Some(deadline.to_string());
            shown.nodename = request.nodename;
            shown.action = Some(request.action);
            shown.timestamp = Some(request.timestamp);
            shown.requested_by = Some(request.recorder_node);
        }
    }
    shown
}

fn table(shown: &[Shown]) -> Table {
    let mut table = Table::new(&[
        "NODE", "ACTION", "STATE", "AGE", "LEFT", "ASKED BY", "HELD BY", "REQUEST",
    ]);
    let seconds = |seconds: Option<f64>| {
        let time = seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
        time.map_or_else(|| "-".to_owned(), span)
    };
    let or_dash = |text: Option<&str>| Cell::from(text.unwrap_or("-"));
    for one in shown {
        let cells = vec![
            (&one.node).into(),
            or_dash(one.action.map(Action::as_str)),
            one.state.as_cell(),
            seconds(one.age_seconds).into(),
            seconds(one.seconds_left).into(),
            or_dash(one.requested_by.as_deref()),
            or_dash(one.held_by.as_deref()),
            crate::spool::name::short_id(&one.request_id).into(),
        ];
        table.row_with(cells, one.fault.as_deref().unwrap_or_default());
    }
    table
}
