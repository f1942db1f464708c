//! Signals that end the program, as a descriptor to wait on instead of handlers.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;

/// The signals that ask the program to end. They stay blocked, so nothing is cut off half-way.
const ENDING: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Becomes readable when the program is asked to end.
#[derive(Debug)]
pub struct Interrupt {
    signals: SignalFd,
}

/// A signal that asked the program to end, or a daemon to look at its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted(Signal);

impl Interrupted {
    /// Whether it is SIGHUP, which asks a daemon to read its configuration anew.
    #[must_use]
    pub fn is_hangup(self) -> bool {
        self.0 == Signal::SIGHUP
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl Interrupt {
    /// Blocks the signals of this thread, and of all that it starts, from now on. SIGXFSZ is
    /// blocked too: a file size limit then is an error of write, not a death.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn new() -> nix::Result<Self> {
        let ending: SigSet = ENDING.into_iter().collect();
        let mut blocked = ending;
        blocked.add(Signal::SIGXFSZ);
        blocked.thread_block()?;
        Ok(Self {
            signals: SignalFd::with_flags(&ending, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?,
        })
    }

    /// Which signal came, if one came since the last look.
    #[must_use]
    pub fn signal(&self) -> Option<Interrupted> {
        let info = self.signals.read_signal().ok().flatten()?;
        let signal = i32::try_from(info.ssi_signo)
            .ok()
            .and_then(|number| Signal::try_from(number).ok());
        Some(Interrupted(signal.unwrap_or(Signal::SIGTERM)))
    }

    /// Whether a signal has come that [`Interrupt::signal`] hasn't told of.
    #[must_use]
    pub fn has_come(&self) -> bool {
        let mut descriptors = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let at_once = Some(TimeSpec::from_duration(Duration::ZERO));
        matches!(ppoll(&mut descriptors, at_once, None), Ok(1..))
    }

    /// Waits until `descriptor` is ready for `events` (or broken), or `timeout` has passed; returns
    /// whether it is ready.
    ///
    /// # Errors
    /// The signal that came first.
    pub fn wait_for(
        &self,
        descriptor: BorrowedFd<'_>,
        events: PollFlags,
        timeout: Option<Duration>,
    ) -> Result<bool, Interrupted> {
        let mut descriptors = [
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(descriptor, events),
        ];
        loop {
            match ppoll(&mut descriptors, timeout.map(TimeSpec::from_duration), None) {
                Err(Errno::EINTR) => {}
                // what can't be waited for shows itself when it is used
                Err(_) => return Ok(true),
                Ok(_) => break,
            }
        }
        match self.signal() {
            Some(signal) => Err(signal),
            None => Ok(descriptors[1].any() == Some(true)),
        }
    }

    /// Waits for `time`, by the monotonic clock.
    ///
    /// # Errors
    /// The signal that came first.
    pub fn sleep(&self, time: Duration) -> Result<(), Interrupted> {
        let mut descriptors = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let end = std::time::Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let _ = ppoll(&mut descriptors, Some(TimeSpec::from_duration(left)), None);
            if let Some(signal) = self.signal() {
                return Err(signal);
            }
        }
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}
