//! `fence_recorder answer`: a person answers a request.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Arg, ArgGroup, ArgMatches};
use jiff::Timestamp;
use nix::errno::Errno;
use nix::unistd::geteuid;
use thiserror::Error;

use super::options::{flag, request_dir, request_dir_of, response_dir, response_dir_of, word};
use super::person::{self, Said};
use crate::interrupt::{Interrupt, Interrupted};
use crate::jobs::record::{Reason, Record, Word, now};
use crate::jobs::store::{Store, StoreFault};
use crate::spool::answer::{ANSWERS, Answer};
use crate::spool::calls::DirectoryCalls;
use crate::spool::claim::{Claimed, Claims, open_or_make};
use crate::spool::directory::{Directory, Trust};
use crate::spool::lock::{LOCK, Lock};
use crate::spool::name::FileName;
use crate::spool::presence::{Responder, a_process_watches};
use crate::spool::publish::PublishFault;
use crate::spool::request::{Request, RequestFault};
use crate::spool::response::Response;
use crate::spool::system::with_advice;
use crate::spool::waiting::{WaitingFault, Where, waiting};
use crate::spool::withdraw::CLAIMED;
use crate::spool::{Spool, SpoolFault};
use crate::text::one_line;

/// How long the responder may take to hear of an answer.
const RESPONDER_TIME: Duration = Duration::from_secs(10);

