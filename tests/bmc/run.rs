//! `fence_recorder run` itself.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::env::{AGENT, Ended, wait_for};
use crate::job::command;
use crate::scene::{Scene, serving};

/// A directory with an executable `task`, which is this script with the directory for `DIR`.
fn with_script(body: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display().to_string();
    let script = directory.path().join("task");
    fs::write(
        &script,
        format!("#!/bin/sh\n{}\n", body.replace("DIR", &path)),
    )
    .unwrap();
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

fn exec(directory: &TempDir, arguments: &str, more: &str) -> String {
    let path = directory.path().display();
    format!("exec = [\"{path}/task\"{arguments}]\n{more}")
}

fn ended(directory: &TempDir, tasks: &[&str], options: &[&str]) -> Ended {
    let (mut command, _) = command(directory, "", tasks, "n1");
    command.args(options).output().unwrap().into()
}

#[test]
fn what_was_done_is_told_at_the_end_and_while_it_is_done() {
    let directory = with_script("echo \"$1 is done\"");
    let first = exec(&directory, ", \"{node}\"", "name = \"first\"");
    let second = exec(&directory, ", \"{request_id}\"", "name = \"second\"");
    let ended = ended(&directory, &[&first, &second], &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines[0], "1. first   Completed    n1 is done");
    assert!(
        lines[1].starts_with("2. second  Completed    "),
        "{lines:?}"
    );
    assert_eq!(lines[2], "Processing                 False    Completed");
    assert_eq!(lines[3], "FenceAgentActionSucceeded  True     Completed");
    assert_eq!(lines[4], "Succeeded                  True     Completed");
    assert!(lines[5].starts_with("n1: 2 tasks completed: "), "{lines:?}");
    let progress: Vec<_> = ended.stderr.lines().collect();
    assert_eq!(progress[0], "[1/2] first: attempt 1 of 1");
    assert!(
        progress[1].starts_with("[1/2] first: Completed after 0."),
        "{progress:?}"
    );
    assert!(progress[1].ends_with(" s: n1 is done"), "{progress:?}");
    assert_eq!(progress.len(), 4);
}

#[test]
fn on_a_terminal_progress_is_one_line_that_is_drawn_anew() {
    let directory = with_script("while [ ! -e DIR/go ]; do sleep 0.05; done; echo done");
    let task = exec(&directory, "", "name = \"waiting\"\ntimeout = \"60s\"");
    let (_, path) = command(&directory, "", &[&task], "n1");
    let line = format!("{AGENT} run {path} --node n1 --request-dir /no/such/spool");
    let output = directory.path().join("typescript");
    // script(1) gives it a terminal
    let mut child = Command::new("script")
        .args(["-qefc", &line])
        .arg(&output)
        .env("COLUMNS", "80")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let text = || fs::read_to_string(&output).unwrap_or_default();
    wait_for("the line to be drawn a second time", || {
        let drawn = "\r\u{1b}[2K[1/1] waiting: attempt 1 of 1, 1 s";
        text().contains(drawn).then_some(())
    });
    File::create(directory.path().join("go")).unwrap();
    assert!(child.wait().unwrap().success(), "{}", text());
    let text = text();
    assert!(
        text.contains("\r\u{1b}[2K[1/1] waiting: attempt 1 of 1, 0 s\r"),
        "{text:?}"
    );
    assert!(
        text.contains("\r\u{1b}[2K[1/1] waiting: Completed after "),
        "{text:?}"
    );
}

#[test]
fn a_task_that_fails_ends_the_job_after_its_attempts() {
    let directory = with_script("echo x >>DIR/tries; echo \"no $FENCE_NODE\"; exit 7");
    let failing = exec(&directory, "", "retry_count = 3\nretry_interval = \"1ms\"");
    let never = exec(&directory, "", "name = \"never\"");
    let ended = ended(&directory, &[&failing, &never], &["--json"]);
    assert_eq!(ended.code, Some(1));
    let job: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(job["tasks"][0]["attempts"].as_array().unwrap().len(), 3);
    assert_eq!(job["tasks"][0]["message"], "exit code 7: no n1");
    assert_eq!(job["tasks"][1]["state"], "Pending");
    assert_eq!(job["conditions"][2]["reason"], "TaskFailed");
    assert_eq!(job["node"], "n1");
    assert!(job["completion_time"].is_string());
    let tries = fs::read_to_string(directory.path().join("tries")).unwrap();
    assert_eq!(tries, "x\nx\nx\n");
}

#[test]
fn a_task_that_hangs_is_killed_at_its_timeout() {
    let directory = with_script("trap '' TERM; sleep 1000 & echo $! >DIR/child; wait; wait");
    let hanging = exec(&directory, "", "timeout = \"200ms\"");
    let ended = ended(&directory, &[&hanging], &["--json"]);
    let job: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (ended.code, &job["tasks"][0]["state"]),
        (Some(1), &"TimedOut".into())
    );
    assert_eq!(job["conditions"][2]["reason"], "TaskTimedOut");
    let child = fs::read_to_string(directory.path().join("child")).unwrap();
    assert!(!fs::exists(format!("/proc/{}/exe", child.trim())).unwrap());
}

