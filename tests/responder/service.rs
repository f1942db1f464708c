//! The responder as a service: what systemd hears, signals, the log, metrics, what idling costs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

use crate::env::{AGENT, BOUND, Ended, wait_for};
use crate::scene::{Scene, is_alive, name_of, reason_of, serving, task_of, value_in};

/// The other end of NOTIFY_SOCKET.
struct Systemd {
    socket: UnixDatagram,
}

impl Systemd {
    /// Starts the responder of `scene` as systemd would, with this environment besides.
    fn start(scene: &mut Scene, environment: &[(&str, &str)]) -> Self {
        let path = scene.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(BOUND)).unwrap();
        let mut command = scene.command();
        command.env("NOTIFY_SOCKET", &path);
        command.envs(environment.iter().copied());
        scene.start_as(command);
        Self { socket }
    }

    /// The next that it hears.
    fn hear(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).expect("systemd to be told");
        String::from_utf8(buffer[..length].to_vec())
            .unwrap()
            .trim()
            .to_owned()
    }

    /// What it has heard by now.
    fn heard(&self) -> Vec<String> {
        self.socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4096];
        let messages = std::iter::from_fn(|| {
            self.socket.recv(&mut buffer).ok().map(|length| {
                String::from_utf8(buffer[..length].to_vec())
                    .unwrap()
                    .trim()
                    .to_owned()
            })
        });
        messages.collect()
    }
}

/// `command` run by a shell that does `first` before it becomes the command.
fn after(first: &str, command: &Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("{first}; exec \"$@\""), "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    shell
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    shell.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    shell
}

#[test]
fn systemd_is_told_of_every_step() {
    let mut scene = Scene::without_responder(&serving("/bin/true"));
    let systemd = Systemd::start(&mut scene, &[]);
    assert_eq!(systemd.hear(), "READY=1");
    scene.signal(Signal::SIGHUP);
    assert_eq!(systemd.hear(), "RELOADING=1");
    assert_eq!(systemd.hear(), "READY=1");
    fs::write(scene.path("responder.toml"), "broken").unwrap();
    scene.signal(Signal::SIGHUP);
    assert_eq!(systemd.hear(), "RELOADING=1");
    assert_eq!(systemd.hear(), "READY=1");
    assert_eq!(scene.stop(), Some(0));
    assert_eq!(systemd.hear(), "STOPPING=1");
    // without a watchdog nobody asked for more
    assert_eq!(systemd.heard(), [""; 0]);
}

#[test]
fn the_watchdog_hears_more_often_than_it_wants_even_while_the_responder_ends() {
    let mut scene = Scene::gated_without_responder("stop_grace = \"1h\"\n");
    let systemd = Systemd::start(&mut scene, &[("WATCHDOG_USEC", "1500000")]);
    let id = scene.request("off", "n1", 60.0);
    scene.ran(1);
    hears_at_times(&systemd, 5);
    scene.signal(Signal::SIGTERM);
    while systemd.hear() != "STOPPING=1" {}
    hears_at_times(&systemd, 3);
    scene.let_go(&id);
    assert_eq!(scene.exit_code(), Some(0));
}

/// The watchdog is told so often, and doesn't have to wait for any of them.
fn hears_at_times(systemd: &Systemd, times: usize) {
    for _ in 0..times {
        let start = Instant::now();
        while systemd.hear() != "WATCHDOG=1" {}
        // 0.5 s as it is; the rest is for a slow machine
        assert!(
            start.elapsed() < Duration::from_millis(1500),
            "{:?}",
            start.elapsed()
        );
    }
}

#[test]
fn the_watchdog_of_another_process_is_none_of_ours() {
    let mut scene = Scene::without_responder(&serving("/bin/true"));
    let environment = [("WATCHDOG_USEC", "30000"), ("WATCHDOG_PID", "1")];
    let systemd = Systemd::start(&mut scene, &environment);
    scene.still_serves();
    scene.stop();
    assert_eq!(systemd.heard(), ["READY=1", "STOPPING=1"]);
}

#[test]
fn our_watchdog_is_heard_of_by_our_pid() {
    let mut scene = Scene::without_responder(&serving("/bin/true"));
    let socket = UnixDatagram::bind(scene.path("notify")).unwrap();
    socket.set_read_timeout(Some(BOUND)).unwrap();
    let mut command = scene.command();
    command
        .env("NOTIFY_SOCKET", scene.path("notify"))
        .env("WATCHDOG_USEC", "1500000");
    scene.start_as(after("export WATCHDOG_PID=$$", &command));
    hears_at_times(&Systemd { socket }, 2);
}

