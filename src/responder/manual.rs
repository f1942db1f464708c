//! The manual pages fence_recorder-responder(8) and fence_recorder-responder.toml(5).

use clap::Command;
use roff::{bold, italic};

use crate::manpage::Page;

/// The page about the daemon, and about `answer`, whose options are `answer`.
#[must_use]
pub fn responder_manual(answer: &Command) -> String {
    let mut page = Page::new(
        "fence_recorder-responder",
        "8",
        "Answers fence requests by running jobs of ordered tasks",
    );
    page.synopsis(&[
        ("fence_recorder responder", "[OPTIONS]"),
        (
            "fence_recorder answer",
            "REQUEST-ID|NODE --success|--failure [OPTIONS]",
        ),
    ]);
    for (title, paragraphs) in BEFORE {
        page.section(title, paragraphs);
    }
    page.section("OPTIONS", &["Of responder:"]);
    page.options(&super::command());
    page.paragraph("Of answer:");
    page.options(answer);
    for (title, paragraphs) in AFTER {
        page.section(title, paragraphs);
    }
    page.section("CONDITIONS", &[CONDITIONS]);
    for (reason, what) in REASONS {
        page.entry(vec![bold(*reason)], &[what]);
    }
    page.section("FILES", &[]);
    for (path, what) in FILES {
        page.entry(vec![italic(*path)], &[what]);
    }
    page.examples(EXAMPLES);
    page.section(
        "SEE ALSO",
        &["fence_recorder-responder.toml(5), fence_recorder(8), fence_recorder-run(8), systemd.service(5), pcs(8)"],
    );
    page.render()
}

/// The page about the configuration.
#[must_use]
pub fn configuration_manual() -> String {
    let mut page = Page::new(
        "fence_recorder-responder.toml",
        "5",
        "Configuration of fence_recorder's responder",
    );
    page.section("SYNOPSIS", &[super::config::DEFAULT_PATH]);
    page.section("DESCRIPTION", CONFIGURATION);
    for (title, introduction, keys) in KEYS {
        page.section(title, &[introduction]);
        for (key, default, what) in *keys {
            let default = if default.is_empty() {
                String::new()
            } else {
                format!("Default: {default}.")
            };
            page.entry(vec![bold(*key)], &[what, &default]);
        }
    }
    for (title, paragraphs) in ABOUT_VALUES {
        page.section(title, paragraphs);
    }
    page.examples(CONFIGURATIONS);
    page.section(
        "SEE ALSO",
        &["fence_recorder-responder(8), fence_recorder-run(8), fence_recorder(8), ipmitool(1)"],
    );
    page.render()
}

const BEFORE: &[(&str, &[&str])] = &[(
    "DESCRIPTION",
    &[
        "fence_recorder responder is a daemon for the node that owns the spool. It takes each request of \
             fence_recorder(8), finds the first rule in its configuration that serves the node and action, runs the \
             rule's tasks in order, and answers with success only if all of them succeeded. A task is a fence agent or a \
             command; each has its attempts, its pause between them and its timeout. The first task that fails ends the \
             job.",
        "One node's jobs run one after the other, those of different nodes at once, up to max_jobs. A second request \
             for the same node and action joins a job that has not begun; one that comes later becomes a job of its own.",
        "fence_recorder answer ends a job that waits for a person, or lets its tasks run; see APPROVAL.",
    ],
)];

