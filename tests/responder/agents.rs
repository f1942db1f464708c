//! Fence agents as tasks: what they are told, and that secrets stay secret.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::scene::{Scene, reason_of, request, rule, uuid};

/// A fence agent in /usr/sbin for the time of a test; the installed ones don't show their input.
struct TestAgent {
    path: PathBuf,
}

impl TestAgent {
    fn new() -> Self {
        let path = PathBuf::from(format!("/usr/sbin/fence_recorder_test_{}", uuid()));
        let agent = Self { path };
        agent.does("true");
        fs::set_permissions(&agent.path, fs::Permissions::from_mode(0o755)).unwrap();
        agent
    }

    fn name(&self) -> &str {
        self.path.file_name().unwrap().to_str().unwrap()
    }

    fn does(&self, body: &str) {
        fs::write(&self.path, format!("#!/bin/sh\n{body}\n")).unwrap();
    }
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A responder whose one task is a test agent with these lines; `DIR` in both is the scene's
/// directory.
fn scene_with(lines: &str, body: &str) -> (Scene, TestAgent) {
    let agent = TestAgent::new();
    let task = format!("agent = \"{}\"\nretry_count = 1\n{lines}", agent.name());
    let metrics = "metrics_file = \"DIR/responder.prom\"\n";
    let scene = Scene::without_responder(&format!("{metrics}{}", rule(&task)));
    let directory = scene.path("").display().to_string();
    agent.does(&body.replace("DIR/", &directory));
    (scene, agent)
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn secret(scene: &Scene, name: &str, content: &[u8]) {
    fs::write(scene.path(name), content).unwrap();
    scene.env.chmod(name, 0o600);
}

fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap()
}

#[test]
fn an_agent_is_told_action_nodename_and_parameters_and_nothing_else() {
    let lines = "parameters = { ip = \"bmc-{node}\", what = \"{action} of {request_id}\", \
                 lanplus = 1, user-name = \"{{fence}}\" }\n\
                 secret_files = { password = \"DIR/secret-{node}\" }\n\
                 node_parameters.ipport = { n1 = \"6233\", n2 = 6234 }\n\
                 node_parameters.host = { n1 = \"a\", n2 = \"{node}.example\" }";
    let (mut scene, _agent) = scene_with(lines, "cat >DIR/in; echo \"$#\" >DIR/words");
    secret(&scene, "secret-n2", b" p=w \"d\"\r\n");
    scene.start();
    let id = scene.request("off", "n2", 30.0);
    assert_eq!(scene.answer("n2", &id)["success"], true);
    let what = format!("what=off of {id}");
    let told = [
        "action=off",
        "host=n2.example",
        "ip=bmc-n2",
        "ipport=6234",
        "lanplus=1",
        "nodename=n2",
        "password= p=w \"d\"",
        "user_name={fence}",
        what.as_str(),
    ];
    assert_eq!(sorted(&scene.text("in")), told);
    assert_eq!(scene.text("words"), "0\n");
}

#[test]
fn an_agent_is_told_the_nodename_of_the_request_and_the_action_of_its_task() {
    let (mut scene, _agent) = scene_with("action = \"reboot\"", "cat >DIR/in");
    let text = fs::read_to_string(scene.path("responder.toml")).unwrap();
    let text = text.replace("[[rule]]\n", "[[rule]]\nactions = [\"on\"]\n");
    fs::write(scene.path("responder.toml"), text).unwrap();
    scene.start();
    let id = uuid();
    let mut asked = request(&id, "on", "plug-7", 30.0);
    asked["nodename"] = json!("n1.cluster");
    scene.request_with(&id, "plug-7", &asked);
    scene.ended_job(&id);
    assert_eq!(scene.text("in"), "action=reboot\nnodename=n1.cluster\n");
}

const SECRET: &str = "hunter2-and-more-of-it";

/// Every file below `path` that holds the secret, but the one it was configured in.
fn files_with_secret(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_with_secret(&path, found);
        } else if fs::read(&path).is_ok_and(|bytes| holds_secret(&bytes)) && !path.ends_with("key")
        {
            found.push(path);
        }
    }
}

fn holds_secret(bytes: &[u8]) -> bool {
    String::from_utf8_lossy(bytes).contains(SECRET)
}

/// The command line and environment of a process hold no secret.
#[track_caller]
fn shows_no_secret(pid: &str) {
    for file in ["cmdline", "environ", "comm"] {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap();
        assert!(
            !bytes.is_empty() && !holds_secret(&bytes),
            "{file} of {pid}"
        );
    }
}

