//! Tasks and attempts: what is run, how often, and what becomes of what hangs.

use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::env::wait_for;
use crate::scene::{Scene, reason_of, request, rule, uuid};

/// What a job of one attempt at this script comes to: scene, answer, record.
fn run_script(body: &str) -> (Scene, Value, Value) {
    let rules = rule("name = \"t\"\nexec = [\"DIR/task\"]\nretry_count = 1");
    let scene = Scene::with_scripts(&rules, &[("task", body)]);
    let (answer, job) = scene.run("off", "n1");
    (scene, answer, job)
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// From one time of a record to another, in seconds.
fn between(from: &Value, to: &Value) -> f64 {
    time(to).duration_since(time(from)).as_secs_f64()
}

fn attempts(job: &Value) -> &Vec<Value> {
    job["tasks"][0]["attempts"].as_array().unwrap()
}

/// Whether a process lives: a zombie that PID 1 of a container doesn't reap is none.
fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The processes whose ids a script wrote to this file; none of them lives.
#[track_caller]
fn all_are_gone(scene: &Scene, name: &str, count: usize) {
    let text = scene.text(name);
    let pids: Vec<_> = text.split_whitespace().collect();
    assert_eq!(pids.len(), count, "{text}");
    let alive: Vec<_> = pids.into_iter().filter(|pid| is_alive(pid)).collect();
    assert!(alive.is_empty(), "{alive:?} of {text}");
}

#[test]
fn a_task_that_fails_four_times_succeeds_at_the_fifth_attempt() {
    let rules = rule(
        "name = \"power\"\nexec = [\"DIR/flaky\"]\nretry_count = 5\nretry_interval = \"200ms\"",
    );
    let body = "date +%s.%N >>DIR/tries; n=$(wc -l <DIR/tries); echo \"attempt $n\"; [ $n -eq 5 ]";
    let scene = Scene::with_scripts(&rules, &[("flaky", body)]);
    let (answer, job) = scene.run("off", "n1");
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(answer["message"], "attempt 5");
    assert_eq!(reason_of(&job), "Completed");
    let states: Vec<_> = attempts(&job).iter().map(|one| &one["state"]).collect();
    assert_eq!(
        states,
        ["Failed", "Failed", "Failed", "Failed", "Completed"]
    );
    for pair in attempts(&job).windows(2) {
        let pause = between(&pair[0]["completion_time"], &pair[1]["start_time"]);
        // records have microseconds
        assert!((0.199_999..5.0).contains(&pause), "{pause} s\n{job:#}");
    }
    let times: Vec<f64> = scene
        .text("tries")
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(times.len(), 5);
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.iter().all(|pause| *pause >= 0.2), "{pauses:?}");
}

#[test]
fn a_task_is_tried_as_often_as_configured_and_no_more() {
    let rules = rule("exec = [\"DIR/task\"]\nretry_count = 3\nretry_interval = \"0s\"");
    let body = "echo x >>DIR/tries; echo sorry; exit 7";
    let scene = Scene::with_scripts(&rules, &[("task", body)]);
    let (answer, job) = scene.run("off", "n1");
    assert_eq!(answer["success"], false);
    let message = "task \"task 1\" failed after 3 attempts: exit code 7: sorry";
    assert_eq!(answer["message"], message);
    assert_eq!(scene.text("tries").lines().count(), 3);
    assert_eq!(attempts(&job).len(), 3);
    assert_eq!(reason_of(&job), "TaskFailed");
    assert_eq!(job["tasks"][0]["exit_code"], 7);
}

#[test]
fn tasks_run_in_order_and_the_first_failure_ends_the_job() {
    let task = |name: &str| format!("[[rule.task]]\nname = \"{name}\"\nexec = [\"DIR/{name}\"]\n");
    let rules = format!(
        "[defaults]\nretry_count = 1\n[[rule]]\nnodes = [\"*\"]\n{}{}{}",
        task("one"),
        task("two"),
        task("three")
    );
    let scripts = [
        ("one", "echo one >>DIR/order"),
        ("two", "echo two >>DIR/order; [ $FENCE_NODE = good ]"),
        ("three", "echo three >>DIR/order; echo last words"),
    ];
    let scene = Scene::with_scripts(&rules, &scripts);
    let (answer, job) = scene.run("off", "good");
    assert_eq!(answer["message"], "3 tasks completed: last words");
    assert_eq!(reason_of(&job), "Completed");
    let (answer, job) = scene.run("off", "bad");
    assert_eq!(answer["success"], false);
    assert_eq!(scene.text("order"), "one\ntwo\nthree\none\ntwo\n");
    let states = ["Completed", "Failed", "Pending"];
    for (number, state) in states.into_iter().enumerate() {
        assert_eq!(job["tasks"][number]["state"], state, "{job:#}");
    }
}

