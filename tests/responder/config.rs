//! `--check-config`: every fault with its place, and what a good configuration is told back as.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::Stdio;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::env::{AGENT, Ended};
use crate::scene::{Scene, rule, uuid};

const EXEC: &str = "exec = [\"/bin/true\"]";
const AGENT_TASK: &str = "agent = \"fence_dummy\"";

/// What `--check-config` says of this text, and its path.
fn check(text: &str) -> (Ended, String) {
    let scene = Scene::without_responder("");
    fs::write(scene.path("responder.toml"), text).unwrap();
    let path = scene.path("responder.toml").display().to_string();
    (scene.check(), path)
}

/// The text without its marks, and the line and column of each.
fn unmarked(marked: &str) -> (String, Vec<(usize, usize)>) {
    let (mut text, mut places) = (String::new(), Vec::new());
    for c in marked.chars() {
        if c == '»' {
            let line = text.rsplit('\n').next().unwrap();
            places.push((text.matches('\n').count() + 1, line.chars().count() + 1));
        } else {
            text.push(c);
        }
    }
    (text, places)
}

/// Expects a fault at each `»` in the text, in this order and with these words, and no other.
#[track_caller]
fn is_refused(marked: &str, faults: &[&str]) {
    let (text, places) = unmarked(marked);
    let (said, path) = check(&text);
    assert_eq!(said.code, Some(1), "{text}\n{said:?}");
    assert_eq!(said.stdout, "");
    let lines: Vec<_> = said.stderr.lines().collect();
    assert_eq!(lines.len(), faults.len(), "{text}\n{}", said.stderr);
    for ((said, words), (line, column)) in lines.iter().zip(faults).zip(places) {
        let said = said.strip_prefix("fence_recorder: ").unwrap_or(said);
        let place = format!("{path}:{line}:{column}: ");
        assert!(said.starts_with(&place), "{place} in {said}\n{text}");
        assert!(said.contains(words), "{words} in {said}\n{text}");
    }
}

#[track_caller]
fn is_accepted(text: &str) -> String {
    let (said, _) = check(text);
    assert_eq!((said.code, &*said.stderr), (Some(0), ""), "{text}");
    said.stdout
}

fn in_rule(line: &str) -> String {
    let nodes = if line.starts_with("nodes") {
        ""
    } else {
        "nodes = [\"*\"]\n"
    };
    format!("[[rule]]\n{nodes}{line}\n[[rule.task]]\n{EXEC}\n")
}

fn with_agent(lines: &str) -> String {
    rule(&format!("{AGENT_TASK}\n{lines}"))
}

#[test]
fn a_wrong_value_at_the_top_is_refused_where_it_stands() {
    let cases = [
        ("max_jobs = »0", "from 1 to 1024"),
        ("max_jobs = »1025", "from 1 to 1024"),
        ("max_jobs = »\"4\"", "max_jobs must be a whole number"),
        ("max_jobs = »4.5", "max_jobs must be a whole number"),
        ("unmatched = »\"drop\"", "refuse, ignore, not \"drop\""),
        ("keep_jobs = »\"soon\"", "keep_jobs must be a duration"),
        ("stop_grace = »30", "stop_grace must be a duration"),
        ("stop_grace = »\"61m\"", "1m 30s\", from 0 s to 3600 s"),
        ("request_dir = »\"requests\"", "request_dir must be an abs"),
        ("response_dir = »\"\"", "response_dir must be an absolute"),
        ("state_dir = »5", "state_dir must be a string"),
        ("log_dir = »\"./log\"", "log_dir must be an absolute path"),
        ("metrics_file = »\"m.prom\"", "metrics_file must be an abs"),
        ("defaults = »5", "defaults must be a table"),
        ("[defaults]\nretry_count = »0", "from 1 to 100"),
        ("[defaults]\nretry_interval = »\"-1s\"", "a duration"),
        ("[defaults]\ntimeout = »\"0s\"", "from 0.001 s"),
        ("[defaults]\ntimeout = »\"25h\"", "to 86400 s"),
    ];
    for (line, words) in cases {
        is_refused(&format!("{line}\n{}", rule(EXEC)), &[words]);
    }
}

