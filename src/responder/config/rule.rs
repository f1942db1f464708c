//! The rules of the configuration and their tasks, and what of them would be dangerous.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use globset::{Glob, GlobSet, GlobSetBuilder};
use nix::unistd::{AccessFlags, access};

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

/// What is done for some nodes and actions.
#[derive(Debug)]
pub struct Rule {
    /// For people; each rule has its own.
    pub name: String,
    /// Node names and globs.
    pub nodes: Vec<String>,
    matcher: GlobSet,
    /// The actions it serves.
    pub actions: Vec<Action>,
    /// What its success does to the node, if not what was asked for.
    pub performs: Option<Action>,
    /// Whether a person has to answer first.
    pub approval: Approval,
    /// Run when a job waits for a person.
    pub notify: Vec<Template>,
    /// What is run, in order.
    pub tasks: Vec<Arc<Task>>,
}

/// Whether a person has to answer before anything is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// Nobody is asked.
    Automatic,
    /// The job waits for `fence_recorder answer`.
    Manual,
}

/// One step of a rule.
#[derive(Debug, PartialEq, Eq)]
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
#[derive(Debug, PartialEq, Eq)]
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
}

/// Where the value of an agent's parameter comes from.
#[derive(Debug, PartialEq, Eq)]
pub enum Parameter {
    /// The same for all nodes, but for templates.
    Shared(Template),
    /// One for each node.
    PerNode(BTreeMap<String, Template>),
    /// The content of this file.
    SecretFile(Template),
}

/// What tasks have unless they say otherwise.
#[derive(Debug, Clone, Copy)]
struct Defaults {
    retry_count: usize,
    retry_interval: Duration,
    timeout: Duration,
}

const ACTIONS: &[(&str, Action)] = &[
    ("off", Action::Off),
    ("on", Action::On),
    ("reboot", Action::Reboot),
];