/// How often the responder's doing is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Why nothing was answered.
#[derive(Debug, Error)]
enum Fault {
    #[error("{0}")]
    Spool(#[from] SpoolFault),
    #[error("{path} can't be used: {}", with_advice(*.error))]
    System { path: String, error: Errno },
    #[error("{0}")]
    Waiting(#[from] WaitingFault),
    #[error("nothing is pending for \"{0}\": no request has that id or node")]
    NotPending(String),
    #[error("\"{node}\" has several requests pending: answer one by its id: {}", ids.join(", "))]
    Several { node: String, ids: Vec<String> },
    #[error("the request {0}")]
    Request(#[from] RequestFault),
    #[error("its deadline {0} has passed: nobody waits for the answer any more")]
    Expired(String),
    #[error("run this as root: the responder takes no other user's word that a node is safe")]
    NotRoot,
    #[error("the responder doesn't wait for a person here: {0}")]
    NotWaiting(String),
    #[error("the responder's records: {0}")]
    Store(#[from] StoreFault),
    #[error("the responder doesn't say where its records are: is {0} from another version?")]
    NoRecords(String),
    #[error("{0}")]
    Publish(#[from] PublishFault),
    #[error("another answer to it is on its way already")]
    Answered,
    #[error("the responder didn't take the answer within {} s, and it was taken back: look at its log", RESPONDER_TIME.as_secs())]
    NotTaken,
    #[error("taken back: {0} came before the responder took the answer")]
    Interrupted(Interrupted),
    #[error("the responder took the answer, but the request was not answered with it: {0}")]
    NotAnswered(String),
    #[error("a process watches {0} and will answer itself: stop it first")]
    Watched(String),
    #[error("a responder starts at this moment: try again")]
    ResponderStarts,
    #[error("the request was withdrawn meanwhile")]
    Withdrawn,
    #[error("not confirmed: nothing was answered")]
    NotConfirmed,
    #[error("--success vouches that the node is safe: confirm it on a terminal, or with --yes")]
    NoTerminal,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The options, from which parser and help are made.
#[must_use]
pub fn command() -> clap::Command {
    crate::commands::ANSWER
        .command()
        .arg(word("target", "REQUEST-ID|NODE", "Which request").required(true))
        .arg(flag(
            "success",
            "The node is safe; or, where the responder's rule has tasks, they may run",
        ))
        .arg(flag("failure", "The node could not be fenced"))
        .group(
            ArgGroup::new("outcome")
                .args(["success", "failure"])
                .required(true),
        )
        .arg(
            Arg::new("message")
                .short('m')
                .long("message")
                .value_name("TEXT")
                .help("Why"),
        )
        .arg(flag("yes", "Don't ask"))
        .arg(request_dir())
        .arg(response_dir())
}

/// What was given on the command line.
struct Given {
    target: String,
    success: bool,
    message: Option<String>,
    is_confirmed: bool,
    request_dir: PathBuf,
    response_dir: PathBuf,
}

/// A request that can be answered, and where it lies.
struct Found {
    name: FileName,
    request: Request,
}

/// Answers, and says what came of it in one line.
#[must_use]
pub fn main(matches: &ArgMatches) -> ExitCode {
    match answer(&given(matches)) {
        // it is answered, whether anybody reads that or not
        Ok(line) => _ = writeln!(io::stdout(), "{line}"),
        Err(fault) => {
            let _ = writeln!(io::stderr(), "fence_recorder: {fault}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn given(matches: &ArgMatches) -> Given {
    Given {
        target: matches
            .get_one::<String>("target")
            .cloned()
            .unwrap_or_default(),
        success: matches.get_flag("success"),
        message: matches.get_one::<String>("message").cloned(),
        is_confirmed: matches.get_flag("yes"),
        request_dir: request_dir_of(matches),
        response_dir: response_dir_of(matches),
    }
}

fn answer(given: &Given) -> Result<String, Fault> {
    let spool = Spool::open(&given.request_dir, &given.response_dir, Trust::Checked)?;
    let found = find(&spool, &given.target)?;
    if Lock::is_held(&spool.requests, LOCK) {
        answer_through_responder(given, &spool, &found)
    } else {
        answer_alone(given, &spool, &found)
    }
}

/// The one pending request that `target` names, or the first of those that one job answers.
fn find(spool: &Spool, target: &str) -> Result<Found, Fault> {
    let requests = &spool.requests;
    let is_wanted = |name: &FileName| name.has_id(target) || name.node() == target;
    let names = waiting(requests, is_wanted)?;
    let by_id = names.iter().find(|(name, _)| name.request_id() == target);
    let (name, place) = match (by_id, names.as_slice()) {
        (Some(one), _) | (None, [one]) => one,
        (None, []) => return Err(Fault::NotPending(one_line(target))),
        (None, [first, ..]) if are_one_job(spool, &names) => first,
        (None, several) => {
            let ids = several.iter().map(|(name, _)| name.request_id());
            return Err(Fault::Several {
                node: one_line(target),
                ids: ids.map(str::to_owned).collect(),
            });
        }
    };
    let request = match place {
        Where::Claimed => read(&claimed(requests)?, name)?,
        Where::Waiting => read(requests, name)?,
    };
    Ok(Found {
        name: name.clone(),
        request,
    })
}

/// Whether one job of the responder answers all of these requests.
fn are_one_job(spool: &Spool, names: &[(FileName, Where)]) -> bool {
    if !Lock::is_held(&spool.requests, LOCK) {
        return false;
    }
    let Ok(store) = records(spool) else {
        return false;
    };
    let job_of = |name: &FileName| job(&store, name.request_id()).map(|job| job.request.request_id);
    let mut jobs = names.iter().map(|(name, _)| job_of(name));
    let first = jobs.next().flatten();
    first.is_some() && jobs.all(|job| job == first)
}

fn claimed(requests: &Directory) -> Result<Directory, Fault> {
    requests
        .open_below(CLAIMED)
        .map_err(|error| system(requests, CLAIMED, error))
}

fn system(requests: &Directory, name: &str, error: Errno) -> Fault {
    let path = requests.path_of(name);
    Fault::System { path, error }
}

fn read(directory: &Directory, name: &FileName) -> Result<Request, Fault> {
    let (request, written) = Request::read(directory, name)?;
    let deadline = request.deadline(written);
    if Timestamp::now() >= deadline {
        return Err(Fault::Expired(deadline.to_string()));
    }
    Ok(request)
}

/// Asks whether the node is really safe, where success is to be said of it.
fn confirm(given: &Given, found: &Found, tasks: usize) -> Result<(), Fault> {
    if !given.success || given.is_confirmed {
        return Ok(());
    }
    let (node, action) = (
        one_line(&found.request.target_node),
        found.request.action.as_str(),
    );
    let question = if tasks > 0 {
        format!("This lets the responder run {tasks} tasks for {action} of {node}.")
    } else {
        format!(
            "If {node} still runs or can reach shared storage, the cluster will corrupt data: answer only after you \
             have seen for yourself that it is off or cut off ({action} was asked for by {}).",
            one_line(&found.request.recorder_node)
        )
    };
    match person::ask(&question)? {
        Said::Yes => Ok(()),
        Said::No => Err(Fault::NotConfirmed),
        Said::Nobody => Err(Fault::NoTerminal),
    }
}

fn answer_through_responder(given: &Given, spool: &Spool, found: &Found) -> Result<String, Fault> {
    if !geteuid().is_root() {
        return Err(Fault::NotRoot);
    }
    let store = records(spool)?;
    let job = waiting_job(&store, found)?;
    confirm(given, found, job.tasks.len())?;
    // the person may have taken his time
    let job_id = waiting_job(&store, found)?.request.request_id;
    let interrupt = Interrupt::new().map_err(io::Error::from)?;
    let answers = open_or_make(&spool.requests, ANSWERS)
        .map_err(|error| system(&spool.requests, ANSWERS, error))?;
    let id = found.name.request_id();
    let answer = Answer::new(
        id,
        given.success,
        given.message.clone(),
        Some(person::name()),
    );
    answer
        .publish(&answers, &found.name)
        .map_err(|fault| match fault.error {
            Errno::EEXIST => Fault::Answered,
            _ => Fault::Publish(fault),
        })?;
    wait_until_taken(&interrupt, &answers, &found.name)?;
    outcome(&store, &job_id, &answer, found)
}

fn records(spool: &Spool) -> Result<Store, Fault> {
    let responder = Responder::read(&spool.requests);
    let state_dir = responder.and_then(|responder| responder.state_dir);
    let state_dir = state_dir.ok_or_else(|| {
        Fault::NoRecords(spool.requests.path_of(crate::spool::presence::RESPONDER))
    })?;
    Ok(Store::open(&state_dir)?)
}

/// The record of the job that answers the request, if it waits for a person.
fn waiting_job(store: &Store, found: &Found) -> Result<Record, Fault> {
    let id = found.name.request_id();
    let Some(job) = job(store, id) else {
        let why = "it has not taken the request yet, or leaves it to another responder";
        return Err(Fault::NotWaiting(why.to_owned()));
    };
    match job.reason() {
        Some(Reason::WaitingForApproval) => Ok(job),
        Some(reason) => Err(Fault::NotWaiting(format!("its job is {reason}"))),
        None => Err(Fault::NotWaiting("its job has no state".to_owned())),
    }
}

/// The record of the job that answers the request `id`, which may have joined another's.
fn job(store: &Store, id: &str) -> Option<Record> {
    if let Ok(record) = store.read(id) {
        return Some(record);
    }
    let mut found = None;
    let has_joined = |record: &Record| record.joined.iter().any(|other| other.request_id == id);
    let _ = store.for_each(|_, record| {
        found = found.take().or_else(|| record.ok().filter(has_joined));
    });
    found
}

/// The responder removes an answer that it has looked at. Until then a signal, or the end of our
/// patience, takes it back: a word that nobody stands by any more must not count later.
fn wait_until_taken(
    interrupt: &Interrupt,
    answers: &Directory,
    name: &FileName,
) -> Result<(), Fault> {
    let end = Instant::now() + RESPONDER_TIME;
    let take_back = |fault| match answers.remove(name.as_str()) {
        Ok(()) => Err(fault),
        // it was taken at that moment
        Err(_) => Ok(()),
    };
    while Answer::read(answers, name).is_ok() {
        if Instant::now() >= end {
            return take_back(Fault::NotTaken);
        }
        if let Err(signal) = interrupt.sleep(LOOK_INTERVAL) {
            return take_back(Fault::Interrupted(signal));
        }
    }
    Ok(())
}

/// What the responder made of the answer, once that is known.
fn outcome(store: &Store, job_id: &str, answer: &Answer, found: &Found) -> Result<String, Fault> {
    let subject = subject(&found.request);
    let end = Instant::now() + RESPONDER_TIME;
    loop {
        let job = store.read(job_id).ok();
        let is_ours = |word: &Word| word.time == answer.timestamp && word.by == answer.by;
        let Some(job) = job.filter(|job| job.answer.as_ref().is_some_and(is_ours)) else {
            return Err(Fault::NotWaiting("its job ended meanwhile".to_owned()));
        };
        if answer.success && !job.tasks.is_empty() {
            return Ok(format!("{subject}: approved, its tasks run now"));
        }
        let message = job
            .conditions
            .first()
            .map(|one| one.message.clone())
            .unwrap_or_default();
        match job.reason().filter(|_| job.is_over()) {
            Some(Reason::Completed) => return Ok(format!("{subject}: answered with success")),
            Some(Reason::Refused) => return Ok(format!("{subject}: answered with failure")),
            Some(reason) => return Err(Fault::NotAnswered(format!("{reason}: {message}"))),
            None if Instant::now() >= end => {
                return Err(Fault::NotAnswered("its job is not over yet".to_owned()));
            }
            None => std::thread::sleep(LOOK_INTERVAL),
        }
    }
}

fn subject(request: &Request) -> String {
    format!(
        "{} of {}",
        request.action.as_str(),
        one_line(&request.target_node)
    )
}

/// Without a responder: claims the request and publishes the answer, as one would.
fn answer_alone(given: &Given, spool: &Spool, found: &Found) -> Result<String, Fault> {
    let requests = &spool.requests;
    let refuse_if_watched = || {
        if a_process_watches(requests) {
            Err(Fault::Watched(requests.path_of("")))
        } else {
            Ok(())
        }
    };
    refuse_if_watched()?;
    confirm(given, found, 0)?;
    let _lock = Lock::take(requests, LOCK)
        .map_err(|error| system(requests, LOCK, error))?
        .ok_or(Fault::ResponderStarts)?;
    refuse_if_watched()?;
    let claims = Claims::open(requests).map_err(|(name, error)| system(requests, name, error))?;
    let request = claim(requests, &claims, &found.name)?;
    let word = Word {
        success: given.success,
        by: Some(person::name()),
        message: given.message.clone(),
        time: now(),
    };
    let response = Response::to(&request, given.success, &word.to_string(), request.action);
    response.publish(&spool.responses, &found.name)?;
    claims
        .release(&found.name)
        .map_err(|error| system(&claims.claimed, found.name.as_str(), error))?;
    let outcome = if given.success { "success" } else { "failure" };
    Ok(format!("{}: answered with {outcome}", subject(&request)))
}

/// Claims the request, or takes over the claim of a responder that is gone.
fn claim(requests: &Directory, claims: &Claims, name: &FileName) -> Result<Request, Fault> {
    match claims.take(requests, name) {
        Ok(Claimed::Ours | Claimed::Gone | Claimed::Again) => {}
        Err(error) => return Err(system(requests, name.as_str(), error)),
    }
    let gone = |fault| match fault {
        Fault::Request(RequestFault::File(crate::spool::file::FileFault::Missing)) => {
            Fault::Withdrawn
        }
        fault => fault,
    };
    read(&claims.claimed, name).map_err(gone)
}
