//! Whether anybody is there to answer requests, found out without getting in anybody's way.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::{major, minor};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use super::calls::DirectoryCalls;
use super::directory::Directory;
use super::file::read_regular;
use super::json::{pretty, read_object};
use super::lock::{LOCK, Lock};
use super::publish::{MODE, PublishFault, replace};
use super::request::MAX_REQUEST_BYTES;

/// The file in which a responder says who it is and what it serves, in request_dir (design 3.4).
pub const RESPONDER: &str = ".responder.json";

/// What a responder says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Responder {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Since when it runs, RFC 3339.
    pub started: String,
    /// The nodes it serves: names and patterns (globs).
    pub nodes: Vec<String>,
    /// Where it keeps the records of its jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<PathBuf>,
}

impl Responder {
    /// What the responder of this spool says of itself, if there is one that says it.
    #[must_use]
    pub fn read(requests: &Directory) -> Option<Self> {
        let file = read_regular(requests, RESPONDER, MAX_REQUEST_BYTES, false).ok()?;
        read_object(&file.bytes).ok()
    }

    /// Writes it, in place of what an earlier responder said.
    ///
    /// # Errors
    /// See [`replace`].
    pub fn publish(&self, requests: &Directory) -> Result<(), PublishFault> {
        replace(requests, RESPONDER, &pretty(self), MODE)
    }

    /// The nodes that it names without a pattern.
    pub fn plain_nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes
            .iter()
            .map(String::as_str)
            .filter(|node| !node.contains(['*', '?', '[', ']', '{', '}', '!', '\\']))
    }
}

/// Whether somebody watches request_dir: the lock of design 3.4 is held, or a process that could
/// answer has an inotify watch on it. A responder that polls can't be seen.
#[must_use]
pub fn is_watched(requests: &Directory) -> bool {
    Lock::is_held(requests, LOCK) || a_process_watches(requests)
}

/// Whether a process that could answer has an inotify watch on request_dir.
#[must_use]
pub fn a_process_watches(requests: &Directory) -> bool {
    watchers(requests).next().is_some()
}

/// A process that could answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watcher {
    /// Its number.
    pub pid: u32,
    /// Its program's name, or what it calls itself.
    pub name: String,
}

/// The processes that could answer and have an inotify watch on request_dir.
pub fn watchers(requests: &Directory) -> impl Iterator<Item = Watcher> {
    let marks = marks_of(requests);
    processes().filter_map(move |(pid, process)| {
        let is_one = could_answer(&process, requests) && watches(&process, &marks);
        is_one.then(|| {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            let name = name.trim_end().to_owned();
            Watcher { pid, name }
        })
    })
}

/// All processes, and where /proc has them.
pub fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

/// How many inotify instances and watches a process has.
#[must_use]
pub fn inotify_use(process: &Path) -> (usize, usize) {
    let watches = inotify_descriptors(process).map(|descriptor| {
        let info = fs::read_to_string(process.join("fdinfo").join(descriptor)).unwrap_or_default();
        info.lines().filter(|line| mark_in(line).is_some()).count()
    });
    watches.fold((0, 0), |(instances, all), watches| {
        (instances + 1, all + watches)
    })
}

fn inotify_descriptors(process: &Path) -> impl Iterator<Item = std::ffi::OsString> {
    let descriptors = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    descriptors.filter_map(|descriptor| {
        let target = fs::read_link(descriptor.path()).ok()?;
        (target.as_os_str() == "anon_inode:inotify").then(|| descriptor.file_name())
    })
}

/// How /proc's fdinfo names the directory. The kernel's word for it is had by a watch of our own
/// (on btrfs a subvolume's device number isn't its super block's); where no watch can be had, the
/// kernel's encoding of the device number must do.
fn marks_of(requests: &Directory) -> String {
    let own_watch = || {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok()?;
        inotify
            .add_watch(
                &requests.path_by_descriptor(),
                AddWatchFlags::IN_DELETE_SELF,
            )
            .ok()?;
        let descriptor = std::os::fd::AsFd::as_fd(&inotify).as_raw_fd();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
        info.lines()
            .find_map(|line| mark_in(line).map(str::to_owned))
    };
    own_watch().unwrap_or_else(|| encoded_mark(requests.status().st_ino, requests.status().st_dev))
}

/// `ino:… sdev:…` as the kernel writes it: a device number is its major and 20 bits of minor.
fn encoded_mark(inode: u64, device: u64) -> String {
    format!(
        "ino:{inode:x} sdev:{:x}",
        major(device) << 20 | minor(device)
    )
}

/// The part of a line of fdinfo that tells which inode is watched.
fn mark_in(line: &str) -> Option<&str> {
    let from = line
        .strip_prefix("inotify ")?
        .find("ino:")
        .map(|at| at + "inotify ".len())?;
    let rest = &line[from..];
    let end = rest.find(" mask:").unwrap_or(rest.len());
    Some(rest[..end].trim_end())
}

/// Neither one of our own commands but the responder, nor of a user who could not answer: anybody
/// may watch a directory that he can read.
fn could_answer(process: &Path, requests: &Directory) -> bool {
    let Ok(owner) = fs::metadata(process).map(|status| status.uid()) else {
        return false;
    };
    let may_write = owner == 0 || owner == geteuid().as_raw() || owner == requests.status().st_uid;
    may_write && !is_own_command(process)
}

fn is_own_command(process: &Path) -> bool {
    let program = |process: &Path| {
        let program = fs::read_link(process.join("exe")).ok()?;
        let name = program.file_name()?.to_str()?;
        // an upgrade replaced the file under a running program
        Some(name.strip_suffix(" (deleted)").unwrap_or(name).to_owned())
    };
    let same = program(process).is_some_and(|name| Some(name) == program(Path::new("/proc/self")));
    let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
    same && arguments.split(|byte| *byte == 0).nth(1) != Some(b"responder")
}

fn watches(process: &Path, mark: &str) -> bool {
    inotify_descriptors(process).any(|descriptor| {
        fs::read_to_string(process.join("fdinfo").join(descriptor))
            .is_ok_and(|info| info.lines().any(|line| mark_in(line) == Some(mark)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::directory::{Role, Trust};

    #[test]
    fn the_encoded_mark_is_the_kernels() {
        let directory = tempfile::tempdir().unwrap();
        let requests = Directory::open(directory.path(), Role::Requests, Trust::Waived).unwrap();
        assert_eq!(
            marks_of(&requests),
            encoded_mark(requests.status().st_ino, requests.status().st_dev)
        );
    }

    #[test]
    fn a_line_of_fdinfo_is_taken_apart() {
        let line = "inotify wd:1 ino:9e7e sdev:800013 mask:800afce ignored_mask:0 fhandle-bytes:8";
        assert_eq!(mark_in(line), Some("ino:9e7e sdev:800013"));
        assert_eq!(mark_in("pos:\t0"), None);
    }
}
