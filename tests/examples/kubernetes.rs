//! The Kubernetes examples: valid, and run as the files say, as the operator's user.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::env::AGENT;
use crate::example::{path, tool};

/// The documents of a file.
fn documents(name: &str) -> Vec<Value> {
    let script =
        "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let file = path("kubernetes").join(name);
    let output = Command::new(tool("python3"))
        .args(["-c", script])
        .arg(file)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().unwrap().iter();
    all.map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_responders_objects_are_valid() {
    let checked = Command::new(tool("kubernetes-validate"))
        .arg("--strict")
        .arg(path("kubernetes/responder.yaml"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned()
        + &String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
    let kinds: Vec<_> = documents("responder.yaml")
        .iter()
        .map(|one| one["kind"].clone())
        .collect();
    assert_eq!(kinds, ["Namespace", "ServiceAccount", "DaemonSet"]);
}

#[test]
fn a_fault_in_them_would_be_found() {
    let directory = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(path("kubernetes/responder.yaml")).unwrap();
    let file = directory.path().join("responder.yaml");
    fs::write(&file, text.replace("volumeMounts:", "volumeMount:")).unwrap();
    let checked = Command::new(tool("kubernetes-validate"))
        .arg("--strict")
        .arg(file)
        .output()
        .unwrap();
    assert!(!checked.status.success());
}

/// The operator's own definition knows these fields (its v1alpha1 types).
#[test]
fn the_template_has_only_what_the_operator_knows() {
    let template = &documents("fence-agents-remediation.yaml")[0];
    assert_eq!(template["kind"], "FenceAgentsRemediationTemplate");
    assert_eq!(
        template["apiVersion"],
        "fence-agents-remediation.medik8s.io/v1alpha1"
    );
    let spec = template["spec"]["template"]["spec"].as_object().unwrap();
    let known = [
        "agent",
        "sharedparameters",
        "nodeparameters",
        "retrycount",
        "retryinterval",
        "timeout",
        "remediationStrategy",
    ];
    assert!(
        spec.keys().all(|key| known.contains(&key.as_str())),
        "{spec:?}"
    );
    let seconds = |text: &Value| {
        text.as_str()
            .unwrap()
            .trim_end_matches('s')
            .parse::<u64>()
            .unwrap()
    };
    let waits = seconds(&spec["sharedparameters"]["--response-timeout"]);
    assert!(
        waits + 5 <= seconds(&spec["timeout"]),
        "the operator kills it at its timeout"
    );
}

/// What the operator makes of the template's parameters for a node.
fn arguments(node: &str) -> Vec<String> {
    let template = &documents("fence-agents-remediation.yaml")[0];
    let parameters = template["spec"]["template"]["spec"]["sharedparameters"]
        .as_object()
        .unwrap()
        .clone();
    let one = |(name, value): (String, Value)| {
        format!(
            "{name}={}",
            value.as_str().unwrap().replace("{{.NodeName}}", node)
        )
    };
    parameters.into_iter().map(one).collect()
}

const OPERATOR: &str =
    "setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs --bounding-set -all";

/// A node of a cluster, as far as the files describe it: its /run/fence_recorder, what is mounted
/// into the containers, and the two commands of the pod. Then `line` runs as the operator.
fn on_the_node(line: &str) -> String {
    let daemon_set = documents("responder.yaml").pop().unwrap();
    let pod = &daemon_set["spec"]["template"]["spec"];
    let (init, container) = (&pod["initContainers"][0], &pod["containers"][0]);
    assert_eq!(container["securityContext"]["runAsUser"], 65532);
    assert_eq!(
        pod["volumes"][0]["hostPath"]["path"],
        container["volumeMounts"][0]["mountPath"]
    );
    let scripts = container["volumeMounts"][1]["mountPath"].as_str().unwrap();
    let variables: Vec<_> = container["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            format!(
                "{}={}",
                one["name"].as_str().unwrap(),
                one["value"].as_str().unwrap()
            )
        })
        .collect();
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (from, to) in [
        (Path::new(AGENT), "fence_recorder"),
        (&path("responder.py"), "responder.py"),
    ] {
        fs::copy(from, directory.path().join(to)).unwrap();
    }
    fs::write(
        directory.path().join("fence-node"),
        "#!/bin/sh\n[ \"$2\" != bad ] && echo \"$1 of $2\"\n",
    )
    .unwrap();
    fs::set_permissions(
        directory.path().join("fence-node"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let script = format!(
        "mount -t tmpfs -o mode=755 none /run; mkdir -p /run/fence_recorder
         mount -t tmpfs -o mode=755 none /opt; mkdir -p {scripts}; cp $DIR/responder.py $DIR/fence-node {scripts}
         mount -t tmpfs -o mode=755 none /var/log
         cp $DIR/fence_recorder /opt/agent
         {init}
         {OPERATOR} env -i PATH=/usr/bin:/bin {variables} {command} 2>/run/responder.log & responder=$!
         until grep -q serving /run/responder.log; do kill -0 $responder; done
         {OPERATOR} sh -c {line} || echo \"exit $?\"
         kill $responder; wait $responder || true; cat /run/responder.log >&2",
        init = quoted(&texts(&init["command"])),
        variables = quoted(&variables),
        command = quoted(&texts(&container["command"])),
        line = quoted(&[line.to_owned()]),
    );
    let output = Command::new("unshare")
        .args(["--mount", "timeout", "60", "sh", "-ec", &script])
        .env("DIR", directory.path())
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    String::from_utf8(output.stdout).unwrap() + &log
}

fn quoted(words: &[String]) -> String {
    let words = words
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', "'\\''")));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_operators_user_fences_through_the_daemon_sets_responder() {
    let arguments = quoted(&arguments("worker-1"));
    let told = on_the_node(&format!(
        "/opt/agent --action=reboot {arguments} && ls /run/fence_recorder/log"
    ));
    assert!(told.contains("Success: Rebooted\n"), "{told}");
    assert!(
        told.contains("reboot of worker-1: success=True reboot of worker-1"),
        "{told}"
    );
    assert!(told.contains("fence-events-detailed.jsonl"), "{told}");
    assert!(!told.contains("log_dir"), "no warning: {told}");
}

#[test]
fn a_failure_is_exit_1_for_the_operator() {
    let arguments = quoted(&arguments("bad"));
    let told = on_the_node(&format!("/opt/agent {arguments} --action=off"));
    assert!(told.contains("exit 1\n"), "{told}");
}

/// The operator's check of a template gives name and value as two words.
#[test]
fn the_operators_status_check_sees_on() {
    let words: Vec<_> = arguments("worker-1")
        .iter()
        .flat_map(|one| one.split('='))
        .map(str::to_owned)
        .collect();
    let told = on_the_node(&format!("/opt/agent --action status {}", quoted(&words)));
    assert!(
        told.contains("Status: ON\n") && !told.contains("exit"),
        "{told}"
    );
}
