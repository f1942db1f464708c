//! `fence_recorder run` on a simulated BMC.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::env::{AGENT, Ended};
use crate::server::PASSWORD;

/// What became of a job.
pub struct Outcome {
    pub ended: Ended,
    pub job: Value,
}

/// Runs these tasks for `node`; each is the lines of a `[[task]]`.
pub fn run(bmc: &str, tasks: &[&str], node: &str) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    let (mut command, _) = command(&directory, bmc, tasks, node);
    let ended = Ended::from(command.arg("--json").output().unwrap());
    let job = serde_json::from_str(&ended.stdout).unwrap_or_default();
    let outcome = Outcome { ended, job };
    outcome.has_no_secret();
    outcome
}

/// The command, and the path of its job file.
pub fn command(directory: &TempDir, bmc: &str, tasks: &[&str], node: &str) -> (Command, String) {
    let path = directory.path().join("job.toml");
    let tasks: Vec<_> = tasks
        .iter()
        .map(|task| format!("[[task]]\n{task}\n"))
        .collect();
    let defaults = "[defaults]\nretry_count = 1\ntimeout = \"8s\"\n";
    fs::write(&path, format!("{defaults}{bmc}{}", tasks.concat())).unwrap();
    let mut command = Command::new(AGENT);
    command
        .arg("run")
        .arg(&path)
        .args(["--node", node, "--request-dir", "/no/such/spool"])
        .stdin(Stdio::null());
    (command, path.display().to_string())
}

impl Outcome {
    /// The message of the task `number`, from 0.
    pub fn message(&self, number: usize) -> &str {
        self.job["tasks"][number]["message"]
            .as_str()
            .unwrap_or_default()
    }

    /// Every task completed, and the last one said this.
    #[track_caller]
    pub fn says(&self, words: &str) -> &Self {
        assert_eq!(self.ended.code, Some(0), "{:?}", self.ended);
        let tasks = self.job["tasks"].as_array().unwrap();
        assert!(
            tasks.iter().all(|task| task["state"] == "Completed"),
            "{}",
            self.job
        );
        let last = self.message(tasks.len() - 1);
        assert!(last.contains(words), "{words} in {last}");
        self
    }

    /// The job failed at its last task that was begun, which said all of this.
    #[track_caller]
    pub fn fails(&self, words: &[&str]) -> &Self {
        assert_eq!(self.ended.code, Some(1), "{:?}", self.ended);
        let tasks = self.job["tasks"]
            .as_array()
            .unwrap_or_else(|| panic!("{:?}", self.ended));
        let failed = tasks.iter().find(|task| task["state"] == "Failed").unwrap();
        let message = failed["message"].as_str().unwrap();
        for word in words {
            assert!(message.contains(word), "{word} in {message}");
        }
        let conditions = self.job["conditions"].as_array().unwrap();
        assert_eq!(conditions[2]["status"], "False", "{}", self.job);
        assert_eq!(conditions[2]["reason"], "TaskFailed", "{}", self.job);
        self
    }

    #[track_caller]
    fn has_no_secret(&self) {
        for text in [&self.ended.stdout, &self.ended.stderr] {
            assert!(!text.contains(PASSWORD), "{text}");
        }
    }
}
