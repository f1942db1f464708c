//! A thousand requests at once through the responder and through a plain shell loop; an idle one.
//!
//! `cargo bench --bench responder`. The spool is on tmpfs, as /run is; the responder's records are
//! on the disk of the temporary directory, as /var/lib is.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fence_recorder");
const REQUESTS: usize = 1000;
const ROUNDS: usize = 5;
const IDLE: Duration = Duration::from_secs(20);

/// As README's, with /bin/true in place of what fences.
const SHELL_LOOP: &str = r#"
shopt -s nullglob
while sleep 0.05; do
  for request in requests/*.json; do
    name=${request##*/}
    mapfile -t field < <(jq -r '.request_id, .target_node' "$request")
    success=false
    FENCE_NODE=${field[1]} /bin/true && success=true
    jq -n --arg id "${field[0]}" --arg node "${field[1]}" --argjson success "$success" \
      '{request_id: $id, success: $success, target_node: $node}' >"responses/.$name.tmp" &&
      sync "responses/.$name.tmp" && mv "responses/.$name.tmp" "responses/$name" && rm -f "$request"
  done
done
"#;

const CONFIGURATION: &str = "[[rule]]\nnodes = [\"*\"]\n[[rule.task]]\nexec = [\"/bin/true\"]\n";

/// A spool on tmpfs, and a directory on the disk.
struct Place {
    spool: TempDir,
    disk: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            spool: tempfile::tempdir_in("/dev/shm").unwrap(),
            disk: tempfile::tempdir().unwrap(),
        };
        for name in ["requests", "responses"] {
            fs::create_dir(place.path(name)).unwrap();
            fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.spool.path().join(name)
    }

    fn responder(&self) -> Child {
        let file = self.disk.path().join("responder.toml");
        let text = format!(
            "request_dir = \"{}\"\nresponse_dir = \"{}\"\nstate_dir = \"{}\"\nlog_dir = \"{}\"\n{CONFIGURATION}",
            self.path("requests").display(),
            self.path("responses").display(),
            self.disk.path().join("state").display(),
            self.disk.path().join("log").display(),
        );
        fs::write(&file, text).unwrap();
        let child = Command::new(PROGRAM)
            .args(["responder", "--config"])
            .arg(file)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until(|| self.path("requests/.responder.json").exists());
        child
    }

    fn shell_loop(&self) -> Child {
        Command::new("bash")
            .args(["-c", SHELL_LOOP])
            .current_dir(self.spool.path())
            .spawn()
            .unwrap()
    }

    /// Writes the requests beside the spool, then renames them into it one after the other.
    fn drop_requests(&self) {
        let requests = self.path("requests");
        let names: Vec<_> = (0..REQUESTS)
            .map(|number| write_request(&requests, number))
            .collect();
        for name in names {
            fs::rename(requests.join(format!(".{name}.tmp")), requests.join(name)).unwrap();
        }
    }

    fn answers(&self) -> usize {
        let names = fs::read_dir(self.path("responses")).unwrap().flatten();
        names
            .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
            .count()
    }
}

fn write_request(requests: &Path, number: usize) -> String {
    let id = uuid::Uuid::new_v4().to_string();
    let now = jiff::Timestamp::now();
    let request = json!({
        "request_id": id,
        "timestamp": now.to_string(),
        "action": "off",
        "target_node": format!("node-{number}"),
        "recorder_node": "bench",
        "timeout_seconds": 120,
        "deadline": (now + jiff::SignedDuration::from_mins(2)).to_string(),
    });
    let name = format!("node-{number}-{id}.json");
    fs::write(requests.join(format!(".{name}.tmp")), request.to_string()).unwrap();
    name
}

fn wait_until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_mins(2);
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The time until all are answered, and the peak resident memory in KiB.
fn thousand_at_once(start: impl Fn(&Place) -> Child) -> (Duration, u64) {
    let place = Place::new();
    let mut child = start(&place);
    let begun = Instant::now();
    place.drop_requests();
    wait_until(|| place.answers() == REQUESTS);
    let took = begun.elapsed();
    let peak = status(&child, "VmHWM:");
    child.kill().unwrap();
    child.wait().unwrap();
    (took, peak)
}

fn status(child: &Child, key: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    number_after(&text, key)
}

fn number_after(text: &str, key: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// How often any of its threads has been woken.
fn wakes(child: &Child) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id()))
        .unwrap()
        .flatten();
    tasks
        .map(|task| fs::read_to_string(task.path().join("status")).unwrap())
        .map(|text| {
            number_after(&text, "voluntary_ctxt_switches:")
                + number_after(&text, "nonvoluntary_ctxt_switches:")
        })
        .sum()
}

fn print(name: &str, start: impl Fn(&Place) -> Child) {
    let mut rounds: Vec<_> = (0..ROUNDS).map(|_| thousand_at_once(&start)).collect();
    rounds.sort();
    let (median, peak) = (
        rounds[ROUNDS / 2].0,
        rounds.iter().map(|round| round.1).max().unwrap(),
    );
    #[allow(clippy::cast_precision_loss)] // a thousand and a few MiB are exact
    let (rate, mebibytes) = (REQUESTS as f64 / median.as_secs_f64(), peak as f64 / 1024.0);
    println!(
        "{name:<12} {:>8.2} s {rate:>10.0} /s {mebibytes:>8.2} MiB",
        median.as_secs_f64()
    );
}

fn main() {
    // cargo test --all-targets runs benches too, in the dev profile and without this argument
    if !std::env::args().any(|argument| argument == "--bench") {
        return println!("nothing to test here: cargo bench --bench responder");
    }
    println!(
        "{REQUESTS} requests for as many nodes at once, exec = [\"/bin/true\"], median of {ROUNDS}"
    );
    println!(
        "{:<12} {:>10} {:>13} {:>12}",
        "", "all in", "requests", "peak memory"
    );
    print("responder", Place::responder);
    print("shell loop", Place::shell_loop);
    let place = Place::new();
    let mut child = place.responder();
    let before = wakes(&child);
    std::thread::sleep(IDLE);
    #[allow(clippy::cast_precision_loss)] // small numbers
    let (woken, peak) = (
        (wakes(&child) - before) as f64,
        status(&child, "VmHWM:") as f64,
    );
    println!(
        "\nidle for {} s: {:.2} wake-ups/s, {:.2} MiB peak",
        IDLE.as_secs(),
        woken / IDLE.as_secs_f64(),
        peak / 1024.0
    );
    child.kill().unwrap();
    child.wait().unwrap();
}
