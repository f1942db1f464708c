//! Runs commands as an administrator does.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::env::{AGENT, Ended, TestEnv};
use crate::scene::{Scene, request, uuid};

/// The command with this spool in its environment, as the agent finds it.
pub fn command(env: &TestEnv, arguments: &[&str]) -> Command {
    let mut command = env.command(AGENT);
    command.args(arguments).stdin(Stdio::null());
    for (variable, name) in [
        ("NNF_FENCE_REQUEST_DIR", "requests"),
        ("NNF_FENCE_RESPONSE_DIR", "responses"),
        ("LOG_DIR", "log"),
    ] {
        command.env(variable, env.path(name));
    }
    command
}

/// Runs it to its end.
pub fn run(env: &TestEnv, arguments: &[&str]) -> Ended {
    command(env, arguments).output().unwrap().into()
}

/// What it says with `--json`.
#[track_caller]
pub fn json(env: &TestEnv, arguments: &[&str]) -> Value {
    let arguments = [arguments, &["--json"]].concat();
    let ended = run(env, &arguments);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(0), ""),
        "{ended:?}"
    );
    serde_json::from_str(&ended.stdout).unwrap()
}

/// The value of `key` in each object.
pub fn each<'a>(array: &'a Value, key: &str) -> Vec<&'a Value> {
    array
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one[key])
        .collect()
}

/// Lays a response into the spool, as old as `age` says; its id.
pub fn respond(env: &TestEnv, node: &str, success: bool, performed: &str, age: &str) -> String {
    let id = uuid();
    let content = serde_json::json!({
        "request_id": id, "success": success, "action_performed": performed, "message": "switched off",
    });
    let path = env.path(&format!("responses/{node}-{id}.json"));
    std::fs::write(&path, content.to_string()).unwrap();
    let touched = Command::new("touch").args(["-d", age]).arg(path).status();
    assert!(touched.unwrap().success());
    id
}

/// Puts a request into request_dir that nobody will answer; its id.
pub fn ask(scene: &Scene, node: &str, seconds: f64) -> String {
    let id = uuid();
    scene.request_with(&id, node, &request(&id, "off", node, seconds));
    id
}
