//! The system calls of a program, from main to its end, and the errors that each can really give.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One occurrence of a system call in a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    pub name: String,
    /// Which one of that name, from 1: what strace calls `when`.
    pub occurrence: usize,
}

/// What a call can fail with on a machine in trouble (its manual page); none for those that can't fail.
#[must_use]
pub fn errors(name: &str) -> &'static [&'static str] {
    match name {
        "openat" | "open" => &[
            "EIO", "EMFILE", "ENFILE", "ENOMEM", "EACCES", "EINTR", "ESTALE", "ENOSPC", "EDQUOT",
            "EROFS",
        ],
        "read" | "pread64" => &["EIO", "EINTR", "ESTALE", "ENOMEM"],
        "write" => &[
            "EIO", "ENOSPC", "EDQUOT", "EINTR", "EFBIG", "EPIPE", "EAGAIN",
        ],
        "close" => &["EIO", "EINTR", "ENOSPC", "EDQUOT"],
        "newfstatat" | "fstat" | "stat" | "statx" | "lstat" | "statfs" | "fstatfs" => {
            &["EIO", "EACCES", "ENOMEM", "ESTALE"]
        }
        "fcntl" => &["EMFILE", "ENOLCK", "EINTR"],
        "mmap" => &["ENOMEM", "EAGAIN"],
        "mprotect" | "munmap" | "brk" | "mremap" | "madvise" => &["ENOMEM"],
        "ppoll" | "poll" => &["EINTR", "ENOMEM"],
        "getrandom" => &["EINTR", "EAGAIN", "ENOSYS"],
        "fchmod" | "fchmodat" => &["EIO", "EPERM", "EROFS", "ESTALE"],
        "fsync" => &["EIO", "ENOSPC", "EDQUOT", "EINTR", "EROFS", "EINVAL"],
        "socket" => &["EMFILE", "ENFILE", "ENOBUFS", "EACCES", "EAFNOSUPPORT"],
        "sendto" => &[
            "EAGAIN",
            "ECONNREFUSED",
            "ENOENT",
            "ENOBUFS",
            "EMSGSIZE",
            "EINTR",
        ],
        "getdents64" => &["EIO", "ENOENT", "ESTALE"],
        "faccessat2" | "faccessat" | "access" => &["EACCES", "EIO", "EROFS", "ENOSYS"],
        "unlinkat" | "unlink" => &[
            "EIO", "EACCES", "EROFS", "EBUSY", "ENOENT", "EINTR", "ESTALE",
        ],
        "renameat2" | "renameat" | "linkat" => &[
            "EIO", "ENOSPC", "EDQUOT", "EROFS", "EACCES", "EINVAL", "ENOENT", "ESTALE",
        ],
        "mkdir" | "mkdirat" => &["EACCES", "ENOSPC", "EDQUOT", "EROFS", "EMLINK"],
        "signalfd4" | "inotify_init1" | "pipe2" | "eventfd2" => &["EMFILE", "ENFILE", "ENOMEM"],
        "inotify_add_watch" => &["ENOSPC", "ENOMEM", "EACCES", "ENOENT"],
        "ioctl" => &["ENOTTY", "EIO"],
        "lseek" => &["ESPIPE", "EINVAL"],
        "readlinkat" | "readlink" => &["EIO", "EACCES", "ENOENT", "ENOMEM"],
        _ => &[],
    }
}

/// The calls that strace wrote down, from main on. What the dynamic linker, or Rust's runtime, does
/// before it is never success (design 4.2). The first thing that main does is to block signals.
#[must_use]
pub fn from_main(trace: &Path) -> Vec<Call> {
    let text = std::fs::read_to_string(trace).unwrap();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut calls = Vec::new();
    let mut is_in_main = false;
    for line in text.lines() {
        let Some((name, _)) = line.split_once('(') else {
            continue;
        };
        is_in_main |= name == "rt_sigprocmask";
        let occurrence = seen.entry(name.to_owned()).or_default();
        *occurrence += 1;
        if is_in_main && name != "exit_group" {
            calls.push(Call {
                name: name.to_owned(),
                occurrence: *occurrence,
            });
        }
    }
    calls
}

/// The calls of all threads and processes that `strace -f` wrote down. It counts each one's calls by
/// themselves, so that one case can be for several of them.
#[must_use]
pub fn of_each_thread(trace: &Path) -> BTreeSet<Call> {
    let text = std::fs::read_to_string(trace).unwrap();
    let mut seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut calls = BTreeSet::new();
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else {
            continue;
        };
        let Some((name, _)) = rest.trim_start().split_once('(') else {
            continue;
        };
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_name && !name.starts_with("exit") {
            let occurrence = seen.entry((thread, name)).or_default();
            *occurrence += 1;
            calls.insert(Call {
                name: name.to_owned(),
                occurrence: *occurrence,
            });
        }
    }
    calls
}