#[test]
fn a_dry_run_says_what_would_be_done_without_secrets_and_does_nothing() {
    let directory = with_script("touch DIR/done");
    let secret = directory.path().join("secret");
    fs::write(&secret, "s3cret\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let secret = secret.display().to_string();
    let bmc = format!(
        "[[bmc]]\nnodes = [\"*\"]\nprotocol = \"redfish\"\naddress = \"https://bmc-{{node}}\"\nusername = \"admin\"\npassword_file = \"{secret}\"\nsystem = \"{{node}}\"\n"
    );
    let agent = format!(
        "agent = \"fence_dummy\"\naction = \"off\"\nparameters = {{ ip = \"bmc {{node}}\" }}\nsecret_files = {{ password = \"{secret}\" }}"
    );
    let tasks = [
        exec(&directory, ", \"{node}\", \"a b\"", "name = \"script\""),
        agent,
        "power = \"off\"".to_owned(),
        "boot_device = \"pxe\"\nefi = true".to_owned(),
        "virtual_media = { kind = \"CD\", url = \"http://x/{node}.iso\" }".to_owned(),
        "virtual_media = { kind = \"CD\" }".to_owned(),
    ];
    let tasks: Vec<_> = tasks.iter().map(String::as_str).collect();
    let (mut command, _) = command(&directory, &bmc, &tasks, "n1");
    let ended = Ended::from(command.arg("--dry-run").output().unwrap());
    let path = directory.path().display();
    ended.succeeded_with(&format!(
        "would be done for n1:\n  \
         1. script: {path}/task n1 \"a b\"\n  \
         2. task 2: /usr/sbin/fence_dummy with action=off nodename=n1 ip=\"bmc n1\" password=\"(secret in {secret})\"\n  \
         3. task 3: redfish https://bmc-n1 as admin, system n1: power off\n  \
         4. task 4: redfish https://bmc-n1 as admin, system n1: boot once from pxe (UEFI)\n  \
         5. task 5: redfish https://bmc-n1 as admin, system n1: put http://x/n1.iso into the virtual CD\n  \
         6. task 6: redfish https://bmc-n1 as admin, system n1: eject the virtual CD\n"
    ));
    assert!(!directory.path().join("done").exists());
    let json = Ended::from(command.arg("--json").output().unwrap());
    let plan: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        plan["tasks"][3]["does"],
        "redfish https://bmc-n1 as admin, system n1: boot once from pxe (UEFI)"
    );
    assert!(!json.stdout.contains("s3cret"));
}

#[test]
fn a_job_file_with_faults_runs_nothing() {
    let directory = with_script("touch DIR/done");
    let task = exec(&directory, "", "");
    let takes_action = exec(&directory, ", \"{action}\"", "");
    for (tasks, words) in [
        (&[][..], "there is no [[task]]"),
        (&[&*task, "colour = 1"][..], "has one of agent, exec"),
        (
            &[&*task, &*takes_action][..],
            "set action = \"off\", \"on\" or \"reboot\"",
        ),
        (
            &[&*task, "power = \"off\""][..],
            "no [[bmc]] has the node n1",
        ),
    ] {
        let ended = ended(&directory, tasks, &[]);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{ended:?}");
        assert!(ended.stderr.contains(words), "{words} in {ended:?}");
    }
    let (mut by_others, path) = command(&directory, "", &[&task], "n1");
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    let ended = Ended::from(by_others.output().unwrap());
    ended.failed_with(&["writable by others"]);
    for node in ["", "a/b", "-x"] {
        let (mut command, _) = command(&directory, "", &[&task], "n1");
        let ended = Ended::from(command.args([&format!("--node={node}")]).output().unwrap());
        assert_eq!(ended.code, Some(1), "{node}");
    }
    assert!(!directory.path().join("done").exists());
}

#[test]
fn an_action_is_what_tasks_take() {
    let directory = with_script("echo \"$1 $FENCE_ACTION\"; cat >DIR/input");
    let task = exec(&directory, ", \"{action}\"", "");
    let ended = {
        let (mut command, _) = command(&directory, "action = \"off\"\n", &[&task], "n1");
        let path = directory.path().join("job.toml");
        let text = fs::read_to_string(&path).unwrap();
        // a key of the top stands before all tables
        let text = format!(
            "action = \"off\"\n{}",
            text.replace("action = \"off\"\n", "")
        );
        fs::write(&path, text).unwrap();
        Ended::from(command.output().unwrap())
    };
    assert!(ended.stdout.contains("Completed    off off"), "{ended:?}");
    let input = fs::read_to_string(directory.path().join("input")).unwrap();
    let input: Value = serde_json::from_str(&input).unwrap();
    assert_eq!(
        (&input["action"], &input["target_node"]),
        (&"off".into(), &"n1".into())
    );
}

