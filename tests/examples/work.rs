//! What every example must do, one after the other.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::env::{Ended, wait_for};
use crate::example::{ALL, Example, Served};
use crate::scene::{name_of, publish, request, uuid};

fn for_each(test: fn(Example)) {
    std::thread::scope(|scope| {
        for example in ALL {
            scope.spawn(move || test(example));
        }
    });
}

#[test]
fn a_success_and_a_failure_reach_the_agent_with_their_message() {
    for_each(|example| {
        let served = Served::by(example);
        served
            .env
            .run("action=off\nplug=n1\n")
            .succeeded_with("Success: Powered OFF\n");
        let ended = served.env.run("action=reboot\nplug=bad-1\n");
        ended.failed_with(&["no power for bad-1"]);
        served.until_done();
        assert_eq!(served.ran(), ["off n1", "reboot bad-1"]);
        assert_eq!(served.answers().len(), 2);
        let status = served.env.run("action=status\nplug=n1\n");
        assert_eq!(status.code, Some(2), "{status:?}");
    });
}

#[test]
fn two_nodes_are_fenced_at_the_same_time() {
    for_each(|example| {
        let served = Served::by(example);
        let agents = ["slow-a", "slow-b"]
            .map(|node| served.env.start(&format!("action=off\nplug={node}\n")));
        wait_for("both to be at work", || {
            (served.ran().len() == 2).then_some(())
        });
        served.go_on();
        for agent in agents {
            let ended: Ended = agent.wait_with_output().unwrap().into();
            ended.succeeded_with("Success: Powered OFF\n");
        }
    });
}

#[test]
fn names_are_names_and_never_commands() {
    for_each(|example| {
        let served = Served::by(example);
        for node in ["it's \"n 1\"", "$(touch x);`touch x`", "ü%s\\n*", "a & b"] {
            let ended = served
                .env
                .run(&format!("action=off\nplug={node}\nplug_separator=#\n"));
            ended.succeeded_with("Success: Powered OFF\n");
            assert_eq!(served.ran().last(), Some(&format!("off {node}")));
        }
        assert!(!served.env.path("x").exists());
    });
}

#[test]
fn a_request_that_has_expired_is_not_executed() {
    for_each(|example| {
        let served = Served::by(example);
        let id = uuid();
        let name = name_of("n1", &id);
        publish(
            &served.env.path("requests"),
            &name,
            &request(&id, "off", "n1", -1.0),
        );
        served.until_done();
        assert_eq!(served.ran(), [""; 0], "{example:?}");
        let answer = fs::read_to_string(served.env.path(&format!("responses/{name}"))).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["success"], false, "{answer}");
    });
}

#[test]
fn a_request_that_was_withdrawn_is_not_executed_and_not_answered() {
    for_each(|example| {
        let served = Served::by(example);
        // withdrawn while it is worked on: the answer could be taken for news
        let agent = served.env.start("action=off\nplug=slow-1\n");
        wait_for("it to be at work", || {
            (served.ran().len() == 1).then_some(())
        });
        kill(
            Pid::from_raw(agent.id().try_into().unwrap()),
            Signal::SIGTERM,
        )
        .unwrap();
        assert_eq!(agent.wait_with_output().unwrap().status.code(), Some(1));
        assert_eq!(served.pending(), [""; 0]);
        served.go_on();
        wait_for("the log to tell", || {
            served.log().contains("withdrawn").then_some(())
        });
        assert_eq!(served.answers(), [""; 0], "{example:?}");
        // withdrawn before it was taken
        served.signal(Signal::SIGSTOP);
        let ended = served
            .env
            .run("action=off\nplug=n2\nresponse_timeout=1\npoll_interval=0.05\n");
        assert_eq!(ended.code, Some(1));
        served.signal(Signal::SIGCONT);
        served
            .env
            .run("action=off\nplug=n3\n")
            .succeeded_with("Success: Powered OFF\n");
        assert_eq!(served.ran(), ["off slow-1", "off n3"], "{example:?}");
    });
}

