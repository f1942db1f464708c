//! What commands look like on a terminal: as wide as it is, coloured or not, redrawn.

use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::desk::{command, respond};
use crate::env::{TestEnv, wait_for};

/// `arguments` on a terminal of 80 columns and 10 lines, with these variables set too; what it shows
/// goes to `typescript`.
fn on_a_terminal(env: &TestEnv, arguments: &str, variables: &[(&str, &str)]) -> Command {
    let inner = command(env, &[]);
    let mut script = Command::new("script");
    script
        .args(["--quiet", "--return", "--flush", "--command"])
        .arg(format!(
            "stty cols 80 rows 10; exec {} {arguments}",
            inner.get_program().display()
        ))
        .arg(env.path("typescript"))
        .env_clear()
        .env("TERM", "xterm")
        .envs(
            inner
                .get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        )
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    script
}

fn shown(env: &TestEnv, arguments: &str, variables: &[(&str, &str)]) -> String {
    let output = on_a_terminal(env, arguments, variables).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn colours_are_for_terminals_and_never_with_no_color() {
    let env = TestEnv::new();
    respond(&env, "n1", true, "off", "1 hour ago");
    assert!(shown(&env, "fenced", &[]).contains("\x1b[31mn1\x1b[0m"));
    for variables in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
        assert!(!shown(&env, "fenced", &variables).contains('\x1b'));
    }
    assert!(shown(&env, "fenced", &[("NO_COLOR", "")]).contains('\x1b'));
    let plain = crate::desk::run(&env, &["fenced"]).stdout;
    assert!(!plain.contains('\x1b'), "{plain}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let env = TestEnv::new();
    respond(&env, &"long-name-".repeat(15), true, "off", "1 hour ago");
    let text = shown(&env, "fenced", &[("NO_COLOR", "1")]);
    for line in text.lines() {
        assert!(line.trim_end().chars().count() <= 80, "{line}");
    }
    assert!(text.contains('…'), "{text}");
    let whole = crate::desk::run(&env, &["fenced"]).stdout;
    assert!(!whole.contains('…'), "{whole}");
}

#[test]
fn watch_draws_what_changes_until_it_is_interrupted() {
    let env = TestEnv::new();
    let mut child = on_a_terminal(&env, "fenced --watch=1", &[("NO_COLOR", "1")])
        .spawn()
        .unwrap();
    let drawn = || std::fs::read_to_string(env.path("typescript")).unwrap_or_default();
    wait_for("an empty table", || {
        drawn().contains("no node is fenced").then_some(())
    });
    for number in 0..20 {
        respond(&env, &format!("n{number}"), true, "off", "1 hour ago");
    }
    wait_for("the new node", || drawn().contains("n0 ").then_some(()));
    let pid = child.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let inner: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
    kill(Pid::from_raw(inner), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // no more lines than the terminal has
    let last = drawn();
    let last = last.rsplit("\x1b[H").next().unwrap();
    assert!(last.matches("\x1b[K").count() < 10, "{last:?}");
}

#[test]
fn watch_needs_a_terminal_and_no_json() {
    let env = TestEnv::new();
    crate::desk::run(&env, &["fenced", "--watch"]).failed_with(&["--watch needs a terminal"]);
    assert_eq!(
        crate::desk::run(&env, &["fenced", "--watch", "--json"]).code,
        Some(1)
    );
}