const AFTER: &[(&str, &[&str])] = &[
    (
        "TIME",
        &[
            "Nothing is executed that nobody waits for any more. A request with less left than the smaller of 3 seconds and \
             a quarter of its timeout is answered as expired. An attempt ends at its own timeout or that margin before \
             the request's deadline, whichever is first: SIGTERM to its process group, two seconds later SIGKILL (or what \
             part of them the margin leaves). Another attempt is started only if the pause leaves time for it. A request \
             that its agent withdraws starts no further attempt; one that runs then is left to end.",
            "A request whose timestamp is more than 5 seconds ahead of this node's clock is refused: synchronize the \
             clocks.",
            "The agent's response_timeout bounds everything; --check-config says for each rule what it takes if every attempt \
             uses its timeout, and which response_timeout, pcmk_reboot_timeout, pcmk_off_timeout and stonith-timeout go \
             with that. As the responder retries by itself, set pcmk_reboot_retries=1 and pcmk_off_retries=1.",
        ],
    ),
    (
        "APPROVAL",
        &[
            "A rule with approval = \"manual\" waits for a person. Its notify command is run, the job is \
             WaitingForApproval, and fence_recorder answer ends it. --failure refuses. --success vouches that the node is \
             safe, as pcs stonith confirm does, and asks on a terminal whether that is so; on a rule with tasks it lets \
             them run. Only root's answer counts. It refuses an id or node with nothing pending, and a node with several \
             requests, naming them.",
            "A person needs more than the agent's default of 55 seconds. For ten minutes: response_timeout=605, \
             pcmk_reboot_timeout=625, pcmk_off_timeout=625, and the cluster property stonith-timeout=625 for fencing by \
             hand with pcs or stonith_admin; more where tasks follow (--check-config adds them up).",
            "Without a responder, fence_recorder answer claims the request and writes the response itself; it refuses if \
             another process watches request_dir.",
        ],
    ),
    (
        "TASKS",
        &[
            "A fence agent gets on standard input, as from Pacemaker, action, nodename and the parameters of the task; a \
             command gets the request's JSON, and FENCE_NODE, FENCE_ACTION, FENCE_REQUEST_ID and FENCE_DEADLINE in its \
             environment. Both run in /, in a process group of their own, with FENCE_REQUEST_ID and what the responder has \
             in its own environment. Exit code 0 is success. The last line that it prints becomes the message; secrets that \
             stand in it, as they are or as JSON escapes them, are replaced. When it has ended, whatever it left in its process group is killed. Tasks must be idempotent: \
             one that was cut off with the responder is run again.",
            "A task with power, boot_device or virtual_media speaks to the node's BMC, over Redfish itself and over IPMI with \
             ipmitool(1), until it has seen what it is to bring about, or its timeout is near; an accepted request alone is no success. \
             The password is never an argument.",
            "A command that puts processes into other process groups or sessions (setsid, systemd-run) takes them out of the \
             responder's reach: they are not ended at its timeout.",
        ],
    ),
    (
        "RESTART",
        &[
            "Every attempt's process group is written down before it runs. A responder that starts after a crash first kills \
             what its forerunner left running and sees it gone, then goes on with the jobs whose requests are still \
             claimed and in time: tasks that completed are not run again. The lock on request_dir/.responder.lock keeps a \
             second responder from the spool; the one on state_dir/.lock from its records.",
        ],
    ),
    (
        "SIGNALS",
        &[
            "SIGHUP: reads the configuration anew; one with a fault is refused, and the old one kept. The directories can't be \
             changed this way.",
            "SIGTERM, SIGINT, SIGQUIT: takes no more requests and starts no more attempts, gives what runs stop_grace, kills \
             the rest, which the next responder resumes, and exits 0. A second signal cuts stop_grace short.",
        ],
    ),
    (
        "EXIT STATUS",
        &[
            "0: ended by a signal, or the configuration is right. 1: anything else, with the reason on standard error.",
        ],
    ),
];

const CONDITIONS: &str = "Each job's record has conditions as Kubernetes has them: Processing, FenceAgentActionSucceeded (all \
tasks completed) and Succeeded (the answer was success), each with status True, False or Unknown, reason, message and \
last_transition_time. How a job ended is the reason:";

const REASONS: &[(&str, &str)] = &[
    (
        "Completed",
        "All that the rule asks for was done: the answer is success. All others are failures.",
    ),
    ("TaskFailed", "A task failed at its last attempt."),
    (
        "TaskTimedOut",
        "A task was killed at its timeout at its last attempt, or can't be killed.",
    ),
    (
        "DeadlineExceeded",
        "The request's deadline left no time for another attempt.",
    ),
    (
        "Cancelled",
        "The request was withdrawn, or the spool removed; nothing was answered.",
    ),
    (
        "Refused",
        "A person refused, or a check before the first task: clocks, a secret, a parameter, the node's name.",
    ),
    (
        "Expired",
        "The request was too late, or nobody answered in time.",
    ),
    (
        "NoRule",
        "No rule serves the node and action (unmatched = \"refuse\").",
    ),
    (
        "AnswerFailed",
        "The response couldn't be written, or an odd file had its name.",
    ),
    (
        "AnsweredElsewhere",
        "A response was there already; it was left as it is.",
    ),
];

