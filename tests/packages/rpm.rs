//! The RPM on a clean machine.

use std::fs;

use crate::built::rpm as package;
use crate::root::{files, start};

#[test]
fn the_rpm_installs_upgrades_with_its_configuration_and_leaves_nothing() {
    let version = env!("CARGO_PKG_VERSION");
    let node = start();
    // rpm itself is this machine's: the clean root has none
    let rpm = |arguments: &[&str]| {
        let root = node.file("/").display().to_string();
        crate::built::run("rpm", &[&["--root", &root], arguments].concat())
    };
    rpm(&["--initdb"]);
    let before = files(&node);
    rpm(&["--install", "--nodeps", &package(1)]);
    node.run("fence_recorder --version").ok().says(version);
    node.run("fence_recorder responder --check-config")
        .ok()
        .says("by hand");
    let configuration = node.file("/etc/fence_recorder/responder.toml");
    let own = fs::read_to_string(&configuration).unwrap() + "# of this site\n";
    fs::write(&configuration, &own).unwrap();
    rpm(&["--upgrade", "--nodeps", &package(2)]);
    assert_eq!(
        fs::read_to_string(&configuration).unwrap(),
        own,
        "an upgrade keeps the configuration"
    );
    rpm(&["--verify", "--nodeps", "--nofiles", "fence-recorder"]);
    rpm(&["--erase", "fence-recorder"]);
    let saved =
        fs::read_to_string(node.file("/etc/fence_recorder/responder.toml.rpmsave")).unwrap();
    assert_eq!(saved, own, "what the site wrote is not lost");
    node.run("rm -r /etc/fence_recorder").ok();
    let after = files(&node);
    // these belong to an RPM system's own packages, which the clean root has not
    let shared = [
        "licenses",
        "fish",
        "fish/vendor_completions.d",
        "zsh",
        "zsh/site-functions",
    ];
    let shared = shared.map(|name| format!("/usr/share/{name} d 755"));
    let left = after
        .symmetric_difference(&before)
        .filter(|line| !shared.contains(line));
    let left: Vec<_> = left.collect();
    assert!(left.is_empty(), "{left:#?}");
}
