//! A machine that had nothing of this before: a clean Debian in namespaces of its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::node::{INIT, Node};

/// What `tests/run` has built.
pub fn target(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target")
        .join(name);
    assert!(
        path.exists(),
        "{} is missing: tests/run makes it",
        path.display()
    );
    path
}

/// Starts it; the packages are in its `/mnt`.
pub fn start() -> Node {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/packages/root.sh");
    target("root/complete");
    let (base, packages) = (target("root"), target("packages"));
    let (base, packages) = (base.display().to_string(), packages.display().to_string());
    Node::start_with("n1", &[script, &base, &packages, INIT, "n1"])
}

/// What others than the package keep: package managers, the cluster, the kernel.
const OTHERS: &[&str] = &[
    "/proc",
    "/sys",
    "/dev",
    "/tmp",
    "/mnt",
    "/var/lib/dpkg",
    "/var/lib/apt",
    "/var/cache",
    "/var/lib/rpm",
    "/var/log/apt",
    "/var/log/dpkg.log",
    "/var/log/pacemaker",
    "/var/log/corosync",
    "/var/lib/pacemaker",
    "/var/lib/corosync",
    "/var/lib/pcsd",
    "/etc/corosync",
    "/run",
];

/// Every file that is on it, with its type and mode, but for what is always there under other names.
pub fn files(node: &Node) -> BTreeSet<String> {
    let told = node
        .run("find / /run/fence_recorder -printf '%p %y %m\\n' 2>/dev/null || true")
        .stdout;
    let is_ours = |line: &&str| {
        let is_spool = line.starts_with("/run/fence_recorder");
        is_spool || !OTHERS.iter().any(|other| line.starts_with(other))
    };
    told.lines().filter(is_ours).map(str::to_owned).collect()
}
