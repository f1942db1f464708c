//! A small responder: it sees every request and answers as the test says.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::spool::Spool;

const PAUSE: Duration = Duration::from_millis(5);

/// What the responder does with every request.
#[derive(Clone, Copy)]
pub enum Answer {
    Success,
    Refusal(&'static str),
    Silence,
}

/// A request as the responder found it.
#[derive(Clone)]
pub struct Request {
    pub file_name: String,
    pub mode: u32,
    pub body: Value,
    pub seen: Instant,
}

impl Request {
    /// A text field of the request.
    pub fn text(&self, field: &str) -> &str {
        self.body[field]
            .as_str()
            .unwrap_or_else(|| panic!("no text {field}: {}", self.body))
    }
}

/// A thread that watches one spool until it is dropped.
pub struct Responder {
    seen: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    pub fn start(spool: &Spool, answer: Answer) -> Self {
        let seen = Arc::default();
        let stop = Arc::default();
        let watch = Watch {
            spool: spool.clone(),
            answer,
            seen: Arc::clone(&seen),
        };
        let stopped = Arc::clone(&stop);
        let thread = Some(thread::spawn(move || watch.run(&stopped)));
        Self { seen, stop, thread }
    }

    /// The requests seen so far, oldest first.
    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// The only request seen so far.
    #[track_caller]
    pub fn only(&self) -> Request {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "requests: {:?}", bodies(&seen));
        seen.into_iter().next().expect("there is one")
    }
}

/// The requests' contents, for messages.
fn bodies(requests: &[Request]) -> Vec<String> {
    requests
        .iter()
        .map(|request| request.body.to_string())
        .collect()
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("dropped once").join();
        assert!(
            ended.is_ok() || thread::panicking(),
            "the responder panicked"
        );
    }
}

/// What the thread owns.
struct Watch {
    spool: Spool,
    answer: Answer,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Watch {
    fn run(&self, stop: &AtomicBool) {
        let mut known = HashSet::new();
        while !stop.load(Ordering::Relaxed) {
            for name in self.spool.pending() {
                if !known.contains(&name)
                    && let Some(request) = self.look(&name)
                {
                    self.seen.lock().unwrap().push(request.clone());
                    self.reply(&request);
                    known.insert(name);
                }
            }
            thread::sleep(PAUSE);
        }
    }

    /// Reads a request, unless it was withdrawn meanwhile. One that is visible must be whole.
    fn look(&self, name: &str) -> Option<Request> {
        let path = self.spool.requests.join(name);
        let mode = fs::symlink_metadata(&path).ok()?.permissions().mode() & 0o7777;
        let text = fs::read(&path).ok()?;
        let body = serde_json::from_slice(&text).expect("a visible request is whole");
        Some(Request {
            file_name: name.to_owned(),
            mode,
            body,
            seen: Instant::now(),
        })
    }

    /// Publishes the response by a rename, as the protocol asks.
    fn reply(&self, request: &Request) {
        let (success, message) = match self.answer {
            Answer::Success => (true, "done"),
            Answer::Refusal(reason) => (false, reason),
            Answer::Silence => return,
        };
        let response = json!({
            "request_id": request.body["request_id"],
            "success": success,
            "message": message,
            "action_performed": "off",
            "target_node": request.body["target_node"],
            "timestamp": request.body["timestamp"],
        });
        let hidden = self
            .spool
            .responses
            .join(format!(".{}.tmp", request.file_name));
        fs::write(&hidden, response.to_string()).expect("the response is written");
        fs::rename(&hidden, self.spool.responses.join(&request.file_name)).expect("and published");
    }
}
