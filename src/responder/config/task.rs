//! The tasks of the configuration: what each runs, and how often.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::{AccessFlags, access};

use super::bmc::{Bmc, BmcStep, effect, misfit, read_step, takes_action};
use super::nodes::Nodes;
use super::reader::{At, Table};
use super::template::Template;
use super::trusted::check_program;
use crate::spool::request::Action;

/// Where fence agents are installed, as Pacemaker has it.
const AGENTS: &str = "/usr/sbin";

/// The one agent that can't do the fencing.
const THIS_AGENT: &str = "fence_recorder";

const RETRY_COUNT: usize = 5;
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_hours(24);
const SHORTEST: Duration = Duration::from_millis(1);

/// What a task can be: the key that says so.
const KINDS: [&str; 5] = ["agent", "exec", "power", "boot_device", "virtual_media"];

/// One step of a rule.
#[derive(Debug)]
pub struct Task {
    /// For people; each task of a rule has its own.
    pub name: String,
    /// What is run.
    pub kind: Kind,
    /// How often at most, from 1.
    pub retry_count: usize,
    /// The pause between the end of one attempt and the start of the next.
    pub retry_interval: Duration,
    /// The most time for one attempt.
    pub timeout: Duration,
}

/// What a task runs.
#[derive(Debug)]
pub enum Kind {
    /// A fence agent, as Pacemaker runs it.
    Agent {
        /// Its file.
        program: PathBuf,
        /// What it is told to do, if not what was asked for.
        action: Option<String>,
        /// What else it is told, by name.
        parameters: BTreeMap<String, Parameter>,
    },
    /// A command and its arguments, without a shell.
    Exec(Vec<Template>),
    /// A step at the node's BMC, which is the first of `bmcs` that has the node.
    Bmc {
        /// What is done.
        step: BmcStep,
        /// All that the configuration knows.
        bmcs: Arc<[Bmc]>,
    },
}

/// Where the value of an agent's parameter comes from.
#[derive(Debug)]
pub enum Parameter {
    /// The same for all nodes, but for templates.
    Shared(Template),
    /// One for each node.
    PerNode(BTreeMap<String, Template>),
    /// The content of this file.
    SecretFile(Template),
}

impl Parameter {
    fn takes_action(&self) -> bool {
        match self {
            Self::Shared(value) | Self::SecretFile(value) => value.takes_action(),
            Self::PerNode(values) => values.values().any(Template::takes_action),
        }
    }
}

/// What tasks have unless they say otherwise.
#[derive(Debug, Clone, Copy)]
struct Defaults {
    retry_count: usize,
    retry_interval: Duration,
    timeout: Duration,
}

/// Reads tasks, with what they have from the rest of the configuration.
#[derive(Debug)]
pub(super) struct Reader {
    defaults: Defaults,
    bmcs: Arc<[Bmc]>,
}

impl Reader {
    /// Reads `[defaults]`.
    pub(super) fn new(table: &Table<'_>, bmcs: &Arc<[Bmc]>) -> Self {
        let built_in = Defaults {
            retry_count: RETRY_COUNT,
            retry_interval: RETRY_INTERVAL,
            timeout: TIMEOUT,
        };
        let defaults = table.table("defaults").map_or(built_in, |table| {
            let defaults = read_defaults(&table, built_in);
            table.finish();
            defaults
        });
        let bmcs = Arc::clone(bmcs);
        Self { defaults, bmcs }
    }

    /// Reads the tasks of `whole`, which is what it is for people.
    pub(super) fn tasks(&self, tables: Vec<Table<'_>>, whole: &str) -> Vec<Arc<Task>> {
        let mut tasks: Vec<Arc<Task>> = Vec::new();
        for (number, table) in tables.into_iter().enumerate() {
            let (span, faults) = (table.span.clone(), table.faults);
            let Some(task) = self.task(table, number + 1) else {
                continue;
            };
            if tasks.iter().any(|other| other.name == task.name) {
                let message = format!("a task of {whole} is named \"{}\" already", task.name);
                faults.add(&span, message);
            }
            tasks.push(Arc::new(task));
        }
        tasks
    }

