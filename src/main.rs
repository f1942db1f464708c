//! Which face? The agent, unless the first word is a subcommand.

use std::process::ExitCode;

use fence_recorder::{agent, operator};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments
        .first()
        .and_then(|word| operator::Command::parse(word))
    {
        Some(command) => operator::main(command, &arguments[1..]),
        None => agent::main(arguments).into(),
    }
}
