//! The agent's own account of what it did on a node.

use std::fs;

use serde_json::Value;

use crate::node::Node;

const DETAILED: &str = "/var/log/cluster/fence-events-detailed.jsonl";

/// All events in the node's detailed audit log, oldest first.
pub fn events(node: &Node) -> Vec<Value> {
    text(node)
        .lines()
        .map(|line| serde_json::from_str(line).expect("every audit line is JSON"))
        .collect()
}

/// The detailed audit log as it is; empty if there is none.
pub fn text(node: &Node) -> String {
    fs::read_to_string(node.file(DETAILED)).unwrap_or_default()
}

/// The statuses of one request in the order they were recorded.
pub fn statuses(node: &Node, request_id: &str) -> Vec<String> {
    events(node)
        .iter()
        .filter(|event| event["request_id"] == request_id)
        .map(|event| {
            event["status"]
                .as_str()
                .expect("a status is text")
                .to_owned()
        })
        .collect()
}
