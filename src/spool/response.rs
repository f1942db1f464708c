//! The response file: what the responder answers, and when that counts.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use super::calls::DirectoryCalls;
use super::file::{FileFault, read_regular};
use super::json::{pretty, read_object};
use super::name::FileName;
use super::publish::{PublishFault, publish};
use super::request::{Action, Request};
use super::time::timestamp_text;
use crate::text::one_line;

/// The most bytes of a response file (design 3.2).
pub const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

/// A response as it lies in response_dir (design 3.1). Unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(title = "The response to a fence request")
)]
pub struct Response {
    /// The request's id.
    pub request_id: String,
    /// Whether it was done. Only a JSON boolean counts.
    pub success: bool,
    /// For people: what was done, or why not.
    #[serde(
        default,
        deserialize_with = "text_or_nothing",
        skip_serializing_if = "Option::is_none"
    )]
    pub message: Option<String>,
    /// What was done to the node: off, reboot, on.
    #[serde(
        default,
        deserialize_with = "anything",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub action_performed: Option<serde_json::Value>,
    /// The request's node; where it is given, it must be the same.
    #[serde(
        default,
        deserialize_with = "anything",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub target_node: Option<serde_json::Value>,
    /// When it was written (nnf-sos copies the request's), RFC 3339.
    #[serde(
        default,
        deserialize_with = "text_or_nothing",
        skip_serializing_if = "Option::is_none"
    )]
    pub timestamp: Option<String>,
}

/// Why a file is no response that counts (design 3.2).
#[derive(Debug, Error)]
pub enum ResponseFault {
    /// It isn't a file that counts.
    #[error(transparent)]
    File(#[from] FileFault),
    /// It isn't the one JSON object it should be.
    #[error("holds no valid response: {0}")]
    Json(#[from] serde_json::Error),
    /// It answers something else.
    #[error("is for another request: its request_id is \"{}\"", one_line(.0))]
    Request(String),
    /// It speaks of another node.
    #[error("is for another node: its target_node is {}", one_line(.0))]
    Node(String),
}

impl ResponseFault {
    /// Whether nothing that a responder may still write can mend it (design 3.2).
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::File(FileFault::TooLarge(_)))
    }

    /// Whether no response is there at all.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::File(FileFault::Missing))
    }
}

impl Response {
    /// The answer to `request`, given now; `performed` is what was done to the node.
    #[must_use]
    pub fn to(request: &Request, success: bool, message: &str, performed: Action) -> Self {
        Self {
            request_id: request.request_id.clone(),
            success,
            message: Some(message.to_owned()),
            action_performed: success.then(|| performed.as_str().into()),
            target_node: Some(request.target_node.as_str().into()),
            timestamp: Some(timestamp_text(Timestamp::now())),
        }
    }

    /// Reads the answer to the request `name`.
    ///
    /// # Errors
    /// Why it doesn't count.
    pub fn read<D: DirectoryCalls>(directory: &D, name: &FileName) -> Result<Self, ResponseFault> {
        let file = read_regular(directory, name.as_str(), MAX_RESPONSE_BYTES, true)?;
        Self::from_bytes(&file.bytes, name.request_id(), name.node())
    }

    /// The content of a response file, if it answers the request `request_id` about `node`.
    ///
    /// # Errors
    /// Why it doesn't.
    pub fn from_bytes(bytes: &[u8], request_id: &str, node: &str) -> Result<Self, ResponseFault> {
        let response: Self = read_object(bytes)?;
        if response.request_id != request_id {
            return Err(ResponseFault::Request(response.request_id));
        }
        match &response.target_node {
            Some(other) if other != node => Err(ResponseFault::Node(other.to_string())),
            _ => Ok(response),
        }
    }

    /// Writes it into `directory` under the request's name.
    ///
    /// # Errors
    /// See [`publish`]; EEXIST where an answer is there already.
    pub fn publish<D: DirectoryCalls>(
        &self,
        directory: &D,
        name: &FileName,
    ) -> Result<(), PublishFault> {
        publish(directory, name, &pretty(self))
    }

    /// Whether this success leaves the node fenced: `off` was done, or it doesn't say (design 3.2).
    #[must_use]
    pub fn leaves_the_node_off(&self) -> bool {
        self.success
            && self
                .action_performed
                .as_ref()
                .is_none_or(|action| action == "off")
    }

    /// The message in one line, as text that can't disturb a log; empty if there is none.
    #[must_use]
    pub fn message_line(&self) -> String {
        one_line(self.message.as_deref().unwrap_or_default())
    }
}

/// Fields that are only shown: an odd type is as good as none (design 8).
fn text_or_nothing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => Some(text),
        _ => None,
    })
}

/// Keeps null apart from a field that isn't there: a null target_node is another node (design 8).
fn anything<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(deserializer).map(Some)
}
