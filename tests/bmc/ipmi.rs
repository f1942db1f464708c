//! Power and boot devices over IPMI.

use std::fs;
use std::net::UdpSocket;

use serde_json::json;

use crate::job::run;
use crate::server::{Ipmi, free_port};

const OFF: &str = "power = \"off\"";
const ON: &str = "power = \"on\"";

#[test]
fn power_is_changed_and_seen_and_asked_for_once() {
    let ipmi = Ipmi::start();
    let bmc = ipmi.bmc("");
    run(&bmc, &["power = \"status\""], "n1").says("power is on");
    run(&bmc, &[OFF], "n1").says("power off: power is off");
    assert_eq!(
        (ipmi.power(), ipmi.changes()),
        ("off".to_owned(), vec!["power 0".to_owned()])
    );
    run(&bmc, &[OFF], "n1").says("power is off already");
    assert_eq!(ipmi.changes(), [""; 0]);
    run(&bmc, &[ON], "n1").says("power on: power is on");
    assert_eq!(
        (ipmi.power(), ipmi.changes()),
        ("on".to_owned(), vec!["power 1".to_owned()])
    );
    run(&bmc, &[ON], "n1").says("power is on already");
    run(&bmc, &["power = \"soft\""], "n1").says("power soft: power is off");
    assert_eq!(ipmi.power(), "off");
}

#[test]
fn a_reset_is_believed_and_says_that_it_is_not_verified() {
    let ipmi = Ipmi::start_pyghmi();
    let words =
        "power reset was accepted and power is on; not verified: IPMI shows nothing of a reset";
    run(&ipmi.bmc(""), &["power = \"reset\""], "n1").says(words);
    assert_eq!(ipmi.changes(), ["reset"]);
    run(&ipmi.bmc(""), &[OFF, "power = \"reset\""], "n1")
        .says("power was off; power on: power is on");
    assert_eq!(ipmi.changes(), ["off", "on"]);
}

#[test]
fn a_cycle_that_is_not_seen_has_failed() {
    let ipmi = Ipmi::start_pyghmi();
    let words = ["power cycle was accepted", "not verified", "power is on"];
    run(&ipmi.bmc(""), &["power = \"cycle\""], "n1").fails(&words);
    assert_eq!(ipmi.changes(), ["cycle"]);
}

#[test]
fn a_cycle_is_seen_going_off_and_on() {
    let ipmi = Ipmi::start();
    // off at the command, on again at the fourth look
    ipmi.odd(
        "if [ $1 = get ] && [ -e looks ]; then echo >>looks; [ $(wc -l <looks) -gt 3 ] && echo 1 >power; fi
         if [ $1 = set ] && [ $2 = power ] && [ $3 = 1 ]; then exit 0; fi
         if [ $1 = set ] && [ $2 = power ] && [ $3 = 0 ]; then : >looks; fi",
    );
    run(&ipmi.bmc(""), &["power = \"cycle\""], "n1").says("power cycle: restarted, power is on");
}

#[test]
fn what_is_refused_has_failed_with_the_reason() {
    let ipmi = Ipmi::start_pyghmi();
    ipmi.server.knobs(&json!({"refuse": true}));
    let bmc = ipmi.bmc("");
    run(&bmc, &[OFF], "n1").fails(&[
        "ipmitool chassis power off: ",
        "not supported in present state",
    ]);
    // it exits 0 there
    run(&bmc, &["boot_device = \"pxe\""], "n1").fails(&["ipmitool chassis bootdev pxe"]);
    assert_eq!(ipmi.power(), "on");
}

#[test]
fn what_is_accepted_and_not_done_has_failed_with_the_reason() {
    let ipmi = Ipmi::start_pyghmi();
    ipmi.server.knobs(&json!({"deaf": true}));
    let bmc = ipmi.bmc("");
    run(&bmc, &[OFF], "n1").fails(&["power off was accepted, but power is on"]);
    run(&bmc, &["boot_device = \"pxe\""], "n1")
        .fails(&["the BMC accepted pxe, and shows \"No override\""]);
}

#[test]
fn a_boot_device_is_set_for_once_and_read_back() {
    let ipmi = Ipmi::start_pyghmi();
    let bmc = ipmi.bmc("");
    for (device, shown) in [
        ("pxe", "Force PXE"),
        ("disk", "Force Boot from default Hard-Drive"),
        ("bios", "Force Boot into BIOS Setup"),
        ("cdrom", "Force Boot from CD/DVD"),
        (
            "safe",
            "Force Boot from default Hard-Drive, request Safe-Mode",
        ),
    ] {
        for (efi, mode) in [(true, "EFI"), (false, "legacy")] {
            let task = format!("boot_device = \"{device}\"\nefi = {efi}");
            run(&bmc, &[&task], "n1").says(&format!("boots once from {device} ({mode})"));
            let flags = ipmi.tool(&["chassis", "bootparam", "get", "5"]);
            assert!(flags.contains(&format!(": {shown}\n")), "{flags}");
            assert_eq!(flags.contains("BIOS EFI boot"), efi, "{flags}");
            assert!(flags.contains("only next boot"), "{flags}");
        }
    }
}

