//! `fence_recorder demo`: agent and responder at work, step by step, in a temporary directory.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Output, Stdio};

use clap::ArgMatches;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use thiserror::Error;

use crate::interrupt::{Interrupt, Interrupted};
use crate::jobs::record::Record;
use crate::jobs::store::Store;
use crate::spool::name::FileName;
use crate::spool::presence::RESPONDER;
use crate::text::one_line;

/// How long the responder may take to start.
const START_TIME: Duration = Duration::from_secs(10);

/// The options: there are none.
#[must_use]
pub fn command() -> clap::Command {
    crate::commands::DEMO
        .command()
        .long_about(
            "Shows agent and responder at work in a temporary directory: a fence that is answered, one \
             that is refused and one that nobody answers. Needs no cluster and no rights, leaves nothing \
             behind. Exit 0 if all three ended as they should, else 1.",
        )
}

/// What one of the demo's fences shows.
struct Scene {
    title: &'static str,
    node: &'static str,
    timeout: u32,
    /// The agent's exit code.
    expected: i32,
    is_answered: bool,
}

const SCENES: [Scene; 3] = [
    Scene {
        title: "A fence whose tasks succeed",
        node: "node-1",
        timeout: 20,
        expected: 0,
        is_answered: true,
    },
    Scene {
        title: "A fence whose task fails at both of its attempts",
        node: "node-2",
        timeout: 20,
        expected: 1,
        is_answered: true,
    },
    Scene {
        title: "A fence that nobody answers, response_timeout=1",
        node: "node-3",
        timeout: 1,
        expected: 1,
        is_answered: false,
    },
];

/// What the demo's responder does for its nodes; node-3 it leaves to another one.
const RULES: &str = r#"
unmatched = "ignore"

[[rule]]
name = "detach and cut off"
nodes = ["node-1"]
performs = "off"

[[rule.task]]
name = "detach storage"
exec = ["/bin/echo", "{node} has no storage any more"]

[[rule.task]]
name = "power off"
exec = ["/bin/echo", "{node} is off"]

[[rule]]
name = "out of reach"
nodes = ["node-2"]

[[rule.task]]
name = "power off"
exec = ["/bin/sh", "-c", "echo the power controller of $FENCE_NODE does not answer; exit 1"]
retry_count = 2
retry_interval = "100ms"
"#;

/// Why the demo can't be shown.
#[derive(Debug, Error)]
enum DemoFault {
    #[error(
        "the demo needs a temporary directory: {0}: set TMPDIR to a directory that can be written"
    )]
    Io(#[from] io::Error),
    #[error(
        "the demo's responder doesn't serve: {0}: set TMPDIR to a directory that only you can write"
    )]
    Responder(String),
    #[error("the demo was ended by {0}")]
    Interrupted(Interrupted),
}

/// Shows all three; the exit code says whether they ended as they should.
#[must_use]
pub fn main(_: &ArgMatches) -> ExitCode {
    match show_all() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            let _ = writeln!(io::stderr(), "fence_recorder: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn show_all() -> Result<bool, DemoFault> {
    let interrupt = Interrupt::new().map_err(io::Error::from)?;
    let stage = Stage::build()?;
    let _ = writeln!(
        io::stdout(),
        "{}",
        indented("what the responder is told", RULES)
    );
    let mut right = 0;
    for (number, scene) in SCENES.iter().enumerate() {
        let (shown, is_right) = stage.show(scene)?;
        // agent and responder are children of ours: a Ctrl-C ended them too
        if let Some(signal) = interrupt.signal() {
            return Err(DemoFault::Interrupted(signal));
        }
        right += usize::from(is_right);
        let _ = writeln!(io::stdout(), "{}. {}\n\n{shown}", number + 1, scene.title);
    }
    let count = SCENES.len();
    let _ = writeln!(io::stdout(), "{right} of {count} ended as they should.");
    Ok(right == count)
}

/// A temporary spool with its responder.
struct Stage {
    directory: TempDir,
    responder: Child,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let responder = i32::try_from(self.responder.id()).map(Pid::from_raw);
        let _ = responder.map(|pid| kill(pid, Signal::SIGTERM));
        let _ = self.responder.wait();
    }
}

