//! What the agent is given: `key=value` lines on stdin, or argv; and the environment behind both.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};
use thiserror::Error;

use super::parameters::{IGNORED, PARAMETERS, Parameter, Settings, ValueFault, option_of};
use crate::commands;
use crate::text::one_line;

/// The most bytes of stdin (design 4.1).
pub const MAX_STDIN_BYTES: usize = 1024 * 1024;

/// Input that can't even be taken apart.
#[derive(Debug, Error)]
pub enum InputFault {
    /// Longer than any configuration.
    #[error(
        "stdin holds more than {MAX_STDIN_BYTES} bytes: give name=value lines, as Pacemaker does"
    )]
    TooLong,
    /// A NUL byte.
    #[error("stdin holds a NUL byte in line {0}: give name=value lines of text, as Pacemaker does")]
    Nul(usize),
    /// Not text.
    #[error("stdin is not UTF-8 in line {0}: give name=value lines of text, as Pacemaker does")]
    NotUtf8(usize),
    /// argv is wrong.
    #[error("{0}: see fence_recorder --help")]
    Usage(String),
}

/// Names and values as they were given, by the name in the table; nothing is checked yet.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Given {
    values: HashMap<String, String>,
    /// What can be said of the input without being a fault of it.
    pub warnings: Vec<String>,
}

/// The settings that follow from all input, and what is wrong with it.
#[derive(Debug)]
pub struct Resolved {
    /// Every value that could be taken; the default elsewhere.
    pub settings: Settings,
    /// Values that can't be taken.
    pub faults: Vec<ValueFault>,
    /// What is odd, but stops nothing.
    pub warnings: Vec<String>,
}

