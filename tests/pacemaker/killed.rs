//! An agent that Pacemaker kills leaves its request behind; a later run of the agent sweeps it.

use std::time::Duration;

use crate::audit;
use crate::responder::{Answer, Request, Responder};
use crate::scene::Scene;
use crate::wait;

/// The agent would wait longer than Pacemaker lets it.
const OPTIONS: &str = "pcmk_host_list=compute-1 response_timeout=4 pcmk_reboot_timeout=2";

/// A request is dead ten seconds after its deadline, on the node that wrote it.
const DEAD_AFTER: Duration = Duration::from_secs(4 + 10);

/// Between the time the agent counts from and the time the responder saw the request.
const SLACK: Duration = Duration::from_secs(1);

#[test]
fn a_killed_agents_request_is_swept_by_the_recurring_monitor_and_recorded_as_expired() {
    let (scene, left) = killed_agent("2s");

    wait::until_true("the monitor sweeps", || scene.spool.pending().is_empty());

    let age = left.seen.elapsed();
    assert!(age + SLACK > DEAD_AFTER, "swept too early, after {age:?}");
    check_expired(&scene, &left);
}

#[test]
fn a_killed_agents_request_is_swept_by_the_next_fence_and_recorded_as_expired() {
    let (mut scene, left) = killed_agent("1h");
    let dead = || left.seen.elapsed() > DEAD_AFTER + SLACK;
    wait::until_true("the request is dead", dead);
    let waiting = scene.spool.pending();
    assert_eq!(waiting, [left.file_name.as_str()], "nothing sweeps so far");

    scene.responder = Responder::start(&scene.spool, Answer::Success);
    // a sweep beside a fence gives way to the answer, so that it may take more than one
    wait::until_true("a fence sweeps", || {
        scene.node().run("stonith_admin --fence compute-1").ok();
        scene.spool.pending().is_empty()
    });

    check_expired(&scene, &left);
}

/// Has Pacemaker kill an agent that waits and returns the request it left behind. The device's
/// monitor runs at the given interval.
fn killed_agent(interval: &str) -> (Scene, Request) {
    let options = format!("{OPTIONS} op monitor interval={interval}");
    let scene = Scene::set(Answer::Silence, &options);
    let node = scene.node();

    node.run("stonith_admin --reboot compute-1").refused();

    let left = scene.responder.only();
    let waiting = scene.spool.pending();
    assert_eq!(
        waiting,
        [left.file_name.as_str()],
        "a SIGKILL has no handler"
    );
    let id = left.text("request_id");
    assert_eq!(audit::statuses(node, id), ["requested"]);
    assert_eq!(node.log().agent_stderr(), [""; 0]);
    (scene, left)
}

/// The request has exactly one end in the audit, which is written once it is gone.
#[track_caller]
fn check_expired(scene: &Scene, left: &Request) {
    let id = left.text("request_id");
    wait::until_true("the end to be recorded", || {
        audit::statuses(scene.node(), id).len() > 1
    });
    assert_eq!(audit::statuses(scene.node(), id), ["requested", "expired"]);
}
