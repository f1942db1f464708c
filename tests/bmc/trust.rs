//! Whom a Redfish task trusts, and who gets the password.

use std::fs;
use std::io::Read;
use std::net::TcpListener;

use serde_json::json;

use crate::certificate;
use crate::env::wait_for;
use crate::job::{command, run};
use crate::server::Redfish;

const STATUS: &[&str] = &["power = \"status\""];
const SYSTEM: &str = "system = \"{node}\"";

#[test]
fn a_certificate_that_signed_itself_counts_where_it_is_named() {
    let redfish = Redfish::with(|directory| certificate::of_its_own(directory, "127.0.0.1", false));
    run(&redfish.by_node(), STATUS, "node1").says("power is On");
}

#[test]
fn a_certificate_of_another_authority_is_refused_before_the_password_is_sent() {
    let redfish = Redfish::start();
    let other = tempfile::tempdir().unwrap();
    certificate::of_an_authority(other.path());
    for ca in [
        format!("ca_file = \"{}/ca.pem\"", other.path().display()),
        format!("ca_file = \"{}/cert.pem\"", other.path().display()),
        String::new(),
    ] {
        let bmc = redfish.bmc(&format!("{SYSTEM}\n{ca}"));
        run(&bmc, STATUS, "node1").fails(&["certificate"]);
    }
    assert_eq!(redfish.0.lines("requests.log"), [""; 0]);
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    for host in ["127.0.0.2", "localhost"] {
        let redfish = Redfish::with(|directory| certificate::of_its_own(directory, host, false));
        run(&redfish.by_node(), STATUS, "node1").fails(&["certificate not valid for name"]);
        assert_eq!(redfish.0.lines("requests.log"), [""; 0]);
    }
}

#[test]
fn a_certificate_whose_time_is_over_is_refused() {
    let redfish = Redfish::with(|directory| certificate::of_its_own(directory, "127.0.0.1", true));
    run(&redfish.by_node(), STATUS, "node1").fails(&["certificate expired"]);
    assert_eq!(redfish.0.lines("requests.log"), [""; 0]);
}

#[test]
fn insecure_takes_any_certificate_and_says_so_each_time() {
    let redfish = Redfish::with(|directory| certificate::of_its_own(directory, "elsewhere", true));
    let bmc = redfish.bmc(&format!("{SYSTEM}\ninsecure = true"));
    let tasks = ["power = \"off\"", "power = \"on\""];
    let outcome = run(&bmc, &tasks, "node1");
    outcome.says("power is On");
    let said = outcome
        .ended
        .stderr
        .matches("no certificate is verified")
        .count();
    assert_eq!(said, 2, "{}", outcome.ended.stderr);
}

#[test]
fn a_wrong_password_is_told_and_never_shown() {
    let redfish = Redfish::start();
    fs::write(redfish.0.path("password"), "wrong-secret\n").unwrap();
    let outcome = run(&redfish.by_node(), &["power = \"off\""], "node1");
    outcome.fails(&["401 Unauthorized: Incorrect username or password"]);
    let all = format!("{:?}", outcome.ended);
    assert!(!all.contains("wrong-secret"), "{all}");
    assert_eq!(redfish.power("node1"), "On");
}

#[test]
fn a_message_with_the_password_in_it_is_told_without() {
    let redfish = Redfish::start();
    let body =
        json!({"error": {"@Message.ExtendedInfo": [{"Message": "user admin:s3cret may not"}]}});
    let rule =
        json!({"method": "POST", "path": ".*Reset", "status": 403, "body": body.to_string()});
    redfish.0.knobs(&json!({"answers": [rule]}));
    let words = ["403 Forbidden: user [secret] may not"];
    run(&redfish.by_node(), &["power = \"off\""], "node1").fails(&words);
}

#[test]
fn a_redirect_is_followed_within_the_host_and_nowhere_else() {
    let redfish = Redfish::start();
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let to = format!(
        "http://{}/redfish/v1/Systems",
        elsewhere.local_addr().unwrap()
    );
    let answer = |to: &str| json!({"answers": [{"path": "/redfish/v1/Systems", "status": 307, "headers": {"Location": to}}]});
    redfish.0.knobs(&answer("/redfish/v1/Systems/"));
    run(&redfish.by_node(), STATUS, "node1").says("power is On");
    let there = format!("https://127.0.0.1:{}/redfish/v1/Systems/", redfish.0.port);
    redfish.0.knobs(&answer(&there));
    run(&redfish.by_node(), STATUS, "node1").says("power is On");
    let disguised = format!("https://127.0.0.1:{}@evil.example/", redfish.0.port);
    for to in [
        to.as_str(),
        "//evil.example/",
        "https://evil.example/",
        &disguised,
        "file:///etc/passwd",
    ] {
        redfish.0.knobs(&answer(to));
        run(&redfish.by_node(), STATUS, "node1")
            .fails(&["GET /redfish/v1/Systems", "not followed"]);
    }
    assert!(elsewhere.accept().is_err(), "nobody came");
    redfish.0.knobs(&answer("/redfish/v1/Systems"));
    run(&redfish.by_node(), STATUS, "node1").fails(&["redirected again and again"]);
}

#[test]
fn a_change_is_not_sent_a_second_time_to_where_it_is_redirected() {
    let redfish = Redfish::start();
    let rule = json!({"method": "POST", "path": ".*Reset", "status": 307, "headers": {"Location": "/redfish/v1/x"}});
    redfish.0.knobs(&json!({"answers": [rule]}));
    run(&redfish.by_node(), &["power = \"off\""], "node1").fails(&["POST", "not followed"]);
    assert_eq!(redfish.changes().len(), 1);
}

#[test]
fn links_that_lead_away_are_not_followed() {
    let redfish = Redfish::start();
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let link = format!("http://{}/x", elsewhere.local_addr().unwrap());
    let body = json!({"Systems": {"@odata.id": link}}).to_string();
    redfish
        .0
        .knobs(&json!({"answers": [{"path": "/redfish/v1/", "body": body}]}));
    run(&redfish.by_node(), STATUS, "node1").fails(&["not followed"]);
    assert!(elsewhere.accept().is_err());
}

#[test]
fn no_process_has_the_password_among_its_arguments_and_none_of_ours_in_its_environment() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let redfish = Redfish::start();
    let port = listener.local_addr().unwrap().port();
    let bmc = redfish
        .by_node()
        .replace(&redfish.0.port.to_string(), &port.to_string());
    let directory = tempfile::tempdir().unwrap();
    let (mut command, _) = command(&directory, &bmc, STATUS, "node1");
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (mut connection, _) = listener.accept().unwrap();
    // the step is connected, and waits for an answer
    let group = wait_for("the step", || {
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let all = fs::read_to_string(children).ok()?;
        all.split_whitespace().next().map(str::to_owned)
    });
    for file in ["cmdline", "environ"] {
        for pid in [&group, &child.id().to_string()] {
            let text = fs::read(format!("/proc/{pid}/{file}")).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains("s3cret"), "{file}");
        }
    }
    // and it sent nothing but the start of a handshake
    let mut sent = [0; 512];
    let length = connection.read(&mut sent).unwrap();
    assert_eq!(sent[0], 22, "no TLS handshake in {length} bytes");
    drop(connection);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(1));
}
