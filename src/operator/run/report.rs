//! What `run` prints: what would be done, or what was.

use std::io::{self, Write};
use std::sync::Arc;

use serde_json::json;

use super::Record;
use crate::jobs::record::TaskRecord;
use crate::responder::config::Task;
use crate::responder::prepare::Prepared;
use crate::spool::json::pretty;

/// Prints what would be done.
///
/// # Errors
/// When it can't be printed.
pub fn plan(
    record: &Record,
    tasks: &[Arc<Task>],
    prepared: &[Prepared],
    as_json: bool,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        let tasks = tasks.iter().zip(prepared).map(|(task, prepared)| {
            json!({
                "name": task.name,
                "does": prepared.shown,
                "retry_count": task.retry_count,
                "retry_interval_seconds": task.retry_interval.as_secs_f64(),
                "timeout_seconds": task.timeout.as_secs_f64(),
            })
        });
        let plan = json!({"node": record.node, "tasks": tasks.collect::<Vec<_>>()});
        return out.write_all(&pretty(&plan));
    }
    writeln!(out, "would be done for {}:", record.node)?;
    for (number, (task, prepared)) in tasks.iter().zip(prepared).enumerate() {
        writeln!(out, "  {}. {}: {}", number + 1, task.name, prepared.shown)?;
        if let Some(warning) = &prepared.warning {
            writeln!(out, "     warning: {warning}")?;
        }
    }
    Ok(())
}

/// Prints how the job ended.
///
/// # Errors
/// When it can't be printed.
pub fn outcome(record: &Record, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        return out.write_all(&pretty(record));
    }
    let width = record.tasks.iter().map(|task| task.name.chars().count());
    let width = width.max().unwrap_or(0);
    for (number, task) in record.tasks.iter().enumerate() {
        let (name, state) = (&task.name, format!("{:?}", task.state));
        let attempts = attempts(task);
        writeln!(out, "{}. {name:width$}  {state:11}  {attempts}", number + 1)?;
    }
    for condition in &record.conditions {
        let kind = format!("{:?}", condition.kind);
        let status = format!("{:?}", condition.status);
        let reason = format!("{:?}", condition.reason);
        writeln!(out, "{kind:25}  {status:7}  {reason}")?;
    }
    match record.conditions.first() {
        Some(condition) => writeln!(out, "{}: {}", record.node, condition.message),
        None => Ok(()),
    }
}

fn attempts(task: &TaskRecord) -> String {
    let message = task.message.as_deref().unwrap_or_default();
    match task.attempts.len() {
        0 => String::new(),
        1 => message.to_owned(),
        made => format!("{made} attempts: {message}"),
    }
}
