//! Works through one job in a thread of its own: tasks, attempts, the answer.

use std::time::{Duration, Instant};

use super::config::{Kind, Rule, Task};
use super::desk::{Desk, Report};
use super::ending::finish;
use super::job::{Claim, Job, Verdict};
use super::prepare::{Order, Prepared};
use super::process::{End, Ended, Limits, TERM_GRACE, Waiting, is_empty, launch};
use crate::jobs::record::{ProcessGroup, Reason, State, success_message};
use crate::text::one_line;

/// How often killed processes that don't go are looked at.
const STUCK_INTERVAL: Duration = Duration::from_millis(500);

/// A job at work.
struct Work<'a> {
    desk: &'a Desk,
    job: Job,
    started: Instant,
    /// A process group that was killed and is still there.
    stuck: Option<ProcessGroup>,
}

/// What becomes of the job after a step.
enum Next {
    /// The next step.
    GoOn,
    /// It ends.
    End(Verdict),
    /// The responder ends; the job is resumed by the next one.
    Leave,
}

/// Works through `job` and reports when that is over.
pub fn work(desk: &Desk, job: Job, held_slot: bool) {
    let node = job.node().to_owned();
    let names = job
        .claims
        .iter()
        .map(|claim| claim.name.to_string())
        .collect();
    let mut work = Work {
        desk,
        job,
        started: Instant::now(),
        stuck: None,
    };
    let reason = work.run();
    work.wait_for_stuck();
    desk.report(Report::Job {
        node,
        names,
        reason,
        held_slot,
        seconds: work.started.elapsed().as_secs_f64(),
    });
}

