//! The actions that don't fence, and on (design 4.2); what monitor sweeps (design 3.3).

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use fence_recorder::spool::directory::{Directory, Role, Trust};
use fence_recorder::spool::watch::Watch;
use jiff::Timestamp;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::unistd::gethostname;
use serde_json::{Value, json};

use super::env::{AGENT, Ended, TestEnv, success, with};

const ON: (Option<i32>, &str) = (Some(0), "Status: ON\n");
const OFF: (Option<i32>, &str) = (Some(2), "Status: OFF\n");

fn id(number: u8) -> String {
    format!("00000000-0000-4000-8000-0000000000{number:02x}")
}

fn written_ago(path: &Path, seconds: u64) {
    let written = SystemTime::now() - Duration::from_secs(seconds);
    let file = fs::File::open(path).unwrap();
    file.set_times(fs::FileTimes::new().set_modified(written))
        .unwrap();
}

/// Puts a response about `node` there, written `age` seconds ago.
fn response(env: &TestEnv, node: &str, number: u8, age: u64, changes: Value) -> String {
    let content = with(
        json!({
            "request_id": id(number),
            "success": true,
            "message": "done",
            "action_performed": "off",
            "target_node": node,
        }),
        changes,
    );
    let name = format!("responses/{node}-{}.json", id(number));
    fs::write(env.path(&name), content.to_string()).unwrap();
    written_ago(&env.path(&name), age);
    name
}

#[track_caller]
fn assert_status(env: &TestEnv, plug: &str, expected: (Option<i32>, &str)) {
    let ended = env.run(&format!("action=status\nplug={plug}\n"));
    assert_eq!((ended.code, ended.stdout.as_str()), expected, "{ended:?}");
    assert_eq!(ended.stderr, "");
}

#[test]
fn on_succeeds_at_once_without_a_request_or_a_spool() {
    let env = TestEnv::new();
    env.run("action=on\nplug=n1\n")
        .succeeded_with("Success: Powered ON\n");
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    fs::remove_dir(env.path("requests")).unwrap();
    env.run("action=on\nplug=n1\n")
        .succeeded_with("Success: Powered ON\n");
    env.run("action=on\n").failed_with(&["no node"]);
}

#[test]
fn on_is_a_request_like_the_others_where_that_is_asked_for() {
    let env = TestEnv::new();
    let ended = env.run_answered("action=on\nplug=n1\nrequest_on=1\n", |request| {
        assert_eq!(request["action"], "on");
        success(request)
    });
    ended.succeeded_with("Success: Powered ON\n");
    let ended = env.run_answered("action=on\nplug=n1\nrequest_on=1\n", |request| {
        with(
            success(request),
            json!({"success": false, "message": "still broken"}),
        )
    });
    ended.failed_with(&["n1", "still broken"]);
}

#[test]
fn a_node_nobody_fenced_is_on() {
    let env = TestEnv::new();
    assert_status(&env, "n1", ON);
    response(&env, "n1", 1, 5, json!({"success": false}));
    assert_status(&env, "n1", ON);
}

#[test]
fn what_was_performed_decides_whether_the_node_is_off() {
    let env = TestEnv::new();
    for (changes, expected) in [
        (json!({}), OFF),
        (json!({"action_performed": null}), OFF),
        (json!({"target_node": null}), OFF),
        (json!({"action_performed": "reboot"}), ON),
        (json!({"action_performed": "on"}), ON),
        (json!({"action_performed": 1}), ON),
        (json!({"success": "true"}), ON),
        (json!({"request_id": id(2)}), ON),
        (json!({"target_node": "n2"}), ON),
    ] {
        response(&env, "n1", 1, 5, changes);
        assert_status(&env, "n1", expected);
    }
}

#[test]
fn a_null_for_what_was_performed_is_not_off() {
    let env = TestEnv::new();
    let name = response(&env, "n1", 1, 5, json!({}));
    let content = json!({"request_id": id(1), "success": true, "action_performed": null});
    fs::write(env.path(&name), content.to_string()).unwrap();
    assert_status(&env, "n1", ON);
}

