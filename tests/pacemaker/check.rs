//! `check` and the commands that look back, on a real cluster set up as the README says.

use std::fs;
use std::path::Path;

use crate::cluster::Cluster;
use crate::node::Node;
use crate::spool::Spool;
use crate::wait;

const RULES: &str = "state_dir = \"/run/state\"\n[[rule]]\nnodes = [\"n*\"]\nperforms = \"off\"\n\
                     [[rule.task]]\nname = \"detach\"\nexec = [\"/bin/true\"]\n";

/// What packages would install, on this node alone.
fn install(node: &Node) {
    let rotation = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/logrotate/fence_recorder");
    fs::copy(rotation, node.file("/run/logrotate")).unwrap();
    node.run(
        "mount -t tmpfs none /etc/logrotate.d && cp /run/logrotate /etc/logrotate.d/fence_recorder",
    )
    .ok();
}

/// n1 has the spool, and what is fenced through it is n2.
fn set() -> Cluster {
    let cluster = Cluster::start(2);
    for name in ["n1", "n2"] {
        install(cluster.node(name));
    }
    let node = cluster.node("n1");
    let spool = Spool::create(node);
    fs::write(node.file("/run/responder.toml"), RULES).unwrap();
    node.run("setsid fence_recorder responder --config /run/responder.toml >/dev/null 2>/run/responder.log </dev/null &")
        .ok();
    wait::until_true("the responder serves", || {
        spool.requests.join(".responder.json").exists()
    });
    node.run(
        "pcs stonith create recorder fence_recorder pcmk_host_list='n1 n2' pcmk_action_limit=-1 \
         pcmk_reboot_retries=1 pcmk_off_retries=1 op monitor interval=60s",
    )
    .ok();
    node.run("pcs property set concurrent-fencing=true").ok();
    node.run("pcs constraint location recorder avoids n2").ok();
    cluster.wait_started("recorder");
    cluster
}

#[test]
fn a_cluster_as_the_readme_sets_it_up_is_good_on_every_node_and_what_breaks_is_found() {
    let cluster = set();
    let (n1, n2) = (cluster.node("n1"), cluster.node("n2"));
    let quiet = |node: &Node| {
        let told = node
            .run("fence_recorder check --quiet --config /run/responder.toml")
            .ok();
        assert_eq!(
            (told.stdout.as_str(), told.stderr.as_str()),
            ("", ""),
            "on {}",
            node.name()
        );
    };
    quiet(n1);
    quiet(n2);
    n1.run("pcs property set stonith-enabled=false").ok();
    n1.run("fence_recorder check --config /run/responder.toml")
        .refused()
        .says("FAIL cluster: stonith-enabled=false");
    n1.run("pcs property set stonith-enabled=true").ok();
    n1.run("pcs stonith update recorder response_timeout=60")
        .ok();
    n1.run("fence_recorder check --config /run/responder.toml")
        .refused()
        .says("Pacemaker kills it first");
    n1.run("pcs stonith update recorder response_timeout=").ok();
    quiet(n1);
}

#[test]
fn a_fence_is_read_back_and_the_node_let_in_again() {
    let cluster = set();
    let node = cluster.node("n1");
    node.run("stonith_admin --fence compute-9 --timeout 5")
        .refused();
    node.run("stonith_admin --fence n2").ok();
    node.run("fence_recorder history n2").ok().says("completed");
    node.run("fence_recorder jobs n2").ok().says("Completed");
    node.run("fence_recorder fenced").ok().says("n2");
    node.run("fence_recorder unfence n2 --yes")
        .refused()
        .says("younger than 10 s");
    node.run("fence_recorder unfence n2 --yes --force").ok();
    node.run("fence_recorder fenced")
        .ok()
        .says("no node is fenced");
    node.run("fence_recorder -o status -n n2")
        .ok()
        .says("Status: ON");
    node.run("fence_recorder history --status unfenced")
        .ok()
        .says("taken away by root");
}
