//! What the agent says: stdout, stderr and debug_file, none of which can hold it up.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::poll::{PollFlags, poll};
use nix::sys::stat::Mode;
use nix::unistd::write;

use crate::audit::{append, open_for_append};
use crate::interrupt::Interrupt;
use crate::spool::system::{uninterrupted, with_advice};
use crate::text::one_line;

/// How long a full pipe may hold up a message that nobody asked for.
const PATIENCE: Duration = Duration::from_millis(100);

/// Where lines go; a test has its own.
pub trait Outlet {
    /// Writes all of `text` to standard output, however long the reader takes.
    ///
    /// # Errors
    /// When the reader is gone, or a signal ended the program.
    fn output(&self, text: &str) -> io::Result<()>;

    /// Writes `text` to standard output if it can be had soon; a full pipe must not hold up a fence.
    fn notice(&self, text: &str);

    /// Writes `text` to standard error if it can be had soon; a full pipe must not hold up a fence.
    fn error(&self, text: &str);
}

/// The process's own standard streams.
#[derive(Debug)]
pub struct Standard<'a> {
    interrupt: &'a Interrupt,
}

impl<'a> Standard<'a> {
    /// Streams whose waiting `interrupt` ends.
    #[must_use]
    pub fn new(interrupt: &'a Interrupt) -> Self {
        Self { interrupt }
    }

    fn write(&self, stream: impl AsFd, text: &str, patience: Option<Duration>) -> io::Result<()> {
        // a pipe that is ready takes PIPE_BUF bytes without blocking
        for part in text.as_bytes().chunks(4096) {
            let mut part = part;
            while !part.is_empty() {
                match self
                    .interrupt
                    .wait_for(stream.as_fd(), PollFlags::POLLOUT, patience)
                {
                    Ok(true) => match uninterrupted(|| write(&stream, part))? {
                        0 => return Err(io::ErrorKind::WriteZero.into()),
                        length => part = &part[length..],
                    },
                    Ok(false) => return Err(io::ErrorKind::TimedOut.into()),
                    Err(signal) => return Err(io::Error::other(signal.to_string())),
                }
            }
        }
        Ok(())
    }

    /// Like [`Outlet::output`], but to any stream, leaves signals for others to notice and gives up soon.
    pub fn try_write(stream: impl AsFd, text: &str) {
        let mut ready = [nix::poll::PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
        let patience = u16::try_from(PATIENCE.as_millis()).unwrap_or(u16::MAX);
        for mut part in text.as_bytes().chunks(4096) {
            while !part.is_empty() {
                // where poll itself fails, the words are worth the risk of waiting
                if let Ok(0) = uninterrupted(|| poll(&mut ready, patience)) {
                    return;
                }
                match uninterrupted(|| write(&stream, part)) {
                    Ok(0) | Err(_) => return,
                    Ok(length) => part = &part[length..],
                }
            }
        }
    }
}

impl Outlet for Standard<'_> {
    fn output(&self, text: &str) -> io::Result<()> {
        self.write(io::stdout(), text, None)
    }

    fn notice(&self, text: &str) {
        Self::try_write(io::stdout(), text);
    }

    fn error(&self, text: &str) {
        Self::try_write(io::stderr(), text);
    }
}

/// The agent's voice.
pub struct Console<'a> {
    outlet: &'a dyn Outlet,
    quiet: bool,
    verbosity: u64,
    warnings_to_stdout: bool,
    debug_file: Option<PathBuf>,
    started: Instant,
    /// Debug lines that wait until logging is allowed.
    held_back: RefCell<Option<Vec<String>>>,
    audit_warned: Cell<bool>,
    debug_file_warned: Cell<bool>,
}

impl<'a> Console<'a> {
    /// A console that logs nothing yet (design 4.3: not before the request is published).
    #[must_use]
    pub fn new(outlet: &'a dyn Outlet) -> Self {
        Self {
            outlet,
            quiet: false,
            verbosity: 0,
            warnings_to_stdout: false,
            debug_file: None,
            started: Instant::now(),
            held_back: RefCell::new(Some(Vec::new())),
            audit_warned: Cell::new(false),
            debug_file_warned: Cell::new(false),
        }
    }

