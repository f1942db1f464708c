//! Power and boot devices over Redfish.

use serde_json::json;

use crate::job::run;
use crate::server::{PASSWORD, Redfish, nothing_odd};

const OFF: &str = "power = \"off\"";
const ON: &str = "power = \"on\"";
const CYCLE: &str = "power = \"cycle\"";
const RESET: &str = "power = \"reset\"";

/// What is asked of a system's power.
fn posts(redfish: &Redfish) -> usize {
    let changes = redfish.changes();
    let is_reset = |line: &&String| line.ends_with("ComputerSystem.Reset");
    changes.iter().filter(is_reset).count()
}

#[test]
fn power_is_changed_and_seen_and_asked_for_once() {
    let redfish = Redfish::start();
    let bmc = redfish.by_node();
    run(&bmc, &["power = \"status\""], "node1").says("power is On");
    run(&bmc, &[OFF], "node1").says("ForceOff: power is Off");
    assert_eq!(redfish.power("node1"), "Off");
    assert_eq!(posts(&redfish), 1);
    run(&bmc, &[OFF], "node1").says("power is Off already");
    run(&bmc, &["power = \"soft\""], "node1").says("power is Off already");
    assert_eq!(posts(&redfish), 0);
    run(&bmc, &["power = \"status\""], "node1").says("power is Off");
    run(&bmc, &[ON], "node1").says("On: power is On");
    assert_eq!(
        (redfish.power("node1"), posts(&redfish)),
        ("On".to_owned(), 1)
    );
    run(&bmc, &[ON], "node1").says("power is On already");
    assert_eq!(posts(&redfish), 0);
    run(&bmc, &["power = \"soft\""], "node1").says("GracefulShutdown: power is Off");
    assert_eq!(redfish.power("node1"), "Off");
    assert_eq!(redfish.power("node2"), "On", "another system");
}

#[test]
fn a_reset_is_seen_going_off_and_on() {
    let redfish = Redfish::start();
    let bmc = redfish.by_node();
    run(&bmc, &[RESET], "node1").says("ForceRestart: restarted, power is On");
    assert_eq!(posts(&redfish), 1);
    run(&bmc, &[OFF], "node1").says("Off");
    run(&bmc, &[RESET], "node1").says("power was off; On: power is On");
    assert_eq!(redfish.power("node1"), "On");
}

#[test]
fn a_reset_that_is_too_short_to_be_seen_is_known_by_its_time() {
    let redfish = Redfish::start();
    redfish.0.knobs(&json!({"reset_time": true}));
    run(&redfish.by_node(), &[RESET], "node1").says("ForceRestart: restarted");
}

#[test]
fn a_reset_that_nothing_shows_is_not_verified() {
    let redfish = Redfish::start();
    redfish.0.knobs(&json!({"deaf": true}));
    let words = ["ForceRestart was accepted", "not verified", "power is On"];
    run(&redfish.by_node(), &[RESET], "node1").fails(&words);
}

#[test]
fn a_cycle_is_one_step_where_the_machine_allows_it_and_two_where_not() {
    let redfish = Redfish::start();
    let bmc = redfish.by_node();
    run(&bmc, &[CYCLE], "node1").says("ForceOff: power is Off; On: power is On");
    assert_eq!(posts(&redfish), 2);
    redfish
        .0
        .knobs(&json!({"allow": ["On", "ForceOff", "PowerCycle"]}));
    run(&bmc, &[CYCLE], "node1").says("PowerCycle: restarted, power is On");
    assert_eq!(posts(&redfish), 1);
}

#[test]
fn only_what_the_machine_allows_is_asked_for() {
    let redfish = Redfish::start();
    redfish
        .0
        .knobs(&json!({"allow": ["ForceOn", "GracefulShutdown"]}));
    let bmc = redfish.by_node();
    let words = ["the machine takes no reset ForceOff, only ForceOn, GracefulShutdown"];
    run(&bmc, &[OFF], "node1").fails(&words);
    assert_eq!(redfish.changes(), [""; 0]);
    run(&bmc, &["power = \"soft\""], "node1").says("GracefulShutdown: power is Off");
    run(&bmc, &[ON], "node1").says("ForceOn: power is On");
}

