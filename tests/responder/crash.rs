//! SIGKILL of the responder at every stage of its jobs, again and again, with requests flowing.
//!
//! Every process of a task writes lines to one log, each by one `O_APPEND` write, so their order is
//! true: what follows is decided by that order and not by clocks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use fence_recorder::spool::directory::{Directory, Role, Trust};
use fence_recorder::spool::withdraw::withdraw;
use jiff::Timestamp;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::Value;

use crate::env::wait_for;
use crate::scene::{Scene, publish, request, uuid};

const ROUNDS: usize = 200;
const HITS: usize = 20;

/// However busy the machine is: then the test fails, and says which stage was not hit.
const MOST_ROUNDS: usize = 1500;

/// How many requests are on their way at once.
const FLOW: usize = 8;

const RULES: &str = "max_jobs = 4\n[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\nname = \"first\"\nexec = [\"DIR/task\", \"first\"]\n\
     retry_count = 3\nretry_interval = \"30ms\"\ntimeout = \"300ms\"\n\
     [[rule.task]]\nname = \"last\"\nexec = [\"DIR/task\", \"last\"]\nretry_count = 3\nretry_interval = \"30ms\"\n";

/// Fails or hangs at times; while it hangs, and in a child too, it shows that it lives.
const TASK: &str = r#"say() { echo "$1 $FENCE_REQUEST_ID $FENCE_NODE $$ $(date +%s.%N)" >>DIR/lines; }
say "start-$1"
live() { i=0; while [ $i -lt 200 ]; do say alive; sleep 0.01; i=$((i + 1)); done; }
case $(($$ % 9)) in
  0) exit 1 ;;
  1) [ "$1" = last ] || { live & live; } ;;
  2) sleep 0.05 ;;
esac
say "end-$1""#;

/// At which stage of a job the responder died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    Claimed,
    TaskRunning,
    BeforeAnswer,
    AfterAnswer,
    BeforeRelease,
}

const STAGES: [Stage; 5] = [
    Stage::Claimed,
    Stage::TaskRunning,
    Stage::BeforeAnswer,
    Stage::AfterAnswer,
    Stage::BeforeRelease,
];

/// A request as its agent knows it.
struct Sent {
    node: String,
    deadline: Timestamp,
    /// When its withdrawal was complete.
    withdrawn: Option<Timestamp>,
    /// Sent to expire while no responder runs.
    is_to_expire: bool,
}

/// What was seen of an answer at first: its inode and content.
type Seen = (u64, Vec<u8>);

struct Crashes {
    scene: Scene,
    requests: Directory,
    sent: BTreeMap<String, Sent>,
    /// Those whose agents still wait.
    waiting: Vec<String>,
    answers: HashMap<String, Seen>,
    ends: HashMap<String, Value>,
    replaced: usize,
    several_ends: usize,
    hits: BTreeMap<Stage, usize>,
    rounds: usize,
    number: usize,
}

impl Crashes {
    fn new() -> Self {
        let scene = Scene::without_responder(RULES);
        scene.script("task", TASK);
        File::create(scene.path("lines")).unwrap();
        fs::create_dir_all(scene.path("state/jobs")).unwrap();
        fs::create_dir(scene.path("requests/.claimed")).unwrap();
        let requests = Directory::open(&scene.path("requests"), Role::Requests, Trust::Checked);
        Self {
            requests: requests.unwrap(),
            scene,
            sent: BTreeMap::new(),
            waiting: Vec::new(),
            answers: HashMap::new(),
            ends: HashMap::new(),
            replaced: 0,
            several_ends: 0,
            hits: STAGES.map(|stage| (stage, 0)).into(),
            rounds: 0,
            number: 0,
        }
    }

    /// Lets requests flow, kills the responder at `stage`, and looks at what it left.
    fn round(&mut self, stage: Stage) {
        self.rounds += 1;
        self.top_up();
        let trigger = Trigger::new(&self.scene, stage, self.rounds % 3);
        self.spawn();
        trigger.wait();
        if self.rounds.is_multiple_of(4) {
            self.withdraw_one();
            // time for the responder to run it in spite of that
            Trigger::new(&self.scene, Stage::TaskRunning, 12).wait();
        }
        self.scene.crash();
        self.look_back();
        if self.rounds % 4 == 2 {
            self.withdraw_one();
        }
        if self.rounds.is_multiple_of(40) {
            self.let_one_expire();
        }
    }