#[test]
fn a_wrong_value_of_a_rule_is_refused_where_it_stands() {
    let cases = [
        ("nodes = »[]", "at least one"),
        ("nodes = »\"n1\"", "nodes must be a list of strings"),
        ("nodes = [\"n1\", »5]", "nodes must be a list of strings"),
        ("nodes = [\"n1\", »\"a[\"]", "a["),
        ("name = »5", "name must be a string"),
        ("actions = [\"off\", »\"cycle\"]", "not \"cycle\""),
        ("actions = »[]", "at least one"),
        ("performs = »\"down\"", "off, on, reboot, not \"down\""),
        ("approval = »\"maybe\"", "automatic, manual, not \"maybe\""),
        (
            "approval = \"manual\"\nnotify = [»\"page\"]",
            "not an absolute path",
        ),
        (
            "approval = \"manual\"\nnotify = [\"/bin/true\", »\"{who}\"]",
            "{who} is unknown",
        ),
    ];
    for (line, words) in cases {
        is_refused(&in_rule(line), &[words]);
    }
}

#[test]
fn a_wrong_value_of_a_task_is_refused_where_it_stands() {
    let cases = [
        ("exec = »\"/bin/true\"", "exec must be a list of strings"),
        ("exec = »[]", "at least one"),
        ("exec = [»\"true\"]", "true is not an absolute path"),
        ("exec = [»\"/bin/no_such\"]", "/bin/no_such is not there"),
        ("exec = [»\"/usr/bin\"]", "/usr/bin is not a regular file"),
        ("exec = [»\"/etc/passwd\"]", "/etc/passwd can't be executed"),
        ("exec = [\"/bin/true\", »\"{nodes}\"]", "{nodes} is unknown"),
        ("exec = [\"/bin/true\", »\"{node\"]", "a single {"),
        ("exec = [\"/bin/true\", »\"node}\"]", "a single }"),
        ("exec = [\"/bin/true\", »\"a\\nb\"]", "line breaks"),
        ("agent = »\"ipmilan\"", "no name of a fence agent"),
        ("agent = »\"../sbin/fence_dummy\"", "no name of a fence"),
        ("agent = »\"fence_dummy/\"", "no name of a fence agent"),
        ("agent = »\"fence_not_there\"", "install the agent"),
        ("agent = »\"fence_recorder\"", "would ask itself"),
        ("name = »5\nexec = [\"/bin/true\"]", "name must be a string"),
        ("exec = [\"/bin/true\"]\ntimeout = »1", "timeout must be a"),
    ];
    for (lines, words) in cases {
        is_refused(&rule(lines), &[words]);
    }
}

#[test]
fn a_wrong_parameter_is_refused_where_it_stands() {
    let cases = [
        ("action = »\"status\"", "off, on, reboot, monitor"),
        ("parameters = »5", "parameters must be a table"),
        ("parameters = { ip = »true }", "a string or a whole number"),
        ("parameters = { ip = »0x10 }", "a string or a whole number"),
        ("parameters = { »\"a b\" = 1 }", "\"a b\" is no name"),
        ("parameters = { »\"a=b\" = 1 }", "\"a=b\" is no name"),
        ("parameters = { »action = \"on\" }", "set by the responder"),
        ("parameters = { »option = \"on\" }", "set by the responder"),
        ("parameters = { »nodename = \"x\" }", "set by the responder"),
        ("parameters = { ip = »\"bmc-{host}\" }", "{host} is unknown"),
        ("parameters = { ip = »\"a\\nb=c\" }", "line breaks"),
        ("secret_files = { p = »\"secrets/x\" }", "absolute path"),
        ("secret_files = { p = »\"/s/{user}\" }", "{user} is unknown"),
        ("node_parameters.ip = »\"x\"", "a table of node = value"),
        ("node_parameters.ip = { n1 = »1.5 }", "a string or a whole"),
        ("node_parameters.ip = { n1 = »\"{x}\" }", "{x} is unknown"),
    ];
    for (line, words) in cases {
        is_refused(&with_agent(line), &[words]);
    }
}

#[test]
fn unknown_keys_are_refused_at_every_level() {
    is_refused(
        "»max_job = 4\n[defaults]\n»retries = 5\n[[rule]]\nnodes = [\"*\"]\n»node = 1\n\
         [[rule.task]]\nexec = [\"/bin/true\"]\n»action = \"off\"\n\
         [[rule.task]]\nagent = \"fence_dummy\"\n»parameter = 1\n[»other]\nx = 1\n",
        &[
            "unknown key \"max_job\"",
            "unknown key \"retries\"",
            "unknown key \"node\"",
            "unknown key \"action\"",
            "unknown key \"parameter\": here are known action, agent",
            "unknown key \"other\"",
        ],
    );
}

