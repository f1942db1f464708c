//! A person's answer to a request, on its way to the responder that holds the claim.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::directory::Directory;
use super::file::{FileFault, read_regular};
use super::json::{pretty, read_object};
use super::name::FileName;
use super::publish::{PublishFault, publish};
use super::request::MAX_REQUEST_BYTES;
use super::time::timestamp_text;

/// Where answers of people lie, below request_dir, under their request's name.
pub const ANSWERS: &str = ".answers";

/// What a person says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The request's id.
    pub request_id: String,
    /// Whether the node is safe, or the rule's tasks may run.
    pub success: bool,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Who says it, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When, RFC 3339.
    pub timestamp: String,
}

/// Why a file in `.answers` doesn't count.
#[derive(Debug, Error)]
pub enum AnswerFault {
    /// It isn't a file that counts.
    #[error(transparent)]
    File(#[from] FileFault),
    /// It isn't the one JSON object it should be.
    #[error("holds no valid answer: {0}")]
    Json(#[from] serde_json::Error),
    /// It answers something else.
    #[error("is for another request")]
    Request,
}

impl AnswerFault {
    /// Whether no answer is there at all.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::File(FileFault::Missing))
    }
}

impl Answer {
    /// An answer to the request `id`, given now.
    #[must_use]
    pub fn new(id: &str, success: bool, message: Option<String>, by: Option<String>) -> Self {
        Self {
            request_id: id.to_owned(),
            success,
            message,
            by,
            timestamp: timestamp_text(Timestamp::now()),
        }
    }

    /// Writes it into `.answers` by the steps of design 3.1.
    ///
    /// # Errors
    /// See [`publish`]; EEXIST where there is one already.
    pub fn publish(&self, answers: &Directory, name: &FileName) -> Result<(), PublishFault> {
        publish(answers, name, &pretty(self))
    }

    /// Reads the answer to the request `name`. Only root's counts, whoever owns the spool: it vouches
    /// that a node is safe.
    ///
    /// # Errors
    /// Why it doesn't count.
    pub fn read(answers: &Directory, name: &FileName) -> Result<Self, AnswerFault> {
        let file = read_regular(answers, name.as_str(), MAX_REQUEST_BYTES, false)?;
        if file.status.st_uid != 0 {
            return Err(FileFault::Owner(file.status.st_uid).into());
        }
        let answer: Self = read_object(&file.bytes)?;
        if answer.request_id == name.request_id() {
            Ok(answer)
        } else {
            Err(AnswerFault::Request)
        }
    }
}
