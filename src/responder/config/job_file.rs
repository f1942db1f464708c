//! A job that is run by hand: tasks as a rule has them, without a rule.

use std::path::Path;
use std::sync::Arc;

use super::bmc::{self, Bmc};
use super::reader::Table;
use super::rule::ACTIONS;
use super::task::{Reader, Task};
use super::{ConfigFault, load};
use crate::spool::request::Action;

/// What such a file says.
#[derive(Debug)]
pub struct JobFile {
    /// What tasks take that depend on what was asked for.
    pub action: Option<Action>,
    /// What is run, in order.
    pub tasks: Vec<Arc<Task>>,
}

impl JobFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// When others could have written it, or anything in it is wrong.
    pub fn load(path: &Path) -> Result<Self, ConfigFault> {
        load(path, Self::read)
    }

    fn read(table: Table<'_>) -> Self {
        let bmcs: Arc<[Bmc]> = bmc::read_all(&table).into();
        let action = table.choice("action", ACTIONS);
        let tasks = table.tables("task");
        let complain = |message: String| table.faults.add(&table.span, message);
        if tasks.is_empty() {
            complain("there is no [[task]]: nothing would be done".to_owned());
        }
        let tasks = Reader::new(&table, &bmcs).tasks(tasks, "this job");
        for task in &tasks {
            if action.is_none() && task.needs_action() {
                complain(format!(
                    "task \"{}\" takes the action that was asked for: set action = \"off\", \"on\" or \"reboot\"",
                    task.name
                ));
            }
        }
        table.finish();
        Self { action, tasks }
    }
}
