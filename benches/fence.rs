//! One fence and the start-up, as whole processes, beside a floor: `cargo bench --bench fence`.
//!
//! Every process is spawned, and reaped by wait4, here: wall time is from before the spawn to
//! wait4's return, CPU time and peak memory are wait4's. What is compared runs in turns within one
//! run, so that whatever else the machine does befalls all of it. Figures are printed, none is
//! asserted: they are true only on an idle machine.
//!
//! When the last inotify watch of a directory ends, the kernel holds up the exit for 0.1 ms or for
//! some jiffies (up to 20 ms), by chance: SRCU grace periods. In more than a third of the fences
//! that was longer than all the rest, and the medians of floor and agent were a lottery. So the
//! responder watches `response_dir` too, which ends the lottery, to the floor's favour.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tempfile::TempDir;
use wait4::Wait4;

const FENCES: usize = 300;
const STARTS: usize = 50;
const AGENT: &str = env!("CARGO_BIN_EXE_fence_recorder");
const TMPFS: &str = "/dev/shm";
/// A reader of a request needs no more than its name: `<node>-<id>.json`.
const ID_LENGTH: usize = 36;

type Fallible<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    // cargo test --all-targets runs benches too, in the dev profile and without this argument
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("nothing to test here: cargo bench --bench fence");
        return ExitCode::SUCCESS;
    }
    match compare() {
        Ok(table) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("fence bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare() -> Fallible<String> {
    let floor = build_floor()?;
    let dummy = installed("/usr/sbin/fence_dummy")?;
    let kdump = installed("/usr/sbin/fence_kdump")?;
    let spool = Spool::new()?;

    let (mut floors, mut agents) = (Series::default(), Series::default());
    for _ in 0..FENCES {
        floors.push(&spool.fence_by_floor(&floor)?);
        agents.push(&spool.fence_by_agent()?);
    }
    let (mut own, mut dummies, mut kdumps) =
        (Series::default(), Series::default(), Series::default());
    for _ in 0..STARTS {
        own.push(&metadata(AGENT)?);
        dummies.push(&metadata(dummy)?);
        kdumps.push(&metadata(kdump)?);
    }

    let own_peak = own_peak()?;

    let mut table = String::new();
    writeln!(
        table,
        "{:<34}{:>16}{:>16}{:>16}\n{:<34}{:>16}{:>16}{:>16}",
        "median / 95th percentile", "wall", "CPU", "peak resident", "", "ms", "ms", "MiB"
    )?;
    writeln!(table, "{FENCES} fences on tmpfs, answered at once")?;
    table += &floors.row("  floor");
    table += &agents.row("  fence_recorder");
    table += &agents.ratio("  fence_recorder : floor", &floors);
    writeln!(table, "{STARTS} times -o metadata")?;
    table += &own.row("  fence_recorder");
    table += &dummies.row("  fence_dummy (Python)");
    table += &kdumps.row("  fence_kdump (C)");
    table += &dummies.ratio("  fence_dummy : fence_recorder", &own);
    table += &kdumps.ratio("  fence_kdump : fence_recorder", &own);
    writeln!(
        table,
        "peak resident: less than about {own_peak}, this program's own, can't be told"
    )?;
    Ok(table)
}

/// The floor is an example, so that it is built as the agent is; cargo bench builds no examples.
fn build_floor() -> Fallible<PathBuf> {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--example", "floor"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    let floor = Path::new(AGENT).with_file_name("examples").join("floor");
    if !built.is_ok_and(|status| status.success()) || !floor.exists() {
        return Err("the floor was not built: cargo build --release --example floor".into());
    }
    Ok(floor)
}

fn installed(agent: &str) -> Fallible<&str> {
    if Path::new(agent).exists() {
        Ok(agent)
    } else {
        Err(format!("{agent} is missing: apt-get install fence-agents").into())
    }
}

/// Directories on tmpfs, with a responder in a thread; removed when dropped.
struct Spool {
    directory: TempDir,
}

impl Spool {
    fn new() -> Fallible<Self> {
        let directory = tempfile::Builder::new()
            .prefix("fence_recorder-bench-")
            .tempdir_in(TMPFS)
            .map_err(|error| format!("no directory on tmpfs: {error}"))?;
        let spool = Self { directory };
        fs::create_dir(spool.requests())?;
        fs::create_dir(spool.responses())?;
        let watch = Inotify::init(InitFlags::IN_CLOEXEC)?;
        watch.add_watch(&spool.requests(), AddWatchFlags::IN_MOVED_TO)?;
        // so that the watch of floor or agent is not the last one (see above)
        watch.add_watch(&spool.responses(), AddWatchFlags::IN_DELETE_SELF)?;
        let responses = spool.responses();
        // it ends with the process
        thread::spawn(move || respond(&watch, &responses));
        Ok(spool)
    }

    fn requests(&self) -> PathBuf {
        self.directory.path().join("requests")
    }

    fn responses(&self) -> PathBuf {
        self.directory.path().join("responses")
    }

    fn fence_by_floor(&self, floor: &Path) -> Fallible<Sample> {
        let mut command = Command::new(floor);
        command.args([self.requests(), self.responses()]);
        fence(command.stdin(Stdio::null()))
    }

    fn fence_by_agent(&self) -> Fallible<Sample> {
        let (stdin, mut lines) = io::pipe()?;
        write!(
            lines,
            "action=off\nnodename=compute-3\nplug=compute-3\nrequest_dir={}\nresponse_dir={}\nlog_dir={}\n",
            self.requests().display(),
            self.responses().display(),
            self.directory.path().join("log").display(),
        )?;
        drop(lines);
        fence(Command::new(AGENT).stdin(stdin))
    }
}

fn fence(command: &mut Command) -> Fallible<Sample> {
    let (sample, said) = run(command)?;
    if said == "Success: Powered OFF\n" {
        Ok(sample)
    } else {
        Err(format!("{command:?} said {said:?}").into())
    }
}

/// Answers as fast as can be had: without reading the request, and without syncing the answer.
fn respond(watch: &Inotify, responses: &Path) {
    while let Ok(events) = watch.read_events() {
        for name in events.into_iter().filter_map(|event| event.name) {
            let Some(name) = name.to_str() else { continue };
            if let Err(error) = answer(responses, name) {
                eprintln!("fence bench: the responder can't answer {name}: {error}");
            }
        }
    }
}

fn answer(responses: &Path, name: &str) -> io::Result<()> {
    let stem = name.trim_end_matches(".json");
    let id = &stem[stem.len().saturating_sub(ID_LENGTH)..];
    let text = format!(
        r#"{{"request_id": "{id}", "success": true, "message": "done", "action_performed": "off"}}"#
    );
    let temporary = responses.join(format!(".{name}.tmp"));
    fs::write(&temporary, text)?;
    fs::rename(&temporary, responses.join(name))
}

fn metadata(agent: &str) -> Fallible<Sample> {
    let (sample, said) = run(Command::new(agent)
        .args(["-o", "metadata"])
        .stdin(Stdio::null()))?;
    if said.contains("<resource-agent ") {
        Ok(sample)
    } else {
        Err(format!("{agent} -o metadata said {said:?}").into())
    }
}

/// What one process took.
struct Sample {
    wall: Duration,
    cpu: Duration,
    /// The peak, in bytes. Linux credits a process at its exec with the peak of the address space
    /// it leaves, which after the vfork of a spawn is this program's: no less than this program's
    /// own peak can be measured. So it stays small: a few hundred samples, and no text that
    /// outlives its process. The agent is larger, so its figure holds; the floor is as small as
    /// this program, so its figure is the most that it can be. wait4 sums a counter per processor
    /// roughly, so either may be off by a quarter of a MiB on two processors.
    peak: u64,
}

fn run(command: &mut Command) -> Fallible<(Sample, String)> {
    // without the library path that cargo sets, which the dynamic linker would search in vain
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin");
    command.stdout(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn()?;
    let ended = child.wait4()?;
    let wall = start.elapsed();
    // metadata too fits a pipe, so nothing waits for this reader
    let mut said = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut said)?;
    }
    if !ended.status.success() {
        return Err(format!("{command:?} ended with {}", ended.status).into());
    }
    let used = ended.rusage;
    let sample = Sample {
        wall,
        cpu: used.utime + used.stime,
        peak: used.maxrss,
    };
    Ok((sample, said))
}

