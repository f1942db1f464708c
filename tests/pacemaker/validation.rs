//! Options are checked before a device is made of them.

use crate::cluster::Cluster;

#[test]
fn good_options_pass_validation_and_bad_ones_are_named_in_its_output() {
    let cluster = Cluster::start(1);
    let node = cluster.first();
    let validate = |option: &str| {
        let tool = "stonith_admin --validate --agent fence_recorder";
        node.run(&format!("{tool} --option {option}"))
    };

    validate("response_timeout=30").ok().says("succeeded");
    validate("request_dir=/srv/not/there/yet")
        .ok()
        .says("succeeded");
    validate("response_timeout=abc")
        .refused()
        .says("response_timeout")
        .says("abc");
    validate("response_timeout=0")
        .refused()
        .says("response_timeout");
    validate("poll_interval=never")
        .refused()
        .says("poll_interval")
        .says("never");
    validate("request_dir=spool/here")
        .refused()
        .says("request_dir")
        .says("spool/here");

    node.run("pcs stonith create --agent-validation bad fence_recorder response_timeout=abc")
        .refused()
        .says("Validation result from agent");
}
