//! What all jobs of a responder share.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::ends::Ends;
use super::seat::Seat;
use crate::audit::Audit;
use crate::jobs::record::{Reason, Record};
use crate::jobs::store::Store;
use crate::text::one_line;

/// What all jobs share; every job's thread has a reference to it.
#[derive(Debug)]
pub struct Desk {
    /// The records.
    pub store: Store,
    /// Where ends are logged that nobody else logs.
    pub audit: Audit,
    /// Answered requests whose end may be nobody's to record.
    pub ends: Ends,
    state: Mutex<State>,
    changed: Condvar,
    cut: PipeReader,
    reports: Mutex<Reports>,
}

#[derive(Debug)]
struct State {
    seat: Option<Arc<Seat>>,
    is_stopping: bool,
    /// Dropped when running tasks have had their time.
    cutter: Option<PipeWriter>,
    news: u64,
}

#[derive(Debug)]
struct Reports {
    sender: Sender<Report>,
    bell: PipeWriter,
}

/// What a job's thread tells the main one.
#[derive(Debug)]
pub enum Report {
    /// The job is over, or was left for the next responder.
    Job {
        /// Which node is free again.
        node: String,
        /// The names of the job's claims.
        names: Vec<String>,
        /// How it ended; `None` if it was left.
        reason: Option<Reason>,
        /// Whether its thread had a place among the running ones.
        held_slot: bool,
        /// How long it took, in seconds.
        seconds: f64,
    },
    /// A notify command has ended; the job with this id may say so.
    Notified(String),
}

impl Desk {
    /// The second value is rung when a report waits in the receiver of `sender`.
    ///
    /// # Errors
    /// When no pipe can be had.
    pub fn new(
        store: Store,
        audit: Audit,
        sender: Sender<Report>,
    ) -> io::Result<(Self, PipeReader)> {
        let (cut, cutter) = io::pipe()?;
        let (heard, bell) = io::pipe()?;
        let desk = Self {
            store,
            audit,
            ends: Ends::default(),
            state: Mutex::new(State {
                seat: None,
                is_stopping: false,
                cutter: Some(cutter),
                news: 0,
            }),
            changed: Condvar::new(),
            cut,
            reports: Mutex::new(Reports { sender, bell }),
        };
        Ok((desk, heard))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // nothing panics while it holds the lock, and a panic ends the responder
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The spool, while there is one that is ours.
    #[must_use]
    pub fn seat(&self) -> Option<Arc<Seat>> {
        self.state().seat.clone()
    }

    /// Sets the spool that is served from now on.
    pub fn set_seat(&self, seat: Option<Arc<Seat>>) {
        self.state().seat = seat;
        self.tell_news();
    }

    /// Whether nothing new is to be started.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.state().is_stopping
    }

    /// From now on nothing new is started.
    pub fn stop(&self) {
        self.state().is_stopping = true;
        self.tell_news();
    }

    /// Ends what still runs.
    pub fn cut_off(&self) {
        self.state().cutter = None;
    }

    /// Becomes readable when what runs is to end.
    #[must_use]
    pub fn cut(&self) -> BorrowedFd<'_> {
        self.cut.as_fd()
    }

    /// Wakes the jobs that wait for their next attempt: a claim is gone, or we stop.
    pub fn tell_news(&self) {
        self.state().news += 1;
        self.changed.notify_all();
    }

    /// Waits until `end`, or until `is_over` says so, which is asked first and at all news.
    pub fn wait_until(&self, end: Instant, mut is_over: impl FnMut() -> bool) {
        loop {
            let seen = self.state().news;
            if is_over() {
                return;
            }
            let state = self.state();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let nothing_new = |state: &mut State| state.news == seen;
            let waited = self.changed.wait_timeout_while(state, left, nothing_new);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Tells the main thread.
    pub fn report(&self, report: Report) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        // the main thread is there as long as any job
        let _ = reports.sender.send(report);
        let _ = reports.bell.write_all(&[1]);
    }

    /// Writes a record; false, and a line in the log, if that can't be done.
    pub fn save(&self, record: &Record) -> bool {
        let saved = self.store.save(record);
        if let Err(fault) = &saved {
            let (job, node) = (
                &record.request.request_id,
                one_line(&record.request.target_node),
            );
            tracing::error!(job, node, "the job's record: {fault}");
        }
        saved.is_ok()
    }
}