/// The peak of this program since its exec; its own `ru_maxrss` would hold cargo's.
fn own_peak() -> Fallible<String> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"))
        .ok_or("/proc/self/status has no VmHWM")?;
    Ok(format!("{:.2} MiB", peak.parse::<f64>()? / 1024.0))
}

/// All samples of one kind, in the table's units.
#[derive(Default)]
struct Series {
    wall: Vec<f64>,
    cpu: Vec<f64>,
    peak: Vec<f64>,
}

impl Series {
    fn push(&mut self, sample: &Sample) {
        self.wall.push(sample.wall.as_secs_f64() * 1e3);
        self.cpu.push(sample.cpu.as_secs_f64() * 1e3);
        // pages, far below 2^53
        #[allow(clippy::cast_precision_loss)]
        self.peak.push(sample.peak as f64 / f64::from(1 << 20));
    }

    fn columns(&self) -> [&[f64]; 3] {
        [&self.wall, &self.cpu, &self.peak]
    }

    fn row(&self, name: &str) -> String {
        let cells = self.columns().map(|values| {
            format!(
                "{:.2} / {:.2}",
                percentile(values, 50),
                percentile(values, 95)
            )
        });
        line(name, &cells)
    }

    /// How many times the medians of `other` these are.
    fn ratio(&self, name: &str, other: &Self) -> String {
        let (own, others) = (self.columns(), other.columns());
        let cells = [0, 1, 2].map(|column| {
            let ratio = percentile(own[column], 50) / percentile(others[column], 50);
            format!("{ratio:.2} : 1")
        });
        line(name, &cells)
    }
}

fn line(name: &str, cells: &[String; 3]) -> String {
    let [wall, cpu, peak] = cells;
    format!("{name:<34}{wall:>16}{cpu:>16}{peak:>16}\n")
}

fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * percent / 100]
}
