//! The responder's side of the spool: what counts, claims, deadlines, answers.

use crate::scene::{Scene, reason_of};

#[test]
fn a_request_that_no_rule_serves_is_refused() {
    let scene = Scene::new("[[rule]]\nnodes = [\"a*\"]\n[[rule.task]]\nexec = [\"/bin/true\"]\n");
    let id = scene.request("off", "b1", 30.0);
    let answer = scene.answer("b1", &id);
    assert_eq!(answer["success"], false);
    assert_eq!(reason_of(&scene.ended_job(&id)), "NoRule");
}
