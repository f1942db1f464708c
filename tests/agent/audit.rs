//! What is recorded and said, and that neither gets in the way (design 4.3).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};

use crate::env::{AGENT, Ended, TestEnv, success, with};

const OFF: &str = "action=off\nplug=n1\n";
const LOGS: [&str; 3] = [
    "fence-events.log",
    "fence-events-readable.log",
    "fence-events-detailed.jsonl",
];

fn lines_of(env: &TestEnv, log: &str) -> Vec<String> {
    fs::read_to_string(env.path("log").join(log))
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// `[2026-01-14 13:45:10] ` before the rest of a line.
fn after_clock(line: &str) -> &str {
    let (clock, rest) = line.strip_prefix('[').unwrap().split_once("] ").unwrap();
    jiff::civil::DateTime::strptime("%Y-%m-%d %H:%M:%S", clock).unwrap();
    rest
}

#[test]
fn all_three_logs_have_the_event_in_their_own_shape() {
    let env = TestEnv::new();
    let mut id = String::new();
    let ended = env.run_answered(OFF, |request| {
        id = request["request_id"].as_str().unwrap().to_owned();
        success(request)
    });
    ended.succeeded_with("Success: Powered OFF\n");
    let events = lines_of(&env, LOGS[0]);
    assert_eq!(
        after_clock(&events[0]),
        format!("[INFO] off of n1 requested (request {id})")
    );
    let end = after_clock(&events[1]);
    assert!(
        end.starts_with("[INFO] off of n1 completed after ")
            && end.ends_with(&format!(" s (request {id}): done")),
        "{end}"
    );
    let readable = lines_of(&env, LOGS[1]);
    let (start, rest) = after_clock(&readable[1]).split_once("s DETAILS=").unwrap();
    let duration = start
        .strip_prefix(&format!(
            "ACTION=off TARGET=n1 STATUS=completed REQUEST={id} DURATION="
        ))
        .unwrap();
    assert!(
        duration.parse::<f64>().unwrap() < 30.0 && duration.split_once('.').unwrap().1.len() == 3,
        "{duration}"
    );
    assert_eq!(rest, "done");
    let detailed = env.events();
    let keys: Vec<_> = detailed[1]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut expected = [
        "timestamp",
        "action",
        "target_node",
        "status",
        "details",
        "recorder_node",
        "request_id",
        "duration_seconds",
    ];
    expected.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!(
        (&detailed[1]["request_id"], &detailed[1]["status"]),
        (&json!(id), &json!("completed"))
    );
    detailed[1]["timestamp"]
        .as_str()
        .unwrap()
        .parse::<jiff::Timestamp>()
        .unwrap();
    assert_eq!([events.len(), readable.len(), detailed.len()], [2; 3]);
}

#[test]
fn logs_are_mode_0640_under_any_umask() {
    for umask in ["000", "077"] {
        let env = TestEnv::new();
        let mut command = env.command("/bin/sh");
        command.args(["-c", &format!("umask {umask}; exec \"$0\""), AGENT]);
        TestEnv::spawn(command, &(env.directories() + OFF + "response_timeout=1\n"))
            .wait_with_output()
            .unwrap();
        for log in LOGS {
            let mode = fs::metadata(env.path("log").join(log))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o7777, 0o640, "{log}");
        }
    }
}

#[test]
fn neither_a_name_nor_a_message_can_forge_an_entry() {
    let env = TestEnv::new();
    let message =
        "x\n[2026-01-01 00:00:00] ACTION=off TARGET=n9 STATUS=completed\r\u{1b}[2J\u{2028}\u{202e}";
    let ended = env.run_answered(
        "action=off\nplug=n1 STATUS=completed REQUEST=1\n",
        |request| {
            with(
                success(request),
                json!({"success": false, "message": message}),
            )
        },
    );
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1));
    for log in LOGS {
        assert_eq!(lines_of(&env, log).len(), 2, "{log}");
    }
    let readable = lines_of(&env, LOGS[1]).remove(1);
    assert!(
        readable.contains("TARGET=n1\\u{20}STATUS=completed\\u{20}REQUEST=1 STATUS=failed"),
        "{readable}"
    );
    assert!(
        !readable
            .chars()
            .any(|c| c.is_control() || ['\u{2028}', '\u{202e}'].contains(&c))
    );
}