#[test]
fn a_task_that_hangs_is_killed_with_all_its_children() {
    let rules = rule(
        "exec = [\"DIR/task\"]\nretry_count = 2\nretry_interval = \"0s\"\ntimeout = \"300ms\"",
    );
    let body = "trap '' TERM\nsleep 1000 & echo $! >>DIR/pids\n\
                sh -c 'sleep 1000 & echo $$ $! >>DIR/pids; wait' &\necho $$ >>DIR/pids; echo stuck; wait";
    let scene = Scene::with_scripts(&rules, &[("task", body)]);
    let (answer, job) = scene.run("off", "n1");
    all_are_gone(&scene, "pids", 8);
    let message = "task \"task 1\" hung, and was killed, in 2 attempts: killed after its timeout \
                   of 0.3 s: stuck";
    assert_eq!(answer["message"], message);
    assert_eq!(reason_of(&job), "TaskTimedOut");
    for attempt in attempts(&job) {
        assert_eq!(attempt["state"], "TimedOut");
        assert_eq!(attempt["exit_code"], Value::Null);
        let took = between(&attempt["start_time"], &attempt["completion_time"]);
        // its timeout, and two seconds between SIGTERM and SIGKILL
        assert!((2.3..12.0).contains(&took), "{took} s");
    }
}

#[test]
fn a_task_may_clean_up_after_sigterm() {
    let rules = rule("exec = [\"DIR/task\"]\nretry_count = 1\ntimeout = \"300ms\"");
    let body = "trap 'echo cleaned up; exit 0' TERM\necho $$ >DIR/pids\n\
                while true; do sleep 0.01; done";
    let scene = Scene::with_scripts(&rules, &[("task", body)]);
    let (answer, job) = scene.run("off", "n1");
    all_are_gone(&scene, "pids", 1);
    // exit 0 after its timeout is no success
    assert_eq!(answer["success"], false);
    let message = "killed after its timeout of 0.3 s: cleaned up";
    assert_eq!(attempts(&job)[0]["message"], message);
    assert_eq!(reason_of(&job), "TaskTimedOut");
}

#[test]
fn children_that_outlive_their_leader_are_killed() {
    let body = "trap '' TERM\nsleep 1000 & echo $! >>DIR/pids\n\
                sh -c 'sleep 1000 & echo $! >>DIR/pids'\necho done";
    let (scene, answer, _) = run_script(body);
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(answer["message"], "done");
    all_are_gone(&scene, "pids", 2);
}

#[test]
fn megabytes_of_output_cost_no_memory_and_keep_their_last_line() {
    let body = "yes 'a line of output like any other' | head -c 64000000\necho\necho the end";
    let (scene, answer, _) = run_script(body);
    assert_eq!(answer["message"], "the end");
    let status = fs::read_to_string(format!("/proc/{}/status", scene.pid())).unwrap();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    let kibibytes: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kibibytes < 32 * 1024, "{peak}");
}

#[test]
fn output_of_any_shape_becomes_one_harmless_line() {
    let cases = [
        ("printf 'no line break'", "no line break"),
        ("printf 'first\\nsecond\\n\\n  \\n'", "second"),
        (
            "printf 'one\\n\\377\\000\\033[2J\\ttwo\\r\\n'",
            "\u{fffd}\\u{0}\\u{1b}[2J\\ttwo",
        ),
        ("echo out; echo err >&2", "err"),
        ("true", "1 task completed"),
    ];
    for (body, message) in cases {
        let (_, answer, _) = run_script(body);
        assert_eq!(answer["success"], true, "{body}: {answer}");
        assert_eq!(answer["message"], message, "{body}");
    }
}

#[test]
fn a_line_of_a_megabyte_is_cut() {
    let (_, answer, _) = run_script("head -c 1000000 /dev/zero | tr '\\0' x");
    let message = answer["message"].as_str().unwrap();
    assert!(
        message.len() <= 4096 && message.ends_with("xxx…"),
        "{message}"
    );
}

