//! Waits for files to appear in a directory: inotify where it can be had, always with a timeout.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::time::TimeSpec;

use super::directory::Directory;

/// A watch on one directory for files created, moved in, or closed after writing (design 3.3).
#[derive(Debug)]
pub struct Watch {
    inotify: Option<Inotify>,
}

/// Why [`Watch::wait`] returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Woken {
    /// The descriptor that interrupts waiting is readable, or its other end is gone.
    Interrupted,
    /// These names changed.
    Named(Vec<OsString>),
    /// Anything may have changed: events were lost.
    Unknown,
    /// Nothing is known to have happened.
    TimedOut,
}

impl Watch {
    /// Watches `directory`. Where inotify can't be had (its instances run out, 128 per user by
    /// default), the watch has no events, and the second value says why: polling must do.
    #[must_use]
    pub fn new(directory: &Directory) -> (Self, Option<Errno>) {
        match Self::inotify_on(directory) {
            Ok(inotify) => (
                Self {
                    inotify: Some(inotify),
                },
                None,
            ),
            Err(error) => (Self { inotify: None }, Some(error)),
        }
    }

    fn inotify_on(directory: &Directory) -> nix::Result<Inotify> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let events = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_ONLYDIR;
        inotify.add_watch(&directory.path_by_descriptor(), events)?;
        Ok(inotify)
    }

    /// Waits for an event, for `interrupt` to become readable, or for `timeout`.
    #[must_use]
    pub fn wait(&self, timeout: Duration, interrupt: BorrowedFd<'_>) -> Woken {
        let mut descriptors = vec![PollFd::new(interrupt, PollFlags::POLLIN)];
        descriptors.extend(
            self.inotify
                .as_ref()
                .map(|inotify| PollFd::new(inotify.as_fd(), PollFlags::POLLIN)),
        );
        match ppoll(
            &mut descriptors,
            Some(TimeSpec::from_duration(timeout)),
            None,
        ) {
            Ok(0) | Err(Errno::EINTR) => Woken::TimedOut,
            Ok(_) if descriptors[0].any() == Some(true) => Woken::Interrupted,
            Ok(_) => self.events(),
            Err(_) => {
                // out of memory, say: still no busy loop
                std::thread::sleep(timeout.min(Duration::from_millis(10)));
                Woken::TimedOut
            }
        }
    }

    /// Whether an event waits to be read; takes none.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.inotify.as_ref().is_some_and(|inotify| {
            let mut descriptors = [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
            matches!(
                ppoll(
                    &mut descriptors,
                    Some(TimeSpec::from_duration(Duration::ZERO)),
                    None
                ),
                Ok(1..)
            )
        })
    }

    fn events(&self) -> Woken {
        let Some(Ok(events)) = self.inotify.as_ref().map(Inotify::read_events) else {
            return Woken::Unknown;
        };
        if events
            .iter()
            .any(|event| event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW))
        {
            return Woken::Unknown;
        }
        Woken::Named(events.into_iter().filter_map(|event| event.name).collect())
    }
}
