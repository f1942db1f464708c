//! What the agent makes of a system that fails it.

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use fence_recorder::agent::console::Outlet;
use fence_recorder::agent::input::Given;
use fence_recorder::agent::{Exit, act, run_guarded};
use fence_recorder::interrupt::Interrupt;

use crate::env::{AGENT, Ended, TestEnv, success, wait_for};

const OFF: &str = "action=off\nplug=n1\n";

/// Runs a fence under strace, which makes a system call fail; answers if a request comes.
fn run_with_fault(env: &TestEnv, fault: &str, answer: bool) -> Ended {
    let mut command = env.command("strace");
    command.args([
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        &format!("inject={fault}"),
        AGENT,
    ]);
    let agent = TestEnv::spawn(
        command,
        &(env.directories() + OFF + "response_timeout=20\n"),
    );
    if answer {
        let (name, request) = env.requests(1).remove(0);
        env.respond(&name, success(&request).to_string().as_bytes());
    }
    agent.wait_with_output().unwrap().into()
}

#[test]
fn a_request_that_cannot_be_published_is_a_failure_that_leaves_nothing() {
    for (fault, words) in [
        (
            "fchmod:error=EROFS:when=1",
            ["given its mode", "read-write"],
        ),
        ("fsync:error=EIO:when=1", ["synced", "check the disk"]),
        ("fsync:error=ENOSPC:when=1", ["synced", "free space"]),
        ("fsync:error=EIO:when=2", ["synced", "check the disk"]),
        ("renameat2:error=EDQUOT", ["renamed into place", "quota"]),
        (
            "renameat2:error=EACCES",
            ["renamed into place", "run as root"],
        ),
    ] {
        let env = TestEnv::new();
        run_with_fault(&env, fault, false).failed_with(&words);
        assert_eq!(env.names_in("requests"), Vec::<String>::new(), "{fault}");
        assert_eq!(env.statuses(), ["failed"], "{fault}");
    }
}

#[test]
fn a_full_disk_is_a_failure_that_leaves_nothing() {
    let env = TestEnv::new();
    let mut command = env.command("unshare");
    let script = "mount -t tmpfs -o size=4k,mode=755 none \"$1\" && head -c 4096 /dev/zero >\"$1\"/.full && \"$0\"; code=$?; ls -A \"$1\" >&3; exit $code";
    command.args(["-m", "sh", "-c", &format!("exec 3>\"$2\"; {script}"), AGENT]);
    command.arg(env.path("requests")).arg(env.path("listing"));
    let agent = TestEnv::spawn(command, &(env.directories() + OFF));
    Ended::from(agent.wait_with_output().unwrap()).failed_with(&["can't be written", "free space"]);
    assert_eq!(fs::read_to_string(env.path("listing")).unwrap(), ".full\n");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_no_death() {
    let env = TestEnv::new();
    let mut command = env.command("bash");
    command.args(["-c", "ulimit -f 0; exec \"$0\"", AGENT]);
    let agent = TestEnv::spawn(command, &(env.directories() + OFF));
    let ended = Ended::from(agent.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("can't be written: File too large"),
        "{ended:?}"
    );
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
}

#[test]
fn without_rename_noreplace_a_link_does() {
    let env = TestEnv::new();
    run_with_fault(&env, "renameat2:error=EINVAL", true).succeeded_with("Success: Powered OFF\n");
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
}

#[test]
fn interrupted_system_calls_are_tried_again() {
    for call in ["fsync", "fchmod", "renameat2", "unlinkat", "ppoll"] {
        let env = TestEnv::new();
        let ended = run_with_fault(&env, &format!("{call}:error=EINTR:when=1..60+2"), true);
        assert_eq!(ended.code, Some(0), "{call}: {ended:?}");
    }
}

#[test]
fn a_success_stays_one_when_the_request_cannot_be_withdrawn() {
    let env = TestEnv::new();
    let ended = run_with_fault(&env, "unlinkat:error=EIO", true);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "Success: Powered OFF\n")
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("warning") && ended.stderr.contains("remove it by hand"),
        "{}",
        ended.stderr
    );
    assert_eq!(env.statuses(), ["requested", "completed"]);
}

#[test]
fn closed_streams_change_no_exit_code() {
    let env = TestEnv::new();
    for (lines, code) in [
        (OFF, 0),
        ("action=status\nplug=n1\n", 2),
        ("action=off\n", 1),
        ("action=monitor\nx=1\n", 0),
    ] {
        let mut command = env.command("/bin/sh");
        command.args(["-c", "exec \"$0\" >&- 2>&-", AGENT]);
        let agent = TestEnv::spawn(command, &(env.directories() + lines));
        if code == 0 && lines == OFF {
            let (name, request) = env.requests(1).remove(0);
            env.respond(&name, success(&request).to_string().as_bytes());
        }
        assert_eq!(
            agent.wait_with_output().unwrap().status.code(),
            Some(code),
            "{lines}"
        );
    }
}