#[test]
fn a_task_may_close_its_input() {
    let (_, answer, _) = run_script("exec 0<&-; echo fine");
    assert_eq!(answer["message"], "fine");
}

#[test]
fn a_task_that_closes_its_output_is_waited_for() {
    let body = "exec >&- 2>&-\necho closed >DIR/closed\nuntil [ -e DIR/go ]; do sleep 0.01; done\n\
                echo done >DIR/done";
    let rules = rule("exec = [\"DIR/task\"]\nretry_count = 1");
    let scene = Scene::with_scripts(&rules, &[("task", body)]);
    let id = scene.request("off", "n1", 30.0);
    scene.wait_for_file("closed");
    assert_eq!(reason_of(&scene.job(&id).unwrap()), "Running");
    assert!(scene.env.names_in("responses").is_empty());
    scene.touch("go");
    let answer = scene.answer("n1", &id);
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(scene.text("done"), "done\n");
}

#[test]
fn a_task_that_ends_by_a_signal_has_failed() {
    let (_, answer, job) = run_script("echo ouch; kill -SEGV $$");
    let message = "task \"t\" failed after 1 attempt: killed by signal 11: ouch";
    assert_eq!(answer["message"], message);
    assert_eq!(attempts(&job)[0]["state"], "Failed");
    assert_eq!(attempts(&job)[0]["exit_code"], Value::Null);
    assert_eq!(reason_of(&job), "TaskFailed");
}

#[test]
fn a_program_that_cant_be_executed_has_failed_and_says_why() {
    let rules = rule("exec = [\"DIR/task\"]\nretry_count = 1");
    let scene = Scene::with_scripts(&rules, &[("task", "true")]);
    fs::write(scene.path("task"), "#!/no/such/interpreter\n").unwrap();
    let (answer, job) = scene.run("off", "n1");
    let words = format!(
        "{} can't be run: No such file",
        scene.path("task").display()
    );
    assert!(
        answer["message"].as_str().unwrap().contains(&words),
        "{answer}"
    );
    assert_eq!(job["tasks"][0]["exit_code"], 126);
    scene.env.chmod("task", 0o644);
    let (answer, _) = scene.run("off", "n1");
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("Permission denied"), "{answer}");
    fs::remove_file(scene.path("task")).unwrap();
    let (answer, job) = scene.run("off", "n1");
    assert_eq!(answer["success"], false);
    assert_eq!(reason_of(&job), "TaskFailed");
}

#[test]
fn a_command_is_told_of_the_request_in_words_environment_and_input() {
    let rules = rule(
        "exec = [\"DIR/task\", \"n={node}\", \"{action}\", \"{request_id}\", \"{{node}}\", \"a b;$HOME\", \"\"]",
    );
    let body = "for word; do echo \"<$word>\"; done >DIR/words\nenv >DIR/env\ncat >DIR/in";
    let scene = Scene::with_scripts(&rules, &[("task", body)]);
    let id = uuid();
    let mut asked = request(&id, "reboot", "n-1.x_y", 30.0);
    asked["nodename"] = json!("pacemaker's name");
    scene.request_with(&id, "n-1.x_y", &asked);
    scene.ended_job(&id);
    let words = format!("<n=n-1.x_y>\n<reboot>\n<{id}>\n<{{node}}>\n<a b;$HOME>\n<>\n");
    assert_eq!(scene.text("words"), words);
    assert_eq!(scene.json("in").unwrap(), asked);
    let environment = scene.text("env");
    let value = |name: &str| {
        let line = environment.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {environment}"))
    };
    assert_eq!(value("FENCE_NODE="), "n-1.x_y");
    assert_eq!(value("FENCE_ACTION="), "reboot");
    assert_eq!(value("FENCE_REQUEST_ID="), id);
    let deadline: Timestamp = value("FENCE_DEADLINE=").parse().unwrap();
    let off = deadline.duration_since(time(&asked["deadline"]));
    assert!(off.abs() < SignedDuration::from_millis(1), "{off}");
}