#[test]
fn tasks_do_not_inherit_what_systemd_told_the_responder() {
    let mut scene = Scene::without_responder(&serving("DIR/task"));
    scene.script("task", "env >DIR/environment");
    let environment = [
        ("WATCHDOG_USEC", "60000000"),
        ("LISTEN_FDS", "1"),
        ("KEPT", "1"),
    ];
    let _systemd = Systemd::start(&mut scene, &environment);
    let id = scene.request("off", "n1", 60.0);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    let names = scene.lines("environment");
    let is_set = |name: &str| {
        names
            .iter()
            .any(|line| line.starts_with(&format!("{name}=")))
    };
    assert!(is_set("FENCE_NODE") && is_set("KEPT"), "{names:?}");
    for name in [
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "LISTEN_FDS",
    ] {
        assert!(!is_set(name), "{name} in {names:?}");
    }
}

#[test]
fn sighup_puts_new_rules_into_force() {
    let scene = Scene::new(&serving("/bin/true").replace('*', "a*"));
    scene.configure(&serving("/bin/true").replace('*', "b*"));
    scene.signal(Signal::SIGHUP);
    scene.wait_for_log(&["the configuration was read anew"]);
    let (old, new) = (
        scene.request("off", "a1", 60.0),
        scene.request("off", "b1", 60.0),
    );
    assert_eq!(scene.answer("b1", &new)["success"], true);
    assert_eq!(scene.answer("a1", &old)["success"], false);
    assert_eq!(reason_of(&scene.ended_job(&old)), "NoRule");
    assert_eq!(
        scene.json("requests/.responder.json").unwrap()["nodes"][0],
        "b*"
    );
}

#[test]
fn a_job_keeps_the_rule_it_began_with() {
    let scene = Scene::gated("");
    let id = scene.request("off", "n1", 60.0);
    scene.ran(1);
    scene.configure(&serving("/bin/false").replace('*', "other"));
    scene.signal(Signal::SIGHUP);
    scene.wait_for_log(&["the configuration was read anew"]);
    scene.let_go(&id);
    assert_eq!(scene.answer("n1", &id)["success"], true);
}

/// After SIGHUP these words are in one line of the log, and the old rule is still in force.
fn keeps_the_old_configuration(scene: &Scene, words: &[&str]) {
    scene.signal(Signal::SIGHUP);
    scene.wait_for_log(words);
    let id = scene.request("off", "n1", 60.0);
    assert_eq!(scene.answer("n1", &id)["success"], true);
}

#[test]
fn a_broken_configuration_is_refused_and_the_old_one_kept() {
    let scene = Scene::new(&serving("/bin/true"));
    scene.configure("[[rule]]\nnodes = [\"*\"]\ncolour = \"red\"\n");
    keeps_the_old_configuration(&scene, &["the old configuration is kept"]);
    scene.wait_for_log(&["responder.toml:7:1", "colour"]);
}

#[test]
fn a_configuration_that_others_can_write_is_refused_and_the_old_one_kept() {
    let scene = Scene::new(&serving("/bin/true"));
    scene.configure(&serving("/bin/false"));
    scene.env.chmod("responder.toml", 0o666);
    keeps_the_old_configuration(
        &scene,
        &["the old configuration is kept", "writable by others"],
    );
}

#[test]
fn a_configuration_can_be_checked_beside_the_responder_that_runs() {
    let scene = Scene::new(&serving("/bin/true"));
    assert_eq!(scene.check().code, Some(0));
    scene.configure("colour = \"red\"\n");
    assert_eq!(scene.check().code, Some(1));
    scene.still_serves();
}

#[test]
fn other_directories_need_a_restart() {
    let scene = Scene::new(&serving("/bin/true"));
    let text = fs::read_to_string(scene.path("responder.toml")).unwrap();
    let text = text
        .replace("/state\"", "/elsewhere\"")
        .replace("true", "false");
    fs::write(scene.path("responder.toml"), text).unwrap();
    keeps_the_old_configuration(&scene, &["can't be changed while the responder runs"]);
    assert!(!scene.path("elsewhere").exists());
}

