//! The protocol, proven for one request: every order of the system calls of an agent, responders, a
//! person and a sweep, with deaths, restarts and a deadline, through the product's own functions.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod explore;
mod processes;
mod rules;
mod world;

use explore::{Exploration, Explored, Process};
use processes::{
    agent, cancelled_agent, hasty_responder, mortal, person, replacing_responder, responder,
    responder_in_place, responder_without_lock, responder_without_look, stranger, sweeper,
};
use world::{FileSystem, World};

fn explore(file_system: FileSystem, processes: &[Process], deaths: u8) -> Result<Explored, String> {
    Exploration::run(World::new(file_system), processes, deaths)
}

/// Every state keeps the rules, and the fence can succeed at all.
#[track_caller]
fn holds(file_system: FileSystem, processes: &[Process], deaths: u8) {
    let names: Vec<_> = processes.iter().map(|process| process.name).collect();
    let explored =
        explore(file_system, processes, deaths).unwrap_or_else(|broken| panic!("{broken}"));
    println!("{file_system:?}, {names:?}, {deaths} deaths: {explored:?}");
    assert!(explored.successes > 0, "{explored:?}");
}

/// Some order breaks this rule.
#[track_caller]
fn breaks(rule: &str, processes: &[Process], deaths: u8) {
    let broken = explore(FileSystem::Local, processes, deaths).expect_err("it is wrong");
    assert!(broken.starts_with(rule), "{broken}");
}

const AGENT: Process = mortal("agent", agent);
const RESPONDER: Process = mortal("responder", responder);
const SECOND: Process = mortal("second responder", responder);

const CANCELLED: Process = mortal("agent", cancelled_agent);
const PERSON: Process = mortal("person", person);
const SWEEPER: Process = mortal("sweep", sweeper);
const STRANGER: Process = mortal("stranger", stranger);

/// How many deaths to try: `all` of them with `tests/run --all`, else a `few`.
fn deaths(few: u8, all: u8) -> u8 {
    if std::env::var("FAULTS").is_ok_and(|faults| faults == "all") {
        all
    } else {
        few
    }
}

#[test]
fn an_agent_and_a_responder() {
    holds(FileSystem::Local, &[AGENT, RESPONDER, SECOND], deaths(2, 3));
}

#[test]
fn a_cancelled_agent() {
    holds(
        FileSystem::Local,
        &[CANCELLED, RESPONDER, SECOND],
        deaths(1, 2),
    );
}

#[test]
fn a_person() {
    holds(FileSystem::Local, &[AGENT, PERSON, RESPONDER], deaths(1, 3));
}

#[test]
fn a_stranger() {
    holds(
        FileSystem::Local,
        &[AGENT, STRANGER, RESPONDER],
        deaths(1, 3),
    );
}

#[test]
fn a_sweep() {
    holds(
        FileSystem::Local,
        &[AGENT, RESPONDER, SWEEPER],
        deaths(1, 2),
    );
}

#[test]
fn a_network_file_system() {
    holds(
        FileSystem::Network,
        &[AGENT, RESPONDER, SECOND],
        deaths(0, 1),
    );
}

#[test]
fn everybody() {
    holds(
        FileSystem::Local,
        &[AGENT, RESPONDER, PERSON, SWEEPER],
        deaths(0, 1),
    );
}

#[test]
fn a_responder_without_a_lock_is_found() {
    let one = mortal("responder", responder_without_lock);
    breaks("two processes execute", &[AGENT, one, one], 0);
}

#[test]
fn a_responder_that_does_not_look_at_its_claim_is_found() {
    let one = mortal("responder", responder_without_look);
    breaks("executed without a look", &[AGENT, one], 0);
}

#[test]
fn an_answer_that_replaces_another_is_found() {
    let one = mortal("responder", replacing_responder);
    breaks("the answer", &[AGENT, one, STRANGER], 0);
}

#[test]
fn an_answer_that_is_written_in_place_is_found() {
    let one = mortal("responder", responder_in_place);
    breaks("responses/", &[AGENT, one], 0);
}

#[test]
fn a_hasty_answer_is_found() {
    let one = mortal("responder", hasty_responder);
    breaks("the agent says success", &[AGENT, one], 0);
}
