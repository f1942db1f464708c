//! Which nodes a part of the configuration is about: names and globs.

use globset::{Glob, GlobSet, GlobSetBuilder};

use super::reader::{At, Table};

/// Node names and globs.
#[derive(Debug)]
pub struct Nodes {
    /// As they were written.
    pub patterns: Vec<String>,
    matcher: GlobSet,
}

impl Nodes {
    /// Reads the key `nodes` of `table`, which is `what` for people.
    pub(super) fn read(table: &Table<'_>, what: &str) -> Self {
        let nodes = table.texts("nodes");
        if nodes.is_none() && !table.has("nodes") {
            let message = format!("{what} needs nodes: a list of names or globs, [\"*\"] for all");
            table.faults.add(&table.span, message);
        }
        let nodes = nodes.unwrap_or_default();
        Self {
            matcher: read_globs(table, &nodes),
            patterns: nodes.iter().map(|node| node.value.to_owned()).collect(),
        }
    }

    /// Whether `node` is one of them.
    #[must_use]
    pub fn has(&self, node: &str) -> bool {
        self.matcher.is_match(node)
    }

    /// Whether every node of `pattern` is surely one of them.
    #[must_use]
    pub fn take(&self, pattern: &str) -> bool {
        let is_taken = |own: &String| own == pattern || own == "*";
        self.patterns.iter().any(is_taken) || (is_name(pattern) && self.has(pattern))
    }

    /// Those that are names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let patterns = self.patterns.iter().map(String::as_str);
        patterns.filter(|pattern| is_name(pattern))
    }
}

fn is_name(pattern: &str) -> bool {
    !pattern.contains(['*', '?', '[', '{', '\\'])
}

fn read_globs(table: &Table<'_>, nodes: &[At<&str>]) -> GlobSet {
    let mut globs = GlobSetBuilder::new();
    for node in nodes {
        if node.value.is_empty() || node.value.contains('/') {
            let message = format!(
                "\"{}\" can match no node: a node's name is not empty and has no '/'",
                node.value
            );
            table.faults.add(&node.span, message);
        }
        match Glob::new(node.value) {
            Ok(glob) => _ = globs.add(glob),
            Err(error) => table.faults.add(&node.span, error),
        }
    }
    globs.build().unwrap_or_else(|error| {
        table.faults.add(&table.span, error);
        GlobSet::empty()
    })
}
