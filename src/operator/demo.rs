//! `fence_recorder demo`: the agent at work, step by step, in a temporary directory.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, PipeWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tempfile::TempDir;
use thiserror::Error;

use crate::interrupt::{Interrupt, Interrupted};
use crate::spool::directory::Trust;
use crate::spool::name::FileName;
use crate::spool::request::Request;
use crate::spool::response::Response;
use crate::spool::time::timestamp_text;
use crate::spool::watch::Watch;
use crate::spool::{Spool, SpoolFault};

/// What `demo --help` prints.
pub const HELP: &str = "\
Usage: fence_recorder demo

Shows the agent at work in a temporary directory: a fence that is answered, one
that is refused and one that nobody answers. Needs no cluster and no rights,
leaves nothing behind. Exit 0 if all three ended as they should, else 1.";

/// How the embedded responder answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Obliging,
    Refusing,
    Absent,
}

/// Why the demo can't be shown.
#[derive(Debug, Error)]
enum DemoFault {
    #[error(
        "the demo needs a temporary directory: {0}: set TMPDIR to a directory that can be written"
    )]
    Io(#[from] io::Error),
    #[error("the demo's spool: {0}: set TMPDIR to a directory that only you can write")]
    Spool(#[from] SpoolFault),
    #[error("the demo was ended by {0}")]
    Interrupted(Interrupted),
}

/// Shows all three; the exit code says whether they ended as they should.
#[must_use]
pub fn main() -> ExitCode {
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
    let scenes = [
        ("A fence that is answered", Manner::Obliging, 0),
        ("A fence that is refused", Manner::Refusing, 1),
        (
            "A fence that nobody answers, response_timeout=1",
            Manner::Absent,
            1,
        ),
    ];
    let mut right = 0;
    for (number, (title, manner, expected)) in scenes.into_iter().enumerate() {
        let (shown, is_right) = stage.scene(manner, expected)?;
        // the agent is a child of ours: a Ctrl-C ended it too
        if let Some(signal) = interrupt.signal() {
            return Err(DemoFault::Interrupted(signal));
        }
        right += usize::from(is_right);
        let _ = writeln!(io::stdout(), "{}. {title}\n\n{shown}", number + 1);
    }
    let _ = writeln!(
        io::stdout(),
        "{right} of {} ended as they should.",
        scenes.len()
    );
    Ok(right == scenes.len())
}

/// A temporary spool.
struct Stage {
    directory: TempDir,
}

impl Stage {
    fn build() -> io::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("fence_recorder-demo-")
            .tempdir()?;
        for name in ["requests", "responses"] {
            let path = directory.path().join(name);
            fs::create_dir(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self { directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn scene(&self, manner: Manner, expected: i32) -> Result<(String, bool), DemoFault> {
        let spool = Spool::open(
            &self.path("requests"),
            &self.path("responses"),
            Trust::Checked,
        )?;
        let responder = EmbeddedResponder::start(spool, manner)?;
        let input = self.input(manner);
        let started = Instant::now();
        let output = run_agent(&input)?;
        let took = started.elapsed();
        let seen = responder.stop();
        let mut shown = indented("the agent's input, as Pacemaker writes it", &input);
        match &seen {
            Some(seen) => shown.push_str(&indented(
                &format!("the request file {}", seen.name),
                &seen.request,
            )),
            None => shown.push_str(&indented("the request file", "none was seen")),
        }
        let answer = seen.as_ref().and_then(|seen| seen.response.as_deref());
        shown.push_str(&indented(
            "the response file, of the same name",
            answer.unwrap_or("none"),
        ));
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        shown.push_str(&indented(
            "what the agent said",
            &String::from_utf8_lossy(&said),
        ));
        let left = fs::read_dir(self.path("requests"))?.count();
        let code = output.status.code();
        let is_right = code == Some(expected) && seen.is_some() && left == 0;
        let exit = code.map_or_else(
            || output.status.to_string(),
            |code| format!("exit code {code}"),
        );
        let _ = writeln!(
            shown,
            "  {exit} after {:.1} ms, {left} requests left\n",
            took.as_secs_f64() * 1e3
        );
        Ok((shown, is_right))
    }

    fn input(&self, manner: Manner) -> String {
        let timeout = if manner == Manner::Absent { 1 } else { 20 };
        format!(
            "nodename=node-3\naction=reboot\nplug=node-3\nresponse_timeout={timeout}\nrequest_dir={}\nresponse_dir={}\nlog_dir={}\n",
            self.path("requests").display(),
            self.path("responses").display(),
            self.path("log").display(),
        )
    }
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

/// What the responder saw of the one request, and how it answered.
struct Seen {
    name: FileName,
    request: String,
    response: Option<String>,
}

/// A thread that answers requests, until its stopper is dropped.
struct EmbeddedResponder {
    thread: JoinHandle<Option<Seen>>,
    stopper: PipeWriter,
}

impl EmbeddedResponder {
    fn start(spool: Spool, manner: Manner) -> io::Result<Self> {
        let (stopped, stopper) = io::pipe()?;
        let thread = std::thread::Builder::new().spawn(move || {
            let (watch, _) = Watch::new(&spool.requests);
            let mut seen = None;
            loop {
                seen = seen.or_else(|| answer_first(&spool, manner));
                if watch.wait(Duration::from_millis(100), &[stopped.as_fd()])
                    == crate::spool::watch::Woken::Interrupted
                {
                    return seen;
                }
            }
        })?;
        Ok(Self { thread, stopper })
    }

    fn stop(self) -> Option<Seen> {
        drop(self.stopper);
        self.thread.join().ok().flatten()
    }
}

fn answer_first(spool: &Spool, manner: Manner) -> Option<Seen> {
    let mut first = None;
    let _ = spool.requests.for_each_name(|name| {
        first = FileName::parse(name);
        first.is_none()
    });
    let name = first?;
    let (request, _) = Request::read(&spool.requests, &name).ok()?;
    let text = fs::read_to_string(spool.requests.path().join(name.as_str())).unwrap_or_default();
    let response = match manner {
        Manner::Absent => None,
        Manner::Obliging => Some(response_to(
            &request,
            true,
            "node-3 was detached from its storage",
        )),
        Manner::Refusing => Some(response_to(
            &request,
            false,
            "the storage controller doesn't answer",
        )),
    };
    let response = response.map(|response| match response.publish(&spool.responses, &name) {
        Ok(()) => {
            fs::read_to_string(spool.responses.path().join(name.as_str())).unwrap_or_default()
        }
        Err(fault) => fault.to_string(),
    });
    Some(Seen {
        name,
        request: text,
        response,
    })
}

fn response_to(request: &Request, success: bool, message: &str) -> Response {
    Response {
        request_id: request.request_id.clone(),
        success,
        message: Some(message.to_owned()),
        action_performed: success.then(|| request.action.as_str().into()),
        target_node: Some(request.target_node.as_str().into()),
        timestamp: Some(timestamp_text(Timestamp::now())),
    }
}
