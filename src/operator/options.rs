//! The options that commands for people share.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

use crate::spool::place::{LOG_DIR, Place, REQUEST_DIR, RESPONSE_DIR};

/// An option without a value.
#[must_use]
pub fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

/// An option with a value, which is none unless given.
#[must_use]
pub fn value(name: &'static str, value_name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value_name).help(help)
}

/// A word that isn't an option.
#[must_use]
pub fn word(name: &'static str, value_name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).value_name(value_name).help(help)
}

/// The text of an option or word that was given.
#[must_use]
pub fn text_of<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str)
}

/// The option that names the directory of requests.
#[must_use]
pub fn request_dir() -> Arg {
    request_dir_for("The directory of requests")
}

/// The same, where it has another use.
#[must_use]
pub fn request_dir_for(help: &'static str) -> Arg {
    directory("request-dir", help, REQUEST_DIR)
}

/// The directory of requests that is meant.
#[must_use]
pub fn request_dir_of(matches: &ArgMatches) -> PathBuf {
    directory_of(matches, "request-dir", REQUEST_DIR)
}

/// The option that names the directory of responses.
#[must_use]
pub fn response_dir() -> Arg {
    directory("response-dir", "The directory of responses", RESPONSE_DIR)
}

/// The directory of responses that is meant.
#[must_use]
pub fn response_dir_of(matches: &ArgMatches) -> PathBuf {
    directory_of(matches, "response-dir", RESPONSE_DIR)
}

/// The option that names the directory of the audit.
#[must_use]
pub fn log_dir() -> Arg {
    directory("log-dir", "The directory of the fence event logs", LOG_DIR)
}

/// The directory of the audit that is meant.
#[must_use]
pub fn log_dir_of(matches: &ArgMatches) -> PathBuf {
    directory_of(matches, "log-dir", LOG_DIR)
}

/// An option that names a directory which every face can be told of.
fn directory(name: &'static str, help: &'static str, place: Place) -> Arg {
    value(name, "DIRECTORY", "")
        // the agent takes this name, too
        .alias(name.replace("-dir", "-path"))
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
