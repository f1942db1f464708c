//! The floor of one fence: a whole process that makes only the system calls the protocol needs
//! (design 3.1 to 3.3). What the agent takes beyond it is its own.
//!
//! `floor REQUEST_DIR RESPONSE_DIR` asks for `off` of one node and exits 0 after a success response.
//! It checks nothing that the agent must check (ownership of directories, who wrote the response)
//! and records nothing: that work is the agent's product, and counts as such in the comparison.

use std::error::Error;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use jiff::{SignedDuration, Timestamp};
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, fsync, gethostname, read, unlinkat, write};
use uuid::Uuid;

const TARGET: &str = "compute-3";
const TIMEOUT_SECONDS: i64 = 55;
const MODE: Mode = Mode::from_bits_truncate(0o644);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(request_dir), Some(response_dir)) = (arguments.next(), arguments.next()) else {
        return Err("usage: floor REQUEST_DIR RESPONSE_DIR".into());
    };
    let requests = open_directory(&request_dir)?;
    let responses = open_directory(&response_dir)?;
    let watch = watch(&response_dir)?;

    let id = Uuid::new_v4().to_string();
    let name = format!("{TARGET}-{id}.json");
    publish(&requests, &name, request(&id)?.as_bytes())?;
    wait_for(&watch, OsStr::new(&name))?;
    let response = response(&responses, &name)?;
    unlinkat(&requests, name.as_str(), UnlinkatFlags::NoRemoveDir)?;
    fsync(&requests)?;

    if !(response.contains(&id) && response.contains(r#""success": true"#)) {
        return Err(format!("refused: {response}").into());
    }
    write(std::io::stdout(), b"Success: Powered OFF\n")?;
    Ok(())
}

fn open_directory(path: &OsStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty())
}

/// The events of design 3.3: a responder may also write in place, so renames alone won't do, and
/// the temporary file of one that renames wakes the floor as it wakes the agent.
fn watch(response_dir: &OsStr) -> nix::Result<Inotify> {
    let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let events =
        AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CLOSE_WRITE;
    watch.add_watch(response_dir, events)?;
    Ok(watch)
}

/// The same fields as the agent's request, so that as many bytes are written and synced.
fn request(id: &str) -> Result<String, Box<dyn Error>> {
    let host = gethostname()?;
    let host = host.to_string_lossy();
    let now = Timestamp::now();
    let deadline = now.checked_add(SignedDuration::from_secs(TIMEOUT_SECONDS))?;
    Ok(format!(
        r#"{{
  "request_id": "{id}",
  "timestamp": "{now:.6}",
  "action": "off",
  "target_node": "{TARGET}",
  "recorder_node": "{host}",
  "timeout_seconds": {TIMEOUT_SECONDS}.0,
  "deadline": "{deadline:.6}"
}}
"#
    ))
}

fn publish(directory: &OwnedFd, name: &str, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let temporary = format!(".{name}.tmp");
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let file = openat(directory, temporary.as_str(), flags, MODE)?;
    fchmod(&file, MODE)?;
    if write(&file, bytes)? != bytes.len() {
        return Err("the request was written in part".into());
    }
    fsync(&file)?;
    drop(file);
    renameat(directory, temporary.as_str(), directory, name)?;
    fsync(directory)?;
    Ok(())
}

/// Returns when `name` was moved in; the responder of the benchmark never writes in place.
fn wait_for(watch: &Inotify, name: &OsStr) -> Result<(), Box<dyn Error>> {
    let mut descriptors = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
    loop {
        let timeout = TimeSpec::new(TIMEOUT_SECONDS, 0);
        if ppoll(&mut descriptors, Some(timeout), None)? == 0 {
            return Err("no response".into());
        }
        let events = watch.read_events()?;
        if events
            .iter()
            .any(|event| event.name.as_deref() == Some(name))
        {
            return Ok(());
        }
    }
}

fn response(directory: &OwnedFd, name: &str) -> Result<String, Box<dyn Error>> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty())?;
    let mut bytes = vec![0; usize::try_from(fstat(&file)?.st_size)?];
    let length = read(&file, &mut bytes)?;
    bytes.truncate(length);
    Ok(String::from_utf8(bytes)?)
}
