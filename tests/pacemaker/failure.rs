//! A responder that says no, and one that says nothing.

use crate::audit;
use crate::responder::Answer;
use crate::scene::Scene;

#[test]
fn a_refusal_fails_the_fence_and_its_message_is_in_pacemakers_log() {
    const REASON: &str = "volume group is locked by a snapshot";
    let scene = Scene::set(Answer::Refusal(REASON), "pcmk_host_list=compute-1");
    check_failed(&scene, "failed", REASON);
}

#[test]
fn silence_ends_with_the_agents_timeout_and_the_request_is_withdrawn() {
    let options = "pcmk_host_list=compute-1 response_timeout=1";
    let scene = Scene::set(Answer::Silence, options);
    check_failed(&scene, "timed_out", "compute-1");
}

/// Fences compute-1, which must fail: the audit has `status` for it, the agent's line `reason`.
#[track_caller]
fn check_failed(scene: &Scene, status: &str, reason: &str) {
    let node = scene.node();
    node.run("stonith_admin --reboot compute-1").refused();

    // Without --verbose the history tells only of successes and of what still runs.
    node.run("stonith_admin --history compute-1 --verbose")
        .ok()
        .says("reboot of compute-1 failed");
    assert_eq!(scene.spool.pending(), [""; 0], "withdrawn");
    // Pacemaker runs a failed agent a second time: each run has its own request and one line.
    let seen = scene.responder.seen();
    let log = node.log();
    let told = log.agent_stderr();
    assert_eq!((seen.len(), told.len()), (2, 2), "{told:?}");
    for (request, line) in seen.iter().zip(told) {
        let id = request.text("request_id");
        assert_eq!(audit::statuses(node, id), ["requested", status]);
        assert!(line.contains(reason), "{line}");
    }
}
