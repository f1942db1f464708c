//! The actions that only look: status, monitor, list, validate-all, and on (design 4.2).

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fence_recorder::spool::directory::{Directory, Role, Trust};
use fence_recorder::spool::watch::Watch;
use jiff::Timestamp;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::env::{TestEnv, success, with};

const MONITOR: &str = "action=monitor\n";

/// Sets when a file was last written, `age` seconds ago.
fn set_age(path: &Path, age: u64) {
    let time = SystemTime::now() - Duration::from_secs(age);
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(time)
        .unwrap();
}

/// Puts a success response for `node` in place, `age` seconds old, with some fields changed.
fn put_response(env: &TestEnv, node: &str, age: u64, changes: Value) {
    let id = Uuid::new_v4().to_string();
    let request = json!({"request_id": id, "action": "off", "target_node": node});
    let path = env.path("responses").join(format!("{node}-{id}.json"));
    fs::write(&path, with(success(&request), changes).to_string()).unwrap();
    set_age(&path, age);
}

#[track_caller]
fn is_off(env: &TestEnv, plug: &str, off: bool) {
    let ended = env.run(&format!("action=status\nplug={plug}\n"));
    let expected = if off {
        (Some(2), "Status: OFF\n", "")
    } else {
        (Some(0), "Status: ON\n", "")
    };
    assert_eq!(
        (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
        expected
    );
}

#[test]
fn status_goes_by_the_newest_success_that_counts() {
    let env = TestEnv::new();
    is_off(&env, "n1", false);
    put_response(&env, "n1", 100, json!({}));
    is_off(&env, "n1", true);
    put_response(&env, "n1", 90, json!({"success": false}));
    put_response(
        &env,
        "n1",
        90,
        json!({"success": "true", "action_performed": "on"}),
    );
    put_response(
        &env,
        "n1",
        90,
        json!({"request_id": "another", "action_performed": "on"}),
    );
    is_off(&env, "n1", true);
    put_response(&env, "n1", 80, json!({"action_performed": "reboot"}));
    is_off(&env, "n1", false);
    put_response(&env, "n1", 70, json!({"action_performed": null}));
    is_off(&env, "n1", true);
    put_response(&env, "n1", 60, json!({"action_performed": 5}));
    is_off(&env, "n1", false);
}

#[test]
fn status_of_a_node_is_not_anothers() {
    let env = TestEnv::new();
    put_response(&env, "c1-2", 10, json!({}));
    is_off(&env, "c1", false);
    put_response(&env, "c1", 10, json!({}));
    is_off(&env, "c1", true);
    is_off(&env, "c1,c1-2", true);
    is_off(&env, "c1,c3", false);
}

#[test]
fn status_does_not_take_a_strangers_word() {
    let env = TestEnv::new();
    put_response(&env, "n1", 10, json!({}));
    let name = env.names_in("responses").remove(0);
    chown(env.path("responses").join(name), Some(12345), None).unwrap();
    is_off(&env, "n1", false);
}

#[test]
fn equally_new_successes_must_all_be_off() {
    let env = TestEnv::new();
    put_response(&env, "n1", 0, json!({}));
    put_response(&env, "n1", 0, json!({"action_performed": "on"}));
    let time = SystemTime::now();
    for name in env.names_in("responses") {
        fs::File::options()
            .write(true)
            .open(env.path("responses").join(name))
            .unwrap()
            .set_modified(time)
            .unwrap();
    }
    is_off(&env, "n1", false);
}

#[test]
fn status_needs_a_target_and_a_spool() {
    let env = TestEnv::new();
    env.run("action=status\n")
        .failed_with(&["no node to fence is given"]);
    fs::remove_dir(env.path("requests")).unwrap();
    env.run("action=status\nplug=n1\n")
        .failed_with(&["status failed", "does not exist"]);
}

/// Puts a request in place whose deadline was `overdue` seconds ago.
fn put_request(env: &TestEnv, directory: &str, host: &str, overdue: i64, changes: Value) -> String {
    let id = Uuid::new_v4().to_string();
    let deadline = Timestamp::now() - jiff::SignedDuration::from_secs(overdue);
    let request = json!({
        "request_id": id, "timestamp": deadline.to_string(), "action": "off", "target_node": "n1",
        "recorder_node": host, "deadline": deadline.to_string(),
    });
    let name = format!("n1-{id}.json");
    fs::create_dir_all(env.path(directory)).unwrap();
    fs::write(
        env.path(directory).join(&name),
        with(request, changes).to_string(),
    )
    .unwrap();
    name
}

fn host() -> String {
    nix::unistd::gethostname().unwrap().into_string().unwrap()
}

#[test]
fn monitor_of_a_good_spool_says_nothing() {
    TestEnv::new().run(MONITOR).succeeded_with("");
}

#[test]
fn dead_requests_are_swept_once_and_recorded_as_expired() {
    let env = TestEnv::new();
    let dead = [
        put_request(&env, "requests", &host(), 11, json!({})),
        put_request(&env, "requests", "other", 301, json!({})),
        put_request(&env, "requests/.claimed", &host(), 301, json!({})),
    ];
    for agent in [env.start(MONITOR), env.start(MONITOR)] {
        assert!(agent.wait_with_output().unwrap().status.success());
    }
    for name in &dead {
        assert!(!env.path("requests").join(name).exists());
    }
    assert_eq!(env.names_in("requests/.claimed"), Vec::<String>::new());
    assert_eq!(env.statuses(), ["expired"; 3]);
    assert!(
        env.events()
            .iter()
            .all(|event| event["request_id"].is_string() && event["target_node"] == "n1")
    );
}

#[test]
fn requests_that_are_not_dead_yet_stay_and_are_warned_of() {
    let env = TestEnv::new();
    let overdue = [
        put_request(&env, "requests", &host(), 5, json!({})),
        put_request(&env, "requests", "other", 200, json!({})),
        put_request(&env, "requests/.claimed", &host(), 200, json!({})),
    ];
    put_request(&env, "requests", &host(), -100, json!({}));
    let ended = env.run(MONITOR);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(0), 1));
    assert!(
        ended.stderr.contains("3 pending past the deadline"),
        "{}",
        ended.stderr
    );
    assert_eq!(env.names_in("requests").len(), 4);
    assert_eq!(env.names_in("requests/.claimed"), [overdue[2].clone()]);
    // a shorter patience with other hosts and claims takes two of them
    assert_eq!(
        env.run("action=monitor\ncleanup_max_age=100\n").code,
        Some(0)
    );
    assert_eq!(env.statuses(), ["expired"; 2]);
}

