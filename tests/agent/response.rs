//! What counts as a response, and what the failure says of one that doesn't (design 3.2).

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::env::{Ended, TestEnv, success, until_it_waits, with};

/// Somebody who is neither root nor the owner of the directory.
const STRANGER: u32 = 12345;

/// Runs a fence for n1 whose response `place` puts under the path given, from the request.
fn answered_by(lines: &str, place: impl FnOnce(&TestEnv, &Path, &Value)) -> Ended {
    let env = TestEnv::new();
    let agent = env.start(&format!("action=off\nplug=n1\n{lines}"));
    let (name, request) = env.requests(1).remove(0);
    until_it_waits(&agent);
    place(&env, &env.path("responses").join(name), &request);
    let ended = Ended::from(agent.wait_with_output().unwrap());
    assert_eq!(
        env.names_in("requests"),
        Vec::<String>::new(),
        "the request is withdrawn"
    );
    let statuses = env.statuses();
    let ends = statuses
        .iter()
        .filter(|status| *status != "requested")
        .count();
    assert_eq!((statuses.len(), ends), (2, 1), "{statuses:?}");
    assert_eq!(ended.code == Some(0), statuses[1] == "completed");
    // an answer that only the next look in 60 s would have found was not told of
    let waited = env.events()[1]["duration_seconds"].as_f64().unwrap();
    assert!(
        !lines.contains("poll_interval=60") || waited < 30.0,
        "{waited}"
    );
    ended
}

