//! The subcommands by name: what help, manual, completions and the commands themselves call them.

/// A subcommand: the first word of the arguments.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    /// That word.
    pub name: &'static str,
    /// What it does, as a sentence without its end.
    pub summary: &'static str,
}

/// See [`crate::operator::requests`].
pub const REQUESTS: Word = Word {
    name: "requests",
    summary: "Shows the requests that have no end yet",
};

/// See [`crate::operator::jobs`].
pub const JOBS: Word = Word {
    name: "jobs",
    summary: "Shows the responder's jobs, or one whole",
};

/// See [`crate::operator::history`].
pub const HISTORY: Word = Word {
    name: "history",
    summary: "Shows what became of each request, from the audit log",
};

/// See [`crate::operator::fenced`].
pub const FENCED: Word = Word {
    name: "fenced",
    summary: "Shows which nodes count as fenced",
};

/// See [`crate::operator::unfence`].
pub const UNFENCE: Word = Word {
    name: "unfence",
    summary: "Takes a node's responses away, so that it no longer counts as fenced",
};

/// See [`crate::operator::answer`].
pub const ANSWER: Word = Word {
    name: "answer",
    summary: "Answers a fence request by hand",
};

/// See [`crate::operator::check`].
pub const CHECK: Word = Word {
    name: "check",
    summary: "Looks for what would keep this node, or its cluster, from fencing",
};

/// See [`crate::operator::run`].
pub const RUN: Word = Word {
    name: "run",
    summary: "Runs the tasks of a job once, without Pacemaker and without a spool",
};

/// See [`crate::responder`].
pub const RESPONDER: Word = Word {
    name: "responder",
    summary: "Answers fence requests by running the jobs that responder.toml describes",
};

/// See [`crate::operator::demo`].
pub const DEMO: Word = Word {
    name: "demo",
    summary: "Shows agent and responder at work in a temporary directory",
};

/// See [`crate::operator::completions`].
pub const COMPLETIONS: Word = Word {
    name: "completions",
    summary: "Prints what bash, zsh or fish can complete",
};

/// All of them, in the order of help and manual.
pub const ALL: &[Word] = &[
    REQUESTS,
    JOBS,
    HISTORY,
    FENCED,
    UNFENCE,
    ANSWER,
    CHECK,
    RUN,
    RESPONDER,
    DEMO,
    COMPLETIONS,
];

impl Word {
    /// A parser for the arguments after it.
    #[must_use]
    pub fn command(self) -> clap::Command {
        clap::Command::new(self.name)
            .bin_name(format!("fence_recorder {}", self.name))
            .about(format!("{}.", self.summary))
    }
}