#[test]
fn what_waits_at_the_start_is_served_and_what_was_done_is_not_done_again() {
    for_each(|example| {
        let mut served = Served::not_yet(example);
        let agent = served.env.start("action=off\nplug=n1\n");
        served.env.requests(1);
        // claims that a crash left: one was not worked on to its end, the other's answer is there
        let claimed = served.env.path("requests/.claimed");
        fs::create_dir(&claimed).unwrap();
        let (undone, done) = (uuid(), uuid());
        publish(
            &claimed,
            &name_of("n2", &undone),
            &request(&undone, "off", "n2", 60.0),
        );
        publish(
            &claimed,
            &name_of("n3", &done),
            &request(&done, "off", "n3", 60.0),
        );
        let answer = serde_json::json!({"request_id": done, "success": true});
        publish(
            &served.env.path("responses"),
            &name_of("n3", &done),
            &answer,
        );
        served.start();
        let ended: Ended = agent.wait_with_output().unwrap().into();
        ended.succeeded_with("Success: Powered OFF\n");
        served.until_done();
        let mut ran = served.ran();
        ran.sort();
        assert_eq!(ran, ["off n1", "off n2"], "{example:?}");
        assert_eq!(served.answers().len(), 3);
        let kept = fs::read_to_string(
            served
                .env
                .path(&format!("responses/{}", name_of("n3", &done))),
        )
        .unwrap();
        assert_eq!(kept, answer.to_string(), "an answer is never replaced");
    });
}

#[test]
fn what_is_no_request_is_put_aside_and_stops_nobody() {
    for_each(|example| {
        let served = Served::by(example);
        let (torn, other, action) = (uuid(), uuid(), uuid());
        fs::write(
            served
                .env
                .path(&format!("requests/{}", name_of("n1", &torn))),
            "{",
        )
        .unwrap();
        publish(
            &served.env.path("requests"),
            &name_of("n1", &other),
            &request(&other, "off", "n9", 60.0),
        );
        publish(
            &served.env.path("requests"),
            &name_of("n1", &action),
            &request(&action, "status", "n1", 60.0),
        );
        served
            .env
            .run("action=off\nplug=n2\n")
            .succeeded_with("Success: Powered OFF\n");
        served.until_done();
        assert_eq!(served.ran(), ["off n2"], "{example:?}");
        assert_eq!(served.env.names_in("requests/.rejected").len(), 3);
    });
}

#[test]
fn a_request_without_a_deadline_is_taken_as_fence_dummy_writes_it() {
    for_each(|example| {
        let served = Served::by(example);
        let id = uuid();
        let mut old = request(&id, "off", "n1", 60.0);
        for field in ["deadline", "timeout_seconds"] {
            old.as_object_mut().unwrap().remove(field);
        }
        publish(&served.env.path("requests"), &name_of("n1", &id), &old);
        served.until_done();
        assert_eq!(served.ran(), ["off n1"]);
    });
}

#[test]
fn one_ends_at_sigterm_and_a_second_one_refuses() {
    for_each(|example| {
        let mut served = Served::by(example);
        let second = served.command().output().unwrap();
        assert_eq!(second.status.code(), Some(1), "{example:?}");
        assert!(served.log().contains("another"), "{}", served.log());
        served.signal(Signal::SIGTERM);
        let status = served.responder.take().unwrap().wait().unwrap();
        // Go's way is the default one
        assert!(
            status.code().is_none_or(|code| code == 0),
            "{example:?}: {status}"
        );
        served.start();
        served
            .env
            .run("action=off\nplug=n1\n")
            .succeeded_with("Success: Powered OFF\n");
    });
}

#[test]
fn the_agent_sees_that_somebody_watches() {
    for_each(|example| {
        let served = Served::by(example);
        let ended = served.env.run("action=monitor\nresponder_check=1\n");
        assert_eq!(ended.code, Some(0), "{example:?}: {ended:?}");
    });
}