#[test]
fn sigterm_lets_what_runs_come_to_its_end_and_leaves_the_rest() {
    let mut scene = Scene::gated("max_jobs = 1\n");
    let running = scene.request("off", "n1", 60.0);
    scene.ran(1);
    let queued = scene.request("off", "n2", 60.0);
    scene.job_at(&queued, "Queued");
    scene.signal(Signal::SIGTERM);
    scene.wait_for_log(&["SIGTERM", "no more requests are taken"]);
    let late = scene.request("off", "n3", 60.0);
    scene.let_go(&running);
    assert_eq!(scene.exit_code(), Some(0));
    assert_eq!(scene.answered("n1", &running).unwrap()["success"], true);
    assert_eq!(reason_of(&scene.job(&running).unwrap()), "Completed");
    assert!(scene.path("requests").join(name_of("n3", &late)).exists());
    assert_eq!(
        scene.env.names_in("requests/.claimed"),
        [name_of("n2", &queued)]
    );
    scene.start();
    for (node, id) in [("n2", &queued), ("n3", &late)] {
        scene.let_go(id);
        assert_eq!(scene.answer(node, id)["success"], true);
    }
    assert_eq!(scene.lines("ran"), ["n1", "n2", "n3"]);
}

#[test]
fn sigterm_is_heard_while_many_requests_are_claimed() {
    const COUNT: usize = 1000;
    let mut scene = Scene::without_responder(&serving("/bin/true"));
    for number in 0..COUNT {
        scene.request("off", &format!("n{number}"), 600.0);
    }
    scene.start();
    assert_eq!(scene.stop(), Some(0));
    let visible = |name: &String| !name.starts_with('.');
    let left = scene
        .env
        .names_in("requests")
        .into_iter()
        .filter(visible)
        .count();
    let claimed = scene.env.names_in("requests/.claimed").len();
    let answered = scene.env.names_in("responses").len();
    assert!(left > 0, "{claimed} claimed, {answered} answered");
    assert_eq!(left + claimed + answered, COUNT);
}

#[test]
fn no_next_task_and_no_retry_starts_after_sigterm() {
    let mut scene = Scene::gated_without_responder("");
    let second = "[[rule.task]]\nname = \"second\"\nexec = [\"/bin/touch\", \"DIR/second\"]\n";
    let retried = serving("/bin/false").replace("= 1", "= 9\nretry_interval = \"1h\"");
    let retried = retried
        .replace('*', "retried")
        .replace("[[rule]]", "[[rule]]\nname = \"retried\"");
    scene.configure(&(retried + &serving("DIR/gated") + second));
    scene.start();
    let waiting = scene.request("off", "retried", 7200.0);
    wait_for("the pause before the retry", || {
        (scene.job(&waiting)?["tasks"][0]["attempts"][0]["state"] == "Failed").then_some(())
    });
    let id = scene.request("off", "n1", 60.0);
    scene.ran(1);
    scene.signal(Signal::SIGTERM);
    scene.job_at(&waiting, "Interrupted");
    scene.let_go(&id);
    assert_eq!(scene.exit_code(), Some(0));
    let job = scene.job(&id).unwrap();
    assert_eq!(
        (reason_of(&job), &job["tasks"][0]["state"]),
        ("Interrupted".to_owned(), &"Completed".into())
    );
    assert!(!scene.path("second").exists() && scene.answered("n1", &id).is_none());
    scene.start();
    assert_eq!(scene.answer("n1", &id)["success"], true);
    assert_eq!(scene.lines("ran").len(), 1);
}

/// A responder with `stop_grace` ends although a task runs on; the next one runs that again.
fn is_resumed(mut scene: Scene, end: impl FnOnce(&Scene)) {
    scene.start();
    let id = scene.request("off", "n1", 60.0);
    scene.ran(1);
    let task = task_of(&scene, &id);
    assert!(is_alive(task));
    scene.signal(Signal::SIGTERM);
    end(&scene);
    assert_eq!(scene.exit_code(), Some(0));
    assert!(!is_alive(task) && scene.answered("n1", &id).is_none());
    assert_eq!(reason_of(&scene.job(&id).unwrap()), "Interrupted");
    scene.start();
    scene.ran(2);
    scene.let_go(&id);
    assert_eq!(scene.answer("n1", &id)["success"], true);
    let job = scene.ended_job(&id);
    let states = [0, 1].map(|number| job["tasks"][0]["attempts"][number]["state"].clone());
    assert_eq!(states, ["Interrupted", "Completed"]);
}

#[test]
fn what_runs_longer_than_stop_grace_is_killed_and_resumed() {
    is_resumed(
        Scene::gated_without_responder("stop_grace = \"100ms\"\n"),
        |_| {},
    );
}

#[test]
fn a_task_that_ignores_sigterm_does_not_keep_the_responder() {
    let scene = Scene::gated_without_responder("");
    scene.script("stubborn", "trap '' TERM; DIR/gated");
    scene.configure(&("stop_grace = \"0s\"\n".to_owned() + &serving("DIR/stubborn")));
    is_resumed(scene, |_| {});
}

