//! The responder's configuration, `responder.toml`: read, checked, and told back.

pub mod bmc;
mod describe;
pub mod job_file;
pub mod nodes;
pub mod reader;
mod rule;
pub mod task;
pub mod template;
pub mod trusted;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::jobs::store::STATE_DIR;
use crate::spool::place::{LOG_DIR, REQUEST_DIR, RESPONSE_DIR};
use crate::spool::request::Action;
use reader::{Fault, Faults, Table, parse};
use trusted::{Secrecy, TrustFault, read_trusted};

use bmc::Bmc;
pub use rule::{Approval, Rule};
pub use task::{Kind, Parameter, Task};

/// Where the configuration is, if nothing else is said.
pub const DEFAULT_PATH: &str = "/etc/fence_recorder/responder.toml";

const MAX_JOBS: usize = 64;
const DAY: Duration = Duration::from_hours(24);
const KEEP_JOBS: Duration = Duration::from_hours(30 * 24);
const STOP_GRACE: Duration = Duration::from_secs(30);

/// All that the file says.
#[derive(Debug)]
pub struct Config {
    /// Where requests come from.
    pub request_dir: PathBuf,
    /// Where answers go.
    pub response_dir: PathBuf,
    /// Where the records of jobs are kept.
    pub state_dir: PathBuf,
    /// Where the audit log is.
    pub log_dir: PathBuf,
    /// The most jobs whose tasks run at once.
    pub max_jobs: usize,
    /// What becomes of a request that no rule serves.
    pub unmatched: Unmatched,
    /// How long the records of ended jobs are kept.
    pub keep_jobs: Duration,
    /// How long running tasks may go on after SIGTERM.
    pub stop_grace: Duration,
    /// Where figures for node_exporter's textfile collector are written.
    pub metrics_file: Option<PathBuf>,
    /// The BMCs, in order.
    pub bmcs: Arc<[Bmc]>,
    /// The rules, in order.
    pub rules: Vec<Arc<Rule>>,
}

/// What becomes of a request that no rule serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmatched {
    /// It is answered with a failure.
    Refuse,
    /// It is left to another responder.
    Ignore,
}

/// Why there is no configuration.
#[derive(Debug, Error)]
pub enum ConfigFault {
    /// The file isn't taken.
    #[error("the configuration {0}")]
    File(#[from] TrustFault),
    /// What is in it isn't: every fault, with line and column.
    #[error("{}", listed(path, faults))]
    Content {
        /// Which file.
        path: PathBuf,
        /// All of them.
        faults: Vec<Fault>,
    },
}

fn listed(path: &Path, faults: &[Fault]) -> String {
    let lines: Vec<_> = faults
        .iter()
        .map(|fault| format!("{}:{fault}", path.display()))
        .collect();
    lines.join("\n")
}

/// Reads the file at `path` with `read`.
fn load<T>(path: &Path, read: impl FnOnce(Table<'_>) -> T) -> Result<T, ConfigFault> {
    let text = read_trusted(path, Secrecy::Open)?;
    read_text(&text, read).map_err(|faults| ConfigFault::Content {
        path: path.to_owned(),
        faults,
    })
}

/// Reads such a file's text with `read`; every fault, in the order of the text.
fn read_text<T>(text: &str, read: impl FnOnce(Table<'_>) -> T) -> Result<T, Vec<Fault>> {
    let faults = Faults::in_text(text);
    let document = parse(text, &faults);
    let config = read(Table::new(document.get_ref(), 0..0, &faults));
    let found = faults.into_sorted();
    if found.is_empty() {
        Ok(config)
    } else {
        Err(found)
    }
}

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// When others could have written it, or anything in it is wrong.
    pub fn load(path: &Path) -> Result<Self, ConfigFault> {
        load(path, Self::read)
    }

    /// Takes the text of such a file.
    ///
    /// # Errors
    /// Every fault, in the order of the text.
    pub fn parse(text: &str) -> Result<Self, Vec<Fault>> {
        read_text(text, Self::read)
    }

    fn read(table: Table<'_>) -> Self {
        let directory = |key, default: &str| {
            absolute_path(&table, key).unwrap_or_else(|| PathBuf::from(default))
        };
        let bmcs: Arc<[Bmc]> = bmc::read_all(&table).into();
        let unmatched = [("refuse", Unmatched::Refuse), ("ignore", Unmatched::Ignore)];
        let config = Self {
            request_dir: directory("request_dir", REQUEST_DIR.default),
            response_dir: directory("response_dir", RESPONSE_DIR.default),
            state_dir: directory("state_dir", STATE_DIR),
            log_dir: directory("log_dir", LOG_DIR.default),
            max_jobs: table.number("max_jobs", 1..=1024).unwrap_or(MAX_JOBS),
            unmatched: table
                .choice("unmatched", &unmatched)
                .unwrap_or(Unmatched::Refuse),
            keep_jobs: table
                .duration("keep_jobs", Duration::ZERO..=DAY * 3660)
                .unwrap_or(KEEP_JOBS),
            stop_grace: table
                .duration("stop_grace", Duration::ZERO..=Duration::from_hours(1))
                .unwrap_or(STOP_GRACE),
            metrics_file: absolute_path(&table, "metrics_file"),
            rules: (rule::read_all(&table, &bmcs).into_iter())
                .map(Arc::new)
                .collect(),
            bmcs,
        };
        if config.request_dir == config.response_dir {
            table.faults.add(
                &table.span,
                "request_dir and response_dir are one directory: name two",
            );
        }
        if config.rules.is_empty() {
            let message = "there is no [[rule]]: nothing would be answered";
            table.faults.add(&table.span, message);
        }
        table.finish();
        config
    }

    /// The first rule that serves `action` of `node`.
    #[must_use]
    pub fn rule_for(&self, node: &str, action: Action) -> Option<&Arc<Rule>> {
        self.rules.iter().find(|rule| rule.serves(node, action))
    }

    /// The nodes and patterns of all rules, each once.
    #[must_use]
    pub fn nodes(&self) -> Vec<String> {
        let mut nodes: Vec<String> = Vec::new();
        for node in self.rules.iter().flat_map(|rule| &rule.nodes.patterns) {
            if !nodes.contains(node) {
                nodes.push(node.clone());
            }
        }
        nodes
    }
}

fn absolute_path(table: &Table<'_>, key: &'static str) -> Option<PathBuf> {
    let text = table.text(key)?;
    let path = PathBuf::from(text.value);
    if !path.is_absolute() {
        let message = format!("{key} must be an absolute path");
        table.faults.add(&text.span, message);
    }
    Some(path)
}
