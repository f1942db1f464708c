//! `requests`: what waits, and who holds it.

use serde_json::json;

use crate::desk::{ask, each, json, run};
use crate::scene::{Scene, name_of, request, uuid};

const BY_HAND: &str = "[[rule]]\nnodes = [\"*\"]\napproval = \"manual\"\n";

#[test]
fn each_request_is_shown_with_its_state_and_its_holder() {
    let mut scene = Scene::new(BY_HAND);
    let claimed = scene.request("reboot", "n1", 60.0);
    scene.job_at(&claimed, "WaitingForApproval");
    let holder = format!("responder {}", scene.pid());
    scene.pause();
    let pending = ask(&scene, "n2", 50.0);
    let expired = ask(&scene, "n3", -5.0);
    scene.put("n4-none.json", b"not ours to judge");
    let invalid = uuid();
    scene.put(&name_of("n5", &invalid), b"{}");

    let told = json(&scene.env, &["requests"]);
    let by_id = |id: &str| {
        let all = told.as_array().unwrap();
        all.iter().find(|one| one["request_id"] == id).unwrap()
    };
    assert_eq!(told.as_array().unwrap().len(), 4, "{told}");
    let one = by_id(&claimed);
    assert_eq!(
        (&one["state"], &one["held_by"], &one["action"], &one["node"]),
        (
            &json!("claimed"),
            &json!(holder),
            &json!("reboot"),
            &json!("n1")
        )
    );
    assert!(one["seconds_left"].as_f64().unwrap() > 0.0);
    assert_eq!(by_id(&pending)["state"], "pending");
    assert_eq!(by_id(&pending)["held_by"], json!(null));
    assert_eq!(by_id(&pending)["requested_by"], "host");
    assert_eq!(by_id(&expired)["state"], "expired");
    assert!(by_id(&expired)["seconds_left"].as_f64().unwrap() < 0.0);
    assert_eq!(by_id(&invalid)["state"], "invalid");
    assert!(
        by_id(&invalid)["fault"]
            .as_str()
            .unwrap()
            .contains("holds no valid request")
    );

    let table = run(&scene.env, &["requests"]);
    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""));
    let line = table
        .stdout
        .lines()
        .find(|line| line.starts_with("n1 "))
        .unwrap();
    for word in ["reboot", "claimed", "host", &holder, &claimed[..8]] {
        assert!(line.contains(word), "{word} in {line}");
    }

    scene.crash();
    let told = json(&scene.env, &["requests"]);
    assert_eq!(
        each(&told, "held_by")
            .into_iter()
            .filter(|by| **by == "nobody")
            .count(),
        1
    );
}

#[test]
fn nothing_and_no_spool_are_told_apart() {
    let scene = Scene::without_responder(BY_HAND);
    run(&scene.env, &["requests"]).succeeded_with("no request is pending\n");
    assert_eq!(json(&scene.env, &["requests"]), json!([]));
    let ended = run(&scene.env, &["requests", "--request-dir", "/no/such"]);
    ended.failed_with(&["request_dir /no does not exist"]);
}

#[test]
fn what_is_no_option_is_exit_1_for_every_command() {
    let scene = Scene::without_responder(BY_HAND);
    for command in ["requests", "jobs", "history", "fenced", "unfence", "demo"] {
        assert_eq!(
            run(&scene.env, &[command, "--nonsense"]).code,
            Some(1),
            "{command}"
        );
        let help = run(&scene.env, &[command, "--help"]);
        assert_eq!(
            (help.code, help.stderr.as_str()),
            (Some(0), ""),
            "{command}"
        );
        assert!(
            help.stdout
                .contains(&format!("Usage: fence_recorder {command}"))
        );
    }
}

#[test]
fn a_request_can_be_answered_by_the_beginning_of_its_id() {
    let scene = Scene::new(BY_HAND);
    let (first, second) = (
        scene.request("off", "n1", 60.0),
        scene.request("reboot", "n1", 60.0),
    );
    for id in [&first, &second] {
        let waits = || json(&scene.env, &["jobs", id])["conditions"][0]["reason"].clone();
        crate::env::wait_for("the job to wait", || {
            (scene.job(id).is_some() && waits() == "WaitingForApproval").then_some(())
        });
        run(&scene.env, &["answer", &id[..8], "--failure"]);
        assert_eq!(scene.answer("n1", id)["success"], false);
    }
}

#[test]
fn text_from_a_request_can_not_disturb_the_terminal() {
    let scene = Scene::without_responder(BY_HAND);
    let id = uuid();
    let mut evil = request(&id, "off", "n1", 60.0);
    evil["recorder_node"] = "\u{1b}[2J\nn9 off".into();
    scene.request_with(&id, "n1", &evil);
    let table = run(&scene.env, &["requests"]).stdout;
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(table.contains("\\u{1b}[2J\\nn9 off"), "{table}");
}