/// A response whose text `make` makes doesn't count, and the failure holds `words`.
#[track_caller]
fn does_not_count(words: &[&str], make: impl FnOnce(&Value) -> Vec<u8>) {
    let ended = answered_by("response_timeout=1\n", |_, path, request| {
        fs::write(path, make(request)).unwrap();
    });
    ended.failed_with(&[words, &["no response counted within 1 s"]].concat());
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[test]
fn a_success_counts_whether_renamed_linked_or_written_in_place() {
    for way in ["rename", "link", "in place"] {
        let ended = answered_by("poll_interval=60\n", |env, path, request| {
            let other = env.path("responses").join(".elsewhere");
            match way {
                "in place" => fs::write(path, text(&success(request))).unwrap(),
                way => {
                    fs::write(&other, text(&success(request))).unwrap();
                    if way == "link" {
                        fs::hard_link(&other, path)
                    } else {
                        fs::rename(&other, path)
                    }
                    .unwrap();
                }
            }
        });
        ended.succeeded_with("Success: Powered OFF\n");
    }
}

#[test]
fn a_response_seen_half_written_counts_once_it_is_whole() {
    use std::io::Write;
    for poll_interval in ["60", "0.01"] {
        let ended = answered_by(
            &format!("poll_interval={poll_interval}\n"),
            |_, path, request| {
                let whole = text(&success(request));
                for cut in 0..whole.len() {
                    // every prefix is there under the final name for the agent to see
                    fs::write(path, &whole[..cut]).unwrap();
                }
                fs::File::options()
                    .append(true)
                    .open(path)
                    .unwrap()
                    .write_all(&whole[whole.len() - 1..])
                    .unwrap();
            },
        );
        ended.succeeded_with("Success: Powered OFF\n");
    }
}

#[test]
fn a_refusal_is_a_failure_with_its_message() {
    let refusal = |message: Value| {
        move |request: &Value| {
            with(
                success(request),
                json!({"success": false, "message": message}),
            )
        }
    };
    let env = TestEnv::new();
    let ended = env.run_answered(
        "action=off\nplug=n1\n",
        refusal(json!("no such\nnode\u{1b}[31m")),
    );
    ended.failed_with(&["off of n1 failed: refused by the responder: no such\\nnode\\u{1b}[31m"]);
    for odd in [json!(5), json!({"a": 1}), json!(null)] {
        let ended = TestEnv::new().run_answered("action=off\nplug=n1\n", refusal(odd));
        assert_eq!(
            ended.stderr,
            "fence_recorder: off of n1 failed: refused by the responder\n"
        );
    }
}

#[test]
fn an_odd_message_or_unknown_field_does_not_spoil_a_success() {
    let changes = json!({"message": [1], "timestamp": 5, "recorder_node": 1, "status": {}, "x": "y", "target_node": null});
    let ended = TestEnv::new().run_answered("action=off\nplug=n1\n", |request| {
        with(success(request), changes)
    });
    ended.succeeded_with("Success: Powered OFF\n");
}

#[test]
fn only_a_boolean_is_a_success() {
    for odd in [
        json!("false"),
        json!("true"),
        json!(1),
        json!([true]),
        json!({}),
    ] {
        does_not_count(&["expected a boolean"], |request| {
            text(&with(success(request), json!({"success": odd})))
        });
    }
    does_not_count(&["missing field `success`"], |request| {
        text(&json!({"request_id": request["request_id"]}))
    });
}

#[test]
fn another_request_or_node_does_not_count() {
    does_not_count(
        &["is for another request: its request_id is \"abc\""],
        |request| text(&with(success(request), json!({"request_id": "abc"}))),
    );
    does_not_count(
        &["is for another node: its target_node is \"n2\""],
        |request| text(&with(success(request), json!({"target_node": "n2"}))),
    );
    does_not_count(&["its target_node is null"], |request| {
        let id = request["request_id"].as_str().unwrap();
        format!("{{\"request_id\": \"{id}\", \"success\": true, \"target_node\": null}}")
            .into_bytes()
    });
}

#[test]
fn anything_but_one_whole_object_does_not_count() {
    does_not_count(&["EOF"], |_| Vec::new());
    does_not_count(&["EOF"], |request| {
        text(&success(request)).split_last().unwrap().1.to_vec()
    });
    does_not_count(&["trailing characters"], |request| {
        [text(&success(request)), b"{}".to_vec()].concat()
    });
    does_not_count(&["expected a JSON object"], |request| {
        text(&json!([success(request)]))
    });
    does_not_count(&["there twice"], |request| {
        let id = request["request_id"].as_str().unwrap();
        format!("{{\"request_id\": \"{id}\", \"success\": false, \"success\": true}}").into_bytes()
    });
    does_not_count(&["there twice"], |request| {
        let id = request["request_id"].as_str().unwrap();
        format!("{{\"request_id\": \"{id}\", \"success\": true, \"x\": [{{\"a\": 1, \"a\": 2}}]}}")
            .into_bytes()
    });
    does_not_count(&["holds no valid response"], |request| {
        let mut bytes = text(&with(success(request), json!({"message": "?"})));
        let at = bytes.iter().position(|byte| *byte == b'?').unwrap();
        bytes[at] = 0xff;
        bytes
    });
}

#[test]
fn anything_but_a_regular_file_of_somebody_whose_word_counts_does_not() {
    let fails = |words: &[&str], place: fn(&TestEnv, &Path, &Value)| {
        answered_by("response_timeout=1\n", place).failed_with(words);
    };
    fails(&["is a symbolic link"], |env, path, request| {
        fs::write(env.path("elsewhere"), text(&success(request))).unwrap();
        symlink(env.path("elsewhere"), path).unwrap();
    });
    fails(&["is not a regular file"], |_, path, _| {
        fs::create_dir(path).unwrap();
    });
    fails(&["is not a regular file"], |_, path, _| {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    });
    fails(&["is not a regular file"], |_, path, _| {
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    });
    fails(&["belongs to user 12345"], |env, path, request| {
        let other = env.path("responses").join(".other");
        fs::write(&other, text(&success(request))).unwrap();
        chown(&other, Some(STRANGER), None).unwrap();
        fs::rename(other, path).unwrap();
    });
}

#[test]
fn the_owner_of_response_dir_may_answer() {
    let env = TestEnv::new();
    chown(env.path("responses"), Some(STRANGER), None).unwrap();
    let agent = env.start("action=off\nplug=n1\n");
    let (name, request) = env.requests(1).remove(0);
    let other = env.path("responses").join(".other");
    fs::write(&other, text(&success(&request))).unwrap();
    chown(&other, Some(STRANGER), None).unwrap();
    fs::rename(other, env.path("responses").join(name)).unwrap();
    Ended::from(agent.wait_with_output().unwrap()).succeeded_with("Success: Powered OFF\n");
}

#[test]
fn a_response_of_more_than_1_mib_fails_at_once() {
    // with a day to wait, only "at once" ends in time
    let ended = answered_by("response_timeout=86400\n", |env, path, request| {
        let other = env.path("responses").join(".other");
        let mut bytes = text(&success(request));
        bytes.resize(1024 * 1024 + 1, b' ');
        fs::write(&other, bytes).unwrap();
        fs::rename(other, path).unwrap();
    });
    ended.failed_with(&["is larger than 1048576 bytes"]);
}

#[test]
fn a_response_of_just_1_mib_counts() {
    let ended = answered_by("", |_, path, request| {
        let mut bytes = text(&success(request));
        bytes.resize(1024 * 1024, b' ');
        fs::write(path, bytes).unwrap();
    });
    ended.succeeded_with("Success: Powered OFF\n");
}

/// What nnf-sos really wrote, made to answer `request`.
fn nnf_sos(file: &str, request: &Value) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/interop")
        .join(file);
    let response: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    text(&with(
        response,
        json!({"request_id": request["request_id"], "target_node": request["target_node"]}),
    ))
}

#[test]
fn nnf_sos_answers_in_place_and_removes_the_request_afterwards() {
    let ended = answered_by("poll_interval=60\n", |env, path, request| {
        let whole = nnf_sos("nnf-sos-response-in-place.json", request);
        fs::write(path, &whole[..whole.len() / 2]).unwrap();
        assert_eq!(
            env.names_in("requests").len(),
            1,
            "the request is there until the answer is whole"
        );
        fs::write(path, whole).unwrap();
        // the agent may have withdrawn it by now
        let _ = fs::remove_file(env.path("requests").join(path.file_name().unwrap()));
    });
    ended.succeeded_with("Success: Powered OFF\n");
}

#[test]
fn nnf_sos_answers_by_rename() {
    let ended = answered_by("", |env, path, request| {
        let name = path.file_name().unwrap().to_str().unwrap();
        env.respond(name, &nnf_sos("nnf-sos-response-renamed.json", request));
        let _ = fs::remove_file(env.path("requests").join(name));
    });
    ended.succeeded_with("Success: Powered OFF\n");
}