    /// Takes over what the settings say of it.
    pub fn configure(&mut self, settings: &super::parameters::Settings) {
        self.quiet = settings.quiet;
        self.verbosity = settings.verbose_level.max(u64::from(settings.verbose));
        self.debug_file.clone_from(&settings.debug_file);
        // Pacemaker takes any stderr line of it that holds "timeout" for a timeout (design 2)
        self.warnings_to_stdout = settings.action == super::action::Action::ValidateAll;
    }

    /// Prints what was asked for.
    ///
    /// # Errors
    /// When nobody reads it.
    pub fn output(&self, text: &str) -> io::Result<()> {
        self.outlet.output(text)
    }

    /// Says that all is well, unless quiet.
    pub fn success(&self, text: &str) {
        self.debug(1, text);
        if !self.quiet {
            self.outlet.notice(&format!("{text}\n"));
        }
    }

    /// Says in one line why it failed.
    pub fn failure(&self, text: &str) {
        let text = one_line(text);
        self.keep(&text);
        self.outlet.error(&format!("fence_recorder: {text}\n"));
    }

    /// Says in one line what is odd, unless quiet.
    pub fn warning(&self, text: &str) {
        let text = one_line(text);
        self.keep(&text);
        let line = format!("fence_recorder: warning: {text}\n");
        match (self.quiet, self.warnings_to_stdout) {
            (true, _) => {}
            (false, true) => self.outlet.notice(&line),
            (false, false) => self.outlet.error(&line),
        }
    }

    /// Warns once of a log that can't be written; the next event would say the same.
    pub fn audit_warning(&self, text: &str) {
        if !self.audit_warned.replace(true) {
            self.warning(text);
        }
    }

    /// Says a step from `level` of verbosity on.
    pub fn debug(&self, level: u64, text: &str) {
        let text = one_line(text);
        self.keep(&text);
        if self.verbosity >= level {
            let line = format!(
                "fence_recorder: {:.3} s: {text}\n",
                self.started.elapsed().as_secs_f64()
            );
            if self.warnings_to_stdout {
                self.outlet.notice(&line);
            } else {
                self.outlet.error(&line);
            }
        }
    }

    /// From now on lines go to debug_file, those said before first.
    pub fn allow_logging(&self) {
        if let Some(lines) = self.held_back.take() {
            self.append(&lines.concat());
        }
    }

    fn keep(&self, text: &str) {
        if self.debug_file.is_none() {
            return;
        }
        let line = format!(
            "{} [{}] {text}\n",
            crate::spool::time::timestamp_text(jiff::Timestamp::now()),
            std::process::id()
        );
        match self.held_back.borrow_mut().as_mut() {
            Some(lines) => lines.push(line),
            None => self.append(&line),
        }
    }

    fn append(&self, text: &str) {
        let Some(path) = self.debug_file.as_deref().filter(|_| !text.is_empty()) else {
            return;
        };
        if let Err(reason) = append_to(path, text)
            && !self.debug_file_warned.replace(true)
            && !self.quiet
        {
            let path = one_line(&path.to_string_lossy());
            self.outlet.error(&format!(
                "fence_recorder: warning: debug_file: {path} {reason}\n"
            ));
        }
    }
}

fn append_to(path: &Path, text: &str) -> Result<(), String> {
    let advice = |error| format!("can't be opened: {}", with_advice(error));
    let (Some(directory), Some(name)) = (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) else {
        return Err("is no path of a file".to_owned());
    };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let directory = open(directory, flags, Mode::empty()).map_err(advice)?;
    let file = open_for_append(&directory, name)?;
    append(&file, text.as_bytes())
        .map_err(|error| format!("can't be written: {}", with_advice(error)))
}
