//! The processes of the protocol: the order of their steps, which are the product's own functions.

use std::time::Duration;

use fence_recorder::spool::calls::{DirectoryCalls, FileCalls};
use fence_recorder::spool::claim::{Claimed, Claims};
use fence_recorder::spool::json::pretty;
use fence_recorder::spool::name::{FileName, NodeName};
use fence_recorder::spool::publish::{MODE, replace};
use fence_recorder::spool::request::{Action, Request};
use fence_recorder::spool::response::Response;
use fence_recorder::spool::sweep::{SweepRules, Swept, sweep};
use fence_recorder::spool::withdraw::{Withdrawn, withdraw};

use crate::explore::{Process, Replay, Success};
use crate::world::{Call, REQUESTS, RESPONSES, Seen, Simulated, Time, moment};

/// The agent's place among the processes.
pub const AGENT: usize = 0;

/// The one request's file.
pub const NAME: &str = "n1-0190b5a3-5d1c-4c55-9f0e-5b1f8c3a7e21.json";

const HOST: &str = "n2";

thread_local! {
    /// The one request as a file.
    pub static REQUEST: Vec<u8> = pretty(&request());
}

fn name() -> FileName {
    FileName::parse(NAME.as_ref()).expect("a request's name")
}

fn request() -> Request {
    let target = NodeName::parse("n1").expect("a node's name");
    let mut request = Request::new(Action::Off, &target, None, HOST, Duration::from_secs(30));
    name().request_id().clone_into(&mut request.request_id);
    request.timestamp = moment(Time::Early).to_string();
    request.deadline = Some((moment(Time::Early) + Duration::from_secs(30)).to_string());
    request
}

fn answer(success: bool) -> Response {
    let mut response = Response::to(&request(), success, "", Action::Off);
    response.timestamp = None;
    response
}

/// Whether these are the bytes of a whole answer.
pub fn is_answer(bytes: &[u8]) -> bool {
    [true, false]
        .iter()
        .any(|success| bytes == pretty(&answer(*success)))
}

fn chosen(replay: &Replay, ways: usize) -> usize {
    match replay.call(Call::Choose(ways)) {
        Seen::Chosen(way) => way,
        other => unreachable!("{other:?}"),
    }
}

fn says_yes(replay: &Replay, call: Call) -> bool {
    replay.call(call) == Seen::Yes(true)
}

fn time(replay: &Replay) -> Time {
    match replay.call(Call::Now) {
        Seen::Time(time) => time,
        other => unreachable!("{other:?}"),
    }
}

/// The agent (design 3.3): publishes, waits, withdraws, and when time is over looks once more.
pub fn agent(replay: &Replay) -> Success {
    let (requests, responses) = (
        Simulated::new(REQUESTS, replay),
        Simulated::new(RESPONSES, replay),
    );
    let take_back = || {
        let withdrawn = withdraw(&requests, NAME).expect("nothing fails here");
        let while_waiting = withdrawn == Withdrawn::Waiting;
        replay.call(Call::Withdrew { while_waiting });
    };
    if request().publish(&requests, &name()).is_err() {
        take_back();
        return false;
    }
    if says_yes(replay, Call::WaitFor(RESPONSES, NAME.to_owned()))
        && let Ok(response) = Response::read(&responses, &name())
    {
        take_back();
        return response.success;
    }
    take_back();
    Response::read(&responses, &name()).is_ok_and(|response| response.success)
}

/// The agent when it is told to end before there is an answer.
pub fn cancelled_agent(replay: &Replay) -> Success {
    if chosen(replay, 2) == 0 {
        return agent(replay);
    }
    let requests = Simulated::new(REQUESTS, replay);
    let _ = request().publish(&requests, &name());
    let withdrawn = withdraw(&requests, NAME).expect("nothing fails here");
    let while_waiting = withdrawn == Withdrawn::Waiting;
    replay.call(Call::Withdrew { while_waiting });
    false
}

/// How a responder goes about it; all but one are wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Right,
    WithoutLock,
    WithoutLook,
    Replacing,
    InPlace,
    BeforeTheEnd,
}

/// The responder (design 3.4), which may be the second one after the first's death: what is claimed
/// it adopts, what waits it claims, then it sleeps until there is more.
pub fn responder(replay: &Replay) -> Success {
    respond(replay, Way::Right)
}

/// As [`responder`], but takes no lock.
pub fn responder_without_lock(replay: &Replay) -> Success {
    respond(replay, Way::WithoutLock)
}

/// As [`responder`], but doesn't look whether its claim was withdrawn.
pub fn responder_without_look(replay: &Replay) -> Success {
    respond(replay, Way::WithoutLook)
}

/// As [`responder`], but its answer replaces what is there.
pub fn replacing_responder(replay: &Replay) -> Success {
    respond(replay, Way::Replacing)
}

/// As [`responder`], but writes its answer under its final name.
pub fn responder_in_place(replay: &Replay) -> Success {
    respond(replay, Way::InPlace)
}