#[test]
fn the_newest_success_wins_whichever_it_is() {
    for (performed, expected) in [("off", OFF), ("on", ON)] {
        let env = TestEnv::new();
        let other = if performed == "off" { "on" } else { "off" };
        response(&env, "n1", 1, 60, json!({"action_performed": other}));
        response(&env, "n1", 2, 30, json!({"action_performed": performed}));
        response(&env, "n1", 3, 90, json!({"action_performed": other}));
        assert_status(&env, "n1", expected);
        // a later failure changes nothing
        response(
            &env,
            "n1",
            4,
            1,
            json!({"success": false, "action_performed": other}),
        );
        assert_status(&env, "n1", expected);
    }
}

#[test]
fn a_response_of_a_foreign_owner_does_not_count() {
    let env = TestEnv::new();
    let name = response(&env, "n1", 1, 5, json!({}));
    std::os::unix::fs::chown(env.path(&name), Some(12345), None).unwrap();
    assert_status(&env, "n1", ON);
    // but it does where response_dir is that user's
    std::os::unix::fs::chown(env.path("responses"), Some(12345), None).unwrap();
    assert_status(&env, "n1", OFF);
}

#[test]
fn a_symlink_to_a_response_does_not_count() {
    let env = TestEnv::new();
    let name = response(&env, "n1", 1, 5, json!({}));
    fs::rename(env.path(&name), env.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(env.path("elsewhere"), env.path(&name)).unwrap();
    assert_status(&env, "n1", ON);
}

#[test]
fn a_node_is_not_taken_for_one_whose_name_begins_alike() {
    let env = TestEnv::new();
    response(&env, "c1-2", 1, 5, json!({}));
    assert_status(&env, "c1", ON);
    assert_status(&env, "c1-2", OFF);
    response(&env, "c1", 2, 5, json!({"action_performed": "on"}));
    assert_status(&env, "c1-2", OFF);
}

#[test]
fn several_targets_are_off_only_if_all_are() {
    let env = TestEnv::new();
    response(&env, "p1", 1, 5, json!({}));
    assert_status(&env, "p1,p2", ON);
    response(&env, "p2", 2, 5, json!({}));
    assert_status(&env, "p1,p2", OFF);
    assert_status(&env, "p2,p1,p3", ON);
}

#[test]
fn status_needs_a_target_and_a_spool() {
    let env = TestEnv::new();
    response(&env, "n1", 1, 5, json!({}));
    env.run("action=status\n").failed_with(&["plug"]);
    fs::remove_dir(env.path("requests")).unwrap();
    env.run("action=status\nplug=n1\n")
        .failed_with(&["requests", "does not exist"]);
}

#[test]
fn monitor_is_silent_where_all_is_well_and_fails_without_the_spool() {
    let env = TestEnv::new();
    env.run("action=monitor\n").succeeded_with("");
    for name in ["requests", "responses"] {
        let env = TestEnv::new();
        fs::remove_dir(env.path(name)).unwrap();
        env.run("action=monitor\n")
            .failed_with(&[&env.path(name).display().to_string(), "does not exist"]);
        assert!(!env.path(name).exists(), "the agent creates no spool");
    }
}

fn own_host() -> String {
    gethostname().unwrap().into_string().unwrap()
}

/// Puts a request of `host` into `directory`; `past` is how many seconds ago its deadline was,
/// and it was written another minute before that.
fn request(env: &TestEnv, directory: &str, number: u8, host: &str, past: Option<i64>) -> String {
    let now = Timestamp::now().as_second();
    let time = |ago: i64| Timestamp::from_second(now - ago).unwrap().to_string();
    let mut content = json!({
        "request_id": id(number),
        "timestamp": time(past.unwrap_or_default() + 60),
        "action": "off",
        "target_node": "n1",
        "recorder_node": host,
    });
    if let Some(past) = past {
        content["deadline"] = json!(time(past));
    }
    let name = format!("n1-{}.json", id(number));
    let path = env.path(directory).join(&name);
    fs::write(&path, content.to_string()).unwrap();
    name
}

#[track_caller]
fn assert_warned_of_overdue(ended: &Ended) {
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), ""),
        "{ended:?}"
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(
        ended.stderr.contains("warning") && ended.stderr.contains("n1"),
        "{ended:?}"
    );
}