#[test]
fn a_secret_is_seen_nowhere_but_by_its_agent() {
    let lines = "secret_files = { password = \"DIR/key\" }";
    let body = "read a; read n; read p; p=${p#password=}\n\
                echo \"$p\"; echo \"login with $p failed: $p\" >&2\n\
                echo ${#p} $$ >DIR/pid; until [ -e DIR/go ]; do /bin/sleep 0.01; done; exit 1";
    let (mut scene, _agent) = scene_with(lines, body);
    secret(&scene, "key", format!("{SECRET}\n").as_bytes());
    scene.start();
    let id = scene.request("off", "n1", 30.0);
    let text = scene.wait_for_file("pid");
    let (length, pid) = text.trim().split_once(' ').unwrap();
    assert_eq!(length, SECRET.len().to_string());
    shows_no_secret(pid);
    shows_no_secret(&scene.pid().to_string());
    scene.touch("go");
    let answer = scene.answer("n1", &id);
    let said = "exit code 1: login with [secret] failed: [secret]";
    assert!(message(&answer).ends_with(said), "{answer}");
    assert_eq!(reason_of(&scene.ended_job(&id)), "TaskFailed");
    let check = scene.check();
    assert!(
        check.stdout.contains("key") && !check.stdout.contains(SECRET),
        "{check:?}"
    );
    assert_eq!(scene.stop(), Some(0));
    scene.wait_for_log(&["WARN", "login with [secret]"]);
    assert!(scene.path("responder.prom").exists());
    let mut found = Vec::new();
    files_with_secret(&scene.path(""), &mut found);
    assert_eq!(found, Vec::<PathBuf>::new());
}

#[test]
fn a_real_agent_that_prints_its_parameters_shows_no_secret() {
    // it warns of the one that it doesn't know, and sleeps
    let task = "agent = \"fence_dummy\"\nretry_count = 1\ntimeout = \"2s\"\n\
                parameters = { random_sleep_range = 1000000 }\n\
                secret_files = { secret = \"DIR/key\" }";
    let mut scene = Scene::without_responder(&rule(task));
    secret(&scene, "key", format!("{SECRET}\n").as_bytes());
    scene.start();
    let (answer, _) = scene.run("off", "n1");
    let said = message(&answer);
    assert!(said.ends_with("unknown option 'secret=[secret]'"), "{said}");
    scene.stop();
    let mut found = Vec::new();
    files_with_secret(&scene.path(""), &mut found);
    assert_eq!(found, Vec::<PathBuf>::new());
}

/// The message of an agent that does `body` with the secrets of its two parameters in `$p` and `$q`.
fn message_with_secrets(p: &str, q: &str, body: &str) -> String {
    let lines = "secret_files = { p = \"DIR/p\", q = \"DIR/q\" }";
    let read = "IFS=; read -r a; read -r n; read -r p; read -r q; p=${p#p=}; q=${q#q=}";
    let (mut scene, _agent) = scene_with(lines, &format!("{read}\n{body}"));
    secret(&scene, "p", p.as_bytes());
    secret(&scene, "q", q.as_bytes());
    scene.start();
    let (answer, _) = scene.run("off", "n1");
    assert_eq!(answer["success"], true, "{answer}");
    message(&answer).to_owned()
}

#[test]
fn no_part_of_a_secret_is_left_of_it() {
    let cases = [
        // one begins like the other
        ("abc", "abcdef", "echo \"is $q\"", "is [secret]"),
        ("abcdef", "abc", "echo \"is $p\"", "is [secret]"),
        // white space at its ends is the line's, or was stripped by the agent
        (" x y ", "z", "printf '%s' \"$p\"", "[secret]"),
        (" x y ", "z", "echo \"is $p\"", "is [secret]"),
        (" x y ", "z", "echo 'is(x y)'", "is([secret])"),
        // what would be escaped in a line
        ("a\tb", "z", "echo \"is $p\"", "is [secret]"),
        ("\\$&*[x", "ü", "echo \"is $p$q\"", "is [secret][secret]"),
    ];
    for (p, q, body, said) in cases {
        assert_eq!(message_with_secrets(p, q, body), said, "{p:?} {q:?} {body}");
    }
}

#[test]
fn a_secret_at_the_cut_of_long_output_leaves_no_end_behind() {
    // of a line longer than what is kept, the kept part begins within the secret
    let body = "printf '%s' \"$p\"; head -c 16374 /dev/zero | tr '\\0' x";
    let said = message_with_secrets("0123456789abcdefghij", "z", body);
    assert!(said.starts_with("xxx") && said.ends_with('…'), "{said}");
}

