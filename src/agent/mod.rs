//! The agent: what Pacemaker, a person or another program runs to fence a node (design 4).

pub mod action;
pub mod console;
pub mod fence;
pub mod input;
pub mod look;
pub mod manual;
pub mod metadata;
pub mod parameters;
pub mod sweeping;
pub mod target;
pub mod wait;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::poll::PollFlags;
use nix::unistd::read;

use crate::audit::{Audit, Status};
use crate::interrupt::Interrupt;
use crate::spool::system::{uninterrupted, with_advice};
use action::Action;
use console::{Console, Outlet, Standard};
use input::{Given, InputFault, MAX_STDIN_BYTES, Resolved};
use parameters::Settings;

/// How the agent ends (design 4.2): nothing else is ever returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0
    Success,
    /// 1
    Failure,
    /// 2, for status only: the node is fenced.
    Off,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => Self::SUCCESS,
            Exit::Failure => Self::FAILURE,
            Exit::Off => Self::from(2),
        }
    }
}

/// One run of the agent.
pub struct Agent<'a> {
    /// What it says.
    pub console: Console<'a>,
    /// What ends it early.
    pub interrupt: &'a Interrupt,
}

/// Where events are recorded, under this host's name.
fn audit(settings: &Settings) -> Audit {
    Audit::new(settings.log_dir.clone())
}

/// Runs the agent with the arguments after the program's name.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> Exit {
    let interrupt = match Interrupt::new() {
        Ok(interrupt) => interrupt,
        Err(error) => {
            let advice = with_advice(error);
            let line = format!("fence_recorder: no signal descriptor can be had: {advice}\n");
            Standard::try_write(std::io::stderr(), &line);
            return Exit::Failure;
        }
    };
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let text = info.payload_as_str().unwrap_or("panic");
        let line = crate::text::one_line(&format!(
            "internal error at {place}: {text}: please report it"
        ));
        Standard::try_write(std::io::stderr(), &format!("fence_recorder: {line}\n"));
    }));
    let outlet = Standard::new(&interrupt);
    run_guarded(&outlet, &interrupt, |agent| run(agent, arguments))
}

/// Turns a panic into exit 1, after everything on the way has withdrawn what it had open.
pub fn run_guarded<'a>(
    outlet: &'a dyn Outlet,
    interrupt: &'a Interrupt,
    run: impl FnOnce(&mut Agent<'a>) -> Exit,
) -> Exit {
    let mut agent = Agent {
        console: Console::new(outlet),
        interrupt,
    };
    catch_unwind(AssertUnwindSafe(|| run(&mut agent))).unwrap_or(Exit::Failure)
}

fn run(agent: &mut Agent<'_>, arguments: Vec<OsString>) -> Exit {
    match given(agent, arguments) {
        Ok(given) => act(agent, given.resolve(|name| std::env::var_os(name))),
        Err(reason) => {
            agent.console.failure(&reason);
            Exit::Failure
        }
    }
}

fn given(agent: &Agent<'_>, arguments: Vec<OsString>) -> Result<Given, String> {
    if !arguments.is_empty() {
        return Given::from_arguments(arguments).map_err(|fault| fault.to_string());
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(
            "stdin is a terminal: give options, or name=value lines on stdin as Pacemaker does: \
                    see fence_recorder --help"
                .to_owned(),
        );
    }
    let bytes = read_stdin(agent.interrupt, stdin.as_fd())?;
    Given::from_stdin(&bytes).map_err(|fault| fault.to_string())
}

fn read_stdin(
    interrupt: &Interrupt,
    stdin: std::os::fd::BorrowedFd<'_>,
) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 8192];
    loop {
        interrupt
            .wait_for(stdin, PollFlags::POLLIN, None)
            .map_err(|signal| format!("cancelled by {signal}"))?;
        match uninterrupted(|| read(stdin, &mut chunk)) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(&chunk[..length]),
            Err(nix::errno::Errno::EAGAIN) => {}
            Err(error) => return Err(format!("stdin can't be read: {}", error.desc())),
        }
        if bytes.len() > MAX_STDIN_BYTES {
            return Err(InputFault::TooLong.to_string());
        }
    }
}

/// Carries out what the input asks for.
pub fn act(agent: &mut Agent<'_>, resolved: Resolved) -> Exit {
    let Resolved {
        settings,
        faults,
        warnings,
    } = resolved;
    agent.console.configure(&settings);
    for warning in &warnings {
        agent.console.warning(warning);
    }
    if settings.help {
        return print(agent, &input::table().render_help().to_string()).unwrap_or(Exit::Failure);
    }
    if settings.version {
        return print(
            agent,
            concat!("fence_recorder ", env!("CARGO_PKG_VERSION"), "\n"),
        )
        .unwrap_or(Exit::Failure);
    }
    let is_metadata = matches!(settings.action, Action::Metadata | Action::Manpage);
    let action_is_known = !faults
        .iter()
        .any(|fault| matches!(fault.name.as_str(), "action" | "option"));
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let result = match (settings.action, settings.action.fencing()) {
        (Action::ValidateAll, _) => return validate(agent, &settings, faults),
        (_, Some(action)) if action_is_known && faults.is_empty() => {
            return fence::run(agent, &settings, action);
        }
        (_, Some(action)) if action_is_known => {
            return fence::refuse(agent, &settings, action, Status::Failed, &faults.join("; "));
        }
        _ if !faults.is_empty() && !is_metadata => Err(faults.join("; ")),
        _ => look(agent, &settings),
    };
    result.unwrap_or_else(|reason| {
        agent.console.allow_logging();
        let action = if action_is_known {
            format!("{} failed: ", settings.action)
        } else {
            String::new()
        };
        agent.console.failure(&format!("{action}{reason}"));
        Exit::Failure
    })
}

fn look(agent: &Agent<'_>, settings: &Settings) -> Result<Exit, String> {
    let exit = match settings.action {
        Action::Status => look::status(agent, settings),
        Action::Monitor => look::monitor(agent, settings),
        Action::List => look::list(agent, settings, false),
        Action::ListStatus => look::list(agent, settings, true),
        _ => print(agent, &metadata::metadata()),
    }?;
    agent.console.allow_logging();
    Ok(exit)
}

/// Prints what was asked for; nobody reading it is a failure.
fn print(agent: &Agent<'_>, text: &str) -> Result<Exit, String> {
    agent
        .console
        .output(text)
        .map_err(|error| format!("standard output can't be written: {error}"))?;
    Ok(Exit::Success)
}

/// One line per fault on stdout: Pacemaker and pcs show both streams, but take a stderr line that
/// holds "timeout" for a timeout of their own (design 2).
fn validate(agent: &Agent<'_>, settings: &Settings, mut faults: Vec<String>) -> Exit {
    match target::targets(settings) {
        Ok(_) | Err(target::TargetFault::None) => {}
        Err(fault) => faults.push(fault.to_string()),
    }
    let lines: Vec<String> = faults
        .iter()
        .map(|fault| crate::text::one_line(fault) + "\n")
        .collect();
    let printed = agent.console.output(&lines.concat());
    if faults.is_empty() && printed.is_ok() {
        Exit::Success
    } else {
        Exit::Failure
    }
}
