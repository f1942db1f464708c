//! Records what happened to every request: three log files and syslog (design 4.3).

pub mod read;

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{Timestamp, ZonedDateTime};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, sendto, socket};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::unistd::{gethostname, write};
use serde::Serialize;
use thiserror::Error;

use crate::clock::local_zone;
use crate::spool::system::{uninterrupted, with_advice};
use crate::text::{one_line, one_word};
use read::{Complaint, Recorded, for_each_event};

/// For people, in their words.
pub const EVENTS: &str = "fence-events.log";
/// For people with grep: `KEY=value`.
pub const READABLE: &str = "fence-events-readable.log";
/// For programs: a JSON object a line.
pub const DETAILED: &str = "fence-events-detailed.jsonl";

/// The mode of a log file that is created, whatever the umask.
const MODE: Mode = Mode::from_bits_truncate(0o640);

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It was published.
    Requested,
    /// A success response to it was read.
    Completed,
    /// It was refused, or could not be made.
    Failed,
    /// No response counted in time.
    TimedOut,
    /// Withdrawn before its end.
    Cancelled,
    /// Its agent was killed; a sweep removed it.
    Expired,
    /// An administrator took the node's responses away.
    Unfenced,
}

/// One event; all text may come from outside.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// What was asked for.
    pub action: &'a str,
    /// Of which node.
    pub target: &'a str,
    /// What became of it.
    pub status: Status,
    /// Why, or what the responder said.
    pub details: &'a str,
    /// The request, if one was made.
    pub request_id: Option<&'a str>,
    /// From the request to this event.
    pub duration: Option<Duration>,
}

/// Where events are recorded, and by whom.
#[derive(Debug)]
pub struct Audit {
    /// The directory of the log files.
    pub log_dir: PathBuf,
    /// The host that records.
    pub host: String,
}

/// An event that isn't in every log file; it never stops a fence.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("log_dir: {} {reason}", one_line(&path.to_string_lossy()))]
pub struct AuditFault {
    /// The file or directory.
    pub path: PathBuf,
    /// What is wrong, and what to do.
    pub reason: String,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Requested,
        Self::Completed,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
        Self::Expired,
        Self::Unfenced,
    ];

    /// As it is written in the logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Unfenced => "unfenced",
        }
    }

    fn level(self) -> &'static str {
        match self {
            Self::Requested | Self::Completed | Self::Unfenced => "INFO",
            Self::Cancelled | Self::Expired => "WARNING",
            Self::Failed | Self::TimedOut => "ERROR",
        }
    }

    /// syslog's severity.
    fn severity(self) -> u8 {
        match self.level() {
            "INFO" => 6,
            "WARNING" => 4,
            _ => 3,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A line of the detailed log.
#[derive(Serialize)]
struct Detailed<'a> {
    timestamp: String,
    action: &'a str,
    target_node: &'a str,
    status: Status,
    details: &'a str,
    recorder_node: &'a str,
    request_id: Option<&'a str>,
    duration_seconds: Option<f64>,
}

impl Audit {
    /// In `log_dir`, under this host's name.
    #[must_use]
    pub fn new(log_dir: PathBuf) -> Self {
        let host = gethostname().map_or_else(
            |_| "unknown".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        );
        Self { log_dir, host }
    }

    /// Records one event everywhere it can be; nothing here can block.
    ///
    /// # Errors
    /// The first log file that couldn't take it. A syslog that isn't there or doesn't listen is no
    /// error: not every host has one.
    pub fn record(&self, event: &Event<'_>) -> Result<(), AuditFault> {
        let now = Timestamp::now().to_zoned_datetime(local_zone());
        let event = Event {
            details: &one_line(event.details),
            ..*event
        };
        let prose = prose(&event);
        send_to_syslog(&now, event.status, &prose);
        let directory = self.open_log_dir()?;
        let clock = now.strftime("%Y-%m-%d %H:%M:%S");
        let lines = [
            (
                EVENTS,
                format!("[{clock}] [{}] {prose}\n", event.status.level()),
            ),
            (READABLE, format!("[{clock}] {}\n", readable(&event))),
            (DETAILED, self.detailed(&now, &event)),
        ];
        let results = lines.map(|(name, line)| append_line(&directory, &self.log_dir, name, &line));
        results.into_iter().collect()
    }

    /// Which of these requests, made at `since` or later, the detailed log knows as made, and not as
    /// ended.
    ///
    /// # Errors
    /// When it can't be read. One that isn't there knows none.
    pub fn without_end(
        &self,
        request_ids: &HashSet<&str>,
        since: Timestamp,
    ) -> Result<HashSet<String>, String> {
        let mut open = HashSet::new();
        let mut fault = None;
        let visit = |event: Recorded| {
            let id = event.request_id;
            let Some(id) = id.filter(|id| request_ids.contains(id.as_str())) else {
                return;
            };
            if event.status == Status::Requested.as_str() {
                open.insert(id);
            } else {
                open.remove(&id);
            }
        };
        for_each_event(&self.log_dir, Some(since), visit, |complaint| {
            // a torn line or a foreign one says nothing
            if let Complaint::Unreadable(..) = complaint {
                fault = Some(complaint.to_string());
            }
        })?;
        fault.map_or(Ok(open), Err)
    }

    fn open_log_dir(&self) -> Result<OwnedFd, AuditFault> {
        let fault = |reason| AuditFault {
            path: self.log_dir.clone(),
            reason,
        };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        match open(&self.log_dir, flags, Mode::empty()) {
            Err(Errno::ENOENT) => {
                let created = std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o755)
                    .create(&self.log_dir);
                created.map_err(|error| fault(format!("can't be created: {error}")))?;
                open(&self.log_dir, flags, Mode::empty())
            }
            opened => opened,
        }
        .map_err(|error| fault(format!("can't be opened: {}", with_advice(error))))
    }

    fn detailed(&self, now: &ZonedDateTime, event: &Event<'_>) -> String {
        let line = Detailed {
            timestamp: now.strftime("%Y-%m-%dT%H:%M:%S%.6f%:z").to_string(),
            action: event.action,
            target_node: event.target,
            status: event.status,
            details: event.details,
            recorder_node: &self.host,
            request_id: event.request_id,
            duration_seconds: event
                .duration
                .map(|time| (time.as_secs_f64() * 1e6).round() / 1e6),
        };
        // strings and finite numbers always serialize, and JSON escapes every line break itself
        let mut line = serde_json::to_string(&line).unwrap_or_default();
        line.push('\n');
        line
    }
}

