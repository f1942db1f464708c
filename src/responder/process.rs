//! Starts processes in groups of their own, watches them to their end, and ends them.

use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::time::TimeSpec;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::gate;
use super::prepare::Prepared;
use crate::jobs::record::ProcessGroup;
use crate::secret::{longest, redacted};
use crate::text::one_line;

/// From SIGTERM to SIGKILL, where the deadline leaves that much.
pub const TERM_GRACE: Duration = Duration::from_secs(2);

/// How long killed processes may take to be seen gone; only one in the kernel's hands needs more.
const REAP_TIME: Duration = Duration::from_secs(3);

/// How often a look without an event is worth it.
const TICK: Duration = Duration::from_millis(20);

/// The most of a task's output that is kept: its end.
const TAIL: usize = 16 * 1024;

/// What marks the processes of a job, in their environment.
pub const MARK: &str = "FENCE_REQUEST_ID";

/// What systemd tells the responder alone.
const NOT_INHERITED: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];

/// A process that waits at the [`gate`].
#[derive(Debug)]
pub struct Waiting {
    child: Child,
    /// Says go by a byte, and stop by its end.
    go: Option<PipeWriter>,
    output: PipeReader,
    /// By which it is found again.
    pub group: ProcessGroup,
}

/// When a process has to end.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// SIGTERM to its group.
    pub terminate: Instant,
    /// SIGKILL to its group.
    pub kill: Instant,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Exited(i32),
    /// By a signal that wasn't ours.
    Signaled(i32),
    /// Killed at its limit.
    TimedOut,
    /// Killed because the responder ends.
    Interrupted,
}

/// All that is known of a process that is over.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub end: End,
    /// The last line it printed, harmless and without secrets.
    pub last_line: String,
    /// Whether all of its group was seen gone.
    pub is_gone: bool,
}

/// Starts what was prepared, in a process group of its own, up to the [`gate`].
///
/// # Errors
/// When no process, pipe or memory can be had.
pub fn launch(prepared: &Prepared) -> io::Result<Waiting> {
    let (go_in, go) = io::pipe()?;
    let (output, output_in) = io::pipe()?;
    fcntl(&output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("fence_recorder")
        .arg(gate::WORD)
        .arg(&prepared.program)
        .args(&prepared.arguments)
        .envs(
            prepared
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .current_dir("/")
        .stdin(in_memory(&prepared.input)?)
        .stdout(go_in)
        .stderr(output_in)
        .process_group(0);
    for name in NOT_INHERITED {
        command.env_remove(name);
    }
    if std::env::var_os("PATH").is_none() {
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    }
    let mut child = command.spawn()?;
    match identify(child.id()) {
        Ok(group) => Ok(Waiting {
            child,
            go: Some(go),
            output,
            group,
        }),
        Err(error) => {
            drop(go);
            let _ = child.wait();
            Err(error)
        }
    }
}

/// The input as a file that has no name and no disk: it is there as a whole before the process is.
fn in_memory(input: &[u8]) -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, memfd_create};
    let mut file = File::from(memfd_create("fence_recorder-input", MemfdFlags::CLOEXEC)?);
    file.write_all(input)?;
    file.rewind()?;
    Ok(file.into())
}

impl Waiting {
    /// Lets it go and stays with it to its end, and that of its group. `cut` becomes readable when
    /// the responder ends.
    #[must_use]
    pub fn run(mut self, limits: Limits, cut: BorrowedFd<'_>, secrets: &[String]) -> Ended {
        // a gate that was killed reads nothing, one that can't be told sees the pipe's end: its own is
        // seen below
        if let Some(mut go) = self.go.take() {
            let _ = go.write_all(&[1]);
        }
        let mut tail = Tail::default();
        let killed = self.watch(limits, cut, &mut tail);
        // the leader is a zombie or stuck, so that the group's number is still its own
        let _ = killpg(self.pid(), Signal::SIGKILL);
        tail.read_from(&mut self.output);
        let (end, is_gone) = self.reap(killed);
        Ended {
            end,
            last_line: tail.last_line(secrets),
            is_gone,
        }
    }