#[test]
fn a_mode_that_the_bmc_drops_has_failed() {
    let ipmi = Ipmi::start();
    let task = "boot_device = \"pxe\"\nefi = true";
    run(&ipmi.bmc(""), &[task], "n1").fails(&["the BMC accepted EFI boot, and shows legacy"]);
    run(&ipmi.bmc(""), &["boot_device = \"pxe\""], "n1").says("boots once from pxe (legacy)");
}

#[test]
fn rufios_job_leaves_the_machine_on_and_set_to_boot_from_the_network() {
    let ipmi = Ipmi::start_pyghmi();
    ipmi.server.knobs(&json!({}));
    let tasks = [OFF, "boot_device = \"pxe\"\nefi = true", ON];
    let outcome = run(&ipmi.bmc(""), &tasks, "n1");
    outcome.says("power on: power is on");
    println!("rufio's job on IPMI: {:#}", outcome.job);
    println!("ipmitool: {}", ipmi.power());
    assert_eq!(ipmi.power(), "on");
    assert_eq!(ipmi.changes(), ["off", "on"]);
}

#[test]
fn a_wrong_password_is_told_and_never_shown() {
    for ipmi in [Ipmi::start(), Ipmi::start_pyghmi()] {
        fs::write(ipmi.server.path("password"), "wrong-secret\n").unwrap();
        let outcome = run(&ipmi.bmc(""), &["power = \"off\"\ntimeout = \"30s\""], "n1");
        outcome.fails(&["ipmitool chassis power status: ", "RMCP+ session"]);
        let all = format!("{:?}", outcome.ended);
        assert!(!all.contains("wrong-secret"), "{all}");
        assert_eq!(ipmi.changes(), [""; 0]);
    }
}

#[test]
fn a_bmc_that_is_silent_or_not_there_is_told() {
    let ipmi = Ipmi::start();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    for port in [silent.local_addr().unwrap().port(), free_port()] {
        let bmc = ipmi
            .bmc("")
            .replace(&ipmi.server.port.to_string(), &port.to_string());
        let outcome = run(&bmc, &["power = \"status\"\ntimeout = \"2s\""], "n1");
        assert_eq!(outcome.ended.code, Some(1));
        let message = outcome.message(0);
        assert!(
            message.contains(&format!("no answer of the BMC 127.0.0.1:{port} yet")),
            "{message}"
        );
    }
}

#[test]
fn a_bmc_that_answers_garbage_is_none() {
    let ipmi = Ipmi::start();
    let garbage = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = garbage.local_addr().unwrap().port();
    let answering = garbage.try_clone().unwrap();
    let server = std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = answering.recv_from(&mut buffer) {
            if &buffer[..length] == b"END" {
                return;
            }
            answering.send_to(&[0x5a; 700], from).unwrap();
        }
    });
    let bmc = ipmi
        .bmc("")
        .replace(&ipmi.server.port.to_string(), &port.to_string());
    let outcome = run(&bmc, &["power = \"off\"\ntimeout = \"3s\""], "n1");
    garbage.send_to(b"END", ("127.0.0.1", port)).unwrap();
    server.join().unwrap();
    assert_eq!(outcome.ended.code, Some(1), "{:?}", outcome.ended);
}

#[test]
fn a_machine_that_says_nothing_sensible_has_failed() {
    let ipmi = Ipmi::start();
    ipmi.odd("echo nonsense; exit 1");
    let outcome = run(&ipmi.bmc(""), &[OFF], "n1");
    assert_eq!(outcome.ended.code, Some(1), "{:?}", outcome.ended);
}

#[test]
fn the_password_is_never_an_argument() {
    let ipmi = Ipmi::start();
    ipmi.odd("for pid in /proc/[0-9]*; do tr '\\0' ' ' <$pid/cmdline; echo; done 2>/dev/null | grep ipmitool >>seen");
    run(&ipmi.bmc(""), &[OFF], "n1").says("off");
    let seen = fs::read_to_string(ipmi.server.path("seen")).unwrap();
    let ours: Vec<_> = seen.lines().filter(|line| line.contains(" -E ")).collect();
    assert!(!ours.is_empty(), "{seen}");
    assert!(ours.iter().all(|line| !line.contains("test")), "{ours:?}");
}
