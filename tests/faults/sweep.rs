//! A monitor that sweeps what killed agents left, with one system call that fails or is the last.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::calls::{Call, errors, from_main};
use crate::env::{AGENT, Ended, TestEnv};
use crate::many::{Came, all, came, try_each};

const LINES: &str = "action=monitor\n";

/// The ids of dead requests: two that wait, and a claimed one.
const DEAD: [&str; 3] = [
    "11111111-1111-4111-8111-111111111111",
    "22222222-2222-4222-8222-222222222222",
    "33333333-3333-4333-8333-333333333333",
];

/// One run: which call, and what becomes of it: an error, or a signal.
#[derive(Debug)]
struct Case {
    call: Call,
    fault: String,
}

/// A spool with dead requests, and one that is not: that of an agent that still waits.
fn littered() -> TestEnv {
    let env = TestEnv::new();
    fs::create_dir(env.path("requests/.claimed")).unwrap();
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let request = |id: &str, seconds: i64| {
        let deadline = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        serde_json::json!({
            "request_id": id, "timestamp": "2026-01-01T00:00:00+00:00", "action": "off", "target_node": "n1",
            "recorder_node": host, "timeout_seconds": 5.0, "deadline": deadline.to_string(),
        })
        .to_string()
    };
    for (id, place) in DEAD
        .iter()
        .zip(["requests", "requests", "requests/.claimed"])
    {
        fs::write(
            env.path(place).join(format!("n1-{id}.json")),
            request(id, -1000),
        )
        .unwrap();
    }
    let alive = "44444444-4444-4444-8444-444444444444";
    fs::write(
        env.path("requests").join(format!("n1-{alive}.json")),
        request(alive, 60),
    )
    .unwrap();
    env
}

fn monitor(env: &TestEnv, options: &[&str]) -> Child {
    let mut command = env.command("strace");
    command
        .args(["-qq", "-o"])
        .arg(env.path("trace"))
        .args(options)
        .arg(AGENT);
    command.stdout(Stdio::piped());
    TestEnv::spawn(command, &(env.directories() + LINES))
}

/// How often each request is recorded as expired.
fn expired(env: &TestEnv) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let log = fs::read_to_string(env.path("log/fence-events-detailed.jsonl")).unwrap_or_default();
    for event in log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        if event["status"] == "expired" {
            let id = event["request_id"].as_str().unwrap().to_owned();
            *counts.entry(id).or_default() += 1;
        }
    }
    counts
}

/// The one that is alive stays, and no dead one has two ends (promise 5).
fn holds(env: &TestEnv) -> Result<(), String> {
    if !env
        .names_in("requests")
        .iter()
        .any(|name| name.contains("44444444"))
    {
        return Err("a request of a living agent is gone".to_owned());
    }
    match expired(env)
        .into_iter()
        .find(|(id, count)| *count > 1 || !DEAD.contains(&id.as_str()))
    {
        Some((id, count)) => Err(format!("{id} has {count} ends")),
        None => Ok(()),
    }
}

fn calls() -> Vec<Call> {
    let env = littered();
    let ended: Ended = monitor(&env, &[]).wait_with_output().unwrap().into();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(expired(&env).len(), 3);
    from_main(&env.path("trace"))
}

fn fails_well(case: &Case) -> Result<Came, String> {
    let env = littered();
    let Call { name, occurrence } = &case.call;
    let inject = format!("inject={name}:error={}:when={occurrence}", case.fault);
    let ended: Ended = monitor(&env, &["-e", &inject])
        .wait_with_output()
        .unwrap()
        .into();
    if !matches!(ended.code, Some(0 | 1)) || ended.stderr.contains("panic") {
        return Err(format!("neither 0 nor 1: {ended:?}"));
    }
    holds(&env)?;
    Ok(came(&env, "(INJECTED)"))
}

/// After a crash the next monitor goes on, and nothing ends twice.
fn crashes_well(case: &Case) -> Result<Came, String> {
    let env = littered();
    let Call { name, occurrence } = &case.call;
    let inject = format!("inject={name}:signal={}:when={occurrence}", case.fault);
    monitor(&env, &["-e", &inject]).wait_with_output().unwrap();
    let came = came(&env, "+++ killed by SIGKILL");
    holds(&env)?;
    let next: Ended = env.run(LINES);
    if next.code != Some(0) {
        return Err(format!("the next monitor fails: {next:?}"));
    }
    holds(&env)?;
    let left = env.names_in("requests").len() + env.names_in("requests/.claimed").len();
    // .claimed itself and the one that is alive
    if left != 2 {
        return Err(format!("{left} are left"));
    }
    Ok(came)
}

#[test]
fn every_system_call_of_a_sweep_fails_once() {
    let mut cases = Vec::new();
    for (number, call) in calls().into_iter().enumerate() {
        for (which, error) in errors(&call.name).iter().enumerate() {
            if all() || which == number % errors(&call.name).len() {
                let (call, fault) = (call.clone(), (*error).to_owned());
                cases.push(Case { call, fault });
            }
        }
    }
    try_each("errors in a sweep", &cases, fails_well);
}

#[test]
fn a_crash_at_every_system_call_of_a_sweep_ends_nothing_twice() {
    let chosen = calls()
        .into_iter()
        .enumerate()
        .filter(|(number, _)| all() || number % 3 == 0);
    let fault = "KILL".to_owned();
    let cases: Vec<_> = chosen
        .map(|(_, call)| Case {
            call,
            fault: fault.clone(),
        })
        .collect();
    try_each("crash points of a sweep", &cases, crashes_well);
}
