//! The commands for people.

pub mod answer;
pub mod demo;
pub mod run;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

use crate::spool::place::Place;

/// A subcommand: the first word of the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Answers a request by hand.
    Answer,
    /// Shows the agent at work.
    Demo,
    /// Runs a job once.
    Run,
}

impl Command {
    /// The subcommand of that name.
    #[must_use]
    pub fn parse(word: &OsStr) -> Option<Self> {
        match word.to_str()? {
            "answer" => Some(Self::Answer),
            "demo" => Some(Self::Demo),
            "run" => Some(Self::Run),
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
        Command::Run => run::main(arguments),
    }
}

/// An option without a value.
fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

/// An option that names a directory of the spool.
fn directory(name: &'static str, help: &'static str, place: Place) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("DIRECTORY")
        .help(format!("{help} [environment: {}]", place.environment))
        .value_parser(clap::value_parser!(PathBuf))
        .default_value(place.default)
}

/// The directory that an option or else its environment variable names.
fn directory_of(matches: &ArgMatches, name: &str, place: Place) -> PathBuf {
    let is_given = matches.value_source(name) == Some(ValueSource::CommandLine);
    let environment = std::env::var_os(place.environment).filter(|value| !value.is_empty());
    match environment {
        Some(value) if !is_given => PathBuf::from(value),
        _ => matches
            .get_one::<PathBuf>(name)
            .cloned()
            .unwrap_or_default(),
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
