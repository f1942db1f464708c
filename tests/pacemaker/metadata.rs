//! What Pacemaker's tools read in the agent's metadata.

use crate::cluster::Cluster;

#[test]
fn pacemakers_tools_read_the_metadata_and_the_schema_of_fence_agents_accepts_it() {
    let cluster = Cluster::start(1);
    let node = cluster.first();

    let described = node.run("pcs stonith describe fence_recorder").ok();
    assert_eq!(described.stderr, "", "pcs complains: {described}");
    for option in ["plug", "request_dir", "response_timeout", "request_on"] {
        let line = format!("\n  {option}: ");
        assert!(described.stdout.contains(&line), "{option}: {described}");
    }
    let port = described.stdout.contains("\n  port: ");
    assert!(!port, "deprecated, not for new devices: {described}");

    node.run("crm_resource --show-metadata stonith:fence_recorder")
        .ok()
        .says("<resource-agent name=\"fence_recorder\"");

    // The controller reads the metadata without privileges whenever a device starts. What
    // crm_resource shows would not do here: Pacemaker adds actions the schema doesn't know.
    let as_controller = "setpriv --reuid=hacluster --regid=haclient --clear-groups";
    let printed = node
        .run(&format!("{as_controller} fence_recorder -o metadata"))
        .ok();
    assert_eq!(printed.stderr, "", "{printed}");
    let schema = "/usr/share/cluster/relaxng/metadata.rng";
    node.run(&format!(
        "fence_recorder -o metadata | xmllint --noout --relaxng {schema} -"
    ))
    .ok();
}
