//! Tells back what a configuration means, and which timeouts in the cluster go with it.

use std::fmt;
use std::time::Duration;

use super::rule::{Approval, Rule};
use super::task::{Kind, Parameter, Task};
use super::template::Template;
use super::{Config, Unmatched};
use crate::text::quoted;

/// How long a person is assumed to need.
const PERSON: Duration = Duration::from_mins(10);

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unmatched = match self.unmatched {
            Unmatched::Refuse => "refuse",
            Unmatched::Ignore => "ignore",
        };
        writeln!(f, "request_dir   {}", self.request_dir.display())?;
        writeln!(f, "response_dir  {}", self.response_dir.display())?;
        writeln!(f, "state_dir     {}", self.state_dir.display())?;
        writeln!(f, "log_dir       {}", self.log_dir.display())?;
        if let Some(path) = &self.metrics_file {
            writeln!(f, "metrics_file  {}", path.display())?;
        }
        writeln!(f, "max_jobs      {}", self.max_jobs)?;
        writeln!(f, "unmatched     {unmatched}")?;
        writeln!(f, "keep_jobs     {}", Seconds(self.keep_jobs))?;
        writeln!(f, "stop_grace    {}", Seconds(self.stop_grace))?;
        if !self.bmcs.is_empty() {
            writeln!(f)?;
        }
        for bmc in self.bmcs.iter() {
            writeln!(f, "bmc of {bmc}")?;
        }
        for rule in &self.rules {
            write!(f, "\n{rule}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let actions: Vec<_> = self.actions.iter().map(|action| action.as_str()).collect();
        writeln!(f, "rule \"{}\"", self.name)?;
        writeln!(
            f,
            "  {} of {}",
            actions.join(", "),
            self.nodes.patterns.join(", ")
        )?;
        if let Some(performs) = self.performs {
            writeln!(f, "  performs {}", performs.as_str())?;
        }
        if self.approval == Approval::Manual {
            writeln!(
                f,
                "  waits for a person: fence_recorder answer NODE --success or --failure"
            )?;
        }
        if !self.notify.is_empty() {
            writeln!(f, "  notifies with {}", Words(&self.notify))?;
        }
        for (number, task) in self.tasks.iter().enumerate() {
            writeln!(f, "  {}. {task}", number + 1)?;
        }
        self.timeouts(f)
    }
}

impl Rule {
    fn timeouts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let person = match self.approval {
            Approval::Manual => PERSON,
            Approval::Automatic => Duration::ZERO,
        };
        let tasks = self.longest();
        let needed = (person + tasks).as_secs() + 5;
        if self.approval == Approval::Manual {
            write!(
                f,
                "  a person needs more than the default 55 s: for ten minutes"
            )?;
            if !tasks.is_zero() {
                write!(f, " and the tasks' {}", Seconds(tasks))?;
            }
        } else {
            write!(
                f,
                "  at most {} with every attempt at its timeout: for all of it",
                Seconds(tasks)
            )?;
        }
        writeln!(
            f,
            " set response_timeout={needed}, pcmk_reboot_timeout={0}, pcmk_off_timeout={0} and \
             stonith-timeout={0} or more",
            needed + 20
        )
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\": ", self.name)?;
        match &self.kind {
            Kind::Agent {
                program,
                action,
                parameters,
            } => {
                let action = action.as_deref().unwrap_or("{action}");
                write!(f, "{} action={action}", program.display())?;
                for (name, parameter) in parameters {
                    write!(f, " {name}={parameter}")?;
                }
            }
            Kind::Exec(words) => write!(f, "{}", Words(words))?,
            Kind::Bmc { step, .. } => write!(f, "{step}")?,
        }
        write!(
            f,
            ", attempts {}, {} apart, {} each",
            self.retry_count,
            Seconds(self.retry_interval),
            Seconds(self.timeout)
        )
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared(value) => write!(f, "{value}"),
            Self::PerNode(values) => {
                let nodes: Vec<_> = values
                    .iter()
                    .map(|(node, value)| format!("{node}: {value}"))
                    .collect();
                write!(f, "({})", nodes.join(", "))
            }
            Self::SecretFile(path) => write!(f, "(secret in {path})"),
        }
    }
}

/// A command line, for people.
struct Words<'a>(&'a [Template]);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self
            .0
            .iter()
            .map(|word| quoted(&word.to_string()))
            .collect();
        f.write_str(&words.join(" "))
    }
}

/// A duration in seconds, with a fraction where it has one.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64())
    }
}
