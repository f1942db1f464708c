//! What all commands do with arguments that clap doesn't take, or that ask for help.

use std::process::ExitCode;

use clap::error::ErrorKind;

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
