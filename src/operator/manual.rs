//! The manual pages of the commands for people, each made from its options.

use super::{COMMANDS, Subcommand};
use crate::manpage::Page;

/// What a page says beside the options.
struct Text {
    command: &'static str,
    description: &'static [&'static str],
    /// Beside "0 if that could be told, else 1".
    exit_status: &'static str,
    examples: &'static [(&'static str, &'static str)],
}

/// The names of the pages, `fence_recorder-requests(8)` for one, and the pages.
#[must_use]
pub fn command_manuals() -> Vec<(String, String)> {
    let page = |text: &Text| {
        let command = COMMANDS
            .iter()
            .find(|command| command.word.name == text.command)?;
        Some((
            format!("fence_recorder-{}.8", text.command),
            page(command, text),
        ))
    };
    TEXTS.iter().filter_map(page).collect()
}

fn page(subcommand: &Subcommand, text: &Text) -> String {
    let mut command = (subcommand.command)();
    let name = format!("fence_recorder-{}", subcommand.word.name);
    let mut page = Page::new(&name, "8", subcommand.word.summary);
    let usage = command.render_usage().to_string();
    let call = format!("fence_recorder {}", subcommand.word.name);
    let rest = usage
        .trim_start_matches("Usage: ")
        .trim_start_matches(call.as_str())
        .trim();
    page.synopsis(&[(call.as_str(), rest)]);
    page.section("DESCRIPTION", text.description);
    page.section("OPTIONS", &[]);
    page.options(&command);
    page.section("EXIT STATUS", &[text.exit_status]);
    page.examples(text.examples);
    page.section(
        "SEE ALSO",
        &["fence_recorder(8), fence_recorder-responder(8), and the other commands' pages: fence_recorder-requests(8), \
           fence_recorder-jobs(8), fence_recorder-history(8), fence_recorder-fenced(8), fence_recorder-unfence(8), \
           fence_recorder-check(8), fence_recorder-run(8)"],
    );
    page.render()
}

/// What commands that only show something have in common.
const SHOWN: &str = "0 if it could be found out, else 1.";

/// How tables and JSON go together.
const FORMS: &str = "On a terminal the table is cut to its width and coloured, unless NO_COLOR is set; elsewhere it is whole and plain. \
    Tables show the first eight characters of a request's id, which other commands take for the whole. With --json everything is there, in \
    full.";

