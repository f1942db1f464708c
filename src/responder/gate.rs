//! The process between the responder and a task: it waits until the task's record is durable.
//!
//! The responder starts it in a process group of its own, records that group, and only then says
//! go; a responder that dies before leaves nothing running. Standard input and error are the
//! task's own, standard output is the pipe that says go.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::unistd::{close, dup2_stdout, read};

/// The first argument that makes this program the gate.
pub const WORD: &str = "responder-task-gate";

/// What a shell says of a command that can't be executed.
const CANT_EXECUTE: u8 = 126;

/// Becomes the task (program and arguments) once it may.
#[must_use]
pub fn main(task: &[OsString]) -> ExitCode {
    let Some((program, arguments)) = task.split_first() else {
        return ExitCode::FAILURE;
    };
    if !may_go() {
        let _ = writeln!(io::stderr(), "the responder did not let it start");
        return ExitCode::FAILURE;
    }
    // the responder's blocked signals are not the task's
    let _ = SigSet::empty().thread_set_mask();
    let _ = dup2_stdout(io::stderr());
    close_the_rest();
    let error = Command::new(program).args(arguments).exec();
    let _ = writeln!(
        io::stderr(),
        "{} can't be run: {error}",
        program.to_string_lossy()
    );
    ExitCode::from(CANT_EXECUTE)
}

/// One byte means go; the end of the pipe means that the responder is gone or thought better of it.
fn may_go() -> bool {
    let mut byte = [0];
    loop {
        match read(io::stdout(), &mut byte) {
            Err(Errno::EINTR) => {}
            result => return result == Ok(1),
        }
    }
}

/// Closes what the responder itself was started with and doesn't know of.
fn close_the_rest() {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    let numbers: Vec<RawFd> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // the one of the listing is closed already
        let _ = close(number);
    }
}
