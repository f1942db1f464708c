//! What most tests begin with: a cluster of one, a spool, a responder and a device.

use crate::cluster::Cluster;
use crate::node::Node;
use crate::responder::{Answer, Responder};
use crate::spool::Spool;

/// One node whose device `recorder` writes to a spool that a responder serves.
pub struct Scene {
    pub spool: Spool,
    pub responder: Responder,
    cluster: Cluster,
}

impl Scene {
    /// Sets it up; `options` are the device's, as `pcs stonith create` takes them.
    pub fn set(answer: Answer, options: &str) -> Self {
        let cluster = Cluster::start(1);
        let spool = Spool::create(cluster.first());
        let responder = Responder::start(&spool, answer);
        let create = format!("pcs stonith create recorder fence_recorder {options}");
        cluster.first().run(&create).ok();
        cluster.wait_started("recorder");
        Self {
            spool,
            responder,
            cluster,
        }
    }

    pub fn node(&self) -> &Node {
        self.cluster.first()
    }
}
