//! The responder's side of the spool: what counts as a request, and what is answered already.

use std::fs;
use std::os::unix::fs::{chown, symlink};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};

use crate::env::{success, with};
use crate::scene::{Scene, name_of, reason_of, request, serving, uuid};

/// A user whose word doesn't count.
const NOBODY: u32 = 65534;

#[test]
fn a_request_that_no_rule_serves_is_refused() {
    let scene = Scene::new("[[rule]]\nnodes = [\"a*\"]\n[[rule.task]]\nexec = [\"/bin/true\"]\n");
    let id = scene.request("off", "b1", 30.0);
    let answer = scene.answer("b1", &id);
    assert_eq!(answer["success"], false);
    assert_eq!(reason_of(&scene.ended_job(&id)), "NoRule");
}

/// What `put` makes of a good request, or of its file at this path, is moved aside for this reason,
/// is no job, and the next request is served.
fn is_rejected(why: &str, put: impl FnOnce(&Scene, &str, Value)) {
    let scene = Scene::new(&serving("/bin/true"));
    let id = uuid();
    let name = name_of("n1", &id);
    put(&scene, &name, request(&id, "off", "n1", 30.0));
    scene.wait_for_log(&[&name, why, "moved to .rejected"]);
    assert_eq!(scene.env.names_in("requests/.rejected"), [name]);
    scene.still_serves();
    scene.until_all_is_done();
    assert!(scene.job(&id).is_none() && scene.answered("n1", &id).is_none());
}

#[test]
fn bad_json_is_rejected() {
    is_rejected("holds no valid request", |scene, name, _| {
        scene.put(name, b"{\"request_id\": ");
    });
}

#[test]
fn an_empty_file_is_rejected() {
    is_rejected("holds no valid request", |scene, name, _| {
        scene.put(name, b"");
    });
}

#[test]
fn two_objects_are_rejected() {
    is_rejected("trailing characters", |scene, name, request| {
        scene.put(name, format!("{request}{request}").as_bytes());
    });
}

#[test]
fn a_key_that_is_there_twice_is_rejected() {
    is_rejected("twice", |scene, name, request| {
        let twice = request.to_string().replacen('{', "{\"action\":\"on\",", 1);
        scene.put(name, twice.as_bytes());
    });
}

#[test]
fn an_unknown_action_is_rejected() {
    is_rejected("unknown variant", |scene, name, request| {
        let request = with(request, json!({"action": "explode"}));
        scene.put(name, request.to_string().as_bytes());
    });
}

#[test]
fn another_node_in_the_content_than_in_the_name_is_rejected() {
    is_rejected("is not named", |scene, name, request| {
        let request = with(request, json!({"target_node": "n2"}));
        scene.put(name, request.to_string().as_bytes());
    });
}

#[test]
fn another_id_in_the_content_than_in_the_name_is_rejected() {
    is_rejected("is not named", |scene, name, request| {
        let request = with(request, json!({"request_id": uuid()}));
        scene.put(name, request.to_string().as_bytes());
    });
}

#[test]
fn a_file_that_is_too_large_is_rejected() {
    is_rejected("is larger than 65536 bytes", |scene, name, request| {
        let padded = format!("{request}{}", " ".repeat(64 * 1024));
        scene.put(name, padded.as_bytes());
    });
}

#[test]
fn a_request_of_64_kib_is_none_too_large() {
    let scene = Scene::new(&serving("/bin/true"));
    let id = uuid();
    let mut text = request(&id, "off", "n1", 30.0).to_string();
    text.push_str(&" ".repeat(64 * 1024 - text.len()));
    scene.put(&name_of("n1", &id), text.as_bytes());
    assert_eq!(scene.answer("n1", &id)["success"], true);
}

#[test]
fn a_link_to_a_good_request_is_rejected() {
    is_rejected("is a symbolic link", |scene, name, request| {
        fs::write(scene.path("elsewhere"), request.to_string()).unwrap();
        symlink(scene.path("elsewhere"), scene.path("link")).unwrap();
        fs::rename(scene.path("link"), scene.path("requests").join(name)).unwrap();
    });
}

