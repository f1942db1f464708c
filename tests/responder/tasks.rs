//! Tasks and attempts: what is run, how often, and what becomes of what hangs.

use crate::scene::{Scene, reason_of};

#[test]
fn a_task_that_fails_four_times_succeeds_at_the_fifth_attempt() {
    let scene = Scene::without_responder(
        "[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\nname = \"power\"\nexec = [\"DIR/flaky\"]\n\
         retry_count = 5\nretry_interval = \"200ms\"\n",
    );
    scene.script(
        "flaky",
        "echo try >>DIR/tries; echo \"attempt $(wc -l <DIR/tries)\"; [ $(wc -l <DIR/tries) -eq 5 ]",
    );
    let mut scene = scene;
    scene.start();
    let id = scene.request("off", "n1", 30.0);
    let answer = scene.answer("n1", &id);
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(answer["message"], "attempt 5");
    let job = scene.ended_job(&id);
    assert_eq!(reason_of(&job), "Completed");
    let attempts = job["tasks"][0]["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 5);
}