#[test]
fn a_second_sigterm_cuts_stop_grace_short() {
    is_resumed(
        Scene::gated_without_responder("stop_grace = \"1h\"\n"),
        |scene| {
            scene.wait_for_log(&["no more requests are taken"]);
            scene.signal(Signal::SIGTERM);
        },
    );
}

#[test]
fn sighup_does_not_cut_stop_grace_short() {
    let mut scene = Scene::gated("stop_grace = \"1h\"\n");
    let id = scene.request("off", "n1", 60.0);
    scene.ran(1);
    scene.signal(Signal::SIGTERM);
    scene.wait_for_log(&["no more requests are taken"]);
    scene.signal(Signal::SIGHUP);
    scene.let_go(&id);
    assert_eq!(scene.exit_code(), Some(0));
    assert_eq!(scene.answered("n1", &id).unwrap()["success"], true);
}

/// Every line of the log as the JSON object that it is.
fn json_lines(text: &str) -> Vec<Value> {
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect(line));
    let lines: Vec<Value> = lines.collect();
    assert!(lines.iter().all(Value::is_object) && !lines.is_empty());
    lines
}

#[test]
fn the_log_is_one_json_object_a_line_if_wanted() {
    let mut scene = Scene::without_responder(&serving("/bin/false"));
    let mut command = scene.command();
    command.args(["--log-format", "json"]);
    scene.start_as(command);
    let id = scene.request("off", "odd \"node\"", 60.0);
    scene.ended_job(&id);
    scene.put("odd\n.json", b"");
    scene.configure("[[rule]]\nnodes = 1\ncolour = \"red\"\n");
    scene.signal(Signal::SIGHUP);
    scene.wait_for_log(&["the old configuration is kept"]);
    scene.still_serves();
    scene.stop();
    let lines = json_lines(&scene.log());
    for line in &lines {
        let has = |key: &str| line[key].is_string();
        assert!(has("timestamp") && has("level") && has("message"), "{line}");
    }
    let of_the_job = lines.iter().filter(|line| line["job"] == id.as_str());
    assert!(
        of_the_job
            .clone()
            .any(|line| line["reason"] == "TaskFailed"),
        "{lines:?}"
    );
    assert!(
        of_the_job
            .clone()
            .all(|line| line["node"] == "odd \"node\"")
    );
}

#[test]
fn why_it_does_not_start_is_json_too_if_wanted() {
    let scene = Scene::without_responder("[[rule]]\nnodes = 1\ncolour = \"red\"\n");
    let mut command = scene.command();
    command
        .args(["--log-format", "json"])
        .stderr(Stdio::piped());
    let ended = Ended::from(command.output().unwrap());
    assert_eq!(ended.code, Some(1));
    let lines = json_lines(&ended.stderr);
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0]["message"].as_str().unwrap().contains("colour"),
        "{lines:?}"
    );
}

/// A value of the metrics file.
fn metric(text: &str, name: &str) -> Option<f64> {
    let name = format!("fence_recorder_responder_{name} ");
    text.lines()
        .find_map(|line| line.strip_prefix(&name))?
        .parse()
        .ok()
}

#[test]
fn metrics_count_what_came_and_how_it_ended() {
    let mut scene =
        Scene::gated_without_responder("max_jobs = 1\nmetrics_file = \"DIR/fence.prom\"\n");
    scene.start();
    let first = scene.request("off", "n1", 60.0);
    scene.ran(1);
    let waiting = scene.request("off", "n2", 60.0);
    scene.job_at(&waiting, "Queued");
    scene.still_serves();
    scene.put("x.json", b"");
    let read = || fs::read_to_string(scene.path("fence.prom")).unwrap_or_default();
    let at_work = wait_for("the metrics of jobs at work", || {
        Some(read()).filter(|text| metric(text, "rejected_total") == Some(1.0))
    });
    for (name, value) in [
        ("requests_total", 3.0),
        ("jobs_running", 1.0),
        ("jobs_pending", 1.0),
    ] {
        assert_eq!(metric(&at_work, name), Some(value), "{name} in {at_work}");
    }
    assert!(metric(&at_work, "oldest_pending_seconds") > Some(0.0));
    assert_eq!(
        metric(&at_work, "jobs_total{outcome=\"NoRule\"}"),
        Some(1.0)
    );
    scene.let_go(&first);
    scene.let_go(&waiting);
    scene.answer("n2", &waiting);
    scene.until_all_is_done();
    scene.signal(Signal::SIGTERM);
    // what an end in order leaves is the whole count
    let text = wait_for("the last metrics", || {
        Some(read()).filter(|text| metric(text, "job_duration_seconds_count") == Some(3.0))
    });
    assert_eq!(
        metric(&text, "jobs_total{outcome=\"Completed\"}"),
        Some(2.0)
    );
    assert_eq!(
        metric(&text, "jobs_total{outcome=\"TaskFailed\"}"),
        Some(0.0)
    );
    assert_eq!(metric(&text, "jobs_running"), Some(0.0));
    assert_eq!(metric(&text, "oldest_pending_seconds"), Some(0.0));
    assert!(metric(&text, "job_duration_seconds_sum") > Some(0.0));
    is_prometheus_text(&text);
}

