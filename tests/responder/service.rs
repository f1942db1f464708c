//! The responder as a service: systemd's protocol, signals, log, metrics, idleness.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::env::{BOUND, wait_for};
use crate::scene::{Scene, reason_of};

const TRUE: &str = "[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\nexec = [\"/bin/true\"]\n";

/// What systemd would hear from a responder.
struct Systemd {
    socket: UnixDatagram,
}

impl Systemd {
    /// Starts the scene's responder under it, with `variables` in its environment.
    fn start(scene: &mut Scene, variables: &[(&str, &str)]) -> Self {
        let path = scene.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(BOUND)).unwrap();
        let mut command = scene.command();
        command
            .env("NOTIFY_SOCKET", &path)
            .envs(variables.iter().copied());
        scene.responder = Some(command.spawn().unwrap());
        Self { socket }
    }

    /// The next message; a responder that says nothing fails the test.
    fn hear(&self) -> String {
        let mut message = [0; 256];
        let length = self.socket.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec())
            .unwrap()
            .trim()
            .to_owned()
    }

    fn hear_until(&self, wanted: &str) {
        while self.hear() != wanted {}
    }
}

#[test]
fn systemd_hears_when_it_serves_rereads_and_ends() {
    let mut scene = Scene::without_responder(TRUE);
    let systemd = Systemd::start(&mut scene, &[]);
    assert_eq!(systemd.hear(), "READY=1");
    assert!(
        scene.path("requests/.responder.json").exists(),
        "ready means that it serves"
    );
    scene.signal(Signal::SIGHUP);
    assert!(systemd.hear().starts_with("RELOADING=1"));
    assert_eq!(systemd.hear(), "READY=1");
    assert_eq!(scene.stop(), Some(0));
    assert_eq!(systemd.hear(), "STOPPING=1");
}

#[test]
fn the_watchdog_hears_again_and_again() {
    let mut scene = Scene::without_responder(TRUE);
    let systemd = Systemd::start(&mut scene, &[("WATCHDOG_USEC", "300000")]);
    for _ in 0..3 {
        systemd.hear_until("WATCHDOG=1");
    }
}

#[test]
fn a_watchdog_of_another_process_is_not_ours() {
    let mut scene = Scene::without_responder(TRUE);
    let variables = [("WATCHDOG_USEC", "300000"), ("WATCHDOG_PID", "1")];
    let systemd = Systemd::start(&mut scene, &variables);
    assert_eq!(systemd.hear(), "READY=1");
    let id = scene.request("off", "n1", 60.0);
    scene.answer("n1", &id);
    assert_eq!(scene.stop(), Some(0));
    assert_eq!(systemd.hear(), "STOPPING=1", "and nothing before it");
}

#[test]
fn tasks_know_nothing_of_systemd() {
    let mut scene = Scene::without_responder(
        "[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\nexec = [\"DIR/env\"]\n",
    );
    scene.script("env", "env >DIR/environment");
    let systemd = Systemd::start(&mut scene, &[("WATCHDOG_USEC", "10000000")]);
    systemd.hear_until("READY=1");
    let id = scene.request("off", "n1", 60.0);
    scene.answer("n1", &id);
    let environment = fs::read_to_string(scene.path("environment")).unwrap();
    assert!(environment.contains("FENCE_NODE=n1\n"), "{environment}");
    assert!(
        !environment.contains("NOTIFY_SOCKET") && !environment.contains("WATCHDOG"),
        "{environment}"
    );
}

#[test]
fn sighup_brings_new_rules_and_keeps_the_old_ones_if_the_new_are_broken() {
    let scene = Scene::new("[[rule]]\nnodes = [\"a\"]\n[[rule.task]]\nexec = [\"/bin/true\"]\n");
    scene.configure("[[rule]]\nnodes = [\"b\"]\n[[rule.task]]\nexec = [\"/bin/true\"]\n");
    scene.signal(Signal::SIGHUP);
    scene.wait_for_log(&["read anew"]);
    let id = scene.request("off", "b", 60.0);
    assert_eq!(scene.answer("b", &id)["success"], true);
    let says = scene.json("requests/.responder.json").unwrap();
    assert_eq!(says["nodes"], serde_json::json!(["b"]));

    scene.configure("[[rule]]\nnodes = [\"c\"]\nnods = 1\n");
    scene.signal(Signal::SIGHUP);
    scene.wait_for_log(&["the old configuration is kept", "unknown key"]);
    let id = scene.request("off", "b", 60.0);
    assert_eq!(scene.answer("b", &id)["success"], true);
}