    /// Starts the responder without waiting for it: a crash may well come before it serves.
    fn spawn(&mut self) {
        self.scene.responder = Some(self.scene.command().spawn().unwrap());
    }

    fn top_up(&mut self) {
        while self.waiting.len() < FLOW {
            let node = format!("n{}", self.number % 5);
            // some go to one node in pairs, and may join
            self.number += 1 + usize::from(self.number.is_multiple_of(7));
            self.send(&node, 25.0, false);
        }
    }

    fn send(&mut self, node: &str, seconds: f64, is_to_expire: bool) -> String {
        let id = uuid();
        let content = request(&id, "off", node, seconds);
        let sent = Sent {
            node: node.to_owned(),
            deadline: content["deadline"].as_str().unwrap().parse().unwrap(),
            withdrawn: None,
            is_to_expire,
        };
        publish(
            &self.scene.path("requests"),
            &format!("{node}-{id}.json"),
            &content,
        );
        self.sent.insert(id.clone(), sent);
        self.waiting.push(id.clone());
        id
    }

    /// One whose tasks have not begun: those that run may end.
    fn withdraw_one(&mut self) {
        let lines = lines(&self.scene);
        let has_not_begun = |id: &&String| !lines.iter().any(|line| line.id == **id);
        let Some(id) = self.waiting.iter().find(has_not_begun).cloned() else {
            return;
        };
        self.waiting.retain(|other| *other != id);
        let sent = self.sent.get_mut(&id).unwrap();
        withdraw(&self.requests, &format!("{}-{id}.json", sent.node)).unwrap();
        sent.withdrawn = Some(Timestamp::now());
    }

    /// A request whose time is over before the next responder starts.
    fn let_one_expire(&mut self) {
        let id = self.send("n0", 0.2, true);
        let deadline = self.sent[&id].deadline;
        wait_for("a deadline to pass", || {
            (Timestamp::now() > deadline).then_some(())
        });
    }

    /// Tells from the files at which stages the dead responder's jobs are, and what has changed that
    /// must not change.
    fn look_back(&mut self) {
        let lines = lines(&self.scene);
        let mut stages = HashSet::new();
        for id in self.waiting.clone() {
            stages.extend(self.stage_of(&id, &lines));
            self.note_answer(&id);
            self.note_end(&id);
        }
        for stage in stages {
            *self.hits.get_mut(&stage).unwrap() += 1;
        }
        self.waiting.retain(|id| !self.answers.contains_key(id));
    }

    fn stage_of(&self, id: &str, lines: &[Line]) -> Option<Stage> {
        let name = format!("{}-{id}.json", self.sent[id].node);
        if !self.scene.path("requests/.claimed").join(&name).exists() {
            return None;
        }
        let is_over = self
            .scene
            .job(id)
            .is_some_and(|job| !job["completion_time"].is_null());
        if self.scene.path("responses").join(&name).exists() {
            return Some(if is_over {
                Stage::BeforeRelease
            } else {
                Stage::AfterAnswer
            });
        }
        let last = lines.iter().rev().find(|line| line.id == id);
        match last.map(|line| line.word.as_str()) {
            None => Some(Stage::Claimed),
            Some("end-last") => Some(Stage::BeforeAnswer),
            Some("end-first") => None,
            Some(_) => Some(Stage::TaskRunning),
        }
    }

    fn note_answer(&mut self, id: &str) {
        let name = format!("{}-{id}.json", self.sent[id].node);
        let path = self.scene.path("responses").join(name);
        let Ok(content) = fs::read(&path) else {
            return;
        };
        let seen = (fs::metadata(&path).unwrap().ino(), content);
        let first = self
            .answers
            .entry(id.to_owned())
            .or_insert_with(|| seen.clone());
        self.replaced += usize::from(*first != seen);
        // from here on nothing may be executed for it
        let mut log = File::options()
            .append(true)
            .open(self.scene.path("lines"))
            .unwrap();
        log.write_all(format!("answered {id} - 0 0\n").as_bytes())
            .unwrap();
    }

    fn note_end(&mut self, id: &str) {
        let Some(job) = self
            .scene
            .job(id)
            .filter(|job| !job["completion_time"].is_null())
        else {
            return;
        };
        let end = job["completion_time"].clone();
        let first = self
            .ends
            .entry(id.to_owned())
            .or_insert_with(|| end.clone());
        self.several_ends += usize::from(*first != end);
    }

