//! The record of one job: its request, its tasks with their attempts, and its conditions.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::spool::request::{Action, Request};
use crate::spool::time::timestamp_text;
use crate::text::one_line;

/// One job, as it lies in `state_dir/jobs/<request_id>.json`. All times are RFC 3339.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was asked for.
    pub request: Request,
    /// Later requests for the same node and action that this job answers too (design 3.4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joined: Vec<Request>,
    /// The rule that serves it; none matched, or it was decided before one was sought.
    pub rule: Option<String>,
    /// What a success does to the node.
    pub performs: Action,
    /// The latest deadline of its requests.
    pub deadline: String,
    /// When the job was made.
    pub start_time: String,
    /// When it ended.
    pub completion_time: Option<String>,
    /// How far it is, in the form of Kubernetes' conditions.
    pub conditions: Vec<Condition>,
    /// What a person answered, if the rule wants that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Word>,
    /// Whether the rule's notify command was run.
    #[serde(default)]
    pub notified: bool,
    /// Its tasks, in order.
    pub tasks: Vec<TaskRecord>,
}

/// A person's word on a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// Whether the node is safe, or the tasks may run.
    pub success: bool,
    /// Who, as far as is known.
    pub by: Option<String>,
    /// Why.
    pub message: Option<String>,
    /// When.
    pub time: String,
}

/// One task of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// As the rule names it.
    pub name: String,
    /// How far it is.
    pub state: State,
    /// When its first attempt began.
    pub start_time: Option<String>,
    /// When it ended.
    pub completion_time: Option<String>,
    /// Of its last attempt.
    pub exit_code: Option<i32>,
    /// The last line that its last attempt printed, or what went wrong.
    pub message: Option<String>,
    /// Every time it was started.
    pub attempts: Vec<Attempt>,
}

/// How far a task or an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Not begun.
    Pending,
    /// At work.
    Running,
    /// Exit code 0.
    Completed,
    /// Any other end of its own.
    Failed,
    /// Killed at its timeout, or for the request's deadline.
    TimedOut,
    /// Cut off with the responder; it doesn't count among the attempts.
    Interrupted,
}

/// One process that was started for a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it was started.
    pub start_time: String,
    /// When it ended.
    pub completion_time: Option<String>,
    /// How.
    pub state: State,
    /// Its exit code, where it had one.
    pub exit_code: Option<i32>,
    /// Its last line, or what went wrong.
    pub message: Option<String>,
    /// The processes that it started; none if it couldn't be started.
    pub process_group: Option<ProcessGroup>,
}

/// A process group that can be told from a later one of the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessGroup {
    /// Its number, which is its leader's process id.
    pub id: i32,
    /// When the leader was started, in clock ticks since the boot (proc(5): field 22 of stat).
    pub start_time: u64,
    /// Which boot (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
}

/// One condition, as Kubernetes has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Which.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Whether it holds.
    pub status: Truth,
    /// Why, in one word for programs.
    pub reason: Reason,
    /// Why, for people.
    pub message: String,
    /// Since when the status is what it is, RFC 3339.
    pub last_transition_time: String,
}

/// The types of conditions, after those of fence-agents-remediation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The job isn't over.
    Processing,
    /// Every task completed.
    FenceAgentActionSucceeded,
    /// The request was answered with success.
    Succeeded,
}

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Truth {
    /// It holds.
    True,
    /// It doesn't.
    False,
    /// That isn't decided.
    Unknown,
}

/// Why a condition has its status; those from [`Reason::Completed`] on are ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reason {
    /// The node's earlier job isn't over, or as many jobs run as may.
    Queued,
    /// A person has to answer.
    WaitingForApproval,
    /// Its tasks run.
    Running,
    /// The responder ended; it goes on when it starts again.
    Interrupted,
    /// All that the rule asks for was done.
    Completed,
    /// A task failed at its last attempt.
    TaskFailed,
    /// A task hung at its last attempt.
    TaskTimedOut,
    /// The request's deadline left no time for another attempt.
    DeadlineExceeded,
    /// The request was withdrawn.
    Cancelled,
    /// A person, or a check before the first task, said no.
    Refused,
    /// The request was too late already.
    Expired,
    /// No rule serves the node and action.
    NoRule,
    /// The answer couldn't be written.
    AnswerFailed,
    /// Somebody else had answered.
    AnsweredElsewhere,
}

impl Reason {
    /// Every way a job can end.
    pub const ENDS: [Self; 10] = [
        Self::Completed,
        Self::TaskFailed,
        Self::TaskTimedOut,
        Self::DeadlineExceeded,
        Self::Cancelled,
        Self::Refused,
        Self::Expired,
        Self::NoRule,
        Self::AnswerFailed,
        Self::AnsweredElsewhere,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What there is to say of tasks that all completed.
#[must_use]
pub fn success_message(tasks: &[TaskRecord]) -> String {
    let last = tasks.last().and_then(|task| task.message.as_deref());
    match (last.filter(|message| !message.is_empty()), tasks.len()) {
        (Some(message), 1) => message.to_owned(),
        (Some(message), count) => format!("{count} tasks completed: {message}"),
        (None, 1) => "1 task completed".to_owned(),
        (None, count) => format!("{count} tasks completed"),
    }
}

/// Now, as records have it.
#[must_use]
pub fn now() -> String {
    timestamp_text(Timestamp::now())
}

impl Record {
    /// A new job for `request`, queued, without a rule.
    #[must_use]
    pub fn new(request: Request, deadline: Timestamp) -> Self {
        let mut record = Self {
            performs: request.action,
            request,
            joined: Vec::new(),
            rule: None,
            deadline: timestamp_text(deadline),
            start_time: now(),
            completion_time: None,
            conditions: Vec::new(),
            answer: None,
            notified: false,
            tasks: Vec::new(),
        };
        record.go_on(Reason::Queued, "");
        record
    }

    /// All requests that it answers.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        std::iter::once(&self.request).chain(&self.joined)
    }

    /// Says what an unended job is at.
    pub fn go_on(&mut self, reason: Reason, message: &str) {
        go_on(&mut self.conditions, reason, message);
    }

    /// Ends it: the one end that a job has.
    pub fn end(&mut self, reason: Reason, success: bool, message: &str) {
        end(
            &mut self.conditions,
            &mut self.tasks,
            reason,
            success,
            message,
        );
        self.completion_time = Some(now());
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.completion_time.is_some()
    }

    /// The reason of its state or end.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.conditions.first().map(|condition| condition.reason)
    }
}

