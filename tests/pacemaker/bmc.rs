//! The whole chain with a real Redfish service at its end.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::cluster::Cluster;
use crate::server::{Redfish, example};
use crate::spool::Spool;
use crate::wait;

#[test]
fn pcs_fences_a_machine_off_and_into_the_network_through_its_bmc() {
    let cluster = Cluster::start(1);
    let node = cluster.first();
    let spool = Spool::create(node);
    let redfish = Redfish::start_beside(node.pid());
    redfish
        .0
        .knobs(&json!({"boot": {"BootSourceOverrideEnabled": "Once"}}));
    for name in ["ca.pem", "password"] {
        let copy = node.file(&format!("/run/{name}"));
        fs::copy(redfish.0.path(name), &copy).unwrap();
        fs::set_permissions(copy, Permissions::from_mode(0o600)).unwrap();
    }
    let configuration = example(redfish.0.port, 623, Path::new("/run"));
    let configuration = format!("state_dir = \"/run/state\"\n{configuration}");
    fs::write(node.file("/run/responder.toml"), configuration).unwrap();
    node.run("setsid fence_recorder responder --config /run/responder.toml >/dev/null 2>/run/responder.log </dev/null &")
        .ok();
    wait::until_true("the responder serves", || {
        spool.requests.join(".responder.json").exists()
    });
    node.run(
        "pcs stonith create recorder fence_recorder pcmk_host_list=compute-1 responder_check=1",
    )
    .ok();
    cluster.wait_started("recorder");

    node.run("pcs stonith fence compute-1 --off").ok();
    assert_eq!(redfish.power("node1"), "Off");
    assert_eq!(redfish.power("node2"), "On");

    node.run("pcs stonith fence compute-1").ok();
    let machine = redfish.system("node1");
    assert_eq!(machine["PowerState"], "On");
    assert_eq!(machine["Boot"]["BootSourceOverrideTarget"], "Pxe");
    assert_eq!(node.log().agent_stderr(), [""; 0]);
}
