//! What the agent takes from stdin, argv and the environment (design 4.1, 8).

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::env::{AGENT, Ended, TestEnv, success, wait_for};

const IGNORED: &[&str] = &[
    "type",
    "status_file",
    "random_sleep_range",
    "power_timeout",
    "power_wait",
    "shell_timeout",
    "login_timeout",
    "disable_timeout",
    "stonith_status_sleep",
    "retry_on",
    "agent",
    "name",
    "fail_time",
    "node",
    "crm_feature_set",
];

const ENVIRONMENT: &[&str] = &[
    "NNF_FENCE_REQUEST_DIR",
    "NNF_FENCE_RESPONSE_DIR",
    "LOG_DIR",
    "FENCE_TIMEOUT",
    "POLL_INTERVAL",
    "CLEANUP_MAX_AGE",
];

/// The agent on these bytes alone, without the lines that name the spool.
fn run_bytes(env: &TestEnv, bytes: &[u8]) -> Ended {
    let mut child = env.command(AGENT).spawn().unwrap();
    // an agent that refuses early doesn't read it all
    let _ = child.stdin.take().unwrap().write_all(bytes);
    child.wait_with_output().unwrap().into()
}

/// Answers the one request of `agent`, which then succeeds without a warning.
#[track_caller]
fn answered(env: &TestEnv, agent: Child) -> Value {
    let (name, request) = env.requests(1).remove(0);
    env.respond(&name, success(&request).to_string().as_bytes());
    let ended: Ended = agent.wait_with_output().unwrap().into();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    request
}

/// The request that follows from these lines.
#[track_caller]
fn request_of(lines: &str) -> Value {
    let env = TestEnv::new();
    let agent = env.start(lines);
    answered(&env, agent)
}

/// The spool's paths under the names that `nnf-fencing-recorder` gave them.
fn older_names(env: &TestEnv) -> Vec<(&'static str, String)> {
    let path = |name| env.path(name).display().to_string();
    vec![
        ("request_path", path("requests")),
        ("response_path", path("responses")),
        ("log_path", path("log")),
        ("recorder_timeout", "7".to_owned()),
        ("recorder_poll_interval", "0.05".to_owned()),
        ("debug", path("debug")),
        ("option", "off".to_owned()),
        ("port", "n1".to_owned()),
    ]
}

#[track_caller]
fn assert_waits(request: &Value, at_most: f64) {
    let seconds = request["timeout_seconds"].as_f64().unwrap();
    assert!(
        seconds <= at_most && seconds > at_most - 1.0,
        "{seconds} is not {at_most}"
    );
}

#[track_caller]
fn assert_older_names_were_taken(env: &TestEnv, request: &Value) {
    assert_eq!(
        (&request["action"], &request["target_node"]),
        (&json!("off"), &json!("n1"))
    );
    assert_waits(request, 7.0);
    assert_eq!(env.statuses().last().unwrap(), "completed");
    assert!(
        std::fs::read_to_string(env.path("debug"))
            .unwrap()
            .contains("n1")
    );
}

#[test]
fn crlf_comments_blank_lines_and_white_space_around_a_line_are_no_part_of_values() {
    let request =
        request_of("# action=on\r\n\r\n  action=off \r\n \t# plug=n9\r\n\tplug=n1\t\r\n\n");
    assert_eq!(
        (&request["action"], &request["target_node"]),
        (&json!("off"), &json!("n1"))
    );
}

#[test]
fn a_value_is_split_at_the_first_equals_sign_and_loses_one_pair_of_quotes() {
    for (written, meant) in [
        ("a=b", "a=b"),
        ("\"n 1\"", "n 1"),
        ("\"\"n1\"\"", "\"n1\""),
        ("\"n1", "\"n1"),
        ("n1\"", "n1\""),
        ("\"", "\""),
        ("'n1'", "'n1'"),
        ("n1#2", "n1#2"),
    ] {
        let request = request_of(&format!("action=off\nplug={written}\n"));
        assert_eq!(request["target_node"], meant, "{written}");
    }
}