const FILES: &[(&str, &str)] = &[
    ("/etc/fence_recorder/responder.toml", "The configuration."),
    (
        "request_dir/.claimed, .rejected, .answers",
        "Requests being worked on; files that are no requests that count; answers of people on their way.",
    ),
    (
        "request_dir/.responder.json",
        "Who serves the spool: pid, version, started, nodes, state_dir.",
    ),
    (
        "state_dir/jobs/REQUEST-ID.json",
        "The record of a job: request, rule, conditions, tasks with their attempts.",
    ),
];

const EXAMPLES: &[(&str, &str)] = &[
    (
        "Check the configuration, then start:",
        "fence_recorder responder --check-config\nsystemctl enable --now fence_recorder-responder",
    ),
    (
        "A person has seen that the node is off:",
        "fence_recorder answer compute-1 --success -m \"pulled the plug\"",
    ),
];

const CONFIGURATION: &[&str] = &[
    "The configuration is TOML. Unknown keys, and anything else that is wrong, are refused with line and column; \
     fence_recorder responder --check-config prints all faults at once, or what it understood. The file must belong to root \
     (or the responder's user) and, like the directories above it, not be writable by others.",
    "Durations are texts like \"5s\", \"1m 30s\", \"250ms\", \"30d\".",
];

type Keys = &'static [(&'static str, &'static str, &'static str)];

