//! Where the spool and its logs are unless something else is said.

/// A directory that every face can be told of.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The environment variable that names it.
    pub environment: &'static str,
    /// Where it is otherwise.
    pub default: &'static str,
}

/// Where requests are.
pub const REQUEST_DIR: Place = Place {
    environment: "NNF_FENCE_REQUEST_DIR",
    default: "/run/fence_recorder/requests",
};

/// Where responses are.
pub const RESPONSE_DIR: Place = Place {
    environment: "NNF_FENCE_RESPONSE_DIR",
    default: "/run/fence_recorder/responses",
};

/// Where the audit is.
pub const LOG_DIR: Place = Place {
    environment: "LOG_DIR",
    default: "/var/log/cluster",
};
