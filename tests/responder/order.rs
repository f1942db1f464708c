//! Which jobs run when: one node's in order, others beside each other, joint ones once, all at last.

use std::fs;
use std::time::{Duration, SystemTime};

use fence_recorder::spool::watch::Watch;
use serde_json::{Value, json};

use crate::env::wait_for;
use crate::scene::{Scene, name_of, reason_of, request, serving, uuid};

fn is_success(scene: &Scene, node: &str, id: &str) {
    let answer = scene.answer(node, id);
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(answer["request_id"], id);
}

/// A scene with one place for tasks, which the returned job of the node `first` has.
fn with_a_queue() -> (Scene, String) {
    let scene = Scene::gated("max_jobs = 1\n");
    let first = scene.request("off", "first", 60.0);
    scene.ran(1);
    (scene, first)
}

/// A job without a start of its own: the request has joined another one.
fn has_joined(scene: &Scene, id: &str, job: &str) -> Value {
    let job = wait_for("the request to join", || {
        let record = scene.job(job)?;
        let joined = record["joined"].as_array()?;
        let is_there = joined.iter().any(|request| request["request_id"] == id);
        is_there.then_some(record)
    });
    assert!(scene.job(id).is_none());
    job
}

#[test]
fn one_nodes_jobs_run_one_after_the_other_and_other_nodes_beside_them() {
    let scene = Scene::gated("");
    let first = scene.request("off", "n1", 60.0);
    scene.ran(1);
    let second = scene.request("reboot", "n1", 60.0);
    scene.job_at(&second, "Queued");
    let other = scene.request("off", "n2", 60.0);
    assert_eq!(scene.ran(2), ["n1", "n2"]);
    scene.let_go(&other);
    is_success(&scene, "n2", &other);
    scene.still_serves();
    assert_eq!(scene.lines("ran").len(), 2);
    scene.let_go(&first);
    is_success(&scene, "n1", &first);
    scene.let_go(&second);
    is_success(&scene, "n1", &second);
    assert_eq!(scene.lines("ran"), ["n1", "n2", "n1"]);
}

#[test]
fn no_more_jobs_run_than_may_and_those_that_wait_are_seen_to() {
    let scene = Scene::gated("max_jobs = 2\n");
    let ids = ["n1", "n2", "n3", "n4"].map(|node| (node, scene.request("off", node, 60.0)));
    scene.ran(2);
    let is_queued = |id: &String| scene.job(id).is_some_and(|job| reason_of(&job) == "Queued");
    let (waiting, running) = wait_for("two to wait", || {
        let parts: (Vec<_>, Vec<_>) = ids.iter().partition(|(_, id)| is_queued(id));
        (parts.0.len() == 2).then_some(parts)
    });
    scene.still_serves();
    assert_eq!(scene.lines("ran").len(), 2);
    for (node, id) in running.into_iter().chain(waiting) {
        scene.let_go(id);
        is_success(&scene, node, id);
    }
    assert_eq!(scene.lines("ran").len(), 4);
}

#[test]
fn what_lies_there_at_the_start_is_run_in_the_order_in_which_it_came() {
    let mut scene = Scene::without_responder(&serving("DIR/task"));
    scene.script("task", "echo $FENCE_ACTION >>DIR/$FENCE_NODE");
    let nodes: Vec<_> = (0..8).map(|number| format!("n{number}")).collect();
    let lay = |node: &String, action, age| {
        let id = scene.request(action, node, 60.0);
        let path = scene.path("requests").join(name_of(node, &id));
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age))
            .unwrap();
        (node.clone(), id)
    };
    let mut ids: Vec<_> = nodes.iter().map(|node| lay(node, "reboot", 1)).collect();
    ids.extend(nodes.iter().map(|node| lay(node, "off", 2)));
    scene.start();
    for (node, id) in &ids {
        is_success(&scene, node, id);
    }
    for node in &nodes {
        assert_eq!(scene.lines(node), ["off", "reboot"], "{node}");
    }
}

#[test]
fn a_claim_comes_before_what_nobody_has_claimed() {
    let mut scene = Scene::without_responder(&serving("DIR/task"));
    scene.script("task", "echo $FENCE_ACTION >>DIR/order");
    let claimed = uuid();
    scene.lay_claim(
        &name_of("n1", &claimed),
        &request(&claimed, "off", "n1", 60.0),
    );
    let other = scene.request("reboot", "n1", 60.0);
    scene.start();
    is_success(&scene, "n1", &other);
    assert_eq!(scene.lines("order"), ["off", "reboot"]);
}

#[test]
fn a_second_request_for_the_same_joins_the_queued_job_and_lengthens_its_time() {
    let (scene, first) = with_a_queue();
    let job = scene.request("off", "n1", 40.0);
    scene.job_at(&job, "Queued");
    let joined = scene.request("off", "n1", 50.0);
    let record = has_joined(&scene, &joined, &job);
    assert_eq!(
        time(&record["deadline"]),
        time(&record["joined"][0]["deadline"])
    );
    let shorter = scene.request("off", "n1", 30.0);
    let record = has_joined(&scene, &shorter, &job);
    assert_eq!(
        time(&record["deadline"]),
        time(&record["joined"][0]["deadline"])
    );
    scene.let_go(&first);
    scene.let_go(&job);
    for id in [&job, &joined, &shorter] {
        is_success(&scene, "n1", id);
    }
    scene.until_all_is_done();
    assert_eq!(scene.lines("ran"), ["first", "n1"]);
    assert!(scene.job(&joined).is_none());
}