    fn task(&self, table: Table<'_>, number: usize) -> Option<Task> {
        let own = read_defaults(&table, self.defaults);
        let name = table
            .text("name")
            .map_or_else(|| format!("task {number}"), |name| name.value.to_owned());
        let kinds: Vec<_> = KINDS.into_iter().filter(|kind| table.has(kind)).collect();
        let kind = match kinds.as_slice() {
            ["agent"] => read_agent(&table),
            ["exec"] => read_command(&table, "exec").map(Kind::Exec),
            [kind] => read_step(&table, kind).map(|step| Kind::Bmc {
                step,
                bmcs: Arc::clone(&self.bmcs),
            }),
            _ => {
                let message = format!("a task has one of {}", KINDS.join(", "));
                table.faults.add(&table.span, message);
                // one fault is enough
                return None;
            }
        };
        table.finish();
        Some(Task {
            name,
            kind: kind?,
            retry_count: own.retry_count,
            retry_interval: own.retry_interval,
            timeout: own.timeout,
        })
    }
}

fn read_defaults(table: &Table<'_>, outer: Defaults) -> Defaults {
    Defaults {
        retry_count: table
            .number("retry_count", 1..=100)
            .unwrap_or(outer.retry_count),
        retry_interval: table
            .duration("retry_interval", Duration::ZERO..=LONGEST)
            .unwrap_or(outer.retry_interval),
        timeout: table
            .duration("timeout", SHORTEST..=LONGEST)
            .unwrap_or(outer.timeout),
    }
}

impl Task {
    /// What it does to a node's power when `asked` was asked for, as far as that is known.
    pub(super) fn effect(&self, asked: Action) -> Option<Action> {
        match &self.kind {
            Kind::Exec(_) => None,
            Kind::Bmc { step, .. } => effect(step),
            Kind::Agent { action: None, .. } => Some(asked),
            Kind::Agent {
                action: Some(action),
                ..
            } => match action.as_str() {
                "off" => Some(Action::Off),
                "on" => Some(Action::On),
                "reboot" => Some(Action::Reboot),
                _ => None,
            },
        }
    }

    /// Whether nobody can say what it does.
    pub(super) fn is_command(&self) -> bool {
        matches!(self.kind, Kind::Exec(_))
    }

    /// Why it can't be done for all of `nodes`, as far as that can be told from their names.
    pub(super) fn misfit(&self, nodes: &Nodes) -> Option<String> {
        match &self.kind {
            Kind::Bmc { step, bmcs } => {
                misfit(step, bmcs, nodes).map(|why| format!("task \"{}\": {why}", self.name))
            }
            Kind::Agent { .. } | Kind::Exec(_) => None,
        }
    }

    /// Whether it takes the action that was asked for.
    pub(super) fn needs_action(&self) -> bool {
        match &self.kind {
            Kind::Agent {
                action, parameters, ..
            } => action.is_none() || parameters.values().any(Parameter::takes_action),
            Kind::Exec(words) => words.iter().any(Template::takes_action),
            Kind::Bmc { step, bmcs } => takes_action(step) || bmcs.iter().any(Bmc::takes_action),
        }
    }
}

/// Reads a command line: a program that nobody else could have changed, and its arguments.
pub(super) fn read_command(table: &Table<'_>, key: &'static str) -> Option<Vec<Template>> {
    let words = table.texts(key)?;
    let program = words.first()?;
    if let Err(message) = is_executable(Path::new(program.value)) {
        table.faults.add(&program.span, message);
    }
    Some(
        words
            .iter()
            .filter_map(|word| read_template(table, word))
            .collect(),
    )
}

/// Reads a text with templates.
pub(super) fn read_template(table: &Table<'_>, text: &At<&str>) -> Option<Template> {
    match Template::parse(text.value) {
        Ok(template) => Some(template),
        Err(fault) => {
            table.faults.add(&text.span, fault);
            None
        }
    }
}

/// Whether the file at `path` is a program that can be run, and that nobody else could have changed.
///
/// # Errors
/// Why not.
pub(super) fn is_executable(path: &Path) -> Result<(), String> {
    check_program(path).map_err(|fault| fault.to_string())?;
    access(path, AccessFlags::X_OK)
        .map_err(|error| format!("{} can't be executed: {}", path.display(), error.desc()))
}