fn prose(event: &Event<'_>) -> String {
    let mut prose = format!(
        "{} of {} {}",
        event.action,
        one_line(event.target),
        event.status.as_str().replace('_', " ")
    );
    if let Some(duration) = event.duration.filter(|_| event.status != Status::Requested) {
        let _ = write!(prose, " after {:.3} s", duration.as_secs_f64());
    }
    if let Some(id) = event.request_id {
        let _ = write!(prose, " (request {})", one_word(id));
    }
    if !event.details.is_empty() {
        let _ = write!(prose, ": {}", event.details);
    }
    prose
}

fn readable(event: &Event<'_>) -> String {
    format!(
        "ACTION={} TARGET={} STATUS={} REQUEST={} DURATION={} DETAILS={}",
        event.action,
        one_word(event.target),
        event.status,
        event.request_id.map_or_else(|| "-".to_owned(), one_word),
        event.duration.map_or_else(
            || "-".to_owned(),
            |time| format!("{:.3}s", time.as_secs_f64())
        ),
        event.details
    )
}

fn append_line(
    directory: &OwnedFd,
    log_dir: &Path,
    name: &str,
    line: &str,
) -> Result<(), AuditFault> {
    let fault = |reason| AuditFault {
        path: log_dir.join(name),
        reason,
    };
    let file = open_for_append(directory, name).map_err(fault)?;
    append(&file, line.as_bytes())
        .map_err(|error| fault(format!("can't be written: {}", with_advice(error))))
}

/// Opens the regular file `path` below `directory` for appending, or creates it with mode 0640;
/// never follows a link and never blocks, whatever lies there (design 4.3).
///
/// # Errors
/// In words: what is wrong and what to do.
pub fn open_for_append(directory: &OwnedFd, path: &str) -> Result<OwnedFd, String> {
    let flags = OFlag::O_WRONLY
        | OFlag::O_APPEND
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    let existing = uninterrupted(|| openat(directory, path, flags, Mode::empty()));
    let (file, is_new) = match existing {
        Err(Errno::ENOENT) => (
            uninterrupted(|| openat(directory, path, flags | OFlag::O_CREAT, MODE)),
            true,
        ),
        existing => (existing, false),
    };
    let not_regular = || "is not a regular file: move it away".to_owned();
    let file = file.map_err(|error| match error {
        Errno::ELOOP | Errno::ENXIO | Errno::ENODEV | Errno::EISDIR => not_regular(),
        error => format!("can't be opened: {}", with_advice(error)),
    })?;
    let status = fstat(&file).map_err(|error| format!("can't be read: {}", with_advice(error)))?;
    if status.st_mode & nix::libc::S_IFMT != nix::libc::S_IFREG {
        return Err(not_regular());
    }
    if is_new {
        fchmod(&file, MODE)
            .map_err(|error| format!("can't be given mode 0640: {}", with_advice(error)))?;
    }
    Ok(file)
}

/// Appends in one write, so that lines of several agents don't mix.
///
/// # Errors
/// What write fails with; ENOSPC if it took only a part.
pub fn append(file: &OwnedFd, bytes: &[u8]) -> nix::Result<()> {
    let written = uninterrupted(|| write(file, bytes))?;
    if written == bytes.len() {
        Ok(())
    } else {
        Err(Errno::ENOSPC)
    }
}

/// In the form that glibc's syslog(3) sends, facility daemon; without waiting for a daemon that
/// hangs.
fn send_to_syslog(now: &ZonedDateTime, status: Status, prose: &str) {
    const DAEMON: u8 = 3;
    let clock = now.strftime("%b %e %H:%M:%S");
    let priority = DAEMON * 8 + status.severity();
    let message = format!(
        "<{priority}>{clock} fence_recorder[{}]: {prose}",
        std::process::id()
    );
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None);
    if let (Ok(socket), Ok(address)) = (socket, UnixAddr::new("/dev/log")) {
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _ = sendto(descriptor, message.as_bytes(), &address, flags);
    }
}
