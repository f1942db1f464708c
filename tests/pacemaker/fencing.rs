//! Fencing that goes well, as an administrator asks for it.

use crate::audit;
use crate::node::Node;
use crate::responder::{Answer, Request};
use crate::scene::Scene;

#[test]
fn a_fence_goes_through_the_spool_into_the_history_and_nothing_onto_stderr() {
    let scene = Scene::set(Answer::Success, "pcmk_host_list=compute-1,compute-2");
    let node = scene.node();

    node.run("stonith_admin --reboot compute-1").ok();
    node.run("stonith_admin --history compute-1")
        .ok()
        .says("reboot of compute-1 successful");
    check_request(node, &scene.responder.only(), "reboot", "compute-1");

    node.run("pcs stonith fence compute-2").ok();
    node.run("pcs stonith history show compute-2")
        .ok()
        .says("reboot of compute-2 successful");
    check_request(node, &scene.responder.seen()[1], "reboot", "compute-2");

    node.run("pcs stonith fence compute-2 --off").ok();
    check_request(node, &scene.responder.seen()[2], "off", "compute-2");

    assert_eq!(scene.responder.seen().len(), 3, "one request for each");
    assert_eq!(scene.spool.pending(), [""; 0], "all are withdrawn");
    assert_eq!(scene.spool.answered().len(), 3, "the answers stay");
    assert_eq!(node.log().agent_stderr(), [""; 0]);
}

#[test]
fn a_device_without_a_host_list_fences_any_node_and_again_once_it_is_fenced() {
    let scene = Scene::set(Answer::Success, "");

    // Pacemaker asks for the status first, which is ON before the first fence, OFF after it.
    for _ in 0..2 {
        scene.node().run("stonith_admin --reboot compute-9").ok();
    }

    let seen = scene.responder.seen();
    assert_eq!(seen.len(), 2);
    for request in &seen {
        check_request(scene.node(), request, "reboot", "compute-9");
    }
    assert_eq!(scene.node().log().agent_stderr(), [""; 0]);
}

/// A request that Pacemaker's fencing made, as a responder and the audit should see it.
#[track_caller]
fn check_request(node: &Node, request: &Request, action: &str, target: &str) {
    let id = request.text("request_id");
    assert_eq!(request.file_name, format!("{target}-{id}.json"));
    assert_eq!(request.mode, 0o644, "whatever Pacemaker's umask is");
    assert_eq!(request.text("action"), action);
    assert_eq!(request.text("target_node"), target);
    assert_eq!(request.text("recorder_node"), node.name());
    assert_eq!(audit::statuses(node, id), ["requested", "completed"]);
}