/// Every key: its default, and what it means. A test holds them against what is read.
const KEYS: &[(&str, &str, Keys)] = &[
    (
        "TOP LEVEL",
        "",
        &[
            (
                "request_dir",
                "/run/fence_recorder/requests",
                "Where requests come from. It must be there, belong to root (or the responder's user) and not be writable by others.",
            ),
            (
                "response_dir",
                "/run/fence_recorder/responses",
                "Where answers go. It may belong to another user, who could then answer too; others must not be able to write there.",
            ),
            (
                "state_dir",
                "/var/lib/fence_recorder",
                "Where the records of jobs are kept; made if it isn't there. One for each responder.",
            ),
            (
                "log_dir",
                "/var/log/cluster",
                "Where the audit log is; the end of requests whose agent was killed is recorded there.",
            ),
            (
                "max_jobs",
                "64",
                "The most jobs whose tasks run at once, 1 to 1024.",
            ),
            (
                "unmatched",
                "\"refuse\"",
                "What becomes of a request that no rule serves: \"refuse\" answers with failure at once, \"ignore\" leaves it to another responder.",
            ),
            (
                "keep_jobs",
                "\"30d\"",
                "How long the records of ended jobs are kept, and never more than 10,000.",
            ),
            (
                "stop_grace",
                "\"30s\"",
                "How long running tasks may go on after SIGTERM, up to \"1h\".",
            ),
            (
                "metrics_file",
                "",
                "Figures for node_exporter's textfile collector, a name that ends in .prom. None are written without it.",
            ),
            ("defaults", "", "A table, see below."),
            (
                "bmc",
                "",
                "Tables, see below. The first that has the node is taken.",
            ),
            (
                "rule",
                "",
                "Tables, see below. The first that serves the request is followed.",
            ),
        ],
    ),
    (
        "[defaults]",
        "What every task has unless it says otherwise.",
        &[
            ("retry_count", "5", "Attempts in all, 1 to 100."),
            (
                "retry_interval",
                "\"5s\"",
                "From the end of an attempt to the start of the next.",
            ),
            ("timeout", "\"60s\"", "Of one attempt."),
        ],
    ),
    (
        "[[bmc]]",
        "The machines' BMCs, for tasks with power, boot_device or virtual_media. Credentials go to the configured host and nowhere else: redirects are followed within it only.",
        &[
            ("nodes", "", "Names and globs, as in a rule. Required."),
            ("protocol", "", "\"redfish\" or \"ipmi\". Required."),
            (
                "address",
                "",
                "Redfish: https://HOST or https://HOST:PORT (http:// only with insecure = true). IPMI: HOST or HOST:PORT. Required.",
            ),
            ("username", "", "The user. Required."),
            (
                "password_file",
                "",
                "The file whose one line is the password; it must not be readable or writable by others, and is read for each job. Required.",
            ),
            (
                "ca_file",
                "this system's authorities",
                "Redfish: the certificates, in PEM, that sign the BMC's, or the BMC's own if it signed that itself. The certificate must name the host as a subject alternative name.",
            ),
            (
                "insecure",
                "false",
                "Redfish: true takes any certificate. Whoever answers at the address gets the password; it is logged each time.",
            ),
            (
                "system",
                "",
                "Redfish: which system, by its id, uuid or name. Needed if the BMC has several.",
            ),
            (
                "cipher_suite",
                "ipmitool's",
                "IPMI: the cipher suite, 1 to 17. Where a BMC answers slowly, 3 or 17 may be quicker than ipmitool's search.",
            ),
        ],
    ),
    (
        "[[rule]]",
        "For whom and what.",
        &[
            ("name", "\"rule N\"", "For people; each rule has its own."),
            (
                "nodes",
                "",
                "Names and globs (*, ?, [a-c], {a,b}) of target_node. Required.",
            ),
            (
                "actions",
                "[\"off\", \"reboot\"]",
                "The actions it serves: off, reboot, on.",
            ),
            (
                "performs",
                "the request's action",
                "What its success does to the node; it becomes action_performed of the response. \"off\" where a reboot only cuts the node off.",
            ),
            (
                "approval",
                "\"automatic\"",
                "\"manual\": a person has to answer first.",
            ),
            (
                "notify",
                "",
                "A command (a list, without a shell) that is run when a job waits for a person; its outcome decides nothing. It may take 60 seconds.",
            ),
            (
                "task",
                "",
                "Tables, see below. A rule with automatic approval needs one.",
            ),
        ],
    ),
    (
        "[[rule.task]]",
        "What is run, in this order. Each has one of exec, agent, power, boot_device and virtual_media, and may have retry_count, retry_interval and timeout.",
        &[
            (
                "name",
                "\"task N\"",
                "For people; each task of a rule has its own.",
            ),
            ("retry_count", "as in [defaults]", "Attempts in all."),
            (
                "retry_interval",
                "as in [defaults]",
                "From the end of an attempt to the start of the next.",
            ),
            ("timeout", "as in [defaults]", "Of one attempt."),
            (
                "exec",
                "",
                "A command: a list of the program's absolute path and its arguments, without a shell. Like the configuration, the program must not be writable by others, nor any directory above it. What it does to the node is not known: the rule's performs is believed.",
            ),
            (
                "agent",
                "",
                "The name of a fence agent in /usr/sbin, any but this one.",
            ),
            (
                "action",
                "the request's action",
                "With agent: off, on, reboot or monitor. What the tasks do to the node must be what the answer says (performs, or the request's action): a rule whose tasks end with on can't serve off. And only one task of a rule may reboot: two supplies of a node would be cycled one after the other, and the node never lose its power; write a rule with actions = [\"reboot\"] and the tasks off, off, on, on.",
            ),
            (
                "parameters",
                "",
                "With agent: a table of parameters and their values.",
            ),
            (
                "secret_files",
                "",
                "With agent: a table of parameters and the files whose one line is the value. They must not be readable or writable by others, and are read for each job.",
            ),
            (
                "node_parameters",
                "",
                "With agent: for a parameter a table of nodes and their values. A node that isn't in it fails the job before any task runs.",
            ),
            (
                "power",
                "",
                "Through the node's BMC: on, off, soft (off by its operating system), cycle, reset or status. Done means seen: on, off and soft end when the BMC shows the state, and ask for nothing if it does already; cycle and reset when off was seen and then on, or the BMC's LastResetTime advanced. A machine that is off is switched on by cycle and reset. A Redfish service that can't cycle is asked for off and on. IPMI shows nothing of a reset: there the accepted command and a machine that is on must do, and the message says so. status fails unless the BMC answers.",
            ),
            (
                "boot_device",
                "",
                "Through the node's BMC: pxe, disk, bios, cdrom, or over IPMI safe; for the next boot only. It is read back: device and mode must be as asked; a BMC that shows it as set for longer gets a warning in the message.",
            ),
            (
                "efi",
                "false",
                "With boot_device: boot by UEFI, else as a PC did.",
            ),
            (
                "virtual_media",
                "",
                "Through a Redfish BMC: a table of kind (CD, DVD, USBStick or Floppy) and url, where the image is; without url what is in the drive is ejected. It is read back.",
            ),
        ],
    ),
];

