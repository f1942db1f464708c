//! Whole processes beside each other in one run: the floor, the agent, other agents' start-up.
//!
//! A child's peak memory, as the kernel counts it, starts at that of the process that spawned it.
//! So memory is measured by a fresh copy of this program for each kind, and shown beside that
//! copy's own: a figure close to it is an upper bound.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::io::{PipeWriter, Write, pipe};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fence_recorder::spool::Spool;
use fence_recorder::spool::directory::Trust;
use fence_recorder::spool::name::FileName;
use fence_recorder::spool::watch::{Watch, Woken};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tempfile::TempDir;

const AGENT: &str = env!("CARGO_BIN_EXE_fence_recorder");
const ROUNDS: usize = 300;
const START_ROUNDS: usize = 30;

#[derive(Clone, Copy)]
struct Sample {
    wall: Duration,
    cpu: Duration,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--memory") {
        return print_memory(&arguments[at + 1]);
    }
    build_floor();
    let stage = Stage::build();
    let mut floor = Vec::new();
    let mut agent = Vec::new();
    for _ in 0..ROUNDS {
        floor.push(measure(|| stage.run("floor")));
        agent.push(measure(|| stage.run("agent")));
    }
    println!(
        "One fence, answered at once, on tmpfs; medians of {ROUNDS} whole processes, interleaved"
    );
    println!(
        "{:<10} {:>9} {:>9} {:>9} {:>9} {:>12}",
        "", "p10 ms", "wall ms", "p95 ms", "CPU ms", "peak MiB"
    );
    row("floor", &floor, &memory("floor"));
    row("agent", &agent, &memory("agent"));
    println!(
        "ratio of wall time: {:.2}\n",
        median(&agent, |s| s.wall) / median(&floor, |s| s.wall)
    );
    start_up();
}

fn start_up() {
    let programs = [AGENT, "fence_kdump", "fence_dummy"];
    let mut samples = programs.map(|_| Vec::new());
    for _ in 0..START_ROUNDS {
        for (program, samples) in programs.iter().zip(&mut samples) {
            samples.push(measure(|| metadata(program)));
        }
    }
    println!("Start-up, -o metadata; medians of {START_ROUNDS}, interleaved");
    let ours = median(&samples[0], |sample| sample.wall);
    for (program, samples) in programs.iter().zip(&samples) {
        let name = Path::new(program).file_name().unwrap().to_string_lossy();
        let wall = median(samples, |sample| sample.wall);
        println!("{name:<15} {wall:>9.2} ms {:>8.1} times ours", wall / ours);
    }
}

fn metadata(program: &str) {
    let status = Command::new(program)
        .args(["-o", "metadata"])
        .stdout(Stdio::null())
        .status();
    let status =
        status.unwrap_or_else(|error| panic!("{program}: {error}: apt-get install fence-agents"));
    assert!(status.success(), "{program}");
}

fn build_floor() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--example", "floor"])
        .status();
    assert!(built.unwrap().success(), "the floor can't be built");
}

fn measure(run: impl FnOnce()) -> Sample {
    let before = children_cpu();
    let started = Instant::now();
    run();
    let wall = started.elapsed();
    Sample {
        wall,
        cpu: children_cpu().saturating_sub(before),
    }
}

fn children_cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let times = [usage.user_time(), usage.system_time()];
    let microseconds: i64 = times.iter().map(TimeValLike::num_microseconds).sum();
    Duration::from_micros(microseconds.try_into().unwrap())
}

/// Milliseconds.
fn sorted(samples: &[Sample], of: impl Fn(&Sample) -> Duration) -> Vec<f64> {
    let mut values: Vec<f64> = samples
        .iter()
        .map(|sample| of(sample).as_secs_f64() * 1e3)
        .collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(samples: &[Sample], of: impl Fn(&Sample) -> Duration) -> f64 {
    sorted(samples, of)[samples.len() / 2]
}

fn row(name: &str, samples: &[Sample], memory: &str) {
    let walls = sorted(samples, |sample| sample.wall);
    let cpu = median(samples, |sample| sample.cpu);
    // many runs wait in the kernel for a time that neither program spends (their CPU time shows
    // it): the tenth percentile shows those that had no such wait
    let (p10, p95) = (walls[walls.len() / 10], walls[walls.len() * 95 / 100]);
    println!(
        "{name:<10} {p10:>9.2} {:>9.2} {p95:>9.2} {cpu:>9.2} {memory:>12}",
        walls[walls.len() / 2]
    );
}

fn memory(kind: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--memory", kind])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[allow(clippy::cast_precision_loss)] // a few thousand KiB
fn print_memory(kind: &str) {
    let stage = Stage::build();
    for _ in 0..20 {
        stage.run(kind);
    }
    let mebibytes = |who| getrusage(who).unwrap().max_rss() as f64 / 1024.0;
    println!(
        "{:.1} (over {:.1})",
        mebibytes(UsageWho::RUSAGE_CHILDREN),
        mebibytes(UsageWho::RUSAGE_SELF)
    );
}

/// A spool on tmpfs with a responder that does nothing but answer.
struct Stage {
    directory: TempDir,
    responder: Option<(PipeWriter, JoinHandle<()>)>,
}

impl Stage {
    fn build() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("fence_recorder-bench-")
            .tempdir_in("/dev/shm")
            .unwrap();
        let paths = ["requests", "responses"].map(|name| directory.path().join(name));
        for path in &paths {
            fs::create_dir(path).unwrap();
        }
        let spool = Spool::open(&paths[0], &paths[1], Trust::Waived).unwrap();
        let (stopped, stopper) = pipe().unwrap();
        let (watch, fault) = Watch::new(&spool.requests);
        assert_eq!(fault, None);
        let thread = std::thread::spawn(move || {
            loop {
                match watch.wait(Duration::from_mins(1), stopped.as_fd()) {
                    Woken::Interrupted => return,
                    Woken::Named(names) => names
                        .iter()
                        .filter_map(|name| FileName::parse(name))
                        .for_each(|name| answer(&paths[1], &name)),
                    _ => {}
                }
            }
        });
        Self {
            directory,
            responder: Some((stopper, thread)),
        }
    }

    fn run(&self, kind: &str) {
        let path = |name: &str| self.directory.path().join(name);
        let (requests, responses) = (path("requests"), path("responses"));
        let mut command = if kind == "floor" {
            let mut floor = Command::new(floor_program());
            floor
                .arg(&requests)
                .arg(&responses)
                .arg(uuid::Uuid::new_v4().to_string());
            floor
        } else {
            Command::new(AGENT)
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        if kind != "floor" {
            let lines = format!(
                "nodename=node\naction=off\nplug=node\nrequest_dir={}\nresponse_dir={}\nlog_dir={}\n",
                requests.display(),
                responses.display(),
                path("log").display()
            );
            child
                .stdin
                .take()
                .unwrap()
                .write_all(lines.as_bytes())
                .unwrap();
        }
        assert!(child.wait().unwrap().success(), "{kind} failed");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some((stopper, thread)) = self.responder.take() {
            drop(stopper);
            let _ = thread.join();
        }
    }
}

fn floor_program() -> PathBuf {
    // cargo puts examples beside the binaries of the same profile
    Path::new(AGENT).parent().unwrap().join("examples/floor")
}

fn answer(responses: &Path, name: &FileName) {
    let temporary = responses.join(name.temporary());
    let response = format!(
        "{{\"request_id\": \"{}\", \"success\": true}}",
        name.request_id()
    );
    fs::write(&temporary, response).unwrap();
    fs::rename(&temporary, responses.join(name.as_str())).unwrap();
}
