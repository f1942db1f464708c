//! The shell responder in README.md answers the agent, and its configuration is right, as they stand.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

struct Responder {
    directory: TempDir,
    process: Child,
}

impl Responder {
    /// Runs README's script; `fence_node` is what it calls for each request.
    fn start(fence_node: &str) -> Self {
        let readme = include_str!("../../README.md");
        let script = readme
            .split("```bash\n")
            .nth(1)
            .unwrap()
            .split("```")
            .next()
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        for name in ["requests", "responses"] {
            fs::create_dir(directory.path().join(name)).unwrap();
            fs::set_permissions(
                directory.path().join(name),
                fs::Permissions::from_mode(0o755),
            )
            .unwrap();
        }
        let executable = directory.path().join("fence-node");
        fs::write(&executable, fence_node).unwrap();
        fs::set_permissions(&executable, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(has("jq"), "jq is missing: apt-get install jq");
        let process = Command::new("bash")
            .args(["-c", script])
            .env("REQUESTS", directory.path().join("requests"))
            .env("RESPONSES", directory.path().join("responses"))
            .env("FENCE_NODE", executable)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { directory, process }
    }

    fn fence(&self, action: &str, node: &str) -> Output {
        let path = |name: &str| self.directory.path().join(name);
        Command::new(env!("CARGO_BIN_EXE_fence_recorder"))
            .args(["-o", action, "-n", node, "--response-timeout", "20"])
            .arg("--request-dir")
            .arg(path("requests"))
            .arg("--response-dir")
            .arg(path("responses"))
            .arg("--log-dir")
            .arg(path("log"))
            .output()
            .unwrap()
    }

    fn files_in(&self, name: &str) -> usize {
        fs::read_dir(self.directory.path().join(name))
            .unwrap()
            .count()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn has(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .any(|folder| Path::new(&folder).join(program).exists())
}

#[test]
fn the_script_answers_success_with_the_action_and_node_it_was_asked_for() {
    let responder = Responder::start(
        "#!/bin/sh\n[ \"$1\" = reboot ] && [ \"$2\" = 'node 1' ] && echo \"was \\\"$2\\\"\"\n",
    );
    let output = responder.fence("reboot", "node 1");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "Success: Rebooted\n"
    );
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        (
            responder.files_in("requests"),
            responder.files_in("responses")
        ),
        (0, 1)
    );
    assert_eq!(
        responder.fence("status", "node 1").status.code(),
        Some(0),
        "a reboot leaves it on"
    );
}

#[test]
fn the_script_answers_failure_with_the_reason() {
    let responder = Responder::start("#!/bin/sh\necho 'no such node' >&2\nexit 1\n");
    let output = responder.fence("off", "n1");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "fence_recorder: off of n1 failed: refused by the responder: no such node\n"
    );
}

/// What `--check-config` says of README's configuration `number`, with these texts in place of what is
/// the reader's own.
fn told(number: usize, own: &[(&str, &str)]) -> String {
    let readme = include_str!("../../README.md");
    let block = readme.split("```toml\n").nth(number).unwrap();
    let mut text = block.split("```").next().unwrap().to_owned();
    for (from, to) in own {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("responder.toml");
    fs::write(&file, text).unwrap();
    let checked = Command::new(env!("CARGO_BIN_EXE_fence_recorder"))
        .args(["responder", "--check-config", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&checked.stderr), "");
    String::from_utf8(checked.stdout).unwrap()
}

#[test]
fn the_configuration_is_right_but_for_the_programs_that_are_the_readers_to_write() {
    let said = told(
        1,
        &[
            ("/usr/local/sbin/detach", "/bin/true"),
            ("/usr/local/sbin/page-oncall", "/bin/true"),
        ],
    );
    assert!(said.contains("fence_ipmilan action=off"), "{said}");
    assert!(said.contains("waits for a person"), "{said}");
}

#[test]
fn the_configuration_of_bmcs_is_right_but_for_the_authority_that_is_the_readers_own() {
    let said = told(2, &[("ca_file = \"/etc/pki/bmc-ca.pem\"\n", "")]);
    assert!(said.contains("boot once from pxe (UEFI)"), "{said}");
}
