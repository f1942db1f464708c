//! The responder's side of the spool: what counts, claims, deadlines, joining, answers.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::time::SystemTime;

use fence_recorder::spool::directory::{Directory, Role, Trust};
use fence_recorder::spool::lock::{LOCK, Lock};
use jiff::{SignedDuration, Timestamp};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};

use crate::env::{success, wait_for, with};
use crate::scene::{Scene, publish, reason_of, request, uuid};

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

fn withdraw(scene: &Scene, node: &str, id: &str) {
    fs::remove_file(scene.path(&format!("requests/.claimed/{node}-{id}.json"))).unwrap();
}

fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap()
}

#[test]
fn a_request_that_no_rule_serves_is_refused() {
    let scene = Scene::new("[[rule]]\nnodes = [\"a*\"]\n[[rule.task]]\nexec = [\"/bin/true\"]\n");
    let id = scene.request("off", "b1", 30.0);
    assert_eq!(scene.answer("b1", &id)["success"], false);
    assert_eq!(reason_of(&scene.ended_job(&id)), "NoRule");
    let on = scene.request("on", "a1", 30.0);
    assert!(
        message(&scene.answer("a1", &on)).contains("no rule"),
        "off and reboot only"
    );
}

#[test]
fn with_unmatched_ignore_others_requests_stay_where_they_are() {
    let rules = "unmatched = \"ignore\"\n[[rule]]\nnodes = [\"a*\"]\n[[rule.task]]\nexec = [\"/bin/true\"]\n";
    let scene = Scene::new(rules);
    let left = scene.request("off", "b1", 30.0);
    fs::write(scene.path("requests/odd.json"), "{").unwrap();
    let taken = scene.request("off", "a1", 30.0);
    assert_eq!(scene.answer("a1", &taken)["success"], true);
    assert!(scene.path(&format!("requests/b1-{left}.json")).exists());
    assert!(scene.path("requests/odd.json").exists());
}

/// Puts everything odd into request_dir; what of it has to be rejected.
fn plant_odd_files(scene: &Scene) -> Vec<String> {
    let requests = scene.path("requests");
    let mut names = Vec::new();
    let mut plant = |what: &str, content: &str| {
        let name = format!("n1-{}.json", uuid());
        let content = content.replace("ID", &name[3..39]);
        fs::write(requests.join(format!(".{name}.tmp")), content).unwrap();
        fs::rename(requests.join(format!(".{name}.tmp")), requests.join(&name)).unwrap();
        names.push((what.to_owned(), name));
    };
    let good = request("ID", "off", "n1", 30.0).to_string();
    plant("half", &good[..40]);
    plant("array", "[]");
    plant("duplicate", &good.replacen('{', "{\"action\":\"off\",", 1));
    plant("two", &format!("{good}{good}"));
    plant("other id", &request(&uuid(), "off", "n1", 30.0).to_string());
    plant("other node", &request("ID", "off", "n2", 30.0).to_string());
    plant("action", &request("ID", "burn", "n1", 30.0).to_string());
    plant("large", &format!("{good}{}", " ".repeat(64 * 1024)));
    plant("empty", "");
    let name = || format!("n1-{}.json", uuid());
    let (link, fifo, directory, foreign) = (name(), name(), name(), name());
    symlink("/etc/passwd", requests.join(&link)).unwrap();
    mkfifo(&requests.join(&fifo), Mode::S_IRWXU).unwrap();
    fs::create_dir(requests.join(&directory)).unwrap();
    let aside = scene.path("foreign");
    fs::write(
        &aside,
        request(&foreign[3..39], "off", "n1", 30.0).to_string(),
    )
    .unwrap();
    chown(&aside, Some(65534), None).unwrap();
    fs::rename(&aside, requests.join(&foreign)).unwrap();
    fs::write(requests.join("plain.json"), "{}").unwrap();
    let mut all: Vec<_> = names.into_iter().map(|(_, name)| name).collect();
    all.extend([link, fifo, directory, foreign, "plain.json".to_owned()]);
    all.sort();
    all
}

