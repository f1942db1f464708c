//! The request file: what the agent asks for.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use super::calls::DirectoryCalls;
use super::file::{FileFault, read_regular};
use super::json::read_object;
use super::name::{FileName, NodeName, NodeNameFault};
use super::publish::{PublishFault, publish};
use super::time::{from_file_time, timestamp_text};

/// The most bytes of a request file (design 3.2).
pub const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// The most time before its deadline that a request is too late to be executed (design 3.4).
const MAX_MARGIN: Duration = Duration::from_secs(3);

/// How far the clock of a request's host may be ahead of the responder's (design 3.4).
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

/// How long a request without a deadline is good for (design 3.2: `fence_dummy` knows none).
const TIME_WITHOUT_DEADLINE: SignedDuration = SignedDuration::from_secs(60);

/// What can be asked of a node through the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Take it out of service: without power, or without its storage.
    Off,
    /// Bring it back.
    On,
    /// Off, then on.
    Reboot,
}

impl Action {
    /// As it is written in files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Reboot => "reboot",
        }
    }
}

/// A request as it lies in request_dir (design 3.1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(title = "A fence request")
)]
pub struct Request {
    /// UUID, version 4; the response repeats it.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "uuid")))]
    pub request_id: String,
    /// When it was written, RFC 3339 with offset.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub timestamp: String,
    /// What was asked for.
    pub action: Action,
    /// The node or plug to fence.
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(min = 1, max = 208),
            regex(pattern = r"^[^./\-\x00-\x1f\x7f-\x9f][^/\x00-\x1f\x7f-\x9f]*$")
        )
    )]
    pub target_node: String,
    /// The host that runs the agent.
    pub recorder_node: String,
    /// Pacemaker's name of the target, where it differs from target_node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodename: Option<String>,
    /// How long the agent waits, in seconds, from the timestamp on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0)))]
    pub timeout_seconds: Option<f64>,
    /// When the agent stops waiting, RFC 3339: a responder must not start after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub deadline: Option<String>,
}

/// Why a file in request_dir is no request that counts (design 3.2).
#[derive(Debug, Error)]
pub enum RequestFault {
    /// It isn't a file that counts.
    #[error(transparent)]
    File(#[from] FileFault),
    /// It isn't the one JSON object it should be.
    #[error("holds no valid request: {0}")]
    Json(#[from] serde_json::Error),
    /// Its node can't be one.
    #[error("names a target_node that is none: {0}")]
    Node(#[from] NodeNameFault),
    /// The name must follow from the content.
    #[error("is not named <target_node>-<request_id>.json")]
    Name,
}

impl Request {
    /// A new request, from now on good for `timeout`.
    #[must_use]
    pub fn new(
        action: Action,
        target: &NodeName,
        nodename: Option<&str>,
        host: &str,
        timeout: Duration,
    ) -> Self {
        let now = Timestamp::now();
        let deadline = SignedDuration::try_from(timeout)
            .ok()
            .and_then(|timeout| now.checked_add(timeout).ok());
        Self {
            request_id: Uuid::new_v4().to_string(),
            timestamp: timestamp_text(now),
            action,
            target_node: target.as_str().to_owned(),
            recorder_node: host.to_owned(),
            nodename: nodename
                .filter(|name| *name != target.as_str())
                .map(str::to_owned),
            timeout_seconds: Some(timeout.as_secs_f64()),
            deadline: deadline.map(timestamp_text),
        }
    }

    /// The file's name; it follows from node and id.
    ///
    /// # Errors
    /// When node or id are none.
    pub fn file_name(&self) -> Result<FileName, RequestFault> {
        let node = NodeName::parse(&self.target_node)?;
        let name = format!("{node}-{}.json", self.request_id);
        FileName::parse(name.as_ref())
            .filter(|name| name.node() == self.target_node)
            .ok_or(RequestFault::Name)
    }

    /// Writes it into `directory` under its name.
    ///
    /// # Errors
    /// See [`publish`].
    pub fn publish<D: DirectoryCalls>(
        &self,
        directory: &D,
        name: &FileName,
    ) -> Result<(), PublishFault> {
        publish(directory, name, &super::json::pretty(self))
    }

    /// Reads the file `name`, with when it was last written.
    ///
    /// # Errors
    /// Why it doesn't count.
    pub fn read<D: DirectoryCalls>(
        directory: &D,
        name: &FileName,
    ) -> Result<(Self, Timestamp), RequestFault> {
        let file = read_regular(directory, name.as_str(), MAX_REQUEST_BYTES, false)?;
        let request = Self::from_bytes(&file.bytes, name)?;
        Ok((request, from_file_time(&file.status)))
    }

    /// The content of the request file `name`.
    ///
    /// # Errors
    /// Why it is none.
    pub fn from_bytes(bytes: &[u8], name: &FileName) -> Result<Self, RequestFault> {
        let request: Self = read_object(bytes)?;
        NodeName::parse(&request.target_node)?;
        if request.target_node != name.node() || request.request_id != name.request_id() {
            return Err(RequestFault::Name);
        }
        Ok(request)
    }

    /// The moment after which it must not be executed any more, given when the file was `written`:
    /// its deadline, or for a request without one (`fence_dummy`) 60 s after its timestamp, but no
    /// later than 60 s after it was written (design 3.2).
    #[must_use]
    pub fn deadline(&self, written: Timestamp) -> Timestamp {
        self.own_deadline().unwrap_or_else(|| {
            let timestamp = self.timestamp.parse().unwrap_or(written);
            timestamp
                .min(written)
                .checked_add(TIME_WITHOUT_DEADLINE)
                .unwrap_or(Timestamp::MAX)
        })
    }

    /// How long before its deadline it is too late to start executing it: the smaller of 3 s and a
    /// quarter of its timeout (design 3.4).
    #[must_use]
    pub fn margin(&self) -> Duration {
        let timeout = self.timeout_seconds.filter(|seconds| *seconds > 0.0);
        let quarter = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds / 4.0).ok());
        quarter.map_or(MAX_MARGIN, |quarter| quarter.min(MAX_MARGIN))
    }

    /// Whether its host's clock is so far ahead of this one's that no deadline means anything
    /// (design 3.4).
    #[must_use]
    pub fn is_from_the_future(&self, now: Timestamp) -> bool {
        let limit = now.checked_add(CLOCK_TOLERANCE).unwrap_or(Timestamp::MAX);
        let timestamp = self.timestamp.parse::<Timestamp>();
        timestamp.is_ok_and(|timestamp| timestamp > limit)
    }

    /// The deadline it names itself, if it can be read.
    #[must_use]
    pub fn own_deadline(&self) -> Option<Timestamp> {
        self.deadline.as_deref()?.parse().ok()
    }
}
