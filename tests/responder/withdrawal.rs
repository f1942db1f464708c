//! Requests that are withdrawn: at whatever moment, nothing more is done for them.

use std::fs;

use crate::env::wait_for;
use crate::scene::{Scene, name_of, reason_of, serving};

/// The job ends as cancelled, without an answer.
fn is_cancelled(scene: &Scene, node: &str, id: &str) -> serde_json::Value {
    let job = scene.ended_job(id);
    assert_eq!(reason_of(&job), "Cancelled", "{job}");
    assert_eq!(job["conditions"][2]["status"], "False");
    assert!(scene.answered(node, id).is_none());
    assert!(
        !scene
            .env
            .names_in("requests/.claimed")
            .contains(&name_of(node, id))
    );
    job
}

#[test]
fn a_request_that_is_withdrawn_before_its_claim_is_no_job() {
    let scene = Scene::gated("");
    scene.pause();
    let withdrawn = scene.request("off", "n1", 30.0);
    let other = scene.request("off", "n2", 30.0);
    scene.withdraw("n1", &withdrawn);
    scene.resume();
    scene.let_go(&other);
    assert_eq!(scene.answer("n2", &other)["success"], true);
    assert!(scene.job(&withdrawn).is_none() && scene.answered("n1", &withdrawn).is_none());
    assert_eq!(scene.lines("ran"), ["n2"]);
}

#[test]
fn a_request_that_is_withdrawn_while_it_waits_for_its_turn_is_not_run() {
    let scene = Scene::gated("max_jobs = 1\n");
    let first = scene.request("off", "n1", 30.0);
    scene.ran(1);
    let queued = scene.request("off", "n2", 30.0);
    scene.job_at(&queued, "Queued");
    scene.withdraw("n2", &queued);
    let job = is_cancelled(&scene, "n2", &queued);
    assert_eq!(job["tasks"][0]["attempts"].as_array().unwrap().len(), 0);
    scene.let_go(&first);
    assert_eq!(scene.answer("n1", &first)["success"], true);
    scene.still_serves();
    assert_eq!(scene.lines("ran"), ["n1"]);
}

#[test]
fn a_request_that_is_withdrawn_in_the_pause_before_a_retry_is_not_tried_again() {
    let rule = serving("/bin/false").replace(
        "retry_count = 1",
        "retry_count = 9\nretry_interval = \"1h\"",
    );
    let scene = Scene::new(&rule);
    let id = scene.request("off", "n1", 7200.0);
    wait_for("the first attempt's end", || {
        (scene.job(&id)?["tasks"][0]["attempts"][0]["state"] == "Failed").then_some(())
    });
    scene.withdraw("n1", &id);
    let job = is_cancelled(&scene, "n1", &id);
    assert_eq!(job["tasks"][0]["attempts"].as_array().unwrap().len(), 1);
}

#[test]
fn a_request_that_is_withdrawn_while_its_task_runs_gets_no_further_attempt() {
    let mut scene = Scene::gated_without_responder("");
    scene.configure(
        &serving("DIR/failing").replace("count = 1", "count = 9\nretry_interval = \"0s\""),
    );
    scene.script("failing", "DIR/gated; exit 1");
    scene.start();
    let id = scene.request("off", "n1", 30.0);
    scene.ran(1);
    scene.withdraw("n1", &id);
    scene.let_go(&id);
    let job = is_cancelled(&scene, "n1", &id);
    assert_eq!(job["tasks"][0]["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(scene.lines("ran").len(), 1);
}

#[test]
fn a_success_after_the_withdrawal_is_recorded_but_no_answer() {
    let scene = Scene::gated("");
    let id = scene.request("off", "n1", 30.0);
    scene.ran(1);
    scene.withdraw("n1", &id);
    scene.let_go(&id);
    let job = is_cancelled(&scene, "n1", &id);
    assert_eq!(job["conditions"][1]["status"], "True", "{job}");
}

#[test]
fn an_answer_that_can_only_be_written_after_the_withdrawal_is_not_written() {
    let scene = Scene::gated("");
    let id = scene.request("off", "n1", 30.0);
    scene.ran(1);
    let hindrance = scene
        .path("responses")
        .join(format!(".{}.tmp", name_of("n1", &id)));
    fs::create_dir(&hindrance).unwrap();
    scene.let_go(&id);
    scene.wait_for_log(&["the answer", &id]);
    scene.withdraw("n1", &id);
    is_cancelled(&scene, "n1", &id);
    fs::remove_dir(hindrance).unwrap();
}

#[test]
fn no_next_task_starts_for_a_withdrawn_request() {
    let mut scene = Scene::gated_without_responder("");
    let second = "[[rule.task]]\nname = \"second\"\nexec = [\"/bin/touch\", \"DIR/second\"]\n";
    scene.configure(&(serving("DIR/gated") + second));
    scene.start();
    let id = scene.request("off", "n1", 30.0);
    scene.ran(1);
    scene.withdraw("n1", &id);
    scene.let_go(&id);
    let job = is_cancelled(&scene, "n1", &id);
    assert_eq!(job["tasks"][1]["state"], "Pending");
    assert!(!scene.path("second").exists());
}

#[test]
fn requests_that_are_withdrawn_at_any_moment_leave_nothing_behind() {
    let scene = Scene::new(&serving("/bin/true"));
    let ids: Vec<_> = (0..200)
        .map(|number| {
            let id = scene.request("off", "n1", 30.0);
            // as late as chance has it
            (0..number).for_each(|_| std::thread::yield_now());
            let name = name_of("n1", &id);
            let remove = |place: &str| std::fs::remove_file(scene.path(place).join(&name)).is_ok();
            let _ = remove("requests") || remove("requests/.claimed");
            id
        })
        .collect();
    scene.still_serves();
    scene.until_all_is_done();
    for id in ids.iter().filter(|id| scene.job(id).is_some()) {
        let reason = reason_of(&scene.ended_job(id));
        let is_answered = scene.answered("n1", id).is_some();
        assert!(
            reason
                == if is_answered {
                    "Completed"
                } else {
                    "Cancelled"
                },
            "{reason} {is_answered}"
        );
    }
}