#[test]
fn what_is_no_request_is_put_aside_and_disturbs_nothing() {
    let mut scene = Scene::without_responder(TRUE);
    let odd = plant_odd_files(&scene);
    for name in [".hidden.json", "notes.txt"] {
        fs::write(scene.path("requests").join(name), "x").unwrap();
    }
    scene.start();
    let id = scene.request("off", "n1", 30.0);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    wait_for("all to be put aside", || {
        (scene.env.names_in("requests/.rejected") == odd).then_some(())
    });
    assert_eq!(scene.env.names_in("responses").len(), 1);
    for name in [".hidden.json", "notes.txt"] {
        assert!(
            scene.path("requests").join(name).exists(),
            "{name} is nobody's business"
        );
    }
}

#[test]
fn a_rejected_name_that_is_taken_loses_nothing() {
    let scene = Scene::new(TRUE);
    for content in ["first", "second"] {
        fs::write(scene.path("odd.json"), content).unwrap();
        fs::rename(scene.path("odd.json"), scene.path("requests/odd.json")).unwrap();
        wait_for("it to be put aside", || {
            (!scene.path("requests/odd.json").exists()).then_some(())
        });
    }
    let kept = scene.env.names_in("requests/.rejected").into_iter();
    let mut contents: Vec<_> = kept
        .map(|name| fs::read_to_string(scene.path("requests/.rejected").join(name)).unwrap())
        .collect();
    contents.sort();
    assert_eq!(contents, ["first", "second"]);
}

#[test]
fn a_withdrawn_request_is_cancelled_at_every_stage_before_it_is_answered() {
    let scene = held(HELD);
    let running = scene.request("off", "n1", 60.0);
    wait_for_run(&scene, &running);
    let queued = scene.request("reboot", "n1", 60.0);
    scene.job_at(&queued, "Queued");
    withdraw(&scene, "n1", &queued);
    assert_eq!(reason_of(&scene.ended_job(&queued)), "Cancelled");
    withdraw(&scene, "n1", &running);
    let_go(&scene);
    assert_eq!(reason_of(&scene.ended_job(&running)), "Cancelled");
    assert_eq!(ran(&scene), [running]);
    assert_eq!(scene.env.names_in("responses"), [""; 0]);
}

#[test]
fn a_request_that_is_withdrawn_between_attempts_is_not_tried_again() {
    let mut scene = Scene::without_responder(
        "[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\nexec = [\"DIR/fail\"]\nretry_interval = \"20s\"\n",
    );
    scene.script("fail", "echo x >>DIR/ran; exit 1");
    scene.start();
    let id = scene.request("off", "n1", 120.0);
    wait_for("the first attempt to fail", || {
        (scene.job(&id)?["tasks"][0]["state"] == "Failed").then_some(())
    });
    withdraw(&scene, "n1", &id);
    // at once, not when the pause is over
    assert_eq!(reason_of(&scene.ended_job(&id)), "Cancelled");
    assert_eq!(ran(&scene).len(), 1);
}

#[test]
fn a_request_with_too_little_time_left_is_answered_as_expired_and_not_run() {
    let scene = held(HELD);
    let_go(&scene);
    for (timeout, left, is_run) in [
        (20.0, 2.0, false),
        (4.0, 0.9, false),
        (4.0, 3.5, true),
        (60.0, -1.0, false),
    ] {
        let id = uuid();
        let late = with(
            request(&id, "off", "n1", left),
            json!({"timeout_seconds": timeout}),
        );
        scene.request_with(&id, "n1", &late);
        assert_eq!(
            scene.answer("n1", &id)["success"],
            is_run,
            "{timeout} {left}"
        );
        let reason = reason_of(&scene.ended_job(&id));
        assert_eq!(reason, if is_run { "Completed" } else { "Expired" });
        assert_eq!(ran(&scene).contains(&id), is_run);
    }
}

#[test]
fn a_request_whose_turn_does_not_come_is_answered_as_expired() {
    let scene = held(HELD);
    let first = scene.request("off", "n1", 60.0);
    wait_for_run(&scene, &first);
    let second = scene.request("reboot", "n1", 4.0);
    assert!(message(&scene.answer("n1", &second)).contains("turn didn't come"));
    assert_eq!(reason_of(&scene.ended_job(&second)), "Expired");
    let_go(&scene);
    assert_eq!(scene.answer("n1", &first)["success"], true);
    assert_eq!(ran(&scene), [first]);
}

