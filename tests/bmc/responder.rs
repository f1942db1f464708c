//! The responder's jobs through BMCs.

use serde_json::{Value, json};

use crate::scene::{Scene, reason_of};
use crate::server::{Ipmi, PASSWORD, Redfish, example};

fn off_rule() -> &'static str {
    "[defaults]\nretry_count = 2\nretry_interval = \"10ms\"\ntimeout = \"25s\"\n\
     [[rule]]\nnodes = [\"*\"]\nactions = [\"off\"]\n[[rule.task]]\npower = \"off\"\n"
}

#[test]
fn a_request_ends_with_the_machine_off() {
    let redfish = Redfish::start();
    let scene = Scene::new(&(redfish.by_node() + off_rule()));
    let (answer, job) = scene.run("off", "node1");
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(answer["message"], "ForceOff: power is Off");
    assert_eq!(reason_of(&job), "Completed");
    assert_eq!(redfish.power("node1"), "Off");
    let (answer, _) = scene.run("off", "node1");
    assert_eq!(answer["message"], "power is Off already");
}

#[test]
fn what_the_bmc_refuses_is_no_success() {
    let redfish = Redfish::start();
    redfish.0.knobs(&json!({"refuse": ["ForceOff"]}));
    let scene = Scene::new(&(redfish.by_node() + off_rule()));
    let (answer, job) = scene.run("off", "node1");
    assert_eq!(answer["success"], false);
    let message = answer["message"].as_str().unwrap();
    assert!(
        message.contains("failed after 2 attempts: POST"),
        "{message}"
    );
    assert!(message.contains("501"), "{message}");
    assert_eq!(reason_of(&job), "TaskFailed");
    assert_eq!(redfish.changes().len(), 2);
}

#[test]
fn insecure_is_logged_at_each_attempt_and_no_secret_is() {
    let redfish = Redfish::start();
    redfish.0.knobs(&json!({"refuse": ["ForceOff"]}));
    let bmc = redfish.bmc("system = \"{node}\"\ninsecure = true");
    let scene = Scene::new(&(bmc + off_rule()));
    let (_, job) = scene.run("off", "node1");
    let log = scene.log();
    assert_eq!(
        log.matches("no certificate is verified").count(),
        2,
        "{log}"
    );
    assert!(!log.contains(PASSWORD) && !job.to_string().contains(PASSWORD));
}

#[test]
fn an_odd_node_or_one_without_a_bmc_fails_before_any_task() {
    let redfish = Redfish::start();
    let bmc = redfish.by_node().replace("\"*\"", "\"n*\"");
    let scene = Scene::new(&(bmc + off_rule()));
    for (node, words) in [
        ("n@evil.example", "can't be put into a value"),
        ("other", "no [[bmc]] has the node other"),
    ] {
        let (answer, job) = scene.run("off", node);
        assert_eq!(answer["success"], false);
        assert_eq!(reason_of(&job), "Refused");
        assert!(
            answer["message"].as_str().unwrap().contains(words),
            "{answer}"
        );
    }
    assert_eq!(redfish.0.lines("requests.log"), [""; 0]);
}

#[test]
fn twenty_nodes_are_switched_off_at_once() {
    let redfish = Redfish::start();
    let scene = Scene::new(&(redfish.by_node() + off_rule()));
    let nodes: Vec<_> = (0..20).map(|number| format!("many{number}")).collect();
    let ids: Vec<_> = nodes
        .iter()
        .map(|node| scene.request("off", node, 60.0))
        .collect();
    for (node, id) in nodes.iter().zip(&ids) {
        let answer = scene.answer(node, id);
        assert_eq!(answer["success"], true, "{answer}");
    }
    for node in &nodes {
        assert_eq!(redfish.power(node), "Off", "{node}");
    }
    assert_eq!(redfish.power("node1"), "On");
}

#[test]
fn the_example_reboots_into_the_network_and_switches_off_and_on() {
    let (redfish, ipmi) = (Redfish::start(), Ipmi::start_pyghmi());
    redfish
        .0
        .knobs(&json!({"boot": {"BootSourceOverrideEnabled": "Once"}}));
    let scene = Scene::new(&example(
        redfish.0.port,
        ipmi.server.port,
        redfish.0.directory.path(),
    ));
    let succeeds = |action: &str, node: &str| -> Value {
        let (answer, job) = scene.run(action, node);
        assert_eq!(answer["success"], true, "{answer}");
        job
    };
    let job = succeeds("reboot", "compute-1");
    assert_eq!(job["tasks"].as_array().unwrap().len(), 3);
    assert_eq!(redfish.power("node1"), "On");
    assert_eq!(
        redfish.system("node1")["Boot"]["BootSourceOverrideTarget"],
        "Pxe"
    );
    succeeds("off", "compute-1");
    assert_eq!(redfish.power("node1"), "Off");
    succeeds("on", "compute-1");
    assert_eq!(redfish.power("node1"), "On");
    succeeds("reboot", "login-1");
    assert_eq!(ipmi.changes(), ["off", "on"]);
    succeeds("off", "login-1");
    assert_eq!(ipmi.power(), "off");
}
