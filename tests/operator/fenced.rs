//! `fenced`: which nodes count as fenced.

use crate::desk::{each, json, respond, run};
use crate::env::TestEnv;

#[test]
fn the_newest_success_counts_and_names_alike_are_kept_apart() {
    let env = TestEnv::new();
    respond(&env, "c1", true, "off", "1 hour ago");
    let newest = respond(&env, "c1", true, "off", "1 minute ago");
    respond(&env, "c1", false, "off", "1 second ago");
    respond(&env, "c1-2", true, "off", "1 hour ago");
    respond(&env, "c1-2", true, "on", "1 minute ago");
    respond(&env, "c3", false, "off", "1 minute ago");
    let told = json(&env, &["fenced"]);
    assert_eq!(each(&told, "node"), ["c1"]);
    assert_eq!(each(&told, "request_id"), [newest.as_str()]);
    assert_eq!(each(&told, "message"), ["switched off"]);
    let table = run(&env, &["fenced"]).stdout;
    let line = table.lines().nth(1).unwrap();
    for word in ["c1", "1m0", &newest[..8], "switched off"] {
        assert!(line.contains(word), "{word} in {table}");
    }
}

#[test]
fn none_is_said() {
    let env = TestEnv::new();
    run(&env, &["fenced"]).succeeded_with("no node is fenced\n");
    let gone = run(&env, &["fenced", "--response-dir", "/no/such"]);
    gone.failed_with(&["response_dir /no does not exist"]);
}