#[test]
fn clocks_that_differ_by_more_than_five_seconds_are_refused() {
    let scene = Scene::new(TRUE);
    for (ahead, success) in [(4, true), (7, false)] {
        let id = uuid();
        let timestamp = Timestamp::now() + SignedDuration::from_secs(ahead);
        let request = with(
            request(&id, "off", "n1", 30.0),
            json!({"timestamp": timestamp.to_string()}),
        );
        scene.request_with(&id, "n1", &request);
        let answer = scene.answer("n1", &id);
        assert_eq!(answer["success"], success, "{answer}");
        assert!(
            success || message(&answer).contains("clocks differ"),
            "{answer}"
        );
    }
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

/// As captured from `fence_dummy --type=recorder`, with another time.
fn fence_dummy_request(id: &str, timestamp: Timestamp) -> Value {
    let captured = include_str!("../interop/fence_dummy-request.json");
    let captured = serde_json::from_str(captured).unwrap();
    with(
        captured,
        json!({"request_id": id, "timestamp": timestamp.to_string()}),
    )
}

#[test]
fn fence_dummys_request_gets_an_answer_that_fence_dummy_takes() {
    let scene = Scene::new(TRUE);
    let id = uuid();
    let request = fence_dummy_request(&id, Timestamp::now());
    let node = request["target_node"].as_str().unwrap();
    scene.request_with(&id, node, &request);
    let answer = scene.answer(node, &id);
    assert_eq!(answer["request_id"], id);
    assert_eq!(answer["success"], true);
    assert_eq!(
        (&answer["action_performed"], &answer["target_node"]),
        (&"off".into(), &node.into())
    );
    assert!(answer["message"].is_string());
}

#[test]
fn a_request_without_a_deadline_is_good_for_a_minute_from_its_time_and_its_files() {
    let scene = Scene::new(TRUE);
    let now = Timestamp::now();
    let minute_ago = SystemTime::now() - std::time::Duration::from_secs(58);
    for (age, written, success) in [
        (50, None, true),
        (58, None, false),
        (0, Some(minute_ago), false),
    ] {
        let id = uuid();
        let request = fence_dummy_request(&id, now - SignedDuration::from_secs(age));
        let name = format!("compute-node-3-{id}.json");
        let aside = scene.path("aside");
        fs::write(&aside, request.to_string()).unwrap();
        if let Some(written) = written {
            fs::File::options()
                .write(true)
                .open(&aside)
                .unwrap()
                .set_modified(written)
                .unwrap();
        }
        fs::rename(&aside, scene.path("requests").join(name)).unwrap();
        assert_eq!(
            scene.answer("compute-node-3", &id)["success"],
            success,
            "{age} {written:?}"
        );
    }
}

#[test]
fn an_answer_that_is_there_is_never_replaced() {
    let scene = held(HELD);
    let_go(&scene);
    let id = uuid();
    let content = request(&id, "off", "n1", 30.0);
    let name = format!("n1-{id}.json");
    fs::write(
        scene.path("responses").join(&name),
        success(&content).to_string(),
    )
    .unwrap();
    scene.request_with(&id, "n1", &content);
    scene.until_all_is_done();
    assert_eq!(scene.answer("n1", &id)["message"], "done", "as it was");
    assert_eq!(ran(&scene), [""; 0], "it has its answer already");
}

#[test]
fn an_answer_that_comes_from_elsewhere_meanwhile_stays() {
    let scene = held(HELD);
    let id = scene.request("off", "n1", 30.0);
    wait_for_run(&scene, &id);
    let name = format!("n1-{id}.json");
    let other = json!({"request_id": id, "success": false, "message": "by somebody else"});
    publish(&scene.path("responses"), &name, &other);
    let_go(&scene);
    let job = scene.ended_job(&id);
    assert_eq!(reason_of(&job), "AnsweredElsewhere");
    assert_eq!(job["conditions"][2]["status"], "False");
    assert_eq!(scene.answer("n1", &id), other);
}

#[test]
fn an_odd_file_under_the_answers_name_is_left_and_told_of() {
    let scene = held(HELD);
    let id = scene.request("off", "n1", 30.0);
    wait_for_run(&scene, &id);
    let path = scene.path(&format!("responses/n1-{id}.json"));
    fs::write(&path, "half an ans").unwrap();
    let_go(&scene);
    let job = scene.ended_job(&id);
    assert_eq!(reason_of(&job), "AnswerFailed");
    assert!(
        job["conditions"][0]["message"]
            .as_str()
            .unwrap()
            .contains("holds no valid response")
    );
    assert_eq!(fs::read_to_string(path).unwrap(), "half an ans");
}

#[test]
fn one_nodes_jobs_wait_for_each_other_and_other_nodes_do_not() {
    let scene = held(HELD);
    let (first, other) = (
        scene.request("off", "n1", 60.0),
        scene.request("off", "n2", 60.0),
    );
    wait_for_run(&scene, &first);
    wait_for_run(&scene, &other);
    let second = scene.request("reboot", "n1", 60.0);
    scene.job_at(&second, "Queued");
    assert!(!ran(&scene).contains(&second));
    let_go(&scene);
    assert_eq!(scene.answer("n1", &second)["success"], true);
}

#[test]
fn no_more_than_max_jobs_run_at_once() {
    let scene = held(&format!("max_jobs = 2\n{HELD}"));
    let ids: Vec<_> = (0..5)
        .map(|number| scene.request("off", &format!("n{number}"), 60.0))
        .collect();
    wait_for("two to run and three to wait", || {
        let queued = ids
            .iter()
            .filter(|id| scene.job(id).is_some_and(|job| reason_of(&job) == "Queued"));
        (ran(&scene).len() == 2 && queued.count() == 3).then_some(())
    });
    let_go(&scene);
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(scene.answer(&format!("n{number}"), id)["success"], true);
    }
    assert_eq!(ran(&scene).len(), 5);
}

