//! `history`: what is read back from the audit, from rotated and damaged files too.

use std::fs;
use std::process::Command;

use serde_json::{Value, json as value};

use crate::desk::{each, json, run};
use crate::env::TestEnv;

const LOG: &str = "log/fence-events-detailed.jsonl";

/// A line as the agent writes it, so many seconds ago.
fn line(seconds: i64, node: &str, status: &str, id: &str, details: &str) -> String {
    let time = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
    let event = value!({
        "timestamp": time.to_string(), "action": "off", "target_node": node, "status": status,
        "details": details, "recorder_node": "host", "request_id": id, "duration_seconds": 1.5,
    });
    event.to_string() + "\n"
}

fn env_with(files: &[(&str, String)]) -> TestEnv {
    let env = TestEnv::new();
    fs::create_dir(env.path("log")).unwrap();
    for (name, text) in files {
        fs::write(env.path(name), text).unwrap();
    }
    env
}

fn compress(env: &TestEnv, program: &str, name: &str) {
    let done = Command::new(program).arg("-q").arg(env.path(name)).status();
    assert!(done.expect(program).success());
    // zstd leaves the plain file, as a logrotate that is still at work does
    let _ = fs::remove_file(env.path(name));
}

#[test]
fn a_real_fence_is_told_with_its_reason_and_its_time() {
    let env = TestEnv::new();
    let lines = "action=off\nplug=n1\nresponse_timeout=1\npoll_interval=0.05\n";
    assert_eq!(env.run(lines).code, Some(1));
    let told = json(&env, &["history"]);
    assert_eq!(each(&told, "status"), ["timed_out"]);
    assert_eq!(each(&told, "target_node"), ["n1"]);
    assert!(told[0]["duration_seconds"].as_f64().unwrap() >= 1.0);
    assert_ne!(told[0]["first_event"], told[0]["last_event"]);
    let table = run(&env, &["history"]).stdout;
    let lines: Vec<_> = table.lines().collect();
    for word in ["n1", "off", "timed_out", "1.0s"] {
        assert!(lines[1].contains(word), "{word} in {table}");
    }
    assert!(lines[2].starts_with("    no response"), "{table}");
}

#[test]
fn rotated_and_compressed_files_are_read_too_in_order_and_each_once() {
    let env = env_with(&[
        (LOG, line(10, "n5", "completed", "5", "")),
        (&format!("{LOG}.1"), line(20, "n4", "completed", "4", "")),
        (&format!("{LOG}.2"), line(30, "n3", "completed", "3", "")),
        (
            &format!("{LOG}-20260102"),
            line(40, "n2", "completed", "2", ""),
        ),
        (
            &format!("{LOG}-20260101"),
            line(50, "n1", "completed", "1", ""),
        ),
        (&format!("{LOG}.7"), line(60, "n0", "completed", "0", "")),
        (
            "log/fence-events-detailed.jsonlx",
            line(1, "x", "failed", "x", ""),
        ),
    ]);
    compress(&env, "gzip", &format!("{LOG}.2"));
    compress(&env, "xz", &format!("{LOG}-20260102"));
    compress(&env, "bzip2", &format!("{LOG}-20260101"));
    compress(&env, "zstd", &format!("{LOG}.7"));
    // gzip at work: both are there
    let gzip = Command::new("gzip")
        .arg("-k")
        .arg(env.path(&format!("{LOG}.1")))
        .status();
    assert!(gzip.unwrap().success());
    let told = json(&env, &["history"]);
    assert_eq!(
        each(&told, "target_node"),
        ["n0", "n1", "n2", "n3", "n4", "n5"]
    );
}

#[test]
fn a_request_whose_lines_are_in_two_files_is_one_entry() {
    let env = env_with(&[
        (&format!("{LOG}.1"), line(20, "n1", "requested", "1", "")),
        (
            LOG,
            line(10, "n1", "failed", "1", "no power") + &line(5, "n2", "requested", "2", ""),
        ),
    ]);
    let told = json(&env, &["history"]);
    assert_eq!(each(&told, "status"), ["failed", "requested"]);
    assert_eq!(told[0]["details"], "no power");
}