#[test]
fn the_joint_deadline_is_the_one_that_counts() {
    let (scene, first) = with_a_queue();
    let job = scene.request("off", "n1", 1.0);
    let joined = scene.request("off", "n1", 60.0);
    has_joined(&scene, &joined, &job);
    wait_for("the first deadline to pass", || {
        let deadline = time(&scene.job(&job)?["request"]["deadline"]);
        (jiff::Timestamp::now() > deadline).then_some(())
    });
    scene.let_go(&first);
    scene.let_go(&job);
    is_success(&scene, "n1", &joined);
}

fn time(value: &Value) -> jiff::Timestamp {
    let time: jiff::Timestamp = value.as_str().unwrap().parse().unwrap();
    // records have microseconds
    jiff::Timestamp::from_microsecond(time.as_microsecond()).unwrap()
}

#[test]
fn another_action_does_not_join() {
    let (scene, first) = with_a_queue();
    let off = scene.request("off", "n1", 60.0);
    let reboot = scene.request("reboot", "n1", 60.0);
    scene.job_at(&reboot, "Queued");
    for id in [&first, &off, &reboot] {
        scene.let_go(id);
        scene.ended_job(id);
    }
    is_success(&scene, "n1", &reboot);
    assert_eq!(scene.lines("ran"), ["first", "n1", "n1"]);
}

#[test]
fn nothing_joins_a_job_whose_tasks_have_begun() {
    let scene = Scene::gated("");
    let first = scene.request("off", "n1", 60.0);
    scene.ran(1);
    let second = scene.request("off", "n1", 60.0);
    scene.job_at(&second, "Queued");
    scene.let_go(&first);
    is_success(&scene, "n1", &first);
    scene.let_go(&second);
    is_success(&scene, "n1", &second);
    assert_eq!(scene.lines("ran"), ["n1", "n1"]);
}

#[test]
fn a_joint_job_goes_on_when_the_request_it_was_made_for_is_withdrawn() {
    let (scene, first) = with_a_queue();
    let job = scene.request("off", "n1", 60.0);
    let joined = scene.request("off", "n1", 60.0);
    has_joined(&scene, &joined, &job);
    scene.withdraw("n1", &job);
    scene.let_go(&first);
    scene.let_go(&job);
    is_success(&scene, "n1", &joined);
    assert_eq!(reason_of(&scene.ended_job(&job)), "Completed");
    assert!(scene.answered("n1", &job).is_none());
}

#[test]
fn an_odd_file_in_the_place_of_one_answer_does_not_spoil_the_other() {
    let (scene, first) = with_a_queue();
    let job = scene.request("off", "n1", 60.0);
    let joined = scene.request("off", "n1", 60.0);
    has_joined(&scene, &joined, &job);
    fs::write(scene.path("responses").join(name_of("n1", &job)), "mine").unwrap();
    scene.let_go(&first);
    scene.let_go(&job);
    is_success(&scene, "n1", &joined);
    assert_eq!(reason_of(&scene.ended_job(&job)), "AnswerFailed");
}

#[test]
fn requests_that_lie_there_before_the_start_are_served() {
    let mut scene = Scene::without_responder(&serving("/bin/true"));
    let nodes = ["a", "b", "c"];
    let ids = nodes.map(|node| scene.request("off", node, 60.0));
    scene.start();
    for (node, id) in nodes.iter().zip(&ids) {
        is_success(&scene, node, id);
    }
}

#[test]
fn two_thousand_requests_at_once_are_all_answered() {
    const COUNT: usize = 2000;
    let scene = Scene::new(&serving("/bin/true"));
    let ids: Vec<_> = (0..COUNT)
        .map(|n| scene.request("off", &format!("n{n}"), 300.0))
        .collect();
    wait_for("all to be answered", || {
        // to look all the time would cost them the processor
        let _ = Watch::default().wait(Duration::from_millis(50), &[]);
        let answers = fs::read_dir(scene.path("responses")).unwrap().count();
        (answers >= COUNT).then_some(())
    });
    scene.until_all_is_done();
    for (number, id) in ids.iter().enumerate() {
        is_success(&scene, &format!("n{number}"), id);
    }
    let jobs = scene.env.names_in("state/jobs").len();
    assert_eq!(
        (scene.env.names_in("responses").len(), jobs),
        (COUNT, COUNT)
    );
}

#[test]
fn an_overflow_of_the_event_queue_loses_no_request() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let scene = Scene::new(&serving("/bin/true"));
    scene.pause();
    // hidden names, so that all that they do is to fill the queue
    let names = [".one", ".other"].map(|name| scene.path("requests").join(name));
    fs::write(&names[0], "").unwrap();
    for number in 0..=limit {
        fs::rename(&names[number % 2], &names[(number + 1) % 2]).unwrap();
    }
    let lost = scene.request("off", "n1", 60.0);
    scene.resume();
    is_success(&scene, "n1", &lost);
    let id = uuid();
    scene.request_with(&id, "n2", &request(&id, "off", "n2", 60.0));
    is_success(&scene, "n2", &id);
}

#[test]
fn a_claim_that_was_laid_down_meanwhile_is_adopted() {
    let scene = Scene::new(&serving("/bin/true"));
    let id = uuid();
    let request = crate::env::with(
        request(&id, "off", "n1", 60.0),
        json!({"recorder_node": "nfs"}),
    );
    scene.lay_claim(&name_of("n1", &id), &request);
    is_success(&scene, "n1", &id);
    scene.until_all_is_done();
}