#[test]
fn what_systemd_tells_the_responder_is_not_told_to_tasks() {
    let mut scene = Scene::without_responder(&rule("exec = [\"DIR/task\"]"));
    scene.script("task", "env >DIR/env");
    let words = "export NOTIFY_SOCKET=/no/such LISTEN_FDS=1 LISTEN_PID=$$ KEPT=1; exec \"$@\"";
    scene.start_through(words);
    scene.run("off", "n1");
    let environment = scene.text("env");
    assert!(environment.contains("KEPT=1\n"), "{environment}");
    for name in ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID"] {
        assert!(!environment.contains(name), "{environment}");
    }
}

#[test]
fn what_cant_be_recorded_is_not_run() {
    let rules = rule("exec = [\"DIR/task\"]\nretry_count = 1");
    let scene = Scene::with_scripts(&rules, &[("task", "echo x >>DIR/ran")]);
    fs::remove_dir(scene.path("state/jobs")).unwrap();
    let id = scene.request("off", "n1", 30.0);
    let answer = scene.answer("n1", &id);
    assert_eq!(answer["success"], false);
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("its record can't be written"), "{message}");
    assert!(!scene.path("ran").exists());
}

/// One of the sets of signals in a process's status; those above 31 are the C library's.
fn signals(pid: &str, set: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(set)).unwrap();
    u64::from_str_radix(line.rsplit_once('\t').unwrap().1, 16).unwrap() & 0x7fff_ffff
}

#[test]
fn a_task_inherits_no_descriptor_no_signal_setting_and_no_group() {
    let rules = rule("exec = [\"/bin/sleep\", \"1000\"]\nretry_count = 1");
    let mut scene = Scene::without_responder(&rules);
    // what the responder itself was started with is no task's either
    scene.start_through("exec 9</dev/null; exec \"$@\"");
    let id = scene.request("off", "n1", 30.0);
    let pid = wait_for("sleep to run", || {
        let pid = scene.job(&id)?["tasks"][0]["attempts"][0]["process_group"]["id"].as_i64()?;
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        words.starts_with(b"/bin/sleep").then_some(pid)
    });
    // its libraries are open for a moment
    wait_for("just the three descriptors", || {
        let listed = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        let mut names: Vec<_> = listed.map(|entry| entry.file_name()).collect();
        names.sort();
        (names == ["0", "1", "2"]).then_some(())
    });
    // what this test was itself started with, but for the one that Rust ignores in it
    let inherited = signals("self", "SigIgn") & !(1 << (Signal::SIGPIPE as u64 - 1));
    assert_eq!(signals(&pid.to_string(), "SigIgn") & !inherited, 0);
    assert_eq!(signals(&pid.to_string(), "SigBlk"), 0);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let group = stat.rsplit_once(") ").unwrap().1.split(' ').nth(2);
    assert_eq!(group, Some(&*pid.to_string()));
    let directory = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    assert_eq!(directory, Path::new("/"));
    kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL).unwrap();
    assert_eq!(reason_of(&scene.ended_job(&id)), "TaskFailed");
}

/// How many children, threads and descriptors a process has.
fn holdings(pid: Pid) -> [usize; 3] {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let children = |thread: &fs::DirEntry| {
        let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        list.split_whitespace().count()
    };
    let threads: Vec<_> = threads.flatten().collect();
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    [
        threads.iter().map(children).sum(),
        threads.len(),
        descriptors,
    ]
}

#[test]
fn many_jobs_leave_no_zombie_thread_or_descriptor() {
    let rules = format!("max_jobs = 8\n{}", rule("exec = [\"/bin/true\"]"));
    let scene = Scene::new(&rules);
    let before = holdings(scene.pid());
    assert_eq!(before[..2], [0, 1]);
    let ids: Vec<_> = (0..200)
        .map(|number| scene.request("off", &format!("n{number}"), 60.0))
        .collect();
    scene.until_all_is_done();
    for id in &ids {
        assert_eq!(reason_of(&scene.ended_job(id)), "Completed");
    }
    // a thread may still be on its way out
    wait_for("the responder to hold what it held before", || {
        (holdings(scene.pid()) == before).then_some(())
    });
}

