//! The parameter table: argv, stdin, metadata, help and manual are all made from it (design 4.1).

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::action::Action;
use crate::spool::place::{LOG_DIR, REQUEST_DIR, RESPONSE_DIR};
use crate::text::one_line;

/// One parameter of the agent.
#[derive(Debug)]
pub struct Parameter {
    /// On stdin and in the metadata.
    pub name: &'static str,
    /// As an option of one letter.
    pub short: Option<char>,
    /// Another name that older configurations use; taken where the name itself isn't given.
    pub alias: Option<&'static str>,
    /// The environment variable that counts where nothing is given.
    pub environment: Option<&'static str>,
    /// What the value is called in help and metadata.
    pub value_name: &'static str,
    /// The type, and the setting it ends up in.
    pub field: Field,
    /// The value where nothing else is said, as it would be written.
    pub default: Option<&'static str>,
    /// Whether the metadata says that it is required.
    pub required: bool,
    /// The deprecated parameter in the metadata that this one stands in for.
    pub obsoletes: Option<&'static str>,
    /// Whether the metadata says that it is deprecated.
    pub deprecated: bool,
    /// One line for help and metadata.
    pub summary: &'static str,
    /// More for the manual; may be empty.
    pub manual: &'static str,
}

/// A parameter's type, and where its value goes.
#[derive(Debug, Clone)]
pub enum Field {
    /// Any text.
    Text(fn(&mut Settings) -> &mut Option<String>),
    /// A text that is never missing.
    Word(fn(&mut Settings) -> &mut String),
    /// The action.
    Action(fn(&mut Settings) -> &mut Action),
    /// An absolute path: the working directory is Pacemaker's.
    Path(fn(&mut Settings) -> &mut PathBuf),
    /// An absolute path that may be missing.
    OptionalPath(fn(&mut Settings) -> &mut Option<PathBuf>),
    /// Whole seconds.
    Seconds(RangeInclusive<u64>, fn(&mut Settings) -> &mut Duration),
    /// Seconds that may have a fraction.
    Fraction(RangeInclusive<f64>, fn(&mut Settings) -> &mut Duration),
    /// A whole number.
    Integer(RangeInclusive<u64>, fn(&mut Settings) -> &mut u64),
    /// Yes or no.
    Boolean(fn(&mut Settings) -> &mut bool),
}

/// The values of all parameters.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, clippy::struct_excessive_bools)] // each field is described in PARAMETERS below
pub struct Settings {
    pub action: Action,
    pub plug: Option<String>,
    pub port: Option<String>,
    pub nodename: Option<String>,
    pub plug_separator: String,
    pub request_dir: PathBuf,
    pub response_dir: PathBuf,
    pub log_dir: PathBuf,
    pub response_timeout: Duration,
    pub poll_interval: Duration,
    pub cleanup_max_age: Duration,
    pub request_on: bool,
    pub responder_check: bool,
    pub allow_insecure_dirs: bool,
    pub delay: Duration,
    pub separator: String,
    pub quiet: bool,
    pub verbose: bool,
    pub verbose_level: u64,
    pub debug_file: Option<PathBuf>,
    pub version: bool,
    pub help: bool,
}

/// A value that can't be taken: which parameter, what is wrong, what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name}: {reason}")]
pub struct ValueFault {
    /// As it was given: stdin's name, the option's, or the environment's.
    pub name: String,
    /// What is wrong with the value, and what would be right.
    pub reason: String,
}

const DAY: u64 = 86_400;

/// What all parameters have in common, so that the table shows where they differ.
const PLAIN: Parameter = Parameter {
    name: "",
    short: None,
    alias: None,
    environment: None,
    value_name: "",
    field: Field::Text(|settings| &mut settings.plug),
    default: None,
    required: false,
    obsoletes: None,
    deprecated: false,
    summary: "",
    manual: "",
};