#[test]
fn the_last_of_a_repeated_name_wins_and_dashes_are_underscores() {
    let request = request_of(
        "action=on\nplug=n9\nresponse_timeout=9\naction=off\nplug=n1\nresponse-timeout=7\n",
    );
    assert_eq!(
        (&request["action"], &request["target_node"]),
        (&json!("off"), &json!("n1"))
    );
    assert_waits(&request, 7.0);
}

#[test]
fn an_empty_value_counts_as_not_given() {
    let request = request_of("action=off\nplug=\nport=\"\"\nnodename=n1\nresponse_timeout=\n");
    assert_eq!(request["target_node"], "n1");
    assert_waits(&request, 55.0);
}

#[test]
fn one_mebibyte_of_stdin_is_taken_and_a_byte_more_is_not() {
    let env = TestEnv::new();
    let mut lines = b"action=validate-all\n#".to_vec();
    lines.resize(1024 * 1024, b'x');
    run_bytes(&env, &lines).succeeded_with("");
    lines.push(b'x');
    run_bytes(&env, &lines).failed_with(&["1048576"]);
}

#[test]
fn stdin_that_is_no_text_fails_and_the_line_is_named() {
    let env = TestEnv::new();
    run_bytes(&env, b"action=validate-all\nplug=n\0\n").failed_with(&["NUL", "line 2"]);
    run_bytes(&env, b"action=validate-all\n\nplug=\xff\n").failed_with(&["UTF-8", "line 3"]);
    run_bytes(&env, b"#\xc3\n").failed_with(&["UTF-8", "line 1"]);
}

#[test]
fn the_older_names_are_taken_on_stdin() {
    let env = TestEnv::new();
    let lines: Vec<_> = older_names(&env)
        .into_iter()
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect();
    let agent = TestEnv::spawn(env.command(AGENT), &lines.concat());
    let request = answered(&env, agent);
    assert_older_names_were_taken(&env, &request);
}

#[test]
fn the_older_names_are_long_options() {
    let env = TestEnv::new();
    let mut command = env.command(AGENT);
    for (name, value) in older_names(&env) {
        command.arg(format!("--{}", name.replace('_', "-")));
        command.arg(value);
    }
    let agent = command.stdin(Stdio::null()).spawn().unwrap();
    let request = answered(&env, agent);
    assert_older_names_were_taken(&env, &request);
}

#[test]
fn a_fault_is_named_as_the_value_came() {
    let env = TestEnv::new();
    for name in [
        "recorder_timeout",
        "recorder_poll_interval",
        "request_path",
        "response_path",
        "log_path",
        "debug",
    ] {
        let ended = run_bytes(&env, format!("action=monitor\n{name}=x\n").as_bytes());
        ended.failed_with(&[&format!("{name}: \"x\"")]);
    }
    run_bytes(&env, b"option=explode\n").failed_with(&["option: \"explode\""]);
}

#[test]
fn names_of_other_agents_are_ignored_in_silence() {
    let env = TestEnv::new();
    for name in IGNORED {
        env.run(&format!("action=status\nplug=n1\n{name}=x\n"))
            .succeeded_with("Status: ON\n");
        let option = format!("--{}", name.replace('_', "-"));
        env.run_with_arguments(&["-o", "status", "-n", "n1", &option, "x"])
            .succeeded_with("Status: ON\n");
    }
}

#[test]
fn an_unknown_name_on_stdin_is_one_warning() {
    let env = TestEnv::new();
    let ended = env.run("action=status\nplug=n1\nbogus=1\nbogus=2\n");
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "Status: ON\n")
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(
        ended.stderr.contains("warning") && ended.stderr.contains("\"bogus\""),
        "{ended:?}"
    );
}

#[test]
fn arguments_that_make_no_sense_are_exit_1_and_one_line() {
    let env = TestEnv::new();
    for (arguments, named) in [
        (&["--bogus"][..], "--bogus"),
        (&["--bogus=1"], "--bogus"),
        (&["-x"], "-x"),
        (&["off"], "off"),
        (&["-o", "status", "-n", "n1", "left-over"], "left-over"),
        (&["--plu=n1"], "--plu"),
        (&["--verb"], "--verb"),
        (&["--re", "x"], "--re"),
        (&["--plug"], "--plug"),
        (&["-o", "off", "-n"], "--plug"),
        (&["--action", "explode"], "explode"),
        (&["--quiet=maybe"], "quiet"),
        (&["-o", "status", "-n", "n1", "--request-on", "1"], "1"),
    ] {
        let ended = env.run_with_arguments(arguments);
        ended.failed_with(&[named]);
    }
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
}