#[test]
fn a_request_without_a_deadline_is_dead_by_its_age() {
    let env = TestEnv::new();
    let name = put_request(&env, "requests", "other", 0, json!({"deadline": null}));
    env.run("action=monitor\ncleanup_max_age=3\n");
    assert!(env.path("requests").join(&name).exists());
    set_age(&env.path("requests").join(&name), 4);
    env.run("action=monitor\ncleanup_max_age=3\n")
        .succeeded_with("");
    assert_eq!(env.statuses(), ["expired"]);
}

#[test]
fn stale_temporary_files_go_and_files_that_are_no_requests_stay() {
    let env = TestEnv::new();
    for name in [
        ".n1-a.json.tmp",
        ".n1-b.json.tmp",
        "junk.json",
        ".responder.json",
        "n1-x.json",
    ] {
        fs::write(env.path("requests").join(name), "{}").unwrap();
    }
    set_age(&env.path("requests/.n1-a.json.tmp"), 301);
    set_age(&env.path("requests/.n1-b.json.tmp"), 5);
    env.run("action=monitor\n").succeeded_with("");
    env.run("action=monitor\ncleanup_max_age=0\n")
        .succeeded_with("");
    assert_eq!(
        env.names_in("requests"),
        [
            ".n1-b.json.tmp",
            ".responder.json",
            "junk.json",
            "n1-x.json"
        ]
    );
}

#[test]
fn a_fence_sweeps_too() {
    let env = TestEnv::new();
    put_request(&env, "requests", &host(), 11, json!({}));
    env.run("action=off\nplug=n2\nresponse_timeout=1\n")
        .failed_with(&["no response"]);
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    assert_eq!(env.statuses(), ["requested", "expired", "timed_out"]);
}

const CHECKED: &str = "responder_check=1\nresponse_timeout=86400\nplug=n1\n";