const AGENT_ACTIONS: &[(&str, &str)] = &[
    ("off", "off"),
    ("on", "on"),
    ("reboot", "reboot"),
    // status is none: its exit code is 2 for a node that is off, as it should be here
    ("monitor", "monitor"),
];

fn read_agent(table: &Table<'_>) -> Option<Kind> {
    let action = table.choice("action", AGENT_ACTIONS).map(str::to_owned);
    let mut parameters = Parameters {
        table,
        by_name: BTreeMap::new(),
    };
    parameters.read();
    let parameters = parameters.by_name;
    let name = table.text("agent")?;
    let program = match agent_program(name.value) {
        Ok(program) => program,
        Err(message) => {
            table.faults.add(&name.span, message);
            return None;
        }
    };
    Some(Kind::Agent {
        program,
        action,
        parameters,
    })
}

fn agent_program(name: &str) -> Result<PathBuf, String> {
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if !is_plain || !name.starts_with("fence_") {
        return Err(format!(
            "\"{name}\" is no name of a fence agent: fence_ipmilan is one"
        ));
    }
    let program = Path::new(AGENTS).join(name);
    if name == THIS_AGENT || is_this_agent(&program) {
        return Err(
            "fence_recorder would ask itself: name the agent that does the fencing".to_owned(),
        );
    }
    is_executable(&program).map_err(|reason| format!("{reason}: install the agent"))?;
    Ok(program)
}

/// Whether the file is this very program, or leads to one of its name.
fn is_this_agent(program: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let own = std::env::current_exe().ok().and_then(|own| identity(&own));
    let real = fs::canonicalize(program).unwrap_or_default();
    real.ends_with(THIS_AGENT) || (own.is_some() && identity(program) == own)
}

/// An agent's parameters, from the three tables that can set one.
struct Parameters<'t, 'a> {
    table: &'t Table<'a>,
    by_name: BTreeMap<String, Parameter>,
}

impl Parameters<'_, '_> {
    fn read(&mut self) {
        let table = self.table;
        if let Some(shared) = table.table("parameters") {
            for (name, value) in shared.free_texts() {
                if let Some(template) = read_template(table, &value) {
                    self.add(&name, Parameter::Shared(template));
                }
            }
        }
        if let Some(secrets) = table.table("secret_files") {
            for (name, path) in secrets.free_texts() {
                if !path.value.starts_with('/') {
                    let message =
                        format!("the secret file of {} must be an absolute path", name.value);
                    table.faults.add(&path.span, message);
                }
                if let Some(template) = read_template(table, &path) {
                    self.add(&name, Parameter::SecretFile(template));
                }
            }
        }
        if let Some(per_node) = table.table("node_parameters") {
            for (name, nodes) in per_node.free_tables() {
                let values = nodes.free_texts().into_iter().filter_map(|(node, value)| {
                    Some((node.value.to_owned(), read_template(table, &value)?))
                });
                self.add(&name, Parameter::PerNode(values.collect()));
            }
        }
    }

    /// Agents take `-` and `_` in names for the same, so two spellings are one parameter.
    fn add(&mut self, name: &At<&str>, parameter: Parameter) {
        let spelled = name.value.replace('-', "_");
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let message = if spelled.is_empty() || !spelled.bytes().all(is_plain) {
            format!("\"{}\" is no name of a parameter", name.value)
        } else if ["action", "option", "nodename"].contains(&spelled.as_str()) {
            format!(
                "{} is set by the responder: the task's own key action says what the agent does",
                name.value
            )
        } else if self.by_name.insert(spelled, parameter).is_some() {
            format!("the parameter {} is set in two places", name.value)
        } else {
            return;
        };
        self.table.faults.add(&name.span, message);
    }
}

impl Task {
    /// The most time that it can take: every attempt at its timeout, every pause.
    pub(super) fn longest(&self) -> Duration {
        let attempts = u32::try_from(self.retry_count).unwrap_or(u32::MAX);
        self.timeout * attempts + self.retry_interval * attempts.saturating_sub(1)
    }
}