#[test]
fn a_second_request_joins_a_job_that_has_not_begun() {
    let scene = held(HELD);
    let blocking = scene.request("on", "n1", 60.0);
    assert_eq!(
        scene.answer("n1", &blocking)["success"],
        false,
        "off and reboot only"
    );
    let first = scene.request("reboot", "n1", 60.0);
    wait_for_run(&scene, &first);
    let second = scene.request("off", "n1", 30.0);
    scene.job_at(&second, "Queued");
    let third = scene.request("off", "n1", 90.0);
    let joined = wait_for("the third to join", || {
        let job = scene.job(&second)?;
        job["joined"]
            .as_array()
            .is_some_and(|joined| joined.len() == 1)
            .then_some(job)
    });
    assert_eq!(joined["joined"][0]["request_id"], third);
    let deadline: Timestamp = joined["deadline"].as_str().unwrap().parse().unwrap();
    assert!(
        deadline > Timestamp::now() + SignedDuration::from_secs(60),
        "the later of the two"
    );
    let_go(&scene);
    for id in [&first, &second, &third] {
        assert_eq!(scene.answer("n1", id)["success"], true);
    }
    assert_eq!(
        ran(&scene),
        [first, second],
        "the third has the second's outcome"
    );
    assert_eq!(scene.job(&third), None);
}

#[test]
fn a_request_that_comes_after_the_tasks_have_begun_is_a_job_of_its_own() {
    let scene = held(HELD);
    let first = scene.request("off", "n1", 60.0);
    wait_for_run(&scene, &first);
    let second = scene.request("off", "n1", 60.0);
    scene.job_at(&second, "Queued");
    let_go(&scene);
    assert_eq!(scene.answer("n1", &second)["success"], true);
    assert_eq!(ran(&scene), [first, second]);
}

#[test]
fn the_withdrawal_of_one_of_two_leaves_the_job_to_the_other() {
    let scene = held(HELD);
    let first = scene.request("reboot", "n1", 60.0);
    wait_for_run(&scene, &first);
    let second = scene.request("off", "n1", 60.0);
    scene.job_at(&second, "Queued");
    let third = scene.request("off", "n1", 60.0);
    wait_for("the third to join", || {
        (scene.job(&second)?["joined"].as_array()?.len() == 1).then_some(())
    });
    withdraw(&scene, "n1", &second);
    let_go(&scene);
    assert_eq!(scene.answer("n1", &third)["success"], true);
    assert!(!scene.path(&format!("responses/n1-{second}.json")).exists());
}