#[test]
fn faults_of_syntax_are_reported_beside_those_of_content() {
    is_refused(
        &format!(
            "max_jobs = 4\n»max_jobs = 5\nunmatched = »\"x\"\n{}",
            rule(EXEC)
        ),
        &["duplicate key", "unmatched is one of"],
    );
    let (said, path) = check("max_jobs = \n[[rule]\n");
    assert_eq!(said.code, Some(1));
    let lines: Vec<_> = said.stderr.lines().collect();
    let of = |line: &str| {
        lines
            .iter()
            .any(|said| said.contains(&format!("{path}:{line}:")))
    };
    assert!(of("1") && of("2"), "{said:?}");
}

#[test]
fn a_column_counts_characters() {
    let text = "nodes = [\"ü\", \"日本\", »\"a[\"]";
    is_refused(&in_rule(text), &["a["]);
}

#[test]
fn an_empty_configuration_answers_nothing_and_is_refused() {
    is_refused("»", &["there is no [[rule]]"]);
    is_refused("»rule = []\n", &["there is no [[rule]]"]);
}

#[test]
fn the_directories_of_the_spool_must_differ() {
    let text = format!(
        "»request_dir = \"/s\"\nresponse_dir = \"/s\"\n{}",
        rule(EXEC)
    );
    is_refused(&text, &["are one directory"]);
}

#[test]
fn a_rule_needs_nodes() {
    let text = format!("»[[rule]]\n[[rule.task]]\n{EXEC}\n");
    is_refused(&text, &["a rule needs nodes"]);
}

#[test]
fn a_rule_without_tasks_is_refused_unless_a_person_answers() {
    for lines in ["", "task = []\n"] {
        let text = format!("[[rule]]\nnodes = [\"*\"]\n{lines}");
        is_refused(&format!("»{text}"), &["that nobody touched"]);
        is_accepted(&format!("{text}approval = \"manual\"\n"));
    }
}

#[test]
fn a_task_is_of_one_kind() {
    let both = format!("{EXEC}\n{AGENT_TASK}");
    let two_powers = "power = \"on\"\nboot_device = \"pxe\"";
    for task in [both.as_str(), "name = \"x\"", two_powers] {
        let text = rule(task).replace("[[rule.task]]", "»[[rule.task]]");
        let kinds = "one of agent, exec, power, boot_device, virtual_media";
        is_refused(&text, &[kinds]);
    }
}

/// A rule for off alone.
fn off(task: &str) -> String {
    rule(task).replacen("[[rule.task]]", "actions = [\"off\"]\n[[rule.task]]", 1)
}

/// A BMC of all nodes, whose address and what follows are `lines`.
fn bmc(protocol: &str, lines: &str) -> String {
    format!(
        "[[bmc]]\nnodes = [\"*\"]\nprotocol = \"{protocol}\"\nusername = \"admin\"\npassword_file = \"/s/{{node}}\"\n{lines}\n"
    )
}

fn redfish() -> String {
    bmc("redfish", "address = \"https://bmc-{node}:8443/\"")
}

fn ipmi() -> String {
    bmc("ipmi", "address = \"bmc-{node}:6230\"")
}

#[test]
fn a_wrong_value_of_a_bmc_is_refused_where_it_stands() {
    let task = off("power = \"off\"");
    let cases = [
        (
            "redfish",
            "address = »\"bmc-{node}\"",
            "no http:// or https:// URL",
        ),
        (
            "redfish",
            "address = »\"https://a@evil\"",
            "no http:// or https:// URL",
        ),
        (
            "redfish",
            "address = »\"https://bmc/redfish\"",
            "no http:// or https:// URL",
        ),
        ("redfish", "address = »\"http://bmc\"", "insecure = true"),
        (
            "redfish",
            "address = »\"https://{nodes}\"",
            "{nodes} is unknown",
        ),
        ("ipmi", "address = »\"bmc:port\"", "no host, or host:port"),
        ("ipmi", "address = »\"-bmc\"", "no host, or host:port"),
        (
            "ipmi",
            "address = »\"https://bmc\"",
            "no host, or host:port",
        ),
        (
            "redfish",
            "address = \"https://bmc\"\nca_file = »\"/no/such\"",
            "does not exist",
        ),
        (
            "redfish",
            "address = \"https://bmc\"\nca_file = »\"/etc/passwd\"",
            "no certificate in PEM",
        ),
        (
            "redfish",
            "address = \"https://bmc\"\ninsecure = »\"yes\"",
            "true or false",
        ),
        (
            "ipmi",
            "address = \"bmc\"\ncipher_suite = »18",
            "from 0 to 17",
        ),
    ];
    for (protocol, lines, words) in cases {
        is_refused(&(bmc(protocol, lines) + &task), &[words]);
    }
}

