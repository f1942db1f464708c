//! `fence_recorder responder`: answers requests by running jobs (design 3.4).

mod approval;
pub mod config;
mod desk;
mod ending;
mod ends;
pub mod gate;
mod intake;
mod job;
mod log;
pub mod manual;
mod metrics;
mod pending;
pub mod prepare;
pub mod process;
mod recovery;
mod seat;
mod service;
mod systemd;
pub mod work;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches};
use thiserror::Error;

use crate::audit::Audit;
use crate::commands::RESPONDER;
use crate::interrupt::Interrupt;
use crate::jobs::store::{Store, StoreFault};
use config::{Config, ConfigFault, DEFAULT_PATH};
use desk::Desk;
use seat::{LOCK_PAUSE, LOCK_TIME, Seat, SeatFault};
use service::Service;

/// Why the responder doesn't run.
#[derive(Debug, Error)]
enum Fault {
    #[error("{0}")]
    Config(#[from] ConfigFault),
    #[error("{0}")]
    Store(#[from] StoreFault),
    #[error("{0}")]
    Seat(#[from] SeatFault),
    #[error("{0}: raise the limits of open files and processes")]
    Io(#[from] io::Error),
}

/// The options, from which parser and help are made.
#[must_use]
pub fn command() -> clap::Command {
    RESPONDER.command()
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .default_value(DEFAULT_PATH)
                .help("The configuration"),
        )
        .arg(
            Arg::new("check-config")
                .long("check-config")
                .action(ArgAction::SetTrue)
                .help("Print what the configuration means, or everything that is wrong with it, and end"),
        )
        .arg(
            Arg::new("log-format")
                .long("log-format")
                .value_name("FORMAT")
                .value_parser(PossibleValuesParser::new(["text", "json"]))
                .default_value("text")
                .help("How the log on standard error is written"),
        )
}

/// Runs the responder with the arguments after the word. Exit 0 after a signal that asked for it,
/// 1 otherwise.
#[must_use]
pub fn main(arguments: &[OsString]) -> ExitCode {
    let matches = match crate::usage::matches(command(), arguments) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    let path = matches
        .get_one::<PathBuf>("config")
        .cloned()
        .unwrap_or_default();
    let path = std::path::absolute(&path).unwrap_or(path);
    let result = if matches.get_flag("check-config") {
        check(&path)
    } else {
        serve(path, &matches)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) if is_json(&matches) && !matches.get_flag("check-config") => {
            // who reads the log as JSON reads this line too
            tracing::error!("{fault}");
            ExitCode::FAILURE
        }
        Err(fault) => {
            let _ = writeln!(io::stderr(), "fence_recorder: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn check(path: &Path) -> Result<(), Fault> {
    let config = Config::load(path)?;
    write!(io::stdout(), "{config}")?;
    Ok(())
}

fn is_json(matches: &ArgMatches) -> bool {
    matches.get_one::<String>("log-format").map(String::as_str) == Some("json")
}

fn serve(path: PathBuf, matches: &ArgMatches) -> Result<(), Fault> {
    // before any thread, so that all of them have the signals blocked
    let interrupt = Interrupt::new().map_err(io::Error::from)?;
    log::start(is_json(matches));
    end_at_a_panic();
    let config = Config::load(&path)?;
    let seat = Seat::take_patiently(&config, || true)?;
    let store = own_patiently(&config.state_dir)?;
    let (sender, reports) = mpsc::channel();
    let (desk, heard) = Desk::new(store, Audit::new(config.log_dir.clone()), sender)?;
    let service = Service::new(path, config, Arc::new(desk), (reports, heard), interrupt);
    service.run(seat);
    Ok(())
}

/// Who has just let go of the spool lets go of its records next.
fn own_patiently(state_dir: &Path) -> Result<Store, StoreFault> {
    let end = Instant::now() + LOCK_TIME;
    loop {
        match Store::own(state_dir) {
            Err(StoreFault::Locked(_)) if Instant::now() < end => std::thread::sleep(LOCK_PAUSE),
            result => return result,
        }
    }
}

/// A thread that panics would leave its job to nobody: the next responder resumes it instead.
fn end_at_a_panic() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        std::process::abort();
    }));
}
