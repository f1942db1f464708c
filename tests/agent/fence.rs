//! The life of a request from the agent's side (design 3.1, 3.3, 4.2).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Child;

use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::env::{AGENT, Ended, TestEnv, success, until_it_waits, wait_for, with};

const OFF: &str = "action=off\nplug=n1\n";

fn end(agent: Child) -> Ended {
    agent.wait_with_output().unwrap().into()
}

fn signal(agent: &Child, signal: Signal) {
    kill(Pid::from_raw(agent.id().try_into().unwrap()), signal).unwrap();
}

fn time(text: &Value) -> Timestamp {
    text.as_str().unwrap().parse().unwrap()
}

#[test]
fn the_request_has_its_fields_in_order_and_a_name_made_of_them() {
    let env = TestEnv::new();
    let agent = env.start("action=REBOOT\nplug=c-1\nnodename=n1\nresponse_timeout=30\n");
    let (name, request) = env.requests(1).remove(0);
    let text = fs::read_to_string(env.path("requests").join(&name)).unwrap();
    let fields: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.split('"').next())
        .collect();
    assert_eq!(
        fields,
        [
            "request_id",
            "timestamp",
            "action",
            "target_node",
            "recorder_node",
            "nodename",
            "timeout_seconds",
            "deadline"
        ]
    );
    assert_eq!(
        name,
        format!("c-1-{}.json", request["request_id"].as_str().unwrap())
    );
    assert_eq!(
        uuid::Uuid::parse_str(request["request_id"].as_str().unwrap())
            .unwrap()
            .get_version_num(),
        4
    );
    assert_eq!(
        (&request["action"], &request["target_node"]),
        (&json!("reboot"), &json!("c-1"))
    );
    assert_eq!(
        (&request["nodename"], &request["timeout_seconds"]),
        (&json!("n1"), &json!(30.0))
    );
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    assert_eq!(request["recorder_node"], json!(host));
    let lasts = time(&request["deadline"]).duration_since(time(&request["timestamp"]));
    assert_eq!(lasts.as_secs(), 30);
    assert!(
        Timestamp::now()
            .duration_since(time(&request["timestamp"]))
            .as_secs()
            < 30
    );
    env.respond(&name, success(&request).to_string().as_bytes());
    end(agent).succeeded_with("Success: Rebooted\n");
}

#[test]
fn a_request_is_mode_0644_under_any_umask_and_leaves_nothing_behind() {
    let env = TestEnv::new();
    let mut command = env.command("/bin/sh");
    command.args(["-c", "umask 077; exec \"$0\"", AGENT]);
    let agent = TestEnv::spawn(command, &(env.directories() + OFF));
    let (name, request) = env.requests(1).remove(0);
    let mode = fs::metadata(env.path("requests").join(&name))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o644);
    env.respond(&name, success(&request).to_string().as_bytes());
    end(agent).succeeded_with("Success: Powered OFF\n");
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
}

#[test]
fn a_nodename_that_is_the_target_is_not_repeated() {
    let env = TestEnv::new();
    let ended = env.run_answered("action=off\nplug=n1\nnodename=n1\n", |request| {
        assert_eq!(request.get("nodename"), None);
        success(request)
    });
    assert_eq!(ended.code, Some(0));
}

#[test]
fn silence_is_a_timeout_and_the_request_or_the_claim_is_withdrawn() {
    for is_claimed in [false, true] {
        let env = TestEnv::new();
        let agent = env.start(&format!("{OFF}response_timeout=1\n"));
        let (name, _) = env.requests(1).remove(0);
        if is_claimed {
            fs::create_dir(env.path("requests/.claimed")).unwrap();
            fs::rename(
                env.path("requests").join(&name),
                env.path("requests/.claimed").join(&name),
            )
            .unwrap();
        }
        end(agent).failed_with(&["off of n1 failed: no response within 1 s", &name]);
        assert_eq!(env.statuses(), ["requested", "timed_out"]);
        assert_eq!(env.names_in("requests/.claimed"), Vec::<String>::new());
        assert!(!env.path("requests").join(name).exists());
    }
}