#[test]
fn at_most_4_kib_of_a_message_is_logged() {
    let env = TestEnv::new();
    let message = "é\n".repeat(100_000);
    let ended = env.run_answered(OFF, |request| {
        with(success(request), json!({"message": message}))
    });
    ended.succeeded_with("Success: Powered OFF\n");
    for log in LOGS {
        let line = lines_of(&env, log).remove(1);
        assert!((4000..6000).contains(&line.len()), "{log}: {}", line.len());
    }
}

#[test]
fn whatever_lies_in_place_of_a_log_is_one_warning_and_no_hindrance() {
    let obstacles: [fn(&std::path::Path); 4] = [
        |path| mkfifo(path, Mode::S_IRWXU).unwrap(),
        |path| symlink("/dev/null", path).unwrap(),
        |path| fs::create_dir(path).unwrap(),
        |path| drop(UnixDatagram::bind(path).unwrap()),
    ];
    for log in LOGS {
        for obstacle in obstacles {
            let env = TestEnv::new();
            fs::create_dir(env.path("log")).unwrap();
            obstacle(&env.path("log").join(log));
            let ended = env.run_answered(OFF, success);
            assert_eq!(
                (ended.code, ended.stdout.as_str()),
                (Some(0), "Success: Powered OFF\n")
            );
            let expected = format!(
                "{} is not a regular file: move it away\n",
                env.path("log").join(log).display()
            );
            assert_eq!(
                ended.stderr,
                format!("fence_recorder: warning: log_dir: {expected}")
            );
            let others = LOGS.iter().filter(|other| **other != log);
            others.for_each(|other| assert_eq!(lines_of(&env, other).len(), 2));
        }
    }
}

#[test]
fn a_log_dir_that_cannot_be_made_is_one_warning() {
    let env = TestEnv::new();
    let ended = env.run_answered(&format!("{OFF}log_dir=/proc/no/such\n"), success);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(0), 1));
    assert!(
        ended
            .stderr
            .contains("warning: log_dir: /proc/no/such can't be created"),
        "{}",
        ended.stderr
    );
}

#[test]
fn quiet_says_only_failures_and_verbose_every_step() {
    let env = TestEnv::new();
    env.run_answered(&format!("{OFF}quiet=1\nfoo=1\n"), success)
        .succeeded_with("");
    env.run("action=off\nquiet=1\n")
        .failed_with(&["no node to fence"]);
    let ended = env.run_answered(&format!("{OFF}verbose=1\n"), success);
    assert_eq!(ended.code, Some(0));
    let said = |word: &str| ended.stderr.lines().any(|line| line.contains(word));
    assert!(
        said("wrote ") && said("withdrew ") && said("Success: Powered OFF"),
        "{}",
        ended.stderr
    );
}

#[test]
fn debug_file_has_every_step_and_is_no_hindrance() {
    let env = TestEnv::new();
    let lines = format!("{OFF}foo=1\ndebug_file={}\n", env.path("debug").display());
    assert_eq!(env.run_answered(&lines, success).code, Some(0));
    let debug = fs::read_to_string(env.path("debug")).unwrap();
    let at = |word: &str| {
        debug
            .find(word)
            .unwrap_or_else(|| panic!("{word} in {debug}"))
    };
    assert!(at("\"foo\" is unknown") < at("wrote ") && at("wrote ") < at("withdrew "));
    fs::remove_file(env.path("debug")).unwrap();
    mkfifo(&env.path("debug"), Mode::S_IRWXU).unwrap();
    let ended = env.run_answered(&format!("{lines}quiet=1\n"), success);
    ended.succeeded_with("");
    let ended = env.run_answered(&lines, success);
    let warned = ended
        .stderr
        .lines()
        .filter(|line| line.contains("debug_file"));
    assert_eq!((ended.code, warned.count()), (Some(0), 1), "{ended:?}");
}

/// Runs a refused fence in a mount namespace whose /dev/log is `socket`.
fn run_with_syslog(env: &TestEnv, socket: &std::path::Path) -> Ended {
    let mut command = env.command("unshare");
    let script = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && ln -s \"$1\" /dev/log && exec \"$0\"";
    command.args(["-m", "sh", "-c", script, AGENT]).arg(socket);
    let agent = TestEnv::spawn(command, &(env.directories() + OFF));
    let (name, request): (String, Value) = env.requests(1).remove(0);
    let refusal = with(
        success(&request),
        json!({"success": false, "message": "a\nb"}),
    );
    env.respond(&name, refusal.to_string().as_bytes());
    agent.wait_with_output().unwrap().into()
}

