//! Which directories the agent uses, and how fast and how clearly it refuses others (design 4.2).

use std::fs;
use std::os::unix::fs::{chown, lchown, symlink};

use serde_json::Value;

use crate::env::{Ended, TestEnv, success};

const STRANGER: u32 = 12345;
// a day to wait: what isn't refused at once doesn't end in time
const OFF: &str = "action=off\nplug=n1\nresponse_timeout=86400\n";

#[track_caller]
fn is_refused(env: &TestEnv, lines: &str, words: &[&str]) {
    let before = (env.names_in("requests"), env.names_in("responses"));
    env.run(&format!("{OFF}{lines}"))
        .failed_with(&[words, &["off of n1 failed"]].concat());
    assert_eq!(
        (env.names_in("requests"), env.names_in("responses")),
        before,
        "the spool is untouched"
    );
    assert_eq!(env.statuses(), ["failed"]);
    env.run(&format!("action=monitor\n{lines}"))
        .failed_with(&[words, &["monitor failed"]].concat());
    env.run(&format!("action=status\nplug=n1\n{lines}"))
        .failed_with(words);
}

fn is_used(env: &TestEnv, lines: &str) -> Ended {
    env.run(&format!("action=monitor\n{lines}"))
        .succeeded_with("");
    env.run_answered(&format!("{OFF}{lines}"), success)
}

#[test]
fn a_missing_directory_is_refused_with_both_remedies_and_not_created() {
    for missing in ["requests", "responses"] {
        let env = TestEnv::new();
        fs::remove_dir(env.path(missing)).unwrap();
        let create = format!(
            "install -d -m 0755 {} {}",
            env.path("requests").display(),
            env.path("responses").display()
        );
        is_refused(
            &env,
            "",
            &["does not exist", &create, "ban the device from this node"],
        );
        assert!(!env.path(missing).exists());
    }
}

#[test]
fn what_is_no_directory_is_refused() {
    let env = TestEnv::new();
    fs::remove_dir(env.path("responses")).unwrap();
    fs::write(env.path("responses"), "").unwrap();
    is_refused(&env, "", &["response_dir", "is not a directory"]);
}

#[test]
fn a_directory_that_others_can_write_is_refused_sticky_or_not() {
    for name in ["requests", "responses"] {
        for mode in [0o775, 0o757, 0o1777, 0o2770] {
            let env = TestEnv::new();
            env.chmod(name, mode);
            is_refused(&env, "", &["is writable by others", "chmod go-w"]);
        }
    }
}

#[test]
fn request_dir_is_roots_and_response_dir_anybodys() {
    let env = TestEnv::new();
    chown(env.path("requests"), Some(STRANGER), None).unwrap();
    is_refused(&env, "", &["request_dir", "belongs to user 12345"]);
    let env = TestEnv::new();
    chown(env.path("responses"), Some(STRANGER), None).unwrap();
    is_used(&env, "").succeeded_with("Success: Powered OFF\n");
}

/// The lines for a spool below `above`, which is made with `mode` and `owner`.
fn below(env: &TestEnv, above: &str, mode: u32, owner: u32) -> String {
    fs::create_dir(env.path(above)).unwrap();
    for name in ["requests", "responses"] {
        fs::rename(env.path(name), env.path(above).join(name)).unwrap();
        symlink(env.path(above).join(name), env.path(name)).unwrap();
    }
    env.chmod(above, mode);
    chown(env.path(above), Some(owner), None).unwrap();
    env.directories()
}

#[test]
fn a_directory_above_must_be_safe_too_unless_sticky_also_through_links() {
    let env = TestEnv::new();
    let lines = below(&env, "above", 0o777, 0);
    is_refused(&env, &lines, &["above", "is writable by others"]);
    let env = TestEnv::new();
    let lines = below(&env, "above", 0o755, STRANGER);
    is_refused(&env, &lines, &["above", "belongs to user 12345"]);
    let env = TestEnv::new();
    let lines = below(&env, "above", 0o1777, 0);
    is_used(&env, &lines).succeeded_with("Success: Powered OFF\n");
}

#[test]
fn a_link_that_somebody_else_could_turn_is_refused() {
    let env = TestEnv::new();
    let lines = below(&env, "above", 0o755, 0);
    lchown(env.path("responses"), Some(STRANGER), None).unwrap();
    is_refused(&env, &lines, &["response_dir", "is a link of user 12345"]);
}

#[test]
fn links_that_lead_in_a_circle_are_refused() {
    let env = TestEnv::new();
    fs::remove_dir(env.path("requests")).unwrap();
    symlink(env.path("requests"), env.path("requests")).unwrap();
    is_refused(&env, "", &["request_dir", "Too many symbolic links"]);
}

#[test]
fn one_directory_for_both_is_refused_even_by_two_names() {
    let env = TestEnv::new();
    fs::remove_dir(env.path("responses")).unwrap();
    symlink("requests", env.path("responses")).unwrap();
    is_refused(
        &env,
        "",
        &["request_dir and response_dir are one directory"],
    );
}

#[test]
fn allow_insecure_dirs_waives_it_and_monitor_warns() {
    let env = TestEnv::new();
    env.chmod("responses", 0o777);
    let ended = env.run("action=monitor\nallow_insecure_dirs=1\n");
    assert_eq!(ended.code, Some(0));
    assert!(
        ended.stderr.contains("warning: allow_insecure_dirs=1")
            && ended.stderr.contains("writable by others")
    );
    let ended = env.run_answered(&format!("{OFF}allow_insecure_dirs=1\n"), success);
    ended.succeeded_with("Success: Powered OFF\n");
}

#[test]
fn allow_insecure_dirs_does_not_make_a_strangers_response_count() {
    let env = TestEnv::new();
    env.chmod("responses", 0o777);
    let agent = env.start("action=off\nplug=n1\nresponse_timeout=1\nallow_insecure_dirs=1\n");
    let (name, request): (String, Value) = env.requests(1).remove(0);
    let other = env.path("responses").join(".other");
    fs::write(&other, success(&request).to_string()).unwrap();
    chown(&other, Some(STRANGER), None).unwrap();
    fs::rename(&other, env.path("responses").join(name)).unwrap();
    Ended::from(agent.wait_with_output().unwrap()).failed_with(&["belongs to user 12345"]);
}
