//! Makes a rule's tasks ready for one request: templates filled, secrets read, nothing run yet.

use std::collections::BTreeMap;
use std::path::PathBuf;

use thiserror::Error;

use super::config::template::{OddNode, Subject};
use super::config::trusted::{Secrecy, TrustFault, read_trusted};
use super::config::{Kind, Parameter, Rule, Task};
use super::process::MARK;
use crate::spool::json::pretty;
use crate::spool::request::Request;

/// A process as it is to be started.
#[derive(Debug, Default)]
pub struct Prepared {
    /// Its file.
    pub program: PathBuf,
    /// What follows.
    pub arguments: Vec<String>,
    /// What is added to the responder's own environment.
    pub environment: Vec<(&'static str, String)>,
    /// Its whole standard input.
    pub input: Vec<u8>,
    /// What must not be seen in anything it prints.
    pub secrets: Vec<String>,
}

/// Why a rule can't be applied to a request.
#[derive(Debug, Error)]
pub enum PrepareFault {
    /// Its node would turn a value into something else.
    #[error("task \"{task}\": {fault}")]
    Node {
        /// Which.
        task: String,
        /// Why.
        fault: OddNode,
    },
    /// The value for the node isn't there.
    #[error(
        "task \"{task}\": node_parameters.{name} has no value for the node \"{node}\": add it to responder.toml"
    )]
    Missing {
        /// Which.
        task: String,
        /// Of which parameter.
        name: String,
        /// For which node.
        node: String,
    },
    /// The secret can't be read.
    #[error("task \"{task}\": the secret file of {name}: {fault}")]
    Secret {
        /// Which.
        task: String,
        /// Of which parameter.
        name: String,
        /// Why.
        fault: TrustFault,
    },
    /// What the file holds is no value.
    #[error("task \"{task}\": the secret file of {name} must hold one line")]
    SecretLines {
        /// Which.
        task: String,
        /// Of which parameter.
        name: String,
    },
}

/// All tasks of `rule` for `request`, whose deadline is `deadline` as text.
///
/// # Errors
/// The first thing that is missing; then none of them may run.
pub fn prepare(
    rule: &Rule,
    request: &Request,
    deadline: &str,
) -> Result<Vec<Prepared>, PrepareFault> {
    rule.tasks
        .iter()
        .map(|task| prepare_task(task, request, deadline))
        .collect()
}

/// The rule's notify command for `request`, if it has one.
///
/// # Errors
/// When the node can't be put into it.
pub fn prepare_notify(
    rule: &Rule,
    request: &Request,
    deadline: &str,
) -> Result<Option<Prepared>, OddNode> {
    if rule.notify.is_empty() {
        return Ok(None);
    }
    prepare_command(&rule.notify, request, deadline).map(Some)
}

fn prepare_task(task: &Task, request: &Request, deadline: &str) -> Result<Prepared, PrepareFault> {
    match &task.kind {
        Kind::Exec(words) => {
            prepare_command(words, request, deadline).map_err(|fault| PrepareFault::Node {
                task: task.name.clone(),
                fault,
            })
        }
        Kind::Agent {
            program,
            action,
            parameters,
        } => {
            let action = action.as_deref().unwrap_or(request.action.as_str());
            let mut prepared = Prepared {
                program: program.clone(),
                environment: vec![(MARK, request.request_id.clone())],
                ..Prepared::default()
            };
            let nodename = request.nodename.as_deref().unwrap_or(&request.target_node);
            prepared.tell("action", action);
            prepared.tell("nodename", nodename);
            prepared.tell_all(task, parameters, request)?;
            Ok(prepared)
        }
    }
}

fn prepare_command(
    words: &[super::config::template::Template],
    request: &Request,
    deadline: &str,
) -> Result<Prepared, OddNode> {
    let mut filled = words.iter().map(|word| word.fill(subject(request)));
    let program = filled.next().transpose()?.unwrap_or_default();
    Ok(Prepared {
        program: program.into(),
        arguments: filled.collect::<Result<_, _>>()?,
        environment: vec![
            ("FENCE_NODE", request.target_node.clone()),
            ("FENCE_ACTION", request.action.as_str().to_owned()),
            (MARK, request.request_id.clone()),
            ("FENCE_DEADLINE", deadline.to_owned()),
        ],
        input: pretty(request),
        secrets: Vec::new(),
    })
}

fn subject(request: &Request) -> Subject<'_> {
    Subject {
        node: &request.target_node,
        action: request.action.as_str(),
        request_id: &request.request_id,
    }
}

impl Prepared {
    fn tell(&mut self, name: &str, value: &str) {
        self.input
            .extend_from_slice(format!("{name}={value}\n").as_bytes());
    }

    fn tell_all(
        &mut self,
        task: &Task,
        parameters: &BTreeMap<String, Parameter>,
        request: &Request,
    ) -> Result<(), PrepareFault> {
        let odd = |fault| PrepareFault::Node {
            task: task.name.clone(),
            fault,
        };
        for (name, parameter) in parameters {
            let value = match parameter {
                Parameter::Shared(template) => template.fill(subject(request)).map_err(odd)?,
                Parameter::PerNode(values) => values
                    .get(&request.target_node)
                    .ok_or_else(|| PrepareFault::Missing {
                        task: task.name.clone(),
                        name: name.clone(),
                        node: request.target_node.clone(),
                    })?
                    .fill(subject(request))
                    .map_err(odd)?,
                Parameter::SecretFile(path) => {
                    let path = path.fill(subject(request)).map_err(odd)?;
                    let secret = read_secret(task, name, &path)?;
                    self.secrets.push(secret.clone());
                    secret
                }
            };
            self.tell(name, &value);
        }
        Ok(())
    }
}

fn read_secret(task: &Task, name: &str, path: &str) -> Result<String, PrepareFault> {
    let text =
        read_trusted(path.as_ref(), Secrecy::Secret).map_err(|fault| PrepareFault::Secret {
            task: task.name.clone(),
            name: name.to_owned(),
            fault,
        })?;
    let secret = text.strip_suffix('\n').unwrap_or(&text);
    let secret = secret.strip_suffix('\r').unwrap_or(secret);
    if secret.is_empty() || secret.contains(['\n', '\r', '\0']) {
        return Err(PrepareFault::SecretLines {
            task: task.name.clone(),
            name: name.to_owned(),
        });
    }
    Ok(secret.to_owned())
}
