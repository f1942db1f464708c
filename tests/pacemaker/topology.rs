//! Fencing topologies, unfencing and plugs: what docs/topologies.md says, on real clusters.

use std::fs;

use crate::audit;
use crate::cluster::Cluster;
use crate::node::Node;
use crate::responder::{Answer, Request, Responder};
use crate::scene::Scene;
use crate::spool::Spool;
use crate::wait;

/// fence_dummy keeps a machine's power in a file.
const POWER: &str = "pcs stonith create power fence_dummy type=file status_file=/run/power \
                     pcmk_host_list=compute-1";

fn power(node: &Node) -> String {
    fs::read_to_string(node.file("/run/power")).unwrap_or_default()
}

/// A recorder and a machine that is on, with a power agent.
fn beside_a_power_agent(answer: Answer, power: &str) -> Scene {
    let scene = Scene::set(answer, "pcmk_host_list=compute-1");
    let node = scene.node();
    fs::write(node.file("/run/power"), "on").unwrap();
    node.run(power).ok();
    scene
}

/// The actions that were asked for, in order.
fn actions(responder: &Responder) -> Vec<String> {
    let seen = responder.seen();
    seen.iter()
        .map(|request| request.text("action").to_owned())
        .collect()
}

#[test]
fn two_devices_in_one_level_are_both_switched_off_and_then_on() {
    let scene = beside_a_power_agent(Answer::Success, POWER);
    let node = scene.node();
    node.run("pcs stonith level add 1 compute-1 recorder,power --force")
        .ok();

    node.run("pcs stonith fence compute-1 --off").ok();
    assert_eq!(power(node), "off");
    fs::write(node.file("/run/power"), "on").unwrap();

    node.run("pcs stonith fence compute-1").ok();
    assert_eq!(power(node), "on");
    assert_eq!(
        actions(&scene.responder),
        ["off", "off"],
        "a reboot is asked for as off"
    );
    let log = fs::read_to_string(node.file("/var/log/pacemaker.log")).unwrap();
    for step in [
        "'off' targeting compute-1 using recorder",
        "'off' targeting compute-1 using power",
        "'on' targeting compute-1 using recorder",
        "'on' targeting compute-1 using power",
    ] {
        assert!(
            log.contains(step) || log.contains(&step.replace('\'', "")),
            "{step}"
        );
    }
    assert_eq!(node.log().agent_stderr(), [""; 0]);
}

#[test]
fn a_level_fails_as_a_whole_when_the_recorder_is_refused() {
    let scene = beside_a_power_agent(Answer::Refusal("not now"), POWER);
    let node = scene.node();
    node.run("pcs stonith level add 1 compute-1 recorder,power --force")
        .ok();
    node.run("pcs stonith fence compute-1").refused();
    assert_eq!(
        power(node),
        "on",
        "the second device of a level waits for the first"
    );
}

#[test]
fn the_recorder_is_asked_when_the_level_before_it_fails() {
    let broken = "pcs stonith create power fence_redfish ip=127.0.0.1 username=a password=b ssl_insecure=1 systems_uri=/x \
                  pcmk_host_list=compute-1 pcmk_off_retries=1";
    let scene = beside_a_power_agent(Answer::Success, broken);
    let node = scene.node();
    node.run("pcs stonith level add 1 compute-1 power --force")
        .ok();
    node.run("pcs stonith level add 2 compute-1 recorder --force")
        .ok();
    node.run("pcs stonith fence compute-1 --off").ok();
    assert_eq!(actions(&scene.responder), ["off"]);
    let log = fs::read_to_string(node.file("/var/log/pacemaker.log")).unwrap();
    let tried = |line: &str| line.contains("'off'") && line.contains("using power");
    assert!(log.lines().any(tried), "level 1 was tried first");
}

#[test]
fn names_that_differ_are_mapped_and_two_plugs_of_a_node_are_both_switched_off() {
    let scene = Scene::set(
        Answer::Success,
        "pcmk_host_map='compute-1:storage-one;compute-2:psu-a,psu-b'",
    );
    let node = scene.node();
    node.run("pcs stonith fence compute-1").ok();
    let first = scene.responder.only();
    assert_eq!(
        (first.text("target_node"), first.text("nodename")),
        ("storage-one", "compute-1")
    );
    assert_eq!(first.text("action"), "reboot");

    node.run("pcs stonith fence compute-2").ok();
    let seen = scene.responder.seen();
    let mut plugs: Vec<_> = seen[1..]
        .iter()
        .map(|request| request.text("target_node"))
        .collect();
    plugs.sort_unstable();
    assert_eq!(plugs, ["psu-a", "psu-b"]);
    for request in &seen[1..] {
        assert_eq!(
            request.text("action"),
            "off",
            "one supply alone would keep the node alive"
        );
        assert_eq!(
            audit::statuses(node, request.text("request_id")),
            ["requested", "completed"]
        );
    }
}