impl Given {
    /// Takes apart what Pacemaker writes to stdin (design 4.1).
    ///
    /// # Errors
    /// When it isn't text, or is too long.
    pub fn from_stdin(bytes: &[u8]) -> Result<Self, InputFault> {
        if bytes.len() > MAX_STDIN_BYTES {
            return Err(InputFault::TooLong);
        }
        let line_of = |at: usize| bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
            return Err(InputFault::Nul(line_of(at)));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|error| InputFault::NotUtf8(line_of(error.valid_up_to())))?;
        let mut given = Self::default();
        for line in text.lines().map(str::trim) {
            if !line.is_empty() && !line.starts_with('#') {
                let (name, value) = line.split_once('=').unwrap_or((line, ""));
                given.take(&name.replace('-', "_"), unquoted(value));
            }
        }
        Ok(given)
    }

    /// Takes apart the arguments after the program's name.
    ///
    /// # Errors
    /// When an option is unknown, ambiguous or lacks its value, or a word is left over.
    pub fn from_arguments(
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, InputFault> {
        let matches = command()
            .try_get_matches_from(arguments)
            .map_err(|error| InputFault::Usage(usage_fault(&error)))?;
        let mut given = Self::default();
        for name in matches.ids().map(clap::Id::as_str) {
            let values: Vec<&String> = matches.get_many(name).into_iter().flatten().collect();
            let Some(last) = values.last() else { continue };
            given.take(name, last);
            let times = values
                .iter()
                .rev()
                .take_while(|value| value.as_str() == "1");
            if let ("verbose", times @ 2..) = (name, times.count()) {
                given
                    .values
                    .entry("verbose_level".to_owned())
                    .or_insert_with(|| times.to_string());
            }
        }
        Ok(given)
    }

    fn take(&mut self, name: &str, value: &str) {
        if Parameter::find(name).is_some() {
            self.values.insert(name.to_owned(), value.to_owned());
        } else if !IGNORED.contains(&name) {
            let name = one_line(name);
            let warning = format!("the parameter \"{name}\" is unknown and ignored");
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }

    /// The value given for a parameter under its own name, or else under the older one, with the
    /// name it came by. An empty value counts as not given (design 8).
    fn value(&self, parameter: &Parameter) -> Option<(&str, &str)> {
        [Some(parameter.name), parameter.alias]
            .into_iter()
            .flatten()
            .find_map(|name| {
                self.values
                    .get(name)
                    .filter(|value| !value.is_empty())
                    .map(|value| (name, value.as_str()))
            })
    }

    /// Given beats environment beats default (design 4.1).
    #[must_use]
    pub fn resolve(mut self, environment: impl Fn(&str) -> Option<OsString>) -> Resolved {
        let mut settings = Settings::default();
        let mut faults = Vec::new();
        for parameter in PARAMETERS {
            if let Some((name, value)) = self.value(parameter) {
                if let Err(reason) = parameter.field.set(&mut settings, value) {
                    faults.push(ValueFault {
                        name: name.to_owned(),
                        reason,
                    });
                }
            } else if let Some(name) = parameter.environment
                && let Some(value) = environment(name).filter(|value| !value.is_empty())
                && let Err(reason) = value
                    .to_str()
                    .ok_or_else(|| "is not UTF-8".to_owned())
                    .and_then(|value| parameter.field.set(&mut settings, value))
            {
                // its names are common ones: somebody else's variable must not stop a fence
                let default = parameter.default.unwrap_or("none");
                self.warnings.push(format!(
                    "environment variable {name}: {reason}; {parameter} stays {default}"
                ));
            }
        }
        if settings.request_dir == settings.response_dir {
            let reason = "is response_dir too: name two directories".to_owned();
            faults.push(ValueFault {
                name: "request_dir".to_owned(),
                reason,
            });
        }
        Resolved {
            settings,
            faults,
            warnings: self.warnings,
        }
    }
}

fn unquoted(value: &str) -> &str {
    value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(value)
}

/// The agent's command line: the table, older names and those that are ignored.
fn command() -> Command {
    let aliases = PARAMETERS.iter().filter_map(|parameter| {
        Some(option(parameter.alias?, parameter.field.is_boolean()).hide(true))
    });
    let ignored = IGNORED.iter().map(|name| option(name, false).hide(true));
    table().no_binary_name(true).args(aliases.chain(ignored))
}

/// The command line as help and completions show it, made from the table.
#[must_use]
pub fn table() -> Command {
    let table = PARAMETERS.iter().map(|parameter| {
        let arg = option(parameter.name, parameter.field.is_boolean()).help(help_of(parameter));
        let arg = if parameter.value_name.is_empty() {
            arg
        } else {
            arg.value_name(parameter.value_name)
        };
        match parameter.short {
            Some(short) => arg.short(short),
            None => arg,
        }
    });
    Command::new("fence_recorder")
        .about(super::metadata::SUMMARY)
        .override_usage(
            "fence_recorder [OPTIONS]\n       fence_recorder < name=value lines\n       fence_recorder COMMAND [ARGUMENTS]",
        )
        .after_help(after_help())
        .disable_help_flag(true)
        .disable_version_flag(true)
        .infer_long_args(true)
        .args(table)
}

fn after_help() -> String {
    let mut help = String::from(
        "Without options the parameters are read from standard input, as Pacemaker writes them.\n\nCommands:\n",
    );
    for word in commands::ALL {
        let _ = writeln!(help, "  {:<11}  {}", word.name, word.summary);
    }
    help + "\nThe manual is fence_recorder(8); each command has --help."
}

fn option(name: &'static str, is_boolean: bool) -> Arg {
    let arg = Arg::new(name)
        .long(option_of(name))
        .action(ArgAction::Append)
        .allow_hyphen_values(!is_boolean);
    if is_boolean {
        arg.num_args(0..=1)
            .require_equals(true)
            .default_missing_value("1")
            .hide_default_value(true)
            .value_name("0|1")
    } else {
        arg.num_args(1)
    }
}

fn help_of(parameter: &Parameter) -> String {
    match parameter.default {
        Some(default) if !parameter.field.is_boolean() => {
            format!("{} [{default}]", parameter.summary)
        }
        _ => parameter.summary.to_owned(),
    }
}

/// clap's report has several lines; the first says what is wrong.
fn usage_fault(error: &clap::Error) -> String {
    let report = error.to_string();
    let first = report.lines().next().unwrap_or_default();
    one_line(first.strip_prefix("error: ").unwrap_or(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdin(text: &str) -> Settings {
        let resolved = Given::from_stdin(text.as_bytes())
            .unwrap()
            .resolve(|_| None);
        assert_eq!(
            (resolved.faults, resolved.warnings),
            (vec![], vec![]),
            "{text}"
        );
        resolved.settings
    }

    fn arguments(words: &[&str]) -> Result<Settings, String> {
        let given = Given::from_arguments(words.iter().map(OsString::from))
            .map_err(|error| error.to_string())?;
        let resolved = given.resolve(|_| None);
        match resolved.faults.first() {
            Some(fault) => Err(fault.to_string()),
            None => Ok(resolved.settings),
        }
    }

    #[test]
    fn lines_are_read_as_the_design_says() {
        let settings = stdin(
            "\n# a comment\r\n  plug=n1 \r\nresponse-timeout=9\ndelay=1\ndelay=2\nquiet=YES\nport=\nnodename=\"a \"b\"\"\n",
        );
        assert_eq!(settings.plug.as_deref(), Some("n1"));
        assert_eq!(settings.port, None);
        assert_eq!(settings.nodename.as_deref(), Some("a \"b\""));
        assert_eq!(settings.response_timeout.as_secs(), 9);
        assert_eq!(settings.delay.as_secs(), 2);
        assert!(settings.quiet);
    }

    #[test]
    fn the_name_beats_its_alias_in_any_order() {
        for text in [
            "request_path=/old\nrequest_dir=/new",
            "request_dir=/new\nrequest_path=/old",
        ] {
            assert_eq!(stdin(text).request_dir.to_str(), Some("/new"));
        }
        assert_eq!(
            stdin("option=off").action,
            super::super::action::Action::Off
        );
    }

    #[test]
    fn options_are_read_as_getopt_reads_them() {
        let settings = arguments(&[
            "-o",
            "OFF",
            "--plu=n1",
            "--response-t",
            "7",
            "-vv",
            "-q",
            "--type",
            "recorder",
        ]);
        assert!(
            settings.is_err(),
            "--plu is short for plug and plug-separator"
        );
        let settings = arguments(&[
            "-o",
            "OFF",
            "--plug=n1",
            "--response-t",
            "7",
            "-vv",
            "-q",
            "--type",
            "recorder",
        ])
        .unwrap();
        assert_eq!(settings.response_timeout.as_secs(), 7);
        assert_eq!(
            (settings.verbose, settings.verbose_level, settings.quiet),
            (true, 2, true)
        );
        assert!(!arguments(&["--request-on=0"]).unwrap().request_on);
        assert!(arguments(&["--request-on"]).unwrap().request_on);
        let off = arguments(&["-v", "-v", "--verbose=0", "--verbose=0"]).unwrap();
        assert_eq!((off.verbose, off.verbose_level), (false, 0));
    }

    #[test]
    fn a_wrong_argument_is_named() {
        for (words, named) in [
            (&["--bogus"][..], "--bogus"),
            (&["off"], "'off'"),
            (&["--plug"], "--plug"),
            (&["--request-on=maybe"], "request_on"),
            (&["--delay", "-5"], "\"-5\""),
        ] {
            let fault = arguments(words).unwrap_err();
            assert!(fault.contains(named) && !fault.contains('\n'), "{fault}");
        }
    }

    #[test]
    fn stdin_that_is_no_text_is_refused() {
        assert!(matches!(
            Given::from_stdin(b"a=1\nplug=\0"),
            Err(InputFault::Nul(2))
        ));
        assert!(matches!(
            Given::from_stdin(b"plug=\xff"),
            Err(InputFault::NotUtf8(1))
        ));
        assert!(matches!(
            Given::from_stdin(&vec![b'#'; MAX_STDIN_BYTES + 1]),
            Err(InputFault::TooLong)
        ));
    }

    #[test]
    fn the_environment_stands_behind_what_is_given() {
        let environment = |name: &str| (name == "FENCE_TIMEOUT").then(|| OsString::from("33"));
        let given = |text: &str| Given::from_stdin(text.as_bytes()).unwrap();
        assert_eq!(
            given("")
                .resolve(environment)
                .settings
                .response_timeout
                .as_secs(),
            33
        );
        assert_eq!(
            given("recorder_timeout=7")
                .resolve(environment)
                .settings
                .response_timeout
                .as_secs(),
            7
        );
        let odd = given("").resolve(|name| (name == "LOG_DIR").then(|| OsString::from("logs")));
        assert_eq!(odd.settings.log_dir.to_str(), Some("/var/log/cluster"));
        assert!(
            odd.faults.is_empty() && odd.warnings[0].contains("LOG_DIR"),
            "{odd:?}"
        );
    }
}
