//! How long a request is good for: margins, clocks, requests without a deadline.

use std::fs::File;
use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::env::with;
use crate::scene::{Scene, name_of, reason_of, request, seconds_from_now, serving, uuid};

/// Publishes a good request with these changes to a responder whose task leaves the file `ran`;
/// its answer and job.
fn outcome(changes: Value) -> (Scene, Value, Value) {
    let rule = serving("/bin/touch").replace("touch\"", "touch\", \"DIR/ran\"");
    let scene = Scene::new(&rule);
    let id = uuid();
    let request = with(request(&id, "off", "n1", 40.0), changes);
    scene.request_with(&id, "n1", &request);
    let (answer, job) = (scene.answer("n1", &id), scene.ended_job(&id));
    (scene, answer, job)
}

fn is_refused(changes: Value, reason: &str, words: &str) {
    let (scene, answer, job) = outcome(changes);
    assert_eq!(reason_of(&job), reason);
    assert_eq!(answer["success"], false);
    assert!(
        answer["message"].as_str().unwrap().contains(words),
        "{answer}"
    );
    assert!(answer.get("action_performed").is_none());
    assert!(!scene.path("ran").exists());
}

fn is_run(changes: Value) {
    let (scene, answer, job) = outcome(changes);
    assert_eq!(reason_of(&job), "Completed", "{job}");
    assert_eq!(answer["success"], true);
    assert!(scene.path("ran").exists());
}

#[test]
fn a_request_past_its_deadline_is_answered_as_expired_and_not_run() {
    is_refused(
        json!({"deadline": seconds_from_now(-1.0)}),
        "Expired",
        "expired",
    );
}

#[test]
fn three_seconds_before_its_deadline_a_request_is_too_late() {
    is_refused(
        json!({"deadline": seconds_from_now(2.9)}),
        "Expired",
        "too little time",
    );
}

#[test]
fn a_quarter_of_a_short_timeout_before_its_deadline_a_request_is_too_late() {
    let changes = json!({"timeout_seconds": 8, "deadline": seconds_from_now(1.9)});
    is_refused(changes, "Expired", "too little time");
}

#[test]
fn a_short_timeout_leaves_less_of_a_margin() {
    is_run(json!({"timeout_seconds": 1, "deadline": seconds_from_now(2.9)}));
}

#[test]
fn a_timestamp_that_is_ahead_is_refused() {
    // 5 s are allowed; the rest is for a slow machine
    is_refused(
        json!({"timestamp": seconds_from_now(7.0)}),
        "Refused",
        "clocks differ",
    );
}

#[test]
fn a_timestamp_that_is_a_little_ahead_is_taken() {
    is_run(json!({"timestamp": seconds_from_now(4.0)}));
}

#[test]
fn a_deadline_that_is_no_time_is_refused() {
    is_refused(
        json!({"deadline": "tomorrow"}),
        "Refused",
        "its deadline is no RFC 3339 time",
    );
}

#[test]
fn an_old_timestamp_does_not_matter_beside_a_deadline() {
    is_run(json!({"timestamp": seconds_from_now(-3600.0)}));
}

/// What ClusterLabs' fence_dummy writes, captured, but for id and time.
fn fence_dummy_request(id: &str, age: f64) -> String {
    let time = Timestamp::now() - SignedDuration::from_secs_f64(age);
    let timestamp = time.strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00");
    format!(
        "{{\n  \"request_id\": \"{id}\",\n  \"timestamp\": \"{timestamp}\",\n  \"action\": \"off\",\n  \
         \"target_node\": \"compute-node-3\",\n  \"recorder_node\": \"rabbit-1\"\n}}"
    )
}

/// Its answer and job when it was written `age` seconds ago, and says so or doesn't.
fn fence_dummy(said_age: f64, file_age: u64) -> (Value, Value, Timestamp) {
    let mut scene = Scene::without_responder(&serving("/bin/true"));
    let id = uuid();
    let name = name_of("compute-node-3", &id);
    let text = fence_dummy_request(&id, said_age);
    scene.put(&name, text.as_bytes());
    let written = SystemTime::now() - Duration::from_secs(file_age);
    let file = File::options()
        .write(true)
        .open(scene.path("requests").join(&name));
    file.unwrap().set_modified(written).unwrap();
    let said: Value = serde_json::from_str(&text).unwrap();
    let said: Timestamp = said["timestamp"].as_str().unwrap().parse().unwrap();
    let from = said.min(Timestamp::try_from(written).unwrap());
    scene.start();
    let answer = scene.answer("compute-node-3", &id);
    assert_eq!(answer["request_id"], id);
    (answer, scene.ended_job(&id), from)
}

#[test]
fn fence_dummy_is_answered_as_it_wants_it() {
    let (answer, job, _) = fence_dummy(0.0, 0);
    assert_eq!(reason_of(&job), "Completed");
    // its rules: the request's id (seen above), and a success that Python takes for true
    assert_eq!(answer["success"], true);
    assert_eq!(answer["action_performed"], "off");
    assert!(answer["message"].is_string(), "{answer}");
}

#[test]
fn a_request_without_a_deadline_is_good_for_a_minute() {
    let (answer, job, from) = fence_dummy(30.0, 0);
    assert_eq!(answer["success"], true);
    let deadline: Timestamp = job["deadline"].as_str().unwrap().parse().unwrap();
    let time = deadline.duration_since(from);
    assert!(
        time.as_secs_f64() > 59.99 && time.as_secs_f64() <= 60.0,
        "{time:?}"
    );
}

#[test]
fn a_request_without_a_deadline_expires_a_minute_after_its_timestamp() {
    let (answer, job, _) = fence_dummy(58.0, 0);
    assert_eq!(reason_of(&job), "Expired");
    assert_eq!(answer["success"], false);
}

#[test]
fn a_request_without_a_deadline_expires_a_minute_after_it_was_written() {
    let (answer, job, _) = fence_dummy(0.0, 58);
    assert_eq!(reason_of(&job), "Expired");
    assert_eq!(answer["success"], false);
}

#[test]
fn a_job_whose_turn_does_not_come_expires_by_itself() {
    let scene = Scene::gated("max_jobs = 1\n");
    let first = scene.request("off", "n1", 30.0);
    scene.ran(1);
    let late = scene.request("off", "n2", 2.0);
    let answer = scene.answer("n2", &late);
    assert_eq!(answer["success"], false);
    assert_eq!(reason_of(&scene.ended_job(&late)), "Expired");
    // it was said before the deadline, so that its agent could hear of it
    let deadline = scene.job(&late).unwrap()["request"]["deadline"].clone();
    let said = scene.job(&late).unwrap()["completion_time"].clone();
    assert!(time(&said) < time(&deadline), "{said} {deadline}");
    scene.let_go(&first);
    assert_eq!(scene.answer("n1", &first)["success"], true);
    assert_eq!(scene.lines("ran"), ["n1"]);
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}