/// Each waits until /run/go is there.
const GATED: &str = "state_dir = \"/run/state\"\n[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\n\
                     exec = [\"/bin/sh\", \"-c\", \"until [ -e /run/go ]; do sleep 0.05; done\"]\n";

#[test]
fn several_nodes_of_one_device_are_fenced_at_the_same_time() {
    let cluster = Cluster::start(1);
    let node = cluster.first();
    let spool = Spool::create(node);
    fs::write(node.file("/run/responder.toml"), GATED).unwrap();
    node.run("setsid fence_recorder responder --config /run/responder.toml >/dev/null 2>/run/responder.log </dev/null &")
        .ok();
    wait::until_true("the responder serves", || {
        spool.requests.join(".responder.json").exists()
    });
    node.run("pcs property set concurrent-fencing=true").ok();
    node.run("pcs stonith create recorder fence_recorder pcmk_host_list='compute-1 compute-2' pcmk_action_limit=-1").ok();
    cluster.wait_started("recorder");
    for target in ["compute-1", "compute-2"] {
        node.run(&format!(
            "setsid sh -c 'stonith_admin --fence {target}; echo $? >/run/{target}' >/dev/null 2>&1 </dev/null &"
        ))
        .ok();
    }
    let claimed = || fs::read_dir(spool.requests.join(".claimed")).map_or(0, Iterator::count);
    wait::until_true("both are worked on at once", || claimed() == 2);
    fs::write(node.file("/run/go"), "").unwrap();
    for target in ["compute-1", "compute-2"] {
        let code = wait::until("a fence to end", || {
            let code = fs::read_to_string(node.file(&format!("/run/{target}"))).ok()?;
            (!code.is_empty()).then_some(code)
        });
        assert_eq!(code, "0\n", "{target}");
    }
}

/// Starts the cluster again on a node that stopped it when it heard that it was fenced.
fn start_again(node: &Node) {
    // the node's first process reaps nobody
    let lives = "ps -C pacemakerd,corosync -o stat= | grep -qv Z";
    wait::until_true("the cluster to stop there", || !node.run(lives).success);
    node.run("setsid corosync -f >/dev/null 2>&1 </dev/null &")
        .ok();
    wait::until_true("corosync", || node.run("corosync-cfgtool -s").success);
    node.run(
        "PCMK_logfile=/var/log/pacemaker.log PCMK_logfacility=none \
         setsid pacemakerd >/dev/null 2>&1 </dev/null &",
    )
    .ok();
}

/// A node can't unfence itself, so there are two with a spool, and each is let in by the other.
#[test]
fn a_node_is_unfenced_before_it_may_run_anything_and_again_after_each_fence() {
    let cluster = Cluster::start(2);
    let (n1, n2) = (cluster.node("n1"), cluster.node("n2"));
    let spools = [n1, n2].map(Spool::create);
    n1.run(
        "pcs stonith create recorder fence_recorder pcmk_host_list='n1 n2' request_on=1 \
         pcmk_action_limit=-1 meta provides=unfencing",
    )
    .ok();
    n1.run("pcs resource create work ocf:pacemaker:Dummy").ok();
    n1.run("pcs constraint location work avoids n1").ok();
    wait::until_true("on is asked for", || {
        let waiting = spools[0].pending();
        waiting.iter().any(|name| name.starts_with("n2-"))
    });
    let runs = || {
        let located = n1.run("crm_resource --locate --resource work").stdout;
        located.contains("n2")
    };
    assert!(!runs(), "nothing runs on a node that is still fenced");

    let responders = spools
        .each_ref()
        .map(|spool| Responder::start(spool, Answer::Success));
    wait::until_true("n2 to work", runs);
    let on_of_n2 = || {
        let seen = responders[0].seen();
        let is_it = |request: &&Request| {
            request.text("action") == "on" && request.text("target_node") == "n2"
        };
        seen.iter().filter(is_it).count()
    };
    let before = on_of_n2();
    assert!(before > 0);

    n1.run("stonith_admin --fence n2 --timeout 60").ok();
    start_again(n2);
    wait::until_true("on is asked for again", || on_of_n2() > before);
    wait::until_true("n2 to work again", runs);
}
