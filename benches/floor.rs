//! The floor: one fence by nothing but the system calls that the protocol needs.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use nix::fcntl::{OFlag, open, openat, renameat};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::unistd::{UnlinkatFlags, fsync, read, unlinkat};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, requests, responses, id] = arguments.as_slice() else {
        panic!("usage: floor REQUEST_DIR RESPONSE_DIR UUID")
    };
    let name = format!("node-{id}.json");
    let temporary = format!(".{name}.tmp");
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let request_dir = open(requests.as_str(), flags, Mode::empty()).unwrap();
    let response_dir = open(responses.as_str(), flags, Mode::empty()).unwrap();
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC).unwrap();
    inotify
        .add_watch(responses.as_str(), AddWatchFlags::IN_MOVED_TO)
        .unwrap();

    let create = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(0o644);
    let mut file = File::from(openat(&request_dir, temporary.as_str(), create, mode).unwrap());
    fchmod(&file, mode).unwrap();
    file.write_all(&[b' '; 300]).unwrap();
    fsync(&file).unwrap();
    renameat(
        &request_dir,
        temporary.as_str(),
        &request_dir,
        name.as_str(),
    )
    .unwrap();
    fsync(&request_dir).unwrap();

    ppoll(
        &mut [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)],
        None,
        None,
    )
    .unwrap();
    inotify.read_events().unwrap();
    let read_only = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let response = openat(&response_dir, name.as_str(), read_only, Mode::empty()).unwrap();
    fstat(&response).unwrap();
    let mut bytes = [0; 4096];
    assert!(read(&response, &mut bytes).unwrap() > 0);

    unlinkat(&request_dir, name.as_str(), UnlinkatFlags::NoRemoveDir).unwrap();
    fsync(&request_dir).unwrap();
    nix::unistd::write(std::io::stdout(), b"Success: Powered OFF\n").unwrap();
}
