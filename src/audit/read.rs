//! Reads the audit back: the detailed log and those that logrotate put aside, compressed or not.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jiff::Timestamp;
use nix::fcntl::OFlag;
use serde::Deserialize;
use thiserror::Error;

use super::DETAILED;
use crate::text::one_line;

/// The most bytes of a line: a foreign file must not fill the memory.
const MAX_LINE_BYTES: u64 = 1024 * 1024;

/// How logrotate's files may be compressed, and what prints them.
const COMPRESSED: &[(&str, &str)] = &[
    (".gz", "gzip"),
    (".xz", "xz"),
    (".bz2", "bzip2"),
    (".zst", "zstd"),
];

/// One event, as a line of the detailed log has it (design 4.3).
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs)] // they are those of the log
pub struct Recorded {
    pub timestamp: Timestamp,
    pub status: String,
    pub target_node: String,
    #[serde(default)]
    pub action: Option<String>,
    #[serde(default)]
    pub details: Option<String>,
    #[serde(default)]
    pub recorder_node: Option<String>,
    #[serde(default)]
    pub request_id: Option<String>,
    #[serde(default)]
    pub duration_seconds: Option<f64>,
}

/// What of a log didn't count.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Complaint {
    /// So many of its lines are torn, or not ours.
    #[error("{0}: {1} of its lines are no events")]
    Foreign(String, usize),
    /// It can't be read, or not to its end.
    #[error("{0} can't be read: {1}")]
    Unreadable(String, String),
}

/// Calls `visit` with each event in `log_dir`, the oldest file first, and `complain` with what
/// doesn't count. Files last written before `since` are left alone. A log that isn't there has no
/// events.
///
/// # Errors
/// When the directory can't be read.
pub fn for_each_event(
    log_dir: &Path,
    since: Option<Timestamp>,
    mut visit: impl FnMut(Recorded),
    mut complain: impl FnMut(Complaint),
) -> Result<(), String> {
    for path in files(log_dir, since)? {
        let shown = one_line(&path.to_string_lossy());
        match read(&path, &mut visit) {
            Ok(0) => {}
            Ok(foreign) => complain(Complaint::Foreign(shown, foreign)),
            Err(fault) => complain(Complaint::Unreadable(shown, fault)),
        }
    }
    Ok(())
}

/// The detailed log and its older parts, the oldest first.
fn files(log_dir: &Path, since: Option<Timestamp>) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error| {
        format!(
            "log_dir {} can't be read: {error}",
            one_line(&log_dir.to_string_lossy())
        )
    };
    let entries = match fs::read_dir(log_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unreadable)?,
    };
    let mut found = Vec::new();
    let mut names = HashSet::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let Some(rest) = name.strip_prefix(DETAILED) else {
            continue;
        };
        let is_log = rest.is_empty() || rest.starts_with(['.', '-']);
        // one that is removed at this moment was rotated away
        let Ok(written) = entry.metadata().and_then(|status| status.modified()) else {
            continue;
        };
        let written = Timestamp::try_from(written).unwrap_or(Timestamp::MAX);
        let is_in_time = since.is_none_or(|since| written >= since);
        names.extend(is_log.then(|| name.clone()));
        if is_log && is_in_time {
            found.push((written, name));
        }
    }
    // while a file is compressed, both are there
    found.retain(|(_, name)| {
        let plain = COMPRESSED
            .iter()
            .find_map(|(end, _)| name.strip_suffix(end));
        plain.is_none_or(|plain| !names.contains(plain))
    });
    found.sort();
    Ok(found
        .into_iter()
        .map(|(_, name)| log_dir.join(name))
        .collect())
}

/// Reads one file; how many of its lines are no events.
fn read(path: &Path, visit: &mut impl FnMut(Recorded)) -> Result<usize, String> {
    // whatever lies there, opening it must neither follow a link nor block
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits())
        .open(path);
    let file = match file {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        file => file.map_err(|error| error.to_string())?,
    };
    if !file.metadata().is_ok_and(|status| status.is_file()) {
        return Err("it is not a regular file".to_owned());
    }
    let name = path.to_string_lossy();
    let packer = COMPRESSED.iter().find(|(end, _)| name.ends_with(end));
    let Some((_, program)) = packer else {
        return read_lines(file, visit).map_err(|error| error.to_string());
    };
    let mut unpacker = Command::new(program)
        .arg("-dc")
        .stdin(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{program}: {error}: install it"))?;
    let lines = unpacker.stdout.take().map(|lines| read_lines(lines, visit));
    let ended = unpacker.wait();
    let foreign = lines.transpose().map_err(|error| error.to_string())?;
    match ended {
        Ok(status) if status.success() => Ok(foreign.unwrap_or_default()),
        _ => Err(format!(
            "{program} finds it damaged; what could be read of it was"
        )),
    }
}

/// Calls `visit` with each event in `lines`; how many of them are none.
///
/// # Errors
/// When they can't be read to their end.
pub fn read_lines(lines: impl Read, visit: &mut impl FnMut(Recorded)) -> io::Result<usize> {
    let mut lines = BufReader::new(lines);
    let mut foreign = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut lines)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)?
            == 0
        {
            return Ok(foreign);
        }
        let text = line.trim_ascii();
        match serde_json::from_slice(text) {
            Ok(event) => visit(event),
            Err(_) if text.is_empty() => {}
            Err(_) => foreign += 1,
        }
    }
}