    /// The last responder finishes everything.
    fn finish(&mut self) {
        self.scene.start();
        self.scene.until_all_is_done();
        assert_eq!(self.scene.stop(), Some(0));
        for id in self.sent.keys().cloned().collect::<Vec<_>>() {
            self.note_answer(&id);
            self.note_end(&id);
        }
    }

    fn is_enough(&self) -> bool {
        self.rounds >= ROUNDS && self.hits.values().all(|hits| *hits >= HITS)
    }

    /// The stage that was hit least.
    fn next_stage(&self) -> Stage {
        let by_round = STAGES[self.rounds % STAGES.len()];
        let (least, hits) = self.hits.iter().min_by_key(|(_, hits)| **hits).unwrap();
        if *hits < HITS { *least } else { by_round }
    }

    /// Everything that must not have happened.
    fn faults(&self) -> String {
        let lines = lines(&self.scene);
        let mut told = String::new();
        let mut count = |what: &str, ids: Vec<String>| {
            if !ids.is_empty() {
                writeln!(told, "{what}: {} {ids:?}", ids.len()).unwrap();
            }
        };
        let unanswered = |(id, sent): (&String, &Sent)| {
            (sent.withdrawn.is_none() && !self.answers.contains_key(id)).then(|| id.clone())
        };
        count("lost", self.sent.iter().filter_map(unanswered).collect());
        count(
            "late",
            starts(&lines)
                .filter(|line| self.is_late(line))
                .map(Line::own_id)
                .collect(),
        );
        count(
            "executed after its withdrawal",
            self.executed_after_withdrawal(),
        );
        count("executed after its answer", executed_after_answer(&lines));
        count("an old task beside a new one", overlaps(&lines));
        count("success without its tasks", self.unfounded(&lines));
        told
    }

    fn is_late(&self, line: &Line) -> bool {
        let sent = &self.sent[&line.id];
        sent.is_to_expire || line.time > seconds(sent.deadline)
    }

    /// By the records: an attempt's start time is taken before the claim is looked at for the last
    /// time, so one that is later than the withdrawal was started in spite of it.
    fn executed_after_withdrawal(&self) -> Vec<String> {
        let is_executed = |(id, sent): (&String, &Sent)| {
            let withdrawn = sent.withdrawn?;
            let job = self.scene.job(id)?;
            if job.get("joined").is_some() {
                return None;
            }
            let tasks = job["tasks"].as_array()?;
            let attempts = tasks
                .iter()
                .flat_map(|task| task["attempts"].as_array().unwrap());
            let mut starts = attempts.map(|attempt| attempt["start_time"].as_str().unwrap());
            starts
                .any(|start| start.parse::<Timestamp>().unwrap() > withdrawn)
                .then(|| id.clone())
        };
        self.sent.iter().filter_map(is_executed).collect()
    }

    /// Answers of success whose job never came to the end of its last task.
    fn unfounded(&self, lines: &[Line]) -> Vec<String> {
        let done: HashSet<&str> = lines
            .iter()
            .filter(|line| line.word == "end-last")
            .map(|line| line.id.as_str())
            .collect();
        let joined = self.joined();
        let is_unfounded = |(id, (_, content)): (&String, &Seen)| {
            let answer: Value = serde_json::from_slice(content).unwrap();
            let job = joined.get(id).unwrap_or(id);
            (answer["success"] == true && !done.contains(job.as_str())).then(|| id.clone())
        };
        self.answers.iter().filter_map(is_unfounded).collect()
    }

    /// The jobs of requests that joined one.
    fn joined(&self) -> HashMap<String, String> {
        let mut jobs = HashMap::new();
        for id in self.sent.keys() {
            let Some(job) = self.scene.job(id) else {
                continue;
            };
            for other in job["joined"].as_array().into_iter().flatten() {
                jobs.insert(other["request_id"].as_str().unwrap().to_owned(), id.clone());
            }
        }
        jobs
    }
}

/// Something that a responder does at a stage, as the file system tells of it.
struct Trigger {
    inotify: Inotify,
    stage: Stage,
    jobs: std::path::PathBuf,
    /// How many times it is let pass.
    skip: usize,
}

