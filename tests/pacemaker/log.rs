//! Pacemaker's log, and what it says of the agent.

use std::fs;
use std::path::Path;

/// The lines of one node's pacemaker.log.
pub struct Log {
    lines: Vec<String>,
}

impl Log {
    /// Reads the log; one that does not exist yet is empty.
    pub fn read(path: &Path) -> Self {
        let text = fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        Self {
            lines: text.lines().map(str::to_owned).collect(),
        }
    }

    /// What the agent wrote to stderr, line by line: Pacemaker logs each as a warning
    /// `fence_recorder[<pid>] stderr: [ <line> ]`.
    pub fn agent_stderr(&self) -> Vec<&str> {
        self.containing("fence_recorder[")
            .filter_map(|line| Some(line.split_once("] stderr: [ ")?.1.trim_end_matches(" ]")))
            .collect()
    }

    /// The lines with `text` in them.
    pub fn containing<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines
            .iter()
            .map(String::as_str)
            .filter(move |line| line.contains(text))
    }

    /// The last lines that tell of trouble or of fencing, for a failed test's message.
    pub fn highlights(&self) -> String {
        const MARKS: [&str; 4] = ["warning:", "error:", "crit:", "pacemaker-fenced"];
        let told: Vec<&str> = self
            .lines
            .iter()
            .map(String::as_str)
            .filter(|line| MARKS.iter().any(|mark| line.contains(mark)))
            // The fencer's bookkeeping of the configuration would fill the page.
            .filter(|line| !line.contains("(xml_patch_version_check)"))
            .collect();
        told[told.len().saturating_sub(60)..].join("\n")
    }
}