/// Every value has its help and type before it.
fn is_prometheus_text(text: &str) {
    let mut known = "";
    for line in text.lines() {
        if let Some(named) = line.strip_prefix("# TYPE ") {
            known = named.split(' ').next().unwrap();
        } else if !line.starts_with('#') {
            assert!(line.starts_with(known) && !known.is_empty(), "{line}");
        }
    }
}

#[test]
fn metrics_are_written_whole_and_for_everybody_to_read() {
    let top = "metrics_file = \"DIR/prom/fence.prom\"\n".to_owned();
    let mut scene = Scene::without_responder(&(top + &serving("/bin/true")));
    fs::create_dir(scene.path("prom")).unwrap();
    let command = after("umask 077", &scene.command());
    scene.start_as(command);
    let path = scene.path("prom/fence.prom");
    let mut inodes = std::collections::HashSet::new();
    let mut count = 0;
    wait_for("three versions of the metrics", || {
        use std::os::unix::fs::MetadataExt;
        let file = fs::File::open(&path).ok()?;
        let text = std::io::read_to_string(&file).unwrap();
        // a part of it would lack the last value
        assert!(metric(&text, "oldest_pending_seconds").is_some(), "{text}");
        let status = file.metadata().unwrap();
        assert_eq!(status.permissions().mode() & 0o777, 0o644);
        if inodes.insert((status.ino(), status.mtime_nsec())) {
            count += 1;
            scene.request("off", &format!("n{count}"), 60.0);
        }
        (count == 3).then_some(())
    });
    scene.until_all_is_done();
    scene.stop();
    assert_eq!(scene.env.names_in("prom"), ["fence.prom"]);
}

#[test]
fn a_metrics_file_that_can_not_be_written_is_said_once_and_hinders_nothing() {
    let top = "metrics_file = \"DIR/nowhere/fence.prom\"\n".to_owned();
    let mut scene = Scene::new(&(top + &serving("/bin/true")));
    scene.wait_for_log(&["metrics_file", "does not exist"]);
    scene.still_serves();
    scene.stop();
    assert_eq!(
        scene.log().matches("metrics_file").count(),
        1,
        "{}",
        scene.log()
    );
}

/// How often any of its threads went to sleep, and so was woken again. How often it was put off the
/// processor says more of the other tests.
fn sleeps(pid: Pid) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let status = tasks.map(|task| task.unwrap().path().join("status"));
    status
        .map(|path| value_in(&path.display().to_string(), "voluntary_ctxt_switches"))
        .sum()
}

#[test]
fn an_idle_responder_wakes_at_most_once_a_second_and_is_small() {
    const SECONDS: u64 = 6;
    let scene = Scene::new(&serving("/bin/true"));
    let ids: Vec<_> = (0..20)
        .map(|n| scene.request("off", &format!("n{n}"), 60.0))
        .collect();
    for id in &ids {
        scene.ended_job(id);
    }
    scene.until_all_is_done();
    wait_for("the threads of jobs to end", || {
        (scene.status("Threads") == 1).then_some(())
    });
    let before = sleeps(scene.pid());
    std::thread::sleep(Duration::from_secs(SECONDS));
    let slept = sleeps(scene.pid()) - before;
    assert!(slept <= SECONDS, "{slept} times in {SECONDS} s");
    // its own memory: how much of the program's file is mapped differs between builds, and
    // benches/responder.rs has the whole of a release build
    let memory = scene.status("RssAnon");
    assert!(memory < 4 * 1024, "{memory} kB");
}

#[test]
fn words_that_are_no_options_are_a_usage_error_and_help_is_none() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(AGENT);
        command
            .arg("responder")
            .args(arguments)
            .stdin(Stdio::null());
        Ended::from(command.output().unwrap())
    };
    assert_eq!(run(&["--log-format", "xml"]).code, Some(1));
    assert_eq!(run(&["now"]).code, Some(1));
    let help = run(&["--help"]);
    assert!(
        help.code == Some(0) && help.stdout.contains("--check-config"),
        "{help:?}"
    );
}