const TEXTS: &[Text] = &[
    Text {
        command: "requests",
        description: &[
            "fence_recorder requests shows each request that has no end yet, the oldest first: the node, the action, how \
             old it is, how long its agent will still wait, which host asked, and who holds it. pending: nobody has taken it. \
             claimed: a responder works on it; held by nobody means that the responder is gone, and the next one will adopt it. \
             expired: its deadline has passed, and a sweep will remove it. invalid: no responder takes it for a request, and the line \
             below says why.",
            FORMS,
        ],
        exit_status: SHOWN,
        examples: &[
            ("Watch what goes on:", "fence_recorder requests --watch"),
            (
                "The ids of all that waits:",
                "fence_recorder requests --json | jq -r '.[].request_id'",
            ),
        ],
    },
    Text {
        command: "jobs",
        description: &[
            "fence_recorder jobs shows the responder's jobs, the newest first, with how far each is, how many of its tasks \
             have completed and, where it did not succeed, why. With a request's id it shows one job whole: its requests, \
             tasks, attempts and conditions. With a node's name it shows that node's jobs. The records are readable by root alone.",
            FORMS,
        ],
        exit_status: SHOWN,
        examples: &[(
            "Why did the last fence of a node fail?",
            "fence_recorder jobs compute-1 -n 1\n\
             fence_recorder jobs 3f2b8a01",
        )],
    },
    Text {
        command: "history",
        description: &[
            "fence_recorder history shows what became of each request that was recorded in log_dir, oldest first: when it ended, how, \
             how long it took, which host recorded it and, below, why. It reads fence-events-detailed.jsonl and the files that \
             logrotate made of it, compressed ones too (with gzip, xz, bzip2 or zstd, which must be there). Each host has a log of \
             its own: what another host's agent asked for is in that host's.",
            "Statuses: requested (no end is recorded yet), completed, failed, timed_out, cancelled, expired, unfenced.",
            "Lines that are torn or not ours are left out, and counted on standard error.",
            FORMS,
        ],
        exit_status: SHOWN,
        examples: &[
            (
                "What failed since yesterday morning?",
                "fence_recorder history --since 1d --status failed,timed_out",
            ),
            (
                "All of one node, for a program:",
                "fence_recorder history compute-1 --json",
            ),
        ],
    },
    Text {
        command: "fenced",
        description: &[
            "fence_recorder fenced shows which nodes count as fenced: those whose newest successful response says that \
             off was performed, or doesn't say what was. That is what the agent's status action says OFF to, and for HPE's \
             nnf-sos a successful response file is what keeps a node out.",
            FORMS,
        ],
        exit_status: SHOWN,
        examples: &[("Who is out?", "fence_recorder fenced")],
    },
    Text {
        command: "check",
        description: &[
            "fence_recorder check looks at this node and, where a cluster runs, at its configuration, and says in a line each \
             what is OK, what should be looked at (WARN) and what keeps fencing from working or from being trusted (FAIL), with \
             the command that mends it below. It changes nothing. Run it as root on each node that may run a device, after each change.",
            "On the node: the installed agent against this one; the spool's directories, their file system and what is free on it, \
             requests past their deadline; the responder, its version and configuration, and who else watches; inotify; the log \
             directory and its rotation; what SELinux denies the cluster there. Where no device may run here, a missing spool is OK.",
            "In the cluster: whether fencing is enabled; each device that uses this agent: its parameters, host list or map, a \
             plug that is the same for several nodes, response_timeout and delay against Pacemaker's timeouts and retries, the recurring \
             monitor, pcmk_action_limit and concurrent-fencing, unfencing, its constraints, its spool, and whether the responder has a rule for \
             each request it can make; and nodes that are in several host lists, or in none.",
            "Timeouts are those of stonith-timeout and of pcmk_reboot_timeout, pcmk_off_timeout and pcmk_on_timeout. Constraints that are rules, \
             sets or patterns are taken as they should be. In --json each finding has a level, a name that never changes, a subject, a \
             message and a remedy.",
        ],
        exit_status: "1 if anything is a FAIL, else 0.",
        examples: &[
            (
                "What is not as it should be?",
                "fence_recorder check --quiet",
            ),
            (
                "Before a change goes live:",
                "pcs cluster cib new.xml\npcs -f new.xml stonith update recorder delay=10\nCIB_file=new.xml fence_recorder check",
            ),
        ],
    },
    Text {
        command: "unfence",
        description: &[
            "fence_recorder unfence takes the responses of one node out of response_dir, so that the node no longer counts as \
             fenced and software that watches the directory lets it back in. Each is linked into .cleared below response_dir, \
             and only then removed: nothing is lost, and nnf-sos, which reacts to a removal and not to a rename, sees it. What was \
             done, and by whom, is recorded as unfenced. Files of other nodes are never touched: compute-1 is not compute-1-2.",
            "Run it as root, or as the owner of response_dir, and only after you have seen that the node is off or was started \
             anew: a node that still runs as it did when it was fenced will corrupt data.",
            "It refuses while the node has a pending or claimed request, a job that is not over, or a response younger than ten \
             seconds, which an agent may still read. It asks first; without a terminal it needs --yes.",
        ],
        exit_status: "0 if all its responses were taken away; 1 if anything else, and what is left of them stays in response_dir.",
        examples: &[(
            "A node was repaired and has booted:",
            "fence_recorder fenced\nfence_recorder unfence compute-1",
        )],
    },
];