#[test]
fn a_link_in_place_of_claimed_leads_nowhere() {
    let env = TestEnv::new();
    let agent = env.start(&format!("{OFF}response_timeout=1\n"));
    let (name, _) = env.requests(1).remove(0);
    fs::create_dir(env.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(env.path("elsewhere"), env.path("requests/.claimed")).unwrap();
    fs::rename(
        env.path("requests").join(&name),
        env.path("elsewhere").join(&name),
    )
    .unwrap();
    assert_eq!(end(agent).code, Some(1));
    assert!(
        env.path("elsewhere").join(name).exists(),
        "nothing is removed through a link"
    );
}

#[test]
fn signals_withdraw_the_request_and_end_with_1() {
    for by in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        let env = TestEnv::new();
        let agent = env.start(OFF);
        env.requests(1);
        signal(&agent, by);
        end(agent).failed_with(&[&format!("cancelled by {by}")]);
        assert_eq!(env.names_in("requests"), Vec::<String>::new());
        assert_eq!(env.statuses(), ["requested", "cancelled"]);
    }
}

#[test]
fn a_signal_ends_it_before_the_request_too() {
    let env = TestEnv::new();
    // no line is complete: the agent waits for the rest of stdin
    let reading = env.command(AGENT).spawn().unwrap();
    until_it_waits(&reading);
    signal(&reading, Signal::SIGTERM);
    end(reading).failed_with(&["cancelled by SIGTERM"]);
    let delayed = env.start(&format!("{OFF}delay=3600\n"));
    until_it_waits(&delayed);
    signal(&delayed, Signal::SIGTERM);
    end(delayed).failed_with(&["cancelled by SIGTERM during delay"]);
    assert_eq!(env.statuses(), ["cancelled"]);
}

#[test]
fn delay_comes_before_the_request() {
    let env = TestEnv::new();
    let started = Timestamp::now();
    let ended = env.run_answered(&format!("{OFF}delay=1\n"), |request| {
        assert!(
            time(&request["timestamp"])
                .duration_since(started)
                .as_secs_f64()
                >= 1.0
        );
        success(request)
    });
    ended.succeeded_with("Success: Powered OFF\n");
}

#[test]
fn without_inotify_polling_alone_does_with_one_warning() {
    let env = TestEnv::new();
    let mut command = env.command("strace");
    command.args([
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "inject=inotify_init1:error=EMFILE",
        AGENT,
    ]);
    let agent = TestEnv::spawn(command, &(env.directories() + OFF + "poll_interval=0.05\n"));
    let (name, request) = env.requests(1).remove(0);
    until_it_waits(&agent);
    env.respond(&name, success(&request).to_string().as_bytes());
    let ended = end(agent);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "Success: Powered OFF\n")
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("warning: no inotify watch on response_dir"),
        "{}",
        ended.stderr
    );
}

#[test]
fn when_time_is_over_one_more_look_finds_the_response() {
    let env = TestEnv::new();
    let mut command = env.command("strace");
    command.args([
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "inject=inotify_init1:error=EMFILE",
        AGENT,
    ]);
    // neither an event nor a look before the end
    let agent = TestEnv::spawn(
        command,
        &(env.directories() + OFF + "poll_interval=60\nresponse_timeout=3\n"),
    );
    let (name, request) = env.requests(1).remove(0);
    until_it_waits(&agent);
    env.respond(&name, success(&request).to_string().as_bytes());
    let ended = end(agent);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "Success: Powered OFF\n"),
        "{}",
        ended.stderr
    );
    assert_eq!(env.statuses(), ["requested", "completed"]);
}

fn calls_of_a_fence(files: usize) -> Vec<String> {
    let env = TestEnv::new();
    for number in 0..files {
        fs::write(env.path("responses").join(format!("x-{number}.json")), "{}").unwrap();
    }
    let mut command = env.command("strace");
    command
        .arg("-o")
        .arg(env.path("trace"))
        .args(["-e", "trace=file,desc", AGENT]);
    let agent = TestEnv::spawn(
        command,
        &(env.directories() + OFF + "response_timeout=1\npoll_interval=0.1\n"),
    );
    env.requests(1);
    assert_eq!(end(agent).code, Some(1));
    let trace = fs::read_to_string(env.path("trace")).unwrap();
    trace
        .lines()
        .filter_map(|line| Some(line.split_once('(')?.0.to_owned()))
        .collect()
}

#[test]
fn waiting_does_not_read_the_directory_it_waits_in() {
    let count = |calls: &[String]| calls.iter().filter(|call| *call == "getdents64").count();
    let (few, many) = (calls_of_a_fence(1), calls_of_a_fence(3000));
    assert_eq!(count(&few), 2, "the sweep of request_dir, and its end");
    assert_eq!(count(&many), count(&few));
    let kinds = |calls: &[String]| calls.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(kinds(&few), kinds(&many));
}

