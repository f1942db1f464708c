//! The rules of the configuration, and what of them would be dangerous.

use std::sync::Arc;
use std::time::Duration;

use super::bmc::Bmc;
use super::nodes::Nodes;
use super::reader::Table;
use super::task::{Reader, Task, read_command};
use super::template::Template;
use crate::spool::request::Action;

/// What is done for some nodes and actions.
#[derive(Debug)]
pub struct Rule {
    /// For people; each rule has its own.
    pub name: String,
    /// Which nodes it serves.
    pub nodes: Nodes,
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

/// What can be asked of a node, by name.
pub(super) const ACTIONS: &[(&str, Action)] = &[
    ("off", Action::Off),
    ("on", Action::On),
    ("reboot", Action::Reboot),
];

/// Reads `[defaults]` and every `[[rule]]`, whose tasks may be for `bmcs`.
pub(super) fn read_all(table: &Table<'_>, bmcs: &Arc<[Bmc]>) -> Vec<Rule> {
    let reader = Reader::new(table, bmcs);
    let mut rules: Vec<Rule> = Vec::new();
    for (number, table) in table.tables("rule").into_iter().enumerate() {
        let (span, faults) = (table.span.clone(), table.faults);
        let rule = read_rule(table, number + 1, &reader);
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

fn read_rule(table: Table<'_>, number: usize, reader: &Reader) -> Rule {
    let approvals = [
        ("automatic", Approval::Automatic),
        ("manual", Approval::Manual),
    ];
    let name = table
        .text("name")
        .map_or_else(|| format!("rule {number}"), |name| name.value.to_owned());
    let mut rule = Rule {
        name,
        nodes: Nodes::read(&table, "a rule"),
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
    rule.tasks = reader.tasks(tasks, "this rule");
    if is_bare && rule.approval == Approval::Automatic {
        let message = "a rule without a [[rule.task]] would call nodes fenced that nobody touched: \
                       add one, or approval = \"manual\"";
        table.faults.add(&table.span, message);
    }
    check(&rule, &table);
    table.finish();
    rule
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
    for task in &rule.tasks {
        if let Some(message) = task.misfit(&rule.nodes) {
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
        let patterns = &later.nodes.patterns;
        patterns.iter().all(|pattern| self.nodes.take(pattern))
            && later
                .actions
                .iter()
                .all(|action| self.actions.contains(action))
    }
}

impl Rule {
    /// Whether it serves `action` of `node`.
    #[must_use]
    pub fn serves(&self, node: &str, action: Action) -> bool {
        self.actions.contains(&action) && self.nodes.has(node)
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
