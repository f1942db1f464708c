//! Which nodes count as fenced, read from the response files.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::calls::DirectoryCalls;
use super::directory::Directory;
use super::name::FileName;
use super::response::Response;

/// What leaves a node fenced.
#[derive(Debug)]
pub struct Fencing {
    /// The response's file.
    pub name: FileName,
    /// When it was written.
    pub written: Timestamp,
    /// What it says.
    pub response: Response,
}

/// The responses in a directory by node; nothing but names was read.
#[derive(Debug, Default)]
pub struct ResponseNames(BTreeMap<String, Vec<FileName>>);

impl ResponseNames {
    /// Collects the names of responses about nodes that `wanted` says yes to, so that a million
    /// files of others cost no parsing (design 4.2).
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn collect(responses: &Directory, wanted: impl Fn(&str) -> bool) -> nix::Result<Self> {
        let mut by_node: BTreeMap<String, Vec<FileName>> = BTreeMap::new();
        responses.for_each_name(|name| {
            if let Some(name) = FileName::parse(name)
                && wanted(name.node())
            {
                by_node
                    .entry(name.node().to_owned())
                    .or_default()
                    .push(name);
            }
            true
        })?;
        Ok(Self(by_node))
    }

    /// The nodes that have a response.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The names of the responses about `node`.
    #[must_use]
    pub fn of(&self, node: &str) -> &[FileName] {
        self.0.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether `node` is fenced.
    #[must_use]
    pub fn is_fenced(&self, responses: &Directory, node: &str) -> bool {
        self.fenced_by(responses, node).is_some()
    }

    /// The response that leaves `node` fenced, if it is: the newest (mtime) successful response that
    /// counts as a file, if it did `off`, or doesn't say what it did (design 3.2). Where several are
    /// equally new, all must.
    #[must_use]
    pub fn fenced_by(&self, responses: &Directory, node: &str) -> Option<Fencing> {
        let mut successes = self
            .newest_first(responses, node)
            .filter_map(|(written, name)| {
                let response = Response::read(responses, name).ok()?;
                response.success.then_some((written, name, response))
            });
        let (newest, name, response) = successes.next()?;
        let is_off = response.leaves_the_node_off()
            && successes
                .take_while(|(written, ..)| *written == newest)
                .all(|(.., response)| response.leaves_the_node_off());
        is_off.then(|| Fencing {
            name: name.clone(),
            written: newest,
            response,
        })
    }

    fn newest_first(
        &self,
        responses: &Directory,
        node: &str,
    ) -> impl Iterator<Item = (Timestamp, &FileName)> {
        let written = |name: &FileName| responses.written(name.as_str().as_ref());
        let mut files: Vec<_> = self
            .of(node)
            .iter()
            .filter_map(|name| Some((written(name)?, name)))
            .collect();
        files.sort_unstable_by_key(|(written, _)| std::cmp::Reverse(*written));
        files.into_iter()
    }
}
