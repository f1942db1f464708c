//! `fence_recorder history`: what became of each request, from the audit.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use clap::builder::PossibleValuesParser;
use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::json;

use super::options::{log_dir, log_dir_of, text_of, value, word};
use super::view::table::{Cell, Table};
use super::view::terminal::{Style, Tone};
use super::view::{View, failed, json_option, show, watch_option};
use crate::audit::Status;
use crate::audit::read::{Recorded, for_each_event};
use crate::clock::{brief, local_zone, span};
use crate::spool::name::short_id;

/// The options, from which parser, help and manual are made.
#[must_use]
pub fn command() -> clap::Command {
    crate::commands::HISTORY
        .command()
        .arg(word("node", "NODE", "Of this node alone"))
        .arg(value(
            "since",
            "TIME",
            "What happened since then: 2h, 1d 12h, 2026-01-14, \"2026-01-14 13:45\", or RFC 3339",
        ))
        .arg(
            value(
                "status",
                "STATUS",
                "With this status alone, or one of several: failed,timed_out",
            )
            .value_delimiter(',')
            .value_parser(PossibleValuesParser::new(Status::ALL.map(Status::as_str))),
        )
        .arg(json_option())
        .arg(watch_option())
        .arg(log_dir())
}

/// Shows it.
#[must_use]
pub fn main(matches: &ArgMatches) -> ExitCode {
    let wanted = match Wanted::read(matches) {
        Ok(wanted) => wanted,
        Err(fault) => return failed(&fault),
    };
    show(matches, |style| look(&wanted, style))
}

/// What is asked for.
struct Wanted {
    log_dir: PathBuf,
    node: Option<String>,
    since: Option<Since>,
    statuses: Vec<String>,
}

/// From when on.
enum Since {
    /// A moment.
    Moment(Timestamp),
    /// So long ago, at each look.
    Ago(SignedDuration),
}

impl Wanted {
    fn read(matches: &ArgMatches) -> Result<Self, String> {
        let statuses = matches.get_many::<String>("status");
        Ok(Self {
            log_dir: log_dir_of(matches),
            node: text_of(matches, "node").map(str::to_owned),
            since: text_of(matches, "since").map(Since::read).transpose()?,
            statuses: statuses
                .map(|all| all.cloned().collect())
                .unwrap_or_default(),
        })
    }

    fn since(&self) -> Option<Timestamp> {
        match self.since.as_ref()? {
            Since::Moment(moment) => Some(*moment),
            Since::Ago(time) => Timestamp::now().checked_sub(*time).ok(),
        }
    }

    fn has(&self, entry: &Entry, since: Option<Timestamp>) -> bool {
        let is_node = self
            .node
            .as_ref()
            .is_none_or(|node| entry.target_node == *node);
        let is_status = self.statuses.is_empty() || self.statuses.contains(&entry.status);
        is_node && is_status && since.is_none_or(|since| entry.last_event >= since)
    }
}

impl Since {
    fn read(text: &str) -> Result<Self, String> {
        let local = |text: &str| {
            let time = text
                .parse::<DateTime>()
                .ok()?
                .to_zoned_datetime(local_zone())
                .ok()?;
            Some(Self::Moment(time.timestamp()))
        };
        let moment = |text: &str| Some(Self::Moment(text.parse().ok()?));
        let ago = |text: &str| {
            let span = text.parse::<jiff::Span>().ok()?;
            let time = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours());
            Some(Self::Ago(
                time.ok().filter(|time| *time > SignedDuration::ZERO)?,
            ))
        };
        moment(text).or_else(|| local(text)).or_else(|| ago(text)).ok_or_else(|| {
            let text = crate::text::one_line(text);
            format!("--since: \"{text}\" is no time: 2h, 1d 12h, 2026-01-14, \"2026-01-14 13:45\" and RFC 3339 are")
        })
    }
}

/// One request with all its events, or an event without a request, as `--json` has it.
#[derive(Debug, Serialize)]
struct Entry {
    request_id: Option<String>,
    target_node: String,
    action: Option<String>,
    /// Of the last event.
    status: String,
    first_event: Timestamp,
    last_event: Timestamp,
    duration_seconds: Option<f64>,
    details: Option<String>,
    recorder_node: Option<String>,
}

impl From<Recorded> for Entry {
    fn from(event: Recorded) -> Self {
        Self {
            request_id: event.request_id,
            target_node: event.target_node,
            action: event.action,
            status: event.status,
            first_event: event.timestamp,
            last_event: event.timestamp,
            duration_seconds: event.duration_seconds,
            details: event.details,
            recorder_node: event.recorder_node,
        }
    }
}

/// Puts the events of one request together. What an administrator took back later is an entry of
/// its own.
#[derive(Default)]
struct Collected {
    entries: Vec<Entry>,
    by_request: HashMap<String, usize>,
}

impl Collected {
    fn add(&mut self, event: Recorded) {
        let is_own = event.status == Status::Unfenced.as_str();
        let id = event.request_id.clone().filter(|_| !is_own);
        let known = id.as_ref().and_then(|id| self.by_request.get(id));
        let Some(entry) = known.and_then(|number| self.entries.get_mut(*number)) else {
            self.by_request
                .extend(id.map(|id| (id, self.entries.len())));
            self.entries.push(event.into());
            return;
        };
        // files of one second may be read in any order
        let is_later = event.timestamp >= entry.last_event;
        let first_event = entry.first_event.min(event.timestamp);
        if is_later && event.status != Status::Requested.as_str() {
            *entry = event.into();
        }
        entry.first_event = first_event;
    }
}

fn look(wanted: &Wanted, style: &Style) -> Result<View, String> {
    let since = wanted.since();
    let mut collected = Collected::default();
    for_each_event(
        &wanted.log_dir,
        since,
        |event| collected.add(event),
        |complaint| _ = writeln!(io::stderr(), "fence_recorder: {complaint}"),
    )?;
    let mut entries = collected.entries;
    entries.retain(|entry| wanted.has(entry, since));
    entries.sort_by_key(|entry| entry.last_event);
    Ok(View {
        text: table(&entries).render(style, "nothing is recorded"),
        json: json!(entries),
    })
}

fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new(&[
        "TIME",
        "NODE",
        "ACTION",
        "STATUS",
        "TOOK",
        "RECORDED BY",
        "REQUEST",
    ]);
    let (zone, now) = (local_zone(), Timestamp::now());
    let or_dash = |text: Option<&str>| Cell::from(text.unwrap_or("-"));
    for entry in entries {
        let is_over = entry.status != Status::Requested.as_str();
        let took = entry
            .duration_seconds
            .filter(|_| is_over)
            .map(|time| Duration::try_from_secs_f64(time).unwrap_or_default());
        let cells = vec![
            brief(entry.last_event, now, &zone).into(),
            (&entry.target_node).into(),
            or_dash(entry.action.as_deref()),
            Cell::toned(&entry.status, tone(&entry.status)),
            took.map_or_else(|| "-".to_owned(), span).into(),
            or_dash(entry.recorder_node.as_deref()),
            or_dash(entry.request_id.as_deref().map(short_id)),
        ];
        table.row_with(cells, entry.details.as_deref().unwrap_or_default());
    }
    table
}

fn tone(status: &str) -> Tone {
    let known = Status::ALL
        .into_iter()
        .find(|known| known.as_str() == status);
    match known {
        Some(Status::Completed) => Tone::Good,
        Some(Status::Failed | Status::TimedOut) => Tone::Bad,
        Some(Status::Cancelled | Status::Expired) => Tone::Caution,
        Some(Status::Requested | Status::Unfenced) | None => Tone::Plain,
    }
}