#[test]
fn what_a_bmc_lacks_or_can_not_have_is_refused() {
    let task = off("power = \"off\"");
    let marked = |text: String| text.replace("[[bmc]]", "»[[bmc]]") + &task;
    for key in ["protocol", "address", "username", "password_file", "nodes"] {
        let text = redfish();
        let lines = text.lines().filter(|line| !line.starts_with(key));
        let text = lines.collect::<Vec<_>>().join("\n") + "\n";
        is_refused(&marked(text), &[&format!("needs {key}")]);
    }
    for (protocol, address, line, words) in [
        (
            "ipmi",
            "bmc",
            "system = \"1\"",
            "system means nothing to IPMI",
        ),
        (
            "ipmi",
            "bmc",
            "insecure = true",
            "insecure means nothing to IPMI",
        ),
        (
            "redfish",
            "https://bmc",
            "cipher_suite = 3",
            "cipher_suite means nothing to Redfish",
        ),
        ("ipmi", "bmc", "cipher_suite = 0", "asks for no password"),
    ] {
        let text = bmc(protocol, &format!("address = \"{address}\"\n{line}"));
        is_refused(&marked(text), &[words]);
    }
}

#[test]
fn a_task_that_a_bmc_can_not_do_is_refused() {
    let media = "power = \"off\"\n[[rule.task]]\nvirtual_media = { kind = \"CD\" }";
    let safe = "power = \"off\"\n[[rule.task]]\nboot_device = \"safe\"";
    for (bmc, task, words) in [
        (ipmi(), media, "IPMI knows no virtual media"),
        (redfish(), safe, "Redfish knows no boot into safe mode"),
        (String::new(), "power = \"off\"", "needs a [[bmc]]"),
    ] {
        let text = bmc + &off(task).replace("[[rule]]", "»[[rule]]");
        is_refused(&text, &[words]);
    }
    is_accepted(&(redfish() + &off(media)));
    is_accepted(&(ipmi() + &off(safe)));
}

#[test]
fn it_is_the_nodes_own_bmc_that_must_be_able_to_do_it() {
    let two = ipmi().replace("\"*\"", "\"old-1\"") + &redfish().replace("\"*\"", "\"*-1\"");
    let media = |nodes: &str| {
        let media = "power = \"off\"\n[[rule.task]]\nvirtual_media = { kind = \"CD\" }";
        off(media).replace("\"*\"", nodes)
    };
    is_accepted(&(two.clone() + &media("\"new-1\"")));
    for nodes in ["\"old-1\"", "\"old-*\""] {
        let text = media(nodes).replace("[[rule]]", "»[[rule]]");
        is_refused(&(two.clone() + &text), &["the BMC of old-1"]);
    }
    // both of its tasks
    let text = media("\"new-2\"").replace("[[rule]]", "»»[[rule]]");
    let words = "no [[bmc]] has the node new-2";
    is_refused(&(two + &text), &[words, words]);
}

#[test]
fn a_wrong_step_is_refused_where_it_stands() {
    let cases = [
        ("power = »\"down\"", "on, off, soft, cycle, reset, status"),
        ("power = \"off\"\n»efi = true", "unknown key \"efi\""),
        ("boot_device = »\"floppy\"", "pxe, disk, bios, cdrom, safe"),
        ("boot_device = \"pxe\"\nefi = »1", "true or false"),
        ("virtual_media = »{ }", "needs the kind"),
        (
            "virtual_media = { kind = »\"Tape\" }",
            "CD, DVD, USBStick, Floppy",
        ),
        (
            "virtual_media = { kind = \"CD\", url = »\"\" }",
            "leave it out to eject",
        ),
        (
            "virtual_media = { kind = \"CD\", »image = \"x\" }",
            "unknown key",
        ),
    ];
    for (line, words) in cases {
        let text = redfish() + &off("power = \"off\"") + "[[rule.task]]\n" + line;
        is_refused(&text, &[words]);
    }
}

