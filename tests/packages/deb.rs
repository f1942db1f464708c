//! The Debian package on a clean machine: installed, used with a real cluster, upgraded, purged.

use std::fs;

use crate::cluster::Cluster;
use crate::node::Node;
use crate::root::{files, start};
use crate::wait;

const RULE: &str = "[[rule]]\nnodes = [\"compute-*\"]\nperforms = \"off\"\n\
                    [[rule.task]]\nname = \"detach\"\nexec = [\"/bin/echo\", \"detached {node}\"]\n";

fn install(node: &Node, revision: u32) {
    let version = env!("CARGO_PKG_VERSION");
    node.run(&format!(
        "DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
         /mnt/fence-recorder_{version}-{revision}_amd64.deb"
    ))
    .ok();
}

/// Starts the responder as its unit does.
fn serve(node: &Node) -> u32 {
    node.run("mkdir -p -m 0755 /run/fence_recorder /run/fence_recorder/requests /run/fence_recorder/responses").ok();
    let started = node.run("setsid /usr/sbin/fence_recorder responder >/dev/null 2>/run/responder.log </dev/null & echo $!").ok();
    wait::until_true("the responder serves", || {
        node.file("/run/fence_recorder/requests/.responder.json")
            .exists()
    });
    started.stdout.trim().parse().unwrap()
}

#[test]
fn from_a_clean_machine_to_a_fenced_node_and_back_to_a_clean_machine() {
    let node = start();
    node.run("command -v fence_recorder").refused();
    let before = files(&node);
    install(&node, 1);
    node.run(
        "test -e /etc/systemd/system/multi-user.target.wants/fence_recorder-responder.service",
    )
    .refused();
    node.run("fence_recorder responder --check-config")
        .ok()
        .says("by hand");
    fs::write(node.file("/etc/fence_recorder/responder.toml"), RULE).unwrap();

    let cluster = Cluster::of(vec![node]);
    let node = cluster.first();
    let responder = serve(node);
    node.run(
        "pcs stonith create recorder fence_recorder pcmk_host_list='compute-1 compute-2' \
         pcmk_action_limit=-1 pcmk_reboot_retries=1 pcmk_off_retries=1 op monitor interval=60s",
    )
    .ok();
    node.run("pcs property set concurrent-fencing=true").ok();
    cluster.wait_started("recorder");
    node.run("pcs stonith fence compute-1").ok();
    node.run("fence_recorder history compute-1")
        .ok()
        .says("completed")
        .says("detached compute-1");
    node.run("fence_recorder jobs compute-1")
        .ok()
        .says("Completed");
    node.run("fence_recorder fenced").ok().says("compute-1");
    let check = node.run("fence_recorder check --quiet").ok();
    let told: Vec<_> = check
        .stdout
        .lines()
        .filter(|line| !line.starts_with(' '))
        .collect();
    // the nodes of this cluster of one are names alone
    assert!(
        told.iter()
            .all(|line| line.contains("compute-1, compute-2") || line.contains("n1: they can't")),
        "{told:?}"
    );
    node.run("fence_recorder unfence compute-1 --yes --force")
        .ok();
    node.run("fence_recorder fenced")
        .ok()
        .says("no node is fenced");

    install(node, 2);
    let kept = fs::read_to_string(node.file("/etc/fence_recorder/responder.toml")).unwrap();
    assert_eq!(kept, RULE, "an upgrade keeps the configuration");

    node.run("pcs stonith delete recorder --force").ok();
    node.run(&format!("kill {responder}")).ok();
    wait::until_true("the responder to end", || {
        // the node's first process reaps nobody
        let stat = fs::read_to_string(node.file(&format!("/proc/{responder}/stat")));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    });
    node.run("DEBIAN_FRONTEND=noninteractive apt-get purge -qq -y fence-recorder")
        .ok();
    let after = files(node);
    let left: Vec<_> = after.symmetric_difference(&before).collect();
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn a_purge_leaves_a_spool_that_somebody_else_serves() {
    let node = start();
    install(&node, 1);
    node.run("mkdir -p /run/fence_recorder/requests /run/fence_recorder/responses && \
              echo '{}' >/run/fence_recorder/responses/c1-11111111-1111-4111-8111-111111111111.json")
        .ok();
    node.run("DEBIAN_FRONTEND=noninteractive apt-get purge -qq -y fence-recorder")
        .ok();
    node.run("test -e /run/fence_recorder/responses/c1-11111111-1111-4111-8111-111111111111.json")
        .ok();
}