impl Stage {
    fn build() -> Result<Self, DemoFault> {
        let directory = tempfile::Builder::new()
            .prefix("fence_recorder-demo-")
            .tempdir()?;
        let path = |name: &str| directory.path().join(name);
        for name in ["requests", "responses"] {
            fs::create_dir(path(name))?;
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o755))?;
        }
        let keys = ["request_dir", "response_dir", "state_dir", "log_dir"];
        let names = ["requests", "responses", "state", "log"];
        let places = keys.iter().zip(names).map(|(key, name)| {
            // a JSON string is a TOML string, whatever TMPDIR is called
            let path = serde_json::Value::from(path(name).to_string_lossy());
            format!("{key} = {path}\n")
        });
        let configuration = path("responder.toml");
        fs::write(&configuration, places.collect::<String>() + RULES)?;
        fs::set_permissions(&configuration, fs::Permissions::from_mode(0o600))?;
        let responder = Command::new(std::env::current_exe()?)
            .args(["responder", "--config"])
            .arg(&configuration)
            .stdin(Stdio::null())
            .stderr(fs::File::create(path("responder.log"))?)
            .spawn()?;
        let mut stage = Self {
            directory,
            responder,
        };
        stage.wait_for_responder()?;
        Ok(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn wait_for_responder(&mut self) -> Result<(), DemoFault> {
        let end = Instant::now() + START_TIME;
        while !self.path("requests").join(RESPONDER).exists() {
            if self.responder.try_wait()?.is_some() || Instant::now() >= end {
                let log = fs::read_to_string(self.path("responder.log")).unwrap_or_default();
                return Err(DemoFault::Responder(one_line(log.trim())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn show(&self, scene: &Scene) -> Result<(String, bool), DemoFault> {
        let input = self.input(scene);
        let started = Instant::now();
        let output = run_agent(&input)?;
        let took = started.elapsed();
        let (response, job) = self.answer(scene);
        let mut shown = indented("the agent's input, as Pacemaker writes it", &input);
        shown.push_str(&indented(
            "the responder's job",
            job.as_deref()
                .unwrap_or("none: no rule serves the node, and another responder may"),
        ));
        shown.push_str(&indented(
            "the response file",
            response.as_deref().unwrap_or("none"),
        ));
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        shown.push_str(&indented(
            "what the agent said",
            &String::from_utf8_lossy(&said),
        ));
        let code = output.status.code();
        let left = self.requests_left()?;
        let is_right =
            code == Some(scene.expected) && response.is_some() == scene.is_answered && left == 0;
        let exit = code.map_or_else(
            || output.status.to_string(),
            |code| format!("exit code {code}"),
        );
        let milliseconds = took.as_secs_f64() * 1e3;
        let _ = writeln!(
            shown,
            "  {exit} after {milliseconds:.1} ms, {left} requests left\n"
        );
        Ok((shown, is_right))
    }

    fn input(&self, scene: &Scene) -> String {
        format!(
            "nodename={0}\naction=reboot\nplug={0}\nresponse_timeout={1}\nrequest_dir={2}\nresponse_dir={3}\nlog_dir={4}\n",
            scene.node,
            scene.timeout,
            self.path("requests").display(),
            self.path("responses").display(),
            self.path("log").display(),
        )
    }

    /// The response about the scene's node, and how the job went.
    fn answer(&self, scene: &Scene) -> (Option<String>, Option<String>) {
        let names = fs::read_dir(self.path("responses"))
            .into_iter()
            .flatten()
            .flatten();
        let name = names
            .filter_map(|entry| FileName::parse(&entry.file_name()))
            .find(|name| name.node() == scene.node);
        let Some(name) = name else {
            return (None, None);
        };
        let response = fs::read_to_string(self.path("responses").join(name.as_str())).ok();
        let store = Store::open(&self.path("state")).ok();
        let job = store.and_then(|store| store.read(name.request_id()).ok());
        (response, job.as_ref().map(story))
    }

    /// Requests and claims that nobody took back.
    fn requests_left(&self) -> io::Result<usize> {
        let count = |name: &str| -> io::Result<usize> {
            let names = fs::read_dir(self.path(name))?.flatten();
            Ok(names
                .filter(|entry| FileName::parse(&entry.file_name()).is_some())
                .count())
        };
        Ok(count("requests")? + count("requests/.claimed")?)
    }
}

/// What a job did, a line for each attempt.
fn story(job: &Record) -> String {
    let mut story = format!("rule \"{}\"\n", job.rule.as_deref().unwrap_or_default());
    for task in &job.tasks {
        for (number, attempt) in task.attempts.iter().enumerate() {
            let message = attempt.message.as_deref().unwrap_or_default();
            let _ = writeln!(
                story,
                "task \"{}\", attempt {}: {:?}: {message}",
                task.name,
                number + 1,
                attempt.state
            );
        }
    }
    story
}

fn run_agent(input: &str) -> io::Result<Output> {
    let mut agent = Command::new(std::env::current_exe()?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = agent.stdin.take() {
        // an agent that fails before it has read all says so itself
        let _ = stdin.write_all(input.as_bytes());
    }
    agent.wait_with_output()
}

fn indented(title: &str, text: &str) -> String {
    let mut shown = format!("  {title}:\n");
    for line in text.lines() {
        let _ = writeln!(shown, "    {line}");
    }
    shown.push('\n');
    shown
}