#[test]
fn monitor_removes_a_dead_request_of_this_host_and_records_it_once() {
    let env = TestEnv::new();
    request(&env, "requests", 1, &own_host(), Some(11));
    env.run("action=monitor\n").succeeded_with("");
    env.run("action=monitor\n").succeeded_with("");
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    assert_eq!(env.statuses(), ["expired"]);
    let event = &env.events()[0];
    assert_eq!(
        (&event["request_id"], &event["target_node"]),
        (&json!(id(1)), &json!("n1"))
    );
}

#[test]
fn monitor_leaves_a_request_whose_agent_may_still_withdraw_it_and_warns() {
    let env = TestEnv::new();
    let name = request(&env, "requests", 1, &own_host(), Some(3));
    assert_warned_of_overdue(&env.run("action=monitor\ncleanup_max_age=0\n"));
    assert_eq!(env.names_in("requests"), [name]);
    assert_eq!(env.statuses(), Vec::<String>::new());
}

#[test]
fn monitor_leaves_a_request_within_its_deadline_alone() {
    let env = TestEnv::new();
    let name = request(&env, "requests", 1, &own_host(), Some(-600));
    env.run("action=monitor\ncleanup_max_age=0\n")
        .succeeded_with("");
    assert_eq!(env.names_in("requests"), [name]);
}

#[test]
fn another_hosts_request_is_left_alone_for_cleanup_max_age() {
    let env = TestEnv::new();
    let name = request(&env, "requests", 1, "another-host", Some(60));
    assert_warned_of_overdue(&env.run("action=monitor\n"));
    assert_eq!(env.names_in("requests"), [name]);
    env.run("action=monitor\ncleanup_max_age=30\n")
        .succeeded_with("");
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    assert_eq!(env.statuses(), ["expired"]);
}

#[test]
fn a_request_without_a_deadline_is_dead_by_when_it_was_written() {
    let env = TestEnv::new();
    let name = request(&env, "requests", 1, "another-host", None);
    written_ago(&env.path("requests").join(&name), 280);
    let ended = env.run("action=monitor\n");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(env.names_in("requests"), std::slice::from_ref(&name));
    written_ago(&env.path("requests").join(&name), 301);
    env.run("action=monitor\n").succeeded_with("");
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    assert_eq!(env.statuses(), ["expired"]);
}

#[test]
fn a_claim_is_left_to_its_responder_for_cleanup_max_age() {
    let env = TestEnv::new();
    fs::create_dir(env.path("requests/.claimed")).unwrap();
    let kept = request(&env, "requests/.claimed", 1, &own_host(), Some(200));
    request(&env, "requests/.claimed", 2, &own_host(), Some(301));
    assert_warned_of_overdue(&env.run("action=monitor\n"));
    assert_eq!(env.names_in("requests/.claimed"), [kept]);
    assert_eq!(env.statuses(), ["expired"]);
    assert_eq!(env.events()[0]["request_id"], id(2));
}

#[test]
fn temporary_files_nobody_writes_any_more_are_removed_and_junk_is_left_for_people() {
    let env = TestEnv::new();
    let junk = [
        ".hidden",
        ".x.tmp",
        "n1.json",
        "notes.txt",
        &format!("n1-{}.json", id(9)),
    ];
    for name in junk.into_iter().chain([".old.json.tmp", ".new.json.tmp"]) {
        let path = env.path("requests").join(name);
        fs::write(&path, "no request").unwrap();
        written_ago(&path, if name == ".new.json.tmp" { 200 } else { 400 });
    }
    env.run("action=monitor\n").succeeded_with("");
    let mut left: Vec<_> = junk.into_iter().chain([".new.json.tmp"]).collect();
    left.sort_unstable();
    assert_eq!(env.names_in("requests"), left);
}

