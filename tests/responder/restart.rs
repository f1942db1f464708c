//! What a responder does about what its forerunner left, after a crash or an end in order.

use std::fs;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::env::{success, wait_for, with};
use crate::scene::{
    Scene, is_alive, name_of, publish, reason_of, request, seconds_from_now, serving, task_of, uuid,
};

/// A scene whose responder died while the task of the returned job ran.
fn crashed() -> (Scene, String) {
    let mut scene = Scene::gated("");
    let id = scene.request("off", "n1", 60.0);
    scene.ran(1);
    scene.crash();
    (scene, id)
}

/// Changes the claim on a request, as time would.
fn change_claim(scene: &Scene, node: &str, id: &str, changes: Value) {
    let name = name_of(node, id);
    let path = format!("requests/.claimed/{name}");
    let changed = with(scene.json(&path).unwrap(), changes);
    publish(&scene.path("requests/.claimed"), &name, &changed);
}

/// The ids of the audit's `expired` events.
fn expired(scene: &Scene) -> Vec<Value> {
    let events = scene.env.events().into_iter();
    let expired = events.filter(|event| event["status"] == "expired");
    expired.map(|event| event["request_id"].clone()).collect()
}

#[test]
fn claims_without_a_job_are_adopted() {
    let mut scene = Scene::without_responder(&serving("/bin/true"));
    let id = uuid();
    scene.lay_claim(&name_of("n1", &id), &request(&id, "off", "n1", 60.0));
    scene.lay_claim("odd.json", &json!({}));
    scene.start();
    assert_eq!(scene.answer("n1", &id)["success"], true);
    scene.until_all_is_done();
    assert_eq!(reason_of(&scene.ended_job(&id)), "Completed");
    assert_eq!(scene.env.names_in("requests/.rejected"), ["odd.json"]);
}

#[test]
fn a_task_runs_again_only_when_what_a_crash_left_of_it_is_dead() {
    let mut scene = Scene::gated_without_responder("");
    scene.configure(&serving("DIR/stubborn"));
    scene.script(
        "stubborn",
        "trap '' TERM\n\
         for pid in $(cat DIR/pids 2>/dev/null); do\n\
         [ -n \"$(tr -d '\\0' </proc/$pid/cmdline 2>/dev/null)\" ] && echo $pid >>DIR/overlap\n\
         done\n\
         sleep 1000 & echo $$ $! >>DIR/pids\n\
         DIR/gated; kill -9 $!",
    );
    scene.start();
    let id = scene.request("off", "n1", 60.0);
    scene.ran(1);
    scene.crash();
    let old: Vec<Pid> = scene.lines("pids")[0]
        .split(' ')
        .map(|pid| Pid::from_raw(pid.parse().unwrap()))
        .collect();
    assert!(old.iter().all(|pid| is_alive(*pid)));
    scene.start();
    scene.ran(2);
    assert!(!old.iter().any(|pid| is_alive(*pid)));
    assert_eq!(scene.lines("overlap"), [""; 0]);
    scene.let_go(&id);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    let job = scene.ended_job(&id);
    let attempts = job["tasks"][0]["attempts"].as_array().unwrap();
    let states: Vec<_> = attempts.iter().map(|attempt| &attempt["state"]).collect();
    assert_eq!(states, ["Interrupted", "Completed"]);
}

#[test]
fn a_job_that_was_withdrawn_after_the_crash_is_cancelled_and_its_task_killed() {
    let (mut scene, id) = crashed();
    scene.withdraw("n1", &id);
    let task = task_of(&scene, &id);
    assert!(is_alive(task));
    scene.start();
    let job = scene.ended_job(&id);
    assert_eq!(reason_of(&job), "Cancelled");
    assert!(scene.answered("n1", &id).is_none() && !is_alive(task));
    assert_eq!(scene.lines("ran").len(), 1);
}

#[test]
fn a_job_that_expired_while_no_responder_ran_is_answered_so_and_recorded() {
    let (mut scene, id) = crashed();
    change_claim(
        &scene,
        "n1",
        &id,
        json!({"deadline": seconds_from_now(-11.0)}),
    );
    scene.start();
    let answer = scene.answer("n1", &id);
    assert_eq!(answer["success"], false, "{answer}");
    assert_eq!(reason_of(&scene.ended_job(&id)), "Expired");
    scene.until_all_is_done();
    wait_for("the audit", || {
        (expired(&scene) == [id.as_str()]).then_some(())
    });
    assert_eq!(scene.lines("ran").len(), 1);
}

#[test]
fn a_claim_that_lost_its_agent_is_recorded_as_expired_and_another_one_is_not() {
    let mut scene = Scene::without_responder(&serving("/bin/true"));
    let (long, just) = (uuid(), uuid());
    let late = |id: &str, node: &str, seconds| {
        let changes = json!({"deadline": seconds_from_now(seconds)});
        scene.lay_claim(
            &name_of(node, id),
            &with(request(id, "off", node, 9.0), changes),
        );
    };
    late(&long, "n1", -11.0);
    late(&just, "n2", -0.1);
    scene.start();
    for (node, id) in [("n1", &long), ("n2", &just)] {
        assert_eq!(scene.answer(node, id)["success"], false);
        assert_eq!(reason_of(&scene.ended_job(id)), "Expired");
    }
    scene.until_all_is_done();
    scene.stop();
    assert_eq!(expired(&scene), [long.as_str()]);
}

