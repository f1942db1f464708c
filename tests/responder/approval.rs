//! Jobs that wait for a person, and `fence_recorder answer` with and without a responder.

use std::fs;
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::env::{AGENT, Ended, wait_for};
use crate::scene::{Scene, name_of, publish, reason_of, request, uuid};

const BY_HAND: &str = "[[rule]]\nnodes = [\"*\"]\napproval = \"manual\"\n";

/// Runs `fence_recorder answer` on the scene's spool.
fn answer(scene: &Scene, arguments: &[&str]) -> Ended {
    let mut command = scene.env.command(AGENT);
    command.arg("answer").args(arguments);
    for (option, name) in [
        ("--request-dir", "requests"),
        ("--response-dir", "responses"),
    ] {
        command.arg(option).arg(scene.path(name));
    }
    command.stdin(Stdio::null()).output().unwrap().into()
}

fn tasks_after_approval() -> Scene {
    let mut scene = Scene::without_responder(&format!(
        "{BY_HAND}notify = [\"DIR/page\", \"{{node}}\"]\n[[rule.task]]\nname = \"power\"\nexec = [\"DIR/power\"]\n"
    ));
    scene.script("page", "echo \"$1 $FENCE_ACTION\" >>DIR/paged");
    scene.script("power", "echo done; echo x >>DIR/ran");
    scene.start();
    scene
}

#[test]
fn a_job_waits_for_a_person_and_ends_with_his_success() {
    let scene = Scene::new(BY_HAND);
    let id = scene.request("reboot", "n1", 60.0);
    let waiting = scene.job_at(&id, "WaitingForApproval");
    assert_eq!(waiting["conditions"][0]["status"], "True");
    let said = answer(
        &scene,
        &["n1", "--success", "--yes", "-m", "pulled the plug"],
    );
    said.succeeded_with("reboot of n1: answered with success\n");
    let response = scene.answer("n1", &id);
    assert_eq!(response["success"], true);
    assert_eq!(response["message"], "confirmed by root: pulled the plug");
    assert_eq!(reason_of(&scene.ended_job(&id)), "Completed");
    scene.until_all_is_done();
    assert_eq!(scene.env.names_in("requests/.answers"), [""; 0]);
}

#[test]
fn a_person_can_refuse() {
    let scene = Scene::new(BY_HAND);
    let id = scene.request("off", "n1", 60.0);
    scene.job_at(&id, "WaitingForApproval");
    answer(&scene, &[&id, "--failure"]).succeeded_with("off of n1: answered with failure\n");
    let response = scene.answer("n1", &id);
    assert_eq!(
        (&response["success"], &response["message"]),
        (&false.into(), &"refused by root".into())
    );
    assert_eq!(reason_of(&scene.ended_job(&id)), "Refused");
}

#[test]
fn the_tasks_run_after_the_approval_and_not_before_and_somebody_is_paged_once() {
    let mut scene = tasks_after_approval();
    let id = scene.request("off", "n1", 60.0);
    wait_for("the job to know of its page", || {
        (scene.job(&id)?["notified"] == true).then_some(())
    });
    assert!(!scene.path("ran").exists());
    // a restart neither asks again nor forgets that it waits
    scene.crash();
    scene.start();
    scene.wait_for_log(&["resumed"]);
    answer(&scene, &["n1", "--success", "--yes"])
        .succeeded_with("off of n1: approved, its tasks run now\n");
    assert_eq!(scene.answer("n1", &id)["message"], "done");
    assert_eq!(fs::read_to_string(scene.path("ran")).unwrap(), "x\n");
    assert_eq!(fs::read_to_string(scene.path("paged")).unwrap(), "n1 off\n");
}

#[test]
fn a_refusal_keeps_the_tasks_from_running() {
    let scene = tasks_after_approval();
    let id = scene.request("off", "n1", 60.0);
    scene.job_at(&id, "WaitingForApproval");
    answer(&scene, &["n1", "--failure", "-m", "wrong node"])
        .succeeded_with("off of n1: answered with failure\n");
    assert_eq!(scene.answer("n1", &id)["success"], false);
    assert!(!scene.path("ran").exists());
}

