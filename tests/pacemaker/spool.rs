//! The directories through which the agent and a responder talk.

use std::fs;
use std::path::{Path, PathBuf};

use crate::node::Node;

/// Where the agent looks when it isn't told.
pub const DIR: &str = "/run/fence_recorder";

/// A spool on one node, as paths the test can use.
#[derive(Clone)]
pub struct Spool {
    pub requests: PathBuf,
    pub responses: PathBuf,
}

impl Spool {
    /// Creates the spool on a node, as an administrator would.
    pub fn create(node: &Node) -> Self {
        let requests = format!("{DIR}/requests");
        let responses = format!("{DIR}/responses");
        node.run(&format!("install -d -m 0755 {DIR} {requests} {responses}"))
            .ok();
        Self {
            requests: node.file(&requests),
            responses: node.file(&responses),
        }
    }

    /// The names of the requests that wait now.
    pub fn pending(&self) -> Vec<String> {
        names(&self.requests)
    }

    /// The names of the responses.
    pub fn answered(&self) -> Vec<String> {
        names(&self.responses)
    }
}

/// The names of the JSON files in a directory; the protocol's readers ignore all else.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            entry
                .file_name()
                .into_string()
                .expect("names are UTF-8 here")
        })
        .filter(|name| !name.starts_with('.') && is_json(name))
        .collect()
}

fn is_json(name: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "json")
}