/// A task that hangs, against a request that is good for `seconds`: when the attempt and the answer
/// came, in seconds from the request.
fn cut_to(seconds: f64) -> (f64, f64) {
    let rules = rule("exec = [\"DIR/task\"]\nretry_count = 5\ntimeout = \"60s\"");
    let body = "trap '' TERM\nsleep 1000 & echo $$ $! >>DIR/pids; wait";
    let scene = Scene::with_scripts(&rules, &[("task", body)]);
    let id = uuid();
    let asked = request(&id, "off", "n1", seconds);
    scene.request_with(&id, "n1", &asked);
    let answer = scene.answer("n1", &id);
    assert_eq!(answer["success"], false);
    all_are_gone(&scene, "pids", 2);
    let job = scene.ended_job(&id);
    assert_eq!(reason_of(&job), "DeadlineExceeded", "{job:#}");
    assert_eq!(attempts(&job).len(), 1);
    let killed = between(&asked["timestamp"], &attempts(&job)[0]["completion_time"]);
    let path = scene.path(&format!("responses/n1-{id}.json"));
    let written: Timestamp = fs::metadata(path)
        .unwrap()
        .modified()
        .unwrap()
        .try_into()
        .unwrap();
    let answered = written.duration_since(time(&asked["timestamp"]));
    (killed, answered.as_secs_f64())
}

#[test]
fn an_attempt_is_cut_to_a_short_deadline() {
    let (killed, answered) = cut_to(4.0);
    // not before SIGTERM is due, a quarter of the time before the end
    assert!((3.0..4.0).contains(&killed), "{killed}");
    assert!(answered < 4.0, "{answered}");
}

#[test]
fn an_attempt_is_cut_to_a_long_deadline() {
    let (killed, answered) = cut_to(20.0);
    // SIGTERM at 17 s, SIGKILL two seconds later
    assert!((19.0..20.0).contains(&killed), "{killed}");
    assert!(answered < 20.0, "{answered}");
}

#[test]
fn no_attempt_starts_when_the_pause_before_it_leads_past_the_deadline() {
    let rules = rule("exec = [\"DIR/task\"]\nretry_interval = \"1h\"");
    let scene = Scene::with_scripts(&rules, &[("task", "echo x >>DIR/tries; false")]);
    let (answer, job) = scene.run("off", "n1");
    assert_eq!(reason_of(&job), "DeadlineExceeded");
    assert_eq!(scene.text("tries"), "x\n");
    let message = answer["message"].as_str().unwrap();
    assert!(
        message.contains("no time was left for it after 1 attempt"),
        "{message}"
    );
}

#[test]
fn an_expired_request_starts_nothing() {
    let rules = rule("exec = [\"DIR/task\"]");
    let scene = Scene::with_scripts(&rules, &[("task", "echo x >>DIR/tries")]);
    let id = scene.request("off", "n1", 0.0);
    assert_eq!(scene.answer("n1", &id)["success"], false);
    assert_eq!(reason_of(&scene.ended_job(&id)), "Expired");
    assert!(!scene.path("tries").exists());
}

/// Waits until the thread of the responder's one job waits for its next attempt.
fn until_it_pauses(pid: Pid) {
    let futex = format!("{} ", nix::libc::SYS_futex);
    wait_for("the job to pause", || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        let read = |thread: &fs::DirEntry, file| {
            fs::read_to_string(thread.path().join(file)).unwrap_or_default()
        };
        let pauses = |thread: fs::DirEntry| {
            read(&thread, "comm") == "job\n" && read(&thread, "syscall").starts_with(&futex)
        };
        threads.map(pauses).find(|pauses| *pauses).map(|_| ())
    });
}

#[test]
fn a_request_that_is_withdrawn_in_a_pause_starts_no_other_attempt() {
    let rules = rule("exec = [\"DIR/task\"]\nretry_interval = \"15s\"");
    let scene = Scene::with_scripts(&rules, &[("task", "echo x >>DIR/tries; false")]);
    let id = scene.request("off", "n1", 30.0);
    wait_for("the first attempt's end", || {
        (scene.job(&id)?["tasks"][0]["attempts"][0]["state"] == "Failed").then_some(())
    });
    until_it_pauses(scene.pid());
    scene.withdraw("n1", &id);
    let job = scene.ended_job(&id);
    assert_eq!(reason_of(&job), "Cancelled");
    // at once, not when the pause is over
    let took = between(&job["start_time"], &job["completion_time"]);
    assert!(took < 14.0, "{took}");
    assert_eq!(attempts(&job).len(), 1);
    assert_eq!(scene.text("tries"), "x\n");
    assert!(scene.env.names_in("responses").is_empty());
}