#[test]
fn success_needs_a_terminal_or_yes() {
    let scene = Scene::new(BY_HAND);
    let id = scene.request("off", "n1", 60.0);
    scene.job_at(&id, "WaitingForApproval");
    answer(&scene, &["n1", "--success"]).failed_with(&["vouches", "--yes"]);
    assert_eq!(scene.env.names_in("responses"), [""; 0]);
}

/// Runs `answer` on a terminal of its own, which script(1) makes, and types `line`.
fn answer_on_a_terminal(scene: &Scene, line: &str) -> String {
    let mut command = scene.env.command("script");
    let directories = |name| scene.path(name).display().to_string();
    let call = format!(
        "{AGENT} answer n1 --success --request-dir {} --response-dir {}",
        directories("requests"),
        directories("responses")
    );
    command.args(["-qec", &call, "/dev/null"]);
    let child = crate::env::TestEnv::spawn(command, line);
    String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned()
}

#[test]
fn on_a_terminal_only_a_typed_yes_counts() {
    let scene = Scene::new(BY_HAND);
    let id = scene.request("off", "n1", 60.0);
    scene.job_at(&id, "WaitingForApproval");
    let said = answer_on_a_terminal(&scene, "y\n");
    assert!(
        said.contains("corrupt data") && said.contains("not confirmed"),
        "{said}"
    );
    assert_eq!(scene.env.names_in("responses"), [""; 0]);
    let said = answer_on_a_terminal(&scene, "yes\n");
    assert!(said.contains("answered with success"), "{said}");
    assert_eq!(scene.answer("n1", &id)["success"], true);
}

#[test]
fn what_is_not_pending_or_not_clear_is_refused_by_name() {
    let scene = Scene::new(BY_HAND);
    answer(&scene, &["n1", "--failure"]).failed_with(&["nothing is pending for \"n1\""]);
    let (off, reboot) = (
        scene.request("off", "n1", 60.0),
        scene.request("reboot", "n1", 60.0),
    );
    scene.job_at(&off, "WaitingForApproval");
    scene.job_at(&reboot, "WaitingForApproval");
    answer(&scene, &["n1", "--failure"]).failed_with(&["several", &off, &reboot]);
    answer(&scene, &["n", "--failure"]).failed_with(&["nothing is pending for \"n\""]);
    assert_eq!(answer(&scene, &[&off, "--failure"]).code, Some(0));
    assert_eq!(scene.answer("n1", &off)["success"], false);
}

#[test]
fn a_job_that_waits_for_nobody_is_not_answered_by_hand() {
    let mut scene = Scene::without_responder(
        "[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\nexec = [\"/bin/sleep\", \"60\"]\n",
    );
    scene.start();
    let id = scene.request("off", "n1", 60.0);
    scene.job_at(&id, "Running");
    for outcome in ["--success", "--failure"] {
        answer(&scene, &["n1", outcome, "--yes"])
            .failed_with(&["doesn't wait for a person", "Running"]);
    }
    assert_eq!(scene.env.names_in("responses"), [""; 0]);
}

#[test]
fn only_roots_answer_counts() {
    let scene = Scene::new(BY_HAND);
    let id = scene.request("off", "n1", 60.0);
    scene.job_at(&id, "WaitingForApproval");
    let name = format!("n1-{id}.json");
    let forged = serde_json::json!({"request_id": id, "success": true, "timestamp": ""});
    let outside = scene.path("forged.json");
    fs::write(&outside, forged.to_string()).unwrap();
    std::os::unix::fs::chown(&outside, Some(65534), None).unwrap();
    fs::rename(&outside, scene.path("requests/.answers").join(&name)).unwrap();
    scene.wait_for_log(&["belongs to user 65534"]);
    assert_eq!(reason_of(&scene.job(&id).unwrap()), "WaitingForApproval");
    wait_for("it to be taken away", || {
        let left = scene.env.names_in("requests/.answers");
        left.is_empty().then_some(())
    });
}