#[test]
fn an_option_may_be_cut_short_and_its_value_may_stand_after_an_equals_sign() {
    let env = TestEnv::new();
    for arguments in [
        &["-o", "status", "-n", "n1"][..],
        &["-ostatus", "-nn1"],
        &["--action=status", "--plug=n1"],
        &["--act", "status", "--nodena", "n1"],
        &["--ac=status", "--por=n1", "--response-t=7"],
        &["--opt", "status", "--plug", "n=1"],
    ] {
        env.run_with_arguments(arguments)
            .succeeded_with("Status: ON\n");
    }
}

#[test]
fn a_boolean_option_needs_no_value_and_can_be_switched_off() {
    let env = TestEnv::new();
    for (option, said) in [
        ("--quiet", ""),
        ("-q", ""),
        ("--quiet=1", ""),
        ("--quiet=0", "Success: Powered ON\n"),
    ] {
        env.run_with_arguments(&["-o", "on", "-n", "n1", option])
            .succeeded_with(said);
    }
}

#[test]
fn booleans_are_words_in_any_case() {
    let env = TestEnv::new();
    for (word, said) in [
        ("1", ""),
        ("yes", ""),
        ("On", ""),
        ("TRUE", ""),
        ("0", "Success: Powered ON\n"),
        ("No", "Success: Powered ON\n"),
        ("OFF", "Success: Powered ON\n"),
        ("false", "Success: Powered ON\n"),
    ] {
        env.run(&format!("action=on\nplug=n1\nquiet={word}\n"))
            .succeeded_with(said);
    }
    env.run("action=on\nplug=n1\nquiet=2\n")
        .failed_with(&["quiet: \"2\""]);
}

/// The agent with its spool and timeout named by the environment.
fn command_with_environment(env: &TestEnv) -> Command {
    let mut command = env.command(AGENT);
    command
        .env("NNF_FENCE_REQUEST_DIR", env.path("requests"))
        .env("NNF_FENCE_RESPONSE_DIR", env.path("responses"))
        .env("LOG_DIR", env.path("log"))
        .env("FENCE_TIMEOUT", "9")
        .env("POLL_INTERVAL", "0.05");
    command
}

#[test]
fn the_environment_counts_where_nothing_is_given() {
    let env = TestEnv::new();
    let agent = TestEnv::spawn(command_with_environment(&env), "action=off\nplug=n1\n");
    assert_waits(&answered(&env, agent), 9.0);
    assert_eq!(env.statuses().last().unwrap(), "completed");
}

#[test]
fn what_is_given_beats_the_environment() {
    for name in ["response_timeout", "recorder_timeout"] {
        let env = TestEnv::new();
        let lines = env.directories() + &format!("action=off\nplug=n1\n{name}=7\n");
        let mut command = command_with_environment(&env);
        for variable in ["NNF_FENCE_REQUEST_DIR", "NNF_FENCE_RESPONSE_DIR", "LOG_DIR"] {
            command.env(variable, "/nonexistent");
        }
        let agent = TestEnv::spawn(command, &lines);
        assert_waits(&answered(&env, agent), 7.0);
    }
}

#[test]
fn an_invalid_value_in_the_environment_is_a_warning_and_the_default() {
    let env = TestEnv::new();
    let mut command = env.command(AGENT);
    command.env("FENCE_TIMEOUT", "soon");
    let lines = env.directories() + "action=off\nplug=n1\n";
    let agent = TestEnv::spawn(command, &lines);
    let (name, request) = env.requests(1).remove(0);
    env.respond(&name, success(&request).to_string().as_bytes());
    let ended: Ended = agent.wait_with_output().unwrap().into();
    assert_waits(&request, 55.0);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(ended.stderr.contains("FENCE_TIMEOUT"), "{ended:?}");
}

