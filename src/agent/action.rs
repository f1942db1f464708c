//! What the agent can be asked to do; metadata, manual and parsing are made from this.

use std::fmt;

use crate::spool::request;

/// An action of the fence-agents API (design 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // each is described in ACTIONS below
pub enum Action {
    Off,
    Reboot,
    On,
    Status,
    Monitor,
    List,
    ListStatus,
    Metadata,
    Manpage,
    ValidateAll,
}

/// One action's names and meaning.
#[derive(Debug)]
pub struct ActionInfo {
    /// Which.
    pub action: Action,
    /// As it is written; the first is in the metadata and the manual.
    pub names: &'static [&'static str],
    /// Whether the metadata names it. Not `list`: a device without a host list would then be asked
    /// for its nodes, and this agent fences any (design 2).
    pub advertised: bool,
    /// What it does, for the manual.
    pub manual: &'static str,
}

/// All actions, in the order of the metadata.
pub const ACTIONS: &[ActionInfo] = &[
    ActionInfo {
        action: Action::On,
        names: &["on"],
        advertised: true,
        manual: "Succeeds at once and asks nobody: some responders take any request for a fence. With \
                 request_on=1 it is a request like the others.",
    },
    ActionInfo {
        action: Action::Off,
        names: &["off"],
        advertised: true,
        manual: "Waits for delay, writes a request for each plug and waits for the responses. Exit 0 only after a \
                 success response to each of these very requests.",
    },
    ActionInfo {
        action: Action::Reboot,
        names: &["reboot"],
        advertised: true,
        manual: "Like off. With several plugs (the power supplies of one node: each alone would never take its power \
                 away) it asks off for all, and, once all have succeeded and if request_on=1, on for all; a failure \
                 of that second round is a warning, because the node was off.",
    },
    ActionInfo {
        action: Action::Status,
        names: &["status"],
        advertised: true,
        manual: "Prints whether the node is fenced, from the response files alone: OFF (exit 2) if its newest \
                 successful response says that off was performed, or doesn't say what was; else ON (exit 0). Exit 1 \
                 if the spool is missing or unsafe, which takes this node out of Pacemaker's choice.",
    },
    ActionInfo {
        action: Action::Monitor,
        names: &["monitor"],
        advertised: true,
        manual: "Succeeds if both directories are there, usable and safe, and, with responder_check=1, somebody watches \
                 request_dir. Removes the requests of agents that were killed, and warns of requests past their \
                 deadline.",
    },
    ActionInfo {
        action: Action::List,
        names: &["list"],
        advertised: false,
        manual: "Prints the nodes known from the responder, pending requests and responses, one a line: name, \
                 separator, alias.",
    },
    ActionInfo {
        action: Action::ListStatus,
        names: &["list-status"],
        advertised: false,
        manual: "Like list, with another separator and ON or OFF.",
    },
    ActionInfo {
        action: Action::Metadata,
        names: &["metadata", "meta-data"],
        advertised: true,
        manual: "Prints the agent's metadata in XML.",
    },
    ActionInfo {
        action: Action::Manpage,
        names: &["manpage"],
        advertised: true,
        manual: "The same.",
    },
    ActionInfo {
        action: Action::ValidateAll,
        names: &["validate-all"],
        advertised: true,
        manual: "Checks every given value, without touching the spool. Prints one line per fault on standard output \
                 and exits 1 if there is any.",
    },
];

impl Action {
    /// The action of that name, in any case.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let is_named = |info: &&ActionInfo| {
            info.names
                .iter()
                .any(|known| known.eq_ignore_ascii_case(name))
        };
        ACTIONS.iter().find(is_named).map(|info| info.action)
    }

    /// The name in the metadata.
    #[must_use]
    pub fn name(self) -> &'static str {
        ACTIONS
            .iter()
            .find(|info| info.action == self)
            .map_or("", |info| info.names[0])
    }

    /// What it asks of a responder; `None` for actions that only look.
    #[must_use]
    pub fn fencing(self) -> Option<request::Action> {
        match self {
            Self::Off => Some(request::Action::Off),
            Self::Reboot => Some(request::Action::Reboot),
            Self::On => Some(request::Action::On),
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