#[test]
fn what_is_refused_has_failed_with_the_reason() {
    let redfish = Redfish::start();
    redfish.0.knobs(&json!({"refuse": ["ForceOff"]}));
    let words = [
        "POST /redfish/v1/Systems/",
        "ComputerSystem.Reset: 501",
        "ForceOff is not supported",
    ];
    run(&redfish.by_node(), &[OFF], "node1").fails(&words);
    assert_eq!(redfish.power("node1"), "On");
}

#[test]
fn a_501_is_no_success_here_though_fence_redfish_calls_it_one() {
    let redfish = Redfish::start();
    let system = "--systems-uri=/redfish/v1/Systems/11111111-1111-1111-1111-111111111111";
    let theirs = std::process::Command::new("fence_redfish")
        .args([
            "-o",
            "diag",
            "-a",
            "127.0.0.1",
            "--ssl-insecure",
            system,
            "-u",
        ])
        .arg(redfish.0.port.to_string())
        .args(["-l", "admin", "-p", PASSWORD])
        .output()
        .expect("fence_redfish is missing: run ./tests/run first");
    let theirs = crate::env::Ended::from(theirs);
    let output = std::fs::read_to_string(redfish.0.path("output")).unwrap();
    assert!(output.contains("\" 501 -"), "{output}");
    println!("fence_redfish after a 501: {theirs:?}");
    assert_eq!(theirs.code, Some(0), "{theirs:?}");
    redfish.0.knobs(&json!({"refuse": ["ForceOff"]}));
    let ours = run(&redfish.by_node(), &[OFF], "node1");
    println!("ours: {}", ours.message(0));
    ours.fails(&["501"]);
}

#[test]
fn what_is_accepted_and_not_done_has_failed_with_the_reason() {
    let redfish = Redfish::start();
    redfish.0.knobs(&json!({"deaf": true}));
    let bmc = redfish.by_node();
    run(&bmc, &[OFF], "node1").fails(&["ForceOff was accepted, but power is On"]);
    redfish
        .0
        .knobs(&json!({"deaf": true, "power": "PoweringOff"}));
    run(&bmc, &[OFF], "node1").fails(&["ForceOff was accepted, but power is PoweringOff"]);
}

#[test]
fn a_boot_device_is_set_and_read_back() {
    let redfish = Redfish::start();
    let bmc = redfish.by_node();
    for (device, target) in [
        ("pxe", "Pxe"),
        ("disk", "Hdd"),
        ("bios", "BiosSetup"),
        ("cdrom", "Cd"),
    ] {
        for (efi, mode) in [(true, "UEFI"), (false, "Legacy")] {
            let task = format!("boot_device = \"{device}\"\nefi = {efi}");
            let words = format!(
                "boots from {target} ({mode}); warning: the BMC shows it as Continuous, not Once"
            );
            run(&bmc, &[&task], "node1").says(&words);
            let boot = &redfish.system("node1")["Boot"];
            assert_eq!(boot["BootSourceOverrideTarget"], target);
            assert_eq!(boot["BootSourceOverrideMode"], mode);
        }
    }
    redfish
        .0
        .knobs(&json!({"boot": {"BootSourceOverrideEnabled": "Once"}}));
    run(&bmc, &["boot_device = \"pxe\""], "node1").says("boots once from Pxe (Legacy)");
}

