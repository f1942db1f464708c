//! A responder's job, from the request to its end, with one system call that fails or is the last.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::calls::{Call, errors, of_each_thread};
use crate::env::wait_for;
use crate::many::{Came, all, came, try_each};
use crate::scene::{Scene, name_of, request, uuid};

/// How long the answer may take before the next responder has to give it.
const PATIENCE: Duration = Duration::from_secs(2);

/// One run: which call, what becomes of it, and what the task's exit code is.
#[derive(Debug)]
struct Case {
    call: Call,
    fault: String,
    code: u8,
}

/// A responder whose one task notes that it ran, and ends with `code`.
fn scene(code: u8) -> Scene {
    let rule = "[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\nexec = [\"DIR/task\"]\nretry_count = 1\n";
    Scene::with_scripts(
        rule,
        &[("task", &format!("echo x >>DIR/ran || exit 1; exit {code}"))],
    )
}

/// strace on the responder and all that it starts, from now on.
fn attach(scene: &Scene, options: &[&str]) -> Child {
    // a thread that ends at that moment can't be attached to, and strace gives up
    for _ in 0..5 {
        if let Some(strace) = try_to_attach(scene, options) {
            return strace;
        }
    }
    panic!("{}", scene.text("attached"));
}

fn try_to_attach(scene: &Scene, options: &[&str]) -> Option<Child> {
    let mut strace = Command::new("strace")
        .args(["-f", "-o"])
        .arg(scene.path("trace"))
        .args(options)
        .args(["-p", &scene.pid().to_string()])
        .stderr(fs::File::create(scene.path("attached")).unwrap())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let tasks = || fs::read_dir(format!("/proc/{}/task", scene.pid())).map_or(0, Iterator::count);
    let is_attached = wait_for("strace to attach", || {
        if strace.try_wait().unwrap().is_some() {
            return Some(false);
        }
        let attached = scene.text("attached").matches("attached").count();
        (attached >= tasks()).then_some(true)
    });
    is_attached.then_some(strace)
}

/// A request seen to its end by the responder under strace, or else by the next one.
fn seen_through(scene: &mut Scene, options: &[&str]) -> Result<String, String> {
    let mut strace = attach(scene, options);
    let id = uuid();
    scene.request_with(&id, "n1", &request(&id, "off", "n1", 60.0));
    let end = Instant::now() + PATIENCE;
    let is_gone =
        |scene: &mut Scene| !matches!(scene.responder.as_mut().unwrap().try_wait(), Ok(None));
    let is_done = |scene: &Scene| {
        scene
            .job(&id)
            .is_some_and(|job| !job["completion_time"].is_null())
            && scene.env.names_in("requests/.claimed").is_empty()
    };
    while Instant::now() < end && !is_done(scene) && !is_gone(scene) {
        std::thread::yield_now();
    }
    if !is_gone(scene) {
        let _ = kill(scene.pid(), Signal::SIGTERM);
    }
    let end = Instant::now() + Duration::from_secs(20);
    while !is_gone(scene) {
        if Instant::now() > end {
            strace.kill().unwrap();
            strace.wait().unwrap();
            return Err("it doesn't end".to_owned());
        }
        std::thread::yield_now();
    }
    scene.responder = None;
    let _ = kill(
        Pid::from_raw(strace.id().try_into().unwrap()),
        Signal::SIGINT,
    );
    strace.wait().unwrap();
    scene.start();
    scene.answer("n1", &id);
    scene.ended_job(&id);
    scene.until_all_is_done();
    Ok(id)
}

/// Promises 1, 4 and 5, whatever happened: the answer is what the task came to, there is one, and the
/// job has one end.
fn holds(scene: &Scene, id: &str, code: u8) -> Result<(), String> {
    let answer = scene.answered("n1", id).ok_or("no answer")?;
    let ran = scene.lines("ran").len();
    if answer["success"] == true && (code != 0 || ran == 0) {
        return Err(format!("a false success: {answer}, ran {ran} times"));
    }
    // what was cut off with its responder may run again
    if ran > 2 {
        return Err(format!("ran {ran} times"));
    }
    let answers = scene.env.names_in("responses");
    if answers != [name_of("n1", id)] {
        return Err(format!("{answers:?}"));
    }
    // Rust's runtime may find no memory for a thread; that ends the responder as a crash does
    if scene.log().contains("panicked at src/") {
        return Err("a panic".to_owned());
    }
    Ok(())
}

fn calls() -> Vec<Call> {
    let mut scene = scene(0);
    let id = seen_through(&mut scene, &[]).unwrap();
    holds(&scene, &id, 0).unwrap();
    assert_eq!(scene.answered("n1", &id).unwrap()["success"], true);
    let calls: BTreeSet<_> = of_each_thread(&scene.path("trace"));
    assert!(calls.len() > 100, "{}", calls.len());
    calls.into_iter().collect()
}

fn goes_well(case: &Case, how: &str, mark: &str) -> Result<Came, String> {
    let mut scene = scene(case.code);
    let Call { name, occurrence } = &case.call;
    let inject = format!("inject={name}:{how}={}:when={occurrence}", case.fault);
    let id = seen_through(&mut scene, &["-e", &inject])?;
    holds(&scene, &id, case.code)?;
    Ok(came(&scene.env, mark))
}

#[test]
fn every_system_call_of_a_job_fails_once() {
    let mut cases = Vec::new();
    for (number, call) in calls().into_iter().enumerate() {
        for (which, error) in errors(&call.name).iter().enumerate() {
            if all() || (number % 4 == 0 && which == number / 4 % errors(&call.name).len()) {
                let (call, fault) = (call.clone(), (*error).to_owned());
                let code = u8::from(number % 2 == 0);
                cases.push(Case { call, fault, code });
            }
        }
    }
    try_each("errors in a job", &cases, |case| {
        goes_well(case, "error", "(INJECTED)")
    });
}

#[test]
fn a_crash_at_every_system_call_of_a_job_loses_nothing() {
    let chosen = calls()
        .into_iter()
        .enumerate()
        .filter(|(number, _)| all() || number % 6 == 0);
    let case = |(number, call): (usize, Call)| Case {
        call,
        fault: "KILL".to_owned(),
        code: u8::from(number % 2 == 0),
    };
    let cases: Vec<_> = chosen.map(case).collect();
    try_each("crash points of a job", &cases, |case| {
        goes_well(case, "signal", "+++ killed by SIGKILL")
    });
}