#[test]
fn what_steps_do_to_the_power_must_be_what_the_answer_says() {
    let with = |steps: &[&str], actions: &str| {
        let tasks: Vec<_> = steps
            .iter()
            .map(|step| format!("[[rule.task]]\n{step}\n"))
            .collect();
        let tasks = tasks.concat();
        format!(
            "{}[[rule]]\nnodes = [\"*\"]\nactions = [{actions}]\n{tasks}",
            redfish()
        )
    };
    let (off, on, cycle) = ("power = \"off\"", "power = \"on\"", "power = \"cycle\"");
    let (pxe, status) = ("boot_device = \"pxe\"", "power = \"status\"");
    is_accepted(&with(&[off, pxe, on], "\"reboot\""));
    is_accepted(&with(&["power = \"soft\""], "\"off\""));
    is_accepted(&with(&[cycle], "\"reboot\""));
    for (steps, action) in [
        (&[off, on][..], "\"off\""),
        (&[cycle], "\"off\""),
        (&[on], "\"reboot\""),
        (&[pxe], "\"off\""),
        (&[status], "\"reboot\""),
        (&[off], "\"on\""),
    ] {
        let text = with(steps, action).replace("[[rule]]", "»[[rule]]");
        is_refused(&text, &["would say that the node was put through"]);
    }
    let twice = with(&[cycle, "power = \"reset\""], "\"reboot\"");
    let twice = twice.replace("[[rule]]", "»[[rule]]");
    is_refused(&twice, &["more than one task would reboot"]);
}