impl Work<'_> {
    fn run(&mut self) -> Option<Reason> {
        let next = match self.job.verdict.take() {
            Some(verdict) => Next::End(verdict),
            None => self.run_tasks(),
        };
        match next {
            Next::End(verdict) => Some(finish(self.desk, &mut self.job, verdict)),
            Next::GoOn => {
                let verdict =
                    Verdict::new(Reason::Completed, success_message(&self.job.record.tasks));
                Some(finish(self.desk, &mut self.job, verdict))
            }
            Next::Leave => {
                self.job
                    .record
                    .go_on(Reason::Interrupted, "the responder ended");
                self.desk.save(&self.job.record);
                tracing::info!(job = self.job.id(), "left for the next responder");
                None
            }
        }
    }

    /// The job is answered, but its node stays taken: nothing new is run for it beside processes
    /// that the kernel doesn't let go.
    fn wait_for_stuck(&self) {
        let Some(group) = &self.stuck else {
            return;
        };
        let is_over = || self.desk.is_stopping() || is_empty(group.id);
        while !is_over() {
            self.desk
                .wait_until(Instant::now() + STUCK_INTERVAL, is_over);
        }
    }

    fn run_tasks(&mut self) -> Next {
        let Some(rule) = self.job.rule.clone() else {
            return Next::End(Verdict::new(Reason::NoRule, "no rule serves it"));
        };
        let record = &self.job.record;
        let order = Order::of(&record.request, &record.deadline);
        let prepared = match order.prepare(&rule.tasks) {
            Ok(prepared) => prepared,
            Err(fault) => return Next::End(Verdict::new(Reason::Refused, fault.to_string())),
        };
        self.job.record.go_on(Reason::Running, "");
        for (number, prepared) in prepared.iter().enumerate() {
            if self.job.record.tasks[number].state == State::Completed {
                continue;
            }
            match self.run_task(&rule, number, prepared) {
                Next::GoOn => {}
                end => return end,
            }
        }
        Next::GoOn
    }

    /// Attempts until one succeeds, or none may follow.
    fn run_task(&mut self, rule: &Rule, number: usize, prepared: &Prepared) -> Next {
        let task = &rule.tasks[number];
        let mut paused_until = None;
        loop {
            if let Some(next) = self.may_not_start(task, number, paused_until) {
                return next;
            }
            match self.attempt(task, number, prepared) {
                Some(State::Completed) => return Next::GoOn,
                // withdrawn or stopped at the last moment; the next look says which
                None | Some(State::Interrupted) => {}
                Some(_) => paused_until = Some(Instant::now() + task.retry_interval),
            }
            if let Some(verdict) = self.job.verdict.take() {
                return Next::End(verdict);
            }
        }
    }

    /// Waits out the pause, and says why no attempt may start now, if so.
    fn may_not_start(
        &mut self,
        task: &Task,
        number: usize,
        paused_until: Option<Instant>,
    ) -> Option<Next> {
        let record = &self.job.record.tasks[number];
        if let Some(reason) = record.failed_for_good(task.retry_count) {
            return Some(Next::End(self.failure(number, reason)));
        }
        let start = paused_until.unwrap_or_else(Instant::now);
        if self.drop_withdrawn() == 0 {
            return Some(Next::End(cancelled()));
        }
        if self.latest_start().is_none_or(|latest| start >= latest) {
            return Some(Next::End(self.failure(number, Reason::DeadlineExceeded)));
        }
        let desk = self.desk;
        desk.wait_until(start, || desk.is_stopping() || self.drop_withdrawn() == 0);
        if self.desk.is_stopping() {
            return Some(Next::Leave);
        }
        if self.drop_withdrawn() == 0 {
            return Some(Next::End(cancelled()));
        }
        // the claim that was good for longest may be gone
        let is_late = self
            .latest_start()
            .is_none_or(|latest| Instant::now() >= latest);
        is_late.then(|| Next::End(self.failure(number, Reason::DeadlineExceeded)))
    }

    /// One attempt; `None` if it was not let go.
    fn attempt(&mut self, task: &Task, number: usize, prepared: &Prepared) -> Option<State> {
        let waiting = match launch(prepared) {
            Ok(waiting) => waiting,
            Err(error) => {
                return Some(self.not_started(number, &format!("can't be started: {error}")));
            }
        };
        let record = &mut self.job.record.tasks[number];
        let before = record.clone();
        record.begin(Some(waiting.group.clone()));
        // what isn't known to be running must not run: after a crash nobody could end it
        if !self.desk.save(&self.job.record) {
            waiting.dismiss();
            self.job.record.tasks[number] = before;
            return Some(self.not_started(
                number,
                "its record can't be written: see the responder's log",
            ));
        }
        let is_late = self
            .latest_start()
            .is_none_or(|latest| Instant::now() >= latest);
        if self.drop_withdrawn() == 0 || is_late || self.desk.is_stopping() {
            waiting.dismiss();
            self.job.record.tasks[number] = before;
            return None;
        }
        Some(self.see_through(task, number, prepared, waiting))
    }

    fn not_started(&mut self, number: usize, reason: &str) -> State {
        let job = self.job.id().to_owned();
        let record = &mut self.job.record.tasks[number];
        tracing::warn!(job, task = record.name, "{reason}");
        record.begin(None);
        record.finish(State::Failed, None, reason);
        State::Failed
    }

    fn see_through(
        &mut self,
        task: &Task,
        number: usize,
        prepared: &Prepared,
        waiting: Waiting,
    ) -> State {
        let (job, node) = (self.job.id().to_owned(), one_line(self.job.node()));
        let made = self.job.record.tasks[number].attempts_made();
        tracing::info!(job, node, task = task.name, attempt = made, "started");
        if let Some(warning) = &prepared.warning {
            tracing::warn!(job, node, task = task.name, "{warning}");
        }
        let (limits, is_cut) = self.limits(task);
        let group = Some(waiting.group.clone());
        let ended = waiting.run(limits, self.desk.cut(), &prepared.secrets);
        let (state, exit_code, message) = told(&ended, task, is_cut);
        let record = &mut self.job.record.tasks[number];
        record.finish(state, exit_code, &message);
        tracing::info!(
            job,
            node,
            task = task.name,
            attempt = made,
            ?state,
            "{message}"
        );
        if !ended.is_gone {
            self.stuck = group;
            let message = format!(
                "task \"{}\": its processes can't be killed: {message}",
                task.name
            );
            self.job.verdict = Some(Verdict::new(Reason::TaskTimedOut, message));
        } else if state == State::TimedOut && is_cut {
            self.job.verdict = Some(self.failure(number, Reason::DeadlineExceeded));
        }
        self.desk.save(&self.job.record);
        state
    }

    /// When an attempt that starts now has to end, and whether the deadline says so: SIGKILL and the
    /// answer still fall before it (design 3.4).
    fn limits(&self, task: &Task) -> (Limits, bool) {
        let now = Instant::now();
        let own = now + task.timeout;
        let Some(last) = self.job.last_claim() else {
            return (
                Limits {
                    terminate: now,
                    kill: now,
                },
                true,
            );
        };
        let latest_kill = last
            .deadline
            .checked_sub(last.request.margin() / 3)
            .unwrap_or(now);
        let terminate = own.min(last.latest_start());
        let kill = (terminate + TERM_GRACE).min(latest_kill);
        (Limits { terminate, kill }, own > last.latest_start())
    }

    fn latest_start(&self) -> Option<Instant> {
        self.job.last_claim().map(Claim::latest_start)
    }

    /// Forgets claims that their agents have withdrawn; returns how many are left.
    fn drop_withdrawn(&mut self) -> usize {
        let seat = self.desk.seat();
        self.job.drop_withdrawn(seat.as_deref())
    }

    fn failure(&self, number: usize, reason: Reason) -> Verdict {
        let task = &self.job.record.tasks[number];
        Verdict::new(reason, task.failure(reason))
    }
}

fn cancelled() -> Verdict {
    Verdict::new(Reason::Cancelled, "the request was withdrawn")
}

/// How an attempt that is over is recorded; `is_cut` if the request's deadline bounded it.
pub fn told(ended: &Ended, task: &Task, is_cut: bool) -> (State, Option<i32>, String) {
    let said = |why: String| {
        if ended.last_line.is_empty() {
            why
        } else {
            format!("{why}: {}", ended.last_line)
        }
    };
    match ended.end {
        End::Exited(0) => (State::Completed, Some(0), ended.last_line.clone()),
        // its own words say it all
        End::Exited(1) if matches!(task.kind, Kind::Bmc { .. }) => {
            (State::Failed, Some(1), ended.last_line.clone())
        }
        End::Exited(code) => (State::Failed, Some(code), said(format!("exit code {code}"))),
        End::Signaled(signal) => (
            State::Failed,
            None,
            said(format!("killed by signal {signal}")),
        ),
        End::TimedOut if is_cut => (
            State::TimedOut,
            None,
            said("killed for the request's deadline".to_owned()),
        ),
        End::TimedOut => {
            let seconds = task.timeout.as_secs_f64();
            (
                State::TimedOut,
                None,
                said(format!("killed after its timeout of {seconds} s")),
            )
        }
        End::Interrupted => (
            State::Interrupted,
            None,
            said("killed: the responder ended".to_owned()),
        ),
    }
}
