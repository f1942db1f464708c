//! Makes a rule's tasks ready for one request: templates filled, secrets read, nothing run yet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use super::config::bmc::{Bmc, BmcStep, Trusted};
use super::config::template::{OddNode, Subject, Template};
use super::config::trusted::{Secrecy, TrustFault, read_trusted};
use super::config::{Kind, Parameter, Rule, Task};
use super::process::MARK;
use crate::bmc::{self, Machine, Trust};
use crate::spool::json::pretty;
use crate::spool::request::Request;
use crate::text::{one_line, quoted};

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
    /// What it does, for people, without secrets.
    pub shown: String,
    /// What is to be said each time that it is run.
    pub warning: Option<String>,
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
    /// Its BMC can't do it, or isn't known.
    #[error("task \"{task}\": {why}")]
    Bmc {
        /// Which.
        task: String,
        /// Why.
        why: String,
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

/// What tasks are made ready for.
#[derive(Debug)]
pub struct Order<'a> {
    /// What templates are filled with.
    pub subject: Subject<'a>,
    /// The node's name in the cluster.
    pub nodename: &'a str,
    /// What a command finds in its environment, beside the responder's own.
    pub environment: Vec<(&'static str, String)>,
    /// What a command finds on its standard input.
    pub input: Vec<u8>,
}

impl<'a> Order<'a> {
    /// That of a request whose deadline is `deadline` as text.
    #[must_use]
    pub fn of(request: &'a Request, deadline: &str) -> Self {
        let node = &request.target_node;
        Self {
            subject: Subject {
                node,
                action: request.action.as_str(),
                request_id: &request.request_id,
            },
            nodename: request.nodename.as_deref().unwrap_or(node),
            environment: vec![
                ("FENCE_NODE", node.clone()),
                ("FENCE_ACTION", request.action.as_str().to_owned()),
                (MARK, request.request_id.clone()),
                ("FENCE_DEADLINE", deadline.to_owned()),
            ],
            input: pretty(request),
        }
    }

    /// The rule's notify command, if it has one.
    ///
    /// # Errors
    /// When the node can't be put into it.
    pub fn notify(&self, rule: &Rule) -> Result<Option<Prepared>, OddNode> {
        if rule.notify.is_empty() {
            return Ok(None);
        }
        self.command(&rule.notify).map(Some)
    }

    /// All of `tasks`.
    ///
    /// # Errors
    /// The first thing that is missing; then none of them may run.
    pub fn prepare(&self, tasks: &[Arc<Task>]) -> Result<Vec<Prepared>, PrepareFault> {
        tasks.iter().map(|task| self.task(task)).collect()
    }

    fn task(&self, task: &Task) -> Result<Prepared, PrepareFault> {
        match &task.kind {
            Kind::Exec(words) => self.command(words).map_err(|fault| odd(task, fault)),
            Kind::Agent {
                program,
                action,
                parameters,
            } => {
                let action = action.as_deref().unwrap_or(self.subject.action);
                let mut prepared = Prepared {
                    program: program.clone(),
                    environment: self.mark(),
                    shown: format!("{} with", program.display()),
                    ..Prepared::default()
                };
                prepared.tell("action", action, None);
                prepared.tell("nodename", self.nodename, None);
                prepared.tell_all(task, parameters, self.subject)?;
                Ok(prepared)
            }
            Kind::Bmc { step, bmcs } => self.bmc(task, step, bmcs),
        }
    }

    fn command(&self, words: &[Template]) -> Result<Prepared, OddNode> {
        let filled = words.iter().map(|word| word.fill(self.subject));
        let mut words = filled.collect::<Result<Vec<_>, _>>()?.into_iter();
        let program = words.next().unwrap_or_default();
        let arguments: Vec<_> = words.collect();
        Ok(Prepared {
            shown: std::iter::once(&program)
                .chain(&arguments)
                .map(|word| quoted(word))
                .collect::<Vec<_>>()
                .join(" "),
            program: program.into(),
            arguments,
            environment: self.environment.clone(),
            input: self.input.clone(),
            ..Prepared::default()
        })
    }

    fn bmc(&self, task: &Task, step: &BmcStep, bmcs: &[Bmc]) -> Result<Prepared, PrepareFault> {
        let node = self.subject.node;
        let fault = |why: String| PrepareFault::Bmc {
            task: task.name.clone(),
            why,
        };
        let bmc = bmcs
            .iter()
            .find(|bmc| bmc.nodes.has(node))
            .ok_or_else(|| fault(format!("no [[bmc]] has the node {}", one_line(node))))?;
        if let Some(why) = step.unknown_to(bmc.protocol) {
            return Err(fault(why.to_owned()));
        }
        let fill = |value: &Template| value.fill(self.subject).map_err(|fault| odd(task, fault));
        let password = read_secret(task, "the BMC", &fill(&bmc.password_file)?)?;
        let trust = match &bmc.trust {
            Trusted::System => Trust::System,
            Trusted::Insecure => Trust::Insecure,
            Trusted::File(path) => Trust::Authorities(
                read_trusted(path, Secrecy::Open)
                    .map_err(|why| fault(format!("ca_file: {why}")))?,
            ),
        };
        let job = bmc::Job {
            machine: Machine {
                protocol: bmc.protocol,
                address: fill(&bmc.address)?,
                username: fill(&bmc.username)?,
                password: password.clone(),
                trust,
                system: bmc.system.as_ref().map(fill).transpose()?,
                cipher_suite: bmc.cipher_suite,
            },
            step: step.with_url(fill)?,
            seconds: task.timeout.as_secs_f64(),
        };
        let shown = format!("{}: {}", job.machine, job.step);
        let input = serde_json::to_vec(&job).map_err(|why| fault(why.to_string()))?;
        Ok(Prepared {
            // the gate becomes this very program
            program: "/proc/self/exe".into(),
            arguments: vec![bmc::WORD.to_owned()],
            environment: self.mark(),
            input,
            secrets: vec![password],
            warning: (bmc.trust == Trusted::Insecure).then(|| {
                let address = one_line(&job.machine.address);
                format!("{address} could be anybody: insecure = true, no certificate is verified")
            }),
            shown,
        })
    }

    fn mark(&self) -> Vec<(&'static str, String)> {
        vec![(MARK, self.subject.request_id.to_owned())]
    }
}

fn odd(task: &Task, fault: OddNode) -> PrepareFault {
    PrepareFault::Node {
        task: task.name.clone(),
        fault,
    }
}

impl Prepared {
    /// Writes a line of an agent's standard input; `shown` is what people see instead of the value.
    fn tell(&mut self, name: &str, value: &str, shown: Option<&str>) {
        self.input
            .extend_from_slice(format!("{name}={value}\n").as_bytes());
        let shown = quoted(shown.unwrap_or(value));
        self.shown.extend([" ", name, "=", &shown]);
    }

    fn tell_all(
        &mut self,
        task: &Task,
        parameters: &BTreeMap<String, Parameter>,
        subject: Subject<'_>,
    ) -> Result<(), PrepareFault> {
        let fill = |value: &Template| value.fill(subject).map_err(|fault| odd(task, fault));
        for (name, parameter) in parameters {
            match parameter {
                Parameter::Shared(template) => self.tell(name, &fill(template)?, None),
                Parameter::PerNode(values) => {
                    let value = values
                        .get(subject.node)
                        .ok_or_else(|| PrepareFault::Missing {
                            task: task.name.clone(),
                            name: name.clone(),
                            node: subject.node.to_owned(),
                        })?;
                    self.tell(name, &fill(value)?, None);
                }
                Parameter::SecretFile(path) => {
                    let path = fill(path)?;
                    let secret = read_secret(task, name, &path)?;
                    self.tell(name, &secret, Some(&format!("(secret in {path})")));
                    self.secrets.push(secret);
                }
            }
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
