//! Figures for node_exporter's textfile collector.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::jobs::record::Reason;
use crate::spool::directory::{Directory, Role, Trust};
use crate::spool::publish::{MODE, replace};

/// What is counted since the start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// Requests that were claimed or adopted.
    pub requests: u64,
    /// Files in request_dir that were no request.
    pub rejected: u64,
    /// Ended jobs by how they ended.
    pub ended: BTreeMap<Reason, u64>,
    /// The time that ended jobs were at work, in seconds.
    pub seconds: f64,
    /// Jobs whose tasks run.
    pub running: usize,
    /// Jobs that wait for their turn or for a person.
    pub pending: usize,
    /// The age of the oldest of those, in seconds; 0 without any.
    pub oldest_pending: f64,
}

impl Metrics {
    /// Counts an ended job.
    pub fn count_end(&mut self, reason: Reason, seconds: f64) {
        *self.ended.entry(reason).or_default() += 1;
        self.seconds += seconds;
    }

    /// In the text format of Prometheus.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut say = |name: &str, kind: &str, help: &str, values: &[(String, String)]| {
            let name = format!("fence_recorder_responder_{name}");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let one = |value: String| vec![(String::new(), value)];
        say(
            "requests_total",
            "counter",
            "Requests claimed.",
            &one(self.requests.to_string()),
        );
        say(
            "rejected_total",
            "counter",
            "Files that were no request.",
            &one(self.rejected.to_string()),
        );
        let ended = Reason::ENDS.map(|reason| {
            let count = self.ended.get(&reason).copied().unwrap_or(0);
            (format!("{{outcome=\"{reason}\"}}"), count.to_string())
        });
        say(
            "jobs_total",
            "counter",
            "Jobs ended, by how they ended.",
            &ended,
        );
        let count: u64 = self.ended.values().sum();
        let name = "job_duration_seconds";
        let summary = [
            ("_sum".to_owned(), format!("{:.6}", self.seconds)),
            ("_count".to_owned(), count.to_string()),
        ];
        say(
            name,
            "summary",
            "How long ended jobs were at work.",
            &summary,
        );
        say(
            "jobs_running",
            "gauge",
            "Jobs whose tasks run.",
            &one(self.running.to_string()),
        );
        say(
            "jobs_pending",
            "gauge",
            "Jobs that wait for their turn or for a person.",
            &one(self.pending.to_string()),
        );
        say(
            "oldest_pending_seconds",
            "gauge",
            "Age of the oldest pending job.",
            &one(format!("{:.3}", self.oldest_pending)),
        );
        text
    }

    /// Writes them to `path`, whole or not at all, readable by everybody. The collector reads only
    /// names that end in `.prom`, so it never sees the temporary one.
    ///
    /// # Errors
    /// What failed, on which path.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(directory), Some(name)) = (path.parent(), name) else {
            return Err(format!(
                "metrics_file {} is no path of a file",
                path.display()
            ));
        };
        let directory = Directory::open(directory, Role::Responses, Trust::Waived)
            .map_err(|fault| format!("metrics_file {fault}"))?;
        replace(&directory, name, self.text().as_bytes(), MODE)
            .map_err(|fault| format!("metrics_file {fault}"))
    }
}