/// The table, in the order of help, metadata and manual.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "action",
        short: Some('o'),
        alias: Some("option"),
        value_name: "action",
        field: Field::Action(|settings| &mut settings.action),
        default: Some("reboot"),
        required: true,
        summary: "Fencing action",
        manual: "In any case; the request has it in lower case. See ACTIONS.",
        ..PLAIN
    },
    Parameter {
        name: "plug",
        short: Some('n'),
        value_name: "id",
        field: Field::Text(|settings| &mut settings.plug),
        obsoletes: Some("port"),
        summary: "Node to fence, or several, as the responder knows them",
        manual: "Pacemaker fills it in with the node's name, or with what pcmk_host_map makes of it. The value becomes \
                 target_node of the request and part of its file name: it may hold anything but '/' and control \
                 characters, does not start with '.' or '-', and has at most 208 bytes. Several are divided by \
                 plug_separator; each gets a request of its own, all are written before the first is waited for, and \
                 only the success of all is success. The first that fails withdraws the others. Where plug and port \
                 are both given and differ, and exactly one of them is nodename, Pacemaker put that one there and the \
                 other, the administrator's, is taken; else the agent refuses.",
        ..PLAIN
    },
    Parameter {
        name: "port",
        value_name: "id",
        field: Field::Text(|settings| &mut settings.port),
        deprecated: true,
        summary: "Older name of plug, which Pacemaker before 3.0.1 fills in",
        ..PLAIN
    },
    Parameter {
        name: "nodename",
        value_name: "name",
        field: Field::Text(|settings| &mut settings.nodename),
        summary: "Pacemaker's name of the node to fence",
        manual: "Pacemaker fills it in. It is the target where neither plug nor port is given, and it stands in the \
                 request where it differs from the target.",
        ..PLAIN
    },
    Parameter {
        name: "plug_separator",
        value_name: "text",
        field: Field::Word(|settings| &mut settings.plug_separator),
        default: Some(","),
        summary: "What divides several plugs",
        ..PLAIN
    },
    Parameter {
        name: "request_dir",
        alias: Some("request_path"),
        environment: Some(REQUEST_DIR.environment),
        value_name: "directory",
        field: Field::Path(|settings| &mut settings.request_dir),
        default: Some(REQUEST_DIR.default),
        summary: "Directory that requests are written to",
        manual: "The agent never creates it. It belongs to root (or the agent's user), and neither it nor a directory \
                 above it is writable by others (above it: unless sticky).",
        ..PLAIN
    },
    Parameter {
        name: "response_dir",
        alias: Some("response_path"),
        environment: Some(RESPONSE_DIR.environment),
        value_name: "directory",
        field: Field::Path(|settings| &mut settings.response_dir),
        default: Some(RESPONSE_DIR.default),
        summary: "Directory that responses are read from",
        manual: "The agent never creates it. It may belong to anybody, whose responses then count; neither it nor a \
                 directory above it is writable by others (above it: unless sticky).",
        ..PLAIN
    },
    Parameter {
        name: "log_dir",
        alias: Some("log_path"),
        environment: Some(LOG_DIR.environment),
        value_name: "directory",
        field: Field::Path(|settings| &mut settings.log_dir),
        default: Some(LOG_DIR.default),
        summary: "Directory of the fence event logs",
        manual: "Created where it is missing. A fault of logging is a warning and never stops a fence.",
        ..PLAIN
    },
    Parameter {
        name: "response_timeout",
        alias: Some("recorder_timeout"),
        environment: Some("FENCE_TIMEOUT"),
        value_name: "seconds",
        field: Field::Seconds(1..=DAY, |settings| &mut settings.response_timeout),
        default: Some("55"),
        summary: "How long to wait for the response",
        manual: "1 to 86400. Keep it, plus delay, a few seconds below Pacemaker's own timeout: see TIMEOUTS.",
        ..PLAIN
    },
    Parameter {
        name: "poll_interval",
        alias: Some("recorder_poll_interval"),
        environment: Some("POLL_INTERVAL"),
        value_name: "seconds",
        field: Field::Fraction(0.01..=60.0, |settings| &mut settings.poll_interval),
        default: Some("0.5"),
        summary: "How often to look for the response beside being told of it; may have a fraction",
        manual: "0.01 to 60. On a local file system the agent is told at once; writes by other hosts on NFS or GFS2, \
                 and hosts that have run out of inotify instances, need this look.",
        ..PLAIN
    },
    Parameter {
        name: "cleanup_max_age",
        environment: Some("CLEANUP_MAX_AGE"),
        value_name: "seconds",
        field: Field::Seconds(0..=DAY, |settings| &mut settings.cleanup_max_age),
        default: Some("300"),
        summary: "How long past its deadline another host's request, or a claimed one, is left alone",
        manual: "0 to 86400. This host's own requests are removed 10 seconds past their deadline. See THE PROTOCOL.",
        ..PLAIN
    },
    Parameter {
        name: "request_on",
        field: Field::Boolean(|settings| &mut settings.request_on),
        default: Some("0"),
        summary: "Whether on is requested too, instead of succeeding at once",
        manual: "Not with responders that take any request for a fence, as nnf-sos does.",
        ..PLAIN
    },
    Parameter {
        name: "responder_check",
        field: Field::Boolean(|settings| &mut settings.responder_check),
        default: Some("0"),
        summary: "Whether to fail at once when nobody watches request_dir",
        manual: "Somebody watches if a process holds the lock on request_dir/.responder.lock or has an inotify watch \
                 on request_dir. A responder that only polls, or one in another PID namespace, can't be seen: leave it \
                 off there.",
        ..PLAIN
    },
    Parameter {
        name: "allow_insecure_dirs",
        field: Field::Boolean(|settings| &mut settings.allow_insecure_dirs),
        default: Some("0"),
        summary: "Whether to use directories that others could change",
        manual: "Then whoever can write there can make a fence succeed that never happened. monitor warns of it.",
        ..PLAIN
    },
    Parameter {
        name: "delay",
        value_name: "seconds",
        field: Field::Seconds(0..=DAY, |settings| &mut settings.delay),
        default: Some("0"),
        summary: "How long to wait before the request",
        manual: "0 to 86400. It comes before response_timeout and counts in Pacemaker's timeout. Prefer \
                 pcmk_delay_base, which Pacemaker adds to its timeout itself.",
        ..PLAIN
    },
    Parameter {
        name: "separator",
        short: Some('C'),
        value_name: "text",
        field: Field::Word(|settings| &mut settings.separator),
        default: Some(","),
        summary: "What divides the columns of list",
        ..PLAIN
    },
    Parameter {
        name: "quiet",
        short: Some('q'),
        field: Field::Boolean(|settings| &mut settings.quiet),
        default: Some("0"),
        summary: "Print neither success nor warnings; a failure, and what was asked for, still is",
        ..PLAIN
    },
    Parameter {
        name: "verbose",
        short: Some('v'),
        field: Field::Boolean(|settings| &mut settings.verbose),
        default: Some("0"),
        summary: "Say on standard error what is being done; -vv says more",
        ..PLAIN
    },
    Parameter {
        name: "verbose_level",
        value_name: "level",
        field: Field::Integer(0..=u64::MAX, |settings| &mut settings.verbose_level),
        default: Some("0"),
        summary: "The same as a number",
        manual: "1: each step. 2: each look at a response that doesn't count yet.",
        ..PLAIN
    },
    Parameter {
        name: "debug_file",
        short: Some('D'),
        alias: Some("debug"),
        value_name: "file",
        field: Field::OptionalPath(|settings| &mut settings.debug_file),
        summary: "File that every step is appended to, whatever verbose says",
        manual: "A regular file or none yet.",
        ..PLAIN
    },
    Parameter {
        name: "version",
        short: Some('V'),
        field: Field::Boolean(|settings| &mut settings.version),
        default: Some("0"),
        summary: "Print the version and exit",
        ..PLAIN
    },
    Parameter {
        name: "help",
        short: Some('h'),
        field: Field::Boolean(|settings| &mut settings.help),
        default: Some("0"),
        summary: "Print help and exit",
        ..PLAIN
    },
];

