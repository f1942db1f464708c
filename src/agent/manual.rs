//! The manual page fence_recorder(8), made from the tables and the words around them.

use roff::{bold, italic, roman};

use super::action::ACTIONS;
use super::metadata::{DESCRIPTION, SUMMARY, getopt};
use super::parameters::{IGNORED, PARAMETERS, Parameter, option_of};
use crate::commands;
use crate::manpage::Page;

/// The page in troff's man format.
#[must_use]
pub fn manual() -> String {
    let mut page = Page::new("fence_recorder", "8", SUMMARY);
    page.synopsis(&[
        ("fence_recorder", "[OPTIONS]"),
        ("fence_recorder", "< name=value lines"),
        ("fence_recorder", "COMMAND [ARGUMENTS]"),
    ]);
    page.section("DESCRIPTION", &[DESCRIPTION, INPUT]);
    parameters(&mut page);
    actions(&mut page);
    commands(&mut page);
    for (title, paragraphs) in SECTIONS {
        page.section(title, paragraphs);
    }
    files(&mut page);
    page.section("THE PROTOCOL", PROTOCOL);
    page.examples(EXAMPLES);
    page.section(
        "SEE ALSO",
        &["fence_recorder-responder(8), fence_recorder-responder.toml(5), fence_recorder-run(8), fence_recorder-requests(8), \
           fence_recorder-jobs(8), fence_recorder-history(8), fence_recorder-fenced(8), fence_recorder-unfence(8), fence_recorder-check(8), pcs(8), crm(8), stonith_admin(8), \
           pacemaker-fenced(7), crm_resource(8)"],
    );
    page.render()
}

fn parameters(page: &mut Page) {
    page.section("PARAMETERS", &[PARAMETERS_ARE]);
    for parameter in PARAMETERS {
        let term = vec![bold(parameter.name), roman(", "), bold(getopt(parameter))];
        let (summary, facts) = (format!("{}.", parameter.summary), facts(parameter));
        page.entry(term, &[&summary, parameter.manual, &facts]);
    }
    let ignored: Vec<_> = IGNORED
        .iter()
        .map(|name| format!("{name} (--{})", option_of(name)))
        .collect();
    page.paragraph(&format!(
        "These are accepted and ignored, because configurations written for fence_dummy, and dlm_controld, pass them: {}.",
        ignored.join(", ")
    ));
}

