//! The manual page fence_recorder-run(8).

use crate::manpage::Page;

/// The page.
#[must_use]
pub fn run_manual() -> String {
    let mut page = Page::new("fence_recorder-run", "8", "Runs the tasks of a job once");
    page.synopsis(&[("fence_recorder run", "JOB.toml --node NODE [OPTIONS]")]);
    for (title, paragraphs) in BEFORE {
        page.section(title, paragraphs);
    }
    page.section("OPTIONS", &[]);
    page.options(&super::command());
    for (title, paragraphs) in AFTER {
        page.section(title, paragraphs);
    }
    page.examples(EXAMPLES);
    page.section(
        "SEE ALSO",
        &["fence_recorder-responder.toml(5), fence_recorder-responder(8), fence_recorder(8)"],
    );
    page.render()
}

const BEFORE: &[(&str, &[&str])] = &[
    (
        "DESCRIPTION",
        &[
            "fence_recorder run does for one node what the responder's rules do, once and by hand: tasks in order, each with \
             its attempts, its pause between them and its timeout; the first that fails ends the job. It needs no Pacemaker \
             and no spool, and records nothing.",
            "While it runs, standard error tells the task, the attempt and the time that has passed, on a terminal in one line \
             that is redrawn. At the end standard output has the tasks and the conditions.",
            "It refuses while a responder has claimed a request for the node, and looks again before each attempt. Fencing does \
             not wait for it: a request that comes meanwhile is executed.",
        ],
    ),
    (
        "JOB FILE",
        &[
            "The file is TOML, as fence_recorder-responder.toml(5) describes it, with these keys alone: [defaults] and [[bmc]] as \
             there, [[task]] with the keys of [[rule.task]], and action. It must belong to root (or the user) and not be \
             writable by others.",
            "action, one of off, on and reboot, is what {action}, FENCE_ACTION and an agent without an action of its own take; \
             it is needed only where a task takes it. {request_id} and FENCE_REQUEST_ID are the job's own id; there is \
             no FENCE_DEADLINE.",
        ],
    ),
];

const AFTER: &[(&str, &[&str])] = &[
    (
        "SIGNALS",
        &[
            "SIGINT (Ctrl-C), SIGTERM, SIGHUP, SIGQUIT: the attempt that runs is left to end, and nothing more is started; what \
             was done is told. A second one ends the attempt, too.",
        ],
    ),
    (
        "EXIT STATUS",
        &["0: every task completed, or --dry-run found nothing wrong. 1: anything else."],
    ),
];

const EXAMPLES: &[(&str, &str)] = &[
    (
        "A machine is to be installed anew: off, boot once from the network, on.",
        "[[bmc]]\n\
         nodes = [\"compute-*\"]\n\
         protocol = \"redfish\"\n\
         address = \"https://bmc-{node}\"\n\
         username = \"admin\"\n\
         password_file = \"/etc/fence_recorder/secrets/{node}\"\n\
         ca_file = \"/etc/pki/bmc-ca.pem\"\n\n\
         [[task]]\n\
         power = \"off\"\n\n\
         [[task]]\n\
         boot_device = \"pxe\"\n\
         efi = true\n\n\
         [[task]]\n\
         power = \"on\"",
    ),
    (
        "See what would be done, then do it:",
        "fence_recorder run install.toml --node compute-1 --dry-run\n\
         fence_recorder run install.toml --node compute-1",
    ),
];
