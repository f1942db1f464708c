//! Which nodes count as fenced, read from the response files.

use std::collections::BTreeMap;

use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;

use super::directory::Directory;
use super::name::FileName;
use super::response::Response;

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

    /// Whether `node` is fenced: the newest (mtime) successful response that counts as a file did
    /// `off`, or doesn't say what it did (design 3.2). Where several are equally new, all must.
    #[must_use]
    pub fn is_fenced(&self, responses: &Directory, node: &str) -> bool {
        let mut successes = self
            .newest_first(responses, node)
            .filter_map(|(written, name)| {
                let response = Response::read(responses, name).ok()?;
                response
                    .success
                    .then(|| (written, response.leaves_the_node_off()))
            });
        let Some((newest, is_off)) = successes.next() else {
            return false;
        };
        is_off
            && successes
                .take_while(|(written, _)| *written == newest)
                .all(|(_, is_off)| is_off)
    }

    fn newest_first(
        &self,
        responses: &Directory,
        node: &str,
    ) -> impl Iterator<Item = ((i64, i64), &FileName)> {
        let names = self.0.get(node).map(Vec::as_slice).unwrap_or_default();
        let mut files: Vec<_> = names
            .iter()
            .filter_map(|name| {
                let status =
                    fstatat(responses, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
                Some(((status.st_mtime, status.st_mtime_nsec), name))
            })
            .collect();
        files.sort_unstable_by_key(|(written, _)| std::cmp::Reverse(*written));
        files.into_iter()
    }
}
