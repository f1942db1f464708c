//! A spool with a responder that serves it.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::env::{AGENT, Ended, TestEnv, wait_for};

/// A spool, a state directory and, while it lives, a responder.
pub struct Scene {
    pub env: TestEnv,
    pub responder: Option<Child>,
}

impl Scene {
    /// A spool without a responder; `rules` is what follows the directories in responder.toml.
    pub fn without_responder(rules: &str) -> Self {
        let scene = Self {
            env: TestEnv::new(),
            responder: None,
        };
        scene.configure(rules);
        scene
    }

    /// The same with its responder, which serves already.
    pub fn new(rules: &str) -> Self {
        let mut scene = Self::without_responder(rules);
        scene.start();
        scene
    }

    /// The same with scripts for its tasks: name and body of each.
    pub fn with_scripts(rules: &str, scripts: &[(&str, &str)]) -> Self {
        let mut scene = Self::without_responder(rules);
        for (name, body) in scripts {
            scene.script(name, body);
        }
        scene.start();
        scene
    }

    /// Writes responder.toml. `DIR` in it is the scene's directory.
    pub fn configure(&self, rules: &str) {
        let directory = self.env.directory.path().display().to_string();
        let text = format!(
            "request_dir = \"DIR/requests\"\nresponse_dir = \"DIR/responses\"\nstate_dir = \"DIR/state\"\nlog_dir = \"DIR/log\"\n{rules}"
        );
        fs::write(self.path("responder.toml"), text.replace("DIR", &directory)).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.env.path(name)
    }

    /// A shell script that tasks can run; `DIR` in it is the scene's directory.
    pub fn script(&self, name: &str, body: &str) {
        let directory = self.env.directory.path().display().to_string();
        let text = format!("#!/bin/sh\n{}\n", body.replace("DIR", &directory));
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The command of a responder; its log goes on in the file `log.txt`.
    pub fn command(&self) -> Command {
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.path("log.txt"))
            .unwrap();
        let mut command = self.env.command(AGENT);
        command
            .arg("responder")
            .arg("--config")
            .arg(self.path("responder.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        command
    }

    /// Starts a responder and waits until it serves.
    pub fn start(&mut self) {
        let command = self.command();
        self.start_as(command);
    }

    /// Starts one through a shell's words, which end with `exec "$@"`.
    pub fn start_through(&mut self, words: &str) {
        let responder = self.command();
        let log = File::options().append(true).open(self.path("log.txt"));
        let mut shell = self.env.command("/bin/sh");
        shell
            .args(["-c", words, "sh"])
            .arg(responder.get_program())
            .args(responder.get_args())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap());
        self.start_as(shell);
    }

    /// Starts this responder and waits until it serves.
    pub fn start_as(&mut self, mut command: Command) {
        let child = command.spawn().unwrap();
        let pid = child.id();
        self.responder = Some(child);
        wait_for("the responder to serve", || {
            let said = self.json("requests/.responder.json")?;
            (said["pid"] == pid).then_some(())
        });
    }

    /// What `--check-config` says.
    pub fn check(&self) -> Ended {
        let mut command = self.env.command(AGENT);
        command.args(["responder", "--check-config", "--config"]);
        command
            .arg(self.path("responder.toml"))
            .stdin(Stdio::null());
        command.output().unwrap().into()
    }

    pub fn pid(&self) -> Pid {
        pid_of(self.responder.as_ref().unwrap())
    }

    /// Sends a signal to the responder.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Kills the responder as a crash would.
    pub fn crash(&mut self) {
        let mut responder = self.responder.take().unwrap();
        responder.kill().unwrap();
        responder.wait().unwrap();
    }

    /// Asks the responder to end and waits for it; its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.signal(Signal::SIGTERM);
        self.responder.take().unwrap().wait().unwrap().code()
    }

    /// Waits for a responder that was asked to end; its exit code.
    pub fn exit_code(&mut self) -> Option<i32> {
        let mut responder = self.responder.take().unwrap();
        let status = wait_for("the responder to end", || responder.try_wait().unwrap());
        status.code()
    }

