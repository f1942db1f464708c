//! The logs are rotated while agents write, and no line is lost.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const AGENT: &str = env!("CARGO_BIN_EXE_fence_recorder");

#[test]
fn a_rotation_while_agents_write_loses_no_line() {
    const ROUNDS: usize = 20;
    const AGENTS: usize = 10;
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("log");
    fs::create_dir(&logs).unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/logrotate/fence_recorder");
    let shipped = fs::read_to_string(shipped).unwrap();
    assert!(!shipped.contains("copytruncate"));
    let configuration = directory.path().join("logrotate.conf");
    fs::write(
        &configuration,
        shipped.replace("/var/log/cluster", &logs.display().to_string()),
    )
    .unwrap();
    for _ in 0..ROUNDS {
        // without a spool each fails at once, and records that
        let agents: Vec<_> = (0..AGENTS)
            .map(|number| {
                Command::new(AGENT)
                    .args([
                        "-o",
                        "off",
                        "-n",
                        &format!("n{number}"),
                        "--request-dir",
                        "/no/requests",
                    ])
                    .args(["--response-dir", "/no/responses", "--log-dir"])
                    .arg(&logs)
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let rotated = Command::new("logrotate")
            .args(["--force", "--state"])
            .arg(directory.path().join("state"))
            .arg(&configuration)
            .output()
            .expect("logrotate is missing: apt-get install logrotate");
        assert!(
            rotated.status.success(),
            "{}",
            String::from_utf8_lossy(&rotated.stderr)
        );
        for mut agent in agents {
            agent.wait().unwrap();
        }
    }
    let compressed = fs::read_dir(&logs).unwrap().filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .path()
            .extension()
            .is_some_and(|end| end == "gz")
    });
    assert!(compressed.count() > 10);
    let told = Command::new(AGENT)
        .args(["history", "--json", "--log-dir"])
        .arg(&logs)
        .output()
        .unwrap();
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told.as_array().unwrap().len(), ROUNDS * AGENTS);
}