/// A job of two tasks, of which the first runs until `go` is there.
fn at_work(directory: &TempDir) -> Child {
    let waiting = exec(directory, "", "name = \"waiting\"\ntimeout = \"60s\"");
    let never = exec(directory, "", "name = \"never\"");
    let (mut command, _) = command(directory, "", &[&waiting, &never], "n1");
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the task", || {
        fs::exists(directory.path().join("begun"))
            .unwrap()
            .then_some(())
    });
    child
}

const GATED: &str =
    "echo x >>DIR/ran; touch DIR/begun; while [ ! -e DIR/go ]; do sleep 0.05; done; echo gone";

fn interrupt(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
}

#[test]
fn ctrl_c_lets_the_task_end_and_starts_no_other() {
    let directory = with_script(GATED);
    let child = at_work(&directory);
    interrupt(&child, Signal::SIGINT);
    File::create(directory.path().join("go")).unwrap();
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stdout.contains("1. waiting  Completed    gone"),
        "{ended:?}"
    );
    assert!(ended.stdout.contains("2. never    Pending"), "{ended:?}");
    assert!(
        ended
            .stdout
            .ends_with("n1: stopped by SIGINT after 1 of 2 tasks\n"),
        "{ended:?}"
    );
    assert!(
        ended.stderr.contains("SIGINT: nothing is started any more"),
        "{ended:?}"
    );
    let ran = fs::read_to_string(directory.path().join("ran")).unwrap();
    assert_eq!(ran, "x\n");
}

#[test]
fn a_second_signal_ends_the_task_too() {
    let directory = with_script(GATED);
    let child = at_work(&directory);
    interrupt(&child, Signal::SIGINT);
    // two that wait at once could be taken for one if they were equal
    interrupt(&child, Signal::SIGTERM);
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.contains("Interrupted"), "{ended:?}");
    assert!(ended.stdout.contains("after 0 of 2 tasks"), "{ended:?}");
}

#[test]
fn a_signal_in_the_pause_between_attempts_ends_it() {
    let directory = with_script("touch DIR/begun; exit 1");
    let failing = exec(&directory, "", "retry_count = 2\nretry_interval = \"1h\"");
    let (mut command, _) = command(&directory, "", &[&failing], "n1");
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the first attempt", || {
        fs::exists(directory.path().join("begun"))
            .unwrap()
            .then_some(())
    });
    interrupt(&child, Signal::SIGTERM);
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert!(
        ended
            .stdout
            .contains("stopped by SIGTERM after 0 of 1 tasks"),
        "{ended:?}"
    );
}

#[test]
fn it_refuses_while_the_responder_runs_a_job_for_the_node() {
    let scene = Scene::gated("");
    let id = scene.request("off", "n1", 60.0);
    scene.ran(1);
    let directory = with_script("touch DIR/done");
    let task = exec(&directory, "", "");
    let on_spool = |node: &str| {
        let (mut command, _) = command(&directory, "", &[&task], "n1");
        let requests = scene.path("requests");
        command
            .args(["--node", node, "--request-dir"])
            .arg(requests);
        command
    };
    // the last one counts
    let run = |node: &str| -> Ended {
        let arguments: Vec<_> = on_spool(node).get_args().map(ToOwned::to_owned).collect();
        let spool = arguments.last().unwrap();
        let mut command = Command::new(AGENT);
        command
            .arg("run")
            .arg(&arguments[1])
            .args(["--node", node, "--request-dir"])
            .arg(spool);
        command.output().unwrap().into()
    };
    run("n1").failed_with(&["the responder runs a job for n1", &id]);
    assert!(!directory.path().join("done").exists());
    assert_eq!(run("n2").code, Some(0), "another node");
    scene.let_go(&id);
    scene.until_all_is_done();
    assert_eq!(run("n1").code, Some(0));
}

#[test]
fn a_job_of_the_responder_that_begins_meanwhile_ends_it_between_tasks() {
    let scene = Scene::new(&serving("/bin/true").replace("\"*\"", "\"other\""));
    let directory = with_script(GATED);
    let task = exec(&directory, "", "timeout = \"60s\"");
    let (prepared, path) = command(
        &directory,
        "",
        &[&task, &exec(&directory, "", "name = \"never\"")],
        "n1",
    );
    drop(prepared);
    let mut command = Command::new(AGENT);
    command
        .arg("run")
        .arg(path)
        .args(["--node", "n1", "--request-dir"])
        .arg(scene.path("requests"));
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the task", || {
        fs::exists(directory.path().join("begun"))
            .unwrap()
            .then_some(())
    });
    scene.pause();
    let id = crate::scene::uuid();
    scene.lay_claim(
        &crate::scene::name_of("n1", &id),
        &crate::scene::request(&id, "off", "n1", 60.0),
    );
    File::create(directory.path().join("go")).unwrap();
    let ended = Ended::from(child.wait_with_output().unwrap());
    scene.resume();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("Refused"), "{ended:?}");
    assert!(
        ended.stdout.contains("the responder runs a job for n1"),
        "{ended:?}"
    );
    assert_eq!(
        fs::read_to_string(directory.path().join("ran")).unwrap(),
        "x\n"
    );
}