impl Trigger {
    fn new(scene: &Scene, stage: Stage, skip: usize) -> Self {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
        let (name, events) = match stage {
            Stage::Claimed => ("requests/.claimed", AddWatchFlags::IN_MOVED_TO),
            Stage::TaskRunning | Stage::BeforeAnswer => ("lines", AddWatchFlags::IN_MODIFY),
            Stage::AfterAnswer => ("responses", AddWatchFlags::IN_MOVED_TO),
            Stage::BeforeRelease => ("state/jobs", AddWatchFlags::IN_MOVED_TO),
        };
        inotify.add_watch(&scene.path(name), events).unwrap();
        Self {
            inotify,
            stage,
            jobs: scene.path("state/jobs"),
            skip,
        }
    }

    /// Until it has happened; a responder that finds nothing to do is killed all the same.
    fn wait(mut self) {
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            let mut descriptors = [PollFd::new(
                std::os::fd::AsFd::as_fd(&self.inotify),
                PollFlags::POLLIN,
            )];
            let _ = poll(&mut descriptors, PollTimeout::from(100_u8));
            for event in self.inotify.read_events().unwrap_or_default() {
                let counts = match self.stage {
                    Stage::BeforeRelease => event.name.is_some_and(|name| self.is_over(&name)),
                    _ => true,
                };
                if counts && self.skip == 0 {
                    return;
                }
                self.skip = self.skip.saturating_sub(usize::from(counts));
            }
        }
    }

    fn is_over(&self, name: &std::ffi::OsStr) -> bool {
        let record = fs::read_to_string(self.jobs.join(name)).unwrap_or_default();
        record.contains("\n  \"completion_time\": \"")
    }
}

/// A line of the tasks' log.
struct Line {
    word: String,
    id: String,
    node: String,
    pid: u32,
    time: f64,
}

impl Line {
    fn own_id(&self) -> String {
        self.id.clone()
    }
}

fn lines(scene: &Scene) -> Vec<Line> {
    let text = fs::read_to_string(scene.path("lines")).unwrap();
    let line = |line: &str| {
        let fields: Vec<_> = line.split(' ').collect();
        let [word, id, node, pid, time] = fields[..] else {
            panic!("a torn line: {line}");
        };
        Line {
            word: word.to_owned(),
            id: id.to_owned(),
            node: node.to_owned(),
            pid: pid.parse().unwrap(),
            time: time.parse().unwrap(),
        }
    };
    // one that crosses a page is seen in two parts while it is written
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    text[..whole].lines().map(line).collect()
}

fn starts(lines: &[Line]) -> impl Iterator<Item = &Line> {
    lines.iter().filter(|line| line.word.starts_with("start"))
}

fn executed_after_answer(lines: &[Line]) -> Vec<String> {
    let mut answered = HashSet::new();
    let mut executed = Vec::new();
    for line in lines {
        if line.word == "answered" {
            answered.insert(&line.id);
        } else if line.word.starts_with("start") && answered.contains(&line.id) {
            executed.push(line.own_id());
        }
    }
    executed
}

/// Signs of life of a task after the next one for its node was started.
fn overlaps(lines: &[Line]) -> Vec<String> {
    let mut newest: HashMap<&str, u32> = HashMap::new();
    let mut overlapping = Vec::new();
    for line in lines.iter().filter(|line| line.word != "answered") {
        if line.word.starts_with("start") {
            newest.insert(&line.node, line.pid);
        } else if newest.get(line.node.as_str()) != Some(&line.pid) {
            overlapping.push(format!("{} {} {}", line.id, line.word, line.pid));
        }
    }
    overlapping
}

#[allow(clippy::cast_precision_loss)] // microseconds of this century fit well enough
fn seconds(time: Timestamp) -> f64 {
    time.as_microsecond() as f64 / 1e6
}

#[test]
fn a_responder_that_is_killed_at_any_stage_loses_repeats_and_invents_nothing() {
    let mut crashes = Crashes::new();
    while !crashes.is_enough() && crashes.rounds < MOST_ROUNDS {
        let stage = crashes.next_stage();
        crashes.round(stage);
    }
    crashes.finish();
    let withdrawn = crashes
        .sent
        .values()
        .filter(|sent| sent.withdrawn.is_some())
        .count();
    println!(
        "{} rounds, kills by stage {:?}, {} requests, {withdrawn} withdrawn, {} replaced, {} with several ends",
        crashes.rounds,
        crashes.hits,
        crashes.sent.len(),
        crashes.replaced,
        crashes.several_ends
    );
    assert!(crashes.is_enough(), "{:?}", crashes.hits);
    assert_eq!((crashes.replaced, crashes.several_ends), (0, 0));
    assert_eq!(crashes.faults(), "");
}
