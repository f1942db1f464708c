//! `fence_recorder fenced`: which nodes count as fenced, since when and by which request.

use std::path::Path;
use std::process::ExitCode;

use clap::ArgMatches;

use jiff::Timestamp;
use nix::errno::Errno;
use serde_json::json;
use thiserror::Error;

use super::options::{response_dir, response_dir_of};
use super::view::table::{Cell, Table};
use super::view::terminal::{Style, Tone};
use super::view::{View, json_option, show, watch_option};
use crate::clock::{brief, local_zone, since, span};
use crate::spool::calls::DirectoryCalls;
use crate::spool::directory::{Directory, DirectoryFault, Role, Trust};
use crate::spool::fenced::{Fencing, ResponseNames};
use crate::spool::system::with_advice;
use crate::spool::time::timestamp_text;

/// Why that can't be said.
#[derive(Debug, Error)]
enum Fault {
    #[error("response_dir {0}")]
    Directory(#[from] DirectoryFault),
    #[error("response_dir {path} can't be read: {}", with_advice(*.error))]
    List { path: String, error: Errno },
}

/// The options, from which parser, help and manual are made.
#[must_use]
pub fn command() -> clap::Command {
    crate::commands::FENCED
        .command()
        .arg(json_option())
        .arg(watch_option())
        .arg(response_dir())
}

/// Shows them.
#[must_use]
pub fn main(matches: &ArgMatches) -> ExitCode {
    let response_dir = response_dir_of(matches);
    show(matches, |style| look(&response_dir, style))
}

fn look(response_dir: &Path, style: &Style) -> Result<View, Fault> {
    let responses = Directory::open(response_dir, Role::Responses, Trust::Waived)?;
    let names = ResponseNames::collect(&responses, |_| true).map_err(|error| Fault::List {
        path: responses.path_of(""),
        error,
    })?;
    let fenced: Vec<_> = names
        .nodes()
        .filter_map(|node| names.fenced_by(&responses, node))
        .collect();
    let shown = fenced.iter().map(|fencing| {
        json!({
            "node": fencing.name.node(),
            "request_id": fencing.name.request_id(),
            "since": timestamp_text(fencing.written),
            "message": fencing.response.message,
        })
    });
    Ok(View {
        json: shown.collect(),
        text: table(&fenced).render(style, "no node is fenced"),
    })
}

fn table(fenced: &[Fencing]) -> Table {
    let mut table = Table::new(&["NODE", "SINCE", "FOR", "REQUEST", "MESSAGE"]);
    let (zone, now) = (local_zone(), Timestamp::now());
    for fencing in fenced {
        table.row(vec![
            Cell::toned(fencing.name.node(), Tone::Bad),
            brief(fencing.written, now, &zone).into(),
            span(since(fencing.written, now)).into(),
            fencing.name.short_id().into(),
            fencing.response.message_line().into(),
        ]);
    }
    table
}
