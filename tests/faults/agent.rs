//! A fence, with one system call that fails or is the last.

use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::calls::{Call, errors, from_main};
use crate::env::{AGENT, Ended, TestEnv};
use crate::many::{Came, all, came, try_each};

const LINES: &str = "action=off\nplug=n1\nresponse_timeout=3\npoll_interval=0.05\n";

/// Longer than response_timeout by far: a run that takes this hangs.
const HUNG: Duration = Duration::from_secs(15);

/// What the responder says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    Success,
    Failure,
}

/// One run: which call, and what becomes of it.
#[derive(Debug)]
struct Case {
    call: Call,
    /// An error, or a signal.
    fault: String,
    says: Says,
}

/// An agent under strace.
fn agent(env: &TestEnv, options: &[&str]) -> Child {
    let mut command = env.command("strace");
    command
        .args(["-qq", "-o"])
        .arg(env.path("trace"))
        .args(options)
        .arg(AGENT);
    TestEnv::spawn(command, &(env.directories() + LINES))
}

/// Answers what comes, until the agent has ended.
fn see_to_its_end(env: &TestEnv, mut agent: Child, says: Says) -> Result<Ended, String> {
    let end = Instant::now() + HUNG;
    let mut answered = false;
    loop {
        if agent.try_wait().unwrap().is_some() {
            return Ok(agent.wait_with_output().unwrap().into());
        }
        if Instant::now() > end {
            agent.kill().unwrap();
            return Err("it hangs".to_owned());
        }
        let request = requests(env).into_iter().next().filter(|_| !answered);
        if let Some((name, Ok(request))) = request {
            let response = json!({"request_id": request["request_id"], "success": says == Says::Success, "message": "so"});
            env.respond(&name, response.to_string().as_bytes());
            answered = true;
        }
        std::thread::yield_now();
    }
}

/// The requests under their final names, each as JSON if it is whole.
fn requests(env: &TestEnv) -> Vec<(String, Result<Value, String>)> {
    let mut names = env.names_in("requests");
    names.retain(|name| !name.starts_with('.'));
    let read = |name: String| {
        let text = fs::read(env.path("requests").join(&name)).ok()?;
        let json =
            serde_json::from_slice(&text).map_err(|error| format!("{name} is torn: {error}"));
        Some((name, json))
    };
    names.into_iter().filter_map(read).collect()
}

/// What must hold however a run ends: nothing half-written has a final name.
fn is_whole(env: &TestEnv) -> Result<(), String> {
    for (_, request) in requests(env) {
        request?;
    }
    Ok(())
}

fn calls() -> Vec<Call> {
    let env = TestEnv::new();
    let ended = see_to_its_end(&env, agent(&env, &[]), Says::Success).unwrap();
    ended.succeeded_with("Success: Powered OFF\n");
    let calls = from_main(&env.path("trace"));
    assert!(calls.len() > 100, "{}", calls.len());
    calls
}

/// Promises 1 and 2: no success that wasn't given, and a reason for each failure.
fn fails_well(case: &Case) -> Result<Came, String> {
    let env = TestEnv::new();
    let Call { name, occurrence } = &case.call;
    let inject = format!("inject={name}:error={}:when={occurrence}", case.fault);
    let ended = see_to_its_end(&env, agent(&env, &["-e", &inject]), case.says)?;
    let says_why = !ended.stderr.is_empty() || name == "write" || name == "close";
    match ended.code {
        Some(0) if case.says == Says::Failure => Err(format!("a false success: {ended:?}")),
        Some(1) if !says_why => Err(format!("no reason: {ended:?}")),
        Some(1) if ended.stderr.contains("panic") => Err(format!("a panic: {ended:?}")),
        Some(0 | 1) => Ok(()),
        _ => Err(format!("neither 0 nor 1: {ended:?}")),
    }?;
    is_whole(&env)?;
    Ok(came(&env, "(INJECTED)"))
}

#[test]
fn every_system_call_of_a_fence_fails_once() {
    let mut cases = Vec::new();
    for (number, call) in calls().into_iter().enumerate() {
        for (which, error) in errors(&call.name).iter().enumerate() {
            // a sample has one error of each call
            if all() || which == number % errors(&call.name).len() {
                for says in [Says::Failure, Says::Success] {
                    let (call, fault) = (call.clone(), (*error).to_owned());
                    cases.push(Case { call, fault, says });
                }
            }
        }
    }
    try_each("injected errors", &cases, fails_well);
}

/// Promise 4, and that whoever comes next isn't kept from fencing.
fn crashes_well(case: &Case) -> Result<Came, String> {
    let env = TestEnv::new();
    let Call { name, occurrence } = &case.call;
    let inject = format!("inject={name}:signal={}:when={occurrence}", case.fault);
    let ended = see_to_its_end(&env, agent(&env, &["-e", &inject]), case.says)?;
    if came(&env, "+++ killed by SIGKILL") == Came::Otherwise {
        return Ok(Came::Otherwise);
    }
    if ended.code == Some(0) {
        return Err(format!("killed, and yet a success: {ended:?}"));
    }
    is_whole(&env)?;
    let left = requests(&env).len();
    if left > 1 {
        return Err(format!("{left} requests"));
    }
    for name in env.names_in("requests") {
        fs::remove_file(env.path("requests").join(name)).unwrap();
    }
    let next: Command = env.command(AGENT);
    let next = TestEnv::spawn(next, &(env.directories() + LINES));
    let ended = see_to_its_end(&env, next, Says::Success)?;
    if ended.code != Some(0) {
        return Err(format!("the next fence fails: {ended:?}"));
    }
    Ok(Came::True)
}

#[test]
fn a_crash_at_every_system_call_leaves_nothing_torn_and_stops_nobody() {
    let calls = calls().into_iter().enumerate();
    let chosen = calls.filter(|(number, _)| all() || number % 3 == 0);
    let cases: Vec<_> = chosen
        .map(|(_, call)| Case {
            call,
            fault: "KILL".to_owned(),
            says: Says::Success,
        })
        .collect();
    try_each("crash points", &cases, crashes_well);
}
