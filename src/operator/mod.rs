//! The commands for people.

pub mod demo;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::ExitCode;

/// A subcommand: the first word of the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Shows the agent at work.
    Demo,
}

impl Command {
    /// The subcommand of that name.
    #[must_use]
    pub fn parse(word: &OsStr) -> Option<Self> {
        (word == "demo").then_some(Self::Demo)
    }
}

/// Runs a subcommand with the arguments after it. Exit 0 or 1, as for the agent: its usage errors
/// must never look like status' 2.
#[must_use]
pub fn main(command: Command, arguments: &[OsString]) -> ExitCode {
    let Command::Demo = command;
    match arguments.first().map(|word| word.to_string_lossy()) {
        None => demo::main(),
        Some(word) if word == "--help" || word == "-h" => {
            match writeln!(io::stdout(), "{}", demo::HELP) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        Some(word) => {
            let word = crate::text::one_line(&word);
            let line = format!("demo takes no \"{word}\": see fence_recorder demo --help");
            let _ = writeln!(io::stderr(), "fence_recorder: {line}");
            ExitCode::FAILURE
        }
    }
}
