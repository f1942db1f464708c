//! Which face? The agent, unless the first word is a subcommand.

use std::process::ExitCode;

use fence_recorder::{agent, bmc, commands, operator, responder};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let Some((word, rest)) = arguments.split_first() else {
        return agent::main(arguments).into();
    };
    if word == commands::RESPONDER.name {
        responder::main(rest)
    } else if word == responder::gate::WORD {
        responder::gate::main(rest)
    } else if word == bmc::WORD {
        bmc::main()
    } else if let Some(command) = operator::find(word) {
        command.main(rest)
    } else {
        agent::main(arguments).into()
    }
}
