//! A spool in a temporary directory, and the agent run on it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The binary under test.
pub const AGENT: &str = env!("CARGO_BIN_EXE_fence_recorder");

/// How long anything may take before a test calls it hung.
pub const BOUND: Duration = Duration::from_secs(30);

/// Looks until `look` sees something; a test that waits for ever fails instead.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + BOUND;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// Waits until the agent, or the one that this strace runs, waits itself: for its response, once it
/// has looked for it in vain; for delay; for stdin.
pub fn until_it_waits(agent: &Child) {
    let id = agent.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let first = children.split_whitespace().next();
    let id = first.map_or_else(|| id.to_string(), str::to_owned);
    let ppoll = format!("{} ", nix::libc::SYS_ppoll);
    wait_for("the agent to wait", || {
        let call = fs::read_to_string(format!("/proc/{id}/syscall")).ok()?;
        call.starts_with(&ppoll).then_some(())
    });
}

/// How an agent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    /// It failed with exit 1 and one line that holds each of `words`.
    #[track_caller]
    pub fn failed_with(&self, words: &[&str]) {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        assert!(
            words.iter().all(|word| self.stderr.contains(word)),
            "{words:?} in {self:?}"
        );
        assert_eq!(self.stdout, "", "{self:?}");
    }

    /// It succeeded, said just `stdout`, and warned of nothing.
    #[track_caller]
    pub fn succeeded_with(&self, stdout: &str) {
        let clean = Self {
            code: Some(0),
            stdout: stdout.to_owned(),
            stderr: String::new(),
        };
        assert_eq!(*self, clean);
    }
}

/// A spool with safe directories.
pub struct TestEnv {
    pub directory: TempDir,
}

impl TestEnv {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["requests", "responses"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let env = Self { directory };
        env.chmod("requests", 0o755);
        env.chmod("responses", 0o755);
        env
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The lines that name this spool; a later line of the same name wins.
    pub fn directories(&self) -> String {
        let path = |name| self.path(name).display().to_string();
        format!(
            "request_dir={}\nresponse_dir={}\nlog_dir={}\n",
            path("requests"),
            path("responses"),
            path("log")
        )
    }

    /// A command with the environment of a daemon, whose stdin will be written.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir(self.directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts `command` and writes `stdin` to it.
    pub fn spawn(mut command: Command, stdin: &str) -> Child {
        use std::io::Write;
        let mut child = command.spawn().unwrap();
        // an agent that ends early doesn't read it all
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        child
    }

    /// Starts the agent on this spool with these lines, as Pacemaker does.
    pub fn start(&self, lines: &str) -> Child {
        Self::spawn(self.command(AGENT), &(self.directories() + lines))
    }

    /// Runs it to its end.
    pub fn run(&self, lines: &str) -> Ended {
        self.start(lines).wait_with_output().unwrap().into()
    }

    /// Runs the agent with arguments, after those that name this spool.
    pub fn run_with_arguments(&self, arguments: &[&str]) -> Ended {
        let mut command = self.command(AGENT);
        for (option, name) in [
            ("--request-dir", "requests"),
            ("--response-dir", "responses"),
            ("--log-dir", "log"),
        ] {
            command.arg(option).arg(self.path(name));
        }
        command
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
            .into()
    }

    /// The names in a directory of this environment, in order; none if it isn't there.
    pub fn names_in(&self, name: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(name)) else {
            return Vec::new();
        };
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Waits until `count` requests lie there, and returns each one's name and content.
    pub fn requests(&self, count: usize) -> Vec<(String, Value)> {
        wait_for("requests", || {
            let names: Vec<_> = self
                .names_in("requests")
                .into_iter()
                .filter(|name| !name.starts_with('.'))
                .collect();
            (names.len() == count).then_some(())?;
            names
                .into_iter()
                .map(|name| {
                    let text = fs::read_to_string(self.path("requests").join(&name)).ok()?;
                    Some((name, serde_json::from_str(&text).unwrap()))
                })
                .collect()
        })
    }

    /// Publishes a response as a careful responder does.
    pub fn respond(&self, name: &str, response: &[u8]) {
        let responses = self.path("responses");
        let temporary = responses.join(format!(".{name}.tmp"));
        fs::write(&temporary, response).unwrap();
        fs::rename(&temporary, responses.join(name)).unwrap();
    }

    /// Runs the agent for one node and answers with what `answer` makes of the request.
    pub fn run_answered(&self, lines: &str, answer: impl FnOnce(&Value) -> Value) -> Ended {
        let agent = self.start(lines);
        let (name, request) = self.requests(1).remove(0);
        self.respond(&name, answer(&request).to_string().as_bytes());
        agent.wait_with_output().unwrap().into()
    }

    /// The events of the detailed audit log.
    pub fn events(&self) -> Vec<Value> {
        let log =
            fs::read_to_string(self.path("log/fence-events-detailed.jsonl")).unwrap_or_default();
        log.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The statuses in the audit, in order.
    pub fn statuses(&self) -> Vec<String> {
        self.events()
            .iter()
            .map(|event| event["status"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// A success response to `request`, which says that what was asked for was done.
pub fn success(request: &Value) -> Value {
    json!({
        "request_id": request["request_id"],
        "success": true,
        "message": "done",
        "action_performed": request["action"],
        "target_node": request["target_node"],
    })
}

/// `base` with some fields changed, or removed where the new value is null.
pub fn with(mut base: Value, changes: Value) -> Value {
    let Value::Object(changes) = changes else {
        panic!("changes are an object")
    };
    for (name, value) in changes {
        if value.is_null() {
            base.as_object_mut().unwrap().remove(&name);
        } else {
            base[name] = value;
        }
    }
    base
}