    /// The log of all responders of this scene.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log.txt")).unwrap_or_default()
    }

    /// Waits until the log has a line with all of `words`.
    pub fn wait_for_log(&self, words: &[&str]) {
        wait_for(&format!("{words:?} in the log"), || {
            let log = self.log();
            let has_all = |line: &str| words.iter().all(|word| line.contains(word));
            log.lines().any(has_all).then_some(())
        });
    }

    /// The JSON in a file, if it is there.
    pub fn json(&self, name: &str) -> Option<Value> {
        serde_json::from_slice(&fs::read(self.path(name)).ok()?).ok()
    }

    /// Publishes a request good for `seconds`, as an agent on this host would; its id.
    pub fn request(&self, action: &str, node: &str, seconds: f64) -> String {
        let id = uuid();
        self.request_with(&id, node, &request(&id, action, node, seconds));
        id
    }

    /// Publishes this request.
    pub fn request_with(&self, id: &str, node: &str, request: &Value) {
        publish(
            &self.path("requests"),
            &format!("{node}-{id}.json"),
            request,
        );
    }

    /// Waits for the answer to a request.
    pub fn answer(&self, node: &str, id: &str) -> Value {
        let name = format!("responses/{node}-{id}.json");
        wait_for(&name, || self.json(&name))
    }

    /// The job's record, if it is there.
    pub fn job(&self, id: &str) -> Option<Value> {
        self.json(&format!("state/jobs/{id}.json"))
    }

    /// Waits until the job is over.
    pub fn ended_job(&self, id: &str) -> Value {
        wait_for(&format!("the end of job {id}\n{}", self.log()), || {
            self.job(id).filter(|job| !job["completion_time"].is_null())
        })
    }

    /// Waits until the job's Processing condition has this reason.
    pub fn job_at(&self, id: &str, reason: &str) -> Value {
        wait_for(&format!("job {id} to be {reason}"), || {
            self.job(id).filter(|job| reason_of(job) == reason)
        })
    }

    /// A request for `node` seen through to its end: the answer and the record.
    pub fn run(&self, action: &str, node: &str) -> (Value, Value) {
        let id = self.request(action, node, 30.0);
        let answer = self.answer(node, &id);
        (answer, self.ended_job(&id))
    }

    /// What is in a file; nothing if it isn't there.
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Makes an empty file.
    pub fn touch(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    /// Waits for a file to be there, and not empty.
    pub fn wait_for_file(&self, name: &str) -> String {
        wait_for(name, || {
            Some(self.text(name)).filter(|text| !text.is_empty())
        })
    }

    /// Waits until nothing is pending or claimed.
    pub fn until_all_is_done(&self) {
        wait_for("the spool to be empty", || {
            let visible = |name: &String| !name.starts_with('.');
            let requests = self.env.names_in("requests");
            let left = requests.into_iter().filter(visible).count();
            (left + self.env.names_in("requests/.claimed").len() == 0).then_some(())
        });
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut responder) = self.responder.take() {
            // in order, so that no task outlives its scene; two signals at once could be one
            while matches!(responder.try_wait(), Ok(None)) {
                let _ = kill(pid_of(&responder), Signal::SIGTERM);
                let _ = kill(pid_of(&responder), Signal::SIGCONT);
                std::thread::yield_now();
            }
        }
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
}

/// A rule for all nodes with one task.
pub fn rule(task: &str) -> String {
    format!("[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\n{task}\n")
}

/// The reason of a job's Processing condition.
pub fn reason_of(job: &Value) -> String {
    job["conditions"][0]["reason"].as_str().unwrap().to_owned()
}

/// A request's id.
pub fn uuid() -> String {
    fs::read_to_string("/proc/sys/kernel/random/uuid")
        .unwrap()
        .trim()
        .to_owned()
}

/// A request as an agent of now writes it.
pub fn request(id: &str, action: &str, node: &str, seconds: f64) -> Value {
    let now = jiff::Timestamp::now();
    let deadline = now + jiff::SignedDuration::from_secs_f64(seconds);
    json!({
        "request_id": id,
        "timestamp": now.to_string(),
        "action": action,
        "target_node": node,
        "recorder_node": "host",
        "timeout_seconds": seconds,
        "deadline": deadline.to_string(),
    })
}

/// Writes a file whole under its name.
pub fn publish(directory: &Path, name: &str, content: &Value) {
    let temporary = directory.join(format!(".{name}.tmp"));
    fs::write(&temporary, content.to_string()).unwrap();
    fs::rename(&temporary, directory.join(name)).unwrap();
}

/// A rule for every node whose one task is run once.
pub fn serving(exec: &str) -> String {
    format!(
        "[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\nname = \"task\"\nexec = [\"{exec}\"]\nretry_count = 1\n"
    )
}

