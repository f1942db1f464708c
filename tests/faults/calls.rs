//! The system calls of a program, from main to its end, and the errors that each can really give.

use std::collections::BTreeMap;
use std::path::Path;

/// One occurrence of a system call in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
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
            "EROFS", "ELOOP",
        ],
        "read" | "pread64" => &["EIO", "EINTR", "ESTALE", "ENOMEM"],
        "write" => &[
            "EIO", "ENOSPC", "EDQUOT", "EINTR", "EFBIG", "EPIPE", "EAGAIN",
        ],
        "close" => &["EIO", "EINTR", "ENOSPC", "EDQUOT"],
        "newfstatat" | "fstat" | "stat" | "statx" | "lstat" | "statfs" | "fstatfs" => {
            &["EIO", "EACCES", "ENOMEM", "ESTALE", "ELOOP"]
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
