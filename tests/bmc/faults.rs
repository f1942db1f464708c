//! Redfish services that are silent, talk nonsense, or aren't there.

use std::net::TcpListener;

use serde_json::json;

use crate::job::run;
use crate::server::{Redfish, free_port};

const STATUS: &[&str] = &["power = \"status\"\ntimeout = \"2s\""];

/// What is said when what is at `path` is this.
fn fails_with(redfish: &Redfish, path: &str, answer: &serde_json::Value, words: &[&str]) {
    let mut rule = answer.clone();
    rule["path"] = path.into();
    redfish.0.knobs(&json!({"answers": [rule]}));
    run(&redfish.by_node(), &["power = \"off\""], "node1").fails(words);
}

#[test]
fn nonsense_is_told_as_such() {
    let redfish = Redfish::start();
    let system = "/redfish/v1/Systems/11111111-.*";
    let root = "/redfish/v1/";
    let body = |text: &str| json!({"body": text});
    for (path, answer, words) in [
        (
            root,
            body("<html>Welcome</html>"),
            "GET /redfish/v1/: 200 OK, and the answer can't be read",
        ),
        (root, body("{\"Systems\": {\"@odata.id\""), "can't be read"),
        (root, body("[]"), "the answer has no Systems"),
        (root, body(""), "the answer has no Systems"),
        (root, body("{\"Systems\": 5}"), "the answer has no Systems"),
        (root, json!({"pad": 5 * 1024 * 1024}), "can't be read"),
        (
            root,
            json!({"status": 503, "body": "<html>busy</html>"}),
            "503 Service Unavailable",
        ),
        (
            "/redfish/v1/Systems",
            body("{\"Members\": \"none\"}"),
            "has no Members",
        ),
        (
            "/redfish/v1/Systems",
            body("{\"Members\": []}"),
            "no system \"node1\"",
        ),
        (system, body("{\"Name\": \"node1\"}"), "has no PowerState"),
        (
            system,
            body("{\"Name\": \"node1\", \"PowerState\": 1}"),
            "has no PowerState",
        ),
        (
            system,
            body("{\"Name\": \"node1\", \"PowerState\": \"On\"}"),
            "has no ComputerSystem.Reset",
        ),
    ] {
        fails_with(&redfish, path, &answer, &[words]);
    }
    assert_eq!(redfish.changes(), [""; 0]);
}

#[test]
fn a_collection_may_have_pages() {
    let redfish = Redfish::start();
    let systems = "/redfish/v1/Systems";
    let page = json!({"Members": [], "Members@odata.nextLink": format!("{systems}/")});
    redfish
        .0
        .knobs(&json!({"answers": [{"path": systems, "body": page.to_string()}]}));
    run(&redfish.by_node(), &["power = \"status\""], "node1").says("power is On");
    let round = json!({"Members": [], "Members@odata.nextLink": systems});
    redfish
        .0
        .knobs(&json!({"answers": [{"path": systems, "body": round.to_string()}]}));
    run(&redfish.by_node(), &["power = \"status\""], "node1").fails(&["no system \"node1\""]);
}

#[test]
fn a_bmc_that_is_busy_with_the_change_is_asked_again() {
    let redfish = Redfish::start();
    let rule = json!({"method": "POST", "path": ".*Reset", "status": 204});
    let busy = json!({"method": "GET", "path": "/redfish/v1/Systems/11111111-.*", "status": 503});
    redfish.0.knobs(&json!({"deaf": true}));
    let bmc = redfish.by_node();
    let job = std::thread::spawn(move || {
        run(
            &bmc,
            &["power = \"off\""],
            "11111111-1111-1111-1111-111111111111",
        )
    });
    crate::env::wait_for("the change to be asked for", || {
        let log = std::fs::read_to_string(redfish.0.path("requests.log")).ok()?;
        log.contains("POST").then_some(())
    });
    redfish.0.knobs(&json!({"answers": [busy, rule]}));
    redfish.0.lines("requests.log");
    crate::env::wait_for("a look that is not answered", || {
        let log = std::fs::read_to_string(redfish.0.path("requests.log")).ok()?;
        log.contains("GET").then_some(())
    });
    redfish.0.knobs(&json!({"power": "Off"}));
    job.join().unwrap().says("ForceOff: power is Off");
}

#[test]
fn a_bmc_that_is_silent_is_told_from_one_that_is_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let redfish = Redfish::start();
    let bmc = |port: u16| {
        redfish
            .by_node()
            .replace(&redfish.0.port.to_string(), &port.to_string())
    };
    let silent = bmc(listener.local_addr().unwrap().port());
    run(&silent, STATUS, "node1").fails(&["GET /redfish/v1/: no answer within 1."]);
    let closed = bmc(free_port());
    run(&closed, STATUS, "node1").fails(&["GET /redfish/v1/: ", "Connection refused"]);
    redfish
        .0
        .knobs(&json!({"answers": [{"path": "/redfish/v1/", "delay": 4}]}));
    run(&redfish.by_node(), STATUS, "node1").fails(&["GET /redfish/v1/: no answer within 1."]);
}