/// Reads `[defaults]` and every `[[rule]]`.
pub(super) fn read_all(table: &Table<'_>) -> Vec<Rule> {
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
    let mut rules: Vec<Rule> = Vec::new();
    for (number, table) in table.tables("rule").into_iter().enumerate() {
        let (span, faults) = (table.span.clone(), table.faults);
        let rule = read_rule(table, number + 1, defaults);
        if let Some(earlier) = rules.iter().find(|earlier| earlier.shadows(&rule)) {
            let message = format!(
                "nothing is left for this rule: \"{}\" above it is followed",
                earlier.name
            );
            faults.add(&span, message);
        }
        if rules.iter().any(|other| other.name == rule.name) {
            let message = format!("a rule is named \"{}\" already", rule.name);
            faults.add(&span, message);
        }
        rules.push(rule);
    }
    rules
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

fn read_rule(table: Table<'_>, number: usize, defaults: Defaults) -> Rule {
    let approvals = [
        ("automatic", Approval::Automatic),
        ("manual", Approval::Manual),
    ];
    let name = table
        .text("name")
        .map_or_else(|| format!("rule {number}"), |name| name.value.to_owned());
    let nodes = table.texts("nodes");
    if nodes.is_none() && !table.has("nodes") {
        let message = "a rule needs nodes: a list of names or globs, [\"*\"] for all";
        table.faults.add(&table.span, message);
    }
    let nodes = nodes.unwrap_or_default();
    let mut rule = Rule {
        name,
        matcher: read_globs(&table, &nodes),
        nodes: nodes.iter().map(|node| node.value.to_owned()).collect(),
        actions: read_actions(&table),
        performs: table.choice("performs", ACTIONS),
        approval: table
            .choice("approval", &approvals)
            .unwrap_or(Approval::Automatic),
        notify: read_command(&table, "notify").unwrap_or_default(),
        tasks: Vec::new(),
    };
    let tasks = table.tables("task");
    let is_bare = tasks.is_empty();
    for (number, task) in tasks.into_iter().enumerate() {
        let (span, faults) = (task.span.clone(), task.faults);
        let Some(task) = read_task(task, number + 1, defaults) else {
            continue;
        };
        if rule.tasks.iter().any(|other| other.name == task.name) {
            let message = format!("a task of this rule is named \"{}\" already", task.name);
            faults.add(&span, message);
        }
        rule.tasks.push(Arc::new(task));
    }
    if is_bare && rule.approval == Approval::Automatic {
        let message = "a rule without a [[rule.task]] would call nodes fenced that nobody touched: \
                       add one, or approval = \"manual\"";
        table.faults.add(&table.span, message);
    }
    check(&rule, &table);
    table.finish();
    rule
}

fn read_globs(table: &Table<'_>, nodes: &[At<&str>]) -> GlobSet {
    let mut globs = GlobSetBuilder::new();
    for node in nodes {
        if node.value.is_empty() || node.value.contains('/') {
            let message = format!(
                "\"{}\" can match no node: a node's name is not empty and has no '/'",
                node.value
            );
            table.faults.add(&node.span, message);
        }
        match Glob::new(node.value) {
            Ok(glob) => _ = globs.add(glob),
            Err(error) => table.faults.add(&node.span, error),
        }
    }
    globs.build().unwrap_or_else(|error| {
        table.faults.add(&table.span, error);
        GlobSet::empty()
    })
}

fn read_actions(table: &Table<'_>) -> Vec<Action> {
    let Some(named) = table.texts("actions") else {
        return vec![Action::Off, Action::Reboot];
    };
    let mut actions = Vec::new();
    for name in named {
        match ACTIONS.iter().find(|(known, _)| *known == name.value) {
            Some((_, action)) if !actions.contains(action) => actions.push(*action),
            Some(_) => {}
            None => table.faults.add(
                &name.span,
                format!("actions are off, on, reboot, not \"{}\"", name.value),
            ),
        }
    }
    actions
}

/// What each part may be, but together may not.
fn check(rule: &Rule, table: &Table<'_>) {
    let complain = |message: String| table.faults.add(&table.span, message);
    if rule.approval == Approval::Automatic && !rule.notify.is_empty() {
        complain("notify needs approval = \"manual\": else nothing waits for a person".to_owned());
    }
    let reboots = |task: &&Arc<Task>| task.effect(Action::Reboot) == Some(Action::Reboot);
    if rule.actions.contains(&Action::Reboot) && rule.tasks.iter().filter(reboots).count() > 1 {
        complain(
            "more than one task would reboot: two supplies of a node would be cycled one after the \
             other, and the node never lose its power: serve reboot in a rule of its own and give \
             each task its action: off, off, on, on"
                .to_owned(),
        );
    }
    for asked in &rule.actions {
        if let Some(message) = rule.contradiction(*asked) {
            complain(message);
        }
    }
}

impl Rule {
    /// Why its success would be no true answer to `asked`.
    fn contradiction(&self, asked: Action) -> Option<String> {
        let performed = self.performed(asked);
        let is_off_by_reboot = (asked, performed) == (Action::Off, Action::Reboot);
        if (asked == Action::On) != (performed == Action::On) || is_off_by_reboot {
            let (asked, said) = (asked.as_str(), performed.as_str());
            return Some(format!(
                "performs = \"{said}\" is no answer to {asked}: write a rule of its own"
            ));
        }
        let effects = self.tasks.iter().filter_map(|task| task.effect(asked));
        let effects: Vec<_> = effects.collect();
        // what a command does to a node is not known
        let is_known = !self.tasks.is_empty() && self.tasks.iter().all(|task| !task.is_command());
        let last = effects.last().copied();
        let is_true = match (last, performed) {
            (None, _) | (Some(Action::Off), Action::Reboot) => !is_known,
            (Some(last), Action::Off) => last == Action::Off,
            (Some(last), Action::On) => last != Action::Off,
            (Some(_), Action::Reboot) => {
                !is_known || effects.iter().any(|effect| *effect != Action::On)
            }
        };
        (!is_true).then(|| {
            let (asked, said) = (asked.as_str(), performed.as_str());
            let left = match last {
                None => "leave it as it is".to_owned(),
                Some(last) => format!("end with {}", last.as_str()),
            };
            format!(
                "the answer to {asked} would say that the node was put through {said}, but the tasks {left}: \
                 serve {asked} in a rule of its own, set performs, or mend the tasks' actions"
            )
        })
    }

    /// Whether an earlier rule leaves nothing for `later`.
    fn shadows(&self, later: &Self) -> bool {
        let takes =
            |node: &String| self.nodes.contains(node) || self.nodes.iter().any(|own| own == "*");
        later.nodes.iter().all(takes)
            && later
                .actions
                .iter()
                .all(|action| self.actions.contains(action))
    }
}

impl Task {
    /// What it does to a node's power when `asked` was asked for, as far as that is known.
    fn effect(&self, asked: Action) -> Option<Action> {
        match &self.kind {
            Kind::Exec(_) => None,
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

    fn is_command(&self) -> bool {
        matches!(self.kind, Kind::Exec(_))
    }
}

fn read_task(table: Table<'_>, number: usize, defaults: Defaults) -> Option<Task> {
    let own = read_defaults(&table, defaults);
    let name = table
        .text("name")
        .map_or_else(|| format!("task {number}"), |name| name.value.to_owned());
    let kind = match (table.has("agent"), table.has("exec")) {
        (true, false) => read_agent(&table),
        (false, true) => read_command(&table, "exec").map(Kind::Exec),
        _ => {
            let message = "a task has either agent or exec";
            table.faults.add(&table.span, message);
            // known all the same: one fault is enough
            let _ = (table.text("agent"), table.texts("exec"));
            None
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

fn read_command(table: &Table<'_>, key: &'static str) -> Option<Vec<Template>> {
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

fn read_template(table: &Table<'_>, text: &At<&str>) -> Option<Template> {
    match Template::parse(text.value) {
        Ok(template) => Some(template),
        Err(fault) => {
            table.faults.add(&text.span, fault);
            None
        }
    }
}

fn is_executable(path: &Path) -> Result<(), String> {
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

impl Rule {
    /// Whether it serves `action` of `node`.
    #[must_use]
    pub fn serves(&self, node: &str, action: Action) -> bool {
        self.actions.contains(&action) && self.matcher.is_match(node)
    }

    /// What its success does to the node when `asked` was asked for.
    #[must_use]
    pub fn performed(&self, asked: Action) -> Action {
        self.performs.unwrap_or(asked)
    }

    /// The most time that its tasks can take: every attempt at its timeout, every pause.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.tasks.iter().map(|task| task.longest()).sum()
    }
}

impl Task {
    fn longest(&self) -> Duration {
        let attempts = u32::try_from(self.retry_count).unwrap_or(u32::MAX);
        self.timeout * attempts + self.retry_interval * attempts.saturating_sub(1)
    }
}
