//! The whole chain: pcs, Pacemaker, the agent, the responder, a real fence agent.

use std::fs;

use serde_json::Value;

use crate::audit;
use crate::cluster::Cluster;
use crate::node::Node;
use crate::spool::Spool;
use crate::wait;

/// fence_dummy keeps a machine's power in a file; for compute-2 it has only failures.
const CONFIGURATION: &str = r#"
state_dir = "/run/state"

[[rule]]
name = "power"
nodes = ["compute-1"]

[[rule.task]]
name = "detach storage"
exec = ["/bin/sh", "-c", "echo $FENCE_NODE $FENCE_ACTION >>/run/detached"]

[[rule.task]]
name = "cycle power"
agent = "fence_dummy"
parameters = { type = "file", status_file = "/run/power-{node}" }

[[rule]]
name = "broken"
nodes = ["compute-2"]
performs = "off"

[[rule.task]]
name = "power off"
agent = "fence_dummy"
action = "off"
parameters = { type = "fail", power_timeout = "1" }
retry_count = 2
retry_interval = "100ms"

[[rule]]
name = "by hand"
nodes = ["compute-3"]
approval = "manual"
"#;

const OPTIONS: &str = "pcmk_host_list=compute-1,compute-2,compute-3 responder_check=1 \
                       pcmk_off_retries=1 pcmk_reboot_retries=1";

/// A cluster of one whose spool the real responder serves.
fn chain() -> Cluster {
    let cluster = Cluster::start(1);
    let node = cluster.first();
    let spool = Spool::create(node);
    fs::write(node.file("/run/responder.toml"), CONFIGURATION).unwrap();
    fs::write(node.file("/run/power-compute-1"), "on").unwrap();
    node.run("setsid fence_recorder responder --config /run/responder.toml >/dev/null 2>/run/responder.log </dev/null &")
        .ok();
    wait::until_true("the responder serves", || {
        spool.requests.join(".responder.json").exists()
    });
    node.run(&format!(
        "pcs stonith create recorder fence_recorder {OPTIONS}"
    ))
    .ok();
    cluster.wait_started("recorder");
    cluster
}

/// The records of all jobs, oldest first.
fn jobs(node: &Node) -> Vec<Value> {
    let entries = fs::read_dir(node.file("/run/state/jobs"))
        .unwrap()
        .flatten();
    let mut jobs: Vec<Value> = entries
        .filter_map(|entry| serde_json::from_slice(&fs::read(entry.path()).ok()?).ok())
        .collect();
    jobs.sort_by_key(|job| job["start_time"].as_str().unwrap().to_owned());
    jobs
}

fn power(node: &Node) -> String {
    fs::read_to_string(node.file("/run/power-compute-1")).unwrap()
}

#[test]
fn pcs_fences_through_the_responder_and_a_real_fence_agent() {
    let cluster = chain();
    let node = cluster.first();

    node.run("pcs stonith fence compute-1 --off").ok();
    assert_eq!(power(node), "off");
    node.run("fence_recorder -o status -n compute-1")
        .says("Status: OFF");
    node.run("pcs stonith history show compute-1")
        .ok()
        .says("off of compute-1 successful");

    node.run("pcs stonith fence compute-1").ok();
    assert_eq!(power(node), "on", "a reboot ends with on");
    node.run("fence_recorder -o status -n compute-1")
        .ok()
        .says("Status: ON");

    let detached = fs::read_to_string(node.file("/run/detached")).unwrap();
    assert_eq!(detached, "compute-1 off\ncompute-1 reboot\n");
    for job in jobs(node) {
        assert_eq!(job["conditions"][2]["status"], "True", "{job}");
        let id = job["request"]["request_id"].as_str().unwrap();
        assert_eq!(audit::statuses(node, id), ["requested", "completed"]);
    }
    assert_eq!(node.log().agent_stderr(), [""; 0]);
}

#[test]
fn a_failing_fence_agent_fails_the_fence_with_its_reason() {
    let cluster = chain();
    let node = cluster.first();
    node.run("pcs stonith fence compute-2 --off").refused();
    let jobs = jobs(node);
    assert_eq!(jobs.len(), 1, "the responder retries, Pacemaker does not");
    let attempts = jobs[0]["tasks"][0]["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2);
    let stderr = node.log().agent_stderr().join("\n");
    assert!(
        stderr.contains("task \"power off\" failed after 2 attempts"),
        "{stderr}"
    );
}

#[test]
fn a_person_ends_a_fence_with_answer() {
    let cluster = chain();
    let node = cluster.first();
    node.run("setsid sh -c 'pcs stonith fence compute-3 --off; echo $? >/run/fenced' >/dev/null 2>&1 </dev/null &")
        .ok();
    let waits = |job: &Value| job["conditions"][0]["reason"] == "WaitingForApproval";
    wait::until_true("the job waits for a person", || {
        node.file("/run/state/jobs").exists() && jobs(node).first().is_some_and(waits)
    });
    node.run("fence_recorder answer compute-3 --success --yes -m 'seen dark'")
        .ok();
    let code = wait::until("pcs to end", || {
        let code = fs::read_to_string(node.file("/run/fenced")).ok()?;
        (!code.is_empty()).then_some(code)
    });
    assert_eq!(code, "0\n");
}