#[test]
fn with_responder_check_nobody_watching_fails_at_once() {
    let env = TestEnv::new();
    // a lock file nobody holds is no responder
    fs::write(env.path("requests/.responder.lock"), "").unwrap();
    env.run("action=monitor\nresponder_check=1\n")
        .failed_with(&["monitor", "responder_check"]);
    for action in ["off", "reboot"] {
        let lines = format!("action={action}\nplug=n1\nresponder_check=1\nresponse_timeout=86400");
        env.run(&lines)
            .failed_with(&[action, "n1", "responder_check"]);
    }
    assert_eq!(env.names_in("requests"), [".responder.lock"]);
    assert_eq!(env.statuses(), ["failed", "failed"]);
}

/// Takes (`F_WRLCK`) or gives back (`F_UNLCK`) a responder's lock. Closing the file isn't enough: a
/// child that another test's thread just forked has it open too.
fn lock(file: &fs::File, kind: i32) {
    let lock = libc::flock {
        l_type: kind.try_into().unwrap(),
        l_whence: libc::SEEK_SET.try_into().unwrap(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
}

#[test]
fn who_holds_the_responders_lock_is_seen() {
    let env = TestEnv::new();
    let file = fs::File::create(env.path("requests/.responder.lock")).unwrap();
    lock(&file, libc::F_WRLCK);
    env.run("action=monitor\nresponder_check=1\n")
        .succeeded_with("");
    let lines = "action=off\nplug=n1\nresponder_check=1\n";
    let agent = env.start(lines);
    let (name, request) = env.requests(1).remove(0);
    env.respond(&name, success(&request).to_string().as_bytes());
    Ended::from(agent.wait_with_output().unwrap()).succeeded_with("Success: Powered OFF\n");
    lock(&file, libc::F_UNLCK);
    env.run(lines).failed_with(&["responder_check"]);
}

#[test]
fn who_watches_request_dir_by_inotify_is_seen() {
    let env = TestEnv::new();
    let watch_on = |name, role| {
        let directory = Directory::open(&env.path(name), role, Trust::Checked).unwrap();
        let (watch, fault) = Watch::new(&directory);
        assert_eq!(fault, None);
        watch
    };
    let elsewhere = watch_on("responses", Role::Responses);
    env.run("action=monitor\nresponder_check=1\n")
        .failed_with(&["responder_check"]);
    let here = watch_on("requests", Role::Requests);
    env.run("action=monitor\nresponder_check=1\n")
        .succeeded_with("");
    drop((elsewhere, here));
}

#[test]
fn list_names_the_nodes_of_responder_requests_and_responses() {
    let env = TestEnv::new();
    env.run("action=list\n").succeeded_with("");
    let responder = json!({
        "pid": 1,
        "version": "0",
        "started": "2026-01-01T00:00:00+00:00",
        "nodes": ["served", "rack*", "node[12]", "n?"],
    });
    fs::write(env.path("requests/.responder.json"), responder.to_string()).unwrap();
    request(&env, "requests", 1, "another-host", Some(-600));
    response(&env, "fenced", 2, 5, json!({}));
    response(&env, "back", 3, 5, json!({"action_performed": "on"}));
    fs::write(env.path("responses/notes.json"), "{}").unwrap();
    env.run("action=list\n")
        .succeeded_with("back,\nfenced,\nn1,\nserved,\n");
    env.run("action=list-status\n")
        .succeeded_with("back,,ON\nfenced,,OFF\nn1,,ON\nserved,,ON\n");
    env.run("action=list\nseparator=\" : \"\n")
        .succeeded_with("back : \nfenced : \nn1 : \nserved : \n");
    env.run_with_arguments(&["-o", "list-status", "-C", ";"])
        .succeeded_with("back;;ON\nfenced;;OFF\nn1;;ON\nserved;;ON\n");
}

#[test]
fn metadata_is_printed_whatever_else_is_wrong_and_touches_nothing() {
    let env = TestEnv::new();
    for name in ["requests", "responses"] {
        fs::remove_dir(env.path(name)).unwrap();
    }
    for action in ["metadata", "meta-data", "manpage", "METADATA"] {
        let ended = env.run(&format!("action={action}\nresponse_timeout=0\nplug=a/b\n"));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        assert!(ended.stdout.starts_with("<?xml"), "{ended:?}");
        assert!(
            ended.stdout.trim_end().ends_with("</resource-agent>"),
            "{ended:?}"
        );
        for part in [
            "<parameter name=\"port\" unique=\"0\" required=\"0\" deprecated=\"1\"",
            "<parameter name=\"plug\" unique=\"0\" required=\"0\" obsoletes=\"port\"",
            "<parameter name=\"action\" unique=\"0\" required=\"1\"",
            "<action name=\"on\" automatic=\"0\"",
        ] {
            assert!(ended.stdout.contains(part), "{part} in {ended:?}");
        }
        assert!(!ended.stdout.contains("on_target"), "{ended:?}");
    }
    assert_eq!(env.names_in("."), Vec::<String>::new());
}

#[test]
fn validate_all_is_silent_where_all_is_well_and_touches_nothing() {
    let env = TestEnv::new();
    for name in ["requests", "responses"] {
        fs::remove_dir(env.path(name)).unwrap();
    }
    env.run("action=validate-all\n").succeeded_with("");
    env.run("action=validate-all\nplug=n1,n2\n")
        .succeeded_with("");
    env.run_with_arguments(&["-o", "validate-all"])
        .succeeded_with("");
    assert_eq!(env.names_in("."), Vec::<String>::new());
}

#[test]
fn validate_all_prints_a_line_per_fault_on_stdout() {
    let env = TestEnv::new();
    let lines = "action=validate-all\nresponse_timeout=0\npoll_interval=x\nlog_dir=logs\n\
                 request_on=maybe\ndebug_file=d\nplug=a/b\n";
    let ended = env.run(lines);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""));
    let mut named: Vec<_> = ended
        .stdout
        .lines()
        .map(|line| line.split_once(": ").unwrap().0)
        .collect();
    named.sort_unstable();
    assert_eq!(
        named,
        [
            "debug_file",
            "log_dir",
            "plug",
            "poll_interval",
            "request_on",
            "response_timeout"
        ]
    );
}