#[test]
fn an_answer_that_was_given_before_the_crash_ends_the_job() {
    let (mut scene, id) = crashed();
    let request = scene
        .json(&format!("requests/.claimed/{}", name_of("n1", &id)))
        .unwrap();
    let answer = success(&request).to_string();
    scene.env.respond(&name_of("n1", &id), answer.as_bytes());
    scene.start();
    assert_eq!(reason_of(&scene.ended_job(&id)), "Completed");
    scene.until_all_is_done();
    assert_eq!(scene.answer("n1", &id), success(&request));
    assert_eq!(scene.lines("ran").len(), 1);
}

#[test]
fn an_answered_claim_of_an_agent_that_died_is_recorded() {
    let mut scene = Scene::without_responder(&serving("/bin/false"));
    let id = uuid();
    let changes = json!({"deadline": seconds_from_now(-11.0)});
    let request = with(request(&id, "off", "n1", 9.0), changes);
    scene.lay_claim(&name_of("n1", &id), &request);
    let answer = success(&request).to_string();
    scene.env.respond(&name_of("n1", &id), answer.as_bytes());
    scene.start();
    scene.until_all_is_done();
    scene.still_serves();
    assert_eq!(expired(&scene), [id.as_str()]);
}

#[test]
fn a_crash_between_two_joint_answers_loses_neither() {
    let mut scene = Scene::gated("max_jobs = 1\n");
    let first = scene.request("off", "first", 60.0);
    scene.ran(1);
    let job = scene.request("off", "n1", 60.0);
    let joined = scene.request("off", "n1", 60.0);
    wait_for("the second to join", || {
        (scene.job(&job)?["joined"][0]["request_id"] == joined.as_str()).then_some(())
    });
    scene.crash();
    let request = scene
        .json(&format!("requests/.claimed/{}", name_of("n1", &job)))
        .unwrap();
    let answer = with(success(&request), json!({"message": "the first"})).to_string();
    scene.env.respond(&name_of("n1", &job), answer.as_bytes());
    scene.start();
    let other = scene.answer("n1", &joined);
    assert_eq!(
        (&other["success"], &other["message"]),
        (&json!(true), &json!("the first"))
    );
    assert_eq!(reason_of(&scene.ended_job(&job)), "Completed");
    scene.ran(2);
    scene.let_go(&first);
    scene.until_all_is_done();
    assert_eq!(scene.lines("ran"), ["first", "first"]);
}

#[test]
fn queued_and_joint_requests_survive_a_crash() {
    let mut scene = Scene::gated("max_jobs = 1\n");
    let first = scene.request("off", "first", 60.0);
    scene.ran(1);
    let job = scene.request("off", "n1", 60.0);
    let joined = scene.request("off", "n1", 60.0);
    wait_for("the second to join", || {
        (scene.job(&job)?["joined"][0]["request_id"] == joined.as_str()).then_some(())
    });
    scene.crash();
    scene.start();
    scene.ran(2);
    for (node, id) in [("first", &first), ("n1", &job)] {
        scene.let_go(id);
        assert_eq!(scene.answer(node, id)["success"], true);
    }
    assert_eq!(scene.answer("n1", &joined)["success"], true);
    assert_eq!(scene.lines("ran"), ["first", "first", "n1"]);
}

#[test]
fn completed_tasks_are_not_run_again() {
    let mut scene = Scene::gated_without_responder("");
    scene.script("first", "echo first >>DIR/firsts");
    let second = "[[rule.task]]\nname = \"second\"\nexec = [\"DIR/gated\"]\n";
    scene.configure(&(serving("DIR/first") + second));
    scene.start();
    let id = scene.request("off", "n1", 60.0);
    scene.ran(1);
    scene.crash();
    scene.start();
    scene.ran(2);
    scene.let_go(&id);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    assert_eq!(
        (scene.lines("firsts").len(), scene.lines("ran").len()),
        (1, 2)
    );
}

#[test]
fn a_rule_that_is_gone_ends_its_jobs_with_an_answer() {
    let (mut scene, id) = crashed();
    scene.configure(&serving("/bin/true").replace('*', "other"));
    scene.start();
    assert_eq!(scene.answer("n1", &id)["success"], false);
    assert_eq!(reason_of(&scene.ended_job(&id)), "NoRule");
}

#[test]
fn a_record_that_can_not_be_read_is_no_hindrance() {
    let (mut scene, id) = crashed();
    // nobody else knows any more what has to be killed
    killpg(task_of(&scene, &id), Signal::SIGKILL).unwrap();
    fs::write(scene.path(&format!("state/jobs/{id}.json")), "{").unwrap();
    scene.start();
    scene.wait_for_log(&[&id, "its record holds no job"]);
    scene.ran(2);
    scene.let_go(&id);
    assert_eq!(scene.answer("n1", &id)["success"], true);
}

/// Its claim could not be seen when it ended, or not be removed: the work is done, once.
#[test]
fn a_claim_whose_job_has_run_to_its_end_is_not_run_again() {
    let mut scene = Scene::without_responder(&serving("DIR/counted"));
    scene.script("counted", "echo x >>DIR/ran; exit 1");
    scene.start();
    let id = scene.request("off", "n1", 60.0);
    let original = request(&id, "off", "n1", 60.0);
    scene.answer("n1", &id);
    scene.ended_job(&id);
    scene.until_all_is_done();
    scene.crash();
    fs::remove_file(scene.path(&format!("responses/{}", name_of("n1", &id)))).unwrap();
    scene.lay_claim(&name_of("n1", &id), &original);
    scene.start();
    let answer = scene.answer("n1", &id);
    assert_eq!(answer["success"], false);
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("failed after 1 attempt"), "{message}");
    scene.until_all_is_done();
    assert_eq!(scene.lines("ran").len(), 1);
    let job = scene.ended_job(&id);
    assert_eq!(job["tasks"][0]["attempts"].as_array().unwrap().len(), 1);
}