#[test]
fn several_plugs_are_all_requested_before_any_is_answered_and_all_must_succeed() {
    let env = TestEnv::new();
    let agent = env.start("action=off\nplug=p1,p2,p3,p2\n");
    let requests = env.requests(3);
    for (name, request) in &requests {
        env.respond(name, success(request).to_string().as_bytes());
    }
    end(agent).succeeded_with("Success: Powered OFF\n");
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    let statuses = env.statuses();
    assert_eq!(statuses[..3], ["requested"; 3]);
    assert_eq!(statuses[3..], ["completed"; 3]);
}

#[test]
fn the_first_plug_that_fails_withdraws_the_others() {
    let env = TestEnv::new();
    let agent = env.start("action=off\nplug=p1;p2\nplug_separator=;\nresponse_timeout=86400\n");
    let requests = env.requests(2);
    let refusal = with(
        success(&requests[0].1),
        json!({"success": false, "message": "stuck"}),
    );
    env.respond(&requests[0].0, refusal.to_string().as_bytes());
    end(agent).failed_with(&["off of p1 failed: refused by the responder: stuck"]);
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    assert_eq!(
        env.statuses(),
        ["requested", "requested", "failed", "cancelled"]
    );
}

fn answer_all(env: &TestEnv, action: &str, is_success: bool) {
    for (name, request) in env.requests(2) {
        assert_eq!(request["action"], action);
        let response = with(success(&request), json!({"success": is_success}));
        env.respond(&name, response.to_string().as_bytes());
        wait_for("the request to be withdrawn", || {
            (!env.path("requests").join(&name).exists()).then_some(())
        });
    }
}

#[test]
fn a_reboot_of_several_plugs_is_off_for_all() {
    let env = TestEnv::new();
    let agent = env.start("action=reboot\nplug=p1,p2\n");
    answer_all(&env, "off", true);
    end(agent)
        .succeeded_with("Success: Powered OFF (2 plugs; on was not requested: request_on=0)\n");
    assert!(
        env.events()[0]["details"]
            .as_str()
            .unwrap()
            .contains("reboot of 2 plugs: off for all")
    );
}

#[test]
fn with_request_on_it_is_then_on_for_all_whose_failure_is_a_warning() {
    for (is_success, said) in [
        (
            true,
            "Success: Rebooted (2 plugs: off for all, then on for all)\n",
        ),
        (
            false,
            "Success: Powered OFF (2 plugs; on failed for 2 of them)\n",
        ),
    ] {
        let env = TestEnv::new();
        let agent = env.start("action=reboot\nplug=p1,p2\nrequest_on=1\n");
        for (name, request) in env.requests(2) {
            env.respond(&name, success(&request).to_string().as_bytes());
        }
        wait_for("the second round", || {
            let requests: Vec<_> = env
                .names_in("requests")
                .into_iter()
                .filter(|name| !name.starts_with('.'))
                .collect();
            let is_on = |name: &String| {
                fs::read_to_string(env.path("requests").join(name))
                    .is_ok_and(|text| text.contains("\"on\""))
            };
            (requests.len() == 2 && requests.iter().all(is_on)).then_some(())
        });
        answer_all(&env, "on", is_success);
        let ended = end(agent);
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(0), said),
            "{}",
            ended.stderr
        );
        assert_eq!(
            ended.stderr.lines().count(),
            if is_success { 0 } else { 2 },
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn response_dir_removed_while_waiting_ends_it() {
    let env = TestEnv::new();
    let agent = env.start(&format!(
        "{OFF}response_timeout=86400\npoll_interval=0.05\n"
    ));
    env.requests(1);
    fs::remove_dir(env.path("responses")).unwrap();
    end(agent).failed_with(&["response_dir", "was removed"]);
    assert_eq!(env.statuses(), ["requested", "failed"]);
}

#[test]
fn an_older_success_for_the_node_is_no_answer() {
    let env = TestEnv::new();
    assert_eq!(env.run_answered(OFF, success).code, Some(0));
    let ended = env.run(&format!("{OFF}response_timeout=1\n"));
    ended.failed_with(&["no response within 1 s"]);
}

#[test]
fn a_request_that_the_responder_removed_before_its_answer_is_still_waited_for() {
    let env = TestEnv::new();
    let agent = env.start(OFF);
    let (name, request) = env.requests(1).remove(0);
    fs::remove_file(env.path("requests").join(&name)).unwrap();
    env.respond(&name, success(&request).to_string().as_bytes());
    end(agent).succeeded_with("Success: Powered OFF\n");
    assert_eq!(env.statuses(), ["requested", "completed"]);
}
