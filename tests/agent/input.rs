//! What the agent is given, by stdin, argv and environment (design 4.1, 8).

use std::fs;
use std::process::{Command, Stdio};

use crate::env::{AGENT, Ended, TestEnv, success};

fn request_for(lines: &str) -> serde_json::Value {
    let env = TestEnv::new();
    let mut seen = serde_json::Value::Null;
    let ended = env.run_answered(lines, |request| {
        seen = request.clone();
        success(request)
    });
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    seen
}

#[test]
fn lines_are_read_as_pacemaker_and_people_write_them() {
    let request = request_for(
        "\r\n# c\n  response-timeout=7  \r\naction=on\naction=\"Off\"\nplug=\"a=b \"c\"\"\n\n",
    );
    assert_eq!(
        (&request["action"], &request["target_node"]),
        (&"off".into(), &"a=b \"c\"".into())
    );
    assert_eq!(request["timeout_seconds"], 7.0);
}

#[test]
fn older_names_and_names_of_fence_dummy_are_taken_in_silence() {
    let env = TestEnv::new();
    let lines = format!(
        "option=off\nport=n1\nrecorder_timeout=9\nrecorder_poll_interval=0.1\ndebug={}\nrequest_path={}\nresponse_path={}\nlog_path={}\n\
         type=recorder\nstatus_file=/x\npower_wait=4\nnode=z\nagent=fence_dummy\nname=x\ncrm_feature_set=3.16.2\n",
        env.path("debug").display(),
        env.path("requests").display(),
        env.path("responses").display(),
        env.path("log").display(),
    );
    let agent = TestEnv::spawn(env.command(AGENT), &lines);
    let (name, request) = env.requests(1).remove(0);
    assert_eq!(
        (&request["target_node"], &request["timeout_seconds"]),
        (&"n1".into(), &9.0.into())
    );
    env.respond(&name, success(&request).to_string().as_bytes());
    Ended::from(agent.wait_with_output().unwrap()).succeeded_with("Success: Powered OFF\n");
    assert!(
        fs::read_to_string(env.path("debug"))
            .unwrap()
            .contains("wrote ")
    );
}

#[test]
fn an_unknown_name_is_one_warning() {
    let ended = TestEnv::new().run("action=monitor\nfrobnicate=1\n");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
    assert_eq!(
        ended.stderr,
        "fence_recorder: warning: the parameter \"frobnicate\" is unknown and ignored\n"
    );
}

#[test]
fn options_are_the_same_by_their_older_names_cut_short_and_with_a_sign() {
    let env = TestEnv::new();
    for arguments in [
        &["-o", "on", "-n", "n1"][..],
        &[
            "--option=on",
            "--port",
            "n1",
            "--type=recorder",
            "--recorder-timeout",
            "5",
        ],
        &[
            "--act=ON",
            "--nodename=n1",
            "--request-on=0",
            "-q",
            "-q",
            "--quiet=0",
        ],
        &["-oon", "-nn1", "-C;", "--verbose=0", "--status-file", "/x"],
    ] {
        env.run_with_arguments(arguments)
            .succeeded_with("Success: Powered ON\n");
    }
}

#[test]
fn a_wrong_argument_is_exit_1_and_one_line() {
    let env = TestEnv::new();
    for (arguments, word) in [
        (&["--frobnicate"][..], "--frobnicate"),
        (&["--re"], "--re"),
        (&["off"], "off"),
        (&["-o", "on", "-n", "x", "left"], "left"),
        (&["-n"], "--plug"),
        (&["-o", "status", "--request-on=x"], "request_on"),
        (&["-o", "explode", "-n", "x"], "explode"),
    ] {
        let ended = env.run_with_arguments(arguments);
        ended.failed_with(&[word]);
    }
}

#[test]
fn with_an_argument_stdin_is_not_read() {
    let env = TestEnv::new();
    let mut command = env.command(AGENT);
    command.args(["-o", "metadata"]);
    // its other end stays open: reading would wait for ever
    let agent = command.spawn().unwrap();
    assert!(agent.wait_with_output().unwrap().status.success());
}