#[test]
fn sighup_does_not_move_the_spool() {
    let scene = Scene::new(TRUE);
    let text = fs::read_to_string(scene.path("responder.toml")).unwrap();
    fs::write(
        scene.path("responder.toml"),
        text.replace("/state\"", "/elsewhere\""),
    )
    .unwrap();
    scene.signal(Signal::SIGHUP);
    scene.wait_for_log(&["can't be changed while the responder runs"]);
    let id = scene.request("off", "n1", 60.0);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    assert!(!scene.path("elsewhere").exists());
}

/// A rule whose task says that it runs, and ends when the file `go` is there.
fn held(stop_grace: &str) -> Scene {
    let mut scene = Scene::without_responder(&format!(
        "stop_grace = \"{stop_grace}\"\n[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\nexec = [\"DIR/held\"]\n[[rule.task]]\nexec = [\"DIR/next\"]\n"
    ));
    scene.script(
        "held",
        "echo $$ >>DIR/ran; while [ ! -e DIR/go ]; do sleep 0.02; done",
    );
    scene.script("next", "echo next >>DIR/next-ran");
    scene.start();
    scene
}

fn runs(scene: &Scene) -> usize {
    fs::read_to_string(scene.path("ran"))
        .unwrap_or_default()
        .lines()
        .count()
}

fn until_it_runs(scene: &Scene, times: usize) {
    wait_for("the task to run", || (runs(scene) == times).then_some(()));
}

#[test]
fn sigterm_lets_a_task_end_starts_no_other_and_takes_no_request() {
    let mut scene = held("20s");
    let id = scene.request("off", "n1", 60.0);
    until_it_runs(&scene, 1);
    scene.signal(Signal::SIGTERM);
    scene.wait_for_log(&["no more requests are taken"]);
    let late = scene.request("off", "n2", 60.0);
    fs::write(scene.path("go"), "").unwrap();
    assert_eq!(
        scene.responder.take().unwrap().wait().unwrap().code(),
        Some(0)
    );
    let job = scene.job(&id).unwrap();
    assert_eq!(job["tasks"][0]["state"], "Completed");
    assert_eq!(reason_of(&job), "Interrupted");
    assert!(!scene.path("next-ran").exists());
    assert!(scene.path(&format!("requests/n2-{late}.json")).exists());
    // the next one goes on where this one ended
    scene.start();
    assert_eq!(scene.answer("n1", &id)["success"], true);
    assert_eq!(scene.answer("n2", &late)["success"], true);
    let first = scene.ended_job(&id);
    assert_eq!(
        first["tasks"][0]["attempts"].as_array().unwrap().len(),
        1,
        "not run again"
    );
}

#[test]
fn what_runs_longer_than_stop_grace_is_killed_and_resumed() {
    let mut scene = held("200ms");
    let id = scene.request("off", "n1", 60.0);
    until_it_runs(&scene, 1);
    assert_eq!(scene.stop(), Some(0));
    let job = scene.job(&id).unwrap();
    assert_eq!(job["tasks"][0]["attempts"][0]["state"], "Interrupted");
    assert!(job["completion_time"].is_null());
    assert!(!is_alive(
        &job["tasks"][0]["attempts"][0]["process_group"]["id"]
    ));
    scene.start();
    until_it_runs(&scene, 2);
    fs::write(scene.path("go"), "").unwrap();
    assert_eq!(scene.answer("n1", &id)["success"], true);
}

fn is_alive(pid: &Value) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains("(held)") && !stat.contains("(held) Z")
}

#[test]
fn a_second_signal_cuts_the_grace_short() {
    let mut scene = held("1h");
    let id = scene.request("off", "n1", 60.0);
    until_it_runs(&scene, 1);
    scene.signal(Signal::SIGTERM);
    scene.wait_for_log(&["no more requests are taken"]);
    scene.signal(Signal::SIGINT);
    assert_eq!(
        scene.responder.take().unwrap().wait().unwrap().code(),
        Some(0)
    );
    assert_eq!(scene.job(&id).unwrap()["tasks"][0]["state"], "Interrupted");
}

#[test]
fn the_json_log_is_an_object_a_line() {
    let mut scene = Scene::without_responder(TRUE);
    let mut command = scene.command();
    command.args(["--log-format", "json"]);
    scene.responder = Some(command.spawn().unwrap());
    let id = scene.request("off", "n1", 60.0);
    scene.answer("n1", &id);
    assert_eq!(scene.stop(), Some(0));
    let log = scene.log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let ended = lines
        .iter()
        .find(|line| line["reason"] == "Completed")
        .unwrap();
    assert_eq!(
        (&ended["job"], &ended["level"]),
        (&id.into(), &"INFO".into())
    );
}