#[test]
fn readers_that_are_gone_change_no_exit_code() {
    let env = TestEnv::new();
    let mut agent = env.start(OFF);
    drop((agent.stdout.take(), agent.stderr.take()));
    let (name, request) = env.requests(1).remove(0);
    env.respond(&name, success(&request).to_string().as_bytes());
    assert_eq!(agent.wait().unwrap().code(), Some(0));
    let mut agent = env.start("action=off\n");
    drop((agent.stdout.take(), agent.stderr.take()));
    assert_eq!(agent.wait().unwrap().code(), Some(1));
}

#[test]
fn full_pipes_that_nobody_reads_do_not_hold_up_a_fence() {
    use std::io::Write;
    let env = TestEnv::new();
    let (_reader, mut writer) = io::pipe().unwrap();
    nix::fcntl::fcntl(
        &writer,
        nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK),
    )
    .unwrap();
    while writer.write(&[0; 4096]).is_ok() {}
    nix::fcntl::fcntl(
        &writer,
        nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty()),
    )
    .unwrap();
    let mut command = env.command(AGENT);
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut agent = TestEnv::spawn(command, &(env.directories() + OFF + "verbose=1\nfoo=1\n"));
    let (name, request) = env.requests(1).remove(0);
    env.respond(&name, success(&request).to_string().as_bytes());
    assert_eq!(agent.wait().unwrap().code(), Some(0));
}

/// Panics once, when it is told of the request.
struct Panicking(AtomicBool);

impl Outlet for Panicking {
    fn output(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn notice(&self, _: &str) {}

    fn error(&self, text: &str) {
        assert!(
            !text.contains("wrote ") || self.0.swap(true, Ordering::Relaxed),
            "on purpose"
        );
    }
}

#[test]
fn a_panic_withdraws_the_request_and_is_a_failure() {
    let env = TestEnv::new();
    let lines = env.directories() + OFF + "verbose=1\n";
    let outlet = Panicking(AtomicBool::new(false));
    let interrupt = Interrupt::new().unwrap();
    let exit = run_guarded(&outlet, &interrupt, |agent| {
        act(
            agent,
            Given::from_stdin(lines.as_bytes())
                .unwrap()
                .resolve(|_| None),
        )
    });
    assert_eq!(exit, Exit::Failure);
    assert!(outlet.0.load(Ordering::Relaxed), "the request was written");
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    assert_eq!(env.statuses(), ["failed"]);
}

#[test]
fn a_killed_agent_leaves_a_whole_request_and_nothing_else() {
    let env = TestEnv::new();
    for _ in 0..20 {
        let mut agent = env.start(OFF);
        wait_for("the request", || {
            (!env.names_in("requests").is_empty()).then_some(())
        });
        agent.kill().unwrap();
        agent.wait().unwrap();
        for name in env.names_in("requests") {
            if !name.starts_with('.') {
                let text = fs::read_to_string(env.path("requests").join(&name)).unwrap();
                serde_json::from_str::<serde_json::Value>(&text).unwrap();
            }
            fs::remove_file(env.path("requests").join(name)).unwrap();
        }
    }
}

#[test]
fn the_demo_shows_all_three_and_leaves_nothing_behind() {
    let env = TestEnv::new();
    let output = Command::new(AGENT)
        .arg("demo")
        .env("TMPDIR", env.path("responses"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let ended = Ended::from(output);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(
        ended.stdout.ends_with("3 of 3 ended as they should.\n"),
        "{}",
        ended.stdout
    );
    assert_eq!(env.names_in("responses"), Vec::<String>::new());
}

#[test]
fn a_write_that_takes_nothing_fails_instead_of_going_on_for_ever() {
    let env = TestEnv::new();
    let ended = run_with_fault(&env, "write:retval=0", false);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(env.names_in("requests"), Vec::<String>::new());
    let mut command = env.command("strace");
    let inject = "inject=write:retval=0";
    command.args([
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        inject,
        AGENT,
        "-o",
        "metadata",
    ]);
    let printed = TestEnv::spawn(command, "").wait_with_output().unwrap();
    assert_eq!(printed.status.code(), Some(1));
}

#[test]
fn a_success_stays_one_when_its_withdrawal_cannot_be_synced() {
    let env = TestEnv::new();
    let ended = run_with_fault(&env, "fsync:error=EIO:when=3", true);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert_eq!(env.statuses(), ["requested", "completed"]);
}
