//! One cluster node: its own network, mounts, processes, host name and IPC.

use std::fs;
use std::path::PathBuf;

use crate::command::{self, Ended};
use crate::log::Log;
use crate::tether::Tether;

/// What PID 1 of a node runs.
pub const INIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pacemaker/node.sh");

/// The binary under test; it is `/usr/sbin/fence_recorder` inside the nodes.
const AGENT: &str = env!("CARGO_BIN_EXE_fence_recorder");

/// A running node. Dropping it kills everything in it.
pub struct Node {
    name: String,
    tether: Tether,
    pid: u32,
}

impl Node {
    /// Makes the node's namespaces; no cluster software runs yet.
    pub fn start(name: &str) -> Self {
        Self::start_with(name, &[INIT, name, AGENT])
    }

    /// The same, with what its PID 1, a shell, is given.
    pub fn start_with(name: &str, init: &[&str]) -> Self {
        let (tether, pid) = Tether::start(
            command::plain("unshare")
                .args([
                    "--mount",
                    "--net",
                    "--uts",
                    "--ipc",
                    "--pid",
                    "--fork",
                    "--kill-child",
                ])
                .arg("sh")
                .args(init),
        );
        let pid = pid.parse().expect("the node tells its process id");
        Self {
            name: name.to_owned(),
            tether,
            pid,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id of the node's PID 1, as the test sees it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Starts corosync and Pacemaker with these configurations.
    pub fn boot(&mut self, corosync_conf: &str, cib: &str) {
        fs::write(self.file("/etc/corosync/corosync.conf"), corosync_conf).unwrap();
        fs::write(self.file("/etc/corosync/cib.xml"), cib).unwrap();
        self.tether.say("go");
    }

    /// The test's path to a file of the node, given by its absolute path there.
    pub fn file(&self, absolute: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{absolute}", self.pid))
    }

    /// Runs a shell line on the node, to its end.
    pub fn run(&self, line: &str) -> Ended {
        command::run_in(self.pid, line)
    }

    /// Pacemaker's log as it is now.
    pub fn log(&self) -> Log {
        Log::read(&self.file("/var/log/pacemaker.log"))
    }

    /// The node dies: the kernel kills all its processes at once, its network and files go too.
    pub fn kill(mut self) {
        self.tether.cut();
    }
}
