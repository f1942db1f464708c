//! `fence_recorder completions`: what a shell can complete, made from the options themselves.

use std::process::ExitCode;

use clap::ArgMatches;

use clap::builder::PossibleValuesParser;
use clap_complete::Shell;
use serde_json::Value;

use super::COMMANDS;
use super::options::{text_of, word};
use super::view::{View, failed, print};
use crate::commands::COMPLETIONS;

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// The options, from which parser, help and manual are made.
#[must_use]
pub fn command() -> clap::Command {
    COMPLETIONS.command().arg(
        word("shell", "SHELL", "Of which shell")
            .required(true)
            .value_parser(PossibleValuesParser::new(SHELLS)),
    )
}

/// Prints them.
#[must_use]
pub fn main(matches: &ArgMatches) -> ExitCode {
    let shell = match text_of(matches, "shell") {
        Some("zsh") => Shell::Zsh,
        Some("fish") => Shell::Fish,
        _ => Shell::Bash,
    };
    let view = View {
        json: Value::Null,
        text: completions(shell),
    };
    match print(&view, false) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => failed(&fault),
    }
}

/// The script for `shell`: the agent's own options, and all subcommands with theirs.
fn completions(shell: Shell) -> String {
    let agent = crate::agent::input::table();
    let commands = COMMANDS.iter().map(|subcommand| (subcommand.command)());
    let responder = crate::responder::command();
    let mut all = agent.subcommands(commands.chain([responder]));
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut all, "fence_recorder", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
