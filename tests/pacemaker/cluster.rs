//! A real cluster: corosync and Pacemaker on every node, fencing enabled.

use std::thread;

use crate::node::Node;
use crate::switch::Switch;
use crate::{audit, configuration, tools, wait};

/// Running nodes n1, n2, ... and the network between them. Dropping it ends all of it.
pub struct Cluster {
    nodes: Vec<Node>,
    switch: Option<Switch>,
}

impl Cluster {
    /// Starts a cluster and returns when all its nodes see each other online.
    pub fn start(size: usize) -> Self {
        tools::require();
        let nodes = (1..=size).map(|number| Node::start(&format!("n{number}")));
        Self::of(nodes.collect())
    }

    /// The same, of nodes n1, n2, ... that are there already.
    pub fn of(nodes: Vec<Node>) -> Self {
        let size = nodes.len();
        // A node alone stays on its loopback.
        let switch = (size > 1).then(Switch::start);
        let mut cluster = Self { nodes, switch };
        cluster.connect();
        let corosync_conf = configuration::corosync(size);
        for node in &mut cluster.nodes {
            node.boot(&corosync_conf, configuration::CIB);
        }
        cluster.wait_online();
        cluster
    }

    fn connect(&self) {
        let Some(switch) = &self.switch else { return };
        for (index, node) in self.nodes.iter().enumerate() {
            switch.plug(node, &configuration::address(index + 1, self.nodes.len()));
        }
    }

    fn wait_online(&self) {
        let names: Vec<&str> = self.nodes.iter().map(Node::name).collect();
        let online = format!("Online: [ {} ]", names.join(" "));
        for node in &self.nodes {
            let what = format!("{} sees {online}", node.name());
            wait::until_true(&what, || node.run("crm_mon -1").stdout.contains(&online));
        }
    }

    /// The node with this name.
    pub fn node(&self, name: &str) -> &Node {
        self.nodes
            .iter()
            .find(|node| node.name() == name)
            .expect("the node is alive")
    }

    /// The only node of a cluster of one, the first of others.
    pub fn first(&self) -> &Node {
        &self.nodes[0]
    }

    /// A node dies, with everything on it at once.
    pub fn kill(&mut self, name: &str) {
        let index = self.nodes.iter().position(|node| node.name() == name);
        self.nodes.remove(index.expect("the node is alive")).kill();
    }

    /// Waits until the device runs and returns the name of its node.
    pub fn wait_started(&self, device: &str) -> String {
        let locate = format!("crm_resource --locate --resource {device}");
        wait::until(&format!("{device} runs"), || {
            let told = self.first().run(&locate).stdout;
            let (_, node) = told.split_once("is running on: ")?;
            Some(node.trim().to_owned())
        })
    }

    /// The node that leads the cluster.
    pub fn leader(&self) -> String {
        wait::until("the cluster has a leader", || {
            let answer = self.first().run("crmadmin --dc_lookup --quiet").stdout;
            Some(answer.trim().to_owned()).filter(|name| !name.is_empty())
        })
    }
}

impl Drop for Cluster {
    /// A failed test shows what its nodes know before they go.
    fn drop(&mut self) {
        if thread::panicking() {
            for node in &self.nodes {
                eprintln!(
                    "--- pacemaker.log of {}\n{}",
                    node.name(),
                    node.log().highlights()
                );
                eprintln!("--- audit of {}\n{}", node.name(), audit::text(node));
            }
        }
    }
}
