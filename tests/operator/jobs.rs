//! `jobs`: the responder's records, for people and programs.

use crate::desk::{each, json, run};
use crate::scene::{Scene, rule};

const FAILS: &str = "name = \"power\"\nexec = [\"/bin/sh\", \"-c\", \"echo no power; exit 3\"]\nretry_count = 2\nretry_interval = \"10ms\"";

#[test]
fn jobs_are_listed_newest_first_and_by_node() {
    let scene = Scene::new(&rule(FAILS));
    let mut ids = Vec::new();
    for node in ["n1", "n2", "n1"] {
        let id = scene.request("off", node, 30.0);
        scene.ended_job(&id);
        ids.insert(0, id);
    }
    let told = json(&scene.env, &["jobs"]);
    let told_ids: Vec<_> = told
        .as_array()
        .unwrap()
        .iter()
        .map(|job| &job["request"]["request_id"])
        .collect();
    assert_eq!(told_ids, ids.iter().collect::<Vec<_>>());
    let of_n1 = json(&scene.env, &["jobs", "n1"]);
    assert_eq!(each(&of_n1, "rule").len(), 2);
    assert_eq!(
        json(&scene.env, &["jobs", "-n", "1"])
            .as_array()
            .unwrap()
            .len(),
        1
    );

    let table = run(&scene.env, &["jobs", "--number", "2"]).stdout;
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 6, "{table}");
    for word in ["n1", "off", "TaskFailed", "0/1", &ids[0][..8]] {
        assert!(lines[1].contains(word), "{word} in {table}");
    }
    assert_eq!(
        lines[2],
        "    task \"power\" failed after 2 attempts: exit code 3: no power"
    );
    assert_eq!(lines[5], "and 1 older ones: --number 0 shows all");
}

#[test]
fn one_job_is_shown_whole() {
    let scene = Scene::new(&rule(FAILS));
    let id = scene.request("reboot", "n1", 30.0);
    let job = scene.ended_job(&id);
    assert_eq!(json(&scene.env, &["jobs", &id[..8]]), job);
    let told = run(&scene.env, &["jobs", &id]).stdout;
    for words in [
        format!("Job        {id}"),
        "Node       n1".to_owned(),
        "Action     reboot (performs reboot)".to_owned(),
        "Task 1: power: Failed".to_owned(),
        "    exit code 3: no power".to_owned(),
        "Succeeded".to_owned(),
        "TaskFailed".to_owned(),
    ] {
        assert!(told.contains(&words), "{words} in\n{told}");
    }
    assert_eq!(
        told.matches("    exit code 3: no power").count(),
        2,
        "{told}"
    );
}

#[test]
fn a_job_that_others_joined_is_found_by_their_ids() {
    let scene = Scene::new("max_jobs = 1\n[[rule]]\nnodes = [\"*\"]\napproval = \"manual\"\n");
    let first = scene.request("off", "n1", 60.0);
    scene.job_at(&first, "WaitingForApproval");
    let second = scene.request("off", "n1", 60.0);
    crate::env::wait_for("the second to join", || {
        (scene.job(&first)?["joined"][0]["request_id"] == second.as_str()).then_some(())
    });
    let job = json(&scene.env, &["jobs", &second]);
    assert_eq!(job["request"]["request_id"], first.as_str());
}

#[test]
fn what_can_not_be_shown_is_said() {
    let scene = Scene::without_responder(&rule(FAILS));
    let state = scene.path("state").display().to_string();
    let missing = run(&scene.env, &["jobs", "--state-dir", &state]);
    missing.failed_with(&["the responder's records", "does not exist"]);
    std::fs::create_dir_all(scene.path("state/jobs")).unwrap();
    let none = run(&scene.env, &["jobs", "--state-dir", &state]);
    none.succeeded_with("no job is recorded\n");
    run(&scene.env, &["jobs", "n7", "--state-dir", &state]).failed_with(&["\"n7\""]);
    std::fs::write(scene.path("state/jobs/torn.json"), "{").unwrap();
    let torn = run(&scene.env, &["jobs", "--state-dir", &state]);
    assert!(torn.stdout.contains("torn holds no job"), "{torn:?}");
}