const ABOUT_VALUES: &[(&str, &[&str])] = &[(
    "TEMPLATES",
    &[
        "In exec, notify, parameters, secret_files, node_parameters, url and address, username, password_file and system {node}, {action} and {request_id} stand for the \
         request's; {{ and }} are braces. A job for a node whose name is not made of letters, digits, '.', '_' and '-' alone \
         fails before any task runs if a value uses {node}: else compute-1@evil.example could be sent the password.",
    ],
)];

const CONFIGURATIONS: &[(&str, &str)] = &[(
    "Detach the storage, then cut the power; a person for everything else:",
    "[[rule]]\n\
         name = \"compute nodes\"\n\
         nodes = [\"compute-*\"]\n\
         performs = \"off\"\n\n\
         [[rule.task]]\n\
         name = \"detach storage\"\n\
         exec = [\"/usr/local/sbin/detach\", \"{node}\"]\n\
         timeout = \"20s\"\n\n\
         [[rule.task]]\n\
         name = \"power off\"\n\
         agent = \"fence_ipmilan\"\n\
         action = \"off\"\n\
         parameters = { ip = \"bmc-{node}\", username = \"fence\", lanplus = \"1\" }\n\
         secret_files = { password = \"/etc/fence_recorder/secrets/{node}\" }\n\
         node_parameters.ipport = { \"compute-1\" = \"6233\", \"compute-2\" = \"6234\" }\n\n\
         [[rule]]\n\
         name = \"the rest\"\n\
         nodes = [\"*\"]\n\
         approval = \"manual\"\n\
         notify = [\"/usr/local/sbin/page-oncall\", \"{node}\"]",
)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::record::Reason;
    use crate::jobs::store::MAX_KEPT;
    use crate::responder::config::Config;

    /// The keys that the reader knows in the table where `unknown` stands.
    fn known_keys(text: &str) -> Vec<String> {
        let faults = Config::parse(text).unwrap_err();
        let told = faults
            .iter()
            .find_map(|fault| fault.message.split_once("here are known "))
            .unwrap_or_else(|| panic!("{faults:?}"));
        told.1.split(", ").map(str::to_owned).collect()
    }

    #[test]
    fn every_key_that_is_read_is_described_and_no_other() {
        let texts = [
            "unknown = 1",
            "[defaults]\nunknown = 1",
            "[[bmc]]\nunknown = 1",
            "[[rule]]\nunknown = 1",
            "[[rule]]\n[[rule.task]]\nexec = [\"/bin/true\"]\nunknown = 1",
        ];
        for ((title, _, keys), text) in KEYS.iter().zip(texts) {
            let mut described: Vec<_> = keys.iter().map(|(key, _, _)| (*key).to_owned()).collect();
            described.sort();
            let mut known = known_keys(text);
            if *title == "[[rule.task]]" {
                for kind in [
                    "agent = \"x\"",
                    "power = \"on\"",
                    "boot_device = \"pxe\"",
                    "virtual_media = {kind = \"CD\"}",
                ] {
                    let task = format!("[[rule]]\n[[rule.task]]\n{kind}\nunknown = 1");
                    known.extend(known_keys(&task));
                }
                known.sort();
                known.dedup();
            }
            assert_eq!(described, known, "{title}");
        }
    }

    #[test]
    fn every_end_is_described() {
        let described: Vec<_> = REASONS
            .iter()
            .map(|(reason, _)| (*reason).to_owned())
            .collect();
        assert_eq!(described, Reason::ENDS.map(|reason| reason.to_string()));
    }

    #[test]
    fn the_number_of_kept_jobs_is_true() {
        let kept = format!("never more than {},{:03}", MAX_KEPT / 1000, MAX_KEPT % 1000);
        assert!(configuration_manual().contains(&kept));
    }
}
