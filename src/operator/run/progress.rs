//! What `run` says while it runs: one line that is redrawn on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use crate::jobs::record::{State, TaskRecord};
use crate::operator::view::terminal::size_of;

/// Where progress is said, on standard error.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    tasks: usize,
    /// What is at work, and since when.
    current: Option<(String, Instant)>,
}

impl Progress {
    /// Nothing runs yet, of so many tasks.
    #[must_use]
    pub fn new(tasks: usize) -> Self {
        Self {
            is_terminal: io::stderr().is_terminal(),
            tasks,
            current: None,
        }
    }

    /// An attempt at the task `number`, from 0, has begun.
    pub fn begun(&mut self, number: usize, name: &str, attempt: &str) {
        let text = format!("[{}/{}] {name}: {attempt}", number + 1, self.tasks);
        if !self.is_terminal {
            self.say(&text);
        }
        self.current = Some((text, Instant::now()));
        self.draw();
    }

    /// Draws the line of what is at work anew.
    pub fn draw(&self) {
        if let Some((text, since)) = self.current.as_ref().filter(|_| self.is_terminal) {
            let line = format!("{text}, {} s", since.elapsed().as_secs());
            let columns = size_of(io::stderr()).columns;
            // a line that wraps could not be redrawn
            let line: String = line.chars().take(columns.saturating_sub(1)).collect();
            let _ = write!(io::stderr(), "\r\x1b[2K{line}");
        }
    }

    /// An attempt at the task `number` has ended, as `record` says.
    pub fn ended(&mut self, number: usize, record: &TaskRecord) {
        let since = self.current.take().map(|(_, since)| since);
        let seconds = since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        let (name, state) = (&record.name, record.state);
        let message = match record.message.as_deref() {
            Some(message) if !message.is_empty() => format!(": {message}"),
            _ => String::new(),
        };
        let attempts = match (state, record.attempts.len()) {
            (State::Completed, 1) => String::new(),
            (_, made) => format!(" (attempt {made})"),
        };
        self.say(&format!(
            "[{}/{}] {name}: {state:?}{attempts} after {seconds:.1} s{message}",
            number + 1,
            self.tasks
        ));
    }

    /// Says a line that stays.
    pub fn say(&self, line: &str) {
        let clear = if self.is_terminal { "\r\x1b[2K" } else { "" };
        let _ = writeln!(io::stderr(), "{clear}{line}");
        self.draw();
    }
}
