//! `fence_recorder jobs`: what the responder did, and does, for each request.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgMatches;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use nix::errno::Errno;
use serde_json::json;
use thiserror::Error;

use super::options::{request_dir, request_dir_of, text_of, value, word};
use super::view::table::{Cell, Table, indented};
use super::view::terminal::{Style, Tone};
use super::view::{View, json_option, show, watch_option};
use crate::clock::{brief, local, local_zone, since, span};
use crate::jobs::record::{Attempt, Condition, Kind, Reason, Record, State, TaskRecord, Truth};
use crate::jobs::store::{STATE_DIR, Store, StoreFault};
use crate::spool::directory::{Directory, Role, Trust};
use crate::spool::name::{is_id, short_id};
use crate::spool::presence::Responder;
use crate::spool::system::with_advice;
use crate::text::one_line;

/// How many jobs a table shows, unless another number is given.
const MOST: usize = 50;

/// Why the jobs can't be shown.
#[derive(Debug, Error)]
enum Fault {
    #[error("the responder's records: {0}")]
    Store(#[from] StoreFault),
    #[error("the records in {path} can't be read: {}", with_advice(*.error))]
    List { path: String, error: Errno },
    #[error("no job has the id \"{0}\" or is for a node of that name")]
    Unknown(String),
    #[error("the record of job {id} {fault}")]
    Record { id: String, fault: String },
}

/// The options, from which parser, help and manual are made.
#[must_use]
pub fn command() -> clap::Command {
    crate::commands::JOBS
        .command()
        .arg(word("target", "ID|NODE", "The job of this request, or the jobs of this node"))
        .arg(
            value("number", "NUMBER", "")
                .short('n')
                .value_parser(clap::value_parser!(usize))
                .help("Show so many at most; 0 is all. A table has 50 unless more are asked for"),
        )
        .arg(json_option())
        .arg(watch_option())
        .arg(
            value("state-dir", "DIRECTORY", "")
                .value_parser(clap::value_parser!(PathBuf))
                .help("The responder's state_dir; else where the responder of request-dir says, or /var/lib/fence_recorder"),
        )
        .arg(request_dir())
}

/// Shows them.
#[must_use]
pub fn main(matches: &ArgMatches) -> ExitCode {
    let request_dir = request_dir_of(matches);
    let given = matches.get_one::<PathBuf>("state-dir");
    let target = text_of(matches, "target");
    let number = matches.get_one::<usize>("number").copied();
    let most = match number {
        Some(0) => usize::MAX,
        Some(number) => number,
        None if matches.get_flag("json") => usize::MAX,
        None => MOST,
    };
    show(matches, |style| {
        let state_dir = given.cloned().unwrap_or_else(|| state_dir(&request_dir));
        look(&state_dir, target, most, style)
    })
}

/// Where the responder of this spool keeps its records.
pub fn state_dir(request_dir: &Path) -> PathBuf {
    let requests = Directory::open(request_dir, Role::Responses, Trust::Waived).ok();
    let responder = requests.as_ref().and_then(Responder::read);
    responder
        .and_then(|responder| responder.state_dir)
        .unwrap_or_else(|| PathBuf::from(STATE_DIR))
}

fn look(state_dir: &Path, target: Option<&str>, most: usize, style: &Style) -> Result<View, Fault> {
    let store = Store::open(state_dir)?;
    let mut jobs = Vec::new();
    let mut unreadable = Vec::new();
    let visited = store.for_each(|id, record| match record {
        Ok(record) => jobs.push(record),
        Err(fault) if fault.is_missing() => {}
        Err(fault) => unreadable.push((id.to_owned(), fault.to_string())),
    });
    visited.map_err(|error| Fault::List {
        path: one_line(&state_dir.to_string_lossy()),
        error,
    })?;
    if let Some(target) = target {
        let has_id = |job: &Record| {
            job.requests()
                .any(|request| is_id(&request.request_id, target))
        };
        let of_id: Vec<_> = jobs.iter().filter(|job| has_id(job)).collect();
        if let [job] = of_id.as_slice() {
            return Ok(whole(job, style));
        }
        if let Some((id, fault)) = unreadable.iter().find(|(id, _)| is_id(id, target)) {
            let (id, fault) = (id.clone(), fault.clone());
            return Err(Fault::Record { id, fault });
        }
        jobs.retain(|job| job.request.target_node == target || has_id(job));
        if jobs.is_empty() {
            return Err(Fault::Unknown(one_line(target)));
        }
        unreadable.clear();
    }
    jobs.sort_by_cached_key(|job| std::cmp::Reverse(time(&job.start_time)));
    Ok(list(&jobs, &unreadable, most, style))
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap_or(Timestamp::MIN)
}

/// The table of `jobs`, at `most` so many, and what can't be read.
#[must_use]
pub fn list(jobs: &[Record], unreadable: &[(String, String)], most: usize, style: &Style) -> View {
    let mut table = Table::new(&["STARTED", "NODE", "ACTION", "STATE", "TASKS", "TOOK", "JOB"]);
    let (zone, now) = (local_zone(), Timestamp::now());
    for job in jobs.iter().take(most) {
        let completed = job
            .tasks
            .iter()
            .filter(|task| task.state == State::Completed);
        let cells = vec![
            brief(time(&job.start_time), now, &zone).into(),
            (&job.request.target_node).into(),
            job.request.action.as_str().into(),
            state(job),
            format!("{}/{}", completed.count(), job.tasks.len()).into(),
            took(&job.start_time, job.completion_time.as_deref()).into(),
            short_id(&job.request.request_id).into(),
        ];
        let message = job.conditions.first().filter(|_| !is_success(job));
        table.row_with(cells, message.map_or("", |condition| &condition.message));
    }
    let mut text = table.render(style, "no job is recorded");
    if jobs.len() > most {
        let _ = writeln!(
            text,
            "and {} older ones: --number 0 shows all",
            jobs.len() - most
        );
    }
    for (id, fault) in unreadable {
        let _ = writeln!(text, "{} {fault}", one_line(id));
    }
    View {
        json: json!(jobs.iter().take(most).collect::<Vec<_>>()),
        text,
    }
}

fn is_success(job: &Record) -> bool {
    let succeeded = |condition: &&Condition| condition.kind == Kind::Succeeded;
    let condition = job.conditions.iter().find(succeeded);
    condition.is_some_and(|condition| condition.status == Truth::True)
}

fn state(job: &Record) -> Cell {
    let tone = match job.reason() {
        Some(Reason::WaitingForApproval | Reason::Queued | Reason::Interrupted) => Tone::Caution,
        Some(Reason::Running) => Tone::Plain,
        _ if is_success(job) => Tone::Good,
        _ => Tone::Bad,
    };
    let reason = job.reason().map(|reason| reason.to_string());
    Cell::toned(&reason.unwrap_or_default(), tone)
}

/// How long something took, or takes up to now.
fn took(start: &str, end: Option<&str>) -> String {
    let end = end.map_or_else(Timestamp::now, time);
    span(since(time(start), end))
}

/// Everything that is recorded of one job.
#[must_use]
pub fn whole(job: &Record, style: &Style) -> View {
    let zone = local_zone();
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let name = style.paint(Tone::Faint, &format!("{name:9}"));
        let _ = writeln!(text, "{name}  {}", one_line(value));
    };
    let request = &job.request;
    line("Job", &request.request_id);
    line("Node", &request.target_node);
    line(
        "Action",
        &format!(
            "{} (performs {})",
            request.action.as_str(),
            job.performs.as_str()
        ),
    );
    line("Rule", job.rule.as_deref().unwrap_or("none"));
    line(
        "Asked by",
        &format!(
            "{} at {}",
            request.recorder_node,
            local(time(&request.timestamp), &zone)
        ),
    );
    for joined in &job.joined {
        line(
            "Joined by",
            &format!("{} from {}", joined.request_id, joined.recorder_node),
        );
    }
    line("Deadline", &local(time(&job.deadline), &zone));
    line("Started", &local(time(&job.start_time), &zone));
    if let Some(completed) = &job.completion_time {
        let took = took(&job.start_time, Some(completed));
        line(
            "Ended",
            &format!("{} after {took}", local(time(completed), &zone)),
        );
    }
    if let Some(answer) = &job.answer {
        line("Answer", &answer.to_string());
    }
    for (number, task) in job.tasks.iter().enumerate() {
        text.push_str(&task_lines(number, task, &zone, style));
    }
    text.push('\n');
    text.push_str(&conditions(job, &zone).render(style, "no condition is recorded"));
    View {
        json: json!(job),
        text,
    }
}

