//! `unfence`: a node's responses are taken away, and no other's.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use nix::sys::inotify::{AddWatchFlags as Mask, InitFlags, Inotify};
use serde_json::Value;

use crate::desk::{ask, command, json, respond, run};
use crate::env::TestEnv;
use crate::scene::{Scene, name_of};

const BY_HAND: &str = "[[rule]]\nnodes = [\"*\"]\napproval = \"manual\"\n";

fn events(env: &TestEnv) -> Vec<Value> {
    let text = fs::read_to_string(env.path("log/fence-events-detailed.jsonl")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_nodes_responses_are_kept_aside_and_recorded_and_other_nodes_left_alone() {
    let env = TestEnv::new();
    let old = name_of("c1", &respond(&env, "c1", true, "off", "1 hour ago"));
    let id = respond(&env, "c1", true, "off", "1 minute ago");
    let other = name_of("c1-2", &respond(&env, "c1-2", true, "off", "1 hour ago"));
    let inode = fs::metadata(env.path(&format!("responses/{old}")))
        .unwrap()
        .ino();
    let told = run(&env, &["unfence", "c1", "--yes"]);
    let kept = env.path("responses/.cleared").display().to_string();
    told.succeeded_with(&format!("c1 is unfenced: 2 responses moved to {kept}\n"));
    assert_eq!(env.names_in("responses"), [".cleared".to_owned(), other]);
    assert_eq!(env.names_in("responses/.cleared").len(), 2);
    let status = fs::metadata(env.path(&format!("responses/.cleared/{old}"))).unwrap();
    assert_eq!((status.ino(), status.nlink()), (inode, 1));
    let events = events(&env);
    assert_eq!(events.len(), 1);
    assert_eq!(
        (
            &events[0]["status"],
            &events[0]["target_node"],
            &events[0]["request_id"]
        ),
        (&"unfenced".into(), &"c1".into(), &id.as_str().into())
    );
    assert_eq!(events[0]["details"], "2 responses taken away by root");
    assert_eq!(json(&env, &["fenced"]).as_array().unwrap().len(), 1);
    let again = run(&env, &["unfence", "c1", "--yes"]);
    again.failed_with(&["c1 has no response", "fence_recorder fenced"]);
}

/// nnf-sos's fsnotify sees a removal; a rename it takes for something else.
#[test]
fn a_watcher_sees_a_removal_and_no_rename() {
    let env = TestEnv::new();
    let name = name_of("c1", &respond(&env, "c1", true, "off", "1 minute ago"));
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
    inotify
        .add_watch(&env.path("responses"), Mask::IN_ALL_EVENTS)
        .unwrap();
    assert_eq!(run(&env, &["unfence", "c1", "--yes"]).code, Some(0));
    let events = inotify.read_events().unwrap();
    let masks: Vec<_> = events
        .iter()
        .filter(|event| event.name.as_ref().is_some_and(|seen| *seen == *name))
        .map(|event| event.mask)
        .collect();
    assert!(masks.contains(&Mask::IN_DELETE), "{masks:?}");
    let moved = Mask::IN_MOVED_FROM | Mask::IN_MOVED_TO;
    assert!(
        !masks.iter().any(|mask| mask.intersects(moved)),
        "{masks:?}"
    );
}

#[test]
fn a_node_that_something_goes_on_with_is_left_alone_unless_forced() {
    let mut scene = Scene::new(BY_HAND);
    respond(&scene.env, "n1", true, "off", "1 hour ago");
    let id = scene.request("off", "n1", 60.0);
    scene.job_at(&id, "WaitingForApproval");
    let claimed = run(&scene.env, &["unfence", "n1", "--yes"]);
    claimed.failed_with(&[&id, "is pending", "--force"]);
    // the claim is withdrawn, but its job still there
    scene.pause();
    scene.withdraw("n1", &id);
    let running = run(&scene.env, &["unfence", "n1", "--yes"]);
    running.failed_with(&["job", &id, "is not over"]);
    let waiting = ask(&scene, "n1", 60.0);
    run(&scene.env, &["unfence", "n1", "--yes"]).failed_with(&[&waiting, "is pending"]);
    // another node's doing is no hindrance
    respond(&scene.env, "n1-2", true, "off", "1 hour ago");
    assert_eq!(run(&scene.env, &["unfence", "n1-2", "--yes"]).code, Some(0));
    assert_eq!(scene.env.names_in("responses").len(), 2);
    assert_eq!(
        run(&scene.env, &["unfence", "n1", "--yes", "--force"]).code,
        Some(0)
    );
    assert_eq!(scene.env.names_in("responses"), [".cleared"]);
    scene.resume();
    scene.stop();
}

#[test]
fn a_young_response_is_left_for_its_agent() {
    let env = TestEnv::new();
    let id = respond(&env, "n1", true, "off", "now");
    let young = run(&env, &["unfence", "n1", "--yes"]);
    young.failed_with(&[&id, "younger than 10 s"]);
    assert_eq!(
        run(&env, &["unfence", "n1", "--yes", "--force"]).code,
        Some(0)
    );
}

#[test]
fn nobody_is_unfenced_unasked() {
    let env = TestEnv::new();
    respond(&env, "n1", true, "off", "1 hour ago");
    run(&env, &["unfence", "n1"]).failed_with(&["--yes"]);
    for (says, code) in [("no", Some(1)), ("", Some(1)), ("yes", Some(0))] {
        let arguments: Vec<_> = ["unfence", "n1"].into();
        let inner = command(&env, &arguments);
        // script(1) gives it a terminal
        let mut script = Command::new("script");
        script
            .args(["--quiet", "--return", "--command"])
            .arg(format!("{} unfence n1", inner.get_program().display()))
            .arg(env.path("typescript"))
            .envs(
                inner
                    .get_envs()
                    .filter_map(|(key, value)| Some((key, value?))),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let child = TestEnv::spawn(script, &format!("{says}\n"));
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), code, "{says}");
        let said = String::from_utf8(ended.stdout).unwrap();
        assert!(said.contains("will corrupt data"), "{said}");
    }
    assert_eq!(env.names_in("responses"), [".cleared"]);
}

#[test]
fn one_that_was_cut_off_is_finished_and_a_second_copy_is_kept_beside_the_first() {
    let env = TestEnv::new();
    let name = name_of("n1", &respond(&env, "n1", true, "off", "1 hour ago"));
    let (here, there) = (
        env.path(&format!("responses/{name}")),
        env.path(&format!("responses/.cleared/{name}")),
    );
    fs::create_dir(env.path("responses/.cleared")).unwrap();
    fs::hard_link(&here, &there).unwrap();
    assert_eq!(run(&env, &["unfence", "n1", "--yes"]).code, Some(0));
    assert_eq!(env.names_in("responses/.cleared"), [name.as_str()]);
    // answered once more under the same name
    fs::copy(&there, &here).unwrap();
    assert_eq!(
        run(&env, &["unfence", "n1", "--yes", "--force"]).code,
        Some(0)
    );
    assert_eq!(
        env.names_in("responses/.cleared"),
        [name.clone(), format!("{name}.1")]
    );
}

#[test]
fn a_log_that_can_not_be_written_is_a_warning() {
    let env = TestEnv::new();
    respond(&env, "n1", true, "off", "1 hour ago");
    let ended = run(
        &env,
        &["unfence", "n1", "--yes", "--log-dir", "/proc/no/such"],
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stderr.contains("unfenced, but not recorded"),
        "{ended:?}"
    );
}

#[test]
fn a_link_for_the_cleared_directory_is_not_followed() {
    let env = TestEnv::new();
    respond(&env, "n1", true, "off", "1 hour ago");
    fs::create_dir(env.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(env.path("elsewhere"), env.path("responses/.cleared")).unwrap();
    run(&env, &["unfence", "n1", "--yes"]).failed_with(&[".cleared"]);
    assert_eq!(env.names_in("elsewhere"), [""; 0]);
    assert_eq!(env.names_in("responses").len(), 2);
}
