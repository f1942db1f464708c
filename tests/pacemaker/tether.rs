//! A child process that lives only as long as we hold its standard input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use crate::wait;

/// A child that leaves, and takes its namespaces with it, once its standard input is closed:
/// by [`Tether::cut`], by a panic's unwinding, or by the kernel when this process is killed.
pub struct Tether {
    child: Child,
}

impl Tether {
    /// Starts the child and returns it with the first line it wrote, its sign that it is ready.
    pub fn start(command: &mut Command) -> (Self, String) {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let tether = Self { child };
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("stdout is readable");
        assert!(
            line.ends_with('\n'),
            "{command:?} ended before it was ready"
        );
        (tether, line.trim_end().to_owned())
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the child a line.
    pub fn say(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("the child is tethered");
        writeln!(stdin, "{line}").expect("the child listens");
    }

    /// Ends the child and returns when it, and all that lived in its PID namespace, is gone.
    pub fn cut(&mut self) {
        drop(self.child.stdin.take());
        wait::until_true("a tethered child ends", || {
            self.child.try_wait().expect("it is our child").is_some()
        });
    }
}

impl Drop for Tether {
    fn drop(&mut self) {
        self.cut();
    }
}