#[test]
fn a_boot_device_that_is_not_shown_has_failed() {
    let redfish = Redfish::start();
    let bmc = redfish.by_node();
    let task = "boot_device = \"pxe\"\nefi = true";
    redfish.0.knobs(&json!({"ignore_boot": true}));
    let words = ["accepted BootSourceOverrideTarget Pxe, and shows Hdd"];
    run(&bmc, &[task], "node1").fails(&words);
    redfish
        .0
        .knobs(&json!({"boot": {"BootSourceOverrideMode": "Legacy"}}));
    let words = ["accepted BootSourceOverrideMode UEFI, and shows Legacy"];
    run(&bmc, &[task], "node1").fails(&words);
    redfish
        .0
        .knobs(&json!({"boot": {"BootSourceOverrideEnabled": "Disabled"}}));
    let words = "boots from Pxe (UEFI); warning: the BMC shows it as Disabled, not Once";
    run(&bmc, &[task], "node1").says(words);
}

#[test]
fn a_task_of_the_bmc_is_followed_to_its_end() {
    let redfish = Redfish::start();
    let bmc = redfish.by_node();
    redfish.0.knobs(&json!({"task": "Completed"}));
    run(&bmc, &[OFF], "node1").says("ForceOff: power is Off");
    redfish.0.knobs(&json!({"task": "Exception"}));
    let words = ["the BMC's task ended Exception: it burns"];
    run(&bmc, &[ON], "node1").fails(&words);
    redfish.0.knobs(&json!({"task": "Suspended"}));
    run(&bmc, &[OFF], "node1").fails(&["the BMC's task", "is Suspended"]);
}

#[test]
fn rufios_job_leaves_the_machine_on_and_set_to_boot_from_the_network() {
    let redfish = Redfish::start();
    redfish
        .0
        .knobs(&json!({"boot": {"BootSourceOverrideEnabled": "Once"}}));
    let tasks = [OFF, "boot_device = \"pxe\"\nefi = true", ON];
    let outcome = run(&redfish.by_node(), &tasks, "node1");
    outcome.says("On: power is On");
    println!("rufio's job on Redfish: {:#}", outcome.job);
    let system = redfish.system("node1");
    println!("curl: {} {}", system["PowerState"], system["Boot"]);
    assert_eq!(system["PowerState"], "On");
    assert_eq!(system["Boot"]["BootSourceOverrideTarget"], "Pxe");
    let resets = redfish.changes();
    assert_eq!(resets.len(), 3, "off, boot, on: {resets:?}");
}

#[test]
fn the_system_is_found_by_id_uuid_or_name_and_never_by_its_place() {
    let redfish = Redfish::start();
    let bmc = |system: &str| redfish.bmc(&format!("{}\n{system}", redfish.authority()));
    let uuid = "22222222-2222-2222-2222-222222222222";
    let status = &["power = \"status\""];
    for name in [uuid, "node2"] {
        run(&bmc(&format!("system = \"{name}\"")), &[OFF], "any").says("Off");
        assert_eq!(redfish.power("node2"), "Off");
        run(&bmc(&format!("system = \"{name}\"")), &[ON], "any").says("On");
    }
    run(&bmc(""), status, "any").fails(&["the BMC has 24 systems: name one with system ="]);
    let twin = bmc("system = \"twin\"");
    run(&twin, status, "any").fails(&["2 systems of the BMC are called \"twin\""]);
    let none = bmc("system = \"none\"");
    run(&none, status, "any").fails(&["the BMC has no system \"none\""]);
    redfish.0.knobs(&nothing_odd());
}

#[test]
fn a_session_is_opened_where_a_password_is_not_taken_and_closed_again() {
    let redfish = Redfish::start();
    redfish.0.knobs(&json!({"session": true}));
    run(&redfish.by_node(), &["power = \"status\""], "node1").says("power is On");
    let changes = redfish.changes();
    let sessions = "/redfish/v1/SessionService/Sessions";
    assert_eq!(
        changes,
        [format!("POST {sessions}"), format!("DELETE {sessions}/1")]
    );
    std::fs::write(redfish.0.path("password"), "wrong\n").unwrap();
    let words = ["POST /redfish/v1/SessionService/Sessions: 401"];
    run(&redfish.by_node(), &["power = \"status\""], "node1").fails(&words);
}