fn facts(parameter: &Parameter) -> String {
    let facts = [
        parameter
            .default
            .map(|default| format!("Default: {default}.")),
        parameter
            .environment
            .map(|name| format!("Environment: {name}.")),
        parameter
            .alias
            .map(|alias| format!("Also accepted: {alias} (--{}).", option_of(alias))),
        parameter.deprecated.then(|| "Deprecated.".to_owned()),
    ];
    facts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn actions(page: &mut Page) {
    page.section("ACTIONS", &[]);
    for info in ACTIONS {
        let names = info.names.join(", ");
        page.entry(vec![bold(names)], &[info.manual]);
    }
}

fn commands(page: &mut Page) {
    page.section(
        "COMMANDS",
        &["The first argument may be a command for people; each has --help."],
    );
    for word in commands::ALL {
        page.entry(vec![bold(word.name)], &[&format!("{}.", word.summary)]);
    }
}

fn files(page: &mut Page) {
    page.section("FILES", &[]);
    for (path, what) in FILES {
        page.entry(vec![italic(*path)], &[what]);
    }
}

const INPUT: &str = "Without arguments the parameters are read from standard input, one name=value a line, as Pacemaker \
writes them: '-' and '_' in names are the same, blank lines and lines that start with # are skipped, one pair of \
double quotes around a value is dropped, and the last of a repeated name wins. With any argument standard input is not \
read; long options may be cut short while they are unambiguous.";

const PARAMETERS_ARE: &str = "A given value beats the environment, which beats the default; an empty value counts as not \
given. Booleans are 1, yes, on, true and 0, no, off, false; as options they need no value. A value out of range is a \
fault and never clamped; in the environment it is a warning, and the default counts.";

const SECTIONS: &[(&str, &[&str])] = &[
    (
        "EXIT STATUS",
        &[
            "0: success. For off and reboot only after a valid success response to this very request.",
            "1: failure, with one line on standard error that says why (validate-all: a line per fault on standard \
             output). Usage errors too.",
            "2: status only: the node is fenced.",
            "On SIGTERM, SIGINT, SIGHUP and SIGQUIT the request is withdrawn and the exit status is 1.",
        ],
    ),
    (
        "TIMEOUTS",
        &[
            "delay + response_timeout must stay a few seconds below Pacemaker's timeout for the action \
             (pcmk_reboot_timeout, pcmk_off_timeout; where they are not set, the cluster property stonith-timeout, by \
             default 60 seconds). The agent then ends first, withdraws its request and says why. If Pacemaker's timeout \
             comes first, it kills the agent with SIGKILL: the request stays until a monitor or a later fence removes \
             it, and without a topology no other peer is tried. The defaults (55 and 60) fit each other.",
            "A failed run is tried once more a second later if less than 70 % of Pacemaker's timeout has passed, with the \
             time that remains only (pcmk_reboot_retries, pcmk_off_retries). Such a second try can be cut short by \
             SIGKILL, however long response_timeout is. Where the responder retries by itself, set \
             pcmk_reboot_retries=1 and pcmk_off_retries=1.",
            "A person who answers needs more time than 55 seconds. For ten minutes: response_timeout=600, \
             pcmk_reboot_timeout=620, pcmk_off_timeout=620, and stonith-timeout at least as much for manual fencing with \
             stonith_admin or pcs.",
            "Set pcmk_reboot_action=off when the responder cuts a node off, from its storage for one, and doesn't start \
             it again: the cluster then asks for what really happens, and history and status tell the truth. Leave it \
             unset when the responder does reset nodes, or when Pacemaker should count a node as rebooted once it was \
             cut off.",
            "A fence that failed is in pacemaker.log with the agent's line, and in stonith_admin --history NODE \
             --verbose; without --verbose only successes are counted.",
            "A recurring monitor operation (op monitor interval=60s) is how requests of killed agents are removed, and \
             how a node whose spool went away is found before it is needed. It is required with responders that know \
             no deadline, as nnf-sos: they replay what they find at their start.",
        ],
    ),
    (
        "SECURITY",
        &[
            "Whoever can write to response_dir can make a fence succeed. So request_dir must belong to root (or the \
             agent's user), response_dir may belong to the responder's user, neither may be writable by group or \
             others, and every directory above them, links resolved, must belong to root (or the agent's user) and not \
             be writable by group or others unless sticky. They are checked once and then used through the opened \
             descriptors. off, reboot, status and monitor fail where this is not so.",
            "Text from responses is data: control characters are escaped before they reach a log or a terminal, and at \
             most 4 KiB of it is shown.",
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            "NNF_FENCE_REQUEST_DIR, NNF_FENCE_RESPONSE_DIR, LOG_DIR, FENCE_TIMEOUT, POLL_INTERVAL and CLEANUP_MAX_AGE \
           stand behind the parameters named above. Pacemaker passes none of them by itself.",
        ],
    ),
];

const FILES: &[(&str, &str)] = &[
    (
        "/run/fence_recorder/requests",
        "The default request_dir. On the nodes that have a responder only.",
    ),
    (
        "/run/fence_recorder/responses",
        "The default response_dir. The files in it are the audit and which nodes count as \
      fenced; the agent never changes or removes one.",
    ),
    (
        "/var/log/cluster/fence-events.log",
        "What happened, in words. All three logs are in log_dir, with mode 0640; the \
      same events go to syslog, facility daemon.",
    ),
    (
        "/var/log/cluster/fence-events-readable.log",
        "The same as ACTION= TARGET= STATUS= REQUEST= DURATION= DETAILS=.",
    ),
    (
        "/var/log/cluster/fence-events-detailed.jsonl",
        "The same, a JSON object a line. The status is one of requested, \
      completed, failed, timed_out, cancelled, expired and unfenced; every request has one end.",
    ),
];

const PROTOCOL: &[&str] = &[
    "For those who write responders. Request and response are files of the same name, <node>-<uuid>.json, in request_dir \
     and response_dir. Both are JSON objects; their schemas are fence-request.schema.json and \
     fence-response.schema.json in metadata/. Ignore names that start with a dot and names that don't end in .json.",
    "The request has, always and in this order: request_id (a UUID), timestamp (RFC 3339 with offset), action (off, \
     reboot or on), target_node, recorder_node (the host that runs the agent); and it may have nodename (Pacemaker's \
     name of the target, where that differs), timeout_seconds (a number) and deadline (RFC 3339). It appears under its \
     name whole, by rename. Don't start on a request past its deadline, and stop when it disappears: then it was \
     withdrawn.",
    "The response has request_id (the request's) and success (true or false), and may have message (shown to people), \
     action_performed (what was done: off, reboot, on), target_node (the request's) and timestamp. Write it to a \
     temporary name in response_dir that starts with a dot, sync it, and rename it to the request's name. Then remove \
     the request, if it is still there. Never replace a response.",
    "A response counts only if it is a regular file of at most 1 MiB, owned by root, by the agent's user or by the owner of \
     response_dir, that holds exactly one JSON object in UTF-8 with no key twice and nothing after it, with this \
     request's request_id, this request's target_node or none, and a boolean for success. A file that doesn't count is \
     looked at again until the deadline, and the failure says what is wrong with it.",
    "The agent watches response_dir before it writes the request. Whatever the end, it withdraws: it removes the request, or \
     .claimed/<name> below request_dir if a responder moved it there. Requests of agents that were killed are removed \
     by monitor and by every later fence: 10 seconds past the deadline on the host that wrote them, cleanup_max_age past \
     it elsewhere and for claims; a request without deadline that long past its last change.",
    "A node counts as fenced when the newest successful response for it has action_performed off, or none. Removing it is \
     how an administrator unfences the node.",
];

const EXAMPLES: &[(&str, &str)] = &[
    (
        "The spool, on the node that has the responder:",
        "install -d -m 0755 /run/fence_recorder/requests\ninstall -d -m 0755 /run/fence_recorder/responses",
    ),
    (
        "With pcs; the device runs where the spool is:",
        "pcs stonith create recorder fence_recorder \\\n    pcmk_host_list=\"compute-1 compute-2\" \\\n    pcmk_action_limit=-1 op monitor interval=60s\n\
         pcs constraint location recorder prefers storage-1=INFINITY\n\
         pcs constraint location recorder avoids compute-1 compute-2\n\
         pcs stonith fence compute-1",
    ),
    (
        "The same with crmsh:",
        "crm configure primitive recorder stonith:fence_recorder \\\n    params pcmk_host_list=\"compute-1 compute-2\" \\\n    \
         op monitor interval=60s\ncrm configure location recorder-spool recorder \\\n    rule -inf: #uname ne storage-1",
    ),
    (
        "Where the responder knows nodes by other names, and both power supplies of one are to be cut:",
        "pcs stonith create psus fence_recorder \\\n    pcmk_host_map=\"compute-1:c1-psu-a,c1-psu-b\" pcmk_reboot_action=off",
    ),
    (
        "By hand:",
        "fence_recorder -o off -n compute-1 --response-timeout 30\nfence_recorder -o status -n compute-1\n\
         printf 'action=monitor\\n' | fence_recorder",
    ),
];
