//! What all commands do with arguments that clap doesn't take, or that ask for help.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, Command};

/// What the arguments after a command's word say.
///
/// # Errors
/// When they say nothing that it takes, or ask for help: that is printed already.
pub fn matches(command: Command, arguments: &[OsString]) -> Result<ArgMatches, ExitCode> {
    let word = OsString::from(command.get_name());
    let all = std::iter::once(&word).chain(arguments);
    command
        .try_get_matches_from(all)
        .map_err(|error| usage(&error))
}

/// Prints what clap says. Exit 0 for help, else 1: a usage error must never look like the 2 of the
/// agent's status.
#[must_use]
pub fn usage(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if error.kind() == ErrorKind::DisplayHelp && printed.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