#[test]
fn a_fifo_is_rejected() {
    is_rejected("is not a regular file", |scene, name, _| {
        mkfifo(&scene.path("fifo"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        fs::rename(scene.path("fifo"), scene.path("requests").join(name)).unwrap();
    });
}

#[test]
fn a_fifo_that_was_made_in_place_is_rejected_at_the_next_look() {
    is_rejected("is not a regular file", |scene, name, _| {
        let path = scene.path("requests").join(name);
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    });
}

#[test]
fn a_directory_is_rejected_with_all_that_is_in_it() {
    is_rejected("is not a regular file", |scene, name, _| {
        fs::create_dir(scene.path("full")).unwrap();
        fs::write(scene.path("full/file"), "x").unwrap();
        fs::rename(scene.path("full"), scene.path("requests").join(name)).unwrap();
    });
}

#[test]
fn the_file_of_somebody_else_is_rejected() {
    is_rejected("belongs to user 65534", |scene, name, request| {
        fs::write(scene.path("theirs"), request.to_string()).unwrap();
        chown(scene.path("theirs"), Some(NOBODY), Some(NOBODY)).unwrap();
        fs::rename(scene.path("theirs"), scene.path("requests").join(name)).unwrap();
    });
}

#[test]
fn names_that_are_no_requests_are_rejected() {
    let scene = Scene::new(&serving("/bin/true"));
    let id = uuid();
    let names = [
        "x.json".to_owned(),
        format!("{id}.json"),
        format!("-{id}.json"),
        format!("n1-{}.json", id.replace('-', "")),
        format!("n1-{{{id}}}.json"),
        format!("-n1-{id}.json"),
        format!("{}-{id}.json", "n".repeat(209)),
    ];
    for name in &names {
        scene.put(name, request(&id, "off", "n1", 30.0).to_string().as_bytes());
        scene.wait_for_log(&[name, "is not named <node>-<uuid>.json"]);
    }
    fs::create_dir(scene.path("requests/directory.json")).unwrap();
    scene.wait_for_log(&["directory.json", "moved to .rejected"]);
    let rejected = scene.env.names_in("requests/.rejected");
    assert_eq!(rejected.len(), names.len() + 1, "{rejected:?}");
    assert!(names.iter().all(|name| rejected.contains(name)));
    scene.still_serves();
    assert!(scene.job(&id).is_none());
}

#[test]
fn a_rejected_file_replaces_no_other() {
    let scene = Scene::new(&serving("/bin/true"));
    for text in ["first", "second", "third"] {
        scene.put("x.json", text.as_bytes());
        scene.still_serves();
    }
    let rejected = scene.env.names_in("requests/.rejected");
    let content = |name| fs::read_to_string(scene.path("requests/.rejected").join(name)).unwrap();
    assert_eq!(content("x.json"), "first");
    let mut texts: Vec<_> = rejected.iter().map(|name| content(name.as_str())).collect();
    texts.sort();
    assert_eq!(texts, ["first", "second", "third"]);
}

#[test]
fn what_is_no_request_is_rejected_after_somebody_cleared_away_the_rejected_ones() {
    let scene = Scene::new(&serving("/bin/true"));
    fs::remove_dir(scene.path("requests/.rejected")).unwrap();
    let name = name_of("n1", &uuid());
    scene.put(&name, b"{}");
    scene.wait_for_log(&[&name, "moved to .rejected"]);
    assert_eq!(scene.env.names_in("requests/.rejected"), [name]);
    scene.until_all_is_done();
}

#[test]
fn hidden_names_and_other_kinds_of_files_are_left_alone() {
    let mut scene = Scene::without_responder(&serving("/bin/true"));
    let name = name_of("n1", &uuid());
    let names = [
        format!(".{name}"),
        format!(".{name}.tmp"),
        format!("{name}.bak"),
        name.to_uppercase(),
        "README".to_owned(),
    ];
    let (before, after) = names.split_at(3);
    let put = |scene: &Scene, names: &[String]| names.iter().for_each(|name| scene.put(name, b"{"));
    put(&scene, before);
    scene.start();
    put(&scene, after);
    scene.still_serves();
    let there = scene.env.names_in("requests");
    assert!(names.iter().all(|name| there.contains(name)), "{there:?}");
    assert!(scene.env.names_in("requests/.rejected").is_empty());
}

#[test]
fn a_request_of_the_name_of_one_at_work_is_rejected() {
    let scene = Scene::gated("");
    let id = scene.request("off", "n1", 30.0);
    scene.ran(1);
    scene.request_with(&id, "n1", &request(&id, "off", "n1", 30.0));
    scene.wait_for_log(&[&id, "being worked on", "moved to .rejected"]);
    scene.let_go(&id);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    scene.until_all_is_done();
    assert_eq!(scene.lines("ran").len(), 1);
}

#[test]
fn what_no_rule_serves_is_left_to_others_if_the_configuration_says_so() {
    let mut scene = Scene::without_responder(
        "unmatched = \"ignore\"\n[[rule]]\nnodes = [\"a*\"]\n[[rule.task]]\nexec = [\"/bin/true\"]\n",
    );
    let other = name_of("b1", &uuid());
    let odd = name_of("a1", &uuid());
    scene.put(
        &other,
        request("x", "off", "b1", 30.0).to_string().as_bytes(),
    );
    scene.put(&odd, b"{");
    scene.put("x.json", b"{");
    let before = scene.env.names_in("requests");
    scene.start();
    let id = scene.request("off", "a2", 30.0);
    assert_eq!(scene.answer("a2", &id)["success"], true);
    let unserved = scene.request("on", "a2", 30.0);
    let id = scene.request("off", "a3", 30.0);
    assert_eq!(scene.answer("a3", &id)["success"], true);
    let there = scene.env.names_in("requests");
    assert!(before.iter().all(|name| there.contains(name)), "{there:?}");
    assert!(there.contains(&name_of("a2", &unserved)));
    assert!(scene.env.names_in("requests/.rejected").is_empty());
}

#[test]
fn a_request_that_has_its_answer_is_not_run_again() {
    let scene = Scene::gated("");
    let id = uuid();
    let request = request(&id, "off", "n1", 30.0);
    let answer = success(&request).to_string();
    scene.env.respond(&name_of("n1", &id), answer.as_bytes());
    scene.request_with(&id, "n1", &request);
    scene.wait_for_log(&[&id, "has its answer already"]);
    scene.until_all_is_done();
    let kept = fs::read_to_string(scene.path("responses").join(name_of("n1", &id))).unwrap();
    assert_eq!(kept, answer);
    assert!(scene.job(&id).is_none() && scene.lines("ran").is_empty());
}

#[test]
fn an_odd_file_in_the_answers_place_is_kept() {
    let scene = Scene::gated("");
    let id = uuid();
    let odd = scene.path("responses").join(name_of("n1", &id));
    fs::write(&odd, "mine").unwrap();
    scene.request_with(&id, "n1", &request(&id, "off", "n1", 30.0));
    scene.let_go(&id);
    let job = scene.ended_job(&id);
    assert_eq!(reason_of(&job), "AnswerFailed");
    assert_eq!(job["conditions"][2]["status"], "False");
    scene.until_all_is_done();
    assert_eq!(fs::read_to_string(odd).unwrap(), "mine");
}

#[test]
fn a_link_in_the_answers_place_is_neither_followed_nor_replaced() {
    let scene = Scene::new(&serving("/bin/true"));
    let id = uuid();
    let link = scene.path("responses").join(name_of("n1", &id));
    symlink(scene.path("target"), &link).unwrap();
    scene.request_with(&id, "n1", &request(&id, "off", "n1", 30.0));
    assert_eq!(reason_of(&scene.ended_job(&id)), "AnswerFailed");
    assert_eq!(fs::read_link(link).unwrap(), scene.path("target"));
    assert!(!scene.path("target").exists());
}

#[test]
fn an_answer_that_comes_from_elsewhere_meanwhile_is_kept() {
    let scene = Scene::gated("");
    let id = scene.request("off", "n1", 30.0);
    scene.ran(1);
    let answer = json!({"request_id": id, "success": false, "message": "theirs"}).to_string();
    scene.env.respond(&name_of("n1", &id), answer.as_bytes());
    scene.let_go(&id);
    assert_eq!(reason_of(&scene.ended_job(&id)), "AnsweredElsewhere");
    let kept = fs::read_to_string(scene.path("responses").join(name_of("n1", &id))).unwrap();
    assert_eq!(kept, answer);
}

#[test]
fn what_a_killed_responder_left_half_written_is_no_hindrance() {
    let scene = Scene::new(&serving("/bin/true"));
    let id = uuid();
    let half = scene
        .path("responses")
        .join(format!(".{}.tmp", name_of("n1", &id)));
    fs::write(&half, "{\"request_id\": ").unwrap();
    scene.request_with(&id, "n1", &request(&id, "off", "n1", 30.0));
    assert_eq!(scene.answer("n1", &id)["success"], true);
    assert!(!half.exists());
}
