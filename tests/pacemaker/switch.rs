//! The wire between the nodes: a bridge in a network namespace that nothing else is in.

use crate::command;
use crate::node::Node;
use crate::tether::Tether;

/// A bridge that exists only in its own network namespace, as do the nodes' ends of its cables:
/// the host's links never change, and two clusters can't meet.
pub struct Switch {
    tether: Tether,
}

impl Switch {
    pub fn start() -> Self {
        let bridge = "ip link add br0 type bridge && ip link set br0 up && echo ready && exec cat";
        let (tether, _) =
            Tether::start(command::plain("unshare").args(["--net", "sh", "-c", bridge]));
        Self { tether }
    }

    /// Lays a cable from the node's `eth0` to the bridge and gives the node its address.
    pub fn plug(&self, node: &Node, address: &str) {
        let port = format!("to-{}", node.name());
        let node_pid = node.pid();
        self.run(&format!(
            "ip link add {port} type veth peer name eth0 netns {node_pid}"
        ));
        self.run(&format!("ip link set {port} master br0 up"));
        node.run(&format!("ip address add {address}/24 dev eth0"))
            .ok();
        node.run("ip link set eth0 up").ok();
    }

    fn run(&self, line: &str) {
        command::run_in(self.tether.pid(), line).ok();
    }
}
