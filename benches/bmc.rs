//! The time of a look at a machine's power: ours beside `fence_redfish` and `fence_ipmilan`.
//!
//! `cargo bench --bench bmc`, after `./tests/run`, which installs the simulated BMCs. Whole processes, in
//! turns; curl and ipmitool are the floors.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../tests/bmc/certificate.rs"]
#[allow(dead_code)]
mod certificate;
#[path = "../tests/agent/env.rs"]
#[allow(dead_code)]
mod env;
#[path = "../tests/bmc/job.rs"]
#[allow(dead_code)]
mod job;
#[path = "../tests/bmc/server.rs"]
#[allow(dead_code)]
mod server;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use server::{Ipmi, PASSWORD, Redfish};

const ROUNDS: usize = 30;
const SYSTEM: &str = "/redfish/v1/Systems/11111111-1111-1111-1111-111111111111";
const STATUS: &[&str] = &["power = \"status\""];

/// A program that tells the machine's power, and whether its exit code says so.
struct Contender {
    name: &'static str,
    command: Box<dyn Fn() -> Command>,
    times: Vec<Duration>,
}

impl Contender {
    fn new(name: &'static str, command: impl Fn() -> Command + 'static) -> Self {
        Self {
            name,
            command: Box::new(command),
            times: Vec::new(),
        }
    }

    fn run(&mut self) {
        let mut command = (self.command)();
        command
            .env("PYTHONWARNINGS", "ignore")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let start = Instant::now();
        let status = command.status().unwrap();
        self.times.push(start.elapsed());
        assert!(status.success(), "{}: {status}", self.name);
    }

    fn print(&mut self) {
        self.times.sort();
        let at =
            |share: usize| self.times[(self.times.len() - 1) * share / 100].as_secs_f64() * 1e3;
        println!("{:16} {:9.1} {:9.1}", self.name, at(50), at(95));
    }
}

fn redfish_contenders(redfish: &Redfish) -> Vec<Contender> {
    let (port, authority) = (redfish.0.port.to_string(), redfish.0.path("ca.pem"));
    let user = format!("admin:{PASSWORD}");
    let url = format!("https://127.0.0.1:{port}{SYSTEM}");
    let uuid = SYSTEM.rsplit('/').next().unwrap();
    let bmc = redfish.by_node();
    let directory = tempfile::tempdir().unwrap();
    vec![
        Contender::new("curl", move || {
            let mut command = Command::new("curl");
            command.args(["-sf", "--cacert", &authority, "-u", &user, &url]);
            command
        }),
        Contender::new("fence_recorder", move || {
            job::command(&directory, &bmc, STATUS, uuid).0
        }),
        Contender::new("fence_redfish", move || {
            let mut command = Command::new("fence_redfish");
            command.args([
                "-o",
                "status",
                "-a",
                "127.0.0.1",
                "-u",
                &port,
                "-l",
                "admin",
            ]);
            command.args(["-p", PASSWORD, "--ssl-insecure"]);
            command.arg(format!("--systems-uri={SYSTEM}"));
            command
        }),
    ]
}

fn ipmi_contenders(ipmi: &Ipmi) -> Vec<Contender> {
    let port = ipmi.server.port.to_string();
    let port_of_agent = port.clone();
    let bmc = ipmi.bmc("");
    let directory = tempfile::tempdir().unwrap();
    vec![
        Contender::new("ipmitool", move || {
            let mut command = Command::new("ipmitool");
            command.args(["-I", "lanplus", "-C", "3", "-H", "127.0.0.1", "-p", &port]);
            command.args(["-U", "ipmiusr", "-P", "test", "chassis", "power", "status"]);
            command
        }),
        Contender::new("fence_recorder", move || {
            job::command(&directory, &bmc, STATUS, "n1").0
        }),
        Contender::new("fence_ipmilan", move || {
            let mut command = Command::new("fence_ipmilan");
            command.args([
                "-o",
                "status",
                "-a",
                "127.0.0.1",
                "-u",
                &port_of_agent,
                "-P",
                "-C",
                "3",
            ]);
            command.args(["-l", "ipmiusr", "-p", "test"]);
            command
        }),
    ]
}

fn compare(title: &str, mut contenders: Vec<Contender>) {
    for _ in 0..ROUNDS {
        for contender in &mut contenders {
            contender.run();
        }
    }
    println!("{title:16} median ms    p95 ms");
    for contender in &mut contenders {
        contender.print();
    }
}

fn main() {
    let (redfish, ipmi) = (Redfish::start(), Ipmi::start());
    println!("power = \"status\", {ROUNDS} times each, in turns");
    compare("Redfish", redfish_contenders(&redfish));
    compare("IPMI", ipmi_contenders(&ipmi));
}