#[test]
fn the_example_of_bare_metal_is_right_but_for_the_files_that_are_the_sites_own() {
    let text = include_str!("../../packaging/examples/bare-metal.toml");
    let authority = "ca_file = \"/etc/pki/bmc-ca.pem\"";
    is_refused(
        &text.replace(authority, "ca_file = »\"/etc/pki/bmc-ca.pem\""),
        &["/etc/pki"],
    );
    let told = is_accepted(&text.replace(authority, ""));
    for line in [
        "bmc of compute-*: redfish https://bmc-{node} as admin (password in /etc/fence_recorder/secrets/{node}), system {node}",
        "bmc of login-*: ipmi bmc-{node} as admin (password in /etc/fence_recorder/secrets/{node})",
        "2. \"boot from the network\": boot once from pxe (legacy), attempts 3, 1 s apart, 15 s each",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
}

#[test]
fn names_of_rules_and_tasks_are_taken_once() {
    let named = |node: &str| in_rule(&format!("nodes = [\"{node}\"]\nname = \"a\""));
    let text = format!("{}»{}", named("n1"), named("n2"));
    is_refused(&text, &["named \"a\" already"]);
    let task = format!("[[rule.task]]\nname = \"t\"\n{EXEC}\n");
    let text = format!("[[rule]]\nnodes = [\"*\"]\n{task}»{task}");
    is_refused(&text, &["named \"t\" already"]);
}

#[test]
fn a_parameter_is_set_in_one_place() {
    let cases = [
        "parameters = { ip-addr = 1, »ip_addr = 2 }",
        "parameters = { password = 1 }\nsecret_files = { »password = \"/x\" }",
        "parameters = { ip_port = 1 }\nnode_parameters.»ip-port = { n1 = 2 }",
        "secret_files = { a-b-c = \"/x\" }\nnode_parameters.»a_b-c = { n1 = 2 }",
    ];
    for lines in cases {
        is_refused(&with_agent(lines), &["is set in two places"]);
    }
    let thrice = "parameters = { a-b = 1 }\nsecret_files = { »a_b = \"/x\" }\n\
                  node_parameters.»a_b = { n1 = 2 }";
    is_refused(&with_agent(thrice), &["a_b is set in two"; 2]);
}

#[test]
fn two_supplies_are_never_rebooted_one_after_the_other() {
    let tasks = |actions: &[&str]| -> String {
        let task = |action: &&str| format!("[[rule.task]]\n{AGENT_TASK}\n{action}\n");
        actions.iter().map(task).collect()
    };
    let (none, reboot) = ("", "action = \"reboot\"");
    for two in [[none, none], [none, reboot], [reboot, reboot]] {
        let text = format!(
            "»[[rule]]\nnodes = [\"*\"]\nactions = [\"reboot\"]\n{}",
            tasks(&two)
        );
        is_refused(&text, &["off, off, on, on"]);
    }
    let (off, on) = ("action = \"off\"", "action = \"on\"");
    let cycle = tasks(&[off, off, on, on]);
    is_accepted(&format!(
        "[[rule]]\nnodes = [\"*\"]\nactions = [\"reboot\"]\n{cycle}"
    ));
    let two = tasks(&[none, none]);
    is_accepted(&format!(
        "[[rule]]\nnodes = [\"*\"]\nactions = [\"off\"]\n{two}"
    ));
}

#[test]
fn what_a_rule_performs_must_answer_what_is_asked() {
    let cases = [
        ("actions = [\"off\", \"on\"]\nperforms = \"off\"", "to on"),
        ("actions = [\"off\"]\nperforms = \"on\"", "no answer to off"),
        (
            "actions = [\"off\"]\nperforms = \"reboot\"",
            "no answer to off",
        ),
        ("notify = [\"/bin/true\"]", "notify needs approval"),
    ];
    for (lines, words) in cases {
        is_refused(&format!("»{}", in_rule(lines)), &[words]);
    }
}

/// A rule of fence agents that are told these actions; an empty one is the request's.
fn rule_of_agents(lines: &str, actions: &[&str]) -> String {
    let task = |action: &&str| match *action {
        "" => format!("[[rule.task]]\n{AGENT_TASK}\n"),
        action => format!("[[rule.task]]\n{AGENT_TASK}\naction = \"{action}\"\n"),
    };
    let tasks: String = actions.iter().map(task).collect();
    format!("[[rule]]\nnodes = [\"*\"]\n{lines}\n{tasks}")
}

#[test]
fn tasks_that_do_something_else_than_the_answer_says_are_refused() {
    let refused: [(&str, &[&str]); 8] = [
        ("actions = [\"off\"]", &["monitor"]),
        ("actions = [\"off\"]", &["on"]),
        ("actions = [\"off\"]", &["reboot"]),
        ("actions = [\"off\"]", &["off", "on"]),
        ("actions = [\"reboot\"]", &["off"]),
        ("actions = [\"reboot\"]", &["on"]),
        ("actions = [\"reboot\"]\nperforms = \"off\"", &[""]),
        ("actions = [\"on\"]", &["off"]),
    ];
    for (lines, actions) in refused {
        let text = format!("»{}", rule_of_agents(lines, actions));
        is_refused(&text, &["would say that the node was put through"]);
    }
    let accepted: [(&str, &[&str]); 6] = [
        ("", &[""]),
        ("performs = \"off\"", &["monitor", "off"]),
        ("actions = [\"reboot\"]", &["off", "on"]),
        ("actions = [\"reboot\"]", &["reboot"]),
        ("actions = [\"on\"]", &["on"]),
        ("actions = [\"on\"]", &["reboot"]),
    ];
    for (lines, actions) in accepted {
        is_accepted(&rule_of_agents(lines, actions));
    }
}

#[test]
fn a_rule_that_nothing_is_left_for_is_refused() {
    let first = in_rule("nodes = [\"*\"]\nname = \"all\"");
    let later = in_rule("nodes = [\"n1\"]\nactions = [\"off\"]");
    is_refused(
        &format!("{first}»{later}"),
        &["nothing is left for this rule: \"all\""],
    );
    is_accepted(&format!("{later}{first}"));
    let other = in_rule("nodes = [\"n1\"]\nactions = [\"on\"]");
    is_accepted(&format!("{first}{other}"));
}

#[test]
fn patterns_that_no_node_can_have_are_refused() {
    for pattern in ["", "a/b"] {
        let text = in_rule(&format!("nodes = [\"n1\", »\"{pattern}\"]"));
        is_refused(&text, &["can match no node"]);
    }
}

#[test]
fn programs_that_others_could_change_are_refused() {
    let scene = Scene::without_responder("");
    scene.script("task", "true");
    fs::create_dir(scene.path("open")).unwrap();
    fs::copy(scene.path("task"), scene.path("open/task")).unwrap();
    scene.env.chmod("open", 0o777);
    let check = |name: &str| {
        scene.configure(&rule(&format!("exec = [\"DIR/{name}\"]")));
        scene.check()
    };
    assert_eq!(check("task").code, Some(0));
    check("open/task").failed_with(&["open is writable by others"]);
    scene.env.chmod("task", 0o757);
    check("task").failed_with(&["task is writable by others"]);
    scene.env.chmod("task", 0o755);
    chown(scene.path("task"), Some(65534), None).unwrap();
    check("task").failed_with(&["belongs to user 65534"]);
}

/// A name in /usr/sbin that is gone after the test.
struct Installed(PathBuf);

impl Installed {
    fn new() -> Self {
        Self(format!("/usr/sbin/fence_recorder_test_{}", uuid()).into())
    }

    fn name(&self) -> &str {
        self.0.file_name().unwrap().to_str().unwrap()
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn this_agent_is_refused_under_any_name() {
    let (link, hard) = (Installed::new(), Installed::new());
    symlink(AGENT, &link.0).unwrap();
    // on another file system there is no such name
    let has_hard = fs::hard_link(AGENT, &hard.0).is_ok();
    let names = [Some(link.name()), has_hard.then(|| hard.name())];
    for name in names.into_iter().flatten() {
        is_refused(
            &rule(&format!("agent = »\"{name}\"")),
            &["would ask itself"],
        );
    }
}

#[test]
fn a_link_to_an_installed_copy_of_this_agent_is_refused() {
    let scene = Scene::without_responder("");
    scene.script("fence_recorder", "true");
    let link = Installed::new();
    symlink(scene.path("fence_recorder"), &link.0).unwrap();
    let text = rule(&format!("agent = »\"{}\"", link.name()));
    is_refused(&text, &["would ask itself"]);
}

/// Expects the scene's configuration to be refused for the file itself.
#[track_caller]
fn file_is_refused(scene: &Scene, words: &[&str]) {
    scene.check().failed_with(words);
}

#[test]
fn a_configuration_that_others_can_write_is_refused() {
    let scene = Scene::without_responder(&rule(EXEC));
    for mode in [0o664, 0o646, 0o666] {
        scene.env.chmod("responder.toml", mode);
        file_is_refused(&scene, &["responder.toml is writable by others", "chmod"]);
    }
    scene.env.chmod("responder.toml", 0o644);
    assert_eq!(scene.check().code, Some(0));
}

#[test]
fn a_configuration_of_another_user_is_refused() {
    let scene = Scene::without_responder(&rule(EXEC));
    chown(scene.path("responder.toml"), Some(65534), None).unwrap();
    file_is_refused(&scene, &["belongs to user 65534"]);
}

#[test]
fn a_configuration_in_a_directory_that_others_control_is_refused() {
    let scene = Scene::without_responder(&rule(EXEC));
    for mode in [0o777, 0o775, 0o1777] {
        scene.env.chmod("", mode);
        file_is_refused(&scene, &["is writable by others"]);
    }
    scene.env.chmod("", 0o755);
    assert_eq!(scene.check().code, Some(0));
    chown(scene.path(""), Some(65534), None).unwrap();
    file_is_refused(&scene, &["belongs to user 65534"]);
}

#[test]
fn a_link_to_the_configuration_is_followed_only_where_nobody_else_can_turn_it() {
    let scene = Scene::without_responder(&rule(EXEC));
    fs::create_dir(scene.path("real")).unwrap();
    fs::create_dir(scene.path("open")).unwrap();
    fs::rename(scene.path("responder.toml"), scene.path("real/r.toml")).unwrap();
    symlink("real/r.toml", scene.path("responder.toml")).unwrap();
    assert_eq!(scene.check().code, Some(0), "{:?}", scene.check());
    std::os::unix::fs::lchown(scene.path("responder.toml"), Some(65534), None).unwrap();
    file_is_refused(&scene, &["link of user 65534"]);
    fs::remove_file(scene.path("responder.toml")).unwrap();
    symlink("open/r.toml", scene.path("responder.toml")).unwrap();
    symlink("../real/r.toml", scene.path("open/r.toml")).unwrap();
    assert_eq!(scene.check().code, Some(0), "{:?}", scene.check());
    scene.env.chmod("open", 0o777);
    file_is_refused(&scene, &["open is writable by others"]);
}

#[test]
fn what_is_no_readable_text_file_is_refused_and_never_waited_for() {
    let scene = Scene::without_responder("");
    let path = scene.path("responder.toml");
    fs::remove_file(&path).unwrap();
    file_is_refused(&scene, &["responder.toml", "is not there"]);
    symlink("responder.toml", &path).unwrap();
    file_is_refused(&scene, &["responder.toml", "symbolic links"]);
    fs::remove_file(&path).unwrap();
    mkfifo(&path, Mode::from_bits_truncate(0o600)).unwrap();
    file_is_refused(&scene, &["is not a regular file"]);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    file_is_refused(&scene, &["is not a regular file"]);
    fs::remove_dir(&path).unwrap();
    fs::write(&path, vec![b'#'; 1024 * 1024 + 1]).unwrap();
    file_is_refused(&scene, &["is larger than 1048576 bytes"]);
    fs::write(&path, b"# \xff\n").unwrap();
    file_is_refused(&scene, &["is not UTF-8"]);
}

#[test]
fn a_faulty_configuration_starts_no_responder() {
    let scene = Scene::without_responder("max_jobs = 0\n");
    let mut command = scene.command();
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, scene.check().stderr);
    assert!(!scene.path("state").exists());
}

const WHOLE: &str = r#"request_dir = "/s/requests"
response_dir = "/s/responses"
state_dir = "/s/state"
log_dir = "/s/log"
metrics_file = "/s/m.prom"
max_jobs = 8
unmatched = "ignore"
keep_jobs = "7d"
stop_grace = "1m 30s"
[defaults]
retry_count = 2
retry_interval = "3s"
timeout = "10s"
[[rule]]
name = "compute nodes"
nodes = ["compute-*", "n{1,2}"]
performs = "off"
[[rule.task]]
name = "detach storage"
exec = ["/bin/true", "{node}", "two words", ""]
timeout = "500ms"
[[rule.task]]
agent = "fence_dummy"
action = "off"
parameters = { ip = "bmc-{node}", port = 6_230, brace = "{{x}}" }
secret_files = { password = "/secrets/{node}" }
node_parameters.ip-port = { n1 = "6233", n2 = "6234" }
retry_count = 3
"#;

const WHOLE_TOLD: &str = r#"request_dir   /s/requests
response_dir  /s/responses
state_dir     /s/state
log_dir       /s/log
metrics_file  /s/m.prom
max_jobs      8
unmatched     ignore
keep_jobs     604800 s
stop_grace    90 s

rule "compute nodes"
  off, reboot of compute-*, n{1,2}
  performs off
  1. "detach storage": /bin/true {node} "two words" "", attempts 2, 3 s apart, 0.5 s each
  2. "task 2": /usr/sbin/fence_dummy action=off brace={{x}} ip=bmc-{node} ip_port=(n1: 6233, n2: 6234) password=(secret in /secrets/{node}) port=6230, attempts 3, 3 s apart, 10 s each
  at most 40 s with every attempt at its timeout: for all of it set response_timeout=45, pcmk_reboot_timeout=65, pcmk_off_timeout=65 and stonith-timeout=65 or more
"#;

#[test]
fn a_good_configuration_is_told_back_with_the_timeouts_it_needs() {
    assert_eq!(is_accepted(WHOLE), WHOLE_TOLD);
}

#[test]
fn a_minimal_configuration_is_told_back_with_its_defaults() {
    let told = is_accepted(&rule(EXEC));
    for line in [
        "request_dir   /run/fence_recorder/requests\n",
        "state_dir     /var/lib/fence_recorder\n",
        "max_jobs      64\n",
        "unmatched     refuse\n",
        "keep_jobs     2592000 s\n",
        "stop_grace    30 s\n",
        "  off, reboot of *\n",
        "  1. \"task 1\": /bin/true, attempts 5, 5 s apart, 60 s each\n",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
}

#[test]
fn a_rule_that_waits_for_a_person_says_which_timeouts_a_person_needs() {
    let manual = "[[rule]]\nnodes = [\"*\"]\napproval = \"manual\"\n";
    let told = is_accepted(&format!("{manual}notify = [\"/bin/true\", \"{{node}}\"]\n"));
    for words in [
        "waits for a person: fence_recorder answer NODE --success or --failure",
        "notifies with /bin/true {node}",
        "more than the default 55 s",
        "response_timeout=605, pcmk_reboot_timeout=625, pcmk_off_timeout=625 and stonith-timeout=625",
    ] {
        assert!(told.contains(words), "{words}\n{told}");
    }
    let task = format!("[[rule.task]]\n{EXEC}\ntimeout = \"20s\"\nretry_count = 1\n");
    let told = is_accepted(&format!("{manual}{task}"));
    assert!(
        told.contains("and the tasks' 20 s set response_timeout=625"),
        "{told}"
    );
}

#[test]
fn a_secret_is_not_even_read_by_a_check() {
    let scene = Scene::without_responder(&with_agent("secret_files = { p = \"DIR/none\" }"));
    let told = scene.check();
    assert_eq!(told.code, Some(0), "{told:?}");
    fs::write(scene.path("none"), "hunter2\n").unwrap();
    fs::set_permissions(scene.path("none"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(scene.check(), told);
}
