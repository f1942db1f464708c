//! The responder's main loop: claims requests, starts jobs, hears of their ends.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::config::Config;
use super::desk::{Desk, Report};
use super::ending::end;
use super::job::{Job, Verdict};
use super::metrics::Metrics;
use super::pending::Pending;
use super::seat::{ANSWERED, CLAIMED, REQUESTS, Seat};
use super::systemd;
use super::work::work;
use crate::interrupt::Interrupt;
use crate::jobs::record::Reason;
use crate::spool::calls::DirectoryCalls;
use crate::spool::name::FileName;
use crate::spool::system::with_advice;
use crate::spool::watch::{Watch, Woken};

/// How often everything is looked at, whatever the watch says: files that were written from
/// another host raise no event (design 3.3).
const RESCAN: Duration = Duration::from_secs(2);

/// How often old records are looked for.
const PRUNE: Duration = Duration::from_hours(1);

/// How many ended jobs may pass between two such looks.
const PRUNE_JOBS: u64 = 1000;

/// The most jobs that are only being answered at once.
const MAX_CLOSING: usize = 16;

/// How long the jobs may take to write down that they were cut off.
const LEAVE_TIME: Duration = Duration::from_secs(5);

/// The responder at work.
pub struct Service {
    /// Where the configuration is, for SIGHUP.
    pub path: PathBuf,
    /// What it says.
    pub config: Config,
    /// What the jobs share.
    pub desk: Arc<Desk>,
    /// What the jobs report.
    pub reports: Receiver<Report>,
    /// Rings when they do.
    pub heard: std::io::PipeReader,
    /// Signals.
    pub interrupt: Interrupt,
    /// When the responder started.
    pub started: Timestamp,
    /// What is counted.
    pub metrics: Metrics,
    /// The jobs whose tasks don't run yet.
    pub pending: Pending,
    /// The names of the claims of jobs at work.
    pub at_work: HashSet<String>,
    /// The nodes whose tasks run.
    pub busy: HashSet<String>,
    /// How many threads run tasks.
    pub running: usize,
    /// How many threads do nothing but answer.
    pub closing: usize,
    /// What was last complained of, by topic, so that it is said once.
    pub complaints: HashMap<&'static str, String>,
    watch: Option<Watch>,
    is_looking: bool,
    pruned: Option<(Instant, u64)>,
    written: Option<Metrics>,
}

impl Service {
    /// A service that has not looked at its spool yet.
    #[must_use]
    pub fn new(
        path: PathBuf,
        config: Config,
        desk: Arc<Desk>,
        (reports, heard): (Receiver<Report>, std::io::PipeReader),
        interrupt: Interrupt,
    ) -> Self {
        Self {
            path,
            config,
            desk,
            reports,
            heard,
            interrupt,
            started: Timestamp::now(),
            metrics: Metrics::default(),
            pending: Pending::default(),
            at_work: HashSet::new(),
            busy: HashSet::new(),
            running: 0,
            closing: 0,
            complaints: HashMap::new(),
            watch: None,
            is_looking: false,
            pruned: None,
            written: None,
        }
    }

    /// Serves `seat` until a signal says to end, and then leaves in order.
    pub fn run(mut self, seat: Seat) {
        self.sit_down(seat);
        if let Some(seat) = self.desk.seat() {
            self.recover(&seat);
        }
        systemd::ready();
        tracing::info!(requests = %self.config.request_dir.display(), "serving");
        let mut next_look = Instant::now();
        loop {
            if Instant::now() >= next_look {
                self.look_at_everything();
                next_look = Instant::now() + systemd::at_least_every(RESCAN);
            }
            self.expire();
            self.start_jobs();
            let until = self
                .pending
                .next_expiry()
                .map_or(next_look, |expiry| expiry.min(next_look));
            if self.wait(until) {
                break;
            }
        }
        self.leave();
    }

    /// Serves this spool from now on.
    fn sit_down(&mut self, seat: Seat) {
        let (watch, error) = seat.watch();
        if let Some(error) = error {
            tracing::warn!(
                "no inotify watch on the spool ({}): looking every {RESCAN:?}",
                error.desc()
            );
        }
        self.watch = Some(watch);
        if let Err(fault) = seat.introduce(&self.config, self.started) {
            tracing::error!("{fault}");
        }
        self.desk.set_seat(Some(Arc::new(seat)));
    }