#[test]
fn with_responder_check_nobody_watching_is_an_immediate_failure() {
    let env = TestEnv::new();
    fs::write(env.path("requests/.responder.lock"), "").unwrap();
    let words = &["responder_check: no responder watches request_dir"][..];
    env.run(&format!("{MONITOR}{CHECKED}")).failed_with(words);
    env.run(&format!("action=off\n{CHECKED}"))
        .failed_with(words);
    assert_eq!(env.statuses(), ["failed"]);
}

#[test]
fn a_held_lock_is_somebody_watching() {
    let env = TestEnv::new();
    let lock = fs::File::create(env.path("requests/.responder.lock")).unwrap();
    let whole = libc::flock {
        l_type: libc::F_WRLCK.try_into().unwrap(),
        l_whence: libc::SEEK_SET.try_into().unwrap(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&lock, FcntlArg::F_OFD_SETLK(&whole)).unwrap();
    env.run(&format!("{MONITOR}{CHECKED}")).succeeded_with("");
    env.run_answered(&format!("action=off\n{CHECKED}"), success)
        .succeeded_with("Success: Powered OFF\n");
}

#[test]
fn an_inotify_watch_of_another_process_is_somebody_watching() {
    let env = TestEnv::new();
    let requests = Directory::open(&env.path("requests"), Role::Requests, Trust::Checked).unwrap();
    let elsewhere =
        Directory::open(&env.path("responses"), Role::Requests, Trust::Checked).unwrap();
    let (_other, fault) = Watch::new(&elsewhere);
    assert_eq!(fault, None);
    assert_eq!(
        env.run(&format!("{MONITOR}{CHECKED}")).code,
        Some(1),
        "another directory is not this one"
    );
    let (_watch, fault) = Watch::new(&requests);
    assert_eq!(fault, None);
    env.run(&format!("{MONITOR}{CHECKED}")).succeeded_with("");
}

#[test]
fn list_names_what_is_known() {
    let env = TestEnv::new();
    let responder =
        json!({"pid": 1, "version": "x", "started": "x", "nodes": ["plain", "c-*", "x?", "[ab]"]});
    fs::write(env.path("requests/.responder.json"), responder.to_string()).unwrap();
    put_response(&env, "gone", 1, json!({}));
    put_request(&env, "requests", "other", -60, json!({}));
    env.run("action=list\n")
        .succeeded_with("gone,\nn1,\nplain,\n");
    env.run("action=list-status\nseparator=;\n")
        .succeeded_with("gone;;OFF\nn1;;ON\nplain;;ON\n");
}

#[test]
fn on_succeeds_at_once_unless_it_is_to_be_requested() {
    let env = TestEnv::new();
    env.run("action=on\nplug=n1\nrequest_dir=/nowhere\n")
        .succeeded_with("Success: Powered ON\n");
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    let ended = env.run_answered("action=on\nplug=n1\nrequest_on=1\n", |request| {
        assert_eq!(request["action"], "on");
        success(request)
    });
    ended.succeeded_with("Success: Powered ON\n");
}

#[test]
fn validate_all_says_every_fault_on_stdout_alone() {
    let env = TestEnv::new();
    let ended = env.run(
        "action=validate-all\nresponse_timeout=abc\nlog_dir=logs\nplug=../x\ndelay=-1\nfoo=1\n",
    );
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""));
    for word in [
        "response_timeout: \"abc\"",
        "log_dir: \"logs\"",
        "plug: \"../x\"",
        "delay: \"-1\"",
        "\"foo\"",
    ] {
        assert_eq!(
            ended
                .stdout
                .lines()
                .filter(|line| line.contains(word))
                .count(),
            1,
            "{word}: {}",
            ended.stdout
        );
    }
    assert_eq!(ended.stdout.lines().count(), 5);
    env.run("action=validate-all\nplug=n1\nnodename=n1\n")
        .succeeded_with("");
    let same = env.run("action=validate-all\nrequest_dir=/a\nresponse_dir=/a\n");
    assert_eq!((same.code, same.stdout.lines().count()), (Some(1), 1));
}

#[test]
fn metadata_needs_nothing_to_be_right() {
    let env = TestEnv::new();
    let ended = env.run("action=metadata\nrequest_dir=nowhere\nresponse_timeout=0\n");
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.starts_with("<?xml"));
    assert_eq!(env.names_in("log"), Vec::<String>::new());
}
