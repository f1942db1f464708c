//! The commands for people.

pub mod answer;
pub mod check;
pub mod completions;
pub mod demo;
pub mod fenced;
pub mod history;
pub mod jobs;
pub mod manual;
pub mod options;
pub mod person;
pub mod requests;
pub mod run;
pub mod unfence;
pub mod view;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::ArgMatches;

use crate::commands::{
    ANSWER, CHECK, COMPLETIONS, DEMO, FENCED, HISTORY, JOBS, REQUESTS, RUN, UNFENCE, Word,
};

/// A subcommand, and what it runs.
#[derive(Debug)]
pub struct Subcommand {
    /// That word.
    pub word: Word,
    /// Its options, from which parser, help, manual and completions are made.
    pub command: fn() -> clap::Command,
    /// Runs it. Exit 0 or 1, as for the agent.
    pub run: fn(&ArgMatches) -> ExitCode,
}

impl Subcommand {
    /// Runs it with the arguments after the word. A usage error is exit 1, too: it must never look
    /// like the 2 of the agent's status.
    #[must_use]
    pub fn main(&self, arguments: &[OsString]) -> ExitCode {
        match crate::usage::matches((self.command)(), arguments) {
            Ok(matches) => (self.run)(&matches),
            Err(code) => code,
        }
    }
}

/// All of them, in the order of the manual.
pub const COMMANDS: &[Subcommand] = &[
    Subcommand {
        word: REQUESTS,
        command: requests::command,
        run: requests::main,
    },
    Subcommand {
        word: JOBS,
        command: jobs::command,
        run: jobs::main,
    },
    Subcommand {
        word: HISTORY,
        command: history::command,
        run: history::main,
    },
    Subcommand {
        word: FENCED,
        command: fenced::command,
        run: fenced::main,
    },
    Subcommand {
        word: UNFENCE,
        command: unfence::command,
        run: unfence::main,
    },
    Subcommand {
        word: ANSWER,
        command: answer::command,
        run: answer::main,
    },
    Subcommand {
        word: CHECK,
        command: check::command,
        run: check::main,
    },
    Subcommand {
        word: RUN,
        command: run::command,
        run: run::main,
    },
    Subcommand {
        word: DEMO,
        command: demo::command,
        run: demo::main,
    },
    Subcommand {
        word: COMPLETIONS,
        command: completions::command,
        run: completions::main,
    },
];

/// The subcommand of that name.
#[must_use]
pub fn find(word: &OsStr) -> Option<&'static Subcommand> {
    COMMANDS.iter().find(|command| word == command.word.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_calls_itself_by_its_name() {
        for subcommand in COMMANDS {
            let command = (subcommand.command)();
            assert_eq!(command.get_name(), subcommand.word.name);
            let called = command.get_bin_name().map(str::to_owned);
            assert_eq!(
                called,
                Some(format!("fence_recorder {}", subcommand.word.name))
            );
        }
    }
}