    /// Lets it end at the gate.
    pub fn dismiss(self) {
        let Self { mut child, go, .. } = self;
        drop(go);
        let _ = child.wait();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.group.id)
    }

    /// Until the leader has ended, or can't be made to; says whether and why it was killed.
    fn watch(&mut self, limits: Limits, cut: BorrowedFd<'_>, tail: &mut Tail) -> Option<End> {
        let handle = leader_handle(self.pid());
        let (mut killed, mut kill_at, mut is_open) = (None, limits.kill, true);
        let mut has_been_killed = false;
        while !self.has_exited() {
            let now = Instant::now();
            if killed.is_none() && now >= limits.terminate {
                killed = Some(End::TimedOut);
                let _ = killpg(self.pid(), Signal::SIGTERM);
            }
            if killed.is_some() && !has_been_killed && now >= kill_at {
                has_been_killed = true;
                let _ = killpg(self.pid(), Signal::SIGKILL);
            }
            if has_been_killed && now >= kill_at + REAP_TIME {
                break;
            }
            let until = match (killed, has_been_killed) {
                (None, _) => limits.terminate,
                (_, false) => kill_at,
                (_, true) => kill_at + REAP_TIME,
            };
            let left = until.saturating_duration_since(now);
            // without a handle on the leader its end raises no event
            let timeout = if handle.is_some() {
                left
            } else {
                left.min(TICK)
            };
            let ready = self.poll(
                handle.as_ref(),
                is_open,
                killed.is_none().then_some(cut),
                timeout,
            );
            if ready.output {
                is_open = tail.read_from(&mut self.output);
            }
            if ready.cut && killed.is_none() {
                killed = Some(End::Interrupted);
                kill_at = kill_at.min(Instant::now() + TERM_GRACE);
                let _ = killpg(self.pid(), Signal::SIGTERM);
            }
        }
        killed
    }

    fn poll(
        &self,
        handle: Option<&OwnedFd>,
        is_open: bool,
        cut: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> Ready {
        let output = is_open.then(|| self.output.as_fd());
        let all = [output, cut, handle.map(AsFd::as_fd)];
        let mut descriptors: Vec<_> = all
            .into_iter()
            .flatten()
            .map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN))
            .collect();
        let result = ppoll(
            &mut descriptors,
            Some(TimeSpec::from_duration(timeout)),
            None,
        );
        if !matches!(result, Ok(_) | Err(Errno::EINTR)) {
            // out of memory, say: still no busy loop
            std::thread::sleep(TICK);
        }
        let mut ready = descriptors.iter().map(|one| one.any() == Some(true));
        let is_ok = result.is_ok();
        Ready {
            output: output.is_some() && ready.next() == Some(true) && is_ok,
            cut: cut.is_some() && ready.next() == Some(true) && is_ok,
        }
    }

    /// Whether the leader has ended; it stays a zombie, so that its group keeps its number.
    fn has_exited(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(
            waitid(Id::Pid(self.pid()), flags),
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR)
        )
    }

    fn reap(mut self, killed: Option<End>) -> (End, bool) {
        if !self.has_exited() {
            let mut child = self.child;
            // in the kernel's hands: whenever that lets go, no zombie stays
            let _ = std::thread::Builder::new().spawn(move || child.wait());
            return (killed.unwrap_or(End::TimedOut), false);
        }
        let status = self.child.wait();
        let by_itself = status.map_or(End::Signaled(0), |status| {
            status
                .code()
                .map_or_else(|| End::Signaled(status.signal().unwrap_or(0)), End::Exited)
        });
        let is_gone = is_seen(REAP_TIME, || is_empty(self.group.id));
        (killed.unwrap_or(by_itself), is_gone)
    }
}

struct Ready {
    output: bool,
    cut: bool,
}

/// A descriptor that is readable when the process has ended; kernels before 5.3 have none.
fn leader_handle(leader: Pid) -> Option<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    pidfd_open(Pid::from_raw(leader.as_raw())?, PidfdFlags::empty()).ok()
}