/// Names that configurations written for `fence_dummy`, and `dlm_controld`, pass: ignored in silence.
pub const IGNORED: &[&str] = &[
    "type",
    "status_file",
    "random_sleep_range",
    "power_timeout",
    "power_wait",
    "shell_timeout",
    "login_timeout",
    "disable_timeout",
    "stonith_status_sleep",
    "retry_on",
    "agent",
    "name",
    "fail_time",
    "node",
    "crm_feature_set",
];

impl Parameter {
    /// The long option, without the dashes before it.
    #[must_use]
    pub fn option(&self) -> String {
        option_of(self.name)
    }

    /// The table's entry for a name on stdin, which may be its alias; `-` and `_` are the same.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        PARAMETERS
            .iter()
            .find(|parameter| parameter.name == name || parameter.alias == Some(name))
    }
}

/// A name as a long option, without the dashes before it.
#[must_use]
pub fn option_of(name: &str) -> String {
    name.replace('_', "-")
}

impl Field {
    /// Takes `text` as the value.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        match self {
            Self::Text(field) => *field(settings) = Some(text.to_owned()),
            Self::Word(field) => text.clone_into(field(settings)),
            Self::Action(field) => *field(settings) = action(text)?,
            Self::Path(field) => *field(settings) = absolute(text)?,
            Self::OptionalPath(field) => *field(settings) = Some(absolute(text)?),
            Self::Seconds(range, field) => {
                *field(settings) = Duration::from_secs(whole(text, range, " of seconds")?);
            }
            Self::Fraction(range, field) => *field(settings) = fraction(text, range)?,
            Self::Integer(range, field) => *field(settings) = whole(text, range, "")?,
            Self::Boolean(field) => *field(settings) = boolean(text)?,
        }
        Ok(())
    }

    /// The type's name in the metadata.
    #[must_use]
    pub fn metadata_type(&self) -> &'static str {
        match self {
            Self::Seconds(..) => "second",
            Self::Integer(..) => "integer",
            Self::Boolean(_) => "boolean",
            _ => "string",
        }
    }

    /// Whether the option needs no value.
    #[must_use]
    pub fn is_boolean(&self) -> bool {
        matches!(self, Self::Boolean(_))
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", one_line(text))
}

