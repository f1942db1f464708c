//! The commands for people.

pub mod answer;
pub mod demo;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::ExitCode;

/// A subcommand: the first word of the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Answers a request by hand.
    Answer,
    /// Shows the agent at work.
    Demo,
}

impl Command {
    /// The subcommand of that name.
    #[must_use]
    pub fn parse(word: &OsStr) -> Option<Self> {
        match word.to_str()? {
            "answer" => Some(Self::Answer),
            "demo" => Some(Self::Demo),
            _ => None,
        }
    }
}

/// Runs a subcommand with the arguments after it. Exit 0 or 1, as for the agent: its usage errors
/// must never look like status' 2.
#[must_use]
pub fn main(command: Command, arguments: &[OsString]) -> ExitCode {
    match command {
        Command::Demo => demo_main(arguments),
        Command::Answer => answer::main(arguments),
    }
}

fn said(result: &io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn demo_main(arguments: &[OsString]) -> ExitCode {
    match arguments.first().map(|word| word.to_string_lossy()) {
        None => demo::main(),
        Some(word) if word == "--help" || word == "-h" => {
            said(&writeln!(io::stdout(), "{}", demo::HELP))
        }
        Some(word) => {
            let word = crate::text::one_line(&word);
            let line = format!("demo takes no \"{word}\": see fence_recorder demo --help");
            let _ = writeln!(io::stderr(), "fence_recorder: {line}");
            ExitCode::FAILURE
        }
    }
}