#[test]
fn a_relative_path_and_one_directory_for_both_are_faults() {
    let env = TestEnv::new();
    let same = format!("request_dir={}\n", env.path("responses").display());
    for (line, named) in [
        ("request_dir=requests\n", "request_dir"),
        ("response_dir=./responses\n", "response_dir"),
        (same.as_str(), "response_dir"),
    ] {
        let ended = env.run(&format!("action=validate-all\n{line}"));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""));
        assert_eq!(ended.stdout.lines().count(), 1, "{ended:?}");
        assert!(ended.stdout.contains(named), "{ended:?}");
        env.run(&format!("action=off\nplug=n1\n{line}"))
            .failed_with(&[named]);
    }
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
}

#[test]
fn a_success_nobody_reads_is_still_a_success() {
    let env = TestEnv::new();
    let mut command = env.command(AGENT);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(Stdio::from(writer));
    let agent = TestEnv::spawn(command, "action=on\nplug=n1\n");
    let ended = Ended::from(agent.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

#[test]
fn equally_new_successes_must_all_be_off() {
    let env = TestEnv::new();
    let names = [
        response(&env, "n1", 1, 0, json!({})),
        response(&env, "n1", 2, 0, json!({"action_performed": "on"})),
    ];
    let written = fs::FileTimes::new().set_modified(SystemTime::now());
    for name in names {
        let file = fs::File::open(env.path(&name)).unwrap();
        file.set_times(written).unwrap();
    }
    assert_status(&env, "n1", ON);
}

#[test]
fn two_sweeps_at_once_record_each_dead_request_once() {
    let env = TestEnv::new();
    for number in 0..50 {
        request(&env, "requests", number, &own_host(), Some(11));
    }
    for monitor in [env.start("action=monitor\n"), env.start("action=monitor\n")] {
        Ended::from(monitor.wait_with_output().unwrap()).succeeded_with("");
    }
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    assert_eq!(env.statuses(), ["expired"; 50]);
}

#[test]
fn a_fence_sweeps_too() {
    let env = TestEnv::new();
    request(&env, "requests", 1, &own_host(), Some(11));
    env.run("action=off\nplug=n2\nresponse_timeout=1\n")
        .failed_with(&["no response"]);
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    assert_eq!(env.statuses(), ["requested", "expired", "timed_out"]);
}
