//! The systemd unit and the default configuration that come with the responder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::env::{AGENT, TestEnv};

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("packaging")
        .join(name)
}

#[test]
fn systemd_finds_no_fault_in_the_unit() {
    let env = TestEnv::new();
    let unit = fs::read_to_string(packaging("systemd/fence_recorder-responder.service")).unwrap();
    let copy = env.path("fence_recorder-responder.service");
    // verify looks for the program, which is not installed here
    fs::write(&copy, unit.replace("/usr/sbin/fence_recorder", AGENT)).unwrap();
    let verify = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&copy)
        .output()
        .expect("systemd-analyze is missing: apt-get install systemd");
    let said = String::from_utf8(verify.stderr).unwrap();
    let own: Vec<_> = said
        .lines()
        .filter(|line| line.contains("fence_recorder"))
        .collect();
    assert!(verify.status.success() && own.is_empty(), "{said}");
}

#[test]
fn a_fault_in_the_unit_would_be_found() {
    let env = TestEnv::new();
    let copy = env.path("fence_recorder-responder.service");
    fs::write(
        &copy,
        "[Service]\nType=notify\nExecStart=/nowhere/fence_recorder\nKillMode=mixt\n",
    )
    .unwrap();
    let verify = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&copy)
        .output()
        .unwrap();
    let said = String::from_utf8(verify.stderr).unwrap();
    let faults = ["kill mode", "/nowhere/fence_recorder"];
    assert!(faults.iter().all(|fault| said.contains(fault)), "{said}");
}

#[test]
fn the_unit_stops_later_than_the_responder_needs() {
    let unit = fs::read_to_string(packaging("systemd/fence_recorder-responder.service")).unwrap();
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("TimeoutStopSec="));
    let seconds: u64 = line.unwrap().parse().unwrap();
    let stop_grace = 30;
    assert!(seconds >= stop_grace + 10);
}

#[test]
fn the_default_configuration_is_right() {
    let checked = Command::new(AGENT)
        .args(["responder", "--check-config", "--config"])
        .arg(packaging("responder.toml"))
        .output()
        .unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(
        checked.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
    assert!(
        said.contains("response_timeout=605") && said.contains("stonith-timeout=625"),
        "{said}"
    );
}