#[test]
fn each_variable_of_the_environment_is_looked_at_and_stops_nothing() {
    for variable in ENVIRONMENT {
        let env = TestEnv::new();
        let mut command = env.command(AGENT);
        command.env(variable, "odd");
        let agent = TestEnv::spawn(command, "action=validate-all\n");
        let ended: Ended = agent.wait_with_output().unwrap().into();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        assert_eq!(ended.stdout.lines().count(), 1, "{ended:?}");
        assert!(ended.stdout.contains(variable), "{ended:?}");
        let mut command = env.command(AGENT);
        command.env(variable, "");
        let agent = TestEnv::spawn(command, "action=validate-all\n");
        Ended::from(agent.wait_with_output().unwrap()).succeeded_with("");
    }
}

#[test]
fn a_path_in_the_environment_that_is_not_utf8_is_not_taken_for_a_similar_one() {
    let env = TestEnv::new();
    let mut command = env.command(AGENT);
    command.env("LOG_DIR", OsStr::from_bytes(b"/nonexistent/\xff"));
    let agent = TestEnv::spawn(command, "action=validate-all\n");
    let ended: Ended = agent.wait_with_output().unwrap().into();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(ended.stdout.lines().count(), 1, "{ended:?}");
    assert!(
        ended.stdout.contains("LOG_DIR") && ended.stdout.contains("UTF-8"),
        "{ended:?}"
    );
}

#[test]
fn numbers_are_taken_just_inside_their_range() {
    let env = TestEnv::new();
    for line in [
        "response_timeout=1",
        "response_timeout=86400",
        "poll_interval=0.01",
        "poll_interval=60",
        "cleanup_max_age=0",
        "cleanup_max_age=86400",
        "delay=0",
        "delay=86400",
        "verbose_level=0",
        "verbose_level=99",
    ] {
        env.run(&format!("action=validate-all\n{line}\n"))
            .succeeded_with("");
    }
}

#[test]
fn numbers_just_outside_their_range_are_faults_and_never_clamped() {
    let env = TestEnv::new();
    for line in [
        "response_timeout=0",
        "response_timeout=86401",
        "response_timeout=1.5",
        "poll_interval=0.009",
        "poll_interval=60.001",
        "poll_interval=nan",
        "cleanup_max_age=-1",
        "cleanup_max_age=86401",
        "delay=-1",
        "delay=86401",
        "delay=1s",
        "verbose_level=x",
    ] {
        let (name, value) = line.split_once('=').unwrap();
        let said = format!("{name}: \"{value}\"");
        let checked = env.run(&format!("action=validate-all\n{line}\n"));
        assert_eq!((checked.code, checked.stderr.as_str()), (Some(1), ""));
        assert!(checked.stdout.starts_with(&said), "{checked:?}");
        let fenced = env.run(&format!("action=off\nplug=n1\n{line}\n"));
        fenced.failed_with(&[&said]);
    }
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
}

#[test]
fn a_name_that_could_lead_astray_is_no_node() {
    let env = TestEnv::new();
    let long = "x".repeat(209);
    for (name, why) in [
        ("../etc/passwd", "'.'"),
        ("a/b", "'/'"),
        (".n1", "'.'"),
        ("-n1", "'-'"),
        ("a\tb", "control"),
        ("a\u{7f}b", "control"),
        ("a\u{85}b", "control"),
        (long.as_str(), "208"),
    ] {
        for parameter in ["plug", "port", "nodename"] {
            let ended = env.run(&format!("action=off\n{parameter}={name}\n"));
            ended.failed_with(&[parameter, why]);
        }
    }
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
}

#[test]
fn any_other_name_is_a_node_and_part_of_the_file_name() {
    let long = "x".repeat(208);
    for name in ["n1.example.com", "node-2", "ü n", "$(reboot)", &long] {
        let env = TestEnv::new();
        let agent = env.start(&format!("action=off\nplug={name}\n"));
        let (file, request) = env.requests(1).remove(0);
        assert_eq!(request["target_node"], name);
        let id = request["request_id"].as_str().unwrap();
        assert_eq!(file, format!("{name}-{id}.json"));
        answered(&env, agent);
    }
}

