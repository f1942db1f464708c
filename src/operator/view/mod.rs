//! Shows what a command has found: as tables for people, as JSON for programs, once or again and
//! again.

pub mod table;
pub mod terminal;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgMatches};
use serde_json::Value;

use super::options::flag;
use crate::interrupt::Interrupt;
use crate::spool::json::pretty;
use terminal::Style;

/// The pause between two looks, where `--watch` names none.
const PAUSE: &str = "2";

/// What was found.
#[derive(Debug)]
pub struct View {
    /// For programs.
    pub json: Value,
    /// For people: whole lines.
    pub text: String,
}

/// The option for programs.
#[must_use]
pub fn json_option() -> Arg {
    flag("json", "Print JSON")
}

/// The option that looks again and again.
#[must_use]
pub fn watch_option() -> Arg {
    Arg::new("watch")
        .long("watch")
        .value_name("SECONDS")
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value(PAUSE)
        .value_parser(clap::value_parser!(u64).range(1..=3600))
        .conflicts_with("json")
        .help("Look again every 2 (or so many) seconds, on a terminal, until Ctrl-C")
}

/// Shows what `look` finds, as the options of this module say. Exit 0, or 1 where it finds nothing
/// out.
#[must_use]
pub fn show<E: std::fmt::Display>(
    matches: &ArgMatches,
    mut look: impl FnMut(&Style) -> Result<View, E>,
) -> ExitCode {
    let style = Style::of_stdout();
    let watched = matches.try_get_one::<u64>("watch").ok().flatten().copied();
    let result = match watched {
        Some(_) if style.size.is_none() => Err("--watch needs a terminal".to_owned()),
        Some(seconds) => watch(seconds, &mut look),
        None => look(&style)
            .map_err(|fault| fault.to_string())
            .and_then(|view| print(&view, matches.get_flag("json"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => failed(&fault),
    }
}

/// Says on standard error why a command fails.
#[must_use]
pub fn failed(fault: &impl std::fmt::Display) -> ExitCode {
    let _ = writeln!(io::stderr(), "fence_recorder: {fault}");
    ExitCode::FAILURE
}

/// Prints it.
///
/// # Errors
/// When it can't be printed, unless the reader has seen enough.
pub fn print(view: &View, as_json: bool) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let written = if as_json {
        out.write_all(&pretty(&view.json))
    } else {
        out.write_all(view.text.as_bytes())
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("the output can't be written: {error}"))
        }
        _ => Ok(()),
    }
}

fn watch<E: std::fmt::Display>(
    seconds: u64,
    look: &mut impl FnMut(&Style) -> Result<View, E>,
) -> Result<(), String> {
    let interrupt = Interrupt::new().map_err(|error| error.to_string())?;
    loop {
        // the window may have another size now
        let style = Style::of_stdout();
        let text = look(&style).map_or_else(|fault| format!("{fault}\n"), |view| view.text);
        let mut out = io::stdout().lock();
        let drawn = out.write_all(screen(&text, style.size.map(|size| size.rows)).as_bytes());
        drawn
            .and_then(|()| out.flush())
            .map_err(|error| format!("the output can't be written: {error}"))?;
        if interrupt.sleep(Duration::from_secs(seconds)).is_err() {
            return Ok(());
        }
    }
}

/// `text` from the top of the screen, over what was there, without a flicker; as many lines as fit.
fn screen(text: &str, rows: Option<usize>) -> String {
    let mut screen = String::from("\x1b[H");
    let rows = rows.unwrap_or(usize::MAX).saturating_sub(1);
    for line in text.lines().take(rows) {
        let _ = write!(screen, "{line}\x1b[K\r\n");
    }
    screen.push_str("\x1b[J");
    screen
}