#[test]
fn nobody_answers_before_the_deadline() {
    let scene = Scene::new(BY_HAND);
    let id = scene.request("off", "n1", 4.0);
    let response = scene.answer("n1", &id);
    assert_eq!(response["success"], false);
    assert!(
        response["message"]
            .as_str()
            .unwrap()
            .starts_with("nobody answered before")
    );
    assert_eq!(reason_of(&scene.ended_job(&id)), "Expired");
}

#[test]
fn an_answer_to_a_joined_request_answers_both() {
    let scene = Scene::new(BY_HAND);
    let first = scene.request("off", "n1", 60.0);
    scene.job_at(&first, "WaitingForApproval");
    let second = scene.request("off", "n1", 90.0);
    wait_for("the second to join", || {
        let joined = scene.job(&first)?["joined"].as_array()?.len();
        (joined == 1).then_some(())
    });
    // both are one job, so the node is enough
    answer(&scene, &["n1", "--success", "--yes"])
        .succeeded_with("off of n1: answered with success\n");
    assert_eq!(scene.answer("n1", &first)["success"], true);
    assert_eq!(scene.answer("n1", &second)["success"], true);
}

#[test]
fn without_a_responder_the_answer_is_published_at_once() {
    let scene = Scene::without_responder(BY_HAND);
    let agent = scene
        .env
        .start("nodename=n1\naction=off\nresponse_timeout=30\n");
    scene.env.requests(1);
    answer(&scene, &["n1", "--success", "--yes"])
        .succeeded_with("off of n1: answered with success\n");
    let ended: Ended = agent.wait_with_output().unwrap().into();
    ended.succeeded_with("Success: Powered OFF\n");
    scene.until_all_is_done();
}

#[test]
fn without_a_responder_a_claim_that_one_left_is_answered_too() {
    let mut scene = Scene::new(BY_HAND);
    let id = scene.request("off", "n1", 60.0);
    scene.job_at(&id, "WaitingForApproval");
    scene.crash();
    answer(&scene, &["n1", "--failure"]).succeeded_with("off of n1: answered with failure\n");
    assert_eq!(scene.answer("n1", &id)["success"], false);
    // the next responder knows how it ended
    scene.start();
    let job = scene.ended_job(&id);
    assert!(
        job["conditions"][0]["message"]
            .as_str()
            .unwrap()
            .contains("refused by root"),
        "{job}"
    );
}

#[test]
fn another_watcher_is_not_forestalled() {
    let scene = Scene::without_responder(BY_HAND);
    let (watch, error) = watch_on(&scene);
    assert_eq!(error, None);
    let id = uuid();
    publish(
        &scene.path("requests"),
        &format!("n1-{id}.json"),
        &request(&id, "off", "n1", 60.0),
    );
    answer(&scene, &["n1", "--failure"]).failed_with(&["a process watches", "stop it first"]);
    drop(watch);
}

fn watch_on(
    scene: &Scene,
) -> (
    fence_recorder::spool::watch::Watch,
    Option<nix::errno::Errno>,
) {
    use fence_recorder::spool::directory::{Directory, Role, Trust};
    let requests =
        Directory::open(&scene.path("requests"), Role::Requests, Trust::Checked).unwrap();
    fence_recorder::spool::watch::Watch::new(&requests)
}

#[test]
fn an_expired_request_is_not_answered() {
    let scene = Scene::without_responder(BY_HAND);
    let id = uuid();
    let expired = request(&id, "off", "n1", -1.0);
    publish(&scene.path("requests"), &format!("n1-{id}.json"), &expired);
    answer(&scene, &["n1", "--success", "--yes"]).failed_with(&["deadline", "passed"]);
    assert_eq!(scene.env.names_in("responses"), [""; 0]);
}

