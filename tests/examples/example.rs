//! A responder of packaging/examples at work on a spool.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::env::{TestEnv, wait_for};

/// One of the examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Example {
    Shell,
    Python,
    Go,
}

pub const ALL: [Example; 3] = [Example::Shell, Example::Python, Example::Go];

/// A path in packaging/examples.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("packaging/examples")
        .join(name)
}

/// A program of the Python environment that tests/run makes.
pub fn tool(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/for-examples/bin")
        .join(name);
    assert!(
        path.exists(),
        "{} is missing: tests/run installs it",
        path.display()
    );
    path
}

/// The Go compiler, on the example.
pub fn go(arguments: &[&str]) {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/go");
    let output = Command::new(tool("go"))
        .args(arguments)
        .current_dir(path("responder-go"))
        .env("GOCACHE", cache.join("cache"))
        .env("GOPATH", cache.join("path"))
        .env("GOPROXY", "off")
        .env("GOFLAGS", "-mod=mod")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "go {arguments:?}: {said}");
}

fn go_program() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/go/responder");
        go(&["build", "-o", &program.display().to_string()]);
        program
    })
}

/// What the site writes: notes what it is asked, fails for bad nodes, and for slow ones waits for the
/// file `go`.
const FENCE_NODE: &str = "#!/bin/sh
printf '%s %s\\n' \"$1\" \"$2\" >>DIR/ran
echo some other line
case $2 in
    bad*) echo \"no power for $2\"; exit 3 ;;
    slow*) while [ ! -e DIR/go ]; do sleep 0.05; done ;;
esac
echo \"switched $1\"
";

/// A spool and, while it lives, the example that serves it.
pub struct Served {
    pub env: TestEnv,
    example: Example,
    pub responder: Option<Child>,
}

impl Served {
    /// A spool that nobody serves yet.
    pub fn not_yet(example: Example) -> Self {
        let env = TestEnv::new();
        let program = env.path("fence-node");
        let directory = env.directory.path().display().to_string();
        fs::write(&program, FENCE_NODE.replace("DIR", &directory)).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            env,
            example,
            responder: None,
        }
    }

    /// One that is served.
    pub fn by(example: Example) -> Self {
        let mut served = Self::not_yet(example);
        served.start();
        served
    }

    pub fn command(&self) -> Command {
        let mut command = match self.example {
            Example::Shell => self.env.command("/bin/bash"),
            Example::Python => self.env.command("/usr/bin/python3"),
            Example::Go => self.env.command(&go_program().display().to_string()),
        };
        match self.example {
            Example::Shell => _ = command.arg(path("responder.sh")),
            Example::Python => _ = command.arg(path("responder.py")),
            Example::Go => {}
        }
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.env.path("log.txt"))
            .unwrap();
        command
            .env("REQUESTS", self.env.path("requests"))
            .env("RESPONSES", self.env.path("responses"))
            .env("FENCE_NODE", self.env.path("fence-node"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        command
    }

    /// Starts the example and waits until it serves.
    pub fn start(&mut self) {
        let before = self.log().matches("serving").count();
        let child = self.command().spawn().unwrap();
        self.responder = Some(child);
        wait_for("the example to serve", || {
            (self.log().matches("serving").count() > before).then_some(())
        });
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.env.path("log.txt")).unwrap_or_default()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.responder.as_ref().unwrap().id().try_into().unwrap())
    }

    /// What the site's program was asked, in order.
    pub fn ran(&self) -> Vec<String> {
        let text = fs::read_to_string(self.env.path("ran")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The names of the answers.
    pub fn answers(&self) -> Vec<String> {
        let mut names = self.env.names_in("responses");
        names.retain(|name| !name.starts_with('.'));
        names
    }

    /// The names of requests that wait or are claimed.
    pub fn pending(&self) -> Vec<String> {
        let mut names = self.env.names_in("requests");
        names.retain(|name| !name.starts_with('.'));
        names.extend(self.env.names_in("requests/.claimed"));
        names
    }

    /// Waits until nothing is pending.
    pub fn until_done(&self) {
        let what = format!("nothing to be pending\n{}", self.log());
        wait_for(&what, || self.pending().is_empty().then_some(()));
    }

    /// Lets the slow nodes be fenced.
    pub fn go_on(&self) {
        fs::write(self.env.path("go"), "").unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.go_on();
        if let Some(mut responder) = self.responder.take() {
            let pid = Pid::from_raw(responder.id().try_into().unwrap());
            let _ = kill(pid, Signal::SIGCONT);
            let _ = kill(pid, Signal::SIGTERM);
            let _ = responder.wait();
        }
        if std::thread::panicking() {
            eprintln!("{:?}\n{}", self.example, self.log());
        }
    }
}