fn is_seen(bound: Duration, look: impl Fn() -> bool) -> bool {
    let end = Instant::now() + bound;
    loop {
        if look() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The end of what a task printed.
#[derive(Debug, Default)]
struct Tail {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Tail {
    /// Takes what is there; false at the end of the pipe.
    fn read_from(&mut self, output: &mut PipeReader) -> bool {
        // one pipe's worth, so that a task that prints for ever doesn't keep us from its timeout
        let mut left = 1_usize << 20;
        let mut chunk = [0; 16 * 1024];
        while left > 0 {
            match output.read(&mut chunk) {
                Ok(0) => return false,
                Ok(length) => {
                    self.push(&chunk[..length]);
                    left = left.saturating_sub(length);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let excess = self.bytes.len().saturating_sub(TAIL);
        self.is_cut |= excess > 0;
        self.bytes.drain(..excess);
    }

    fn last_line(&self, secrets: &[String]) -> String {
        // the cut may have gone through a secret: what is left of it can't be known again
        let unsure = if self.is_cut { longest(secrets) } else { 0 };
        let text = String::from_utf8_lossy(&self.bytes);
        let text: String = text.chars().skip(unsure).collect();
        // before anything is trimmed: white space can be part of a secret
        let text = redacted(&text, secrets);
        let line = text.trim_end().lines().last().unwrap_or_default();
        one_line(line.trim())
    }
}

/// What /proc says of a process (proc(5): stat).
struct Stat {
    state: char,
    group: i32,
    start_time: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // the name before it may hold anything, parentheses too
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split(' ').collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            group: fields.get(2)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }

    fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

fn identify(pid: u32) -> io::Result<ProcessGroup> {
    let unreadable = || io::Error::other("/proc doesn't show the process");
    Ok(ProcessGroup {
        id: i32::try_from(pid).map_err(io::Error::other)?,
        start_time: Stat::of(pid).ok_or_else(unreadable)?.start_time,
        boot_id: boot_id()?,
    })
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// Whether nothing of the group lives: a zombie that its new parent doesn't reap is no life.
#[must_use]
pub fn is_empty(group: i32) -> bool {
    killpg(Pid::from_raw(group), None) == Err(Errno::ESRCH) || members(group).is_empty()
}

fn members(group: i32) -> Vec<u32> {
    let is_member =
        |pid: &u32| Stat::of(*pid).is_some_and(|stat| stat.group == group && stat.is_alive());
    processes().into_iter().filter(is_member).collect()
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.collect()
}

/// Kills what an earlier responder left of a process group, and sees it gone; false if it isn't.
#[must_use]
pub fn end_leftovers(group: &ProcessGroup, request_id: &str) -> bool {
    if boot_id().is_ok_and(|boot| boot != group.boot_id) {
        return true;
    }
    is_seen(REAP_TIME, || {
        let members = members(group.id);
        if !members.iter().any(|pid| is_of(*pid, group, request_id)) {
            return true;
        }
        let _ = killpg(Pid::from_raw(group.id), Signal::SIGKILL);
        false
    })
}

/// Kills the process groups of every process that has the mark of one of these jobs, and sees them
/// gone; false if they aren't. For jobs whose records can't say which they were.
#[must_use]
pub fn end_marked(request_ids: &[String]) -> bool {
    is_seen(REAP_TIME, || {
        let is_marked = |pid: &u32| request_ids.iter().any(|id| is_marked(*pid, id));
        let marked = processes()
            .into_iter()
            .filter(is_marked)
            .filter_map(Stat::of);
        let groups: Vec<i32> = marked
            .filter(Stat::is_alive)
            .map(|stat| stat.group)
            .collect();
        for group in &groups {
            let _ = killpg(Pid::from_raw(*group), Signal::SIGKILL);
        }
        groups.is_empty()
    })
}

/// Whether a member of the group's number is of that very group: its leader by its start time,
/// others by the mark of the job. The number may be another group's by now.
fn is_of(pid: u32, group: &ProcessGroup, request_id: &str) -> bool {
    let leader = u32::try_from(group.id).ok().and_then(Stat::of);
    if leader.is_some_and(|leader| leader.start_time == group.start_time) {
        return true;
    }
    is_marked(pid, request_id)
}

fn is_marked(pid: u32, request_id: &str) -> bool {
    let mark = format!("{MARK}={request_id}");
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|variable| variable == mark.as_bytes())
}