fn task_lines(number: usize, task: &TaskRecord, zone: &TimeZone, style: &Style) -> String {
    let state = style.paint(tone_of(task.state), &format!("{:?}", task.state));
    let mut text = format!("\nTask {}: {}: {state}\n", number + 1, one_line(&task.name));
    let mut attempts = Table::new(&["  ATTEMPT", "STARTED", "STATE", "TOOK", "EXIT"]);
    for (number, attempt) in task.attempts.iter().enumerate() {
        let cells = vec![
            format!("  {}", number + 1).into(),
            local(time(&attempt.start_time), zone).into(),
            Cell::toned(&format!("{:?}", attempt.state), tone_of(attempt.state)),
            attempt_took(attempt).into(),
            attempt
                .exit_code
                .map_or_else(|| "-".to_owned(), |code| code.to_string())
                .into(),
        ];
        attempts.row_with(cells, attempt.message.as_deref().unwrap_or_default());
    }
    if !task.attempts.is_empty() {
        text.push_str(&attempts.render(style, ""));
    } else if let Some(message) = &task.message {
        text.push_str(&indented(&one_line(message), "    ", style));
    }
    text
}

fn attempt_took(attempt: &Attempt) -> String {
    match (&attempt.completion_time, attempt.state) {
        (None, State::Interrupted) => "-".to_owned(),
        (end, _) => took(&attempt.start_time, end.as_deref()),
    }
}

fn tone_of(state: State) -> Tone {
    match state {
        State::Completed => Tone::Good,
        State::Failed | State::TimedOut => Tone::Bad,
        State::Interrupted => Tone::Caution,
        State::Pending | State::Running => Tone::Plain,
    }
}

fn conditions(job: &Record, zone: &TimeZone) -> Table {
    let mut table = Table::new(&["CONDITION", "STATUS", "REASON", "SINCE"]);
    let mut said = "";
    for condition in &job.conditions {
        let cells = vec![
            format!("{:?}", condition.kind).into(),
            format!("{:?}", condition.status).into(),
            condition.reason.to_string().into(),
            local(time(&condition.last_transition_time), zone).into(),
        ];
        // the conditions of an ended job all have one message
        let message = if condition.message == said {
            ""
        } else {
            &condition.message
        };
        said = &condition.message;
        table.row_with(cells, message);
    }
    table
}