#[test]
fn a_request_that_is_withdrawn_during_an_attempt_starts_no_other_task() {
    let rules = format!(
        "{}[[rule.task]]\nexec = [\"DIR/second\"]\n",
        rule("exec = [\"DIR/first\"]")
    );
    let wait = "echo x >DIR/running; until [ -e DIR/go ]; do sleep 0.01; done";
    let scripts = [("first", wait), ("second", "echo x >DIR/second-ran")];
    let scene = Scene::with_scripts(&rules, &scripts);
    let id = scene.request("off", "n1", 30.0);
    scene.wait_for_file("running");
    scene.withdraw("n1", &id);
    scene.touch("go");
    let job = scene.ended_job(&id);
    assert_eq!(reason_of(&job), "Cancelled");
    assert_eq!(job["tasks"][0]["state"], "Completed");
    assert_eq!(job["tasks"][1]["state"], "Pending");
    assert!(!scene.path("second-ran").exists());
    assert!(scene.env.names_in("responses").is_empty());
}

#[test]
fn a_request_that_is_withdrawn_before_its_turn_starts_nothing() {
    let rules = format!("max_jobs = 1\n{}", rule("exec = [\"DIR/task\"]"));
    let body = "echo $FENCE_NODE >>DIR/ran; until [ -e DIR/go ]; do sleep 0.01; done";
    let scene = Scene::with_scripts(&rules, &[("task", body)]);
    let first = scene.request("off", "n1", 30.0);
    scene.wait_for_file("ran");
    let second = scene.request("off", "n2", 30.0);
    scene.job_at(&second, "Queued");
    scene.withdraw("n2", &second);
    assert_eq!(reason_of(&scene.ended_job(&second)), "Cancelled");
    scene.touch("go");
    assert_eq!(reason_of(&scene.ended_job(&first)), "Completed");
    assert_eq!(scene.text("ran"), "n1\n");
}

#[test]
fn nothing_of_a_tasks_output_holds_up_its_timeout() {
    let rules = rule("exec = [\"/usr/bin/yes\"]\nretry_count = 1\ntimeout = \"200ms\"");
    let scene = Scene::new(&rules);
    let (answer, job) = scene.run("off", "n1");
    assert_eq!(reason_of(&job), "TaskTimedOut");
    let message = answer["message"].as_str().unwrap();
    assert!(message.ends_with("0.2 s: y"), "{message}");
}

#[test]
fn a_node_name_that_could_turn_a_value_into_another_is_refused_before_any_task() {
    let rules = format!(
        "{}[[rule.task]]\nname = \"second\"\nexec = [\"/bin/true\", \"bmc-{{node}}\"]\n",
        rule("exec = [\"DIR/first\"]")
    );
    let scene = Scene::with_scripts(&rules, &[("first", "echo x >DIR/ran")]);
    for node in ["compute-1@evil.example", "a b", "n1;reboot", "ü"] {
        let (answer, job) = scene.run("off", node);
        assert_eq!(answer["success"], false);
        let message = answer["message"].as_str().unwrap();
        assert!(
            message.starts_with("task \"second\": the node name"),
            "{message}"
        );
        assert_eq!(reason_of(&job), "Refused");
        assert!(!scene.path("ran").exists(), "{node}");
    }
}

#[test]
fn a_nodename_of_two_lines_is_refused() {
    let scene = Scene::new(&rule("exec = [\"/bin/true\"]"));
    let id = uuid();
    let mut asked = request(&id, "off", "n1", 30.0);
    asked["nodename"] = json!("n1\nip=evil.example");
    scene.request_with(&id, "n1", &asked);
    assert_eq!(scene.answer("n1", &id)["success"], false);
    assert_eq!(reason_of(&scene.ended_job(&id)), "Refused");
}

#[test]
fn no_shell_sees_the_words_of_a_command() {
    let rules = rule("exec = [\"/bin/echo\", \"$(touch DIR/pwned)\", \"`id`\", \"*\"]");
    let scene = Scene::new(&rules);
    let (answer, _) = scene.run("off", "n1");
    let message = answer["message"].as_str().unwrap();
    assert!(
        message.ends_with("`id` *") && message.starts_with("$(touch"),
        "{message}"
    );
    assert!(!scene.path("pwned").exists());
}