/// The names of claims and requests are made alike.
pub fn name_of(node: &str, id: &str) -> String {
    format!("{node}-{id}.json")
}

/// A process that is there and no zombie.
pub fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, fields)| fields.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

impl Scene {
    /// A scene without a responder whose one task notes its node in the file `ran` and runs until
    /// `let_go`; `top` comes before the rule in the configuration.
    pub fn gated_without_responder(top: &str) -> Self {
        let scene = Self::without_responder(&(top.to_owned() + &serving("DIR/gated")));
        scene.script(
            "gated",
            "mkfifo DIR/gate-$FENCE_REQUEST_ID 2>/dev/null; echo $FENCE_NODE >>DIR/ran\n\
             exec cat DIR/gate-$FENCE_REQUEST_ID",
        );
        scene
    }

    /// The same with its responder.
    pub fn gated(top: &str) -> Self {
        let mut scene = Self::gated_without_responder(top);
        scene.start();
        scene
    }

    /// Lets the task of this job end, once it runs.
    pub fn let_go(&self, id: &str) {
        use std::os::unix::fs::OpenOptionsExt;
        wait_for(&format!("the task of {id}\n{}", self.log()), || {
            // fails as long as nobody reads
            let mut gate = File::options();
            gate.write(true).custom_flags(nix::libc::O_NONBLOCK);
            gate.open(self.path(&format!("gate-{id}"))).ok()
        });
    }

    /// The lines of a file that tasks write, none if it isn't there.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until the file `ran` has so many lines, and returns them.
    pub fn ran(&self, count: usize) -> Vec<String> {
        wait_for(&format!("{count} tasks to run\n{}", self.log()), || {
            Some(self.lines("ran")).filter(|lines| lines.len() == count)
        })
    }

    /// Puts a file into request_dir, whole, under any name.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path("new"), bytes).unwrap();
        fs::rename(self.path("new"), self.path("requests").join(name)).unwrap();
    }

    /// Lays a claim into the spool, as a responder that died at once leaves it.
    pub fn lay_claim(&self, name: &str, request: &Value) {
        fs::create_dir_all(self.path("requests/.claimed")).unwrap();
        publish(&self.path("requests/.claimed"), name, request);
    }

    /// Withdraws a request as an agent does, whether it is claimed or not.
    pub fn withdraw(&self, node: &str, id: &str) {
        let name = name_of(node, id);
        let places = ["requests", "requests/.claimed"].map(|place| self.path(place).join(&name));
        wait_for("the request", || {
            places.iter().find_map(|place| fs::remove_file(place).ok())
        });
    }

    /// The answer to a request, if there is one by now.
    pub fn answered(&self, node: &str, id: &str) -> Option<Value> {
        self.json(&format!("responses/{}", name_of(node, id)))
    }

    /// The responder has seen all that came before, and still serves: a request that no rule serves
    /// is refused.
    pub fn still_serves(&self) {
        let id = self.request("on", "barrier", 30.0);
        assert_eq!(self.answer("barrier", &id)["success"], false);
        assert_eq!(reason_of(&self.ended_job(&id)), "NoRule");
    }

    /// Stops the responder in its tracks.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let stat = format!("/proc/{}/stat", self.pid());
        wait_for("the responder to stop", || {
            fs::read_to_string(&stat)
                .unwrap()
                .contains(") T ")
                .then_some(())
        });
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// A value of the responder in /proc/PID/status, in the unit that is used there.
    pub fn status(&self, key: &str) -> u64 {
        value_in(&format!("/proc/{}/status", self.pid()), key)
    }
}

/// A number in a status file of /proc.
pub fn value_in(path: &str, key: &str) -> u64 {
    let status = fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let words = line.unwrap().trim_start_matches(':').split_whitespace();
    words.take(1).collect::<String>().parse().unwrap()
}

/// RFC 3339 so many seconds from now.
pub fn seconds_from_now(seconds: f64) -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_secs_f64(seconds)).to_string()
}

/// The leader of the job's first attempt.
pub fn task_of(scene: &Scene, id: &str) -> Pid {
    let job = scene.job(id).unwrap();
    let group = &job["tasks"][0]["attempts"][0]["process_group"]["id"];
    Pid::from_raw(group.as_i64().unwrap().try_into().unwrap())
}