#[test]
fn a_usage_error_is_exit_1() {
    let scene = Scene::without_responder(BY_HAND);
    for arguments in [
        &["n1"][..],
        &["--success"],
        &["n1", "--success", "--failure"],
    ] {
        assert_eq!(answer(&scene, arguments).code, Some(1), "{arguments:?}");
    }
}

#[test]
fn an_answer_that_could_not_be_given_is_no_success_of_the_command() {
    let scene = Scene::new(BY_HAND);
    for (content, words) in [
        (
            "{\"request_id\": \"ID\", \"success\": false}",
            "somebody else had answered",
        ),
        ("half", "holds no valid response"),
    ] {
        let id = scene.request("off", "n1", 60.0);
        scene.job_at(&id, "WaitingForApproval");
        let path = scene.path(&format!("responses/n1-{id}.json"));
        let content = content.replace("ID", &id);
        fs::write(&path, &content).unwrap();
        answer(&scene, &[&id, "--success", "--yes"])
            .failed_with(&["was not answered with it", words]);
        assert_eq!(fs::read_to_string(path).unwrap(), content);
        scene.until_all_is_done();
    }
}

/// Starts `answer` while the responder is stopped, and waits until its answer lies there.
fn answer_to_a_stopped_responder(scene: &Scene) -> std::process::Child {
    scene.signal(Signal::SIGSTOP);
    let mut command = scene.env.command(AGENT);
    command.args(["answer", "n1", "--success", "--yes"]);
    for (option, name) in [
        ("--request-dir", "requests"),
        ("--response-dir", "responses"),
    ] {
        command.arg(option).arg(scene.path(name));
    }
    let child = command.stdin(Stdio::null()).spawn().unwrap();
    wait_for("the answer to lie there", || {
        (scene.env.names_in("requests/.answers").len() == 1).then_some(())
    });
    child
}

#[test]
fn a_signal_takes_an_answer_back_that_was_not_taken_yet() {
    let scene = Scene::new(BY_HAND);
    let id = scene.request("off", "n1", 60.0);
    scene.job_at(&id, "WaitingForApproval");
    let child = answer_to_a_stopped_responder(&scene);
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
    Ended::from(child.wait_with_output().unwrap()).failed_with(&["taken back", "SIGTERM"]);
    assert_eq!(scene.env.names_in("requests/.answers"), [""; 0]);
    scene.signal(Signal::SIGCONT);
    answer(&scene, &["n1", "--failure"]).succeeded_with("off of n1: answered with failure\n");
}

#[test]
fn an_answer_that_is_taken_after_the_deadline_counts_no_more() {
    let scene = Scene::new(BY_HAND);
    let id = scene.request("off", "n1", 4.0);
    scene.job_at(&id, "WaitingForApproval");
    let mut child = answer_to_a_stopped_responder(&scene);
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = scene.job(&id).unwrap()["deadline"].clone();
    let deadline: jiff::Timestamp = deadline.as_str().unwrap().parse().unwrap();
    wait_for("the deadline", || {
        (jiff::Timestamp::now() > deadline).then_some(())
    });
    scene.signal(Signal::SIGCONT);
    assert_eq!(scene.answer("n1", &id)["success"], false);
    assert_eq!(reason_of(&scene.ended_job(&id)), "Expired");
}

#[test]
fn a_directory_among_the_answers_is_said_once_and_hinders_nobody() {
    let mut scene = Scene::new(BY_HAND);
    let odd = name_of("n1", &uuid());
    fs::create_dir(scene.path("requests/.answers").join(&odd)).unwrap();
    scene.wait_for_log(&[&odd, "can't be removed"]);
    // that is noticed by a look at everything
    fs::rename(
        scene.path("requests/.claimed"),
        scene.path("requests/.moved"),
    )
    .unwrap();
    scene.wait_for_log(&["serving the spool that was made anew"]);
    let other = scene.request("off", "n2", 30.0);
    scene.job_at(&other, "WaitingForApproval");
    scene.stop();
    assert_eq!(scene.log().matches(&odd).count(), 2, "{}", scene.log());
}