#[test]
fn numbers_out_of_range_are_named_and_not_clamped() {
    let env = TestEnv::new();
    for (name, inside, outside) in [
        ("response_timeout", ["1", "86400"], ["0", "86401"]),
        ("poll_interval", ["0.01", "60"], ["0.009", "60.1"]),
        ("cleanup_max_age", ["0", "86400"], ["-1", "86401"]),
        ("delay", ["0", "86400"], ["1.5", "86401"]),
        ("verbose_level", ["0", "9"], ["x", "10"]),
    ] {
        for value in inside {
            assert_eq!(
                env.run(&format!("action=validate-all\n{name}={value}\n"))
                    .code,
                Some(0),
                "{name}={value}"
            );
        }
        for value in outside {
            let ended = env.run(&format!("action=off\nplug=n1\n{name}={value}\n"));
            ended.failed_with(&[name, &format!("\"{value}\"")]);
        }
    }
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    assert_eq!(env.statuses(), ["failed"; 10], "each has its event");
}

#[test]
fn names_that_are_none_are_refused_before_anything_is_written() {
    let env = TestEnv::new();
    let long = "x".repeat(209);
    for name in [
        "../x",
        "a/b",
        ".x",
        "-x",
        "a\u{7f}b",
        "a,,b",
        ",",
        long.as_str(),
    ] {
        env.run(&format!("action=off\nplug={name}\n"))
            .failed_with(&["plug: ", "names no node"]);
    }
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    let longest = "ü".repeat(104);
    assert_eq!(
        request_for(&format!("action=off\nplug={longest}\n"))["target_node"],
        longest.as_str()
    );
}

#[test]
fn the_administrators_plug_or_port_beats_pacemakers_and_nothing_is_guessed() {
    for (lines, target) in [
        ("plug=psu\nport=n1\nnodename=n1\n", "psu"),
        ("plug=n1\nport=psu\nnodename=n1\n", "psu"),
        ("nodename=n1\n", "n1"),
    ] {
        let request = request_for(&format!("action=off\n{lines}"));
        assert_eq!(request["target_node"], target);
    }
    let env = TestEnv::new();
    env.run("action=off\nplug=a\nport=b\nnodename=n1\n")
        .failed_with(&["\"a\"", "\"b\"", "give one of them"]);
    env.run("action=off\n")
        .failed_with(&["no node to fence is given"]);
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
}

#[test]
fn the_environment_counts_where_nothing_is_given_and_is_never_a_fault() {
    let env = TestEnv::new();
    let run = |variable: (&str, &str), lines: &str| {
        let mut command = env.command(AGENT);
        command.env(variable.0, variable.1);
        Ended::from(
            TestEnv::spawn(command, &(env.directories() + lines))
                .wait_with_output()
                .unwrap(),
        )
    };
    let off = "action=off\nplug=n1\n";
    run(("FENCE_TIMEOUT", "1"), off).failed_with(&["no response within 1 s"]);
    run(
        ("FENCE_TIMEOUT", "99"),
        &format!("{off}response_timeout=1\n"),
    )
    .failed_with(&["within 1 s"]);
    let ended = run(("POLL_INTERVAL", "fast"), "action=monitor\n");
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.stderr.lines().count(), 1);
    assert!(
        ended.stderr.contains("POLL_INTERVAL") && ended.stderr.contains("stays 0.5"),
        "{}",
        ended.stderr
    );
}

#[test]
fn stdin_that_is_no_text_or_too_much_is_refused() {
    let env = TestEnv::new();
    for (bytes, word) in [
        (b"action=off\nplug=\xff\n".to_vec(), "not UTF-8"),
        (b"action=off\nplug=a\0b\n".to_vec(), "NUL"),
        (vec![b'\n'; 1024 * 1024 + 1], "more than 1048576 bytes"),
    ] {
        let input = env.path("input");
        fs::write(&input, bytes).unwrap();
        let mut command = env.command(AGENT);
        let output = command
            .stdin(Stdio::from(fs::File::open(input).unwrap()))
            .output()
            .unwrap();
        Ended::from(output).failed_with(&[word]);
    }
}

#[test]
fn a_terminal_on_stdin_is_told_how_to_use_it() {
    let output = Command::new("script")
        .args(["-qec", AGENT, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("stdin is a terminal"));
}

#[test]
fn help_and_version_are_printed() {
    let env = TestEnv::new();
    let help = env.run_with_arguments(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    assert!(
        help.stdout.contains("--response-timeout") && !help.stdout.contains("--crm-feature-set")
    );
    let version = concat!("fence_recorder ", env!("CARGO_PKG_VERSION"), "\n");
    env.run_with_arguments(&["-V"]).succeeded_with(version);
    env.run("version=1\n").succeeded_with(version);
}
