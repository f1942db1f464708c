//! `fence_recorder run`: a job by hand, once, without Pacemaker and without a spool.

pub mod manual;
mod progress;
mod report;

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use nix::errno::Errno;
use nix::poll::PollFlags;
use serde::Serialize;
use serde_json::json;
use thiserror::Error;
use uuid::Uuid;

use super::options::{flag, request_dir_for, request_dir_of, value, word};
use crate::interrupt::{Interrupt, Interrupted};
use crate::jobs::record::{Condition, Reason, State, TaskRecord, end, go_on, now, success_message};
use crate::responder::config::job_file::JobFile;
use crate::responder::config::template::Subject;
use crate::responder::config::{ConfigFault, Task};
use crate::responder::prepare::{Order, PrepareFault, Prepared};
use crate::responder::process::{Ended, Limits, MARK, TERM_GRACE, Waiting, launch};
use crate::responder::work::told;
use crate::spool::calls::DirectoryCalls;
use crate::spool::directory::{Directory, DirectoryFault, Role, Trust};
use crate::spool::json::pretty;
use crate::spool::lock::{LOCK, Lock};
use crate::spool::name::{FileName, NodeName, NodeNameFault};
use crate::spool::request::Action;
use crate::spool::system::with_advice;
use crate::spool::withdraw::CLAIMED;
use crate::text::one_line;
use progress::Progress;

/// How often the line of progress is drawn anew.
const REDRAW: Duration = Duration::from_secs(1);