/// A responder with a first task that leaves a trace, and a second that needs the secret of its
/// node.
fn scene_with_secrets() -> Scene {
    let rules = format!(
        "[defaults]\nretry_count = 1\n{}[[rule.task]]\nname = \"power\"\nagent = \"fence_dummy\"\n\
         action = \"off\"\nparameters = {{ status_file = \"DIR/status\" }}\n\
         secret_files = {{ password = \"DIR/secrets/{{node}}\" }}\n",
        rule("exec = [\"DIR/first\"]")
    );
    let scene = Scene::with_scripts(&rules, &[("first", "echo $FENCE_NODE >>DIR/ran")]);
    fs::create_dir(scene.path("secrets")).unwrap();
    scene
}

#[track_caller]
fn is_refused_before_any_task(scene: &Scene, node: &str, words: &str) {
    let (answer, job) = scene.run("off", node);
    assert_eq!(answer["success"], false, "{node}");
    let said = message(&answer);
    assert!(
        said.starts_with("task \"power\": ") && said.contains(words),
        "{said}"
    );
    assert_eq!(reason_of(&job), "Refused");
    assert_eq!(job["tasks"][0]["state"], "Pending");
    assert_eq!(scene.text("ran"), "", "{node}");
}

#[test]
fn a_secret_file_that_others_can_read_or_write_is_refused_before_any_task() {
    let scene = scene_with_secrets();
    for (node, mode, words) in [
        ("group-reads", 0o640, "others can read"),
        ("others-read", 0o604, "others can read"),
        ("group-writes", 0o620, "writable by others"),
        ("others-write", 0o602, "writable by others"),
    ] {
        secret(&scene, &format!("secrets/{node}"), b"x\n");
        scene.env.chmod(&format!("secrets/{node}"), mode);
        is_refused_before_any_task(&scene, node, words);
    }
    secret(&scene, "secrets/owned", b"x\n");
    chown(scene.path("secrets/owned"), Some(65534), None).unwrap();
    is_refused_before_any_task(&scene, "owned", "belongs to user 65534");
    secret(&scene, "secrets/good", b"x\n");
    assert_eq!(scene.run("off", "good").0["success"], true);
    assert_eq!(scene.text("ran"), "good\n");
}

#[test]
fn a_secret_that_is_no_one_line_is_refused_before_any_task() {
    let scene = scene_with_secrets();
    for (node, content, words) in [
        ("two-lines", &b"x\ny\n"[..], "must hold one line"),
        ("injected", b"x\naction=on\n", "must hold one line"),
        ("blank-after", b"x\n\n", "must hold one line"),
        ("return", b"x\ry", "must hold one line"),
        ("nul", b"x\0y\n", "must hold one line"),
        ("empty", b"", "must hold one line"),
        ("only-a-break", b"\n", "must hold one line"),
        ("binary", b"\xff\xfe\n", "is not UTF-8"),
    ] {
        secret(&scene, &format!("secrets/{node}"), content);
        is_refused_before_any_task(&scene, node, words);
    }
    is_refused_before_any_task(&scene, "missing", "is not there");
    fs::create_dir(scene.path("secrets/directory")).unwrap();
    is_refused_before_any_task(&scene, "directory", "not a regular file");
}

#[test]
fn a_link_to_a_secret_is_followed_only_where_nobody_else_can_turn_it() {
    let scene = scene_with_secrets();
    secret(&scene, "real", b"x\n");
    symlink(scene.path("real"), scene.path("secrets/foreign")).unwrap();
    std::os::unix::fs::lchown(scene.path("secrets/foreign"), Some(65534), None).unwrap();
    is_refused_before_any_task(&scene, "foreign", "link of user 65534");
    symlink("../open/link", scene.path("secrets/through")).unwrap();
    fs::create_dir(scene.path("open")).unwrap();
    symlink("../real", scene.path("open/link")).unwrap();
    scene.env.chmod("open", 0o777);
    is_refused_before_any_task(&scene, "through", "writable by others");
    scene.env.chmod("open", 0o755);
    assert_eq!(scene.run("off", "through").0["success"], true);
}

#[test]
fn a_secret_in_a_directory_of_others_is_refused_before_any_task() {
    let scene = scene_with_secrets();
    secret(&scene, "secrets/n1", b"x\n");
    scene.env.chmod("secrets", 0o777);
    is_refused_before_any_task(&scene, "n1", "writable by others");
    scene.env.chmod("secrets", 0o755);
    chown(scene.path("secrets"), Some(65534), None).unwrap();
    is_refused_before_any_task(&scene, "n1", "belongs to user 65534");
}

