//! A node dies in a cluster of three, and only one of the others has the spool.

use std::time::{Duration, Instant};

use crate::audit;
use crate::cluster::Cluster;
use crate::report;
use crate::responder::{Answer, Responder};
use crate::spool::{self, Spool};
use crate::wait;

/// Far above the milliseconds that failing takes, far below any timeout.
const FAST: Duration = Duration::from_secs(1);

#[test]
fn a_dead_node_is_fenced_through_the_spool_of_another() {
    let mut cluster = Cluster::start(3);
    let spool = Spool::create(cluster.node("n1"));
    let responder = Responder::start(&spool, Answer::Success);
    create_device_preferring(&cluster, "n1");
    // The death of the leader would add an election to the time measured here.
    let victim = if cluster.leader() == "n3" { "n2" } else { "n3" };

    let died = Instant::now();
    cluster.kill(victim);
    wait_fenced(&cluster, victim);
    let fenced = died.elapsed();

    let node = cluster.node("n1");
    let down = format!("OFFLINE: [ {victim} ]");
    wait::until_true("the cluster counts the node as down", || {
        node.run("crm_mon -1").stdout.contains(&down)
    });
    let request = responder.only();
    assert_eq!(request.text("action"), "reboot");
    assert_eq!(request.text("target_node"), victim);
    assert_eq!(request.text("recorder_node"), "n1");
    let id = request.text("request_id");
    assert_eq!(audit::statuses(node, id), ["requested", "completed"]);
    assert_eq!(spool.pending(), [""; 0]);
    assert_eq!(node.log().agent_stderr(), [""; 0]);
    report::figure(&format!(
        "a dead node is fenced {:.3} s after its death, its request is there after {:.3} s",
        fenced.as_secs_f64(),
        request.seen.duration_since(died).as_secs_f64(),
    ));
}

#[test]
fn a_node_without_the_spool_fails_fast_naming_both_remedies_and_its_peer_does_the_work() {
    let mut cluster = Cluster::start(3);
    let spool = Spool::create(cluster.node("n1"));
    let responder = Responder::start(&spool, Answer::Success);
    // Pacemaker asks n2 first, where the device passed its monitor. Only then its spool goes
    // away, and the next monitor, which would notice, is an hour off.
    Spool::create(cluster.node("n2"));
    create_device_preferring(&cluster, "n2");
    cluster
        .node("n2")
        .run(&format!("rm -r {}", spool::DIR))
        .ok();

    let died = Instant::now();
    cluster.kill("n3");
    wait_fenced(&cluster, "n3");
    let fenced = died.elapsed();

    assert_eq!(responder.only().text("recorder_node"), "n1");
    assert_eq!(cluster.node("n1").log().agent_stderr(), [""; 0]);
    check_both_remedies(&cluster);
    let created = cluster.node("n2").file(spool::DIR).exists();
    assert!(!created, "the agent never creates the spool");
    report::figure(&format!(
        "a dead node is fenced {:.3} s after its death by the second node asked, \
         where the first had no spool",
        fenced.as_secs_f64(),
    ));
}

/// One device for all nodes. It runs on the given one, but that is a preference and no ban: any
/// other may be asked to fence.
fn create_device_preferring(cluster: &Cluster, node: &str) {
    let pcs = |line: &str| cluster.first().run(&format!("pcs {line}")).ok();
    // Not before the constraint is there, or it is tried where there is no spool.
    pcs(
        "stonith create recorder fence_recorder pcmk_host_list=n1,n2,n3 \
         op monitor interval=1h --disabled",
    );
    pcs(&format!("constraint location recorder prefers {node}"));
    pcs("stonith enable recorder");
    assert_eq!(cluster.wait_started("recorder"), node);
}

/// Waits until Pacemaker's history tells of the fence.
fn wait_fenced(cluster: &Cluster, victim: &str) {
    let history = format!("stonith_admin --history {victim}");
    let done = format!("reboot of {victim} successful");
    wait::until_true(&done, || {
        cluster.first().run(&history).stdout.contains(&done)
    });
}

/// Each of n2's runs told what to do in one line, and a run like Pacemaker's takes no time.
#[track_caller]
fn check_both_remedies(cluster: &Cluster) {
    let node = cluster.node("n2");
    let log = node.log();
    let told = log.agent_stderr();
    assert_eq!(told.len(), 2, "a failed agent runs twice: {told:?}");
    for line in told {
        assert!(line.contains("install -d -m 0755"), "{line}");
        assert!(line.contains("ban"), "{line}");
    }

    let started = Instant::now();
    node.run(r"printf 'action=reboot\nnodename=n3\nport=n3\n' | fence_recorder")
        .refused();
    let took = started.elapsed();
    assert!(took < FAST, "{took:?}");
    report::figure(&format!(
        "a run without a spool fails in {took:?}, the start of its namespaces' shell included"
    ));
}
