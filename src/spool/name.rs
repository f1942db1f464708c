//! Node names, and the names of request and response files that are made from them.

use std::ffi::OsStr;
use std::fmt;

use thiserror::Error;
use uuid::Uuid;

/// The most bytes of a node name, so that `.<node>-<uuid>.json.tmp` fits the 255 of a file name
/// (design 4.1).
pub const MAX_NODE_NAME_BYTES: usize = 208;

const SUFFIX: &str = ".json";
const SHORT_ID_LENGTH: usize = 8;
const UUID_LENGTH: usize = uuid::fmt::Hyphenated::LENGTH;

/// The name of a node (or of a plug of its fence device) that is safe to be part of a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeName(String);

/// Why a text is no node name (design 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NodeNameFault {
    /// Nothing is there.
    #[error("a node name can't be empty")]
    Empty,
    /// More than [`MAX_NODE_NAME_BYTES`].
    #[error("a node name has at most {MAX_NODE_NAME_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// A `/` would lead out of the spool.
    #[error("a node name can't hold a '/'")]
    Slash,
    /// A control character, a line break for one.
    #[error("a node name can't hold control characters")]
    Control,
    /// Readers ignore names that start with a dot.
    #[error("a node name can't start with '.'")]
    LeadingDot,
    /// It would look like an option.
    #[error("a node name can't start with '-'")]
    LeadingDash,
}

impl NodeName {
    /// Takes `text` as it is.
    ///
    /// # Errors
    /// When it breaks a rule of design 4.1.
    pub fn parse(text: &str) -> Result<Self, NodeNameFault> {
        match text.chars().next() {
            None => Err(NodeNameFault::Empty),
            Some('.') => Err(NodeNameFault::LeadingDot),
            Some('-') => Err(NodeNameFault::LeadingDash),
            _ if text.len() > MAX_NODE_NAME_BYTES => Err(NodeNameFault::TooLong(text.len())),
            _ if text.contains('/') => Err(NodeNameFault::Slash),
            _ if text.chars().any(char::is_control) => Err(NodeNameFault::Control),
            _ => Ok(Self(text.to_owned())),
        }
    }

    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name that a request and its response share: `<node>-<uuid>.json` (design 3.1).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileName {
    name: String,
    node_length: usize,
}

impl FileName {
    /// The name for the request `id` about `node`.
    #[must_use]
    pub fn new(node: &NodeName, id: Uuid) -> Self {
        Self {
            name: format!("{node}-{id}{SUFFIX}"),
            node_length: node.0.len(),
        }
    }

    /// Takes apart a name found in a spool directory; `None` if it is no request's or response's.
    #[must_use]
    pub fn parse(name: &OsStr) -> Option<Self> {
        let name = name.to_str()?;
        let stem = name.strip_suffix(SUFFIX)?;
        let node_length = stem.len().checked_sub(UUID_LENGTH + 1)?;
        let (node, id) = (
            stem.get(..node_length)?,
            stem.get(node_length..)?.strip_prefix('-')?,
        );
        NodeName::parse(node).ok()?;
        is_hyphenated_uuid(id).then(|| Self {
            name: name.to_owned(),
            node_length,
        })
    }

    /// The whole file name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The node's part.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.name[..self.node_length]
    }

    /// The request's id, as it is spelled in the name.
    #[must_use]
    pub fn request_id(&self) -> &str {
        &self.name[self.node_length + 1..self.name.len() - SUFFIX.len()]
    }

    /// The first characters of its id, which tell it from others well enough for people.
    #[must_use]
    pub fn short_id(&self) -> &str {
        short_id(self.request_id())
    }

    /// Whether `text` is its id, or the beginning of it.
    #[must_use]
    pub fn has_id(&self, text: &str) -> bool {
        is_id(self.request_id(), text)
    }

    /// The name under which the file is written before it is published (design 3.1).
    #[must_use]
    pub fn temporary(&self) -> String {
        format!(".{}.tmp", self.name)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The first characters of a request's id, as people's tables show it.
#[must_use]
pub fn short_id(id: &str) -> &str {
    id.get(..SHORT_ID_LENGTH).unwrap_or(id)
}

/// Whether `text` names the request `id`: whole, or by as many first characters as tables show.
#[must_use]
pub fn is_id(id: &str, text: &str) -> bool {
    id == text || (text.len() >= SHORT_ID_LENGTH && id.starts_with(text))
}

/// Whether a directory entry is a temporary file of design 3.1 (`.<name>.json.tmp`).
#[must_use]
pub fn is_temporary(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.starts_with('.') && name.ends_with(".json.tmp"))
}

fn is_hyphenated_uuid(text: &str) -> bool {
    // Uuid also takes simple, braced and urn forms; those have other lengths
    text.len() == UUID_LENGTH && Uuid::try_parse(text).is_ok()
}