/// The value of a metric, by its name with its labels.
fn metric(text: &str, name: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("fence_recorder_responder_{name} ")))?;
    line.parse().ok()
}

#[test]
fn the_metrics_tell_what_happened_and_what_waits() {
    let rules = "metrics_file = \"DIR/metrics/fence.prom\"\n[[rule]]\nnodes = [\"good\"]\n[[rule.task]]\nexec = [\"/bin/true\"]\n\
         [[rule]]\nnodes = [\"person\"]\napproval = \"manual\"\n";
    let mut scene = Scene::without_responder(rules);
    fs::create_dir(scene.path("metrics")).unwrap();
    scene.start();
    let good = scene.request("off", "good", 60.0);
    let none = scene.request("off", "none", 60.0);
    let person = scene.request("off", "person", 60.0);
    scene.answer("good", &good);
    scene.answer("none", &none);
    scene.job_at(&person, "WaitingForApproval");
    fs::write(scene.path("requests/odd.json"), "").unwrap();
    let text = wait_for("the metrics", || {
        let text = fs::read_to_string(scene.path("metrics/fence.prom")).ok()?;
        (metric(&text, "rejected_total") == Some(1.0)
            && metric(&text, "job_duration_seconds_count") == Some(2.0)
            && metric(&text, "oldest_pending_seconds")? > 0.0)
            .then_some(text)
    });
    assert_eq!(metric(&text, "requests_total"), Some(3.0), "{text}");
    assert_eq!(
        metric(&text, "jobs_total{outcome=\"Completed\"}"),
        Some(1.0)
    );
    assert_eq!(metric(&text, "jobs_total{outcome=\"NoRule\"}"), Some(1.0));
    assert_eq!(
        metric(&text, "jobs_total{outcome=\"TaskFailed\"}"),
        Some(0.0)
    );
    assert_eq!(
        (metric(&text, "jobs_running"), metric(&text, "jobs_pending")),
        (Some(0.0), Some(1.0))
    );
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(
            line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(),
            "{line}"
        );
    }
    assert_eq!(scene.env.names_in("metrics"), ["fence.prom"]);
    let mode = fs::metadata(scene.path("metrics/fence.prom"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o644);
}

/// How often all of its threads were woken so far, and its peak resident memory in KiB.
fn effort(scene: &Scene) -> (u64, u64) {
    let number = |text: &str, key: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let threads = fs::read_dir(format!("/proc/{}/task", scene.pid()))
        .unwrap()
        .flatten();
    let texts = threads.map(|thread| fs::read_to_string(thread.path().join("status")).unwrap());
    let woken = texts
        .map(|text| number(&text, "voluntary_ctxt_switches:"))
        .sum();
    let status = fs::read_to_string(format!("/proc/{}/status", scene.pid())).unwrap();
    (woken, number(&status, "VmHWM:"))
}

#[test]
fn an_idle_responder_wakes_at_most_once_a_second_and_is_small() {
    const SECONDS: u64 = 8;
    let scene = Scene::new(TRUE);
    let id = scene.request("off", "n1", 60.0);
    scene.answer("n1", &id);
    scene.ended_job(&id);
    wait_for("the job's thread to end", || {
        let threads = fs::read_dir(format!("/proc/{}/task", scene.pid())).unwrap();
        (threads.count() == 1).then_some(())
    });
    let (before, _) = effort(&scene);
    // the interval is what is measured
    std::thread::sleep(Duration::from_secs(SECONDS));
    let (after, peak) = effort(&scene);
    assert!(
        after - before <= SECONDS,
        "{} wake-ups in {SECONDS} s",
        after - before
    );
    assert!(peak < 12 * 1024, "{peak} KiB");
}

#[test]
fn usage_is_told_and_wrong_usage_is_exit_1() {
    let run = |arguments: &[&str]| {
        let output = Command::new(crate::env::AGENT)
            .arg("responder")
            .args(arguments)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, said) = run(&["--help"]);
    assert!(code == Some(0) && said.contains("--check-config"), "{said}");
    for arguments in [
        &["--nonsense"][..],
        &["word"],
        &["--log-format", "xml"],
        &["--config"],
    ] {
        assert_eq!(run(arguments).0, Some(1), "{arguments:?}");
    }
}

#[test]
fn without_a_spool_it_says_what_to_do() {
    let scene = Scene::without_responder(TRUE);
    fs::remove_dir(scene.path("responses")).unwrap();
    assert_eq!(scene.command().status().unwrap().code(), Some(1));
    let log = scene.log();
    assert!(
        log.contains("responses does not exist") && log.contains("RuntimeDirectory="),
        "{log}"
    );
}