/// Why the job isn't run.
#[derive(Debug, Error)]
enum Fault {
    #[error("{0}")]
    Config(#[from] ConfigFault),
    #[error("--node: {0}")]
    Node(#[from] NodeNameFault),
    #[error("{0}")]
    Prepare(#[from] PrepareFault),
    #[error("the spool of a responder: {0}")]
    Spool(#[from] DirectoryFault),
    #[error("{path} can't be read: {}", with_advice(*.error))]
    Claims { path: String, error: Errno },
    #[error(
        "the responder runs a job for {node} (request {id}): wait for its end, or end it with fence_recorder answer"
    )]
    AtWork { node: String, id: String },
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The options, from which parser and help are made.
#[must_use]
pub fn command() -> clap::Command {
    crate::commands::RUN
        .command()
        .arg(
            word("job", "JOB.toml", "The file that describes the job")
                .value_parser(clap::value_parser!(PathBuf))
                .required(true),
        )
        .arg(value("node", "NODE", "The node that it is for").required(true))
        .arg(flag("json", "Print the job as JSON at its end"))
        .arg(flag("dry-run", "Only say what would be done"))
        .arg(request_dir_for(
            "Where to look whether a responder runs a job for the node",
        ))
}

/// Runs the job. Exit 0 only if every task completed.
#[must_use]
pub fn main(matches: &ArgMatches) -> ExitCode {
    match run(matches) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            let _ = writeln!(io::stderr(), "fence_recorder: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run(matches: &ArgMatches) -> Result<bool, Fault> {
    // before any thread, so that all of them have the signals blocked
    let interrupt = Interrupt::new().map_err(io::Error::from)?;
    let path = matches
        .get_one::<PathBuf>("job")
        .cloned()
        .unwrap_or_default();
    let file = JobFile::load(&std::path::absolute(&path).unwrap_or(path))?;
    let node = matches
        .get_one::<String>("node")
        .cloned()
        .unwrap_or_default();
    let node = NodeName::parse(&node)?.as_str().to_owned();
    let request_dir = request_dir_of(matches);
    let record = Record::new(&node, file.action, &file.tasks);
    let prepared = record.order().prepare(&file.tasks)?;
    if matches.get_flag("dry-run") {
        report::plan(&record, &file.tasks, &prepared, matches.get_flag("json"))?;
        return Ok(true);
    }
    refuse_beside_responder(&request_dir, &node)?;
    let (cut, cutter) = io::pipe()?;
    let mut run = Run {
        record,
        request_dir,
        interrupt,
        progress: Progress::new(file.tasks.len()),
        stopped: None,
        cut,
        cutter: Some(cutter),
    };
    run.work(&file.tasks, &prepared);
    report::outcome(&run.record, matches.get_flag("json"))?;
    Ok(run.record.is_completed())
}

/// What `--json` prints at the end: in the form of the responder's records.
#[derive(Debug, Serialize)]
struct Record {
    job_id: String,
    node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<Action>,
    start_time: String,
    completion_time: Option<String>,
    conditions: Vec<Condition>,
    tasks: Vec<TaskRecord>,
}

impl Record {
    fn new(node: &str, action: Option<Action>, tasks: &[Arc<Task>]) -> Self {
        let mut conditions = Vec::new();
        go_on(&mut conditions, Reason::Running, "");
        Self {
            job_id: Uuid::new_v4().to_string(),
            node: node.to_owned(),
            action,
            start_time: now(),
            completion_time: None,
            conditions,
            tasks: tasks
                .iter()
                .map(|task| TaskRecord::new(&task.name))
                .collect(),
        }
    }

    /// What tasks are made ready for: as for a request, but for what only an agent can say.
    fn order(&self) -> Order<'_> {
        let action = self.action.map(Action::as_str);
        let mut environment = vec![
            ("FENCE_NODE", self.node.clone()),
            (MARK, self.job_id.clone()),
        ];
        environment.extend(action.map(|action| ("FENCE_ACTION", action.to_owned())));
        let mut request = json!({"request_id": self.job_id, "timestamp": self.start_time, "target_node": self.node});
        if let Some(action) = action {
            request["action"] = action.into();
        }
        Order {
            subject: Subject {
                node: &self.node,
                // a job file whose tasks need one has one
                action: action.unwrap_or_default(),
                request_id: &self.job_id,
            },
            nodename: &self.node,
            environment,
            input: pretty(&request),
        }
    }

    fn is_completed(&self) -> bool {
        let is_completed = |task: &TaskRecord| task.state == State::Completed;
        self.tasks.iter().all(is_completed)
    }
}

/// Refuses while a responder has claimed a request for `node`.
fn refuse_beside_responder(request_dir: &Path, node: &str) -> Result<(), Fault> {
    let requests = match Directory::open(request_dir, Role::Requests, Trust::Checked) {
        Ok(requests) => requests,
        // no spool, no responder
        Err(DirectoryFault::Missing(_)) => return Ok(()),
        Err(fault) => return Err(fault.into()),
    };
    if !Lock::is_held(&requests, LOCK) {
        return Ok(());
    }
    let fault = |error| Fault::Claims {
        path: requests.path_of(CLAIMED),
        error,
    };
    let mut id = None;
    match requests.open_below(CLAIMED) {
        Ok(claimed) => claimed
            .for_each_name(|name| {
                let name = FileName::parse(name).filter(|name| name.node() == node);
                id = name.map(|name| name.request_id().to_owned());
                id.is_none()
            })
            .map_err(fault)?,
        Err(Errno::ENOENT) => {}
        Err(error) => return Err(fault(error)),
    }
    match id {
        Some(id) => Err(Fault::AtWork {
            node: one_line(node),
            id,
        }),
        None => Ok(()),
    }
}

/// A job at work.
struct Run {
    record: Record,
    request_dir: PathBuf,
    interrupt: Interrupt,
    progress: Progress,
    /// The signal after which nothing more is started.
    stopped: Option<Interrupted>,
    /// Becomes readable when what runs is to end.
    cut: PipeReader,
    cutter: Option<PipeWriter>,
}

impl Run {
    fn work(&mut self, tasks: &[Arc<Task>], prepared: &[Prepared]) {
        let mut outcome = Ok(());
        for (number, (task, prepared)) in tasks.iter().zip(prepared).enumerate() {
            outcome = self.task(number, task, prepared);
            if outcome.is_err() {
                break;
            }
        }
        let (reason, message) = match outcome {
            Ok(()) => (Reason::Completed, success_message(&self.record.tasks)),
            Err(end) => end,
        };
        let is_success = reason == Reason::Completed;
        let record = &mut self.record;
        end(
            &mut record.conditions,
            &mut record.tasks,
            reason,
            is_success,
            &message,
        );
        record.completion_time = Some(now());
    }

    /// Attempts until one succeeds, or none may follow: then how the job ends.
    fn task(
        &mut self,
        number: usize,
        task: &Task,
        prepared: &Prepared,
    ) -> Result<(), (Reason, String)> {
        loop {
            if let Some(signal) = self.stopped.or_else(|| self.interrupt.signal()) {
                return Err(self.cancelled(signal));
            }
            if let Err(fault) = refuse_beside_responder(&self.request_dir, &self.record.node) {
                return Err((Reason::Refused, fault.to_string()));
            }
            if self.attempt(number, task, prepared) == State::Completed {
                return Ok(());
            }
            let record = &self.record.tasks[number];
            if let Some(signal) = self.stopped {
                return Err(self.cancelled(signal));
            }
            if let Some(reason) = record.failed_for_good(task.retry_count) {
                return Err((reason, record.failure(reason)));
            }
            if let Err(signal) = self.interrupt.sleep(task.retry_interval) {
                return Err(self.cancelled(signal));
            }
        }
    }

    fn cancelled(&self, signal: Interrupted) -> (Reason, String) {
        let done = self.record.tasks.iter();
        let done = done.filter(|task| task.state == State::Completed).count();
        let all = self.record.tasks.len();
        let message = format!("stopped by {signal} after {done} of {all} tasks");
        (Reason::Cancelled, message)
    }

    fn attempt(&mut self, number: usize, task: &Task, prepared: &Prepared) -> State {
        if let Some(warning) = &prepared.warning {
            self.progress.say(warning);
        }
        let record = &mut self.record.tasks[number];
        let waiting = match launch(prepared) {
            Ok(waiting) => waiting,
            Err(error) => {
                record.begin(None);
                let message = format!("can't be started: {error}");
                record.finish(State::Failed, None, &message);
                self.progress.ended(number, record);
                return State::Failed;
            }
        };
        record.begin(Some(waiting.group.clone()));
        let attempt = format!("attempt {} of {}", record.attempts.len(), task.retry_count);
        self.progress.begun(number, &task.name, &attempt);
        let ended = self.see_through(task, prepared, waiting);
        let (state, exit_code, mut message) = told(&ended, task, false);
        if state == State::Interrupted {
            "killed: asked to end twice".clone_into(&mut message);
        }
        if !ended.is_gone {
            message.push_str(" (its processes can't be killed)");
        }
        let record = &mut self.record.tasks[number];
        record.finish(state, exit_code, &message);
        self.progress.ended(number, record);
        state
    }

    /// Stays with the attempt to its end, and listens for signals meanwhile: the first one lets it
    /// end, the second ends it.
    fn see_through(&mut self, task: &Task, prepared: &Prepared, waiting: Waiting) -> Ended {
        let terminate = Instant::now() + task.timeout;
        let limits = Limits {
            terminate,
            kill: terminate + TERM_GRACE,
        };
        let Self {
            interrupt,
            progress,
            stopped,
            cut,
            cutter,
            ..
        } = self;
        let cut: &PipeReader = cut;
        let bell = io::pipe();
        std::thread::scope(|scope| {
            let Ok((heard, bell)) = bell else {
                return waiting.run(limits, cut.as_fd(), &prepared.secrets);
            };
            let attempt = scope.spawn(move || {
                let ended = waiting.run(limits, cut.as_fd(), &prepared.secrets);
                drop(bell);
                ended
            });
            loop {
                match interrupt.wait_for(heard.as_fd(), PollFlags::POLLIN, Some(REDRAW)) {
                    Ok(true) => break,
                    Ok(false) => progress.draw(),
                    Err(signal) if stopped.is_none() => {
                        *stopped = Some(signal);
                        let once_more = "nothing is started any more; once more ends what runs";
                        progress.say(&format!("{signal}: {once_more}"));
                    }
                    Err(_) => *cutter = None,
                }
            }
            attempt
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}