/// As [`responder`], but answers before it has fenced.
pub fn hasty_responder(replay: &Replay) -> Success {
    respond(replay, Way::BeforeTheEnd)
}

fn respond(replay: &Replay, way: Way) -> Success {
    if way != Way::WithoutLock && !says_yes(replay, Call::Lock) {
        return false;
    }
    let requests = Simulated::new(REQUESTS, replay);
    let claims = Claims::open(&requests).expect("nothing fails here");
    // once at its start, and once more when something is there
    for round in 0..2 {
        if round == 1 && !says_yes(replay, Call::WaitFor(REQUESTS, NAME.to_owned())) {
            return false;
        }
        if requests_in(&claims.claimed) {
            consider(replay, &claims, way);
        }
        if requests_in(&requests) {
            match claims
                .take(&requests, &name())
                .expect("nothing else fails here")
            {
                Claimed::Ours => consider(replay, &claims, way),
                Claimed::Again => {
                    let name = NAME.as_ref();
                    let _ = Claims::reject(&requests, &requests, name).expect("it can be moved");
                }
                // over NFS it may be ours all the same: the next look at the claims tells
                Claimed::Gone if requests_in(&claims.claimed) => consider(replay, &claims, way),
                Claimed::Gone => {}
            }
        }
    }
    false
}

fn requests_in(directory: &Simulated<'_>) -> bool {
    let mut found = false;
    let listed = directory.for_each_name(|name| {
        found |= name == NAME;
        true
    });
    listed.expect("nothing fails here");
    found
}

fn consider(replay: &Replay, claims: &Claims<Simulated<'_>>, way: Way) {
    let responses = Simulated::new(RESPONSES, replay);
    if Request::read(&claims.claimed, &name()).is_err() {
        return;
    }
    if Response::read(&responses, &name()).is_ok() {
        let _ = claims.release(&name()).expect("nothing fails here");
        return;
    }
    let success = if time(replay) == Time::Early {
        if way != Way::WithoutLook && !claims.holds(&name()).expect("nothing fails here") {
            return;
        }
        if way == Way::BeforeTheEnd {
            let _ = answer(true).publish(&responses, &name());
        }
        replay.call(Call::Begin);
        let success = chosen(replay, 2) == 1;
        replay.call(Call::End(success));
        success
    } else {
        false
    };
    if claims.holds(&name()).expect("nothing fails here") {
        publish(&responses, success, way);
        let _ = claims.release(&name()).expect("nothing fails here");
    }
}

fn publish(responses: &Simulated<'_>, success: bool, way: Way) {
    let bytes = pretty(&answer(success));
    match way {
        Way::Replacing => {
            let _ = replace(responses, NAME, &bytes, MODE);
        }
        Way::InPlace => {
            if let Ok(file) = responses.create(NAME, MODE) {
                let _ = file.write(&bytes);
            }
        }
        _ => {
            // what a killed one left half-written
            let _ = responses.remove(&name().temporary());
            let _ = answer(success).publish(responses, &name());
        }
    }
}

/// `fence_recorder answer` where no responder runs: a person looks after the node.
pub fn person(replay: &Replay) -> Success {
    if !says_yes(replay, Call::Lock) {
        return false;
    }
    let (requests, responses) = (
        Simulated::new(REQUESTS, replay),
        Simulated::new(RESPONSES, replay),
    );
    let claims = Claims::open(&requests).expect("nothing fails here");
    let _ = claims
        .take(&requests, &name())
        .expect("nothing else fails here");
    if Request::read(&claims.claimed, &name()).is_err() || time(replay) != Time::Early {
        return false;
    }
    let success = chosen(replay, 2) == 1;
    if success {
        replay.call(Call::Vouch);
    }
    if answer(success).publish(&responses, &name()).is_ok() {
        let _ = claims.release(&name()).expect("nothing fails here");
    }
    false
}

/// Another program's responder, which answers whatever is asked, without a claim (design 3.4).
pub fn stranger(replay: &Replay) -> Success {
    let success = chosen(replay, 2) == 1;
    if success {
        replay.call(Call::Vouch);
    }
    let responses = Simulated::new(RESPONSES, replay);
    let temporary = ".of-the-stranger";
    let file = responses.create(temporary, MODE).expect("its own name");
    let _ = file.write(&pretty(&answer(success)));
    let _ = responses.rename_new(temporary.as_ref(), &responses, NAME.as_ref());
    false
}

/// The sweep of another fence on this host.
pub fn sweeper(replay: &Replay) -> Success {
    let requests = Simulated::new(REQUESTS, replay);
    let rules = SweepRules {
        host: HOST,
        max_age: Duration::from_mins(5),
        now: moment(time(replay)),
    };
    sweep(
        &requests,
        rules,
        || true,
        |swept| {
            if matches!(swept, Swept::Expired(_)) {
                replay.call(Call::Swept);
            }
        },
    );
    false
}

/// A process that can be killed at any moment.
pub const fn mortal(name: &'static str, run: fn(&Replay) -> Success) -> Process {
    let can_die = true;
    Process { name, run, can_die }
}
