//! `completions`: what the shells really complete.

use std::process::Command;

use crate::desk::run;
use crate::env::TestEnv;

fn script(env: &TestEnv, shell: &str) -> String {
    let ended = run(env, &["completions", shell]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let path = env.path(shell);
    std::fs::write(&path, ended.stdout).unwrap();
    path.display().to_string()
}

/// What bash offers for the words before the cursor.
fn offered(script: &str, words: &[&str]) -> Vec<String> {
    let last = words.len() - 1;
    let line = format!(
        "source {script}; COMP_WORDS=({}); COMP_CWORD={last}; \
         complete -p fence_recorder >/dev/null || exit 1; \
         _fence_recorder fence_recorder '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words
            .iter()
            .map(|word| format!("'{word}'"))
            .collect::<Vec<_>>()
            .join(" "),
        words[last],
        words[last - 1],
    );
    let output = Command::new("bash").args(["-c", &line]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let offered = String::from_utf8(output.stdout).unwrap();
    offered.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn bash_completes_commands_and_their_options_and_the_agents_own() {
    let env = TestEnv::new();
    let script = script(&env, "bash");
    let commands = offered(&script, &["fence_recorder", ""]);
    for command in [
        "requests",
        "jobs",
        "history",
        "fenced",
        "unfence",
        "answer",
        "check",
        "run",
        "responder",
        "demo",
    ] {
        assert!(
            commands.contains(&command.to_owned()),
            "{command} in {commands:?}"
        );
    }
    assert!(
        !commands
            .iter()
            .any(|word| word.contains("gate") || word.contains("step")),
        "{commands:?}"
    );
    assert_eq!(offered(&script, &["fence_recorder", "unf"]), ["unfence"]);
    assert_eq!(
        offered(&script, &["fence_recorder", "--response-t"]),
        ["--response-timeout"]
    );
    assert_eq!(
        offered(&script, &["fence_recorder", "history", "--si"]),
        ["--since"]
    );
    let statuses = offered(&script, &["fence_recorder", "history", "--status", "time"]);
    assert_eq!(statuses, ["timed_out"]);
    // older names are taken, but not offered
    assert_eq!(offered(&script, &["fence_recorder", "--recorder-t"]), [""]);
}

#[test]
fn zsh_and_fish_take_theirs() {
    let env = TestEnv::new();
    for shell in ["zsh", "fish"] {
        let script = script(&env, shell);
        let output = Command::new(shell).args(["-n", &script]).output();
        let output =
            output.unwrap_or_else(|_| panic!("{shell} is missing: apt-get install {shell}"));
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}"
        );
    }
    let fish = script(&env, "fish");
    let line = format!("source {fish}; complete -C 'fence_recorder unf'");
    let output = Command::new("fish")
        .args(["--no-config", "-c", &line])
        .output()
        .unwrap();
    let offered = String::from_utf8(output.stdout).unwrap();
    assert!(offered.starts_with("unfence\t"), "{offered}");
}

#[test]
fn other_shells_are_exit_1() {
    let env = TestEnv::new();
    assert_eq!(run(&env, &["completions", "csh"]).code, Some(1));
    assert_eq!(run(&env, &["completions"]).code, Some(1));
}
