//! Runs a command to its end and keeps what it said.

use std::fmt;
use std::process::Command;

use crate::tools;

/// A command that hangs is ended after this many seconds instead of hanging the test.
const LIMIT: &str = "120";

/// A command that has ended.
pub struct Ended {
    line: String,
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Panics with all that is known if the command failed; returns it if not.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!(self.success, "should succeed: {self}");
        self
    }

    /// Panics with all that is known if the command succeeded; returns it if not.
    #[track_caller]
    pub fn refused(self) -> Self {
        assert!(!self.success, "should fail: {self}");
        self
    }

    /// Panics unless `text` is somewhere in what the command said.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(
            self.stdout.contains(text) || self.stderr.contains(text),
            "should say {text:?}: {self}"
        );
        self
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            success,
            stdout,
            stderr,
        } = self;
        write!(
            f,
            "{line}\n  success: {success}\n  stdout: {stdout}\n  stderr: {stderr}"
        )
    }
}

/// A command that sees nothing of the caller's environment: a variable such as `LOG_DIR` in a
/// developer's shell would otherwise become the agent's configuration.
pub fn plain(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", tools::PATH)
        .env("LC_ALL", "C")
        .env("HOME", "/run");
    command
}

/// Runs a shell line in all namespaces of process `pid`, to its end.
pub fn run_in(pid: u32, line: &str) -> Ended {
    let output = plain("timeout")
        .args(["--kill-after=5", LIMIT, "nsenter", "--all", "--target"])
        .args([&pid.to_string(), "--", "sh", "-c", line])
        .output()
        .expect("timeout starts");
    Ended {
        line: line.to_owned(),
        success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