#[test]
fn syslog_has_the_events_as_facility_daemon() {
    let env = TestEnv::new();
    let syslog = UnixDatagram::bind(env.path("syslog")).unwrap();
    run_with_syslog(&env, &env.path("syslog")).failed_with(&["refused"]);
    let mut buffer = [0; 8192];
    let mut next = || {
        let length = syslog.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let (first, second) = (next(), next());
    assert!(
        first.starts_with("<30>") && first.contains(" fence_recorder["),
        "{first}"
    );
    assert!(
        first.contains("]: off of n1 requested (request "),
        "{first}"
    );
    assert!(
        second.starts_with("<27>") && second.ends_with(": refused by the responder: a\\nb"),
        "{second}"
    );
}

#[test]
fn a_syslog_that_does_not_read_is_no_hindrance() {
    let env = TestEnv::new();
    let _hung = UnixDatagram::bind(env.path("syslog")).unwrap();
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send_to(&[b'x'; 1000], env.path("syslog")).is_ok() {}
    run_with_syslog(&env, &env.path("syslog")).failed_with(&["refused"]);
    assert_eq!(env.statuses(), ["requested", "failed"]);
}

#[test]
fn a_fault_before_the_request_is_recorded_once_and_after_it_was_decided() {
    let env = TestEnv::new();
    env.run("action=off\nplug=n1\nresponse_timeout=0\n")
        .failed_with(&["off of n1 failed: response_timeout"]);
    env.run("action=off\nplug=../n1\n").failed_with(&["plug"]);
    env.run("action=off\nplug=a\nport=b\n")
        .failed_with(&["plug is \"a\" and port is \"b\""]);
    let events = env.events();
    assert_eq!(env.statuses(), ["failed"; 3]);
    assert_eq!(
        [
            &events[0]["target_node"],
            &events[1]["target_node"],
            &events[2]["target_node"]
        ],
        ["n1", "../n1", "a"]
    );
    assert!(events.iter().all(|event| event["request_id"].is_null()));
    env.run("action=off\n").failed_with(&["no node"]);
    assert_eq!(env.events().len(), 3, "no target, no event");
}

#[test]
fn a_fifo_that_somebody_reads_is_no_log_either() {
    use std::os::unix::fs::OpenOptionsExt;
    let env = TestEnv::new();
    fs::create_dir(env.path("log")).unwrap();
    let path = env.path("log").join(LOGS[0]);
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let mut options = fs::File::options();
    let _reader = options
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(&path)
        .unwrap();
    let ended = env.run_answered(OFF, success);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(0), 1));
    assert!(ended.stderr.contains("is not a regular file"), "{ended:?}");
}

#[test]
fn the_clock_is_the_hosts_or_that_of_tz() {
    for (zone, localtime, offset) in [
        (None, "/usr/share/zoneinfo/Asia/Tokyo", "+09:00"),
        (
            Some("Asia/Kolkata"),
            "/usr/share/zoneinfo/Asia/Tokyo",
            "+05:30",
        ),
        (None, "/nowhere", "+00:00"),
    ] {
        let env = TestEnv::new();
        let mut command = env.command("unshare");
        // /etc in the namespace is a copy whose localtime is another
        let script = "cp -a /etc/. \"$1\" && ln -sf \"$2\" \"$1\"/localtime && mount --bind \"$1\" /etc && exec \"$0\"";
        let copy = env.path("etc");
        fs::create_dir(&copy).unwrap();
        command.args(["-m", "sh", "-c", script, AGENT]);
        command.arg(copy).arg(localtime);
        command.envs(zone.map(|zone| ("TZ", zone)));
        let lines = env.directories() + "action=off\nplug=../x\n";
        let agent = TestEnv::spawn(command, &lines);
        Ended::from(agent.wait_with_output().unwrap()).failed_with(&["names no node"]);
        let timestamp = env.events()[0]["timestamp"].as_str().unwrap().to_owned();
        assert!(
            timestamp.ends_with(offset),
            "{zone:?} {localtime}: {timestamp}"
        );
    }
}