#[test]
fn thousands_at_once_are_all_answered() {
    let mut scene = Scene::without_responder(TRUE);
    let send = |number: usize| scene.request("off", &format!("n{number}"), 300.0);
    let mut ids: Vec<_> = (0..1000).map(send).collect();
    scene.start();
    ids.extend((1000..2000).map(|number| scene.request("off", &format!("n{number}"), 300.0)));
    wait_for("all answers", || {
        (scene.env.names_in("responses").len() == ids.len()).then_some(())
    });
    scene.until_all_is_done();
}

#[test]
fn an_overflow_of_the_event_queue_loses_no_request() {
    let scene = Scene::new(TRUE);
    scene.signal(Signal::SIGSTOP);
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let (from, to) = (scene.path("requests/.a"), scene.path("requests/.b"));
    fs::write(&from, "").unwrap();
    // each pair is two names moved in, and no two events are the same
    for _ in 0..=limit / 2 {
        fs::rename(&from, &to).unwrap();
        fs::rename(&to, &from).unwrap();
    }
    let id = scene.request("off", "n1", 60.0);
    scene.signal(Signal::SIGCONT);
    assert_eq!(scene.answer("n1", &id)["success"], true);
}

#[test]
fn a_spool_that_is_removed_and_made_again_is_locked_and_served() {
    let scene = Scene::new(TRUE);
    for name in ["requests", "responses"] {
        fs::remove_dir_all(scene.path(name)).unwrap();
    }
    scene.wait_for_log(&["the spool was removed"]);
    for name in ["responses", "requests"] {
        fs::create_dir(scene.path(name)).unwrap();
        scene.env.chmod(name, 0o755);
    }
    let id = scene.request("off", "n1", 60.0);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    let requests = Directory::open(&scene.path("requests"), Role::Requests, Trust::Checked);
    assert!(Lock::is_held(&requests.unwrap(), LOCK));
}

#[test]
fn a_spool_that_others_can_write_to_is_not_served_until_that_is_mended() {
    let scene = Scene::new(TRUE);
    scene.env.chmod("requests", 0o777);
    scene.wait_for_log(&["chmod go-w"]);
    let id = scene.request("off", "n1", 60.0);
    scene.env.chmod("requests", 0o755);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    let log = scene.log();
    let at = |words: &str| log.find(words).unwrap();
    assert!(at("chmod go-w") < at("claimed"), "{log}");
}

#[test]
fn a_removed_directory_of_claims_is_made_again() {
    let scene = Scene::new(TRUE);
    fs::remove_dir(scene.path("requests/.claimed")).unwrap();
    let id = scene.request("off", "n1", 60.0);
    assert_eq!(scene.answer("n1", &id)["success"], true);
}

#[test]
fn a_second_responder_refuses_and_one_that_waits_takes_over() {
    let mut scene = Scene::new(TRUE);
    let other = scene.path("other.toml");
    let text = fs::read_to_string(scene.path("responder.toml")).unwrap();
    fs::write(&other, text.replace("/state\"", "/other-state\"")).unwrap();
    let second = |scene: &Scene| {
        let mut command = scene.env.command(crate::env::AGENT);
        command.args(["responder", "--config"]).arg(&other);
        command.spawn().unwrap()
    };
    let refused = second(&scene).wait_with_output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said.contains("another responder serves") && said.contains("one spool has one"),
        "{said}"
    );
    let waiting = second(&scene);
    let pid = waiting.id();
    assert_eq!(scene.stop(), Some(0));
    scene.responder = Some(waiting);
    wait_for("the second to take over", || {
        (scene.json("requests/.responder.json")?["pid"] == pid).then_some(())
    });
    let id = scene.request("off", "n1", 60.0);
    assert_eq!(scene.answer("n1", &id)["success"], true);
}