#[test]
fn torn_and_foreign_lines_are_counted_and_the_rest_is_told() {
    let whole = line(10, "n1", "completed", "1", "");
    let torn = &whole[..whole.len() / 2];
    let env = env_with(&[(
        LOG,
        format!(
            "{whole}{torn}\nDec 01 sshd: hello\n\n[1]\n{{\"a\":1}}\n\u{0}\u{1}\n{}",
            line(5, "n2", "failed", "2", "")
        ),
    )]);
    let ended = run(&env, &["history", "--json"]);
    let told: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(each(&told, "target_node"), ["n1", "n2"]);
    assert!(
        ended.stderr.contains("5 of its lines are no events"),
        "{ended:?}"
    );
    assert_eq!(ended.code, Some(0));
}

#[test]
fn a_damaged_archive_or_a_link_loses_nothing_of_the_others() {
    let env = env_with(&[
        (LOG, line(10, "n1", "completed", "1", "")),
        (&format!("{LOG}.2.gz"), "no gzip".to_owned()),
    ]);
    std::os::unix::fs::symlink("/etc/passwd", env.path(&format!("{LOG}.3"))).unwrap();
    nix::unistd::mkfifo(
        &env.path(&format!("{LOG}.4")),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .unwrap();
    let ended = run(&env, &["history", "--json"]);
    let told: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(each(&told, "target_node"), ["n1"]);
    assert_eq!(ended.stderr.lines().count(), 3, "{ended:?}");
}

#[test]
fn what_is_asked_for_is_told_and_no_more() {
    let day = 86_400;
    let env = env_with(&[(
        LOG,
        line(3 * day, "n1", "failed", "1", "")
            + &line(7200, "n1", "completed", "2", "")
            + &line(60, "n1", "timed_out", "3", "")
            + &line(30, "n1-2", "failed", "4", ""),
    )]);
    let ids = |arguments: &[&str]| {
        let told = json(&env, &[&["history"], arguments].concat());
        let ids = each(&told, "request_id")
            .into_iter()
            .map(|id| id.as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(ids(&["n1"]), ["1", "2", "3"]);
    assert_eq!(ids(&["--since", "1h"]), ["3", "4"]);
    assert_eq!(ids(&["--since", "1d 12h"]), ["2", "3", "4"]);
    assert_eq!(ids(&["--status", "failed"]), ["1", "4"]);
    assert_eq!(ids(&["--status", "failed,timed_out", "n1"]), ["1", "3"]);
    assert_eq!(ids(&["--since", "2020-01-14 13:45"]).len(), 4);
    assert_eq!(ids(&["--since", "2020-01-14"]).len(), 4);
    assert_eq!(ids(&["--since", "2020-01-14T13:45:00Z"]).len(), 4);
    assert_eq!(ids(&["--since", "9998-01-01"]).len(), 0);
    for odd in ["yesterday", "", "-2h", "0s", "2"] {
        let since = format!("--since={odd}");
        run(&env, &["history", &since]).failed_with(&["--since", "2h"]);
    }
    assert_eq!(
        run(&env, &["history", "--status", "nonsense"]).code,
        Some(1)
    );
}

#[test]
fn no_log_has_no_history() {
    let env = TestEnv::new();
    run(&env, &["history"]).succeeded_with("nothing is recorded\n");
    assert_eq!(json(&env, &["history"]), value!([]));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_fault() {
    let lines: String = (0..20_000)
        .map(|n| line(n, "n1", "completed", &n.to_string(), ""))
        .collect();
    let env = env_with(&[(LOG, lines)]);
    let command = crate::desk::command(&env, &["history"]);
    let mut head = Command::new("bash");
    head.args(["-c", "set -o pipefail; \"$0\" history | head -n 1"])
        .arg(command.get_program())
        .envs(
            command
                .get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        );
    let ended = head.output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    let mut full = Command::new("bash");
    full.args(["-c", "\"$0\" history >/dev/full"])
        .arg(command.get_program())
        .envs(
            command
                .get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        );
    let ended = full.output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("can't be written"));
}