fn action(text: &str) -> Result<Action, String> {
    Action::parse(text).ok_or_else(|| {
        let known: Vec<_> = super::action::ACTIONS
            .iter()
            .map(|info| info.names[0])
            .collect();
        format!(
            "{} is no action; these are: {}",
            quoted(text),
            known.join(", ")
        )
    })
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    if Path::new(text).is_absolute() {
        Ok(PathBuf::from(text))
    } else {
        Err(format!(
            "{} is not an absolute path: start it with /",
            quoted(text)
        ))
    }
}

fn whole(text: &str, range: &RangeInclusive<u64>, unit: &str) -> Result<u64, String> {
    // u64's own parser takes a sign
    let number = text
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten();
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            format!(
                "{} is not a whole number{unit} from {} to {}",
                quoted(text),
                range.start(),
                range.end()
            )
        })
}

fn fraction(text: &str, range: &RangeInclusive<f64>) -> Result<Duration, String> {
    // f64's own parser takes signs, exponents, infinity and NaN
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = is_plain.then(|| text.parse().ok()).flatten();
    number
        .filter(|number| range.contains(number))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| {
            format!(
                "{} is not a number of seconds from {} to {}",
                quoted(text),
                range.start(),
                range.end()
            )
        })
}

fn boolean(text: &str) -> Result<bool, String> {
    let is_one_of = |words: [&str; 4]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    if is_one_of(["1", "yes", "on", "true"]) {
        Ok(true)
    } else if is_one_of(["0", "no", "off", "false"]) {
        Ok(false)
    } else {
        Err(format!(
            "{} is neither 1 (yes, on, true) nor 0 (no, off, false)",
            quoted(text)
        ))
    }
}

impl Default for Settings {
    fn default() -> Self {
        let mut settings = Self {
            action: Action::Reboot,
            plug: None,
            port: None,
            nodename: None,
            plug_separator: String::new(),
            request_dir: PathBuf::new(),
            response_dir: PathBuf::new(),
            log_dir: PathBuf::new(),
            response_timeout: Duration::ZERO,
            poll_interval: Duration::ZERO,
            cleanup_max_age: Duration::ZERO,
            request_on: false,
            responder_check: false,
            allow_insecure_dirs: false,
            delay: Duration::ZERO,
            separator: String::new(),
            quiet: false,
            verbose: false,
            verbose_level: 0,
            debug_file: None,
            version: false,
            help: false,
        };
        for parameter in PARAMETERS {
            if let Some(default) = parameter.default {
                let taken = parameter.field.set(&mut settings, default);
                debug_assert!(
                    taken.is_ok(),
                    "the default of {} is no value of it",
                    parameter.name
                );
            }
        }
        settings
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_parameter() {
        for parameter in PARAMETERS {
            if let Some(default) = parameter.default {
                parameter
                    .field
                    .set(&mut Settings::default(), default)
                    .expect(parameter.name);
            }
        }
        assert_eq!(
            Settings::default().response_timeout,
            Duration::from_secs(55)
        );
        assert_eq!(
            Settings::default().poll_interval,
            Duration::from_millis(500)
        );
    }

    #[test]
    fn no_name_means_two_things() {
        let mut seen = HashSet::new();
        let names = PARAMETERS
            .iter()
            .flat_map(|parameter| [Some(parameter.name), parameter.alias])
            .flatten();
        for name in names.chain(IGNORED.iter().copied()) {
            assert!(seen.insert(name), "{name} is there twice");
        }
    }

    #[test]
    fn numbers_are_taken_only_as_they_are_written_in_the_manual() {
        for text in [
            "",
            "+5",
            "-1",
            "0",
            "86401",
            "5s",
            " 5",
            "5.0",
            "1e1",
            "99999999999999999999",
        ] {
            assert!(whole(text, &(1..=86_400), "").is_err(), "{text}");
        }
        for text in [
            "0.001", "61", "inf", "nan", "1e-1", "-1", "+1", ".", "", "0.5s",
        ] {
            assert!(fraction(text, &(0.01..=60.0)).is_err(), "{text}");
        }
        assert_eq!(
            fraction(".25", &(0.01..=60.0)),
            Ok(Duration::from_millis(250))
        );
    }
}
