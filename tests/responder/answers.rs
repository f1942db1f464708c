//! Answers against odds: full ways, damaged records, borrowed ids.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::env::{wait_for, with};
use crate::scene::{Scene, request, uuid};

const TRUE: &str = "[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\nexec = [\"/bin/true\"]\n";

/// A rule whose task writes a line and then waits until the file `go` is there.
const HELD: &str =
    "[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\nexec = [\"DIR/held\"]\nretry_count = 1\n";

fn held(rules: &str) -> Scene {
    let mut scene = Scene::without_responder(rules);
    scene.script(
        "held",
        "echo \"$FENCE_REQUEST_ID $FENCE_NODE\" >>DIR/ran; while [ ! -e DIR/go ]; do sleep 0.02; done",
    );
    scene.start();
    scene
}

fn let_go(scene: &Scene) {
    fs::write(scene.path("go"), "").unwrap();
}

/// The requests that were executed, in order.
fn ran(scene: &Scene) -> Vec<String> {
    let text = fs::read_to_string(scene.path("ran")).unwrap_or_default();
    text.lines()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect()
}

fn wait_for_run(scene: &Scene, id: &str) {
    wait_for(&format!("{id} to run"), || {
        ran(scene).iter().any(|other| other == id).then_some(())
    });
}

fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap()
}

fn is_alive(pid: &Value) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // a zombie is dead, whenever its new parent reaps it
    stat.contains("(held) ") && !stat.contains("(held) Z")
}

#[test]
fn a_deadline_or_nodename_that_is_none_is_refused() {
    let scene = Scene::new(TRUE);
    for (change, why) in [
        (json!({"deadline": "tomorrow"}), "RFC 3339"),
        (json!({"nodename": "n1\naction=on"}), "nodename"),
    ] {
        let id = uuid();
        scene.request_with(&id, "n1", &with(request(&id, "off", "n1", 30.0), change));
        let answer = scene.answer("n1", &id);
        assert!(
            answer["success"] == false && message(&answer).contains(why),
            "{answer}"
        );
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_tried_again() {
    let scene = held(HELD);
    let id = scene.request("off", "n1", 60.0);
    wait_for_run(&scene, &id);
    // a directory in the way of the temporary file, which the responder can't take away
    let way = scene.path(&format!("responses/.n1-{id}.json.tmp"));
    fs::create_dir(&way).unwrap();
    let_go(&scene);
    scene.wait_for_log(&["the answer:", "can't be"]);
    fs::remove_dir(way).unwrap();
    assert_eq!(scene.answer("n1", &id)["success"], true);
    assert_eq!(ran(&scene), [id], "the task is not run again for it");
}

#[test]
fn an_id_that_is_another_nodes_is_put_aside_while_that_runs_and_after_it() {
    let scene = held(HELD);
    let id = scene.request("off", "n1", 60.0);
    wait_for_run(&scene, &id);
    let rejected = |count| {
        wait_for("it to be put aside", || {
            (scene.env.names_in("requests/.rejected").len() == count).then_some(())
        });
    };
    scene.request_with(&id, "n2", &request(&id, "off", "n2", 60.0));
    rejected(1);
    assert_eq!(scene.job(&id).unwrap()["request"]["target_node"], "n1");
    let_go(&scene);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    scene.ended_job(&id);
    scene.request_with(&id, "n3", &request(&id, "off", "n3", 60.0));
    rejected(2);
    assert_eq!(scene.job(&id).unwrap()["request"]["target_node"], "n1");
    assert_eq!(ran(&scene), [id]);
}

#[test]
fn after_a_crash_a_task_whose_record_is_damaged_is_gone_before_it_runs_again() {
    let mut scene = held(HELD);
    let id = scene.request("off", "n1", 60.0);
    wait_for_run(&scene, &id);
    let old = scene.job(&id).unwrap()["tasks"][0]["attempts"][0]["process_group"]["id"].clone();
    scene.crash();
    fs::write(scene.path(&format!("state/jobs/{id}.json")), "{\"half").unwrap();
    scene.start();
    wait_for("it to run again", || (ran(&scene).len() == 2).then_some(()));
    assert!(!is_alive(&old));
    let_go(&scene);
    assert_eq!(scene.answer("n1", &id)["success"], true);
}

#[test]
fn files_have_the_modes_that_readers_need() {
    let scene = Scene::new(TRUE);
    let id = scene.request("off", "n1", 60.0);
    scene.answer("n1", &id);
    scene.ended_job(&id);
    let mode = |name: &str| fs::metadata(scene.path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&format!("responses/n1-{id}.json")), 0o644);
    assert_eq!(mode("requests/.responder.json"), 0o644);
    assert_eq!(mode("requests/.responder.lock"), 0o600);
    assert_eq!(mode(&format!("state/jobs/{id}.json")), 0o640);
    for name in [".claimed", ".rejected", ".answers"] {
        assert_eq!(mode(&format!("requests/{name}")), 0o755);
    }
}

#[test]
fn the_end_of_an_answered_request_whose_agent_was_killed_is_recorded_and_no_other_twice() {
    let scene = held(HELD);
    let agent = |lines: &str| scene.env.start(&format!("action=off\n{lines}"));
    let mut killed = agent("nodename=n1\nresponse_timeout=5\n");
    wait_for("its task to run", || (ran(&scene).len() == 1).then_some(()));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let_go(&scene);
    let id = ran(&scene).remove(0);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    let well = agent("nodename=n2\nresponse_timeout=5\n")
        .wait_with_output()
        .unwrap();
    assert_eq!(well.status.code(), Some(0));
    assert_eq!(
        scene.env.statuses(),
        ["requested", "requested", "completed"]
    );
    let events = wait_for("its end", || {
        let events = scene.env.events();
        (events.len() == 4).then_some(events)
    });
    assert_eq!(
        (&events[3]["status"], &events[3]["request_id"]),
        (&"expired".into(), &id.into())
    );
    scene.signal(Signal::SIGHUP);
    scene.wait_for_log(&["read anew"]);
    assert_eq!(scene.env.events().len(), 4);
}

#[test]
fn records_go_on_when_state_dir_is_removed_or_moved_away() {
    let scene = Scene::new(TRUE);
    let state = scene.path("state");
    let ways: [&dyn Fn(); 2] = [&|| fs::remove_dir_all(&state).unwrap(), &|| {
        fs::rename(&state, scene.path("elsewhere")).unwrap();
    }];
    for (number, way) in ways.iter().enumerate() {
        way();
        wait_for("it to be made anew", || {
            let count = scene.log().matches("made anew").count();
            (count > number).then_some(())
        });
        let id = scene.request("off", "n1", 60.0);
        assert_eq!(scene.answer("n1", &id)["success"], true);
        assert!(scene.ended_job(&id)["completion_time"].is_string());
    }
}