#[test]
fn two_responders_do_not_share_their_records() {
    let scene = Scene::new(TRUE);
    let text = fs::read_to_string(scene.path("responder.toml")).unwrap();
    for name in ["requests", "responses"] {
        fs::create_dir(scene.path(&format!("other-{name}"))).unwrap();
        scene.env.chmod(&format!("other-{name}"), 0o755);
    }
    let text = text
        .replace("/requests\"", "/other-requests\"")
        .replace("/responses\"", "/other-responses\"");
    fs::write(scene.path("other.toml"), text).unwrap();
    let mut command = scene.env.command(crate::env::AGENT);
    command
        .args(["responder", "--config"])
        .arg(scene.path("other.toml"));
    let ended = command.output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        String::from_utf8(ended.stderr)
            .unwrap()
            .contains("another responder's")
    );
}

#[test]
fn a_claim_without_a_job_is_adopted() {
    let mut scene = Scene::without_responder(TRUE);
    fs::create_dir(scene.path("requests/.claimed")).unwrap();
    let (good, id) = (uuid(), uuid());
    publish(
        &scene.path("requests/.claimed"),
        &format!("n1-{good}.json"),
        &request(&good, "off", "n1", 60.0),
    );
    fs::write(scene.path(&format!("requests/.claimed/n1-{id}.json")), "{}").unwrap();
    scene.start();
    assert_eq!(scene.answer("n1", &good)["success"], true);
    wait_for("the odd one to be put aside", || {
        (scene.env.names_in("requests/.rejected").len() == 1).then_some(())
    });
}

#[test]
fn after_a_crash_the_old_task_is_gone_before_it_runs_again() {
    let mut scene = held(HELD);
    let id = scene.request("off", "n1", 60.0);
    wait_for_run(&scene, &id);
    let old = scene.job(&id).unwrap()["tasks"][0]["attempts"][0]["process_group"]["id"].clone();
    scene.crash();
    assert!(is_alive(&old), "a crash leaves it running");
    scene.start();
    wait_for("it to run again", || (ran(&scene).len() == 2).then_some(()));
    assert!(!is_alive(&old));
    let_go(&scene);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    let attempts = scene.ended_job(&id)["tasks"][0]["attempts"].clone();
    assert_eq!(
        attempts[0]["state"], "Interrupted",
        "it doesn't count: retry_count is 1"
    );
    assert_eq!(attempts[1]["state"], "Completed");
}

fn is_alive(pid: &Value) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // a zombie is dead, whenever its new parent reaps it
    stat.contains("(held) ") && !stat.contains("(held) Z")
}

#[test]
fn what_expired_while_no_responder_ran_is_answered_so_and_its_end_recorded() {
    let mut scene = held(HELD);
    scene.crash();
    let (recent, old) = (uuid(), uuid());
    for (id, seconds) in [(&recent, -2.0), (&old, -30.0)] {
        scene.request_with(id, "n1", &request(id, "off", "n1", seconds));
    }
    scene.start();
    for id in [&recent, &old] {
        assert_eq!(scene.answer("n1", id)["success"], false);
        assert_eq!(reason_of(&scene.ended_job(id)), "Expired");
    }
    scene.until_all_is_done();
    let events = wait_for("the end of the old one", || {
        Some(scene.env.events()).filter(|events| !events.is_empty())
    });
    assert_eq!(
        events.len(),
        1,
        "the agent of the other may still record its end: {events:?}"
    );
    assert_eq!(
        (&events[0]["status"], &events[0]["request_id"]),
        (&"expired".into(), &old.into())
    );
    assert_eq!(ran(&scene), [""; 0]);
}

#[test]
fn memory_does_not_grow_with_the_responses() {
    let resident = |scene: &Scene| {
        let status = fs::read_to_string(format!("/proc/{}/status", scene.pid())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let scene = Scene::new(TRUE);
    let id = scene.request("off", "n1", 60.0);
    scene.answer("n1", &id);
    let before = resident(&scene);
    for number in 0..50_000 {
        fs::write(scene.path(&format!("responses/x{number}-{id}.json")), "").unwrap();
    }
    let id = scene.request("off", "n1", 60.0);
    scene.answer("n1", &id);
    scene.until_all_is_done();
    let grown = resident(&scene) - before;
    assert!(
        grown < 1024,
        "by {grown} KiB, and 50,000 names alone are 2 MiB"
    );
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
