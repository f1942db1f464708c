//! Waits for files to appear in directories: inotify where it can be had, always with a timeout.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::time::TimeSpec;

use super::directory::Directory;

/// A watch on directories (design 3.3); the default one has no events. Of the notify crate's events those of opened files can't be
/// turned off, and a responder's own looks would wake it; the agent must have no second thread.
#[derive(Debug, Default)]
pub struct Watch {
    inotify: Option<Inotify>,
    directories: Vec<WatchDescriptor>,
}

/// What in a directory is news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Files created, moved in, or closed after writing.
    Arrivals,
    /// Files that were moved in or closed after writing, so that they are whole.
    WholeArrivals,
    /// Files removed or moved away.
    Departures,
    /// Nothing but its own end.
    Nothing,
}

/// Why [`Watch::wait`] returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Woken {
    /// A descriptor that interrupts waiting is readable, or its other end is gone.
    Interrupted,
    /// These changed.
    Named(Vec<Change>),
    /// Anything may have changed: events were lost, or a directory came to its end or was moved.
    Unknown,
    /// Nothing is known to have happened.
    TimedOut,
}

/// A name that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which of the watched directories, from 0 in the order they were given.
    pub directory: usize,
    /// The name in it.
    pub name: OsString,
}

impl Interest {
    fn events(self) -> AddWatchFlags {
        AddWatchFlags::IN_ONLYDIR
            | match self {
                Self::Arrivals => {
                    AddWatchFlags::IN_CREATE
                        | AddWatchFlags::IN_MOVED_TO
                        | AddWatchFlags::IN_CLOSE_WRITE
                }
                Self::WholeArrivals => AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CLOSE_WRITE,
                Self::Departures => AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM,
                Self::Nothing => AddWatchFlags::IN_DELETE_SELF,
            }
            | AddWatchFlags::IN_MOVE_SELF
    }
}

impl Watch {
    /// Watches `directory` for arrivals. Where inotify can't be had (its instances run out, 128 per
    /// user by default), the watch has no events, and the second value says why: polling must do.
    #[must_use]
    pub fn new(directory: &Directory) -> (Self, Option<Errno>) {
        Self::on(&[(directory, Interest::Arrivals)])
    }

    /// Watches several directories, each for its own kind of news.
    #[must_use]
    pub fn on(directories: &[(&Directory, Interest)]) -> (Self, Option<Errno>) {
        Self::inotify_on(directories).map_or_else(
            |error| (Self::default(), Some(error)),
            |watch| (watch, None),
        )
    }

    fn inotify_on(watched: &[(&Directory, Interest)]) -> nix::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let directories = watched
            .iter()
            .map(|(directory, interest)| {
                inotify.add_watch(&directory.path_by_descriptor(), interest.events())
            })
            .collect::<nix::Result<_>>()?;
        Ok(Self {
            inotify: Some(inotify),
            directories,
        })
    }

    /// Waits for an event, for one of `interrupts` to become readable, or for `timeout`.
    #[must_use]
    pub fn wait(&self, timeout: Duration, interrupts: &[BorrowedFd<'_>]) -> Woken {
        let watched = self.inotify.as_ref().map(AsFd::as_fd);
        let mut descriptors: Vec<_> = interrupts
            .iter()
            .copied()
            .chain(watched)
            .map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN))
            .collect();
        let timeout_spec = Some(TimeSpec::from_duration(timeout));
        match ppoll(&mut descriptors, timeout_spec, None) {
            Ok(0) | Err(Errno::EINTR) => Woken::TimedOut,
            Ok(_) => {
                let (interrupts, _) = descriptors.split_at(interrupts.len());
                if interrupts.iter().any(|one| one.any() == Some(true)) {
                    Woken::Interrupted
                } else {
                    self.events()
                }
            }
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
            let at_once = Some(TimeSpec::from_duration(Duration::ZERO));
            matches!(ppoll(&mut descriptors, at_once, None), Ok(1..))
        })
    }

    /// What happened since the last look, without waiting.
    #[must_use]
    pub fn events(&self) -> Woken {
        let Some(inotify) = &self.inotify else {
            return Woken::TimedOut;
        };
        let events = match inotify.read_events() {
            Ok(events) => events,
            Err(Errno::EAGAIN) => return Woken::TimedOut,
            Err(_) => return Woken::Unknown,
        };
        let lost =
            AddWatchFlags::IN_Q_OVERFLOW | AddWatchFlags::IN_IGNORED | AddWatchFlags::IN_MOVE_SELF;
        if events.iter().any(|event| event.mask.intersects(lost)) {
            return Woken::Unknown;
        }
        let changes = events.into_iter().filter_map(|event| {
            let of = |descriptor: &WatchDescriptor| *descriptor == event.wd;
            Some(Change {
                directory: self.directories.iter().position(of)?,
                name: event.name?,
            })
        });
        Woken::Named(changes.collect())
    }
}
