//! What the machine must have, and the packages it comes in.

use std::env;
use std::path::Path;

/// A program or file each package is known by.
const NEEDED: [(&str, &str); 12] = [
    ("corosync", "corosync"),
    ("pacemakerd", "pacemaker"),
    ("crm_mon", "pacemaker-cli-utils"),
    ("stonith_admin", "pacemaker-cli-utils"),
    ("pcs", "pcs"),
    ("xmllint", "libxml2-utils"),
    ("/usr/share/cluster/relaxng/metadata.rng", "fence-agents"),
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    ("hostname", "hostname"),
];

/// The nodes' search path, which is not the caller's.
pub const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Panics with the packages to install if anything is missing: a test that skips proves nothing.
pub fn require() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "a cluster in namespaces needs root"
    );
    let mut missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(thing, _)| !is_there(thing))
        .map(|(_, package)| *package)
        .collect();
    missing.dedup();
    assert!(
        missing.is_empty(),
        "missing packages: apt-get install {}",
        missing.join(" ")
    );
}

/// An absolute path is looked at; a plain name is looked for in [`PATH`].
fn is_there(thing: &str) -> bool {
    env::split_paths(PATH).any(|dir| dir.join(Path::new(thing)).exists())
}