    /// Waits for news until then, and takes them in; true if the responder is to end.
    fn wait(&mut self, until: Instant) -> bool {
        let timeout = until.saturating_duration_since(Instant::now());
        let interrupts = [self.interrupt.as_fd(), self.heard.as_fd()];
        let mut woken = match &self.watch {
            Some(watch) => watch.wait(timeout, &interrupts),
            None => Watch::default().wait(timeout, &interrupts),
        };
        if woken == Woken::Interrupted {
            if self.hear() {
                return true;
            }
            // jobs that end one after the other must not keep us from the spool's news
            woken = self.watch.as_ref().map_or(Woken::TimedOut, Watch::events);
        }
        self.take_news(woken);
        false
    }

    fn take_news(&mut self, woken: Woken) {
        match woken {
            Woken::TimedOut | Woken::Interrupted => {}
            Woken::Unknown => self.look_at_everything(),
            Woken::Named(changes) => {
                for change in changes {
                    match change.directory {
                        REQUESTS => self.arrived(&change.name),
                        CLAIMED => self.departed(&change.name),
                        ANSWERED => self.answered(&change.name),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Takes in signals and reports; true if the responder is to end.
    fn hear(&mut self) -> bool {
        self.collect();
        match self.interrupt.signal() {
            Some(signal) if signal.is_hangup() => {
                self.read_configuration_anew();
                false
            }
            Some(signal) => {
                tracing::info!("{signal}: no more requests are taken");
                true
            }
            None => false,
        }
    }

    /// Takes in what jobs report.
    pub fn collect(&mut self) {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mut bell = [PollFd::new(self.heard.as_fd(), PollFlags::POLLIN)];
        if poll(&mut bell, PollTimeout::ZERO) == Ok(1) {
            let mut rings = [0; 4096];
            let _ = nix::unistd::read(&self.heard, &mut rings);
        }
        while let Ok(report) = self.reports.try_recv() {
            match report {
                Report::Job {
                    node,
                    names,
                    reason,
                    held_slot,
                    seconds,
                } => {
                    for name in &names {
                        self.at_work.remove(name);
                    }
                    if held_slot {
                        self.busy.remove(&node);
                        self.running -= 1;
                    } else {
                        self.closing -= 1;
                    }
                    if let Some(reason) = reason {
                        self.metrics.count_end(reason, seconds);
                    }
                }
                Report::Notified(id) => self.notified(&id),
            }
        }
    }

    fn look_at_everything(&mut self) {
        // a request that is taken in lets jobs start, which may look here again
        if std::mem::replace(&mut self.is_looking, true) {
            return;
        }
        systemd::alive();
        self.keep_store();
        self.keep_seat();
        self.collect();
        if let Some(seat) = self.desk.seat() {
            self.withdraw_pending(&seat);
            self.scan(&seat);
        }
        self.prune();
        if let Err(reason) = self.desk.ends.settle(&self.desk.audit) {
            self.complain("audit", &reason);
        }
        self.write_metrics();
        self.is_looking = false;
    }

    /// Moves to the records' directory that is under the path now.
    fn keep_store(&mut self) {
        match self.desk.store.keep() {
            Ok(false) => _ = self.complaints.remove("store"),
            Ok(true) => tracing::warn!("state_dir was removed or moved away, and made anew"),
            Err(fault) => self.complain("store", &fault.to_string()),
        }
    }

    /// Moves to the spool that is under the paths now.
    fn keep_seat(&mut self) {
        let old = self.desk.seat();
        if old
            .as_ref()
            .is_some_and(|seat| seat.is_in_place(&self.config))
        {
            return;
        }
        let new = match &old {
            Some(old) => old.renew(&self.config),
            None => Seat::take(&self.config),
        };
        match new {
            Ok(seat) => {
                tracing::info!("serving the spool that was made anew");
                self.complaints.remove("spool");
                self.sit_down(seat);
            }
            Err(fault) => {
                if old.is_some() {
                    let what = "the spool was removed or is unsafe now";
                    tracing::error!("{what}: waiting for it to be mended");
                    self.desk.set_seat(None);
                    self.watch = None;
                }
                self.complain("spool", &fault.to_string());
            }
        }
    }

    /// Says it once for as long as it is the same.
    pub fn complain(&mut self, topic: &'static str, what: &str) {
        let last = self.complaints.insert(topic, what.to_owned());
        if last.as_deref() != Some(what) {
            tracing::error!("{what}");
        }
    }

    /// A claim of a job that doesn't run yet may have been withdrawn.
    fn departed(&mut self, name: &std::ffi::OsStr) {
        if let Some(name) = name.to_str()
            && self.pending.holds(name)
            && let Some(seat) = self.desk.seat()
        {
            self.withdraw_pending(&seat);
        }
        self.desk.tell_news();
    }

    fn withdraw_pending(&mut self, seat: &Seat) {
        if self.pending.is_empty() {
            return;
        }
        // one look at the directory instead of one at each claim
        let mut there = HashSet::new();
        let listed = seat.claims.claimed.for_each_name(|name| {
            there.extend(name.to_str().map(str::to_owned));
            true
        });
        if let Err(error) = listed {
            let path = seat.claims.claimed.path_of("");
            return self.complain(
                "claims",
                &format!("{path} can't be read: {}", with_advice(error)),
            );
        }
        self.pending.for_each(|job| {
            job.claims
                .retain(|claim| there.contains(claim.name.as_str()));
            if job.claims.is_empty() {
                let verdict = Verdict::new(Reason::Cancelled, "the request was withdrawn");
                job.verdict.get_or_insert(verdict);
            }
        });
    }

    /// Decides the end of jobs that are too late to be started.
    fn expire(&mut self) {
        if self
            .pending
            .next_expiry()
            .is_none_or(|expiry| expiry > Instant::now())
        {
            return;
        }
        self.pending.for_each(|job| {
            let is_late = job.last_claim().is_some_and(super::job::Claim::is_expired);
            if is_late && job.verdict.is_none() {
                let what = if job.needs_approval() {
                    "nobody answered"
                } else {
                    "its turn didn't come"
                };
                let message = format!("{what} before its deadline {}", job.record.deadline);
                job.verdict = Some(Verdict::new(Reason::Expired, message));
            }
        });
    }

    /// Starts what may be started.
    pub fn start_jobs(&mut self) {
        while self.closing < MAX_CLOSING {
            let Some(job) = self.pending.take(|job| job.verdict.is_some()) else {
                break;
            };
            if !self.start(job, false) {
                return;
            }
        }
        while self.running < self.config.max_jobs {
            let busy = &self.busy;
            let may = |job: &Job| {
                job.verdict.is_none() && !job.needs_approval() && !busy.contains(job.node())
            };
            let Some(job) = self.pending.take(may) else {
                break;
            };
            if !self.start(job, true) {
                return;
            }
        }
    }

    /// Gives the job a thread; false, and the job waits on, if there is none to be had.
    fn start(&mut self, job: Job, holds_slot: bool) -> bool {
        let node = job.node().to_owned();
        let names: Vec<_> = job
            .claims
            .iter()
            .map(|claim| claim.name.to_string())
            .collect();
        let parcel = Arc::new(Mutex::new(Some(job)));
        let open = |parcel: &Mutex<Option<Job>>| parcel.lock().ok().and_then(|mut job| job.take());
        let (desk, theirs) = (Arc::clone(&self.desk), Arc::clone(&parcel));
        let thread = std::thread::Builder::new()
            .name("job".to_owned())
            .spawn(move || {
                if let Some(job) = open(&theirs) {
                    work(&desk, job, holds_slot);
                }
            });
        if let Err(error) = thread {
            self.complain(
                "threads",
                &format!("no thread for a job: {error}: raise TasksMax= or lower max_jobs"),
            );
            if let Some(job) = open(&parcel) {
                self.pending.push(job);
            }
            return false;
        }
        self.at_work.extend(names);
        if holds_slot {
            self.busy.insert(node);
            self.running += 1;
        } else {
            self.closing += 1;
        }
        true
    }

    /// Records the end of a job that has no claim left to answer.
    pub fn close(&mut self, mut job: Job, verdict: &Verdict) {
        end(&self.desk, &mut job, verdict);
        self.metrics.count_end(verdict.reason, 0.0);
    }

    fn read_configuration_anew(&mut self) {
        systemd::reloading();
        match Config::load(&self.path) {
            Ok(new) if self.has_moved(&new) => tracing::error!(
                "request_dir, response_dir, state_dir and log_dir can't be changed while the responder runs: \
                 the old configuration is kept; restart it instead"
            ),
            Ok(new) => {
                tracing::info!("the configuration was read anew");
                self.config = new;
                if let Some(seat) = self.desk.seat()
                    && let Err(fault) = seat.introduce(&self.config, self.started)
                {
                    tracing::error!("{fault}");
                }
            }
            Err(fault) => {
                for line in fault.to_string().lines() {
                    tracing::error!("the old configuration is kept: {line}");
                }
            }
        }
        systemd::ready();
    }

    fn has_moved(&self, new: &Config) -> bool {
        let paths = |config: &Config| {
            let directories = [
                &config.request_dir,
                &config.response_dir,
                &config.state_dir,
                &config.log_dir,
            ];
            directories.map(Clone::clone)
        };
        paths(&self.config) != paths(new)
    }

    fn prune(&mut self) {
        let ended: u64 = self.metrics.ended.values().sum();
        let is_due = self.pruned.is_none_or(|(last, ended_then)| {
            last.elapsed() >= PRUNE || ended - ended_then >= PRUNE_JOBS
        });
        if !is_due {
            return;
        }
        self.pruned = Some((Instant::now(), ended));
        let mut active: HashSet<String> =
            self.pending.jobs().map(|job| job.id().to_owned()).collect();
        let ids = self
            .at_work
            .iter()
            .filter_map(|name| FileName::parse(name.as_ref()));
        active.extend(ids.map(|name| name.request_id().to_owned()));
        let pruned = self
            .desk
            .store
            .prune(self.config.keep_jobs, |id| active.contains(id));
        if let Err(error) = pruned {
            self.complain(
                "prune",
                &format!("state_dir can't be read: {}", with_advice(error)),
            );
        }
    }

    fn write_metrics(&mut self) {
        let Some(path) = self.config.metrics_file.clone() else {
            return;
        };
        let oldest = self
            .pending
            .jobs()
            .filter_map(|job| job.record.start_time.parse::<Timestamp>().ok())
            .min();
        self.metrics.running = self.running;
        self.metrics.pending = self.pending.len();
        self.metrics.oldest_pending = oldest.map_or(0.0, |oldest| {
            Timestamp::now()
                .duration_since(oldest)
                .as_secs_f64()
                .max(0.0)
        });
        if self.written.as_ref() == Some(&self.metrics) {
            return;
        }
        match self.metrics.write(&path) {
            Ok(()) => self.written = Some(self.metrics.clone()),
            Err(reason) => self.complain("metrics", &reason),
        }
    }

    /// Gives what runs its time, cuts off what is left, and goes.
    fn leave(mut self) {
        systemd::stopping();
        self.desk.stop();
        let end = Instant::now() + self.config.stop_grace;
        self.wait_for_jobs(end, true);
        self.desk.cut_off();
        self.wait_for_jobs(Instant::now() + LEAVE_TIME, false);
        self.write_metrics();
        tracing::info!(left = self.pending.len() + self.running, "ended");
    }

    fn wait_for_jobs(&mut self, end: Instant, may_be_cut_short: bool) {
        while self.running + self.closing > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            systemd::alive();
            let interrupts = [self.interrupt.as_fd(), self.heard.as_fd()];
            let _ = Watch::default().wait(left.min(systemd::at_least_every(RESCAN)), &interrupts);
            self.collect();
            let signal = self.interrupt.signal();
            if may_be_cut_short && signal.is_some_and(|signal| !signal.is_hangup()) {
                return;
            }
        }
    }
}