/// Says in its conditions what an unended job is at.
pub fn go_on(conditions: &mut Vec<Condition>, reason: Reason, message: &str) {
    set(conditions, Kind::Processing, Truth::True, reason, message);
    for kind in [Kind::FenceAgentActionSucceeded, Kind::Succeeded] {
        set(conditions, kind, Truth::Unknown, reason, "");
    }
}

/// Says in its conditions and tasks how a job has ended.
pub fn end(
    conditions: &mut Vec<Condition>,
    tasks: &mut [TaskRecord],
    reason: Reason,
    success: bool,
    message: &str,
) {
    let completed = if tasks.iter().all(|task| task.attempts.is_empty()) {
        Truth::Unknown
    } else if tasks.iter().all(|task| task.state == State::Completed) {
        Truth::True
    } else {
        Truth::False
    };
    let succeeded = if success { Truth::True } else { Truth::False };
    for (kind, status) in [
        (Kind::Processing, Truth::False),
        (Kind::FenceAgentActionSucceeded, completed),
        (Kind::Succeeded, succeeded),
    ] {
        set(conditions, kind, status, reason, message);
    }
    for task in tasks {
        task.end();
    }
}

fn set(conditions: &mut Vec<Condition>, kind: Kind, status: Truth, reason: Reason, message: &str) {
    let message = message.to_owned();
    let last_transition_time = now();
    let condition = Condition {
        kind,
        status,
        reason,
        message,
        last_transition_time,
    };
    match conditions.iter_mut().find(|old| old.kind == kind) {
        Some(old) if old.status == status => {
            let last_transition_time = std::mem::take(&mut old.last_transition_time);
            *old = Condition {
                last_transition_time,
                ..condition
            };
        }
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.success {
            "confirmed by "
        } else {
            "refused by "
        })?;
        f.write_str(&one_line(self.by.as_deref().unwrap_or("a person")))?;
        match &self.message {
            Some(message) => write!(f, ": {}", one_line(message)),
            None => Ok(()),
        }
    }
}

impl TaskRecord {
    /// A task that hasn't begun.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            state: State::Pending,
            start_time: None,
            completion_time: None,
            exit_code: None,
            message: None,
            attempts: Vec::new(),
        }
    }

    /// An attempt begins; none of its processes if it can't be started.
    pub fn begin(&mut self, process_group: Option<ProcessGroup>) {
        let time = now();
        self.state = State::Running;
        self.start_time.get_or_insert_with(|| time.clone());
        self.attempts.push(Attempt {
            start_time: time,
            completion_time: None,
            state: State::Running,
            exit_code: None,
            message: None,
            process_group,
        });
    }

    /// Its attempt is over.
    pub fn finish(&mut self, state: State, exit_code: Option<i32>, message: &str) {
        self.state = state;
        self.exit_code = exit_code;
        self.message = Some(message.to_owned());
        if state == State::Completed {
            self.completion_time = Some(now());
        }
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.completion_time = Some(now());
            attempt.state = state;
            attempt.exit_code = exit_code;
            attempt.message = Some(message.to_owned());
        }
    }

    /// Why a job whose task this is ends for `reason`.
    #[must_use]
    pub fn failure(&self, reason: Reason) -> String {
        let attempts = match self.attempts_made() {
            1 => "1 attempt".to_owned(),
            made => format!("{made} attempts"),
        };
        let why = match reason {
            Reason::DeadlineExceeded => "no time was left for it after",
            Reason::TaskTimedOut => "hung, and was killed, in",
            _ => "failed after",
        };
        let message = self.message.as_deref().unwrap_or("it never ran");
        format!("task \"{}\" {why} {attempts}: {message}", self.name)
    }

    /// How a job ends whose task this is, if no attempt may follow; `most` is how many it has.
    #[must_use]
    pub fn failed_for_good(&self, most: usize) -> Option<Reason> {
        (self.attempts_made() >= most).then_some(match self.state {
            State::TimedOut => Reason::TaskTimedOut,
            _ => Reason::TaskFailed,
        })
    }

    /// Nothing follows its last attempt, if it had one: that was its end.
    fn end(&mut self) {
        let last = self.attempts.last();
        let ended = last.map(|last| last.completion_time.clone().unwrap_or_else(now));
        self.completion_time = self.completion_time.take().or(ended);
    }

    /// How many of its attempts were its own.
    #[must_use]
    pub fn attempts_made(&self) -> usize {
        let own = |attempt: &&Attempt| attempt.state != State::Interrupted;
        self.attempts.iter().filter(own).count()
    }
}