#[test]
fn a_secret_is_never_sought_by_an_odd_node_name() {
    let scene = scene_with_secrets();
    secret(&scene, "secrets/n1@evil", b"x\n");
    is_refused_before_any_task(&scene, "n1@evil", "can't be put into a value");
}

#[test]
fn a_node_parameter_that_lacks_the_node_is_refused_before_any_task() {
    let rules = format!(
        "{}[[rule.task]]\nname = \"power\"\nagent = \"fence_dummy\"\naction = \"off\"\n\
         parameters = {{ status_file = \"DIR/status\" }}\n\
         node_parameters.ip = {{ n1 = \"bmc-1\" }}\n",
        rule("exec = [\"DIR/first\"]")
    );
    let scene = Scene::with_scripts(&rules, &[("first", "echo $FENCE_NODE >>DIR/ran")]);
    is_refused_before_any_task(&scene, "n2", "no value for the node \"n2\"");
    is_refused_before_any_task(&scene, "N1", "no value for the node \"N1\"");
    assert_eq!(scene.run("off", "n1").0["success"], true);
}

/// A rule for all actions with `fence_dummy`, which keeps the power's state in the file `power`.
fn dummy(lines: &str) -> String {
    format!(
        "[[rule]]\nnodes = [\"*\"]\nactions = [\"off\", \"on\", \"reboot\"]\n[[rule.task]]\n\
         agent = \"fence_dummy\"\nretry_count = 1\n{lines}\n"
    )
}

#[test]
fn a_real_agent_switches_off_on_and_both() {
    let scene = Scene::new(&dummy("parameters = { status_file = \"DIR/power\" }"));
    fs::write(scene.path("power"), "on").unwrap();
    for (action, after, said) in [
        ("off", "off", "Success: Powered OFF"),
        ("off", "off", "Success: Already OFF"),
        ("on", "on", "Success: Powered ON"),
        ("reboot", "on", "Success: Rebooted"),
    ] {
        let (answer, job) = scene.run(action, "n1");
        assert_eq!(answer["success"], true, "{answer}");
        assert_eq!(answer["message"], said);
        assert_eq!(answer["action_performed"], action);
        assert_eq!(scene.text("power"), after, "{action}");
        assert_eq!(reason_of(&job), "Completed");
    }
}

#[test]
fn two_supplies_go_off_off_on_on() {
    let task = |action: &str, number: u8| {
        format!(
            "[[rule.task]]\nname = \"{action} {number}\"\nagent = \"fence_dummy\"\n\
             action = \"{action}\"\nparameters = {{ status_file = \"DIR/power{number}\" }}\n"
        )
    };
    let look = "[[rule.task]]\nname = \"look\"\nexec = [\"DIR/look\"]\n";
    let rules = format!(
        "[[rule]]\nnodes = [\"*\"]\nactions = [\"reboot\"]\n{}{}{look}{}{}",
        task("off", 1),
        task("off", 2),
        task("on", 1),
        task("on", 2)
    );
    let scene = Scene::with_scripts(&rules, &[("look", "cat DIR/power1 DIR/power2 >DIR/seen")]);
    for name in ["power1", "power2"] {
        fs::write(scene.path(name), "on").unwrap();
    }
    let (answer, _) = scene.run("reboot", "n1");
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(scene.text("seen"), "offoff");
    assert_eq!(scene.text("power1") + &scene.text("power2"), "onon");
}

#[test]
fn a_real_agent_that_is_slow_is_killed_at_its_timeout() {
    let parameters = "parameters = { status_file = \"DIR/power\", random_sleep_range = 1 }";
    let scene = Scene::new(&dummy(&format!("{parameters}\ntimeout = \"400ms\"")));
    fs::write(scene.path("power"), "on").unwrap();
    let (answer, job) = scene.run("off", "n1");
    assert_eq!(answer["success"], false, "{answer}");
    assert_eq!(reason_of(&job), "TaskTimedOut");
    assert_eq!(scene.text("power"), "on");
}

#[test]
fn a_real_agent_that_fails_has_failed() {
    let parameters = "parameters = { type = \"fail\", port = \"x\", power_timeout = 1 }";
    let scene = Scene::new(&dummy(parameters));
    let (answer, job) = scene.run("off", "n1");
    assert_eq!(answer["success"], false);
    assert_eq!(reason_of(&job), "TaskFailed");
    assert!(
        message(&answer).contains("Timed out waiting to power OFF"),
        "{answer}"
    );
    assert_eq!(job["tasks"][0]["exit_code"], 1);
}