#[test]
fn the_administrators_name_is_the_target_and_pacemakers_is_told_where_it_differs() {
    for (lines, target, nodename) in [
        ("plug=n1", "n1", Value::Null),
        ("port=n1", "n1", Value::Null),
        ("nodename=n1", "n1", Value::Null),
        ("plug=n1\nport=n1\nnodename=n1", "n1", Value::Null),
        ("plug=psu\nnodename=n1", "psu", json!("n1")),
        ("port=psu\nnodename=n1", "psu", json!("n1")),
        ("plug=n1\nport=psu\nnodename=n1", "psu", json!("n1")),
        ("plug=psu\nport=n1\nnodename=n1", "psu", json!("n1")),
        ("plug=psu\nport=psu\nnodename=n1", "psu", json!("n1")),
        ("nodename=a,b", "a,b", Value::Null),
    ] {
        let request = request_of(&format!("action=off\n{lines}\n"));
        assert_eq!(request["target_node"], target, "{lines}");
        assert_eq!(request["nodename"], nodename, "{lines}");
    }
}

#[test]
fn two_different_targets_are_refused_and_both_are_named() {
    let env = TestEnv::new();
    for nodename in ["", "nodename=n3\n"] {
        for action in ["off", "reboot", "status", "on"] {
            let ended = env.run(&format!("action={action}\nplug=n1\nport=n2\n{nodename}"));
            ended.failed_with(&["\"n1\"", "\"n2\""]);
        }
    }
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
}

#[test]
fn several_plugs_are_a_request_each_and_duplicates_collapse() {
    for lines in [
        "plug=p1,p2,p1",
        "port=p1,p2\nnodename=n1",
        "plug=p1::p2\nplug_separator=::",
    ] {
        let env = TestEnv::new();
        let agent = env.start(&format!("action=off\n{lines}\n"));
        let mut targets = Vec::new();
        for (name, request) in env.requests(2) {
            targets.push(request["target_node"].clone());
            env.respond(&name, success(&request).to_string().as_bytes());
        }
        assert_eq!(targets, ["p1", "p2"], "{lines}");
        Ended::from(agent.wait_with_output().unwrap()).succeeded_with("Success: Powered OFF\n");
    }
}

#[test]
fn an_empty_one_of_several_plugs_is_an_error() {
    let env = TestEnv::new();
    for plug in ["p1,,p2", ",p1", "p1,", ","] {
        let ended = env.run(&format!("action=off\nplug={plug}\n"));
        ended.failed_with(&["plug", "empty"]);
    }
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
}

#[test]
fn an_action_is_known_in_any_case_and_requested_in_lower_case() {
    for (written, meant) in [
        ("OFF", "off"),
        ("Off", "off"),
        ("REBOOT", "reboot"),
        ("ReBoot", "reboot"),
    ] {
        let request = request_of(&format!("action={written}\nplug=n1\n"));
        assert_eq!(request["action"], meant);
    }
    assert_eq!(request_of("plug=n1\n")["action"], "reboot");
}

#[test]
fn a_terminal_on_stdin_is_told_how_to_use_the_agent() {
    let env = TestEnv::new();
    let output = env
        .command("script")
        .args(["-qec", AGENT, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let ended = Ended::from(output);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stdout.contains("terminal") && ended.stdout.contains("--help"),
        "{ended:?}"
    );
}

#[test]
fn help_and_version_are_printed_whatever_else_is_given() {
    let env = TestEnv::new();
    let version = format!("fence_recorder {}\n", env!("CARGO_PKG_VERSION"));
    for arguments in [&["--version"][..], &["-V"], &["-V", "--delay=x"]] {
        env.run_with_arguments(arguments).succeeded_with(&version);
    }
    for arguments in [&["--help"][..], &["-h"], &["-h", "-o", "off"]] {
        let ended = env.run_with_arguments(arguments);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        for option in ["--plug", "--response-timeout", "--allow-insecure-dirs"] {
            assert!(ended.stdout.contains(option), "{ended:?}");
        }
        assert!(!ended.stdout.contains("--recorder-timeout"), "{ended:?}");
    }
}

#[test]
fn with_arguments_stdin_is_not_read() {
    let env = TestEnv::new();
    let mut agent = env
        .command(AGENT)
        .args(["--action", "validate-all"])
        .spawn()
        .unwrap();
    // stays open: an agent that read it would wait for its end
    let mut stdin = agent.stdin.take().unwrap();
    let _ = stdin.write_all(b"action=explode\n");
    let status = wait_for("the agent's end", || agent.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    drop(stdin);
}
